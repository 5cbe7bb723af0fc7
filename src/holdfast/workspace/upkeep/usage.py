"""Where the bytes of a store are: by kind of file, by checkpoint, by path.

Every tree of every checkpoint is read, those that checkpoints share only once; contents are not. Nothing is changed,
and no lock is taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from holdfast.errors import Damaged, NotFound
from holdfast.model import Checkpoint, CheckpointUsage, PathUsage, Usage
from holdfast.shadowgit import FOLDER_MODE
from holdfast.workspace.stored.parts import list_parts
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import Entry, TreeReader
from holdfast.workspace.upkeep.weights import Weights

_MADE_AGAIN = ("holdfast/catalog.db", "holdfast/scan.cache")
_AT_A_TIME = 64  # how many checkpoints are compared before what was read of them is forgotten


def measure(repository: Repository, *, paths: int | None) -> Usage:
    """Tell where the bytes are, with so many paths (None: all)."""
    files = _files(repository)
    weights = Weights(repository.objects)
    whole, own, readable = _checkpoints(repository, weights)
    sizes, contents = _paths(repository, weights, readable)
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))
    shown = largest if paths is None else largest[:paths]
    return Usage(
        total_bytes=sum(files.values()),
        packs_bytes=files["packs"],
        catalog_bytes=files["catalog"],
        other_bytes=files["other"],
        unneeded_bytes=_unneeded(repository, weights),
        checkpoints=[
            CheckpointUsage(each, own[each.id], max(0, whole[each.id] - own[each.id])) for each in reversed(readable)
        ],
        paths=[PathUsage(path, sizes[path], contents[path]) for path in shown],
        more_paths=len(largest) - len(shown),
    )


def _unneeded(repository: Repository, weights: Weights) -> int:
    """What no ref needs; nothing, where that cannot be told."""
    try:
        return weights.total_bytes - weights.needed_bytes(repository.objects.commits())
    except Damaged:
        return 0


def _files(repository: Repository) -> dict[str, int]:
    """What the files of a store take on the disk."""
    found = dict.fromkeys(("packs", "catalog", "other"), 0)
    for folder, _, names in os.walk(repository.folder):
        for name in names:
            path = os.path.join(folder, name)
            inner = os.path.relpath(path, repository.folder)
            kind = "packs" if inner.startswith("objects/pack/") else "other"
            try:
                found["catalog" if inner.startswith(_MADE_AGAIN) else kind] += os.lstat(path).st_blocks * 512
            except FileNotFoundError:
                continue
    return found


def _checkpoints(repository: Repository, weights: Weights) -> tuple[dict[str, int], dict[str, int], list[Checkpoint]]:
    """What each checkpoint needs, what only it needs, and those that can be read, oldest first."""
    whole: dict[str, int] = {}
    readable, commits = [], {}
    for row in reversed(repository.catalog.newest(limit=None, session=None, safety=True)):
        whole[row.id] = 0
        try:
            whole[row.id] = weights.whole_bytes(bytes.fromhex(row.commit))
        except (Damaged, NotFound):
            continue
        commits[row.id] = bytes.fromhex(row.commit)
        readable.append(repository.checkpoint(row))
    return whole, weights.own_bytes(commits), readable


def _paths(
    repository: Repository, weights: Weights, checkpoints: Iterable[Checkpoint]
) -> tuple[dict[str, int], dict[str, int]]:
    """By path: the bytes of all its contents, and how many there are."""
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
                sizes[path] = sizes.get(path, 0) + weights.sizes.get(oid, 0)
    return sizes, contents


def _held(repository: Repository, checkpoints: Iterable[Checkpoint]) -> Iterator[tuple[str, Entry]]:
    """Every path and its content, of each checkpoint only where it differs from the one before."""
    before: Node | None = None
    reader = TreeReader(repository.objects)
    for number, checkpoint in enumerate(checkpoints):
        if not number % _AT_A_TIME:
            reader = TreeReader(repository.objects)
        try:
            root = repository.contents(checkpoint).root
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
