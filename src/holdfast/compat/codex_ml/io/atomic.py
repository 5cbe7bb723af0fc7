"""`codex_ml.io.atomic`: JSON and text, written in one step."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import files
from holdfast.compat.deprecation import deprecate

__all__ = ["atomic_write_json", "atomic_write_text", "canonical_json_dumps"]


def canonical_json_dumps(obj: Any) -> str:
    """Return JSON that is the same for the same value. ValueError for NaN and infinity."""
    return json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def atomic_write_text(path: str | os.PathLike[str], data: str, encoding: str = "utf-8") -> None:
    """Replace a file in one step."""
    place = Path(path).expanduser()
    files.make_folder(place.parent)
    files.write_bytes(place, data.encode(encoding))


def atomic_write_json(path: str | os.PathLike[str], obj: Any) -> None:
    """Replace a file with canonical JSON in one step."""
    atomic_write_text(path, canonical_json_dumps(obj))


deprecate(
    __name__,
    {
        "atomic_write_json": "holdfast.durable.write_atomically",
        "atomic_write_text": "holdfast.durable.write_atomically",
        "canonical_json_dumps": "json.dumps",
    },
)
