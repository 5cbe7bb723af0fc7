"""A state as `weights.pt` with `metadata.json` beside it: what `checkpointing.checkpoint_core` does."""

from __future__ import annotations

import os
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import checksums, files, payload

SCHEMA_VERSION = "2.0"


def save_checkpoint(
    out_dir: str | os.PathLike[str], *, state: dict[str, Any], meta: dict[str, Any], keep_last_k: int = 5
) -> str:
    """Save a state and its metadata durably; return the folder. `keep_last_k` removes nothing, as in codex_ml."""
    folder = Path(out_dir).expanduser()
    told = {"_schema_version": SCHEMA_VERSION, "_created_at": datetime.now(UTC).isoformat()}
    weights = folder / "weights.pt"
    body = told | {"state": state}
    with files.locked(folder):
        with files.staged(weights, lambda out: payload.write(body, out, use_torch=payload.has_torch())) as new:
            checksums.record(weights, new.sha256, new.n_bytes)
        files.write_json(folder / "metadata.json", meta | told)
    return os.fspath(folder)


def load_checkpoint(path: str | os.PathLike[str], map_location: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state and the metadata of a folder, or of its `weights.pt`. Nothing is unpickled (P7)."""
    place = Path(path).expanduser()
    weights = place / "weights.pt" if place.is_dir() else place
    if checksums.is_intact(weights) is False:
        raise RuntimeError(f"checkpoint checksum mismatch: {weights}")
    body = payload.read(weights, map_location=map_location)
    version = body.get("_schema_version", body.get("schema_version", "1.0"))
    if version != SCHEMA_VERSION:
        warnings.warn(
            f"Loading checkpoint with schema v{version}, current schema is v{SCHEMA_VERSION}.",
            UserWarning,
            stacklevel=2,
        )
    return body.get("state", body), files.read_json_or(weights.parent / "metadata.json", {})
