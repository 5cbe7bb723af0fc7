"""An index as the `[index]` table of a project's configuration describes it."""

from __future__ import annotations

from holdfast.adapters.index.building import open_index
from holdfast.adapters.index.config import EXAMPLE, IndexConfig, ModelConfig, read_index_config, write_example

__all__ = ["EXAMPLE", "IndexConfig", "ModelConfig", "open_index", "read_index_config", "write_example"]
