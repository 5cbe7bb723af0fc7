"""A flow store that states are imported into, and the import that every source of states shares.

Order (P10): states get the next numbers of the store, in the order of the source, and keep their own times. Writes of
a checkpoint are stored before it, so that one that is there is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple, Protocol

from holdfast import flow
from holdfast.errors import Conflict, Damaged, NotFound, Refused
from holdfast.escaping import escape, without_password
from holdfast.flow import Place, States
from holdfast.flow.validation import check_checkpoint
from holdfast.importers.model import Imported, ImportPlan, ImportRequest, Losses
from holdfast.location import kind_of
from holdfast.model import Progress
from holdfast.serde import Registry

IMPORTED = "imported"
"""The key of a checkpoint's `extra` under which its source is stored."""


class SourceState(NamedTuple):
    """A state of the source, not decoded yet."""

    place: Place
    load: Callable[[Losses], flow.Checkpoint]
    """Decodes it. Damaged or Refused if that is not possible; what is lost on the way goes to the losses."""
    writes: Callable[[Losses], Sequence[flow.Write]] = lambda _: ()


class StatesSource(Protocol):
    """A place with states of another tool."""

    kind: str
    title: str

    def translated(self) -> AbstractContextManager[None]:
        """Raise our errors in place of those of the place, which may come with every row."""
        ...

    def count(self) -> int: ...

    def states(self) -> Iterator[SourceState]:
        """All states, in the order in which they were saved; parents before their children."""
        ...

    def close(self) -> None: ...


def check_target(request: ImportRequest) -> str:
    """The URL to import into. Refused if there is none, or it is no flow store."""
    if request.target is None:
        raise Refused(
            "no target for the states is given",
            hint="Name a flow store as the target, such as sqlite:///state.db.",
        )
    if kind_of(request.target).name != "flow" or request.target.startswith("memory:"):
        raise Refused(
            f"{without_password(request.target)} is not a flow store",
            hint="Name a flow store as the target, such as sqlite:///state.db.",
        )
    return request.target


class StatesImport:
    """Imports all states of a source into a flow store."""

    def __init__(self, source: StatesSource, request: ImportRequest, registry: Registry) -> None:
        self._source = source
        self._shown = without_password(request.source)
        self._url = check_target(request)
        self._registry = registry
        self._keys = request.keys
        self._opened: States | None = None

    def plan(self, progress: Progress | None = None) -> ImportPlan:
        """Decode every state, so that what cannot be carried over is known before anything is written."""
        with self._source.translated():
            return self._plan(progress)

    def _plan(self, progress: Progress | None) -> ImportPlan:
        losses = Losses()
        states = self._existing()
        carried = present = 0
        total = self._source.count()
        for number, each in enumerate(self._source.states(), 1):
            if progress is not None:
                progress("reading", number, total)
            if self._checked(each, losses) is None:
                continue
            each.writes(losses)
            carried += 1
            present += states is not None and states.store.find(*each.place) is not None
        if not carried:
            found = losses.all()
            if found:
                raise Damaged(f"no state of {self._shown} can be read: {found[0].why}", hint="Nothing was imported.")
            raise NotFound(f"{self._shown} has no states", hint="Nothing was saved there yet.")
        return ImportPlan(
            kind=self._source.kind,
            title=self._source.title,
            source=self._shown,
            target=without_password(self._url),
            checkpoints=carried,
            present=present,
            not_carried=losses.all(),
        )

    def run(self, progress: Progress | None = None) -> Imported:
        """Add the states that the store lacks."""
        with self._source.translated():
            return self._run(progress)

    def _run(self, progress: Progress | None) -> Imported:
        losses = Losses()
        states = self._open(create=True)
        added = present = 0
        total = self._source.count()
        for number, each in enumerate(self._source.states(), 1):
            if progress is not None:
                progress("importing", number, total)
            checkpoint = self._checked(each, losses)
            if checkpoint is None:
                continue
            try:
                self._add_writes(states, each, losses)
                if states.store.find(*each.place) is not None:
                    present += 1
                    continue
                states.save_copy(checkpoint, _micros(checkpoint))
                added += 1
            except (Conflict, Refused) as error:
                losses.add(_named(each.place), error.message)
        return Imported(added, present, losses.all())

    def close(self) -> None:
        self._source.close()
        if self._opened is not None:
            self._opened.close()

    def _checked(self, each: SourceState, losses: Losses) -> flow.Checkpoint | None:
        """Decode a state and see that it can be stored; None, and a loss, if it cannot."""
        try:
            if any("\ud800" <= char <= "\udfff" for char in "".join(each.place)):
                raise Damaged("its name is not text")
            checkpoint = each.load(losses)
            meta = checkpoint.metadata
            meta = replace(meta, extra={**meta.extra, IMPORTED: {"source": self._shown}})
            given = flow.Checkpoint(meta, checkpoint.state)
            check_checkpoint(given, flow.ANYTHING)
            return given
        except (Damaged, Refused) as error:
            losses.add(_named(each.place), error.message)
            return None

    def _add_writes(self, states: States, each: SourceState, losses: Losses) -> None:
        writes = each.writes(losses)
        if writes:
            known = {(write.task_id, write.idx) for write in states.store.writes([each.place]).get(each.place, ())}
            missing = [write for write in writes if (write.task_id, write.index) not in known]
            if missing:
                states.put_writes(each.place, missing)

    def _existing(self) -> States | None:
        try:
            return self._open(create=False)
        except NotFound:
            return None

    def _open(self, *, create: bool) -> States:
        if self._opened is None:
            self._opened = flow.open_states(self._url, registry=self._registry, keys=self._keys, create=create)
        return self._opened


def _micros(checkpoint: flow.Checkpoint) -> int:
    try:
        return int(checkpoint.metadata.timestamp.timestamp() * 1e6)
    except (OverflowError, ValueError, OSError):
        return 0


def _named(place: Place) -> str:
    names: Mapping[str, str] = {"session": place.session, "namespace": place.namespace}
    shown = " ".join(f"{what} {escape(name)}" for what, name in names.items() if name)
    return f"{shown} checkpoint {escape(place.checkpoint_id)}".lstrip()
