"""`codex_ml.checkpointing.atomic_io`: bytes, written in one step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from holdfast.compat.codex_ml import files
from holdfast.compat.deprecation import deprecate

__all__ = ["atomic_write_bytes", "atomic_write_fileobj", "file_sha256"]


def file_sha256(path: str | os.PathLike[str], chunk_size: int = 1 << 20) -> str:
    """Return the SHA-256 of a file."""
    return files.sha256_of(Path(path).expanduser())


def atomic_write_bytes(dest: str | os.PathLike[str], data: bytes) -> Path:
    """Replace a file in one step; return it."""
    place = Path(dest).expanduser()
    files.make_folder(place.parent)
    files.write_bytes(place, data)
    return place


def atomic_write_fileobj(dest: str | os.PathLike[str], src: BinaryIO, chunk_size: int = 1 << 20) -> Path:
    """Replace a file in one step with what an open file has; return it."""
    place = Path(dest).expanduser()
    files.make_folder(place.parent)

    def copy(out: BinaryIO) -> None:
        while piece := src.read(chunk_size):
            out.write(piece)

    with files.staged(place, copy):
        pass
    return place


deprecate(
    __name__,
    {
        "atomic_write_bytes": "holdfast.durable.write_atomically",
        "atomic_write_fileobj": "holdfast.durable.write_atomically",
        "file_sha256": "hashlib.file_digest",
    },
)
