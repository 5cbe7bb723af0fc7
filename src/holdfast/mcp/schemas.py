"""The JSON schemas of the tools' arguments and results."""

from __future__ import annotations

from typing import Any

from holdfast.mcp.results import ENTRIES_MAX

Schema = dict[str, Any]

PATHS_MAX = 1000
_PATH_MAX_CHARS = 20_000  # the longest path, if every byte of it is escaped


def takes(*required: str, **fields: Schema) -> Schema:
    """An object with these fields and no others; those named first are required."""
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


def gives(**fields: Schema) -> Schema:
    """An object with all these fields, and notes."""
    return takes(*fields, "notes", **fields, notes=several(TEXT, "Warnings and other remarks."))


def text(says: str, max_chars: int = 200) -> Schema:
    return {"type": "string", "maxLength": max_chars, "description": says}


def number(says: str, default: int, *, least: int = 0, most: int = 10**9) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default, "description": says}


def flag(says: str) -> Schema:
    return {"type": "boolean", "default": False, "description": says}


def several(item: Schema, says: str) -> Schema:
    return {"type": "array", "items": item, "description": says}


def maybe(schema: Schema) -> Schema:
    return schema | {"type": [schema["type"], "null"]}


TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TRUTH: Schema = {"type": "boolean"}

REF = text("A checkpoint: its id, a unique prefix of it, its name, `latest`, `latest~2` or `last-green`.")
PATHS: Schema = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": _PATH_MAX_CHARS},
    "minItems": 1,
    "maxItems": PATHS_MAX,
    "description": "Only these files, folders or git pathspecs (*.env, :!docs), written as results show them.",
}
OFFSET = number("How many to skip: `next_offset` of the previous result.", 0)
LIMIT = number("Maximum number of results.", 100, least=1, most=ENTRIES_MAX)
KEEP_NEW = flag("Keep files that were created since the checkpoint.")
NEXT = maybe(COUNT) | {"description": "Where the next page starts; null on the last."}

CHECKPOINT = takes(
    "id", "message", "timestamp", "name", "session", "actor", "step", "parent", "pinned", "check",
    "complete", "made_before",
    id=TEXT, message=TEXT, timestamp=TEXT, name=maybe(TEXT), session=maybe(TEXT), actor=maybe(TEXT),
    step=maybe({"type": "integer"}), parent=maybe(TEXT), pinned=TRUTH, complete=TRUTH,
    check=maybe(TEXT) | {"description": "green or red, if the project's check command was run on it."},
    made_before=maybe(TEXT) | {"description": "Set if a restore saved it, before it replaced files."},
)  # fmt: skip
_ENTRY = takes("action", "path", "reason", action=TEXT, path=TEXT, reason=maybe(TEXT))
_COUNTS: Schema = {"type": "object", "additionalProperties": COUNT, "description": "How many paths of each action."}
_CHANGE = takes(
    "path", "change", "lines_added", "lines_removed", "old_path", "reason",
    path=TEXT, change=TEXT, lines_added=maybe(COUNT), lines_removed=maybe(COUNT), old_path=maybe(TEXT),
    reason=maybe(TEXT),
)  # fmt: skip
_UNCOVERED = takes("path", "reason", "detail", path=TEXT, reason=TEXT, detail=TEXT)
_MATCH = takes(
    "path", "line", "excerpt", "first", "last", "disappeared_in", "in_folder",
    path=TEXT, line=COUNT, excerpt=TEXT, first=CHECKPOINT, last=CHECKPOINT, disappeared_in=maybe(CHECKPOINT),
    in_folder=maybe({"type": "boolean"}) | {"description": "Whether the file in the workspace has it now."},
)  # fmt: skip

SAVED = gives(
    checkpoint=CHECKPOINT,
    is_new=TRUTH | {"description": "False if a checkpoint with this content existed already."},
    files_changed=COUNT,
    uncovered=several(_UNCOVERED, "What it does not contain; failures first."),
    uncovered_total=COUNT,
)
_TURN = takes(
    "number", "actor", "session", "turn", "prompt", "closing", "began", "checkpoints",
    number=maybe(COUNT), actor=TEXT, session=maybe(TEXT), turn={}, prompt=maybe(TEXT),
    closing=maybe(TEXT) | {"description": "What the agent said at the end."}, began=maybe(TEXT),
    checkpoints=several(TEXT, "Their ids, newest first; none if it changed nothing."),
)  # fmt: skip
LISTED = gives(
    checkpoints=several(CHECKPOINT, "Newest first."),
    turns=several(_TURN, "The turns of agents on this page, newest first: what one did for one prompt."),
    next_before=maybe(TEXT),
)
DIFF = gives(**{
    "from": TEXT, "to": maybe(TEXT) | {"description": "Null: the current folder."},
    "changes": several(_CHANGE, "Path by path."), "total": COUNT, "next_offset": NEXT,
    "text": TEXT | {"description": "A unified diff, or a part of it."}, "next_text_offset": NEXT,
})  # fmt: skip
PLAN = gives(
    checkpoint=TEXT,
    digest=TEXT | {"description": "Pass it to checkpoint_restore. It changes when the folder changes."},
    counts=_COUNTS,
    bytes_to_write=COUNT,
    entries=several(_ENTRY, "Path by path."),
    total=COUNT,
    next_offset=NEXT,
)
RESTORED = gives(
    checkpoint=TEXT,
    undo_id=TEXT | {"description": "The safety checkpoint of the files before."},
    ok=TRUTH | {"description": "False if a path failed."},
    counts=_COUNTS,
    entries=several(_ENTRY, "Path by path, failures first; not all if there are many."),
    total=COUNT,
)
FOUND = gives(matches=several(_MATCH, "By path."), total=COUNT, next_offset=NEXT)
_SECRET = takes(
    "id", "kind", "place", "masked", "checkpoint",
    id=TEXT, kind=TEXT, place=TEXT | {"description": "A file with its line, or a saved state."}, masked=TEXT,
    checkpoint=TEXT | {"description": "The first one that has it."},
)  # fmt: skip
SECRETS = gives(
    secrets=several(_SECRET, "Where keys and passwords are; never what they are."),
    skipped=several(TEXT, "Files that are too large to be scanned."),
    total=COUNT,
    next_offset=NEXT,
)
