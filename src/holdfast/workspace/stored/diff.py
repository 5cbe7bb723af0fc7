"""Diffs for people: added, removed, changed and renamed files, and the changed lines of texts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from holdfast.model import CheckpointDiff, LineCount, Renamed, Uncovered
from holdfast.scan.dir_handles import upwards
from holdfast.shadowgit import ObjectKind, object_id
from holdfast.workspace.stored.object_sink import TEXT_MAX_BYTES, ObjectSink
from holdfast.workspace.stored.tree import Change, Entry, gap_above, gaps_of, is_modified, merged

_MOST_RENAMES = 400  # with more candidates only exact renames are found
_ALIKE = 0.5
_TELLING_BYTES = 32
_EMPTY = object_id(ObjectKind.BLOB, b"")


class _Sorted(NamedTuple):
    """The paths that differ, by kind of change."""

    added: dict[str, Entry]
    deleted: dict[str, Entry]
    modified: dict[str, tuple[Entry, Entry]]
    touched: list[str]
    folders: list[Change]
    uncompared: dict[str, str]


def make_diff(
    from_id: str,
    to_id: str | None,
    changes: Iterable[Change],
    source: ObjectSink,
    not_held: tuple[Sequence[Uncovered], Sequence[Uncovered]] = ((), ()),
    *,
    with_lines: bool = True,
) -> CheckpointDiff:
    """Make a diff of the paths that differ, and of their texts. `not_held`: what either side does not cover."""
    found = _sort(from_id, to_id, changes, not_held)
    renamed = _renames(found.deleted, found.added, source)
    texts: list[str] = []
    counts: dict[str, LineCount] = {}
    pairs = sorted(_pairs(found, renamed), key=lambda pair: pair[1])
    for old, new, before, after in pairs if with_lines else ():
        text, count = _patch(old, new, before, after, source)
        counts[new] = _sum(counts[new], count) if new in counts else count
        texts.append(text)
    return CheckpointDiff(
        from_id=from_id,
        to_id=to_id,
        added_files=sorted(found.added.keys() - {new for _, new in renamed}),
        modified_files=sorted(found.modified),
        deleted_files=sorted(found.deleted.keys() - {old for old, _ in renamed}),
        renamed_files=renamed,
        touched_files=sorted(found.touched),
        changed_folders=_changed_folders(found.folders, {pair[1] for pair in pairs}),
        uncompared=dict(sorted(found.uncompared.items())),
        line_counts=counts,
        diff_content="".join(texts),
    )


def _sort(
    from_id: str,
    to_id: str | None,
    changes: Iterable[Change],
    not_held: tuple[Sequence[Uncovered], Sequence[Uncovered]],
) -> _Sorted:
    found = _Sorted({}, {}, {}, [], [], {})
    gaps = gaps_of(not_held)
    for change in merged(changes):
        path, before, after = change
        above = gap_above(change, gaps)
        if above is not None:
            side, gap = (from_id, gaps[0]) if before is None else (to_id, gaps[1])
            found.uncompared[above] = f"not covered {f'by {side}' if side else 'now'}: {gap[above]}"
        elif (before is None or before.is_folder) and (after is None or after.is_folder):
            found.folders.append(Change(path, before, after))
        elif before is not None and (after is None or after.is_folder):
            found.deleted[path] = before
        elif after is not None and (before is None or before.is_folder):
            found.added[path] = after
        elif before is not None and after is not None and is_modified(before, after):
            found.modified[path] = (before, after)
        else:
            found.touched.append(path)
    return found


def _pairs(found: _Sorted, renamed: Sequence[Renamed]) -> Iterator[tuple[str, str, Entry | None, Entry | None]]:
    """Yield what to show: old path, new path, entry before and after."""
    for path, (before, after) in found.modified.items():
        if before.kind == after.kind:
            yield path, path, before, after
        else:  # as in git: first a deletion, then an addition
            yield path, path, before, None
            yield path, path, None, after
    gone, come = {old for old, _ in renamed}, {new for _, new in renamed}
    yield from ((old, new, found.deleted[old], found.added[new]) for old, new in renamed)
    yield from ((path, path, None, entry) for path, entry in found.added.items() if path not in come)
    yield from ((path, path, entry, None) for path, entry in found.deleted.items() if path not in gone)


def _changed_folders(folders: Iterable[Change], files: Iterable[str]) -> list[str]:
    """Return folders whose mode changed, and added or removed folders without files."""
    told = {above for path in files for above in upwards(path)}
    found = []
    for path, before, after in folders:
        if before and after:
            if before.attr.mode != after.attr.mode:
                found.append(path or ".")
        elif path not in told:
            found.append(path)
    return sorted(found)


def _sum(one: LineCount, other: LineCount) -> LineCount:
    if one.added is None or one.removed is None or other.added is None or other.removed is None:
        return LineCount(None, None)
    return LineCount(one.added + other.added, one.removed + other.removed)


def find_renames(changes: Iterable[Change], source: ObjectSink) -> list[Renamed]:
    """Find files that moved to another path with their content, or with most of its lines."""
    held = [change for change in changes if not any(entry and _is_nothing(entry) for entry in change[1:])]
    deleted = {path: before for path, before, after in held if before is not None and after is None}
    added = {path: after for path, before, after in held if before is None and after is not None}
    return _renames(deleted, added, source)


def find_moves(changes: Iterable[Change], source: ObjectSink) -> list[Renamed]:
    """Find renames, also those onto the path of another file: swaps, cycles and chains.

    A path that is the old name of one file and the new name of another, or where something else was deleted or created,
    then stands for two files: the one before and the one after.
    """
    held = [Change(path, _known(before), _known(after)) for path, before, after in changes]
    parted = _replaced(held, source)
    befores = {path: before for path, before, after in held if before and (after is None or path in parted)}
    afters = {path: after for path, before, after in held if after and (before is None or path in parted)}
    return [
        Renamed(old, new)
        for old, new in _renames(befores, afters, source)
        if not parted & {old, new} or _is_telling(befores[old], afters[new], source)
    ]


def _replaced(changes: Sequence[Change], source: ObjectSink) -> set[str]:
    """Return the paths where one file may have been replaced by another, rather than edited.

    The new content was elsewhere before, and the old content is elsewhere now (or the old path of the new content is
    empty now); or the two have little in common.
    """
    both = [(path, before, after) for path, before, after in changes if before and after and before.oid != after.oid]
    gone = {before.oid for _, before, after in changes if before and after is None}
    left = gone | {before.oid for _, before, _ in both}
    come = {after.oid for _, before, after in changes if after and (before is None or before.oid != after.oid)}
    found, doubtful = set(), []
    for path, before, after in both:
        if before.kind != after.kind or after.oid in gone or (after.oid in left and before.oid in come):
            found.add(path)
        elif before.is_file:
            doubtful.append((path, before, after))
    if len(doubtful) ** 2 <= _MOST_RENAMES:  # P8: with more, only identical contents count
        found |= {
            path
            for path, before, after in doubtful
            if _share(_line_sizes(before, source), _line_sizes(after, source)) < _ALIKE
        }
    return found


def _is_telling(before: Entry, after: Entry, source: ObjectSink) -> bool:
    """Whether equal contents are evidence of a rename: short ones are common, but a rename keeps the time."""
    size = source.size(after.oid) if after.attr.parts_bytes is None else after.attr.parts_bytes
    return before.attr.mtime_ns == after.attr.mtime_ns or (size or 0) >= _TELLING_BYTES


def _known(entry: Entry | None) -> Entry | None:
    return None if entry is None or _is_nothing(entry) else entry


def _is_nothing(entry: Entry) -> bool:
    """Whether it has no content to recognise it by."""
    return entry.oid in (b"", _EMPTY)


def _renames(deleted: dict[str, Entry], added: dict[str, Entry], source: ObjectSink) -> list[Renamed]:
    found = []
    by_content: dict[tuple[bytes, int], list[str]] = {}
    for path, entry in sorted(deleted.items(), reverse=True):
        if entry.oid:
            by_content.setdefault((entry.oid, entry.kind), []).append(path)
    left = []
    for path, entry in sorted(added.items()):
        if by_content.get((entry.oid, entry.kind)):
            found.append(Renamed(by_content[entry.oid, entry.kind].pop(), path))
        elif entry.is_file:
            left.append(path)
    gone = [path for paths in by_content.values() for path in paths if deleted[path].is_file]
    if len(left) * len(gone) <= _MOST_RENAMES:
        found += _similar(gone, left, deleted, added, source)
    return sorted(found)


def _similar(
    gone: Sequence[str], new: Sequence[str], deleted: dict[str, Entry], added: dict[str, Entry], source: ObjectSink
) -> list[Renamed]:
    """Return pairs of files with more than half of their lines in common, best first."""
    lines = {path: _line_sizes(deleted[path], source) for path in gone}
    scores = []
    for path in new:
        mine = _line_sizes(added[path], source)
        for other in gone:
            share = _share(lines[other], mine)
            if share >= _ALIKE and other != path:  # the same path on both sides: edited, not moved
                scores.append((-share, other, path))
    found: dict[str, str] = {}
    for _, other, path in sorted(scores):
        if other not in found and path not in found.values():
            found[other] = path
    return [Renamed(old, path) for old, path in found.items()]


def _share(one: dict[int, int], other: dict[int, int]) -> float:
    """Return how much of the larger text, 0 to 1, is also in the other."""
    total = max(sum(one.values()), sum(other.values()))
    common = sum(min(size, one.get(line, 0)) for line, size in other.items())
    return common / total if total else 0.0


def _line_sizes(entry: Entry, source: ObjectSink) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for line in (_text(entry, source) or b"").splitlines(keepends=True):
        key = crc32(line)
        sizes[key] = sizes.get(key, 0) + len(line)
    return sizes


def _text(entry: Entry, source: ObjectSink) -> bytes | None:
    """Return the content of a file, if it is small enough to show."""
    size = source.size(entry.oid) if entry.attr.parts_bytes is None else None
    return source.blob(entry.oid) if size is not None and size <= TEXT_MAX_BYTES else None


def _patch(old: str, new: str, before: Entry | None, after: Entry | None, source: ObjectSink) -> tuple[str, LineCount]:
    head = [f"diff --git {_quoted('a/' + old)} {_quoted('b/' + new)}"]
    if before is None and after is not None:
        head.append(f"new file mode {after.attr.mode:o}")
    elif after is None and before is not None:
        head.append(f"deleted file mode {before.attr.mode:o}")
    elif before and after and before.attr.mode != after.attr.mode:
        head += [f"old mode {before.attr.mode:o}", f"new mode {after.attr.mode:o}"]
    if old != new:
        head += [f"rename from {_quoted(old)}", f"rename to {_quoted(new)}"]
    if (before and before.oid) == (after and after.oid):
        return "\n".join(head) + "\n", LineCount(0, 0)
    from_name = _quoted("a/" + old) if before else "/dev/null"
    to_name = _quoted("b/" + new) if after else "/dev/null"
    sides = [b"" if entry is None or not entry.oid else _text(entry, source) for entry in (before, after)]
    if sides[0] is None or sides[1] is None:
        head.append(f"Files {from_name} and {to_name} differ and are too large to show")
        return "\n".join(head) + "\n", LineCount(None, None)
    hunks, count = _hunks(sides[0], sides[1])
    if hunks is None:
        head.append(f"Binary files {from_name} and {to_name} differ")
        return "\n".join(head) + "\n", count
    if hunks:
        head += [f"--- {from_name}", f"+++ {to_name}"]
    return "\n".join(head) + "\n" + hunks, count


def _hunks(before: bytes, after: bytes) -> tuple[str | None, LineCount]:
    """Return the changed lines and their number; None if one side is binary."""
    import pygit2  # start-up cost: slower to import than most commands run

    if any(b"\0" in side[:8000] for side in (before, after)):
        return None, LineCount(None, None)
    patch = pygit2.Patch.create_from(before, after)
    _, added, removed = patch.line_stats
    data: bytes = patch.data
    start = data.find(b"\n@@ ")
    text = data[start + 1 :].decode("utf-8", "surrogateescape") if start >= 0 else ""
    return text, LineCount(added, removed)


def _quoted(path: str) -> str:
    """Quote a path as git does in a patch."""
    if all(char.isprintable() and char not in '"\\' for char in path):
        return path
    out = []
    for byte in os.fsencode(path):
        char = chr(byte)
        if char in '"\\':
            out.append("\\" + char)
        elif 32 <= byte < 127:
            out.append(char)
        else:
            out.append({"\n": "\\n", "\t": "\\t"}.get(char, f"\\{byte:03o}"))
    return '"' + "".join(out) + '"'
