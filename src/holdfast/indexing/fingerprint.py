"""The predecessor's fingerprint: the settings that decide whether an index can be reused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from holdfast.errors import Refused
from holdfast.indexing import vectors
from holdfast.indexing.impact import ChangeImpact
from holdfast.validation import checked_options

ConfigType = Literal["symmetric", "asymmetric"]


@checked_options
@dataclass(frozen=True, slots=True)
class CheckpointSettingsFingerprint:
    """The settings that decide whether an index can be reused."""

    embedding_config_type: ConfigType
    embed_model: str
    """The model that embeds documents."""
    embed_model_family: str | None
    query_model: str | None
    """The model that embeds queries. Required if asymmetric; not used if symmetric."""
    sparse_model: str | None
    vector_store: str
    config_hash: str
    """Of the whole configuration. Shows that something changed, not what: see `CheckpointManager`."""
    dimension: int | None = None
    datatype: str | None = None

    def __post_init__(self) -> None:
        """Refused for another kind of configuration, and for an asymmetric one without a query model."""
        if self.embedding_config_type not in get_args(ConfigType):
            raise Refused(
                f"invalid embedding_config_type {self.embedding_config_type!r}", hint="Use 'symmetric' or 'asymmetric'."
            )
        if self.embedding_config_type == "asymmetric" and not self.query_model:
            raise Refused("an asymmetric configuration needs query_model", hint="Name the model that embeds queries.")

    def is_compatible_with(self, other: CheckpointSettingsFingerprint) -> tuple[bool, ChangeImpact]:
        """Whether an index made under `other` answers under this one, and the greatest impact of all differences."""
        impact = max(self._store(other), self._documents(other), self._queries(other), self._shape(other))
        return impact.usable, impact

    def _store(self, other: CheckpointSettingsFingerprint) -> ChangeImpact:
        """Compare the stores: vectors are copied from one to another. Another sparse model makes other vectors."""
        if self.sparse_model != other.sparse_model:
            return ChangeImpact.BREAKING
        return ChangeImpact.NONE if self.vector_store == other.vector_store else ChangeImpact.MIGRATABLE

    def _documents(self, other: CheckpointSettingsFingerprint) -> ChangeImpact:
        """Compare the models of documents: another model, or the same name in another family, is another space."""
        families = {self.embed_model_family, other.embed_model_family} - {None}
        is_same = self.embed_model == other.embed_model and len(families) < 2
        return ChangeImpact.NONE if is_same else ChangeImpact.BREAKING

    def _queries(self, other: CheckpointSettingsFingerprint) -> ChangeImpact:
        """Compare the query models: another one fits only if it is of the same known family as the documents' model."""
        if self._asking == other._asking:
            return ChangeImpact.NONE
        is_own = self._asking == self.embed_model
        is_family = self.embed_model_family is not None and self.embed_model_family == other.embed_model_family
        return ChangeImpact.COMPATIBLE if is_own or is_family else ChangeImpact.BREAKING

    @property
    def _asking(self) -> str:
        is_asymmetric = self.embedding_config_type == "asymmetric"
        return self.query_model if is_asymmetric and self.query_model else self.embed_model

    def _shape(self, other: CheckpointSettingsFingerprint) -> ChangeImpact:
        return max(of_dimension(self.dimension, other.dimension), of_datatype(self.datatype, other.datatype))


def of_dimension(new: int | None, old: int | None) -> ChangeImpact:
    """Return the impact of another dimension: a smaller one is converted from existing vectors."""
    if new == old:
        return ChangeImpact.NONE
    if new is None or old is None:
        return ChangeImpact.UNPROVEN  # an unset value may be the same, or not
    return ChangeImpact.TRANSFORMABLE if new < old else ChangeImpact.BREAKING


def of_datatype(new: str | None, old: str | None) -> ChangeImpact:
    """Return the impact of another datatype: a coarser one is converted from existing vectors."""
    if new == old:
        return ChangeImpact.NONE
    if new is None or old is None:
        return ChangeImpact.UNPROVEN
    if vectors.same_datatype(new, old):
        return ChangeImpact.NONE
    return ChangeImpact.QUANTIZABLE if vectors.can_convert(new, old) else ChangeImpact.BREAKING
