"""The names of coding agents as an argument of a command."""

from __future__ import annotations

import click

from holdfast.adapters.agents.names import AGENT_NAMES, CALLED


class AgentName(click.Choice[str]):
    """The name of an agent, also as people call it: `claude` for `claude-code`."""

    def __init__(self, *others: str) -> None:
        super().__init__([*AGENT_NAMES, *others])

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        plain = value.lower()
        return super().convert(CALLED.get(plain, plain), param, ctx)
