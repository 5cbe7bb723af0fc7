"""Markers (`last`, `best.json`): their format, and how to tell ours from files of other programs."""

from __future__ import annotations

import json
from typing import Any

from holdfast.errors import Refused
from holdfast.training.stored.layout import KIND, SCHEMA_VERSION, check_schema

FOREIGN = "was not written by Holdfast"


def encode(about: dict[str, Any]) -> bytes:
    """Return a marker as it is stored."""
    return json.dumps({"schema_version": SCHEMA_VERSION, "kind": KIND, **about}, indent=2).encode() + b"\n"


def decode(data: bytes, where: str) -> dict[str, Any] | None:
    """Return the content of a marker; None if it is not ours. Refused if a newer version wrote it."""
    found = _parsed(data)
    if found is not None:
        check_schema(found.get("schema_version", 1), where)
    return found


def is_ours(data: bytes) -> bool:
    """Whether Holdfast wrote it. Markers are replaced atomically, so ours are never half written (P3)."""
    return _parsed(data) is not None


def refuse(path: Any) -> Refused:
    """Return the error for a name that another program uses (P1)."""
    hint = f"Move it away, or pass adopt=True: it is then kept as {path.name}.replaced-1."
    return Refused(f"{path} {FOREIGN}", hint=hint)


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("kind") == KIND else None
