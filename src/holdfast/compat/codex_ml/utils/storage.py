"""`codex_ml.utils.storage`: copies of checkpoints in another place."""

from __future__ import annotations

from holdfast.compat.codex_ml.storages import FSSpecStorage, StorageProvider
from holdfast.compat.deprecation import deprecate

__all__ = ["FSSpecStorage", "StorageProvider"]

deprecate(
    __name__,
    {
        "FSSpecStorage": "holdfast.training.CheckpointManager with an s3:// URL",
        "StorageProvider": "holdfast.training.run_store.RunStore",
    },
)
