"""Writing and checking the notes of commits."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.workspace.notes.commit_lines import content_in, find_commits, open_repository, read_commit
from holdfast.workspace.notes.line_authors import FileAuthors, LineAuthors
from holdfast.workspace.notes.notes_ref import NotesRef, user_email
from holdfast.workspace.notes.trace import Trace, authors_of, encode_trace, is_same, make_trace, split_note, with_known
from holdfast.workspace.stored.repository import Repository

if TYPE_CHECKING:
    pass


class NoteStatus(StrEnum):
    """What a check found about the note of a commit."""

    TRUE = "true"
    """It says what the checkpoints say."""
    MISSING = "missing"
    DIFFERS = "differs"
    """The checkpoints say otherwise, or it is of another commit."""
    UNPROVABLE = "unprovable"
    """It does not contradict the checkpoints, but they no longer tell all that it says."""
    UNREADABLE = "unreadable"
    """The commit cannot be read: it is gone, or objects of it are missing."""


@dataclass(frozen=True, slots=True)
class WrittenNote:
    """The note of a commit after writing it."""

    commit: str
    trace: Trace
    changed: bool
    """False: the note said the same already, and was not touched."""


@dataclass(frozen=True, slots=True)
class CheckedNote:
    """What a check found about one commit."""

    commit: str
    status: NoteStatus
    paths: tuple[str, ...] = ()
    """The files about which note and checkpoints differ."""
    detail: str = ""


class Notes:
    """Notes of one workspace's repository."""

    def __init__(self, repository: Repository, root: Path, *, clock: Callable[[], datetime]) -> None:
        """NotFound if the folder is in no repository; Unavailable if that cannot be read."""
        self._user, prefix = open_repository(root)
        self._ref = NotesRef(self._user)
        self._clock = clock
        committed = lru_cache(maxsize=256)(partial(content_in, self._user))
        self._authors = LineAuthors(repository, committed, prefix=prefix, email=user_email(self._user))

    def traces(self, names: Sequence[str]) -> list[Trace]:
        """Return the records of commits as the checkpoints tell them, and write nothing."""
        return [self._trace(commit, self._ref.read(commit)) for commit in find_commits(self._user, list(names))]

    def write(self, names: Sequence[str]) -> list[WrittenNote]:
        """Write the notes of commits, all or none (P3). Text of others in such a note stays."""
        commits = find_commits(self._user, list(names))
        traces: dict[str, Trace] = {}

        def change(commit: str, note: bytes | None) -> bytes | None:
            traces[commit] = trace = self._trace(commit, note)
            before, rest = split_note(note or b"")
            if before is not None and is_same(before, trace):
                traces[commit] = before
                return None
            separated = rest + (b"\n" if rest and not rest.endswith(b"\n") else b"")
            return separated + encode_trace(trace)

        changed = set(self._ref.write(change, commits, self._clock()))
        return [WrittenNote(commit, traces[commit], commit in changed) for commit in commits]

    def check(self, names: Sequence[str]) -> list[CheckedNote]:
        """Compare notes with the checkpoints; without names, all that there are, and HEAD."""
        if names:
            commits = find_commits(self._user, list(names))
        else:
            commits = list(dict.fromkeys([*find_commits(self._user, ["HEAD"]), *self._ref.all_commits()]))
        return [self._checked(commit) for commit in commits]

    def _authors_of(self, commit: str) -> tuple[list[FileAuthors], Callable[[Sequence[FileAuthors]], Trace]]:
        added = read_commit(self._user, commit)
        when = self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

        def make(authors: Sequence[FileAuthors]) -> Trace:
            return make_trace(added, authors, trace_id=str(uuid.uuid4()), when=when, version=version("holdfast"))

        return self._authors.of(added), make

    def _trace(self, commit: str, note: bytes | None) -> Trace:
        authors, make = self._authors_of(commit)
        before, _ = split_note(note or b"")
        if before is not None and before["vcs"].get("revision") == commit:
            authors = with_known(authors, authors_of(before))  # P1: what only the note knows is not forgotten
        return make(authors)

    def _checked(self, commit: str) -> CheckedNote:
        note = self._ref.read(commit)
        before = split_note(note)[0] if note is not None else None
        if before is None:
            detail = "" if note is None else "it has a note of others only"
            return CheckedNote(commit, NoteStatus.MISSING, detail=detail)
        try:
            authors, make = self._authors_of(commit)
        except HoldfastError as error:
            return CheckedNote(commit, NoteStatus.UNREADABLE, detail=error.message)
        if is_same(before, make(authors)):
            return CheckedNote(commit, NoteStatus.TRUE)
        kept = make(with_known(authors, authors_of(before)))
        is_own = before["vcs"].get("revision") == commit
        status = NoteStatus.UNPROVABLE if is_own and is_same(before, kept) else NoteStatus.DIFFERS
        detail = "" if is_own else "it was written for another commit"
        return CheckedNote(commit, status, _differing(before, make(authors)), detail)


def _differing(one: Trace, other: Trace) -> tuple[str, ...]:
    """The paths about which two records do not say the same."""
    mine = {str(file.get("path")): file for file in one["files"] if isinstance(file, dict)}
    theirs = {file["path"]: file for file in other["files"]}
    return tuple(sorted(path for path in {*mine, *theirs} if mine.get(path) != theirs.get(path)))
