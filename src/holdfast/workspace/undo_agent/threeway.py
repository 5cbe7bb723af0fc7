"""Three-way merge of one path: before the agent's change, after it, and now.

The result is what would be there without the agent's change, or the reason why that is not possible. A file with a
conflict stays whole, as it is now; it never gets conflict markers.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from holdfast.scan.attrs import NOTHING, PARTS, SPARSE, Attr
from holdfast.shadowgit import ObjectKind
from holdfast.workspace.stored.hunks import text_of
from holdfast.workspace.stored.object_sink import ObjectSink
from holdfast.workspace.stored.text_merge import merge
from holdfast.workspace.stored.tree import Entry

_LINK = b"link="
_OF_CONTENT = (PARTS, SPARSE)
_ORDER = (b"owner=", SPARSE, b"xattr.", PARTS, _LINK)
_Value = TypeVar("_Value")


class Unmergeable(Exception):
    """Somebody changed the same part since; the text says what."""


class Versions(NamedTuple):
    """A path before the agent's change, after it, and now; None if nothing is there."""

    before: Entry | None
    after: Entry | None
    now: Entry | None


def without(versions: Versions, source: ObjectSink, now_ns: int) -> Entry | None:
    """Return what would be there without the agent's change; `now_ns` is the time of merged content.

    Raises Unmergeable if somebody changed the same since.
    """
    before, after, now = versions
    if before and after and now and before.kind == after.kind == now.kind:
        return _merged(before, after, now, source, now_ns)
    if is_same(now, after):
        return before
    if is_same(now, before) or now is None:  # undone already, or deleted since
        return now
    if after is None:
        raise Unmergeable("deleted, and created again since")
    if before is None:
        raise Unmergeable("created, and changed since")
    raise Unmergeable("replaced by another file type, and changed since")


def is_same(one: Entry | None, other: Entry | None) -> bool:
    """Whether two entries are the same except for times, sparse layout and hard links."""
    if one is None or other is None:
        return one is other
    return (one.oid, one.attr.mode, _extras(one)) == (other.oid, other.attr.mode, _extras(other))


def _merged(before: Entry, after: Entry, now: Entry, source: ObjectSink, now_ns: int) -> Entry:
    mode = _pick(before.attr.mode, after.attr.mode, now.attr.mode, "its mode was changed, and changed again since")
    extras = _merged_extras(before, after, now)
    holder = _content(before, after, now)
    if holder is None:
        oid, mtime_ns = source.add(ObjectKind.BLOB, _merged_text(before, after, now, source)), now_ns
        holder = Entry(Attr(0, 0, NOTHING), oid)
    elif now.attr.mtime_ns == after.attr.mtime_ns:
        mtime_ns = before.attr.mtime_ns
    else:
        mtime_ns = now.attr.mtime_ns if holder.oid == now.oid else now_ns
    links = [_links(each) for each in (before, after, now)]
    extras += [part for part in _parts(holder) if part.startswith(_OF_CONTENT)]
    extras += links[0] if links[2] == links[1] else links[2]
    extras.sort(key=_place)
    return Entry(Attr(mode, mtime_ns, b",".join(extras) or NOTHING), holder.oid)


def _content(before: Entry, after: Entry, now: Entry) -> Entry | None:
    """Return the version that has the resulting content; None if the contents have to be merged."""
    if before.oid == after.oid or now.oid == before.oid:
        return now
    return before if now.oid == after.oid else None


def _merged_text(before: Entry, after: Entry, now: Entry, source: ObjectSink) -> bytes:
    if not now.is_file:
        raise Unmergeable("link target changed, and changed again since")
    base, mine, old = (text_of(each, source) for each in (after, now, before))
    if base is None or mine is None or old is None:
        raise Unmergeable("changed, and changed again since; it is binary or too large to merge")
    found = merge(base, mine, old)
    if found is None:
        raise Unmergeable("lines changed, and the same or adjacent lines were changed since")
    return found


# owner, extended attributes, hard links


def _merged_extras(before: Entry, after: Entry, now: Entry) -> list[bytes]:
    """Owner and extended attributes, each by itself."""
    old, left, mine = (_by_key(each) for each in (before, after, now))
    why = "an extended attribute or the owner was changed, and changed again since"
    found = (_pick(old.get(key, b""), left.get(key, b""), mine.get(key, b""), why) for key in {**old, **mine})
    return [part for part in found if part]


def _place(part: bytes) -> tuple[int, bytes]:
    """Sort key: the order in which a snapshot stores extras."""
    return next((at for at, start in enumerate(_ORDER) if part.startswith(start)), len(_ORDER)), part


def _by_key(entry: Entry) -> dict[bytes, bytes]:
    return {part.partition(b"=")[0]: part for part in _extras(entry)}


def _pick(before: _Value, after: _Value, now: _Value, why: str) -> _Value:
    if now == after:
        return before
    if now == before or before == after:
        return now
    raise Unmergeable(why)


def _extras(entry: Entry) -> tuple[bytes, ...]:
    return tuple(part for part in _parts(entry) if not part.startswith((*_OF_CONTENT, _LINK)))


def _links(entry: Entry) -> list[bytes]:
    return [part for part in _parts(entry) if part.startswith(_LINK)]


def _parts(entry: Entry) -> list[bytes]:
    return [part for part in entry.attr.extras.split(b",") if part and part != NOTHING]
