"""Attribution: who made the changes that are found at an event. Pure: open tool calls and the event decide.

A tool call is *open* from the moment the tool is about to run until it has ended. A change found while one is open was
made by its actor; a change found while none is open, by the user. What the first event of a session finds was there
before it. Where this is not certain, `perhaps` names who else may have made the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from holdfast.adapters.agents.event import AgentEvent, EventKind

USER = "user"
_MAX_SEEN = 64
_MAX_SESSIONS = 32
_FORGOTTEN_AFTER_S = 7 * 86400.0
_STALE_AFTER_S = 6 * 3600.0
_MAX_TURNS = 8
_SAME_PROMPT_S = 2.0


@dataclass(frozen=True, slots=True)
class OpenToolCall:
    """A tool call that has started, and whose end no event has reported yet."""

    tool_use: str
    tool: str
    actor: str
    sub_id: str
    delegates: bool = False
    turn: str = ""
    uses_git: bool = False


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """A turn of a session: what an agent does for one prompt."""

    turn: str
    """Its id, as the agent has it, or made up."""
    prompt: str = ""
    """The first line of what the user asked for."""
    number: int = 0
    """Its number in the workspace; 0 if it has none yet."""
    changed: bool = False
    """Whether a checkpoint of it was saved."""
    sub_ids: tuple[str, ...] = ()
    """The sub-agents that it started, which may go on when it is over."""


@dataclass(frozen=True, slots=True)
class SubAgent:
    """A sub-agent that has a session of its own, which names no parent."""

    tool_use: str
    """The tool call that started it."""
    kind: str = ""
    session: str = ""
    """Its own session; empty until its first event."""


@dataclass(frozen=True, slots=True)
class AgentSession:
    """What is known of one session of one agent. The names of the fields are stored."""

    agent: str
    session: str
    at: float
    """The time of its last event, in seconds since 1970."""
    owner: str = ""
    """The process of the agent, if known."""
    in_turn: bool = False
    tells_tools: bool = False
    """Whether any event of a tool was received: then a change outside every tool call is not the agent's."""
    open: tuple[OpenToolCall, ...] = ()
    background: tuple[OpenToolCall, ...] = ()
    """What may still be running although its tool call, or the turn, has ended."""
    seen: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    """The messages that the user has seen already."""
    prompt: str = ""
    """The first line of what the user asked for last."""
    turns: tuple[AgentTurn, ...] = ()
    """The latest of its turns; the last is the present one."""
    last_kind: str = ""
    """The kind of its last event."""
    sub_agents: tuple[SubAgent, ...] = ()
    """The latest that it started, of an agent whose sub-agents have sessions of their own."""

    def turn_of(self, event: AgentEvent) -> AgentTurn | None:
        """The turn that an event belongs to: that which started a sub-agent, the one it names, or the present one."""
        if event.sub_id:
            for each in reversed(self.turns):
                if event.sub_id in each.sub_ids:
                    return each
        elif event.turn and (named := self.turn(event.turn)):
            return named
        return self.turns[-1] if self.turns else None

    def turn(self, turn: str) -> AgentTurn | None:
        """The turn with an id, if it is one of the latest."""
        return next((each for each in reversed(self.turns) if each.turn == turn), None)

    @property
    def key(self) -> str:
        return f"{self.agent} {self.session}"


@dataclass(frozen=True, slots=True)
class LastEvent:
    """When an agent's hook last fired here."""

    at: float
    event: str
    version: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class AgentSessions:
    """Every known session in one workspace."""

    sessions: dict[str, AgentSession] = field(default_factory=dict)
    fired: dict[str, LastEvent] = field(default_factory=dict)
    branch: str = ""
    """The branch of the user's git at the last event, or its commit if that is detached; empty if it has none."""

    def of(self, event: AgentEvent) -> AgentSession:
        """The session of an event; a new one if it is unknown."""
        fresh = AgentSession(event.agent, event.session, 0.0)
        return self.sessions.get(fresh.key, fresh)


class ChangeAuthor(NamedTuple):
    """Who made the changes that are found at an event."""

    actor: str | None
    """None: the user."""
    session: str | None
    perhaps: tuple[str, ...] = ()
    turn: str = ""
    """The turn of the session; empty if it is not known, or the user made the changes."""


_OF_A_SUB_AGENT = {
    EventKind.START: EventKind.SUB_START,
    EventKind.PROMPT: EventKind.SUB_START,
    EventKind.STOP: EventKind.SUB_STOP,
    EventKind.END: EventKind.SUB_STOP,
}


def as_sub_agent(known: AgentSessions, event: AgentEvent) -> tuple[AgentSessions, AgentEvent]:
    """Return an event of a sub-agent with a session of its own as one of the session that started it.

    Which one did is not in the event. It is known once a tool of an unknown session is reported while exactly one
    session has started a sub-agent from which no event came yet. A chat that a person begins reports its prompt first.
    """
    if not event.sub_sessions or not event.session:
        return known, event
    if event.sub_id:  # the id of the tool call that started it
        subs = known.of(event).sub_agents
        return known, next(
            (replace(event, sub_id=each.session) for each in subs if event.sub_id == each.tool_use and each.session),
            event,
        )
    parents = [each for each in known.sessions.values() if each.agent == event.agent]
    for parent in parents:
        for each in parent.sub_agents:
            if each.session == event.session:
                return known, _from_sub_agent(event, parent, each)
    waiting = [parent for parent in parents if any(not each.session for each in parent.sub_agents)]
    is_unknown = known.of(event).key not in known.sessions
    if event.kind not in (EventKind.BEFORE, EventKind.AFTER) or not is_unknown or len(waiting) != 1:
        return known, event
    (parent,) = waiting
    first = next(each for each in parent.sub_agents if not each.session)
    found = replace(first, session=event.session)
    subs = tuple(found if each is first else each for each in parent.sub_agents)
    known = replace(known, sessions={**known.sessions, parent.key: replace(parent, sub_agents=subs)})
    return known, _from_sub_agent(event, parent, found)


def _from_sub_agent(event: AgentEvent, parent: AgentSession, sub: SubAgent) -> AgentEvent:
    kind = _OF_A_SUB_AGENT.get(event.kind, event.kind)
    return replace(event, kind=kind, session=parent.session, sub_id=event.session, sub=sub.kind)


def _started(subs: tuple[SubAgent, ...], event: AgentEvent) -> tuple[SubAgent, ...]:
    """The sub-agents of a session after an event of it. Those that never reported anything end with their tool call,
    unless that left them running, or with the turn."""
    if not event.sub_sessions:
        return subs
    waiting = [each for each in subs if not each.session]
    if event.kind is EventKind.BEFORE and event.delegates:
        if all(each.tool_use != event.tool_use for each in waiting):  # else it is reported twice
            subs = (*subs, SubAgent(event.tool_use, event.starts))[-_MAX_SEEN:]
    elif event.kind is EventKind.SUB_START and event.sub_id and not waiting and not _is_one(subs, event.sub_id):
        subs = (*subs, SubAgent(event.sub_id, event.sub))[-_MAX_SEEN:]
    elif event.kind is EventKind.SUB_START and waiting and not waiting[-1].kind:
        subs = tuple(replace(each, kind=event.sub) if each is waiting[-1] else each for each in subs)
    elif event.kind is EventKind.AFTER and event.delegates and not event.background:
        subs = tuple(each for each in subs if each.session or each.tool_use != event.tool_use)
    elif event.kind in (EventKind.START, EventKind.PROMPT, EventKind.END):
        subs = tuple(each for each in subs if each.session)
    return subs


def _is_one(subs: tuple[SubAgent, ...], sub_id: str) -> bool:
    """Whether an id is that of a sub-agent, or of the tool call that started it."""
    return any(sub_id in (each.session, each.tool_use) for each in subs)


def is_repeated(known: AgentSessions, event: AgentEvent) -> bool:
    """Whether this very event was received before: from two settings files, or two agents that read one.

    An id that comes again after its tool has ended may belong to another tool, which must not go unsaved.
    """
    seen = known.of(event).seen
    return event.key in seen and not (event.kind is EventKind.BEFORE and _end_of(event) in seen)


def find_author(known: AgentSessions, event: AgentEvent, *, owner: str = "") -> ChangeAuthor:
    """Attribute the changes that are found at an event, before the event itself is applied.

    A session that another process (`owner`) resumes is in no turn yet: the user may have worked since.
    """
    mine = known.of(event)
    if owner and mine.owner and owner != mine.owner:
        mine = replace(mine, in_turn=False)
    suspects = _suspects(known, event, mine)
    present = mine.turn_of(event)
    own = _Suspect(event.actor, event.session, present.turn if present else "")
    if event.kind is EventKind.AFTER and not event.delegates:
        if ended := _ended_call(mine.open, event):
            return _author(own._replace(turn=ended.turn or own.turn), suspects)
        if mine.in_turn or _has_started(mine, event):  # it was working, but what was there before is unknown
            return _author(own, suspects, (USER,))
        if suspects:
            return _author(suspects[0], suspects[1:], (event.actor, USER))
        return ChangeAuthor(None, event.session or None, (event.actor,))
    if suspects:
        # a tool call without an end was interrupted, denied or killed: the user may have worked since
        doubt = () if event.kind is EventKind.BEFORE else (USER,)
        return _author(suspects[0], suspects[1:], doubt)
    if mine.background and mine.in_turn:
        first, *others = _actors(mine.background)
        return ChangeAuthor(first, mine.session or None, (*others, USER), mine.background[0].turn)
    is_closing = event.kind in (EventKind.AFTER, EventKind.STOP, EventKind.BATCH, EventKind.SUB_STOP, EventKind.END)
    if is_closing and mine.in_turn and not mine.tells_tools:
        return ChangeAuthor(event.actor, event.session or None, (USER,), own.turn)
    return ChangeAuthor(None, event.session or None, _others_in_background(known))


def after_switch(known: AgentSessions, author: ChangeAuthor, branch: str) -> ChangeAuthor:
    """The author of changes, if the branch of the user's git is another than at the last event: switching it changed
    files. If no open tool call names git, the user did, and an undo of the agent must not take that back."""
    if not known.branch or branch == known.branch or author.actor is None:
        return author
    calls = [call for session in known.sessions.values() for call in (*session.open, *session.background)]
    if any(call.uses_git for call in calls):
        return author._replace(perhaps=tuple(dict.fromkeys((*author.perhaps, USER))))
    others = dict.fromkeys((author.actor, *(who for who in author.perhaps if who != USER)))
    return ChangeAuthor(None, author.session, tuple(others))


def begins_turn(known: AgentSessions, event: AgentEvent, *, now: float) -> str:
    """The id of the turn that an event begins; empty if it belongs to one that has begun.

    A prompt begins one. If that was not reported, an id that is not known does, or the first tool of a session.
    """
    mine = known.of(event)
    if event.kind is EventKind.PROMPT and not event.sub_id:
        is_known = bool(event.turn) and mine.turn(event.turn) is not None
        is_again = not event.turn and _is_same_prompt(mine, event, now)  # from two settings files
        return "" if is_known or is_again else event.turn or f"prompt-{now:.3f}"
    if event.kind not in (EventKind.BEFORE, EventKind.AFTER) or (mine.turn_of(event) and event.sub_id):
        return ""
    if event.turn and not event.sub_id:
        return "" if mine.turn(event.turn) else event.turn
    return "" if mine.turns else event.turn or f"tool-{now:.3f}"


def _is_same_prompt(session: AgentSession, event: AgentEvent, now: float) -> bool:
    last = session.turns[-1] if session.turns else None
    is_fresh = 0 <= now - session.at < _SAME_PROMPT_S and session.last_kind == EventKind.PROMPT
    return last is not None and is_fresh and last.prompt == event.subject


def apply_event(
    known: AgentSessions,
    event: AgentEvent,
    *,
    now: float,
    owner: str,
    is_alive: Callable[[str], bool],
    told: Iterable[str] = (),
    begun: AgentTurn | None = None,
    branch: str = "",
) -> AgentSessions:
    """The sessions after an event. `begun`: the turn that it begins. `branch`: of the user's git."""
    mine = in_turn(known, event, begun).of(event)
    mine = replace(_advance(mine, event), last_kind=str(event.kind), sub_agents=_started(mine.sub_agents, event))
    mine = replace(mine, seen=_seen(mine, event), told=tuple(dict.fromkeys((*mine.told, *told))))
    mine = replace(mine, at=now, owner=owner or mine.owner)
    sessions = {
        key: _other_session(session, event)
        if _may_run(session, now, is_alive)
        else replace(session, open=(), background=())
        for key, session in known.sessions.items()
        if now - session.at < (_FORGOTTEN_AFTER_S if session.open or session.background else _STALE_AFTER_S)
    }
    sessions.pop(mine.key, None)
    newest = dict(sorted(sessions.items(), key=lambda item: item[1].at)[-(_MAX_SESSIONS - 1) :])
    before = known.fired.get(event.agent)
    fired = LastEvent(
        now, event.name, event.version or (before.version if before else ""), before.count + 1 if before else 1
    )
    return AgentSessions({**newest, mine.key: mine}, {**known.fired, event.agent: fired}, branch)


def turn_of_author(known: AgentSessions, author: ChangeAuthor) -> AgentTurn | None:
    """The turn in which the changes of an author were made; None if that is not known."""
    session = known.sessions.get(_key_of(author))
    return session.turn(author.turn) if session and author.turn else None


def with_change(known: AgentSessions, author: ChangeAuthor) -> AgentSessions:
    """The sessions after a checkpoint of an author's turn was saved."""
    found = turn_of_author(known, author)
    if found is None or found.changed:
        return known
    session = known.sessions[_key_of(author)]
    turns = tuple(replace(each, changed=True) if each is found else each for each in session.turns)
    return replace(known, sessions={**known.sessions, session.key: replace(session, turns=turns)})


def _key_of(author: ChangeAuthor) -> str:
    return f"{(author.actor or '').partition('/')[0]} {author.session or ''}"


def in_turn(known: AgentSessions, event: AgentEvent, begun: AgentTurn | None) -> AgentSessions:
    """The sessions with the turn that an event begins, and with a sub-agent in the turn that started it."""
    session = known.of(event)
    turns = session.turns if begun is None else (*session.turns, begun)[-_MAX_TURNS:]
    if event.sub_id and turns and not any(event.sub_id in each.sub_ids for each in turns):
        now = turns[-1]
        turns = (*turns[:-1], replace(now, sub_ids=(*now.sub_ids, event.sub_id)[-_MAX_SEEN:]))
    return replace(known, sessions={**known.sessions, session.key: replace(session, turns=turns)})


def _seen(session: AgentSession, event: AgentEvent) -> tuple[str, ...]:
    """The events received so far; a new turn may use the same ids again."""
    if event.kind in (EventKind.START, EventKind.PROMPT, EventKind.END):
        return (event.key,) if event.key else ()
    dropped = (event.key, _end_of(event) if event.kind is EventKind.BEFORE else "")
    return tuple(key for key in (*(key for key in session.seen if key not in dropped), event.key) if key)[-_MAX_SEEN:]


def _end_of(event: AgentEvent) -> str:
    return replace(event, kind=EventKind.AFTER).key


def _other_session(session: AgentSession, event: AgentEvent) -> AgentSession:
    """Another session than the event's. If sub-agents have their own sessions, it may be waiting for this one."""
    if event.agent != session.agent or event.kind not in (EventKind.BEFORE, EventKind.AFTER):
        return session
    return replace(session, open=tuple(each for each in session.open if not each.delegates))


def _advance(session: AgentSession, event: AgentEvent) -> AgentSession:
    kind = event.kind
    if event.sub_id:  # sub-agents report their own tools, so the call that started them is not open for their work
        session = replace(session, open=tuple(each for each in session.open if not each.delegates))
    if kind is EventKind.BEFORE:
        opened = (
            () if event.key in session.seen else (_open_call(session, event),)
        )  # it may be reported late, and have ended
        return replace(session, open=(*session.open, *opened), tells_tools=True, in_turn=True)
    if kind is EventKind.AFTER:
        return _ended(replace(session, tells_tools=True), event)
    if kind is EventKind.PROMPT:
        return replace(session, open=(), in_turn=True, prompt=event.subject)
    if kind is EventKind.START:
        return replace(session, open=(), background=(), in_turn=False)
    if kind in (EventKind.BATCH, EventKind.SUB_STOP):
        return replace(session, open=tuple(each for each in session.open if each.sub_id != event.sub_id))
    if kind is EventKind.STOP:
        return _stopped(session, event)
    if kind is EventKind.END:
        return replace(session, open=(), background=(), in_turn=False)
    return session


def _ended(session: AgentSession, event: AgentEvent) -> AgentSession:
    """A session in which a tool has ended: just now, or in the background, if its id is known."""
    if not _has_started(session, event):
        session = replace(session, in_turn=True)  # its start was not reported; from here on it is known
    left, background = _without(session.open, event), session.background
    if event.background:
        call = _ended_call(session.open, event) or _open_call(session, event)
        background = (*background, call)[-_MAX_SEEN:]
    elif left == session.open and event.tool_use:
        background = tuple(each for each in background if each.tool_use != event.tool_use)
    return replace(session, open=left, background=background)


def _stopped(session: AgentSession, event: AgentEvent) -> AgentSession:
    """A session whose turn is over: its tool calls are closed, but what they started may still run."""
    mine = [each for each in session.open if each.sub_id == event.sub_id]
    left = tuple(each for each in session.open if each.sub_id != event.sub_id)
    background = session.background
    if event.still_running is not None:
        background = (*background, *mine) if event.still_running else ()
    return replace(session, open=left, background=background[-_MAX_SEEN:], in_turn=False)


def _open_call(session: AgentSession, event: AgentEvent) -> OpenToolCall:
    turn = session.turn_of(event)
    return OpenToolCall(
        event.tool_use,
        event.tool,
        event.actor,
        event.sub_id,
        event.delegates,
        turn.turn if turn else event.turn,
        event.uses_git,
    )


def _ended_call(calls: tuple[OpenToolCall, ...], event: AgentEvent) -> OpenToolCall | None:
    """The call that an event closes: by its id, else the oldest of that tool."""
    for call in calls:
        by_id = bool(event.tool_use and call.tool_use)
        if call.tool_use == event.tool_use if by_id else call.tool == event.tool and call.sub_id == event.sub_id:
            return call
    return None


def _has_started(session: AgentSession, event: AgentEvent) -> bool:
    """Whether the start of the tool that ends was reported."""
    in_background = event.tool_use and any(each.tool_use == event.tool_use for each in session.background)
    return bool(in_background) or len(_without(session.open, event)) < len(session.open)


def _without(calls: tuple[OpenToolCall, ...], event: AgentEvent) -> tuple[OpenToolCall, ...]:
    """The calls without the one that an event closes."""
    ended = _ended_call(calls, event)
    return tuple(call for call in calls if call is not ended)


class _Suspect(NamedTuple):
    """Who may have made a change, and in which turn."""

    actor: str
    session: str
    turn: str


def _suspects(known: AgentSessions, event: AgentEvent, mine: AgentSession) -> list[_Suspect]:
    """Who has a tool call open, likeliest first: the actor itself, its session, others."""
    counted = [call for call in mine.open if not (event.sub_id and call.delegates)]
    found = sorted(counted, key=lambda call: (call.sub_id != event.sub_id, call.delegates))
    own = [_Suspect(call.actor, mine.session, call.turn) for call in found]
    others = [
        _Suspect(call.actor, session.session, call.turn)
        for session in known.sessions.values()
        if session.key != mine.key
        for call in _other_session(session, event).open
    ]
    return list(dict.fromkeys([*own, *others]))


def _author(who: _Suspect, others: list[_Suspect], doubt: tuple[str, ...] = ()) -> ChangeAuthor:
    perhaps = dict.fromkeys([each.actor for each in others if each[:2] != who[:2]] + list(doubt))
    return ChangeAuthor(who.actor, who.session or None, tuple(perhaps), who.turn)


def _others_in_background(known: AgentSessions) -> tuple[str, ...]:
    return _actors(call for session in known.sessions.values() for call in session.background)


def _actors(calls: Iterable[OpenToolCall]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(call.actor for call in calls))


def _may_run(session: AgentSession, now: float, is_alive: Callable[[str], bool]) -> bool:
    """Whether a tool of a session may still run: its agent is alive or, if unknown, sent an event recently."""
    if not (session.open or session.background):
        return True
    return is_alive(session.owner) if session.owner else now - session.at < _STALE_AFTER_S
