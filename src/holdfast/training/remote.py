"""Checkpoints in an object store: objects first, the manifest last, and only if none is there.

There is no lock and nothing is renamed. Objects are named after their content, so that no two saves can overwrite
each other's; a step is the checkpoint whose `manifest.json` came first. Markers and pins are replaced only if they are
still what was read. `last` also keeps what a listing needs to tell of each step, so that looking costs a request for
each page and not for each step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, cast

from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound
from holdfast.training.briefly import remembered
from holdfast.training.folder import Broken, Found, TrainingFolder, deciding, pass_over
from holdfast.training.objects import Entry, Objects, Seen
from holdfast.training.remote_reading import RemoteReader
from holdfast.training.stored import marker
from holdfast.training.stored.layout import BEST, LAST, MANIFEST, PRIVATE, check_step, step_of
from holdfast.training.stored.manifest import Brief, Manifest, decode

_PINS = f"{PRIVATE}/pins.json"
DAMAGED = f"{MANIFEST}.damaged-"
"""How the manifest of a checkpoint that was put aside is called; it has a number behind it."""


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
        self._pins: Seen | None = None
        self.entries: list[Entry] = []
        """All objects, as the last look found them."""
        self.last: Seen | None = None
        """What `last` was just before that look."""
        self._adopted: list[dict[str, str]] = []
        """The versions of markers of other programs that are kept under another name."""

    def look(self) -> tuple[list[Found], list[Broken]]:
        """All checkpoints in the order in which they were saved, and what is broken. Their tensors are not told."""
        self.last = self.objects.see(LAST)
        known = remembered(self.parsed(LAST, self.last))
        self.entries = self.objects.list()
        found, broken = [], []
        for entry in self.entries:
            folder, _, name = entry.key.partition("/")
            step = step_of(folder) if name == MANIFEST else None
            if step is None:
                continue
            try:
                found.append(Found(self.path / folder, known.get((entry.tag, step)) or self._manifest(folder, step)))
            except NotFound:
                continue  # it was removed while we looked
            except HoldfastError as error:
                broken.append(Broken(self.path / folder, step, error))
        return sorted(found, key=lambda one: (one.manifest.sequence, one.step)), broken

    def full(self, found: Found) -> Found:
        """The same with its whole manifest."""
        if not isinstance(found.manifest, Brief):
            return found
        return Found(found.path, self._manifest(found.path.name, found.step))

    def get(self, step: int | str) -> Found:
        """The checkpoint of a step, or `latest` or `best`."""
        found, broken = self.look()
        if step == "latest" and found:
            pass_over(broken)
            return self.full(found[-1])
        if step == "best":
            decides = deciding(cast("TrainingFolder", self))
            best = self.best_of(found, *decides) if decides else None
            if best is not None:
                return self.full(best)
            raise NotFound(f"{self.path} has no best checkpoint", hint="Save with metrics and best_key.")
        for wrong in broken:
            if wrong.step == step or (step == "latest" and not found):
                raise wrong.error
        for one in found:
            if one.step == step:
                return self.full(one)
        steps = ", ".join(str(one.step) for one in found[-5:])
        hint = f"There are: {steps}." if steps else "Save one first."
        raise NotFound(f"{self.path} has no checkpoint {step}", hint=hint)

    def _manifest(self, folder: str, step: int) -> Manifest:
        data = self.objects.get(f"{folder}/{MANIFEST}")
        if data is None:
            raise NotFound(f"{self.path / folder} was removed meanwhile", hint="Load again: there is a newer one.")
        manifest = decode(data, str(self.path / folder / MANIFEST), verify=self._verify)
        if manifest.step != step:
            raise Damaged(f"{self.path / folder} says that it is step {manifest.step}", hint="Rename it back.")
        return manifest

    def reader(self, found: Found, *, verify: bool) -> RemoteReader:
        """What reads a checkpoint."""
        return RemoteReader(self.objects, found, verify=verify)

    # markers and pins

    def best_marker(self) -> dict[str, Any] | None:
        return self.parsed(BEST, self.objects.see(BEST))

    def last_marker(self) -> dict[str, Any] | None:
        return self.parsed(LAST, self.objects.see(LAST))

    def parsed(self, name: str, seen: Seen | None) -> dict[str, Any] | None:
        """What a marker says; None if there is none of ours."""
        return marker.decode(seen.data, str(self.path / name)) if seen else None

    def foreign(self, names: Iterable[str]) -> list[str]:
        """Which of these markers another program has made."""
        return [name for name in names if (seen := self.objects.see(name)) and not marker.is_ours(seen.data)]

    def adopt(self, names: Iterable[str]) -> list[str]:
        """Copy markers of other programs to another name (P1), and let `mark` replace just what was copied."""
        notes = []
        for name in names:
            while (seen := self.objects.see(name)) and not self._may_replace(seen):
                aside = self._free(f"{name}.replaced-")
                self.objects.copy(name, aside)
                if self.objects.see(name) == seen:  # else somebody has changed it meanwhile: copy that, too
                    self._adopted.append(seen.version)
                    notes.append(f"{self.path / name} {marker.FOREIGN}, and is kept as {aside}")
        return notes

    def _may_replace(self, seen: Seen) -> bool:
        return marker.is_ours(seen.data) or seen.version in self._adopted

    def _free(self, start: str) -> str:
        """A key that nothing has."""
        folder = start.rpartition("/")[0]
        names, number = {entry.key for entry in self.objects.list(folder)}, 1
        while f"{start}{number}" in names:
            number += 1
        return f"{start}{number}"

    def mark(self, name: str, about: dict[str, Any], seen: Seen | None) -> bool:
        """Write a marker in place of the one that was seen; False if somebody else was quicker."""
        text = marker.encode(about)
        if seen is not None and seen.data == text:
            return True
        if seen is not None and not self._may_replace(seen):  # P1: it came while we saved
            raise marker.refuse(self.path / name)
        return self.objects.replace(name, text, seen) is not None

    def mark_rest(self, stay: list[Found]) -> None:
        """Let the markers point to what stays, before what they point to loses its name; who is quicker is right."""
        if stay and (last := self.parsed(LAST, self.last)):
            self.mark(LAST, last | {"step": stay[-1].step, "path": stay[-1].path.name}, self.last)
        seen = self.objects.see(BEST)
        decides = self.parsed(BEST, seen) or {}
        best = self.best_of(stay, str(decides.get("metric")), str(decides.get("mode")))
        if best is not None:
            value = best.manifest.metric(decides["metric"])
            self.mark(BEST, decides | {"value": value, "step": best.step, "path": best.path.name}, seen)

    def pinned(self) -> set[int]:
        self._pins = self.objects.see(_PINS)
        if self._pins is None:
            return set()
        try:
            return {check_step(step) for step in (self.parsed(_PINS, self._pins) or {})["steps"]}
        except (KeyError, TypeError, HoldfastError):
            hint = "Move it away, and pin again what was pinned."
            raise Damaged(f"{self.path / _PINS} is not as it was written", hint=hint) from None

    def pin(self, steps: set[int]) -> None:
        """Set which steps are pinned; Conflict if somebody else has pinned since `pinned` was asked."""
        if not self.mark(_PINS, {"steps": sorted(steps)}, self._pins):
            raise Conflict(f"somebody else changes the pins of {self.path}", hint="Pin it again.")

    # as a folder has them

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """There is no lock in an object store, and nothing needs one."""
        yield

    def strangers(self, found: Found) -> list[str]:
        """Only what a manifest names is ever removed."""
        return []

    def put_aside(self, path: Any) -> Any:
        """Give the manifest of a damaged checkpoint another name; nothing else of it is touched, nor swept."""
        aside = self._free(f"{path.name}/{DAMAGED}")
        self.objects.copy(f"{path.name}/{MANIFEST}", aside)
        self.objects.delete([f"{path.name}/{MANIFEST}"])
        return self.path / aside

    def remove(self, found: Found) -> None:
        """Remove a checkpoint: first what makes it one, then its other objects."""
        try:
            files = self.full(found).manifest.files
        except NotFound:
            return  # somebody else was quicker
        folder = found.path.name
        self.objects.delete([f"{folder}/{MANIFEST}"])
        self.objects.delete([f"{folder}/{name}" for name in files])


def find_remote(url: str, step: int | str | None, *, verify: bool = True) -> tuple[Found, RemoteFolder]:
    """The checkpoint that a URL means: a step, `last`, `best.json`, or the place of a run and a step."""
    place = Location(url.rstrip("/"))
    if step is not None and step not in ("latest", "best"):
        step = check_step(step)
    if place.name in (LAST, BEST):
        return find_remote(place.parent, "latest" if place.name == LAST else "best", verify=verify)
    number = step_of(place.name)
    if number is not None and step not in (None, "latest", "best", number):
        raise NotFound(f"{place} is step {number}, not {step}", hint="Give the URL above it.")
    folder = RemoteFolder(place.parent if number is not None else place, verify=verify)
    return folder.get(number if number is not None else "latest" if step is None else step), folder
