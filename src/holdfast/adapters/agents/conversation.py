"""Restoring a conversation as a new one that the agent can resume, next to the current one.

No existing file is overwritten. The new file goes into the agent's own folder, next to the old one, under a new id; if
the agent cannot resume it, it goes into a folder of Holdfast, for people to read.
"""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.adapters.agents.base import Agent, SettingsPaths, find_agent
from holdfast.adapters.agents.names import AGENT_NAMES
from holdfast.adapters.agents.protocol import state_folder
from holdfast.adapters.agents.transcript import MAX_HASHED_BYTES, STATE
from holdfast.errors import Damaged, NotFound, Remedy

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")


@dataclass(frozen=True, slots=True)
class SavedConversation:
    """The conversation of a checkpoint, verified."""

    agent: Agent
    session: str
    path: Path
    data: bytes
    is_there: bool
    """The agent's own file is exactly this: nothing was added since."""


@dataclass(frozen=True, slots=True)
class RestoredConversation:
    """A restored conversation."""

    agent: str
    session: str
    path: str
    """The file that contains it now."""
    resume: str
    """The command that resumes it; empty if the agent cannot."""
    is_new: bool
    """False: the agent's own file is still as it was."""


def read_conversation(checkpoint_id: str, state: Mapping[str, Any]) -> SavedConversation:
    """Read and verify the conversation of a checkpoint. NotFound if it has none."""
    stored = state.get(STATE)
    if not isinstance(stored, dict) or stored.get("agent") not in AGENT_NAMES:
        raise NotFound(
            f"{checkpoint_id} contains no conversation of an agent",
            hint="Checkpoints of hooks do.",
            remedy=Remedy("list"),
        )
    agent, path = find_agent(stored["agent"]), Path(str(stored.get("path") or ""))
    now = _beginning(path, stored.get("bytes"))
    data = _content(stored)
    if data is None and now is not None and sha256(now[0]).hexdigest() == stored.get("sha256"):
        data = now[0]  # such files only grow: what was saved is the beginning of the current file
    if data is None:
        raise NotFound(
            f"{checkpoint_id} does not contain the conversation: {stored.get('missing', 'it has no content')}",
            remedy=Remedy("files_only"),
        )
    if sha256(data).hexdigest() != stored.get("sha256") or len(data) != stored.get("bytes"):
        raise Damaged(f"the conversation of {checkpoint_id} does not match its checksum", remedy=Remedy("verify"))
    session = str(stored.get("session") or "")
    is_there = now is not None and now == (data, len(data))
    return SavedConversation(agent, session if _SESSION.fullmatch(session) else "", path, data, is_there)


def restore_conversation(saved: SavedConversation, places: SettingsPaths, *, new_session: str) -> RestoredConversation:
    """Write a conversation to a new file, unless the agent's file is unchanged, and say how to resume it."""
    agent = saved.agent
    if saved.is_there:
        resume = agent.resume.format(saved.session) if agent.resume and saved.session else ""
        return RestoredConversation(agent.name, saved.session, str(saved.path), resume, is_new=False)
    folder = saved.path.parent
    is_plain = saved.path.suffix in (".jsonl", ".json")
    if agent.forked is not None and saved.session and is_plain and _is_within(folder, places.data(agent.name)):
        name, data = agent.forked(saved.path.name, saved.data, saved.session, new_session)
        path = _written(folder / name, data)
        return RestoredConversation(agent.name, new_session, str(path), agent.resume.format(new_session), is_new=True)
    folder = Path(state_folder(places.environ)) / "conversations"
    durable.make_folder(folder)
    path = _written(folder / f"{agent.name}-{new_session}{saved.path.suffix}", saved.data)
    return RestoredConversation(agent.name, saved.session, str(path), "", is_new=True)


def _content(stored: Mapping[str, Any]) -> bytes | None:
    if isinstance(stored.get("text"), str):
        return str(stored["text"]).encode("utf-8", "surrogateescape")
    if isinstance(stored.get("base64"), str):
        return base64.b64decode(stored["base64"])
    return None


def _beginning(path: Path, count: object) -> tuple[bytes, int] | None:
    """The first `count` bytes of a file, and its current size."""
    if not isinstance(count, int) or not 0 <= count <= MAX_HASHED_BYTES or not path.is_absolute():
        return None
    try:
        with open(path, "rb", opener=_open_plain) as file:
            status = os.fstat(file.fileno())
            return (file.read(count), status.st_size) if stat.S_ISREG(status.st_mode) else None
    except OSError:
        return None


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _is_within(folder: Path, data: Path) -> bool:
    """Whether a folder named in a checkpoint is inside the agent's own: nothing is written elsewhere (P7)."""
    real = Path(os.path.realpath(folder))
    return real.is_dir() and real.is_relative_to(os.path.realpath(data))


def _written(path: Path, data: bytes) -> Path:
    """Create a file durably; an existing one is an error."""
    fd = durable.disk().create(str(path))
    try:
        durable.disk().write(fd, data)
        durable.disk().fsync(fd)
    finally:
        os.close(fd)
    durable.sync_folder(path.parent)
    return path
