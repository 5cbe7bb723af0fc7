"""Copies of checkpoints in another place, by fsspec."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from holdfast.compat.codex_ml import files

STATES = ("state.pt", "state.json", "state.pkl")
"""The files by which a folder is recognised as a checkpoint; the last one is written by codex_ml only."""


@runtime_checkable
class StorageProvider(Protocol):
    """What a manager asks of a place for copies."""

    def upload_directory(self, local_path: Path, remote_path: str) -> None:
        """Copy a folder there."""

    def download_directory(self, remote_path: str, local_path: Path) -> None:
        """Copy a folder from there."""

    def iter_checkpoints(self, prefix: str) -> Iterable[str]:
        """Return the folders with checkpoints below a prefix."""


class FSSpecStorage:
    """Copies in any file system of fsspec."""

    def __init__(self, base_url: str, create: bool = True) -> None:
        try:
            import fsspec  # an optional package, only for this class
        except ImportError as error:
            raise RuntimeError("fsspec is required to use the FSSpecStorage backend") from error
        self.base_url = base_url
        self.create = create
        self._fs: Any
        self._fs, path = fsspec.core.url_to_fs(base_url)
        self._root = path.rstrip("/")
        if create and not self._fs.exists(self._root):
            self._fs.makedirs(self._root, exist_ok=True)

    def upload_directory(self, local_path: Path, remote_path: str) -> None:
        """Copy a folder. Its state comes last, so that a copy cut short is not taken for a checkpoint."""
        paths = sorted(path for path in Path(local_path).rglob("*") if path.is_file() and path.name != ".lock")
        for path in sorted(paths, key=lambda path: path.name in STATES):
            target = self._join(remote_path, path.relative_to(local_path).as_posix())
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            with path.open("rb") as source, self._fs.open(target, "wb") as copy:
                while piece := source.read(1 << 20):
                    copy.write(piece)

    def download_directory(self, remote_path: str, local_path: Path) -> None:
        """Copy a folder from there. It is in its place when all of it has come (P3)."""
        base = self._join(remote_path)
        if not self._fs.exists(base):
            raise FileNotFoundError(f"Remote checkpoint path not found: {remote_path}")
        target = Path(local_path)
        for entry in sorted(self._fs.find(base), key=lambda entry: entry.rpartition("/")[2] in STATES):
            path = target / entry[len(base) :].lstrip("/")
            files.make_folder(path.parent)
            with self._fs.open(entry, "rb") as source:
                files.write_bytes(path, source.read())

    def iter_checkpoints(self, prefix: str) -> Iterable[str]:
        """Return the folders below a prefix that have a state, sorted."""
        base = self._join(prefix)
        if not self._fs.exists(base):
            return []
        found = []
        for entry in self._fs.ls(base, detail=True):
            path = entry["name"]
            if entry["type"].startswith("d") and any(self._fs.exists(f"{path}/{name}") for name in STATES):
                found.append(path[len(self._root) :].lstrip("/"))
        return sorted(found)

    def _join(self, *parts: str) -> str:
        return "/".join([self._root, *(part.strip("/") for part in parts if part.strip("/"))])
