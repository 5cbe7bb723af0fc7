"""Deltas, made by the git program: the one thing that it does better than copying.

Order of writes (P3): git writes one pack under a temporary name, which a sweep removes; it is checked, synced and
renamed into place, and durable before the first of the old ones goes. Nothing of the user's git has a say in it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from pathlib import Path

from holdfast import durable
from holdfast.errors import Damaged, Refused, Remedy, Unavailable
from holdfast.git_program import run_git
from holdfast.shadowgit.pack_merge import remove_packs
from holdfast.shadowgit.packs import Pack, sweep
from holdfast.shadowgit.refs import CONFIG
from holdfast.shadowgit.store import ObjectStore

WINDOW, DEPTH = 50, 20
"""How many neighbours git tries for each object, and how many deltas may build upon each other: docs/upkeep.md."""
_PREFIX = "tmp_compact"  # a sweep removes what begins so
_ELSEWHERE = ("commondir", "objects/info/alternates", "objects/info/http-alternates")


def repack(store: ObjectStore, git: str, needed: Set[bytes], *, less_than: int | None = None) -> bool:
    """Replace all packs by one with deltas, of the needed objects. Needs the store's lock.

    If its files have not fewer bytes than `less_than`, return False: deltas, which take longer to read, are not worth
    it then. Unavailable or Damaged if git cannot do it, Refused if the store tells git what to do. In all these cases
    the packs are as they were.
    """
    _check_settings(store)
    old = store.packs()
    base = store.pack_folder / _PREFIX
    try:
        options = ["-q", "--all", "--no-reuse-object", "--delta-base-offset", f"--window={WINDOW}", f"--depth={DEPTH}"]
        said = _run(store, git, "pack-objects", *options, os.fspath(base))
        written = Path(f"{base}-{said.strip().decode('ascii', 'replace')}.idx")
        _run(store, git, "verify-pack", os.fspath(written))  # git inflates and hashes every object
        if not needed <= set(Pack(written).oids()):
            raise Damaged("git left out objects that the checkpoints need", remedy=Remedy("verify"))
        if less_than is not None and sum(os.stat(each).st_size for each in _files(written)) >= less_than:
            sweep(store.pack_folder)
            return False
        name = _place(written)
    except BaseException:
        sweep(store.pack_folder)
        raise
    remove_packs(store, [pack for pack in old if pack.name != name])
    return True


def _files(index: Path) -> tuple[Path, Path]:
    return index, index.with_suffix(".pack")


def is_compact(packs: Sequence[Pack]) -> bool:
    """Whether there is one pack, and git made it."""
    return len(packs) == 1 and any(packs[0].is_delta(packs[0].header(entry[0])) for entry in packs[0].entries())


def _place(index: Path) -> str:
    """Put a pack that git wrote into its place, durably: the index first, since readers pass over a lone one."""
    name = f"pack{index.stem.removeprefix(_PREFIX)}"
    for suffix in (".idx", ".pack"):
        fd = os.open(index.with_suffix(suffix), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fchmod(fd, 0o600)  # as every file of a store; git makes them read-only
            durable.disk().fsync(fd)
        finally:
            os.close(fd)
    for suffix in (".idx", ".pack"):
        durable.disk().rename(os.fspath(index.with_suffix(suffix)), os.fspath(index.parent / f"{name}{suffix}"))
    durable.sync_folder(index.parent)  # P3: all of it is on the medium before any of the old goes
    return name


def _check_settings(store: ObjectStore) -> None:
    """Refused if git would find settings in the store that are not ours: they can name programs (P7)."""
    found = store.git_dir / "config"
    if found.exists() and found.read_bytes() != CONFIG:
        raise Refused(
            f"{found} is not what Holdfast wrote, and git would run the programs that it names",
            hint=f"Look at it, then remove it (rm {found}): Holdfast writes it again. Nothing was changed.",
        )
    for name in _ELSEWHERE:
        if os.path.lexists(store.git_dir / name):
            raise Refused(
                f"{store.git_dir / name} makes git read another repository than the store",
                hint="Look at it, then remove it. Nothing was changed.",
            )


def _run(store: ObjectStore, git: str, *command: str) -> bytes:
    done = run_git(git, command, git_dir=store.git_dir)
    if done.code:
        is_full = any(words in done.error.lower() for words in ("diskspace", "no space", "quota"))
        raise Unavailable(
            f"git could not compact the store: {done.error or f'it ended with {done.code}'}",
            hint=f"The packs are unchanged.{' Free disk space for a second copy of them.' if is_full else ''}",
            remedy=None if is_full else Remedy("verify"),
        )
    return done.output
