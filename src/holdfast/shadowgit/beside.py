"""What git, run by somebody in the store, may keep beside what Holdfast reads: packed refs, loose objects, lone packs.

None of it is needed, and all of it can hold what a purge is to take away.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

from holdfast import durable

_TAGS = b"refs/tags/"


def all_refs(git_dir: Path) -> Iterator[tuple[str, str]]:
    """Every ref and what it says; one that is packed and has a file of its own comes twice."""
    for line in _packed_lines(git_dir):
        commit, _, name = line.decode("utf-8", "replace").strip().partition(" ")
        if name and line[:1] not in b"#^":
            yield name, commit
    for folder, _, names in os.walk(git_dir / "refs"):
        for name in names:
            path = Path(folder, name)
            yield path.relative_to(git_dir).as_posix(), path.read_text("ascii", "replace").strip()


def forget_packed(git_dir: Path, ids: Set[str]) -> None:
    """Take checkpoints out of the file in which git packs refs; each must have a file of its own by now."""
    lines = _packed_lines(git_dir)
    packed = {_TAGS + os.fsencode(one) for one in ids}
    rest = [line for line in lines if line.rstrip().partition(b" ")[2] not in packed]
    if len(rest) < len(lines):
        durable.write_atomically(git_dir / "packed-refs", b"".join(rest))


def loose_copies(git_dir: Path, oids: Iterable[bytes]) -> list[Path]:
    """The files of objects that are also there outside all packs."""
    places = (git_dir / "objects" / oid.hex()[:2] / oid.hex()[2:] for oid in oids)
    return [place for place in places if place.exists()]


def lone_packs(pack_folder: Path) -> list[str]:
    """Packs without an index, whose objects cannot be told."""
    names = set(os.listdir(pack_folder))
    return sorted(name for name in names if name.endswith(".pack") and f"{name[:-5]}.idx" not in names)


def _packed_lines(git_dir: Path) -> list[bytes]:
    try:
        return (git_dir / "packed-refs").read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
