"""Checkpoints before the tools of the Claude Agent SDK.

ClaudeAgentOptions(hooks=ClaudeAgentCheckpoints("project").hooks())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from holdfast.adapters.tool_checkpoints import BeforeTools
from holdfast.errors import Extra
from holdfast.escaping import escape

with Extra("claude-agent"):
    from claude_agent_sdk import HookContext, HookInput, HookJSONOutput, HookMatcher
    from claude_agent_sdk.types import HookEvent

_TIMEOUT_S = 600.0  # with the default of 60 a tool may run before a first, large checkpoint is saved


class ClaudeAgentCheckpoints(BeforeTools):
    """Hooks that save before each tool; the actor is the kind of agent, the session that of the SDK."""

    def hooks(
        self, others: Mapping[HookEvent, Sequence[HookMatcher]] | None = None, *, timeout_s: float = _TIMEOUT_S
    ) -> dict[HookEvent, list[HookMatcher]]:
        """The argument for `ClaudeAgentOptions(hooks=…)`: these hooks and the program's own."""
        merged = {event: list(matchers) for event, matchers in (others or {}).items()}
        on_failure: Any = "block" if self._is_strict else None
        mine = HookMatcher(hooks=[self._pre_tool_use], timeout=timeout_s, on_failure=on_failure)
        merged["PreToolUse"] = [mine, *merged.get("PreToolUse", [])]
        prompted = HookMatcher(hooks=[self._user_prompt_submit])
        merged["UserPromptSubmit"] = [prompted, *merged.get("UserPromptSubmit", [])]
        self._new_run()
        return merged

    async def _user_prompt_submit(self, given: HookInput, tool_use: str | None, context: HookContext) -> HookJSONOutput:
        """Between two prompts the user may make changes; not every program reports the prompt of a tool."""
        self._new_run()
        return {}

    async def _pre_tool_use(self, given: HookInput, tool_use: str | None, context: HookContext) -> HookJSONOutput:
        """Save. If that fails, show it to the user; if `strict`, deny the tool with the reason."""
        fields = cast("Mapping[str, Any]", given)
        tool = str(fields.get("tool_name") or "a tool")
        arguments = fields.get("tool_input")
        try:
            error = await self._before(
                tool,
                arguments if isinstance(arguments, Mapping) else {},
                actor=fields.get("agent_type") or "claude",
                session=fields.get("session_id"),
                run=fields.get("prompt_id"),
                agent=fields.get("agent_id"),
                turn=fields.get("prompt_id"),
                tool_use=tool_use or fields.get("tool_use_id"),
            )
        except Exception as failure:  # only if `strict`
            return {
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "permissionDecision": "deny",
                    "permissionDecisionReason": _sentence(tool, failure),
                }
            }
        return {} if error is None else {"systemMessage": _sentence(tool, error)}


def _sentence(tool: str, error: Exception) -> str:
    return escape(f"Holdfast could not save a checkpoint before {tool}: {error}")
