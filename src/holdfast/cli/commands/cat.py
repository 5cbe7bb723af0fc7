"""`holdfast cat`."""

from __future__ import annotations

import base64
import stat
import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import render, streams, words
from holdfast.cli.command import AFTER_DASHES, command
from holdfast.cli.context import App, decline, pass_app
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.workspace.stored.files import StoredPath

_BINARY_BYTES = 8000  # the same test as git
_SHOWN_MAX_BYTES = 4 << 20


@command(after_dashes="[-- PATHS...]")
@click.argument("refs", nargs=-1, metavar="REF:PATH...")
@pass_app
@click.pass_context
def cat(ctx: click.Context, app: App, *, refs: tuple[str, ...]) -> None:
    """Print files of a checkpoint, byte for byte.

    In REF:PATH, the path is relative to the workspace; in REF PATH, as in restore, to the current folder. REF is latest
    if it is left out.

    \b
    holdfast cat a2:src/app.py
    holdfast cat a2 app.py > before.py
    holdfast cat @yesterday:notes.txt
    """
    workspace = app.open()
    found = words.stored_files(app, workspace, refs, ctx.meta.get(AFTER_DASHES, ()))
    if not found:
        raise click.UsageError("no path is given; write REF:PATH")
    for each in found:
        if each.size_bytes is None:
            each.chunks()  # Refused, before anything is printed
    if app.json:
        app.document({"files": [file_document(each) for each in found]})
        return
    for each in found:
        print_file(each)


def print_file(found: StoredPath) -> None:
    """Print a file: its bytes to a file or pipe, escaped on a terminal, which is asked before a binary one."""
    if not streams.is_terminal(sys.stdout):
        streams.binary(found.chunks())
        return
    shown = b""
    for chunk in found.chunks():
        shown += chunk
        if len(shown) > _SHOWN_MAX_BYTES:
            raise Refused(f"{found.path} is too large for a terminal", hint="Write it into a file: … > FILE")
    if b"\0" in shown[:_BINARY_BYTES]:
        question = f"{render.escape(found.path)} may be a binary file. See it anyway?"
        if not streams.can_ask() or not streams.ask(question):
            decline()
    text = shown.decode("utf-8", "backslashreplace")
    streams.answer(render.escape(text.removesuffix("\n"), keep="\n\t"))


def file_document(found: StoredPath) -> dict[str, Any]:
    """A file as `--json` prints it: `text` if it is UTF-8, else `base64`."""
    about: dict[str, Any] = {
        "checkpoint": found.checkpoint.id,
        "path": found.path,
        "mode": f"{stat.S_IMODE(found.mode):04o}",
    }
    if found.names is not None:
        return about | {"kind": "folder", "names": list(found.names)}
    data = found.read()
    about |= {"kind": "link" if found.is_link else "file", "size_bytes": len(data)}
    try:
        return about | {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return about | {"base64": base64.b64encode(data).decode("ascii")}
