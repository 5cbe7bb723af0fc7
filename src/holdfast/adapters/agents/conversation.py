"""Bringing a conversation back: as a new one that the agent can resume, beside the one that goes on.

What is there is never overwritten. The new file stands in the agent's own folder, next to the old one, under a new id;
where the agent could not read it there, it is put into a folder of ours, for people.
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
from holdfast.adapters.agents.agent import Agent, Places
from holdfast.adapters.agents.folders import own_folder
from holdfast.adapters.agents.registry import NAMES, find_agent
from holdfast.adapters.agents.transcript import MOST_HASHED_BYTES, STATE
from holdfast.errors import Damaged, NotFound

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")


@dataclass(frozen=True, slots=True)
class Kept:
    """A conversation as a checkpoint holds it, proved whole."""

    agent: Agent
    session: str
    path: Path
    data: bytes
    is_there: bool
    """The agent's own file is exactly this: nothing was said since."""


@dataclass(frozen=True, slots=True)
class Brought:
    """A conversation that was brought back."""

    agent: str
    session: str
    path: str
    """The file that holds it now."""
    resume: str
    """What to run to go on with it; empty where the agent cannot."""
    is_new: bool
    """False: the agent's own file is still as it was."""


def find_kept(checkpoint_id: str, state: Mapping[str, Any]) -> Kept:
    """Read the conversation of a checkpoint, and prove that it is what was kept. NotFound where there is none."""
    said = state.get(STATE)
    if not isinstance(said, dict) or said.get("agent") not in NAMES:
        raise NotFound(
            f"{checkpoint_id} holds no conversation of an agent", hint="Those that hooks make do: see `holdfast log`."
        )
    agent, path = find_agent(said["agent"]), Path(str(said.get("path") or ""))
    now = _beginning(path, said.get("bytes"))
    data = _content(said)
    if data is None and now is not None and sha256(now[0]).hexdigest() == said.get("sha256"):
        data = now[0]  # such files only grow: what was there is the beginning of what is there
    if data is None:
        raise NotFound(
            f"{checkpoint_id} does not hold the conversation: {said.get('missing', 'it has no content')}",
            hint="Restore the files alone: leave out --with-conversation.",
        )
    if sha256(data).hexdigest() != said.get("sha256") or len(data) != said.get("bytes"):
        raise Damaged(f"the conversation of {checkpoint_id} is not what was kept", hint="Run `holdfast verify`.")
    session = str(said.get("session") or "")
    is_there = now is not None and now == (data, len(data))
    return Kept(agent, session if _SESSION.fullmatch(session) else "", path, data, is_there)


def bring_back(kept: Kept, places: Places, *, new_session: str) -> Brought:
    """Write a conversation to a new file, unless the agent still has exactly that, and say how to go on with it."""
    agent = kept.agent
    if kept.is_there:
        resume = agent.resume.format(kept.session) if agent.resume and kept.session else ""
        return Brought(agent.name, kept.session, str(kept.path), resume, is_new=False)
    folder = kept.path.parent
    is_plain = kept.path.suffix in (".jsonl", ".json")
    if agent.forked is not None and kept.session and is_plain and _is_within(folder, agent.data(places)):
        name, data = agent.forked(kept.path.name, kept.data, kept.session, new_session)
        path = _written(folder / name, data)
        return Brought(agent.name, new_session, str(path), agent.resume.format(new_session), is_new=True)
    folder = Path(own_folder(places.environ)) / "conversations"
    durable.make_folder(folder)
    path = _written(folder / f"{agent.name}-{new_session}{kept.path.suffix}", kept.data)
    return Brought(agent.name, kept.session, str(path), "", is_new=True)


def _content(said: Mapping[str, Any]) -> bytes | None:
    if isinstance(said.get("text"), str):
        return str(said["text"]).encode("utf-8", "surrogateescape")
    if isinstance(said.get("base64"), str):
        return base64.b64decode(said["base64"])
    return None


def _beginning(path: Path, count: object) -> tuple[bytes, int] | None:
    """So many bytes of a file from its start, and how large it is now."""
    if not isinstance(count, int) or not 0 <= count <= MOST_HASHED_BYTES or not path.is_absolute():
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
    """Whether a folder that stored bytes name is really in the agent's own: nothing is written elsewhere (P7)."""
    real = Path(os.path.realpath(folder))
    return real.is_dir() and real.is_relative_to(os.path.realpath(data))


def _written(path: Path, data: bytes) -> Path:
    """Make a new file, durably; one that is there is an error."""
    fd = durable.disk().create(str(path))
    try:
        durable.disk().write(fd, data)
        durable.disk().fsync(fd)
    finally:
        os.close(fd)
    durable.sync_folder(path.parent)
    return path
