"""What the adapters share: a checkpoint before each tool that may change files, and the way back."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from holdfast.harmless import escape
from holdfast.model import JSON, Checkpoint, Restored
from holdfast.workspace import CheckpointService
from holdfast.workspace.attribution import SAVED_BY
from holdfast.workspace.stored.windows import PERHAPS

When = Callable[[str, Mapping[str, Any]], bool]
"""Told a tool's name and its arguments, says whether it may change files."""
OnFailure = Callable[[str, Exception], object]
"""Told the name of a tool before which nothing could be saved, and why."""

_log = logging.getLogger("holdfast")


class _AtWork(NamedTuple):
    """Whose tool was the last to run, and in which run of the agent."""

    actor: str
    session: str | None
    run: object


class BeforeTools:
    """Saves before tools run. What fails is logged and told, and the tool runs all the same, unless `strict`."""

    def __init__(
        self,
        where: CheckpointService | str | os.PathLike[str],
        *,
        when: When | None = None,
        strict: bool = False,
        session: str | None = None,
        on_failure: OnFailure | None = None,
    ) -> None:
        """`where` is the folder that the tools work in, or a service of it. Without `when`, every tool counts."""
        self.service = where if isinstance(where, CheckpointService) else CheckpointService(where)
        self._when = when
        self._is_strict = strict
        self._session = session
        self._on_failure = on_failure
        self._at_work: _AtWork | None = None

    async def restore(self, ref: str | None = None, **options: Any) -> Restored:
        """Bring a checkpoint back, the latest where none is named. Options as of `CheckpointService.restore`."""
        return await self.service.restore(ref, **options)

    async def rewind(self, steps: int = 1) -> Restored:
        """Go back to what was there before the last tool that changed something, or so many of them."""
        return await self.service.rewind(steps)

    async def undo(self) -> Restored:
        """Take the last restore or rewind back."""
        return await self.service.undo()

    async def list(self, limit: int | None = 50) -> list[Checkpoint]:
        """Checkpoints, newest first."""
        return await self.service.list(limit)

    async def close(self) -> None:
        """Wait for what was begun, and end the service."""
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
        """Save, if that is wanted. Returns why it could not be done, or, if `strict`, raises that.

        `run` is anything that is equal for tools of one run of the agent; between runs the user may be at work.
        """
        if not self.service.is_automatic or not self._is_wanted(tool, arguments):
            return None
        try:
            known = {name: value for name, value in metadata.items() if value is not None}
            beginning = _AtWork(actor, self._session or session, run)
            whose = self._attributed(beginning)
            known |= {SAVED_BY: actor} if whose != actor else {}
            known |= {PERHAPS: [self._at_work.actor]} if self._at_work and whose is None else {}
            label = {"actor": whose, "session": beginning.session, "step": step, "metadata": known}
            await self.service.ahead(tool, None, **label)
            self._at_work = beginning
        except Exception as error:
            self._tell(tool, error)
            if self._is_strict:
                raise
            return error
        return None

    def _new_run(self) -> None:
        """Take what is found next for the user's."""
        self._at_work = None

    def _attributed(self, beginning: _AtWork) -> str | None:
        """Who made what is found before a tool: the agent whose tool ran before it in the same run, else the user.

        The first look of a program, or of a run, is a boundary: what is there then was not made by who begins.
        """
        last = self._at_work
        if last is None or last.session != beginning.session or last.run != beginning.run:
            return None
        return last.actor

    def _is_wanted(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """A question that fails is answered with yes: a checkpoint too many harms nobody."""
        try:
            return self._when is None or bool(self._when(tool, arguments))
        except Exception:
            _log.exception("whether %s may change files could not be told", escape(tool))
            return True

    def _tell(self, tool: str, error: Exception) -> None:
        _log.error("nothing was saved before %s: %s", escape(tool), escape(str(error)))
        if self._on_failure is not None:
            try:
                self._on_failure(tool, error)
            except Exception:
                _log.exception("a handler of failures failed")
