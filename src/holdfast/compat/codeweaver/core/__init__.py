"""`codeweaver.core`: the names that callers of the checkpoint manager take from it."""

from holdfast.compat.codeweaver.settings import BlakeHashKey, BlakeKey, get_blake_hash, get_settings, uuid7
from holdfast.compat.deprecation import deprecate

__all__ = ["BlakeHashKey", "BlakeKey", "get_blake_hash", "get_settings", "uuid7"]

deprecate(
    __name__,
    {
        "BlakeHashKey": "holdfast.digest.digest",
        "BlakeKey": "holdfast.digest.digest",
        "get_blake_hash": "holdfast.digest.digest",
        "get_settings": "holdfast.indexing.get_checkpoint_settings_map with the settings as arguments",
        "uuid7": "uuid.uuid4",
    },
)
