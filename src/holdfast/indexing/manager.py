"""The predecessor's manager: the checkpoints of one project's index in a folder.

A checkpoint is one file with a number in its name, written atomically (P3); the greatest number is the latest (P10).
The last ten stay, so that a damaged one does not lose the rest.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.digest import digest, digest_bytes
from holdfast.errors import Damaged, NotFound, Refused, Unavailable
from holdfast.indexing import settings as kinds
from holdfast.indexing.checkpoint import IndexingCheckpoint
from holdfast.indexing.fingerprint import CheckpointSettingsFingerprint
from holdfast.indexing.impact import ChangeImpact

KEPT = 10
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_FINGERPRINT = frozenset(CheckpointSettingsFingerprint.__slots__)


class CheckpointManager:
    """Saves and loads the checkpoints of one project, and checks whether an index fits other settings."""

    def __init__(self, project_path: str | Path, project_name: str, checkpoint_dir: str | Path) -> None:
        self.project_path = Path(project_path).resolve()
        self.project_name = project_name
        self.checkpoint_dir = Path(checkpoint_dir)
        safe = _UNSAFE.sub("-", project_name).strip(".-")[:80] or "project"
        mark = digest_bytes(os.fsencode(self.project_path) + b"\0" + project_name.encode("utf-8", "surrogatepass"))[:8]
        self._prefix = f"checkpoint_{safe}-{mark}"

    @property
    def checkpoint_file(self) -> Path:
        """The file of the latest checkpoint, or of the first one to come."""
        found = self._files()
        return found[-1] if found else self._numbered(1)

    @property
    def checkpoint_path(self) -> Path:
        return self.checkpoint_file

    async def save(self, checkpoint: IndexingCheckpoint) -> None:
        """Save a checkpoint with the current time. On an error nothing is changed."""
        await asyncio.to_thread(self._save, checkpoint)

    async def load(self) -> IndexingCheckpoint | None:
        """Return the latest checkpoint, or None. Damaged if it cannot be read: `history` has the older ones."""
        return await asyncio.to_thread(self._load)

    async def history(self) -> list[IndexingCheckpoint]:
        """Return the checkpoints that can be read, newest first."""
        return await asyncio.to_thread(self._history)

    async def delete(self) -> None:
        """Delete all checkpoints of this project."""
        await asyncio.to_thread(self._delete)

    def is_index_valid_for_config(
        self, checkpoint: IndexingCheckpoint, new_config: CheckpointSettingsFingerprint | Mapping[str, Any]
    ) -> tuple[bool, ChangeImpact]:
        """Return whether the index of a checkpoint is usable with another configuration, and the impact of the change.

        The old side is what the checkpoint contains. If both sides have settings, those that the fingerprint does not
        cover count, too: a semantic one means rechunking. Refused for an unknown key.
        """
        if checkpoint.fingerprint is None:
            raise NotFound("the checkpoint has no fingerprint", hint="Save it with fingerprint=….")
        old = make_fingerprint(checkpoint.fingerprint)
        if isinstance(new_config, Mapping):
            _refuse_unknown(new_config)
        new = new_config if isinstance(new_config, CheckpointSettingsFingerprint) else make_fingerprint(new_config)
        impact = new.is_compatible_with(old)[1]
        settings = new_config.get("settings") if isinstance(new_config, Mapping) else None
        if settings is not None and checkpoint.settings is not None:
            impact = max(impact, _of_indexer(checkpoint.settings["indexer"], settings.get("indexer", {})))
        return impact.usable, impact

    # files

    def _numbered(self, number: int) -> Path:
        return self.checkpoint_dir / f"{self._prefix}.{number:08}.json"

    def _files(self) -> list[Path]:
        pattern = re.compile(re.escape(self._prefix) + r"\.(\d{8,})\.json")
        try:
            found = [
                (int(match[1]), name) for name in os.listdir(self.checkpoint_dir) if (match := pattern.fullmatch(name))
            ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable(self.checkpoint_dir, error) from error
        return [self.checkpoint_dir / name for _, name in sorted(found)]

    def _save(self, checkpoint: IndexingCheckpoint) -> None:
        """Save; the rename is the commit point (P3). After a kill, old checkpoints may be left."""
        stamped = replace(checkpoint, last_checkpoint=datetime.now(UTC))
        text = stamped.to_dict()
        body = json.dumps(text | {"checksum": digest("checkpoint", text)}, indent=2, ensure_ascii=True)
        try:
            durable.make_folder(self.checkpoint_dir)
            with durable.Lock(self.checkpoint_dir / ".lock"):
                files = self._files()
                number = int(files[-1].suffixes[-2][1:]) + 1 if files else 1
                durable.write_atomically(self._numbered(number), body.encode())
                for old in files[: max(0, len(files) + 1 - KEPT)]:
                    durable.disk().unlink(str(old))
        except OSError as error:
            raise _unavailable(self.checkpoint_dir, error) from error
        checkpoint.last_checkpoint = stamped.last_checkpoint

    def _load(self) -> IndexingCheckpoint | None:
        files = self._files()
        return _read(files[-1]) if files else None

    def _history(self) -> list[IndexingCheckpoint]:
        found = []
        for path in reversed(self._files()):
            try:
                found.append(_read(path))
            except Damaged:
                continue
        return found

    def _delete(self) -> None:
        try:
            for path in self._files():
                durable.disk().unlink(str(path))
        except OSError as error:
            raise _unavailable(self.checkpoint_dir, error) from error


def make_fingerprint(values: Mapping[str, Any]) -> CheckpointSettingsFingerprint:
    """Make a fingerprint from plain values. Refused if a required one is missing."""
    known = {name: value for name, value in values.items() if name in _FINGERPRINT}
    known.setdefault("embedding_config_type", "asymmetric" if known.get("query_model") else "symmetric")
    for name in ("embed_model_family", "query_model", "sparse_model"):
        known.setdefault(name, None)
    known.setdefault("config_hash", digest({name: known[name] for name in sorted(known)}))
    missing = {"embed_model", "vector_store"} - known.keys()
    if missing:
        raise Refused(
            f"the configuration has no {min(missing)}", hint="A fingerprint needs embed_model and vector_store."
        )
    return CheckpointSettingsFingerprint(**known)


def _refuse_unknown(config: Mapping[str, Any]) -> None:
    """Refuse a key that would be ignored: a misspelt one would make every index look valid."""
    unknown = sorted(config.keys() - _FINGERPRINT - {"settings"})
    if unknown:
        keys = ", ".join(sorted(_FINGERPRINT | {"settings"}))
        raise Refused(f"unknown key {unknown[0]!r} in the configuration", hint=f"The keys are {keys}.")


def _of_indexer(old: Mapping[str, Any], new: Mapping[str, Any]) -> ChangeImpact:
    impact = ChangeImpact.NONE
    for change in kinds.changes(old, new):
        if change.kind is kinds.SettingKind.SEMANTIC:
            impact = max(impact, ChangeImpact.RECHUNK)
        elif change.kind is kinds.SettingKind.LAYOUT:
            impact = max(impact, ChangeImpact.LAYOUT)
        elif change.kind is kinds.SettingKind.QUERY:
            impact = max(impact, ChangeImpact.COMPATIBLE)
    return impact


def _read(path: Path) -> IndexingCheckpoint:
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise _unavailable(path, error) from error
    except ValueError as error:
        raise Damaged(f"{path} is not a checkpoint", hint="See history() for older ones.") from error
    if not isinstance(values, dict):
        raise Damaged(f"{path} is not a checkpoint", hint="See history() for older ones.")
    version = values.get("schema_version")
    checksum = values.pop("checksum", None)
    if not (isinstance(version, int) and version > 1) and checksum != digest("checkpoint", values):
        raise Damaged(f"{path} does not match its checksum", hint="See history() for older ones.")
    return IndexingCheckpoint.from_dict(values)


def _unavailable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"{path}: {error.strerror or error}", hint="Check the disk and the permissions there.")
