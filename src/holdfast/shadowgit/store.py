"""The shadow repository: a bare git repository of packs, and a ref for each checkpoint.

HEAD, config, description   what git needs to accept it as a repository
objects/pack/               everything, in packs
refs/tags/<id>              the commit of a checkpoint (or a line in packed-refs, after a `git gc`)
refs/heads/main             a README for people who open the store with git
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.errors import Damaged
from holdfast.shadowgit.git_files import all_refs, loose_object
from holdfast.shadowgit.objects import (
    FILE_MODE,
    FOLDER_MODE,
    ObjectKind,
    TreeEntry,
    decode_tree,
    encode_commit,
    encode_tree,
    object_id,
)
from holdfast.shadowgit.packs import (
    MAX_DELTA_CHAIN,
    Header,
    Pack,
    PackWriter,
    apply_delta,
    delta_kind,
    index_lone_packs,
    sweep,
)
from holdfast.shadowgit.refs import CONFIG, HEAD, VERIFY, Refs

ABOUT = b"""# A Holdfast store

Each tag is a checkpoint: `git log --all`, `git show ID:files/path/to/file`, `git show ID:checkpoint.json`.
`files/` is the workspace, `attrs/` what git cannot say of it, `state/` the named state saved with it.
Nothing here is needed by the workspace itself; removing this folder removes its checkpoints.
"""
_INDEX = re.compile(r"pack-.*\.idx")  # not one that is still being written
_COMMIT = re.compile(r"[0-9a-f]{40}")


class PackedObject(NamedTuple):
    """Where an object is."""

    pack: Pack
    offset: int


class ObjectStore(Refs):
    """Objects by name, and refs. Reading is safe during any write (P9); writing needs the store's lock."""

    def __init__(self, git_dir: Path) -> None:
        super().__init__(git_dir)
        self.pack_folder = git_dir / "objects" / "pack"
        self._packs: dict[str, Pack] = {}
        self._used_last: Pack | None = None
        self._guard = threading.Lock()
        self._listed = False

    def create(self) -> None:
        """Make an empty repository; files stay. P3: HEAD is written last; without it there is no repository."""
        for folder in (self.pack_folder, self.git_dir / "refs" / "heads", self._tags):
            durable.make_folder(folder)
        for name in ("objects", "refs"):  # also if a process died after making them
            durable.sync_folder(self.git_dir / name)
        durable.write_atomically(self.git_dir / "config", CONFIG)
        writer = self.writer()
        page = writer.add(ObjectKind.BLOB, ABOUT)
        tree = writer.add(ObjectKind.TREE, encode_tree([TreeEntry(FILE_MODE, b"README.md", page)]))
        commit = writer.add(ObjectKind.COMMIT, encode_commit(tree, seconds=0, message="About this store"))
        writer.commit()
        durable.write_atomically(self.git_dir / "refs" / "heads" / "main", commit.hex().encode() + b"\n")
        durable.write_atomically(self.git_dir / "HEAD", HEAD)

    # objects

    def writer(self) -> PackWriter:
        """A writer for one pack; call `refresh` after its commit."""
        return PackWriter(self.pack_folder, has=self.has_sound)

    def sweep(self) -> None:
        """Remove what dead writers left, and restore files with constant content (P3). Needs the store's lock."""
        sweep(self.pack_folder)
        index_lone_packs(self.pack_folder)
        if not (self.git_dir / "HEAD").is_file():
            durable.write_atomically(self.git_dir / "HEAD", HEAD)
        if not os.path.lexists(self.git_dir / "config"):
            durable.write_atomically(self.git_dir / "config", CONFIG)
        if not self._tags.is_dir():
            durable.make_folder(self._tags)

    def has(self, oid: bytes) -> bool:
        """Whether an object is in one of the packs that were listed last."""
        return any(pack.find(oid) is not None for pack in self.packs())

    def has_sound(self, oid: bytes) -> bool:
        """Whether there is an undamaged copy: only then need the object not be stored again (P1)."""
        is_held = False
        for pack in self._packs_by_use():
            if pack.find(oid) is not None:
                if pack.is_sound(oid):
                    self._used_last = pack
                    return True
                is_held = True
        if not is_held:
            return False
        try:
            return bool(self.read(oid))  # a delta is sound if its base is
        except Damaged:
            return False

    def has_whole(self, mode: int, oid: bytes) -> bool:
        """Whether an object is in the packs, and if it is a tree, everything below it.

        A tree that no ref needs may be in a pack without its contents, which were in a pack that was freed.
        """
        if not self.has(oid):
            return False
        try:
            return mode != FOLDER_MODE or all(self.has_whole(each.mode, each.oid) for each in self.tree(oid))
        except Damaged:
            return False

    def kind_and_size(self, oid: bytes) -> tuple[ObjectKind, int]:
        """What an object is and how large, without reading it all."""
        found = self._find(oid)
        header = found.pack.header(found.offset)
        if found.pack.is_delta(header):
            kind, data = self.read(oid)
            return kind, len(data)
        return delta_kind(header.kind), header.size

    def read(self, oid: bytes) -> tuple[ObjectKind, bytes]:
        """An object's content, checked against its name. Every copy is tried, then a loose object, if git made one.

        Damaged if there is no good copy.
        """
        damage = None
        for found in self._copies(oid):
            try:
                kind, data = self._inflate(found.pack, found.offset)
                if object_id(kind, data) == oid:
                    self._used_last = found.pack
                    return kind, data
                damage = Damaged(f"object {oid.hex()} is not what was stored", remedy=VERIFY)
            except Damaged as error:
                damage = error
        loose = loose_object(self.git_dir, oid)
        if loose is not None:
            return loose
        raise damage or _missing(oid)

    def blob(self, oid: bytes) -> bytes:
        """The content of a blob."""
        return self._read_as(ObjectKind.BLOB, oid)

    def tree(self, oid: bytes) -> list[TreeEntry]:
        """The entries of a tree."""
        return list(decode_tree(self.tree_data(oid)))

    def tree_data(self, oid: bytes) -> bytes:
        """A tree as it is stored, for `raw_entries`."""
        return self._read_as(ObjectKind.TREE, oid)

    def commit(self, oid: bytes) -> bytes:
        """The content of a commit."""
        return self._read_as(ObjectKind.COMMIT, oid)

    def packs(self) -> list[Pack]:
        """The packs, as listed last."""
        if not self._listed:
            self.refresh()
        return list(self._packs.values())

    def close(self) -> None:
        """Close every pack: at once, or when a thread that is reading it ends. The next read opens them again."""
        with self._guard:
            self._packs, self._used_last, self._listed = {}, None, False

    def reopen(self) -> None:
        """Open every pack again, to read what is on the disk now."""
        with self._guard:
            self._packs, self._used_last = {}, None
        self.refresh()

    def refresh(self) -> None:
        """List the packs again. One that cannot be opened is skipped here and reported by `verify`."""
        with self._guard:
            try:
                names = {name[:-4] for name in os.listdir(self.pack_folder) if _INDEX.fullmatch(name)}
            except FileNotFoundError:
                names = set()
            packs = {name: pack for name, pack in self._packs.items() if name in names and not pack.is_cut}
            for name in names - packs.keys():
                try:
                    packs[name] = Pack(self.pack_folder / f"{name}.idx")
                except (FileNotFoundError, Damaged):
                    continue
            self._packs = packs
            self._listed = True
            if self._used_last is not None and packs.get(self._used_last.name) is not self._used_last:
                self._used_last = None  # closes it

    def _read_as(self, kind: ObjectKind, oid: bytes) -> bytes:
        found, data = self.read(oid)
        if found is not kind:
            raise Damaged(f"object {oid.hex()} is a {found.name.lower()}, not a {kind.name.lower()}", remedy=VERIFY)
        return data

    def _find(self, oid: bytes) -> PackedObject:
        found = next(self._copies(oid), None)
        if found is None:
            raise _missing(oid)
        return found

    def _packs_by_use(self) -> Iterator[Pack]:
        """The packs, and first the one that the last object was in: what is asked for next is mostly there, too."""
        packs, last = self.packs(), self._used_last
        if last is not None and last in packs:
            yield last
        yield from (pack for pack in packs if pack is not last)

    def _copies(self, oid: bytes) -> Iterator[PackedObject]:
        """Every copy of an object in a pack, found when it is asked for.

        Another process may be merging packs: an object is missing only if two listings in a row are the same and
        neither has it (P9).
        """
        listings: list[set[str]] = []
        is_held = False
        while True:
            for pack in self._packs_by_use():
                if (offset := pack.find(oid)) is not None:
                    is_held = True
                    yield PackedObject(pack, offset)
            if is_held or (len(listings) > 1 and listings[-1] == listings[-2]):
                return
            self.refresh()
            listings.append(set(self._packs))

    def _inflate(self, pack: Pack, offset: int) -> tuple[ObjectKind, bytes]:
        """The content at a place. What deltas build on is remembered: neighbours in a pack share it."""
        deltas: list[tuple[Pack, int, bytes]] = []
        while (known := pack.bases.get(offset)) is None:
            header = self._header(pack, offset)
            if not pack.is_delta(header):
                known = delta_kind(header.kind), pack.inflate(header)
                break
            deltas.append((pack, offset, pack.inflate(header)))
            if len(deltas) > MAX_DELTA_CHAIN:
                raise Damaged(f"a chain of deltas in {pack.name} does not end", remedy=VERIFY)
            if isinstance(header.base, int):
                offset = header.base
            else:
                pack, offset = self._find(header.base or b"")
        kind, data = known
        if deltas:
            pack.bases.add(offset, kind, data)
        for pack, offset, delta in reversed(deltas):
            data = apply_delta(data, delta)
            pack.bases.add(offset, kind, data)
        return kind, data

    @staticmethod
    def _header(pack: Pack, offset: int) -> Header:
        return pack.header(offset)

    def commits(self, *, without: Container[str] = ()) -> Iterator[bytes]:
        """The target of every ref, except the tags `without`; also of refs that other programs made. Damaged if a ref
        has none."""
        for name, text in all_refs(self.git_dir):
            if name.startswith("refs/tags/") and name.removeprefix("refs/tags/") in without:
                continue
            if text.startswith("ref: "):
                continue  # a symbolic ref: its target is listed too
            if not _COMMIT.fullmatch(text):
                raise Damaged(f"{name} of the store is not a ref", remedy=VERIFY)
            yield bytes.fromhex(text)


def _missing(oid: bytes) -> Damaged:
    return Damaged(f"object {oid.hex()} is missing from the store", remedy=VERIFY)
