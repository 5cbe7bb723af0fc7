"""One event of an agent: read, judged, and the workspace saved if it changed. Never fails, whatever comes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.agents import owner, transcript
from holdfast.adapters.agents.agent import Agent
from holdfast.adapters.agents.event import Event, Kind
from holdfast.adapters.agents.fields import Fields, plain
from holdfast.adapters.agents.ledger import Ledger
from holdfast.adapters.agents.log import log
from holdfast.adapters.agents.place import workspaces_of
from holdfast.adapters.agents.registry import find_agent
from holdfast.adapters.agents.windows import Blame, after, blame, is_repeated
from holdfast.errors import HoldfastError, Refused
from holdfast.model import JSON, Checkpoint
from holdfast.workspace.capture.save import Details

if TYPE_CHECKING:
    from holdfast.workspace import Workspace

INCOMPLETE = "incomplete"
_SAID_MAX = 300
_LATE = "it took longer than the agent waits: the tool may have begun before all was read"


class Call(NamedTuple):
    """What a hook process was given."""

    agent: str
    event_name: str
    """The name of the event, where the agent gives it as an argument."""
    data: bytes
    cwd: str
    parent: int
    """The process that called the hook."""
    deadline: float
    """When the agent is answered, come what may; in seconds since 1970."""
    environ: Mapping[str, str]


Opened = Callable[[Path, Mapping[str, str]], "Workspace"]


def open_workspace(folder: Path, environ: Mapping[str, str], *, watch: bool = False) -> Workspace:
    """Open a folder as the command line would, with its configuration; one that makes no sense is passed over."""
    from holdfast.workspace import Workspace
    from holdfast.workspace.config import Settings, read_settings

    try:
        settings = read_settings(folder)
    except HoldfastError:
        settings = Settings()
    said = settings.options() | {"on_unknown": "tagged"}  # what others put into states is none of a hook's business
    return Workspace(folder, environ=environ, home=home_of(environ), watch=watch, **said)


def home_of(environ: Mapping[str, str]) -> Path:
    """The home folder, by the environment of whoever called."""
    return Path(environ.get("HOME") or os.path.expanduser("~"))


def answer(call: Call, *, opened: Opened = open_workspace) -> bytes:
    """Deal with one event, and return what goes to stdout: nothing, or one JSON object."""
    try:
        agent = find_agent(call.agent)
        event = _read(agent, call)
        if event.kind is Kind.OTHER and event.name:
            return b""  # an event that says nothing of files
        if event.reads:
            return b""
        said = []
        for folder in workspaces_of(event, cwd=call.cwd, home=home_of(call.environ), environ=call.environ):
            try:
                said.append(_deal(event, folder, call, opened))
            except (HoldfastError, OSError) as error:
                _log(call, f"{event.name}: {error}")
                said.append(_not_saved(event, error))
        text = " ".join(filter(None, said))
        return json.dumps({"systemMessage": text}).encode() + b"\n" if text and find_agent(event.agent).speaks else b""
    except Exception as error:  # a hook that fails would end the agent's turn; the log has it
        _log(call, f"unexpected {type(error).__name__}: {error}")
        return b""


def _read(agent: Agent, call: Call) -> Event:
    fields = Fields.parse(call.data)
    if call.event_name:
        fields = fields.named(call.event_name)
    if not fields.is_whole:
        _log(call, f"the input ({len(call.data)} bytes) is no JSON object; the workspace is looked at all the same")
    return agent.read(fields, call.environ)


def _deal(event: Event, folder: Path, call: Call, opened: Opened) -> str:
    """Save, say whose it was, and open or close windows; in that order, so that a kill between two is harmless.

    A checkpoint that was made and not noted is found made by the next event: nothing has changed since.
    """
    workspace = opened(folder, call.environ)
    ledger = Ledger(workspace.store)
    with ledger.lock:
        windows = ledger.read()
        if is_repeated(windows, event):
            return ""
        caller = owner.owner_of(call.parent)
        whose = blame(windows, event, owner=caller)
        saved = _save(workspace, event, whose, call)
        told = _to_tell(saved, windows.of(event).told)
        ledger.write(
            after(
                windows,
                event,
                now=time.time(),
                owner=caller,
                is_alive=owner.is_alive,
                told=(INCOMPLETE,) if told else (),
            )
        )
    if workspace.recovered is not None:
        _log(call, f"an interrupted restore was {workspace.recovered.outcome}")
    return told


def _save(workspace: Workspace, event: Event, whose: Blame, call: Call) -> Checkpoint | None:
    def details() -> Details:
        found = transcript.capture(event, workspace.path)
        has_begun = event.kind not in (Kind.START, Kind.PROMPT)  # before, there is no file yet
        if "missing" in found and event.transcript and has_begun:
            _log(call, f"the conversation {event.transcript} is not kept: {found['missing']}")
        metadata = _metadata(event, whose)
        if time.time() > call.deadline:  # the agent has gone on: the tool may be at work already
            metadata |= {INCOMPLETE: _LATE, "perhaps": sorted({*whose.perhaps, event.actor} - {whose.actor})}
        return Details({transcript.STATE: found}, metadata)

    message = _message(event, whose)
    if event.kind is Kind.COMPACT:
        state, metadata = details()
        return workspace.save(
            message, state=state, actor=whose.actor, session=whose.session, metadata=metadata, allow_empty=True
        )
    return workspace.save_changes(message, details=details, actor=whose.actor, session=whose.session)


def _message(event: Event, whose: Blame) -> str:
    what = f"{event.tool}: {event.subject}" if event.tool and event.subject else event.tool or event.subject
    if event.kind is Kind.AFTER and whose.actor == event.actor:
        return what
    if event.kind is Kind.BEFORE:
        return f"before {what}"
    if event.kind is Kind.PROMPT:
        return f"before prompt: {event.subject}" if event.subject else "before prompt"
    return event.name or "unreadable event"


def _metadata(event: Event, whose: Blame) -> dict[str, JSON]:
    found: dict[str, JSON] = {
        "agent": event.agent,
        "event": event.name,
        "turn": event.turn,
        "tool": event.tool,
        "tool_use": event.tool_use,
        "agent_version": event.version,
        "cwd": event.cwd,
        "permission_mode": event.permission_mode,
        "sub_agent": event.sub_id,
        "perhaps": list(whose.perhaps),
    }
    return {key: value for key, value in found.items() if value}


def _to_tell(saved: Checkpoint | None, told: tuple[str, ...]) -> str:
    """What the user should hear, once a session."""
    if saved is None or INCOMPLETE in told:
        return ""
    failures = [entry for entry in saved.uncovered if entry.reason.is_failure]
    if failures:
        return (
            f"Holdfast: checkpoint {saved.id} does not hold {failures[0].path or 'anything'}"
            f"{f' and {len(failures) - 1} more' if failures[1:] else ''}"
            f" ({failures[0].reason.value}); see: holdfast show {saved.id} --uncovered"
        )
    if INCOMPLETE in saved.metadata:
        return f"Holdfast: checkpoint {saved.id} is not certain to be what was there before the tool: {_LATE}."
    return ""


def _not_saved(event: Event, error: Exception) -> str:
    """What the user should hear where a tool is about to run without a checkpoint (P4); a refusal is no news."""
    if event.kind is not Kind.BEFORE or isinstance(error, Refused):
        return ""
    return f"Holdfast could not save a checkpoint before {event.tool or 'this tool'}: {plain(str(error), _SAID_MAX)}"


def _log(call: Call, text: str) -> None:
    log(call.environ, call.agent, text, now=datetime.now(UTC))
