"""The results of the tools: plain values, with every text escaped and every list and text of bounded length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any

from holdfast.escaping import escape, escape_path
from holdfast.model import Checkpoint, CheckpointDiff, LineCount, Match, Plan, Recovery, Restored, Uncovered
from holdfast.model.documents import check_word
from holdfast.workspace.secrets import SecretFinding
from holdfast.workspace.stored.history import Turn, turn_document

ENTRIES_MAX = 200
"""The most entries in one result."""
TEXT_MAX_CHARS = 20_000
"""The most characters of a diff in one result."""
_WORDS_MAX_CHARS = 500
_PAGE_MAX_CHARS = 100_000

Answer = dict[str, Any]


def words(text: str) -> str:
    """A message, a name or an excerpt: escaped and shortened."""
    shown = escape(text, keep="\n")
    return shown if len(shown) <= _WORDS_MAX_CHARS else shown[: _WORDS_MAX_CHARS - 1] + "…"


def page(items: Sequence[Answer], offset: int, limit: int) -> tuple[list[Answer], Answer]:
    """One page of the items, and where the next one starts. Long items make a page short, but never empty."""
    there: list[Answer] = []
    left = _PAGE_MAX_CHARS
    for item in items[offset : offset + limit]:
        left -= len(str(item))
        if left < 0 and there:
            break
        there.append(item)
    end = offset + len(there)
    return there, {"total": len(items), "next_offset": end if there and end < len(items) else None}


def checkpoint(value: Checkpoint) -> Answer:
    """One checkpoint, as in a list."""
    operation = value.operation
    return {
        "id": value.id,
        "message": words(value.message),
        "timestamp": value.timestamp.astimezone(UTC).isoformat(timespec="seconds"),
        "name": _words(value.name),
        "session": _words(value.session),
        "actor": _words(value.actor),
        "step": value.step,
        "parent": value.parent,
        "pinned": value.pinned,
        "check": check_word(value) or None,
        "complete": value.complete,
        "made_before": f"{words(operation.verb)} to {operation.target}" if operation else None,
    }


def turn(value: Turn) -> Answer:
    """What an agent did for one prompt."""
    return {name: words(each) if isinstance(each, str) else each for name, each in turn_document(value).items()}


def saved(value: Checkpoint, changed: int) -> Answer:
    """The result of a save, with the number of changed files; in `uncovered`, failures come first."""
    uncovered = sorted(value.uncovered, key=lambda entry: not entry.reason.is_failure)
    return {
        "checkpoint": checkpoint(value),
        "is_new": value.is_new,
        "files_changed": changed,
        "uncovered": [_uncovered(entry) for entry in uncovered[:ENTRIES_MAX]],
        "uncovered_total": len(uncovered),
    }


def diff(value: CheckpointDiff, *, offset: int, limit: int, text_offset: int) -> Answer:
    """What differs, path by path, and a part of the text."""
    changes, where = page(_changes(value), offset, limit)
    text = value.diff_content[text_offset : text_offset + TEXT_MAX_CHARS]
    end = text_offset + len(text)
    return {
        "from": value.from_id,
        "to": value.to_id,
        "changes": changes,
        **where,
        "text": escape(text, keep="\n\t"),
        "next_text_offset": end if text and end < len(value.diff_content) else None,
    }


def plan(value: Plan, *, offset: int, limit: int) -> Answer:
    """What a restore would do."""
    parts: dict[str, Iterable[str] | Mapping[str, str]] = {
        "blocked": value.blocked,
        "missing": value.missing,
        "removed": value.removed,
        "replaced": value.replaced,
        "written": value.written,
        "kept": value.kept,
        "retimed": value.retimed,
    }
    entries, where = page(_entries(parts), offset, limit)
    return {
        "checkpoint": value.checkpoint,
        "digest": value.digest,
        "counts": {name: len(list(paths)) for name, paths in parts.items()},
        "bytes_to_write": value.bytes_to_write,
        "entries": entries,
        **where,
    }


def restored(value: Restored) -> Answer:
    """What a restore did; failures first."""
    parts: dict[str, Iterable[str] | Mapping[str, str]] = {
        "failed": value.failed,
        "missing": value.missing,
        "removed": value.removed,
        "written": value.written,
        "kept": value.kept,
    }
    entries, where = page(_entries(parts), 0, ENTRIES_MAX)
    return {
        "checkpoint": value.checkpoint,
        "undo_id": value.undo_id,
        "ok": value.ok,
        "counts": {name: len(list(paths)) for name, paths in parts.items()},
        "entries": entries,
        "total": where["total"],
    }


def match(value: Match) -> Answer:
    """Where a text was found."""
    gone = value.disappeared_in
    return {
        "path": escape_path(value.path),
        "line": value.line,
        "excerpt": words(value.excerpt),
        "first": checkpoint(value.first),
        "last": checkpoint(value.last),
        "disappeared_in": checkpoint(gone) if gone else None,
        "in_folder": value.in_folder,
    }


def secret(value: SecretFinding) -> Answer:
    """Where a key or password is, and nothing of it but what all of its kind begin with."""
    return {
        "id": value.id,
        "kind": value.kind,
        "place": words(value.place) if value.path is None else f"{escape_path(value.path)}:{value.line}",
        "masked": words(value.masked),
        "checkpoint": value.checkpoint,
    }


def recovery(value: Recovery) -> str:
    """How an interrupted restore was resolved, in a sentence."""
    failed = f"; paths that failed: {len(value.failed):,}" if value.failed else ""
    found = f"what was found is saved in {value.found_id}" if value.found_id else "it had changed nothing"
    return f"An interrupted {words(value.verb)} to {value.target} was {value.outcome}{failed}; {found}."


def _words(text: str | None) -> str | None:
    return None if text is None else words(text)


def _uncovered(value: Uncovered) -> Answer:
    return {"path": escape_path(value.path), "reason": value.reason.value, "detail": words(value.detail)}


def _changes(value: CheckpointDiff) -> list[Answer]:
    old = {renamed.new: renamed.old for renamed in value.renamed_files}
    kinds = {
        "added": value.added_files,
        "modified": value.modified_files,
        "deleted": value.deleted_files,
        "renamed": list(old),
        "touched": value.touched_files,
        "folder": value.changed_folders,
        "uncompared": list(value.uncompared),
    }
    found = []
    for kind, paths in kinds.items():
        for path in paths:
            lines = value.line_counts.get(path, LineCount(None, None))
            change = {"path": escape_path(path), "change": kind, "lines_added": lines.added}
            change |= {"lines_removed": lines.removed, "old_path": escape_path(old[path]) if path in old else None}
            found.append(change | {"reason": _words(value.uncompared.get(path))})
    return found


def _entries(parts: Mapping[str, Iterable[str] | Mapping[str, str]]) -> list[Answer]:
    found = []
    for action, paths in parts.items():
        pairs = paths.items() if isinstance(paths, Mapping) else ((path, None) for path in paths)
        found += [{"action": action, "path": escape_path(path), "reason": _words(why)} for path, why in pairs]
    return found
