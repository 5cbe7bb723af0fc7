"""Recovery: an interrupted restore is finished or rolled back before anything else (P3)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from holdfast import durable
from holdfast.errors import HoldfastError, Refused
from holdfast.model import Checkpoint, Operation, Recovery
from holdfast.scan.dir_handles import Handles, upwards
from holdfast.scan.sqlite_files import family
from holdfast.workspace.capture.save import Saver
from holdfast.workspace.capture.scanner import Scanner
from holdfast.workspace.requests import RestoreRequest
from holdfast.workspace.restore.journal import JournalEntry, is_stage
from holdfast.workspace.restore.metadata import set_folder
from holdfast.workspace.restore.plan import Steps
from holdfast.workspace.restore.restore import Restorer, touch
from holdfast.workspace.stored.object_sink import ObjectSink, PackSink
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import TreeReader


class Recoverer:
    """Recovers from interrupted restores. Everything needs the store's lock."""

    def __init__(self, repository: Repository, scanner: Scanner, saver: Saver, restorer: Restorer) -> None:
        self._repository = repository
        self._scanner = scanner
        self._saver = saver
        self._restorer = restorer
        self._journal = restorer.journal
        self._root = scanner.root

    @property
    def is_interrupted(self) -> bool:
        """Whether a restore has begun and not ended (perhaps in another process)."""
        return self._journal.exists

    def recover(self) -> Recovery | None:
        """Finish an interrupted restore, or roll it back; None if there is nothing to do."""
        entry = self._journal.read()
        if entry is None:
            return None
        self._check_root(entry)
        if entry.done:
            self._remove_stages(ended=entry)  # P1: their content is in the safety checkpoint
            self._journal.close(done=True)
            return None
        if not self._repository.has(entry.safety) and not self._stages():
            self._journal.close()  # not begun, or rolled back already
            return Recovery(entry.verb, entry.target, "rolled back", "", {})
        found = self._save_found(entry)  # P1: before anything is repaired
        if not self._repository.has(entry.safety):
            self._remove_stages()
            self._journal.close()
            return Recovery(entry.verb, entry.target, "rolled back", found.id, {})
        safety = self._repository.find(entry.safety)
        self._remove_stages()
        outcome = "finished"
        try:
            target = self._repository.find(entry.target)
            request = RestoreRequest(
                entry.verb,
                target,
                entry.paths,
                keep_new=entry.keep_new,
                created=frozenset(entry.made),
                is_exact=True,
                touch_ns=entry.touch_ns,
            )
            failed = self._finish(request, safety, entry)
        except HoldfastError:  # P3: the target is deleted or damaged, so go back to the state before
            created = frozenset(self._restorer.created_by(safety, entry.target))
            request = RestoreRequest("undo", safety, entry.paths, created=created, is_exact=True)
            failed = self._finish(request, safety, entry)
            outcome = "rolled back"
        if entry.paths:
            self._reset_folders(entry.paths, safety)
        if outcome == "rolled back" or entry.target == safety.id:
            outcome = "rolled back"
            if not failed:
                self._repository.withdraw(safety.id)  # otherwise `undo` would offer a restore that did not happen
        return Recovery(entry.verb, entry.target, outcome, found.id, failed)

    def _reset_folders(self, paths: Iterable[str], safety: Checkpoint) -> None:
        """Reset folders around the paths of a partial restore, whose mode and time may have changed."""
        reader, root = TreeReader(self._repository.objects), self._repository.contents(safety).root
        around = {above for path in paths for above in (*upwards(path), "")} - set(paths)
        with Handles(os.fspath(self._root)) as handles:
            for path in sorted(around, key=len, reverse=True):
                entry = reader.find(root, path)
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    if entry is not None and entry.is_folder:
                        set_folder(handles, path, entry.attr)

    def _finish(self, request: RestoreRequest, safety: Checkpoint, interrupted: JournalEntry) -> dict[str, str]:
        with Handles(os.fspath(self._root)) as handles:
            snapshot, steps, _ = self._restorer.look(request, handles, lambda: ObjectSink(self._repository.objects))
            steps = touch(steps, request)
            since = self._written_since(steps, safety, interrupted.target)
            for other in {other for path in since for other in family(path)}:
                steps.changes.pop(other, None)  # P2: all files of a database are finished, or none
            entry = self._restorer.begin(request, steps, snapshot, safety)
            application = self._restorer.carry_out(request, handles, snapshot, steps, safety, entry, recovering=True)
            left = dict.fromkeys(since, "written after the interruption; left as it is")
            return {**steps.plan.blocked, **left, **application.notes, **application.failed}

    def _written_since(self, steps: Steps, safety: Checkpoint, target: str) -> list[str]:
        """Return the paths that somebody changed after the interruption: neither the old nor the new content (P1)."""
        if target == safety.id:
            return []  # it was being rolled back, since its target was unreadable: as below
        reader = TreeReader(self._repository.objects)
        try:
            roots = [self._repository.contents(each).root for each in (safety, self._repository.find(target))]
        except HoldfastError:
            return []  # the target is unreadable: everything was saved just now, and is rolled back
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
        """Refuse a folder that is not the one in which the restore was interrupted."""
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
        """Save what an interruption left, including the stages, so that nothing is lost (P1)."""
        with PackSink(self._repository.objects) as sink:
            stages = frozenset(self._stages())
            snapshot, _ = self._scanner.take(sink, head=self._repository.head(), force=stages)
            operation = Operation("found", entry.target, None)
            return self._saver.publish_safety(sink, snapshot, operation, checkpoint_id=self._saver.next_id())

    def _remove_stages(self, *, ended: JournalEntry | None = None) -> None:
        """Remove every stage; after a restore that ended, reset the time of the workspace, which that changes."""
        with Handles(os.fspath(self._root)) as handles:
            root = handles.open("")
            for stage in self._stages():  # several if a recovery was interrupted too
                durable.remove_tree(stage, dir_fd=root)
            if ended is not None and self._is_root(ended):
                with contextlib.suppress(PermissionError):  # another user may own the folder and let us write to it
                    durable.disk().set_mtime(".", ended.root_mtime_ns, dir_fd=root)
