"""Which checkpoint of a session a word means."""

from __future__ import annotations

from holdfast.errors import NotFound, Refused
from holdfast.flow import Place, States
from holdfast.flow.store import Row
from holdfast.harmless import unescape

_LATEST = "latest"
_NAMED = 3


def find(states: States, session: str, namespace: str | None, word: str | None) -> Place:
    """An id, a unique beginning of one, latest, or latest~2. What is an id means that, whatever it looks like.

    Without a namespace: the one without a name first, then any.
    """
    word = _LATEST if word is None else word
    exact = states.store.find(session, namespace or "", word) if word else None
    if exact is not None:
        return exact.place
    rows = states.store.rows(session, namespace)
    for name in (word, _plain(word)):
        found = [row.place for row in rows if row.place.checkpoint_id == name]
        if found:
            return _only(found, word)
    counted = _counted(rows, word)
    if counted is not None:
        return counted
    begun = [row.place for row in rows if word and row.place.checkpoint_id.startswith(word)]
    if begun:
        return _only(begun, word)
    within = f" in namespace {namespace!r}" if namespace is not None else ""
    raise NotFound(f"session {session!r} has no checkpoint {word!r}{within}", hint=_known(rows))


def _counted(rows: list[Row], word: str) -> Place | None:
    """The newest, or the one so many before it, of the namespace without a name if it has any; rows: newest first."""
    back = word.removeprefix(f"{_LATEST}~")
    if word != _LATEST and (back == word or not back.isdecimal()):
        return None
    of_main = [row.place for row in rows if not row.place.namespace] or [row.place for row in rows]
    at = 0 if word == _LATEST else int(back)
    return of_main[at] if at < len(of_main) else None


def _only(found: list[Place], word: str) -> Place:
    if len(found) == 1:
        return found[0]
    if len({place.checkpoint_id for place in found}) == 1:
        spaces = ", ".join(repr(place.namespace) for place in found[:_NAMED])
        raise Refused(f"several namespaces have {word!r}: {spaces}", hint="Say which with --namespace.")
    names = ", ".join(repr(place.checkpoint_id) for place in found[:_NAMED])
    raise Refused(f"{len(found):,} checkpoints begin with {word!r}: {names} …", hint="Write more of it.")


def _known(rows: list[Row]) -> str:
    if not rows:
        return "It has none at all."
    return f"Its newest are {', '.join(repr(row.place.checkpoint_id) for row in rows[:_NAMED])}."


def _plain(word: str) -> str:
    try:
        return unescape(word)
    except Refused:
        return word
