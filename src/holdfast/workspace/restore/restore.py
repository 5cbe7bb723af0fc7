"""Restoring: save what is there, go to a checkpoint, prove it, and be able to go back.

Order of writes (P1, P3): the journal; the safety checkpoint that it names; the stage; then the workspace; then, when
all of it is durable, the journal is finished and the stage goes. A journal is found when the workspace is next opened,
and followed by `holdfast.workspace.restore.recover`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import Conflict, Damaged, NotFound, Unavailable
from holdfast.model import JSON, Checkpoint, Operation, Plan, Progress, Restored
from holdfast.scan.handles import Handles
from holdfast.shadowgit import FILE_MODE, FOLDER_MODE, PackWriter
from holdfast.workspace.capture.save import Saver
from holdfast.workspace.capture.scanner import Frozen, Scanner
from holdfast.workspace.capture.snapshot import Snapshot
from holdfast.workspace.restore.apply import Application
from holdfast.workspace.restore.journal import STAGE_PREFIX, Journal
from holdfast.workspace.restore.journal import Entry as JournalEntry
from holdfast.workspace.restore.outputs import stale_outputs, touched
from holdfast.workspace.restore.plan import Planner, Present, Steps, Target, is_shown
from holdfast.workspace.restore.reversal import Reversal
from holdfast.workspace.scope import Scope, parse_scope
from holdfast.workspace.stored.gathering import Gathering
from holdfast.workspace.stored.parts import list_parts
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import TreeReader

if TYPE_CHECKING:
    from holdfast.workspace.restore.without import Undoing

_SPACE_MARGIN_BYTES = 1 << 20


class Wish(NamedTuple):
    """A restore as asked for."""

    verb: str
    target: Checkpoint
    paths: Sequence[str] | None = None
    keep_new: bool = False
    skip_damaged: bool = False
    made: frozenset[str] = frozenset()
    state: dict[str, JSON] | None = None
    is_again: bool = False
    """The paths are those of an earlier operation, to be taken as they are."""
    reversal: Reversal | None = None
    """Not to the target, but to what the folder would be without an agent's work since."""
    touch_ns: int | None = None
    """The time that files with another content get, instead of the one they had."""


class Restorer:
    """Restores one workspace. Everything but `preview` needs the store's lock."""

    def __init__(self, repository: Repository, scanner: Scanner, saver: Saver) -> None:
        self._repository = repository
        self._scanner = scanner
        self._saver = saver
        self._root = scanner.root
        self.journal = Journal(repository.own)

    def preview(self, wish: Wish) -> Plan:
        """What a restore would do. Nothing is stored and nothing is touched."""
        with Handles(os.fspath(self._root)) as handles:
            keep_files = wish.reversal is not None
            _, steps, _ = self.look(
                wish, handles, lambda: Gathering(self._repository.objects, None, keep_files=keep_files)
            )
            return self._weighed(steps)

    def restore(self, wish: Wish, *, plan: Plan | None = None, progress: Progress | None = None) -> Restored:
        """Make the workspace as it was. Conflict if `plan` is given and is no longer what would be done."""
        with Handles(os.fspath(self._root)) as handles:
            writer = self._repository.objects.writer()
            gathering = Gathering(self._repository.objects, writer, keep_files=wish.reversal is not None)
            made: Checkpoint | None = None
            try:
                snapshot, steps, remember = self.look(wish, handles, lambda: gathering, progress)
                if not self._is_held(steps, writer):  # read it all again: a stored copy is damaged
                    snapshot, steps, remember = self.look(wish, handles, lambda: gathering, progress, rehash=True)
                if plan is not None and plan.digest != steps.plan.digest:
                    raise Conflict("the folder changed since the plan was made", hint="Preview again, then restore.")
                plan = self._weighed(steps)
                steps = touch(steps, wish)
                self._check_space(plan, handles)
                if wish.reversal is not None and steps.merged is not None:
                    made = self._undoing.publish(wish.reversal, steps.merged, snapshot, writer, gathering)
                    wish, writer = wish._replace(target=made), self._repository.objects.writer()
                    gathering = Gathering(self._repository.objects, writer)
                state = self._repository.state(wish.target)  # Damaged here, not when everything is done
                entry = self.begin(wish, steps, snapshot)
                operation = Operation(wish.verb, wish.target.id, None if entry.paths is None else tuple(entry.paths))
                safety = self._saver.publish_safety(
                    writer, gathering, snapshot, operation, checkpoint_id=entry.safety, state=wish.state
                )
            except BaseException:
                writer.abort()
                self._give_up()
                self._forget(made)
                raise
            try:
                application = self.carry_out(wish, handles, snapshot, steps, safety, entry, progress)
            except BaseException:
                self._forget(made)
                raise
            with contextlib.suppress(OSError):
                remember()
            result = self._result(wish, plan, steps, application, safety, state)
            is_touched = wish.touch_ns is not None  # then everything restored is newer than any output
            stale = [] if is_touched else stale_outputs(snapshot.listing, handles, steps.changes)
            return replace(result, stale_outputs=stale)

    @property
    def _undoing(self) -> Undoing:
        from holdfast.workspace.restore.without import Undoing  # half a dozen modules, for those who undo an agent

        return Undoing(self._repository, self._scanner, self._saver)

    def _give_up(self) -> None:
        """Close the journal of a restore that has touched nothing; a Ctrl-C may have left its safety checkpoint."""
        if self.journal.exists:
            with contextlib.suppress(OSError, Unavailable):  # it then says that something was restored, and no more
                entry = self.journal.read()
                if entry is not None:
                    self._repository.withdraw(entry.safety)
            self.journal.close()

    def _forget(self, made: Checkpoint | None) -> None:
        """Take away a target that was made for a restore that did not take place."""
        if made is not None and not self.journal.exists:
            with contextlib.suppress(OSError):  # it does no harm
                self._repository.withdraw(made.id)

    def begin(self, wish: Wish, steps: Steps, snapshot: Snapshot, safety: Checkpoint | None = None) -> JournalEntry:
        """Open the journal, which names the safety checkpoint before it is there: without one nothing was begun."""
        paths = None if wish.paths is None else list(steps.changes)
        stage = STAGE_PREFIX + os.urandom(4).hex()
        own = steps.changes.get("")
        entry = JournalEntry(
            wish.verb,
            wish.target.id,
            safety.id if safety else self._saver.next_id(),
            paths,
            sorted(wish.made),
            wish.keep_new,
            stage,
            os.fspath(self._root),
            os.stat(self._root).st_ino,
            own.after.attr.mtime_ns if own and own.after else snapshot.listing.folders[""].key[3],
            wish.touch_ns,
        )
        self.journal.open(entry)
        return entry

    def _is_held(self, steps: Steps, writer: PackWriter) -> bool:
        """Whether everything that is about to be replaced is in the store with the bytes it had (P1)."""
        for change in steps.changes.values():
            before = change.before
            if before is None or not before.oid:
                continue
            mode = FILE_MODE if before.attr.parts_bytes is None else FOLDER_MODE
            if mode == FOLDER_MODE and not writer.holds(before.oid):
                return False
            if writer.added(before.oid):
                continue
            if not all(map(writer.holds, list_parts(self._repository.objects, mode, before.oid))):
                return False
        return True

    # looking

    def look(
        self,
        wish: Wish,
        handles: Handles,
        gathering: Callable[[], Gathering],
        progress: Progress | None = None,
        *,
        rehash: bool = False,
    ) -> tuple[Snapshot, Steps, Callable[[], None]]:
        """Snapshot and plan; again, with what is in the way held too, if something is."""
        target = self._target(wish.target)
        force = wish.made  # what the operation to be undone brought is held, whatever the rules say now
        while True:
            put = gathering()
            head = self._repository.head()
            snapshot, remember = self._scanner.take(put, head=head, force=force, rehash=rehash, progress=progress)
            reader = TreeReader(put)
            present = Present(snapshot.root, snapshot.uncovered, snapshot.listing)
            scope = self._scope(wish, reader, target, present, handles)
            steps = self._steps(wish, target, present, reader, handles, scope, snapshot, put)
            if steps.obstacles <= force:
                return snapshot, steps, _nothing if force else remember  # a forced scan is not how others look
            force = force | steps.obstacles

    def _steps(
        self,
        wish: Wish,
        target: Target,
        present: Present,
        reader: TreeReader,
        handles: Handles,
        scope: Scope,
        snapshot: Snapshot,
        put: Gathering,
    ) -> Steps:
        options: dict[str, Any] = {"scope": scope, "keep_new": wish.keep_new, "made": wish.made}
        if wish.reversal is None:
            return Planner(target, present, reader, handles, **options).make()
        now_ns = self._saver.now_ns()
        merged = self._undoing.merge(wish.reversal, snapshot, put, reader, scope, now_ns)
        steps = Planner(merged.target, present, reader, handles, **options).make()
        return self._undoing.told(steps, merged, wish.reversal, put, now_ns)

    def _scope(self, wish: Wish, reader: TreeReader, target: Target, present: Present, handles: Handles) -> Scope:
        def exists(path: str) -> bool:
            places = (target.root, present.root)
            return any(reader.find(root, path) is not None for root in places) or handles.has(path)

        if wish.is_again:
            return Scope(wish.paths)

        def every_path() -> Iterable[str]:
            return (path for root in (target.root, present.root) for path, _ in reader.walk(root))

        return parse_scope(wish.paths, self._root, exists, every_path)

    def _target(self, checkpoint: Checkpoint) -> Target:
        contents = self._repository.contents(checkpoint)
        objects = self._repository.objects
        frozen = Frozen(self._repository.rules(contents), TreeReader(objects), objects.blob, contents.root)
        return Target(checkpoint.id, contents.root, self._repository.uncovered(checkpoint), frozen)

    def _weighed(self, steps: Steps) -> Plan:
        size = steps.plan.bytes_to_write
        for change in steps.changes.values():
            if (
                change.after
                and change.after.is_file
                and (change.before is None or change.before.oid != change.after.oid)
            ):
                with contextlib.suppress(Damaged):
                    parts = change.after.attr.parts_bytes
                    size += self._repository.objects.kind_and_size(change.after.oid)[1] if parts is None else parts
        return replace(steps.plan, bytes_to_write=size)

    def _check_space(self, plan: Plan, handles: Handles) -> None:
        room = os.fstatvfs(handles.open(""))
        needed = plan.bytes_to_write + _SPACE_MARGIN_BYTES if plan.bytes_to_write else 0
        count = len(plan.written) + len(plan.replaced)
        has_room = not room.f_blocks or needed <= room.f_bavail * room.f_frsize  # no blocks at all: it cannot tell
        if not has_room or (room.f_files and count + 8 > room.f_favail):
            raise Unavailable(
                f"the restore needs {needed} bytes and {count} files, and the disk has no room for them",
                hint="Free some space; nothing was changed.",
            )

    # doing

    def carry_out(
        self,
        wish: Wish,
        handles: Handles,
        snapshot: Snapshot,
        steps: Steps,
        safety: Checkpoint,
        entry: JournalEntry,
        progress: Progress | None,
        *,
        recovering: bool = False,
    ) -> Application:
        """Make the folder what was planned, prove it, and close the journal.

        On an error it is taken back, or, where that fails too, left to whoever opens the workspace next.
        """
        application = Application(
            handles, self._repository.objects, snapshot.listing, steps.changes, stage=entry.stage, progress=progress
        )
        if not steps.changes:
            self.journal.close()
            return application
        try:
            application.prepare()
            if application.damaged and not wish.skip_damaged:
                raise _damaged(application.damaged)
            application.swap()
            application.check()
            application.sync()
        except BaseException as error:
            if application.is_torn:
                raise  # Ctrl-C between a step and the note of it: only the disk tells, so it is as after a kill
            self._take_back(application, None if recovering else safety, error)
            if isinstance(error, OSError):
                raise Unavailable(
                    f"the restore failed and was taken back: {error.strerror or error}"
                    + (f" ({os.fsdecode(error.filename)})" if isinstance(error.filename, str | bytes) else ""),
                    hint="Nothing was changed. Fix the cause and try again.",
                ) from error
            raise
        with contextlib.suppress(OSError):  # done and durable; a stage that is left is swept when it is next opened
            self.journal.finish()
            application.discard()
            self.journal.close(done=True)
        return application

    def _take_back(self, application: Application, safety: Checkpoint | None, error: BaseException) -> None:
        """Undo a restore that failed in our own hands. If that fails too, the journal stays for the next opening.

        Without `safety` this is the second attempt at an interrupted restore, which stays interrupted.
        """
        try:
            application.take_back()
            application.sync()
            application.discard()
            if safety is not None:
                if not application.left:
                    self._repository.withdraw(safety.id)  # it says that something was restored, and nothing was
                self.journal.close()
        except OSError as worse:
            raise Unavailable(
                f"the restore failed ({error}) and could not be taken back yet ({worse})",
                hint="Fix the cause; opening the workspace again finishes it or takes it back.",
            ) from error

    def _result(
        self, wish: Wish, plan: Plan, steps: Steps, application: Application, safety: Checkpoint, state: dict[str, JSON]
    ) -> Restored:
        failed = {**plan.blocked, **application.damaged, **application.notes, **application.failed}
        if "" in failed:
            failed["."] = failed.pop("")
        kept = dict(plan.kept)
        for path, why in application.kept.items():  # folders that are not empty in the end
            (failed if any(other.startswith(f"{path}/") for other in failed) else kept)[path] = why
        shown = [path for path, change in steps.changes.items() if is_shown(change)]
        done = [
            path for path in shown if path in application.notes or not ({path or "."} & (failed.keys() | kept.keys()))
        ]
        return Restored(
            checkpoint=wish.target.id,
            undo_id=safety.id,
            written=[path or "." for path in done if steps.changes[path].after is not None],
            removed=[path for path in done if steps.changes[path].after is None],
            kept=kept,
            failed=failed,
            missing=plan.missing,
            state=state,
            conflicts=plan.conflicts,
        )

    # undo and redo

    def wish_to_undo(self) -> Wish:
        """The last restore that was not undone, the other way round."""
        done = self._repository.history().done
        if not done:
            raise NotFound("there is no restore to undo", hint="`holdfast log --all` shows every state.")
        return self._reverse("undo", done[-1])

    def wish_to_redo(self) -> Wish:
        """The last undo that was not redone, the other way round."""
        undone = self._repository.history().undone
        if not undone:
            raise NotFound("there is no undo to redo", hint="`holdfast log --all` shows every state.")
        return self._reverse("redo", undone[-1])

    def _reverse(self, verb: str, safety: Checkpoint) -> Wish:
        operation = safety.operation
        if operation is None:
            raise NotFound(f"{safety.id} is not a safety checkpoint", hint="See `holdfast log --all`.")
        made = frozenset(self.made_by(safety, operation.target))
        return Wish(verb, safety, operation.paths, made=made, is_again=True)

    def made_by(self, before: Checkpoint, target: str) -> Set[str]:
        """The paths that a restore made: in its target, and not there before it."""
        try:
            after = self._repository.contents(self._repository.find(target)).root
        except (NotFound, Damaged):
            return set()
        changes = TreeReader(self._repository.objects).diff(self._repository.contents(before).root, after)
        return {change.path for change in changes if change.before is None}


def touch(steps: Steps, wish: Wish) -> Steps:
    """The same steps, with the times that were asked for."""
    return steps if wish.touch_ns is None else steps._replace(changes=touched(steps.changes, wish.touch_ns))


def _nothing() -> None:
    """Remember nothing."""


def _damaged(paths: dict[str, str]) -> Damaged:
    some = ", ".join(sorted(paths)[:5]) + (", …" if len(paths) > 5 else "")
    return Damaged(
        f"this checkpoint is damaged, and {len(paths)} of its files cannot be restored: {some}",
        hint="Nothing was changed. Restore the rest with skip_damaged (--skip-damaged), or use another.",
    )
