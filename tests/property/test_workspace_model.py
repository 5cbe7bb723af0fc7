"""A workspace against a simple model: what any order of changes, saves, restores, undos and deletions must leave.

The model is a dictionary of paths with everything that P2 promises, taken from the disk by the plain calls below and
kept for each checkpoint. Whatever happens in between, a restore makes the folder equal to it.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from examples import examples
from holdfast import NotFound, Restored, Workspace
from waiting import settle

NAMES = ["a", "b", "c", "two words", "%", "%2E", ".git ", "\udcff", "new\nline"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
CONTENTS = st.one_of(st.binary(max_size=4), st.sampled_from([b"shared\n", b"SHARED\n"]))
FILE_MODES = st.sampled_from([0o400, 0o600, 0o644, 0o700, 0o755, 0o4755, 0o666])
FOLDER_MODES = st.sampled_from([0o700, 0o755, 0o711, 0o1777, 0o2750])
TIMES_NS = st.one_of(st.integers(-(10**18), 2 * 10**18), st.sampled_from([0, -1, 1, 999_999_999, 10**18]))
STATES = st.none() | st.dictionaries(st.sampled_from(["conversation", "plan"]), st.lists(st.integers(), max_size=3))
TARGETS = st.sampled_from(["a", "b/c", "..", "/etc", "nowhere", "\udcff", "."])
XATTRS = st.sampled_from(["user.a", "user.sparse", "user.b,c=d"])
CHANCE = st.integers(0, 10**6)
EVERY_KIND = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO)


class Seen(NamedTuple):
    """Everything that a checkpoint promises of one path."""

    kind: int
    mode: int
    mtime_ns: int
    content: bytes
    """Of a file its bytes, of a link its target."""
    xattrs: tuple[tuple[str, bytes], ...]
    links: frozenset[str]
    """The other names of the same file."""


Picture = dict[str, Seen]


def picture(root: Path) -> Picture:
    """Everything below a folder, and itself under the name of nothing."""
    found: Picture = {}
    names: dict[int, set[str]] = {}
    for path, status in _walk(root):
        full = root / path
        content, xattrs = b"", ()
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(os.readlink(full))
        else:
            xattrs = tuple((name, os.getxattr(full, name)) for name in sorted(os.listxattr(full)))
        if stat.S_ISREG(status.st_mode):
            content = full.read_bytes()
            names.setdefault(status.st_ino, set()).add(path)
        kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
        found[path] = Seen(kind, mode, status.st_mtime_ns, content, xattrs, frozenset())
    for group in names.values():
        for path in group if len(group) > 1 else ():
            found[path] = found[path]._replace(links=frozenset(group - {path}))
    return found


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    waiting = [""]
    while waiting:
        path = waiting.pop()
        status = os.lstat(root / path)
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            waiting += [f"{path}/{name}" if path else name for name in os.listdir(root / path)]


def differences(expected: Picture, found: Picture) -> dict[str, str]:
    """What is not as it was to be, by path."""
    told = {}
    for path in sorted(expected.keys() | found.keys()):
        was, now = expected.get(path), found.get(path)
        if was is None or now is None:
            told[path] = "is gone" if now is None else "is there"
        elif was != now:
            pairs = zip(Seen._fields, was, now, strict=True)
            told[path] = ", ".join(f"{name}: {old!r} -> {new!r}" for name, old, new in pairs if old != new)
    return told


def is_under(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/")


class Done(NamedTuple):
    """A restore that can be undone, or an undo that can be redone."""

    before: Picture
    after: Picture
    is_partial: bool


class WorkspaceModel(RuleBasedStateMachine):
    """A folder that a user changes in every way, and a workspace that is to keep up."""

    def __init__(self) -> None:
        super().__init__()
        self._area = Path(os.path.realpath(tempfile.mkdtemp(prefix="holdfast-model-")))
        self.root = self._area / "project"
        self.root.mkdir()
        (self._area / "home").mkdir()
        self.saved: dict[str, Picture] = {}
        self.states: dict[str, dict[str, Any]] = {}
        self.safety: dict[str, Picture] = {}
        self.done: list[Done] = []
        self.undone: list[Done] = []
        self.open()

    def open(self) -> None:
        self.ws = Workspace(self.root, store=self._area / "store", home=self._area / "home", environ={})

    def teardown(self) -> None:
        try:
            self._check_the_end()
        finally:
            shutil.rmtree(self._area)

    # what a user does to the folder

    def place(self, path: str) -> Path | None:
        """Where a path can be made: the folders above it are there, and none of them is a link or a file."""
        parent = self.root
        for name in path.split("/")[:-1]:
            parent /= name
            if not os.path.lexists(parent):
                parent.mkdir()
            elif parent.is_symlink() or not parent.is_dir():
                return None
        return self.root / path

    def existing(self, chance: int, *kinds: int) -> str | None:
        """One of the paths that are there."""
        paths = sorted(path for path, status in _walk(self.root) if path and (stat.S_IFMT(status.st_mode) in kinds))
        return paths[chance % len(paths)] if paths else None

    @initialize(path=PATHS, content=CONTENTS)
    def begin(self, path: str, content: bytes) -> None:
        self.write(path, content)
        self.save(None, allow_empty=False, is_settled=True)

    @rule(path=PATHS, content=CONTENTS)
    def write(self, path: str, content: bytes) -> None:
        place = self.place(path)
        if place is not None and not place.is_dir() and not place.is_symlink() and not place.is_fifo():
            place.write_bytes(content)

    @rule(chance=CHANCE, content=CONTENTS)
    def append(self, chance: int, content: bytes) -> None:
        path = self.existing(chance, stat.S_IFREG)
        if path is not None:
            with open(self.root / path, "ab") as file:
                file.write(content)

    @rule(path=PATHS, kind=st.sampled_from(["folder", "folder", "link", "pipe"]), leads_to=TARGETS)
    def make(self, path: str, kind: str, leads_to: str) -> None:
        place = self.place(path)
        if place is None or os.path.lexists(place):
            return
        if kind == "folder":
            place.mkdir()
        elif kind == "link":
            place.symlink_to(leads_to)
        else:
            os.mkfifo(place)

    @rule(chance=CHANCE)
    def remove(self, chance: int) -> None:
        path = self.existing(chance, *EVERY_KIND)
        if path is not None:
            self.take_away(path)

    def take_away(self, path: str) -> None:
        place = self.root / path
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()

    @rule(chance=CHANCE, path=PATHS)
    def rename(self, chance: int, path: str) -> None:
        source = self.existing(chance, *EVERY_KIND)
        place = self.place(path)
        if source is not None and place is not None and not os.path.lexists(place) and not is_under(path, source):
            (self.root / source).rename(place)

    @rule(chance=CHANCE, path=PATHS)
    def hard_link(self, chance: int, path: str) -> None:
        source = self.existing(chance, stat.S_IFREG)
        place = self.place(path)
        if source is not None and place is not None and not os.path.lexists(place):
            os.link(self.root / source, place)

    @rule(chance=CHANCE)
    def break_a_link(self, chance: int) -> None:
        """Replace one name of a file by a copy, as editors do."""
        path = self.existing(chance, stat.S_IFREG)
        if path is not None:
            data = (self.root / path).read_bytes()
            (self.root / path).unlink()
            (self.root / path).write_bytes(data)

    @rule(chance=CHANCE, content=CONTENTS, inner=st.none() | PATHS)
    def swap(self, chance: int, content: bytes, inner: str | None) -> None:
        """Put a file in the place of whatever is there, or a folder with a file in it."""
        path = self.existing(chance, *EVERY_KIND)
        if path is not None:
            self.take_away(path)
            self.write(path if inner is None else f"{path}/{inner}", content)

    @rule(chance=CHANCE, file_mode=FILE_MODES, folder_mode=FOLDER_MODES)
    def chmod(self, chance: int, file_mode: int, folder_mode: int) -> None:
        path = self.existing(chance, stat.S_IFREG, stat.S_IFDIR)
        if path is not None:
            (self.root / path).chmod(folder_mode if (self.root / path).is_dir() else file_mode)

    @rule(chance=CHANCE, mtime_ns=TIMES_NS)
    def utime(self, chance: int, mtime_ns: int) -> None:
        path = self.existing(chance, *EVERY_KIND)
        if path is not None:
            os.utime(self.root / path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)

    @rule(chance=CHANCE, name=XATTRS, value=st.none() | st.binary(max_size=8))
    def xattr(self, chance: int, name: str, value: bytes | None) -> None:
        path = self.existing(chance, stat.S_IFREG, stat.S_IFDIR)
        if path is not None and value is not None:
            os.setxattr(self.root / path, name, value)
        elif path is not None:
            for each in os.listxattr(self.root / path):
                os.removexattr(self.root / path, each)

    # what the engine is asked to do

    @rule(state=STATES, allow_empty=st.sampled_from([False, False, False, True]), is_settled=st.booleans())
    def save(self, state: dict[str, Any] | None, *, allow_empty: bool, is_settled: bool) -> None:
        if is_settled:
            settle(self.root)
        now = picture(self.root)
        checkpoint = self.ws.save("saved", state=state, allow_empty=allow_empty)
        note(f"saved {checkpoint.id}")
        assert checkpoint.complete
        assert checkpoint.uncovered == ()
        if checkpoint.id in self.saved:
            assert not allow_empty
            assert differences(self.saved[checkpoint.id], now) == {}, "the save missed something"
            assert not state or self.states[checkpoint.id] == state
        self.saved[checkpoint.id] = now
        self.states.setdefault(checkpoint.id, state or {})
        assert checkpoint.state == self.states[checkpoint.id]
        assert differences(now, picture(self.root)) == {}, "the save changed the folder"

    @precondition(lambda self: self.saved)
    @rule(chance=CHANCE, by_plan=st.booleans())
    def restore(self, chance: int, by_plan: bool) -> None:
        target = sorted(self.saved)[chance % len(self.saved)]
        plan = self.ws.preview(target) if by_plan else None
        before = picture(self.root)
        result = self.ws.restore(target, plan=plan)
        note(f"restored {target}")
        if plan is not None:
            assert sorted(result.written) == sorted(plan.written + plan.replaced)
            assert sorted(result.removed) == sorted(plan.removed)
        assert result.state == self.states[target]
        self._check_done(result, before, self.saved[target])
        self.done.append(Done(before, self.saved[target], is_partial=False))
        self.undone.clear()

    @precondition(lambda self: self.saved)
    @rule(chance=CHANCE, other=CHANCE)
    def restore_one_path(self, chance: int, other: int) -> None:
        target = sorted(self.saved)[chance % len(self.saved)]
        before, wanted = picture(self.root), self.saved[target]
        paths = sorted((before.keys() | wanted.keys()) - {""})
        path = paths[other % len(paths)] if paths else ""
        if not path or not _can_be_reached(path, before):
            return
        result = self.ws.restore(target, [path])
        note(f"restored {path!r} of {target}")
        assert result.ok, result.failed
        after = picture(self.root)
        self._check_path(path, before, wanted, after)
        self.safety[result.undo_id] = before
        self.done.append(Done(before, after, is_partial=True))
        self.undone.clear()

    @rule()
    def undo(self) -> None:
        self._go("undo", self.done, self.undone)

    @rule()
    def redo(self) -> None:
        self._go("redo", self.undone, self.done)

    def _go(self, verb: str, source: list[Done], sink: list[Done]) -> None:
        step = getattr(self.ws, verb)
        if not source:
            with pytest.raises(NotFound):
                step()
            return
        before = picture(self.root)
        last = source.pop()
        result = step()
        note(verb)
        if not last.is_partial or not differences(last.after, before):
            self._check_done(result, before, last.before)
        else:  # other paths may have changed since: those stay
            assert result.ok, result.failed
            self.safety[result.undo_id] = before
        sink.append(Done(before, picture(self.root), last.is_partial))

    @precondition(lambda self: len(self.saved) > 1)
    @rule(chance=CHANCE)
    def delete(self, chance: int) -> None:
        checkpoint = sorted(self.saved)[chance % len(self.saved)]
        self.ws.delete(checkpoint)
        note(f"deleted {checkpoint}")
        del self.saved[checkpoint]
        with pytest.raises(NotFound):
            self.ws.get(checkpoint)

    @rule()
    def merge(self) -> None:
        self.ws.merge()

    @rule()
    def let_git_collect(self) -> None:
        """What somebody may do who finds a git repository: its packs and refs are written anew, as git likes them."""
        self._git("gc", "--quiet")

    @rule(which=st.sampled_from(["scan.cache", "catalog.db"]))
    def drop_a_memory(self, which: str) -> None:
        for path in (self._area / "store" / "holdfast").glob(f"{which}*"):
            path.unlink()

    @rule()
    def reopen(self) -> None:
        self.open()
        assert self.ws.recovered is None

    # what must be so

    def _check_done(self, result: Restored, before: Picture, expected: Picture) -> None:
        assert result.ok, result.failed
        assert (result.kept, result.missing) == ({}, {})
        assert differences(expected, picture(self.root)) == {}
        self.safety[result.undo_id] = before

    def _check_path(self, path: str, before: Picture, wanted: Picture, after: Picture) -> None:
        """The path is as it was, with the folders above it; all else is as it is. Links may have come apart."""
        above = {path[:at] for at, char in enumerate(path) if char == "/"} - before.keys() if path in wanted else set()
        expected = {other: seen for other, seen in before.items() if not is_under(other, path)}
        expected |= {other: seen for other, seen in wanted.items() if is_under(other, path) or other in above}
        assert differences(_without_links(expected), _without_links(after)) == {}

    def _check_the_end(self) -> None:
        assert self.ws.verify().problems == []
        for checkpoint, expected in sorted(self.saved.items()):
            result = self.ws.restore(checkpoint)
            assert result.ok, result.failed
            assert differences(expected, picture(self.root)) == {}, checkpoint
            assert self.ws.get(checkpoint).state == self.states[checkpoint]
        for checkpoint, expected in sorted(self.safety.items()):
            assert self.ws.restore(checkpoint).ok
            assert differences(expected, picture(self.root)) == {}, checkpoint
        assert {each.id for each in self.ws.list(limit=None)} == self.saved.keys()
        assert self._git("fsck", "--strict", "--no-dangling") == ""

    def _git(self, *words: str) -> str:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
        command = ["git", "--git-dir", self._area / "store", *words]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout + ran.stderr


def _can_be_reached(path: str, present: Picture) -> bool:
    """Whether all that is there of the folders above a path are folders."""
    above = [path[:at] for at, char in enumerate(path) if char == "/"]
    return all(present[folder].kind == stat.S_IFDIR for folder in above if folder in present)


def _without_links(seen: Picture) -> Picture:
    return {path: each._replace(links=frozenset()) for path, each in seen.items()}


WorkspaceModel.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=30)
TestWorkspaceModel = WorkspaceModel.TestCase
