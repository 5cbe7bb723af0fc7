"""Purging: a path's content is taken out of every checkpoint, and it is looked up afterwards that it is gone.

Order of writes (P3): one pack with the rewritten checkpoints; the purge's own journal; then ref by ref; then the packs
are merged without what nothing needs; loose copies, the scan cache and the catalog go; it is looked up that nothing is
left; the journal goes last. A crash before the journal leaves everything as it was. After it each checkpoint is old or
new, and the next call that writes goes on. While the journal is there, `verify` names it.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.durable import disk
from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.model import Checkpoint, Progress, Purged, PurgePlan, Reason, Uncovered
from holdfast.scan.handles import Handles, upwards
from holdfast.shadowgit import FOLDER_MODE, Kind, decode_commit, encode_tree, free_unneeded, reachable
from holdfast.shadowgit.beside import all_refs, forget_packed, loose_copies
from holdfast.workspace.scope import Scope, inside, open_scope
from holdfast.workspace.stored.gathering import TEXT_MAX_BYTES, Gathering
from holdfast.workspace.stored.ids import sequence_of
from holdfast.workspace.stored.parts import list_parts
from holdfast.workspace.stored.record import Contents, Node, encode_record, encode_uncovered, to_json, write_commit
from holdfast.workspace.stored.repository import Repository, store_bytes
from holdfast.workspace.stored.tree import TreeReader
from holdfast.workspace.upkeep.begun import Begun, read_begun, write_begun
from holdfast.workspace.upkeep.cutting import Cutter
from holdfast.workspace.upkeep.leftovers import STORE, Left, find_files, find_objects, locate
from holdfast.workspace.upkeep.lines_left import (
    LinesLeft,
    Place,
    read_lines,
    read_lines_left,
    write_lines_left,
)
from holdfast.workspace.upkeep.needles import Needles
from holdfast.workspace.upkeep.rewriting import Rewriter, contents_of

_PAGE = "refs/heads/main"
_NAME = re.compile(r"[0-9a-f]{40}")
_SEAM_BYTES = 4 << 10
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
    places: list[tuple[int, Place]]
    """Where lines of this purge (0) and of earlier ones are left."""


class _Earlier(NamedTuple):
    """Lines that an earlier purge left."""

    paths: tuple[str, ...]
    lines: set[str]
    is_chosen: bool
    """Whether one of the paths is purged now."""


class _Work(NamedTuple):
    """Everything that a purge would do."""

    plan: PurgePlan
    found: list[_Found]
    needles: Needles
    """What is to be found nowhere afterwards."""
    lines_left: list[LinesLeft]
    contents: set[bytes]
    """The contents that are purged."""
    needed: dict[bytes, Kind]
    """What is needed afterwards."""
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
        gathering = Gathering(self._objects, None)
        work = self._examine(Begun(list(paths), set(), lines), gathering, progress)
        objects = ((oid, kind, _read(gathering, oid, kind)) for oid, kind in work.needed.items())
        return self._told(
            work, gathering, find_objects(_counted(objects, len(work.needed), progress), gathering, work.needles)
        )

    def purge(self, paths: Sequence[str], *, lines: bool = False, progress: Progress | None = None) -> Purged:
        """Do it, and what an earlier one could not. Needs the store's lock. Unavailable or Damaged if it is begun and
        not at its end."""
        paths = [inside(path, self._root) for path in paths]  # the folder may be elsewhere when it is continued
        begun = self._begun()
        if begun is None:
            return self._purge(Begun(paths, set(), lines), progress)
        every = list(dict.fromkeys([*begun.paths, *paths]))
        return self._purge(Begun(every, begun.objects, begun.lines or lines, begun.contents), progress)

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
            pack = writer.commit()
        except BaseException:
            writer.abort()
            raise
        self._objects.refresh()
        try:
            self._repository.check_room(work.needed, "nothing was purged", every=True)
        except Unavailable:
            if pack is not None:
                writer.withdraw(pack)
            self._objects.refresh()
            raise
        durable.write_atomically(self._journal, write_begun(wish._replace(objects=work.doomed, contents=work.contents)))
        try:
            # An interrupted one needs the old places where a checkpoint is old, and the new ones where it is new (P3).
            write_lines_left(self._repository, [*read_lines_left(self._repository), *work.lines_left])
            for checkpoint_id, commit in work.commits.items():
                self._objects.set_ref(checkpoint_id, commit)
            forget_packed(self._repository.folder, work.commits.keys())
            self._repository.sync()
            self._take_away(work.dropped)
            write_lines_left(self._repository, work.lines_left)
            self._prove(work.dropped)
            plan = self._search(work, progress)
            disk().unlink(str(self._journal))
            durable.sync_folder(self._repository.own)
        except OSError as error:
            raise Unavailable(
                f"the purge has begun, and is not finished: {error.strerror or error}",
                hint="Fix that; the next call that writes, such as the same purge, goes on with it.",
            ) from error
        return Purged(plan, len(work.dropped), max(0, before - store_bytes(self._repository.folder)))

    # looking

    def _examine(self, wish: Begun, gathering: Gathering, progress: Progress | None) -> _Work:
        """Rewrite in memory, and tell what is needed then. The wish names what an interrupted one was to take away."""
        scope = open_scope(wish.paths, self._root)
        earlier = self._lines_left(scope)
        found, contents, needles = self._rewrite(wish, scope, earlier, gathering, progress)
        changed = [each for each in found if each.gone or each.cut]
        if not wish.objects and not any(each.gone for each in changed):
            self._check_earlier(wish, earlier)
        commits = {each.checkpoint.id: self._commit(gathering, each) for each in changed}
        needed = self._needed(gathering, commits)
        old = [bytes.fromhex(each.checkpoint.commit) for each in changed]
        doomed = contents | wish.objects | (reachable(self._objects, old) - needed.keys())
        self._check_others(doomed - needed.keys())
        gone = sorted({path for each in changed for path in each.gone})
        plan = PurgePlan(
            paths=gone,
            checkpoints=list(commits),
            states={each.checkpoint.id: each.cut for each in changed if each.cut},
            partly={each.checkpoint.id: each.left for each in found if each.left},
            bytes_freed=sum(self._objects.kind_and_size(oid)[1] for oid in contents - needed.keys()),
            also_at={},
            in_workspace=self._in_workspace(gone),
        )
        told = [each.paths for each in earlier if not each.is_chosen or not wish.lines]
        lines_left = _lines_left(found, [tuple(dict.fromkeys([*gone, *wish.paths])), *told])
        known = contents | wish.contents
        return _Work(plan, found, needles, lines_left, known, needed, commits, doomed, doomed - needed.keys())

    def _lines_left(self, scope: Scope) -> list[_Earlier]:
        """What earlier purges left."""
        lines: dict[tuple[str, ...], set[str]] = {}
        for entry in read_lines_left(self._repository):
            lines.setdefault(entry.paths, set()).update(read_lines(self._repository, entry))
        return [_Earlier(paths, known, any(path in scope for path in paths)) for paths, known in lines.items() if known]

    def _check_earlier(self, wish: Begun, earlier: list[_Earlier]) -> None:
        """NotFound unless lines are to be cut that an earlier purge of the same path left."""
        what = " or ".join(wish.paths)
        if not any(each.is_chosen for each in earlier):
            raise NotFound(f"no checkpoint holds {what}", hint="Check its spelling.")
        if not wish.lines:
            raise NotFound(
                f"no checkpoint holds {what} any more, but states or messages repeat lines of it",
                hint="Cut these out with `holdfast purge --lines` (lines=True).",
            )

    def _rewrite(
        self,
        wish: Begun,
        scope: Scope,
        earlier: list[_Earlier],
        gathering: Gathering,
        progress: Progress | None,
    ) -> tuple[list[_Found], set[bytes], Needles]:
        """Every checkpoint as it is to be, oldest first; the contents that are taken out; what to search for."""
        if not wish.paths or "" in (scope.paths or ()):
            raise Refused("this would purge the whole workspace", hint="Delete checkpoints with `holdfast rm`.")
        rewriter = Rewriter(gathering, scope)
        checkpoints = self._checkpoints()
        found = []
        for number, checkpoint in enumerate(checkpoints, 1):
            contents = self._repository.contents(checkpoint)
            node, gone = rewriter.rewrite(contents.root)
            found.append(_Found(checkpoint, contents._replace(root=node), gone, [], [], []))
            if progress:
                progress("looking", number, len(checkpoints))
        texts = list(self._texts(rewriter.doomed | wish.contents))
        more = [line for each in earlier if each.is_chosen for line in each.lines]
        told = [each.lines for each in earlier if not each.is_chosen or not wish.lines]
        cutter = Cutter(gathering, texts, lines=wish.lines, more=more, told=told)
        return [_cut(each, cutter) for each in found], rewriter.doomed, cutter.needles

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

    def _texts(self, oids: Set[bytes]) -> Iterator[bytes]:
        """The contents that a state may repeat; of one that is stored in parts also what is where two of them meet."""
        for oid in oids:
            if not self._objects.has(oid):
                continue
            kind, size = self._objects.kind_and_size(oid)
            if kind is Kind.BLOB and size <= TEXT_MAX_BYTES:
                yield self._objects.blob(oid)
            elif kind is Kind.TREE:
                yield from self._seams(oid)

    def _seams(self, tree: bytes) -> Iterator[bytes]:
        last = b""
        for part in list_parts(self._objects, FOLDER_MODE, tree):
            data = self._objects.blob(part) if self._objects.has(part) else b""
            if last and data:
                yield last + data[:_SEAM_BYTES]
            last = data[-_SEAM_BYTES:]

    def _needed(self, gathering: Gathering, commits: Mapping[str, bytes]) -> dict[bytes, Kind]:
        """Every object that checkpoints need once some have these commits. Damaged if that cannot be told."""
        others = {row.id: row.commit for row in self._repository.catalog.newest(limit=None, session=None, safety=True)}
        page = dict(all_refs(self._repository.folder)).get(_PAGE)
        needed = {bytes.fromhex(commit) for key, commit in others.items() if key not in commits} | {*commits.values()}
        needed |= {bytes.fromhex(page)} if page else set()
        found = dict.fromkeys(needed, Kind.COMMIT)
        stack = [decode_commit(gathering.commit(commit)) for commit in found]
        while stack:
            tree = stack.pop()
            if tree not in found:
                found[tree] = Kind.TREE
                for entry in gathering.tree(tree):
                    if entry.is_folder:
                        stack.append(entry.oid)
                    else:
                        found[entry.oid] = Kind.BLOB
        return found

    def _told(self, work: _Work, source: Gathering, left: Left) -> PurgePlan:
        """The plan, with where else the content is, and where it is repeated."""
        also_at = self._where(source, work.found, (work.contents & work.needed.keys()) | left.contents)
        commits = {each.checkpoint.id: bytes.fromhex(each.checkpoint.commit) for each in work.found} | work.commits
        partly = dict(work.plan.partly)
        for key, places in locate(commits, source, left).items():
            known = partly.get(key, [])
            more = [place for place in places if place not in known and not (place == "(record)" and known)]
            if known or more:
                partly[key] = [*known, *more]
        return replace(work.plan, also_at=also_at, partly=partly)

    def _search(self, work: _Work, progress: Progress | None) -> PurgePlan:
        """The plan, with what is left of the content after all: everything in the store is read (P4)."""
        oids = {oid for pack in self._objects.packs() for oid in pack.oids()}
        unread: list[bytes] = []

        def objects() -> Iterator[tuple[bytes, Kind, bytes]]:
            for oid in oids:
                try:
                    yield oid, *self._objects.read(oid)
                except Damaged:
                    unread.append(oid)

        source = Gathering(self._objects, None)
        left = find_objects(_counted(objects(), len(oids), progress), source, work.needles)
        plan = self._told(work, source, left)
        own = os.fspath(self._journal.relative_to(self._repository.folder))
        others = [path for path in find_files(self._repository.folder, work.needles) if path != own]
        others += [f"object {oid.hex()}, which cannot be read" for oid in unread]
        if others:
            return replace(plan, partly=plan.partly | {STORE: [*plan.partly.get(STORE, []), *others]})
        return plan

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
        checkpoint, contents, gone, cut, *_ = found
        said = dict.fromkeys((*checkpoint.purged, *gone, *map(_named, cut)))
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
        if free_unneeded(self._objects, needed, every_pack=False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
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
    state, record = cutter.cut_state(found.contents.state), cutter.cut_record(found.checkpoint)
    places = state.places + record.places
    left = list(dict.fromkeys(place.where for index, place in places if index == 0))
    return found._replace(
        checkpoint=record.checkpoint,
        contents=found.contents._replace(state=state.tree),
        cut=state.cut + record.cut,
        left=left + record.left,
        places=places,
    )


def _lines_left(found: list[_Found], paths: list[tuple[str, ...]]) -> list[LinesLeft]:
    """Where lines are left, by what was purged."""
    entries: list[dict[Place, list[str]]] = [{} for _ in paths]
    for each in found:
        for index, place in each.places:
            entries[index].setdefault(place, []).append(each.checkpoint.id)
    return [LinesLeft(*pair) for pair in zip(paths, entries, strict=True) if pair[1]]


def _read(source: Gathering, oid: bytes, kind: Kind) -> bytes:
    if kind is Kind.TREE:
        return encode_tree(source.tree(oid))
    return source.commit(oid) if kind is Kind.COMMIT else source.blob(oid)


def _counted(
    objects: Iterator[tuple[bytes, Kind, bytes]], total: int, progress: Progress | None
) -> Iterator[tuple[bytes, Kind, bytes]]:
    for number, each in enumerate(objects, 1):
        if progress:
            progress("searching", number, total)
        yield each


def _named(name: str) -> str:
    return name if name.startswith("(") else f"(state) {name}"


def _is_below(path: str, others: Set[str]) -> bool:
    return any(above in others for above in upwards(path))
