"""`Scanner`: takes snapshots of a workspace with the walk, the ignore rules and the scan cache."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast import durable
from holdfast.errors import Damaged, NotFound, Unavailable
from holdfast.model import JSON, Checkpoint, GitHead, Progress
from holdfast.scan import user_git
from holdfast.scan.attrs import is_in_parts
from holdfast.scan.cache import NO_CONTENT, UNKNOWN, Folder, dump, load, load_memo, records_at
from holdfast.scan.cached_folders import CachedFolders, encoded
from holdfast.scan.dir_handles import Handles, join, split
from holdfast.scan.git_head import read_head
from holdfast.scan.ignore import Around, Rules, Sources
from holdfast.scan.limits import Limits
from holdfast.scan.scan_start import ScanStart
from holdfast.scan.sweep import BegunSweep, EarlySweep, Sweep
from holdfast.scan.walk import Listing, Walk
from holdfast.shadowgit import FOLDER_MODE
from holdfast.workspace.capture.always_included import HeldAnyway
from holdfast.workspace.capture.snapshot import Snapshot, take_snapshot
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.record import Node, to_json
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import ATTRS_NAME, TreeReader

if TYPE_CHECKING:
    from holdfast.shadowgit import ObjectStore
    from holdfast.workspace.capture.watch_state import Basis, Memory, WatchedScan, Watching

_WALKS = 3


class Surroundings(NamedTuple):
    """What outside a workspace decides which of its files are saved."""

    repository: Path | None  # the root of the git repository that contains the workspace
    excludes_file: bytes  # the content of the user's global excludes file
    around: Around | None  # the repository's rules, if the workspace is a folder below its root


class Remember(Protocol):
    """Updates the scan cache."""

    def __call__(self, replaced: Collection[str] = ()) -> None:
        """`replaced`: paths that were replaced or removed since the scan."""


def look_around(root: Path, home: Path, config_home: Path) -> Surroundings:
    """Read the surroundings. A repository that ignores the whole workspace counts as none."""
    repository = user_git.repository_of(root)
    excludes = user_git.excludes_file(home, config_home, repository)
    if repository is None or repository == root:
        return Surroundings(repository, excludes, None)
    around = user_git.rules_around(repository, root)
    if around.ignores_the_workspace(excludes):
        return Surroundings(None, user_git.excludes_file(home, config_home, None), None)
    return Surroundings(repository, excludes, around)


def git_head_of(repository: Path | None) -> GitHead | None:
    """Read HEAD of the repository with this root; None where there is none, or where it cannot be read."""
    folder = user_git.git_dir(repository) if repository is not None else None
    if folder is None:
        return None
    found = read_head(folder)
    return None if found.problem else GitHead(found.commit, found.branch)


class Judged(NamedTuple):
    """What a save now would do with each path, and by which rule; contents are not read."""

    listing: Listing
    rules: Rules
    wanted: HeldAnyway
    limits: Limits


class Scanner:
    """Takes snapshots of one workspace."""

    def __init__(
        self,
        root: Path,
        repository: Repository,
        *,
        exclude_patterns: Sequence[str],
        limits: Limits,
        home: Path,
        config_home: Path,
        file_clock: Callable[[], int],
    ) -> None:
        """`file_clock`: nanoseconds, of the clock of file times; not the one that dates checkpoints."""
        self.root = root
        self._clock = file_clock
        self._repository = repository
        self._exclude_patterns = list(exclude_patterns)
        self.limits = limits
        self._home = home
        self._config_home = config_home
        self._cache_path = repository.own / "scan.cache"
        self._is_cache_outdated = False
        """Whether the scan cache on disk names packs that are gone: every scan would have to compare all objects."""
        self._seen_around: Surroundings | None = None
        self.early: EarlySweep | None = None
        self.watching: Watching | None = None
        self.is_watch_shared = False
        """Whether the watch belongs to another scanner of the same folder."""

    def take(
        self,
        sink: ObjectSink,
        *,
        head: Checkpoint | None,
        force: frozenset[str] = frozenset(),
        rehash: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Snapshot, Remember]:
        """Return a snapshot, and a function that updates the scan cache: call it once the objects are in the store."""
        if self.watching is None:
            return self._take(None, sink, head, force, rehash, progress)
        is_plain = not (force or rehash)
        with self.watching.turn() if is_plain else contextlib.nullcontext() as turn:
            return self._take(turn, sink, head, force, rehash, progress)

    def look(self, sink: ObjectSink, *, head: Checkpoint | None) -> Snapshot:
        """Return a snapshot that is not built yet. The scan cache stays as it is."""
        with self.watching.turn() if self.watching is not None else contextlib.nullcontext() as turn:
            return self._take(turn, sink, head, frozenset(), rehash=False, progress=None, builds=False)[0]

    def _take(
        self,
        turn: WatchedScan | None,
        sink: ObjectSink,
        head: Checkpoint | None,
        force: frozenset[str],
        rehash: bool,
        progress: Progress | None,
        *,
        builds: bool = True,
    ) -> tuple[Snapshot, Remember]:
        early = self.early.take() if self.early is not None and turn is None else None
        since = ScanStart.now(self._clock) if early is None else early.since  # before the sweep
        surroundings = look_around(self.root, self._home, self._config_home)
        rules = self._rules(surroundings)
        known = turn.consider(self._basis(self._root_of(head), rules, surroundings)) if turn else None
        cache: Mapping[str, Folder]
        if known:
            memo, cache = dict(known.tracked), known.seen.folders
        else:
            memo, cache = self._load_cache(sweeps=turn is None and not rehash, early=early)
        wanted = HeldAnyway(
            self.root, held=self._held(head), force=force, memo=memo, repository=surroundings.repository
        )
        given: dict[str, Any] = {"rules": rules, "wanted": wanted, "limits": self.limits, "clock": self._clock}
        if turn is None:
            given |= {"rehash": rehash, "since": since}
        try:
            with Handles(os.fspath(self.root)) as handles:
                listing = self._walk(turn, handles, cache, given)
                identity = os.fstat(handles.open(""))
            snapshot = take_snapshot(listing, self.root, sink, cache, progress, clock=self._clock)
            if builds:
                snapshot = snapshot.built(sink, rebuild=rehash)
            now = os.stat(self.root)
        except FileNotFoundError as error:
            raise Unavailable(f"{self.root} is gone", hint="Is its disk still there?") from error
        if (now.st_dev, now.st_ino) != (identity.st_dev, identity.st_ino):
            raise Unavailable(f"{self.root} was replaced while it was read", hint="Try again.")
        self._seen_around = surroundings

        def remember(replaced: Collection[str] = ()) -> None:
            learnt = wanted.memo()
            is_new = _is_worth_keeping(listing, replaced) or len(listing.folders) != len(cache) or learnt != memo
            is_new = is_new or self._is_cache_outdated
            if turn is not None:
                basis = self._basis(snapshot.root, rules, surroundings)
                is_new = turn.keep(basis, learnt, changed=len(listing.changed) + is_new) and is_new
            elif self.watching is not None:
                self.watching.forget()
            if is_new:
                self._store_cache(learnt, listing.folders, self._pack_names())

        return snapshot, remember

    def follow(self, before: Node, head: Checkpoint | None) -> None:
        """Take note that a restore brought the folder from one content to that of a checkpoint."""
        if self.watching is not None:
            self.watching.follow(before, self._root_of(head))

    def tracked_files(self) -> Callable[[str], bool]:
        """Return a function that tells whether git tracks a file; git's index is read when it is first called."""
        repository = user_git.repository_of(self.root)
        wanted = HeldAnyway(self.root, held=lambda _: None, repository=repository)
        return lambda path: wanted.file(path, hard=False)

    def _walk(
        self,
        turn: WatchedScan | None,
        handles: Handles,
        cache: Mapping[str, Folder],
        given: Mapping[str, Any],
    ) -> Listing:
        """Scan, and repeat if entries moved meanwhile; report it if the folder never rested (P4)."""
        swept = cache if isinstance(cache, CachedFolders) else None
        for _ in range(_WALKS):
            if turn is not None:
                listing, has_moved = turn.listing(handles, self.root, cache, **given)
            else:
                walk = Walk(handles, self.root, cache=cache, swept=swept, **given)
                listing, has_moved = walk.run(), walk.moved()
            if not has_moved:
                return listing
            handles.forget("")
            swept = None  # what moved may have moved since the sweep
        listing.vanished = True
        return listing

    def watch(self) -> Watching:
        """Start watching, or return the watcher that is active."""
        from holdfast.workspace.capture.watch_state import (
            Watching,  # start-up cost: ctypes; only long-lived processes need it
        )

        if self.watching is None or self.watching.is_closed:
            this = weakref.proxy(self)  # no reference cycle, so that a dropped workspace closes its files at once
            self.watching = Watching(lambda memory: this._write_memory(memory))
        return self.watching

    def _write_memory(self, memory: Memory) -> None:
        """Write the scan cache outside of a save, unless a writer has the store, or something was purged since: the
        cache must not name purged objects again."""
        if self._repository.lock.acquire(wait=False):
            try:
                self._repository.objects.refresh()
                if memory.basis.packs <= set(self._pack_names()):
                    self._store_cache(memory.tracked, memory.seen.folders, sorted(memory.basis.packs))
            finally:
                self._repository.lock.release()

    def _basis(self, root: Node | None, rules: Rules, surroundings: Surroundings) -> Basis:
        from holdfast.workspace.capture.watch_state import Basis

        return Basis(root, rules.digest, surroundings.repository, frozenset(self._pack_names()))

    def _root_of(self, head: Checkpoint | None) -> Node | None:
        try:
            return self._repository.contents(head).root if head is not None else None
        except (Damaged, NotFound):
            return None

    def judge(self, head: Checkpoint | None) -> Judged:
        """Scan the workspace, and read nothing but its ignore files."""
        memo, cache = self._load_cache(sweeps=False)
        surroundings = look_around(self.root, self._home, self._config_home)
        rules = self._rules(surroundings)
        wanted = HeldAnyway(self.root, held=self._held(head), memo=memo, repository=surroundings.repository)
        with Handles(os.fspath(self.root)) as handles:
            given: dict[str, Any] = {"rules": rules, "wanted": wanted, "limits": self.limits, "clock": self._clock}
            walk = Walk(handles, self.root, cache=cache, **given)
            return Judged(walk.run(), rules, wanted, self.limits)

    def _rules(self, surroundings: Surroundings) -> Rules:
        return Rules.root(
            exclude_patterns=self._exclude_patterns,
            excludes_file=surroundings.excludes_file,
            around=surroundings.around,
        )

    def frozen_rules(self, snapshot: Snapshot) -> bytes:
        """Return `rules.json`: the ignore rules, except for the ignore files that the checkpoint itself contains."""
        around = self._surroundings.around
        return to_json(
            {
                "exclude_patterns": self._exclude_patterns,
                "excludes_file": _text(self._surroundings.excludes_file),
                "around": around
                and {
                    "path": around.path,
                    "gitignores": {folder: _text(rules) for folder, rules in around.gitignores.items()},
                    "info_exclude": _text(around.info_exclude),
                },
                "repositories": {path: _text(rules) for path, rules in snapshot.listing.repositories.items()},
                "ignored_file_max_bytes": self.limits.file_max_bytes,
                "ignored_total_max_bytes": self.limits.total_max_bytes,
            }
        )

    @property
    def _surroundings(self) -> Surroundings:
        """What is around the workspace, as the last scan saw it, or as it is now."""
        if self._seen_around is None:
            self._seen_around = look_around(self.root, self._home, self._config_home)
        return self._seen_around

    def git_dir(self) -> Path | None:
        """Return the git directory of the repository that the workspace is in; None outside of one."""
        repository = self._surroundings.repository
        return user_git.git_dir(repository) if repository is not None else None

    def git_head(self) -> GitHead | None:
        """Read where the user's own git stands (P6: only reads); None outside of a repository."""
        return git_head_of(self._surroundings.repository)

    def _held(self, head: Checkpoint | None) -> Callable[[str], bool | None]:
        reader = TreeReader(self._repository.objects)
        root: list[Node | None] = []

        def held(path: str) -> bool | None:
            if head is None:
                return None
            try:
                if not root:
                    root.append(self._repository.contents(head).root)
                entry = reader.find(root[0], path) if root[0] else None
            except (Damaged, NotFound):
                root[:] = [None]
                return None
            return entry.is_folder if entry else None

        return held

    def _load_cache(
        self, *, sweeps: bool, early: BegunSweep | None = None
    ) -> tuple[dict[str, Any], Mapping[str, Folder]]:
        """Read the scan cache; with `sweeps`, also compare it with the disk. It is discarded if it is damaged."""
        try:
            data = self._cache_path.read_bytes() if early is None else early.data
            start = records_at(data)
            if start is None:
                return {}, {}
            sweep = None
            if sweeps:  # beside reading it here
                sweep = Sweep(data, start, os.fspath(self.root)) if early is None else early.sweep
            found = load_memo(data)
            if found is None or not isinstance(found[0], dict):
                return {}, {}
            memo = found[0]
            has_limits, packs = memo.get("limits") == list(self.limits), memo.get("packs")
            # new packs take nothing away
            has_packs = isinstance(packs, list) and set(packs) <= set(self._pack_names())
            swept = sweep.result() if sweep else None
            if swept is not None and has_limits and has_packs:
                return memo.get("tracked", {}), CachedFolders(data, swept)
            _, folders = load(data) or (memo, {})
        except (OSError, ValueError):
            return {}, {}
        if not has_limits:
            for folder in folders.values():
                folder.trusted = False
        if not has_packs:
            _forget_missing(folders, self._repository.objects)
            self._is_cache_outdated = True
        return memo.get("tracked", {}), folders

    def _store_cache(self, tracked: Mapping[str, object], folders: Mapping[str, Folder], packs: list[str]) -> None:
        memo = {"packs": packs, "tracked": tracked, "limits": list(self.limits)}
        self._is_cache_outdated = False
        data = dump(encoded(folders), memo)
        durable.write_atomically(self._cache_path, data, sync=False)

    def _pack_names(self) -> list[str]:
        return sorted(pack.name for pack in self._repository.objects.packs())


class Frozen:
    """The ignore rules as they were when a checkpoint was made."""

    def __init__(
        self, frozen: Mapping[str, JSON], reader: TreeReader, read_blob: Callable[[bytes], bytes], root: Node
    ) -> None:
        self.repositories: dict[str, str] = frozen["repositories"]
        around = frozen.get("around")
        self.rules = Rules.root(
            exclude_patterns=frozen["exclude_patterns"],
            excludes_file=_bytes(frozen["excludes_file"]),
            around=around
            and Around(
                around["path"],
                gitignores={folder: _bytes(rules) for folder, rules in around["gitignores"].items()},
                info_exclude=_bytes(around["info_exclude"]),
            ),
        )
        self._reader = reader
        self._read_blob = read_blob
        self._root = root
        self._known: dict[str, Sources] = {}

    def sources(self, folder: str) -> Sources:
        """Return the content of a folder's own ignore files."""
        if folder not in self._known:
            exclude = self.repositories.get(folder)
            self._known[folder] = Sources(
                gitignore=self._file(folder, ".gitignore"),
                holdfastignore=self._file(folder, ".holdfastignore"),
                repository=exclude is not None,
                info_exclude=None if exclude is None else _bytes(exclude),
            )
        return self._known[folder]

    def _file(self, folder: str, name: str) -> bytes | None:
        node = self._reader.node(self._root, folder)
        entry = self._reader.view(node).entries.get(name) if node else None
        is_usable = (
            entry is not None and entry.is_file and entry.attr.parts_bytes is None
        )  # a file in chunks is too large for ignore rules
        return self._read_blob(entry.oid) if entry and is_usable else None


def _is_worth_keeping(listing: Listing, replaced: Collection[str]) -> bool:
    """Whether a scan found anything that the next one would not have to look at again anyway."""
    if not replaced:
        return bool(listing.changed)
    replaced_in = {split(path)[0] for path in replaced}
    if any(path not in replaced_in for path in listing.changed if path):  # the top folder changes with every restore
        return True
    return any(join(folder.path, folder.names[place]) not in replaced for folder, place in listing.pending)


def _forget_missing(folders: Mapping[str, Folder], objects: ObjectStore) -> None:
    """Forget contents that are no longer in the store as a whole, so that their files are read again (P3)."""
    present = {oid for pack in objects.packs() for oid in pack.oids()}
    for folder in folders.values():
        if folder.tree not in present or not _has_attrs(folder, present, objects):
            folder.tree = folder.record = b""
        for place, name in enumerate(folder.names):
            content = folder.content(place)
            is_there = content in present
            if is_there and is_in_parts(folder.extras.get(name, b"")):
                is_there = objects.has_whole(FOLDER_MODE, content)
            if not is_there and content != NO_CONTENT:
                folder.set_content(place, UNKNOWN)
                folder.trusted = False


def _has_attrs(folder: Folder, present: set[bytes], objects: ObjectStore) -> bool:
    """Whether the attributes of a folder itself are there as a whole; folders below it are asked about themselves."""
    if folder.attrs not in present or not folder.attrs_is_tree:
        return folder.attrs in present
    try:
        own = [each for each in objects.tree(folder.attrs) if each.name == ATTRS_NAME]
    except Damaged:
        return False
    return all(objects.has_whole(each.mode, each.oid) for each in own)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
