"""Checkpoints of a folder: files and named state in one atomic record."""

from holdfast.workspace.workspace import Workspace

__all__ = ["Workspace"]
