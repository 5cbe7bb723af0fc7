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
        if not quiet and result.checkpoint is not None:
            self._print_success(f"saved {result.checkpoint.short_id}")
        elif not quiet:
            self._print_error(f"not saved: {result.error}")
        return result.success

    async def restore(self, checkpoint_id: Reference | None = None, step: int | None = None) -> bool:
        return self._restored(await (await self._get_service()).restore(checkpoint_id, step=step))

    async def rewind(self, steps: int = 1) -> bool:
        return self._restored(await (await self._get_service()).rewind(steps))

    def _restored(self, result: CheckpointResult) -> bool:
        if result.checkpoint is not None:
            self._print_success(f"restored {result.checkpoint.short_id}")
        if result.error is not None:
            self._print_error(result.error)
        return result.success

    async def list_checkpoints(self, limit: int = 20) -> list[dict[str, Any]]:
        found = await (await self._get_service()).list_checkpoints(limit=limit)
        for each in found:
            self._print_info(f"{each.short_id}  {each.timestamp:%Y-%m-%d %H:%M:%S}  {each.message}")
        if not found:
            self._print_info("no checkpoints")
        return [each.to_dict() for each in found]

    async def diff(self, from_id: Reference | None = None, to_id: Reference | None = None) -> dict[str, Any]:
        found = await (await self._get_service()).diff(from_id, to_id)
        self._print_diff(found)
        return found.to_dict()

    async def delete_all(self) -> bool:
        done = await (await self._get_service()).delete_all()
        if done:
            self._print_success("all checkpoints deleted")
        else:
            self._print_error("not deleted; the log says why")
        return done

    # PraisonAI's commands print with these

    def _print_diff(self, diff: CheckpointDiff) -> None:
        if diff.error is not None:
            self._print_error(diff.error)
        for line in lines_of(diff) or ["no changes"]:
            print(line)

    def _print_info(self, message: str) -> None:
        print(escape(message))

    _print_success = _print_error = _print_info


def lines_of(diff: CheckpointDiff) -> list[str]:
    """A line for each changed file."""
    return [f"  {file.status:>8}  {escape(file.path)}  (+{file.additions}/-{file.deletions})" for file in diff.files]
