"""A checkpoint says where the user's own git stood."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import Workspace
from holdfast.model import GitHead

if TYPE_CHECKING:
    from collections.abc import Callable

    from unit.workspace.conftest import Project


def _repository(project: Project, git: Callable[..., bytes]) -> str:
    git("init", "-q", "-b", "main", project.root)
    git("-C", project.root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x")
    return git("-C", project.root, "rev-parse", "HEAD").decode().strip()


def test_branch_and_commit(project: Project, git: Callable[..., bytes]) -> None:
    commit = _repository(project, git)
    ws = project.open()
    saved = ws.save(allow_empty=True)
    assert saved.git == GitHead(commit, "main")
    git("-C", project.root, "checkout", "-q", "--detach")
    assert ws.save(allow_empty=True).git == GitHead(commit, "")
    assert project.open().get(saved.id).git == saved.git
    assert ws.pin(saved.id).git == saved.git


def test_outside_of_a_repository_there_is_none(ws: Workspace) -> None:
    assert ws.save(allow_empty=True).git is None


def test_a_plan_names_the_other_branch(project: Project, git: Callable[..., bytes]) -> None:
    _repository(project, git)
    ws = project.open()
    ws.save(allow_empty=True)
    assert ws.preview("latest").branches is None
    git("-C", project.root, "checkout", "-q", "-b", "feature")
    assert ws.preview("latest").branches == ("main", "feature")
    git("-C", project.root, "checkout", "-q", "--detach")
    assert ws.preview("latest").branches == ("main", "")
