"""Values that callers may make themselves."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime

import pytest

from holdfast import Checkpoint, CheckpointDiff

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
        copy = replace(made, message="other")
        assert (copy.message, copy.sequence, copy.pinned, copy.files_changed) == ("other", 3, True, ["a.py"])
        assert replace(copy, message="m") == made
        assert pickle.loads(pickle.dumps(made)) == made

    def test_is_frozen(self) -> None:
        made = Checkpoint("a1", "m", NOW, ["a.py"])
        made.files_changed.append("b.py")
        assert made.files_changed == ["a.py"]
        with pytest.raises(FrozenInstanceError):
            made.message = "other"  # type: ignore[misc]


def test_a_diff_is_made_of_the_documented_attributes() -> None:
    made = CheckpointDiff(
        from_id="a1", to_id="a2", added_files=["a"], modified_files=[], deleted_files=[], diff_content="+a"
    )
    assert made and made.renamed_files == [] and made.uncompared == {}
    assert not CheckpointDiff("a1", "a2")
