"""`Repository`: finds, writes and deletes checkpoints in a store. Does not know the workspace folder."""

from __future__ import annotations

import contextlib
import os
import re
import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from holdfast import durable
from holdfast.errors import Conflict, Damaged, NotFound, Refused, Remedy, Unavailable
from holdfast.model import JSON, Checkpoint, CheckpointRef
from holdfast.model.documents import short
from holdfast.shadowgit.refs import Refs
from holdfast.workspace.stored.catalog import Catalog, Row
from holdfast.workspace.stored.ids import greatest_sequence, looks_like_id, parse_latest, sequence_of, stored_prefix
from holdfast.workspace.stored.record import (
    Contents,
    Node,
    decode_changes,
    decode_record,
    decode_rules,
    decode_uncovered,
    read_contents,
)
from holdfast.workspace.stored.state_json import Spelling

if TYPE_CHECKING:
    from holdfast.model import Uncovered
    from holdfast.shadowgit import ObjectStore, PackWriter
    from holdfast.times import Span
    from holdfast.workspace.stored.undo_stack import UndoStack


LAST_GREEN = "last-green"
"""The reference to the newest save that passed its check."""
AT = "@"
"""The beginning of a reference by time."""
WITHOUT = "without"
"""The verb of a checkpoint that is the target of an agent's undo: the folder without its changes."""
REVERT = "revert"
"""The verb of a checkpoint that is the target of a revert: the folder without chosen changes."""
BISECT_NOTE = "bisect"
"""A file of the store while a bisection runs in the workspace: the id of the checkpoint to bring back."""
SECRETS = "secrets.json"
UNSCANNED = "unscanned"
"""Files of the store, if there is something to note: the secrets in checkpoints, and those not scanned for them."""
THINNING = "thinning"
"""The folder in which packs are copied without the store's lock, and its lock."""
GIT_WORK = "git-work"
"""The folder in which the git program works on objects of the user's git, and its lock."""
GIT_PURGE = "git-purge"
"""The folder in which a purge reads packs of the user's git, and its lock."""
T = TypeVar("T")
_FAR_AHEAD = 1000
_SLACK_BYTES = 64 << 10  # for an index, and for the catalog
_LOOKS = 8
_SHOWN_MAX_CHARS = 100
_OF_THE_USER = (None, "", "user")  # actors
_LEAVES = ("found", WITHOUT, REVERT)  # these do not become the head: the folder was never equal to them


class Repository:
    """The checkpoints of one store."""

    def __init__(
        self, folder: Path, spelling: Spelling | None = None, parse_time: Callable[[str], Span] | None = None
    ) -> None:
        """`spelling`: how the values of states are stored and read. `parse_time`: with a clock and a time zone, for
        references such as `@10m`; None: there are none."""
        self._parse_time = parse_time
        self.folder = folder
        self.spelling = spelling or Spelling()
        self.own = folder / "holdfast"
        self._refs = Refs(folder)
        this = weakref.proxy(self)  # no reference cycle, so that a dropped repository closes its files at once
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
        """The objects of the checkpoints, and their refs."""
        from holdfast.shadowgit import ObjectStore  # start-up cost: listing checkpoints needs only the refs

        return ObjectStore(self.folder)

    def close(self) -> None:
        """Close the files of the store; a later read opens them again."""
        if "objects" in self.__dict__:
            self.objects.close()

    @property
    def exists(self) -> bool:
        return self._refs.exists

    def ref_count(self) -> int:
        """Return how many checkpoints there are, safety checkpoints included; only the refs are looked at."""
        return len(self._refs.ref_names())

    @property
    def purge_journal(self) -> Path:
        """The journal of a purge; it exists while one is unfinished."""
        return self.own / "purge.json"

    def knows_secrets(self) -> bool:
        """Whether something is noted about secrets in checkpoints: some were found, or a scan is pending."""
        return any((self.own / name).exists() for name in (SECRETS, UNSCANNED))

    @property
    def is_purging(self) -> bool:
        """Whether a purge is running, or was interrupted."""
        return self.purge_journal.exists()

    def sweep(self) -> None:
        """Remove temporary files of dead writers (P9). Needs the lock."""
        self.objects.sweep()
        self.holds.sweep()
        if (self.own / THINNING).exists() and _is_free(self.own / f"{THINNING}.lock"):
            self.sweep_thinning()
        if (self.own / GIT_WORK).exists() and _is_free(self.own / f"{GIT_WORK}.lock"):
            self._sweep_git_work()
        if (self.own / GIT_PURGE).exists() and _is_free(self.own / f"{GIT_PURGE}.lock"):
            durable.remove_tree(str(self.own / GIT_PURGE))  # it has what was to be purged
        for folder in (self.folder, self.own):
            for name in os.listdir(folder):
                if name.endswith(".new") or name == "new-ref":
                    durable.disk().unlink(str(folder / name))

    def sweep_thinning(self) -> None:
        """Remove copies of packs that were not used, and packs that were replaced. Call it only while no other process
        can be thinning."""
        with contextlib.suppress(FileNotFoundError):
            durable.remove_tree(str(self.own / THINNING))

    def git_lock(self) -> durable.Lock:
        """Return the lock of the process that works with the git program in the folder of `git_work`."""
        return durable.Lock(self.own / f"{GIT_WORK}.lock")

    @contextlib.contextmanager
    def git_work(self, lock: durable.Lock) -> Iterator[Path]:
        """Have an empty folder in which the git program works; then remove it, and release `git_lock`."""
        try:
            yield self.new_git_work()
        finally:
            try:
                self._sweep_git_work()
            finally:  # whatever the disk says: this process may live long, and nobody else could hold anything
                lock.release()

    def new_git_work(self) -> Path:
        """Empty the folder in which the git program works; for the process that has it."""
        self._sweep_git_work()
        durable.make_folder(self.own / GIT_WORK)
        return self.own / GIT_WORK

    def _sweep_git_work(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            durable.remove_tree(str(self.own / GIT_WORK))

    def sync(self) -> None:
        """Make the catalog agree with the refs."""
        self.catalog.sync()

    def consistently(self, look: Callable[[], T]) -> T:
        """Read several things without a lock (P9). If that fails, try again with a fresh catalog as long as other
        processes delete, rewrite or merge meanwhile."""
        for attempt in range(_LOOKS):
            before = self._outside() if attempt else None  # it reads the name of every ref; the first try needs none
            try:
                return look()
            except (Damaged, NotFound, FileNotFoundError):
                if attempt and self._outside() == before:
                    raise
            self.objects.refresh()
            self.sync()
        return look()

    def _outside(self) -> tuple[dict[str, str], list[str]]:
        """Return what changes when another process writes."""
        return self.objects.ref_marks(), sorted(os.listdir(self.objects.pack_folder))

    # finding

    def find(self, ref: CheckpointRef) -> Checkpoint:
        """Find a checkpoint by id, unique prefix, name, `latest`, `latest~N`, `last-green` or `@TIME`.

        Given a checkpoint, return it as it is stored now. NotFound, or Conflict if it is ambiguous.
        """
        text = _text_of(ref)
        row = self._find_row(text) if text.isprintable() else None
        if row is None:
            raise _not_found(text, self.catalog, floor=self._known_floor())
        return self.checkpoint(row)

    def page_end(self, ref: CheckpointRef) -> str:
        """Return the id before which a page of a list begins; the checkpoint may be deleted."""
        text = _text_of(ref)
        return text if sequence_of(text) is not None else stored_prefix(text) or self.find(text).id

    def _find_row(self, ref: str) -> Row | None:
        latest = parse_latest(ref)
        if latest is not None:
            return self.catalog.nth(latest.back)
        row = self.catalog.by_id(ref) or (None if looks_like_id(ref) else self.catalog.by_name(ref))
        if row is not None or not ref:
            return row
        if ref == LAST_GREEN:
            return self.catalog.last_green()
        if ref.startswith(AT) and self._parse_time is not None:
            return self._at(ref, self._parse_time)
        rows = self.catalog.by_prefix(stored_prefix(ref) or ref)
        if len(rows) > 1:
            some = ", ".join(row.id for row in rows[:3]) + (", …" if len(rows) > 3 else "")
            raise Conflict(f"{ref!r} is ambiguous: {some}", hint="Give more of the id.")
        return rows[0] if rows else None

    def _at(self, ref: str, parse_time: Callable[[str], Span]) -> Row:
        """Return the newest save that is not later than `@TIME`. NotFound if all are later, or if that is no time."""
        try:
            moment = parse_time(ref.removeprefix(AT)).end
        except Refused as error:
            raise NotFound(f"there is no checkpoint {_shown(ref)}: {error.message}", hint=error.advice) from None
        row, oldest = self.catalog.at(moment.isoformat()), self.catalog.oldest()
        if row is None and oldest is not None:
            raise NotFound(
                f"no checkpoint is as old as {_shown(ref)}",
                hint=f"The oldest, {short(oldest.id)}, was saved at {oldest.timestamp[:19]} UTC.",
            )
        if row is None:
            raise NotFound(f"there is no checkpoint {_shown(ref)}", remedy=Remedy("save_first"))
        return row

    def checkpoint(self, row: Row) -> Checkpoint:
        """Return the checkpoint of a row."""
        return decode_record(row.record.encode(), commit=row.commit, lazy=self)

    def contents(self, checkpoint: Checkpoint) -> Contents:
        """Read the parts of a checkpoint through its ref."""
        return read_contents(self.objects, self.objects.commit(self.objects.ref(checkpoint.id)))

    def head(self) -> Checkpoint | None:
        """Return the checkpoint that the folder was last equal to."""
        row = self.catalog.greatest()
        newest = self.checkpoint(row) if row else None
        if newest is None or newest.operation is None:
            return newest
        operation = newest.operation
        moved = operation.paths is None and operation.verb not in _LEAVES
        row = self.catalog.by_id(operation.target if moved else newest.parent or "")
        row = row or self.catalog.nth(0)
        return self.checkpoint(row) if row else None

    def shown_parent(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Return the checkpoint that changes are shown against; None if it is deleted.

        The parent, where an agent made the changes or where it is a safety checkpoint: what an undo changed before is
        not the agent's. Of a save of the user, the nearest ancestor that is a save: lists leave out safety checkpoints.
        """
        is_direct = checkpoint.operation is not None or checkpoint.actor not in _OF_THE_USER
        parent = checkpoint
        while row := self.catalog.by_id(parent.parent or ""):
            parent = self.checkpoint(row)
            if parent.operation is None or is_direct:
                return parent
        return None

    def undo_stack(self) -> UndoStack:
        """Return what can be undone and redone, from the safety checkpoints in order (P10)."""
        from holdfast.workspace.stored.undo_stack import undo_stack  # start-up cost: lists do without

        return undo_stack(self.checkpoint(row) for row in self.catalog.operations())

    def has_path(self, path: str) -> bool:
        """Whether any checkpoint contains a path. One that is damaged does not count."""
        from holdfast.workspace.stored.tree import TreeReader

        reader = TreeReader(self.objects)
        for row in self.catalog.newest(limit=None, session=None, safety=True):
            with contextlib.suppress(Damaged):
                if reader.find(self.contents(self.checkpoint(row)).root, path) is not None:
                    return True
        return False

    # parts that are read on demand

    def state(self, checkpoint: Checkpoint) -> dict[str, JSON]:
        from holdfast.shadowgit import EMPTY_TREE
        from holdfast.workspace.stored.state import read_state

        tree = self.contents(checkpoint).state
        return {} if tree == EMPTY_TREE else read_state(self.objects, tree, self.spelling)

    def one_state(self, checkpoint: Checkpoint, name: str) -> JSON:
        """Read the value of one state, and no other. NotFound if there is none of that name."""
        from holdfast.shadowgit import EMPTY_TREE
        from holdfast.workspace.stored.state import read_one, state_names

        tree = self.contents(checkpoint).state
        entries = {} if tree == EMPTY_TREE else state_names(self.objects, tree)
        if name not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise NotFound(f"{checkpoint.id.partition('-')[0]} has no state {name!r}", hint=f"It has: {known}.")
        return read_one(self.objects, entries[name], self.spelling)

    def files_changed(self, checkpoint: Checkpoint) -> list[str]:
        return self._files_changed(self.contents(checkpoint))

    def files_changed_in(self, row: Row) -> list[str]:
        """As `files_changed`, without the ref and the record: for many."""
        return self._files_changed(read_contents(self.objects, self.objects.commit(bytes.fromhex(row.commit))))

    def _files_changed(self, contents: Contents) -> list[str]:
        changes = decode_changes(self.objects.blob(contents.changes))
        if changes is not None:
            return changes
        from holdfast.workspace.stored.tree import TreeReader

        everything = TreeReader(self.objects).walk(contents.root)
        return sorted(path for path, entry in everything if not entry.is_folder)

    def uncovered(self, checkpoint: Checkpoint) -> tuple[Uncovered, ...]:
        return decode_uncovered(self.objects.blob(self.contents(checkpoint).uncovered))

    def rules(self, contents: Contents) -> Mapping[str, JSON]:
        """Read the ignore rules that a checkpoint stores."""
        return decode_rules(self.objects.blob(contents.rules))

    # writing; all of it needs the lock

    def next_sequence(self) -> int:
        """Return a number greater than that of any checkpoint, including deleted ones (P10)."""
        return max(greatest_sequence(self.objects.ref_names()), self._floor()) + 1

    def publish(self, writer: PackWriter, checkpoint: Checkpoint, contents: Contents, commit: bytes) -> None:
        """Publish a checkpoint: its objects, then its ref (the commit point, P3), then the catalog."""
        pack = writer.commit()
        try:
            self.objects.set_ref(checkpoint.id, commit)
        except OSError:
            with contextlib.suppress(OSError):
                self.objects.delete_ref(checkpoint.id)  # P3: a failed save leaves no ref and no pack
                if pack is not None:
                    writer.withdraw(pack)
            raise
        self.objects.refresh()
        self.catalog.add(
            row_of(checkpoint, contents, commit.hex(), self.objects.blob(contents.record)),
            self.objects.ref_mark(checkpoint.id),
        )

    def replace(self, writer: PackWriter, checkpoint: Checkpoint, contents: Contents, commit: bytes) -> None:
        """Replace the commit of a checkpoint: objects, then the ref (the commit point, P3), then the catalog.

        On an error the ref is as it was, if the disk allows it.
        """
        before = self.objects.ref(checkpoint.id)
        pack = writer.commit()
        if pack is None:  # P3: all of it is in packs that a process may have named and not synced before it died
            durable.sync_folder(self.objects.pack_folder)
        try:
            self.objects.set_ref(checkpoint.id, commit)
        except OSError:
            with contextlib.suppress(OSError):
                self.objects.set_ref(checkpoint.id, before)
                if pack is not None:
                    writer.withdraw(pack)
            raise
        self.objects.refresh()
        self.catalog.add(
            row_of(checkpoint, contents, commit.hex(), self.objects.blob(contents.record)),
            self.objects.ref_mark(checkpoint.id),
        )

    def confirm(self) -> None:
        """Sync refs that a process may have written and not synced before it died, before one is returned (P3)."""
        self.objects.sync_refs()

    def has(self, checkpoint_id: str) -> bool:
        """Whether there is a checkpoint with exactly this id, readable or not."""
        return checkpoint_id in self.objects.ref_names()

    def delete(self, *checkpoints: Checkpoint) -> None:
        """Delete checkpoints. Their greatest number is stored first, so that it is never used again (P10).

        Not if a later checkpoint stays: deleting older ones needs no disk space. Safety checkpoints are deleted one by
        one, in the given order: what can be undone follows from the remaining ones.
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
        """Delete the safety checkpoint of a restore that did not happen, if there is one. Needs no disk space."""
        self.objects.delete_ref(safety)
        self.catalog.remove(safety)

    def upkeep(self) -> None:
        """Merge packs that have accumulated."""
        from holdfast.shadowgit import merge_packs, packs_due

        due = packs_due(self.objects.packs())
        if len(due) > 1:
            merge_packs(self.objects, due)

    def needed(self, *, without: Container[str] = ()) -> set[bytes]:
        """Return every object that the refs need, without some checkpoints. Damaged if that is unknown."""
        from holdfast.shadowgit import reachable

        return reachable(self.objects, self.objects.commits(without=without))

    def merge(self, needed: Container[bytes] | None = None) -> int:
        """Merge all packs without unneeded objects; return how many unneeded bytes stay because the disk is too full.

        Damaged, and nothing changed, if it is unknown what is needed.
        """
        from holdfast.shadowgit import free_unneeded

        return free_unneeded(self.objects, self.needed() if needed is None else needed)

    def has_room_for_all(self) -> bool:
        """Whether the disk has space for a copy of all packs."""
        return self._free_bytes() > sum(pack.size_bytes for pack in self.objects.packs()) + _SLACK_BYTES

    def _free_bytes(self) -> int:
        room = os.statvfs(self.objects.pack_folder)
        return room.f_bavail * room.f_frsize

    def check_room(self, needed: Container[bytes], what: str, *, every: bool = False) -> None:
        """Raise Unavailable if the disk is too full to free anything, or with `every`, to free everything unneeded.

        Call it before anything is deleted (P3).
        """
        from holdfast.shadowgit import room_needed

        least, free = room_needed(self.objects.packs(), needed, every=every), self._free_bytes()
        if least and least + _SLACK_BYTES > free:
            raise Unavailable(
                f"{what}: freeing disk space needs {least + _SLACK_BYTES:,} free bytes, and there are {free:,}",
                hint=f"Free some space on the disk of {self.folder}, then try again.",
            )

    def _known_floor(self) -> int:
        """Return the greatest number of a deleted checkpoint; 0 if that is unknown."""
        try:
            return int((self.own / "sequence").read_bytes())
        except (OSError, ValueError):
            return 0

    def _floor(self) -> int:
        try:
            return int((self.own / "sequence").read_bytes())
        except FileNotFoundError:
            return 0
        except ValueError:  # damaged: skip far beyond any deleted number, once
            greatest = greatest_sequence(self.objects.ref_names())
            durable.write_atomically(self.own / "sequence", b"%d\n" % (greatest + _FAR_AHEAD))
            return greatest + _FAR_AHEAD

    def load_row(self, checkpoint_id: str) -> Row | None:
        """Read a checkpoint from its commit as a row of the catalog; None if it is unreadable."""
        try:
            commit = self.objects.ref(checkpoint_id)
            contents = read_contents(self.objects, self.objects.commit(commit))
            data = self.objects.blob(contents.record)
            checkpoint = decode_record(data, commit=commit.hex(), lazy=None)
        except (Damaged, NotFound):
            return None  # `verify` reports it
        return row_of(checkpoint, contents, commit.hex(), data) if checkpoint.id == checkpoint_id else None


def content_key(root: Node, uncovered: bytes) -> str:
    """Return a key that is equal for checkpoints with exactly the same files."""
    return f"{root.tree.hex()}{root.attrs.hex()}{uncovered.hex()}"


def plain_text(text: str | None) -> str | None:
    """Return a text that SQLite can store: a lone surrogate becomes an escape."""
    return text if text is None else text.encode("utf-8", "backslashreplace").decode()


def row_of(checkpoint: Checkpoint, contents: Contents, commit: str, record: bytes) -> Row:
    """Return the row of the catalog for a checkpoint and its stored record."""
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
        record=record.decode(),
    )


def store_bytes(folder: Path) -> int:
    """Return how much disk space a store uses."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # SQLite creates and removes files with every reader
                total += os.lstat(os.path.join(where, name)).st_blocks * 512
    return total


class Holds:
    """Checkpoints that no process may prune for now, because a program is about to go back to them.

    A hold is a file that its owner locks. The system frees the lock however the owner dies (P9), and a file that
    nobody has locked is swept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def hold(self, checkpoint_id: str) -> Iterator[None]:
        """Hold a checkpoint. Needs the store's lock to begin, so that no sweep removes the file before it is locked.

        If the disk refuses the file, go on without: the checkpoint is then pruned only if others save much meanwhile.
        """
        lock = durable.Lock(path := self._folder / f"{checkpoint_id}.{os.urandom(4).hex()}")
        with contextlib.suppress(OSError):
            durable.make_folder(self._folder)
            lock.acquire()  # waits a moment at most: `_is_free` takes it to ask
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                durable.disk().unlink(str(path))
            lock.release()

    def held(self) -> set[str]:
        """Return the ids that a living process holds."""
        return {path.name.partition(".")[0] for path in self._files() if not _is_free(path)}

    def sweep(self) -> None:
        """Remove what dead owners left."""
        for path in self._files():
            if _is_free(path):
                durable.disk().unlink(str(path))

    def _files(self) -> list[Path]:
        try:
            return list(self._folder.iterdir())
        except FileNotFoundError:
            return []


def _is_free(path: Path) -> bool:
    lock = durable.Lock(path)
    if not path.exists() or not lock.acquire(wait=False):
        return False
    lock.release()
    return True


def _text_of(ref: CheckpointRef) -> str:
    text = ref if isinstance(ref, str) else getattr(ref, "id", None)
    if not isinstance(text, str):
        what = type(ref).__name__
        raise Refused(f"a checkpoint reference is text or a checkpoint, not {what}", hint="Pass its id.")
    return text


def _not_found(ref: str, catalog: Catalog, *, floor: int) -> NotFound:
    """Return the error for a reference that finds nothing: was it deleted, is it misspelt, is anything saved at all?

    `floor` is the greatest number that a deleted checkpoint had.
    """
    import difflib  # start-up cost, for this error only

    shown = _shown(ref)
    greatest = catalog.greatest()
    if greatest is None:
        return NotFound(f"there is no checkpoint {shown}", hint="Nothing is saved yet.", remedy=Remedy("save_first"))
    if parse_latest(ref) is not None:
        saves = catalog.saves()
        if saves:
            return NotFound(f"there is no checkpoint {shown}", hint=f"The oldest save is latest~{saves - 1}.")
        return NotFound(f"there is no checkpoint {shown}", remedy=Remedy("list_all"))
    if re.split("[~^@]", ref)[0] == "HEAD":
        return NotFound(f"there is no checkpoint {shown}", hint="Here it is `latest`; `latest~1` is the one before.")
    if re.search(r"[^~^][~^]+\d*$", ref):
        return NotFound(f"there is no checkpoint {shown}", hint="Only `latest` counts back, as in `latest~1`.")
    if ref == LAST_GREEN:
        return NotFound("no checkpoint has passed a check", remedy=Remedy("configure_check"))
    prefix = stored_prefix(ref)
    if prefix is not None:
        number = int(prefix.partition("-")[0][1:])
        other = catalog.by_prefix(f"{prefix.partition('-')[0]}-")
        if other:
            return NotFound(f"there is no checkpoint {shown}", hint=f"That number belongs to {other[0].id}.")
        if number <= max(greatest.sequence, floor):
            return NotFound(
                f"there is no checkpoint {shown} any more",
                hint="It was deleted or pruned, and its number is not used again.",
                remedy=Remedy("list"),
            )
    near = difflib.get_close_matches(ref, [*catalog.names(), "latest"], n=1) if ref.isprintable() else []
    if near:
        return NotFound(f"there is no checkpoint {shown}", hint=f"Did you mean {near[0]}?")
    return NotFound(f"there is no checkpoint {shown}", remedy=Remedy("list"))


def _shown(ref: str) -> str:
    return repr(ref if len(ref) <= _SHOWN_MAX_CHARS else ref[: _SHOWN_MAX_CHARS - 1] + "…")
