"""What checkpoints changed, and which of them belong to one turn of an agent."""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import contextlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.durable.sqlite import connect
from holdfast.errors import Damaged, NotFound, Refused, Remedy
from holdfast.model import JSON, Checkpoint, CheckpointRef, LineCount, PathChange
from holdfast.model.documents import short
from holdfast.workspace.stored.attribution import (
    PROMPT,
    SEARCHED_BEYOND,
    TURN,
    TURN_NUMBER,
    USER,
    TurnKey,
    actor_of,
    turn_in_trail,
    turn_key,
)
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.turn_log import TurnLog, TurnStart

if TYPE_CHECKING:
    from holdfast.workspace.stored.tree import TreeReader

PROMPT_MESSAGE = "before prompt: "
"""The beginning of the message of a checkpoint that was saved when the user sent a prompt."""
LINES_MAX_FILES = 200
"""With more changed files, lines are not counted: it would take seconds."""
_PATHS_KEPT = 50
_KEYS_AT_ONCE = 500  # fewer than the variables that SQLite allows in a statement
_READS_TOGETHER = 20  # turns: the folders of more are not kept in memory
_OUTLIVED = 3  # in how many later turns of its session a sub-agent may go on with an earlier one
_UNKNOWN = LineCount(None, None)


class Turn(NamedTuple):
    """What an agent did for one prompt, or one save of a person."""

    checkpoints: tuple[Checkpoint, ...]
    """Newest first; none if nothing was changed."""
    prompt: str
    """The first line of what the user asked for; empty if it is not known."""
    start: TurnStart | None = None
    """When it began; None if that was not noted."""

    @property
    def actor(self) -> str:
        """Whose changes these are: `user`, the agent or, if it did everything, a sub-agent."""
        actors = {actor_of(each) for each in self.checkpoints}
        if len(actors) == 1:
            return actors.pop()
        return self.key.agent if self.key else USER

    @property
    def session(self) -> str | None:
        return self.checkpoints[0].session if self.checkpoints else self.start.session if self.start else None

    @property
    def number(self) -> int | None:
        """Its number among the turns of agents in this workspace; None for a save of a person."""
        if self.start is not None:
            return self.start.number
        numbers = (each.metadata.get(TURN_NUMBER) for each in self.checkpoints if actor_of(each) != USER)
        return next((each for each in numbers if isinstance(each, int)), None)

    @property
    def closing(self) -> str:
        """What the agent said at its end, shortened; empty if that is not known."""
        return self.start.closing if self.start is not None else ""

    @property
    def key(self) -> TurnKey | None:
        """What its checkpoints have in common; None for a save of a person."""
        return turn_key(self.checkpoints[0]) if self.checkpoints else self.start.key if self.start else None

    @property
    def when(self) -> datetime:
        """The time of its newest checkpoint; without one, that of its beginning."""
        if self.checkpoints:
            return self.checkpoints[0].timestamp
        return datetime.fromisoformat(self.start.at if self.start else "1970-01-01T00:00:00+00:00")

    @property
    def position(self) -> int:
        """Where it stands among checkpoints: right after the one with this number."""
        return self.checkpoints[0].sequence if self.checkpoints else self.start.after if self.start else 0


def turn_document(turn: Turn) -> dict[str, JSON]:
    """Return a turn as JSON, for every face; of a save of a person, `number`, `turn` and `began` are null."""
    key = turn.key
    return {
        "number": turn.number,
        "actor": turn.actor,
        "session": turn.session,
        "turn": None if key is None else key.turn,
        "prompt": turn.prompt or None,
        "closing": turn.closing or None,
        "began": turn.start.at if turn.start else None,
        "checkpoints": [each.id for each in turn.checkpoints],
    }


class Summary(NamedTuple):
    """What changed, in short."""

    files: int
    lines: LineCount
    """None where they were not counted."""
    paths: tuple[PathChange, ...]
    """The first of them."""


class TurnPage(NamedTuple):
    """A part of the list of turns, newest first."""

    turns: tuple[Turn, ...]
    summaries: tuple[Summary, ...]
    """What each changed."""
    next: str | None
    """Where the next page begins; None on the last one."""


# turns


def group_turns(checkpoints: Iterable[Checkpoint]) -> Iterator[Turn]:
    """Group checkpoints, given newest first, into turns, in the order of their newest ones.

    What an agent saved in one turn of a session is one turn, also if others saved meanwhile. Without a turn or a prompt
    in the metadata, its checkpoints in a row are. Each checkpoint of the user is a turn of its own.
    """
    waiting: list[_OpenTurn] = []
    for number, checkpoint in enumerate(checkpoints):
        key = turn_key(checkpoint)
        is_known = False
        for each in waiting:
            if not each.is_closed:
                is_known = each.meet(checkpoint, key, number) or is_known
        if not is_known:
            waiting.append(_OpenTurn(key, checkpoint, number))
        while waiting and waiting[0].is_closed:
            yield waiting.pop(0).turn()
    yield from (each.turn() for each in waiting)


def with_starts(
    turns: Sequence[Turn],
    starts: Iterable[TurnStart],
    *,
    newest: int | None,
    oldest: int,
    empty: Callable[[TurnStart], bool],
) -> list[Turn]:
    """Add to turns when they began, and the turns that changed nothing in between, in their places; newest first.

    newest, oldest: between which checkpoints the turns are listed; None: there is no newer one. empty: which of those
    that changed nothing are wanted.
    """
    by_key = {each.key: each for each in starts}
    found = []
    for turn in turns:
        start = by_key.pop(turn.key, None) if turn.key is not None else None
        found.append(turn if start is None else turn._replace(start=start, prompt=turn.prompt or start.prompt))
    for start in by_key.values():
        is_here = start.after >= oldest and (newest is None or start.after < newest)
        if is_here and not start.changed and empty(start):
            found.append(Turn((), start.prompt, start))

    def place(turn: Turn) -> tuple[int, int]:
        """One that began after a checkpoint stands above it; of several, the newest first."""
        return turn.position, turn.start.number if turn.start and not turn.checkpoints else 0

    return sorted(found, key=place, reverse=True)


def next_page(shown: Sequence[Turn], others: Sequence[Turn]) -> str | None:
    """Return the id before which the next page begins: no checkpoint is left out, though one may come twice."""
    if not shown or not others:
        return None
    newest = others[0].checkpoints[0].sequence
    newer = (each for turn in shown for each in turn.checkpoints if each.sequence > newest)
    return min(newer, key=lambda each: each.sequence).id


class _OpenTurn:  # no dataclass: it would slow down the start of `log`
    """A turn that older checkpoints may still belong to."""

    def __init__(self, key: TurnKey | None, checkpoint: Checkpoint, number: int) -> None:
        self.key = key
        self.checkpoints = [checkpoint]
        self.last = number
        self.prompt = prompt_of(checkpoint)
        self.is_by_prompt = not checkpoint.metadata.get(TURN)  # another turn may have the same prompt
        self.is_closed = False
        self.others: set[str] = set()

    def meet(self, checkpoint: Checkpoint, key: TurnKey | None, number: int) -> bool:
        """Take the next older checkpoint, or close; return whether it belongs to this turn."""
        if self.key is not None and self.key == key:
            self.checkpoints.append(checkpoint)
            self.last, self.prompt = number, self.prompt or prompt_of(checkpoint)
            return True
        if self.key is None:
            self.is_closed = True
            return False
        is_asked = checkpoint.session == self.key.session and checkpoint.message.startswith(PROMPT_MESSAGE)
        if is_asked and not self.prompt and not self.others:
            self.prompt = checkpoint.message.removeprefix(PROMPT_MESSAGE)
        if key is not None and key[:2] == self.key[:2]:
            self.others.add(repr(key.turn))
        outlived = 1 if self.is_by_prompt else _OUTLIVED
        is_over = self.key.turn is None or len(self.others) >= outlived or number - self.last > SEARCHED_BEYOND
        self.is_closed = is_over
        return False

    def turn(self) -> Turn:
        return Turn(tuple(self.checkpoints), self.prompt)


def find_turn(repository: Repository, which: int | CheckpointRef | None, agent: str | None) -> Turn:
    """Find a turn that the folder went through: by its number, or by a checkpoint of it; None: the latest that was not
    undone. NotFound if there is none."""
    starts = TurnLog(repository.own).read()
    key: TurnKey | None = None
    if isinstance(which, int):
        key = _numbered_turn(repository, which, starts)
    elif which is not None:
        checkpoint = repository.find(which)
        key = turn_key(checkpoint)
        if key is None or key.turn is None:
            raise NotFound(f"{short(checkpoint.id)} belongs to no turn of an agent", remedy=Remedy("list"))
    with repository.catalog.kept_open():
        found = turn_in_trail(repository, agent, key)
    if found is None:
        whose = "any agent" if agent is None else f"the agent {agent!r}"
        what = f"turn {which} of {whose}" if isinstance(which, int) else f"such turn of {whose}"
        raise NotFound(f"the history of the folder has no {what}", hint="It changed nothing, or was undone.")
    start = next((each for each in reversed(starts) if each.key == found.key), None)
    prompt = next(filter(None, map(prompt_of, found.members)), start.prompt if start else "")
    return Turn(found.members, prompt, start)


def _numbered_turn(repository: Repository, number: int, starts: Iterable[TurnStart]) -> TurnKey:
    if start := next((each for each in starts if each.number == number), None):
        return start.key
    for row in repository.catalog.newest(limit=None):  # the log of turns was lost, or is shorter than the history
        if TURN_NUMBER in row.record:
            checkpoint = repository.checkpoint(row)
            key = turn_key(checkpoint)
            if key is not None and checkpoint.metadata.get(TURN_NUMBER) == number:
                return key
    raise NotFound(f"there is no turn {number}", remedy=Remedy("list"))


def turn_of(checkpoint: Checkpoint) -> str | None:
    """Return a text that is equal for what one actor, with its sub-agents, did in one turn; None without a turn."""
    turn = checkpoint.metadata.get(TURN) or checkpoint.metadata.get(PROMPT)
    return None if turn is None else repr((actor_of(checkpoint).partition("/")[0], checkpoint.session, turn))


def prompt_of(checkpoint: Checkpoint) -> str:
    """Return the first line of what an agent was asked for; empty if that is not recorded."""
    found = checkpoint.metadata.get(PROMPT)
    return found if isinstance(found, str) and actor_of(checkpoint) != USER else ""


def message_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern that a message is searched for. Refused if it is none."""
    try:
        return re.compile(text, re.MULTILINE)
    except re.error as error:
        raise Refused(
            f"{text!r:.80} is not a valid regular expression: {error}", hint="Put \\ before . * ( ["
        ) from None


# what they changed


def changes_of(repository: Repository, checkpoint: Checkpoint) -> list[PathChange]:
    """Return what a checkpoint changed, compared with its parent as lists show it.

    Without a parent every file is added. If the parent is deleted, the letters say how the files differ from the
    nearest older save that is left; without one, or if something is damaged, they are not known.
    """
    if checkpoint.parent is None:
        return [PathChange("A", path) for path in repository.files_changed(checkpoint)]
    try:
        if (parent := repository.shown_parent(checkpoint)) is not None:
            return _differing(repository, parent, checkpoint)
    except (Damaged, NotFound):
        pass
    return _lettered(repository, checkpoint, checkpoint, repository.files_changed(checkpoint))


def _lettered(repository: Repository, oldest: Checkpoint, newest: Checkpoint, paths: Iterable[str]) -> list[PathChange]:
    """Say how files that changed from one checkpoint to another differ from what the nearest older save has."""
    from holdfast.workspace.stored.tree import TreeReader  # start-up cost: few parents are deleted

    named = sorted(paths)
    with contextlib.suppress(Damaged, NotFound):
        older = repository.catalog.newest(limit=1, before=oldest.id, session=None)
        if older:
            reader = TreeReader(repository.objects)
            roots = [repository.contents(each).root for each in (repository.checkpoint(older[0]), newest)]
            there = [[reader.find(root, path) is not None for path in named] for root in roots]
            letters = {(False, True): "A", (True, True): "M"}
            return [
                PathChange(letters.get(each, "D"), path)
                for path, each in zip(named, zip(*there, strict=True), strict=True)
            ]
    return [PathChange("", path) for path in named]


def count_changes(repository: Repository, checkpoint: Checkpoint, is_there: Callable[[str], bool]) -> int:
    """Return how many paths `changes_of` names, in most cases without comparing trees. `is_there`: whether the folder
    has a path: only where one is gone a file can have been renamed."""
    paths = repository.files_changed(checkpoint)
    if checkpoint.parent is None:
        return len(paths)
    try:
        parent = repository.shown_parent(checkpoint)
        if parent is None or (parent.id == checkpoint.parent and all(map(is_there, paths))):
            return len(paths)
        return len(_differing(repository, parent, checkpoint, lines_max_files=0))
    except (Damaged, NotFound):
        return len(paths)


def _differing(
    repository: Repository,
    before: Checkpoint,
    after: Checkpoint,
    reader: "TreeReader | None" = None,
    *,
    lines_max_files: int = LINES_MAX_FILES,
) -> list[PathChange]:
    from holdfast.workspace.stored.diff import make_diff  # start-up cost: most lists are in the cache
    from holdfast.workspace.stored.object_sink import ObjectSink
    from holdfast.workspace.stored.tree import TreeReader, files_changed

    roots = repository.contents(before).root, repository.contents(after).root
    changes = list((reader or TreeReader(repository.objects)).diff(*roots))
    sink = ObjectSink(repository.objects)
    has_lines = len(files_changed(changes)) <= lines_max_files
    gaps = (before.uncovered, after.uncovered)
    return make_diff(before.id, after.id, changes, sink, gaps, with_lines=has_lines).paths


class Summaries:
    """Summaries of what checkpoints changed, kept in a file beside the catalog.

    The file is only a cache: without it, or with one that is damaged, everything is computed again. Its keys are the
    commits, which change if a checkpoint is rewritten.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._path = repository.own / "summaries.db"
        self._reader: TreeReader | None = None

    def of(self, turns: Sequence[Turn]) -> list[Summary]:
        """Return what each of some turns changed."""
        runs = [_runs(turn) for turn in turns]
        keys = [_cache_key(run) for each in runs for run in each]
        known: dict[str, Summary] = {}
        for at in range(0, len(keys), _KEYS_AT_ONCE):
            known |= self._read(keys[at : at + _KEYS_AT_ONCE])
        missing = {key: run for each in runs for run in each if (key := _cache_key(run)) not in known}
        if missing:
            with self._repository.catalog.kept_open():
                fresh = {key: self._computed(at, run) for at, (key, run) in enumerate(missing.items())}
            self._write(fresh)
            known |= fresh
        return [_together([known[_cache_key(run)] for run in each]) for each in runs]

    def _computed(self, at: int, run: Sequence[Checkpoint]) -> Summary:
        if at % _READS_TOGETHER == 0:
            self._reader = None
        return self._repository.consistently(partial(self._summary, run))

    def _summary(self, run: Sequence[Checkpoint]) -> Summary:
        changes = self._changes(run)
        counted = [each.lines for each in changes]
        is_known = any(each.added is not None for each in counted)  # not if the parent is deleted
        has_lines = is_known and len(changes) <= LINES_MAX_FILES and run[-1].parent is not None
        lines = LineCount(sum(each.added or 0 for each in counted), sum(each.removed or 0 for each in counted))
        return Summary(len(changes), lines if has_lines else _UNKNOWN, tuple(changes[:_PATHS_KEPT]))

    def _shared_reader(self) -> "TreeReader":
        """What a turn ended with, the next one began with: each folder is read once for both."""
        from holdfast.workspace.stored.tree import TreeReader  # start-up cost: most summaries are in the file

        if self._reader is None:
            self._reader = TreeReader(self._repository.objects)
        return self._reader

    def _changes(self, run: Sequence[Checkpoint]) -> list[PathChange]:
        """What changed from before the oldest of a row of checkpoints to the newest."""
        newest, oldest = run[0], run[-1]
        with contextlib.suppress(Damaged, NotFound):
            if (parent := self._repository.shown_parent(oldest)) is not None:
                return _differing(self._repository, parent, newest, self._shared_reader())
            if oldest.parent is None and len(run) == 1:
                return changes_of(self._repository, newest)
        paths: set[str] = set()
        for each in run:
            with contextlib.suppress(Damaged, NotFound):
                paths.update(self._repository.files_changed(each))
        return _lettered(self._repository, oldest, newest, paths)

    # the file

    def _read(self, keys: Sequence[str]) -> dict[str, Summary]:
        if not keys or not self._path.exists():
            return {}
        try:
            with contextlib.closing(connect(os.fspath(self._path), timeout_s=0.1, create=False)) as db:
                wanted = ",".join("?" * len(keys))
                rows = db.execute(f"SELECT commits, summary FROM summaries WHERE commits IN ({wanted})", keys)
                found = {key: _decoded(text) for key, text in rows}
        except (sqlite3.Error, ValueError, TypeError, KeyError):
            with contextlib.suppress(OSError):
                self._path.unlink()
            return {}
        return found

    def _write(self, fresh: dict[str, Summary]) -> None:
        with contextlib.suppress(sqlite3.Error, OSError):
            _make_private(self._path)
            with contextlib.closing(connect(os.fspath(self._path), timeout_s=0.1)) as db:
                db.execute("PRAGMA synchronous=OFF")
                db.execute("CREATE TABLE IF NOT EXISTS summaries (commits TEXT PRIMARY KEY, summary TEXT NOT NULL)")
                db.execute("BEGIN IMMEDIATE")
                rows = [(key, _encoded(each)) for key, each in fresh.items()]
                db.executemany("INSERT OR REPLACE INTO summaries VALUES (?, ?)", rows)
                db.execute("COMMIT")


def _runs(turn: Turn) -> list[list[Checkpoint]]:
    """The checkpoints of a turn in rows, in each of which one is the parent of the next."""
    runs: list[list[Checkpoint]] = []
    for each in turn.checkpoints:
        if runs and runs[-1][-1].parent == each.id:
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def _together(parts: Sequence[Summary]) -> Summary:
    if len(parts) <= 1:
        return parts[0] if parts else Summary(0, _UNKNOWN, ())
    paths = {change.path: change for part in reversed(parts) for change in part.paths}
    beyond = sum(part.files - len(part.paths) for part in parts)
    added, removed = ([getattr(part.lines, name) for part in parts] for name in LineCount._fields)
    lines = _UNKNOWN if None in added or None in removed else LineCount(sum(added), sum(removed))
    return Summary(len(paths) + beyond, lines, tuple(sorted(paths.values(), key=lambda change: change.path)))


def _cache_key(run: Sequence[Checkpoint]) -> str:
    return f"5 {run[-1].parent or ''} {run[-1].commit} {run[0].commit}"  # 4: counted undos before it


def _encoded(summary: Summary) -> str:
    paths = [[each.letter, each.path, each.old, *each.lines] for each in summary.paths]
    return json.dumps([summary.files, *summary.lines, paths], separators=(",", ":"))


def _decoded(text: str) -> Summary:
    files, added, removed, paths = json.loads(text)
    changes = (PathChange(letter, path, old, LineCount(*lines)) for letter, path, old, *lines in paths)
    return Summary(int(files), LineCount(added, removed), tuple(changes))


def _make_private(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
