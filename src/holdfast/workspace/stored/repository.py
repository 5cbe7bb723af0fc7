"""Checkpoints in a store: found by reference, written, deleted. Knows nothing of the folder they are of."""

from __future__ import annotations

import contextlib
import json
import os
import weakref
from collections.abc import Callable, Container, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast import durable
from holdfast.errors import Conflict, Damaged, NotFound, Refused, Unavailable
from holdfast.model import JSON, Checkpoint
from holdfast.shadowgit.refs import Refs
from holdfast.workspace.stored.catalog import Catalog, Row
from holdfast.workspace.stored.holds import Holds
from holdfast.workspace.stored.ids import greatest_sequence, looks_like_id, parse_latest, sequence_of
from holdfast.workspace.stored.record import Contents, Node, decode_record, decode_uncovered, read_contents
from holdfast.workspace.stored.spelling import Spelling

if TYPE_CHECKING:
    from holdfast.model import Uncovered
    from holdfast.shadowgit import ObjectStore, PackWriter

WITHOUT = "without"
"""The verb of a checkpoint that holds the folder without what an agent did, for a restore to go to."""
T = TypeVar("T")
_FAR_AHEAD = 1000
_SLACK_BYTES = 64 << 10  # an index, and what the catalog needs meanwhile
_LOOKS = 8
_LEAVES = ("found", WITHOUT)  # what these say of a folder has not become of it


class History(NamedTuple):
    """Restores that can be undone and redone, oldest first; each is the safety checkpoint taken before it."""

    done: list[Checkpoint]
    undone: list[Checkpoint]


class Repository:
    """The checkpoints of one store."""

    def __init__(self, folder: Path, spelling: Spelling | None = None) -> None:
        """`spelling`: how the values of states are stored and made again."""
        self.folder = folder
        self.spelling = spelling or Spelling()
        self.own = folder / "holdfast"
        self._refs = Refs(folder)
        this = weakref.proxy(self)  # no cycle of references: a repository that is dropped closes its files at once
        self.catalog = Catalog(
            self.own / "catalog.db",
            self._refs.ref_marks,
            lambda checkpoint_id: this.load_row(checkpoint_id),
            self._refs.refs_status,
        )
        self.lock = durable.Lock(self.own / "lock")
        self.holds = Holds(self.own / "held")

    @cached_property
    def objects(self) -> ObjectStore:
        """What the checkpoints are made of, and the refs that can be written."""
        from holdfast.shadowgit import ObjectStore  # start-up cost: a list of checkpoints needs the refs alone

        return ObjectStore(self.folder)

    def close(self) -> None:
        """Close the files of the store; whoever reads again opens them again."""
        if "objects" in self.__dict__:
            self.objects.close()

    @property
    def exists(self) -> bool:
        return self._refs.exists

    @property
    def purge_journal(self) -> Path:
        """There while a purge is under way."""
        return self.own / "purge.json"

    @property
    def is_purging(self) -> bool:
        """Whether a purge is under way, or was interrupted."""
        return self.purge_journal.exists()

    def sweep(self) -> None:
        """Remove what writers that died left behind. Needs the lock."""
        self.objects.sweep()
        self.holds.sweep()
        for folder in (self.folder, self.own):
            for name in os.listdir(folder):
                if name.endswith(".new") or name == "new-ref":
                    durable.disk().unlink(str(folder / name))

    def sync(self) -> None:
        """Make the catalog agree with the refs."""
        self.catalog.sync()

    def consistently(self, look: Callable[[], T]) -> T:
        """Look at several things without a lock. If that fails, look again with a fresh catalog; and again, as long as
        others delete, rewrite or merge meanwhile."""
        for attempt in range(_LOOKS):
            before = self._outside()
            try:
                return look()
            except (Damaged, NotFound, FileNotFoundError):
                if attempt and self._outside() == before:
                    raise
            self.objects.refresh()
            self.sync()
        return look()

    def _outside(self) -> tuple[dict[str, str], list[str]]:
        """What changes when others write."""
        return self.objects.ref_marks(), sorted(os.listdir(self.objects.pack_folder))

    # finding

    def find(self, ref: str) -> Checkpoint:
        """A checkpoint by id, unique prefix, name, `latest` or `latest~N`. NotFound, or Conflict if ambiguous."""
        if not isinstance(ref, str):
            raise Refused(f"a checkpoint is named by text, not by {type(ref).__name__}", hint="Pass its id.")
        row = self._find_row(ref) if ref.isprintable() else None
        if row is None:
            from holdfast.workspace.stored.absent import absence  # start-up cost, for what is not found only

            raise absence(ref, self.catalog, floor=self._known_floor())
        return self.checkpoint(row)

    def page_end(self, ref: str) -> str:
        """The id before which a page of the list begins; it need not be there any more."""
        return ref if isinstance(ref, str) and sequence_of(ref) is not None else self.find(ref).id

    def _find_row(self, ref: str) -> Row | None:
        latest = parse_latest(ref)
        if latest is not None:
            return self.catalog.nth(latest.back)
        row = self.catalog.by_id(ref) or (None if looks_like_id(ref) else self.catalog.by_name(ref))
        if row is not None or not ref:
            return row
        rows = self.catalog.by_prefix(ref)
        if len(rows) > 1:
            some = ", ".join(row.id for row in rows[:3]) + (", …" if len(rows) > 3 else "")
            raise Conflict(f"{ref!r} is the beginning of several checkpoints: {some}", hint="Give more of the id.")
        return rows[0] if rows else None

    def checkpoint(self, row: Row) -> Checkpoint:
        """A checkpoint from its row."""
        return decode_record(row.record.encode(), commit=row.commit, lazy=self)

    def contents(self, checkpoint: Checkpoint) -> Contents:
        """The parts of a checkpoint, read through its ref."""
        return read_contents(self.objects, self.objects.commit(self.objects.ref(checkpoint.id)))

    def head(self) -> Checkpoint | None:
        """The checkpoint that the folder was last made equal to."""
        row = self.catalog.greatest()
        newest = self.checkpoint(row) if row else None
        if newest is None or newest.operation is None:
            return newest
        operation = newest.operation
        moved = operation.paths is None and operation.verb not in _LEAVES
        row = self.catalog.by_id(operation.target if moved else newest.parent or "")
        row = row or self.catalog.nth(0)
        return self.checkpoint(row) if row else None

    def history(self) -> History:
        """What can be undone and redone, from the safety checkpoints in order (P10)."""
        done: list[Checkpoint] = []
        undone: list[Checkpoint] = []
        for row in self.catalog.operations():
            checkpoint = self.checkpoint(row)
            verb, target = (
                (checkpoint.operation.verb, checkpoint.operation.target) if checkpoint.operation else ("", "")
            )
            if verb == "restore":
                done.append(checkpoint)
                undone.clear()
            elif verb == "undo":
                done = [other for other in done if other.id != target]
                undone.append(checkpoint)
            elif verb == "redo":
                undone = [other for other in undone if other.id != target]
                done.append(checkpoint)
        return History(done, undone)

    # parts that are read when they are asked for

    def state(self, checkpoint: Checkpoint) -> dict[str, JSON]:
        from holdfast.shadowgit import EMPTY_TREE
        from holdfast.workspace.stored.state import read_state

        tree = self.contents(checkpoint).state
        return {} if tree == EMPTY_TREE else read_state(self.objects, tree, self.spelling)

    def one_state(self, checkpoint: Checkpoint, name: str) -> JSON:
        """The value of one state; NotFound if there is none of that name. The others are not read."""
        from holdfast.shadowgit import EMPTY_TREE
        from holdfast.workspace.stored.state import read_one, state_names

        tree = self.contents(checkpoint).state
        entries = {} if tree == EMPTY_TREE else state_names(self.objects, tree)
        if name not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise NotFound(f"{checkpoint.id.partition('-')[0]} has no state {name!r}", hint=f"It has: {known}.")
        return read_one(self.objects, entries[name], self.spelling)

    def files_changed(self, checkpoint: Checkpoint) -> list[str]:
        contents = self.contents(checkpoint)
        changes = json.loads(self.objects.blob(contents.changes))
        if changes is not None:
            return list(changes)
        from holdfast.workspace.stored.tree import TreeReader

        everything = TreeReader(self.objects).walk(contents.root)
        return sorted(path for path, entry in everything if not entry.is_folder)

    def uncovered(self, checkpoint: Checkpoint) -> tuple[Uncovered, ...]:
        return decode_uncovered(self.objects.blob(self.contents(checkpoint).uncovered))

    def rules(self, contents: Contents) -> Mapping[str, JSON]:
        """The frozen rules of a checkpoint."""
        found = json.loads(self.objects.blob(contents.rules))
        if not isinstance(found, dict):
            raise Damaged("the rules of a checkpoint cannot be read", hint="Run `holdfast verify`.")
        return found

    # writing; all of it needs the lock

    def next_sequence(self) -> int:
        """One more than any checkpoint has, or ever had (P10)."""
        return max(greatest_sequence(self.objects.ref_names()), self._floor()) + 1

    def publish(self, writer: PackWriter, checkpoint: Checkpoint, contents: Contents, commit: bytes) -> None:
        """Make a checkpoint exist: its objects, then its ref (the commit point), then the catalog."""
        pack = writer.commit()
        try:
            self.objects.set_ref(checkpoint.id, commit)
        except OSError:
            with contextlib.suppress(OSError):
                self.objects.delete_ref(checkpoint.id)  # a failed save never yields an id, nor costs disk (P4)
                if pack is not None:
                    writer.withdraw(pack)
            raise
        self.objects.refresh()
        self.catalog.add(_row(checkpoint, contents, commit.hex(), self.objects), self.objects.ref_mark(checkpoint.id))

    def replace(self, writer: PackWriter, checkpoint: Checkpoint, contents: Contents, commit: bytes) -> None:
        """Give a checkpoint another commit under its id: objects, then the ref (the commit point), then the catalog.

        On an error the ref is as it was, if the disk lets it be.
        """
        before = self.objects.ref(checkpoint.id)
        pack = writer.commit()
        try:
            self.objects.set_ref(checkpoint.id, commit)
        except OSError:
            with contextlib.suppress(OSError):
                self.objects.set_ref(checkpoint.id, before)
                if pack is not None:
                    writer.withdraw(pack)
            raise
        self.objects.refresh()
        self.catalog.add(_row(checkpoint, contents, commit.hex(), self.objects), self.objects.ref_mark(checkpoint.id))

    def confirm(self) -> None:
        """Make the refs durable that a process may have died over, before one of them is answered with."""
        self.objects.sync_refs()

    def has(self, checkpoint_id: str) -> bool:
        """Whether there is a checkpoint with this very id, readable or not."""
        return checkpoint_id in self.objects.ref_names()

    def delete(self, *checkpoints: Checkpoint) -> None:
        """Take checkpoints away. Their numbers are remembered first, so that no other ever gets one.

        Where a later one stays, that one remembers: deleting older ones needs no room on the disk.
        Safety checkpoints go one by one, in the order given: what can be undone is told from those that are left.
        """
        greatest = max((checkpoint.sequence for checkpoint in checkpoints), default=0)
        left = self.objects.ref_names() - {checkpoint.id for checkpoint in checkpoints}
        if greatest > max(self._floor(), greatest_sequence(left)):
            durable.write_atomically(self.own / "sequence", b"%d\n" % greatest)
        for checkpoint in checkpoints:
            if checkpoint.operation is not None:
                self.objects.delete_ref(checkpoint.id)
        self.objects.delete_ref(*(checkpoint.id for checkpoint in checkpoints if checkpoint.operation is None))
        self.catalog.remove(*(checkpoint.id for checkpoint in checkpoints))

    def withdraw(self, safety: str) -> None:
        """Take away the safety checkpoint of a restore that did not take place, if any. Needs no room on the disk."""
        self.objects.delete_ref(safety)
        self.catalog.remove(safety)

    def upkeep(self) -> None:
        """Merge packs that have accumulated."""
        from holdfast.shadowgit import merge_packs, packs_due

        due = packs_due(self.objects.packs())
        if len(due) > 1:
            merge_packs(self.objects, due)

    def needed(self, *, without: Container[str] = ()) -> set[bytes]:
        """Every object that some ref needs, once some checkpoints are gone. Damaged if that cannot be told."""
        from holdfast.shadowgit import reachable

        return reachable(self.objects, self.objects.commits(without=without))

    def merge(self, needed: Container[bytes] | None = None) -> int:
        """Merge all packs, without what is not needed; how many bytes of that stay, for want of room to copy the rest.
        Damaged, and nothing changed, if it cannot be told what is needed."""
        from holdfast.shadowgit import free_unneeded

        return free_unneeded(self.objects, self.needed() if needed is None else needed)

    def has_room_for_all(self) -> bool:
        """Whether the disk has room for a copy of all packs."""
        return self._free_bytes() > sum(pack.size_bytes for pack in self.objects.packs()) + _SLACK_BYTES

    def _free_bytes(self) -> int:
        room = os.statvfs(self.objects.pack_folder)
        return room.f_bavail * room.f_frsize

    def check_room(self, needed: Container[bytes], what: str, *, every: bool = False) -> None:
        """Unavailable if the disk is so full that nothing, or not `every` thing, could be freed that is not needed: to
        be asked before anything is deleted (P3)."""
        from holdfast.shadowgit import room_needed

        least, free = room_needed(self.objects.packs(), needed, every=every), self._free_bytes()
        if least and least + _SLACK_BYTES > free:
            raise Unavailable(
                f"{what}: freeing disk needs {least + _SLACK_BYTES:,} bytes of room, and {free:,} are free",
                hint=f"Make room on the disk of {self.folder}, then try again.",
            )

    def _known_floor(self) -> int:
        """The greatest number that a deleted checkpoint had; 0 if that cannot be told."""
        try:
            return int((self.own / "sequence").read_bytes())
        except (OSError, ValueError):
            return 0

    def _floor(self) -> int:
        try:
            return int((self.own / "sequence").read_bytes())
        except FileNotFoundError:
            return 0
        except ValueError:  # damaged: go far ahead of anything that could have been deleted, once
            greatest = greatest_sequence(self.objects.ref_names())
            durable.write_atomically(self.own / "sequence", b"%d\n" % (greatest + _FAR_AHEAD))
            return greatest + _FAR_AHEAD

    def load_row(self, checkpoint_id: str) -> Row | None:
        """A checkpoint as the catalog should have it, read from its commit; None if it cannot be."""
        try:
            commit = self.objects.ref(checkpoint_id)
            contents = read_contents(self.objects, self.objects.commit(commit))
            data = self.objects.blob(contents.record)
            checkpoint = decode_record(data, commit=commit.hex(), lazy=None)
        except (Damaged, NotFound):
            return None  # `verify` names it
        return _row(checkpoint, contents, commit.hex(), self.objects) if checkpoint.id == checkpoint_id else None


def content_key(root: Node, uncovered: bytes) -> str:
    """Equal for checkpoints that hold the same files, exactly."""
    return f"{root.tree.hex()}{root.attrs.hex()}{uncovered.hex()}"


def plain_text(text: str | None) -> str | None:
    """A text as SQLite can hold it: half a character becomes an escape."""
    return text if text is None else text.encode("utf-8", "backslashreplace").decode()


def _row(checkpoint: Checkpoint, contents: Contents, commit: str, objects: ObjectStore) -> Row:
    return Row(
        id=checkpoint.id,
        sequence=checkpoint.sequence,
        name=checkpoint.name,
        session=plain_text(checkpoint.session),
        message=plain_text(checkpoint.message) or "",
        timestamp=checkpoint.timestamp.isoformat(),
        safety=checkpoint.operation is not None,
        commit=commit,
        content=content_key(contents.root, contents.uncovered),
        state=contents.state.hex(),
        record=objects.blob(contents.record).decode(),
    )


def store_bytes(folder: Path) -> int:
    """How much disk a store takes."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # SQLite's own files come and go with every reader
                total += os.lstat(os.path.join(where, name)).st_blocks * 512
    return total
