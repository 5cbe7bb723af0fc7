"""What `holdfast save` does and prints, and the words of it that are understood without click, whose loading takes
longer than the save of a folder in which nothing changed.

Only words that can mean one thing are understood here; click reads all others, and says what is wrong with them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.cli import caller, fast_log, render, streams
from holdfast.cli.exit_codes import Exit
from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.cli.context import App
    from holdfast.model import JSON, Checkpoint
    from holdfast.workspace import Workspace
    from holdfast.workspace.upkeep.growth import Notice

_MESSAGE = ("-m", "--message")
_NAMED_MAX = 3


def understood(args: Sequence[str]) -> tuple[dict[str, Any], str, bool] | None:
    """Return the options of the program, the message, and whether it stood alone, in `[-C PATH] [--json] save
    [MESSAGE | -m MESSAGE] [--json]`; None for other words."""
    if fast_log.COMPLETING in os.environ:
        return None
    of_program: dict[str, Any] = {}
    message, is_named, is_text = "", False, False
    words = iter(args)
    for word in words:
        if word == "--json":
            of_program["json"] = True
        elif word == "save" and not is_named:
            is_named = True
        elif not is_named:
            if not fast_log.read_program_option(word, words, of_program):
                return None
        elif message:
            return None
        else:
            is_text = word not in _MESSAGE
            message = word if is_text else next(words, "")
            if not fast_log.is_plain(message):
                return None
    return (of_program, message, is_text) if is_named else None


def answer(of_program: dict[str, Any], message: str, is_text: bool) -> int:
    """Save, and say what was saved; return the exit code."""
    from holdfast.cli.context import App  # only here: other commands do not need it yet

    app = App(**of_program)
    try:
        return save(app, message, is_text=is_text)
    finally:
        app.close()


def save(
    app: App,
    message: str,
    *,
    is_text: bool = False,
    metadata: dict[str, JSON] | None = None,
    exclude: Sequence[str] = (),
    session: str | None = None,
    actor: str | None = None,
    step: int | None = None,
    **options: Any,
) -> int:
    """Save the folder, and say what was saved. `options`: more arguments of `Workspace.save`.

    is_text: the message was no option's value, so it may have been meant as a path.
    """
    from holdfast.cli import progress  # as in `answer`

    metadata = metadata or {}
    is_labelled = bool(message or session or actor or metadata) or step is not None
    workspace = app.open(create=True, exclude=exclude)
    if actor is None:
        actor, session, metadata = _attribute(workspace, session, metadata)
    with progress.shown() as shown:
        saved = workspace.save(
            message, session=session, actor=actor, step=step, metadata=metadata, progress=shown, **options
        )
    notices = workspace.after_save() if saved.is_new else []
    if app.json:
        from holdfast.model import documents  # as in `answer`

        app.document({"checkpoint": documents.whole_checkpoint(saved), "new": saved.is_new})
    else:
        show_saved(app, workspace, saved, lost=is_labelled)
        if is_text and os.path.lexists(os.path.join(app.directory or "", message)):
            streams.note(f"{render.escape(message)!r} is the message; a checkpoint contains the whole folder.")
    _show_notices(notices)
    return Exit.DONE if saved.complete else Exit.INCOMPLETE


def _show_notices(notices: Sequence[Notice]) -> None:
    if notices:
        from holdfast.cli.remedies import notice_lines  # start-up cost: seldom needed

        streams.notes(map(render.escape, notice_lines(notices)))


def _attribute(
    workspace: Workspace, session: str | None, metadata: dict[str, JSON]
) -> tuple[str | None, str | None, dict[str, JSON]]:
    """Actor, session and metadata: those of the agent whose tool runs this command, if there is one."""
    from holdfast.adapters.agents.parent_process import find_enclosing_tool  # as in `answer`

    around = find_enclosing_tool(workspace.store, caller.pid())
    if around is None:
        return None, session, metadata
    running, tool, others = around
    known: dict[str, JSON] = {"turn": tool.turn, "perhaps": [*others]}
    return (
        tool.actor,
        session or running.session or None,
        {key: value for key, value in known.items() if value} | metadata,
    )


def show_saved(app: App, workspace: Workspace, checkpoint: Checkpoint, *, lost: bool = False) -> None:
    """Print the id of a saved checkpoint and how much changed; warn of what is missing from it.

    lost: a message, session, actor, step or metadata was given, and no new checkpoint carries it.
    """
    from holdfast.model.documents import short, uncovered_reasons  # as in `answer`

    shown = render.paint(short(checkpoint.id), "cyan")
    if checkpoint.is_new:
        streams.answer(f"{shown}  {_changed(workspace, checkpoint)}")
    else:
        streams.answer(f"{shown}  nothing changed since this checkpoint")
        latest = workspace.get("latest")
        if latest.id != checkpoint.id:
            streams.note(f"The folder was restored to it; `latest` is {short(latest.id)}.")
        if lost:
            streams.note("The message and other options were not saved; --allow-empty saves a checkpoint anyway.")
    failures = [entry for entry in checkpoint.uncovered if entry.reason.is_failure]
    if failures:
        streams.note(f"{render.count(len(failures), 'path')} could not be saved:")
        streams.notes(render.listing(uncovered_reasons(failures)))
    if left_out := sorted(_left_out(checkpoint) - _known(workspace, checkpoint)):
        some = len(left_out) <= _NAMED_MAX
        what = ", ".join(map(render.escape, left_out)) if some else render.count(len(left_out), "path")
        why = f"{'reasons' if some else 'list with'}: {app.typed('show', short(checkpoint.id), '--uncovered')}"
        streams.note(f"{what} excluded by rules; {why}")


def _changed(workspace: Workspace, checkpoint: Checkpoint) -> str:
    """How many files changed; if none did, whether your git moved on."""
    changed = workspace.changed_count(checkpoint)
    if changed or not checkpoint.parent:
        return f"{render.count(changed, 'file')} {'changed' if checkpoint.parent else 'saved'}"
    parent = workspace.shown_parent(checkpoint)
    if parent is not None and parent.git != checkpoint.git:
        return "no files changed, only the git branch or commit"
    if parent is not None:
        found = workspace.diff(parent.id, checkpoint.id)
        if count := len(found.touched_files) + len(found.changed_folders):
            return f"no files changed, only times or modes of {render.count(count, 'path')}"
    return "no files changed"


def _left_out(checkpoint: Checkpoint) -> set[str]:
    return {entry.path for entry in checkpoint.uncovered if not entry.reason.is_failure}


def _known(workspace: Workspace, checkpoint: Checkpoint) -> set[str]:
    """Return what an earlier save left out already, and said so."""
    if streams.settings.verbose:
        return set()
    if not checkpoint.is_new:
        return _left_out(checkpoint)
    try:
        return _left_out(workspace.get(checkpoint.parent)) if checkpoint.parent else set()
    except NotFound:
        return set()
