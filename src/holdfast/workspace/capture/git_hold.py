"""Holding objects of the user's git that exist nowhere else: what a checkpoint names and no remote has.

It follows a save, so that no hook waits for it: until it is done, the checkpoint says which commits are not held (P4).
git enumerates and packs in a scratch repository, without the store's lock; the user's repository is only read (P6).

Order of writes (P3): a pack with the new contents, durable, in `git-work/`; under the lock it is renamed into the
store, and the commit of the checkpoint is replaced by one that refers to it (the commit point); then the cache. A kill
before the rename leaves a folder that the next writer removes, after it a pack that nothing needs, which the next merge
frees.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.durable import private
from holdfast.errors import Damaged, NotFound, Unavailable
from holdfast.model import Checkpoint
from holdfast.scan.git_index import staged_objects
from holdfast.scan.git_refs import GitRefs, decode_git_refs, remote_tips
from holdfast.scan.git_scratch import GitScratch
from holdfast.scan.user_git import common_dir
from holdfast.shadowgit import ObjectKind, PackWriter
from holdfast.workspace.capture.git_record import INDEX, GitRecorder, wanted_tips
from holdfast.workspace.stored.chunking import LARGE_FILES, cut, group_parts
from holdfast.workspace.stored.git_data import GitData, GitPack, content, read_git_data, write_git_data
from holdfast.workspace.stored.object_sink import PackSink
from holdfast.workspace.stored.record import Contents, write_commit
from holdfast.workspace.stored.repository import Repository

MAX_BYTES = 512 << 20
"""The greatest pack of the user's objects that a checkpoint holds, unless the configuration says otherwise."""
IN_SAVE_S = 5.0
"""How long a save waits for this at most. What takes longer is left to a process of its own."""
SLOW = "git-slow"
"""A file of the store while holding objects takes longer than a save may."""
AGAIN_S = 600.0
"""After what time it is tried again if git failed, or the process of its own was killed."""
_FAILED = "git failed: "
_FAILED_NOTE = b"failed\n"
_FAILED_BEFORE = "(?:; )?(?:git failed: |git could not )"  # the second: as earlier versions wrote it
_LOOK_BACK = 32  # checkpoints among which unheld commits are looked for
_MOST_PACKS = 8
_FEWER_COMMITS = (10_000, 1_000, 100, 10, 1)
_EMPTY_PACK_BYTES = 44  # a pack without objects, with a SHA-256 checksum
_PIECE_BYTES = 1 << 20


class _Pending(NamedTuple):
    """A checkpoint that names objects which are not held."""

    checkpoint: Checkpoint
    contents: Contents
    refs: GitRefs
    data: GitData


class _Start(NamedTuple):
    """Where git begins to look for objects."""

    names: list[str]
    tips: Set[str]
    """What is held with them."""
    problem: str


class GitHolder:
    """Adds objects of the user's git to checkpoints of one store. `writing` takes the store's lock."""

    def __init__(
        self,
        repository: Repository,
        recorder: GitRecorder,
        writing: Callable[[], AbstractContextManager[None]],
        program: str,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._repository = repository
        self._recorder = recorder
        self._writing = writing
        self._program = program
        self._max_bytes = max_bytes
        self._slow = repository.own / SLOW
        self._deadline: float | None = None

    def hold(self, git: Path, *, timeout_s: float | None = None) -> bool:
        """Hold what checkpoints name; False if that takes longer than `timeout_s`, or another process is at it.

        If it took too long once, it is tried with a limit again only after a run without one; if git failed, after a
        while. False then, too.
        """
        if timeout_s is not None and self._is_put_off():
            return False
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        is_limited, lock, newest = timeout_s is not None, self._repository.git_lock(), ""
        while (row := self._repository.catalog.greatest()) is not None and row.id != newest:
            if not lock.acquire(wait=not is_limited):
                return bool(newest)
            with self._repository.git_work(lock):
                self._repository.objects.refresh()  # another process may have saved
                if not self._hold_all(git, is_limited=is_limited):
                    return False
            newest = row.id  # P1: look again after the release, as a save that found the lock taken leaves all to us
        return True

    def _hold_all(self, git: Path, *, is_limited: bool) -> bool:
        try:
            is_done = True
            for pending in self._pending(git):
                is_done = self._hold(git, pending) and is_done
        except TimeoutError:
            self._put_off(b"")
            return False
        if is_done and self._slow.exists():
            durable.disk().unlink(str(self._slow))
        elif not is_done and is_limited:  # else the note says when this process was started
            self._put_off(_FAILED_NOTE)
        return is_done

    def _put_off(self, why: bytes) -> None:
        with contextlib.suppress(OSError):
            durable.write_atomically(self._slow, why, via=self._slow.with_suffix(".tmp"), sync=False)

    def _is_put_off(self) -> bool:
        """Whether a save leaves this to another process: for good, or for a while."""
        try:
            age_s = time.time() - self._slow.stat().st_mtime
            return self._slow.read_bytes() != _FAILED_NOTE or 0 <= age_s < AGAIN_S
        except OSError:
            return False

    def _pending(self, git: Path) -> list[_Pending]:
        """Return checkpoints that want objects, oldest first: each may be the only one that names a dropped stash.

        So does the newest if a remote has no more what its packs were made without.
        """
        found = []
        for number, row in enumerate(self._repository.catalog.newest(limit=_LOOK_BACK, session=None, safety=True)):
            pending = self._read(self._repository.checkpoint(row))
            if pending is not None and (
                pending.data.wanted or (not number and pending.data.remotes - remote_tips(git))
            ):
                found.append(pending)
        return found[::-1]

    def _read(self, checkpoint: Checkpoint) -> _Pending | None:
        objects = self._repository.objects
        try:
            contents = self._repository.contents(checkpoint)
            if not contents.git_data:
                return None
            refs = decode_git_refs(objects.blob(contents.git))
            return _Pending(checkpoint, contents, refs, read_git_data(objects, contents.git_data))
        except (Damaged, NotFound, ValueError, KeyError, TypeError):
            return None

    def _hold(self, git: Path, pending: _Pending) -> bool:
        """Hold what a checkpoint names. If git fails, as on a full disk, the checkpoint still wants it: False."""
        work = self._repository.new_git_work()
        before = self._newest_packs(pending)
        try:
            data, pack = self._packed(work, git, pending, before)
            is_done = True
        except Unavailable as error:
            problem = "; ".join(filter(None, (_lasting(before.problem), f"{_FAILED}{error.message}")))
            data, pack, is_done = before._replace(problem=problem), None, False
        with self._writing():
            self._attach(work, pending, data, pack)
        return is_done

    def _newest_packs(self, pending: _Pending) -> GitData:
        """Return the data of the checkpoint, with packs that were added to others since it was saved."""
        row = self._repository.catalog.greatest()
        newest = self._read(self._repository.checkpoint(row)) if row is not None else None
        if newest is None or not wanted_tips(pending.refs) & pending.data.tips <= newest.data.tips:
            return pending.data
        return pending.data._replace(packs=newest.data.packs, remotes=newest.data.remotes)

    # packing, without the lock

    def _packed(self, work: Path, git: Path, pending: _Pending, before: GitData) -> tuple[GitData, str | None]:
        """Pack what is missing; return the new data, and the name of a pack for the store in the folder `work`."""
        every = wanted_tips(pending.refs)
        scratch = GitScratch(work / "scratch", self._program, git, pending.refs.object_format)
        remote = scratch.kinds(remote_tips(git), timeout_s=self._left()).keys()
        before = before._replace(packs=self._complete_packs(scratch, before, every, remote), remotes=frozenset(remote))
        kept = self._packs_to_keep(scratch, before.packs, every, remote)
        covered = {tip for pack in kept for tip in pack.tips}
        if every <= covered and kept == before.packs:
            return before._replace(wanted=frozenset(), problem=_lasting(before.problem)), None
        start = self._start(scratch, pending, every - covered)
        known = scratch.kinds(covered, timeout_s=self._left()).keys()
        without = [f"^{name}" for name in sorted(known | remote)]
        file = work / "objects.pack"
        limit = self._pack_objects(scratch, git, start.names, without, frozenset(before.purged), file)
        is_old = kept == before.packs  # then so is what is wrong with them
        lasting = _lasting(before.problem) if is_old else ""
        problem = "; ".join(dict.fromkeys(filter(None, (lasting, start.problem, limit))))
        data = before._replace(wanted=frozenset(), problem=problem)
        if not file.exists():
            return data, None  # the problem says why
        if kept and file.stat().st_size <= _EMPTY_PACK_BYTES:
            last = kept[-1]._replace(tips=sorted({*kept[-1].tips, *start.tips}))
            return data._replace(packs=(*kept[:-1], last)), None
        name, mode, oid = _store_pack(work, file)
        made = GitPack(sorted(start.tips), mode, oid, file.stat().st_size)
        return data._replace(packs=(*kept, made)), name

    def _complete_packs(
        self, scratch: GitScratch, before: GitData, every: Set[str], remote: Set[str]
    ) -> tuple[GitPack, ...]:
        """Return the packs, without the tips of which a remote had a part that it may have no more (P1): after a branch
        was deleted there, or replaced by a push."""
        lost = before.remotes - remote
        if not lost:
            return before.packs
        tips = {tip for tip in before.tips if not tip.startswith(INDEX)}
        there = scratch.kinds(tips | before.remotes, timeout_s=self._left()).keys()
        if lost <= there:
            begin = sorted(tips & there)
            needed = self._run(scratch, ["rev-list"], begin, [f"^{each}" for each in sorted(remote)])
            held = self._run(scratch, ["rev-list"], begin, [f"^{each}" for each in sorted(before.remotes & there)])
            if set(needed.split()) <= set(held.split()):
                valid = (tips & there) | every | {tip for tip in before.tips if tip.startswith(INDEX)}
                return tuple(each._replace(tips=sorted(valid & {*each.tips})) for each in before.packs)
        gone = (every & tips) - there  # only the packs have these
        packs = [each._replace(tips=sorted(gone & {*each.tips})) for each in before.packs]
        while packs and not packs[-1].tips:
            packs.pop()
        return tuple(packs)

    def _packs_to_keep(
        self, scratch: GitScratch, packs: tuple[GitPack, ...], every: Set[str], remote: Set[str]
    ) -> tuple[GitPack, ...]:
        """Return the packs that stay when one is added: all, unless there are many.

        What the others have is packed again from the repository, so all of it must still be there (P1).
        """
        few = _larger_packs(packs)
        if few == packs:
            return packs
        again = every & {tip for pack in packs for tip in pack.tips if not tip.startswith(INDEX)}
        there = scratch.kinds(again | {tip for pack in few for tip in pack.tips}, timeout_s=self._left()).keys()
        if again - there:
            return packs
        return few if self._is_worth_keeping(scratch, few, there, every, remote) else ()

    def _is_worth_keeping(
        self, scratch: GitScratch, packs: tuple[GitPack, ...], there: Set[str], every: Set[str], remote: Set[str]
    ) -> bool:
        """Whether at least half of what these packs have is still needed; asks git for sizes only if that is unsure."""
        tips = {tip for pack in packs for tip in pack.tips if not tip.startswith(INDEX)}
        now = sorted(every & there | (every - tips) & scratch.kinds(every, timeout_s=self._left()).keys())
        left_behind = self._run(
            scratch, ["rev-list", "--max-count=1"], sorted(tips & there), [f"^{tip}" for tip in now]
        )
        without = [f"^{tip}" for tip in sorted(remote)]
        not_pushed = self._run(scratch, ["rev-list", "--max-count=1"], sorted(tips & there), without)
        if tips <= there and not left_behind and not_pushed:
            return True
        command = ["rev-list", "--objects", "--disk-usage", "--missing=allow-any"]
        needed = int(self._run(scratch, command, now, without) or 0)
        return 2 * needed >= sum(pack.size_bytes for pack in packs)

    def _start(self, scratch: GitScratch, pending: _Pending, wanted: Set[str]) -> _Start:
        """Return where git begins to look for objects: what is wanted, as far as it is there."""
        commits = {tip for tip in wanted if not tip.startswith(INDEX)}
        index = wanted - commits
        staged = self._staged(scratch, pending) if index else set()
        there = scratch.kinds(commits | staged, timeout_s=self._left()).keys()
        problems = []
        if missing := len(commits - there):
            problems.append(f"{missing} commits that git names were not in its repository")
        if missing := len(staged - there):
            problems.append(f"{missing} staged contents were not in the repository")
            index = frozenset()
        return _Start(sorted(there), (commits & there) | index, "; ".join(problems))

    def _staged(self, scratch: GitScratch, pending: _Pending) -> set[str]:
        """Return the contents in the recorded index that HEAD does not have."""
        data, refs, objects = pending.data, pending.refs, self._repository.objects
        head = refs.refs.get(refs.head.removeprefix("ref: "), refs.head)
        staged: set[str] = set()
        for name in ("index", "shared-index"):
            entry = data.file(name)
            if entry is not None:
                index = b"".join(content(objects, entry.mode, entry.oid))
                hash_bytes = 32 if refs.object_format == "sha256" else 20
                staged |= {oid for _, oid in staged_objects(index, hash_bytes=hash_bytes)}
        if head not in scratch.kinds([head], timeout_s=self._left()):
            return staged
        listed = scratch.run("ls-tree", "-r", "-t", "-z", "--full-tree", head, timeout_s=self._left()).output
        return staged - {row.split(b" ", 3)[2][: len(head)].decode() for row in listed.split(b"\0") if row}

    def _pack_objects(
        self, scratch: GitScratch, git: Path, tips: list[str], without: list[str], purged: frozenset[str], file: Path
    ) -> str:
        """Write a pack, without purged objects; return what is left out because of the limit."""
        limit: str = ""
        options: list[str] | None = []
        if _objects_bytes(git) > self._max_bytes:
            limit, options = self._fit(scratch, tips, without)
            if options is None:
                return limit
        if options or purged:
            command = ["rev-list", "--objects", "--missing=allow-any", *(options or ())]
            listed = self._run(scratch, command, tips, without)
            names = (line.split(" ", 1)[0] for line in listed.decode("utf-8", "replace").splitlines())
            command = []
            data = "".join(f"{name}\n" for name in names if name not in purged).encode()
        else:
            command, data = ["--revs"], "".join(f"{line}\n" for line in (*tips, *without)).encode()
        with open(file, "xb", opener=private) as out:
            done = scratch.run(
                "pack-objects", "-q", "--stdout", "--delta-base-offset", "--missing=allow-any", *command,
                input_data=data, stdout=out, timeout_s=self._left(),
            )  # fmt: skip
        if done.code:
            file.unlink()
            raise Unavailable(f"git could not pack its objects: {done.error}", hint="Run git fsck.")
        if file.stat().st_size > self._max_bytes:  # its loose objects are larger than they seemed
            file.unlink()
            return f"nothing is held: it would be more than {self._max_bytes:,} bytes"
        return limit

    def _fit(self, scratch: GitScratch, tips: list[str], without: list[str]) -> tuple[str, list[str] | None]:
        """Return how many of the newest commits fit into the limit, in words and as options; None: not even one."""
        for most in (None, *_FEWER_COMMITS):
            options = [] if most is None else [f"--max-count={most}"]
            command = ["rev-list", "--objects", "--disk-usage", "--missing=allow-any", *options]
            if int(self._run(scratch, command, tips, without) or 0) <= self._max_bytes:
                words = "" if most is None else f"only the newest {most:,} commits are held"
                return (f"{words}: all have more than {self._max_bytes:,} bytes" if words else ""), options
        return f"nothing is held: one commit has more than {self._max_bytes:,} bytes", None

    def _run(self, scratch: GitScratch, command: list[str], tips: list[str], without: list[str]) -> bytes:
        data = "".join(f"{line}\n" for line in (*tips, *without)).encode()
        done = scratch.run(*command, "--stdin", input_data=data, timeout_s=self._left())
        if done.code:
            raise Unavailable(f"git could not list its objects: {done.error}", hint="Run git fsck.")
        return done.output

    def _left(self) -> float | None:
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("holding git's objects took too long")
        return left

    # storing, under the lock

    def _attach(self, work: Path, was: _Pending, data: GitData, pack: str | None) -> None:
        """Put the pack into the store, and let the checkpoint, and the newest, refer to it."""
        if pack is not None:
            for suffix in (".idx", ".pack"):  # readers skip an index without a pack
                place = self._repository.objects.pack_folder / f"{pack}{suffix}"
                durable.disk().rename(str(work / f"{pack}{suffix}"), str(place))  # `Repository.replace` syncs it
            self._repository.objects.refresh()
        objects = self._repository.objects
        if not all(objects.has_whole(each.mode, each.oid) for each in data.packs):
            return  # they are of a checkpoint that was deleted meanwhile: the next run begins without them
        newest, target = self._repository.catalog.greatest(), was.checkpoint
        for key in dict.fromkeys([target.id, newest.id if newest else target.id]):
            row = self._repository.catalog.by_id(key)
            pending = self._read(self._repository.checkpoint(row)) if row is not None else None
            if pending is None or not (pending.data.wanted or (key == target.id and pending.data == was.data)):
                continue  # deleted or purged meanwhile
            if key != target.id and not wanted_tips(pending.refs) & pending.data.tips <= data.tips:
                continue  # it holds something else: its own turn comes
            wanted = frozenset(wanted_tips(pending.refs) - data.tips) if key != target.id else data.wanted
            held = pending.data._replace(packs=data.packs, remotes=data.remotes, problem=data.problem, wanted=wanted)
            if held != pending.data:  # else git failed again as it did before
                self._replace(pending, held)

    def _replace(self, pending: _Pending, data: GitData) -> None:
        with PackSink(self._repository.objects) as sink:
            contents = pending.contents._replace(git_data=write_git_data(sink, data))
            commit = write_commit(sink, pending.checkpoint, contents)
            self._repository.replace(sink.writer, pending.checkpoint, contents, commit)
        with contextlib.suppress(OSError):
            self._recorder.remember_data(contents.git, contents.git_data, wanting=bool(data.wanted))


def _lasting(problem: str) -> str:
    """Return what of a problem stays true: not that git failed once."""
    return re.split(_FAILED_BEFORE, problem, maxsplit=1)[0]


def _larger_packs(packs: tuple[GitPack, ...]) -> tuple[GitPack, ...]:
    """Return all packs, or if there are many, the larger ones at the beginning: the others become one, so that every
    byte is rewritten a number of times that grows with the logarithm of their size (P8)."""
    if len(packs) < _MOST_PACKS:
        return packs
    place = len(packs) // 2
    while place and packs[place - 1].size_bytes <= 2 * sum(pack.size_bytes for pack in packs[place:]):
        place -= 1
    return packs[:place]


def _store_pack(work: Path, file: Path) -> tuple[str | None, int, bytes]:
    """Make a pack for the store of a pack of the user's objects; return its name, and where the content is in it."""
    writer = PackWriter(work, has=lambda _: False)
    try:
        with open(file, "rb") as source:
            pieces = iter(lambda: source.read(_PIECE_BYTES), b"")
            parts = [writer.add(ObjectKind.BLOB, part) for part in cut(pieces, LARGE_FILES)]
        mode, oid = group_parts(writer, parts)
        return writer.commit(), mode, oid
    except BaseException:
        writer.abort()
        raise


def _objects_bytes(git: Path) -> int:
    """Return about how large the objects of a repository are, and those that it borrows."""
    total, folders = 0, [common_dir(git) / "objects"]
    for folder in folders:
        with contextlib.suppress(OSError):
            names = (folder / "info" / "alternates").read_text("utf-8", "replace").splitlines()
            folders += [folder / name for name in names if name and len(folders) < 16]
        for name, times in (("pack", 1), ("17", 256)):  # names of loose objects are spread evenly over 256 folders
            with contextlib.suppress(OSError), os.scandir(folder / name) as entries:
                total += times * sum(entry.stat().st_size for entry in entries)
    return total
