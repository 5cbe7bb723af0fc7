"""Values that callers may make themselves."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime

import pytest

from holdfast import Checkpoint, CheckpointDiff
from holdfast.model import GitHead

NOW = datetime(2026, 1, 2, tzinfo=UTC)


class TestCheckpoint:
    def test_is_made_of_the_documented_attributes(self) -> None:
        made = Checkpoint(id="a1", message="m", timestamp=NOW, files_changed=["a.py"], metadata={"k": 1})
        assert (made.id, made.message, made.timestamp) == ("a1", "m", NOW)
        assert (made.files_changed, made.metadata) == (["a.py"], {"k": 1})
        assert (made.state, made.uncovered, made.sequence) == ({}, (), 0)

    def test_metadata_is_empty_by_default_and_not_shared(self) -> None:
        one, other = (Checkpoint("a1", "m", NOW) for _ in range(2))
        assert one.metadata == {} and one.metadata is not other.metadata
        assert one.files_changed == []

    def test_a_changed_copy_keeps_the_rest(self) -> None:
        made = Checkpoint("a1", "m", NOW, ["a.py"], sequence=3, pinned=True)
        changed = made.replace(message="other")
        assert (changed.message, changed.sequence, changed.pinned, changed.files_changed) == (
            "other",
            3,
            True,
            ["a.py"],
        )
        assert changed.replace(message="m") == made
        assert pickle.loads(pickle.dumps(made)) == made

    def test_is_frozen(self) -> None:
        made = Checkpoint("a1", "m", NOW, ["a.py"])
        made.files_changed.append("b.py")
        assert made.files_changed == ["a.py"]
        with pytest.raises(AttributeError, match="cannot be changed: message"):
            made.message = "other"
        with pytest.raises(AttributeError, match="cannot be changed: id"):
            del made.id

    def test_copies_are_equal(self) -> None:
        made = Checkpoint("a1", "m", NOW, metadata={"a": 1}, sequence=3, git=GitHead("c", "main"))
        for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), made.replace()):
            assert other == made and hash(other) == hash(made) and repr(other) == repr(made)
        assert made != made.replace(pinned=True) and made == made.replace(is_new=True) and made != "a1"
        assert "sequence=3" in repr(made) and "is_new" not in repr(made)
        with pytest.raises(TypeError):
            made.replace(nothing=1)


def test_a_diff_is_made_of_the_documented_attributes() -> None:
    made = CheckpointDiff(
        from_id="a1", to_id="a2", added_files=["a"], modified_files=[], deleted_files=[], diff_content="+a"
    )
    assert made and made.renamed_files == [] and made.uncompared == {}
    assert not CheckpointDiff("a1", "a2")
