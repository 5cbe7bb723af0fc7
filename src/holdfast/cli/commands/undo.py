"""`holdfast undo`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.cli.restore_output import carry_out, turn_back
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.workspace import Workspace
    from holdfast.workspace.stored.history import Turn

_ALL = ""  # `--agent` without a name: every actor but the user


@command()
@click.option(
    "--agent", metavar="[ACTOR]", is_flag=False, flag_value=_ALL, help="Undo what an agent did in its last turn."
)
@click.option("--turn", metavar="N", help="Undo this turn of an agent: its number in `log`, or a checkpoint of it.")
@click.option("--session", is_flag=True, help="With --agent: everything since its latest session began.")
@click.option("--since", metavar="REF", help="With --agent: everything since this checkpoint.")
@click.option("--unsaved", is_flag=True, help="With --agent: also changes since the last checkpoint.")
@click.option("--touch", is_flag=True, help="Set the time of restored files to now, so that build tools notice.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def undo(
    app: App,
    *,
    agent: str | None,
    turn: str | None,
    session: bool,
    since: str | None,
    unsaved: bool,
    touch: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Undo the last restore. Repeat it to undo the one before.

    Does not ask, because `holdfast redo` reverses it. If checkpoints were saved since that restore, it says how old the
    restore is and what would happen to the newer work, and asks.

    With --agent, undo only what an agent (without ACTOR: the one that worked last) did for its last prompt, line by
    line; your changes, other agents' and those of other turns stay. Repeat it to undo the turn before. Where others
    changed the same lines, the file stays as it is and is listed as a conflict. `holdfast undo` reverses this, too.

    \b
    holdfast undo
    holdfast undo --agent
    holdfast undo --turn 12
    holdfast undo --agent claude-code --session
    """
    if agent is None and turn is None:
        if since is not None or session or unsaved:
            raise click.UsageError("--session, --since and --unsaved go with --agent")
        return turn_back(app, back=True, dry_run=dry_run, yes=yes, touch=touch)
    if (since is not None) + session + (turn is not None) > 1:
        raise click.UsageError("--turn, --session and --since exclude each other")
    workspace = app.open()
    actor = agent or None
    unsaved_by = (actor or "agent") if unsaved else None
    found = None if since is not None or session else _find_turn(workspace, turn, actor)
    if found is not None:
        plan = workspace.preview_turn(found, agent=actor, unsaved_by=unsaved_by)
        act = partial(workspace.undo_turn, found, plan, touch=touch)
    else:
        start = since or workspace.beginning(actor, whole_session=session).id
        plan = workspace.preview(start, keep_mine=True, agent=actor, unsaved_by=unsaved_by)
        act = partial(workspace.restore, plan.checkpoint, None, plan, touch=touch)
    return carry_out(app, workspace, plan, lambda shown: act(progress=shown), dry_run=dry_run)


def _find_turn(workspace: Workspace, turn: str | None, actor: str | None) -> Turn | None:
    """Return the turn that is named; without a name the last one, or None if the agent's checkpoints have no turns."""
    if turn is not None:
        return workspace.turn(int(turn) if turn.isascii() and turn.isdecimal() else turn, agent=actor)
    try:
        return workspace.turn(agent=actor)
    except NotFound as error:
        if error.remedy is not None and error.remedy.code == "turns_undone":
            raise
        return None
