"""Which files a save shares with the checkpoint before, and how it groups the tensors that it writes (P8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.training.stored import digests
from holdfast.training.stored.manifest import Manifest, TensorEntry
from holdfast.training.stored.shards import OWN_FILE_FROM_BYTES, SHARD_BYTES, Payload, Shard, arrange
from holdfast.training.threads import each

_MOST_SMALL_FILES = 8
_SMALL_BYTES = 64 << 10
_WORTH_A_FILE_BYTES = 256 << 10


class Group(NamedTuple):
    """Tensors that share a file, and the file of the checkpoint before that has just these, if one does."""

    shard: Shard
    file: str | None = None


def group(
    payloads: Sequence[Payload],
    earlier: Manifest | None,
    *,
    may_share: Callable[[str], bool] = lambda file: True,
    shard_bytes: int = SHARD_BYTES,
    threads: int | None = None,
) -> list[Group]:
    """Divide tensors into files, in about the order in which they were given.

    A file is shared if the state has all its tensors, each as it was: one that the state no longer has would be read by
    whoever reads all files. What has to be written is divided into what changed and what did not: what changed once
    will change again, and the rest can be shared the next time.
    """
    if earlier is None:
        return [Group(shard) for shard in arrange(payloads, shard_bytes)]
    known = earlier.tensors
    algorithm = earlier.digest_algorithm
    sizes: dict[str, int] = {}
    for entry in known.values():
        sizes[entry.file] = sizes.get(entry.file, 0) + 1
    by_file: dict[str, list[Payload]] = {}
    for payload in payloads:
        if payload.name in known:
            by_file.setdefault(known[payload.name].file, []).append(payload)

    def unchanged(file: str) -> list[Payload]:
        return [payload for payload in by_file[file] if _is_same(payload, known[payload.name], algorithm)]

    # Threads only for what is hashed without the lock of the interpreter: tensors that are not small
    large = [file for file, same in by_file.items() if earlier.files[file].bytes > len(same) * _SMALL_BYTES]
    found = dict(zip(large, each(unchanged, large, threads=threads), strict=True))
    found |= {file: unchanged(file) for file in by_file if file not in found}
    shared = {file: same for file, same in found.items() if len(same) == sizes[file] and may_share(file)}
    for file in _too_small(shared, earlier, shard_bytes):
        del shared[file]
    groups = [Group(Shard(tuple(same)), file) for file, same in shared.items()]
    if sum(len(same) for same in shared.values()) < len(payloads):
        kept = {payload.name for same in shared.values() for payload in same}
        written = [payload for payload in payloads if payload.name not in kept]
        still = {payload.name for same in found.values() for payload in same}
        rest = [payload for payload in written if payload.name in still]
        if sum(payload.n_bytes for payload in rest) >= _WORTH_A_FILE_BYTES:
            written = [payload for payload in written if payload.name not in still]
            groups += [Group(shard) for shard in arrange(rest, shard_bytes)]
        groups += [Group(shard) for shard in arrange(written, shard_bytes)]
    first = {each.shard.payloads[0].name: each for each in groups}
    return [first[payload.name] for payload in payloads if payload.name in first]


def _too_small(shared: dict[str, list[Payload]], earlier: Manifest, shard_bytes: int) -> list[str]:
    """Files that are not half full, once there are many: each save may leave two more of them."""
    sizes = {file: earlier.files[file].bytes - earlier.files[file].header_bytes for file in shared}
    small = [
        file
        for file, size in sizes.items()
        if size < shard_bytes // 2 and (size < OWN_FILE_FROM_BYTES or len(shared[file]) > 1)
    ]
    return small if len(small) > _MOST_SMALL_FILES else []


def _is_same(payload: Payload, known: TensorEntry, algorithm: str) -> bool:
    """Whether a tensor is, bit for bit, what is stored under its name."""
    _, dtype, shape, source, bytes_of = payload
    if dtype != known.dtype or shape != known.shape:
        return False
    data = bytes_of(source)
    if known.bytes > digests.SAMPLED_FROM_BYTES and digests.sample(data, algorithm) != known.sample:
        return False
    if known.fingerprint and (found := digests.fingerprint(data)):
        return found == known.fingerprint
    return digests.digest(data, algorithm) == known.digest
