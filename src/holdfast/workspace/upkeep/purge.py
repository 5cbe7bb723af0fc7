"""Purging: a path's content is taken out of every checkpoint, and it is looked up afterwards that it is gone.

Order of writes (P3): one pack with the rewritten checkpoints; the purge's own journal; then ref by ref; then the packs
are merged without what nothing needs; loose copies, the scan cache and the catalog go; it is looked up that nothing is
left; the journal goes last. A crash before the journal leaves everything as it was. After it each checkpoint is old or
new, and the next call that writes goes on. While the journal is there, `verify` names it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.durable import disk
from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.model import Checkpoint, Progress, Purged, PurgePlan, Reason, Uncovered
from holdfast.scan.handles import Handles, upwards
from holdfast.shadowgit import Kind, decode_commit, merge_packs, reachable
from holdfast.shadowgit.beside import all_refs, forget_packed, loose_copies
from holdfast.workspace.scope import inside, open_scope
from holdfast.workspace.stored.gathering import TEXT_MAX_BYTES, Gathering
from holdfast.workspace.stored.ids import sequence_of
from holdfast.workspace.stored.record import Contents, Node, encode_record, encode_uncovered, to_json, write_commit
from holdfast.workspace.stored.repository import Repository, store_bytes
from holdfast.workspace.stored.tree import TreeReader
from holdfast.workspace.upkeep.begun import Begun, read_begun, write_begun
from holdfast.workspace.upkeep.cutting import Cutter
from holdfast.workspace.upkeep.rewriting import Rewriter, contents_of

_PAGE = "refs/heads/main"
_NAME = re.compile(r"[0-9a-f]{40}")
_AGAIN = "Purge the same paths again once that is fixed; until then `holdfast verify` names it."


class _Found(NamedTuple):
    """A checkpoint, looked at."""

    checkpoint: Checkpoint
    contents: Contents
    """As they are to be."""
    gone: tuple[str, ...]
    cut: list[str]
    """The states that repeated it, and `(message)`, `(metadata)`."""
    left: list[str]
    """Those that go on repeating a line of it."""


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

    def plan(self, paths: Sequence[str], *, lines: bool = False, progress: Progress | None = None) -> PurgePlan:
        """What a purge would do; nothing is stored. NotFound if no checkpoint has any of it."""
        return self._examine(Begun(list(paths), set(), lines), Gathering(self._objects, None), progress).plan

    def purge(self, paths: Sequence[str], *, lines: bool = False, progress: Progress | None = None) -> Purged:
        """Do it, and what an earlier one could not. Needs the store's lock. Unavailable or Damaged if it is begun and
        not at its end."""
        paths = [inside(path, self._root) for path in paths]  # the folder may be elsewhere when it is continued
        begun = self._begun()
        if begun is None:
            return self._purge(Begun(paths, set(), lines), progress)
        every = list(dict.fromkeys([*begun.paths, *paths]))
        return self._purge(Begun(every, begun.objects, begun.lines or lines), progress)

    def resume(self) -> HoldfastError | None:
        """Go on with a purge that was interrupted; why that cannot be done, if it cannot. The journal then stays."""
        begun = self._begun()
        if begun is None:
            return Damaged(f"{self._journal} cannot be read, so that a purge cannot be continued", hint=_AGAIN)
        try:
            self._purge(begun, None)
        except HoldfastError as error:
            return error
        except OSError as error:
            return Unavailable(f"a purge cannot be continued: {error.strerror or error}", hint=_AGAIN)
        return None

    def _begun(self) -> Begun | None:
        try:
            return read_begun(self._journal.read_bytes())
        except FileNotFoundError:
            return None

    def _purge(self, wish: Begun, progress: Progress | None) -> Purged:
        before = store_bytes(self._repository.folder)
        writer = self._objects.writer()
        try:
            work = self._examine(wish, Gathering(self._objects, writer), progress)
            writer.commit()
        except BaseException:
            writer.abort()
            raise
        self._objects.refresh()
        durable.write_atomically(self._journal, write_begun(wish._replace(objects=work.doomed)))
        try:
            for checkpoint_id, commit in work.commits.items():
                self._objects.set_ref(checkpoint_id, commit)
            forget_packed(self._repository.folder, work.commits.keys())
            self._repository.sync()
            self._take_away(work.dropped)
            self._prove(work.dropped)
            disk().unlink(str(self._journal))
            durable.sync_folder(self._repository.own)
        except OSError as error:
            raise Unavailable(
                f"the purge has begun, and is not finished: {error.strerror or error}",
                hint="Fix that; the next call that writes, such as the same purge, goes on with it.",
            ) from error
        return Purged(work.plan, len(work.dropped), max(0, before - store_bytes(self._repository.folder)))

    # looking

    def _examine(self, wish: Begun, gathering: Gathering, progress: Progress | None) -> _Work:
        """Rewrite in memory, and tell what is needed then. The wish names what an interrupted one was to take away."""
        found, contents = self._rewrite(wish, gathering, progress)
        changed = [each for each in found if each.gone or each.cut]
        if not wish.objects and not any(each.gone for each in changed):
            raise NotFound(f"no checkpoint holds {' or '.join(wish.paths)}", hint="Check its spelling.")
        commits = {each.checkpoint.id: self._commit(gathering, each) for each in changed}
        needed = self._needed(gathering, commits)
        old = [bytes.fromhex(each.checkpoint.commit) for each in changed]
        doomed = contents | wish.objects | (reachable(self._objects, old) - needed)
        self._check_others(doomed - needed)
        gone = sorted({path for each in changed for path in each.gone})
        plan = PurgePlan(
            paths=gone,
            checkpoints=list(commits),
            states={each.checkpoint.id: each.cut for each in changed if each.cut},
            partly={each.checkpoint.id: each.left for each in found if each.left},
            bytes_freed=sum(self._objects.kind_and_size(oid)[1] for oid in contents - needed),
            also_at=self._where(gathering, found, contents & needed),
            in_workspace=self._in_workspace(gone),
        )
        return _Work(plan, commits, doomed, doomed - needed)

    def _rewrite(self, wish: Begun, gathering: Gathering, progress: Progress | None) -> tuple[list[_Found], set[bytes]]:
        """Every checkpoint as it is to be, oldest first, and the contents that are taken out."""
        scope = open_scope(wish.paths, self._root)
        if not wish.paths or "" in (scope.paths or ()):
            raise Refused("this would purge the whole workspace", hint="Delete checkpoints with `holdfast rm`.")
        rewriter = Rewriter(gathering, scope)
        checkpoints = self._checkpoints()
        found = []
        for number, checkpoint in enumerate(checkpoints, 1):
            contents = self._repository.contents(checkpoint)
            node, gone = rewriter.rewrite(contents.root)
            found.append(_Found(checkpoint, contents._replace(root=node), gone, [], []))
            if progress:
                progress("looking", number, len(checkpoints))
        cutter = Cutter(gathering, list(self._texts(rewriter.doomed | wish.objects)), lines=wish.lines)
        return [_cut(each, cutter) for each in found], rewriter.doomed

    def _checkpoints(self) -> list[Checkpoint]:
        """All of them, oldest first; Damaged if one cannot be read, since nothing could be proven then."""
        rows = self._repository.catalog.newest(limit=None, session=None, safety=True)
        unread = {name for name in self._objects.ref_names() - {row.id for row in rows} if sequence_of(name)}
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
        """Every object that checkpoints need once some have these commits. Damaged if that cannot be told."""
        others = {row.id: row.commit for row in self._repository.catalog.newest(limit=None, session=None, safety=True)}
        page = dict(all_refs(self._repository.folder)).get(_PAGE)
        found = {bytes.fromhex(commit) for key, commit in others.items() if key not in commits} | {*commits.values()}
        found |= {bytes.fromhex(page)} if page else set()
        stack = [decode_commit(gathering.commit(commit)) for commit in found]
        while stack:
            tree = stack.pop()
            if tree not in found:
                found.add(tree)
                for entry in gathering.tree(tree):
                    (stack.append if entry.is_folder else found.add)(entry.oid)
        return found

    def _check_others(self, dropped: set[bytes]) -> None:
        """Conflict if a ref that is no checkpoint's needs something of what is to go."""
        ids = self._objects.ref_names()
        for name, commit in all_refs(self._repository.folder):
            tag = name.removeprefix("refs/tags/")
            if name == _PAGE or (sequence_of(tag) and tag in ids) or not _NAME.fullmatch(commit):
                continue
            if not dropped.isdisjoint(reachable(self._objects, [bytes.fromhex(commit)])):
                raise Conflict(
                    f"{name}, which somebody made in the store, needs what is to be purged",
                    hint=f"Remove it: git --git-dir={self._repository.folder} update-ref -d {name}",
                )

    def _where(self, gathering: Gathering, found: list[_Found], oids: Set[bytes]) -> dict[str, str]:
        """Paths that go on holding some of these contents, and a checkpoint that has each."""
        places: dict[str, str] = {}
        before: Node | None = None
        for checkpoint, contents, *_ in found if oids else ():
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
        checkpoint, contents, gone, cut, _ = found
        said = dict.fromkeys((*checkpoint.purged, *gone, *map(_told, cut)))
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
        """Take objects out of the store, wherever they are; and all that nothing needs, such as what a deleted
        checkpoint had at the same path."""
        needed = self._repository.needed()
        having = [pack for pack in self._objects.packs() if any(oid not in needed for oid in pack.oids())]
        if having:
            merge_packs(self._objects, having, keep=needed)
        for copy in loose_copies(self._repository.folder, oids):
            disk().unlink(str(copy))
        cache = self._repository.own / "scan.cache"  # it names contents, and a short one can be guessed by that
        if cache.exists():
            disk().unlink(str(cache))
        self._repository.catalog.discard()  # SQLite keeps what was in a row until it needs the room
        self._repository.sync()

    def _prove(self, oids: set[bytes]) -> None:
        """Damaged if any of these objects is in the store, or may be: in a pack whose index is lost or damaged."""
        left = sum(map(self._objects.has, oids)) + len(loose_copies(self._repository.folder, oids))
        told = {pack.path for pack in self._objects.packs() if pack.is_index_sound}
        untold = sorted(set(self._objects.pack_folder.glob("*.pack")) - told)
        if left or untold:
            what = (
                f"{left} objects are in a pack with damaged bytes" if left else f"{untold[0].name} has no sound index"
            )
            raise Damaged(
                f"every checkpoint is purged, but {what}, so that the content may still be in the store",
                hint="`holdfast verify` names the pack; once nothing needs it, remove it.",
            )


def _cut(found: _Found, cutter: Cutter) -> _Found:
    """Without what repeats a purged content in state and record."""
    state, cut, left = cutter.cut_state(found.contents.state)
    checkpoint, also_cut, also_left = cutter.cut_record(found.checkpoint)
    contents = found.contents._replace(state=state)
    return found._replace(checkpoint=checkpoint, contents=contents, cut=cut + also_cut, left=left + also_left)


def _told(name: str) -> str:
    return name if name.startswith("(") else f"(state) {name}"


def _is_below(path: str, others: Set[str]) -> bool:
    return any(above in others for above in upwards(path))
