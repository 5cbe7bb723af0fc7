"""The two streams: answers to stdout, everything else to stderr, and neither ever raises for a closed pipe."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TextIO

from holdfast.cli import caller
from holdfast.errors import Unavailable


class _Settings:
    """What the global options say about output."""

    def __init__(self, colour: str = "auto", *, pager: bool = True, verbose: bool = False) -> None:
        self.colour = colour  # "always" | "auto" | "never"
        self.pager = pager
        self.verbose = verbose


settings = _Settings()
_through: Callable[[str, bool], None] | None = None


@contextmanager
def own_settings() -> Iterator[None]:
    """Forget at the end which options were given: the program may be run several times in one process."""
    global settings  # the streams are those of the process, too
    before = settings
    settings = _Settings(before.colour, pager=before.pager, verbose=before.verbose)
    try:
        yield
    finally:
        settings = before


@contextmanager
def through(write: Callable[[str, bool], None]) -> Iterator[None]:
    """Pass what is written to a function, with whether it is a note, and not to the streams."""
    global _through  # as above
    _through = write
    try:
        yield
    finally:
        _through = None


def paged() -> AbstractContextManager[None]:
    """Show what is printed in a pager, if stdout is a terminal and it does not fit."""
    if not settings.pager or _through is not None or not is_terminal(sys.stdout):
        return nullcontext()
    from holdfast.cli import pager  # start-up cost, on a terminal only

    return pager.paged()


def answer(text: str = "") -> None:
    """Write one line, or a block of lines, of the answer."""
    if _through is not None:
        _through(text + "\n", False)
    else:
        write_answer(text + "\n")


def write_answer(text: str) -> None:
    """Write text to stdout itself."""
    _write(sys.stdout, text)


def write_note(text: str) -> None:
    """Write text to stderr itself."""
    flush()  # where both streams go to one place, their lines stay in order
    _write(sys.stderr, text)


def document(value: Any) -> None:
    """Write the one JSON document of a command. It is ASCII, so that any file name comes through."""
    answer(json.dumps(value, indent=2 if is_terminal(sys.stdout) else None))


def raw(text: str) -> None:
    """Write text with the bytes it came from: a diff that goes to a file has to apply."""
    data = text.encode("utf-8", "surrogateescape")
    if _through is not None:
        _through(data.decode("utf-8", "backslashreplace"), False)
        return
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        _write(sys.stdout, data.decode("utf-8", "backslashreplace"))
        return
    flush()
    try:
        buffer.write(data)
    except OSError as error:
        _give_up(sys.stdout, error)


def binary(chunks: Iterable[bytes]) -> None:
    """Write bytes as they are."""
    buffer = getattr(sys.stdout, "buffer", None)
    flush()
    try:
        for chunk in chunks:
            if buffer is None:
                _write(sys.stdout, chunk.decode("utf-8", "backslashreplace"))
            else:
                buffer.write(chunk)
    except OSError as error:
        _give_up(sys.stdout, error)


def note(text: str) -> None:
    """Write a line that is not part of the answer: a warning, a hint, a plan, a question."""
    if _through is not None:
        _through(text + "\n", True)
    else:
        write_note(text + "\n")


def notes(lines: Iterable[str]) -> None:
    """Write several such lines."""
    for line in lines:
        note(line)


def tell_waiting() -> None:
    """Say so, on stderr whatever that is, when a command waits for a lock."""
    from holdfast.durable.lock import on_wait  # start-up cost: for commands that may take a lock

    on_wait(_waiting)


def _waiting(owner: str) -> None:
    if caller.current is not None and caller.current.thread != threading.get_ident():
        return  # somebody else in the helper
    note(f"Waiting for {owner} that writes to this store; Ctrl-C gives up.")
    finish()


def ask(question: str) -> bool:
    """Ask the person at the terminal; anything but yes, the end of the input too, is no."""
    return ask_line(f"{question} [y/N]").lower() in {"y", "yes"}


def ask_line(question: str, *, at_end: str = "") -> str:
    """Ask the person at the terminal for a line; the end of the input stands for `at_end`."""
    caller.need_terminal()
    flush()
    _write(sys.stderr, f"{question} ")
    sys.stderr.flush()
    reply = sys.stdin.buffer.readline()  # as bytes: what is typed need not be text
    if not reply.endswith(b"\n"):
        note("")
    if not reply:
        return at_end
    return reply.decode("utf-8", "replace").strip()


def can_ask() -> bool:
    """Whether a question can be asked: stdin and stderr are a terminal."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def is_terminal(stream: TextIO | None) -> bool:
    """Say whether a stream is a terminal; one that was closed before the start is none."""
    return stream is not None and not stream.closed and stream.isatty()


def terminal_size() -> tuple[int, int]:
    """Return columns and rows of the terminal, as COLUMNS and LINES or the terminal itself say."""
    found = []
    for at, (name, default) in enumerate((("COLUMNS", 80), ("LINES", 24))):
        given = os.environ.get(name, "")
        if given.isdecimal() and int(given):
            found.append(int(given))
            continue
        for stream in (sys.__stdout__, sys.__stderr__, sys.__stdin__):
            try:
                size = os.get_terminal_size(stream.fileno())[at] if stream is not None else 0
            except (OSError, ValueError):
                size = 0
            if size:
                break
        found.append(size or default)
    return found[0], found[1]


def has_colour(stream: TextIO | None) -> bool:
    """Say whether colour belongs on a stream: what `--color` says, else NO_COLOR, else FORCE_COLOR, else a terminal."""
    if settings.colour != "auto":
        return settings.colour == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def prepare() -> None:
    """Make both streams take any character, whatever the locale says."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Hand everything over now, while a failure can still be answered."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            _give_up(stream, error)


def finish() -> None:
    """Hand everything over, and in the helper write what was held back until now."""
    flush()
    for stream, error in caller.show_now():
        _give_up(stream, error)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return
    try:
        stream.write(text)
    except OSError as error:
        _give_up(stream, error)


def _give_up(stream: TextIO, error: OSError) -> None:
    """Send the rest of a stream nowhere. A reader that has seen enough is no error; a full disk is."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    if not isinstance(error, BrokenPipeError):
        raise Unavailable(
            f"the output could not be written: {error.strerror}",
            hint="The command itself was carried out; only its output is lost.",
        ) from error
