"""Importing: a checkpoint of another store, files and state, as a new one of this store.

Order of writes (P3): a pack of what is not here yet, synced; then, as in a save, the record and the ref, which is the
commit point. A crash before that leaves a pack that nothing names, and no checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from holdfast.errors import Damaged, NotFound
from holdfast.model import Checkpoint
from holdfast.shadowgit import Kind, decode_commit, reachable
from holdfast.workspace.stored.ids import new_id
from holdfast.workspace.stored.record import Contents, encode_record, to_json, write_commit
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import TreeReader, files_changed


def import_checkpoint(
    repository: Repository, source: Repository, found: Checkpoint, label: Checkpoint, now: datetime
) -> Checkpoint:
    """Take a checkpoint over under a label of its own. Needs the lock of `repository`, and none of `source`."""
    contents = source.contents(found)
    _copy(repository, source, found, contents)
    sequence, head = repository.next_sequence(), repository.head()
    checkpoint = replace(
        label,
        id=new_id(sequence),
        sequence=sequence,
        timestamp=now.astimezone(UTC),
        parent=head.id if head else None,
        complete=found.complete,
        quiet=found.quiet,
        purged=found.purged,
    )
    writer = repository.objects.writer()
    try:
        record = writer.add(Kind.BLOB, encode_record(checkpoint))
        changes = writer.add(Kind.BLOB, to_json(_changes(repository, head, contents)))
        contents = contents._replace(record=record, changes=changes)
        commit = write_commit(writer, checkpoint, contents)
        repository.publish(writer, checkpoint, contents, commit)
    except BaseException:
        writer.abort()
        raise
    return replace(checkpoint, commit=commit.hex(), _lazy=repository)


def _copy(repository: Repository, source: Repository, found: Checkpoint, contents: Contents) -> None:
    """Bring the objects that are not here, each checked against its name as it is read."""
    writer = repository.objects.writer()
    try:
        for oid in _needed(source, found, contents):
            if not writer.holds(oid):
                writer.add(*source.objects.read(oid))
        writer.commit()
    except BaseException:
        writer.abort()
        raise
    repository.objects.refresh()


def _needed(source: Repository, found: Checkpoint, contents: Contents) -> Iterator[bytes]:
    """Everything of a checkpoint but its record, which is written anew."""
    commit = source.objects.ref(found.id)
    own = {commit, decode_commit(source.objects.commit(commit)), contents.record}
    return (oid for oid in sorted(reachable(source.objects, [commit])) if oid not in own)


def _changes(repository: Repository, head: Checkpoint | None, contents: Contents) -> list[str] | None:
    """The paths that differ from the parent; None stands for all of them."""
    if head is None:
        return None
    try:
        before = repository.contents(head).root
        return files_changed(TreeReader(repository.objects).diff(before, contents.root))
    except (Damaged, NotFound):
        return None
