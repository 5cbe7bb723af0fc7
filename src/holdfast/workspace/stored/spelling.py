"""How the values of states are spelled: as JSON, and with tags where a value has what JSON lacks.

A state that is JSON stands as it is, whatever its keys; one that is not is tagged from end to end by the serializer
that every surface shares. Which of the two it is, the name of its entry says, never its content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.errors import Damaged, Refused
from holdfast.model import JSON

if TYPE_CHECKING:
    from holdfast.serde import Registry, Serde

OnUnknown = Literal["raise", "keep", "tagged"]
_WAYS = ("raise", "keep", "tagged")


@dataclass(frozen=True, slots=True)
class Tagged:
    """A state that is not made here: its JSON, with tags. It can be saved again, unchanged."""

    form: JSON


class Spelled(NamedTuple):
    """A state as it is stored."""

    text: bytes
    is_tagged: bool


class Spelling:
    """Spells values, and makes them again. The serializer is loaded when something that is not JSON is met."""

    def __init__(self, registry: Registry | None = None, *, on_unknown: OnUnknown = "raise") -> None:
        """`registry`: None stands for that of `holdfast.serde.register`. `on_unknown`: as `Serde` has it; with `tagged`
        nothing that JSON lacks is made, and such a state is `Tagged`."""
        if on_unknown not in _WAYS:
            raise Refused(f"on_unknown is {on_unknown!r}", hint="Say 'raise', 'keep' or 'tagged'.")
        self._registry = registry
        self._on_unknown = on_unknown

    def spell(self, value: Any, where: str) -> Spelled:
        """A value as it is stored; Refused, with the path of what cannot be, if it would not come back the same."""
        from holdfast.workspace.stored.pieces import encode_pieces  # start-up cost, for who saves

        try:
            return Spelled(b"".join(encode_pieces(value)), False)
        except (TypeError, ValueError, RecursionError):
            form = self.tagged(value, where).form
        try:
            return Spelled(b"".join(encode_pieces(form)), True)
        except RecursionError:
            raise Refused(f"{where} cannot be stored: it is nested too deeply", hint="Make it flatter.") from None

    def tagged(self, value: Any, where: str) -> Tagged:
        """A value with its tags: a copy that nothing reaches any more. Refused as by `spell`."""
        from holdfast.serde import from_tagged, to_tagged  # its libraries, for what is not JSON

        if type(value) is not Tagged:
            return Tagged(to_tagged(self._serde.encode(value, where), readable=True))
        try:
            from_tagged(value.form)
        except Damaged as error:
            raise Refused(f"{where} cannot be stored: {error.message}", hint="Give what a checkpoint had.") from None
        return value

    def read(self, spelled: Spelled, where: str) -> Any:
        """The value again. Damaged if the text is none; Refused if it needs a class that is not registered."""
        form = parsed(spelled.text, where)
        if not spelled.is_tagged:
            return form
        if self._on_unknown == "tagged":
            return Tagged(form)
        from holdfast.serde import from_tagged  # as above

        return self._serde.decode(from_tagged(form))

    def shown(self, state: Mapping[str, Any]) -> tuple[dict[str, JSON], list[str]]:
        """States as JSON, each as it is stored; and the names of those that are tagged."""
        found = {name: self.spell(value, f"state {name}") for name, value in state.items()}
        tagged = sorted(name for name, each in found.items() if each.is_tagged)
        return {name: json.loads(each.text) for name, each in found.items()}, tagged

    @cached_property
    def _serde(self) -> Serde:
        from holdfast.serde import Serde, default_registry  # as above

        known = default_registry if self._registry is None else self._registry
        return Serde(known, on_unknown="raise" if self._on_unknown == "raise" else "keep")


def parsed(text: bytes, where: str) -> JSON:
    """The JSON of a stored state; Damaged if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Damaged(f"{where} cannot be read", hint="Run `holdfast verify`.") from None
