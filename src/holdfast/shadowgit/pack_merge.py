"""Merging packs as they accumulate. Our entries have no deltas, so merging is copying. A delta that git made is copied
too if its base is copied, and stored in full if not.

Order of writes (P3): the merged pack is durable before the first of the old ones goes, its index last. A crash leaves
objects twice, never not at all.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

from holdfast import durable
from holdfast.errors import Damaged
from holdfast.shadowgit.objects import ObjectKind, PackEntry, decode_commit, decode_lineage, encode_entry, entry_header
from holdfast.shadowgit.packs import REF_DELTA, Pack, PackWriter
from holdfast.shadowgit.store import ObjectStore

_FEW = 8
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_SUFFIXES = (".bitmap", ".rev", ".mtimes", ".pack", ".idx")  # the first three only after git repacked
_TIER_BITS = 3  # packs of a tier have up to eight times the size of those of the tier below


def packs_due(packs: Sequence[Pack]) -> list[Pack]:
    """More than eight packs of about one size, to be merged into one of the next; none where there are fewer.

    Every byte is then rewritten a number of times that grows with the logarithm of the store (P8).
    """
    tiers: dict[int, list[Pack]] = {}
    for pack in packs:
        tiers.setdefault(pack.size_bytes.bit_length() // _TIER_BITS, []).append(pack)
    return next((tiers[tier] for tier in sorted(tiers) if len(tiers[tier]) > _FEW), [])


def merge_packs(store: ObjectStore, packs: Sequence[Pack], *, keep: Container[bytes] | None = None) -> None:
    """Put the objects of several packs into one; with `keep`, only those in it. Needs the store's lock.

    A damaged pack stays as it is, for `verify` to report (P1).
    """
    sound = [pack for pack in packs if not is_damaged(pack)]
    if keep is not None:
        sound = _without_unneeded(store, sound, keep)
    others = [pack for pack in store.packs() if pack not in sound]
    writer = PackWriter(store.pack_folder, has=lambda oid: any(pack.is_sound(oid) for pack in others))
    try:
        for pack in sound:
            entries = pack.entries()
            names = {start: oid for start, _, oid, _ in entries}
            for entry in entries:
                if (keep is None or entry[2] in keep) and not writer.holds(entry[2]):
                    writer.add_entry(_entry(store, writer, pack, names, entry))
        name = writer.commit()
    except BaseException:
        writer.abort()
        raise
    remove_packs(store, [pack for pack in sound if pack.name != name])


def free_unneeded(store: ObjectStore, keep: Container[bytes], *, every_pack: bool = True) -> int:
    """Copy what is kept into one pack, and free the rest; returns how many bytes could not be freed. Needs the store's
    lock.

    A copy needs disk space. If there is not enough for a copy of everything, packs are copied one by one, the smallest
    first, and each is removed before the next is written (P3: every object is in a pack at any moment). OSError (no
    space) if nothing can be freed. Without `every_pack`, packs that are needed completely stay as they are.
    """
    partly = _without_unneeded_names(store, keep)
    try:
        merge_packs(store, [pack for pack in store.packs() if every_pack or pack.name in partly], keep=keep)
    except OSError as error:
        if error.errno not in _NO_SPACE or not partly:
            raise
    else:
        return 0
    left = 0
    for name in sorted(partly, key=partly.__getitem__):
        try:
            merge_packs(store, [pack for pack in store.packs() if pack.name == name], keep=keep)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            left += sum(pack.size_bytes - partly[name] for pack in store.packs() if pack.name == name)
    return left


def copy_kept(store: ObjectStore, pack: Pack, keep: Container[bytes], folder: Path) -> str | None:
    """Copy what is kept of a pack into a new pack in another folder, for `swap_pack`; its name, or None if nothing is
    kept. Needs no lock.

    Copies also what other packs have: before the swap, those may be merged without it.
    """
    writer = PackWriter(folder, has=lambda _: False)
    try:
        entries = pack.entries()
        names = {start: oid for start, _, oid, _ in entries}
        for entry in entries:
            if entry[2] in keep:
                writer.add_entry(_entry(store, writer, pack, names, entry))
        return writer.commit()
    except BaseException:
        writer.abort()
        raise


def swap_pack(store: ObjectStore, pack: Pack, folder: Path, name: str | None) -> None:
    """Replace a pack by its copy in `folder`; None: by nothing. Needs the store's lock, which is held for renames only.

    The old pack is moved into `folder`, for the caller to remove: removing a large file takes long. P3: the copy is
    durable in its place before the old one goes.
    """
    for suffix in (".idx", ".pack") if name is not None else ():
        durable.disk().rename(str(folder / f"{name}{suffix}"), str(store.pack_folder / f"{name}{suffix}"))
    durable.sync_folder(store.pack_folder)
    _forget_git_caches(store)
    for suffix in _SUFFIXES:
        path = pack.path.with_suffix(suffix)
        if path.exists():
            durable.disk().rename(str(path), str(folder / path.name))
    durable.sync_folder(store.pack_folder)
    store.refresh()


def _without_unneeded_names(store: ObjectStore, keep: Container[bytes]) -> dict[str, int]:
    """Remove the packs that are not needed; return names and sizes of what is kept of those that are needed in part.

    Names and no packs: a removed file frees its space only when nothing has it open.
    """
    sound = [pack for pack in store.packs() if not is_damaged(pack)]
    kept = {pack.name: kept_bytes(pack, keep) for pack in _without_unneeded(store, sound, keep)}
    return {pack.name: kept[pack.name] for pack in sound if 0 < kept.get(pack.name, 0) < pack.size_bytes}


def room_needed(packs: Sequence[Pack], keep: Container[bytes], *, every: bool) -> int:
    """The disk space needed to free everything that is not kept; without `every`, to free at least some of it."""
    sizes = sorted((kept_bytes(pack, keep), pack.size_bytes) for pack in packs)
    freed = sum(size for kept, size in sizes if not kept)
    partly = [(kept, size) for kept, size in sizes if 0 < kept < size]
    if not every:
        return 0 if freed or not partly else partly[0][0]
    least = 0
    for kept, size in partly:
        least = max(least, kept - freed)
        freed += size - kept
    return least


def kept_bytes(pack: Pack, keep: Container[bytes]) -> int:
    """About how many bytes of a pack are kept; its size if all objects are, 0 if none is."""
    entries = pack.entries()
    kept = [end - start for start, end, oid, _ in entries if oid in keep]
    return pack.size_bytes if len(kept) == len(entries) else sum(kept)


def remove_packs(store: ObjectStore, packs: Sequence[Pack]) -> None:
    """Remove packs whose objects are in other packs, or not needed. Needs the store's lock."""
    _forget_git_caches(store)
    for pack in packs:
        _remove(pack)
    durable.sync_folder(store.pack_folder)
    store.refresh()


def _without_unneeded(store: ObjectStore, packs: Sequence[Pack], keep: Container[bytes]) -> list[Pack]:
    """Remove the packs of which nothing is kept, which needs no disk space; return the others."""
    needed = [pack for pack in packs if any(oid in keep for oid in pack.oids())]
    if len(needed) < len(packs):
        remove_packs(store, [pack for pack in packs if pack not in needed])
    return needed


def _forget_git_caches(store: ObjectStore) -> None:
    """Remove git's caches (made by `git gc`): they name packs and commits that are about to be removed."""
    info = store.git_dir / "objects" / "info"
    for path in (store.pack_folder / "multi-pack-index", info / "commit-graph"):
        if path.exists():
            durable.disk().unlink(str(path))
    if (info / "commit-graphs").is_dir():
        durable.remove_tree(str(info / "commit-graphs"))


def trees_of(store: ObjectStore, names: Iterable[bytes], found: set[bytes]) -> list[bytes]:
    """The trees of commits, of targets of tags, and of their ancestors. Everything else is added to `found`; what is
    in there already is skipped. Damaged if something cannot be read."""
    trees, stack = [], list(names)
    while stack:
        oid = stack.pop()
        if oid in found:
            continue
        kind, data = store.read(oid)
        if kind is ObjectKind.TREE:
            trees.append(oid)
            continue
        found.add(oid)
        if kind is ObjectKind.COMMIT:
            trees.append(decode_commit(data))
        if kind is not ObjectKind.BLOB:
            stack += decode_lineage(data)
    return trees


def reachable(store: ObjectStore, commits: Iterable[bytes], *, known: Container[bytes] = ()) -> set[bytes]:
    """Every object that some commits need, without those below what is `known`. Damaged if one of them cannot be read:
    then nothing may be removed (P1)."""
    found: set[bytes] = set()
    stack = trees_of(store, (commit for commit in commits if commit not in known), found)
    while stack:
        tree = stack.pop()
        if tree not in found and tree not in known:
            found.add(tree)
            for entry in store.tree(tree):
                if entry.is_folder:
                    stack.append(entry.oid)
                else:
                    found.add(entry.oid)
    return found


def _remove(pack: Pack) -> None:
    for suffix in _SUFFIXES:
        path = pack.path.with_suffix(suffix)
        if path.exists():
            durable.disk().unlink(str(path))


def _entry(
    store: ObjectStore,
    writer: PackWriter,
    pack: Pack,
    names: Mapping[int, bytes],
    entry: tuple[int, int, bytes, int],
) -> PackEntry:
    """An object for another pack; a delta only if its base is in that pack already, so that no cycle is possible."""
    start, end, oid, crc = entry
    header = pack.header(start)
    if not pack.is_delta(header):
        return PackEntry(oid, pack.raw(start, end), crc)
    base = names.get(header.base) if isinstance(header.base, int) else header.base
    if base is not None and writer.added(base):
        data = entry_header(REF_DELTA, header.size) + base + pack.raw(header.start, end)
        return PackEntry(oid, data, zlib.crc32(data))
    kind, data = store.read(oid)
    return encode_entry(kind, oid, data)


def is_damaged(pack: Pack) -> bool:
    """Whether a pack is not what was written; reads all of it."""
    try:
        if any(pack.checksum_problems()):
            return True
        return any(zlib.crc32(pack.raw(start, end)) != crc for start, end, _, crc in pack.entries())
    except (Damaged, ValueError, IndexError):
        return True
