"""Purging: a path's content is taken out of every checkpoint, and it is looked up afterwards that it is gone.

Order of writes (P3): one pack with the rewritten checkpoints; the purge's own journal; then ref by ref; then the packs
that have the content are merged without it; loose copies and the scan cache go; the journal last. A crash before the
journal leaves everything as it was. After it each checkpoint is old or new, and the next call that writes goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.durable import disk
from holdfast.errors import Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.model import Checkpoint, Progress, Purged, PurgePlan, Reason, Uncovered
from holdfast.scan.handles import Handles, upwards
from holdfast.shadowgit import EMPTY_TREE, Kind, decode_commit, merge_packs, reachable
from holdfast.shadowgit.beside import all_refs, forget_packed, lone_packs, loose_copies
from holdfast.workspace.scope import open_scope
from holdfast.workspace.stored.gathering import TEXT_MAX_BYTES, Gathering
from holdfast.workspace.stored.record import Contents, Node, encode_record, encode_uncovered, to_json, write_commit
from holdfast.workspace.stored.repository import Repository, store_bytes
from holdfast.workspace.stored.tree import TreeReader
from holdfast.workspace.upkeep.rewriting import Cutter, Rewriter, contents_of


class _Found(NamedTuple):
    """A checkpoint, looked at."""

    checkpoint: Checkpoint
    contents: Contents
    """As they are to be."""
    gone: tuple[str, ...]
    states: list[str]


class _Work(NamedTuple):
    """Everything that a purge would do."""

    plan: PurgePlan
    commits: dict[str, bytes]
    """By checkpoint, the new one."""
    doomed: set[bytes]
    """The contents that are purged, and all that only the old commits needed."""
    dropped: set[bytes]
    """Those of them that nothing needs afterwards."""


class Purger:
    """Purges the store of one workspace."""

    def __init__(self, repository: Repository, root: Path) -> None:
        self._repository = repository
        self._objects = repository.objects
        self._root = root
        self._journal = repository.purge_journal

    def plan(self, paths: Sequence[str], progress: Progress | None = None) -> PurgePlan:
        """What a purge would do; nothing is stored. NotFound if no checkpoint has any of it."""
        return self._examine(paths, set(), Gathering(self._objects, None), progress).plan

    def purge(self, paths: Sequence[str], progress: Progress | None = None) -> Purged:
        """Do it. Needs the store's lock. Unavailable or Damaged if it is begun and not at its end."""
        return self._purge(paths, set(), progress)

    def resume(self) -> None:
        """Go on with a purge that was interrupted. If that fails, the next call tries again."""
        with contextlib.suppress(HoldfastError, OSError, ValueError, KeyError, TypeError):
            begun = json.loads(self._journal.read_bytes())
            self._purge(begun["paths"], {bytes.fromhex(oid) for oid in begun["objects"]}, None)

    def _purge(self, paths: Sequence[str], earlier: set[bytes], progress: Progress | None) -> Purged:
        before = store_bytes(self._repository.folder)
        writer = self._objects.writer()
        try:
            work = self._examine(paths, earlier, Gathering(self._objects, writer), progress)
            writer.commit()
        except BaseException:
            writer.abort()
            raise
        self._objects.refresh()
        begun = {"paths": list(paths), "objects": sorted(oid.hex() for oid in work.doomed)}
        durable.write_atomically(self._journal, to_json(begun))
        try:
            for checkpoint_id, commit in work.commits.items():
                self._objects.set_ref(checkpoint_id, commit)
            forget_packed(self._repository.folder, work.commits.keys())
            self._repository.sync()
            self._take_away(work.dropped)
        except OSError as error:
            raise Unavailable(
                f"the purge is begun and not at its end: {error.strerror or error}",
                hint="Mend that; the next call that writes, such as the same purge, goes on with it.",
            ) from error
        self._prove(work.dropped)
        return Purged(work.plan, len(work.dropped), max(0, before - store_bytes(self._repository.folder)))

    # looking

    def _examine(
        self, paths: Sequence[str], earlier: set[bytes], gathering: Gathering, progress: Progress | None
    ) -> _Work:
        """Rewrite in memory, and tell what is needed then. `earlier`: what an interrupted purge was to take away."""
        found, contents = self._rewrite(paths, earlier, gathering, progress)
        changed = [each for each in found if each.gone or each.states]
        if not earlier and not any(each.gone for each in changed):
            raise NotFound(f"no checkpoint holds {' or '.join(paths)}", hint="Check its spelling.")
        commits = {each.checkpoint.id: self._commit(gathering, each) for each in changed}
        needed = self._needed(gathering, commits)
        old = [bytes.fromhex(each.checkpoint.commit) for each in changed]
        doomed = contents | earlier | (reachable(self._objects, old) - needed)
        gone = sorted({path for each in changed for path in each.gone})
        plan = PurgePlan(
            paths=gone,
            checkpoints=list(commits),
            states={each.checkpoint.id: each.states for each in changed if each.states},
            bytes_freed=sum(self._objects.kind_and_size(oid)[1] for oid in contents - needed),
            also_at=self._where(gathering, found, contents & needed),
            in_workspace=self._in_workspace(gone),
        )
        return _Work(plan, commits, doomed, doomed - needed)

    def _rewrite(
        self, paths: Sequence[str], earlier: set[bytes], gathering: Gathering, progress: Progress | None
    ) -> tuple[list[_Found], set[bytes]]:
        """Every checkpoint as it is to be, oldest first, and the contents that are taken out."""
        scope = open_scope(paths, self._root)
        if not paths or "" in (scope.paths or ()):
            raise Refused("this would purge the whole workspace", hint="Delete checkpoints with `holdfast rm`.")
        rewriter = Rewriter(gathering, scope)
        checkpoints = self._checkpoints()
        found = []
        for number, checkpoint in enumerate(checkpoints, 1):
            contents = self._repository.contents(checkpoint)
            node, gone = rewriter.rewrite(contents.root)
            found.append(_Found(checkpoint, contents._replace(root=node), gone, []))
            if progress:
                progress("looking", number, len(checkpoints))
        cutter = Cutter(gathering, list(self._texts(rewriter.doomed | earlier)))
        for number, each in enumerate(found):
            if each.contents.state != EMPTY_TREE:
                state, names = cutter.cut(each.contents.state)
                found[number] = each._replace(contents=each.contents._replace(state=state), states=names)
        return found, rewriter.doomed

    def _checkpoints(self) -> list[Checkpoint]:
        """All of them, oldest first; Damaged if one cannot be read, since nothing could be proven then."""
        rows = self._repository.catalog.newest(limit=None, session=None, safety=True)
        unread = self._objects.ref_names() - {row.id for row in rows}
        if unread:
            raise Damaged(
                f"checkpoint {min(unread)} cannot be read, so it cannot be told what it holds",
                hint="Run `holdfast verify`; nothing was changed.",
            )
        return [self._repository.checkpoint(row) for row in reversed(rows)]

    def _texts(self, oids: Iterable[bytes]) -> Iterator[bytes]:
        """The contents that a state may repeat."""
        for oid in oids:
            if self._objects.has(oid):
                kind, size = self._objects.kind_and_size(oid)
                if kind is Kind.BLOB and size <= TEXT_MAX_BYTES:
                    yield self._objects.blob(oid)

    def _needed(self, gathering: Gathering, commits: Mapping[str, bytes]) -> set[bytes]:
        """Every object that is needed once checkpoints have these commits. Damaged if that cannot be told."""
        changed = {f"refs/tags/{one}" for one in commits}
        others = {commit for name, commit in all_refs(self._repository.folder) if name not in changed}
        try:
            found = {*map(bytes.fromhex, others), *commits.values()}
        except ValueError:
            raise Damaged("a ref of the store is not one", hint="Run `holdfast verify`; nothing was changed.") from None
        stack = [decode_commit(gathering.commit(commit)) for commit in found]
        while stack:
            tree = stack.pop()
            if tree not in found:
                found.add(tree)
                for entry in gathering.tree(tree):
                    (stack.append if entry.is_folder else found.add)(entry.oid)
        return found

    def _where(self, gathering: Gathering, found: list[_Found], oids: Set[bytes]) -> dict[str, str]:
        """Paths that go on holding some of these contents, and a checkpoint that has each."""
        places: dict[str, str] = {}
        before: Node | None = None
        for checkpoint, contents, _, _ in found if oids else ():
            for change in TreeReader(gathering).diff(before, contents.root):
                if change.after and not oids.isdisjoint(contents_of(gathering, change.after)):
                    places.setdefault(change.path, checkpoint.id)
            before = contents.root
        return places

    def _in_workspace(self, paths: list[str]) -> list[str]:
        with Handles(os.fspath(self._root)) as handles:
            return [path for path in paths if handles.has(path)]

    # doing

    def _commit(self, gathering: Gathering, found: _Found) -> bytes:
        """Write a checkpoint anew, under the same id; its record and its coverage say what was taken out."""
        checkpoint, contents, gone, states = found
        said = dict.fromkeys((*checkpoint.purged, *gone, *(f"(state) {name}" for name in states)))
        checkpoint = replace(checkpoint, purged=tuple(said))
        uncovered = [item for item in checkpoint.uncovered if not _is_below(item.path, set(gone))]
        uncovered += [Uncovered(path, Reason.PURGED) for path in gone]
        uncovered.sort(key=lambda item: (item.path, item.reason))
        changes = json.loads(self._objects.blob(contents.changes))
        if changes is not None:
            changes = [path for path in changes if not _is_below(path, set(gone))]
        new = contents._replace(
            record=gathering.add(Kind.BLOB, encode_record(checkpoint)),
            changes=gathering.add(Kind.BLOB, to_json(changes)),
            uncovered=gathering.add(Kind.BLOB, encode_uncovered(uncovered)),
        )
        return write_commit(gathering, checkpoint, new)

    def _take_away(self, oids: set[bytes]) -> None:
        """Take objects out of the store, wherever they are, and close the journal."""
        having = [pack for pack in self._objects.packs() if any(pack.find(oid) is not None for oid in oids)]
        if having:
            merge_packs(self._objects, having, keep=reachable(self._objects, self._objects.commits()))
        for copy in loose_copies(self._repository.folder, oids):
            disk().unlink(str(copy))
        cache = self._repository.own / "scan.cache"  # it names contents, and a short one can be guessed by that
        if cache.exists():
            disk().unlink(str(cache))
        disk().unlink(str(self._journal))
        durable.sync_folder(self._repository.own)

    def _prove(self, oids: set[bytes]) -> None:
        """Damaged if any of these objects is in the store, or may be."""
        self._objects.reopen()
        left = sum(map(self._objects.has, oids)) + len(loose_copies(self._repository.folder, oids))
        lone = lone_packs(self._objects.pack_folder)
        if left or lone:
            what = f"{left} objects are in a pack with damaged bytes" if left else f"{lone[0]} has no index"
            raise Damaged(
                f"every checkpoint is purged, but {what}, so that the content may still be in the store",
                hint="`holdfast verify` names the pack; once nothing needs it, remove it.",
            )


def _is_below(path: str, others: Set[str]) -> bool:
    return any(above in others for above in upwards(path))
