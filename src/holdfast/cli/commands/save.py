"""`holdfast save`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from holdfast.adapters.agents.parent_process import find_enclosing_tool
from holdfast.cli import caller, progress, render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.exit_codes import Exit
from holdfast.errors import NotFound, Refused, Unavailable
from holdfast.model import JSON, Checkpoint, documents
from holdfast.model.checkpoint import TYPE, TYPES
from holdfast.model.documents import short

if TYPE_CHECKING:
    from holdfast.workspace import Workspace
    from holdfast.workspace.upkeep.growth import Notice

_NAMED_MAX = 3


@command()
@click.argument("text", metavar="[MESSAGE]", required=False)
@click.option("-m", "--message", metavar="MESSAGE", help="The message.")
@click.option("--name", metavar="NAME", help="A name to find it by.")
@click.option("--pin", is_flag=True, help="Keep it when others are pruned.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(TYPES),
    help="The type, which decides how long it is kept. Saves even if nothing changed.",
)
@click.option("--session", metavar="ID", help="The session that it belongs to.")
@click.option("--actor", metavar="NAME", help="Who saved it. [default: the agent whose tool this runs in]")
@click.option("--step", type=int, metavar="N", help="The step within the session.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="Metadata, as text; may be repeated.")
@click.option(
    "--state",
    multiple=True,
    metavar="NAME=FILE.json",
    help="JSON to save with the files under NAME (- is stdin); may be repeated.",
)
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out what matches, as in .gitignore.")
@click.option("--allow-empty", is_flag=True, help="Save even if nothing changed.")
@click.option("--rehash", is_flag=True, help="Read every file again, even if its size and time are unchanged.")
@pass_app
def save(
    app: App,
    *,
    text: str | None,
    message: str | None,
    name: str | None,
    pin: bool,
    kind: str | None,
    session: str | None,
    actor: str | None,
    step: int | None,
    meta: tuple[str, ...],
    state: tuple[str, ...],
    exclude: tuple[str, ...],
    allow_empty: bool,
    rehash: bool,
) -> int:
    """Save a checkpoint of the folder.

    \b
    holdfast save "before the refactoring"
    holdfast save --name good --pin
    holdfast save "login works" --type feature
    holdfast save --state conversation=messages.json --session s1 --step 3
    """
    if text is not None and message is not None:
        raise click.UsageError("the message is given twice")
    message = text or message or ""
    metadata = _metadata(meta, kind)
    states = {key: _json_file(file) for key, file in _pairs(state, "--state")}
    said = bool(message or session or actor or metadata) or step is not None
    workspace = app.open(create=True, exclude=exclude)
    if actor is None:
        actor, session, metadata = _attribute(workspace, session, metadata)
    with progress.shown() as shown:
        saved = workspace.save(
            message, state=states or None, session=session, actor=actor, step=step, metadata=metadata, name=name,
            pinned=pin, allow_empty=allow_empty or kind is not None, rehash=rehash, progress=shown,
        )  # fmt: skip
    notices = workspace.after_save() if saved.is_new else []
    if app.json:
        app.document({"checkpoint": documents.whole_checkpoint(saved), "new": saved.is_new})
    else:
        show_saved(workspace, saved, lost=said)
        if text and os.path.lexists(os.path.join(app.directory or "", text)):
            streams.note(f"{render.escape(text)!r} is the message; a checkpoint contains the whole folder.")
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


def _metadata(meta: Sequence[str], kind: str | None) -> dict[str, JSON]:
    """The values of `--meta` and `--type`."""
    found: dict[str, JSON] = dict(_pairs(meta, "--meta"))
    if kind is not None and found.setdefault(TYPE, kind) != kind:
        raise click.UsageError("--type and --meta type= differ")
    return found


def _pairs(options: Sequence[str], flag: str) -> Iterator[tuple[str, str]]:
    """Split `KEY=VALUE` options; a key may be given once."""
    seen = set()
    for option in options:
        key, equals, value = option.partition("=")
        if not key or not equals:
            wanted = "NAME=FILE.json" if flag == "--state" else "KEY=VALUE"
            raise click.UsageError(f"{flag} takes {wanted}, not {option!r}")
        if key in seen:
            raise click.UsageError(f"{flag} {key} is given twice")
        seen.add(key)
        yield key, value


def _json_file(path: str) -> Any:
    """Read a file of JSON, or stdin for `-`."""
    try:
        text = _read(path).decode("utf-8-sig")
        return json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refused(f"{path} is not JSON: {reason}", hint="State is given as a file of JSON in UTF-8.") from None


def _read(path: str) -> bytes:
    try:
        if path == "-":
            if sys.stdin is None:
                raise Unavailable("stdin is closed", hint="Give a file, or something to read.")
            return sys.stdin.buffer.read()
        with open(os.path.expanduser(path), "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFound(f"there is no file {path!r}", hint="Pass --state NAME=FILE.json.") from None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}") from None


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


def show_saved(workspace: Workspace, checkpoint: Checkpoint, *, lost: bool = False) -> None:
    """Print the id of a saved checkpoint and how much changed; warn of what is missing from it.

    lost: a message, session, actor, step or metadata was given, and no new checkpoint carries it.
    """
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
        streams.notes(render.listing(documents.uncovered_reasons(failures)))
    if left_out := sorted(_left_out(checkpoint) - _known(workspace, checkpoint)):
        some = len(left_out) <= _NAMED_MAX
        what = ", ".join(map(render.escape, left_out)) if some else render.count(len(left_out), "path")
        why = f"{'why' if some else 'list with'}: {typed('show', short(checkpoint.id), '--uncovered')}"
        streams.note(f"{what} excluded by rules; {why}")


def _changed(workspace: Workspace, checkpoint: Checkpoint) -> str:
    """How many files changed; if none did, whether your git moved on."""
    changed = workspace.changed_count(checkpoint)
    if changed or not checkpoint.parent:
        return f"{render.count(changed, 'file')} {'changed' if checkpoint.parent else 'saved'}"
    parent = workspace.shown_parent(checkpoint)
    if parent is not None and parent.git != checkpoint.git:
        return "no files changed, only the branch or commit of your git"
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
