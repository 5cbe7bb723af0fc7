"""The objects of one save to an object store: each is named after its content, and sent only if it is not there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.errors import Refused
from holdfast.training.folder import Found
from holdfast.training.grouping import Group, group
from holdfast.training.objects import Objects
from holdfast.training.saving import Wish
from holdfast.training.stored import digests
from holdfast.training.stored.layout import SCHEMA_VERSION
from holdfast.training.stored.manifest import FileEntry, TensorEntry
from holdfast.training.stored.shards import Payload, Shard, header, index
from holdfast.training.writing import WrittenShard

_OBJECT_BYTES = 32 << 20
_PIECE_BYTES = 8 << 20
_WHOLE_BELOW_BYTES = 5 << 20
_COPY_MAX_BYTES = 5 << 30
"""Greater objects are not copied by S3 within one request."""


class Sender:
    """Brings shards and documents into the folder of a step."""

    def __init__(self, objects: Objects, stem: str, earlier: Found | None, there: dict[str, int]) -> None:
        self._objects = objects
        self._stem = stem
        self._there = there
        self.algorithm = digests.preferred()
        same = earlier is not None and earlier.manifest.digest_algorithm == self.algorithm
        self._earlier = earlier if same else None

    def bring(self, group: Group) -> WrittenShard:
        """Leave a shard that is there, copy one within the store if nothing in it changed, else send it."""
        return self._copied(group) or self._sent(group.shard)

    def groups(self, payloads: Sequence[Payload], threads: int | None) -> list[Group]:
        """How tensors are divided into objects: larger than files, because each costs a request."""
        manifest = self._earlier.manifest if self._earlier else None
        return group(payloads, manifest, shard_bytes=_OBJECT_BYTES, threads=threads)

    def _copied(self, group: Group) -> WrittenShard | None:
        if self._earlier is None or group.file is None:
            return None
        manifest = self._earlier.manifest
        entry = manifest.files[group.file]
        name = _name(entry.digest)
        if self._there.get(name) != entry.bytes:
            if entry.bytes > _COPY_MAX_BYTES:
                return None
            try:
                self._objects.copy(f"{self._earlier.path.name}/{group.file}", self._stem + name)
            except FileNotFoundError:
                return None
        tensors = {payload.name: manifest.tensors[payload.name]._replace(file=name) for payload in group.shard.payloads}
        return WrittenShard(name, entry, tensors, is_linked=True)

    def _sent(self, shard: Shard) -> WrittenShard:
        """Hash first, for the name; then send, unless an object of that name is there."""
        head = header(shard.payloads)
        entry, tensors = self._described(shard, head)
        name = _name(entry.digest)
        tensors = {tensor: about._replace(file=name) for tensor, about in tensors.items()}
        if self._there.get(name) == entry.bytes:
            return WrittenShard(name, entry, tensors, is_linked=True)
        whole = digests.new(self.algorithm)

        def pieces() -> Iterator[bytes]:
            for piece in _pieces(shard, head):
                whole.update(piece)
                yield piece

        small = entry.bytes < _WHOLE_BELOW_BYTES
        self._objects.put(self._stem + name, b"".join(pieces()) if small else pieces(), entry.bytes)
        if whole.hexdigest() != entry.digest:  # the name would be a lie
            self._objects.delete([self._stem + name])
            names = ", ".join(tensors)
            raise Refused(f"the state changed while it was saved: {names}", hint="Wait, or save with block=False.")
        return WrittenShard(name, entry, tensors, is_linked=False)

    def _described(self, shard: Shard, head: bytes) -> tuple[FileEntry, dict[str, TensorEntry]]:
        whole = digests.new(self.algorithm)
        whole.update(head)
        tensors: dict[str, TensorEntry] = {}
        at = len(head)
        for payload in shard.payloads:
            data = payload.read()
            whole.update(data)
            digest = digests.digest(data, self.algorithm)
            is_sampled = len(data) > digests.SAMPLED_FROM_BYTES
            sample = digests.sample(data, self.algorithm) if is_sampled else digests.sample_of_digest(digest)
            size = payload.n_bytes
            tensors[payload.name] = TensorEntry("", payload.dtype, payload.shape, at, size, digest, sample)
            at += size
        return FileEntry(at, whole.hexdigest(), len(head), digests.digest(head, self.algorithm)), tensors

    def documents(self, wish: Wish, shards: list[WrittenShard]) -> dict[str, FileEntry]:
        """Bring the objects that are no shards: which tensor is where, and the rest of the state."""
        tensors = {name: entry for shard in shards for name, entry in shard.tensors.items()}
        total = sum(entry.bytes for entry in tensors.values())
        where = {name: entry.file for name, entry in tensors.items()}
        state = {"schema_version": SCHEMA_VERSION, "state": wish.tree, "resume": wish.resume, **wish.beside}
        documents: list[tuple[str, str, Any]] = [
            ("model-", ".safetensors.index.json", index(where, total)),
            ("state-", ".json", state),
        ]
        files = {}
        for start, end, document in documents:
            data = json.dumps(document, allow_nan=False, separators=(",", ":"), check_circular=False).encode() + b"\n"
            entry = FileEntry(len(data), digests.digest(data, self.algorithm))
            name = _name(entry.digest, start, end)
            if self._there.get(name) != entry.bytes:
                self._objects.put(self._stem + name, data)
            files[name] = entry
        return files


def _name(digest: str, start: str = "model-", end: str = ".safetensors") -> str:
    return f"{start}{digest[:32]}{end}"


def _pieces(shard: Shard, head: bytes) -> Iterator[bytes]:
    yield head
    for payload in shard.payloads:
        data = payload.read()
        for start in range(0, len(data), _PIECE_BYTES):
            yield bytes(data[start : start + _PIECE_BYTES])
