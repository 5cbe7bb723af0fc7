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
@click.option(
    "--turn", metavar="N", help="Undo this turn of an agent: its number in `holdfast log`, or one of its checkpoints."
)
@click.option("--session", is_flag=True, help="With --agent: undo everything since its latest session began.")
@click.option("--since", metavar="REF", help="With --agent: undo everything since this checkpoint.")
@click.option("--unsaved", is_flag=True, help="With --agent: also undo changes since the last checkpoint.")
@click.option(
    "--touch", is_flag=True, help="Set the modification time of restored files to now, so that build tools notice."
)
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

    Does not ask, because `holdfast redo` reverses it. But if checkpoints were saved since that restore, it shows
    how old the restore is and what would happen to the newer work, and asks.

    With --agent, undo only the lines that an agent changed in its last turn, that is, for its last prompt. Without
    ACTOR, this is the agent that worked last. Your changes, and those of other agents and turns, stay. Repeat it to
    undo the turn before. If someone else changed the same lines since, the file stays as it is and is listed as a
    conflict. `holdfast undo` reverses this, too.

    \b
    holdfast undo
    holdfast undo --agent
    holdfast undo --turn 12
    holdfast undo --agent claude-code --session
    """
    if agent is None and turn is None:
        if since is not None or session or unsaved:
            raise click.UsageError("--session, --since and --unsaved need --agent")
        return turn_back(app, back=True, dry_run=dry_run, yes=yes, touch=touch)
    if (since is not None) + session + (turn is not None) > 1:
        raise click.UsageError("use only one of --turn, --session and --since")
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
