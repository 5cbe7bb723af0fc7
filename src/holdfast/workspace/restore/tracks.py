"""The tracks of files: each followed back through the runs of windows, under whatever name it had at the time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.model import Reason
from holdfast.scan.handles import upwards
from holdfast.workspace.restore.threeway import is_same
from holdfast.workspace.stored.differ import find_moves
from holdfast.workspace.stored.gathering import Gathering
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.tree import Change, Entry, TreeReader
from holdfast.workspace.stored.windows import Run


class Moment(NamedTuple):
    """The folder at one end of a run."""

    id: str | None
    """Of the checkpoint; None: now."""
    root: Node
    uncovered: Mapping[str, Reason]


class Stretch(NamedTuple):
    """A run, and the folder at both ends of it."""

    run: Run
    older: Moment
    newer: Moment


class Step(NamedTuple):
    """What became of a file in a run."""

    stretch: Stretch
    name_before: str
    before: Entry | None
    name_after: str
    after: Entry | None

    @property
    def is_agents(self) -> bool:
        return self.stretch.run.is_agents

    @property
    def is_move(self) -> bool:
        return self.name_before != self.name_after


@dataclass
class Track:
    """One file, folder or other thing, and what became of it; the newest step first."""

    steps: list[Step] = field(default_factory=list)

    @property
    def place(self) -> str:
        """Where it is now, or was last."""
        return self.steps[0].name_after

    @property
    def now(self) -> Entry | None:
        """What it is now: nothing has become of it since its newest step."""
        return self.steps[0].after

    def joined(self) -> Iterator[Step]:
        """The steps, those of the agent that follow each other as one. What others only touched divides nothing."""
        last: Step | None = None
        for step in self.steps:
            if not step.is_agents and not step.is_move and is_same(step.before, step.after):
                continue
            if last is not None and last.is_agents and step.is_agents:
                stretch = last.stretch._replace(older=step.stretch.older)
                last = last._replace(stretch=stretch, name_before=step.name_before, before=step.before)
                continue
            if last is not None:
                yield last
            last = step
        if last is not None:
            yield last


class Followed(NamedTuple):
    """All tracks, and what could not be followed."""

    tracks: list[Track]
    unknown: dict[str, str]
    """Paths that came or went in a run of the agent's, or seem to: one end of it does not hold them, and why (P4)."""


def follow(stretches: Iterable[Stretch], reader: TreeReader, source: Gathering) -> Followed:
    """The tracks of everything that became otherwise in some stretch (newest first)."""
    tracks: list[Track] = []
    unknown: dict[str, str] = {}
    named: dict[str, Track] = {}

    def add(track: Track | None, step: Step) -> None:
        if track is None:
            track = Track()
            tracks.append(track)
        track.steps.append(step)
        named[step.name_before] = track

    for stretch in stretches:
        changes, gaps = _changes(stretch, reader)
        if stretch.run.is_agents:
            unknown |= gaps
        moves = find_moves(changes.values(), source)
        left, taken = {old for old, _ in moves}, {new for _, new in moves}
        moving = [(named.pop(new, None), old, new) for old, new in moves]  # all, before any gets its older name
        for path, (_, before, after) in changes.items():
            if path not in left and path not in taken:
                add(named.get(path), Step(stretch, path, before, path, after))
            elif path not in left and before is not None:  # what came here replaced another, which is gone
                add(None, Step(stretch, path, before, path, None))
            elif path not in taken and after is not None:  # what was here is elsewhere, and this was made in its place
                add(named.pop(path, None), Step(stretch, path, None, path, after))
        for track, old, new in moving:
            add(track, Step(stretch, old, changes[old].before, new, changes[new].after))
    return Followed(tracks, unknown)


def _changes(stretch: Stretch, reader: TreeReader) -> tuple[dict[str, Change], dict[str, str]]:
    """What differs between both ends, by path; and what one end does not hold, so that it is not known to differ.

    Absent from a checkpoint that does not hold it is neither made nor deleted.
    """
    found: dict[str, Change] = {}
    unknown: dict[str, str] = {}
    for path, before, after in reader.diff(stretch.older.root, stretch.newer.root):
        other = found.get(path)  # a file that became a folder, or the reverse, is told in two
        found[path] = Change(path, before or (other and other.before), after or (other and other.after))
    for path, change in list(found.items()):
        if change.before is None or change.after is None:
            end = stretch.older if change.before is None else stretch.newer
            gap = next((above for above in upwards(path) if above in end.uncovered), None)
            if gap is not None:
                del found[path]
                unknown[gap] = f"not held {f'by {end.id}' if end.id else 'now'}: {end.uncovered[gap]}"
    return found, unknown
