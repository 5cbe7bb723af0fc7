"""The files of a workspace beside the checkpoints of a graph."""

from __future__ import annotations

import os
import threading
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointMetadata, CheckpointTuple

from holdfast.adapters.langgraph.translating import WORKSPACE, thread_of
from holdfast.errors import NotFound, Refused
from holdfast.model import Restored
from holdfast.workspace import Workspace

Folder: TypeAlias = Workspace | str | os.PathLike[str]
RUNTIME, _DURABILITY = "__pregel_runtime", "__pregel_durability"  # what LangGraph tells of a run that is under way


class Files:
    """Saves a folder with each checkpoint, and brings it back."""

    def __init__(self, folder: Folder) -> None:
        self._is_ours = not isinstance(folder, Workspace)
        self.workspace = folder if isinstance(folder, Workspace) else Workspace(folder)
        self._saving = threading.Lock()

    def save(self, config: RunnableConfig, metadata: CheckpointMetadata) -> str:
        """The id of the checkpoint that holds the files as they are now."""
        _check_durability(config)
        step = metadata.get("step")
        with self._saving:
            return self.workspace.save(f"graph step {step}", session=thread_of(config), step=step).id

    def restore(self, found: CheckpointTuple | None, **options: Any) -> Restored:
        """Make the folder as it was at a checkpoint of a graph."""
        ref = found and found.metadata.get(WORKSPACE)
        if not isinstance(ref, str):
            raise NotFound("no files were saved with that checkpoint", hint="Name one that was saved with workspace=….")
        return self.workspace.restore(ref, **options)

    def close(self) -> None:
        if self._is_ours:
            self.workspace.close()


def _check_durability(config: RunnableConfig) -> None:
    """Refused where LangGraph saves while the next step runs, whose files would be taken for those of this one."""
    told = config["configurable"]
    if RUNTIME in told and told.get(_DURABILITY) not in ("sync", "exit"):
        raise Refused(
            "the files of a step cannot be saved while the next one runs",
            hint='Run the graph with durability="sync": graph.invoke(…, durability="sync").',
        )
