"""Encoding of state values: as JSON, or with tags for types that JSON lacks.

A state that is JSON is stored as it is, whatever its keys; any other is tagged throughout by the serializer that all
surfaces share. The name of its entry says which of the two it is, never its content.
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.errors import Damaged, Refused, Remedy
from holdfast.model import JSON

if TYPE_CHECKING:
    from holdfast.serde import Registry, Serde
    from holdfast.workspace.stored.tagged_json import Tagged

OnUnknown = Literal["raise", "keep", "tagged"]
_WAYS = ("raise", "keep", "tagged")


class Spelled(NamedTuple):
    """A state as it is stored."""

    text: bytes
    is_tagged: bool


class Spelling:
    """Encodes and decodes state values. The serializer is loaded only for a value that is not JSON."""

    def __init__(self, registry: "Registry | None" = None, *, on_unknown: OnUnknown = "raise") -> None:
        """`registry`: None stands for that of `holdfast.serde.register`. `on_unknown`: as in `Serde`; with `tagged`,
        values that JSON lacks are not decoded, and such a state is `Tagged`."""
        if on_unknown not in _WAYS:
            raise Refused(f"on_unknown is {on_unknown!r}", hint="Use 'raise', 'keep' or 'tagged'.")
        self._registry = registry
        self._on_unknown = on_unknown

    def spell(self, value: Any, where: str) -> Spelled:
        """Encode a value. Refused, with the path of the part at fault, if it could not be read back exactly."""
        from holdfast.workspace.stored.incremental_json import encode_pieces  # start-up cost: reading does not need it

        try:
            return Spelled(b"".join(encode_pieces(value)), False)
        except (TypeError, ValueError, RecursionError):
            form = self.tagged(value, where).form
        try:
            return Spelled(b"".join(encode_pieces(form)), True)
        except RecursionError:
            raise Refused(f"{where} cannot be stored: it is nested too deeply", hint="Make it flatter.") from None

    def tagged(self, value: Any, where: str) -> "Tagged":
        """Return a copy of a value as tagged JSON. Refused as by `spell`."""
        from holdfast.serde import from_tagged, to_tagged  # start-up cost: only for values that are not JSON
        from holdfast.workspace.stored.tagged_json import Tagged

        if type(value) is not Tagged:
            return Tagged(to_tagged(self._serde.encode(value, where), readable=True))
        try:
            from_tagged(value.form)
        except Damaged as error:
            raise Refused(
                f"{where} cannot be stored: {error.message}", hint="Pass a Tagged value that a checkpoint returned."
            ) from None
        return value

    def read(self, spelled: Spelled, where: str) -> Any:
        """Decode a value. Damaged if the text is invalid; Refused if it needs a class that is not registered."""
        form = parsed(spelled.text, where)
        if not spelled.is_tagged:
            return form
        if self._on_unknown == "tagged":
            from holdfast.workspace.stored.tagged_json import Tagged  # as above

            return Tagged(form)
        from holdfast.serde import from_tagged  # as above

        return self._serde.decode(from_tagged(form))

    def shown(self, state: Mapping[str, Any]) -> tuple[dict[str, JSON], list[str]]:
        """Return states as the JSON that is stored, and the names of the tagged ones."""
        found = {name: self.spell(value, f"state {name}") for name, value in state.items()}
        tagged = sorted(name for name, each in found.items() if each.is_tagged)
        return {name: json.loads(each.text) for name, each in found.items()}, tagged

    @cached_property
    def _serde(self) -> "Serde":
        from holdfast.serde import Serde, default_registry  # as above

        known = default_registry if self._registry is None else self._registry
        return Serde(known, on_unknown="raise" if self._on_unknown == "raise" else "keep")


def parsed(text: bytes, where: str) -> JSON:
    """Parse the JSON of a stored state. Damaged if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Damaged(f"{where} cannot be read", remedy=Remedy("verify")) from None
