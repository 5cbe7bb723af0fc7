"""The purge journal: an unfinished purge, to be continued, and reported by `verify` (P3)."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from holdfast.durable import parse_json
from holdfast.workspace.stored.record import to_json


class PurgeInProgress(NamedTuple):
    """A purge that has begun and has not ended."""

    paths: list[str]
    objects: set[bytes]
    """The ids of the objects to remove."""
    lines: bool = False
    """Whether copies of lines in states are redacted too."""
    contents: Set[bytes] = frozenset()
    """Those of the objects that were contents of files: what states may repeat. The others are old states and records,
    and what these say is not secret."""
    secrets: tuple[tuple[bytes, int, int], ...] = ()
    """Single secrets to cut out of states, messages and metadata: the ids of the chunks, one after the other, and where
    the secret is in them. The secret itself is not written down."""


def write_begun(begun: PurgeInProgress) -> bytes:
    """`purge.json`."""
    objects = sorted(oid.hex() for oid in begun.objects)
    contents = sorted(oid.hex() for oid in begun.contents)
    return to_json(
        {
            "paths": begun.paths,
            "objects": objects,
            "lines": begun.lines,
            "contents": contents,
            "secrets": [(blobs.hex(), start, end) for blobs, start, end in begun.secrets],
        }
    )


def read_begun(data: bytes) -> PurgeInProgress | None:
    """Read `purge.json`; None if it is not what was written."""
    try:
        found = parse_json(data)
        paths, objects = found["paths"], {bytes.fromhex(oid) for oid in found["objects"]}
        contents = {bytes.fromhex(oid) for oid in found.get("contents", found["objects"])}
        secrets = tuple((bytes.fromhex(blobs), int(start), int(end)) for blobs, start, end in found.get("secrets", ()))
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    lines = bool(found.get("lines", False))
    return (
        PurgeInProgress(paths, objects, lines, contents, secrets)
        if (paths or secrets) and isinstance(paths, list) and all(isinstance(path, str) for path in paths)
        else None
    )
