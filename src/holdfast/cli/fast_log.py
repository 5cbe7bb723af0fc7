"""What `holdfast log` prints, and the words of it that are understood without click, whose loading takes longer.

Only words that can mean one thing are understood here; click reads all others, and says what is wrong with them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from holdfast.cli.context import App

_COMPLETING = "_HOLDFAST_COMPLETE"  # set by a shell that completes a word: click answers
_TEXTS = ("--session", "--before", "--actor")
_DIGITS_MAX = 9
LIMIT = 20


class Log(NamedTuple):
    """A `log` that was asked for: options of the program, and of the command."""

    of_program: dict[str, Any]
    of_command: dict[str, Any]


def understood(args: Sequence[str]) -> Log | None:
    """Return what `[-C PATH] [--json] log [OPTION]…` asks for; None for any other words."""
    if "log" not in args or _COMPLETING in os.environ:
        return None
    asked, is_named = Log({}, {}), False
    words = iter(args)
    for word in words:
        if word == "log" and not is_named:
            is_named = True
        elif word == "--json":
            asked.of_program["json"] = True
        elif not (_of_command(word, words, asked) if is_named else _of_program(word, words, asked)):
            return None
    return asked if is_named else None


def answer(asked: Log) -> int:
    """List the checkpoints."""
    from holdfast.cli.context import App  # only here: other commands do not need it yet

    app = App(**asked.of_program)
    try:
        log(app, **asked.of_command)
    finally:
        app.close()
    return 0


def log(app: App, limit: int = LIMIT, *, before: str | None = None, **options: Any) -> None:
    """List the checkpoints of a location, newest first. With a `limit` of 0, all of them."""
    from holdfast.cli import streams, values  # as above

    with app.location(options, scans=False) as location:
        page = location.list(limit or None, before)
        if app.json:
            app.document({"items": [each.document for each in page.items], "next": page.next, **page.extra})
            return
        values.table(page.columns, [each.cells for each in page.items])
        values.notes(page.notes)
        if page.next is not None:
            words = [app.url] if app.url else []
            for option in location.options:
                value = options.get(option.name)
                if value is not None and value is not False:
                    words += [f"--{option.name}"] if value is True else [f"--{option.name}", value]
            words += ["-n", str(limit)] if limit != LIMIT else []
            streams.note(f"There are more: {app.typed('log', *words, '--before', page.next)}")


def _of_program(word: str, words: Iterator[str], asked: Log) -> bool:
    """Read an option that stands before `log`; whether it is one that is known here."""
    if word != "-C":
        return False
    asked.of_program["directory"] = value = next(words, "")
    return _is_plain(value)


def _of_command(word: str, words: Iterator[str], asked: Log) -> bool:
    """Read an option that stands after `log`; whether it is one that is known here."""
    if word == "--all":
        asked.of_command["all"] = True
        return True
    value = next(words, "")
    if word in _TEXTS:
        asked.of_command[word[2:]] = value
        return _is_plain(value)
    if word != "-n" or not (value.isascii() and value.isdecimal()) or len(value) > _DIGITS_MAX:
        return False
    asked.of_command["limit"] = int(value)
    return True


def _is_plain(value: str) -> bool:
    """Whether a value is there and cannot be taken for an option."""
    return bool(value) and not value.startswith("-")
