"""`holdfast restore`."""

from __future__ import annotations

import re
from functools import partial

import click

from holdfast.cli import render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, decline, pass_app
from holdfast.cli.restore_output import carry_out, find_conversation
from holdfast.errors import Refused
from holdfast.model import Plan
from holdfast.workspace.pathspec import literal

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_HELP = "Numbers and ranges, such as 1,3-5; a for all; nothing for none."


@command()
@click.argument("ref")
@click.argument("paths", nargs=-1)
@click.option("--pick", is_flag=True, help="Choose from a list what to restore.")
@click.option("--keep-new", is_flag=True, help="Leave files made since the checkpoint.")
@click.option("--keep-mine", is_flag=True, help="Undo only what agents did since; keep everything else.")
@click.option("--agent", metavar="ACTOR", help="With --keep-mine: only this one.")
@click.option("--skip-damaged", is_flag=True, help="Restore what is sound where stored bytes are damaged.")
@click.option("--touch", is_flag=True, help="Give restored files the present time, so that tools build again.")
@click.option("--with-conversation", is_flag=True, help="Also bring back what was said, as a new conversation.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("-y", "--yes", is_flag=True, hidden=True, expose_value=False)  # it does not ask any more
@pass_app
def restore(
    app: App,
    *,
    ref: str,
    paths: tuple[str, ...],
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

    What it replaces or removes is saved first: `holdfast undo` brings it back. --dry-run shows what it would do.
    With PATHS (from the current folder, or from the one that -C names) nothing else is touched.

    \b
    holdfast restore latest
    holdfast restore a14 src/ config.toml
    holdfast restore a14 --pick
    holdfast restore a14 --keep-mine
    holdfast restore a14 --with-conversation
    """
    workspace = app.open()
    chosen = app.paths(workspace, paths)
    if agent is not None and not keep_mine:
        raise click.UsageError("--agent goes with --keep-mine")
    kept = find_conversation(workspace.get(ref)) if with_conversation else None
    preview = partial(workspace.preview, keep_new=keep_new, keep_mine=keep_mine, agent=agent)
    plan = preview(ref, chosen)
    if pick and plan:
        chosen = [literal(each) for each in pick_paths(plan, json=app.json)]
        plan = preview(plan.checkpoint, chosen)
    act = partial(workspace.restore, plan.checkpoint, chosen, plan, skip_damaged=skip_damaged, touch=touch)
    return carry_out(app, workspace, plan, lambda shown: act(progress=shown), dry_run=dry_run, kept=kept)


def pick_paths(plan: Plan, *, json: bool) -> list[str]:
    """Show what a restore would do, numbered, and return the paths that were chosen. Refused if none is."""
    if json or not streams.can_ask():
        raise Refused("--pick needs a terminal", hint="Name the paths instead.")
    rows = [(path, "bring back") for path in plan.written]
    rows += [(path, "replace") for path in plan.replaced]
    rows += [(path, "remove") for path in plan.removed]
    rows = sorted(row for row in rows if row[0] != ".")  # the workspace itself stands for everything in it
    width = len(str(len(rows)))
    for number, (path, verb) in enumerate(rows, 1):
        streams.note(f"  {number:>{width}}  {verb:<10}  {render.escape(path)}")
    while True:
        places = parse_choice(streams.ask_line("Which?"), len(rows))
        if places is None:
            streams.note(_HELP)
            continue
        if not places:
            decline()
        return [rows[place][0] for place in places]


def parse_choice(text: str, count: int) -> list[int] | None:
    """Read a choice among `count` rows, as positions from 0; None if it is invalid."""
    text = re.sub(r"\s*-\s*", "-", text.strip().lower())
    if text in ("a", "all", "*"):
        return list(range(count))
    chosen: set[int] = set()
    for word in filter(None, re.split(r"[,\s]+", text)):
        match = _RANGE.fullmatch(word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= count:
            return None
        chosen.update(range(first - 1, last))
    return sorted(chosen)
