"""Planning the undo of an agent's changes: every other change stays, and what overlaps is reported.

Changes nothing. The agent's runs are reverted one after the other, the newest first, path by path. Each is reverted
whole, or, if somebody changed the same since, not at all, and then nothing older of that path either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from holdfast.model import Overlap
from holdfast.scan.dir_handles import join, split, upwards
from holdfast.scan.sqlite_files import family
from holdfast.workspace.pathspec import Scope
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.tree import Entry, TreeReader, link_of
from holdfast.workspace.undo_agent.renames import Moment, Step, Stretch, Track, follow
from holdfast.workspace.undo_agent.threeway import Unmergeable, Versions, is_same, without


class Reversed(NamedTuple):
    """The edits that undo an agent's changes."""

    edits: dict[str, Entry | None]
    overlaps: dict[str, Overlap]
    unknown: dict[str, str]
    """Paths left as they are, because it is unknown whether the agent changed them."""


@dataclass
class _Answer:
    """What the undo does with the file of one track."""

    track: Track
    place: str
    entry: Entry | None
    step: Step | None = None
    """The oldest step that is reverted."""
    overlap: Overlap | None = None
    is_left: bool = False
    """Nothing of it is undone, because the edit is not possible."""

    @property
    def name(self) -> str:
        """Its path afterwards; for a deleted file that cannot be recreated, the path it had."""
        return self.track.place if self.is_left and self.track.now else self.place

    @property
    def leaves(self) -> bool:
        return self.track.now is not None and (self.entry is None or self.place != self.track.place)

    @property
    def comes(self) -> bool:
        return self.entry is not None and (self.track.now is None or self.place != self.track.place)


class Reverser:
    """Computes a folder without an agent's changes."""

    def __init__(self, source: ObjectSink, reader: TreeReader, present: Node, now_ns: int) -> None:
        """`now_ns`: the modification time of merged content, which is new."""
        self._source = source
        self._reader = reader
        self._present = present
        self._now_ns = now_ns
        self._edits: dict[str, Entry | None] = {}
        self._answers: dict[str, _Answer] = {}

    def reverse(self, stretches: Iterable[Stretch], scope: Scope) -> Reversed:
        """Decide for every path in the scope that the agent changed."""
        stretches = list(stretches)
        followed = follow(stretches, self._reader, self._source)
        answers = [self._answer(each) for each in followed.tracks if any(step.is_agents for step in each.steps)]
        answers = [each for each in answers if self._is_asked_for(each, scope)]
        self._place([each for each in answers if not each.is_left])
        settled: dict[str, Entry | None] | None = None
        while settled != self._edits:  # a dropped edit may leave a file in a folder that was to go
            settled = dict(self._edits)
            self._settle()
            self._settle_databases(answers, [each.older for each in stretches])
        self._part_links()
        edits = {path: entry for path, entry in self._edits.items() if entry != self._at(path)}
        unknown = {path: why for path, why in followed.unknown.items() if path in scope}
        return Reversed(edits, _overlaps(answers), unknown)

    def _answer(self, track: Track) -> _Answer:
        answer = _Answer(track, track.place, track.now)
        is_moved = False  # by somebody else, later
        for step in track.joined():
            if not step.is_agents:
                is_moved = is_moved or step.is_move
                continue
            try:
                entry = without(Versions(step.before, step.after, answer.entry), self._source, self._now_ns)
                if entry is None and answer.entry is not None and is_moved:
                    raise Unmergeable("created, and renamed since")
                answer.entry = entry
            except Unmergeable as error:
                answer.overlap = _overlap(step, str(error))
                break
            answer.step = step
            if not is_moved:
                answer.place = step.name_before
        return answer

    def _is_asked_for(self, answer: _Answer, scope: Scope) -> bool:
        asked = [self._is_in(place, scope) for place in (answer.track.place, answer.place)]
        if any(asked) and not all(asked):  # P1: half a move would lose the file
            _give_up(answer, "renamed, and only one of the two names is in the given paths")
        return any(asked)

    def _is_in(self, path: str, scope: Scope) -> bool:
        """Whether a path is in the scope, or another file of the same database."""
        others = [] if path in scope else [each for each in family(path) if each != path and each in scope]
        return path in scope or any(self._reader.is_sidecar(self._present, each) for each in (path, *others) if others)

    # resolving conflicts between edits

    def _settle(self) -> None:
        for path in sorted(self._edits):
            self._settle_above(path)
        inside: dict[str, set[str]] = {}
        for path in self._edits:
            inside.setdefault(split(path)[0], set()).add(split(path)[1])
        for path in sorted(self._edits, reverse=True):  # what is in a folder before the folder
            self._settle_folder(path, inside.get(path, set()))

    def _place(self, answers: list[_Answer]) -> None:
        """Turn answers into edits. One whose path is taken stays where it is, which may block another in turn."""
        clash: _Answer | None = None
        while True:
            leaving = {each.track.place for each in answers if each.leaves}
            taken: set[str] = set()
            clash = None
            for each in answers:
                if each.comes:
                    if each.place in taken or (each.place not in leaving and self._at(each.place) is not None):
                        clash = each
                        break
                    taken.add(each.place)
            if clash is None:
                break
            _give_up(clash, "moved or deleted, and something else is at its path since")
            answers = [each for each in answers if each is not clash]
        for each in answers:
            if each.leaves:
                self._edits.setdefault(each.track.place, None)
            if each.entry is not None and each.step is not None:
                self._edits[each.place], self._answers[each.place] = each.entry, each

    def _drop(self, path: str, why: str) -> None:
        """Cancel the edit that brings something to a path, and with it the edit that needs the place it keeps."""
        answer = self._answers.pop(path)
        del self._edits[path]
        _give_up(answer, why)
        if answer.leaves:
            if self._edits.get(answer.track.place) is not None:
                self._drop(answer.track.place, "moved or deleted, and something else is at its path")
            self._edits.pop(answer.track.place, None)

    def _settle_above(self, path: str) -> None:
        """Make sure that the folder of a path exists afterwards."""
        if self._edits.get(path) is None:
            return
        answer = self._answers[path]
        for above in reversed(list(upwards(split(path)[0]))):
            holder, now = self._after(above), self._at(above)
            if holder is None and now is not None and now.is_folder:
                del self._edits[above]  # a folder that the agent made stays if something goes into it
                holder = now
            elif holder is None:
                holder = self._folder_then(answer, above)
                if holder is not None:
                    self._edits[above], self._answers[above] = holder, answer
            if holder is None or not holder.is_folder:
                self._drop(path, f"deleted or moved, and {above} is no longer a folder")
                return

    def _folder_then(self, answer: _Answer, path: str) -> Entry | None:
        """Return a folder as it was when it last existed."""
        found = (self._reader.find(step.stretch.older.root, path) for step in answer.track.steps)
        return next((entry for entry in found if entry is not None and entry.is_folder), None)

    def _settle_folder(self, path: str, coming: set[str]) -> None:
        """Keep a folder that was to be removed if something in it stays."""
        node, entry = self._reader.node(self._present, path), self._edits.get(path)
        if path not in self._edits or node is None or (entry is not None and entry.is_folder):
            return
        view = self._reader.view(node)
        if any(self._after(join(path, name)) is not None for name in {*view.entries, *view.folders, *coming}):
            if entry is None:
                del self._edits[path]
            else:
                self._drop(path, "a folder was made in its place, and contains files that others made since")

    def _settle_databases(self, answers: list[_Answer], moments: list[Moment]) -> None:
        """Leave a database as it is, unless all its files would be of one moment (P2): mixed ones are corrupt."""
        roots = [self._present, *(each.root for each in moments)]
        for main in sorted({family(path)[0] for path in self._edits}):
            files = family(main)[:3]  # without `-shm`: SQLite creates it again
            if not any(path in self._edits for path in files) or self._is_whole(files, roots):
                continue
            for answer in answers:
                if not answer.is_left and (answer.place in files or answer.track.place in files):
                    self._leave(answer, "part of a database, other parts of which were changed since")

    def _is_whole(self, files: Sequence[str], roots: Sequence[Node]) -> bool:
        sidecars = [path for path in files[1:] if path in self._edits or self._at(path) is not None]
        if not any(self._reader.is_sidecar(root, path) for path in sidecars for root in roots):
            return True  # not a database, or one without sidecars
        return any(all(is_same(self._after(path), self._reader.find(root, path)) for path in files) for root in roots)

    def _leave(self, answer: _Answer, why: str) -> None:
        """Leave a file as it is, and cancel its edits."""
        if self._answers.get(answer.place) is answer:
            self._drop(answer.place, why)
            return
        _give_up(answer, why)
        if self._edits.get(answer.track.place, answer.entry) is None:
            self._edits.pop(answer.track.place, None)

    def _part_links(self) -> None:
        """Separate hard links whose contents would differ afterwards."""
        groups: dict[bytes, list[str]] = {}
        for path, entry in self._edits.items():
            if entry is not None and entry.attr.link is not None:
                groups.setdefault(entry.attr.link, []).append(path)
        for link, paths in groups.items():
            if link_of(paths) != link or len({self._oid(path) for path in paths}) > 1:
                for path in paths:
                    entry = self._edits[path]
                    self._edits[path] = entry and entry._replace(attr=entry.attr.without_link())

    def _oid(self, path: str) -> bytes:
        entry = self._edits[path]
        return entry.oid if entry else b""

    def _at(self, path: str) -> Entry | None:
        return self._reader.find(self._present, path)

    def _after(self, path: str) -> Entry | None:
        """Return what will be at a path."""
        return self._edits[path] if path in self._edits else self._at(path)


def _give_up(answer: _Answer, why: str) -> None:
    """Leave a file as it is, under its present name."""
    answer.is_left = True
    if answer.step is not None:
        answer.overlap = _overlap(answer.step, why)


def _overlaps(answers: Iterable[_Answer]) -> dict[str, Overlap]:
    """Return the conflicts by path; of two at one path the one of the file that is there, with both reasons."""
    found: dict[str, Overlap] = {}
    for each in sorted(answers, key=lambda each: (each.name, each.is_left and each.track.now is None)):
        if each.overlap is not None:
            first = found.setdefault(each.name, each.overlap)
            if first is not each.overlap:
                found[each.name] = replace(first, why=f"{first.why}; what was there before: {each.overlap.why}")
    return found


def _overlap(step: Step, why: str) -> Overlap:
    run = step.stretch.run
    return Overlap(
        why,
        " and ".join(run.actors),
        step.stretch.older.id or "",
        step.stretch.newer.id,
        path_before=step.name_before if step.before else None,
        path_after=step.name_after if step.after else None,
    )
