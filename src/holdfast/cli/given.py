"""Values given on the command line: `KEY=VALUE` pairs and files of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import click

from holdfast.errors import NotFound, Refused, Unavailable


def pairs(options: Sequence[str], flag: str) -> Iterator[tuple[str, str]]:
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


def json_file(path: str) -> Any:
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
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise NotFound(f"there is no file {path!r}", hint="Pass --state NAME=FILE.json.") from None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}") from None


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")
