"""`praisonai.cli.features.checkpoints`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.praisonai.handler import CheckpointsHandler

__all__ = ["CheckpointsHandler"]

deprecate(__name__, {"CheckpointsHandler": "holdfast.workspace.CheckpointService (on the command line: `holdfast`)"})
