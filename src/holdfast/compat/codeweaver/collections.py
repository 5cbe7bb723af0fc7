"""What a collection was made with, and which changes its policy allows. Not a name of CodeWeaver."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, Literal, Self

from holdfast.compat.codeweaver.errors import ConfigurationLockError
from holdfast.indexing.model_families import Families, load_families


class CollectionPolicy(Enum):
    """Which changes of models a collection allows."""

    STRICT = "strict"
    """None."""
    FAMILY_AWARE = "family_aware"
    """Another model for queries, of the same family."""
    FLEXIBLE = "flexible"
    """Any, with a warning."""
    UNLOCKED = "unlocked"
    """Any."""


@dataclass(frozen=True)
class TransformationRecord:
    """A transformation that was applied to the vectors of a collection."""

    timestamp: datetime
    type: Literal["quantization", "dimension_reduction"]
    old_value: str | int
    new_value: str | int
    accuracy_impact: str
    migration_time: timedelta


@dataclass(kw_only=True)
class CollectionMetadata:
    """The models of a collection, and its policy."""

    provider: str
    project_name: str
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    dense_model: str | None = None
    dense_model_family: str | None = None
    query_model: str | None = None
    sparse_model: str | None = None
    backup_enabled: bool = False
    backup_model: str | None = None
    collection_name: str = ""
    profile_name: str | None = None
    profile_version: str | None = None
    config_hash: str | None = None
    config_timestamp: datetime | None = None
    quantization_type: Literal["int8", "binary"] | None = None
    quantization_rescore: bool = False
    original_dimension: int | None = None
    transformations: list[TransformationRecord] = field(default_factory=list)
    policy: CollectionPolicy = CollectionPolicy.FAMILY_AWARE
    version: str = "1.5.0"
    vector_config: dict[str, Any] | None = None
    sparse_config: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.policy = CollectionPolicy(self.policy)

    def to_collection(self) -> dict[str, Any]:
        """Return its values, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_collection(cls, data: Mapping[str, Any]) -> Self:
        """Return the metadata that a collection stores under `metadata`."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in data.get("metadata", {}).items() if name in known})

    def validate_config_change(
        self,
        new_dense_model: str | None = None,
        new_query_model: str | None = None,
        new_sparse_model: str | None = None,
        new_provider: str | None = None,
    ) -> None:
        """Raise ConfigurationLockError if the policy forbids this change; None keeps what there is.

        With the policy FLEXIBLE, a change that breaks the index is a warning.
        """
        proposed = (new_dense_model, new_query_model, new_sparse_model, new_provider)
        if self.policy is CollectionPolicy.STRICT and not self._exact_match(*proposed):
            raise self._locked("the policy of this collection is STRICT: no model may change", proposed)
        if self.policy is CollectionPolicy.FAMILY_AWARE and not self._family_compatible(*proposed):
            raise self._locked("this change leaves the model family of the collection", proposed)
        if self.policy is CollectionPolicy.FLEXIBLE and not self._any_compatible(*proposed):
            warnings.warn(
                f"the vectors of {self.dense_model} cannot be compared with those of {new_dense_model}", stacklevel=2
            )

    def _exact_match(self, dense: str | None, query: str | None, sparse: str | None, provider: str | None) -> bool:
        """Whether nothing changes."""
        now = (self.dense_model, self.query_model or self.dense_model, self.sparse_model, self.provider)
        return all(new in (None, old) for new, old in zip((dense, query, sparse, provider), now, strict=True))

    def _family_compatible(
        self, dense: str | None, query: str | None, sparse: str | None, provider: str | None
    ) -> bool:
        """Whether only the model for queries changes, to one whose queries fit the documents."""
        if not self._exact_match(dense, None, sparse, provider if self.dense_model_family else None):
            return False
        if query is None or query in (self.dense_model, self.query_model):
            return True
        found = _families().find(query)
        if found is None or found[0].id != self.dense_model_family:
            return False
        return self.dense_model is None or _families().edge(self.dense_model, query) is not None

    def _any_compatible(self, dense: str | None, query: str | None, sparse: str | None, provider: str | None) -> bool:
        """Whether the documents need not be embedded again."""
        if dense is None or self.dense_model is None:
            return True
        return _families().same_weights(self.dense_model, dense)

    def _locked(self, message: str, proposed: tuple[str | None, ...]) -> ConfigurationLockError:
        names = ("dense_model", "query_model", "sparse_model", "provider")
        current = {f"current_{name}": getattr(self, name) for name in names}
        return ConfigurationLockError(
            message,
            details={
                "policy": self.policy.value,
                "collection": self.collection_name,
                "project": self.project_name,
                "dense_model_family": self.dense_model_family,
                **current,
                **{f"proposed_{name}": value for name, value in zip(names, proposed, strict=True)},
            },
            suggestions=[
                f"Keep the model of the collection: {self.dense_model}.",
                "Index again with the new models.",
                "Or give the collection another policy.",
            ],
        )


@cache
def _families() -> Families:
    return load_families()
