"""What the tools answer: the nouns as plain values, every text harmless, every list and text of bounded length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any

from holdfast.harmless import escape, escape_path
from holdfast.model import Checkpoint, CheckpointDiff, LineCount, Match, Plan, Recovery, Restored, Uncovered

ENTRIES_MAX = 200
"""The most entries in one answer."""
TEXT_MAX_CHARS = 20_000
"""The most characters of a diff in one answer."""
_WORDS_MAX_CHARS = 500
_PAGE_MAX_CHARS = 100_000

Answer = dict[str, Any]


def words(text: str) -> str:
    """A message, a name, an excerpt: harmless and not too long."""
    shown = escape(text, keep="\n")
    return shown if len(shown) <= _WORDS_MAX_CHARS else shown[: _WORDS_MAX_CHARS - 1] + "…"


def page(items: Sequence[Answer], offset: int, limit: int) -> tuple[list[Answer], Answer]:
    """Some of the items, and where the next ones begin. Long ones make a page short, but never empty."""
    there: list[Answer] = []
    room = _PAGE_MAX_CHARS
    for item in items[offset : offset + limit]:
        room -= len(str(item))
        if room < 0 and there:
            break
        there.append(item)
    end = offset + len(there)
    return there, {"total": len(items), "next_offset": end if there and end < len(items) else None}


def checkpoint(noun: Checkpoint) -> Answer:
    """One checkpoint, as it is listed."""
    operation = noun.operation
    return {
        "id": noun.id,
        "message": words(noun.message),
        "timestamp": noun.timestamp.astimezone(UTC).isoformat(timespec="seconds"),
        "name": _words(noun.name),
        "session": _words(noun.session),
        "actor": _words(noun.actor),
        "step": noun.step,
        "parent": noun.parent,
        "pinned": noun.pinned,
        "complete": noun.complete,
        "made_before": f"{words(operation.verb)} to {operation.target}" if operation else None,
    }


def saved(noun: Checkpoint, *, is_new: bool) -> Answer:
    """What a save made; of what it does not hold, first what it should."""
    uncovered = sorted(noun.uncovered, key=lambda entry: not entry.reason.is_failure)
    return {
        "checkpoint": checkpoint(noun),
        "is_new": is_new,
        "files_changed": len(noun.files_changed),
        "uncovered": [_uncovered(entry) for entry in uncovered[:ENTRIES_MAX]],
        "uncovered_total": len(uncovered),
    }


def diff(noun: CheckpointDiff, *, offset: int, limit: int, text_offset: int) -> Answer:
    """What differs, path by path, and some of the text of it."""
    changes, where = page(_changes(noun), offset, limit)
    text = noun.diff_content[text_offset : text_offset + TEXT_MAX_CHARS]
    end = text_offset + len(text)
    return {
        "from": noun.from_id,
        "to": noun.to_id,
        "changes": changes,
        **where,
        "text": escape(text, keep="\n\t"),
        "next_text_offset": end if text and end < len(noun.diff_content) else None,
    }


def plan(noun: Plan, *, offset: int, limit: int) -> Answer:
    """What a restore would do."""
    parts: dict[str, Iterable[str] | Mapping[str, str]] = {
        "blocked": noun.blocked,
        "missing": noun.missing,
        "removed": noun.removed,
        "replaced": noun.replaced,
        "written": noun.written,
        "kept": noun.kept,
        "retimed": noun.retimed,
    }
    entries, where = page(_entries(parts), offset, limit)
    return {
        "checkpoint": noun.checkpoint,
        "digest": noun.digest,
        "counts": {name: len(list(paths)) for name, paths in parts.items()},
        "bytes_to_write": noun.bytes_to_write,
        "entries": entries,
        **where,
    }


def restored(noun: Restored) -> Answer:
    """What a restore did; first what it could not."""
    parts: dict[str, Iterable[str] | Mapping[str, str]] = {
        "failed": noun.failed,
        "missing": noun.missing,
        "removed": noun.removed,
        "written": noun.written,
        "kept": noun.kept,
    }
    entries, where = page(_entries(parts), 0, ENTRIES_MAX)
    return {
        "checkpoint": noun.checkpoint,
        "undo_id": noun.undo_id,
        "ok": noun.ok,
        "counts": {name: len(list(paths)) for name, paths in parts.items()},
        "entries": entries,
        "total": where["total"],
    }


def match(noun: Match) -> Answer:
    """Where a text was found."""
    gone = noun.disappeared_in
    return {
        "path": escape_path(noun.path),
        "line": noun.line,
        "excerpt": words(noun.excerpt),
        "first": checkpoint(noun.first),
        "last": checkpoint(noun.last),
        "disappeared_in": checkpoint(gone) if gone else None,
    }


def recovery(noun: Recovery) -> str:
    """How an interrupted restore was dealt with, in a sentence."""
    failed = f"; paths that failed: {len(noun.failed):,}" if noun.failed else ""
    found = f"what was found is kept in {noun.found_id}" if noun.found_id else "it had changed nothing"
    return f"An interrupted {words(noun.verb)} to {noun.target} was {noun.outcome}{failed}; {found}."


def _words(text: str | None) -> str | None:
    return None if text is None else words(text)


def _uncovered(noun: Uncovered) -> Answer:
    return {"path": escape_path(noun.path), "reason": noun.reason.value, "detail": words(noun.detail)}


def _changes(noun: CheckpointDiff) -> list[Answer]:
    old = {renamed.new: renamed.old for renamed in noun.renamed_files}
    kinds = {
        "added": noun.added_files,
        "modified": noun.modified_files,
        "deleted": noun.deleted_files,
        "renamed": list(old),
        "touched": noun.touched_files,
        "folder": noun.changed_folders,
        "uncompared": list(noun.uncompared),
    }
    found = []
    for kind, paths in kinds.items():
        for path in paths:
            lines = noun.line_counts.get(path, LineCount(None, None))
            change = {"path": escape_path(path), "change": kind, "lines_added": lines.added}
            change |= {"lines_removed": lines.removed, "old_path": escape_path(old[path]) if path in old else None}
            found.append(change | {"reason": _words(noun.uncompared.get(path))})
    return found


def _entries(parts: Mapping[str, Iterable[str] | Mapping[str, str]]) -> list[Answer]:
    found = []
    for action, paths in parts.items():
        pairs = paths.items() if isinstance(paths, Mapping) else ((path, None) for path in paths)
        found += [{"action": action, "path": escape_path(path), "reason": _words(why)} for path, why in pairs]
    return found
