"""One session as a single file to send to somebody: what was said, what changed, and what was redacted.

Secrets are looked for in everything first: whole files on both sides of each change, conversations, prompts and
messages. Then every text is cleaned of all of them, so that a key from one file is not shown where another quotes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files as package_files
from typing import Any, NamedTuple

from markupsafe import Markup

from holdfast.errors import HoldfastError, NotFound
from holdfast.model import Changes, Checkpoint
from holdfast.secret_patterns import find_secrets, redact
from holdfast.web.conversation import Conversation, Message, last_turn, read_conversation, with_closing, with_rest
from holdfast.web.diff_view import FileView, view_changes
from holdfast.web.rendering import Templates
from holdfast.web.security import ServerKeys
from holdfast.workspace import Workspace
from holdfast.workspace.location import message
from holdfast.workspace.stored.attribution import USER
from holdfast.workspace.stored.history import Summary, Turn

_ROWS_MAX = 2_000  # of one turn
_FILE_MAX_BYTES = 1 << 20
_PIECE_MIN_CHARS = 8  # of a line of a secret that has several
_FINDINGS_ROUNDS = 50


class Redacted(NamedTuple):
    """A secret that the report does not contain."""

    kind: str
    masked: str
    where: str
    """Where it was found first."""


class Report(NamedTuple):
    """A session as a page that needs nothing else."""

    html: str
    turns: int
    redacted: list[Redacted]


class ReportedTurn(NamedTuple):
    """A turn of the report."""

    title: str
    who: str
    turn: Turn
    summary: Summary
    messages: list[Message]
    files: list[FileView]
    untold: int
    """How many files are named without their lines."""


class Redactor:
    """Knows the secrets of a session, and takes them out of any text."""

    def __init__(self) -> None:
        self.found: dict[str, Redacted] = {}
        self._pieces: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def look(self, text: str, where: str, *, is_json: bool = False) -> None:
        """Find the secrets of a text."""
        data = text.encode("utf-8", "surrogateescape")
        at = 0
        for _ in range(_FINDINGS_ROUNDS):
            found = find_secrets(data[at:], is_json=is_json)
            for each in found:
                secret = data[at + each.start : at + each.end].decode("utf-8", "surrogateescape")
                self.found.setdefault(secret, Redacted(each.kind, each.masked, where))
                pieces = [secret] if "\n" not in secret else secret.splitlines()
                long = [piece.strip() for piece in pieces if len(piece.strip()) >= _PIECE_MIN_CHARS or len(pieces) == 1]
                self._pieces |= dict.fromkeys(long, each.kind)
            if not found:
                break
            at += found[-1].end
        self._pattern = None

    def clean(self, text: str) -> str:
        """The text without any secret that was found anywhere, or that is in it."""
        if self._pieces:
            if self._pattern is None:
                longest_first = sorted(self._pieces, key=len, reverse=True)
                self._pattern = re.compile("|".join(map(re.escape, longest_first)))
            text = self._pattern.sub(lambda match: f"[redacted {self._pieces[match[0]]}]", text)
        return redact(text)


def make_report(workspace: Workspace, session: str) -> Report:
    """Make the report of a session. NotFound if no checkpoint is of it."""
    page = workspace.turns(None, session=session)
    pairs = [(turn, summary) for turn, summary in zip(page.turns, page.summaries, strict=True)][::-1]
    if not any(turn.checkpoints for turn, _ in pairs):
        raise NotFound(f"no checkpoint is of session {session!r}", hint="The timeline and the list name the sessions.")
    redactor = Redactor()
    read = []
    later: list[Message] = []
    for turn, summary in reversed(pairs):  # newest first: of an older turn, more is in the conversation of the next
        whole = _saved_messages(workspace, redactor, turn)
        said = last_turn(Conversation(with_rest(whole, later), 0)).messages
        read.append((turn, summary, with_closing(said, turn.closing), _changes(workspace, turn)))
        later = whole or later
    read.reverse()
    for turn, _, said, changes in read:
        _look(workspace, redactor, turn, said, changes)
    turns = [_reported(workspace, redactor, *each) for each in read]
    css = package_files("holdfast.web").joinpath("static/page.css").read_text("utf-8")
    found = [each._replace(where=redactor.clean(each.where)) for each in redactor.found.values()]
    values = {
        "workspace": redactor.clean(workspace.path.name),
        "session": redactor.clean(session),
        "turns": turns,
        "figures": _figures(turns),
        "css": Markup(css),  # ours
        "first": pairs[0][0].when,
        "last": pairs[-1][0].when,
        "redacted": found,
    }
    html = Templates(ServerKeys(), read_only=True).text("report.html", values)
    return Report(html, len(turns), found)


def _saved_messages(workspace: Workspace, redactor: Redactor, turn: Turn) -> list[Message]:
    """All messages that were saved with a turn; redacted before they are cut, since half a secret is not recognized."""
    for each in turn.checkpoints:
        try:
            state = workspace.state(each.id, "conversation")
        except HoldfastError:
            continue
        plain = getattr(state, "form", state)
        if isinstance(plain, dict) and isinstance(plain.get("text"), str):
            redactor.look(plain["text"], "the conversation", is_json=True)
            plain = {**plain, "text": redactor.clean(plain["text"])}
        return read_conversation(plain, str(workspace.path)).messages
    return []


def _changes(workspace: Workspace, turn: Turn) -> list[Changes]:
    """What a turn changed, in rows of checkpoints, oldest first."""
    runs: list[list[Checkpoint]] = []
    for each in turn.checkpoints:
        if runs and runs[-1][-1].parent == each.id:
            runs[-1].append(each)
        else:
            runs.append([each])
    found = []
    for run in reversed(runs):
        base = workspace.shown_parent(run[-1])
        if base is not None:
            found.append(workspace.changes(base.id, run[0].id))
    return found


def _look(
    workspace: Workspace, redactor: Redactor, turn: Turn, said: Iterable[Message], changes: Iterable[Changes]
) -> None:
    redactor.look(turn.prompt, "a prompt")
    for checkpoint in turn.checkpoints:
        redactor.look(checkpoint.message, "a message")
    for each in said:
        redactor.look(each.text, "the conversation", is_json=each.role == "tool")
        redactor.look(each.title, "the conversation")
    for part in changes:
        for file in part.files:
            for ref, mode in ((part.from_id, file.mode_before), (part.to_id, file.mode_after)):
                if mode is not None and ref is not None:
                    redactor.look(_content(workspace, ref, file.path), file.path)


def _content(workspace: Workspace, ref: str, path: str) -> str:
    """A text that may be shown, or some of it; empty if it is none."""
    try:
        found = workspace.file(ref, path)
        if found.size_bytes is None or found.size_bytes > _FILE_MAX_BYTES:
            return (
                "" if found.size_bytes is None else next(iter(found.chunks()), b"").decode("utf-8", "surrogateescape")
            )
        return found.read().decode("utf-8", "surrogateescape")
    except HoldfastError:
        return ""


def _figures(turns: Iterable[ReportedTurn]) -> dict[str, int]:
    """What all turns add up to; a file that several changed counts once."""
    turns = list(turns)
    lines = [each.summary.lines for each in turns]
    return {
        "checkpoints": sum(len(each.turn.checkpoints) for each in turns),
        "files": len({file.path for each in turns for file in each.files}),
        "added": sum(each.added or 0 for each in lines),
        "removed": sum(each.removed or 0 for each in lines),
        "tools": sum(said.role == "tool" for each in turns for said in each.messages),
    }


def _reported(
    workspace: Workspace,
    redactor: Redactor,
    turn: Turn,
    summary: Summary,
    said: list[Message],
    changes: list[Changes],
) -> ReportedTurn:
    clean = redactor.clean
    files: list[FileView] = []
    for part in changes:
        files += view_changes(workspace, part, split=False, rows_max=_ROWS_MAX, clean=clean)
    files = [replace(each, path=clean(each.path)) for each in files]
    title = turn.prompt or (message(turn.checkpoints[0]) if turn.checkpoints else "")
    cleaned = [each._replace(text=clean(each.text), title=clean(each.title)) for each in said]
    who = "you" if turn.actor == USER else turn.actor
    untold = sum(not each.is_loaded for each in files)
    return ReportedTurn(clean(title) or "Saved", who, turn, summary, cleaned, files, untold)


def document(report: Report, file: str) -> dict[str, Any]:
    """What was made, as JSON."""
    return {"file": file, "turns": report.turns, "redacted": [each._asdict() for each in report.redacted]}
