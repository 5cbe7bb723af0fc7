"""Which files a save shares with the previous checkpoint, and how it divides the other tensors into files (P8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.training.stored import digests
from holdfast.training.stored.manifest import Manifest, TensorEntry
from holdfast.training.stored.shards import OWN_FILE_FROM_BYTES, SHARD_BYTES, Payload, Shard, arrange
from holdfast.training.threads import each

_MANY_SMALL_FILES = 8
_SMALL_BYTES = 64 << 10
_WORTH_A_FILE_BYTES = 256 << 10


class ShardPlan(NamedTuple):
    """Tensors that share a file, and the file of the previous checkpoint that has exactly these, if one does."""

    shard: Shard
    file: str | None = None


def plan_shards(
    payloads: Sequence[Payload],
    previous: Manifest | None,
    known: Mapping[str, Mapping[str, TensorEntry]],
    *,
    may_share: Callable[[str], bool] = lambda file: True,
    shard_bytes: int = SHARD_BYTES,
    threads: int | None = None,
) -> list[ShardPlan]:
    """Divide tensors into files, in roughly the order in which they were given.

    A file is shared if the state has all its tensors, unchanged. (A file with a tensor that the state no longer has
    cannot be shared: programs that read all files would load that tensor.) Tensors that must be written are divided
    into changed and unchanged ones: what changed once will change again, and the rest can be shared by the next save.

    known: the tensors of `previous`, by file and name.
    """
    if previous is None:
        return [ShardPlan(shard) for shard in arrange(payloads, shard_bytes)]
    named = {payload[0]: payload for payload in payloads}
    algorithm = previous.digest_algorithm

    def unchanged(file: str) -> list[Payload]:
        return _unchanged(known[file], named, algorithm)

    # Threads only for large tensors, which are hashed without holding the interpreter lock
    large = [file for file, tensors in known.items() if previous.files[file].bytes > len(tensors) * _SMALL_BYTES]
    found = dict(zip(large, each(unchanged, large, threads=threads), strict=True))
    found |= {file: unchanged(file) for file in known if file not in found}
    shared = {file: same for file, same in found.items() if len(same) == len(known[file]) and may_share(file)}
    for file in _small_files(shared, previous, shard_bytes):
        del shared[file]
    plans = [ShardPlan(Shard(tuple(same)), file) for file, same in shared.items()]
    if sum(len(same) for same in shared.values()) < len(payloads):
        in_shared = {payload.name for same in shared.values() for payload in same}
        written = [payload for payload in payloads if payload.name not in in_shared]
        unchanged_names = {payload.name for same in found.values() for payload in same}
        rest = [payload for payload in written if payload.name in unchanged_names]
        if sum(payload.n_bytes for payload in rest) >= _WORTH_A_FILE_BYTES:
            written = [payload for payload in written if payload.name not in unchanged_names]
            plans += [ShardPlan(shard) for shard in arrange(rest, shard_bytes)]
        plans += [ShardPlan(shard) for shard in arrange(written, shard_bytes)]
    by_first = {one.shard.payloads[0].name: one for one in plans}
    return [by_first[payload.name] for payload in payloads if payload.name in by_first]


def _small_files(shared: dict[str, list[Payload]], previous: Manifest, shard_bytes: int) -> list[str]:
    """Return files that are less than half full, once there are many: each save may leave two more of them."""
    sizes = {file: previous.files[file].bytes - previous.files[file].header_bytes for file in shared}
    small = [
        file
        for file, size in sizes.items()
        if size < shard_bytes // 2 and (size < OWN_FILE_FROM_BYTES or len(shared[file]) > 1)
    ]
    return small if len(small) > _MANY_SMALL_FILES else []


def _unchanged(known: Mapping[str, TensorEntry], named: Mapping[str, Payload], algorithm: str) -> list[Payload]:
    """Return the tensors that are, bit for bit, what is stored under their names."""
    found = []
    fingerprint_of, sampled_from = digests.fingerprint_function(), digests.SAMPLED_FROM_BYTES
    for name, entry in known.items():
        payload = named.get(name)
        _, dtype, shape, _, n_bytes, _, _, fingerprint = entry
        if payload is None or payload[1] != dtype or payload[2] != shape:
            continue
        if n_bytes <= sampled_from and fingerprint and fingerprint_of is not None:
            # Inlined: for small tensors the cost is Python's calls, not the hash
            is_same = fingerprint_of(payload[4](payload[3])) == fingerprint
        else:
            is_same = _is_same(payload.read(), entry, algorithm)
        if is_same:
            found.append(payload)
    return found


def _is_same(data: memoryview, known: TensorEntry, algorithm: str) -> bool:
    if known.bytes > digests.SAMPLED_FROM_BYTES and digests.sample(data, algorithm) != known.sample:
        return False
    if known.fingerprint and (found := digests.fingerprint(data)):
        return found == known.fingerprint
    return digests.digest(data, algorithm) == known.digest
