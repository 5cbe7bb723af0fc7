"""The measuring itself: every contender does the same work on the same tree, in turn, round after round."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import contenders
import trees
from contenders import COMMAND, GIT, HELPED, INSIDE, PROCESS, PURE, WATCHING, Contender, of_processor
from report import Row
from trees import Tree

CHANGED_FILES = 10
CHANGED_SAVES = 10
SETTLE_SECONDS = 0.15  # longer than any clock tick, so that an edit is not as young as the save that must see it
READING = "reading and hashing"
MEMORY_GOAL_MIB = 200.0


@dataclass(frozen=True, slots=True)
class Scope:
    """How much is measured of one tree."""

    repeat: int = 5
    """Rounds of each kind of work; first saves at most 3."""
    changed_saves: int = CHANGED_SAVES
    with_pure: bool = False
    """Whether the library takes part a second time, without its native module."""
    with_deleted: bool = True
    with_memory: bool = False


class Race:
    """All contenders on one tree, round by round."""

    def __init__(self, tree: Tree, room: Path, peers: Sequence[str], scope: Scope) -> None:
        self.tree = tree
        self.room = room
        self.helped = contenders.Helped(tree.root, room / "helped")
        pure = [contenders.Pure(tree.root, room / "pure")] if scope.with_pure else []
        self.all = [*contenders.contenders(tree.root, room, peers), *pure, self.helped]
        self.peers = peers
        self.scope = scope
        self.repeat = scope.repeat

    def rows(self) -> list[Row]:
        """Measure every kind of work, in the order in which a user would meet it."""
        with self.helped:
            return [
                *self._first_save(),
                *self._store_size("store after the first save"),
                *self._nothing_changed(),
                *self._files_changed(),
                *self._store_size(f"store after {self.scope.changed_saves} more saves"),
                *self._restore(),
                *self._watching(),
                *(self._deleted() if self.scope.with_deleted else ()),
                *(self._memory() if self.scope.with_memory else ()),
            ]

    def _first_save(self) -> Iterator[Row]:
        found = Found("first save", self.peers)
        for contender in self._rounds("first save", min(self.repeat, 3), each_round=lambda: found.add(self._reading())):
            contender.begin()
            os.sync()
            read_and_hash(self.tree.root)  # so that everybody finds it in memory
            found.add(contender.save())
        yield found.row(INSIDE, goal_ratio=0.2)
        yield found.row(INSIDE, against=READING, goal_ratio=3.0)
        yield found.row(PROCESS)
        yield found.row(COMMAND)
        yield from self._pure(found, 0.41)

    def _nothing_changed(self) -> Iterator[Row]:
        found = Found("save, nothing changed", self.peers)
        for contender in self._rounds("nothing changed", self.repeat):
            os.sync()
            found.add(contender.save())
        yield found.row(INSIDE, goal_ratio=0.4)
        yield found.row(PROCESS)
        yield found.row(COMMAND, goal_ratio=0.75)
        yield found.row(HELPED, goal_ratio=0.3)
        yield from self._pure(found, 1.13)

    def _files_changed(self) -> Iterator[Row]:
        found = Found(f"save, {CHANGED_FILES} files changed", self.peers)
        seeds = iter(range(CHANGED_SAVES))
        for contender in self._rounds(
            "files changed", self.scope.changed_saves, each_round=lambda: self._edit(next(seeds))
        ):
            os.sync()
            found.add(contender.save())
        yield found.row(INSIDE, goal_ratio=0.5)
        yield found.row(PROCESS)
        yield found.row(COMMAND, goal_ratio=0.85)
        yield found.row(HELPED, goal_ratio=0.35)
        yield from self._pure(found, 1.04)

    def _pure(self, found: Found, before: float) -> Iterator[Row]:
        """The pure implementation; the goal is what it took, of git's time, before there was a native module."""
        if self.scope.with_pure:
            yield found.row(PURE, goal_ratio=before)

    def _watching(self) -> Iterator[Row]:
        """Saves of a process that stays and watches, against a git that is as it was."""
        (git,) = (contender for contender in self.all if contender.name == GIT)
        quiet, busy = Found("save, nothing changed", ()), Found(f"save, {CHANGED_FILES} files changed", ())
        with contenders.Watching(self.tree.root, self.room / "watching") as watching:
            git.save()
            time.sleep(SETTLE_SECONDS)
            watching.save()  # what it made itself is no longer young
            for number in range(2 * self.scope.changed_saves):
                found = busy if number % 2 else quiet
                say(f"{self.tree.title}: watching, round {number // 2 + 1} of {self.scope.changed_saves}")
                if found is busy:
                    self._edit(CHANGED_SAVES + number)
                for contender in (git, watching) if number % 4 < 2 else (watching, git):
                    os.sync()
                    found.add(contender.save())
        yield quiet.row(WATCHING, goal_ratio=0.02)
        yield busy.row(WATCHING, goal_ratio=0.05)

    def _restore(self) -> Iterator[Row]:
        found = Found(f"restore of {CHANGED_FILES} files", self.peers)
        paths = trees.spread(self.tree, CHANGED_FILES, seed=CHANGED_SAVES)
        damage = Damage(self.tree, paths)
        for contender in self._rounds("restore", self.repeat):
            damage.inflict()
            os.sync()
            found.add(contender.restore(paths))
            damage.must_be_gone(contender.name)
        yield found.row(INSIDE, goal_ratio=0.8)
        yield found.row(PROCESS)
        yield found.row(COMMAND, goal_ratio=1.2)
        yield found.row(HELPED, goal_ratio=0.5)
        yield from self._pure(found, 1.55)

    def _deleted(self) -> Iterator[Row]:
        """Bring back half of all files, undo that, and redo it."""
        (git,) = (contender for contender in self.all if contender.name == GIT)
        (command,) = (each for each in self.all if isinstance(each, contenders.Command) and each.name == COMMAND)
        gone = self.tree.files[::2]
        work = f"restore of {len(gone):,} deleted files"
        back, undone, redone = Found(f"… {work}", ()), Found("… undo of that", ()), Found("… redo of that", ())
        for contender in (git, command):
            contender.save()
        for number in range(max(1, min(self.repeat, 3))):
            say(f"{self.tree.title}: {work}, round {number + 1}")
            for contender in (git, command) if number % 2 else (command, git):
                self._remove(gone)
                os.sync()
                taken = contender.restore(gone)
                back.add(taken)
                self._must_exist(gone, contender.name)
                if contender is git:
                    undone.add(taken)
                    redone.add(taken)
                    continue
                os.sync()
                undone.add(command.undo())
                self._must_exist(gone, COMMAND, exists=False)
                os.sync()
                redone.add(command.redo())
                self._must_exist(gone, COMMAND)
        for found in (back, undone, redone):
            yield found.row(COMMAND, goal_ratio=1.0)

    def _memory(self) -> Iterator[Row]:
        """The largest memory of a first save, and of one that finds nothing changed."""
        library = contenders.Library(self.tree.root, self.room / "memory")
        library.begin()
        for work in ("memory of a first save", "memory of a save, nothing changed"):
            say(f"{self.tree.title}: {work}")
            found = Found(work, (), unit="MiB")
            (git,) = (contender for contender in self.all if contender.name == GIT)
            for contender in (library, git):
                found.add({contender.name: contender.save_peak_mib()})
            yield found.row(INSIDE, goal_most=MEMORY_GOAL_MIB)

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            (self.tree.root / path).unlink()
        time.sleep(SETTLE_SECONDS)

    def _must_exist(self, paths: Sequence[str], name: str, *, exists: bool = True) -> None:
        if any((self.tree.root / path).exists() is not exists for path in paths):
            raise SystemExit(f"{name}: half of the files {'are not back' if exists else 'are still there'}")

    def _store_size(self, work: str) -> Iterator[Row]:
        found = Found(work, self.peers, unit="MiB")
        for contender in self.all:
            found.add({contender.name: contenders.disk_bytes(contender.store) / (1 << 20)})
        yield found.row(INSIDE)

    def _rounds(self, work: str, count: int, *, each_round: Callable[[], object] | None = None) -> Iterator[Contender]:
        """Yield every contender in every round; who goes first changes, so that nobody always follows the same one."""
        for number in range(count):
            say(f"{self.tree.title}: {work}, round {number + 1} of {count}")
            if each_round:
                each_round()
            first = number % len(self.all)
            yield from self.all[first:] + self.all[:first]

    def _edit(self, seed: int) -> None:
        trees.edit(self.tree, trees.spread(self.tree, CHANGED_FILES, seed=seed), seed=seed)
        time.sleep(SETTLE_SECONDS)

    def _reading(self) -> dict[str, float]:
        os.sync()
        read_and_hash(self.tree.root)  # so that this, too, is of what is in memory
        start = time.perf_counter()
        read_and_hash(self.tree.root)
        return {READING: time.perf_counter() - start}


class Found:
    """The samples of one kind of work, by contender."""

    def __init__(self, work: str, peers: Sequence[str], *, unit: str = "s") -> None:
        self.work = work
        self.peers = peers
        self.unit = unit
        self.samples: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, values: contenders.Timings) -> None:
        for name, value in values.items():
            self.samples[name].append(value)

    def row(
        self, ours: str, *, against: str = GIT, goal_ratio: float | None = None, goal_most: float | None = None
    ) -> Row:
        """Return one door of Holdfast held against one peer."""
        work = self.work if ours == INSIDE else f"{self.work}, watching" if ours == WATCHING else f"… {ours}"
        if self.work.startswith("… "):
            work = self.work
        others = {peer: self.samples[peer] for peer in self.peers} if against == GIT else {}
        spent = self.samples[of_processor(ours)], self.samples[of_processor(against)]
        return Row(
            work, self.samples[ours], against, self.samples[against], others, self.unit, goal_ratio, goal_most,
            processor=spent if all(spent) else None,
        )  # fmt: skip


class Damage:
    """The same files spoilt again and again, and the proof that they were brought back."""

    def __init__(self, tree: Tree, paths: Sequence[str]) -> None:
        self._tree = tree
        self._paths = list(paths)
        self._content = {path: (tree.root / path).read_bytes() for path in paths}
        places = {tree.root / path for path in paths}
        places |= {place.parent for place in places}
        self._times = {place: (place.stat().st_atime_ns, place.stat().st_mtime_ns) for place in places}

    def inflict(self) -> None:
        trees.edit(self._tree, self._paths, seed=0)
        time.sleep(SETTLE_SECONDS)

    def must_be_gone(self, name: str) -> None:
        """Check the contents, and set the times back for those that do not: the next one is to find the same damage."""
        for path, content in self._content.items():
            if (self._tree.root / path).read_bytes() != content:
                raise SystemExit(f"{name} did not bring back {path}")
        for place, times in self._times.items():
            os.utime(place, ns=times)


def big_file_rows(room: Path, mebibytes: int, peers: Sequence[str]) -> list[Row]:
    """Save one large file with each contender, once, for memory and time; measure an interpreter that only imports."""
    (room / "tree").mkdir(parents=True)
    say("making the large file")
    trees.big_file(room / "tree" / "large.bin", mebibytes=mebibytes)
    memory = Found("peak memory", peers, unit="MiB")
    seconds = Found("first save, whole processes", peers)
    for contender in contenders.contenders(room / "tree", room, peers):
        if contender.name == COMMAND:
            continue
        say(f"large file: {contender.name}")
        contender.begin()
        os.sync()
        start = time.perf_counter()
        memory.add({contender.name: contender.save_peak_mib()})
        seconds.add({contender.name: time.perf_counter() - start})
        if contender.name == INSIDE:
            importing = [sys.executable, "-c", "from holdfast import Workspace"]
            baseline = contenders.peak_mib(importing, cwd=room, environ=contender.environ)
        shutil.rmtree(contender.room)
    shutil.rmtree(room)
    memory.work = f"peak memory ({baseline:.0f} MiB of it on import)"
    return [memory.row(INSIDE, goal_most=MEMORY_GOAL_MIB), seconds.row(INSIDE)]


def read_and_hash(root: Path) -> None:
    for top, _, files in os.walk(root):
        for name in files:
            with open(os.path.join(top, name), "rb") as source:
                hashlib.sha1(source.read()).digest()


def say(text: str) -> None:
    """Tell the person who waits; the answer itself is all that goes to stdout."""
    print(text, file=sys.stderr, flush=True)
