"""`codeweaver.providers.types.vector_store`: what a collection was made with."""

from holdfast.compat.codeweaver.collections import CollectionMetadata, CollectionPolicy, TransformationRecord
from holdfast.compat.deprecation import deprecate

__all__ = ["CollectionMetadata", "CollectionPolicy", "TransformationRecord"]

deprecate(
    __name__,
    {
        "CollectionMetadata": "holdfast.indexing.IndexRun",
        "CollectionPolicy": "holdfast.indexing.IndexRun and its plan(), which says what a change costs",
        "TransformationRecord": "holdfast.indexing.IndexRun",
    },
)
