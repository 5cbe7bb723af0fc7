"""Searching all checkpoints for a text, in files and states: from which checkpoint to which they contain it.

Goes through the saves in order, and examines only what differs from the one before; each content is read once (P8). A
safety checkpoint is compared with the save before it, and reported only for lines that no save of the path has.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import Damaged, HoldfastError, Refused, Remedy
from holdfast.model import Checkpoint, Match, Progress
from holdfast.scan.dir_handles import upwards
from holdfast.shadowgit import EMPTY_TREE, FOLDER_MODE, TreeEntry
from holdfast.workspace.pathspec import Scope, check_matched
from holdfast.workspace.stored.chunking import Sieve, Source, list_parts
from holdfast.workspace.stored.record import Contents
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.state import PROBE_BYTES, read_texts, spelled, state_names
from holdfast.workspace.stored.tree import Change, Entry, TreeReader

if TYPE_CHECKING:
    from holdfast.workspace.engine import FolderNow

IN_STATE = "(state) "
"""The prefix of a state's name in place of a path."""
EXCERPT_MAX_CHARS = 200
_BINARY_BYTES = 8000  # the same test as git
_OVERLAP_BYTES = 64 << 10  # how much of a chunk is searched again with the next one

_CACHED_ENTRIES = 20_000
"""How many entries of folders are remembered from checkpoint to checkpoint: it remembers all that it reads."""


class Line(NamedTuple):
    """The line of a match."""

    number: int
    text: str


class SearchPattern:
    """The text or regular expression to search for."""

    def __init__(self, text: str, *, regex: bool = False, ignore_case: bool = False) -> None:
        if not isinstance(text, str) or not text:
            raise Refused("there is no text to search for", hint="Give some text.")
        try:
            as_bytes = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise Refused(f"{text!r} contains a lone surrogate", hint="No file can contain it; leave it out.") from None
        self._literal = None if regex or ignore_case else as_bytes
        self._probe = None if regex or ignore_case else spelled(text)[:PROBE_BYTES]
        try:
            flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # about `[[` in future versions of Python
                self._pattern = re.compile(text if regex else re.escape(text), flags)
        except re.error as error:
            raise Refused(
                f"{text!r} is not a valid regular expression: {error}", remedy=Remedy("search_literally")
            ) from None

    def find(self, pieces: Iterator[bytes]) -> Line | None:
        """Return the first matching line of a content; None if there is none, or if it is binary."""
        tail, lines = b"", 0
        for number, piece in enumerate(pieces):
            if not number and b"\0" in piece[:_BINARY_BYTES]:
                return None
            data = tail + piece
            place = self._place(data)
            if place is not None:
                return Line(lines + data.count(b"\n", 0, place) + 1, _excerpt(data, place))
            tail = data[-_OVERLAP_BYTES:]
            lines += data.count(b"\n", 0, len(data) - len(tail))
        return None

    def may_be_in_state(self, data: bytes) -> bool:
        """Whether chunks of a stored state may match; a regular expression may match any."""
        return self._probe is None or self._probe in data

    def find_in_text(self, text: str) -> Line | None:
        """Return the first matching line of a text."""
        data = text.encode("utf-8", "surrogatepass")
        place = self._place(data)
        return None if place is None else Line(data.count(b"\n", 0, place) + 1, _excerpt(data, place))

    def _place(self, data: bytes) -> int | None:
        if self._literal is not None:
            at = data.find(self._literal)
            return at if at >= 0 else None
        text = data.decode("utf-8", "surrogateescape")
        found = self._pattern.search(text)
        return len(text[: found.start()].encode("utf-8", "surrogateescape")) if found else None


class Searcher:
    """One search over all checkpoints of a store."""

    def __init__(
        self, repository: Repository, needle: SearchPattern, scope: Scope, *, limit: int, skip_damaged: bool = False
    ) -> None:
        self._repository = repository
        self._needle = needle
        self._scope = scope
        self._limit = limit
        self._skip_damaged = skip_damaged
        self._known: dict[bytes, Line | None] = {}
        self._known_states: dict[bytes, Line | None] = {}
        self._sieve = Sieve(repository.objects, needle.may_be_in_state)
        self._reader = TreeReader(repository.objects)
        """Remembers the folders of the checkpoint before, which is compared with the next one."""
        self._open: dict[str, Match] = {}
        self._closed: list[Match] = []
        self._saved: set[tuple[str, str]] = set()
        """Paths and lines that saves have."""
        self._unsaved: dict[tuple[str, str], Match] = {}
        """Lines of safety checkpoints since the last save, by path and line."""
        self._only_safe: list[Match] = []
        self._appeared: Callable[[Match], object] | None = None

    def run(
        self,
        now: Callable[[], FolderNow],
        progress: Progress | None = None,
        appeared: Callable[[Match], object] | None = None,
    ) -> list[Match]:
        """Return all matches, by path and in order of appearance.

        `now` reads the folder; it is called only if something was found. `appeared` is given each as it begins.
        """
        self._appeared = appeared
        rows = self._repository.catalog.newest(limit=None, session=None, safety=True)
        checkpoints = [self._repository.checkpoint(row) for row in reversed(rows)]
        before: Contents | None = None
        previous: Checkpoint | None = None
        for number, checkpoint in enumerate(checkpoints, 1):
            try:
                contents = self._repository.contents(checkpoint)
                self._compare(before, contents, previous, checkpoint)
                if checkpoint.operation is None:
                    self._end_unsaved(checkpoint)
                    before, previous = contents, checkpoint
            except Damaged:
                if not self._skip_damaged:
                    raise
            if progress:
                progress("searching", number, len(checkpoints))
        check_matched(self._scope)
        self._end_unsaved(None)
        found = [*self._closed, *(replace(match, last=previous or match.last) for match in self._open.values())]
        found += [match for match in self._only_safe if (match.path, match.excerpt) not in self._saved]
        found.sort(key=lambda match: (match.path, match.first.sequence))
        if found:
            found = self._compared_with_folder(found, before, now)
        return found[: self._limit]

    def _compared_with_folder(
        self, found: list[Match], newest: Contents | None, now: Callable[[], FolderNow]
    ) -> list[Match]:
        """Say of each match whether the folder has it."""
        try:
            folder = now()
        except (HoldfastError, OSError):  # it can be searched without the folder
            return found
        paths = {match.path for match in found}
        has_now = set(self._open)
        for change in _settled(TreeReader(folder.source).diff(newest.root if newest else None, folder.root)):
            if change.path in paths:
                has_it = self._look(change.after, folder.source) is not None
                (has_now.add if has_it else has_now.discard)(change.path)
        compared = []
        for match in found:
            is_known = not match.path.startswith(IN_STATE) and not _is_below(match.path, folder.uncovered)
            compared.append(replace(match, in_folder=match.path in has_now if is_known else None))
        return compared

    def _compare(
        self, before: Contents | None, after: Contents, previous: Checkpoint | None, checkpoint: Checkpoint
    ) -> None:
        if before is None or before.root != after.root:
            if self._reader.cached_entries > _CACHED_ENTRIES:
                self._reader = TreeReader(self._repository.objects)
            for change in _settled(self._reader.diff(before.root if before else None, after.root)):
                if change.after is not None:
                    self._scope.see(change.path, is_folder=change.after.is_folder)
                if change.path in self._scope:
                    self._note(change.path, self._look(change.after), previous, checkpoint)
        old, new = self._states(before), self._states(after)
        for name in sorted(old.keys() | new.keys()):
            self._scope.see(f"{IN_STATE}{name}")
            if old.get(name) != new.get(name) and (path := f"{IN_STATE}{name}") in self._scope:
                self._note(path, self._look_at_state(new.get(name)), previous, checkpoint)

    def _states(self, contents: Contents | None) -> dict[str, TreeEntry]:
        if contents is None or contents.state == EMPTY_TREE:
            return {}
        return state_names(self._repository.objects, contents.state)

    def _note(self, path: str, line: Line | None, previous: Checkpoint | None, checkpoint: Checkpoint) -> None:
        """Record that a path matches from here on, or no longer; of a safety checkpoint, only that it has the line."""
        if line is None:
            if checkpoint.operation is None and path in self._open and previous is not None:
                self._closed.append(replace(self._open.pop(path), last=previous, disappeared_in=checkpoint))
            return
        key, match = (path, line.text), Match(path, *line, checkpoint, checkpoint, None)
        if checkpoint.operation is None:
            self._saved.add(key)
            if path not in self._open and len(self._open) + len(self._closed) < self._limit:
                self._open[path] = match
                if self._appeared:
                    self._appeared(match)
        elif key in self._unsaved:
            self._unsaved[key] = replace(self._unsaved[key], last=checkpoint)
        elif key not in self._saved and len(self._unsaved) + len(self._only_safe) < self._limit:
            self._unsaved[key] = match

    def _end_unsaved(self, save: Checkpoint | None) -> None:
        """What safety checkpoints since the last save have is gone in this one, if there is one."""
        self._only_safe += [replace(match, disappeared_in=save) for match in self._unsaved.values()]
        self._unsaved.clear()

    def _look(self, entry: Entry | None, source: Source | None = None) -> Line | None:
        if entry is None or not entry.is_file:
            return None
        if entry.oid not in self._known:
            try:
                self._known[entry.oid] = self._needle.find(self._pieces(entry, source or self._repository.objects))
            except Damaged:
                if not self._skip_damaged:
                    raise
                self._known[entry.oid] = None
        return self._known[entry.oid]

    def _look_at_state(self, entry: TreeEntry | None) -> Line | None:
        if entry is None:
            return None
        if entry.oid not in self._known_states:
            try:
                is_suspect = self._sieve.may_have(entry.mode, entry.oid)
                texts = read_texts(self._repository.objects, entry) if is_suspect else ""
                self._known_states[entry.oid] = self._needle.find_in_text(texts)
            except Damaged:
                if not self._skip_damaged:
                    raise
                self._known_states[entry.oid] = None
        return self._known_states[entry.oid]

    def _pieces(self, entry: Entry, objects: Source) -> Iterator[bytes]:
        if entry.attr.parts_bytes is None:
            yield objects.blob(entry.oid)
        else:
            yield from map(objects.blob, list_parts(objects, FOLDER_MODE, entry.oid))


def _is_below(path: str, folders: Set[str]) -> bool:
    return path in folders or any(above in folders for above in upwards(path))


def _settled(changes: Iterator[Change]) -> Iterator[Change]:
    """Yield one change per path: if a file replaced a folder there are two, and only the second counts."""
    held: dict[str, Change] = {}
    for change in changes:
        known = held.get(change.path)
        if known is None or change.after is not None:
            held[change.path] = change
    yield from held.values()


def _excerpt(data: bytes, at: int) -> str:
    """Return the line at an offset; of a long one, the part around it."""
    start = data.rfind(b"\n", 0, at) + 1
    end = data.find(b"\n", at)
    line = data[max(start, at - EXCERPT_MAX_CHARS // 4) : len(data) if end < 0 else end][: 8 * EXCERPT_MAX_CHARS]
    text = line.decode("utf-8", "replace").strip()
    return text if len(text) <= EXCERPT_MAX_CHARS else text[: EXCERPT_MAX_CHARS - 1] + "…"
