"""Asking for each hunk whether to take it back, with the answers of `git checkout -p`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.cli import render, streams
from holdfast.model import Changes, FileChange, Hunk

_GAP_LINES = 6  # hunks that are nearer share their context and are shown as one, as in git
_CONTEXT_LINES = 3
_HELP = {
    "y": "take back this hunk",
    "n": "leave this hunk as it is",
    "q": "stop; leave this hunk and all later ones",
    "a": "take back this hunk and all later ones in the file",
    "d": "leave this hunk and all later ones in the file",
    "j": "go to the next hunk that is undecided",
    "J": "go to the next hunk",
    "k": "go back to the hunk before that is undecided",
    "K": "go back to the hunk before",
    "s": "split this hunk into smaller ones",
    "?": "show this help",
}


@dataclass
class _Shown:
    """Hunks that are shown and decided as one."""

    hunks: list[Hunk]
    is_taken: bool | None = None


@dataclass
class _File:
    """The answers for one file."""

    change: FileChange
    patch: str
    """For what is no text: how the change looks as a whole."""
    shown: list[_Shown] = field(default_factory=list)

    @property
    def taken(self) -> list[Hunk]:
        return [hunk for each in self.shown if each.is_taken for hunk in each.hunks]


def choose_hunks(changes: Changes, patches: Mapping[str, str]) -> list[Hunk]:
    """Ask for every hunk, and return those to take back. `patches`: how each path changed, as in `diff`."""
    chosen: list[Hunk] = []
    for change in changes.files:
        file = _File(change, patches.get(change.path, ""), [_Shown(group) for group in _grouped(change.hunks)])
        goes_on = _ask(file)
        chosen += file.taken
        if not goes_on:
            break
    return chosen


def _ask(file: _File) -> bool:
    """Ask for the hunks of one file; False to stop."""
    streams.notes(_head(file.change))
    at = 0
    while True:
        each = file.shown[at]
        streams.notes(_body(file, each))
        reply = streams.ask_line(_question(file, at), at_end="q")
        key = reply[:1]
        if key in ("y", "n"):
            each.is_taken = key == "y"
        elif key in ("a", "d"):
            for later in file.shown[at:]:
                if later.is_taken is None or later is each:
                    later.is_taken = key == "a"
        elif key == "q":
            return False
        elif key == "s" and len(each.hunks) > 1:
            streams.note(f"Split into {len(each.hunks)} hunks.")
            file.shown[at : at + 1] = [_Shown([hunk]) for hunk in each.hunks]
            continue
        elif key in ("j", "J", "k", "K") and (there := _moved(file.shown, at, key)) is not None:
            at = there
            continue
        else:
            if key and key in "jJkK":
                streams.note("There is no other hunk there.")
            streams.notes(_help(file.shown, at))
            continue
        undecided = [place for place, other in enumerate(file.shown) if other.is_taken is None]
        if not undecided:
            return True
        at = next((place for place in undecided if place > at), undecided[0])


def _moved(shown: Sequence[_Shown], at: int, key: str) -> int | None:
    places = list(range(at + 1, len(shown))) if key in "jJ" else list(range(at - 1, -1, -1))
    return next((place for place in places if key in "JK" or shown[place].is_taken is None), None)


def _keys(shown: Sequence[_Shown], at: int) -> list[str]:
    moves = [key for key in "jJkK" if _moved(shown, at, key) is not None]
    return ["y", "n", "q", "a", "d", *moves, *(["s"] if len(shown[at].hunks) > 1 else []), "?"]


def _question(file: _File, at: int) -> str:
    kind = file.shown[at].hunks[0].kind
    what = "mode change" if kind == "mode" else "hunk"
    if kind == "whole":
        what = {"added": "addition", "deleted": "deletion"}.get(file.change.status, "change")
    count = f"({at + 1}/{len(file.shown)}) " if len(file.shown) > 1 else ""
    keys = ",".join(_keys(file.shown, at))
    return render.paint(f"{count}Take back this {what} [{keys}]?", "bold", sys.stderr)


def _help(shown: Sequence[_Shown], at: int) -> Iterator[str]:
    for key in _keys(shown, at):
        yield render.paint(f"{key} - {_HELP[key]}", "red", sys.stderr)


# how it looks


def _head(change: FileChange) -> Iterator[str]:
    verb = {"added": "added", "deleted": "deleted"}.get(change.status, "modified")
    kind = "" if change.type == "file" else f" {change.type}"
    yield render.paint(
        f"{render.escape(change.path) or '.'}{kind and f' ({kind.strip()})'}: {verb}", "bold", sys.stderr
    )


def _body(file: _File, shown: _Shown) -> Iterator[str]:
    first = shown.hunks[0]
    if first.kind == "lines":
        yield from (render.diff_line(line, sys.stderr) for line in _lines(shown.hunks))
    elif first.kind == "mode":
        before, after = file.change.mode_before or 0, file.change.mode_after or 0
        yield render.paint(f"-mode {before & 0o7777:04o}", "red", sys.stderr)
        yield render.paint(f"+mode {after & 0o7777:04o}", "green", sys.stderr)
    else:
        yield from (render.diff_line(line, sys.stderr) for line in file.patch.split("\n")[1:-1])


def _grouped(hunks: Sequence[Hunk]) -> list[list[Hunk]]:
    """Return hunks in groups that git would show as one."""
    groups: list[list[Hunk]] = []
    for hunk in hunks:
        last = groups[-1][-1] if groups else None
        if last is not None and last.kind == hunk.kind == "lines" and _start(hunk) - _end(last) <= _GAP_LINES:
            groups[-1].append(hunk)
        else:
            groups.append([hunk])
    return groups


def _start(hunk: Hunk) -> int:
    """The first line of the newer state that it changes, from 0."""
    return hunk.after[0] - (hunk.after[1] > 0)


def _end(hunk: Hunk) -> int:
    return _start(hunk) + hunk.after[1]


def _lines(hunks: Sequence[Hunk]) -> Iterator[str]:
    """The lines of a group as in a unified diff."""
    first, last = hunks[0], hunks[-1]
    old_first = first.before[0] - (first.before[1] > 0) - len(first.leading)
    old_last = last.before[0] - (last.before[1] > 0) + last.before[1] + len(last.trailing)
    new_first, new_last = _start(first) - len(first.leading), _end(last) + len(last.trailing)
    yield f"@@ -{_range(old_first, old_last)} +{_range(new_first, new_last)} @@"
    yield from _marked(" ", first.leading)
    for at, hunk in enumerate(hunks):
        yield from _marked("-", hunk.removed)
        yield from _marked("+", hunk.added)
        if hunk is not last:
            gap = _start(hunks[at + 1]) - _end(hunk)
            after = hunk.trailing[:gap]
            yield from _marked(" ", after)
            rest = gap - len(after)
            yield from _marked(" ", hunks[at + 1].leading[-rest:] if rest else ())
    yield from _marked(" ", last.trailing)


def _range(start: int, end: int) -> str:
    count = end - start
    return f"{start + (count > 0)}" + ("" if count == 1 else f",{count}")


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"
