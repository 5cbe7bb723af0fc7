"""`holdfast diff LOCATION A B`: what differs between two states of a session."""

from __future__ import annotations

from typing import Any

from holdfast.cli import output, render
from holdfast.cli.app import App
from holdfast.cli.flow import readable, refs, telling
from holdfast.cli.flow.opening import keys_of, opened, session_of
from holdfast.cli.locations import Asked, session_needed
from holdfast.errors import NotFound, Refused
from holdfast.flow import Change, Place, StateDiff, States

_VALUE_CHARS = 200
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def diff(app: App, place: Asked, a: str | None, b: str | None) -> None:
    """Show every place in which two states differ; without B, A and the newest; without both, the last two."""
    given = session_needed(place, "diff")
    with opened(place.location, keys_of(place)) as location:
        states = location.tenant(place.tenant or "")
        session = session_of(location, states, given)
        after = refs.find(states, session, place.namespace, b)
        before = refs.find(states, session, place.namespace, a) if a else _before(states, after)
        if before.namespace != after.namespace:
            spaces = f"{before.namespace!r} and {after.namespace!r}"
            raise Refused(f"they are of two namespaces, {spaces}", hint="Say which with --namespace.")
        found = states.diff(session, before.checkpoint_id, after.checkpoint_id, namespace=before.namespace)
        if app.json:
            app.document(_document(states, found))
            return
        ends = (f"{telling.name(each.checkpoint_id)} (step {each.step})" for each in (found.before, found.after))
        output.note(" → ".join(ends))
        if not found:
            output.note("No differences.")
        for change in found.changes:
            _print(states, change)


def _before(states: States, newest: Place) -> Place:
    """The one that was saved before the newest of its namespace."""
    rows = states.store.rows(newest.session, newest.namespace, limit=2)
    if len(rows) < 2:
        raise NotFound(f"session {newest.session!r} has one checkpoint, and none before it", hint="Name two: A B.")
    return rows[1].place


def _print(states: States, change: Change) -> None:
    sign, colour = _SIGNS[change.kind]
    path = render.escape(change.path) or "the whole state"
    values = [(change.kind != "added", change.before), (change.kind != "removed", change.after)]
    shown = [readable.inline(telling.lossless_value(states, value), _VALUE_CHARS) for holds, value in values if holds]
    output.answer(render.paint(f"{sign} {path}: {' → '.join(shown)}", colour))


def _document(states: States, found: StateDiff) -> dict[str, Any]:
    changes = []
    for each in found.changes:
        change: dict[str, Any] = {"path": each.path, "kind": each.kind}
        if each.kind != "added":
            change["before"] = telling.lossless_value(states, each.before)
        if each.kind != "removed":
            change["after"] = telling.lossless_value(states, each.after)
        changes.append(change)
    ends = {side: telling.metadata(states, getattr(found, side)) for side in ("before", "after")}
    return {**ends, "changes": changes}
