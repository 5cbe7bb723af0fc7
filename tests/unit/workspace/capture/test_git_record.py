"""A save reads the user's git once, whether or not its files changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.scan.git_refs import read_git_refs
from holdfast.workspace.capture import git_record


@pytest.mark.parametrize("is_changed", [True, False], ids=["files changed", "only git changed"])
def test_git_is_read_once(
    project, git: Callable[..., bytes], is_changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("a.txt", b"one")
    at = ("-C", project.root)
    git(*at, "init", "-q")
    git(*at, "add", ".")
    git(*at, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "one")
    ws = project.open()
    first = ws.save()
    git(*at, "branch", "other")
    if is_changed:
        project.write("a.txt", b"two")
    reads = []

    def counted(*given: object, **named: object) -> object:
        reads.append(given)
        return read_git_refs(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(git_record, "read_git_refs", counted)
    second = ws.save()
    assert second.id != first.id and len(reads) == 1
    git(*at, "branch", "third")  # what one save has read is not taken for what another would
    assert ws.save().id != second.id and len(reads) == 2
