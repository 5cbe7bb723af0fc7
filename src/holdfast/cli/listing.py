"""What `holdfast log` prints of a folder; without click, which takes longer to load than this to answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.cli import documents, output, render, training

if TYPE_CHECKING:
    from holdfast.cli.app import App
    from holdfast.model import Checkpoint, Operation
    from holdfast.workspace import Workspace

LIMIT = 20
_TITLES = ("id", "when", "name", "by", "message")


def log(
    app: App,
    limit: int = LIMIT,
    *,
    safety: bool = False,
    session: str | None = None,
    before: str | None = None,
    actor: str | None = None,
) -> None:
    """List what the folder holds: a workspace or, where it is one, a training run. With a `limit` of 0, all of it."""
    if run := training.run_of(app):
        training.log(app, run, limit)
        return
    workspace = app.open()
    found = workspace.list(limit + 1 if limit else None, session=session, actor=actor, safety=safety, before=before)
    shown = found[:limit] if limit else found
    more = len(found) > len(shown)
    if app.json:
        app.document({"checkpoints": [documents.checkpoint(entry) for entry in shown], "more": more})
        return
    if not shown:
        output.note("There are no older ones." if before else _nothing(app, workspace, session, actor))
        return
    render.table(_TITLES, [_row(entry) for entry in shown])
    if more:
        given = (("--session", session), ("--actor", actor), ("-n", str(limit) if limit != LIMIT else None))
        same = ["--all"] if safety else []
        same += [word for name, value in given if value for word in (name, value)]
        output.note(f"There are more: {app.typed('log', *same, '--before', documents.short(shown[-1].id))}")


def _nothing(app: App, workspace: Workspace, session: str | None, actor: str | None) -> str:
    if session is not None or actor is not None:
        return f"No checkpoints of this {'session' if actor is None else 'actor'}."
    if workspace.list(1, safety=True):
        return f"No checkpoints but those made before restores; list them with: {app.typed('log', '--all')}"
    return f"No checkpoints yet; make the first one with: {app.typed('save')}"


def _row(checkpoint: Checkpoint) -> tuple[str, ...]:
    when = render.ago if output.is_terminal(sys.stdout) else render.local
    flags = [checkpoint.name, "pinned" if checkpoint.pinned else "", "" if checkpoint.complete else "incomplete"]
    step = "" if checkpoint.step is None else f"#{checkpoint.step}"
    by = [checkpoint.actor, checkpoint.session, step]
    return (
        documents.short(checkpoint.id),
        when(checkpoint.timestamp),
        render.escape(" · ".join(filter(None, flags))),
        render.escape(" ".join(filter(None, by))),
        message(checkpoint),
    )


def reason(operation: Operation) -> str:
    """Return why a safety checkpoint was made."""
    target = documents.short(operation.target)
    if operation.verb == "without":
        return f"made to undo an agent since {target}"
    if operation.verb == "found":
        return f"found after an interrupted restore to {target}"
    return f"before {render.escape(operation.verb)} to {target}"


def message(checkpoint: Checkpoint) -> str:
    """Return what a checkpoint says of itself in one line: its message, or why it was made."""
    if checkpoint.operation is not None and not checkpoint.message:
        return reason(checkpoint.operation)
    return render.first_line(checkpoint.message)
