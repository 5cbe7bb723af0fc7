"""CodeWeaver's settings as the checkpoint manager sees them: found, and read into plain values and fingerprints."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NewType
from uuid import UUID

from holdfast.digest import digest_bytes

BlakeKey = NewType("BlakeKey", str)
BlakeHashKey = BlakeKey
_ASYMMETRIC = "AsymmetricEmbeddingProviderSettings"


def get_settings() -> Any:
    """Return the settings of the CodeWeaver that the program has imported; None if it has imported none."""
    core = sys.modules.get("codeweaver.core")
    found = getattr(core, "get_settings", None)
    return None if found is None or found is get_settings else found()


def get_blake_hash(value: bytes | str) -> BlakeKey:
    """Return the BLAKE3 of bytes, or of a text in UTF-8, in hexadecimal. There is no fallback."""
    return BlakeKey(digest_bytes(value.encode() if isinstance(value, str) else bytes(value)))


def uuid7() -> UUID:
    """Return a new UUID of version 7: the time in milliseconds, then random bits."""
    milliseconds = time.time_ns() // 1_000_000
    number = milliseconds << 80 | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | 7 << 76
    return UUID(int=number & ~(0b11 << 62) | 0b10 << 62)


def plain_settings(value: Any) -> Any:
    """Return settings objects as mappings and sequences of plain values. Sets stay sets: their order is no setting."""
    if isinstance(value, Mapping):
        return {str(name): plain_settings(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return tuple(plain_settings(each) for each in value)
    if hasattr(type(value), "model_dump"):
        return plain_settings(value.model_dump(exclude_none=True))
    if is_dataclass(value) and not isinstance(value, type):
        return plain_settings({each.name: getattr(value, each.name) for each in fields(value)})
    if hasattr(value, "__dict__") and not isinstance(value, type) and type(value).__module__ != "builtins":
        return plain_settings({name: each for name, each in vars(value).items() if not name.startswith("_")})
    return value


def fingerprint_values(embedding: Any, provider: Any) -> dict[str, Any]:
    """Return the values of a fingerprint: of a provider of embeddings, and of the other providers' settings."""
    sparse, store = _first(provider, "sparse_embedding"), _first(provider, "vector_store")
    return {
        **embedding_values(embedding),
        "sparse_model": None if sparse is None else str(sparse.model_name),
        "vector_store": "" if store is None else str(getattr(store.provider, "value", store.provider)),
    }


def embedding_values(embedding: Any) -> dict[str, Any]:
    """Return the values of a fingerprint that the settings of embeddings decide."""
    has_two = is_asymmetric(embedding)
    documents = embedding.embed_provider if has_two else embedding
    options = (getattr(documents, "embedding_config", None), documents)
    dimensions = (getattr(each, "dimension", None) for each in options)
    datatypes = (getattr(each, "datatype", None) for each in options)
    family = getattr(getattr(options[0], "capabilities", None), "model_family", None)
    return {
        "embedding_config_type": "asymmetric" if has_two else "symmetric",
        "embed_model": str(documents.model_name),
        "embed_model_family": _text(getattr(family, "family_id", None)),
        "query_model": str(embedding.query_provider.model_name) if has_two else None,
        "dimension": next((each for each in dimensions if isinstance(each, int)), None),
        "datatype": next((each for each in datatypes if isinstance(each, str)), None),
    }


def is_asymmetric(embedding: Any) -> bool:
    """Whether documents and queries have a model each. By the name: these may be CodeWeaver's own settings."""
    return any(each.__name__ == _ASYMMETRIC for each in embedding.__class__.__mro__)


def first_embedding(settings: Any) -> Any:
    """Return the settings of the first provider of embeddings; None if there is none."""
    return None if settings is None else _first(settings.provider, "embedding")


def _first(provider: Any, name: str) -> Any:
    found = getattr(provider, name, None)
    if isinstance(found, tuple | list):
        return found[0] if found else None
    return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
