"""The turns that began in a workspace, in a file of the store: also those in which no file changed.

What a turn changed is in its checkpoints, which have its id and its number. This file adds the turns that have none,
their prompts, and what agents said at the end. It is appended to, one line of JSON for a turn that begins, one when its
first checkpoint is saved and one when it ends, and not synced: after a power loss the last lines may be missing, and a
torn line is skipped. A turn that is missing is still shown if it has checkpoints, and no number is used twice (P10),
since checkpoints have it too.
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import durable
from holdfast.workspace.stored.attribution import TurnKey

_NAME = "turns.jsonl"
_MAX_BYTES = 1 << 20
"""Above this, the older half is dropped: about a thousand turns stay, and two hundred if all end with long messages."""


class TurnStart(NamedTuple):
    """A turn that began."""

    number: int
    agent: str
    session: str | None
    turn: str
    """Its id, as the agent has it; made up where it has none."""
    prompt: str
    """The first line of what the user asked for; empty if it is not known."""
    at: str
    """When it began, in UTC and ISO 8601."""
    after: int
    """The greatest number of a checkpoint at that time."""
    changed: bool = False
    """Whether a checkpoint of it was ever saved; it may be deleted since."""
    closing: str = ""
    """What the agent said at its end, shortened; empty if it is not over, or that is not known."""

    @property
    def key(self) -> TurnKey:
        return TurnKey(self.agent, self.session, self.turn)


class TurnLog:
    """The file of a store."""

    def __init__(self, own: Path) -> None:
        self._path = own / _NAME
        self._lock = durable.Lock(own / f"{_NAME}.lock")

    def read(self) -> list[TurnStart]:
        """Return the turns, oldest first; lines that cannot be read are skipped. Takes no lock (P9)."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return []
        found: dict[int, TurnStart] = {}
        for line in data.splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, OverflowError):
                told = durable.parse_json(line)
                number = int(told["number"])
                if set(told) == {"number", "changed"}:
                    found[number] = found[number]._replace(changed=True)
                elif set(told) == {"number", "closing"}:
                    found[number] = found[number]._replace(closing=str(told["closing"]))
                else:
                    found[number] = _checked(told)
        return [found[number] for number in sorted(found)]

    def begin(self, key: TurnKey, prompt: str, *, at: str, after: int, least: int) -> TurnStart:
        """Note that a turn begins, and give it a number: at least `least`. A turn that is known keeps its number."""
        with self._lock:
            known = self.read()
            again = next((each for each in reversed(known) if each.key == key), None)
            if again is not None:
                return again
            number = max(known[-1].number + 1 if known else 1, least)
            start = TurnStart(number, key.agent, key.session, str(key.turn), prompt, at, after)
            self._append(start._asdict())
            self._shorten(known, start)
            return start

    def note_change(self, number: int) -> None:
        """Note that a turn has a checkpoint."""
        with self._lock:
            self._append({"number": number, "changed": True})

    def note_closing(self, number: int, closing: str) -> None:
        """Note what the agent said at the end of a turn."""
        with self._lock:
            self._append({"number": number, "closing": closing})

    def forget_prompts(self) -> None:
        """Remove all prompts and closing messages: one may contain what is being purged. Checkpoints have the prompts,
        without what is purged."""
        with self._lock:
            if self._path.exists():
                self._write([each._replace(prompt="", closing="") for each in self.read()], sync=True)

    def _append(self, told: dict[str, Any]) -> None:
        line = json.dumps(told, separators=(",", ":")).encode() + b"\n"
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            is_torn = size and os.pread(fd, 1, size - 1) != b"\n"
            durable.disk().write(fd, b"\n" + line if is_torn else line)
        finally:
            os.close(fd)

    def _shorten(self, known: Iterable[TurnStart], newest: TurnStart) -> None:
        with contextlib.suppress(OSError):
            if self._path.stat().st_size <= _MAX_BYTES:
                return
            every = [*known, newest]
            self._write(every[len(every) // 2 :], sync=False)

    def _write(self, every: Iterable[TurnStart], *, sync: bool) -> None:
        lines = [json.dumps(each._asdict(), separators=(",", ":")) + "\n" for each in every]
        via = self._path.with_suffix(".tmp")  # not `.new`, which a writer with the store's lock sweeps
        durable.write_atomically(self._path, "".join(lines).encode(), via=via, sync=sync)


def _checked(told: dict[str, Any]) -> TurnStart:
    start = TurnStart(**told)
    texts = (start.agent, start.session or "", start.turn, start.prompt, start.at, start.closing)
    if not all(isinstance(text, str) for text in texts) or not isinstance(start.after, int):
        raise ValueError("not a turn")
    return start
