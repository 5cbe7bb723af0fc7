"""Checkpoints before the tools of a Pydantic AI agent: `Agent(…, capabilities=[PydanticAICheckpoints("project")])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.adapters.tool_checkpoints import BeforeTools
from holdfast.errors import Extra

with Extra("pydantic-ai"):
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.tools import ToolDefinition


class PydanticAICheckpoints(BeforeTools, AbstractCapability[Any]):
    """A capability that saves before each tool; the actor is the agent, the session its conversation."""

    async def before_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> dict[str, Any]:
        """Save, and leave the arguments as they are."""
        await self._before(
            call.tool_name,
            args if isinstance(args, Mapping) else {},
            actor=(ctx.agent and ctx.agent.name) or "agent",
            session=ctx.conversation_id,
            step=ctx.run_step,
            run=ctx.run_id,
            turn=ctx.run_id,
            tool_use=call.tool_call_id,
        )
        return args
