"""`codex_ml.checkpointing.schema_v2`: manifests as canonical JSON, with a digest."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import files
from holdfast.compat.deprecation import deprecate

CANON_SEPARATORS = (",", ":")
SCHEMA_ID = "codex.checkpoint.v2"
_FLAT = ("run_id", "step", "epoch", "created_utc")


@dataclass
class CheckpointMetaV2:
    """A manifest in the flat form."""

    run_id: str
    step: int
    epoch: int
    created_utc: float
    notes: str | None = None
    extra: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the values that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def to_canonical_bytes(obj: Any) -> bytes:
    """Return JSON that is the same for the same value. ValueError for NaN and infinity."""
    return json.dumps(obj, sort_keys=True, separators=CANON_SEPARATORS, ensure_ascii=False, allow_nan=False).encode()


def sha256_hexdigest(data: bytes) -> str:
    """Return the SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def compute_manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Return the digest of a manifest."""
    return sha256_hexdigest(to_canonical_bytes(manifest))


digest = compute_manifest_digest


def validate_manifest(manifest: Any) -> list[str]:
    """Return what is wrong with a manifest, in the flat form or with blocks; an empty list if nothing is."""
    if not isinstance(manifest, Mapping):
        return ["manifest must be a mapping"]
    problems = ["unsupported schema"] if manifest.get("schema", SCHEMA_ID) != SCHEMA_ID else []
    run = manifest.get("run")
    if run is None:
        problems += [f"missing field: {name}" for name in _FLAT if name not in manifest]
        problems += [f"{name} must be int" for name in ("step", "epoch") if not isinstance(manifest.get(name, 0), int)]
        if not isinstance(manifest.get("created_utc", 0), int | float):
            problems.append("created_utc must be number (UTC seconds)")
    elif not isinstance(run, Mapping):
        problems.append("run must be a mapping")
    elif "id" not in run:
        problems.append("missing field: run.id")
    if not isinstance(manifest.get("weights", {}), Mapping):
        problems.append("weights must be a mapping when provided")
    return problems


def is_v2(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest says that it is of this schema."""
    return manifest.get("schema") == SCHEMA_ID


def to_dict(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with the schema's name."""
    return {"schema": SCHEMA_ID, **manifest}


def from_dict(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with the schema's name. ValueError if something is wrong with it."""
    found = to_dict(manifest)
    if problems := validate_manifest(found):
        raise ValueError("; ".join(problems))
    return found


def upgrade_from_v1(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest of the earlier form in this one."""
    meta = manifest.get("meta", {})
    run = {"id": meta.get("id", "unknown"), "created_at": meta.get("created_at", "")}
    return {
        "schema": SCHEMA_ID, "run": run | {"framework": meta.get("framework", "unknown")},
        "weights": manifest.get("weights", {}), "optimizer": manifest.get("optimizer", {}),
        "notes": manifest.get("notes"),
    }  # fmt: skip


def new_manifest(run_id: str, step: int, epoch: int, notes: str | None = None) -> dict[str, Any]:
    """Return a manifest of now, with its digest."""
    made = CheckpointMetaV2(run_id, step, epoch, time.time(), notes).to_dict()
    return made | {"digest": compute_manifest_digest(made)}


def load_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the JSON of a file."""
    found: dict[str, Any] = files.read_json(Path(path).expanduser())
    return found


def write_manifest_json(path: str | os.PathLike[str], manifest: Mapping[str, Any]) -> Path:
    """Replace a file with a manifest in one step; return it."""
    place = Path(path).expanduser()
    files.make_folder(place.parent)
    files.write_bytes(place, to_canonical_bytes(manifest))
    return place


_NEW = "holdfast.training.save_checkpoint (it writes a manifest)"
deprecate(
    __name__,
    dict.fromkeys(
        (
            "CANON_SEPARATORS", "SCHEMA_ID", "CheckpointMetaV2", "to_canonical_bytes", "sha256_hexdigest",
            "compute_manifest_digest", "digest", "validate_manifest", "is_v2", "to_dict", "from_dict",
            "upgrade_from_v1", "new_manifest", "load_json", "write_manifest_json",
        ),
        _NEW,
    ),
)  # fmt: skip
