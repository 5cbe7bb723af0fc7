"""Checkpoints before the tools of the OpenAI Agents SDK: `Runner.run(agent, …, hooks=Checkpoints("project"))`."""

from __future__ import annotations

import json
from typing import Any

from holdfast.adapters.before_tools import BeforeTools
from holdfast.errors import Extra

with Extra("openai-agents"):
    from agents import Agent, RunContextWrapper, RunHooks, Tool
    from agents.tool_context import ToolContext


class Checkpoints(BeforeTools, RunHooks[Any]):
    """Run hooks that save before each tool; the actor is the agent that calls it."""

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool) -> None:
        """Save. Tools of the SDK's own kinds (shell, patches, computers) come without arguments."""
        called = context if isinstance(context, ToolContext) else None
        await self._before(
            tool.name,
            _arguments(called.tool_arguments if called else ""),
            actor=agent.name,
            tool_use=called.tool_call_id if called else None,
        )


def _arguments(text: str) -> dict[str, Any]:
    """What the model wrote, as far as it is an object."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
