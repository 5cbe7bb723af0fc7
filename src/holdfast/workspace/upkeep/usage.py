"""Disk usage of a store: by kind of file, by checkpoint, by path.

Reads every tree of every checkpoint, shared ones once; no contents. Changes nothing, and takes no lock (P9).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from holdfast.errors import Damaged, NotFound
from holdfast.model import Checkpoint, CheckpointUsage, PathUsage, Usage
from holdfast.shadowgit import FOLDER_MODE
from holdfast.workspace.stored.chunking import list_parts
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import Entry, TreeReader
from holdfast.workspace.upkeep.object_sizes import ObjectSizes

_MADE_AGAIN = ("holdfast/catalog.db", "holdfast/scan.cache", "holdfast/summaries.db", "holdfast/changes.db")
_AT_A_TIME = 64  # checkpoints compared before the cache of trees is dropped


def measure(repository: Repository, *, paths: int | None) -> Usage:
    """Measure the usage, with the `paths` largest paths (None: all)."""
    files = _files(repository)
    object_sizes = ObjectSizes(repository.objects)
    whole, own, readable = _checkpoints(repository, object_sizes)
    parts = _parts(repository, readable)
    sizes, contents = _paths(repository, object_sizes, parts)
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))
    shown = largest if paths is None else largest[:paths]
    return Usage(
        total_bytes=sum(files.values()),
        packs_bytes=files["packs"],
        catalog_bytes=files["catalog"],
        other_bytes=files["other"],
        unneeded_bytes=_unneeded(repository, object_sizes),
        git_bytes=_git(object_sizes, parts),
        checkpoints=[
            CheckpointUsage(each, own[each.id], max(0, whole[each.id] - own[each.id])) for each in reversed(readable)
        ],
        paths=[PathUsage(path, sizes[path], contents[path]) for path in shown],
        more_paths=len(largest) - len(shown),
    )


def _unneeded(repository: Repository, object_sizes: ObjectSizes) -> int:
    """Return the bytes that no ref needs; 0 if that is unknown."""
    try:
        return object_sizes.total_bytes - object_sizes.needed_bytes(repository.objects.commits())
    except Damaged:
        return 0


class _Parts(NamedTuple):
    """What is asked of each checkpoint more than once, so that it is read once."""

    root: Node
    git: bytes
    git_data: bytes


def _parts(repository: Repository, checkpoints: Iterable[Checkpoint]) -> list[_Parts]:
    found = []
    for checkpoint in checkpoints:
        with suppress(Damaged, NotFound):
            contents = repository.contents(checkpoint)
            found.append(_Parts(contents.root, contents.git, contents.git_data))
    return found


def _git(object_sizes: ObjectSizes, checkpoints: Iterable[_Parts]) -> int:
    """Return the bytes of what checkpoints hold of the user's git; what they share counts once."""
    found: set[bytes] = set()
    for _, git, git_data in checkpoints:
        stack = [git_data] if git_data else []
        found |= {git} if git else set()
        with suppress(Damaged):
            while stack:
                tree = stack.pop()
                if tree not in found:
                    found.add(tree)
                    below = object_sizes.below(tree)
                    stack += below.trees
                    found.update(below.blobs)
    return sum(object_sizes.sizes.get(oid, 0) for oid in found)


def _files(repository: Repository) -> dict[str, int]:
    """Return the disk space of the files of a store."""
    found = dict.fromkeys(("packs", "catalog", "other"), 0)
    above = len(os.path.join(repository.folder, ""))
    for folder, _, names in os.walk(repository.folder):
        for name in names:
            path = os.path.join(folder, name)
            inner = path[above:].replace(os.sep, "/")
            kind = "packs" if inner.startswith("objects/pack/") else "other"
            try:
                found["catalog" if inner.startswith(_MADE_AGAIN) else kind] += os.lstat(path).st_blocks * 512
            except FileNotFoundError:
                continue
    return found


def _checkpoints(
    repository: Repository, object_sizes: ObjectSizes
) -> tuple[dict[str, int], dict[str, int], list[Checkpoint]]:
    """Return what each checkpoint needs, what only it needs, and the readable checkpoints, oldest first."""
    whole: dict[str, int] = {}
    readable, commits = [], {}
    for row in reversed(repository.catalog.newest(limit=None, session=None, safety=True)):
        whole[row.id] = 0
        try:
            whole[row.id] = object_sizes.whole_bytes(bytes.fromhex(row.commit))
        except (Damaged, NotFound):
            continue
        commits[row.id] = bytes.fromhex(row.commit)
        readable.append(repository.checkpoint(row))
    return whole, object_sizes.own_bytes(commits), readable


def _paths(
    repository: Repository, object_sizes: ObjectSizes, checkpoints: Iterable[_Parts]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return by path the bytes of all its contents, and their number."""
    sizes: dict[str, int] = {}
    contents: dict[str, int] = {}
    seen: set[tuple[str, bytes]] = set()
    for path, entry in _held(repository, checkpoints):
        if (path, entry.oid) in seen:
            continue
        seen.add((path, entry.oid))
        contents[path] = contents.get(path, 0) + 1
        for oid in _objects(repository, entry):
            if oid == entry.oid or (path, oid) not in seen:
                seen.add((path, oid))
                sizes[path] = sizes.get(path, 0) + object_sizes.sizes.get(oid, 0)
    return sizes, contents


def _held(repository: Repository, checkpoints: Iterable[_Parts]) -> Iterator[tuple[str, Entry]]:
    """Yield every path and its content, of each checkpoint only where it differs from the one before."""
    before: Node | None = None
    reader = TreeReader(repository.objects)
    for number, (root, _, _) in enumerate(checkpoints):
        if not number % _AT_A_TIME:
            reader = TreeReader(repository.objects)
        try:
            for change in reader.diff(before, root):
                if change.after is not None and change.after.oid:
                    yield change.path, change.after
        except (Damaged, NotFound):
            continue
        before = root


def _objects(repository: Repository, entry: Entry) -> Iterator[bytes]:
    if entry.attr.parts_bytes is None:
        yield entry.oid
    else:
        yield from list_parts(repository.objects, FOLDER_MODE, entry.oid)
