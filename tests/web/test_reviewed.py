"""Marks of what was reviewed: on the page, and in the store."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from starlette.testclient import TestClient  # noqa: F401  # marks these tests

from holdfast import durable
from holdfast.errors import NotFound
from holdfast.workspace import Workspace
from holdfast.workspace.stored.reviewed import digest_of

from .conftest import Pages, make_pages
from .sessions import open_workspace
from .test_take_back import turn_with


def test_a_mark_stays_with_the_checkpoint(pages: Pages, workspace: Workspace, environ: dict[str, str]) -> None:
    base, tip = turn_with(workspace, "discount")
    hunk = workspace.changes(base, tip, ["src/cart.py"]).hunks[0]
    assert 'aria-pressed="true"' not in pages.get(f"turn/{tip}").text
    for mark in ("file:tests/test_cart.py", hunk.id):
        answer = pages.post("review.json", {"ref": tip, "mark": mark, "reviewed": "1"})
        assert digest_of(mark) in answer.json()["reviewed"]
    again = make_pages(open_workspace(workspace.path, environ), environ)  # type: ignore[arg-type]
    text = again.get(f"turn/{tip}").text
    assert text.count('aria-pressed="true"') == 2
    assert text.count('class="file reviewed"') == 1
    pages.post("review", {"ref": tip, "mark": hunk.id, "reviewed": "0"})
    assert workspace.reviewed(tip) == {digest_of("file:tests/test_cart.py")}


def test_marks_go_with_the_checkpoint(workspace: Workspace) -> None:
    first, second = workspace.list(2)
    workspace.mark_reviewed(first, ["a"])
    workspace.mark_reviewed(second, ["b"])
    workspace.delete(second)
    workspace.mark_reviewed(first, ["c"])
    kept = {path.name for path in (workspace.store / "holdfast" / "reviewed").iterdir()}
    assert kept == {first.id}
    with pytest.raises(NotFound):
        workspace.mark_reviewed(second, ["b"])


def test_a_kill_leaves_the_old_marks_or_the_new(workspace: Workspace, environ: dict[str, str]) -> None:
    checkpoint = workspace.list(1)[0]
    workspace.mark_reviewed(checkpoint, ["old"])
    old, new = {digest_of("old")}, {digest_of("old"), digest_of("new")}
    real = durable.disk()
    for step in ("create", "write", "fsync", "rename"):

        class Dying:
            def __getattr__(self, name: str) -> Callable[..., object]:
                if name == step:  # noqa: B023
                    raise KeyboardInterrupt
                return getattr(real, name)  # type: ignore[no-any-return]

        with durable.use_disk(Dying()), pytest.raises(KeyboardInterrupt):  # type: ignore[arg-type]
            workspace.mark_reviewed(checkpoint, ["new"])
        assert open_workspace(workspace.path, environ).reviewed(checkpoint) in (old, new)  # type: ignore[arg-type]
    assert workspace.mark_reviewed(checkpoint, ["new"]) == new


def test_a_damaged_file_of_marks_hides_nothing(workspace: Workspace, pages: Pages) -> None:
    checkpoint = workspace.list(1)[0]
    workspace.mark_reviewed(checkpoint, ["x"])
    (workspace.store / "holdfast" / "reviewed" / checkpoint.id).write_bytes(b"{\xff")
    assert workspace.reviewed(checkpoint) == frozenset()
    assert pages.get(f"turn/{checkpoint.id}").status_code == 200
