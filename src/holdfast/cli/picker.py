"""Choosing from a list on a terminal: with the arrow keys, by typing to filter, with a preview.

Written here because the libraries that do it cost more to load than most commands take. The terminal is put back
whatever happens: an error, Ctrl-C, Ctrl-Z, SIGTERM.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from holdfast.cli import caller, render, streams

_ON, _OFF = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # another screen without a cursor, and back
_ESCAPE_S = 0.05  # how long after Esc the rest of an arrow key may come
_CONTROL = re.compile(rb"\x1b(\[[0-9;?]*[ -/]*[@-~]|O[A-Za-z]|.)?|[\x00-\x1f\x7f]", re.DOTALL)
_KEYS = {
    b"\x1b": "escape", b"\x04": "escape", b"\x03": "interrupt", b"\x1a": "suspend", b"\x0c": "redraw",
    b"\r": "enter", b"\n": "enter", b"\x7f": "backspace", b"\x08": "backspace", b"\x15": "clear", b"\x01": "all",
    b"\x1b[A": "up", b"\x1bOA": "up", b"\x10": "up", b"\x1b[B": "down", b"\x1bOB": "down", b"\x0e": "down",
    b"\x1b[5~": "page up", b"\x1b[6~": "page down", b"\x1b[H": "home", b"\x1bOH": "home", b"\x1b[1~": "home",
    b"\x1b[F": "end", b"\x1bOF": "end", b"\x1b[4~": "end", b"\x06": "scroll down", b"\x02": "scroll up",
    b"\x1b[C": "scroll down", b"\x1bOC": "scroll down", b"\x1b[D": "scroll up", b"\x1bOD": "scroll up",
}  # fmt: skip
_PAINT = re.compile(r"(\x1b\[[0-9;]*m)")
_LEAST_PREVIEW_ROWS = 4


class Choice(NamedTuple):
    """A line of the list; its text is escaped already."""

    key: str
    text: str


class Chooser:
    """What is on the screen, and what keys do to it. Knows no terminal."""

    def __init__(
        self,
        title: str,
        choices: Sequence[Choice],
        preview: Callable[[str], Sequence[str]],
        *,
        several: bool = False,
        empty: str = "Nothing to choose from.",
    ) -> None:
        """`several`: any number may be chosen, and all are at first. `empty`: shown where there are no choices."""
        self._title = title
        self._choices = list(choices)
        self._preview = preview
        self._several = several
        self._empty = empty
        self._ticked = {choice.key for choice in choices} if several else set()
        self._filter = ""
        self._is_filtering = False
        self._at = self._top = self._scrolled = 0
        self._rows = 1
        self._note = ""
        self.chosen: list[str] | None = None
        """What was chosen; None if it was left without."""

    @property
    def _found(self) -> list[Choice]:
        words = self._filter.lower().split()
        return [each for each in self._choices if all(word in each.text.lower() for word in words)]

    def press(self, key: str) -> bool:
        """Do what a key says; whether that was the end."""
        found = self._found
        self._note = ""
        moves = {"up": -1, "down": 1, "page up": -self._rows, "page down": self._rows}
        if key in moves:
            self._move(self._at + moves[key], len(found))
        elif key in ("home", "end"):
            self._move(0 if key == "home" else len(found) - 1, len(found))
        elif key in ("scroll down", "scroll up"):
            self._scrolled = max(0, self._scrolled + (5 if key == "scroll down" else -5))
        elif key == "enter":
            return self._take(found)
        elif key == "escape" or (key == "q" and not self._filter and not self._is_filtering):
            if key == "q" or not (self._filter or self._is_filtering):
                return True
            self._set_filter("")
            self._is_filtering = False
        elif key == "/" and not self._filter and not self._is_filtering:
            self._is_filtering = True
        elif key == " " and self._several:
            if found:
                self._ticked ^= {found[self._at].key}
                self._move(self._at + 1, len(found))
        elif key == "all" and self._several:
            keys = {choice.key for choice in found}
            self._ticked = self._ticked - keys if keys <= self._ticked else self._ticked | keys
        elif key == "backspace":
            self._set_filter(self._filter[:-1])
        elif key == "clear":
            self._set_filter("")
        elif len(key) == 1:
            self._set_filter(self._filter + key)
        return False

    def _take(self, found: Sequence[Choice]) -> bool:
        if self._several:
            chosen = [choice.key for choice in self._choices if choice.key in self._ticked]
        else:
            chosen = [found[self._at].key] if found else []
        if not chosen:
            self._note = "Nothing is chosen." + (" Space chooses." if self._several and self._choices else "")
            return False
        self.chosen = chosen
        return True

    def _move(self, to: int, count: int) -> None:
        self._at = max(0, min(to, count - 1))
        self._scrolled = 0

    def _set_filter(self, text: str) -> None:
        self._filter = text
        self._at = self._top = self._scrolled = 0

    # drawing

    def lines(self, columns: int, rows: int) -> list[str]:
        """Return what to show on a screen of this size."""
        found = self._found
        head = [render.paint(render.cut(self._title, columns), "bold", sys.stderr)]
        if rows >= 5:
            head.append(_fit(self._filter_line(len(found)), columns))
        foot = [render.paint(render.cut(self._note or self._help(), columns), "dim", sys.stderr)] if rows >= 4 else []
        body = max(rows - len(head) - len(foot), 1)
        listed = max(min(len(found), body), 1)
        if body - listed < _LEAST_PREVIEW_ROWS + 1:  # the preview has half of it, if that is enough
            listed = body - body // 2 if body // 2 > _LEAST_PREVIEW_ROWS else body
        self._rows = listed
        self._top = max(min(self._top, self._at), self._at - listed + 1)
        shown = found[self._top : self._top + listed]
        drawn = [self._line(choice, columns, self._top + at == self._at) for at, choice in enumerate(shown)]
        if not drawn:
            drawn = [render.cut(f"  {self._empty if not self._choices else 'Nothing matches.'}", columns)]
        left = body - max(listed, len(drawn))
        return [*head, *drawn, *self._preview_lines(found, columns, left), *foot]

    def _filter_line(self, count: int) -> str:
        total = f"{count}/{len(self._choices)}"
        if self._several:
            total += f", {len(self._ticked)} chosen"
        prompt = f"/{self._filter}_" if self._filter or self._is_filtering else "type to filter"
        return f"{render.paint(prompt, 'cyan' if self._filter else 'dim', sys.stderr)}  ({total})"

    def _help(self) -> str:
        take = "space: choose  ^A: all  enter: restore" if self._several else "enter: choose"
        return f"{take}  esc: leave  ↑↓: move  ←→: scroll the preview"

    def _line(self, choice: Choice, columns: int, is_current: bool) -> str:
        tick = ("[x] " if choice.key in self._ticked else "[ ] ") if self._several else ""
        text = f"{'> ' if is_current else '  '}{tick}{choice.text}"
        if not is_current:
            return _fit(text, columns)
        plain = render.cut(_PAINT.sub("", text), columns)
        return f"\x1b[7m{plain}\x1b[0m" if streams.has_colour(sys.stderr) else plain

    def _preview_lines(self, found: Sequence[Choice], columns: int, rows: int) -> list[str]:
        if rows <= 1 or not found:
            return [""] * rows
        lines = list(self._preview(found[self._at].key))
        self._scrolled = max(0, min(self._scrolled, len(lines) - rows + 1))
        shown = [_fit(line, columns) for line in lines[self._scrolled : self._scrolled + rows - 1]]
        rule = render.paint("─" * columns, "dim", sys.stderr)
        return [rule, *shown, *[""] * (rows - 1 - len(shown))]


def pick(chooser: Chooser) -> list[str] | None:
    """Show it until something is chosen; None if it is left without."""
    with _Screen() as screen:
        is_done = False
        while not is_done:
            screen.draw(chooser.lines(*screen.size()))
            for key in screen.read_keys():
                if key == "interrupt":
                    raise KeyboardInterrupt
                if key == "suspend":
                    screen.suspend()
                elif key != "redraw" and (is_done := chooser.press(key)):
                    break
    return chooser.chosen


class _Screen:
    """The terminal in a mode in which each key arrives at once, with another screen to draw on."""

    def __enter__(self) -> Self:
        caller.need_terminal()
        self._fd = sys.stdin.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._before = termios.tcgetattr(self._fd)
        self._read_end, self._write_end = os.pipe()
        for end in (self._read_end, self._write_end):
            os.set_blocking(end, False)
        self._handlers: dict[int, Any] = {
            signal.SIGTERM: signal.signal(signal.SIGTERM, self._terminate),
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: None),
        }
        self._wakeup = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        try:
            self._turn_on()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turn_off()
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._read_end)
        os.close(self._write_end)

    def size(self) -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(self._fd)
        except OSError:
            columns, rows = 80, 24
        return max(columns or 80, 8), max(rows or 24, 2)

    def draw(self, lines: Sequence[str]) -> None:
        rows = self.size()[1]
        self._write("\x1b[H" + "\n".join(f"{line}\x1b[K" for line in lines[:rows]) + "\x1b[J")

    def read_keys(self) -> Iterator[str]:
        """Wait for keys, or until the terminal has another size."""
        ready = select.select([self._fd, self._read_end], [], [])[0]
        if self._read_end in ready:
            os.read(self._read_end, 4096)
            yield "redraw"
        if self._fd not in ready:
            return
        try:
            data = os.read(self._fd, 4096)
            if data.endswith(b"\x1b") and select.select([self._fd], [], [], _ESCAPE_S)[0]:
                data += os.read(self._fd, 4096)
        except OSError:  # the terminal is gone
            data = b""
        yield from parse_keys(data, self._decoder) if data else ["interrupt"]

    def suspend(self) -> None:
        """Stop as Ctrl-Z does, with the terminal as it was before; go on when the shell says so."""
        self._turn_off()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._turn_on()

    def _turn_on(self) -> None:
        mode = termios.tcgetattr(self._fd)
        mode[0] &= ~(termios.IXON | termios.IXOFF)
        mode[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)
        self._write(_ON)

    def _turn_off(self) -> None:
        self._write(_OFF)
        try:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
        except termios.error:
            pass  # the terminal is gone

    def _terminate(self, number: int, _: object) -> None:
        self._turn_off()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _write(self, text: str) -> None:
        streams.write_note(text)
        streams.flush()


def parse_keys(data: bytes, decoder: codecs.IncrementalDecoder) -> Iterator[str]:
    """Yield the names of keys, or the characters that were typed; unknown keys are left out."""
    at = 0
    for control in _CONTROL.finditer(data):
        yield from decoder.decode(data[at : control.start()])
        at = control.end()
        name = _KEYS.get(control[0])
        if name is not None:
            yield name
    yield from decoder.decode(data[at:])


def _fit(line: str, columns: int) -> str:
    """Cut a line with colours to a width."""
    line = line.expandtabs(4)
    if render.display_width(line) <= columns:
        return line
    out, left = [], columns - 1
    for part in _PAINT.split(line):
        if part.startswith("\x1b"):
            out.append(part)
            continue
        kept = render.cut(part, left, mark="") if render.display_width(part) > left else part
        out.append(kept)
        left -= render.display_width(kept)
        if kept != part:
            out.append("…")
            break
    return "".join(out) + ("\x1b[0m" if "\x1b" in line else "")
