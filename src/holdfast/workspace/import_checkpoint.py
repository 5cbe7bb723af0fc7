"""Importing a checkpoint of another store, files and state, as a new one of this store.

Order of writes (P3): a pack of the missing objects, synced; then, as in a save, the record and the ref, which is the
commit point. A crash before that leaves a pack that nothing refers to, and no checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from holdfast.errors import Damaged, NotFound
from holdfast.model import Checkpoint
from holdfast.shadowgit import ObjectKind, decode_commit, reachable
from holdfast.workspace.stored.ids import new_id
from holdfast.workspace.stored.object_sink import PackSink
from holdfast.workspace.stored.record import Contents, encode_record, to_json, write_commit
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import TreeReader, files_changed


def import_checkpoint(
    repository: Repository, source: Repository, found: Checkpoint, label: Checkpoint, now: datetime
) -> Checkpoint:
    """Copy a checkpoint under a new label. Needs the lock of `repository`, and none of `source`."""
    contents = source.contents(found)
    _copy(repository, source, found, contents)
    sequence, head = repository.next_sequence(), repository.head()
    checkpoint = label.replace(
        id=new_id(sequence),
        sequence=sequence,
        timestamp=now.astimezone(UTC),
        parent=head.id if head else None,
        complete=found.complete,
        quiet=found.quiet,
        purged=found.purged,
    )
    with PackSink(repository.objects) as sink:
        record = sink.add(ObjectKind.BLOB, encode_record(checkpoint))
        changes = sink.add(ObjectKind.BLOB, to_json(_changes(repository, head, contents)))
        contents = contents._replace(record=record, changes=changes)
        commit = write_commit(sink, checkpoint, contents)
        repository.publish(sink.writer, checkpoint, contents, commit)
    return checkpoint.replace(commit=commit.hex(), is_new=True, _lazy=repository)


def _copy(repository: Repository, source: Repository, found: Checkpoint, contents: Contents) -> None:
    """Copy the missing objects; each is verified against its id when it is read (P7)."""
    with PackSink(repository.objects) as sink:
        for oid in _needed(source, found, contents):
            if not sink.writer.holds(oid):
                sink.writer.add(*source.objects.read(oid))  # not `sink.add`, which keeps every object in memory
        sink.writer.commit()
    repository.objects.refresh()


def _needed(source: Repository, found: Checkpoint, contents: Contents) -> Iterator[bytes]:
    """Yield all objects of a checkpoint except its record, which is rewritten."""
    commit = source.objects.ref(found.id)
    own = {commit, decode_commit(source.objects.commit(commit)), contents.record}
    return (oid for oid in sorted(reachable(source.objects, [commit])) if oid not in own)


def _changes(repository: Repository, head: Checkpoint | None, contents: Contents) -> list[str] | None:
    """Return the paths that differ from the parent; None stands for all of them."""
    if head is None:
        return None
    try:
        before = repository.contents(head).root
        return files_changed(TreeReader(repository.objects).diff(before, contents.root))
    except (Damaged, NotFound):
        return None
