"""What changed between two states, in parts that can be taken back one by one.

Pure of the folder: reads two stored trees, and computes the newer one without chosen parts. Lines are bytes and are not
decoded, so that what is not chosen stays exactly as it is (P2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from holdfast.errors import Conflict
from holdfast.model import FileChange, Hunk, Reason
from holdfast.scan.attrs import NOTHING, PARTS, SPARSE
from holdfast.scan.dir_handles import join, split, upwards
from holdfast.shadowgit import ObjectKind
from holdfast.workspace.stored.object_sink import TEXT_MAX_BYTES, ObjectSink
from holdfast.workspace.stored.record import Node
from holdfast.workspace.stored.text_merge import LineHunk, hunks, is_text, split_lines
from holdfast.workspace.stored.tree import Change, Entry, TreeReader, gap_above, is_modified, merged

_CONTEXT_LINES = 3  # as git shows
_DIGEST_CHARS = 16
_NOT_LINES = (0, 0)
_HUNKS_MAX = 5_000
"""Of a file. With more, they are one: nobody chooses among them, and they would take hundreds of MiB."""
_NAMED_MAX = 5


class _Part(NamedTuple):
    """A hunk, and the lines of both sides that it stands for, from 0."""

    hunk: Hunk
    old: slice
    new: slice


class ChangedPath:
    """What changed at one path, in parts."""

    def __init__(self, change: Change, source: ObjectSink, below: Sequence[Change] = ()) -> None:
        """`below`: the changes inside of a folder that became something else, or the reverse: they go with it."""
        self.change = change
        self.below = below
        self._source = source
        self._texts = self._both_texts()
        self.parts = self._split()

    @property
    def is_text(self) -> bool:
        return self._texts is not None

    def describe(self) -> FileChange:
        """Return it as a value."""
        path, before, after = self.change
        status = "added" if before is None else "deleted" if after is None else "modified"
        return FileChange(path, status, _type(after or before), _mode(before), _mode(after), self.is_text, self.hunks)

    @property
    def hunks(self) -> tuple[Hunk, ...]:
        return tuple(part.hunk for part in self.parts)

    def without(self, chosen: Sequence[Hunk], now_ns: int) -> Entry | None:
        """Return what would be at the path without these hunks; `now_ns` is the time of a text that is new."""
        _, before, after = self.change
        if before is None or after is None or len(chosen) == len(self.parts):
            return before
        attr, oid = after.attr, after.oid
        if any(hunk.kind == "mode" for hunk in chosen):
            attr = attr._replace(mode=before.attr.mode)
        if self._texts is not None and any(hunk.kind == "lines" for hunk in chosen):
            extras = [part for part in attr.extras.split(b",") if not part.startswith((PARTS, SPARSE))]
            attr = attr._replace(mtime_ns=now_ns, extras=b",".join(extras) or NOTHING)
            oid = self._source.add(ObjectKind.BLOB, self._text_without(set(chosen)))
        return Entry(attr, oid)

    def _text_without(self, chosen: set[Hunk]) -> bytes:
        old, new = self._texts or ([], [])
        out, at = [], 0
        for part in self.parts:
            if part.hunk in chosen and part.hunk.kind == "lines":
                out += [*new[at : part.new.start], *old[part.old]]
                at = part.new.stop
        out += new[at:]
        if any(not line.endswith(b"\n") for line in out[:-1]):  # an old last line without a newline, and lines after it
            raise Conflict(f"{self.change.path}: two lines would be joined", hint="Choose the hunk after it too.")
        return b"".join(out)

    def _both_texts(self) -> tuple[list[bytes], list[bytes]] | None:
        _, before, after = self.change
        if before is None or after is None or not (before.is_file and after.is_file) or before.oid == after.oid:
            return None
        texts = [text_of(each, self._source) for each in (before, after)]
        return (split_lines(texts[0]), split_lines(texts[1])) if texts[0] is not None and texts[1] is not None else None

    def _split(self) -> list[_Part]:
        path, before, after = self.change
        found = []
        is_one = before is not None and after is not None and before.kind == after.kind
        has_parts = self._texts is not None or (before and before.oid) == (after and after.oid)
        if before and after and is_one and has_parts and before.attr.mode != after.attr.mode:
            digest = _digest(f"{before.attr.mode:o} {after.attr.mode:o}".encode())
            found.append(_Part(Hunk(path, "mode", _NOT_LINES, _NOT_LINES, digest), slice(0), slice(0)))
        if self._texts is not None:
            return found + self._line_parts(*self._texts)
        if not found:
            sides = [b"-" if each is None else f"{each.attr.mode:o} ".encode() + each.oid for each in (before, after)]
            whole = Hunk(path, "whole", _NOT_LINES, _NOT_LINES, _digest(*sides))
            found.append(_Part(whole, slice(0), slice(0)))
        return found

    def _line_parts(self, old: list[bytes], new: list[bytes]) -> list[_Part]:
        found = []
        spans = hunks(b"".join(old), b"".join(new))
        if len(spans) > _HUNKS_MAX:
            spans = [LineHunk(spans[0].start, spans[-1].end, spans[0].new_start, spans[-1].new_end)]
        for start, end, new_start, new_end in spans:
            removed, added = old[start:end], new[new_start:new_end]
            hunk = Hunk(
                self.change.path,
                "lines",
                (start + bool(removed), len(removed)),  # git counts so: for an insertion, the line before
                (new_start + bool(added), len(added)),
                _digest(b"".join(removed), b"".join(added)),
                removed=_shown(removed),
                added=_shown(added),
                leading=_shown(new[max(new_start - _CONTEXT_LINES, 0) : new_start]),
                trailing=_shown(new[new_end : new_end + _CONTEXT_LINES]),
            )
            found.append(_Part(hunk, slice(start, end), slice(new_start, new_end)))
        return found


def changed_paths(
    changes: Iterable[Change], source: ObjectSink, gaps: Sequence[Mapping[str, Reason]]
) -> list[ChangedPath]:
    """Return what can be taken back, sorted by path; not what either side does not cover, nor where only times differ.

    Folders count if their mode changed, or if they were added or deleted without any file.
    """
    by_path = {change.path: change for change in merged(changes) if gap_above(change, gaps) is None}
    replaced = {path for path, change in by_path.items() if _is_folder(change.before) != _is_folder(change.after)}
    replaced = {path for path in replaced if by_path[path].before is not None and by_path[path].after is not None}
    below: dict[str, list[Change]] = {}
    for path in list(by_path):
        above = next((each for each in upwards(split(path)[0]) if each in replaced), None) if path else None
        if above is not None:
            below.setdefault(above, []).append(by_path.pop(path))
    files = {
        path for path, change in by_path.items() if path in replaced or not _is_folder(change.before, change.after)
    }
    with_files = {above for path in files for above in upwards(path)}
    found = []
    for path, change in sorted(by_path.items()):
        before, after = change.before, change.after
        if path not in files and (before is None or after is None) and path in with_files:
            continue  # it comes and goes with the files in it
        if before is None or after is None or is_modified(before, after):
            found.append(ChangedPath(change, source, below.get(path, ())))
    return found


def choose(paths: Sequence[ChangedPath], ids: Sequence[str]) -> dict[str, list[Hunk]]:
    """Find hunks by their ids, by path. Conflict if one is not there any more.

    Lines that moved because something else changed in the same file are found: by their place in the older state, which
    never changes, and by their text.
    """
    known = {_key(hunk.id): hunk for each in paths for hunk in each.hunks}
    found: dict[str, list[Hunk]] = {}
    gone: dict[str, None] = {}
    for each in dict.fromkeys(ids):
        hunk = known.get(_key(each))
        if hunk is None:
            gone[_told(each)] = None
        elif hunk not in found.setdefault(hunk.path, []):
            found[hunk.path].append(hunk)
    if gone:
        some = "; ".join(list(gone)[:_NAMED_MAX]) + ("; …" if len(gone) > _NAMED_MAX else "")
        raise Conflict(
            f"these changes cannot be taken back, because their lines changed since: {some}",
            hint="Nothing was changed. Look again.",
        )
    return found


def tree_edits(
    paths: Sequence[ChangedPath],
    chosen: Mapping[str, Sequence[Hunk]],
    reader: TreeReader,
    roots: tuple[Node, Node],
    now_ns: int,
) -> dict[str, Entry | None]:
    """Return the edits that turn the newer of two trees into one without the chosen hunks."""
    older, newer = roots
    edits: dict[str, Entry | None] = {}
    for each in paths:
        path = each.change.path
        if path not in chosen:
            continue
        edits[path] = each.without(chosen[path], now_ns)
        edits |= {change.path: change.before for change in each.below}
        if edits[path] is not None:
            for above in upwards(split(path)[0]) if path else ():
                if reader.node(newer, above) is None:  # deleted with the file
                    edits[above] = reader.find(older, above)
    _drop_empty(edits, reader, older, newer)
    return edits


def _drop_empty(edits: dict[str, Entry | None], reader: TreeReader, older: Node, newer: Node) -> None:
    """Remove the folders that were made for what is taken back, if nothing else is in them."""
    above = {folder for path, entry in edits.items() if path and entry is None for folder in upwards(split(path)[0])}
    for folder in sorted(above, key=len, reverse=True):
        node = reader.node(newer, folder)
        if node is None or folder in edits or reader.node(older, folder) is not None:
            continue
        view = reader.view(node)
        if all(edits.get(join(folder, name), True) is None for name in (*view.entries, *view.folders)):
            edits[folder] = None


def _key(hunk_id: str) -> tuple[str, ...]:
    """The id without where the lines begin in the newer state: that changes with what is above them."""
    kind, old, new, digest, path = (hunk_id.split(":", 4) + [""] * 5)[:5]
    return kind, old, new.partition(",")[2], digest, path


def _told(hunk_id: str) -> str:
    kind, old, _, _, path = (hunk_id.split(":", 4) + [""] * 5)[:5]
    start, _, count = old[1:].partition(",")
    if not path:
        return repr(hunk_id)
    if kind != "lines":
        return path
    return f"{path} (after line {start})" if count == "0" else f"{path} (line {start})"


def _digest(*parts: bytes) -> str:
    found = sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()[:_DIGEST_CHARS]


def _shown(lines: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(line.decode("utf-8", "surrogateescape") for line in lines)


def text_of(entry: Entry, source: ObjectSink) -> bytes | None:
    """Return the content of a file that can be compared by line; None if it is binary or too large."""
    size = source.size(entry.oid) if entry.attr.parts_bytes is None else None
    if size is None or size > TEXT_MAX_BYTES:
        return None
    data = source.blob(entry.oid)
    return data if is_text(data) else None


def _mode(entry: Entry | None) -> int | None:
    return None if entry is None else entry.attr.mode


def _is_folder(*entries: Entry | None) -> bool:
    """Whether each of them, as far as it is there, is a folder."""
    return all(entry is None or entry.is_folder for entry in entries) and any(entry is not None for entry in entries)


def _type(entry: Entry | None) -> str:
    if entry is None or entry.is_folder:
        return "folder"
    return "file" if entry.is_file else "link" if entry.is_link else "special"
