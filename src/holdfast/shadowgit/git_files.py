"""Files that a git program run in the store may have made: packed refs and loose objects.

Holdfast needs none of them, respects them where they exist, and searches all of them in a purge.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

from holdfast import durable
from holdfast.shadowgit.objects import KIND_NAMES, ObjectKind, object_id

_TAGS = b"refs/tags/"
_KINDS = {name: kind for kind, name in KIND_NAMES.items()}


def all_refs(git_dir: Path) -> Iterator[tuple[str, str]]:
    """Every ref and its text. One that is packed and also has a file comes twice; one that is deleted meanwhile may be
    missing."""
    for line in _packed_lines(git_dir):
        commit, _, name = line.decode("utf-8", "replace").strip().partition(" ")
        if name and line[:1] not in b"#^":
            yield name, commit
    for folder, _, names in os.walk(git_dir / "refs"):
        for name in names:
            path = Path(folder, name)
            if not name.endswith(".lock"):  # made by a running git: not a ref, and no ref can have this name
                try:
                    text = path.read_text("ascii", "replace")
                except FileNotFoundError:
                    continue
                yield path.relative_to(git_dir).as_posix(), text.strip()


def forget_packed(git_dir: Path, ids: Set[str]) -> None:
    """Remove checkpoints from `packed-refs`; each must have a file of its own already (P3)."""
    lines = _packed_lines(git_dir)
    packed = {_TAGS + os.fsencode(one) for one in ids}
    rest = [line for line in lines if line.rstrip().partition(b" ")[2] not in packed]
    if len(rest) < len(lines):
        durable.write_atomically(git_dir / "packed-refs", b"".join(rest))


def loose_object(git_dir: Path, oid: bytes) -> tuple[ObjectKind, bytes] | None:
    """A loose object; None if it does not exist, or its content does not match its name."""
    try:
        header, _, data = zlib.decompress(_loose(git_dir, oid).read_bytes()).partition(b"\0")
    except (FileNotFoundError, zlib.error):
        return None
    kind = _KINDS.get(header.partition(b" ")[0])
    return (kind, data) if kind is not None and object_id(kind, data) == oid else None


def loose_copies(git_dir: Path, oids: Iterable[bytes]) -> list[Path]:
    """The files of those objects that also exist as loose objects."""
    return [place for oid in oids if (place := _loose(git_dir, oid)).exists()]


def _loose(git_dir: Path, oid: bytes) -> Path:
    name = oid.hex()
    return git_dir / "objects" / name[:2] / name[2:]


def _packed_lines(git_dir: Path) -> list[bytes]:
    try:
        return (git_dir / "packed-refs").read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
