"""`holdfast git`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import render, streams
from holdfast.cli.command import Command, CommandGroup
from holdfast.cli.context import App, pass_app
from holdfast.cli.exit_codes import Exit
from holdfast.model.documents import short
from holdfast.workspace.git_losses import GitLoss, GitLosses
from holdfast.workspace.git_rescue import GitRescue

_MOST_EARLIER = 10


@click.group(cls=CommandGroup)
def git() -> None:
    """Find branches and stashes that git lost; rescue them.

    \b
    holdfast git status
    holdfast git status --json
    holdfast git rescue
    holdfast git rescue --index
    """


@git.command(cls=Command)
@click.argument("ref", required=False)
@pass_app
def status(app: App, *, ref: str | None) -> None:
    """Show what git has lost since a checkpoint (by default, the newest, and what only older ones had)."""
    found = app.open().git_losses(ref)
    if app.json:
        app.document(_document(found))
        return
    _show(found)
    if found.removed or any(loss.available for loss in found.losses):
        streams.answer(f"Bring back what was kept: {app.typed('git', 'rescue')}")
    _show_earlier(app, found)


@git.command(cls=Command)
@click.argument("ref", required=False)
@click.option("--index", is_flag=True, help="Bring back what was staged, too. A copy of the present index stays.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_app
def rescue(app: App, *, ref: str | None, index: bool, yes: bool) -> int:
    """Bring back lost commits as new branches, rescued/NAME, and lost stashes as stashes.

    No branch moves, and nothing is overwritten. A removed repository is made again, as far as it was held.
    """
    workspace = app.open()
    found = workspace.git_losses(ref)
    count = sum(loss.available for loss in found.losses)
    is_wanted = bool(count or index or found.removed)
    if is_wanted and not yes and not app.json:
        _show(found)
    if is_wanted:
        app.confirm(_question(found, count, index=index), yes=yes)
    done = workspace.rescue_git(found.checkpoint, index=index) if is_wanted else GitRescue([], found.losses)
    problems = [*done.problems, *found.problems]
    if app.json:
        rescued = [{"ref": each.ref, **_loss(each.loss)} for each in done.refs]
        missing = [_loss(loss) for loss in done.missing]
        names: dict[str, Any] = {"rescued": rescued, "missing": missing, "problems": problems, "notes": [*done.notes]}
        names |= {"recreated": done.recreated, "index": done.index, "index_backup": done.index_backup or None}
        names |= {"settings_left": [*done.settings_left], "settings_file": done.settings_file or None}
        app.document(names)
    else:
        _show_rescue(done)
        if not is_wanted:
            _show(found)
    return Exit.INCOMPLETE if done.missing or problems else Exit.DONE


def _question(found: GitLosses, count: int, *, index: bool) -> str:
    if found.removed:
        return "Make the repository again?"
    parts = [f"Bring back {render.count(count, 'commit')}"] if count else []
    if index:
        parts.append(f"{'replace' if parts else 'Replace'} the index")
    return f"{' and '.join(parts)} in your repository?"


def _show_rescue(done: GitRescue) -> None:
    if done.recreated:
        streams.answer("Created the repository again.")
    for each in done.refs:
        name = "stash" if each.ref == "refs/stash" else each.ref.removeprefix("refs/heads/")
        streams.answer(f"{render.escape(name)}  {each.loss.commit[:10]}")
    if done.index:
        streams.answer("Restored the index." + (f" Before: {done.index_backup}" if done.index_backup else ""))
    for loss in done.missing:
        streams.answer(f"missing: {_words(loss)}")
    for problem in (*done.problems, *done.notes):
        streams.answer(f"note: {render.escape(problem)}")
    if done.missing:
        streams.answer("If a remote has the missing commits: git fetch, then holdfast git rescue again.")


def _show(found: GitLosses) -> None:
    if found.removed:
        streams.answer("The git repository is gone.")
    elif not found.losses and not found.problems:
        streams.answer(f"Nothing lost since {render.escape(short(found.checkpoint.id))}.")
    for loss in found.losses:
        streams.answer(_words(loss))
    for problem in found.problems:
        streams.answer(f"note: {render.escape(problem)}")
    if found.operation:
        streams.answer(f"note: {found.operation} was in progress; its commits are recorded, but not its progress")
    if found.not_held:
        streams.answer(f"not held: {render.escape(found.not_held)}")


def _show_earlier(app: App, found: GitLosses) -> None:
    """Name what only older checkpoints had, and the command for each of these."""
    if not found.earlier:
        return
    streams.answer(f"Lost before {render.escape(short(found.checkpoint.id))}:")
    for loss in found.earlier[:_MOST_EARLIER]:
        streams.answer(f"{_words(loss)}  (in {render.escape(short(loss.checkpoint))})")
    if (more := len(found.earlier) - _MOST_EARLIER) > 0:
        streams.answer(f"and {render.count(more, 'commit')} more: {app.typed('git', 'status', '--json')}")
    if any(loss.available for loss in found.earlier):
        first = next(loss for loss in found.earlier if loss.available)
        streams.answer(f"Bring back what a checkpoint had: {app.typed('git', 'rescue', short(first.checkpoint))}")


def _words(loss: GitLoss) -> str:
    fate = "deleted" if loss.deleted else "moved; no ref reaches its commit"
    where = "" if loss.available else ", neither in the repository nor in the store"
    name = loss.name.removeprefix("refs/heads/").removeprefix("refs/tags/")
    return f"{loss.what} {render.escape(name)} {loss.commit[:10]}: {fate}{where}"


def _document(found: GitLosses) -> dict[str, Any]:
    return {
        "checkpoint": found.checkpoint.id,
        "removed": found.removed,
        "losses": [_loss(loss) for loss in found.losses],
        "problems": found.problems,
        "index_differs": found.index_differs,
        "operation_ended": found.operation or None,
        "not_held": found.not_held or None,
        "earlier": [_loss(loss) for loss in found.earlier],
    }


def _loss(loss: GitLoss) -> dict[str, Any]:
    return {
        name: getattr(loss, name) for name in ("what", "name", "commit", "deleted", "available", "held", "checkpoint")
    }
