"""The predecessor's checkpoint of an indexing run: its progress and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID, uuid4

from holdfast.digest import digest
from holdfast.errors import Damaged, Refused
from holdfast.indexing.settings import plain, relevant, without_secrets
from holdfast.validation import check_count, check_place, checked_options

SCHEMA_VERSION = 1


class CheckpointSettingsMap(TypedDict):
    """The settings that an index depends on, which are hashed."""

    indexer: dict[str, Any]
    project_path: str | None
    project_name: str | None
    embedding_provider: tuple[Any, ...] | None
    sparse_provider: tuple[Any, ...] | None
    vector_store: tuple[Any, ...] | None


def get_checkpoint_settings_map(
    project_path: str | Path | None = None,
    project_name: str | None = None,
    *,
    indexer: Mapping[str, Any] | None = None,
    embedding_provider: Any = None,
    sparse_provider: Any = None,
    vector_store: Any = None,
) -> CheckpointSettingsMap:
    """Return the settings to hash: the arguments, without secrets."""
    path = None if project_path is None else Path(check_place(project_path, "project_path")).resolve().as_posix()
    return CheckpointSettingsMap(
        indexer=without_secrets(indexer or {}),
        project_path=path,
        project_name=project_name,
        embedding_provider=_provider(embedding_provider),
        sparse_provider=_provider(sparse_provider),
        vector_store=_provider(vector_store),
    )


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Return the BLAKE3 of the settings that an index depends on: without secrets, addresses, batch sizes and the like.

    Equal in every process, before and after storing, whatever the order of sets and keys.
    """
    return digest("settings", SCHEMA_VERSION, relevant(settings))


def _provider(value: Any) -> tuple[Any, ...] | None:
    if value is None:
        return None
    parts = value if isinstance(value, tuple | list) else (value,)
    return tuple(without_secrets(part) if isinstance(part, Mapping) else part for part in parts)


def _now() -> datetime:
    return datetime.now(UTC)


@checked_options
@dataclass(slots=True, kw_only=True)
class IndexingCheckpoint:
    """The progress of a run. Pass the settings of the run: they are stored, and compared with later ones."""

    session_id: UUID = field(default_factory=uuid4)
    project_path: Path | None = None
    project_name: str | None = None
    start_time: datetime = field(default_factory=_now)
    last_checkpoint: datetime = field(default_factory=_now)
    files_discovered: int = 0
    files_embedding_complete: int = 0
    files_indexed: int = 0
    files_with_errors: list[str] = field(default_factory=list)
    chunks_created: int = 0
    chunks_embedded: int = 0
    chunks_indexed: int = 0
    batch_ids_completed: list[str] = field(default_factory=list)
    current_batch_id: UUID | None = None
    errors: list[dict[str, str]] = field(default_factory=list)
    settings: CheckpointSettingsMap | None = None
    fingerprint: dict[str, Any] | None = None
    """The stored fingerprint of the index; never derived from the current configuration."""
    settings_hash: str | None = None
    """Of `settings`, where they are given."""

    def __post_init__(self) -> None:
        if self.project_path is not None:
            self.project_path = Path(check_place(self.project_path, "project_path")).resolve()
        for name in _COUNTERS:
            check_count(getattr(self, name), name)
        for name in ("start_time", "last_checkpoint"):
            if getattr(self, name).tzinfo is None:
                raise Refused(f"{name} has no time zone", hint="Use datetime.now(UTC).")
        if self.settings is not None:
            self.settings_hash = settings_hash(self.settings)

    def current_settings_hash(self, settings: Mapping[str, Any] | None = None) -> str:
        """Return the BLAKE3 of `settings`; by default of those that it was made with."""
        current = settings if settings is not None else self.settings
        if current is None:
            raise Refused("the checkpoint has no settings", hint="Pass the current ones, or create it with settings=….")
        return settings_hash(current)

    def matches_settings(self, settings: Mapping[str, Any] | None = None) -> bool:
        """Whether it was made with these settings."""
        if settings is None and self.settings is None:
            return False
        return self.settings_hash is not None and self.settings_hash == self.current_settings_hash(settings)

    def is_stale(
        self,
        max_age_hours: float = 24,
        *,
        settings: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> bool:
        """Whether it is too old, from the future, ends before it began, or was made with other settings."""
        age = (now or _now()) - self.last_checkpoint
        if not timedelta(0) <= age <= timedelta(hours=max_age_hours) or self.last_checkpoint < self.start_time:
            return True
        return settings is not None and not self.matches_settings(settings)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values, with the version of the format."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["settings"] = None if self.settings is None else without_secrets(self.settings)
        return {"schema_version": SCHEMA_VERSION, **{name: _plain(value) for name, value in values.items()}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IndexingCheckpoint:
        """Read what `to_dict` returned, or CodeWeaver wrote, which has no version.

        Damaged for anything else; Refused for another version.
        """
        version = values.get("schema_version", SCHEMA_VERSION)
        if type(version) is not int or version != SCHEMA_VERSION:
            raise Refused(
                f"the checkpoint has schema_version {version!r}, which is unknown",
                hint=f"This version of Holdfast reads {SCHEMA_VERSION}; a newer one may read it.",
            )
        stored = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        missing = [
            name for name in ("session_id", "start_time", "last_checkpoint") if not isinstance(stored.get(name), str)
        ]
        if missing:
            raise Damaged(f"the checkpoint has no valid {missing[0]}", hint="An older one may be intact.")
        try:
            for name in ("start_time", "last_checkpoint"):
                stored[name] = datetime.fromisoformat(stored[name])
                stored[name].astimezone(UTC)  # OverflowError for a year that UTC does not have
            for name, kind in _KINDS.items():
                if not isinstance(stored.get(name), kind | None):
                    raise TypeError(f"{name} is no {kind.__name__}")
            for name, kind in _ITEMS.items():
                if not all(isinstance(each, kind) for each in stored.get(name, ())):
                    raise TypeError(f"{name} contains something that is no {kind.__name__}")
            stored["session_id"] = UUID(stored["session_id"])
            batch = stored.get("current_batch_id")
            stored["current_batch_id"] = UUID(batch) if batch else None
            stored["project_path"] = Path(stored["project_path"]) if stored.get("project_path") else None
            made = cls(**stored)
            made.to_dict()  # RecursionError for values that are nested too deeply to be written again
            return made
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise Damaged(f"the checkpoint cannot be read: {error}", hint="An older one may be intact.") from error


_KINDS = {
    "project_name": str, "files_with_errors": list, "batch_ids_completed": list, "errors": list, "settings": dict,
    "fingerprint": dict, "settings_hash": str, "project_path": str, "current_batch_id": str,
}  # fmt: skip
"""What each value is in JSON."""
_ITEMS = {"files_with_errors": str, "batch_ids_completed": str, "errors": dict}
_COUNTERS = (
    "files_discovered", "files_embedding_complete", "files_indexed",
    "chunks_created", "chunks_embedded", "chunks_indexed",
)  # fmt: skip


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else plain(value)
