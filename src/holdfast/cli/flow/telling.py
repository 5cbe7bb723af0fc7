"""How checkpoints of a flow look: as JSON without loss, and to people, made harmless."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from holdfast.cli import render
from holdfast.errors import Refused
from holdfast.flow import CheckpointMetadata, States
from holdfast.harmless import escape_path
from holdfast.serde import to_json

_Shown = TypeVar("_Shown")


def name(text: str) -> str:
    """A name that a caller gave, as it can be given back; in quotes where its blanks would not be seen."""
    shown = escape_path(text)
    return f'"{shown}"' if shown != shown.strip() or "  " in shown else shown


def lossless(encoded: bytes) -> Any:
    """Encoded bytes as JSON's own types, from which `holdfast.serde.from_json` makes the same bytes."""
    return shallow(lambda: json.loads(to_json(encoded)))


def shallow(shown: Callable[[], _Shown]) -> _Shown:
    """What a function makes of a state; Refused where that is nested more deeply than can be shown."""
    try:
        return shown()
    except RecursionError:
        raise Refused("the state is nested too deeply to be shown", hint="Load it in a program.") from None


def lossless_value(states: States, value: Any) -> Any:
    """A value that was read, as `lossless` shows it."""
    return lossless(states.sealer.serde.encode(value))


def metadata(states: States, told: CheckpointMetadata) -> dict[str, Any]:
    """What is told of a checkpoint, as JSON."""
    when = told.timestamp
    return {
        "checkpoint_id": told.checkpoint_id,
        "session_id": told.session_id,
        "tenant": states.store.tenant,
        "namespace": told.namespace,
        "sequence": told.sequence,
        "parent_id": told.parent_id,
        "run_id": told.run_id,
        "step": told.step,
        "node_name": told.node_name,
        "timestamp": when.isoformat() if isinstance(when, datetime) else str(when),
        "tags": list(told.tags),
        "extra": lossless_value(states, dict(told.extra)),
    }


def when(moment: object) -> str:
    """A time for people: here and now where it has a zone, else as it was given."""
    if not isinstance(moment, datetime):
        return render.escape(str(moment))
    try:
        return render.local(moment) if moment.tzinfo is not None else moment.strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # at the ends of the calendar
        return moment.isoformat()
