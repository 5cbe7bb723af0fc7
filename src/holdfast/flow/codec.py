"""Values to rows and parts and back: encoding, naming, compressing, and encrypting each for its own place."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from holdfast.errors import Damaged
from holdfast.flow.model import Checkpoint, CheckpointMetadata
from holdfast.flow.packs import unpacked
from holdfast.flow.segments import PartContent, SegmentGroup
from holdfast.flow.store import NAME_BYTES, CheckpointRow, PartRow, Place, StatePart, WriteRow
from holdfast.native import native
from holdfast.serde import Envelope, Registry, Serde
from holdfast.serde.msgpack import encode


class StateCodec:
    """Encodes and decodes the rows and parts of one tenant."""

    def __init__(self, serde: Serde, envelope: Envelope, tenant: str) -> None:
        self.serde = serde
        self.envelope = envelope
        self._tenant = tenant
        self._naming = envelope.keys.naming if envelope.keys else b""

    def opaque(self) -> StateCodec:
        """A codec for the same rows that needs no registered classes: unknown values stay as they are stored."""
        return StateCodec(Serde(Registry(), on_unknown="keep"), self.envelope, self._tenant)

    def name(self, data: bytes) -> bytes:
        """The name of a part: the SHA-256 of its content, cut short. With a key, names do not reveal the content."""
        return hashlib.sha256(self._naming + data).digest()[:NAME_BYTES]

    def row(self, meta: CheckpointMetadata, segments: SegmentGroup, *, family: int, saved_at: int) -> CheckpointRow:
        """A row that is ready to be committed."""
        place = Place(meta.session_id, meta.namespace, meta.checkpoint_id)
        told = [meta.timestamp, meta.node_name, meta.step, list(meta.tags), dict(meta.extra)]
        plain = self.serde.encode_parted(told, "metadata")
        return self.pack_row(place, meta.parent_id, meta.run_id, plain, segments, family=family, saved_at=saved_at)

    def pack_row(
        self,
        place: Place,
        parent: str | None,
        run: str | None,
        meta: bytes,
        segments: SegmentGroup,
        *,
        family: int,
        saved_at: int,
    ) -> CheckpointRow:
        return CheckpointRow(
            place=place,
            sequence=0,
            parent_id=parent,
            run_id=run,
            saved_at=saved_at,
            digest=self._digest(place, parent, run, meta, segments),
            meta=self.envelope.close(meta, self._identity("meta", *place, parent, run)),
            refs=segments.refs,
            shape=self.envelope.close(segments.shape, self._identity("shape", *place, family, segments.refs)),
            family=family,
        )

    def open_meta(self, row: CheckpointRow) -> bytes:
        return self.envelope.open(row.meta, self._identity("meta", *row.place, row.parent_id, row.run_id))

    def metadata(self, row: CheckpointRow, plain: bytes | None = None) -> CheckpointMetadata:
        """The metadata of a row."""
        told = self.serde.decode(self.open_meta(row) if plain is None else plain)
        if (
            not isinstance(told, list)
            or len(told) != 5
            or not isinstance(told[0], datetime)
            or [*map(type, told[1:])] != [str, int, list, dict]
            or any(type(tag) is not str for tag in told[3])
        ):
            raise Damaged("stored checkpoint metadata is corrupt", hint="Use another checkpoint.")
        timestamp, node_name, step, tags, extra = told
        return CheckpointMetadata(
            checkpoint_id=row.place.checkpoint_id, session_id=row.place.session, timestamp=timestamp,
            node_name=node_name, step=step, parent_id=row.parent_id, namespace=row.place.namespace,
            tags=tuple(tags), run_id=row.run_id, extra=extra, sequence=row.sequence,
        )  # fmt: skip

    def open_row(self, row: CheckpointRow) -> tuple[bytes, SegmentGroup]:
        """The metadata and the segments of a row; Damaged if they are not what was committed there."""
        meta = self.open_meta(row)
        identity = self._identity("shape", *row.place, row.family, row.refs)
        segments = SegmentGroup(row.refs, self.envelope.open(row.shape, identity))
        if self._digest(row.place, row.parent_id, row.run_id, meta, segments) != row.digest and not self._is_rotated:
            raise Damaged(
                f"checkpoint {row.place.checkpoint_id} is corrupt: wrong digest", hint="Use another checkpoint."
            )
        return meta, segments

    @property
    def _is_rotated(self) -> bool:
        """Whether digests may be by an older key; encrypted rows are bound to their places anyway."""
        return self.envelope.keys is not None

    def part(self, name: bytes, content: PartContent, family: int) -> StatePart:
        return StatePart(
            name, content[0], self.envelope.close(content[1], self._part_identity(name, content[0], family))
        )

    def open_parts(self, parts: Iterable[PartRow], family: int) -> dict[bytes, PartContent]:
        """The content of parts in rows, of which some may be packs."""
        open_ = self.envelope.open
        rows = unpacked(parts)
        if self.envelope.keys is None:
            try:  # most are not compressed; there may be thousands
                return {name: (refs, data[1:] if data and data[0] == 0 else open_(data)) for name, refs, data in rows}
            except TypeError:
                raise Damaged("stored part is corrupt: not bytes", hint="Use another checkpoint.") from None
        return {name: (refs, open_(data, self._part_identity(name, refs, family))) for name, refs, data in rows}

    def joined(self, rows: Sequence[PartRow], segments: SegmentGroup, size: int) -> bytes | None:
        """The bytes of a state, joined by the native module from rows as they are stored.

        None without it, with a key, and if a part is not in these rows or something is damaged.
        """
        if native is None or self.envelope.keys is not None:
            return None
        found: bytes | None = native.join_parts(tuple(rows), *segments, size, self.envelope.open)
        return found

    def write_row(self, place: Place, task: tuple[str, int, str, str], value: Any) -> WriteRow:
        data = self.serde.encode(value, f"the write to {task[-1]!r}")
        return self._pack_write(place, WriteRow(*task, b""), data)

    def _pack_write(self, place: Place, row: WriteRow, data: bytes) -> WriteRow:
        identity = self._identity("write", *place, row.task_id, row.idx, row.channel)
        return row._replace(data=self.envelope.close(data, identity))

    def moved_write(self, place: Place, to: Place, row: WriteRow) -> WriteRow:
        """The same write for another place."""
        return self._pack_write(to, row, self.open_write_bytes(place, row))

    def open_write(self, place: Place, row: WriteRow) -> Any:
        return self.serde.decode(self.open_write_bytes(place, row))

    def open_write_bytes(self, place: Place, row: WriteRow) -> bytes:
        identity = self._identity("write", *place, row.task_id, row.idx, row.channel)
        return self.envelope.open(row.data, identity)

    def checkpoint(self, row: CheckpointRow, meta: bytes, encoded: Sequence[bytes]) -> Checkpoint:
        """A checkpoint from its encoded state: whole, or a map's header, keys and values."""
        decode = self.serde.decode
        if len(encoded) == 1:
            return Checkpoint(self.metadata(row, meta), decode(encoded[0]))
        return Checkpoint(
            self.metadata(row, meta), dict(zip(map(decode, encoded[1::2]), map(decode, encoded[2::2]), strict=True))
        )

    def _part_identity(self, name: bytes, refs: bytes, family: int) -> bytes:
        return self._identity("part", family, name, refs)

    def _identity(self, *parts: Any) -> bytes:
        """What an encrypted byte string is bound to: moved to another place, it does not decrypt."""
        return encode([self._tenant, *map(_as_bytes, parts)]) if self.envelope.keys else b""

    def _digest(self, place: Place, parent: str | None, run: str | None, meta: bytes, segments: SegmentGroup) -> bytes:
        told = [_as_bytes(part) for part in (self._tenant, *place, parent, run)]
        return self.name(encode([*told, meta, segments.refs, segments.shape]))


def _as_bytes(part: Any) -> Any:
    """Text with lone surrogates as bytes."""
    return part.encode("utf-8", "surrogatepass") if isinstance(part, str) and not part.isascii() else part
