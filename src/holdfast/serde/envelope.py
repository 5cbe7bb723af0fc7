"""What is put around stored bytes: one byte for the format, then compression, then encryption.

0x00  the bytes
0x01  size (4 bytes, big-endian), then the bytes compressed with zstd
0x02  length of the key's id, the id, nonce (12 bytes), then 0x00… or 0x01… encrypted with AES-256-GCM
"""

from __future__ import annotations

import threading
from typing import Any

from holdfast.errors import Damaged, Refused, Remedy, Unavailable
from holdfast.serde.encryption import Keys, NoKey, NotEncrypted
from holdfast.validation import checked_options

_PLAIN, _ZSTD, _ENCRYPTED = b"\x00", b"\x01", b"\x02"
_WORTH_BYTES = 4096
_WORTH_SHARE = 0.85
_LEVEL = 3
_local = threading.local()  # its objects are not for several threads at once


@checked_options
class Envelope:
    """Wraps and unwraps bytes. `identity` names the place where they are stored: encrypted bytes open nowhere else."""

    def __init__(self, keys: Keys | None = None, *, compress: bool = True, max_bytes: int = 1 << 30) -> None:
        """`max_bytes`: nothing larger is stored or decompressed."""
        self.keys = keys
        self._compress = compress
        self._max_bytes = min(max_bytes, (1 << 32) - 1)

    def close(self, data: bytes, identity: bytes = b"") -> bytes:
        """The bytes to store: compressed where that pays, encrypted if there is a key."""
        held = self._packed(data)
        return held if self.keys is None else _ENCRYPTED + self.keys.encrypt(held, identity)

    def open(self, stored: bytes, identity: bytes = b"") -> bytes:
        """The bytes again. Refused if there is a key and they are not encrypted: anybody could have put them there."""
        if type(stored) is not bytes:
            raise Damaged("stored data is not bytes", hint="Use another checkpoint.")
        if self.keys is None:
            if stored and stored[0] == 0:
                return stored[1:]
            if stored[:1] == _ENCRYPTED:
                raise NoKey("the stored data is encrypted", remedy=Remedy("give_keys"))
            return self._unpacked(stored)
        if stored[:1] != _ENCRYPTED:
            raise NotEncrypted("the stored data is not encrypted, but keys were given", remedy=Remedy("leave_out_keys"))
        return self._unpacked(self.keys.decrypt(memoryview(stored)[1:], identity))

    def _packed(self, data: bytes) -> bytes:
        if len(data) > self._max_bytes:
            raise Refused(
                f"the data to store has {len(data):,} bytes, more than {self._max_bytes:,}", hint="Raise the limit."
            )
        if self._compress and len(data) >= _WORTH_BYTES:
            small = _compress(data)
            if small is not None and len(small) < len(data) * _WORTH_SHARE:
                return _ZSTD + len(data).to_bytes(4, "big") + small
        return _PLAIN + data

    def _unpacked(self, held: bytes) -> bytes:
        if held[:1] == _PLAIN:
            return held[1:]
        if held[:1] != _ZSTD or len(held) < 5:
            raise Damaged("stored bytes have an unknown format", hint="Use another checkpoint.")
        size = int.from_bytes(held[1:5], "big")
        if size > self._max_bytes:
            raise Refused(
                f"the stored data would have {size:,} bytes, more than {self._max_bytes:,}", hint="Raise the limit."
            )
        return _decompress(memoryview(held)[5:], size)


def _compress(data: bytes) -> bytes | None:
    """Compressed bytes; None where zstandard is not installed."""
    try:
        tool = _local.compressor
    except AttributeError:
        tool = _local.compressor = _make("ZstdCompressor", level=_LEVEL, write_content_size=True)
    return None if tool is None else bytes(tool.compress(data))


def _decompress(data: memoryview, size: int) -> bytes:
    """The bytes again, of which there must be exactly `size`: no more than that is ever made."""
    try:
        tool = _local.decompressor
    except AttributeError:
        tool = _local.decompressor = _make("ZstdDecompressor", max_window_size=1 << 27)
    if tool is None:
        raise Unavailable(
            "the stored data is compressed with zstd, which is not installed",
            hint="Install it with: pip install 'holdfast[zstd]'",
        )
    try:
        reader = tool.stream_reader(data, read_across_frames=False)
        made = bytes(reader.read(size + 1))
    except Exception as error:  # zstandard.ZstdError, which cannot be named without importing it
        raise Damaged(f"compressed data is corrupt: {error}", hint="Use another checkpoint.") from None
    if len(made) != size:
        raise Damaged("compressed data is corrupt: wrong size", hint="Use another checkpoint.")
    return made


def _make(name: str, **options: Any) -> Any:
    try:
        import zstandard  # optional: without it, nothing is compressed
    except ImportError:
        return None
    return getattr(zstandard, name)(**options)
