"""`holdfast save`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import click

from holdfast.cli import fast_save
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.errors import NotFound, Refused, Unavailable
from holdfast.model import JSON
from holdfast.model.checkpoint import TYPE, TYPES


@command()
@click.argument("text", metavar="[MESSAGE]", required=False)
@click.option("-m", "--message", metavar="MESSAGE", help="The message.")
@click.option("--name", metavar="NAME", help="A name for the checkpoint.")
@click.option("--pin", is_flag=True, help="Pin the checkpoint: prune never deletes it.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(TYPES),
    help="The type, which decides how long it is kept. Implies --allow-empty.",
)
@click.option("--session", metavar="ID", help="The session of the checkpoint.")
@click.option("--actor", metavar="NAME", help="Who saved it. [default: the agent whose tool this runs in]")
@click.option("--step", type=int, metavar="N", help="The step within the session.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="Metadata, as text; may be repeated.")
@click.option(
    "--state",
    multiple=True,
    metavar="NAME=FILE.json",
    help="Save a JSON file (- is stdin) as the state NAME, with the files; may be repeated.",
)
@click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Leave out paths that match, as in .gitignore; may be repeated."
)
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
        raise click.UsageError("pass the message once: as MESSAGE or with -m")
    metadata = _metadata(meta, kind)
    states = {key: _json_file(file) for key, file in _pairs(state, "--state")}
    return fast_save.save(
        app, text or message or "", is_text=bool(text), metadata=metadata, exclude=exclude,
        session=session, actor=actor, step=step, state=states or None, name=name, pinned=pin,
        allow_empty=allow_empty or kind is not None, rehash=rehash,
    )  # fmt: skip


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
