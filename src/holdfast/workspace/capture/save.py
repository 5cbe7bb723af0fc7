"""Saving: one snapshot, one pack, one ref.

Order of writes (P3): the pack and its index, synced; the ref, synced (the commit point); the catalog and the scan
cache, which can be rebuilt. A crash before the ref leaves a pack that nothing refers to, and no checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from holdfast.errors import Conflict, Damaged, NotFound
from holdfast.model import JSON, Checkpoint, Operation
from holdfast.scan.cache import MODE, SIZE, WIDTH
from holdfast.scan.dir_handles import join
from holdfast.shadowgit import EMPTY_TREE, ObjectKind, object_id
from holdfast.workspace.capture.git_record import GitRecorder
from holdfast.workspace.capture.scanner import Scanner
from holdfast.workspace.capture.snapshot import Snapshot
from holdfast.workspace.requests import SaveRequest
from holdfast.workspace.stored.ids import new_id
from holdfast.workspace.stored.object_sink import ObjectSink, PackSink
from holdfast.workspace.stored.record import Contents, encode_record, encode_uncovered, to_json, write_commit
from holdfast.workspace.stored.repository import Repository, content_key
from holdfast.workspace.stored.state import write_state
from holdfast.workspace.stored.tree import TreeReader, files_changed


class StateAndMetadata(NamedTuple):
    """State and metadata of a checkpoint, asked for only once it is known that the files changed."""

    state: Mapping[str, JSON]
    metadata: Mapping[str, JSON]


class Saver:
    """Makes checkpoints of one workspace. Everything needs the store's lock."""

    def __init__(self, repository: Repository, scanner: Scanner, clock: Callable[[], datetime]) -> None:
        self._repository = repository
        self._scanner = scanner
        self._clock = clock
        self.git = GitRecorder(repository, scanner.root)
        self.scans_secrets = True
        self.unscanned: list[str] | None = None
        """A list: a save only adds its checkpoint, for `Workspace.scan_pending`."""
        self._durable_head = ""  # the checkpoint that this process knows to be synced to disk
        self._large_files: dict[str, int] = {}

    def save(self, request: SaveRequest) -> Checkpoint:
        """Save the folder, or return the checkpoint that it is at if that already has the same content."""
        if request.name is not None and self._repository.catalog.by_name(request.name) is not None:
            raise Conflict(f"a checkpoint named {request.name!r} already exists", hint="Choose another name.")
        head = self._repository.head()
        with PackSink(self._repository.objects) as sink:
            take = partial(self._scanner.take, sink, head=head, rehash=request.rehash, progress=request.progress)
            snapshot, remember = take()
            if force := self._left_out(request.include, snapshot, sink):
                snapshot, _ = take(force=force)  # not in the scan cache: other saves do not include these paths
            state_tree = self._state_tree(sink, request.state)
            report = encode_uncovered(snapshot.uncovered)
            if not request.wants_own_checkpoint:
                content = content_key(snapshot.root, object_id(ObjectKind.BLOB, report))
                same = self._same(head, content, state_tree.hex() if request.state is not None else None)
                if same is not None and not self.git.changed_since(same.commit, sink, self._scanner.git_dir()):
                    self._keep_existing(sink, remember)
                    return same
            label = request.label()
            checkpoint = self._publish(sink, snapshot, label, head=head, state_tree=state_tree, report=report)
        self._tidy(remember)
        return checkpoint

    def save_changes(self, request: SaveRequest, details: Callable[[], StateAndMetadata]) -> Checkpoint | None:
        """Save the folder unless its head has the same content: then None, even if the latest checkpoint differs."""
        head = self._repository.head()
        with PackSink(self._repository.objects) as sink:
            snapshot, remember = self._scanner.take(sink, head=head, progress=request.progress)
            report = encode_uncovered(snapshot.uncovered)
            row = self._repository.catalog.by_id(head.id) if head is not None else None
            content = content_key(snapshot.root, object_id(ObjectKind.BLOB, report))
            is_same = row is not None and row.content == content
            if row and is_same and not self.git.changed_since(row.commit, sink, self._scanner.git_dir()):
                self._keep_existing(sink, remember, is_durable=row.id == self._durable_head)
                self._durable_head = row.id
                return None
            state, metadata = details()
            label = request.replace(metadata=metadata).label()
            state_tree = self._state_tree(sink, state)
            checkpoint = self._publish(sink, snapshot, label, head=head, state_tree=state_tree, report=report)
        self._tidy(remember)
        self._durable_head = checkpoint.id
        return checkpoint

    def take_large_files(self) -> dict[str, int]:
        """Return the new files above `LARGE_BYTES` since this was last asked, with their sizes."""
        found, self._large_files = self._large_files, {}
        return found

    def _same(self, head: Checkpoint | None, content: str, state: str | None) -> Checkpoint | None:
        """Return the save that the folder is at, if it has this content (and this state, if one is given).

        Not any other with the same content: `latest` and the order of checkpoints would be wrong then (P10).
        """
        catalog = self._repository.catalog
        is_save = head is not None and head.operation is None  # otherwise it is where an undo brought it
        row = catalog.by_id(head.id) if head is not None and is_save else catalog.nth(0)
        is_same = row is not None and row.content == content and state in (None, row.state)
        return self._repository.checkpoint(row) if row is not None and is_same else None

    def _keep_existing(self, sink: PackSink, remember: Callable[[], None], *, is_durable: bool = False) -> None:
        """Make no new checkpoint: there is one with this content."""
        if sink.writer.commit():
            self._repository.objects.refresh()  # a stored copy was damaged: now there is a good one
        if not is_durable:
            self._repository.confirm()
        with contextlib.suppress(OSError):
            remember()
            self.git.remember()

    def _tidy(self, remember: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):  # the checkpoint exists; the rest only makes the next one faster
            self._repository.upkeep()
            remember()
            self.git.remember()

    def _left_out(self, include: Sequence[str], snapshot: Snapshot, sink: ObjectSink) -> frozenset[str]:
        """Return the existing paths that the ignore rules leave out."""
        reader, root = TreeReader(sink), self._scanner.root
        missing = (path for path in include if reader.find(snapshot.root, path) is None)
        return frozenset(path for path in missing if os.path.lexists(root / path))

    def next_id(self) -> str:
        """Return the id of the next checkpoint, for a journal that has to name it before it exists."""
        return new_id(self._repository.next_sequence())

    def publish_safety(
        self,
        sink: PackSink,
        snapshot: Snapshot,
        operation: Operation,
        *,
        checkpoint_id: str,
        state: Mapping[str, JSON] | None = None,
        reader: TreeReader | None = None,
    ) -> Checkpoint:
        """Save a snapshot that is about to be replaced (P1), with the given state, or with the one saved last.

        `reader`: of the sink, one that has read some of its folders already.
        """
        head = self._repository.head()
        state_tree = self._last_state(head) if state is None else self._state_tree(sink, state)
        label = _unlabelled(checkpoint_id, operation)
        report = encode_uncovered(snapshot.uncovered)
        return self._publish(sink, snapshot, label, head=head, state_tree=state_tree, report=report, reader=reader)

    def now_ns(self) -> int:
        """Return the time for content that is created now."""
        return int(self._clock().timestamp() * 1_000_000_000)

    def publish_target(
        self,
        sink: PackSink,
        snapshot: Snapshot,
        operation: Operation,
        *,
        message: str,
        metadata: Mapping[str, JSON],
        rules: bytes,
    ) -> Checkpoint:
        """Save a computed content as the target of a restore. It says nothing about what the folder contains now."""
        head = self._repository.head()
        label = _unlabelled("", operation).replace(message=message, metadata=metadata)
        report = encode_uncovered(snapshot.uncovered)
        state_tree = self._last_state(head)
        return self._publish(sink, snapshot, label, head=head, state_tree=state_tree, report=report, rules=rules)

    def _state_tree(self, sink: ObjectSink, state: Mapping[str, Any] | None) -> bytes:
        return write_state(sink, state, self._repository.spelling) if state else EMPTY_TREE

    def _last_state(self, head: Checkpoint | None) -> bytes:
        if head is None:
            return EMPTY_TREE
        try:
            return self._repository.contents(head).state
        except (Damaged, NotFound):
            return EMPTY_TREE

    def _publish(
        self,
        sink: PackSink,
        snapshot: Snapshot,
        label: Checkpoint,
        *,
        head: Checkpoint | None,
        state_tree: bytes,
        report: bytes,
        rules: bytes | None = None,
        reader: TreeReader | None = None,
    ) -> Checkpoint:
        sequence = self._repository.next_sequence()
        checkpoint = label.replace(
            id=label.id or new_id(sequence),
            sequence=sequence,
            timestamp=self._clock().astimezone(UTC),
            parent=head.id if head else None,
            complete=snapshot.complete,
            quiet=snapshot.quiet,
            git=self._scanner.git_head(),
        )
        git = self.git.record(sink, self._scanner.git_dir())
        changes = self._changes(reader or TreeReader(sink), checkpoint, head, snapshot)
        contents = Contents(
            root=snapshot.root,
            state=state_tree,
            record=sink.add(ObjectKind.BLOB, encode_record(checkpoint)),
            changes=sink.add(ObjectKind.BLOB, to_json(changes)),
            uncovered=sink.add(ObjectKind.BLOB, report),
            rules=sink.add(ObjectKind.BLOB, self._scanner.frozen_rules(snapshot) if rules is None else rules),
            git=git.names,
            git_data=git.data,
        )
        commit = write_commit(sink, checkpoint, contents)
        if self.scans_secrets:
            self._begin_scan(checkpoint)
        self._repository.publish(sink.writer, checkpoint, contents, commit)
        self._large_files |= snapshot.large_new_files()
        if self.scans_secrets and self.unscanned is not None:
            self.unscanned.append(checkpoint.id)
        elif self.scans_secrets:
            self._scan_secrets(sink, snapshot, checkpoint, contents)
        return checkpoint.replace(commit=commit.hex(), is_new=True, _lazy=self._repository)

    def _begin_scan(self, checkpoint: Checkpoint) -> None:
        from holdfast.workspace.secrets import SecretScan  # start-up cost: most saves find no change

        SecretScan(self._repository).begin(checkpoint.id)

    def _scan_secrets(self, sink: PackSink, snapshot: Snapshot, checkpoint: Checkpoint, contents: Contents) -> None:
        """Look for secrets in what is new, after the commit point."""
        from holdfast.workspace.secrets import SecretScan, scan_quietly  # start-up cost: most saves find no change

        scan = SecretScan(self._repository)

        def files() -> Iterator[tuple[str, bytes, int]]:
            for folder, place in snapshot.listing.pending:
                if folder.holds(place) and stat.S_ISREG(folder.rows[WIDTH * place + MODE]):
                    path = join(folder.path, folder.names[place])
                    yield path, folder.content(place), folder.rows[WIDTH * place + SIZE]

        scan_quietly(
            lambda: scan.after_save(checkpoint, contents, files, sink.writer.added, self._scanner.tracked_files())
        )

    def _changes(
        self, reader: TreeReader, checkpoint: Checkpoint, head: Checkpoint | None, snapshot: Snapshot
    ) -> list[str] | None:
        """Return the paths that differ from the parent, as lists show it; None stands for all of them."""
        if head is None:
            return None
        parent = head if head.operation is None else self._repository.shown_parent(checkpoint) or head
        try:
            before = self._repository.contents(parent).root
            known = snapshot.changed_since(before)
            return files_changed(reader.diff(before, snapshot.root)) if known is None else known
        except (Damaged, NotFound):
            return None


def _unlabelled(checkpoint_id: str, operation: Operation) -> Checkpoint:
    return Checkpoint(checkpoint_id, "", datetime.fromtimestamp(0, UTC), operation=operation)
