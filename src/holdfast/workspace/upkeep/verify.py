"""Verifying a store: read every byte, report damage and the checkpoints that it affects."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from holdfast.durable import parse_json
from holdfast.errors import Damaged, HoldfastError
from holdfast.model import Problem, Progress, VerifyReport
from holdfast.scan.cache import OLD_CACHES, load
from holdfast.scan.dir_handles import join
from holdfast.shadowgit import ObjectKind, ObjectStore, Pack, TreeEntry, decode_commit, object_id, real_name
from holdfast.shadowgit.objects import decode_tree
from holdfast.shadowgit.refs import CONFIG, HEAD
from holdfast.workspace.store_paths import read_owner
from holdfast.workspace.stored.catalog import Row
from holdfast.workspace.stored.ids import sequence_of
from holdfast.workspace.stored.record import (
    Node,
    decode_changes,
    decode_record,
    decode_rules,
    decode_uncovered,
    read_contents,
)
from holdfast.workspace.stored.repository import Repository, row_of
from holdfast.workspace.stored.tree import TreeReader
from holdfast.workspace.upkeep.purge_journal import read_begun
from holdfast.workspace.upkeep.type_policies import read_kinds

_REF = re.compile(rb"[0-9a-f]{40}\n")
_LOOKS = 8
_CACHED_ENTRIES = 20_000
"""How many entries of folders are remembered."""
_CACHED_BYTES = 1 << 20
"""How much of the trees of one checkpoint is remembered."""
_NUMBER = re.compile(rb"[0-9]+\n")


class Verifier:
    """One verification of a store."""

    def __init__(self, repository: Repository, progress: Progress | None) -> None:
        self._repository = repository
        self._objects = repository.objects
        self._progress = progress
        self._problems: list[Problem] = []
        self._bad: dict[bytes, str] = {}
        self._sound: set[bytes] = set()
        self._users: dict[bytes, list[str]] = {}  # damaged object to the checkpoints that use it
        self._paths: dict[bytes, str] = {}  # damaged object to one path in a checkpoint that uses it
        self._clean: set[bytes] = set()  # trees without damage below
        self._nodes: set[Node] = set()
        self._recent = _RecentTrees(self._objects)
        self._reader = TreeReader(self._recent)
        self._decoded: set[tuple[str, bytes]] = set()
        """Lists and rules that could be read: many checkpoints share one."""
        self._rows: dict[str, bytes] = {}
        """By checkpoint, the digest of the row that the catalog should have."""
        self._bytes = 0

    def run(self) -> VerifyReport:
        """Verify everything."""
        refs = self._checkpoint_refs()  # before the packs: their objects existed by then
        self._objects.reopen()
        self._small_files()
        for pack in self._objects.packs():
            self._pack(pack)
        self._unopened_packs()
        if problem := self._objects.packed_refs_problem():
            self._say(
                "packed-refs", f"{problem}; `git tag ID COMMIT` restores the ref of a checkpoint", self._unnamed(refs)
            )
        for number, checkpoint_id in enumerate(sorted(refs)):
            self._checkpoint(checkpoint_id)
            if self._progress:
                self._progress("checkpoints", number + 1, len(refs))
        for oid, detail in self._bad.items():
            where = f"{self._paths[oid]}: " if oid in self._paths else ""
            self._say(f"object {oid.hex()}", where + detail, self._users.get(oid, ()))
        self._catalog()
        return VerifyReport(self._problems, len(refs), len(self._sound) + len(self._bad), self._bytes)

    def _checkpoint_refs(self) -> dict[str, str]:
        """Return the refs of checkpoints. Skips tags that somebody else made, unless one replaces a checkpoint's."""
        refs = self._objects.refs()
        named = {commit for name, commit in refs.items() if sequence_of(name)}
        return {
            name: commit for name, commit in refs.items() if sequence_of(name) or self._is_lost(name, commit, named)
        }

    def _is_lost(self, name: str, commit: str, named: Container[str]) -> bool:
        """Whether a commit is a checkpoint that lost its ref and was not deleted: it is later than all others, or the
        name is its id except for one letter. Otherwise that is unknown."""
        deleted = _read(self._repository.own / "sequence") or b""
        names = self._objects.ref_names()
        latest = max([int(deleted) if _NUMBER.fullmatch(deleted) else 0, *(sequence_of(name) or 0 for name in names)])
        with suppress(HoldfastError, ValueError, TypeError, KeyError):
            contents = read_contents(self._objects, self._objects.commit(bytes.fromhex(commit)))
            found = decode_record(self._objects.blob(contents.record), commit=commit, lazy=None)
            return commit not in named and (found.sequence > latest or _is_nearly(name, found.id))
        return False

    def _say(self, what: str, detail: str, checkpoints: Iterable[str] = ()) -> None:
        self._problems.append(Problem(what, detail, tuple(checkpoints)))

    # files next to the packs

    def _small_files(self) -> None:
        folder = self._repository.folder
        for name, expected in (("HEAD", HEAD), ("config", CONFIG)):
            if _read(folder / name) != expected:
                self._say(
                    name,
                    "is not what Holdfast wrote; git may be unable to read the store. Remove it; it is created again",
                )
        self._main()
        self._loose_refs()
        number = _read(self._repository.own / "sequence")
        if number is not None and not _NUMBER.fullmatch(number):
            self._say("holdfast/sequence", "is not what Holdfast wrote; the next save skips many numbers")
        owner = _read(self._repository.own / "store.json")
        if owner is not None and read_owner(owner) is None:
            self._say("holdfast/store.json", "cannot be read; remove it, it is created again")
        journal = _read(self._repository.own / "journal.json")
        if journal is not None and not _is_json(journal):
            self._say("holdfast/journal.json", "cannot be read")
        self._purge()
        try:
            read_kinds(self._repository.own)
        except HoldfastError:
            self._say("holdfast/kinds.json", "cannot be read; the next project checkpoint rewrites it")
        cache = _read(self._repository.own / "scan.cache")
        if cache is not None and load(cache) is None and not cache.startswith(OLD_CACHES):
            self._say("holdfast/scan.cache", "is damaged; the next save creates it again")

    def _purge(self) -> None:
        """Report an unfinished purge: the content may still be in the store (P4)."""
        data = _read(self._repository.purge_journal)
        if data is None or not self._repository.lock.acquire(
            wait=False
        ):  # no process is running it only if this succeeds
            return
        self._repository.lock.release()
        data = _read(self._repository.purge_journal)
        if data is not None:
            what = f"a purge of {', '.join(begun.paths)}" if (begun := read_begun(data)) else "a purge"
            way = "" if begun else "; its journal cannot be read: purge the same paths again, then remove that file"
            self._say(
                "holdfast/purge.json",
                f"{what} is not finished, so the content may still be in the store; "
                f"purge the same paths again to continue it; if that fails, the error says why{way}",
            )

    def _loose_refs(self) -> None:
        for name in self._objects.loose_refs():
            data = _read(self._repository.folder / "refs" / "tags" / name)
            if data is not None and not _REF.fullmatch(data):
                self._say(f"refs/tags/{name}", "is not what Holdfast wrote", [name])

    def _main(self) -> None:
        text = _read(self._repository.folder / "refs" / "heads" / "main") or b""
        with suppress(ValueError, HoldfastError):
            if _REF.fullmatch(text) and self._objects.commit(bytes.fromhex(text.decode("ascii", "replace"))):
                return
        if not (self._repository.folder / "packed-refs").exists():
            self._say("refs/heads/main", "is damaged; no checkpoint is affected")

    def _unopened_packs(self) -> None:
        self._objects.refresh()  # another process may have merged packs meanwhile
        opened = {pack.name for pack in self._objects.packs()}
        for path in sorted(
            self._objects.pack_folder.glob("pack-*.pack")
        ):  # the next save removes an index without a pack
            if path.stem in opened or not path.exists():
                continue
            if path.with_suffix(".idx").exists():
                with suppress(FileNotFoundError):  # it was just created or removed
                    try:
                        Pack(path.with_suffix(".idx"))
                    except Damaged:
                        self._say(path.stem, "cannot be opened")
            elif path.exists():  # otherwise both were just removed, the pack first
                self._say(path.stem, f"has no index; `git index-pack {path.name}` creates it again")

    # packs

    def _pack(self, pack: Pack) -> None:
        try:
            for problem in pack.checksum_problems():
                self._say(pack.name, problem)
            is_findable = pack.is_index_sound  # otherwise each is looked up as others do
            for number, (oid, kind, data) in enumerate(pack.contents()):
                if data is not None and is_findable and object_id(kind, data) == oid:
                    self._sound.add(oid)
                else:
                    self._object(pack, oid)
                if self._progress and not number % 256:
                    self._progress(f"verifying {pack.name[:12]}", number, pack.count)
        except Damaged as error:
            self._say(pack.name, error.message)
            return
        self._bytes += pack.size_bytes

    def _object(self, pack: Pack, oid: bytes) -> None:
        """Look for a good copy in any pack."""
        if oid in self._sound:
            return
        try:
            self._objects.read(oid)
        except (HoldfastError, ValueError, IndexError, OverflowError, MemoryError) as error:
            self._bad[oid] = f"{getattr(error, 'message', error)} ({pack.name})"
        else:
            self._sound.add(oid)

    # checkpoints

    def _unnamed(self, refs: Mapping[str, str]) -> Iterator[str]:
        """Yield the checkpoints in the packs that have no ref."""
        for oid in self._sound:
            with suppress(HoldfastError, ValueError, TypeError, KeyError):
                if self._objects.kind_and_size(oid)[0] is ObjectKind.COMMIT:
                    contents = read_contents(self._objects, self._objects.commit(oid))
                    found = decode_record(self._objects.blob(contents.record), commit=oid.hex(), lazy=None)
                    if refs.get(found.id) != oid.hex():
                        yield found.id

    def _checkpoint(self, checkpoint_id: str) -> None:
        try:
            commit = self._objects.ref(checkpoint_id)
            stored = self._objects.commit(commit)
            self._recent.forget()
            self._reach(checkpoint_id, decode_commit(stored))
            contents = read_contents(self._recent, stored)
            record = self._objects.blob(contents.record)
            checkpoint = decode_record(record, commit=commit.hex(), lazy=None)
            if checkpoint.id != checkpoint_id:
                self._say(f"refs/tags/{checkpoint_id}", f"names checkpoint {checkpoint.id}", [checkpoint_id])
            self._decode("uncovered", contents.uncovered, decode_uncovered)
            self._decode("changes", contents.changes, decode_changes)
            self._decode("rules", contents.rules, decode_rules)
            self._rows[checkpoint_id] = _digest(row_of(checkpoint, contents, commit.hex(), record))
            self._folders(contents.root)
        except (HoldfastError, ValueError, TypeError, KeyError) as error:
            if checkpoint_id not in self._objects.ref_names():
                return  # deleted meanwhile
            self._say(f"checkpoint {checkpoint_id}", str(getattr(error, "message", error)), [checkpoint_id])

    def _decode(self, what: str, oid: bytes, decode: Callable[[bytes], object]) -> None:
        if (what, oid) not in self._decoded:
            decode(self._objects.blob(oid))
            self._decoded.add((what, oid))

    def _reach(self, checkpoint_id: str, root: bytes) -> None:
        """Follow everything that a checkpoint refers to, and note which damaged objects it uses."""
        seen, stack, is_clean = set(), [(root, "")], True
        while stack:
            oid, path = stack.pop()
            if oid in seen or oid in self._clean:
                continue
            seen.add(oid)
            is_clean = self._use(checkpoint_id, oid, path) and is_clean
            if oid not in self._sound:
                continue
            for entry in self._recent.tree(oid):
                inner = join(path, os.fsdecode(real_name(entry.name)))
                if entry.is_folder:
                    stack.append((entry.oid, inner))
                else:
                    is_clean = self._use(checkpoint_id, entry.oid, inner) and is_clean
        if is_clean:
            self._clean |= seen

    def _use(self, checkpoint_id: str, oid: bytes, path: str) -> bool:
        if oid in self._sound or self._is_moved(oid):
            return True
        self._paths.setdefault(oid, path)
        self._bad.setdefault(oid, "missing from the store")
        users = self._users.setdefault(oid, [])
        if checkpoint_id not in users:
            users.append(checkpoint_id)
        return False

    def _is_moved(self, oid: bytes) -> bool:
        """Whether a missing object exists after all, because another process merged packs meanwhile."""
        if oid in self._bad:
            return False
        try:
            self._objects.read(oid)
        except HoldfastError:
            return False
        self._sound.add(oid)
        return True

    def _folders(self, root: Node) -> None:
        stack = [root]
        while stack:
            node = stack.pop()
            if node not in self._nodes:
                self._nodes.add(node)
                if self._reader.cached_entries > _CACHED_ENTRIES:  # each is read once
                    self._reader = TreeReader(self._recent)
                stack.extend(self._reader.view(node).folders.values())

    # the catalog

    def _catalog(self) -> None:
        """Compare the catalog with the commits."""
        for row in self._repository.catalog.newest(limit=None, session=None, safety=True):
            if self._differs(row) and self._differs_still(row.id):
                self._say("holdfast/catalog.db", f"differs from checkpoint {row.id}; remove it, it is created again")

    def _differs(self, row: Row) -> bool:
        if self._rows.get(row.id) == _digest(row):
            return False
        fresh = self._repository.load_row(row.id)
        return fresh is not None and fresh != row

    def _differs_still(self, checkpoint_id: str) -> bool:
        """Whether a row still differs after a `sync`, so that no other process has just rewritten the checkpoint."""
        for _ in range(_LOOKS):
            mark = self._objects.ref_mark(checkpoint_id)
            self._repository.sync()
            row = self._repository.catalog.by_id(checkpoint_id)
            if row is None or not self._differs(row):
                return False
            if self._objects.ref_mark(checkpoint_id) == mark:
                return True
        return False


class _RecentTrees:
    """Reads the objects of a store; trees of one checkpoint once."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._trees: dict[bytes, bytes] = {}
        self._bytes = 0
        self.blob = objects.blob

    def tree(self, oid: bytes) -> list[TreeEntry]:
        return list(decode_tree(self.tree_data(oid)))

    def tree_data(self, oid: bytes) -> bytes:
        known = self._trees.get(oid)
        if known is None:
            known = self._objects.tree_data(oid)
            self._bytes += len(known)
            if self._bytes <= _CACHED_BYTES:
                self._trees[oid] = known
        return known

    def forget(self) -> None:
        self._trees.clear()
        self._bytes = 0


def _digest(row: Row) -> bytes:
    return sha256(repr(row).encode("utf-8", "surrogatepass")).digest()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _is_json(data: bytes) -> bool:
    try:
        parse_json(data)
    except ValueError:
        return False
    return True


def _is_nearly(name: str, checkpoint_id: str) -> bool:
    """Whether two ids differ in one letter."""
    return len(name) == len(checkpoint_id) and sum(map(str.__ne__, name, checkpoint_id)) == 1
