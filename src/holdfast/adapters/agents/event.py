"""What an agent's hook tells, in our words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What happened."""

    START = "start"  # a session began, or was resumed
    PROMPT = "prompt"  # the user spoke
    BEFORE = "before"  # a tool is about to run
    AFTER = "after"  # a tool ran, or failed
    BATCH = "batch"  # every tool of a step has ended
    SUB_START = "sub-start"
    SUB_STOP = "sub-stop"
    COMPACT = "compact"  # the conversation is about to be shortened
    STOP = "stop"  # the agent's turn is over
    END = "end"  # the session is over
    OTHER = "other"  # nothing that says who changed what


@dataclass(frozen=True, slots=True)
class Event:
    """One event of one agent."""

    agent: str
    kind: Kind
    name: str
    """What the agent calls it."""
    session: str = ""
    turn: str = ""
    tool: str = ""
    tool_use: str = ""
    sub: str = ""
    """Which sub-agent, for people: its type, or its id."""
    sub_id: str = ""
    cwd: str = ""
    folders: tuple[str, ...] = ()
    """The folders of the project, where the agent says."""
    path: str = ""
    """The file that the tool is about."""
    subject: str = ""
    """What the tool, or the prompt, is about, for people."""
    transcript: str = ""
    version: str = ""
    permission_mode: str = ""
    reads: bool = False
    """The tool is known to change no file."""
    delegates: bool = False
    """The tool has a sub-agent do the work."""
    background: bool = False
    """What the tool began goes on after it has ended."""

    still_running: bool | None = None
    """At the end of a turn: whether what has not ended goes on. None: the agent does not say."""

    @property
    def actor(self) -> str:
        """Who acts, as checkpoints have it."""
        return f"{self.agent}/{self.sub or self.sub_id}" if self.sub_id or self.sub else self.agent

    @property
    def key(self) -> str:
        """Equal for one event that is told twice; empty where that cannot be told."""
        which = self.tool_use or (self.turn if self.kind is Kind.PROMPT else "")  # a turn may stop more than once
        return f"{self.kind} {which} {self.sub_id}" if which else ""
