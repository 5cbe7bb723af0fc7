"""Purging: remove the content of a path from every checkpoint, and verify that it is gone.

Order of writes (P3): one pack with the rewritten checkpoints; the purge journal; then ref by ref; then the packs are
merged without unneeded objects; loose copies, the scan cache and the catalog are removed; the store is searched for the
content; the journal is removed last. A crash before the journal leaves everything as it was. After it each checkpoint
is old or new, and the next call that writes continues. While the journal exists, `verify` reports it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.durable import disk
from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused, Remedy, Unavailable
from holdfast.model import Checkpoint, Progress, Purged, PurgePlan, Reason, Uncovered
from holdfast.scan import user_git
from holdfast.scan.dir_handles import Handles, upwards
from holdfast.scan.git_refs import decode_git_refs
from holdfast.secret_patterns import unescaped
from holdfast.shadowgit import FOLDER_MODE, ObjectKind, decode_commit, encode_tree, free_unneeded, reachable
from holdfast.shadowgit.git_files import all_refs, forget_packed, loose_copies
from holdfast.workspace.pathspec import Scope, check_matched, open_scope, relative
from holdfast.workspace.stored.chunking import list_parts
from holdfast.workspace.stored.ids import sequence_of
from holdfast.workspace.stored.object_sink import TEXT_MAX_BYTES, ObjectSink, PackSink
from holdfast.workspace.stored.record import (
    Contents,
    Node,
    decode_changes,
    encode_record,
    encode_uncovered,
    to_json,
    write_commit,
)
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import TreeReader
from holdfast.workspace.upkeep.git_redaction import GitPlaces, GitRedaction
from holdfast.workspace.upkeep.object_sizes import ObjectSizes
from holdfast.workspace.upkeep.purge_journal import PurgeInProgress, read_begun, write_begun
from holdfast.workspace.upkeep.purge_remains import (
    LinePosition,
    LinesLeft,
    read_lines,
    read_lines_left,
    write_lines_left,
)
from holdfast.workspace.upkeep.purge_search import STORE, Left, find_files, find_objects, locate
from holdfast.workspace.upkeep.secret_spellings import Needles
from holdfast.workspace.upkeep.state_redaction import Cutter
from holdfast.workspace.upkeep.tree_rewrite import Rewriter, contents_of

_PAGE = "refs/heads/main"
_NAME = re.compile(r"[0-9a-f]{40}")
_SEAM_BYTES = 4 << 10
_OID_BYTES = 20
GIT = "(git)"
_AGAIN = "Purge the same paths again once that is fixed."


Position = tuple[bytes, int, int]
"""Where a secret is: the ids of chunks that follow each other, start and end."""


class _Found(NamedTuple):
    """A checkpoint to be rewritten."""

    checkpoint: Checkpoint
    contents: Contents
    """The contents after the purge."""
    gone: tuple[str, ...]
    cut: list[str]
    """Where copies are redacted: names of states, `(message)`, `(metadata)`, `(git)`."""
    left: list[str]
    """Where copies of a line remain."""
    places: list[tuple[int, LinePosition]]
    """Where lines of this purge (0) and of earlier ones remain."""


class _Earlier(NamedTuple):
    """Lines that an earlier purge did not redact."""

    paths: tuple[str, ...]
    lines: set[str]
    is_chosen: bool
    """Whether one of the paths is purged now."""


class _Work(NamedTuple):
    """Everything that a purge will do."""

    plan: PurgePlan
    found: list[_Found]
    needles: Needles
    """What must not be found anywhere afterwards."""
    lines_left: list[LinesLeft]
    contents: set[bytes]
    """The purged contents."""
    needed: dict[bytes, ObjectKind]
    """The objects needed afterwards."""
    commits: dict[str, bytes]
    """The new commit of each checkpoint."""
    doomed: set[bytes]
    """The purged contents, and everything that only the old commits needed."""
    dropped: set[bytes]
    """Those of them that are not needed afterwards."""


class Purger:
    """Purges the store of one workspace."""

    def __init__(self, repository: Repository, root: Path, git: Callable[[], str | None] = lambda: None) -> None:
        """`git` returns the git program, which searches what checkpoints hold of the user's git."""
        self._repository = repository
        self._git = git
        self._objects = repository.objects
        self._root = root
        self._journal = repository.purge_journal

    def plan(
        self,
        paths: Sequence[str],
        *,
        lines: bool = False,
        secrets: Sequence[Position] = (),
        progress: Progress | None = None,
    ) -> PurgePlan:
        """Plan a purge; store nothing. NotFound if no checkpoint has any of the paths."""
        sink = ObjectSink(self._objects)
        purge = PurgeInProgress(list(paths), set(), lines, secrets=tuple(secrets))
        work = self._examine(purge, sink, progress)
        objects = ((oid, kind, _read(sink, oid, kind)) for oid, kind in work.needed.items())
        return self._told(work, sink, find_objects(_counted(objects, len(work.needed), progress), sink, work.needles))

    def purge(
        self,
        paths: Sequence[str],
        *,
        lines: bool = False,
        secrets: Sequence[Position] = (),
        progress: Progress | None = None,
    ) -> Purged:
        """Purge, and finish an interrupted purge. Needs the lock. Unavailable or Damaged if it cannot finish."""
        paths = [
            relative(path, self._root, self._repository.has_path) for path in paths
        ]  # relative, since the folder may have moved when it is continued
        begun = self._begun()
        if begun is None:
            return self._purge(PurgeInProgress(paths, set(), lines, secrets=tuple(secrets)), progress)
        every = list(dict.fromkeys([*begun.paths, *paths]))
        both = (*begun.secrets, *secrets)
        return self._purge(PurgeInProgress(every, begun.objects, begun.lines or lines, begun.contents, both), progress)

    def resume(self) -> HoldfastError | None:
        """Continue an interrupted purge; return the error if that fails. The journal then stays."""
        begun = self._begun()
        if begun is None:
            return Damaged(
                f"{self._journal} cannot be read, so a purge cannot be continued",
                hint=_AGAIN,
                remedy=Remedy("verify"),
            )
        try:
            self._purge(begun, None)
        except HoldfastError as error:
            return error
        except OSError as error:
            return Unavailable(
                f"a purge cannot be continued: {error.strerror or error}", hint=_AGAIN, remedy=Remedy("verify")
            )
        return None

    def _begun(self) -> PurgeInProgress | None:
        try:
            return read_begun(self._journal.read_bytes())
        except FileNotFoundError:
            return None

    def _purge(self, purge: PurgeInProgress, progress: Progress | None) -> Purged:
        with PackSink(self._objects) as sink:
            work = self._examine(purge, sink, progress)
            pack = sink.writer.commit()
        self._objects.refresh()
        try:
            self._repository.check_room(work.needed, "nothing was purged", every=True)
        except Unavailable:
            if pack is not None:
                sink.writer.withdraw(pack)
            self._objects.refresh()
            raise
        durable.write_atomically(
            self._journal, write_begun(purge._replace(objects=work.doomed, contents=work.contents))
        )
        try:
            # P3: if this is interrupted, some checkpoints are old and others new; both kinds of places are needed then.
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
                f"the purge is not finished: {error.strerror or error}",
                hint="Fix the cause; the next call that writes continues it.",
            ) from error
        return Purged(plan, len(work.dropped), plan.bytes_freed)

    # planning

    def _examine(self, purge: PurgeInProgress, sink: ObjectSink, progress: Progress | None) -> _Work:
        """Rewrite all checkpoints in the sink, and compute what is needed afterwards.

        `purge` includes what an interrupted purge was to remove.
        """
        scope = open_scope(purge.paths, self._root, self._repository.has_path)
        earlier = self._lines_left(scope)
        places = GitPlaces(scope, self._prefix())
        found, contents, needles = self._rewrite(purge, places, earlier, sink, progress)
        changed = [each for each in found if each.gone or each.cut]
        if not purge.objects and purge.paths and not any(each.gone or GIT in each.cut for each in changed):
            self._check_earlier(purge, earlier)
        elif not purge.objects and purge.paths:
            check_matched(scope)
        commits = {each.checkpoint.id: self._commit(sink, each) for each in changed}
        needed = self._needed(sink, commits)
        old = [bytes.fromhex(each.checkpoint.commit) for each in changed]
        doomed = contents | purge.objects | (reachable(self._objects, old) - needed.keys())
        self._check_others(doomed - needed.keys())
        gone = sorted({path for each in changed for path in each.gone} or places.found)
        plan = PurgePlan(
            paths=gone,
            checkpoints=list(commits),
            states={each.checkpoint.id: each.cut for each in changed if each.cut},
            partly={each.checkpoint.id: each.left for each in found if each.left},
            bytes_freed=self._packed_bytes(contents - needed.keys()),
            also_at={},
            in_workspace=self._in_workspace(gone),
        )
        told = [each.paths for each in earlier if not each.is_chosen or not purge.lines]
        lines_left = _lines_left(found, [tuple(dict.fromkeys([*gone, *purge.paths])), *told])
        known = contents | purge.contents
        return _Work(plan, found, needles, lines_left, known, needed, commits, doomed, doomed - needed.keys())

    def _packed_bytes(self, oids: Set[bytes]) -> int:
        sizes = ObjectSizes(self._objects).sizes
        return sum(sizes.get(oid, 0) for oid in oids)

    def _lines_left(self, scope: Scope) -> list[_Earlier]:
        """Return the lines that earlier purges left."""
        lines: dict[tuple[str, ...], set[str]] = {}
        for entry in read_lines_left(self._repository):
            lines.setdefault(entry.paths, set()).update(read_lines(self._repository, entry))
        return [_Earlier(paths, known, any(path in scope for path in paths)) for paths, known in lines.items() if known]

    def _check_earlier(self, purge: PurgeInProgress, earlier: list[_Earlier]) -> None:
        """Raise NotFound unless there are lines to redact that an earlier purge of the same path left."""
        what = " or ".join(purge.paths)
        if not any(each.is_chosen for each in earlier):
            raise NotFound(f"no checkpoint contains {what}", hint="Check its spelling.")
        if not purge.lines:
            raise NotFound(
                f"no checkpoint contains {what} any more, but states or messages repeat lines of it",
                remedy=Remedy("purge_lines"),
            )

    def _rewrite(
        self,
        purge: PurgeInProgress,
        places: GitPlaces,
        earlier: list[_Earlier],
        sink: ObjectSink,
        progress: Progress | None,
    ) -> tuple[list[_Found], set[bytes], Needles]:
        """Return every checkpoint as rewritten, oldest first; the purged contents; what to search for."""
        scope = places.scope
        if not (purge.paths or purge.secrets) or scope.has_folder(""):
            raise Refused("this would purge the whole workspace", remedy=Remedy("delete_checkpoints"))
        rewriter = Rewriter(sink, scope)
        checkpoints = self._checkpoints()
        found = []
        for number, checkpoint in enumerate(checkpoints, 1):
            contents = self._repository.contents(checkpoint)
            node, gone = rewriter.rewrite(contents.root)
            found.append(_Found(checkpoint, contents._replace(root=node), gone, [], [], []))
            if progress:
                progress("looking", number, len(checkpoints))
        texts = [*self._texts(rewriter.doomed | purge.contents), *self._secret_texts(purge.secrets)]
        more = [line for each in earlier if each.is_chosen for line in each.lines]
        told = [each.lines for each in earlier if not each.is_chosen or not purge.lines]
        cutter = Cutter(sink, texts, lines=purge.lines, more=more, told=told)
        git = GitRedaction(self._repository, sink, self._git, cutter.needles, places)
        doomed = rewriter.doomed | purge.contents
        return [self._cut_git(_cut(each, cutter), git, doomed) for each in found], rewriter.doomed, cutter.needles

    def _prefix(self) -> str:
        """Return the path of the workspace in the user's repository; empty if there is none."""
        repository = user_git.repository_of(self._root)
        prefix = "." if repository is None else os.path.relpath(self._root, repository)
        return "" if prefix == "." else prefix

    def _cut_git(self, found: _Found, git: GitRedaction, doomed: Set[bytes]) -> _Found:
        """Remove what is purged from what a checkpoint holds of the user's git."""

        def format_of() -> str:
            return decode_git_refs(self._objects.blob(found.contents.git)).object_format

        done = git.rewrite(found.contents.git_data, format_of, doomed)
        if not done.is_cut:
            return found
        return found._replace(contents=found.contents._replace(git_data=done.tree), cut=[*found.cut, GIT])

    def _checkpoints(self) -> list[Checkpoint]:
        """Return all checkpoints, oldest first. Damaged if one is unreadable: it may contain the content."""
        rows = self._repository.catalog.newest(limit=None, session=None, safety=True)
        unread = {name for name in self._objects.ref_names() - {row.id for row in rows} if sequence_of(name)}
        if unread:
            raise Damaged(
                f"checkpoint {min(unread)} cannot be read, so its content is unknown",
                hint="Nothing was changed.",
                remedy=Remedy("verify"),
            )
        return [self._repository.checkpoint(row) for row in reversed(rows)]

    def _texts(self, oids: Set[bytes]) -> Iterator[bytes]:
        """Yield the contents that a state may repeat; of one in chunks also the bytes around each boundary."""
        for oid in oids:
            if not self._objects.has(oid):
                continue
            kind, size = self._objects.kind_and_size(oid)
            if kind is ObjectKind.BLOB and size <= TEXT_MAX_BYTES:
                yield self._objects.blob(oid)
            elif kind is ObjectKind.TREE:
                yield from self._seams(oid)

    def _secret_texts(self, secrets: Sequence[Position]) -> Iterator[bytes]:
        """Yield single secrets, from where they were found; an interrupted purge may have removed some already."""
        for blobs, start, end in secrets:
            parts = [blobs[at : at + _OID_BYTES] for at in range(0, len(blobs), _OID_BYTES)]
            if all(map(self._objects.has, parts)):
                yield unescaped(b"".join(map(self._objects.blob, parts)))[start:end]

    def _seams(self, tree: bytes) -> Iterator[bytes]:
        last = b""
        for part in list_parts(self._objects, FOLDER_MODE, tree):
            data = self._objects.blob(part) if self._objects.has(part) else b""
            if last and data:
                yield last + data[:_SEAM_BYTES]
            last = data[-_SEAM_BYTES:]

    def _needed(self, sink: ObjectSink, commits: Mapping[str, bytes]) -> dict[bytes, ObjectKind]:
        """Return every object that checkpoints need with the new commits. Damaged if that is unknown."""
        others = {row.id: row.commit for row in self._repository.catalog.newest(limit=None, session=None, safety=True)}
        page = dict(all_refs(self._repository.folder)).get(_PAGE)
        needed = {bytes.fromhex(commit) for key, commit in others.items() if key not in commits} | {*commits.values()}
        needed |= {bytes.fromhex(page)} if page else set()
        found = dict.fromkeys(needed, ObjectKind.COMMIT)
        stack = [decode_commit(sink.commit(commit)) for commit in found]
        while stack:
            tree = stack.pop()
            if tree not in found:
                found[tree] = ObjectKind.TREE
                for entry in sink.tree(tree):
                    if entry.is_folder:
                        stack.append(entry.oid)
                    else:
                        found[entry.oid] = ObjectKind.BLOB
        return found

    def _told(self, work: _Work, source: ObjectSink, left: Left) -> PurgePlan:
        """Return the plan, with the other places of the content."""
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
        """Return the plan, with what remains of the content: reads everything in the store (P4)."""
        oids = {oid for pack in self._objects.packs() for oid in pack.oids()}
        unread: list[bytes] = []

        def objects() -> Iterator[tuple[bytes, ObjectKind, bytes]]:
            for oid in oids:
                try:
                    yield oid, *self._objects.read(oid)
                except Damaged:
                    unread.append(oid)

        source = ObjectSink(self._objects)
        left = find_objects(_counted(objects(), len(oids), progress), source, work.needles)
        plan = self._told(work, source, left)
        own = os.fspath(self._journal.relative_to(self._repository.folder))
        others = [path for path in find_files(self._repository.folder, work.needles) if path != own]
        others += [f"object {oid.hex()}, which cannot be read" for oid in unread]
        if others:
            return replace(plan, partly=plan.partly | {STORE: [*plan.partly.get(STORE, []), *others]})
        return plan

    def _check_others(self, dropped: set[bytes]) -> None:
        """Raise Conflict if a ref that is not a checkpoint needs a purged object."""
        ids = self._objects.ref_names()
        for name, commit in all_refs(self._repository.folder):
            tag = name.removeprefix("refs/tags/")
            if name == _PAGE or (sequence_of(tag) and tag in ids) or not _NAME.fullmatch(commit):
                continue
            if not dropped.isdisjoint(reachable(self._objects, [bytes.fromhex(commit)])):
                raise Conflict(
                    f"{name}, which somebody created in the store, needs what would be purged",
                    hint=f"Remove it: git --git-dir={self._repository.folder} update-ref -d {name}",
                )

    def _where(self, sink: ObjectSink, found: list[_Found], oids: Set[bytes]) -> dict[str, str]:
        """Return other paths with some of these contents, and a checkpoint that has each."""
        places: dict[str, str] = {}
        before: Node | None = None
        for checkpoint, contents, *_ in found if oids else ():
            for change in TreeReader(sink).diff(before, contents.root):
                if change.after and not oids.isdisjoint(contents_of(sink, change.after)):
                    places.setdefault(change.path, checkpoint.id)
            before = contents.root
        return places

    def _in_workspace(self, paths: list[str]) -> list[str]:
        with Handles(os.fspath(self._root)) as handles:
            return [path for path in paths if handles.has(path)]

    # applying

    def _commit(self, sink: ObjectSink, found: _Found) -> bytes:
        """Write a new commit for a checkpoint; its record and its coverage say what was purged (P4)."""
        checkpoint, contents, gone, cut, *_ = found
        said = dict.fromkeys((*checkpoint.purged, *gone, *map(_named, cut)))
        checkpoint = checkpoint.replace(purged=tuple(said))
        uncovered = [item for item in checkpoint.uncovered if not _is_below(item.path, set(gone))]
        uncovered += [Uncovered(path, Reason.PURGED) for path in gone]
        uncovered.sort(key=lambda item: (item.path, item.reason))
        changes = decode_changes(self._objects.blob(contents.changes))
        if changes is not None:
            changes = [path for path in changes if not _is_below(path, set(gone))]
        new = contents._replace(
            record=sink.add(ObjectKind.BLOB, encode_record(checkpoint)),
            changes=sink.add(ObjectKind.BLOB, to_json(changes)),
            uncovered=sink.add(ObjectKind.BLOB, encode_uncovered(uncovered)),
        )
        return write_commit(sink, checkpoint, new)

    def _take_away(self, oids: set[bytes]) -> None:
        """Remove objects from the store, wherever they are, and everything unneeded, such as what a deleted checkpoint
        had at the same path."""
        needed = self._repository.needed()
        if free_unneeded(self._objects, needed, every_pack=False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for copy in loose_copies(self._repository.folder, oids):
            disk().unlink(str(copy))
        cache = (
            self._repository.own / "scan.cache"
        )  # it has hashes of contents, from which a short content can be guessed
        if cache.exists():
            disk().unlink(str(cache))
        self._repository.catalog.discard()  # SQLite keeps deleted rows in the file until it reuses the space
        self._repository.sync()

    def _prove(self, oids: set[bytes]) -> None:
        """Raise Damaged if any of these objects is in the store, or may be in a pack without a valid index."""
        left = sum(map(self._objects.has, oids)) + len(loose_copies(self._repository.folder, oids))
        told = {pack.path for pack in self._objects.packs() if pack.is_index_sound}
        untold = sorted(set(self._objects.pack_folder.glob("*.pack")) - told)
        if left or untold:
            what = (
                f"{left} objects are in a pack with damaged bytes" if left else f"{untold[0].name} has no valid index"
            )
            raise Damaged(
                f"every checkpoint is purged, but {what}, so the content may still be in the store",
                hint="Remove the damaged pack once no checkpoint needs it.",
                remedy=Remedy("verify"),
            )


def _cut(found: _Found, cutter: Cutter) -> _Found:
    """Redact copies of purged contents in state and record."""
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
    """Return where lines remain, by what was purged."""
    entries: list[dict[LinePosition, list[str]]] = [{} for _ in paths]
    for each in found:
        for index, place in each.places:
            entries[index].setdefault(place, []).append(each.checkpoint.id)
    return [LinesLeft(*pair) for pair in zip(paths, entries, strict=True) if pair[1]]


def _read(source: ObjectSink, oid: bytes, kind: ObjectKind) -> bytes:
    if kind is ObjectKind.TREE:
        return encode_tree(source.tree(oid))
    return source.commit(oid) if kind is ObjectKind.COMMIT else source.blob(oid)


def _counted(
    objects: Iterator[tuple[bytes, ObjectKind, bytes]], total: int, progress: Progress | None
) -> Iterator[tuple[bytes, ObjectKind, bytes]]:
    for number, each in enumerate(objects, 1):
        if progress:
            progress("searching", number, total)
        yield each


def _named(name: str) -> str:
    return name if name.startswith("(") else f"(state) {name}"


def _is_below(path: str, others: Set[str]) -> bool:
    return any(above in others for above in upwards(path))
