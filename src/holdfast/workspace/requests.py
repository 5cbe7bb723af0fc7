"""What callers ask of a workspace: `SaveRequest` and `RestoreRequest`, checked when they are made.

No dataclasses: loading `dataclasses` and making these two would be a fifth of what a save loads.
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from holdfast.errors import Refused, Remedy
from holdfast.model import JSON, Checkpoint, Progress
from holdfast.validation import check_flag, check_int, check_mapping, check_optional_text
from holdfast.workspace.stored.attribution import TurnKey, Undone
from holdfast.workspace.stored.ids import check_name

if TYPE_CHECKING:
    from holdfast.model import TurnRef  # start-up cost: a save needs none


class _SaveFields(NamedTuple):
    message: str = ""
    state: Mapping[str, JSON] | None = None
    session: str | None = None
    actor: str | None = None
    step: int | None = None
    metadata: Mapping[str, JSON] | None = None
    name: str | None = None
    pinned: bool = False
    allow_empty: bool = False
    rehash: bool = False
    include: Sequence[str] = ()
    """Paths below the workspace that are saved whatever the ignore rules say."""
    progress: Progress | None = None


class SaveRequest(_SaveFields):
    """The arguments of a save. Refused if a checkpoint cannot store them."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker takes the arguments from the fields

        def __new__(cls, *given: Any, **named: Any) -> Self:
            self = super().__new__(cls, *given, **named)
            self._check()
            metadata = as_json(dict(self.metadata or {}), "metadata")
            return self._replace(message=self.message or "", metadata=metadata)  # None is no message

    def replace(self, **changes: Any) -> Self:
        """A copy with other arguments, checked again."""
        return type(self)(**(self._asdict() | changes))

    def _check(self) -> None:
        if self.name is not None:
            check_name(self.name)
        for what, value in (("message", self.message), ("session", self.session), ("actor", self.actor)):
            check_optional_text(value, what)
        if self.step is not None:
            check_int(self.step, "step")
        check_flag(self.pinned, "pinned")
        if self.metadata is not None:
            check_mapping(self.metadata, "metadata")

    @property
    def wants_own_checkpoint(self) -> bool:
        """Whether a checkpoint is made even if nothing changed: a name or a pin must not go to an existing one."""
        return self.allow_empty or self.name is not None or self.pinned

    def label(self) -> Checkpoint:
        """A checkpoint with what the caller says about it; the save fills in id, sequence, time and parent."""
        return Checkpoint(
            id="",
            sequence=0,
            message=self.message,
            timestamp=datetime.fromtimestamp(0, UTC),
            name=self.name,
            session=self.session,
            actor=self.actor,
            step=self.step,
            metadata=self.metadata or {},
            pinned=self.pinned,
        )


class Chosen(NamedTuple):
    """Hunks to take back, of what changed between the target of a request and `until`."""

    until: Checkpoint | None
    """None stands for the folder as it is now."""
    hunks: tuple[str, ...]
    """Their ids."""


class _RestoreFields(NamedTuple):
    verb: str
    target: Checkpoint
    paths: Sequence[str] | None = None
    keep_new: bool = False
    skip_damaged: bool = False
    keep_mine: bool = False
    """Restore not to the target, but to what the folder would be without the agent's changes since the target."""
    agent: str | None = None
    """With `keep_mine`: whose changes are undone; None stands for every actor but the user."""
    unsaved_by: str | None = None
    """With `keep_mine`: who made the changes that no checkpoint has yet; None stands for the user."""
    turn: "TurnRef | None" = None
    """With `keep_mine`: undo only what was done in this turn; None stands for everything since the target."""
    chosen: Chosen | None = None
    """Restore not to the target, but to what the folder would be without some of the changes since the target."""
    touch_ns: int | None = None
    """The modification time for files whose content changes, instead of the stored one."""
    state: Mapping[str, JSON] | None = None
    """Saved with the safety checkpoint."""
    progress: Progress | None = None
    created: frozenset[str] = frozenset()
    """For an undo: paths that the operation to undo created. They may be removed although they are ignored."""
    is_exact: bool = False
    """Whether `paths` come from an earlier operation and are taken literally, not as patterns."""


class RestoreRequest(_RestoreFields):
    """The arguments of a restore, an undo or a redo. Refused if they contradict each other."""

    __slots__ = ()

    if not TYPE_CHECKING:  # as above

        def __new__(cls, *given: Any, **named: Any) -> Self:
            self = super().__new__(cls, *given, **named)
            self._check()
            return self

    def replace(self, **changes: Any) -> Self:
        """A copy with other arguments, checked again."""
        return type(self)(**(self._asdict() | changes))

    @property
    def is_computed(self) -> bool:
        """Whether what to restore is computed from the folder, and not the target itself."""
        return self.keep_mine or self.chosen is not None

    @property
    def undone(self) -> Undone:
        """With `keep_mine`: whose changes are undone."""
        key = None if self.turn is None else TurnKey(self.turn.agent, self.turn.session, self.turn.turn)
        return Undone(self.agent, key, self.unsaved_by)

    def _check(self) -> None:
        for what, value in (("agent", self.agent), ("unsaved_by", self.unsaved_by)):
            if value is not None and (not isinstance(value, str) or not value):
                raise Refused(f"{what} is not a name", hint="Give the actor of its checkpoints.", remedy=Remedy("list"))
            if value is not None and not self.keep_mine:
                raise Refused(f"{what} is given, and everything is to be restored", remedy=Remedy("keep_mine"))


def as_json(value: JSON, name: str) -> JSON:
    """Return a value as JSON reads it back. Refused, with the path of the part at fault, unless that is equal."""
    try:
        found = json.loads(json.dumps(value, allow_nan=False))
        if found == value:
            return found
        reason = "JSON would read it back as something else"
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)
    where = _unstorable(value, name, set()) or name
    raise Refused(
        f"{where} cannot be stored: {reason}",
        hint="It may contain None, bool, int, finite float, str, list and dict with str keys.",
    )


def _unstorable(value: JSON, path: str, seen: set[int]) -> str | None:
    """Return the path of the first part that JSON cannot express."""
    if isinstance(value, str):
        return None if _round_trips(value) else path
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, float):
        return path if value != value or value in (float("inf"), float("-inf")) else None
    if not isinstance(value, list | dict):
        return f"{path} ({type(value).__name__})"
    if id(value) in seen or len(seen) > 100_000:
        return None
    seen.add(id(value))
    items = enumerate(value) if isinstance(value, list) else value.items()
    for key, item in items:
        inner = f"{path}[{key!r}]"
        if isinstance(value, dict) and (not isinstance(key, str) or not _round_trips(key)):
            return inner
        try:
            found = _unstorable(item, inner, seen)
        except RecursionError:
            return path
        if found:
            return found
    return None


def _round_trips(text: str) -> bool:
    return bool(json.loads(json.dumps(text)) == text)
