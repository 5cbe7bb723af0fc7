"""`holdfast log` of a folder, without click: loading that takes longer than the answer.

Only words that can mean one thing are understood here; click reads all others, and says what is wrong with them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

_COMPLETING = "_HOLDFAST_COMPLETE"  # set by a shell that completes a word: click answers
_TEXTS = ("--session", "--before", "--actor")
_DIGITS_MAX = 9


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
    from holdfast.cli import listing  # only here: whoever asks for something else does not need it yet
    from holdfast.cli.app import App

    app = App(**asked.of_program)
    try:
        listing.log(app, **asked.of_command)
    finally:
        app.close()
    return 0


def _of_program(word: str, words: Iterator[str], asked: Log) -> bool:
    """Read an option that stands before `log`; whether it is one that is known here."""
    if word != "-C":
        return False
    asked.of_program["directory"] = value = next(words, "")
    return _is_plain(value)


def _of_command(word: str, words: Iterator[str], asked: Log) -> bool:
    """Read an option that stands after `log`; whether it is one that is known here."""
    if word == "--all":
        asked.of_command["safety"] = True
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
