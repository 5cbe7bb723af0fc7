"""`manifest.json`: the files and tensors of a checkpoint, with their digests. A folder with one is a checkpoint."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quoted
from math import prod
from typing import Any, NamedTuple

from holdfast.errors import Damaged, Remedy
from holdfast.training import gc_pause
from holdfast.training.stored import digests
from holdfast.training.stored.layout import KIND, SCHEMA_VERSION, check_file_name, check_schema
from holdfast.training.stored.shards import ITEM_BYTES

_END = re.compile(rb',"manifest_digest":"([0-9a-f]{64})"\}\n')
_END_BYTES = len(b',"manifest_digest":""}\n') + 64
HINT = "Use another checkpoint."
VERIFY = Remedy("verify")
"""What to do if a checkpoint is damaged."""


class FileEntry(NamedTuple):
    """A file of a checkpoint."""

    bytes: int
    digest: str
    header_bytes: int = 0
    header_digest: str = ""


class TensorEntry(NamedTuple):  # a tuple: there may be tens of thousands
    """A tensor, and where its bytes are."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    digest: str
    sample: str
    """The digest of a few pieces: if it differs, the tensor has changed, and nothing more need be read."""
    fingerprint: str = ""
    """XXH3, if `xxhash` was installed: what loads verify, and saves compare to find changed tensors."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a checkpoint."""

    step: int
    sequence: int
    created_at: str
    digest_algorithm: str
    files: dict[str, FileEntry]
    tensors: dict[str, TensorEntry]
    metrics: dict[str, Any] = field(default_factory=dict)
    """By name, a number; one that is not finite is stored as `{"$float": "nan"}`."""
    metadata: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    config_hash: str | None = None
    writer: str = ""

    @property
    def timestamp(self) -> datetime:
        try:
            found = datetime.fromisoformat(self.created_at)
        except (ValueError, TypeError):
            raise Damaged(
                f"the manifest of step {self.step} is corrupt: bad created_at {self.created_at!r}",
                hint="Delete the checkpoint, or restore it from a backup.",
            ) from None
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    @property
    def state_file(self) -> str:
        """The file with the state without tensors; in an object store its name contains a digest."""
        return next((name for name in self.files if name.startswith("state") and name.endswith(".json")), "state.json")

    @property
    def index_file(self) -> str:
        """The file that maps tensors to files."""
        ending = "safetensors.index.json"
        return next((name for name in self.files if name.endswith(ending)), f"model.{ending}")

    @property
    def total_bytes(self) -> int:
        return sum(entry.bytes for entry in self.files.values())

    @property
    def n_tensors(self) -> int:
        return len(self.tensors)

    @property
    def n_files(self) -> int:
        return len(self.files)

    def metric(self, name: str) -> float | None:
        """Return the value of a metric; None if there is none."""
        found = self.metrics.get(name)
        return float(found["$float"]) if isinstance(found, dict) else found

    def score(self, name: str, mode: str) -> float | None:
        """Return a score, greater is better; None if the metric is missing or not finite, which is never the best."""
        value = self.metric(name)
        if value is None or not math.isfinite(value):
            return None
        return -value if mode == "min" else value

    def encode(self, tensors: Iterable[bytes] | None = None) -> bytes:
        """Return JSON whose last entry is the digest of everything before it.

        tensors: what `encode_tensors` returns for those of each file, if the caller has it.
        """
        about = {each.name: getattr(self, each.name) for each in fields(Manifest) if each.name != "tensors"}
        about["files"] = {name: entry._asdict() for name, entry in self.files.items()}
        head = json.dumps(
            {"schema_version": SCHEMA_VERSION, "kind": KIND, **about}, separators=(",", ":"), allow_nan=False
        )
        entries = b",".join(tensors) if tensors is not None else encode_tensors(self.tensors)
        text = b"".join((head[:-1].encode(), b',"tensors":{', entries, b"}"))
        return b"".join((text, b',"manifest_digest":"', digests.digest(text, self.digest_algorithm).encode(), b'"}\n'))


def encode_tensors(tensors: Mapping[str, TensorEntry]) -> bytes:
    """Return tensors as a manifest has them."""
    return ",".join([_encode_tensor(name, entry) for name, entry in tensors.items()]).encode()


def _encode_tensor(name: str, entry: TensorEntry) -> str:
    """Encode an entry by hand: there may be tens of thousands, and this takes a fifth of the time."""
    file, dtype, shape, offset, size, digest, sample, fingerprint = entry
    sizes = ",".join(map(str, shape))
    return (
        f'{quoted(name)}:{{"file":"{file}","dtype":"{dtype}","shape":[{sizes}],"offset":{offset},"bytes":{size},'
        f'"digest":"{digest}","sample":"{sample}","fingerprint":"{fingerprint}"}}'
    )


@dataclass(frozen=True, slots=True)
class Brief(Manifest):
    """A manifest without files and tensors, but with their numbers and size."""

    n_bytes: int = 0
    tensor_count: int = 0
    file_count: int = 0

    @property
    def total_bytes(self) -> int:
        return self.n_bytes

    @property
    def n_tensors(self) -> int:
        return self.tensor_count

    @property
    def n_files(self) -> int:
        return self.file_count

    @classmethod
    def of(cls, manifest: Manifest) -> Brief:
        """Return a manifest that takes a thousandth of the memory."""
        about = {each.name: getattr(manifest, each.name) for each in fields(Manifest)} | {"files": {}, "tensors": {}}
        sizes = manifest.total_bytes, manifest.n_tensors, manifest.n_files
        return cls(**about, n_bytes=sizes[0], tensor_count=sizes[1], file_count=sizes[2])


def decode(data: bytes, where: str, *, verify: bool = True) -> Manifest:
    """Decode a manifest. Damaged if a bit of it is wrong. `where` names it in messages."""
    with gc_pause.paused():
        return _decode(data, where, verify)


def _decode(data: bytes, where: str, verify: bool) -> Manifest:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise Damaged(f"{where} is not JSON", hint=HINT, remedy=VERIFY) from None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise Damaged(f"{where} is not a Holdfast manifest", hint=HINT, remedy=VERIFY)
    check_schema(found.get("schema_version"), where)
    try:
        manifest = _read(found)
        if verify:
            _check_digest(data, manifest.digest_algorithm, where)
        _check(manifest, where)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Damaged(f"{where} is corrupt ({type(error).__name__}: {error})", hint=HINT, remedy=VERIFY) from None
    return manifest


def is_foreign(data: bytes) -> bool:
    """Whether it is valid JSON of another program, and not a damaged manifest of Holdfast."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return bool(found) and (not isinstance(found, dict) or found.get("kind") != KIND)


def _check_digest(data: bytes, algorithm: str, where: str) -> None:
    end = _END.fullmatch(data[-_END_BYTES:])
    if end is None or digests.digest(data[:-_END_BYTES], algorithm) != end[1].decode():
        raise Damaged(f"{where} is corrupt: its digest differs", hint=HINT, remedy=VERIFY)


def _read(found: Mapping[str, Any]) -> Manifest:
    known = {each.name for each in fields(Manifest)}
    plain = {name: value for name, value in found.items() if name in known}
    files = {name: FileEntry(**entry) for name, entry in found["files"].items()}
    tensors = {}
    for name, entry in found["tensors"].items():
        entry["shape"] = tuple(entry["shape"])
        tensors[name] = TensorEntry(**entry)
    return Manifest(**{**plain, "files": files, "tensors": tensors})


def _check(manifest: Manifest, where: str) -> None:
    """Validate everything that readers rely on, also if another program wrote it (P7)."""
    for name in manifest.files:
        check_file_name(name, where)
    for number in (manifest.step, manifest.sequence):
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ValueError(f"{number!r} is not a step or sequence number")
    _ = manifest.timestamp
    for metric in manifest.metrics:
        if not isinstance(manifest.metric(metric), int | float):
            raise ValueError(f"the metric {metric} is not a number")
    for name, entry in manifest.tensors.items():
        file = manifest.files[entry.file]
        for size in (*entry.shape, entry.offset, entry.bytes, file.bytes, file.header_bytes):
            if type(size) is not int or size < 0:
                raise ValueError(f"{name} has an invalid size")
        if not (entry.digest + entry.sample + entry.fingerprint).isalnum():
            raise ValueError(f"{name} has an invalid digest")
        if prod(entry.shape) * ITEM_BYTES[entry.dtype] != entry.bytes:
            raise ValueError(f"the size of {name} does not match its shape")
        if not file.header_bytes <= entry.offset <= entry.offset + entry.bytes <= file.bytes:
            raise ValueError(f"{name} lies outside its file")
