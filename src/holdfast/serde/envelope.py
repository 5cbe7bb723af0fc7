"""What is around stored bytes: one byte that says how they are held, then compression, then encryption.

0x00  the bytes
0x01  size (4 bytes, big-endian), then the bytes compressed with zstd
0x02  length of the key's id, the id, nonce (12 bytes), then 0x00… or 0x01… encrypted with AES-256-GCM
"""

from __future__ import annotations

from holdfast.errors import Damaged, Refused
from holdfast.serde.keys import Keys, NoKey, NotSealed
from holdfast.serde.zstd import compress, decompress

_PLAIN, _ZSTD, _SEALED = b"\x00", b"\x01", b"\x02"
_WORTH_BYTES = 4096
_WORTH_SHARE = 0.85


class Envelope:
    """Closes and opens bytes for one place each, which is told by its identity."""

    def __init__(self, keys: Keys | None = None, *, compress: bool = True, max_bytes: int = 1 << 30) -> None:
        """`max_bytes`: of what is opened; nothing larger is ever decompressed."""
        self.keys = keys
        self._compress = compress
        self._max_bytes = min(max_bytes, (1 << 32) - 1)

    def close(self, data: bytes, identity: bytes = b"") -> bytes:
        """Bytes to be stored: compressed where that pays, sealed where there is a key."""
        held = self._packed(data)
        return held if self.keys is None else _SEALED + self.keys.seal(held, identity)

    def open(self, stored: bytes, identity: bytes = b"") -> bytes:
        """The bytes again. Refused if they are not sealed and there is a key: somebody else may have put them there."""
        if type(stored) is not bytes:
            raise Damaged("what is stored is not bytes", hint="Use another checkpoint.")
        if self.keys is None:
            if stored and stored[0] == 0:
                return stored[1:]
            if stored[:1] == _SEALED:
                raise NoKey("this is encrypted", hint="Give the keys.")
            return self._unpacked(stored)
        if stored[:1] != _SEALED:
            raise NotSealed("this is not encrypted, though a key is set", hint="Copy an old store to a new one first.")
        return self._unpacked(self.keys.open(memoryview(stored)[1:], identity))

    def _packed(self, data: bytes) -> bytes:
        if len(data) > self._max_bytes:
            raise Refused(f"this has {len(data):,} bytes, more than {self._max_bytes:,}", hint="Raise the limit.")
        if self._compress and len(data) >= _WORTH_BYTES:
            small = compress(data)
            if small is not None and len(small) < len(data) * _WORTH_SHARE:
                return _ZSTD + len(data).to_bytes(4, "big") + small
        return _PLAIN + data

    def _unpacked(self, held: bytes) -> bytes:
        if held[:1] == _PLAIN:
            return held[1:]
        if held[:1] != _ZSTD or len(held) < 5:
            raise Damaged("stored bytes do not say how they are held", hint="Use another checkpoint.")
        size = int.from_bytes(held[1:5], "big")
        if size > self._max_bytes:
            raise Refused(f"this would have {size:,} bytes, more than {self._max_bytes:,}", hint="Raise the limit.")
        return decompress(memoryview(held)[5:], size)
