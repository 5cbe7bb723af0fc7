"""Checkpoints before the tools of a PraisonAI agent: `Agent(…, hooks=PraisonAICheckpoints("project"))`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from holdfast.adapters.tool_checkpoints import BeforeTools
from holdfast.errors import Extra
from holdfast.escaping import escape
from holdfast.workspace import CheckpointService

with Extra("praisonai"):
    from praisonaiagents.hooks import BeforeAgentInput, BeforeToolInput, HookEvent, HookRegistry, HookResult

_TIMEOUT_S = 600.0  # after its own default of 60 seconds PraisonAI would block the tool


class PraisonAICheckpoints(BeforeTools, HookRegistry):
    """A registry of hooks that saves before each tool; the actor is the agent. The program can add hooks of its own."""

    def __init__(self, where: CheckpointService | str | os.PathLike[str], **options: Any) -> None:
        """`where` and `options` are as in `BeforeTools`."""
        BeforeTools.__init__(self, where, **options)
        HookRegistry.__init__(self)
        self._run = 0
        ours: dict[str, Any] = {"is_async": True, "sequential": True, "priority": 0, "timeout": _TIMEOUT_S}
        self.register_function(HookEvent.BEFORE_TOOL, self._before_tool, name="holdfast", **ours)
        self.register_function(HookEvent.BEFORE_AGENT, self._before_agent, name="holdfast", **ours)

    async def _before_agent(self, given: BeforeAgentInput) -> HookResult:
        """A run of the agent begins: what is there now, the user may have made."""
        self._run += 1
        return HookResult.allow()

    async def _before_tool(self, given: BeforeToolInput) -> HookResult:
        """Save. PraisonAI tells the agent that a tool was blocked, and logs the reason, if `strict` and this fails."""
        try:
            await self._before(
                given.tool_name,
                given.tool_input if isinstance(given.tool_input, Mapping) else {},
                actor=given.agent_name or "agent",
                session=given.session_id,
                run=self._run,
            )
        except Exception as error:  # only if `strict`
            return HookResult.deny(escape(f"Holdfast could not save a checkpoint before {given.tool_name}: {error}"))
        return HookResult.allow()
