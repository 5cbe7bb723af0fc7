"""Checkpoints in an object store: objects first, the manifest last, and only if none is there.

There is no lock and nothing is renamed. Each save writes under names of its own, so that two of them cannot overwrite
each other; a step is the checkpoint whose `manifest.json` came first. `last` also keeps what a listing needs to tell of
each step, so that looking costs a request for each page and not for each step.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from holdfast.errors import Damaged, HoldfastError, NotFound
from holdfast.model import Problem, VerifyReport
from holdfast.training.folder import Broken, Found, TrainingFolder
from holdfast.training.objects import Objects
from holdfast.training.reading import Reader
from holdfast.training.stored import digests
from holdfast.training.stored.layout import (
    BEST,
    KIND,
    LAST,
    MANIFEST,
    PRIVATE,
    SCHEMA_VERSION,
    check_schema,
    step_of,
)
from holdfast.training.stored.manifest import Manifest, decode

_PINS = f"{PRIVATE}/pins.json"
_HINT = "Use another checkpoint; holdfast verify names the sound ones."


class Location(str):
    """A URL that is walked like a path."""

    __slots__ = ()

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        return self.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Location:
        return Location(self.rstrip("/").rpartition("/")[0])


class RemoteFolder:
    """The checkpoints of one run in an object store; the same verbs as those of a folder."""

    best_of = staticmethod(TrainingFolder.best_of)

    def __init__(self, url: str, *, verify: bool = True) -> None:
        self.path: Any = Location(url.rstrip("/"))
        self.objects = Objects(str(self.path))
        self._verify = verify

    def look(self) -> tuple[list[Found], list[Broken]]:
        """All checkpoints in the order in which they were saved, and what is broken. Their tensors are not told."""
        known = {entry.get("tag"): entry for entry in (self.last_marker() or {}).get("history", [])}
        found, broken = [], []
        for entry in self.objects.list():
            folder, _, name = entry.key.partition("/")
            step = step_of(folder) if name == MANIFEST else None
            if step is None:
                continue
            try:
                told_before = known.get(entry.tag)
                manifest = _brief(told_before) if told_before else self._manifest(folder)
                found.append(Found(self.path / folder, manifest))
            except HoldfastError as error:
                broken.append(Broken(self.path / folder, step, error))
        return sorted(found, key=lambda one: (one.manifest.sequence, one.step)), broken

    def full(self, found: Found) -> Found:
        """The same with its whole manifest."""
        return found if found.manifest.files else Found(found.path, self._manifest(found.path.name))

    def get(self, step: int | str) -> Found:
        """The checkpoint of a step, or `latest` or `best`."""
        found, broken = self.look()
        if step == "latest" and found:
            return self.full(found[-1])
        if step == "best":
            marker = self.best_marker() or {}
            best = self.best_of(found, str(marker.get("metric")), str(marker.get("mode")))
            if best is not None:
                return self.full(best)
        for wrong in broken:
            if wrong.step == step:
                raise wrong.error
        for one in found:
            if one.step == step:
                return self.full(one)
        raise NotFound(f"{self.path} has no checkpoint {step}", hint="Save one first.")

    def _manifest(self, folder: str) -> Manifest:
        data = self.objects.get(f"{folder}/{MANIFEST}")
        if data is None:
            raise NotFound(f"{self.path / folder} has no {MANIFEST}", hint=_HINT)
        return decode(data, str(self.path / folder / MANIFEST), verify=self._verify)

    def reader(self, found: Found, *, verify: bool) -> RemoteReader:
        """What reads a checkpoint."""
        return RemoteReader(self.objects, found, verify=verify)

    # markers and pins

    def best_marker(self) -> dict[str, Any] | None:
        return self._marker(BEST)

    def last_marker(self) -> dict[str, Any] | None:
        return self._marker(LAST)

    def _marker(self, name: str) -> dict[str, Any] | None:
        try:
            found = json.loads(self.objects.get(name) or b"null")
        except (ValueError, RecursionError):
            return None
        if isinstance(found, dict):
            check_schema(found.get("schema_version", 1), str(self.path / name))
        return found if isinstance(found, dict) else None

    def mark(self, name: str, about: dict[str, Any]) -> None:
        """Write a marker."""
        text = json.dumps({"schema_version": SCHEMA_VERSION, "kind": KIND, **about}, indent=2)
        self.objects.put(name, text.encode() + b"\n")

    def pinned(self) -> set[int]:
        found = self._marker(_PINS) or {}
        return {int(step) for step in found.get("steps", [])}

    def pin(self, steps: set[int]) -> None:
        self.mark(_PINS, {"steps": sorted(steps)})

    # as a folder has them

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """There is no lock in an object store, and nothing needs one."""
        yield

    def strangers(self, found: Found) -> list[str]:
        """Only what a manifest names is ever removed."""
        return []

    def put_aside(self, path: Any) -> Any:
        """What is damaged stays where it is; a save with `rewind` replaces its manifest."""
        return path

    def remove(self, found: Found) -> None:
        """Remove a checkpoint: first what makes it one, then its other objects."""
        files = self.full(found).manifest.files
        folder = found.path.name
        self.objects.delete([f"{folder}/{MANIFEST}"])
        self.objects.delete([f"{folder}/{name}" for name in files])


class RemoteReader(Reader):
    """Reads tensors of one checkpoint by ranges of its objects; verified as those of a folder are."""

    def __init__(self, objects: Objects, found: Found, *, verify: bool = True) -> None:
        super().__init__(found.path, found.manifest, verify=verify)
        self._objects = objects

    def file(self, name: str) -> bytes:
        entry = self._manifest.files.get(name)
        data = self._objects.get(f"{self._folder.name}/{name}") if entry else None
        if entry is None or data is None:
            raise Damaged(f"{self._folder / name} is missing", hint=_HINT)
        self._check(data, entry.digest, self._folder / name)
        return data

    def _read(self, name: str) -> memoryview:
        tensor = self._entry(name)
        entry = self._manifest.files[tensor.file]
        if tensor.file not in self._maps:
            self._maps[tensor.file] = self._range(tensor.file, 0, entry.header_bytes)
            self._check(self._maps[tensor.file], entry.header_digest, self._folder / tensor.file)
        data = self._range(tensor.file, tensor.offset, tensor.bytes)
        self._check_tensor(data, name, tensor)
        return data

    def _range(self, file: str, start: int, length: int) -> memoryview:
        data = self._objects.range(f"{self._folder.name}/{file}", start, length)
        if data is None or len(data) != length:
            raise Damaged(f"{self._folder / file} is missing or too short", hint=_HINT)
        return data


def find_remote(url: str, step: int | str | None, *, verify: bool = True) -> tuple[Found, RemoteFolder]:
    """The checkpoint that a URL means: a step, `last`, `best.json`, or the place of a run and a step."""
    place = Location(url.rstrip("/"))
    if place.name in (LAST, BEST):
        return find_remote(place.parent, "latest" if place.name == LAST else "best", verify=verify)
    number = step_of(place.name)
    folder = RemoteFolder(place.parent if number is not None else place, verify=verify)
    return folder.get(number if number is not None else "latest" if step is None else step), folder


def _brief(entry: dict[str, Any]) -> Manifest:
    try:
        return Manifest(entry["step"], entry["sequence"], entry["created_at"], "", {}, {}, entry["metrics"])
    except (KeyError, TypeError) as error:
        raise Damaged(f"{LAST} is not as it was written: {error}", hint=_HINT) from None


def verify_remote(folder: RemoteFolder) -> VerifyReport:
    """Read every byte of every checkpoint of a store."""
    found, broken = folder.look()
    problems = [Problem(one.path.name, one.error.message, (one.path.name,)) for one in broken]
    read = files = 0
    for one in found:
        try:
            whole = folder.full(one)
        except HoldfastError as error:
            problems.append(Problem(one.path.name, error.message, (one.path.name,)))
            continue
        for name, entry in whole.manifest.files.items():
            data = folder.objects.get(f"{one.path.name}/{name}")
            files += 1
            read += len(data or b"")
            wrong = "is missing" if data is None else ""
            if data is not None and digests.digest(data, whole.manifest.digest_algorithm) != entry.digest:
                wrong = "is not as it was written"
            if wrong:
                problems.append(Problem(f"{one.path.name}/{name}", wrong, (one.path.name,)))
    return VerifyReport(problems, checkpoints=len(found) + len(broken), objects=files, bytes_read=read)
