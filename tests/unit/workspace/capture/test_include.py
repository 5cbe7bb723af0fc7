"""What a save includes by request is stored whatever the rules say, and is restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Refused
from holdfast.model import Reason

if TYPE_CHECKING:
    from unit.workspace.conftest import Project


@pytest.mark.parametrize(
    ("path", "rules"),
    [
        ("node_modules/list.json", {}),
        ("list.json", {".holdfastignore": "*.json\n"}),
        ("list.json", {".gitignore": "list.json\n"}),
        ("hidden/deep/list.json", {".holdfastignore": "hidden/\n"}),
    ],
    ids=["in a dependency folder", "excluded", "ignored", "below an excluded folder"],
)
def test_a_file_that_the_rules_leave_out_is_held_and_restored(
    project: Project, path: str, rules: dict[str, str]
) -> None:
    large = b"[1]" + b" " * (2 << 20)
    for name, text in rules.items():
        project.write(name, text.encode())
    file = project.write(path, large)
    ws = project.open()
    first = ws.save("first", include=[path])
    file.write_bytes(b"[2]")
    assert ws.restore(first.id).ok
    assert file.read_bytes() == large
    file.unlink()
    assert ws.restore(first.id).ok
    assert file.read_bytes() == large
    ws.undo()
    ws.undo()
    assert file.read_bytes() == b"[2]"


def test_only_what_was_named_is_held(project: Project) -> None:
    project.write("node_modules/list.json")
    project.write("node_modules/other.json")
    ws = project.open()
    saved = ws.save("x", include=["node_modules/list.json"])
    assert saved.files_changed == ["node_modules/list.json"]
    assert [(item.path, item.reason) for item in saved.uncovered] == [("node_modules", Reason.DEPENDENCIES)]


def test_a_path_that_is_not_there_is_no_error(project: Project) -> None:
    project.write("a.txt")
    assert project.open().save("x", include=["missing.json"]).files_changed == ["a.txt"]


def test_a_path_outside_is_refused(project: Project) -> None:
    with pytest.raises(Refused, match="outside"):
        project.open().save("x", include=["../elsewhere"])
