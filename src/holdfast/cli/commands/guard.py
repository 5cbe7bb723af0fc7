"""`holdfast guard`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli import progress, render, run_command, streams
from holdfast.cli.command import AFTER_DASHES, command
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.remedies import error_document, sentence
from holdfast.errors import HoldfastError
from holdfast.model import Checkpoint, Restored, documents
from holdfast.model.documents import short
from holdfast.workspace.guard import git_position, git_since, restore_after_failure

if TYPE_CHECKING:
    from holdfast.workspace import Workspace


@command(after_dashes="-- COMMAND...")
@click.option("-m", "--message", metavar="MESSAGE", help="The message of the checkpoint. [default: the command]")
@click.option("--session", metavar="ID", help="The session that it belongs to.")
@click.option("--actor", metavar="NAME", help="Who runs it.")
@click.option("--keep", is_flag=True, help="Do not restore if the command fails.")
@pass_app
@click.pass_context
def guard(
    ctx: click.Context, app: App, *, message: str | None, session: str | None, actor: str | None, keep: bool
) -> int:
    """Save, run a command, and restore if it fails.

    COMMAND comes after --; guard exits with its exit code. With -C it runs in that folder. `holdfast undo` brings back
    what the restore replaced or removed.

    \b
    holdfast guard -- make migrate
    holdfast guard -m "risky" -- sh -c 'codemod && pytest'
    """
    words = ctx.meta.get(AFTER_DASHES, ())
    if not words:
        raise click.UsageError("no command is given; put it after --")
    workspace = app.open(create=True)
    saved = _save_before(workspace, message or f"before {run_command.shown(words)}"[:200], session, actor)
    restored: Restored | None = None
    failure: HoldfastError | None = None
    git, about_git = git_position(workspace), ""
    with workspace.hold(saved.id):
        folder = workspace.path if app.directory else None  # as `git -C`: else it would change what is not saved (P1)
        status = run_command.run(words, folder=folder, aside=app.json).status
        if status and not keep:
            try:
                restored = restore_after_failure(workspace, saved.id)
                about_git = git_since(git, git_position(workspace), undo=typed("undo"))
            except HoldfastError as error:
                failure = error
            except KeyboardInterrupt:
                streams.note(f"The restore was interrupted; go back with: {typed('restore', short(saved.id))}")
                raise
    if app.json:
        app.document(
            {
                "checkpoint": documents.checkpoint(saved),
                "exit_code": status,
                "restored": documents.restored(restored) if restored else None,
                "restore_error": error_document(failure) if failure else None,
                "git": about_git or None,
            }
        )
    else:
        _tell(status, restored, failure, short(saved.id))
        if about_git:
            streams.note(render.escape(f"Note: {about_git}"))
    return status


def _save_before(workspace: Workspace, message: str, session: str | None, actor: str | None) -> Checkpoint:
    whose, metadata = workspace.first_saves.attribute(actor)  # the command's actor did not write what is there already
    with progress.shown() as shown:
        saved = workspace.save(message, session=session, actor=whose, metadata=metadata or None, progress=shown)
    streams.note(f"{'Saved' if saved.is_new else 'Already saved as'} {short(saved.id)}")
    return saved


def _tell(status: int, restored: Restored | None, failure: HoldfastError | None, saved: str) -> None:
    if failure is not None:
        streams.note(
            render.escape(f"The command failed ({status}), and {saved} could not be restored: {sentence(failure)}")
        )
    elif restored is not None:
        counts = f"{len(restored.written):,} written, {len(restored.removed):,} removed"
        done = f"; restored {saved}: {counts}; undo with: {typed('undo')}"
        is_same = not (restored.written or restored.removed or restored.failed)
        streams.note(f"The command failed ({status}){' and changed no file' if is_same else done}")
        render.note_list(restored.failed, "could not be restored", noun="path")
    elif status:
        streams.note(f"The command failed ({status}); go back with: {typed('restore', saved)}")
