"""The agents, by name; each file is loaded when its agent is asked for."""

from __future__ import annotations

import importlib

from holdfast.adapters.agents.agent import Agent
from holdfast.errors import NotFound

NAMES = ("claude-code", "gemini", "codex", "cursor", "copilot", "opencode")


def find_agent(name: str) -> Agent:
    """An agent by its name. NotFound for one that we have no hooks for."""
    if name not in NAMES:
        raise NotFound(f"there are no hooks for an agent {name!r}", hint=f"The agents are {', '.join(NAMES)}.")
    module = importlib.import_module(f"holdfast.adapters.agents.{name.replace('-', '_')}")
    agent: Agent = module.AGENT
    return agent
