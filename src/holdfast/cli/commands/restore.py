"""`holdfast restore`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import render, streams, turns, values
from holdfast.cli.command import AFTER_DASHES, command
from holdfast.cli.context import App, decline, pass_app, typed
from holdfast.cli.restore_output import carry_out, find_conversation, restore_at_once
from holdfast.cli.words import unknown_word
from holdfast.errors import NotFound, Refused, Remedy
from holdfast.model import Plan
from holdfast.model.documents import short
from holdfast.workspace.pathspec import literal

if TYPE_CHECKING:
    from holdfast.cli.picker import Choice
    from holdfast.model import Checkpoint
    from holdfast.workspace import Workspace

_OFFERED = 500
_NAMED = 3


@command(after_dashes="[-- PATHS...]")
@click.argument("ref", required=False)
@click.argument("paths", nargs=-1)
@click.option("-p", "--patch", is_flag=True, help="Ask for each change since REF whether to take it back.")
@click.option("--pick", is_flag=True, help="Choose from a list which paths to restore.")
@click.option("--keep-new", is_flag=True, help="Keep files created since the checkpoint.")
@click.option("--keep-mine", is_flag=True, help="Undo only what agents did since; keep everything else.")
@click.option("--agent", metavar="ACTOR", help="With --keep-mine: undo only this agent.")
@click.option("--skip-damaged", is_flag=True, help="If stored data is damaged, restore what is intact.")
@click.option(
    "--touch", is_flag=True, help="Set the modification time of restored files to now, so that build tools notice."
)
@click.option(
    "--with-conversation", is_flag=True, help="Also restore the conversation with the agent, as a new session."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("-y", "--yes", is_flag=True, hidden=True, expose_value=False)  # it does not ask any more
@pass_app
@click.pass_context
def restore(
    ctx: click.Context,
    app: App,
    *,
    ref: str | None,
    paths: tuple[str, ...],
    patch: bool,
    pick: bool,
    keep_new: bool,
    keep_mine: bool,
    agent: str | None,
    skip_damaged: bool,
    touch: bool,
    with_conversation: bool,
    dry_run: bool,
) -> int:
    """Bring the folder back to a checkpoint.

    Files that it replaces or removes are saved first: `holdfast undo` brings them back. --dry-run shows what it
    would do. With PATHS, restores only these; they are relative to the current folder, or to the folder of -C. If
    PATHS come after --, REF can be left out [default: latest]. On a terminal, without REF, choose checkpoint and
    paths from lists.

    -p shows what changed since REF [default: latest], hunk by hunk, and takes back the hunks that you choose.

    \b
    holdfast restore latest
    holdfast restore a14 src/ config.toml
    holdfast restore -p latest src/
    holdfast restore a14 --keep-mine
    holdfast restore a14 --with-conversation
    """
    # Longer than other functions: it has a line for each option, and its help.
    if agent is not None and not keep_mine:
        raise click.UsageError("--agent needs --keep-mine")
    workspace = app.open()
    dashed = tuple(ctx.meta.get(AFTER_DASHES, ()))
    ref, paths = ref or ("latest" if dashed else None), (*paths, *dashed)
    if patch:
        _check_with_patch(ctx.params)
        return _restore_hunks(app, workspace, ref, paths, touch=touch, dry_run=dry_run)
    which: dict[str, Any] = {"keep_new": keep_new, "keep_mine": keep_mine, "agent": agent}
    preview: Callable[..., Plan] = partial(workspace.preview, **which)
    chosen = app.paths(workspace, paths)
    if ref is None:
        ref, chosen = _choose(app, workspace, preview)
    if not (dry_run or pick):
        act = partial(workspace.restore, paths=chosen, skip_damaged=skip_damaged, touch=touch, **which)
        with hint_for_path(app, workspace, ref, paths):
            target = workspace.get(ref)
            kept = find_conversation(target) if with_conversation else None
            return restore_at_once(app, workspace, partial(act, target), kept=kept)
    with hint_for_path(app, workspace, ref, paths):
        plan = preview(ref, chosen)
    if pick and plan and paths_of(plan):
        chosen = _pick_paths(app, workspace, plan)
        plan = preview(plan.checkpoint, chosen)
    kept = find_conversation(workspace.get(plan.checkpoint)) if with_conversation else None
    act = partial(workspace.restore, plan.checkpoint, chosen, plan, skip_damaged=skip_damaged, touch=touch)
    return carry_out(app, workspace, plan, lambda shown: act(progress=shown), dry_run=dry_run, kept=kept)


def _pick_paths(app: App, workspace: Workspace, plan: Plan) -> list[str]:
    _check_terminal(app, "--pick", "Name the paths instead.")
    return _choose_paths(workspace, plan) or decline()


def _check_with_patch(given: Mapping[str, Any]) -> None:
    for name in ("pick", "keep_new", "keep_mine", "skip_damaged", "with_conversation"):
        if given[name]:
            raise click.UsageError(f"-p cannot be combined with --{name.replace('_', '-')}")


@contextlib.contextmanager
def hint_for_path(app: App, workspace: Workspace, ref: str, paths: tuple[str, ...]) -> Iterator[None]:
    """Have NotFound say how to restore REF if that is a path and no checkpoint."""
    try:
        yield
    except NotFound as error:
        try:
            workspace.get(ref)
        except NotFound:
            pass
        else:
            raise error from None  # it is a path that was not found
        if not os.path.lexists(ref):
            raise unknown_word(app, workspace, [ref], error) from None
        again = app.typed("restore", "latest", ref, *paths)
        raise NotFound(error.message, hint=f"To restore this path: {again}") from None


# hunk by hunk


def _restore_hunks(
    app: App, workspace: Workspace, ref: str | None, paths: tuple[str, ...], *, touch: bool, dry_run: bool
) -> int:
    from holdfast.cli.hunk_prompt import choose_hunks  # start-up cost, for -p only

    _check_terminal(app, "-p", "Name the paths instead, or use Workspace.revert in a program.")
    if ref is not None:
        try:
            workspace.get(ref)
        except NotFound:  # as in git, the first word may be a path
            if not (workspace.path / app.path(workspace, ref)).exists():
                raise
            paths, ref = (ref, *paths), None
    chosen = app.paths(workspace, paths)
    changes = workspace.changes(ref or "latest", None, chosen)
    if not changes:
        streams.note(f"Nothing has changed since {short(changes.from_id)}.")
        return 0
    hunks = choose_hunks(changes, workspace.diff(changes.from_id, None, chosen).patches())
    if not hunks:
        decline()
    plan = workspace.preview_revert(changes, hunks)
    act = partial(workspace.revert, changes, hunks, plan, touch=touch)
    return carry_out(app, workspace, plan, lambda shown: act(progress=shown), dry_run=dry_run)


# from lists


def _choose(app: App, workspace: Workspace, preview: Callable[..., Plan]) -> tuple[str, list[str] | None]:
    """Have a checkpoint and paths chosen. Without a terminal, a usage error that names the choices."""
    from holdfast.cli.picker import Chooser, pick  # start-up cost, for a terminal only

    checkpoints = workspace.list(_OFFERED)
    if not checkpoints:
        raise NotFound(f"{workspace.path} has no checkpoints yet", remedy=Remedy("save_first"))
    if app.json or not streams.can_ask():
        raise click.UsageError(f"no checkpoint is given (REF). {_choices(checkpoints)}")
    by_id = {each.id: each for each in checkpoints}
    chooser = Chooser(
        f"Restore to which checkpoint? {render.escape(str(workspace.path))}",
        _checkpoint_choices(checkpoints),
        lambda key: _about(workspace, by_id[key]),
    )
    while True:
        chosen = pick(chooser)
        if chosen is None:
            decline()
        chooser.chosen = None
        plan = preview(chosen[0])
        paths = _choose_paths(workspace, plan)
        if paths is not None:  # else back to the first list
            return plan.checkpoint, paths if len(paths) < len(paths_of(plan)) else None


def _choose_paths(workspace: Workspace, plan: Plan) -> list[str] | None:
    from holdfast.cli.picker import Choice, Chooser, pick  # as above

    target = short(plan.checkpoint)
    choices = [
        Choice(path, f"{render.paint(letter, values.STATUS_COLOURS[letter], sys.stderr)} {render.escape(path)}")
        for path, letter in paths_of(plan)
    ]
    patches: dict[str, str] = {}

    def preview(path: str) -> list[str]:
        if not patches:
            patches.update(workspace.diff(plan.checkpoint).patches() or {"": ""})
        lines = patches.get(path, "").split("\n")[1:-1]
        return [f"Changed since {target}:", *(render.diff_line(line, sys.stderr) for line in lines)] if lines else []

    title = f"Restore which paths to {target}? A: brought back, M: replaced, D: removed"
    empty = f"Nothing to restore: everything is as in {target} already."
    ticked = pick(Chooser(title, choices, preview, several=True, empty=empty))
    if ticked is None:
        return None
    left = {choice.key for choice in choices} - set(ticked)
    ticked = [path for path in ticked if not any(other.startswith(f"{path}/") for other in left)]  # a folder means all
    return [literal(path) for path in ticked]


def paths_of(plan: Plan) -> list[tuple[str, str]]:
    """Return the paths that a restore would change, each with A, M or D; not the workspace itself."""
    parts = (("A", plan.written), ("M", plan.replaced), ("D", plan.removed))
    return sorted((path, letter) for letter, paths in parts for path in paths if path != ".")


def _checkpoint_choices(checkpoints: list[Checkpoint]) -> list[Choice]:
    """Return a line for each checkpoint; what an agent did in one turn stands together, below the newest."""
    from holdfast.cli.picker import Choice  # as above
    from holdfast.workspace.stored.history import group_turns

    rows = []
    for turn in group_turns(checkpoints):
        for number, each in enumerate(turn.checkpoints):
            who = render.escape(each.actor or "you")
            what = f"  {_line(each)}" if number else _line(each, turn.prompt)
            rows.append((each.id, short(each.id), render.ago(each.timestamp), who, what))
    widths = [max((len(row[at]) for row in rows), default=0) for at in (1, 2, 3)]
    found = []
    for key, *row, what in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        found.append(Choice(key, "  ".join([render.paint(cells[0], "cyan", sys.stderr), *cells[1:], what])))
    return found


def _line(checkpoint: Checkpoint, prompt: str = "") -> str:
    marks = [checkpoint.name or "", "pinned" if checkpoint.pinned else ""]
    shown = " ".join(f"[{render.escape(mark)}]" for mark in marks if mark)
    return " ".join(filter(None, (shown, render.first_line(prompt or checkpoint.message))))


def _about(workspace: Workspace, checkpoint: Checkpoint) -> list[str]:
    """Return what the preview says about a checkpoint."""
    changed = workspace.changed_paths(checkpoint)
    lines = [f"{render.local(checkpoint.timestamp)}  {render.escape(checkpoint.session or '')}".rstrip()]
    lines += [render.escape(line) for line in checkpoint.message.split("\n")]
    since = "changed since the one before" if checkpoint.parent else "saved"
    lines.append(f"{render.count(len(changed), 'file')} {since}:")
    return [*lines, *(f"  {turns.named(each, colour=False)}" for each in changed)]


def _choices(checkpoints: list[Checkpoint]) -> str:
    named = [f"{typed('restore', short(each.id))} ({_told(each)})" for each in checkpoints[:_NAMED]]
    return "Choose one: " + "; ".join(
        [f"{typed('restore', 'latest')} (the newest)", *named, f"{typed('log')} (lists all)"]
    )


def _told(checkpoint: Checkpoint) -> str:
    message = render.first_line(checkpoint.message)[:40]
    return ", ".join(filter(None, (render.ago(checkpoint.timestamp), message)))


def _check_terminal(app: App, option: str, hint: str) -> None:
    if app.json or not streams.can_ask():
        raise Refused(f"{option} needs a terminal", hint=hint)
