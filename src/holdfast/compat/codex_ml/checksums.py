"""`checksums.json`: the digests of the files in a folder, the newest also under the names that codex_ml gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import files
from holdfast.compat.codex_ml.core import SCHEMA_VERSION

NAME = "checksums.json"


def record(path: Path, sha256: str, n_bytes: int) -> None:
    """Record the digest that a file is about to have; the one that it has now stays valid, too (P3)."""
    known = {name: each for name, each in _known(path.parent).items() if (path.parent / name).exists()}
    before = known.get(path.name, {}).get("sha256")
    known[path.name] = {"sha256": sha256, "bytes": n_bytes} | ({"before": before} if before else {})
    newest = {"schema_version": SCHEMA_VERSION, "file": path.name, "sha256": sha256, "bytes": n_bytes}
    files.write_json(path.parent / NAME, newest | {"files": known})


def is_intact(path: Path) -> bool | None:
    """Whether a file has a digest that was recorded; None if none was."""
    known = _known(path.parent).get(path.name)
    return None if known is None else files.sha256_of(path) in (known.get("sha256"), known.get("before"))


def _known(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what is recorded of each file; codex_ml itself records only the newest."""
    told = files.read_json_or(folder / NAME, {})
    known = told.get("files")
    if isinstance(known, dict):
        return {name: each for name, each in known.items() if isinstance(each, dict)}
    return {told["file"]: told} if isinstance(told.get("file"), str) else {}
