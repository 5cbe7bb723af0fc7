"""What the framework adapters share: a checkpoint before each tool that may change files, and restoring it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from holdfast.escaping import escape
from holdfast.model import JSON, Checkpoint, CheckpointRef, Restored
from holdfast.validation import check_known, parameters_of
from holdfast.workspace import CheckpointService
from holdfast.workspace.stored.attribution import PERHAPS, SAVED_BY

When = Callable[[str, Mapping[str, Any]], bool]
"""Called with the name and the arguments of a tool; returns whether it may change files."""
OnFailure = Callable[[str, Exception], object]
"""Called with the name of a tool before which the save failed, and the error."""

_log = logging.getLogger("holdfast")


class _LastTool(NamedTuple):
    """Whose tool ran last, and in which run of the agent."""

    actor: str
    session: str | None
    run: object


class BeforeTools:
    """Saves before tools run. A failure is logged and reported, and the tool runs anyway, unless `strict`."""

    def __init__(
        self,
        where: CheckpointService | str | os.PathLike[str],
        *,
        when: When | None = None,
        strict: bool = False,
        session: str | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        """`where` is the folder that the tools work in, or a service for it. Without `when`, save before every tool."""
        self.service = where if isinstance(where, CheckpointService) else CheckpointService(where)
        self._when = when
        self._is_strict = strict
        self._session = session
        self._on_failure = on_failure
        self._last: _LastTool | None = None

    async def restore(self, ref: CheckpointRef | None = None, **options: Any) -> Restored:
        """Restore a checkpoint, the latest by default. Options as of `CheckpointService.restore`."""
        check_known(options, set(parameters_of(CheckpointService.restore)) - {"checkpoint_id"}, "restore")
        return await self.service.restore(ref, **options)

    async def rewind(self, steps: int = 1) -> Restored:
        """Restore what was there before the last tool that changed something, or the last `steps` of them."""
        return await self.service.rewind(steps)

    async def undo(self) -> Restored:
        """Undo the last restore or rewind."""
        return await self.service.undo()

    async def list(self, limit: int | None = None) -> list[Checkpoint]:
        """All checkpoints, newest first; at most `limit`."""
        return await self.service.list(limit)

    async def close(self) -> None:
        """Wait for calls that were made, and close the service."""
        await self.service.close()

    async def _before(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        actor: str,
        session: str | None = None,
        step: int | None = None,
        run: object = None,
        **metadata: JSON,
    ) -> Exception | None:
        """Save, if the tool may change files. Returns the error if that fails or, if `strict`, raises it.

        `run` is anything that is equal for the tools of one run of the agent; between runs the user may make changes.
        """
        if not self.service.is_automatic or not self._is_wanted(tool, arguments):
            return None
        try:
            known = {name: value for name, value in metadata.items() if value is not None}
            beginning = _LastTool(actor, self._session or session, run)
            whose = self._attributed(beginning)
            known |= {SAVED_BY: actor} if whose != actor else {}
            known |= {PERHAPS: [self._last.actor]} if self._last and whose is None else {}
            label = {"actor": whose, "session": beginning.session, "step": step, "metadata": known}
            await self.service.save_before(tool, None, **label)
            self._last = beginning
        except Exception as error:
            self._report(tool, error)
            if self._is_strict:
                raise
            return error
        return None

    def _new_run(self) -> None:
        """Attribute what is found next to the user."""
        self._last = None

    def _attributed(self, beginning: _LastTool) -> str | None:
        """Who made the changes found before a tool: the agent whose tool ran before it in the same run, else the user.

        What the first tool of a program, or of a run, finds was not made by its agent.
        """
        last = self._last
        if last is None or last.session != beginning.session or last.run != beginning.run:
            return None
        return last.actor

    def _is_wanted(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether to save. If `when` fails, yes: an extra checkpoint is harmless."""
        try:
            return self._when is None or bool(self._when(tool, arguments))
        except Exception:
            _log.exception("`when` failed for %s; saving", escape(tool))
            return True

    def _report(self, tool: str, error: Exception) -> None:
        _log.error("no checkpoint was saved before %s: %s", escape(tool), escape(str(error)))
        if self._on_failure is not None:
            try:
                self._on_failure(tool, error)
            except Exception:
                _log.exception("on_failure failed")
