"""`holdfast undo`."""

from __future__ import annotations

from functools import partial

import click

from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.cli.restore_output import carry_out, turn

_ALL = ""  # `--agent` without a name: every actor but the user


@command()
@click.option(
    "--agent", metavar="[ACTOR]", is_flag=False, flag_value=_ALL, help="Undo what an agent changed, and nothing else."
)
@click.option("--since", metavar="REF", help="With --agent: changes since this checkpoint. [default: its latest turn]")
@click.option("--whole-session", is_flag=True, help="With --agent: changes since its latest session began.")
@click.option("--unsaved", is_flag=True, help="With --agent: also changes since the last checkpoint.")
@click.option("--touch", is_flag=True, help="Set the time of restored files to now, so that build tools notice.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def undo(
    app: App,
    *,
    agent: str | None,
    since: str | None,
    whole_session: bool,
    unsaved: bool,
    touch: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Undo the last restore. Repeat it to undo the one before.

    Does not ask, because `holdfast redo` reverses it. If checkpoints were saved since that restore, it says how old the
    restore is and what would happen to the newer work, and asks.

    With --agent, undo only what an agent changed (without ACTOR: every agent), line by line; your changes stay. Where
    you changed the same lines, the file stays as it is and is listed as a conflict. `holdfast undo` reverses this, too.

    \b
    holdfast undo
    holdfast undo --agent
    holdfast undo --agent claude-code --since a14
    """
    if agent is None:
        if since is not None or whole_session or unsaved:
            raise click.UsageError("--since, --whole-session and --unsaved go with --agent")
        return turn(app, back=True, dry_run=dry_run, yes=yes, touch=touch)
    if since is not None and whole_session:
        raise click.UsageError("--since and --whole-session exclude each other")
    workspace = app.open()
    actor = agent or None
    start = since or workspace.beginning(actor, whole_session=whole_session).id
    plan = workspace.preview(start, keep_mine=True, agent=actor, unsaved_by=(actor or "agent") if unsaved else None)
    act = partial(workspace.restore, plan.checkpoint, None, plan, touch=touch)
    return carry_out(app, workspace, plan, lambda shown: act(progress=shown), dry_run=dry_run)
