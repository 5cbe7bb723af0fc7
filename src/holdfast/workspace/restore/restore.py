"""Restoring: save what is there, replace it, verify the result, and be able to undo it.

Order of writes (P1, P3): the journal; the safety checkpoint that it names; the stage; then the workspace; when all of
it is durable, the journal is marked as done and the stage removed. `holdfast.workspace.restore.recovery` follows a
journal that it finds when the workspace is opened next.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Set
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.errors import Conflict, Damaged, NotFound, Remedy, Unavailable
from holdfast.model import JSON, Checkpoint, Operation, Plan, Restored
from holdfast.scan.dir_handles import Handles
from holdfast.shadowgit import FILE_MODE, FOLDER_MODE, PackWriter
from holdfast.workspace.capture.save import Saver
from holdfast.workspace.capture.scanner import Frozen, Remember, Scanner
from holdfast.workspace.capture.snapshot import Snapshot
from holdfast.workspace.pathspec import Scope, parse_scope
from holdfast.workspace.requests import RestoreRequest
from holdfast.workspace.restore.apply import Application
from holdfast.workspace.restore.journal import STAGE_PREFIX, Journal, JournalEntry
from holdfast.workspace.restore.plan import Planner, Present, Steps, Target, is_shown
from holdfast.workspace.restore.stale_outputs import stale_outputs, touched
from holdfast.workspace.stored.chunking import list_parts
from holdfast.workspace.stored.object_sink import ObjectSink, PackSink
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import TreeReader

if TYPE_CHECKING:
    from holdfast.workspace.undo_agent.undo import AgentUndo, UndoneContent

_SPACE_MARGIN_BYTES = 1 << 20


class Restorer:
    """Restores one workspace. Everything but `preview` needs the store's lock."""

    def __init__(self, repository: Repository, scanner: Scanner, saver: Saver) -> None:
        self._repository = repository
        self._scanner = scanner
        self._saver = saver
        self._root = scanner.root
        self.journal = Journal(repository.own)

    def preview(self, request: RestoreRequest) -> Plan:
        """Compute what a restore would do. Stores nothing and changes nothing."""
        with Handles(os.fspath(self._root)) as handles:
            _, steps, _ = self.look(
                request, handles, lambda: ObjectSink(self._repository.objects, keep_files=request.is_computed)
            )
            return self._with_size(steps)

    def restore(self, request: RestoreRequest, *, plan: Plan | Callable[[Plan], object] | None = None) -> Restored:
        """Make the workspace as the target has it. Conflict if `plan` is given and no longer what would be done.

        A function is called with the plan before anything is stored or changed; it may raise.
        """
        with Handles(os.fspath(self._root)) as handles:
            made: Checkpoint | None = None
            try:
                with PackSink(self._repository.objects, keep_files=request.is_computed) as sink:
                    snapshot, steps, remember = self.look(request, handles, lambda: sink)
                    if not self._is_stored(steps, sink.writer):  # a stored copy is damaged: read every file again
                        snapshot, steps, remember = self.look(request, handles, lambda: sink, rehash=True)
                    plan = self._agreed(plan, self._with_size(steps))
                    steps = touch(steps, request)
                    self._check_space(plan, handles)
                    if steps.undone is None:
                        state, entry, safety = self._save_present(request, snapshot, steps, sink)
                    else:
                        made = self._agent_undo.publish(request, steps.undone, snapshot, sink)
                if made is not None:
                    request = request.replace(target=made)
                    steps = steps._replace(reader=None)  # it reads the sink that is closed
                    with PackSink(self._repository.objects) as sink:
                        state, entry, safety = self._save_present(request, snapshot, steps, sink)
            except BaseException:
                self._give_up()
                self._forget(made)
                raise
            try:
                application = self.carry_out(request, handles, snapshot, steps, safety, entry)
            except BaseException:
                self._forget(made)
                raise
            with contextlib.suppress(OSError):  # the restore is done; this only makes the next look faster
                remember(steps.changes)
                self._scanner.follow(snapshot.root, self._repository.head())
                self._saver.git.remember()
            result = self._result(request, plan, steps, application, safety, state)
            is_touched = request.touch_ns is not None  # then everything restored is newer than any output
            stale = [] if is_touched else stale_outputs(snapshot.listing, handles, steps.changes)
            return result._replace(stale_outputs=stale)

    def _agreed(self, given: Plan | Callable[[Plan], object] | None, plan: Plan) -> Plan:
        if isinstance(given, Plan) and given.digest != plan.digest:
            raise Conflict("the folder changed since the plan was made", hint="Preview again, then restore.")
        if given is not None and not isinstance(given, Plan):
            given(plan)
        return plan

    def _save_present(
        self, request: RestoreRequest, snapshot: Snapshot, steps: Steps, sink: PackSink
    ) -> tuple[dict[str, JSON], JournalEntry, Checkpoint]:
        """Read the target's state, open the journal and save what is about to be replaced (P1), in this order."""
        state = self._repository.state(request.target)  # raises Damaged now, not when the files are in place
        entry = self.begin(request, steps, snapshot)
        operation = Operation(request.verb, request.target.id, None if entry.paths is None else tuple(entry.paths))
        safety = self._saver.publish_safety(
            sink, snapshot, operation, checkpoint_id=entry.safety, state=request.state, reader=steps.reader
        )
        return state, entry, safety

    @property
    def _agent_undo(self) -> AgentUndo:
        from holdfast.workspace.undo_agent.undo import AgentUndo  # start-up cost: half a dozen modules

        return AgentUndo(self._repository, self._scanner, self._saver)

    def _give_up(self) -> None:
        """Remove the journal of a restore that changed nothing, and the safety checkpoint, if there is one."""
        if self.journal.exists:
            with contextlib.suppress(OSError, Unavailable):  # it then only looks as if something was restored
                entry = self.journal.read()
                if entry is not None:
                    self._repository.withdraw(entry.safety)
            self.journal.close()

    def _forget(self, made: Checkpoint | None) -> None:
        """Remove a computed target whose restore did not happen."""
        if made is not None and not self.journal.exists:
            with contextlib.suppress(OSError):  # it does no harm
                self._repository.withdraw(made.id)

    def begin(
        self, request: RestoreRequest, steps: Steps, snapshot: Snapshot, safety: Checkpoint | None = None
    ) -> JournalEntry:
        """Write the journal. It names the safety checkpoint, without which nothing was changed yet."""
        paths = None if request.paths is None else list(steps.changes)
        stage = STAGE_PREFIX + os.urandom(4).hex()
        own = steps.changes.get("")
        entry = JournalEntry(
            request.verb,
            request.target.id,
            safety.id if safety else self._saver.next_id(),
            paths,
            sorted(request.created),
            request.keep_new,
            stage,
            os.fspath(self._root),
            os.stat(self._root).st_ino,
            own.after.attr.mtime_ns if own and own.after else snapshot.listing.folders[""].key[3],
            request.touch_ns,
        )
        self.journal.open(entry)
        return entry

    def _is_stored(self, steps: Steps, writer: PackWriter) -> bool:
        """Whether the store has intact copies of everything that is about to be replaced (P1)."""
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

    # planning

    def look(
        self,
        request: RestoreRequest,
        handles: Handles,
        new_sink: Callable[[], ObjectSink],
        *,
        rehash: bool = False,
    ) -> tuple[Snapshot, Steps, Remember]:
        """Take a snapshot and plan; repeat with what is in the way included, if something is.

        What an ignore rule leaves out and a restore would replace has to be in the safety checkpoint first (P1).
        """
        target = self._target(request.target)
        force = request.created  # an undo may remove these, so they are saved whatever the rules say now
        while True:
            sink, head = new_sink(), self._repository.head()
            snapshot, remember = self._scanner.take(
                sink, head=head, force=force, rehash=rehash, progress=request.progress
            )
            steps = self._steps(request, target, snapshot, sink, handles)
            if steps.obstacles <= force:
                return snapshot, steps, _nothing if force else remember  # the cache is for scans without `force`
            force = force | steps.obstacles

    def _steps(
        self, request: RestoreRequest, target: Target, snapshot: Snapshot, sink: ObjectSink, handles: Handles
    ) -> Steps:
        present = Present(snapshot.root, snapshot.uncovered, snapshot.listing)
        reader = TreeReader(sink)
        scope = self._scope(request, reader, target, present, handles)

        def plan(target: Target) -> Steps:
            return Planner(target, present, reader, handles, scope, request).make()

        if not request.is_computed:
            return plan(target)
        now_ns = self._saver.now_ns()
        undone = self._agent_undo.compute(request, snapshot, sink, scope, now_ns)
        steps = plan(Target(request.target.id, undone.root, tuple(snapshot.uncovered), undone.frozen))
        return self._agent_undo_steps(request, steps, undone, sink, now_ns)

    def _agent_undo_steps(
        self, request: RestoreRequest, steps: Steps, undone: UndoneContent, sink: ObjectSink, now_ns: int
    ) -> Steps:
        """Add to a plan what an undo of an agent, or of chosen hunks, found. The digest does not depend on the time."""
        plan = steps.plan
        afters = {change.after.oid for change in steps.changes.values() if change.after and change.after.oid}
        new = [oid for oid in afters if not self._repository.objects.has(oid)]
        asked: tuple[object, ...] = (request.target.id, request.agent, request.unsaved_by, plan.paths, plan.keep_new)
        if request.turn is not None:
            asked = (*asked, tuple(request.undone.turn or ()))
        if request.chosen is not None:
            asked = (*asked, request.chosen.until and request.chosen.until.id, sorted(request.chosen.hunks))
        digest = sha256(repr(asked).encode())
        for path, before, after in steps.changes.values():
            if after is not None and after.attr.mtime_ns == now_ns:
                after = after._replace(attr=after.attr._replace(mtime_ns=0))
            digest.update(repr((path, before, after)).encode())
        for found in (undone.overlaps, undone.unknown, plan.kept, plan.blocked):
            digest.update(repr(sorted(found.items())).encode())
        plan = plan._replace(
            digest=digest.hexdigest(),
            bytes_to_write=sum(sink.size(oid) or 0 for oid in new),  # `_with_size` adds what the store has
            keep_mine=request.keep_mine,
            hunks=request.chosen.hunks if request.chosen else (),
            agent=request.agent,
            turn=request.turn,
            unsaved_by=request.unsaved_by,
            conflicts=undone.overlaps,
            doubts=undone.doubts,
            kept=dict(sorted({**undone.unknown, **plan.kept}.items())),
        )
        return steps._replace(plan=plan, undone=undone)

    def _scope(
        self, request: RestoreRequest, reader: TreeReader, target: Target, present: Present, handles: Handles
    ) -> Scope:
        def exists(path: str) -> bool:
            places = (target.root, present.root)
            return any(reader.find(root, path) is not None for root in places) or handles.has(path)

        if request.is_exact:
            return Scope(request.paths)

        def every_path() -> Iterable[str]:
            return (path for root in (target.root, present.root) for path, _ in reader.walk(root))

        return parse_scope(request.paths, self._root, exists, every_path)

    def _target(self, checkpoint: Checkpoint) -> Target:
        contents = self._repository.contents(checkpoint)
        objects = self._repository.objects
        frozen = Frozen(self._repository.rules(contents), TreeReader(objects), objects.blob, contents.root)
        return Target(checkpoint.id, contents.root, self._repository.uncovered(checkpoint), frozen)

    def _with_size(self, steps: Steps) -> Plan:
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
        return steps.plan._replace(bytes_to_write=size)

    def _check_space(self, plan: Plan, handles: Handles) -> None:
        room = os.fstatvfs(handles.open(""))
        needed = plan.bytes_to_write + _SPACE_MARGIN_BYTES if plan.bytes_to_write else 0
        count = len(plan.written) + len(plan.replaced)
        has_room = not room.f_blocks or needed <= room.f_bavail * room.f_frsize  # 0 blocks: unknown
        if not has_room or (room.f_files and count + 8 > room.f_favail):
            raise Unavailable(
                f"not enough disk space: the restore needs {needed} bytes and {count} files",
                hint="Free some disk space. Nothing was changed.",
            )

    # applying

    def carry_out(
        self,
        request: RestoreRequest,
        handles: Handles,
        snapshot: Snapshot,
        steps: Steps,
        safety: Checkpoint,
        entry: JournalEntry,
        *,
        recovering: bool = False,
    ) -> Application:
        """Apply the plan, verify the result and close the journal.

        On an error everything is rolled back; if that fails too, the next call recovers from the journal.
        """
        application = Application(
            handles,
            self._repository.objects,
            snapshot.listing,
            steps.changes,
            stage=entry.stage,
            progress=request.progress,
        )
        if not steps.changes:
            self.journal.close()
            return application
        try:
            application.prepare()
            if application.damaged and not request.skip_damaged:
                raise _damaged(application.damaged)
            application.swap()
            application.check()
            application.sync()
        except BaseException as error:
            if application.is_torn:
                raise  # interrupted between a step and its record: recover from the disk, as after a kill
            self._roll_back(application, None if recovering else safety, error)
            if isinstance(error, OSError):
                raise Unavailable(
                    f"the restore failed and was rolled back: {error.strerror or error}"
                    + (f" ({os.fsdecode(error.filename)})" if isinstance(error.filename, str | bytes) else ""),
                    hint="Nothing was changed. Fix the cause and try again.",
                ) from error
            raise
        with contextlib.suppress(OSError):  # done and durable; recovery removes a remaining stage
            self.journal.finish()
            application.discard()
            self.journal.close(done=True)
        return application

    def _roll_back(self, application: Application, safety: Checkpoint | None, error: BaseException) -> None:
        """Roll back a failed restore. If that fails too, the journal stays for the next call.

        Without `safety` this is a recovery, and the restore stays interrupted.
        """
        try:
            application.roll_back()
            application.sync()
            application.discard()
            if safety is not None:
                if not application.left:
                    self._repository.withdraw(safety.id)  # otherwise `undo` would offer a restore that did not happen
                self.journal.close()
        except OSError as worse:
            raise Unavailable(
                f"the restore failed ({error}) and could not be rolled back yet ({worse})",
                hint="Fix the cause; opening the workspace again finishes it or rolls it back.",
            ) from error

    def _result(
        self,
        request: RestoreRequest,
        plan: Plan,
        steps: Steps,
        application: Application,
        safety: Checkpoint,
        state: dict[str, JSON],
    ) -> Restored:
        failed = {**plan.blocked, **application.damaged, **application.notes, **application.failed}
        if "" in failed:
            failed["."] = failed.pop("")
        kept = dict(plan.kept)
        for path, why in application.kept.items():  # folders that could not be removed because they are not empty
            (failed if any(other.startswith(f"{path}/") for other in failed) else kept)[path] = why
        shown = [path for path, change in steps.changes.items() if is_shown(change)]
        done = [
            path for path in shown if path in application.notes or not ({path or "."} & (failed.keys() | kept.keys()))
        ]
        return Restored(
            checkpoint=request.target.id,
            undo_id=safety.id,
            written=[path or "." for path in done if steps.changes[path].after is not None],
            removed=[path for path in done if steps.changes[path].after is None],
            kept=kept,
            failed=failed,
            missing=plan.missing,
            state=state,
            conflicts=plan.conflicts,
            stale_outputs=[],
        )

    # undo and redo

    def undo_request(self) -> RestoreRequest:
        """Return the request that undoes the last restore. NotFound if there is none."""
        safety = self._repository.undo_stack().next_undo
        if safety is None:
            raise NotFound("nothing to undo: no earlier restore", remedy=Remedy("no_restore"))
        return self._reverse("undo", safety)

    def redo_request(self) -> RestoreRequest:
        """Return the request that redoes the last undo. NotFound if there is none."""
        safety = self._repository.undo_stack().next_redo
        if safety is None:
            raise NotFound("nothing to redo: no restore was undone", remedy=Remedy("list_all"))
        return self._reverse("redo", safety)

    def _reverse(self, verb: str, safety: Checkpoint) -> RestoreRequest:
        operation = safety.operation
        if operation is None:
            raise NotFound(f"{safety.id} is not a safety checkpoint", remedy=Remedy("list_all"))
        created = frozenset(self.created_by(safety, operation.target))
        return RestoreRequest(verb, safety, operation.paths, created=created, is_exact=True)

    def created_by(self, before: Checkpoint, target: str) -> Set[str]:
        """Return the paths that a restore created: in its target, and not there before it."""
        try:
            after = self._repository.contents(self._repository.find(target)).root
        except (NotFound, Damaged):
            return set()
        changes = TreeReader(self._repository.objects).diff(self._repository.contents(before).root, after)
        return {change.path for change in changes if change.before is None}


def touch(steps: Steps, request: RestoreRequest) -> Steps:
    """Return the steps with the requested modification times."""
    return steps if request.touch_ns is None else steps._replace(changes=touched(steps.changes, request.touch_ns))


def _nothing(replaced: Collection[str] = ()) -> None:
    """Remember nothing."""


def _damaged(paths: dict[str, str]) -> Damaged:
    some = ", ".join(sorted(paths)[:5]) + (", …" if len(paths) > 5 else "")
    return Damaged(
        f"this checkpoint is damaged, and {len(paths)} of its files cannot be restored: {some}",
        hint="Nothing was changed.",
        remedy=Remedy("skip_damaged", verb="restore"),
    )
