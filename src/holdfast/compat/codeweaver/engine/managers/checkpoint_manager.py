"""`codeweaver.engine.managers.checkpoint_manager`: what is done of an index, and whether it fits the configuration.

The old side of a comparison is what the checkpoint contains. Impacts are the five of CodeWeaver.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from holdfast import durable, indexing
from holdfast.compat.codeweaver.errors import CodeWeaverDeveloperError
from holdfast.compat.codeweaver.settings import (
    fingerprint_values,
    first_embedding,
    get_blake_hash,
    get_settings,
    plain_settings,
    uuid7,
)
from holdfast.compat.deprecation import deprecate
from holdfast.errors import Damaged
from holdfast.indexing import ChangeImpact, CheckpointSettingsMap
from holdfast.indexing.checkpoint import settings_hash
from holdfast.indexing.manager import stored_fingerprint

__all__ = [
    "EXCEPTION_PATTERN",
    "ChangeImpact",
    "CheckpointManager",
    "CheckpointSettingsFingerprint",
    "CheckpointSettingsMap",
    "CodeWeaverDeveloperError",
    "IndexingCheckpoint",
    "get_checkpoint_settings_map",
]

EXCEPTION_PATTERN = re.compile(r"\b\w+(?:Exception|Error|Failure|Fault|Abortive|Abort)\b")
"""Names of exceptions in a text."""


class CheckpointSettingsFingerprint(indexing.CheckpointSettingsFingerprint):
    """The settings that decide whether an index can be reused."""

    __slots__ = ()

    def is_compatible_with(self, other: indexing.CheckpointSettingsFingerprint) -> tuple[bool, ChangeImpact]:
        """Whether an index made under `other` answers under this one, and the impact, one of CodeWeaver's five."""
        return _projected(indexing.CheckpointSettingsFingerprint.is_compatible_with(self, other)[1])


def get_checkpoint_settings_map(
    project_path: str | Path | None = None, project_name: str | None = None, **settings: Any
) -> CheckpointSettingsMap:
    """Return the settings to hash: those given by name, or else those of the CodeWeaver that the program uses."""
    current = None if settings else get_settings()
    if current is not None:
        provider = current.provider
        settings = {
            "indexer": plain_settings(getattr(current, "indexer", None)) or {},
            "embedding_provider": plain_settings(provider.embedding),
            "sparse_provider": plain_settings(provider.sparse_embedding),
            "vector_store": plain_settings(provider.vector_store),
        }
    return indexing.get_checkpoint_settings_map(project_path, project_name, **settings)


@dataclass(slots=True, kw_only=True)
class IndexingCheckpoint(indexing.IndexingCheckpoint):
    """The progress of a run, with the hash of its settings: by default, of the current ones."""

    session_id: UUID = field(default_factory=uuid7)

    def __post_init__(self) -> None:
        if self.settings is None and not self.settings_hash:
            self.settings = get_checkpoint_settings_map(self.project_path, self.project_name)
        indexing.IndexingCheckpoint.__post_init__(self)

    def current_settings_hash(self, settings: Mapping[str, Any] | None = None) -> str:
        """Return the hash of `settings`; by default of the current ones."""
        if settings is None:
            settings = get_checkpoint_settings_map(self.project_path, self.project_name)
        return settings_hash(settings)

    def matches_settings(self, settings: Mapping[str, Any] | None = None) -> bool:
        """Whether it was made with these settings; by default with the current ones."""
        return self.settings_hash == self.current_settings_hash(settings)

    def is_stale(self, max_age_hours: float = 24, **options: Any) -> bool:
        """Whether it is too old, from the future, ends before it began, or was made with other settings."""
        settings = options.pop("settings", None)
        is_old = indexing.IndexingCheckpoint.is_stale(self, max_age_hours, **options)
        return is_old or not self.matches_settings(settings)

    def model_dump(self) -> dict[str, Any]:
        """Return its values as JSON values."""
        return self.to_dict()

    def model_dump_json(self, *, indent: int | None = None, round_trip: bool = False) -> str:
        """Return it as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def model_validate(cls, values: Mapping[str, Any]) -> Self:
        """Read what `model_dump` returned, or a checkpoint of CodeWeaver. Damaged for anything else."""
        found = cls.from_dict(values)
        assert isinstance(found, cls)
        return found

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Self:
        """Read what `model_dump_json` returned, or a file of CodeWeaver. Damaged for anything else."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise Damaged(f"this is not a checkpoint: {error}", hint="Use another one.") from None
        if not isinstance(values, dict):
            raise Damaged("this is not a checkpoint", hint="Use another one.")
        return cls.model_validate(values)


class CheckpointManager(indexing.CheckpointManager):
    """Saves and loads the checkpoints of one project, and checks whether an index fits another configuration.

    The newest checkpoint is also in `checkpoint_file`, under the name that CodeWeaver gives it.
    """

    def __init__(self, project_path: Path, project_name: str, checkpoint_dir: Path) -> None:
        super().__init__(project_path, project_name, Path(checkpoint_dir).expanduser().resolve())
        safe = self._prefix.removeprefix("checkpoint_").rpartition("-")[0]
        mark = get_blake_hash(str(self.project_path))[:8]
        self._file = self.checkpoint_dir / f"checkpoint_{safe}-{mark}.json"

    @property
    def checkpoint_file(self) -> Path:
        """The file of the newest checkpoint."""
        return self._file

    def is_index_valid_for_config(
        self, checkpoint: indexing.IndexingCheckpoint, new_config: Any
    ) -> tuple[bool, ChangeImpact]:
        """Return whether the index of a checkpoint is usable with another configuration, and the impact of the change.

        `new_config`: settings of embeddings as in CodeWeaver, a fingerprint, or what `holdfast.indexing` takes. A
        checkpoint without a fingerprint is compared with the current settings and with the hash of its own.
        """
        if not isinstance(new_config, indexing.CheckpointSettingsFingerprint | Mapping):
            new_config = self._create_fingerprint(new_config)
        if checkpoint.fingerprint is None and first_embedding(get_settings()) is not None:
            checkpoint = replace(checkpoint, fingerprint=asdict(self._extract_fingerprint(checkpoint)))
        return _projected(indexing.CheckpointManager.is_index_valid_for_config(self, checkpoint, new_config)[1])

    def _extract_fingerprint(self, checkpoint: indexing.IndexingCheckpoint) -> CheckpointSettingsFingerprint:
        """Return the fingerprint that a checkpoint contains; if it contains none, that of the current settings."""
        if checkpoint.fingerprint is not None:
            return CheckpointSettingsFingerprint(**asdict(stored_fingerprint(checkpoint.fingerprint)))
        settings = get_settings()
        values = fingerprint_values(_needed(first_embedding(settings)), settings.provider)
        return CheckpointSettingsFingerprint(**values, config_hash=checkpoint.settings_hash or "")

    def _create_fingerprint(self, config: Any) -> CheckpointSettingsFingerprint:
        """Return the fingerprint of settings of embeddings, together with the other current settings."""
        settings = _needed(get_settings())
        current = settings_hash(get_checkpoint_settings_map(self.project_path, self.project_name))
        return CheckpointSettingsFingerprint(**fingerprint_values(config, settings.provider), config_hash=current)

    def _save(self, checkpoint: indexing.IndexingCheckpoint) -> None:
        """Save; then replace `checkpoint_file`, which only other programs read (P3)."""
        if checkpoint.fingerprint is None and (embedding := first_embedding(get_settings())) is not None:
            checkpoint.fingerprint = asdict(self._create_fingerprint(embedding))
        super()._save(checkpoint)
        durable.write_atomically(self._file, json.dumps(checkpoint.to_dict(), indent=2).encode())

    def _load(self) -> IndexingCheckpoint | None:
        """Return the newest checkpoint that Holdfast saved; if there is none, that of CodeWeaver."""
        found = super()._load()
        if found is not None:
            return IndexingCheckpoint.model_validate(found.to_dict())
        try:
            text = durable.read_file(self._file, max_bytes=_MOST_BYTES)
        except FileNotFoundError:
            return None
        return IndexingCheckpoint.model_validate_json(text)

    def _history(self) -> list[indexing.IndexingCheckpoint]:
        return [IndexingCheckpoint.model_validate(each.to_dict()) for each in super()._history()]

    def _delete(self) -> None:
        super()._delete()
        if self._file.exists():
            durable.disk().unlink(str(self._file))


_MOST_BYTES = 64 << 20


def _projected(impact: ChangeImpact) -> tuple[bool, ChangeImpact]:
    return impact.projected.usable, impact.projected


def _needed(settings: Any) -> Any:
    if settings is None:
        raise CodeWeaverDeveloperError(
            "there are no settings of CodeWeaver to compare with", hint="Pass a CheckpointSettingsFingerprint."
        )
    return settings


REPLACEMENTS = {
    "EXCEPTION_PATTERN": "re.compile with a pattern of your own",
    "ChangeImpact": "holdfast.indexing.ChangeImpact",
    "CheckpointManager": "holdfast.indexing.CheckpointManager",
    "CheckpointSettingsFingerprint": "holdfast.indexing.CheckpointSettingsFingerprint",
    "CheckpointSettingsMap": "holdfast.indexing.CheckpointSettingsMap",
    "CodeWeaverDeveloperError": "holdfast.NotFound",
    "IndexingCheckpoint": "holdfast.indexing.IndexingCheckpoint",
    "get_checkpoint_settings_map": "holdfast.indexing.get_checkpoint_settings_map",
}
deprecate(__name__, REPLACEMENTS)
