"""`holdfast git`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import render, streams
from holdfast.cli.command import Command, Group
from holdfast.cli.context import App, pass_app
from holdfast.cli.exit_codes import Exit
from holdfast.model.documents import short
from holdfast.workspace.git_losses import GitLoss, GitLosses


@click.group(cls=Group)
def git() -> None:
    """Find branches and stashes that your git lost; rescue them.

    \b
    holdfast git status
    holdfast git status --json
    holdfast git rescue
    """


@git.command(cls=Command)
@click.argument("ref", required=False)
@pass_app
def status(app: App, *, ref: str | None) -> None:
    """Show what git has lost since a checkpoint (by default, the newest)."""
    found = app.open().git_losses(ref)
    if app.json:
        app.document(_document(found))
        return
    _show(found)
    if any(loss.available for loss in found.losses):
        streams.answer(f"Bring them back as new branches: {app.typed('git', 'rescue')}")


@git.command(cls=Command)
@click.argument("ref", required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_app
def rescue(app: App, *, ref: str | None, yes: bool) -> int:
    """Bring back lost commits as new branches, rescued/NAME. No branch moves, and nothing is overwritten.

    Apply a stash with `git stash apply rescued/stash-0`.
    """
    workspace = app.open()
    found = workspace.git_losses(ref)
    count = sum(loss.available for loss in found.losses)
    if count and not yes and not app.json:
        _show(found)
    if count:
        app.confirm(f"Create {render.count(count, 'branch', 'branches')} in your repository?", yes=yes)
    made = workspace.rescue_git(found.checkpoint) if count else []
    missing = [loss for loss in found.losses if not loss.available]
    if app.json:
        rescued = [{"ref": each.ref, **_loss(each.loss)} for each in made]
        app.document({"rescued": rescued, "missing": [_loss(loss) for loss in missing], "problems": found.problems})
    else:
        for each in made:
            streams.answer(f"{render.escape(each.ref.removeprefix('refs/heads/'))}  {each.loss.commit[:10]}")
        for loss in missing:
            streams.answer(f"missing: {_words(loss)}")
        if not found.losses:
            _show(found)
    return Exit.INCOMPLETE if missing or found.problems else Exit.DONE


def _show(found: GitLosses) -> None:
    if found.removed:
        streams.answer("The git repository is gone. Its objects are not in the store: only names can be shown.")
    elif not found.losses and not found.problems:
        streams.answer(f"Nothing lost since {render.escape(short(found.checkpoint.id))}.")
    for loss in found.losses:
        streams.answer(_words(loss))
    for problem in found.problems:
        streams.answer(f"not compared: {render.escape(problem)}")


def _words(loss: GitLoss) -> str:
    fate = "deleted" if loss.deleted else "moved; no ref reaches its commit"
    where = "" if loss.available else ", not in the repository any more"
    name = loss.name.removeprefix("refs/heads/").removeprefix("refs/tags/")
    return f"{loss.what} {render.escape(name)} {loss.commit[:10]}: {fate}{where}"


def _document(found: GitLosses) -> dict[str, Any]:
    losses = [_loss(loss) for loss in found.losses]
    return {
        "checkpoint": found.checkpoint.id,
        "removed": found.removed,
        "losses": losses,
        "problems": found.problems,
    }


def _loss(loss: GitLoss) -> dict[str, Any]:
    return {name: getattr(loss, name) for name in ("what", "name", "commit", "deleted", "available")}
