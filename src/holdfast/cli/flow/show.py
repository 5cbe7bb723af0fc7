"""`holdfast show LOCATION`: one checkpoint with its state."""

from __future__ import annotations

from typing import Any

from holdfast.cli import output, render
from holdfast.cli.app import App
from holdfast.cli.flow import readable, refs, telling
from holdfast.cli.flow.opening import keys_of, opened, session_of
from holdfast.cli.locations import Asked, session_needed
from holdfast.errors import NotFound
from holdfast.flow import Encoded, Place, States

_VALUE_CHARS = 80


def show(app: App, place: Asked, word: str | None) -> None:
    """Show what is told of a checkpoint, its state, and the writes that wait on it."""
    given = session_needed(place, "show")
    with opened(place.location, keys_of(place)) as location:
        states = location.tenant(place.tenant or "")
        session = session_of(location, states, given)
        at = refs.find(states, session, place.namespace, word)
        found = states.load_encoded(session, at.checkpoint_id, namespace=at.namespace)
        if found is None:
            raise NotFound(f"checkpoint {at.checkpoint_id!r} is gone", hint="It was deleted just now.")
        state, writes = telling.lossless(found.state), _writes(states, at)
        if app.json:
            app.document({"checkpoint": telling.metadata(states, found.metadata) | {"state": state, "writes": writes}})
            return
        _print(states, found, state, writes)


def _writes(states: States, place: Place) -> list[dict[str, Any]]:
    return [
        {
            "task_id": row.task_id,
            "index": row.idx,
            "task_path": row.task_path,
            "channel": row.channel,
            "value": telling.lossless(states.sealer.open_write_bytes(place, row)),
        }
        for row in states.store.writes([place])[place]
    ]


def _print(states: States, found: Encoded, state: Any, writes: list[dict[str, Any]]) -> None:
    told = found.metadata
    extra = telling.lossless_value(states, dict(told.extra))
    pairs = [
        ("checkpoint", render.paint(telling.name(told.checkpoint_id), "cyan")),
        ("session", telling.name(told.session_id)),
        ("tenant", telling.name(states.store.tenant)),
        ("namespace", telling.name(told.namespace)),
        ("when", telling.when(told.timestamp)),
        ("node", telling.name(str(told.node_name))),
        ("step", str(told.step)),
        ("parent", telling.name(told.parent_id or "")),
        ("run", telling.name(told.run_id or "")),
        ("tags", ", ".join(map(telling.name, told.tags))),
        ("number", str(told.sequence)),
        ("extra", "\n".join(readable.lines(extra)) if extra else ""),
        ("state", render.size(len(found.state))),
        ("writes", "\n".join(map(_write, writes))),
    ]
    output.answer(render.fields(pairs))
    output.answer()
    for line in telling.shallow(lambda: list(readable.lines(state))):
        output.answer(line)


def _write(write: dict[str, Any]) -> str:
    value = readable.inline(write["value"], _VALUE_CHARS)
    return f"{telling.name(write['channel'])} by {telling.name(write['task_id'])}: {value}"
