"""A pager for output that does not fit on the terminal."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.cli import caller, streams

if TYPE_CHECKING:
    import subprocess

_DEFAULT = "less -FRX"
_OPTIONS = {"LESS": "FRX", "LV": "-c"}  # as git sets them: colour, and no pager for what fits
_SHELL = frozenset("|&;<>()$`\\\"'*?[#~=%")
_CONTROL = re.compile(r"\x1b\[[0-9;]*m")


@contextmanager
def paged() -> Iterator[None]:
    """Show what is printed in a pager, if it does not fit on the terminal that stdout is; else print it at the end."""
    command = _command()
    if command is None:
        yield
        return
    pager = _Pager(command)
    with streams.through(pager.write):
        try:
            yield
        finally:
            pager.close()


class _Pager:
    """Collects output, and starts the program once there is more than a screen of it."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._held: list[tuple[bool, str]] = []
        self._columns, self._rows = streams.terminal_size()
        self._used = 1  # the line of the shell's prompt
        self._process: subprocess.Popen[bytes] | None = None
        self._is_read = True
        self._handler: Any = None

    def write(self, text: str, is_note: bool) -> None:
        """Take some text; notes go into the pager, too, where they would go to the same terminal."""
        if is_note and not streams.is_terminal(sys.stderr):
            streams.write_note(text)
            return
        if self._process is not None:
            self._pass_on(text)
            return
        self._held.append((is_note, text))
        self._used += sum(_rows(line, self._columns) for line in text.split("\n")[:-1])
        if self._used > self._rows:
            self._start()

    def close(self) -> None:
        """Wait until the pager is left; without one, print what was held back."""
        if self._process is None:
            held, self._held = self._held, []
            for is_note, text in held:
                (streams.write_note if is_note else streams.write_answer)(text)
            return
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.wait()
        finally:
            _on_interrupt(self._handler)

    def _start(self) -> None:
        caller.need_terminal()
        import shlex  # start-up cost, for long output only
        import shutil
        import subprocess

        streams.flush()
        program: str | list[str] = self._command
        is_shell = bool(_SHELL.intersection(self._command))
        try:
            words = shlex.split(self._command)
            if not is_shell:
                program = words
            if not is_shell and shutil.which(words[0]) is None:
                raise FileNotFoundError
            environment = {**_OPTIONS, **os.environ}
            self._process = subprocess.Popen(
                program,
                shell=is_shell,  # the user's own command, as in git
                stdin=subprocess.PIPE,
                env=environment,
                bufsize=0,
            )
        except (OSError, ValueError):  # it is not installed: the output matters more
            self._rows = sys.maxsize
            return
        self._handler = _on_interrupt(signal.SIG_IGN)  # from here on Ctrl-C is for the pager
        held, self._held = self._held, []
        self._pass_on("".join(text for _, text in held))

    def _pass_on(self, text: str) -> None:
        if self._process is None or self._process.stdin is None or not self._is_read:
            return
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        try:
            while data:
                data = data[self._process.stdin.write(data) or 0 :]
        except OSError:  # its reader has seen enough
            self._is_read = False


def _command() -> str | None:
    """Return the command of the pager; None if there is to be none."""
    found = os.environ.get("HOLDFAST_PAGER")
    found = os.environ.get("PAGER", _DEFAULT) if found is None else found
    return None if found.strip() in ("", "cat") or os.environ.get("TERM") == "dumb" else found


def _rows(line: str, columns: int) -> int:
    shown = len(_CONTROL.sub("", line))
    return max(1, -(-shown // max(columns, 1)))


def _on_interrupt(handler: Callable[..., Any] | int | None) -> Any:
    try:
        return signal.signal(signal.SIGINT, handler) if handler is not None else None
    except ValueError:  # not in the main thread
        return None
