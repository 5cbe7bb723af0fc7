"""After an interruption: a restore that was under way is finished, or taken back, before anything else (P3)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from holdfast import durable
from holdfast.errors import HoldfastError, Refused
from holdfast.model import Checkpoint, Operation, Recovery
from holdfast.scan.databases import family
from holdfast.scan.handles import Handles, upwards
from holdfast.workspace.capture.save import Saver
from holdfast.workspace.capture.scanner import Scanner
from holdfast.workspace.restore.journal import Entry as JournalEntry
from holdfast.workspace.restore.journal import is_stage
from holdfast.workspace.restore.metadata import set_folder
from holdfast.workspace.restore.plan import Steps
from holdfast.workspace.restore.restore import Restorer, Wish, touch
from holdfast.workspace.stored.gathering import Gathering
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import TreeReader


class Recoverer:
    """Deals with what an interrupted restore left. Everything needs the store's lock."""

    def __init__(self, repository: Repository, scanner: Scanner, saver: Saver, restorer: Restorer) -> None:
        self._repository = repository
        self._scanner = scanner
        self._saver = saver
        self._restorer = restorer
        self._journal = restorer.journal
        self._root = scanner.root

    @property
    def is_interrupted(self) -> bool:
        """Whether a restore has begun and not ended (another process may be at it)."""
        return self._journal.exists

    def recover(self) -> Recovery | None:
        """Finish a restore that was interrupted, or take it back."""
        entry = self._journal.read()
        if entry is None:
            return None
        self._check_root(entry)
        if entry.done:
            self._remove_stages(ended=entry)  # whatever is in them is in the safety checkpoint
            self._journal.close(done=True)
            return None
        if not self._repository.has(entry.safety) and not self._stages():
            self._journal.close()  # not begun, or taken back already
            return Recovery(entry.verb, entry.target, "taken back", "", {})
        found = self._save_found(entry)
        if not self._repository.has(entry.safety):
            self._remove_stages()
            self._journal.close()
            return Recovery(entry.verb, entry.target, "taken back", found.id, {})
        safety = self._repository.find(entry.safety)
        self._remove_stages()
        outcome = "finished"
        try:
            target = self._repository.find(entry.target)
            made = frozenset(entry.made)
            wish = Wish(
                entry.verb, target, entry.paths, entry.keep_new, made=made, is_again=True, touch_ns=entry.touch_ns
            )
            failed = self._finish(wish, safety, entry)
        except HoldfastError:
            made = frozenset(self._restorer.made_by(safety, entry.target))
            failed = self._finish(Wish("undo", safety, entry.paths, made=made, is_again=True), safety, entry)
            outcome = "taken back"
        if entry.paths:
            self._reset_folders(entry.paths, safety)
        if outcome == "taken back" or entry.target == safety.id:
            outcome = "taken back"
            if not failed:
                self._repository.withdraw(safety.id)  # it says that something was restored, and nothing was
        return Recovery(entry.verb, entry.target, outcome, found.id, failed)

    def _reset_folders(self, paths: Iterable[str], safety: Checkpoint) -> None:
        """Folders around the paths of a partial restore, whose mode and time may have been changed on the way."""
        reader, root = TreeReader(self._repository.objects), self._repository.contents(safety).root
        around = {above for path in paths for above in (*upwards(path), "")} - set(paths)
        with Handles(os.fspath(self._root)) as handles:
            for path in sorted(around, key=len, reverse=True):
                entry = reader.find(root, path)
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    if entry is not None and entry.is_folder:
                        set_folder(handles, path, entry.attr)

    def _finish(self, wish: Wish, safety: Checkpoint, interrupted: JournalEntry) -> dict[str, str]:
        with Handles(os.fspath(self._root)) as handles:
            snapshot, steps, _ = self._restorer.look(wish, handles, lambda: Gathering(self._repository.objects, None))
            steps = touch(steps, wish)
            since = self._written_since(steps, safety, interrupted.target)
            for other in {other for path in since for other in family(path)}:
                steps.changes.pop(other, None)  # a database is left with all its files, or finished with them (P2)
            entry = self._restorer.begin(wish, steps, snapshot, safety)
            application = self._restorer.carry_out(wish, handles, snapshot, steps, safety, entry, None, recovering=True)
            left = dict.fromkeys(since, "written after the interruption; left as it is")
            return {**steps.plan.blocked, **left, **application.notes, **application.failed}

    def _written_since(self, steps: Steps, safety: Checkpoint, target: str) -> list[str]:
        """The paths that are neither as the interrupted restore found them nor as it was to leave them (P1)."""
        if target == safety.id:
            return []  # it was being taken back, since its target could not be read: as below
        reader = TreeReader(self._repository.objects)
        try:
            roots = [self._repository.contents(each).root for each in (safety, self._repository.find(target))]
        except HoldfastError:
            return []  # the target cannot be read: all there is was saved just now, and is taken back
        found = []
        for path, change in steps.changes.items():
            before = change.before
            if before is None or before.is_folder:
                continue
            known = [reader.find(root, path) for root in roots]
            if not any(each is not None and (each.oid, each.kind) == (before.oid, before.kind) for each in known):
                found.append(path)
        return found

    def _check_root(self, entry: JournalEntry) -> None:
        """Refused in a folder that is not the one in which the restore was interrupted."""
        if not self._is_root(entry) and entry.stage not in self._stages():
            raise Refused(
                f"a restore was interrupted in {entry.root}, which is not {self._root}",
                hint="Open that folder, wherever it is now.",
            )

    def _is_root(self, entry: JournalEntry) -> bool:
        return entry.root == os.fspath(self._root) or entry.inode == os.stat(self._root).st_ino

    def _stages(self) -> list[str]:
        return [name for name in os.listdir(self._root) if is_stage(name)]

    def _save_found(self, entry: JournalEntry) -> Checkpoint:
        """Save what an interruption left, stages included, so that nothing in it is lost (P1)."""
        writer = self._repository.objects.writer()
        gathering = Gathering(self._repository.objects, writer)
        try:
            stages = frozenset(self._stages())
            snapshot, _ = self._scanner.take(gathering, head=self._repository.head(), force=stages)
            operation = Operation("found", entry.target, None)
            checkpoint_id = self._saver.next_id()
            return self._saver.publish_safety(
                writer, gathering, snapshot, operation, checkpoint_id=checkpoint_id, state=None
            )
        except BaseException:
            writer.abort()
            raise

    def _remove_stages(self, *, ended: JournalEntry | None = None) -> None:
        """Remove every stage; after a restore that ended, set the time of the workspace, which that disturbs."""
        with Handles(os.fspath(self._root)) as handles:
            root = handles.open("")
            for stage in self._stages():  # more than one where a recovery was interrupted too
                durable.remove_tree(stage, dir_fd=root)
            if ended is not None and self._is_root(ended):
                with contextlib.suppress(PermissionError):  # it may belong to somebody else who lets us write to it
                    durable.disk().set_mtime(".", ended.root_mtime_ns, dir_fd=root)
