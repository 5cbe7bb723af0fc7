"""Handling one event of an agent: read it, find its workspace, save that if it changed. Never fails, whatever comes."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast import durable
from holdfast.adapters.agents import parent_process, transcript
from holdfast.adapters.agents.attribution import (
    AgentSessions,
    AgentTurn,
    ChangeAuthor,
    after_switch,
    apply_event,
    as_sub_agent,
    begins_turn,
    find_author,
    in_turn,
    is_repeated,
    turn_of_author,
    with_change,
)
from holdfast.adapters.agents.base import Agent, find_agent
from holdfast.adapters.agents.event import AgentEvent, EventFields, EventKind, label, plain, shortened
from holdfast.adapters.agents.hook_log import log
from holdfast.adapters.agents.names import AGENT_NAMES
from holdfast.adapters.agents.protocol import state_folder
from holdfast.adapters.agents.session_file import SessionFile
from holdfast.errors import HoldfastError, Refused
from holdfast.model import JSON, Checkpoint
from holdfast.model.checkpoint import TYPE
from holdfast.scan.user_git import common_dir, git_dir, repository_of
from holdfast.workspace.capture.save import StateAndMetadata
from holdfast.workspace.capture.scanner import git_head_of
from holdfast.workspace.store_paths import project_root
from holdfast.workspace.stored.attribution import PROMPT, TURN, TURN_NUMBER
from holdfast.workspace.stored.history import PROMPT_MESSAGE
from holdfast.workspace.upkeep.growth import leave_notice, take_notice

if TYPE_CHECKING:
    from holdfast.workspace import Workspace


INCOMPLETE = "incomplete"
_MESSAGE_MAX = 300
_REFUSALS_KEPT = 200
_ELSEWHERE = "Start the agent in a project folder; `holdfast doctor` says more."
_REMEDIES = {"usage": "See what takes space: holdfast usage"}  # for the user, who has the command line
_LATE = "saving took longer than the agent waits, so the tool may have started before all files were read"


class HookCall(NamedTuple):
    """The input of a hook process."""

    agent: str
    event_name: str
    """The name of the event, if the agent passes it as an argument."""
    data: bytes
    cwd: str
    parent: int
    """The process that called the hook."""
    deadline: float
    """When the agent gets its answer in any case; in seconds since 1970."""
    environ: Mapping[str, str]


Opened = Callable[[Path, Mapping[str, str]], "Workspace"]


def open_workspace(folder: Path, environ: Mapping[str, str], *, watch: bool = False) -> Workspace:
    """Open a folder as the command line would, with its configuration; an invalid one is ignored."""
    from holdfast.workspace import Workspace
    from holdfast.workspace.config import Settings, read_settings

    try:
        settings = read_settings(folder)
    except HoldfastError:
        settings = Settings()
    options = settings.options() | {"on_unknown": "tagged"}  # a hook does not decode the states of other programs
    workspace = Workspace(folder, environ=environ, home=home_of(environ), watch=watch, **options)
    workspace.defer_git()  # `after_save` follows, once the agent has its answer
    return workspace


def home_of(environ: Mapping[str, str]) -> Path:
    """The home folder in the environment of the caller."""
    return Path(environ.get("HOME") or os.path.expanduser("~"))


def handle_event(call: HookCall, *, opened: Opened = open_workspace) -> bytes:
    """Handle one event, and return what goes to stdout: nothing, or one JSON object."""
    try:
        agent = find_agent(call.agent)
        event = _read(agent, call)
        if event.kind is EventKind.OTHER and event.name:
            return b""  # an event that is not about files
        if event.reads:
            return b""
        messages = []
        for folder in find_workspaces(event, cwd=call.cwd, home=home_of(call.environ), environ=call.environ):
            try:
                messages.append(save_event(event, folder, call, opened))
            except (HoldfastError, OSError) as error:
                _log(call, f"{event.name}: {_in_short(error)}")
                messages.append(_refused(event, folder, error, call) or _not_saved(event, error))
        text = " ".join(filter(None, messages))
        return json.dumps({"systemMessage": text}).encode() + b"\n" if text and _speaks(event.agent) else b""
    except Exception as error:  # a failing hook would end the agent's turn; the log has the error
        _log(call, f"unexpected {type(error).__name__}: {error}")
        return b""


def _read(agent: Agent, call: HookCall) -> AgentEvent:
    fields = EventFields.parse(call.data)
    if call.event_name:
        fields = fields.named(call.event_name)
    if not fields.is_whole:
        _log(call, f"the input ({len(call.data)} bytes) is not a JSON object; the workspace is saved anyway")
    return agent.read(fields, call.environ)


def save_event(event: AgentEvent, folder: Path, call: HookCall, opened: Opened) -> str:
    """Save, attribute the changes, and record the event; in that order, so that a kill in between is harmless.

    If a checkpoint was saved and the event not recorded, the next event finds nothing changed.
    """
    workspace = opened(folder, call.environ)
    subject = event.subject
    if workspace.redact:
        from holdfast.secret_patterns import redact  # start-up cost, only if it is configured

        subject = redact(subject)  # before it is cut: half a key is not recognized
    event = replace(event, subject=label(subject))
    session_file = SessionFile(workspace.store)
    with session_file.lock:
        known, event = as_sub_agent(session_file.read(), event)
        if is_repeated(known, event):
            return ""
        now, caller = time.time(), parent_process.owner_of(call.parent)
        begins = begins_turn(known, event, now=now)
        if begins and event.kind is not EventKind.PROMPT:
            known = in_turn(known, event, _begin(workspace, event, begins))
            begins = ""
        branch = _branch(workspace.path)
        author = after_switch(known, find_author(known, event, owner=caller), branch)
        saved = _save(workspace, event, author, call, known)
        if saved is not None and (turn := turn_of_author(known, author)) and not turn.changed:
            workspace.note_turn_change(turn.number)
            known = with_change(known, author)
        message = _user_message(saved, known.of(event).told)
        session_file.write(
            apply_event(
                known,
                event,
                now=now,
                owner=caller,
                is_alive=parent_process.is_alive,
                told=(INCOMPLETE,) if message else (),
                branch=branch,
                begun=_begin(workspace, event, begins) if begins else None,  # after what the user did until now
            )
        )
    if event.kind is EventKind.STOP:
        _end_turn(workspace, event, known)
    if workspace.moved_from is not None and saved is not None:
        _log(call, f"{workspace.path} was {workspace.moved_from} before: its checkpoints continue")
    if workspace.recovered is not None:
        _log(call, f"an interrupted restore was {workspace.recovered.outcome}")
    if not message and _speaks(event.agent) and (notice := take_notice(workspace.store)):
        return f"Holdfast: {notice}"
    return message


def after_save(workspace: Workspace) -> None:
    """Do what follows a save, once no agent waits. What it has to say waits for the next hook that can show it."""
    if found := workspace.after_save():
        from holdfast.remedies import word_remedy  # start-up cost: seldom needed

        pairs = [(each.message, word_remedy(each.remedy, _REMEDIES)) for each in found]
        leave_notice(workspace.store, [". ".join(filter(None, pair)) for pair in pairs])
    workspace.start_wanted_check()


def _end_turn(workspace: Workspace, event: AgentEvent, known: AgentSessions) -> None:
    if not event.sub_id:
        _note_closing(workspace, event, known)
    if workspace.check_command is not None:
        with contextlib.suppress(HoldfastError, OSError):  # the helper runs it once the agent has its answer
            workspace.want_check()


def _speaks(agent: str) -> bool:
    """Whether messages for the user are shown; so are those of an agent that speaks the generic protocol."""
    return agent not in AGENT_NAMES or find_agent(agent).speaks


def _branch(folder: Path) -> str:
    """The branch of the user's git, or its commit if that is detached; empty outside of a repository."""
    head = git_head_of(repository_of(folder))
    return "" if head is None else head.branch or head.commit


def _begin(workspace: Workspace, event: AgentEvent, turn: str) -> AgentTurn:
    """Note that a turn begins. If it cannot be noted, its checkpoints still have its id."""
    prompt = event.subject if event.kind is EventKind.PROMPT else ""
    try:
        start = workspace.begin_turn(agent=event.agent, session=event.session or None, turn=turn, prompt=prompt)
    except (HoldfastError, OSError):
        return AgentTurn(turn, prompt)
    return AgentTurn(turn, prompt or start.prompt, start.number, start.changed)


def _note_closing(workspace: Workspace, event: AgentEvent, known: AgentSessions) -> None:
    """Note what the agent said at the end of its turn. If that fails, the turn has no such message."""
    turn = known.of(event).turn_of(event)
    if turn is None or not turn.number:
        return
    said = event.closing or transcript.closing_in(event.transcript)  # what older versions of it have written by now
    if said:
        from holdfast.secret_patterns import redact  # start-up cost, once a turn

        with contextlib.suppress(HoldfastError, OSError):  # always redacted: no checkpoint has it, so no purge finds it
            workspace.end_turn(turn.number, shortened(redact(said)))


def _save(
    workspace: Workspace, event: AgentEvent, author: ChangeAuthor, call: HookCall, known: AgentSessions
) -> Checkpoint | None:
    def details() -> StateAndMetadata:
        found = transcript.capture(event, workspace.path, redacts=workspace.redact)
        has_begun = event.kind not in (EventKind.START, EventKind.PROMPT)  # before, it has no file yet
        if "missing" in found and event.transcript and has_begun:
            _log(call, f"the conversation {event.transcript} is not saved: {found['missing']}")
        model = event.model or transcript.model_in(found)
        metadata = _metadata(event, author, known, model)
        if time.time() > call.deadline:  # the agent has continued: the tool may be running already
            metadata |= {INCOMPLETE: _LATE, "perhaps": sorted({*author.perhaps, event.actor} - {author.actor})}
        return StateAndMetadata({transcript.STATE: found}, metadata)

    message = _message(event, author)
    if event.kind is EventKind.COMPACT:
        state, metadata = details()
        return workspace.save(
            message, state=state, actor=author.actor, session=author.session, metadata=metadata, allow_empty=True
        )
    return workspace.save_changes(message, details=details, actor=author.actor, session=author.session)


def _message(event: AgentEvent, author: ChangeAuthor) -> str:
    what = f"{event.tool}: {event.subject}" if event.tool and event.subject else event.tool or event.subject
    if event.kind is EventKind.AFTER and author.actor == event.actor:
        return what
    if event.kind is EventKind.BEFORE:
        return f"before {what}"
    if event.kind is EventKind.PROMPT:
        return f"{PROMPT_MESSAGE}{event.subject}" if event.subject else "before prompt"
    return event.name or "unreadable event"


def _metadata(event: AgentEvent, author: ChangeAuthor, known: AgentSessions, model: str) -> dict[str, JSON]:
    turn = turn_of_author(known, author)
    present = known.of(event).turn_of(event)
    is_own = author.actor is not None and author.session == (event.session or None)
    found: dict[str, JSON] = {
        TYPE: "session" if event.kind is EventKind.START else "automatic",
        "agent": event.agent,
        "event": event.name,
        TURN: author.turn if author.actor else event.turn or (present.turn if present else ""),
        TURN_NUMBER: turn.number if turn else 0,
        PROMPT: turn.prompt if turn else "",
        "model": model if is_own else "",
        "tool": event.tool,
        "tool_use": event.tool_use,
        "agent_version": event.version,
        "cwd": event.cwd,
        "permission_mode": event.permission_mode,
        "sub_agent": event.sub_id,
        "perhaps": list(author.perhaps),
    }
    return {key: value for key, value in found.items() if value}


def _user_message(saved: Checkpoint | None, shown: tuple[str, ...]) -> str:
    """What to show to the user, once a session."""
    if saved is None or INCOMPLETE in shown:
        return ""
    failures = [entry for entry in saved.uncovered if entry.reason.is_failure]
    if failures:
        return (
            f"Holdfast: checkpoint {saved.id} does not contain {failures[0].path or 'anything'}"
            f"{f' and {len(failures) - 1} more' if failures[1:] else ''}"
            f" ({failures[0].reason.value}); see: holdfast show {saved.id} --uncovered"
        )
    if INCOMPLETE in saved.metadata:
        return f"Holdfast: checkpoint {saved.id} may not be what was there before the tool: {_LATE}."
    return ""


def _not_saved(event: AgentEvent, error: Exception) -> str:
    """What to show if a tool is about to run without a checkpoint (P4); `_refused` reports a refusal once."""
    if event.kind is not EventKind.BEFORE or isinstance(error, Refused):
        return ""
    return f"Holdfast could not save a checkpoint before {event.tool or 'this tool'}: {plain(str(error), _MESSAGE_MAX)}"


def _refused(event: AgentEvent, folder: Path, error: Exception, call: HookCall) -> str:
    """What to show if a folder is no project, such as the home folder; once a session, since nothing else will (P4)."""
    if not isinstance(error, Refused):
        return ""
    told = Path(state_folder(call.environ)) / "refused"
    session = event.session or datetime.now(UTC).date().isoformat()
    line = plain(f"{event.agent} {session} {folder}", _MESSAGE_MAX)
    try:
        before = told.read_text("utf-8", "replace").splitlines()
    except OSError:
        before = []
    if line in before:
        return ""
    with contextlib.suppress(OSError):  # else it is said again
        durable.make_folder(told.parent)
        text = "".join(f"{each}\n" for each in [*before[-_REFUSALS_KEPT:], line])
        durable.write_atomically(told, text.encode("utf-8", "replace"), sync=False)
    why = plain(error.message, _MESSAGE_MAX)
    return f"Holdfast saves no checkpoints here: {why}. {_ELSEWHERE}"


def _in_short(error: Exception) -> str:
    """An error without advice for Python callers."""
    return f"{error.message}. {error.advice}".strip() if isinstance(error, HoldfastError) else str(error)


def _log(call: HookCall, text: str) -> None:
    log(call.environ, call.agent, text, now=datetime.now(UTC))


def find_workspaces(event: AgentEvent, *, cwd: str, home: Path, environ: Mapping[str, str]) -> list[Path]:
    """The folders to save, as real paths: usually one; several if an agent has several open."""
    there = [each for each in event.folders if os.path.isabs(each) and os.path.isdir(each)]  # one may have been moved
    named = [Path(os.path.realpath(each)) for each in there]
    here = _real(event.cwd or ("" if named else cwd))  # some agents run hooks in a folder of their own
    target = _real(event.path) if os.path.isabs(event.path) else None
    inside = [folder for folder in named if here is not None and here.is_relative_to(folder)]
    if target is not None:
        inside = [folder for folder in named if target.is_relative_to(folder)] or inside
    if inside:
        return [_within(max(inside, key=lambda each: len(each.parts)), here, target)]
    if here is None or len(named) > 1:
        return list(dict.fromkeys(named))
    root = project_root(here, home=home, environ=environ)
    if root is None and event.cwd and not os.path.isdir(event.cwd):  # it was removed: its parent was not meant
        here = _real(cwd) or here
        root = project_root(here, home=home, environ=environ)
    return [root or (named[0] if named else here)]


def _real(path: str) -> Path | None:
    """The real path of a folder, or of the nearest parent that exists."""
    if not path or not os.path.isabs(path) or "\0" in path:
        return None
    real = Path(os.path.realpath(path))
    while not real.is_dir() and real != real.parent:
        real = real.parent
    return real


def _within(project: Path, here: Path | None, target: Path | None) -> Path:
    """The project, or the worktree in it that the agent is in; unless the tool's file is not in that worktree."""
    tree = _worktree(here, project) if here is not None else project
    if target is None or target.is_relative_to(tree) or not target.is_relative_to(project):
        return tree
    return _worktree(target, project)


def _worktree(here: Path, project: Path) -> Path:
    """The git worktree inside the project that the agent is in, else the project."""
    for folder in (here, *here.parents):
        if folder == project:
            break
        git = git_dir(folder)
        if git is not None and common_dir(git) != git:  # not so in a submodule, which belongs to the project
            return folder
    return project
