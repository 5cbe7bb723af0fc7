"""How a checkpoint is written down, and that git can read all of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast import Checkpoint, Workspace
from holdfast.errors import Damaged, Refused
from holdfast.model import Operation, Reason, Uncovered
from holdfast.shadowgit import FILE_MODE, ObjectKind, ObjectStore, TreeEntry, encode_commit, encode_tree
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.record import (
    decode_changes,
    decode_record,
    decode_rules,
    decode_uncovered,
    encode_record,
    encode_uncovered,
    read_contents,
    to_json,
)

Git = Callable[..., bytes]

PLAIN = Checkpoint("a1-x7k2mqrs", "", datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC), sequence=1)
FULL = PLAIN.replace(
    message="before \N{SNOWMAN} half \ud800 a character\nand a line",
    name="name",
    session="s1",
    actor="an agent",
    step=-3,
    parent="a0-parent",
    metadata={"ticket": 42, "deep": [{"a": None}]},
    pinned=True,
    complete=False,
    quiet=False,
    operation=Operation("restore", "a1-target", ("a", "\udcff", "new\nline")),
)


class TestRecord:
    @pytest.mark.parametrize("checkpoint", [PLAIN, FULL, FULL.replace(operation=Operation("undo", "x"))])
    def test_it_comes_back(self, checkpoint: Checkpoint) -> None:
        assert decode_record(encode_record(checkpoint), commit="", lazy=None) == checkpoint

    def test_it_is_json_that_says_its_format(self) -> None:
        said = json.loads(encode_record(FULL))
        assert said["format"] == 1
        assert said["id"] == FULL.id
        assert encode_record(FULL).isascii()

    def test_a_time_of_any_zone_comes_back_in_utc(self) -> None:
        there = PLAIN.replace(timestamp=PLAIN.timestamp.astimezone(timezone(timedelta(hours=5, minutes=30))))
        back = decode_record(encode_record(there), commit="", lazy=None)
        assert back.timestamp == PLAIN.timestamp
        assert back.timestamp.tzinfo is UTC

    @pytest.mark.parametrize(
        "timestamp", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1000000000-01-01T00:00:00Z", 7e300, -1]
    )
    def test_a_time_that_no_calendar_has_is_damage(self, timestamp: Any) -> None:
        data = json.dumps(json.loads(encode_record(PLAIN)) | {"timestamp": timestamp}).encode()
        with pytest.raises(Damaged, match="record of commit"):
            decode_record(data, commit="c" * 40, lazy=None)

    @pytest.mark.parametrize("data", [b"", b"garbage", b"[]", b"{}", b"null", b"\xff", b"5", b'"text"'])
    def test_garbage_is_damage(self, data: bytes) -> None:
        with pytest.raises(Damaged):
            decode_record(data, commit="c" * 40, lazy=None)

    @pytest.mark.parametrize("field", sorted(json.loads(encode_record(PLAIN)).keys() - {"format"}))
    def test_a_record_without_a_field_is_damage(self, field: str) -> None:
        row = json.loads(encode_record(FULL))
        del row[field]
        with pytest.raises(Damaged):
            decode_record(json.dumps(row).encode(), commit="c" * 40, lazy=None)

    @pytest.mark.parametrize(
        "wrong", [{"pinned": 1}, {"message": 5}, {"step": "1"}, {"parent": "\ud800"}, {"metadata": {"a": float("nan")}}]
    )
    def test_what_could_not_be_read_again_is_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(Refused, match="cannot be stored"):
            encode_record(PLAIN.replace(**wrong))

    def test_a_missing_message_is_empty(self) -> None:
        """Earlier versions stored the None of a caller."""
        row = json.loads(encode_record(FULL)) | {"message": None}
        assert decode_record(json.dumps(row).encode(), commit="", lazy=None) == FULL.replace(message="")

    def test_a_field_of_a_later_version_is_passed_over(self) -> None:
        row = json.loads(encode_record(FULL)) | {"new": 1}
        assert decode_record(json.dumps(row).encode(), commit="", lazy=None) == FULL


class TestUncovered:
    def test_it_comes_back(self) -> None:
        items = [Uncovered(f"path {reason} \udcff\n", reason, "a rule") for reason in Reason]
        assert list(decode_uncovered(encode_uncovered(items))) == items

    def test_nothing_is_nothing(self) -> None:
        assert decode_uncovered(encode_uncovered([])) == ()


class TestContents:
    def test_git_shows_every_part(self, project: Any, ws: Workspace, git: Git) -> None:
        project.write("folder/file", b"content\n")
        saved = ws.save("a message", state={"conversation": ["hello"]})

        def show(path: str) -> bytes:
            return git("--git-dir", ws.store, "show", f"{saved.id}:{path}")

        assert show("files/folder/file") == b"content\n"
        assert json.loads(show("checkpoint.json"))["message"] == "a message"
        assert json.loads(show("state/conversation.json")) == ["hello"]
        assert json.loads(show("uncovered.json")) == []
        assert json.loads(show("rules.json"))["exclude_patterns"] == []
        assert json.loads(show("changes.json")) is None, "nothing came before it"
        assert b" folder" not in show("attrs/%")
        assert show("attrs/folder").endswith(b" file\n")
        assert b"a message" in git("--git-dir", ws.store, "log", "--all", "--format=%s")

    def test_a_commit_without_a_part_is_damage(self, ws: Workspace) -> None:
        sink = ObjectSink(ObjectStore(ws.store))
        blob = sink.add(ObjectKind.BLOB, b"x")
        tree = sink.add(ObjectKind.TREE, encode_tree([TreeEntry(FILE_MODE, b"attrs", blob)]))
        with pytest.raises(Damaged, match="has no"):
            read_contents(sink, encode_commit(tree, seconds=0, message="x"))


def test_the_same_value_is_always_written_the_same() -> None:
    assert to_json({"b": 1, "a": 2}) == to_json({"a": 2, "b": 1})


DEEP = b"[" * 100_000


def changed(**values: Any) -> bytes:
    return to_json({**json.loads(encode_record(FULL)), **values})


@pytest.mark.parametrize(
    "data",
    [
        DEEP,
        encode_record(FULL).decode().encode("utf-16"),
        changed(metadata=-1),
        changed(metadata=[[]]),
        changed(metadata={"a": float("nan")}),
        changed(metadata={"a": float("inf")}),
        changed(sequence=-1),
        changed(sequence=1 << 70),
        changed(sequence=True),
        changed(message=[]),
        changed(actor=True),
        changed(session={}),
        changed(step="1"),
        changed(parent=["a1"]),
        changed(parent="\ud800"),
        changed(pinned=1),
        changed(operation=["restore", 1, None]),
        changed(operation=["restore", "a1", "paths"]),
        changed(purged="a.txt"),
        changed(timestamp="9999-12-31T23:59:59.999999-23:59"),
    ],
)
def test_a_record_with_a_wrong_value_is_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode_record(data, commit="", lazy=None)


@pytest.mark.parametrize("read", [decode_uncovered, decode_changes, decode_rules])
@pytest.mark.parametrize("data", [DEEP, b"", b"\xff", b"-1", b"[[]]", b'[["a", [], ""]]', b'{"a": 1}', b'"a.txt"'])
def test_a_list_beside_the_record_is_damaged(read: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(Damaged):
        read(data)


RULES: dict[str, Any] = {"exclude_patterns": [], "excludes_file": "", "repositories": {}, "around": None}
AROUND: dict[str, Any] = {"path": "a", "info_exclude": "", "gitignores": {"": ""}}


@pytest.mark.parametrize(
    "wrong",
    [
        {"exclude_patterns": "*.log"},
        {"exclude_patterns": float("inf")},
        {"excludes_file": {}},
        {"repositories": -1},
        {"repositories": {"": None}},
        {"around": True},
        {"around": AROUND | {"gitignores": []}},
        {"around": AROUND | {"path": None}},
    ],
)
def test_rules_with_a_wrong_value_are_damaged(wrong: dict[str, Any]) -> None:
    assert decode_rules(to_json(RULES | {"around": AROUND})) == RULES | {"around": AROUND}
    with pytest.raises(Damaged):
        decode_rules(to_json(RULES | wrong))
