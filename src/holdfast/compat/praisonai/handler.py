"""`CheckpointsHandler`: what PraisonAI's command line does with checkpoints, printing to stdout."""

from __future__ import annotations

import os
from typing import Any

from holdfast.compat.praisonai.checkpoint_service import CheckpointService, Reference
from holdfast.compat.praisonai.checkpoint_types import CheckpointDiff, CheckpointResult
from holdfast.escaping import escape


class CheckpointsHandler:
    """Checkpoints of a folder for a person: each method prints, and returns whether it worked."""

    def __init__(self, workspace_dir: str | None = None, verbose: bool = False, storage_dir: str | None = None) -> None:
        self.workspace_dir = workspace_dir or os.getcwd()
        self.verbose = verbose
        self.storage_dir = storage_dir
        self._service: CheckpointService | None = None

    @property
    def feature_name(self) -> str:
        return "checkpoints"

    async def _get_service(self) -> CheckpointService:
        if self._service is None:
            self._service = CheckpointService(self.workspace_dir, self.storage_dir)
        if not self._service.is_initialized:
            await self._service.initialize()
        return self._service

    async def save(self, message: str, allow_empty: bool = False, quiet: bool = False) -> bool:
        result = await (await self._get_service()).save(message, allow_empty=allow_empty)
        if not quiet:
            said = f"saved {result.checkpoint.short_id}" if result.checkpoint else f"not saved: {result.error}"
            print(escape(said))
        return result.success

    async def restore(self, checkpoint_id: Reference | None = None, step: int | None = None) -> bool:
        result = await (await self._get_service()).restore(checkpoint_id, step=step)
        return _print_restored(result)

    async def rewind(self, steps: int = 1) -> bool:
        result = await (await self._get_service()).rewind(steps)
        return _print_restored(result)

    async def list_checkpoints(self, limit: int = 20) -> list[dict[str, Any]]:
        found = await (await self._get_service()).list_checkpoints(limit=limit)
        for each in found:
            print(f"{each.short_id}  {each.timestamp:%Y-%m-%d %H:%M:%S}  {escape(each.message)}")
        if not found:
            print("no checkpoints")
        return [each.to_dict() for each in found]

    async def diff(self, from_id: Reference | None = None, to_id: Reference | None = None) -> dict[str, Any]:
        found = await (await self._get_service()).diff(from_id, to_id)
        print(found.error or "\n".join(lines_of(found)) or "no changes")
        return found.to_dict()

    async def delete_all(self) -> bool:
        done = await (await self._get_service()).delete_all()
        print("all checkpoints deleted" if done else "not deleted")
        return done


def _print_restored(result: CheckpointResult) -> bool:
    print(f"restored {result.checkpoint.short_id}" if result.checkpoint else "not restored")
    if result.error:
        print(escape(result.error))
    return result.success


def lines_of(diff: CheckpointDiff) -> list[str]:
    """A line for each changed file."""
    return [f"  {file.status:>8}  {escape(file.path)}  (+{file.additions}/-{file.deletions})" for file in diff.files]
