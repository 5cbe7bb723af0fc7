"""Whose changes are these? Pure: what is open, and what an event says, decide.

A *window* is open from the moment a tool is about to run until it has ended. What is found changed while one is open
was done by its actor; what is found while none is, by the user. The first look of a session is a boundary: what is
found then is not its work. Where that is not certain, `perhaps` names who else may have had a hand in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from holdfast.adapters.agents.event import Event, Kind

USER = "user"
_MOST_SEEN = 64
_MOST_SESSIONS = 32
_FORGOTTEN_AFTER_S = 7 * 86400.0
_STALE_AFTER_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Window:
    """A tool that has begun, and of whose end nobody told yet."""

    tool_use: str
    tool: str
    actor: str
    sub_id: str
    delegates: bool = False
    turn: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """What is known of one session of one agent."""

    agent: str
    session: str
    at: float
    """When it was last heard of, in seconds since 1970."""
    owner: str = ""
    """The process of the agent, where it could be told."""
    in_turn: bool = False
    tells_tools: bool = False
    """Whether events of tools have come: then a change outside of every window is not the agent's."""
    open: tuple[Window, ...] = ()
    background: tuple[Window, ...] = ()
    """What was begun and may still be running, though the tool, or the turn, has ended."""
    seen: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    """What the user was told already."""

    @property
    def key(self) -> str:
        return f"{self.agent} {self.session}"


@dataclass(frozen=True, slots=True)
class Fired:
    """When an agent's hook last fired here."""

    at: float
    event: str
    version: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Windows:
    """Every session that is known in one workspace."""

    sessions: dict[str, Session] = field(default_factory=dict)
    fired: dict[str, Fired] = field(default_factory=dict)

    def of(self, event: Event) -> Session:
        """The session of an event; a new one where it was not heard of."""
        fresh = Session(event.agent, event.session, 0.0)
        return self.sessions.get(fresh.key, fresh)


class Blame(NamedTuple):
    """Who changed what is found changed."""

    actor: str | None
    """None: the user."""
    session: str | None
    perhaps: tuple[str, ...] = ()


def is_repeated(windows: Windows, event: Event) -> bool:
    """Whether this very event was told before: two settings files, or two agents that read one.

    An id that comes again after its tool has ended may be that of another tool, which must not go unsaved.
    """
    seen = windows.of(event).seen
    return event.key in seen and not (event.kind is Kind.BEFORE and _end_of(event) in seen)


def blame(windows: Windows, event: Event, *, owner: str = "") -> Blame:
    """Say whose the changes are that are found at an event, before the event itself counts.

    A session that another process (`owner`) goes on with is in no turn yet: the user may have been at work since.
    """
    mine = windows.of(event)
    if owner and mine.owner and owner != mine.owner:
        mine = replace(mine, in_turn=False)
    suspects = _suspects(windows, event, mine)
    if event.kind is Kind.AFTER and not event.delegates:
        if len(_without(mine.open, event)) < len(mine.open):
            return _blamed((event.actor, event.session), suspects)
        if mine.in_turn or _has_begun(mine, event):  # what was there before it is not known, but that it was at work
            return _blamed((event.actor, event.session), suspects, (USER,))
        if suspects:
            return _blamed(suspects[0], suspects[1:], (event.actor, USER))
        return Blame(None, event.session or None, (event.actor,))
    if suspects:
        doubt = () if event.kind is Kind.BEFORE else (USER,)  # a tool without an end was interrupted, denied or killed
        return _blamed(suspects[0], suspects[1:], doubt)
    if mine.background and mine.in_turn:
        first, *others = _actors(mine.background)
        return Blame(first, mine.session or None, (*others, USER))
    is_closing = event.kind in (Kind.AFTER, Kind.STOP, Kind.BATCH, Kind.SUB_STOP, Kind.END)
    if is_closing and mine.in_turn and not mine.tells_tools:
        return Blame(event.actor, event.session or None, (USER,))
    return Blame(None, event.session or None, _others_in_background(windows))


def after(
    windows: Windows, event: Event, *, now: float, owner: str, is_alive: Callable[[str], bool], told: Iterable[str] = ()
) -> Windows:
    """What is open once an event has been dealt with."""
    mine = _moved_on(windows.of(event), event)
    mine = replace(mine, seen=_seen(mine, event), told=tuple(dict.fromkeys((*mine.told, *told))))
    mine = replace(mine, at=now, owner=owner or mine.owner)
    sessions = {
        key: _beside(session, event) if _may_run(session, now, is_alive) else replace(session, open=(), background=())
        for key, session in windows.sessions.items()
        if now - session.at < (_FORGOTTEN_AFTER_S if session.open or session.background else _STALE_AFTER_S)
    }
    sessions.pop(mine.key, None)
    newest = dict(sorted(sessions.items(), key=lambda item: item[1].at)[-(_MOST_SESSIONS - 1) :])
    before = windows.fired.get(event.agent)
    fired = Fired(
        now, event.name, event.version or (before.version if before else ""), before.count + 1 if before else 1
    )
    return Windows({**newest, mine.key: mine}, {**windows.fired, event.agent: fired})


def _seen(session: Session, event: Event) -> tuple[str, ...]:
    """What is known to have been told, after an event; with another turn, ids may begin anew."""
    if event.kind in (Kind.START, Kind.PROMPT, Kind.END):
        return (event.key,) if event.key else ()
    dropped = (event.key, _end_of(event) if event.kind is Kind.BEFORE else "")
    return tuple(key for key in (*(key for key in session.seen if key not in dropped), event.key) if key)[-_MOST_SEEN:]


def _end_of(event: Event) -> str:
    return replace(event, kind=Kind.AFTER).key


def _beside(session: Session, event: Event) -> Session:
    """Another session. Where sub-agents have sessions of their own, one that speaks may be whom it waits for."""
    if event.agent != session.agent or event.kind not in (Kind.BEFORE, Kind.AFTER):
        return session
    return replace(session, open=tuple(each for each in session.open if not each.delegates))


def _moved_on(session: Session, event: Event) -> Session:
    kind = event.kind
    if event.sub_id:  # sub-agents speak for themselves, so who sent them is not open for their work
        session = replace(session, open=tuple(each for each in session.open if not each.delegates))
    if kind is Kind.BEFORE:
        opened = () if event.key in session.seen else (_window(event),)  # it may as well be told late, and have ended
        return replace(session, open=(*session.open, *opened), tells_tools=True, in_turn=True)
    if kind is Kind.AFTER:
        return _ended(replace(session, tells_tools=True), event)
    if kind is Kind.PROMPT:
        return replace(session, open=(), in_turn=True)
    if kind is Kind.START:
        return replace(session, open=(), background=(), in_turn=False)
    if kind in (Kind.BATCH, Kind.SUB_STOP):
        return replace(session, open=tuple(each for each in session.open if each.sub_id != event.sub_id))
    if kind is Kind.STOP:
        return _stopped(session, event)
    if kind is Kind.END:
        return replace(session, open=(), background=(), in_turn=False)
    return session


def _ended(session: Session, event: Event) -> Session:
    """A session in which a tool has ended: now, or in the background, where it is known by its id."""
    if not _has_begun(session, event):
        session = replace(session, in_turn=True)  # whose beginning nobody told of; from here on it is seen
    left, background = _without(session.open, event), session.background
    if event.background:
        background = (*background, _window(event))[-_MOST_SEEN:]
    elif left == session.open and event.tool_use:
        background = tuple(each for each in background if each.tool_use != event.tool_use)
    return replace(session, open=left, background=background)


def _stopped(session: Session, event: Event) -> Session:
    """A session whose turn is over: its windows are closed, but what was begun in them may go on."""
    mine = [each for each in session.open if each.sub_id == event.sub_id]
    left = tuple(each for each in session.open if each.sub_id != event.sub_id)
    background = session.background
    if event.still_running is not None:
        background = (*background, *mine) if event.still_running else ()
    return replace(session, open=left, background=background[-_MOST_SEEN:], in_turn=False)


def _window(event: Event) -> Window:
    return Window(event.tool_use, event.tool, event.actor, event.sub_id, event.delegates, event.turn)


def _has_begun(session: Session, event: Event) -> bool:
    """Whether the beginning of the tool that ends was seen."""
    in_background = event.tool_use and any(each.tool_use == event.tool_use for each in session.background)
    return bool(in_background) or len(_without(session.open, event)) < len(session.open)


def _without(windows: tuple[Window, ...], event: Event) -> tuple[Window, ...]:
    """The windows less the one that an event closes: by its id, else the oldest of that tool."""
    for number, window in enumerate(windows):
        by_id = bool(event.tool_use and window.tool_use)
        if window.tool_use == event.tool_use if by_id else window.tool == event.tool and window.sub_id == event.sub_id:
            return windows[:number] + windows[number + 1 :]
    return windows


def _suspects(windows: Windows, event: Event, mine: Session) -> list[tuple[str, str]]:
    """Who has a window open, likeliest first: the actor itself, its session, others."""
    counted = [window for window in mine.open if not (event.sub_id and window.delegates)]
    found = sorted(counted, key=lambda window: (window.sub_id != event.sub_id, window.delegates))
    own = [(window.actor, mine.session) for window in found]
    others = [
        (window.actor, session.session)
        for session in windows.sessions.values()
        if session.key != mine.key
        for window in _beside(session, event).open
    ]
    return list(dict.fromkeys([*own, *others]))


def _blamed(who: tuple[str, str], others: list[tuple[str, str]], doubt: tuple[str, ...] = ()) -> Blame:
    perhaps = dict.fromkeys([actor for actor, session in others if (actor, session) != who] + list(doubt))
    return Blame(who[0], who[1] or None, tuple(perhaps))


def _others_in_background(windows: Windows) -> tuple[str, ...]:
    return _actors(window for session in windows.sessions.values() for window in session.background)


def _actors(windows: Iterable[Window]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(window.actor for window in windows))


def _may_run(session: Session, now: float, is_alive: Callable[[str], bool]) -> bool:
    """Whether a tool of a session may still be running: its agent is there or, where unknown, was heard of lately."""
    if not (session.open or session.background):
        return True
    return is_alive(session.owner) if session.owner else now - session.at < _STALE_AFTER_S
