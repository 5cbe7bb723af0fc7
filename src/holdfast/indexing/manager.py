"""The predecessor's manager: the checkpoints of one project's index in a folder.

A checkpoint is one file with a number in its name, written atomically (P3); the greatest number is the latest (P10).
The last ten stay, so that a damaged one does not lose the rest.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.digest import digest, digest_bytes
from holdfast.durable.aio import in_thread
from holdfast.errors import Damaged, NotFound, Refused, Unavailable
from holdfast.indexing import settings as kinds
from holdfast.indexing.checkpoint import CheckpointSettingsMap, IndexingCheckpoint, settings_hash
from holdfast.indexing.fingerprint import CheckpointSettingsFingerprint, of_datatype, of_dimension
from holdfast.indexing.impact import ChangeImpact
from holdfast.validation import check_mapping, check_place, checked_options

KEPT = 10
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_FINGERPRINT = frozenset(CheckpointSettingsFingerprint.__slots__)
_SETTINGS = frozenset(CheckpointSettingsMap.__annotations__)
_PROVIDERS = ("embedding_provider", "sparse_provider", "vector_store")
_BY_KIND = {
    kinds.SettingKind.LAYOUT: ChangeImpact.LAYOUT,
    kinds.SettingKind.QUERY: ChangeImpact.COMPATIBLE,
    kinds.SettingKind.OPERATIONAL: ChangeImpact.NONE,
}


@checked_options
class CheckpointManager:
    """Saves and loads the checkpoints of one project, and checks whether an index fits other settings."""

    def __init__(self, project_path: str | Path, project_name: str, checkpoint_dir: str | Path) -> None:
        self.project_path = Path(check_place(project_path, "project_path")).resolve()
        self.project_name = project_name
        self.checkpoint_dir = Path(check_place(checkpoint_dir, "checkpoint_dir"))
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
        """The file of the checkpoint."""
        return self.checkpoint_file

    async def save(self, checkpoint: IndexingCheckpoint) -> None:
        """Save a checkpoint with the current time. On an error nothing is changed."""
        await in_thread(partial(self._save, checkpoint))

    async def load(self) -> IndexingCheckpoint | None:
        """Return the latest checkpoint, or None. Damaged if it cannot be read: `history` has the older ones."""
        return await in_thread(self._load)

    async def history(self) -> list[IndexingCheckpoint]:
        """Return the checkpoints that can be read, newest first."""
        return await in_thread(self._history)

    async def delete(self) -> None:
        """Delete all checkpoints of this project."""
        await in_thread(self._delete)

    def is_index_valid_for_config(
        self, checkpoint: IndexingCheckpoint, new_config: CheckpointSettingsFingerprint | Mapping[str, Any]
    ) -> tuple[bool, ChangeImpact]:
        """Return whether the index of a checkpoint is usable with another configuration, and the impact of the change.

        `new_config` is a fingerprint, the values of one (with `settings`, the new settings map, if you have it), or a
        settings map. The old side is what the checkpoint contains, never the current configuration. Settings are
        compared as far as both sides have them, and the greatest impact counts: it is NONE only if `matches_settings`
        is True of the same settings. Refused for an unknown key; NotFound if there is nothing to compare with.
        """
        new = _NewConfig.of(new_config)
        impacts = []
        if new.fingerprint is not None and checkpoint.fingerprint is not None:
            impacts.append(_of_fingerprint(new, new.fingerprint, checkpoint, checkpoint.fingerprint))
        if new.settings is not None:
            impacts.append(_of_settings(new, checkpoint))
        if not impacts:
            what = "fingerprint" if new.settings is None else "settings"
            raise NotFound(f"the checkpoint has no {what}", hint=f"Save it with {what}=….")
        impact = max(impacts)
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

    def add(self, checkpoint: IndexingCheckpoint) -> None:
        """Save a checkpoint that another program saved before, with the time that it has."""
        self._write(checkpoint)

    def stored(self) -> list[IndexingCheckpoint]:
        """Return what `history` does, without an event loop."""
        return self._history()

    def _save(self, checkpoint: IndexingCheckpoint) -> None:
        stamped = replace(checkpoint, last_checkpoint=datetime.now(UTC))
        self._write(stamped)
        checkpoint.last_checkpoint = stamped.last_checkpoint

    def _write(self, checkpoint: IndexingCheckpoint) -> None:
        """Write a file; the rename is the commit point (P3). After a kill, old checkpoints may be left.

        Refused if it could not be read again: nobody could load that checkpoint (P1).
        """
        text = checkpoint.to_dict()
        body = json.dumps(text | {"checksum": digest("checkpoint", text)}, indent=2, ensure_ascii=True).encode()
        try:
            _parse(body, self.checkpoint_dir)
        except (Damaged, Refused) as error:
            raise Refused(f"the checkpoint cannot be stored: {error.message}", hint="Nothing was stored.") from None
        try:
            durable.make_folder(self.checkpoint_dir)
            with durable.Lock(self.checkpoint_dir / ".lock"):
                files = self._files()
                number = int(files[-1].suffixes[-2][1:]) + 1 if files else 1
                durable.write_atomically(self._numbered(number), body)
                for old in files[: max(0, len(files) + 1 - KEPT)]:
                    durable.disk().unlink(str(old))
        except OSError as error:
            raise _unavailable(self.checkpoint_dir, error) from error

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


def stored_fingerprint(values: Mapping[str, Any]) -> CheckpointSettingsFingerprint:
    """Make a fingerprint from stored values. `query_model` was not required once: then the model was the same."""
    is_old = values.get("embedding_config_type") == "asymmetric" and not values.get("query_model")
    return make_fingerprint({**values, "query_model": values.get("embed_model")} if is_old else values)


@dataclass(frozen=True, slots=True)
class _NewConfig:
    """A configuration to check an index against."""

    fingerprint: CheckpointSettingsFingerprint | None
    has_hash: bool
    """Whether the caller gave the hash of the whole configuration."""
    settings: Mapping[str, Any] | None

    @classmethod
    def of(cls, config: CheckpointSettingsFingerprint | Mapping[str, Any]) -> _NewConfig:
        if isinstance(config, CheckpointSettingsFingerprint):
            return cls(config, has_hash=True, settings=None)
        values = check_mapping(config, "new_config")
        if values and values.keys() <= _SETTINGS and not isinstance(values.get("vector_store"), str):
            return cls(None, has_hash=False, settings=values)
        _refuse_unknown(values, _FINGERPRINT | {"settings"})
        settings = values.get("settings")
        if settings is not None:
            _refuse_unknown(check_mapping(settings, "settings"), _SETTINGS)
        return cls(make_fingerprint(values), has_hash="config_hash" in values, settings=settings)


def _refuse_unknown(config: Mapping[str, Any], known: Set[str]) -> None:
    """Refuse a key that would be ignored: a misspelt one would make every index look valid."""
    unknown = sorted(config.keys() - known)
    if unknown:
        raise Refused(
            f"unknown key {unknown[0]!r} in the configuration", hint=f"The keys are {', '.join(sorted(known))}."
        )


def _of_fingerprint(
    new: _NewConfig,
    fingerprint: CheckpointSettingsFingerprint,
    checkpoint: IndexingCheckpoint,
    stored: Mapping[str, Any],
) -> ChangeImpact:
    """Compare fingerprints. If only the hashes of the whole configurations differ, something unknown has changed."""
    old = stored_fingerprint(stored)
    impact = fingerprint.is_compatible_with(old)[1]
    is_judged_by_hash = impact is ChangeImpact.NONE and new.settings is None and new.has_hash
    if is_judged_by_hash and fingerprint.config_hash not in (old.config_hash, checkpoint.settings_hash):
        return ChangeImpact.UNPROVEN
    return impact


def _of_settings(new: _NewConfig, checkpoint: IndexingCheckpoint) -> ChangeImpact:
    """Compare the settings that the new configuration has; without the old ones only their hash tells."""
    settings = new.settings or {}
    if checkpoint.settings is None:
        is_same = checkpoint.settings_hash is not None and checkpoint.settings_hash == settings_hash(settings)
        return ChangeImpact.NONE if is_same else ChangeImpact.UNPROVEN
    impact = ChangeImpact.NONE
    are_queries_known = new.fingerprint is not None and checkpoint.fingerprint is not None
    for name, value in settings.items():
        old = checkpoint.settings.get(name)
        if name == "indexer":
            impact = max(impact, _of_indexer(old or {}, value or {}))  # type: ignore[arg-type]  # a mapping
        elif name in _PROVIDERS:
            impact = max(impact, _of_provider(name, old, value, are_queries_known=are_queries_known))
        elif kinds.plain(old) != kinds.plain(value):
            impact = max(impact, ChangeImpact.METADATA)  # the name or the path of the project
    return impact


def _of_indexer(old: Mapping[str, Any], new: Mapping[str, Any]) -> ChangeImpact:
    impact = ChangeImpact.NONE
    for change in kinds.changes(old, new):
        is_semantic = change.kind is kinds.SettingKind.SEMANTIC
        impact = max(impact, ChangeImpact.RECHUNK if is_semantic else _BY_KIND[change.kind])
    return impact


def _of_provider(name: str, old: Any, new: Any, *, are_queries_known: bool) -> ChangeImpact:
    """Compare a provider: names and positions are compared one by one, options by their kinds."""
    worst = ChangeImpact.MIGRATABLE if name == "vector_store" else ChangeImpact.BREAKING
    if (old is None) != (new is None):
        return worst
    impact = ChangeImpact.NONE
    for change in kinds.changes(_options(old), _options(new)):
        option = change.name.rpartition(".")[2]
        if name == "embedding_provider" and option == "dimension" and _are(int, change):
            found = of_dimension(change.new, change.old)
        elif name == "embedding_provider" and option == "datatype" and _are(str, change):
            found = of_datatype(change.new, change.old)
        elif option == "query_model" and not are_queries_known:
            found = ChangeImpact.UNPROVEN  # only fingerprints name the family of a model
        else:
            found = worst if change.kind is kinds.SettingKind.SEMANTIC else _BY_KIND[change.kind]
        impact = max(impact, found)
    return impact


def _options(provider: Any) -> dict[str, Any]:
    parts = provider if isinstance(provider, tuple | list) else (provider,)
    return {str(place): part for place, part in enumerate(parts)}


def _are(kind: type, change: kinds.SettingChange) -> bool:
    return isinstance(change.old, kind) and isinstance(change.new, kind)


def _read(path: Path) -> IndexingCheckpoint:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unavailable(path, error) from error
    return _parse(data, path)


def _parse(data: bytes, path: Path) -> IndexingCheckpoint:
    try:
        values = durable.parse_json(data)
    except ValueError as error:
        raise Damaged(f"{path} is not a checkpoint", hint="See history() for older ones.") from error
    if not isinstance(values, dict):
        raise Damaged(f"{path} is not a checkpoint", hint="See history() for older ones.")
    version = values.get("schema_version")
    checksum = values.pop("checksum", None)
    if not (isinstance(version, int) and version > 1) and checksum != _digest(values):
        raise Damaged(f"{path} does not match its checksum", hint="See history() for older ones.")
    return IndexingCheckpoint.from_dict(values)


def _digest(values: dict[str, Any]) -> str | None:
    """The checksum of stored values; None for those that never had one, such as NaN."""
    try:
        return digest("checkpoint", values)
    except (Refused, RecursionError):
        return None


def _unavailable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"{path}: {error.strerror or error}", hint="Check the disk and the permissions there.")
