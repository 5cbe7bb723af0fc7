"""The one place that asserts the five invariants, for every case.

    I1  nothing outside the workspace is created, changed or deleted
    I2  nothing is deleted or overwritten that the store cannot bring back: every restore is undone and redone
    I3  what a checkpoint did not capture is never deleted because of its absence
    I4  what could not be captured or restored is listed, and the result says so
    I5  the user's `.git` is byte-identical before and after

A test arranges a situation through `Case`, calls `save` and `restore` on it, and asserts only what is special to the
situation. `Case.check` runs after the body of every test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import holdfast
from holdfast import Checkpoint, CheckpointDiff, HoldfastError, Plan, Restored, Workspace
from holdfast.model import Reason

from . import repository
from .capture import Entry, Picture, capture, capture_repositories, differences

ENGINE_DEFAULT_IGNORED_FILE_BYTES = 1 << 20


class Case:
    """One situation: a workspace that is a real git repository, a store beside it, and an outside to leave alone."""

    def __init__(self, area: Path) -> None:
        self.area = area
        self.root = area / "ws"
        self.store_area = area / "store"
        self.home = area / "home"
        self.outside = area / "outside"
        self.options: dict[str, Any] = {"store": self.store_area, "home": self.home, "environ": {}}
        self.mounts: set[str] = set()
        self.saved: dict[str, Picture] = {}
        self.checkpoints: dict[str, Checkpoint] = {}
        self.damaged_on_purpose = ""
        self._engine: Workspace | None = None
        self._later = ExitStack()

    # -- arranging ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Make the folders: sentinels outside, a home, a repository with a commit, a branch and a staged change."""
        for folder in (self.root, self.home, self.outside / "folder"):
            folder.mkdir(parents=True)
        self._make_sentinels()
        repository.make_home(self.home)
        repository.make(self.root, self.home)

    def _make_sentinels(self) -> None:
        (self.outside / "file.txt").write_bytes(b"outside\n")
        (self.outside / "folder" / "inner.txt").write_bytes(b"inner\n")
        (self.outside / "secret").write_bytes(b"hush\n")
        (self.outside / "secret").chmod(0o600)
        (self.outside / "link").symlink_to("file.txt")
        for path in (self.outside / "file.txt", self.outside / "folder" / "inner.txt", self.outside / "folder"):
            os.utime(path, ns=(10**18, 10**18 + 123456789))

    def use_default_store(self) -> None:
        """Let the engine choose the place of the store, under a state folder of this case."""
        del self.options["store"]
        self.options["environ"] = {"XDG_STATE_HOME": str(self.store_area)}

    def mount(self, place: Path, *words: str) -> None:
        """Mount something, a small tmpfs unless told, until the case is over; only root can."""
        place.mkdir(exist_ok=True)
        subprocess.run(["mount", *(words or ("-t", "tmpfs", "-o", "size=2m,mode=0755", "none")), place], check=True)
        self.later(lambda: subprocess.run(["umount", "-l", place], check=True))
        if place.is_relative_to(self.root):
            self.mounts.add(str(place.relative_to(self.root)))

    def later(self, work: Callable[[], object]) -> None:
        """Have something done when the case is over, whatever happened."""
        self._later.callback(work)

    def end(self) -> None:
        """Do what was left for later."""
        self._later.close()

    def path(self, name: str) -> Path:
        """The place of a workspace path."""
        return self.root / name

    def write(self, name: str, data: bytes | str = b"", *, mode: int | None = None) -> Path:
        """Write a file of the workspace, with the folders above it."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        if mode is not None:
            path.chmod(mode)
        return path

    def read(self, name: str) -> bytes:
        """The bytes of a workspace file."""
        return self.path(name).read_bytes()

    def git(self, *words: str | bytes, cwd: Path | None = None, check: bool = True) -> bytes:
        """Run the user's git in the workspace."""
        return repository.git(cwd or self.root, self.home, *words, check=check)

    def git_store(self, *words: str, check: bool = True) -> bytes:
        """Ask the store something with plain git, as somebody would who has lost Holdfast."""
        return repository.git(self.area, self.home, f"--git-dir={self.ws.store}", *words, check=check)

    def held(self, checkpoint: Checkpoint, name: str) -> bytes:
        """The bytes that the store holds of a path, read with plain git; a large file is a tree of its parts."""
        place = f"{checkpoint.id}:files/{name}"
        if self.git_store("cat-file", "-t", place) != b"tree\n":
            return self.git_store("cat-file", "blob", place)
        parts = self.git_store("ls-tree", "-r", "--format=%(objectname)", place).decode().split()
        return b"".join(self.git_store("cat-file", "blob", part) for part in parts)

    # -- the engine ---------------------------------------------------------------------------------------------

    @property
    def ws(self) -> Workspace:
        """The engine, opened when it is first wanted; opening is watched too."""
        if self._engine is None:
            with self.watched("open"):
                self._engine = self.open()
        return self._engine

    @ws.setter
    def ws(self, engine: Workspace) -> None:
        self._engine = engine

    def open(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Workspace:
        """Open the workspace once more, by another path or with other options."""
        return Workspace(path or self.root, **(self.options | options))

    def reopen(self, **options: Any) -> None:
        """Go on as a new process would, with `options` from now on."""
        self.options |= options
        self._engine = None

    def save(self, message: str = "", **options: Any) -> Checkpoint:
        """Save; see that nothing moved, that the coverage report is true, and remember what was there."""
        known = {each.id for each in self.ws.list(limit=None, safety=True)}
        before = self.capture()
        try:
            with self.watched("save"):
                checkpoint = self.ws.save(message, **options)
        except HoldfastError:
            now = {each.id for each in self.ws.list(limit=None, safety=True)}
            require(now == known, "I4", f"a save that failed left {now - known}")
            raise
        finally:
            require_same(before, self.capture(), "I1", "the save changed the workspace")
        self._check_saved(checkpoint, before)
        return checkpoint

    def restore(
        self,
        ref: Checkpoint | str,
        paths: Sequence[str] | None = None,
        *,
        scope: Sequence[str] | None = None,
        irreversible: str = "",
        **options: Any,
    ) -> Restored:
        """Restore, and hold the result to all five invariants; then undo and redo it.

        `scope` spells out the paths that a pattern in `paths` means. `irreversible` says why this one restore cannot
        be undone and redone exactly.
        """
        target = ref if isinstance(ref, Checkpoint) else self.ws.get(ref)
        before, ignored = self.capture(), self._ignored()
        plan = options.get("plan") or self.preview(target.id, paths, keep_new=options.get("keep_new", False))
        try:
            with self.watched("restore"):
                result = self.ws.restore(target.id, paths, **options)
        except HoldfastError:
            require_same(before, self.capture(), "I2", "a restore that was refused changed the workspace")
            raise
        after = self.capture()
        self._check_nothing_uncaptured_was_lost(target, before, after, ignored)
        self._check_plan_was_kept(plan, result, before, after)
        self._check_scope(before, after, scope or paths, result)
        if target.id in self.saved:
            self._check_explained(target, after, result, scope or paths, keep_new=options.get("keep_new", False))
        if not irreversible:
            self._check_undo_and_redo(before, after)
        return result

    def preview(self, ref: str, paths: Sequence[str] | None = None, *, keep_new: bool = False) -> Plan:
        """Preview, and see that nothing moved."""
        before = self.capture()
        with self.watched("preview"):
            plan = self.ws.preview(ref, paths, keep_new=keep_new)
        require_same(before, self.capture(), "I1", "the preview changed the workspace")
        return plan

    def diff(self, a: Checkpoint | str, b: Checkpoint | str | None = None, **options: Any) -> CheckpointDiff:
        """Compare, and see that nothing moved."""
        ids = [each.id if isinstance(each, Checkpoint) else each for each in (a, b)]
        before = self.capture()
        with self.watched("diff"):
            answer = self.ws.diff(ids[0], ids[1], **options)
        require_same(before, self.capture(), "I1", "the diff changed the workspace")
        return answer

    def undo(self) -> Restored:
        """Undo, with I1 and I5 watched."""
        with self.watched("undo"):
            return self.ws.undo()

    def redo(self) -> Restored:
        """Redo, with I1 and I5 watched."""
        with self.watched("redo"):
            return self.ws.redo()

    def capture(self) -> Picture:
        """A picture of the workspace as it is."""
        return capture(self.root)

    # -- the invariants -----------------------------------------------------------------------------------------

    @contextmanager
    def watched(self, verb: str) -> Iterator[None]:
        """I1 and I5 around one call of the engine, also when it fails."""
        outside = self.outside_picture()
        repositories = capture_repositories(self.root) if self.root.exists() else {}
        try:
            yield
        finally:
            require_same(outside, self.outside_picture(), "I1", f"{verb} reached outside the workspace")
            now = capture_repositories(self.root) if self.root.exists() else {}
            require(repositories.keys() == now.keys(), "I5", f"{verb}: {repositories.keys() ^ now.keys()}")
            for name, picture in repositories.items():
                require_same(picture, now[name], "I5", f"{verb} changed {name}")

    def outside_picture(self) -> Picture:
        """A picture of all that is neither workspace nor store."""
        inside = {str(place.relative_to(self.area)) for place in (self.root, self.store_area)}
        picture = capture(self.area, skip=frozenset(inside))
        del picture["."]  # the store appears in it
        return picture

    def _check_saved(self, checkpoint: Checkpoint, now: Picture) -> None:
        """I4 for a save: the coverage report is true, and a checkpoint that is handed out again holds this state."""
        again = self.ws.get(checkpoint.id)
        require(
            again == checkpoint and again.uncovered == checkpoint.uncovered, "I4", "the record is not what was told"
        )
        failures = [each for each in checkpoint.uncovered if each.reason.is_failure]
        require(checkpoint.complete == (not failures), "I4", f"complete={checkpoint.complete}, though {failures}")
        for each in checkpoint.uncovered:
            self._check_reason(each.path, each.reason, now)
        if checkpoint.id in self.saved:
            changed = {
                name: what
                for name, what in differences(self.saved[checkpoint.id], now).items()
                if not is_under(name, [each.path for each in checkpoint.uncovered])
            }
            require(not changed, "I4", f"the save missed {changed}")
            return
        self.saved[checkpoint.id] = now
        self.checkpoints[checkpoint.id] = checkpoint
        if checkpoint.parent in self.saved:
            self._check_files_changed(checkpoint, self.saved[checkpoint.parent], now)

    def _check_reason(self, path: str, reason: Reason, now: Picture) -> None:
        """A path that is left out was there, and is what the reason says it is."""
        if reason is Reason.NOTHING_HELD:
            return
        entry = now.get(path.rstrip("/"))
        require(entry is not None, "I4", f"uncovered path {path!r} ({reason}) does not exist")
        assert entry is not None
        limit = self.options.get("ignored_file_max_bytes", ENGINE_DEFAULT_IGNORED_FILE_BYTES)
        true = {
            Reason.GIT_DIRECTORY: self._is_gits(self.path(path)),
            Reason.SOCKET: entry.kind == "socket",
            Reason.DEPENDENCIES: entry.kind == "folder",
            Reason.OTHER_FILESYSTEM: path in self.mounts,
            Reason.IGNORED_LARGE: entry.kind == "folder" or entry.size > limit,
            Reason.UNREADABLE: not os.access(self.path(path), os.R_OK),
        }
        require(true.get(reason, True), "I4", f"{path!r} is said to be {reason}, and is {entry}")

    def _is_gits(self, path: Path) -> bool:
        """Whether git takes a path, or the folder that it is in, for a repository's own folder."""
        if path.name == ".git" and path.is_dir():
            return True
        return any(repository.is_git_dir(place, self.home) for place in (path, path.parent))

    def _check_files_changed(self, checkpoint: Checkpoint, parent: Picture, now: Picture) -> None:
        """`files_changed` names every file that differs from the parent, and nothing that does not."""
        told = set(checkpoint.files_changed)
        uncovered = [each.path for each in checkpoint.uncovered]
        held_before = [each.path for each in self.checkpoints[checkpoint.parent or ""].uncovered]
        differ = differences(parent, now)
        essential = {
            name
            for name in differ
            if not is_under(name, uncovered + held_before) and _essence(parent.get(name)) != _essence(now.get(name))
        }
        require(essential <= told, "I4", f"files_changed does not name {essential - told}")
        require(told <= differ.keys() | set(held_before), "I4", f"files_changed names {told - differ.keys()}")

    def _check_nothing_uncaptured_was_lost(
        self, target: Checkpoint, before: Picture, after: Picture, ignored: set[str]
    ) -> None:
        """I3: what the checkpoint leaves out, and what git's rules ignore, is as it was."""
        uncovered = [each.path for each in target.uncovered]
        held = self.saved.get(target.id, {}).keys()
        for name, entry in before.items():
            left_out = is_under(name, uncovered)
            if left_out or (name in ignored and name not in held):
                now = after.get(name)
                same = now is not None and (entry.kind == "folder" or now == entry)
                require(same, "I3", f"{name!r} was {entry} and is {now}, though the checkpoint does not hold it")

    def _check_plan_was_kept(self, plan: Plan, result: Restored, before: Picture, after: Picture) -> None:
        """The preview said what the restore then did, and both say what happened (also case 147)."""
        require(result.ok == (not result.failed), "I4", "ok and failed disagree")
        failed = result.failed.keys()
        told, planned = set(result.written), {*plan.written, *plan.replaced}
        require(told - failed == planned - failed, "I4", f"written and planned differ: {told ^ planned}")
        stuck = {name for name in plan.removed if name in failed or _is_above(name, list(failed))}
        require(set(result.removed) == set(plan.removed) - stuck, "I4", f"removed {result.removed}, not {plan.removed}")
        require(set(plan.kept) == set(result.kept), "I4", f"kept: planned {plan.kept}, got {result.kept}")
        require(set(plan.missing) == set(result.missing), "I4", f"missing: {plan.missing}, got {result.missing}")
        require(set(plan.blocked) <= failed, "I4", f"blocked {plan.blocked} but failed {result.failed}")
        for name in result.kept:
            require(name.rstrip("/") in after, "I3", f"{name!r} is called kept and is gone")
        alone_before, alone_after = _without_links(before), _without_links(after)
        for name, what in differences(alone_before, alone_after).items():
            if "folder" in {e.kind for e in (before.get(name), after.get(name)) if e} or name in failed:
                continue
            listed = name in result.removed or name in told
            require(listed, "I4", f"{name!r} {what}, and the result does not say so: {result}")

    def _check_scope(self, before: Picture, after: Picture, scope: Sequence[str] | None, result: Restored) -> None:
        """A restore of some paths leaves every other path alone; only folders on the way to them may be made."""
        if scope is None:
            return
        inside = [_relative(each, self.root) for each in scope]
        for name, what in differences(before, after).items():
            on_the_way = any(each.startswith(name + "/") or name == "." for each in inside)
            require(on_the_way or is_under(name, inside), "I1", f"{name!r} {what}, and was not asked for: {result}")

    def _check_explained(
        self, target: Checkpoint, after: Picture, result: Restored, scope: Sequence[str] | None, *, keep_new: bool
    ) -> None:
        """I4 for a restore: every difference from the state at the save is in a list."""
        wanted = self.saved[target.id]
        uncovered = [each.path for each in target.uncovered]
        inside = None if scope is None else [_relative(each, self.root) for each in scope]
        for name, what in differences(wanted, after).items():
            if inside is not None and not is_under(name, inside):
                continue
            if is_under(name, list(result.failed)) or _is_above(name, list(result.failed)):
                continue
            if name not in after:
                listed = is_under(name, uncovered) and is_under(name, list(result.missing))
                require(listed, "I4", f"{name!r} {what}, and nothing says why: {result}")
            elif name not in wanted:
                kept = is_under(name, [*result.kept, *uncovered]) or _is_above(name, list(result.kept))
                require(kept, "I4", f"{name!r} {what}, and nothing says why: {result} (keep_new={keep_new})")
            else:
                require(is_under(name, uncovered), "I4", f"{name!r} {what}, and nothing says why: {result}")

    def _check_undo_and_redo(self, before: Picture, after: Picture) -> None:
        """I2: the undo brings back exactly what was there, and the redo what was restored."""
        undone = self.undo()
        require_same(before, self.capture(), "I2", f"after the undo ({undone})")
        redone = self.redo()
        require_same(after, self.capture(), "I2", f"after the redo ({redone})")

    def check(self) -> None:
        """What must hold when a case is over: a sound store that git can read and only its owner can open."""
        if self._engine is None:
            return
        self._check_modes()
        self._check_order()
        if self.damaged_on_purpose:
            return
        report = self.ws.verify()
        require(report.ok, "the end", f"verify found {report.problems}")
        said = repository.fsck(self.ws.store, self.home)
        require(said == "", "the end", f"git fsck --strict said: {said}")

    def _check_modes(self) -> None:
        for name, entry in capture(self.ws.store).items():
            wanted = 0o700 if entry.kind == "folder" else 0o600
            require(entry.mode == wanted, "the end", f"{name!r} in the store has mode {entry.mode:o}")

    def _check_order(self) -> None:
        listed = self.open().list(limit=None)
        counted = [each.sequence for each in listed]
        require(counted == sorted(set(counted), reverse=True), "the end", f"sequence numbers {counted}")

    def _ignored(self) -> set[str]:
        if any(name.endswith(".gitignore") and entry.kind == "fifo" for name, entry in self.capture().items()):
            return set()  # git would open it and wait for ever
        return repository.ignored(self.root, self.home, self.capture()) if (self.root / ".git").is_dir() else set()


def require(holds: bool, invariant: str, what: str) -> None:
    """Fail the case, naming the invariant that is broken."""
    if not holds:
        raise AssertionError(f"{invariant}: {what}")


def require_same(old: Picture, new: Picture, invariant: str, what: str) -> None:
    """Fail the case unless two pictures are the same in everything."""
    changed = differences(old, new)
    require(not changed, invariant, f"{what}: {changed}")


@contextmanager
def every_step(look: Any) -> Iterator[None]:
    """Call `look` after every system call that this process makes from Python, in every thread."""

    def step(_frame: FrameType, event: str, called: Any) -> None:
        if event == "c_return" and getattr(called, "__module__", "") in ("posix", "_io", None):
            look()

    threading.setprofile(step)
    sys.setprofile(step)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def run_python(script: str, *words: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a process of its own that can import holdfast; `script` finds `words` in `sys.argv[1:]`."""
    source = str(Path(holdfast.__file__).parents[1])
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
        "PYTHONPATH": source
    }
    return subprocess.Popen([sys.executable, "-c", script, *words], env=environ, **options)


def is_under(name: str, folders: Sequence[str]) -> bool:
    """Whether a path is one of `folders`, or in one of them."""
    return any(name == each.rstrip("/") or name.startswith(each.rstrip("/") + "/") for each in folders)


def _is_above(name: str, paths: Sequence[str]) -> bool:
    return any(each.startswith(name + "/") for each in paths)


def _without_links(picture: Picture) -> Picture:
    return {name: replace(entry, links=()) for name, entry in picture.items()}


def _relative(path: str, root: Path) -> str:
    return os.path.relpath(path, root) if os.path.isabs(path) else path.rstrip("/")


def _essence(entry: Entry | None) -> tuple[object, ...] | None:
    """What makes a file another file; folders and times are compared elsewhere."""
    return None if entry is None or entry.kind == "folder" else (entry.kind, entry.content, entry.mode)
