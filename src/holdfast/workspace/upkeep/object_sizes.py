"""Sizes of checkpoints: which objects each needs, and how large those are in the packs.

Every tree is read once, however many checkpoints share it, so the cost follows what differs between them (P8). A delta
counts with its size in the pack, without its base.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.shadowgit import ObjectStore, decode_commit, trees_of

_INDEX_BYTES = 28  # id, checksum and offset of an object in the index of its pack
_SHARED = ""


class Below(NamedTuple):
    """What a tree refers to: trees, and everything else."""

    trees: list[bytes]
    blobs: list[bytes]


class ObjectSizes:
    """The sizes of all objects in the packs of a store. Raises Damaged for an unreadable object."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._below: dict[bytes, Below] = {}
        self._names: dict[bytes, bytes] = {}
        self._whole: dict[bytes, int] = {}
        self._roots: dict[bytes, bytes] = {}
        self.sizes: dict[bytes, int] = {}
        self.total_bytes = 0
        for pack in objects.packs():
            for start, end, oid, _ in pack.entries():
                size = end - start + _INDEX_BYTES
                self.total_bytes += size  # duplicates count too
                self.sizes[oid] = min(size, self.sizes.get(oid, size))

    def needed_bytes(self, commits: Iterable[bytes]) -> int:
        """Return how many bytes some commits need together."""
        return self._add(commits, set())

    def left_bytes(self, order: Sequence[bytes], others: Iterable[bytes]) -> list[int]:
        """Return how many bytes `others` and `order` need, without the first 0, 1, 2, … of `order`."""
        found: set[bytes] = set()
        left = [self._add(others, found)]
        for commit in reversed(order):
            left.append(left[-1] + self._add([commit], found))
        return left[::-1]

    def own_bytes(self, commits: dict[str, bytes]) -> dict[str, int]:
        """Return by checkpoint the bytes that only it needs."""
        owner: dict[bytes, str] = {}
        for key, commit in commits.items():
            stack = [self._root(commit)]
            owner[commit] = key if owner.get(commit, key) == key else _SHARED
            while stack:
                tree = stack.pop()
                if owner.get(tree) in (key, _SHARED):
                    continue
                mine = owner[tree] = key if tree not in owner else _SHARED
                below = self.below(tree)
                stack += below.trees
                for oid in below.blobs:
                    owner[oid] = mine if owner.get(oid, key) == key else _SHARED
        own = dict.fromkeys(commits, 0)
        for oid, key in owner.items():
            if key:
                own[key] += self.sizes.get(oid, 0)
        return own

    def whole_bytes(self, commit: bytes) -> int:
        """Return the bytes of everything in a commit; what several folders share counts in each."""
        root = self._root(commit)
        stack = [root]
        while stack:
            below = self.below(stack[-1])
            missing = [tree for tree in below.trees if tree not in self._whole]
            if missing:
                stack += missing
                continue
            tree = stack.pop()
            trees, blobs = set(below.trees), set(below.blobs)  # a hole in a large file is the same chunk many times
            inner = sum(self._whole[each] for each in trees) + sum(self.sizes.get(oid, 0) for oid in blobs)
            self._whole[tree] = self.sizes.get(tree, 0) + inner
        return self.sizes.get(commit, 0) + self._whole[root]

    def _root(self, commit: bytes) -> bytes:
        """Return the tree of a commit, read once."""
        known = self._roots.get(commit)
        if known is None:
            known = self._roots[commit] = decode_commit(self._objects.commit(commit))
        return known

    def below(self, tree: bytes) -> Below:
        """Return what a tree refers to, read once. Ids are interned: there are many more entries than objects."""
        known = self._below.get(tree)
        if known is None:
            known = self._below[tree] = Below([], [])
            for entry in self._objects.tree(tree):
                name = self._names.setdefault(entry.oid, entry.oid)
                (known.trees if entry.is_folder else known.blobs).append(name)
        return known

    def _add(self, commits: Iterable[bytes], found: set[bytes]) -> int:
        """Add what commits need to a set; return how many bytes that adds."""
        added = 0
        for commit in commits:
            named: set[bytes] = set()
            stack = [] if commit in found else trees_of(self._objects, [commit], named)
            added += sum(self.sizes.get(oid, 0) for oid in named - found)
            found |= named
            while stack:
                tree = stack.pop()
                if tree in found:
                    continue
                found.add(tree)
                below = self.below(tree)
                stack += below.trees
                new = set(below.blobs) - found
                found |= new
                added += self.sizes.get(tree, 0) + sum(self.sizes.get(oid, 0) for oid in new)
        return added
