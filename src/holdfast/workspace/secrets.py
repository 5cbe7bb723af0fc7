"""Secrets in checkpoints: what is found in new files, states and records is listed until it is purged.

A save scans what it stored, after its commit point, if that is little; more is noted as pending and scanned later: by
the helper once it has answered, by `status`, or on request. Files that git tracks are left out: git has them already.

`secrets.json` is written only if there is something to list. It contains no secret: where each is, its kind, and 32
bits of its hash, so that the same secret in many checkpoints is listed once. `unscanned` names the checkpoints that a
process has saved and not scanned yet: if it is killed in between, they are pending for the next one. It is not synced:
after a power loss `scan(every=True)` reads all checkpoints again.
"""

from __future__ import annotations

import contextlib
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from holdfast import durable
from holdfast.durable import disk
from holdfast.errors import Damaged, HoldfastError, NotFound
from holdfast.model import Checkpoint
from holdfast.secret_patterns import WINDOW_MAX_BYTES, find_secrets, unescaped
from holdfast.shadowgit import EMPTY_TREE, ObjectKind
from holdfast.workspace.stored.chunking import list_parts
from holdfast.workspace.stored.record import Contents
from holdfast.workspace.stored.repository import SECRETS, UNSCANNED, Repository
from holdfast.workspace.stored.state import state_names
from holdfast.workspace.stored.tree import TreeReader

SAVE_MAX_BYTES = 48 << 10
"""A save scans at most this much itself: that costs about a tenth of what it does anyway."""
FILE_MAX_BYTES = 8 << 20
"""Larger files are not scanned, and reported."""
RECORD = "(record)"
"""In place of the name of a state: message and metadata."""
_LISTED_MAX = 1000
_BINARY_BYTES = 8 << 10
_OBJECT = re.compile("[0-9a-f]{40}")

IsTracked = Callable[[str], bool]


class SecretFinding(NamedTuple):
    """A secret that checkpoints contain. The secret itself is not in it."""

    id: str
    """The same for the same secret wherever it is."""
    kind: str
    path: str | None
    """The file; None if it is in a state."""
    state: str | None
    """The name of the state; `(record)` for message and metadata."""
    line: int | None
    masked: str
    checkpoint: str
    """The first checkpoint in which it was found."""

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.path}:{self.line}" if self.path is not None else f"state {self.state}"


class SecretReport(NamedTuple):
    """What is known about secrets in a store."""

    found: tuple[SecretFinding, ...]
    pending: tuple[str, ...]
    """The checkpoints that are not scanned yet."""
    skipped: tuple[str, ...]
    """The files that are too large to be scanned."""


class _Part(NamedTuple):
    """One text to scan."""

    where: str
    is_state: bool
    blobs: tuple[bytes, ...]
    """Its id; for a chunk of a state also that of the next one, since a secret may be in both."""


class SecretScan:
    """Scans the checkpoints of one store. What writes needs the store's lock."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._path = repository.own / SECRETS
        self._unscanned = repository.own / UNSCANNED

    # reading

    def report(self) -> SecretReport:
        """Return what is known; purged and deleted secrets are no longer in it."""
        stored = self._read()
        kept = {(each["id"], each["path"], each["state"]): each for each in reversed(self._present(stored))}
        found = [SecretFinding(*(each[name] for name in SecretFinding._fields)) for each in reversed(kept.values())]
        pending = _present_ids(stored["pending"], self._ids()) if stored["pending"] else []
        return SecretReport(tuple(found), tuple(pending), tuple(stored["skipped"]))

    def places(self, finding_ids: Sequence[str]) -> tuple[list[str], list[tuple[bytes, int, int]]]:
        """Return the paths of secrets, and where they are in states. NotFound if one is unknown."""
        entries = [each for each in self._present(self._read()) if each["id"] in finding_ids]
        if unknown := [each for each in finding_ids if all(each != entry["id"] for entry in entries)]:
            raise NotFound(f"no secret {unknown[0]} is known", hint="It may be purged already.")
        paths = dict.fromkeys(each["path"] for each in entries if each["path"] is not None)
        states = [each for each in entries if each["path"] is None]
        return list(paths), [(bytes.fromhex("".join(each["blobs"])), each["start"], each["end"]) for each in states]

    # scanning

    def begin(self, checkpoint_id: str) -> None:
        """Note, before the commit point, that a checkpoint is not scanned yet. If that fails, the save goes on."""
        with contextlib.suppress(OSError):
            names = [*self._begun(), checkpoint_id]
            durable.write_atomically(self._unscanned, "\n".join(names).encode(), sync=False)

    def _begun(self) -> list[str]:
        try:
            return self._unscanned.read_text("ascii", "replace").split()
        except OSError:
            return []

    def _end(self) -> None:
        """Forget what `begin` noted; what of it is pending is in the list now."""
        with contextlib.suppress(OSError):
            disk().unlink(str(self._unscanned))

    def after_save(
        self,
        checkpoint: Checkpoint,
        contents: Contents,
        files: Callable[[], Iterable[tuple[str, bytes, int]]],
        is_new: Callable[[bytes], bool],
        is_tracked: IsTracked,
    ) -> None:
        """Scan what a save has just stored, or note that it is pending. `files` gives path, blob and size of each."""
        parts = [part for part in self._texts(contents) if is_new(part.blobs[0])]
        size = sum(self._repository.objects.kind_and_size(part.blobs[0])[1] for part in parts)
        most_bytes = SAVE_MAX_BYTES - size
        new = _fitting((each for each in files() if is_new(each[1])), most_bytes)
        if new is None:  # reads git's index, so only then
            new = _fitting((each for each in files() if is_new(each[1]) and not is_tracked(each[0])), most_bytes)
        stored = self._read()  # with what a killed process left
        stored["pending"] = [each for each in stored["pending"] if each != checkpoint.id]
        if new is None:
            self._write(stored, pending=[checkpoint.id])
            self._end()
            return
        parts += [_Part(path, False, (oid,)) for path, oid, _ in new]
        found = [*self._scanned(parts, checkpoint.id, is_tracked)]
        if found or self._begun() != [checkpoint.id]:
            self._write(stored, found=found)
        self._end()

    def scan(
        self, is_tracked: IsTracked, *, max_bytes: int | None = None, every: bool = False, also: Sequence[str] = ()
    ) -> SecretReport:
        """Scan what is pending, and these checkpoints, or with `every` all of them, each content once.

        Of each, what the one before it does not have: that one was scanned, or is pending itself.
        """
        stored = self._read()
        if every:
            stored = {"found": [], "pending": [], "skipped": []}
        elif not (stored["pending"] or also):
            return self.report()
        ids = self._ids()
        todo = ids if every else _present_ids([*stored["pending"], *also], ids)
        seen: set[bytes] = set()
        left = max_bytes
        scanned = ""
        for at, checkpoint_id in enumerate(todo):
            before = scanned if every else _id_before(checkpoint_id, ids)
            new = self._new_parts(checkpoint_id, before, seen, is_tracked, left)
            if new is None:
                self._write({**stored, "pending": todo[at:]})
                self._end()
                return self.report()
            parts, skipped, size = new
            if parts:  # not empty unless damaged: every checkpoint has a record of its own
                scanned = checkpoint_id
            if left is not None:
                left -= size
            stored["found"] += self._scanned(parts, checkpoint_id, is_tracked)
            stored["skipped"] = [*dict.fromkeys([*stored["skipped"], *skipped])][:_LISTED_MAX]
        self._write({**stored, "pending": []})
        self._end()
        return self.report()

    def forget_purged(self) -> None:
        """Remove what is no longer in the store."""
        stored = self._read()
        if stored["found"]:
            self._write({**stored, "found": self._present(stored)})

    def _ids(self) -> list[str]:
        return sorted(self._repository.objects.ref_names())

    def _new_parts(
        self, checkpoint_id: str, before_id: str, seen: set[bytes], is_tracked: IsTracked, max_bytes: int | None
    ) -> tuple[list[_Part], list[str], int] | None:
        """Return what a checkpoint contains and one before it does not, as far as it was not seen yet, the files that
        are too large, and the bytes to scan; None once these are more than `max_bytes`, and then no further folder is
        read (P8).

        The stored list of changes is no help: it is of a parent that may be deleted since.
        """
        contents = self._contents(checkpoint_id)
        if contents is None:
            return [], [], 0
        parts: list[_Part] = []
        skipped: list[str] = []
        size, size_of = 0, self._repository.objects.kind_and_size
        before, reader = self._contents(before_id), TreeReader(self._repository.objects)
        try:
            if before is not None and before.record not in seen:
                seen.update(part.blobs[0] for part in self._texts(before))
            for path, _, entry in reader.diff(before.root if before else None, contents.root):
                if entry is None or not entry.is_file or entry.oid in seen or is_tracked(path):
                    continue
                if entry.attr.parts_bytes is not None:
                    skipped.append(path)
                else:
                    parts.append(_Part(path, False, (entry.oid,)))
                    size += size_of(entry.oid)[1]
                    if max_bytes is not None and size > max_bytes:
                        return None
            texts = [part for part in self._texts(contents) if part.blobs[0] not in seen]
            size += sum(size_of(part.blobs[0])[1] for part in texts)
        except (Damaged, NotFound):
            return [], [], 0  # `verify` reports it
        if max_bytes is not None and size > max_bytes:
            return None
        parts += texts
        seen.update(part.blobs[0] for part in parts)
        return parts, skipped, size

    def _contents(self, checkpoint_id: str) -> Contents | None:
        row = self._repository.catalog.by_id(checkpoint_id) if checkpoint_id else None
        try:
            return None if row is None else self._repository.contents(self._repository.checkpoint(row))
        except (Damaged, NotFound):
            return None

    def _texts(self, contents: Contents) -> Iterator[_Part]:
        """Yield the chunks of the states, and the record."""
        objects = self._repository.objects
        states = state_names(objects, contents.state) if contents.state != EMPTY_TREE else {}
        for name, entry in states.items():
            parts = [*list_parts(objects, entry.mode, entry.oid)]
            for at in range(len(parts)):
                yield _Part(name, True, tuple(parts[at : at + 2]))
        yield _Part(RECORD, True, (contents.record,))

    def _scanned(self, parts: Iterable[_Part], checkpoint_id: str, is_tracked: IsTracked) -> Iterator[dict[str, Any]]:
        for part in parts:
            data = self._data(*part.blobs)
            if b"\0" in data[:_BINARY_BYTES]:
                continue
            found = find_secrets(data, is_json=part.is_state)
            if not found or (not part.is_state and is_tracked(part.where)):
                continue
            from hashlib import sha256  # start-up cost: most saves contain no secret

            text = unescaped(data) if part.is_state else data
            for each in found:
                yield {
                    "id": sha256(b"holdfast secret " + text[each.start : each.end]).hexdigest()[:8],
                    "kind": each.kind,
                    "path": None if part.is_state else part.where,
                    "state": part.where if part.is_state else None,
                    "line": None if part.is_state else each.line,
                    "masked": each.masked,
                    "checkpoint": checkpoint_id,
                    "blobs": [blob.hex() for blob in part.blobs],
                    "start": each.start,
                    "end": each.end,
                }

    def _data(self, blob: bytes, following: bytes | None = None) -> bytes:
        objects = self._repository.objects
        kind, size = objects.kind_and_size(blob)
        if kind is not ObjectKind.BLOB or size > FILE_MAX_BYTES:
            return b""
        data = objects.blob(blob)
        return data + objects.blob(following)[:WINDOW_MAX_BYTES] if following is not None else data

    # the file

    def _present(self, stored: dict[str, Any]) -> list[dict[str, Any]]:
        has = self._repository.objects.has
        return [each for each in stored["found"] if all(has(bytes.fromhex(blob)) for blob in each["blobs"])]

    def _read(self) -> dict[str, Any]:
        """Return what the files say; one that is missing or damaged says nothing."""
        stored = self._read_list()
        stored["pending"] = [*dict.fromkeys([*stored["pending"], *self._begun()])]
        return stored

    def _read_list(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            stored = durable.parse_json(self._path.read_bytes())
            found = [{**dict.fromkeys(SecretFinding._fields), **each} for each in stored["found"]]
            ids, paths = stored["pending"], stored["skipped"]
            if all(map(_is_finding, found)) and _are_texts(ids) and _are_texts(paths) and "".join(ids).isascii():
                return {"found": found, "pending": ids, "skipped": paths}
        return {"found": [], "pending": [], "skipped": []}

    def _write(
        self, stored: dict[str, Any], *, found: Sequence[dict[str, Any]] = (), pending: Sequence[str] = ()
    ) -> None:
        new = {
            "found": [*stored["found"], *found][-_LISTED_MAX:],
            "pending": [*dict.fromkeys([*stored["pending"], *pending])],
            "skipped": stored["skipped"],
        }
        if any(new.values()) and new == self._read_list():
            return  # `status` comes here each time while much is pending
        if any(new.values()):
            durable.write_atomically(self._path, json.dumps(new).encode())
        elif self._path.exists():
            disk().unlink(str(self._path))


def _present_ids(wanted: Iterable[str], ids: Sequence[str]) -> list[str]:
    """Return these checkpoints; for one that was deleted, the next one, which may have the same contents."""
    places = [bisect_left(ids, each) for each in wanted]
    return [*dict.fromkeys(ids[place] for place in places if place < len(ids))]


def _id_before(checkpoint_id: str, ids: Sequence[str]) -> str:
    place = bisect_left(ids, checkpoint_id)
    return ids[place - 1] if place else ""


def _is_finding(stored: dict[str, Any]) -> bool:
    """Whether a stored finding has what is used of it."""
    texts = [stored[name] for name in ("id", "kind", "masked", "checkpoint")]
    texts += [stored[name] for name in ("path", "state") if stored[name] is not None]
    numbers, blobs = [stored["start"], stored["end"], 0 if stored["line"] is None else stored["line"]], stored["blobs"]
    return (
        _are_texts(texts)
        and all(type(each) is int for each in numbers)
        and _are_texts(blobs)
        and all(_OBJECT.fullmatch(each) for each in blobs)
    )


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def scan_quietly(scan: Callable[[], object]) -> None:
    """Scan; a scan that fails does not make a save fail: the checkpoint exists already."""
    with contextlib.suppress(HoldfastError, OSError, ValueError, KeyError):
        scan()


def _fitting(files: Iterable[tuple[str, bytes, int]], most_bytes: int) -> list[tuple[str, bytes, int]] | None:
    """The files; None if they have more bytes than that: a first save may have a million."""
    found = []
    for each in files:
        most_bytes -= each[2]
        if most_bytes < 0:
            return None
        found.append(each)
    return found if most_bytes >= 0 else None
