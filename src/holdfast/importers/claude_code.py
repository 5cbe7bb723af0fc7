"""Claude Code's own file history: each point that its `/rewind` knows becomes a checkpoint of the folder.

A session is a transcript, `projects/FOLDER/SESSION.jsonl`. Its records `file-history-snapshot` and `file-history-delta`
name, for a message, the files that were tracked and a copy of each, `file-history/SESSION/HASH@vN`; no copy means that
the file did not exist. Only files that its own tools edited are tracked, so a checkpoint contains these, and a restore
keeps everything else. The format is internal to Claude Code: what is not as expected is reported, never guessed.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import Damaged, NotFound, Refused
from holdfast.escaping import escape_path
from holdfast.importers.git_objects import BLOB_MAX_BYTES
from holdfast.importers.model import ImportRequest, Losses
from holdfast.importers.workspace_target import OutsideEntry, WorkspaceImport, WorkspaceTarget
from holdfast.model import Reason, Uncovered
from holdfast.scan.dir_handles import split, upwards
from holdfast.workspace.imports import OutsideCheckpoint, OutsideFile
from holdfast.workspace.requests import SaveRequest

_ACTOR = "claude-code"
_LINE_MAX_BYTES = 64 << 20
_TYPES = ("file-history-snapshot", "file-history-delta")
_BACKUP = re.compile(r"[0-9a-f]{8,64}@v\d{1,9}")
_SESSION = re.compile(r"[\w-]{1,100}")
_MESSAGE_MAX_CHARS = 200
_SPECIAL = re.compile(r"([\\*?\[\]!# ])")


@dataclass(slots=True)
class RewindPoint:
    """What Claude Code stored before a message."""

    session: str
    message_id: str
    when: datetime
    copies: dict[str, str | None] = field(default_factory=dict)
    """By path below the folder: the name of the copy; None if the file did not exist."""
    prompt: str = ""

    @property
    def origin(self) -> str:
        return f"claude-code:{self.session}:{self.message_id}"


@dataclass(slots=True)
class Session:
    """One transcript."""

    path: Path
    cwd: str | None = None
    points: dict[str, RewindPoint] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Tracked paths that cannot be carried over, and why."""
    unreadable_lines: int = 0

    @property
    def id(self) -> str:
        return self.path.stem

    @property
    def backups(self) -> Path:
        """Where the copies are: beside `projects`."""
        return self.path.parents[2] / "file-history" / self.id


def recognize(source: str) -> bool:
    """Whether a file is a transcript of Claude Code, or a folder contains some."""
    return any(_is_transcript(path) for path in _transcripts(Path(source)))


def open_source(request: ImportRequest) -> WorkspaceImport:
    """Open a transcript, or all of the folder of a project below `~/.claude/projects`."""
    sessions = [_read(path) for path in _transcripts(Path(request.source))]
    folders = {each.cwd for each in sessions if each.cwd is not None and each.points}
    shown = os.path.realpath(request.source)
    if request.target is None and len(folders) > 1:
        raise Refused(f"{shown} has sessions of several folders", hint="Name one transcript, or the target.")
    left_out = [(path, why) for each in sessions for path, why in each.left_out.items()]
    if left_out and not any(each.points for each in sessions):
        path, why = left_out[0]
        raise Damaged(f"cannot import anything from {shown}: {escape_path(path)}: {why}", hint="Nothing was imported.")
    if not any(each.points for each in sessions):
        raise NotFound(f"{shown} has no file history", hint="Claude Code stores one only when its tools edit files.")
    folder = Path(request.target or next(iter(folders), ""))
    if not folder.is_dir():
        raise NotFound(
            f"the folder {folder} of these sessions does not exist", hint="If it was moved, name its new place."
        )
    target = WorkspaceTarget(folder, request.workspace_options)
    losses = Losses()
    for session in sessions:
        for path, why in sorted(session.left_out.items()):
            losses.add(escape_path(path), why)
        for _ in range(session.unreadable_lines):
            losses.add(f"lines of {session.path.name}", "they are not JSON")
    entries = list(_entries(sessions, target, shown))
    return WorkspaceImport(
        "claude-code",
        "the file history of Claude Code",
        shown,
        target,
        entries,
        losses=losses.all(),
        notes=["Only files that Claude Code's own tools edited are in these checkpoints; a restore keeps all others."],
    )


def _transcripts(source: Path) -> Iterator[Path]:
    real = Path(os.path.realpath(source))
    if real.is_dir():
        names = [name for name in sorted(os.listdir(real)) if name.endswith(".jsonl")]
        yield from (real / name for name in names if stat.S_ISREG((real / name).lstat().st_mode))
    elif real.is_file() and real.suffix == ".jsonl":
        yield real


def _is_transcript(path: Path) -> bool:
    """Whether one of the first lines is a record of Claude Code."""
    if len(path.parents) < 3 or not _SESSION.fullmatch(path.stem):
        return False
    with path.open("rb") as file:
        for _ in range(20):
            line = file.readline(_LINE_MAX_BYTES)
            record = _record(line)
            if record is not None and ("sessionId" in record or record.get("type") in _TYPES):
                return True
            if not line:
                return False
    return False


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _read(path: Path) -> Session:
    """Read a transcript. Its last line may be incomplete, since Claude Code may be writing it."""
    session = Session(path)
    prompts: dict[str, str] = {}
    pending: list[dict[str, Any]] = []
    with path.open("rb") as file:
        while line := file.readline(_LINE_MAX_BYTES):
            record = _record(line)
            if record is None:
                session.unreadable_lines += line.endswith(b"\n") and bool(line.strip())
                continue
            if session.cwd is None and isinstance(record.get("cwd"), str):
                session.cwd = record["cwd"]
            if record.get("type") in _TYPES:
                pending.append(record)
            elif record.get("type") == "user" and isinstance(record.get("uuid"), str):
                prompts[record["uuid"]] = _prompt(record.get("message"))
    for record in pending:
        _add(session, record)
    for point in session.points.values():
        point.prompt = prompts.get(point.message_id, "")
    session.points = {key: each for key, each in session.points.items() if each.copies}
    return session


def _add(session: Session, record: Mapping[str, Any]) -> None:
    """Apply a record: a snapshot updates what is known of its message, a delta adds one path and replaces none."""
    given = record.get("snapshot")
    snapshot: dict[str, Any] = given if isinstance(given, dict) else {}
    message = snapshot.get("messageId") or record.get("messageId")
    if not isinstance(message, str):
        return
    when = _time(snapshot.get("timestamp")) or _time(record.get("timestamp"))
    point = session.points.get(message)
    if point is None:
        last = max((each.when for each in session.points.values()), default=datetime.fromtimestamp(0, UTC))
        point = session.points[message] = RewindPoint(session.id, message, when or last)
    if record.get("type") == "file-history-delta":
        tracked = record.get("trackingPath")
        for path, copy in _copies(session, {tracked if isinstance(tracked, str) else None: record.get("backup")}):
            point.copies.setdefault(path, copy)
        return
    point.copies |= dict(_copies(session, snapshot.get("trackedFileBackups")))


def _copies(session: Session, tracked: Any) -> Iterator[tuple[str, str | None]]:
    for given, backup in tracked.items() if isinstance(tracked, dict) else ():
        name = backup.get("backupFileName", "") if isinstance(backup, dict) else ""
        path = _below(given, session.cwd) if isinstance(given, str) else None
        if path is None:
            session.left_out[str(given)] = "it is not below the folder"
        elif name is not None and not (isinstance(name, str) and _BACKUP.fullmatch(name)):
            session.left_out[path] = "the name of its copy is invalid"
        else:
            yield path, name


def _below(given: str, cwd: str | None) -> str | None:
    """The path below the folder of the session; None if it is elsewhere, or in a git directory."""
    whole = os.path.normpath(os.path.join(cwd or "/", given))
    root = os.path.normpath(cwd or "/").rstrip("/")
    if not whole.startswith(f"{root}/") or "\0" in whole or cwd is None:
        return None
    path = whole[len(root) + 1 :]
    return None if ".git" in path.split("/") or len(path) > 4096 else path


def _time(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(value)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):  # OverflowError: a year that UTC does not have
        return None


def _prompt(message: Any) -> str:
    """The first line of what a person wrote."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        texts = [each.get("text") for each in content if isinstance(each, dict) and each.get("type") == "text"]
        content = next((each for each in texts if isinstance(each, str)), "")
    text = content.strip() if isinstance(content, str) else ""
    return text.splitlines()[0][:_MESSAGE_MAX_CHARS] if text else ""


# ---- Checkpoints ----


def _entries(sessions: Sequence[Session], target: WorkspaceTarget, source: str) -> Iterator[OutsideEntry]:
    """The rewind points of all sessions by time, each compared with the one before it in its session."""
    found = []
    for session in sessions:
        before: RewindPoint | None = None
        ordered = sorted(enumerate(session.points.values()), key=lambda each: (each[1].when, each[0]))
        for number, point in ordered:
            found.append((point.when, session.id, number, session, point, before))
            before = point
    for _, _, _, session, point, before in sorted(found, key=lambda each: each[:3]):
        build = partial(_outside, session, point, before, target, source)
        yield OutsideEntry(point.origin, f"message {point.message_id}", build)


def _outside(
    session: Session,
    point: RewindPoint,
    before: RewindPoint | None,
    target: WorkspaceTarget,
    source: str,
    known: Mapping[str, str],
) -> OutsideCheckpoint:
    base = known.get(before.origin) if before is not None else None
    earlier = before.copies if before is not None and base is not None else {}
    mtime_ns = int(point.when.timestamp()) * 10**9
    edits: dict[str, OutsideFile | None] = {}
    uncovered = []
    for path, name in sorted(point.copies.items()):
        try:
            file = None if name is None else _file(session.backups / name, path, target, mtime_ns)
        except Damaged as error:
            uncovered.append(Uncovered(path, Reason.UNREADABLE, error.message))
            file = None
        if earlier.get(path, "") != name:
            edits[path] = file
    edits |= dict.fromkeys(earlier.keys() - point.copies.keys())
    above = {each for path, file in edits.items() if file is not None for each in upwards(split(path)[0])}
    for folder in {*above, *([] if base else [""])}:
        edits.setdefault(folder, OutsideFile(target.permissions(folder, stat.S_IFDIR | 0o755), mtime_ns))
    return OutsideCheckpoint(
        origin=point.origin,
        source=source,
        request=SaveRequest(
            point.prompt or "a message to Claude Code",
            session=point.session,
            actor=None if base is None else _ACTOR,  # what it found at first is not its own
        ),
        timestamp=point.when,
        edits=edits,
        base=base,
        uncovered=uncovered,
        exclude_patterns=_kept([path for path, name in point.copies.items() if name is None]),
    )


def _file(copy: Path, path: str, target: WorkspaceTarget, mtime_ns: int) -> OutsideFile:
    try:
        status = copy.lstat()
    except FileNotFoundError:
        raise Damaged("Claude Code has deleted its copy") from None
    if not stat.S_ISREG(status.st_mode) or status.st_size > BLOB_MAX_BYTES:
        raise Damaged("its copy is not a regular file, or is too large")
    mode = target.permissions(path, stat.S_IFREG | (stat.S_IMODE(status.st_mode) & 0o777))
    return OutsideFile(mode, mtime_ns, status.st_size, partial(_content, copy))


def _content(copy: Path) -> bytes:
    try:
        return durable.read_file(copy, max_bytes=BLOB_MAX_BYTES, follow_links=False)
    except OSError as error:
        raise Damaged(f"the copy {copy.name} cannot be read: {error.strerror}") from None


def _kept(absent: Sequence[str]) -> list[str]:
    """Patterns that exclude everything, so that a restore keeps it, but for files that did not exist then."""
    patterns = ["*"]
    for path in sorted(absent):
        patterns += [f"!/{_escaped(above)}/" for above in upwards(split(path)[0])]
        patterns.append(f"!/{_escaped(path)}")
    return list(dict.fromkeys(patterns))


def _escaped(path: str) -> str:
    return _SPECIAL.sub(r"\\\1", path)
