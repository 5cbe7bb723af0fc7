"""The life of a save to an object store: shards, the rest, the manifest if none is there, the markers."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.errors import Conflict, HoldfastError
from holdfast.training.folder import Found
from holdfast.training.remote import RemoteFolder
from holdfast.training.retaining import plan
from holdfast.training.saving import Wish, check_step, told
from holdfast.training.stored import digests
from holdfast.training.stored.layout import BEST, LAST, MANIFEST, SCHEMA_VERSION, step_name, step_of
from holdfast.training.stored.manifest import FileEntry, Manifest, TensorEntry
from holdfast.training.stored.shards import Payload, Shard, arrange, header, index
from holdfast.training.threads import each
from holdfast.training.writing import WrittenShard

_PIECE_BYTES = 8 << 20
_WHOLE_BELOW_BYTES = 5 << 20
_LITTER_AFTER = timedelta(days=1)


def save_remote(folder: RemoteFolder, wish: Wish) -> dict[str, Any]:
    """Make a checkpoint in an object store. On any error what was written is removed, or swept a day later."""
    found, _ = check_step(folder, wish)  # type: ignore[arg-type]
    earlier = folder.full(found[-1]) if found else None
    stem = f"{step_name(wish.step)}/"
    token = secrets.token_hex(4)
    upload = _Upload(folder, stem, token, earlier)
    try:
        shards = arrange(wish.payloads)
        pairs = [(f"model-{token}-{at:05d}.safetensors", shard) for at, shard in enumerate(shards, 1)]
        written = each(upload.bring, pairs, threads=wish.threads)
        manifest = upload.describe(wish, written, found)
        tag = upload.publish(manifest, replace=wish.rewind)
    except BaseException:
        with contextlib.suppress(HoldfastError):
            folder.objects.delete(upload.keys)
        raise
    new = Found(folder.path / step_name(wish.step), manifest)
    found = [one for one in found if one.step != wish.step] + [new]
    return _conclude(folder, wish, new, found, written, tag)


def _conclude(
    folder: RemoteFolder, wish: Wish, new: Found, found: list[Found], written: list[WrittenShard], tag: str
) -> dict[str, Any]:
    """Move the markers, then prune; what counts is in the manifests already."""
    if wish.pin:
        folder.pin(folder.pinned() | {wish.step})
    best = folder.best_of(found, wish.best_key, wish.mode) if wish.best_key else None
    if wish.best_key and best is not None:
        value = best.manifest.metric(wish.best_key)
        about = {"metric": wish.best_key, "mode": wish.mode, "value": value, "step": best.step}
        folder.mark(BEST, {**about, "path": best.path.name})
    trimmed = plan(folder, found, wish.keep, best_key=wish.best_key, mode=wish.mode, now=new.manifest.timestamp)  # type: ignore[arg-type]
    history = _history(folder, [one for one in found if one.step not in trimmed.removed], new, tag)
    folder.mark(LAST, {"step": new.step, "sequence": new.manifest.sequence, "path": new.path.name, "history": history})
    for one in found:
        if one.step in trimmed.removed:
            folder.remove(one)
    _sweep(folder, new)
    return told(wish, new, written, best is new) | {"pruned": trimmed.removed, "kept": trimmed.kept}


def _history(folder: RemoteFolder, found: list[Found], new: Found, tag: str) -> list[dict[str, Any]]:
    known = {entry.get("step"): entry for entry in (folder.last_marker() or {}).get("history", [])}
    entries = [known[one.step] for one in found if one is not new and one.step in known]
    manifest = new.manifest
    about = {"step": new.step, "sequence": manifest.sequence, "created_at": manifest.created_at}
    return [*entries, {**about, "metrics": manifest.metrics, "tag": tag}]


def _sweep(folder: RemoteFolder, new: Found) -> None:
    """Remove what saves that died left, once they are surely dead; and what this one replaced."""
    now = datetime.now(UTC)
    entries = folder.objects.list()
    whole = {entry.key.partition("/")[0] for entry in entries if entry.key.endswith(f"/{MANIFEST}")}
    ours = {f"{new.path.name}/{name}" for name in (*new.manifest.files, MANIFEST)}
    doomed = []
    for entry in entries:
        top, _, name = entry.key.partition("/")
        if step_of(top) is None or not name.startswith(("model-", "state-")) or entry.key in ours:
            continue
        is_old = now - entry.modified > _LITTER_AFTER
        if is_old and (top not in whole or top == new.path.name):
            doomed.append(entry.key)
    folder.objects.delete(doomed)


class _Upload:
    """The objects of one save."""

    def __init__(self, folder: RemoteFolder, stem: str, token: str, earlier: Found | None) -> None:
        self._folder = folder
        self._objects = folder.objects
        self._stem = stem
        self._token = token
        self._algorithm = digests.preferred()
        same = earlier is not None and earlier.manifest.digest_algorithm == self._algorithm
        self._earlier = earlier if same else None
        self.keys: list[str] = []

    def bring(self, pair: tuple[str, Shard]) -> WrittenShard:
        """Copy a shard within the store if nothing in it changed, else write it."""
        name, shard = pair
        self.keys.append(self._stem + name)
        return self._copied(name, shard) or self._written(name, shard)

    def _copied(self, name: str, shard: Shard) -> WrittenShard | None:
        if self._earlier is None:
            return None
        manifest = self._earlier.manifest
        known = [manifest.tensors.get(payload.name) for payload in shard.payloads]
        entries = [entry for entry in known if entry is not None]
        if len(entries) != len(known) or len({entry.file for entry in entries}) != 1:
            return None
        file = entries[0].file
        if sum(entry.file == file for entry in manifest.tensors.values()) != len(entries):
            return None
        if not all(self._is_same(*both) for both in zip(shard.payloads, entries, strict=True)):
            return None
        try:
            self._objects.copy(f"{self._earlier.path.name}/{file}", self._stem + name)
        except FileNotFoundError:
            return None
        pairs = zip(shard.payloads, entries, strict=True)
        tensors = {payload.name: _moved(entry, name) for payload, entry in pairs}
        return WrittenShard(name, manifest.files[file], tensors, is_linked=True)

    def _is_same(self, payload: Payload, known: TensorEntry) -> bool:
        if (payload.dtype, payload.shape) != (known.dtype, known.shape):
            return False
        data = payload.read()
        if digests.sample(data, self._algorithm) != known.sample:
            return False
        return digests.digest(data, self._algorithm) == known.digest

    def _written(self, name: str, shard: Shard) -> WrittenShard:
        head = header(shard.payloads)
        whole = digests.new(self._algorithm)
        tensors: dict[str, TensorEntry] = {}

        def pieces() -> Iterator[bytes]:
            whole.update(head)
            yield head
            at = len(head)
            for payload in shard.payloads:
                data = payload.read()
                hasher, sample = digests.new(self._algorithm), digests.sample(data, self._algorithm)
                for start in range(0, len(data), _PIECE_BYTES):
                    piece = bytes(data[start : start + _PIECE_BYTES])
                    hasher.update(piece)
                    whole.update(piece)
                    yield piece
                size, digest = payload.n_bytes, hasher.hexdigest()
                tensors[payload.name] = TensorEntry(name, payload.dtype, payload.shape, at, size, digest, sample)
                at += size

        size = len(head) + shard.n_bytes
        self._objects.put(self._stem + name, b"".join(pieces()) if size < _WHOLE_BELOW_BYTES else pieces())
        entry = FileEntry(size, whole.hexdigest(), len(head), digests.digest(head, self._algorithm))
        return WrittenShard(name, entry, tensors, is_linked=False)

    def describe(self, wish: Wish, shards: list[WrittenShard], found: list[Found]) -> Manifest:
        """Write the other objects, and say what the manifest will."""
        tensors = {name: entry for shard in shards for name, entry in shard.tensors.items()}
        files = {shard.name: shard.entry for shard in shards}
        total = sum(entry.bytes for entry in tensors.values())
        where = {name: entry.file for name, entry in tensors.items()}
        state = {"schema_version": SCHEMA_VERSION, "state": wish.tree, "resume": wish.resume, **wish.beside}
        documents = {
            f"model-{self._token}.safetensors.index.json": index(where, total),
            f"state-{self._token}.json": state,
        }
        for name, document in documents.items():
            data = json.dumps(document, allow_nan=False, separators=(",", ":")).encode() + b"\n"
            self.keys.append(self._stem + name)
            self._objects.put(self._stem + name, data)
            files[name] = FileEntry(len(data), digests.digest(data, self._algorithm))
        given = (self._folder.last_marker() or {}).get("sequence", 0)
        sequence = max([given if isinstance(given, int) else 0, *(one.manifest.sequence for one in found)]) + 1
        return Manifest(
            step=wish.step, sequence=sequence, created_at=wish.created_at, digest_algorithm=self._algorithm,
            files=files, tensors=tensors, metrics=wish.metrics, metadata=wish.metadata,
            environment=wish.environment, config_hash=wish.config_hash, writer="holdfast",
        )  # fmt: skip

    def publish(self, manifest: Manifest, *, replace: bool) -> str:
        """The commit point; Conflict if somebody else was first."""
        key = self._stem + MANIFEST
        tag = self._objects.create(key, manifest.encode())
        if tag is None and replace:
            tag = self._objects.put(key, manifest.encode())
        if tag is None:
            raise Conflict(
                f"step {manifest.step} was saved by somebody else meanwhile", hint="Use that one, or save another step."
            )
        return tag


def _moved(entry: TensorEntry, file: str) -> TensorEntry:
    return replace(entry, file=file)
