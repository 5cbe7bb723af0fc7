"""Saving: one snapshot, one pack, one ref.

Order of writes (P3): the pack and its index, synced; the ref, synced (the commit point); the catalog and the scan
cache, which can be made again. A crash before the ref leaves a pack that nothing names, and no checkpoint.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from holdfast.errors import Conflict, Damaged, NotFound, Refused
from holdfast.model import JSON, Checkpoint, Operation, Progress
from holdfast.shadowgit import EMPTY_TREE, Kind, PackWriter, object_id
from holdfast.workspace.capture.scanner import Scanner
from holdfast.workspace.capture.snapshot import Snapshot
from holdfast.workspace.stored.gathering import Gathering
from holdfast.workspace.stored.ids import check_name, new_id
from holdfast.workspace.stored.jsonlike import as_json
from holdfast.workspace.stored.record import Contents, encode_record, encode_uncovered, to_json, write_commit
from holdfast.workspace.stored.repository import Repository, content_key
from holdfast.workspace.stored.state import write_state
from holdfast.workspace.stored.tree import TreeReader, files_changed


class Details(NamedTuple):
    """What goes with the files, told only once it is known that they changed."""

    state: Mapping[str, JSON]
    metadata: Mapping[str, JSON]


class Saver:
    """Makes checkpoints of one workspace. Everything needs the store's lock."""

    def __init__(self, repository: Repository, scanner: Scanner, clock: Callable[[], datetime]) -> None:
        self._repository = repository
        self._scanner = scanner
        self._clock = clock
        self._durable_head = ""  # the checkpoint that this process knows to be on the medium

    def save(
        self,
        label: Checkpoint,
        *,
        state: Mapping[str, JSON] | None,
        allow_empty: bool,
        rehash: bool,
        progress: Progress | None,
        include: Sequence[str] = (),
    ) -> Checkpoint:
        """Save what is there under a label (whose id, sequence, time and parent are filled in here)."""
        if label.name is not None and self._repository.catalog.by_name(label.name) is not None:
            raise Conflict(f"a checkpoint is named {label.name!r} already", hint="Choose another name.")
        head = self._repository.head()
        writer = self._repository.objects.writer()
        gathering = Gathering(self._repository.objects, writer)
        try:
            snapshot, remember = self._scanner.take(gathering, head=head, rehash=rehash, progress=progress)
            if force := self._left_out(include, snapshot, gathering):  # not how others look: this is not remembered
                snapshot, _ = self._scanner.take(gathering, head=head, force=force, rehash=rehash, progress=progress)
            state_tree = self._state_tree(gathering, state)
            report = encode_uncovered(snapshot.uncovered)
            if not allow_empty and label.name is None and not label.pinned:
                content = content_key(snapshot.root, object_id(Kind.BLOB, report))
                same = self._same(head, content, state_tree.hex() if state is not None else None)
                if same is not None:
                    self._leave(writer, remember)
                    return same
            checkpoint = self._publish(writer, gathering, snapshot, label, head, state_tree, report)
        except BaseException:
            writer.abort()
            raise
        self._tidy(remember)
        return checkpoint

    def save_changes(
        self, label: Checkpoint, *, details: Callable[[], Details], progress: Progress | None
    ) -> Checkpoint | None:
        """Save what is there unless it is what the head holds: then None, even if an older checkpoint differs."""
        head = self._repository.head()
        writer = self._repository.objects.writer()
        gathering = Gathering(self._repository.objects, writer)
        try:
            snapshot, remember = self._scanner.take(gathering, head=head, progress=progress)
            report = encode_uncovered(snapshot.uncovered)
            row = self._repository.catalog.by_id(head.id) if head is not None else None
            if row is not None and row.content == content_key(snapshot.root, object_id(Kind.BLOB, report)):
                self._leave(writer, remember, is_durable=row.id == self._durable_head)
                self._durable_head = row.id
                return None
            state, metadata = details()
            label = replace(label, metadata=_checked_metadata(metadata))
            state_tree = self._state_tree(gathering, state)
            checkpoint = self._publish(writer, gathering, snapshot, label, head, state_tree, report)
        except BaseException:
            writer.abort()
            raise
        self._tidy(remember)
        self._durable_head = checkpoint.id
        return checkpoint

    def _same(self, head: Checkpoint | None, content: str, state: str | None) -> Checkpoint | None:
        """The save that the folder stands at, if it holds this content (and this state, where one is given).

        Another one that happens to hold it does not do: `latest`, and what came after what, would tell another story.
        """
        catalog = self._repository.catalog
        is_save = head is not None and head.operation is None  # else it stands where an undo brought it
        row = catalog.by_id(head.id) if head is not None and is_save else catalog.nth(0)
        is_same = row is not None and row.content == content and state in (None, row.state)
        return self._repository.checkpoint(row) if row is not None and is_same else None

    def _leave(self, writer: PackWriter, remember: Callable[[], None], *, is_durable: bool = False) -> None:
        """Make no checkpoint: there is one that holds this."""
        if writer.commit():
            self._repository.objects.refresh()  # some stored copy was damaged: now there is a sound one
        if not is_durable:
            self._repository.confirm()
        with contextlib.suppress(OSError):
            remember()

    def _tidy(self, remember: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):  # the checkpoint is made; what is left only makes the next one faster
            self._repository.upkeep()
            remember()

    def _left_out(self, include: Sequence[str], snapshot: Snapshot, gathering: Gathering) -> frozenset[str]:
        """The paths that are there, and that the rules leave out."""
        reader, root = TreeReader(gathering), self._scanner.root
        missing = (path for path in include if reader.find(snapshot.root, path) is None)
        return frozenset(path for path in missing if os.path.lexists(root / path))

    def next_id(self) -> str:
        """The id of the next checkpoint, for a journal that has to name it before it is there."""
        return new_id(self._repository.next_sequence())

    def publish_safety(
        self,
        writer: PackWriter,
        gathering: Gathering,
        snapshot: Snapshot,
        operation: Operation,
        *,
        checkpoint_id: str,
        state: Mapping[str, JSON] | None,
    ) -> Checkpoint:
        """Save a snapshot that is about to be replaced. Its state is the one given, or the one saved last."""
        head = self._repository.head()
        if state is not None:
            state_tree = self._state_tree(gathering, state)
        else:
            state_tree = self._last_state(head)
        label = _unlabelled(checkpoint_id, operation)
        report = encode_uncovered(snapshot.uncovered)
        return self._publish(writer, gathering, snapshot, label, head, state_tree, report)

    def now_ns(self) -> int:
        """The time, for a content that is made now."""
        return int(self._clock().timestamp() * 1_000_000_000)

    def publish_without(
        self,
        writer: PackWriter,
        gathering: Gathering,
        snapshot: Snapshot,
        operation: Operation,
        *,
        message: str,
        metadata: Mapping[str, JSON],
        rules: bytes,
    ) -> Checkpoint:
        """Save what a folder would be, for a restore to go to. It says nothing of what the folder is."""
        head = self._repository.head()
        label = replace(_unlabelled("", operation), message=message, metadata=metadata)
        report = encode_uncovered(snapshot.uncovered)
        return self._publish(writer, gathering, snapshot, label, head, self._last_state(head), report, rules)

    def _state_tree(self, gathering: Gathering, state: Mapping[str, Any] | None) -> bytes:
        return write_state(gathering, state, self._repository.spelling) if state else EMPTY_TREE

    def _last_state(self, head: Checkpoint | None) -> bytes:
        if head is None:
            return EMPTY_TREE
        try:
            return self._repository.contents(head).state
        except (Damaged, NotFound):
            return EMPTY_TREE

    def _publish(
        self,
        writer: PackWriter,
        gathering: Gathering,
        snapshot: Snapshot,
        label: Checkpoint,
        head: Checkpoint | None,
        state_tree: bytes,
        report: bytes,
        rules: bytes | None = None,
    ) -> Checkpoint:
        sequence = self._repository.next_sequence()
        checkpoint = replace(
            label,
            id=label.id or new_id(sequence),
            sequence=sequence,
            timestamp=self._clock().astimezone(UTC),
            parent=head.id if head else None,
            complete=snapshot.complete,
            quiet=snapshot.quiet,
        )
        contents = Contents(
            root=snapshot.root,
            state=state_tree,
            record=gathering.add(Kind.BLOB, encode_record(checkpoint)),
            changes=gathering.add(Kind.BLOB, to_json(self._changes(gathering, head, snapshot))),
            uncovered=gathering.add(Kind.BLOB, report),
            rules=gathering.add(Kind.BLOB, self._scanner.frozen_rules(snapshot) if rules is None else rules),
        )
        commit = write_commit(gathering, checkpoint, contents)
        self._repository.publish(writer, checkpoint, contents, commit)
        return replace(checkpoint, commit=commit.hex(), _lazy=self._repository)

    def _changes(self, gathering: Gathering, head: Checkpoint | None, snapshot: Snapshot) -> list[str] | None:
        """The paths that differ from the parent; None stands for all of them."""
        if head is None:
            return None
        try:
            before = self._repository.contents(head).root
            known = snapshot.changed_since(before)
            return files_changed(TreeReader(gathering).diff(before, snapshot.root)) if known is None else known
        except (Damaged, NotFound):
            return None


def _unlabelled(checkpoint_id: str, operation: Operation) -> Checkpoint:
    return Checkpoint(checkpoint_id, 0, "", datetime.fromtimestamp(0, UTC), operation=operation)


def make_label(
    message: str,
    *,
    session: str | None,
    actor: str | None,
    step: int | None,
    metadata: Mapping[str, JSON] | None,
    name: str | None,
    pinned: bool,
) -> Checkpoint:
    """Check what a caller says of a checkpoint. Refused if it cannot be written down."""
    if name is not None:
        check_name(name)
    for what, value in (("message", message), ("session", session), ("actor", actor)):
        if value is not None and not isinstance(value, str):
            raise Refused(f"{what} is not text", hint=f"It is of type {type(value).__name__}.")
    if step is not None and (not isinstance(step, int) or isinstance(step, bool)):
        raise Refused("step is not a whole number", hint=f"It is of type {type(step).__name__}.")
    if not isinstance(pinned, bool):
        raise Refused("pinned is neither True nor False", hint=f"It is of type {type(pinned).__name__}.")
    checked = _checked_metadata(metadata)
    return Checkpoint(
        id="",
        sequence=0,
        message=message,
        timestamp=datetime.fromtimestamp(0, UTC),
        name=name,
        session=session,
        actor=actor,
        step=step,
        metadata=checked,
        pinned=pinned,
    )


def _checked_metadata(metadata: Mapping[str, JSON] | None) -> Mapping[str, JSON]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise Refused("metadata is not a mapping", hint=f"It is of type {type(metadata).__name__}.")
    checked: Mapping[str, JSON] = as_json(dict(metadata or {}), "metadata")
    return checked
