"""Checkpoints before the tools of the OpenAI Agents SDK.

Runner.run(agent, …, hooks=OpenAIAgentsCheckpoints("project"))
"""

from __future__ import annotations

import json
from typing import Any

from holdfast.adapters.tool_checkpoints import BeforeTools
from holdfast.errors import Extra

with Extra("openai-agents"):
    from agents import Agent, RunContextWrapper, RunHooks, Tool
    from agents.tool_context import ToolContext


class OpenAIAgentsCheckpoints(BeforeTools, RunHooks[Any]):
    """Run hooks that save before each tool; the actor is the agent that calls it."""

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool) -> None:
        """Save. Tools of the SDK's own kinds (shell, patches, computers) come without arguments."""
        called = context if isinstance(context, ToolContext) else None
        await self._before(
            tool.name,
            _arguments(called.tool_arguments if called else ""),
            actor=agent.name,
            run=_Same(context.usage),
            tool_use=called.tool_call_id if called else None,
        )


class _Same:
    """Compares by identity: the tools of a run share one usage object."""

    def __init__(self, thing: object) -> None:
        self._thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._thing is other._thing

    def __hash__(self) -> int:
        return id(self._thing)


def _arguments(text: str) -> dict[str, Any]:
    """The arguments that the model wrote, if they are a JSON object."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
