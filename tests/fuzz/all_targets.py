"""All fuzz targets."""

from __future__ import annotations

from fuzz import agents, sources, stored, values
from fuzz.target import TARGETS

__all__ = ["TARGETS", "agents", "sources", "stored", "values"]
