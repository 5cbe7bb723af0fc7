"""`python -m holdfast.compat.codex_ml.cli.checkpoint_validate validate PATH`: is a checkpoint intact?"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.compat.codex_ml import core, files
from holdfast.compat.deprecation import deprecate

__all__ = ["CheckpointValidationError", "main", "validate_checkpoint"]


class CheckpointValidationError(RuntimeError):
    """A checkpoint is not valid."""


def validate_checkpoint(
    path: str | os.PathLike[str], *, expect_schema: str | None = None, require_digest: bool = True
) -> Mapping[str, Any]:
    """Return the metadata of a folder, or of its metadata file, if the state in it has the recorded digest."""
    target = Path(path).expanduser()
    if not target.exists():
        raise CheckpointValidationError(f"path does not exist: {target}")
    if target.is_file() and target.suffix != ".json":
        raise CheckpointValidationError(f"unsupported file type: {target}")
    metadata = target / "metadata.json" if target.is_dir() else target
    try:
        told = files.read_json(metadata)
    except FileNotFoundError:
        raise CheckpointValidationError(f"missing metadata: {metadata}") from None
    except ValueError as error:
        raise CheckpointValidationError(f"metadata is not valid JSON: {metadata}: {error}") from None
    if not isinstance(told, dict):
        raise CheckpointValidationError(f"metadata must be a JSON object: {metadata}")
    schema = str(told.get("schema_version", ""))
    if expect_schema is not None and schema != expect_schema:
        raise CheckpointValidationError(f"schema mismatch: expected {expect_schema!r} but found {schema!r}")
    if target.is_file():
        return told
    state = next((target / name for name in ("state.pt", "weights.pt") if (target / name).exists()), None)
    if state is None:
        raise CheckpointValidationError(f"missing checkpoint payload in {target}")
    expected = core.recorded_digests(target)
    if require_digest and expected and (actual := files.sha256_of(state)) not in expected:
        raise CheckpointValidationError(f"state.sha256 mismatch: expected {min(expected)!r} but found {actual!r}")
    return {**told, "checkpoint": str(state)}


def main(argv: Sequence[str] | None = None) -> int:
    """Validate a checkpoint; return the exit status: 2 if it is not valid."""
    parser = argparse.ArgumentParser(prog="codex-checkpoint", description="Validate a checkpoint.")
    parser.add_argument("command", choices=["validate"])
    parser.add_argument("path", type=Path)
    parser.add_argument("--schema", default=None, help="the version of the schema that is expected")
    parser.add_argument("--show", action="store_true", help="print the metadata")
    chosen = parser.parse_args(argv)
    try:
        told = validate_checkpoint(chosen.path, expect_schema=chosen.schema or None)
    except CheckpointValidationError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(dict(told), indent=2, sort_keys=True) if chosen.show else f"OK: {chosen.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

deprecate(
    __name__,
    {
        "CheckpointValidationError": "holdfast.Damaged",
        "main": "holdfast.cli.start.main (or `holdfast verify`)",
        "validate_checkpoint": "holdfast.training.CheckpointManager and its verify()",
    },
)
