"""Who wrote lines of a commit, found in the checkpoints by content: ids of commits play no part.

A file that a checkpoint has with exactly this content is blamed there. Otherwise (a rebase, a merge, other line ends)
its lines are matched with the most similar version of it, then with others. Since git moves content to and fro, a
content that was there before counts from its first appearance, and so do longer runs of lines that come back or move
within a step. What is found nowhere, or could have come through git, is unknown: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from holdfast.model import Checkpoint, Origin
from holdfast.shadowgit import FOLDER_MODE, real_name
from holdfast.shadowgit.objects import decode_tree, raw_entries
from holdfast.workspace.blame import Blamer, Version, changed_lines
from holdfast.workspace.notes.commit_lines import AddedLines, CommitLines
from holdfast.workspace.notes.moved_lines import match_runs
from holdfast.workspace.stored.attribution import PERHAPS, TURN, TURN_NUMBER, USER, actor_of
from holdfast.workspace.stored.catalog import Row
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.text_merge import split_lines

MODEL = "model"
"""In the metadata of a checkpoint: the model that the agent used."""
_BATCH_ROWS = 1000
_MOST_VERSIONS = 64  # of one file, newest first, that a text is compared with
_MOST_CHANGED = 64  # files of one step that lines may have moved from


@dataclass(frozen=True, slots=True, order=True)
class LineAuthor:
    """Who wrote a line."""

    kind: str
    """`ai`, `human` or `unknown`."""
    actor: str = ""
    model: str = ""
    session: str = ""
    turn: str = ""
    perhaps: tuple[str, ...] = ()
    """Who may have written it, where that is not certain."""


UNKNOWN = LineAuthor("unknown")
Committed = Callable[[str, str], tuple[bytes, frozenset[bytes]] | None]


@dataclass(frozen=True, slots=True)
class FileAuthors:
    """Who wrote the lines that a commit added to a file."""

    path: str
    lines: dict[int, LineAuthor]
    """By line, from 0."""
    whole: LineAuthor | None = None
    """Of a file that counts as a whole."""


class LineAuthors:
    """Finds the authors of lines in one store. Reads the history of all files once, for any number of commits."""

    def __init__(self, repository: Repository, committed: Committed, *, prefix: str, email: str) -> None:
        """`committed`: what a commit has at a path (id, lines). `prefix`: the path of the workspace in the repository.
        `email`: of the user, as git is configured."""
        self._committed = committed
        self._prefix = prefix
        self._email = email
        self._blamer = _ContentBlamer(repository)

    def of(self, commit: CommitLines) -> list[FileAuthors]:
        """Return who wrote the lines of a commit, file by file."""
        return [self._file(each, commit) for each in commit.files]

    def _file(self, file: AddedLines, commit: CommitLines) -> FileAuthors:
        if not file.path.startswith(self._prefix):  # outside of the workspace: no checkpoint has it
            authors = dict.fromkeys(file.lines, UNKNOWN)
            return FileAuthors(file.path, authors, UNKNOWN if file.text is None else None)
        path, others = self._inside(file.path), [self._inside(each) for each in _related(file, commit, self._prefix)]
        if file.text is None:
            whole = self._blamer.whole_of(path, file.oid)
            brought = self._from_git(whole, commit)
            is_brought = brought is not None and file.oid == brought[0]
            return FileAuthors(file.path, {}, UNKNOWN if is_brought else _author(whole))
        origins, text = self._blamer.lines_of(path, file, others), split_lines(_plain(file.text))
        found: dict[int, LineAuthor] = {}
        known: dict[Origin | None, tuple[LineAuthor, frozenset[bytes]]] = {None: (UNKNOWN, frozenset())}
        for line in file.lines:
            origin = origins.get(line)
            if origin not in known:
                brought = self._from_git(origin, commit)
                known[origin] = _author(origin), brought[1] if brought is not None else frozenset()
            author, lines = known[origin]
            found[line] = UNKNOWN if text[line].removesuffix(b"\n") in lines else author
        return FileAuthors(file.path, found)

    def _inside(self, path: str) -> str:
        return path[len(self._prefix) :]

    def _from_git(self, origin: Origin | None, commit: CommitLines) -> tuple[bytes, frozenset[bytes]] | None:
        """Return the content that git may have brought into the step that lines came with: HEAD moved in it, to a
        commit with another content of the file, and the user did not author the noted commit within the step."""
        checkpoint = origin.checkpoint if origin is not None else None
        before = self._blamer.parent_of(checkpoint) if checkpoint is not None else None
        if origin is None or checkpoint is None or before is None or checkpoint.git is None or before.git is None:
            return None
        now, then = checkpoint.git.commit, before.git.commit
        is_own = bool(self._email) and commit.author_email == self._email
        if now == then or not now or (is_own and _seconds(commit.authored) >= _seconds(before.timestamp)):
            return None
        path = self._prefix + origin.path
        brought, old = self._committed(now, path), self._committed(then, path) if then else None
        return None if brought == old else brought


def _author(origin: Origin | None) -> LineAuthor:
    checkpoint = origin.checkpoint if origin is not None else None
    if origin is None or checkpoint is None or origin.is_older:
        return UNKNOWN
    actor = actor_of(checkpoint)
    said = checkpoint.metadata.get(PERHAPS)
    others = {each for each in said if isinstance(each, str)} if isinstance(said, list) else set()
    if others - {actor}:  # P4: report the doubt instead of naming one author
        candidates = {*others, actor}
        kind = "ai" if USER not in candidates else "unknown"
        return LineAuthor(kind, perhaps=tuple(sorted(candidates)))
    if actor == USER:
        return LineAuthor("human", USER)
    model, turn, number = (_text(checkpoint.metadata.get(key)) for key in (MODEL, TURN, TURN_NUMBER))
    return LineAuthor("ai", actor, model, checkpoint.session or "", turn or number)


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())  # git knows no fractions


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _related(file: AddedLines, commit: CommitLines, prefix: str) -> list[str]:
    """The files that lines of a file may have moved from in this commit."""
    changed = [each.path for each in commit.files if each.text is not None and each.path != file.path]
    every = (*file.former_paths, *commit.removed_paths, *changed)
    return [each for each in dict.fromkeys(every) if each.startswith(prefix)][:_MOST_CHANGED]


class _ContentBlamer(Blamer):
    """Blames by content: follows a text to where it appeared first. Compares lines without their line ends."""

    def __init__(self, repository: Repository) -> None:
        super().__init__(repository)
        self._firsts: dict[tuple[str, bytes], str] = {}
        self._versions: dict[str, list[bytes]] = {}
        for row_id, path, oid in _appearances(repository):
            if (path, oid) not in self._firsts:
                self._firsts[path, oid] = row_id
                self._versions.setdefault(path, []).append(oid)

    def parent_of(self, checkpoint: Checkpoint) -> Checkpoint | None:
        row = self._history.row(checkpoint.parent) if checkpoint.parent else None
        return self._repository.checkpoint(row) if row else None

    def whole_of(self, path: str, oid: bytes) -> Origin | None:
        """Return where exactly this content of a file came from; None if no checkpoint has it."""
        version = self._version_with(path, oid)
        return self._whole(version) if version is not None else None

    def lines_of(self, path: str, file: AddedLines, others: list[str]) -> dict[int, Origin]:
        """Return the origins of lines of a file; those that are found nowhere are not in the result."""
        exact = self._version_with(path, file.oid)
        if exact is not None:
            return self._origins(exact, {line: line for line in file.lines})
        text = split_lines(_plain(file.text or b""))
        left, origins = set(file.lines), dict[int, Origin]()
        for version, matched in self._similar(path, text, left, others):
            lines = {at: line for line, at in matched.items() if line in left}
            left -= set(lines.values())
            origins |= self._origins(version, lines)
            if not left:
                break
        return origins

    def _similar(
        self, path: str, text: list[bytes], left: set[int], others: list[str]
    ) -> Iterator[tuple[Version, dict[int, int]]]:
        """Yield versions that have lines of a text, best first: {line of the text: line of the version}."""
        best = self._nearest(path, text)
        if best is not None:
            version, before = best
            changes = changed_lines(b"".join(before), b"".join(text))
            shift, at = 0, 0
            matched: dict[int, int] = {}
            for hunk in [*changes, None]:
                end = hunk.new_start if hunk is not None else len(text)
                matched.update((line, line + shift) for line in range(at, end))
                if hunk is not None:
                    at, shift = hunk.new_end, hunk.end - hunk.new_end
            yield version, matched
        for other in (path, *others):
            for oid in reversed(self._versions.get(other, ())[-_MOST_VERSIONS:]):
                if not left:
                    return
                source = self._version_with(other, oid)
                if source is not None and (data := self._text(source)) is not None:
                    yield source, match_runs(split_lines(data), text, left)

    def _nearest(self, path: str, text: list[bytes]) -> tuple[Version, list[bytes]] | None:
        """Return the version of a file that shares most lines with a text, if it shares half of them."""
        wanted = set(text)
        best: tuple[int, Version, list[bytes]] | None = None
        for oid in reversed(self._versions.get(path, ())[-_MOST_VERSIONS:]):
            version = self._version_with(path, oid)
            data = self._text(version) if version is not None else None
            if version is None or data is None:
                continue
            lines = split_lines(data)
            score = 2 * len(wanted.intersection(lines)) - len(set(lines))
            if best is None or score > best[0]:
                best = score, version, lines
        if best is None or 2 * len(wanted.intersection(best[2])) < max(len(wanted), 1):
            return None
        return best[1], best[2]

    def _version_with(self, path: str, oid: bytes) -> Version | None:
        row_id = self._firsts.get((path, oid))
        row = self._history.row(row_id) if row_id is not None else None
        return Version(row, path, oid) if row is not None else None

    # what the walk back does otherwise

    def _first(self, version: Version) -> Version:
        return self._version_with(version.path, version.oid) or version

    def _brought(
        self, version: Version, pending: dict[int, int]
    ) -> tuple[list[tuple[Version, dict[int, int]]], dict[int, int]]:
        """Pass on lines that came back from an earlier version of the file, or that the step moved."""
        data = self._text(version)
        if data is None or version.row is None:
            return [], pending
        text, found = split_lines(data), []
        for source, lines, among in (*self._removed(version), *self._earlier(version)):
            matched = match_runs(lines, text, pending, among=among)
            passed = {at: pending[line] for line, at in matched.items()}
            if passed:
                found.append((source, passed))
                pending = {line: final for line, final in pending.items() if line not in matched}
            if not pending:
                break
        return found, pending

    def _earlier(self, version: Version) -> Iterator[tuple[Version, list[bytes], None]]:
        """Yield versions of the file before this one, newest first; not those that it was made from."""
        known = self._versions.get(version.path, [])
        at = known.index(version.oid) if version.oid in known else len(known)
        direct = {each.oid for each in self._older(version)[0]}
        for oid in reversed(known[max(0, at - _MOST_VERSIONS) : at]):
            source = self._version_with(version.path, oid)
            if oid not in direct and source is not None and (data := self._text(source)) is not None:
                yield source, split_lines(data), None

    def _removed(self, version: Version) -> Iterator[tuple[Version, list[bytes], list[int]]]:
        """Yield the versions that a step changed or removed, each with the lines that it removed."""
        for before in self._befores(version.row):
            if version.row is None:
                continue
            pairs = _changed(self._repository, before, version.row)
            for number, path in enumerate(sorted(pairs, key=lambda each: each != version.path)):
                source, after = self._version(before, path), self._version(version.row, path)
                old = self._text(source) if source is not None and number < _MOST_CHANGED else None
                if source is None or old is None or (after is not None and after.oid == source.oid):
                    continue
                new = self._text(after) if after is not None else b""
                hunks = changed_lines(old, new) if new is not None else []
                yield source, split_lines(old), [line for hunk in hunks for line in range(hunk.start, hunk.end)]

    def _text(self, version: Version) -> bytes | None:
        data = super()._text(version)
        return data if data is None else _plain(data)


def _plain(data: bytes) -> bytes:
    """Return a text as git stores it where it converts line ends."""
    return data.replace(b"\r\n", b"\n")


# ---- History ----


def _appearances(repository: Repository) -> Iterator[tuple[str, str, bytes]]:
    """Yield (checkpoint, path, content) for everything that a checkpoint has and the one before it has not, in order.

    Reads of each tree only what differs from the tree before (P8).
    """
    before = b""
    for row_id, tree in reversed(list(_trees(repository))):
        for path, oid in _new_files(repository, before, tree):
            yield row_id, path, oid
        before = tree


def _trees(repository: Repository) -> Iterator[tuple[str, bytes]]:
    """Yield ids and trees of all checkpoints, newest first."""
    last: str | None = None
    while rows := repository.catalog.newest(limit=_BATCH_ROWS, safety=True, before=last):
        yield from ((row.id, bytes.fromhex(row.content[:40])) for row in rows)
        last = rows[-1].id


def _new_files(repository: Repository, before: bytes, after: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield files of a tree that another has not, or not with this content."""
    stack = [("", before, after)]
    while stack:
        where, old, new = stack.pop()
        if old == new:
            continue
        known = set(raw_entries(repository.objects.tree_data(old))) if old else set[bytes]()
        fresh = [entry for entry in raw_entries(repository.objects.tree_data(new)) if entry not in known]
        folders = _folders(known) if any(entry.startswith(b"40000 ") for entry in fresh) else {}
        for entry in decode_tree(b"".join(fresh)):
            path = where + _fs(real_name(entry.name))
            if entry.mode == FOLDER_MODE:
                stack.append((path + "/", folders.get(entry.name, b""), entry.oid))
            else:
                yield path, entry.oid


def _folders(entries: Iterable[bytes]) -> dict[bytes, bytes]:
    found = decode_tree(b"".join(entry for entry in entries if entry.startswith(b"40000 ")))
    return {entry.name: entry.oid for entry in found}


def _changed(repository: Repository, before: Row, after: Row) -> set[str]:
    """Return the paths of files that differ between two checkpoints."""
    old, new = bytes.fromhex(before.content[:40]), bytes.fromhex(after.content[:40])
    pairs = (*_new_files(repository, old, new), *_new_files(repository, new, old))
    return {path for path, _ in pairs}


def _fs(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
