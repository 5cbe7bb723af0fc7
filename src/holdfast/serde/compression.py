"""Compression. The only file that imports zstandard."""

from __future__ import annotations

import threading
from typing import Any

from holdfast.errors import Damaged, Unavailable

_LEVEL = 3
_local = threading.local()


def compress(data: bytes) -> bytes | None:
    """Compressed bytes; None where zstandard is not installed."""
    try:
        tool = _local.compressor
    except AttributeError:
        tool = _local.compressor = _make("ZstdCompressor", level=_LEVEL, write_content_size=True)
    return None if tool is None else bytes(tool.compress(data))


def decompress(data: memoryview, size: int) -> bytes:
    """The bytes again, of which there must be exactly `size`: no more than that is ever made."""
    try:
        tool = _local.decompressor
    except AttributeError:
        tool = _local.decompressor = _make("ZstdDecompressor", max_window_size=1 << 27)
    if tool is None:
        raise Unavailable(
            "this is compressed with zstd, which is not installed", hint="Install it with: pip install 'holdfast[zstd]'"
        )
    try:
        reader = tool.stream_reader(data, read_across_frames=False)
        made = bytes(reader.read(size + 1))
    except Exception as error:  # zstandard.ZstdError, which cannot be named without importing it
        raise Damaged(f"compressed bytes are damaged: {error}", hint="Use another checkpoint.") from None
    if len(made) != size:
        raise Damaged("compressed bytes are not of the size they say", hint="Use another checkpoint.")
    return made


def _make(name: str, **options: Any) -> Any:
    try:
        import zstandard
    except ImportError:
        return None
    return getattr(zstandard, name)(**options)
