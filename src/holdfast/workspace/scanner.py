"""Looking at a workspace: the walk, its rules and its memory put together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import durable
from holdfast.errors import Damaged, NotFound, Unavailable
from holdfast.model import JSON, Checkpoint, Progress
from holdfast.scan import usergit
from holdfast.scan.folder import UNKNOWN, Folder, dump, load
from holdfast.scan.handles import Handles
from holdfast.scan.ignore import Around, Rules, Sources
from holdfast.scan.walk import Limits, Listing, Walk
from holdfast.workspace.gathering import Gathering
from holdfast.workspace.record import Node, to_json
from holdfast.workspace.repository import Repository
from holdfast.workspace.snapshot import Snapshot, take_snapshot
from holdfast.workspace.tree import TreeReader
from holdfast.workspace.wanted import HeldAnyway

_WALKS = 3


class Surroundings(NamedTuple):
    """What lies outside a workspace and decides what is held of it."""

    repository: Path | None  # the root of the git repository that the workspace is in
    excludes_file: bytes  # the text of the user's own
    around: Around | None  # the repository's rules, where the workspace is but a folder of it


def look_around(root: Path, home: Path, config_home: Path) -> Surroundings:
    """Read them. A repository that ignores the workspace altogether counts as none."""
    repository = usergit.repository_of(root)
    excludes = usergit.excludes_file(home, config_home, repository)
    if repository is None or repository == root:
        return Surroundings(repository, excludes, None)
    around = usergit.rules_around(repository, root)
    if around.ignores_the_workspace(excludes):
        return Surroundings(None, usergit.excludes_file(home, config_home, None), None)
    return Surroundings(repository, excludes, around)


class Judged(NamedTuple):
    """How a save made now would judge each path, and by what; contents are not read."""

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
    ) -> None:
        self.root = root
        self._repository = repository
        self._exclude_patterns = list(exclude_patterns)
        self._limits = limits
        self._home = home
        self._config_home = config_home
        self._cache_path = repository.own / "scan.cache"

    def take(
        self,
        gathering: Gathering,
        *,
        head: Checkpoint | None,
        force: frozenset[str] = frozenset(),
        rehash: bool = False,
        except_for: frozenset[str] = frozenset(),
        progress: Progress | None = None,
    ) -> tuple[Snapshot, Callable[[], None]]:
        """A snapshot, and what to call once its objects are in the store, to make the next one fast."""
        memo, cache = self._load_cache()
        surroundings = look_around(self.root, self._home, self._config_home)
        rules = self._rules(surroundings)
        wanted = HeldAnyway(
            self.root, held=self._held(head), force=force, memo=memo, repository=surroundings.repository
        )
        try:
            with Handles(os.fspath(self.root)) as handles:
                for _ in range(_WALKS):
                    walk = Walk(
                        handles,
                        self.root,
                        cache=cache,
                        rules=rules,
                        wanted=wanted,
                        limits=self._limits,
                        rehash=rehash,
                        except_for=except_for,
                    )
                    listing = walk.run()
                    if not walk.moved():
                        break
                    handles.forget("")
                else:
                    listing.vanished = True  # it never rested: said in the record (P4)
                identity = os.fstat(handles.open(""))
            snapshot = take_snapshot(listing, self.root, gathering, cache, progress)
            now = os.stat(self.root)
        except FileNotFoundError as error:
            raise Unavailable(f"{self.root} is gone", hint="Is its disk still there?") from error
        if (now.st_dev, now.st_ino) != (identity.st_dev, identity.st_ino):
            raise Unavailable(f"{self.root} was replaced while it was read", hint="Try again.")
        self._surroundings = surroundings

        def remember() -> None:
            learnt = wanted.memo()
            if listing.changed or len(listing.folders) != len(cache) or learnt != memo:
                self._store_cache(learnt, snapshot)

        return snapshot, remember

    def judge(self, head: Checkpoint | None) -> Judged:
        """Look at the workspace and read nothing but its ignore files."""
        memo, cache = self._load_cache()
        surroundings = look_around(self.root, self._home, self._config_home)
        rules = self._rules(surroundings)
        wanted = HeldAnyway(self.root, held=self._held(head), memo=memo, repository=surroundings.repository)
        with Handles(os.fspath(self.root)) as handles:
            walk = Walk(handles, self.root, cache=cache, rules=rules, wanted=wanted, limits=self._limits)
            return Judged(walk.run(), rules, wanted, self._limits)

    def _rules(self, surroundings: Surroundings) -> Rules:
        return Rules.root(
            exclude_patterns=self._exclude_patterns,
            excludes_file=surroundings.excludes_file,
            around=surroundings.around,
        )

    def frozen_rules(self, snapshot: Snapshot) -> bytes:
        """`rules.json`: what decided, apart from the ignore files that the checkpoint itself holds."""
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
                "ignored_file_max_bytes": self._limits.file_max_bytes,
                "ignored_total_max_bytes": self._limits.total_max_bytes,
            }
        )

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

    def _load_cache(self) -> tuple[dict[str, Any], dict[str, Folder]]:
        try:
            found = load(self._cache_path.read_bytes())
        except (OSError, ValueError):
            found = None
        if found is None:
            return {}, {}
        memo, folders = found
        if not isinstance(memo, dict):
            return {}, {}
        if memo.get("limits") != list(self._limits):
            for folder in folders.values():
                folder.trusted = False
        if memo.get("packs") != self._pack_names():
            _forget_missing(folders, {oid for pack in self._repository.objects.packs() for oid in pack.oids()})
        return memo.get("tracked", {}), folders

    def _store_cache(self, tracked: Mapping[str, object], snapshot: Snapshot) -> None:
        memo = {"packs": self._pack_names(), "tracked": tracked, "limits": list(self._limits)}
        data = dump(snapshot.listing.folders.values(), memo)
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
        """What a folder's own ignore files said."""
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
        is_usable = entry is not None and entry.is_file and entry.attr.parts_bytes is None  # a large one has no rules
        return self._read_blob(entry.oid) if entry and is_usable else None


def _forget_missing(folders: Mapping[str, Folder], present: set[bytes]) -> None:
    """Distrust what is no longer in the store, so that it is read again."""
    for folder in folders.values():
        if folder.tree not in present or folder.attrs not in present:
            folder.tree = folder.record = b""
        for place in range(len(folder.names)):
            content = folder.content(place)
            if content not in present and content != b"\1" * 20:
                folder.set_content(place, UNKNOWN)
                folder.trusted = False


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
