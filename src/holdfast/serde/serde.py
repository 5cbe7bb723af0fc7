"""The serializer: values to bytes and back, exactly or not at all."""

from __future__ import annotations

from typing import Any, Literal

from holdfast.errors import Refused
from holdfast.serde.cannot import Cannot
from holdfast.serde.decoding import Decoder
from holdfast.serde.encoding import Encoder
from holdfast.serde.msgpack import encode
from holdfast.serde.plain import is_plain
from holdfast.serde.registry import Registry, default_registry
from holdfast.serde.unchanged import Seen, Shown, look

_HINT = "Register its class with holdfast.serde.register, or convert it to a plain value first, as with str(value)."


class Serde:
    """Values of a closed table of types, and of registered classes, as MessagePack.

    What comes back is equal and of the same types. Objects that are met twice come back as two; a value that holds
    itself is refused.
    """

    def __init__(
        self, registry: Registry = default_registry, *, on_unknown: Literal["raise", "keep"] = "raise"
    ) -> None:
        """`on_unknown="keep"`: objects of classes that are not registered are read as opaque `Unknown`."""
        if on_unknown not in ("raise", "keep"):
            raise Refused(f"on_unknown is {on_unknown!r}", hint="Say 'raise' or 'keep'.")
        self.registry = registry
        self._encoders = (Encoder(registry, careful=False), Encoder(registry, careful=True))
        self._decoder = Decoder(registry, keep_unknown=on_unknown == "keep")
        self.decode = self._decoder.make
        """Read a value. Damaged if the bytes are no value, Refused if they name a class that is not registered."""

    def encode(self, value: Any, where: str = "value") -> bytes:
        """Write a value. Refused, with the path of what cannot be stored; `where` is the name of the whole."""
        if is_plain(value):
            try:
                return encode(value)
            except (OverflowError, UnicodeEncodeError, RecursionError):
                pass  # a large number or a lone surrogate: has an extension
        try:
            return self._encode_any(value)
        except Cannot as cannot:
            path, reason = cannot.path, cannot.reason
        except RecursionError:
            path, reason = "", "it is nested too deeply"
        raise Refused(f"{where}{path} cannot be stored: {reason}", hint=_HINT)

    def why_not(self, cls: type) -> str | None:
        """Why objects of a class cannot be stored; None if they can, as far as the class tells."""
        try:
            self._encoders[0].check(cls)
        except Cannot as cannot:
            return cannot.reason
        return None

    def look(self, values: list[Any]) -> Seen | None:
        """What can tell later that a list still begins with what it holds now; None if nothing can."""
        return look(values, self._shown)

    def _shown(self, kind: type) -> Shown | None:
        entry = self.registry.of_class(kind)
        return None if entry is None else entry.shown

    def _encode_any(self, value: Any) -> bytes:
        quick, careful = self._encoders
        try:
            return encode(quick.take(value))
        except (OverflowError, UnicodeEncodeError):
            return encode(careful.take(value))
