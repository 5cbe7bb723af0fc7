"""Following files back through the checkpoints of an agent and of others, across renames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.model import Reason
from holdfast.scan.dir_handles import upwards
from holdfast.workspace.stored.attribution import AttributedRun
from holdfast.workspace.stored.diff import find_moves
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.tree import Change, Entry, TreeReader
from holdfast.workspace.undo_agent.threeway import is_same


class Moment(NamedTuple):
    """The folder at the older or the newer end of a run."""

    id: str | None
    """The id of the checkpoint; None stands for now."""
    root: Node
    uncovered: Mapping[str, Reason]


class Stretch(NamedTuple):
    """A run of attributed changes, and the folder before and after it."""

    run: AttributedRun
    older: Moment
    newer: Moment


class Step(NamedTuple):
    """How a file changed in a run."""

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
    """The history of one file, folder or link; the newest step first."""

    steps: list[Step] = field(default_factory=list)

    @property
    def place(self) -> str:
        """Its path now, or the last one it had."""
        return self.steps[0].name_after

    @property
    def now(self) -> Entry | None:
        """What is there now: nothing changed since its newest step."""
        return self.steps[0].after

    def joined(self) -> Iterator[Step]:
        """Yield the steps, successive ones of the agent as one. Skips steps of others that changed nothing."""
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
    """The history of every file, and what could not be followed."""

    tracks: list[Track]
    unknown: dict[str, str]
    """Paths that may have been added or removed by the agent, with the reason why that is unknown (P4)."""


def follow(stretches: Iterable[Stretch], reader: TreeReader, source: ObjectSink) -> Followed:
    """Follow everything that changed in some stretch (newest first)."""
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
        moving = [(named.pop(new, None), old, new) for old, new in moves]  # before any gets its older name
        for path, (_, before, after) in changes.items():
            if path not in left and path not in taken:
                add(named.get(path), Step(stretch, path, before, path, after))
            elif path not in left and before is not None:  # a file moved here and replaced this one
                add(None, Step(stretch, path, before, path, None))
            elif path not in taken and after is not None:  # the file moved away, and a new one was made here
                add(named.pop(path, None), Step(stretch, path, None, path, after))
        for track, old, new in moving:
            add(track, Step(stretch, old, changes[old].before, new, changes[new].after))
    return Followed(tracks, unknown)


def _changes(stretch: Stretch, reader: TreeReader) -> tuple[dict[str, Change], dict[str, str]]:
    """Return what differs between both ends, by path; and the paths for which that is unknown, with the reason.

    A path that a checkpoint could not cover was neither created nor deleted just because it is missing there.
    """
    found: dict[str, Change] = {}
    unknown: dict[str, str] = {}
    for path, before, after in reader.diff(stretch.older.root, stretch.newer.root):
        other = found.get(path)  # a file that became a folder, or the reverse, comes as two changes
        found[path] = Change(path, before or (other and other.before), after or (other and other.after))
    for path, change in list(found.items()):
        if change.before is None or change.after is None:
            end = stretch.older if change.before is None else stretch.newer
            gap = next((above for above in upwards(path) if above in end.uncovered), None)
            if gap is not None:
                del found[path]
                unknown[gap] = f"not covered {f'by {end.id}' if end.id else 'now'}: {end.uncovered[gap]}"
    return found, unknown
