"""A line of JSON for each saved checkpoint, if the environment asks for it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from holdfast.compat.codex_ml import files

_FLAG = "CODEX_EMIT_CHECKPOINT_JSON"


def toggle_checkpoint_json_logging(enable: bool | None = None) -> bool:
    """Turn the lines on or off for this process; without an argument, tell whether they are on."""
    if enable is not None:
        os.environ[_FLAG] = "1" if enable else "0"
    return os.environ.get(_FLAG, "0") == "1"


def maybe_emit_checkpoint_saved_event(
    path: str | os.PathLike[str],
    *,
    sha256: str | None = None,
    num_bytes: int | None = None,
    extra: Mapping[str, Any] | None = None,
    stream: IO[str] | None = None,
) -> bool:
    """Write the line of a saved checkpoint to stdout, if they are on; return whether it was written."""
    if not toggle_checkpoint_json_logging():
        return False
    place = Path(path)
    told: dict[str, Any] = {
        "event": "checkpoint_saved",
        "path": str(place),
        "bytes": place.stat().st_size if num_bytes is None else num_bytes,
        "sha256": sha256 or files.sha256_of(place),
        "ts": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "pid": os.getpid(),
    }
    out = stream or sys.stdout
    out.write(json.dumps(told | dict(extra or {}), separators=(",", ":")) + "\n")
    out.flush()
    return True
