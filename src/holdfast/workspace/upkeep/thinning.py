"""Thinning: checkpoints that nobody asked for are deleted by a policy, in the background, without being told to.

Planning, and copying what stays of a pack, need no lock. What changes the store is done in steps of a few milliseconds,
each under the store's lock, with pauses in which others write (P9). Each leaves a consistent store (P3): a step deletes
some refs, each a commit point, if nothing happened since the plan that could make one of them needed; or it puts the
copy of a pack in its place, if no ref needs what was left out. A kill leaves refs still to be deleted, bytes still to
be freed, or a copy in `thinning/`, which the next writer removes.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from holdfast import durable
from holdfast.errors import Conflict, HoldfastError, NotFound, Refused
from holdfast.model import Checkpoint, Pruned
from holdfast.retention import Policy
from holdfast.shadowgit.git_files import all_refs
from holdfast.shadowgit.pack_merge import copy_kept, is_damaged, kept_bytes, reachable, swap_pack
from holdfast.shadowgit.packs import Pack
from holdfast.workspace.restore.journal import Journal
from holdfast.workspace.stored.attribution import beginning, trail, turn_in_trail
from holdfast.workspace.stored.repository import THINNING, Repository
from holdfast.workspace.upkeep.growth import REPORT, Thinned, free_bytes, pack_bytes, read_report
from holdfast.workspace.upkeep.prune import Upkeep
from holdfast.workspace.upkeep.type_policies import is_automatic

MAX_BYTES = 5 << 30
"""The store's greatest size, unless the configuration says otherwise; or a tenth of the free disk, if that is less."""
MIN_CAP_BYTES = 256 << 20
"""A cap is not less than this by default: on a disk that others filled, the checkpoints are not what to delete."""
STEP_S = 0.015
"""A step begins no deletion that would end later than this, counted from taking the lock. One deletion cannot be
interrupted, nor can what the scheduler does: most of the 50 ms that others wait at most is left for those."""
_BATCH_S = 0.005  # for how long a step deletes before it looks at the clock again
_PAUSE_S = 0.06  # longer than file times need to tell two changes of the refs apart, and than others wait for the lock
_REST_S = 0.002  # right before the lock is taken: who has slept is not interrupted soon, on a busy computer
_MOST_REFS = 64
_PLANS = 5
_TRIES = 20
_TRAIL_MOST = 1000
_WORTH = 4  # a pack is copied if at least a quarter of it is not needed
_SLACK_BYTES = 1 << 20


class Thinner:
    """Thins one store.

    `writing` is a context manager that takes the lock of the store, `wait` sleeps, `held_s` says how long the lock has
    been held.
    """

    def __init__(
        self,
        repository: Repository,
        writing: Callable[[], AbstractContextManager[None]],
        clock: Callable[[], datetime],
        *,
        wait: Callable[[float], None] = time.sleep,
        held_s: Callable[[], float] | None = None,
    ) -> None:
        self._repository = repository
        self._upkeep = Upkeep(repository)
        self._writing = writing
        self._clock = clock
        self._wait = wait
        self._held_s = held_s or repository.lock.held_s
        self._size = 1
        self._folder = repository.own / THINNING

    def run(self, policy: Policy, keep: Policy | None = None) -> Thinned:
        """Delete the automatic checkpoints that neither policy keeps, and free their disk space.

        Conflict if another process is thinning this store, or a restore or a purge is unfinished: then nothing changes.
        """
        lock = durable.Lock(self._repository.own / f"{THINNING}.lock")
        if not lock.acquire(wait=False):
            raise Conflict("this store is being thinned by another process", hint="Wait for it to end.")
        try:
            if Journal(self._repository.own).exists or self._repository.is_purging:
                raise Conflict("a restore or a purge is unfinished", hint="The next save finishes it.")
            return self._report(self._run, policy, keep)
        finally:
            lock.release()

    def _run(self, policy: Policy, keep: Policy | None) -> Thinned:
        now = self._clock()
        before = self._pack_bytes()
        aged = replace(policy, max_bytes=None)
        removed = self._delete(aged, keep, now)
        unfreed = self._free(every=False) if self._upkeep.tally() else 0
        over = 0
        cap = default_cap(self._repository.folder) if policy.max_bytes is None else policy.max_bytes
        if self._pack_bytes() > cap:
            more = self._delete(replace(aged, max_bytes=cap), keep, now)
            removed, unfreed = removed + more, self._free(every=True)
            over = max(0, self._pack_bytes() - unfreed - cap)
        freed = max(0, before - self._pack_bytes())
        return Thinned(now.isoformat(), removed, freed, unfreed, over)

    def _report(self, run: Callable[[Policy, Policy | None], Thinned], policy: Policy, keep: Policy | None) -> Thinned:
        """Run, and write down what was done, also if it failed. A full disk may refuse the report."""
        known = read_report(self._repository.own) or Thinned("")
        count = self._repository.ref_count()
        try:
            done = run(policy, keep)
        except (HoldfastError, OSError) as error:
            removed = max(0, count - self._repository.ref_count())
            self._write(known, Thinned(self._clock().isoformat(), removed, error=str(error)))
            raise
        return self._write(known, done)

    def _write(self, known: Thinned, done: Thinned) -> Thinned:
        done = done._replace(
            total_removed=known.total_removed + done.removed,
            total_freed_bytes=known.total_freed_bytes + done.freed_bytes,
            removed_at=done.at if done.removed else known.removed_at,
        )
        with contextlib.suppress(HoldfastError, OSError), self._writing():  # others sweep new files of who has no lock
            data = json.dumps(done._asdict()).encode()
            durable.write_atomically(self._repository.own / REPORT, data, sync=False)
        return done

    # deleting

    def _delete(self, policy: Policy, keep: Policy | None, now: datetime) -> int:
        """Delete what the policy does not keep, in small steps; plan again if something happened meanwhile.

        Damaged, and nothing deleted, if it is unknown what the rest needs: then no disk space could be freed.
        """
        removed = 0
        for _ in range(_PLANS):
            plan = self._repository.consistently(lambda: self._plan(policy, keep, now))
            if plan.removed and not removed:
                self._repository.consistently(_Needed(self._repository).catch_up)
            removed += (done := self._apply(plan))
            if done == len(plan.removed):
                break
        return removed

    def _plan(self, policy: Policy, keep: Policy | None, now: datetime) -> Pruned:
        self._repository.sync()
        return self._upkeep.plan(
            policy, now, measure_sizes=False, spare=lambda checkpoints: self._spared(checkpoints, keep, now)
        )

    def _spared(self, checkpoints: Mapping[str, Checkpoint], keep: Policy | None, now: datetime) -> dict[str, str]:
        """Return what is not automatic, what a policy of the user's keeps, and what undoing the last turn needs."""
        found = {key: "not automatic" for key, each in checkpoints.items() if not is_automatic(each)}
        if keep is not None:
            kept = self._upkeep.plan(replace(keep, max_bytes=None), now, measure_sizes=False).kept
            found |= dict.fromkeys(kept, "kept by the configured retention")
        with contextlib.suppress(NotFound, Refused), self._repository.catalog.kept_open():
            turn = turn_in_trail(self._repository, None)
            last = trail(self._repository, turn.since if turn else beginning(self._repository, None), None)
            if len(last) <= _TRAIL_MOST:
                found |= {each.id: "needed to undo the last turn" for each in last}
        return found

    def _apply(self, plan: Pruned) -> int:
        """Delete what a plan says; stop if it is out of date. Returns how many are deleted."""
        # as in `Repository.delete`: what can be undone follows from the safety checkpoints that are left
        todo = sorted(plan.removed, key=lambda each: each.operation is None)
        newest = max(plan.kept, default="")
        done = 0
        while done < len(todo):
            self._pause()
            self._wait(_REST_S)
            with self._writing():
                deleted = self._step(plan, todo[done:], newest)
            if not deleted:
                break
            done += deleted
        return done

    def _step(self, plan: Pruned, todo: Sequence[Checkpoint], newest: str) -> int:
        """Delete some, at least one, until the time of a step is over; none if the plan is out of date.

        Needs the lock. The clock is read after every batch, as a disk or a scheduler may delay any of them.
        """
        done = 0
        while done < len(todo):
            batch, begun = todo[done : done + self._size], self._held_s()
            if not self._is_current(plan, batch, newest):
                break
            self._upkeep.note_tally(self._upkeep.tally() + len(batch))  # first: a kill leaves a number too great
            self._repository.delete(*batch)
            done += len(batch)
            now = self._held_s()
            self._size = max(1, min(_MOST_REFS, 2 * len(batch), int(len(batch) * _BATCH_S / max(now - begun, 1e-6))))
            if now + _BATCH_S > STEP_S:
                break
        return done

    def _is_current(self, plan: Pruned, batch: Sequence[Checkpoint], newest: str) -> bool:
        """Whether nothing happened since the plan that could protect one of these. Needs the lock.

        Saves since then are newer. A restore leaves a safety checkpoint, a pin another commit, a running step a hold;
        and if what was kept as current or latest is gone, another may be that now.
        """
        catalog, ids = self._repository.catalog, {each.id for each in batch}
        if any(row.safety for row in catalog.newest(limit=None, safety=True, after=newest)):
            return False
        if any(catalog.by_id(key) is None for key, why in plan.kept.items() if why in ("current", "the latest")):
            return False
        if ids & self._repository.holds.held():
            return False
        rows = (catalog.by_id(each.id) for each in batch)
        return all(row is not None and row.commit == each.commit for row, each in zip(rows, batch, strict=True))

    def _pause(self) -> None:
        """Let others write; then bring the catalog up to date without the lock, so that it takes no time with it."""
        self._wait(_PAUSE_S)
        self._repository.sync()

    # freeing disk space

    def _free(self, *, every: bool) -> int:
        """Copy packs without what is not needed; with `every`, also those that this makes little smaller. Returns how
        many bytes could not be freed."""
        needed = _Needed(self._repository)
        self._repository.consistently(needed.catch_up)
        sizes = sorted((kept_bytes(pack, needed.oids), pack.name) for pack in self._repository.objects.packs())
        unfreed = 0
        for kept, name in sizes:  # what frees most for its copy first, as the disk may be full
            pack = next((each for each in self._repository.objects.packs() if each.name == name), None)
            if pack is None or kept >= pack.size_bytes:
                continue
            if kept and not every and (pack.size_bytes - kept) * _WORTH < pack.size_bytes:
                continue
            if not self._replace(pack, kept, needed):
                unfreed += pack.size_bytes - kept
        if not unfreed:
            with self._writing():
                self._upkeep.forget_tally()
        return unfreed

    def _replace(self, pack: Pack, kept: int, needed: _Needed) -> bool:
        """Replace a pack by a copy of what is needed of it; return whether that was possible."""
        dropped = [oid for oid in pack.oids() if oid not in needed.oids]
        if is_damaged(pack) or (kept and kept + _SLACK_BYTES > free_bytes(self._folder.parent)):
            return False
        durable.make_folder(self._folder)
        try:
            name = copy_kept(self._repository.objects, pack, needed.oids, self._folder)
            return name != pack.name and self._swap(pack, name, dropped, needed)
        except OSError:
            return False  # the disk is full: everything is where it was
        finally:
            self._repository.sweep_thinning()

    def _swap(self, pack: Pack, name: str | None, dropped: Sequence[bytes], needed: _Needed) -> bool:
        for _ in range(_TRIES):
            self._pause()
            self._repository.consistently(needed.catch_up)
            if any(oid in needed.oids for oid in dropped):
                return False  # P1: a new checkpoint needs what was not copied
            self._wait(_REST_S)
            with self._writing():
                if not needed.is_current():
                    continue  # somebody saved meanwhile
                if not pack.path.exists():
                    return False  # somebody merged it meanwhile
                swap_pack(self._repository.objects, pack, self._folder, name)
                return True
        return False

    def _pack_bytes(self) -> int:
        return pack_bytes(self._repository.folder)


class _Needed:
    """The objects that the refs of a store need, brought up to date as refs are added."""

    def __init__(self, repository: Repository) -> None:
        self._objects = repository.objects
        self._marks: dict[str, str] = {}
        self.oids: set[bytes] = set()

    def catch_up(self) -> None:
        """Add what refs that are new or replaced need. Damaged if that is unknown."""
        marks = self._now()  # first: a ref that is replaced while it is read has another mark the next time
        known = self._marks
        self._objects.refresh()
        if known:
            new = [name for name, mark in marks.items() if known.get(name) != mark]
            commits = [bytes.fromhex(text) for name in new for text in [self._text(name)] if text]
        else:
            commits = list(self._objects.commits())
        self.oids |= reachable(self._objects, commits, known=self.oids)
        self._marks = marks

    def is_current(self) -> bool:
        """Whether no ref was added or replaced since. Needs the lock."""
        return self._now().items() <= self._marks.items()

    def _now(self) -> dict[str, str]:
        """Return a mark of each ref, checkpoint or not, that changes when it is replaced.

        P1: with its time, because a ref that is replaced twice may have the inode that it had before.
        """
        found = self._objects.ref_marks()
        folder = os.fspath(self._objects.git_dir / "refs")
        tags = os.path.join(folder, "tags")
        for place, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(place, name)
                with contextlib.suppress(FileNotFoundError):
                    status = os.lstat(path)
                    key = name if place == tags else os.path.relpath(path, self._objects.git_dir)
                    found[key] = f"{status.st_ino} {status.st_ctime_ns}"
        return found

    def _text(self, name: str) -> str:
        """Return the commit of a ref; empty if it is gone."""
        if name.startswith("refs/"):
            return next((text for ref, text in all_refs(self._objects.git_dir) if ref == name), "")
        try:
            return self._objects.ref(name).hex()
        except NotFound:
            return ""


def default_cap(store: Path) -> int:
    """Return how large a store may be: 5 GiB, or a tenth of what would be free without it, if that is less."""
    return max(MIN_CAP_BYTES, min(MAX_BYTES, (free_bytes(store) + pack_bytes(store)) // 10))
