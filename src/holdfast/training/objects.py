"""A run in an object store: objects first, the manifest last and only if none is there.

There is no lock, and nothing is renamed. Objects are named after their content, so that two saves cannot overwrite each
other's; of two saves of one step the first to write `manifest.json` makes the checkpoint. Markers and pins are replaced
only if they still are what was read (compare and swap). `last` also caches a summary of each step, so that a scan costs
a request for each page of keys and not for each step.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.model import Problem, Progress, VerifyReport
from holdfast.training.object_client import ListedObject, ObjectClient, VersionedObject
from holdfast.training.retention import plan, prune
from holdfast.training.run_store import (
    BrokenCheckpoint,
    SaveStart,
    StepPage,
    StoredCheckpoint,
    best_metric,
    best_of,
    log_skipped,
    next_sequence,
)
from holdfast.training.save import PendingSave, check_is_free, documents, make_manifest, summarize
from holdfast.training.shard_layout import ShardPlan, plan_shards
from holdfast.training.shard_reader import Reader
from holdfast.training.shard_writer import WrittenShard, describe_tensor, shards_of
from holdfast.training.stored import digests, marker
from holdfast.training.stored.layout import BEST, LAST, MANIFEST, PRIVATE, check_step, step_name, step_of
from holdfast.training.stored.manifest import HINT, VERIFY, Brief, FileEntry, Manifest, TensorEntry, decode, is_foreign
from holdfast.training.stored.shards import Payload, Shard, header
from holdfast.training.threads import each
from holdfast.training.verify import ReadCounter, problem_of

_PINS = f"{PRIVATE}/pins.json"
_SEQUENCE = f"{PRIVATE}/sequence-"
_DAMAGED = f"{MANIFEST}.damaged-"
"""The name of the manifest of a checkpoint that was set aside; a number follows."""
_OURS = re.compile(r"model-[0-9a-f]{32}\.safetensors(\.index\.json)?|state-[0-9a-f]{32}\.json")
"""How objects are named after their content: nothing else is cleaned up (P1)."""
_ABANDONED_AFTER = timedelta(days=1)
_REUSED_FOR = timedelta(hours=12)
_TRIES = 50

_OBJECT_BYTES = 32 << 20
_UPLOAD_CHUNK_BYTES = 8 << 20
_VERIFY_CHUNK_BYTES = 16 << 20
_SINGLE_PUT_MAX_BYTES = 5 << 20
_COPY_MAX_BYTES = 5 << 30
"""S3 copies no larger object in one request."""

_CACHED_FIELDS = ("step", "sequence", "created_at", "metrics", "metadata", "config_hash")
"""What `last` caches of each manifest."""


class ObjectPath(str):
    """A URL with the path operations that the rest of the code uses."""

    __slots__ = ()

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        return self.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.rstrip("/").rpartition("/")[0])


class ObjectRunStore:
    """The checkpoints of one run in an object store: a `RunStore`."""

    def __init__(self, url: str, *, verify: bool = True) -> None:
        self.path = ObjectPath(url.rstrip("/"))
        self.client = ObjectClient(str(self.path))
        self._verify = verify
        self._entries: list[ListedObject] = []
        """All objects, as the last scan listed them."""
        self._last: VersionedObject | None = None
        """`last`, as it was just before that scan."""
        self._pins: VersionedObject | None = None
        self._adopted: list[dict[str, str]] = []
        """Versions of other programs' markers that were copied to another name."""

    # reading

    def scan(self) -> tuple[list[StoredCheckpoint], list[BrokenCheckpoint]]:
        """Return all checkpoints in the order in which they were saved, and those that cannot be read."""
        self._last = self.client.see(LAST)
        cached = _cached_manifests(self._decode_marker(LAST, self._last))
        self._entries = self.client.list()
        found, broken = [], []
        for entry in self._entries:
            folder, _, name = entry.key.partition("/")
            step = step_of(folder) if name == MANIFEST else None
            if step is None:
                continue
            try:
                manifest = cached.get((entry.tag, step)) or self._manifest(folder, step)
                found.append(StoredCheckpoint(self.path / folder, manifest))
            except NotFound:
                continue  # removed during the scan (P9)
            except HoldfastError as error:
                broken.append(BrokenCheckpoint(self.path / folder, step, error))
        return sorted(found, key=lambda one: (one.manifest.sequence, one.step)), broken

    def page(self, limit: int | None, *, before: int | None = None) -> StepPage:
        """Return the checkpoints with the greatest steps, below `before` if given. As many requests as a scan."""
        found, broken = self.scan()
        steps = sorted((one for one in found if before is None or one.step < before), key=lambda one: -one.step)
        shown = steps[:limit]
        return StepPage(shown, broken, shown[-1].step if len(shown) < len(steps) else None)

    def full(self, found: StoredCheckpoint) -> StoredCheckpoint:
        """Return the same checkpoint with its whole manifest."""
        if not isinstance(found.manifest, Brief):
            return found
        return StoredCheckpoint(found.path, self._manifest(found.path.name, found.step))

    def get(self, step: int | str) -> StoredCheckpoint:
        """Return the checkpoint of a step, `latest` or `best`. NotFound, or Damaged if it is there but unreadable."""
        found, broken = self.scan()
        if step == "latest" and found:
            log_skipped(broken)
            return self.full(found[-1])
        if step == "best":
            metric = best_metric(self)
            best = best_of(found, *metric) if metric else None
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
        data = self.client.get(f"{folder}/{MANIFEST}")
        if data is None:
            raise NotFound(f"{self.path / folder} was removed meanwhile", hint="Load again: there is a newer one.")
        manifest = decode(data, str(self.path / folder / MANIFEST), verify=self._verify)
        if manifest.step != step:
            raise Damaged(f"{self.path / folder} contains step {manifest.step}", hint="Rename it back.")
        return manifest

    def reader(self, found: StoredCheckpoint, *, verify: bool) -> Reader:
        """Return a reader of its tensors and files."""
        return ObjectReader(self.client, found, verify=verify)

    def new_bytes(self, found: Sequence[StoredCheckpoint]) -> dict[int, int]:
        """Return nothing: an object store shares no bytes, it copies objects."""
        del found
        return {}

    def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Read every byte of every checkpoint, and name what is damaged."""
        found, broken = self.scan()
        problems = [problem_of(one) for one in broken]
        sizes = {entry.key: entry.size for entry in self._entries}
        jobs: list[tuple[StoredCheckpoint, str, FileEntry]] = []
        for one in found:
            try:
                whole = self.full(one)
            except HoldfastError as error:
                problems.append(Problem(one.path.name, error.message, (one.path.name,)))
                continue
            jobs += [(whole, name, entry) for name, entry in whole.manifest.files.items()]

        counter = ReadCounter(progress, sum(entry.bytes for _, _, entry in jobs))

        def check(job: tuple[StoredCheckpoint, str, FileEntry]) -> tuple[int, str]:
            found = _verify_object(self.client, *job, sizes.get(f"{job[0].path.name}/{job[1]}"))
            counter.add(job[2].bytes)
            return found

        checked = each(check, jobs)
        for (one, name, _), (_, wrong) in zip(jobs, checked, strict=True):
            if wrong:
                problems.append(Problem(f"{one.path.name}/{name}", wrong, (one.path.name,)))
        read = sum(size for size, _ in checked)
        return VerifyReport(problems, checkpoints=len(found) + len(broken), objects=len(jobs), bytes_read=read)

    # markers

    def best_marker(self) -> dict[str, Any] | None:
        """Return the content of `best.json`; None if Holdfast wrote none."""
        return self._decode_marker(BEST, self.client.see(BEST))

    def _decode_marker(self, name: str, seen: VersionedObject | None) -> dict[str, Any] | None:
        return marker.decode(seen.data, str(self.path / name)) if seen else None

    def foreign_markers(self, names: Iterable[str]) -> list[str]:
        """Return which of these markers another program wrote."""
        return [name for name in names if (seen := self.client.see(name)) and not marker.is_ours(seen.data)]

    def _adopt(self, names: Iterable[str]) -> list[str]:
        """Copy markers of other programs to another name (P1), so that `_mark` may replace exactly those versions."""
        notes = []
        for name in names:
            while (seen := self.client.see(name)) and not self._may_replace(seen):
                kept = self._free_key(f"{name}.replaced-")
                self.client.copy(name, kept)
                if self.client.see(name) == seen:  # else it has changed meanwhile: copy that version, too
                    self._adopted.append(seen.version)
                    notes.append(f"{self.path / name} {marker.FOREIGN}, and is kept as {kept}")
        return notes

    def _may_replace(self, seen: VersionedObject) -> bool:
        return marker.is_ours(seen.data) or seen.version in self._adopted

    def _free_key(self, start: str) -> str:
        """Return `start` with the first number that makes a new key."""
        folder = start.rpartition("/")[0]
        keys, number = {entry.key for entry in self.client.list(folder)}, 1
        while f"{start}{number}" in keys:
            number += 1
        return f"{start}{number}"

    def _mark(self, name: str, about: dict[str, Any], seen: VersionedObject | None) -> bool:
        """Replace the marker that was seen; False if somebody else has replaced it first."""
        text = marker.encode(about)
        if seen is not None and seen.data == text:
            return True
        if seen is not None and not self._may_replace(seen):  # P1: another program wrote it during the save
            raise marker.refuse(self.path / name)
        return self.client.replace(name, text, seen) is not None

    def repoint_markers(self, remaining: list[StoredCheckpoint]) -> None:
        """Point the markers at what remains. If somebody else replaces one meanwhile, theirs is newer and stays."""
        if remaining and (last := self._decode_marker(LAST, self._last)):
            newest = remaining[-1]
            self._mark(LAST, last | {"step": newest.step, "path": newest.path.name}, self._last)
        seen = self.client.see(BEST)
        about = self._decode_marker(BEST, seen) or {}
        best = best_of(remaining, str(about.get("metric")), str(about.get("mode")))
        if best is not None:
            value = best.manifest.metric(about["metric"])
            self._mark(BEST, about | {"value": value, "step": best.step, "path": best.path.name}, seen)

    # pins

    def pinned(self) -> set[int]:
        """Return the steps that are pinned. Damaged if that cannot be read."""
        self._pins = self.client.see(_PINS)
        if self._pins is None:
            return set()
        try:
            return {check_step(step) for step in (self._decode_marker(_PINS, self._pins) or {})["steps"]}
        except (KeyError, TypeError, HoldfastError):
            raise Damaged(f"{self.path / _PINS} is corrupt", hint="Move it away, and pin the steps again.") from None

    def pin(self, steps: set[int]) -> None:
        """Replace the set of pinned steps. Conflict if it changed since `pinned` returned it."""
        if not self._mark(_PINS, {"steps": sorted(steps)}, self._pins):
            raise Conflict(f"another process changed the pins of {self.path}", hint="Pin it again.")

    def _pin_one(self, step: int) -> None:
        for _ in range(_TRIES):
            with contextlib.suppress(Conflict):
                self.pin(self.pinned() | {step})
                return
        raise Conflict(f"another process keeps changing the pins of {self.path}", hint="Pin it again.")

    # saving

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Do nothing: an object store has no lock, and conditional writes take its place."""
        yield

    def begin_save(self, pending: PendingSave) -> SaveStart:
        """Check that the step is free. With `rewind`, remember the manifest that the save may replace."""
        found, broken = check_is_free(self, pending)
        for wrong in broken:
            if wrong.step == pending.step:
                if is_foreign(self.client.get(f"{wrong.path.name}/{MANIFEST}") or b""):
                    what = f"{wrong.path} exists and is not a Holdfast checkpoint"
                    raise Conflict(what, hint="Move it away, or save elsewhere.")
                self.repoint_markers(found)
                self.set_aside(wrong.path)
        manifest = f"{step_name(pending.step)}/{MANIFEST}"
        return SaveStart(found, self.client.see(manifest) if pending.request.rewind else None)

    def write_shards(
        self,
        step: int,
        payloads: Sequence[Payload],
        found: list[StoredCheckpoint],
        *,
        threads: int | None,
        rank: int | None = None,
    ) -> list[WrittenShard]:
        """Upload tensors, or copy objects of the newest of `found` within the store (P8).

        On an error the objects stay for half a day, so that another save of the step need not send them again. A later
        save removes them.
        """
        previous = self.full(found[-1]) if found else None
        upload = _Upload(self.client, f"{step_name(step)}/", previous, self._reusable(f"{step_name(step)}/"))
        return each(upload.write, upload.plan(payloads, threads), threads=threads)

    def _reusable(self, folder: str) -> dict[str, int]:
        """Return names and sizes of the objects that an interrupted save of this step has left.

        Old ones are not used: another save may be about to clean them up.
        """
        now = max([datetime.now(UTC), *(entry.modified for entry in self._entries)])
        return {
            entry.key.removeprefix(folder): entry.size
            for entry in self._entries
            if entry.key.startswith(folder) and now - entry.modified < _REUSED_FOR
        }

    def commit_save(self, pending: PendingSave, shards: Sequence[WrittenShard], start: SaveStart) -> dict[str, Any]:
        """Write the documents and the manifest (the commit point), move the markers, prune. Return the summary."""
        if not self._entries:  # another process began this save
            self.scan()
        shards = [shard.encoded() for shard in shards]
        folder = f"{step_name(pending.step)}/"
        files = _Upload(self.client, folder, None, self._reusable(folder)).write_documents(*documents(pending, shards))
        manifest = make_manifest(pending, shards, files, self._claim_sequence(start.found))
        self._check_is_complete(folder, manifest)  # P3: everything that the manifest names is there
        if pending.request.pin:
            self._pin_one(pending.step)  # first: a reader that sees the checkpoint sees it pinned
        self._publish(folder, manifest, start.replaced)
        return self._conclude(pending, StoredCheckpoint(self.path / step_name(pending.step), manifest), shards)

    def _claim_sequence(self, found: list[StoredCheckpoint]) -> int:
        """Return a sequence number that nobody else has, greater than any that was given before (P10).

        A save at the same time claims another number, because an object of this name then exists.
        """
        number = next_sequence(self._decode_marker(LAST, self._last), found)
        for _ in range(_TRIES):
            if self.client.create(f"{_SEQUENCE}{number:012d}", b"") is not None:
                return number
            claims = [entry.key.removeprefix(_SEQUENCE) for entry in self.client.list(PRIVATE)]
            number = max([number, *(int(claim) for claim in claims if claim.isdecimal())]) + 1
        raise Unavailable(f"too many processes save to {self.path} at once", hint="Save again.")

    def _check_is_complete(self, folder: str, manifest: Manifest) -> None:
        sizes = {entry.key.removeprefix(folder): entry.size for entry in self.client.list(folder.rstrip("/"))}
        for name, entry in manifest.files.items():
            if sizes.get(name) != entry.bytes:
                raise Unavailable(f"{self.path}/{folder}{name} was removed during the save", hint="Save again.")

    def _publish(self, folder: str, manifest: Manifest, replaced: VersionedObject | None) -> None:
        """The commit point. Conflict if somebody else was first."""
        data, key = manifest.encode(), folder + MANIFEST
        failure: HoldfastError | None = None
        try:
            if self.client.replace(key, data, replaced) is not None:
                return
        except Unavailable as error:
            failure = error
        there = None
        with contextlib.suppress(HoldfastError):
            there = self.client.see(key)
        if there is not None and there.data == data:  # the request arrived, and its answer was lost
            return
        if failure is not None:
            raise failure
        self._remove_unused(folder, manifest)
        raise Conflict(f"another process saved step {manifest.step} meanwhile", hint="Use that, or save another step.")

    def _remove_unused(self, folder: str, manifest: Manifest) -> None:
        """Remove the objects that only this save has written, because no manifest will name them."""
        with contextlib.suppress(HoldfastError):
            [theirs] = [one for one in self.scan()[0] if one.step == manifest.step]
            unused = set(manifest.files) - set(self.full(theirs).manifest.files)
            self.client.delete([folder + name for name in unused])

    def _conclude(self, pending: PendingSave, new: StoredCheckpoint, shards: Sequence[WrittenShard]) -> dict[str, Any]:
        """Move the markers, then prune. The manifests alone decide, so that a failure here loses nothing (P3)."""
        request = pending.request
        options: dict[str, Any] = {"best_key": request.best_key, "mode": request.mode, "now": new.manifest.timestamp}
        adopted = self._adopt(pending.markers) if request.adopt else []
        for _ in range(_TRIES):
            best_seen = self.client.see(BEST) if request.best_key else None
            found = [new if one.path == new.path else one for one in self.scan()[0]]
            pruned = plan(self, found, request.keep, **options)
            best = best_of(found, request.best_key, request.mode) if request.best_key else None
            remaining = [one for one in found if one.step not in pruned.removed]
            if self._write_markers(pending, best, best_seen, remaining):
                break
        pruned = prune(self, found, request.keep, **options, shown=pruned)  # without what was pinned since
        self._clean_up(new)
        summary = summarize(pending, new, shards, is_best=best is new, notes=adopted)
        return summary | {"pruned": pruned.removed, "kept": pruned.kept}

    def _write_markers(
        self,
        pending: PendingSave,
        best: StoredCheckpoint | None,
        best_seen: VersionedObject | None,
        remaining: list[StoredCheckpoint],
    ) -> bool:
        """Write `best.json` and `last` as of the last scan; False if somebody else has changed one meanwhile."""
        best_key = pending.request.best_key
        if best_key and best is not None:
            value = best.manifest.metric(best_key)
            about = {"metric": best_key, "mode": pending.request.mode, "value": value}
            if not self._mark(BEST, about | {"step": best.step, "path": best.path.name}, best_seen):
                return False
        if not remaining:
            return True
        manifests = (entry for entry in self._entries if entry.key.endswith(f"/{MANIFEST}"))
        tags = {step: entry.tag for entry in manifests if (step := step_of(entry.key.partition("/")[0])) is not None}
        newest = remaining[-1]
        about = {"step": newest.step, "sequence": newest.manifest.sequence, "path": newest.path.name}
        return self._mark(LAST, about | _manifest_cache(remaining, tags), self._last)

    def abort_save(self) -> None:
        """Do nothing: another save of the step uses what was uploaded, or a later one removes it."""

    # removing

    def foreign_files(self, found: StoredCheckpoint) -> list[str]:
        """Return nothing: only objects that a manifest names are ever removed (P1)."""
        return []

    def set_aside(self, path: ObjectPath) -> ObjectPath:
        """Rename the manifest of a damaged checkpoint so that its step can be saved again. Nothing is removed (P1)."""
        kept = self._free_key(f"{path.name}/{_DAMAGED}")
        self.client.copy(f"{path.name}/{MANIFEST}", kept)
        self.client.delete([f"{path.name}/{MANIFEST}"])
        return self.path / kept

    def remove(self, found: StoredCheckpoint) -> None:
        """Remove a checkpoint: first its manifest, which makes it one, then its other objects (P3)."""
        try:
            files = self.full(found).manifest.files
        except NotFound:
            return  # somebody else has removed it
        folder = found.path.name
        self.client.delete([f"{folder}/{MANIFEST}"])
        self.client.delete([f"{folder}/{name}" for name in files])

    def _clean_up(self, new: StoredCheckpoint) -> None:
        """Remove what saves that died left, once they are surely dead, and what this save replaced.

        Ages are measured by the store's clock: against the manifest that was just written.
        """
        entries = {entry.key: entry for entry in self._entries}
        written = entries.get(f"{new.path.name}/{MANIFEST}")
        if written is None:
            return
        parts = {key: key.partition("/") for key in entries}
        complete = {folder for folder, _, name in parts.values() if name == MANIFEST}
        set_aside = {folder for folder, _, name in parts.values() if name.startswith(_DAMAGED)}
        doomed = []
        for key, (folder, _, name) in parts.items():
            is_ours = _OURS.fullmatch(name) and step_of(folder) is not None and folder not in set_aside
            is_needed = folder in complete and (folder != new.path.name or name in new.manifest.files)
            is_claim = key.startswith(_SEQUENCE) and key.removeprefix(_SEQUENCE).isdecimal() and not entries[key].size
            is_old = written.modified - entries[key].modified > _ABANDONED_AFTER
            if is_old and (is_claim or (is_ours and not is_needed)):
                doomed.append(key)
        self.client.delete(doomed)


def find_object(url: str, step: int | str | None, *, verify: bool = True) -> tuple[StoredCheckpoint, ObjectRunStore]:
    """Return the checkpoint that a URL names: a step, `last`, `best.json`, or a run together with `step`."""
    path = ObjectPath(url.rstrip("/"))
    if step is not None and step not in ("latest", "best"):
        step = check_step(step)
    if path.name in (LAST, BEST):
        return find_object(path.parent, "latest" if path.name == LAST else "best", verify=verify)
    number = step_of(path.name)
    if number is not None and step not in (None, "latest", "best", number):
        raise NotFound(f"{path} is step {number}, not {step}", hint="Give the URL above it.")
    store = ObjectRunStore(path.parent if number is not None else path, verify=verify)
    return store.get(number if number is not None else "latest" if step is None else step), store


class _Upload:
    """Writes the objects of one save: each is named after its content, and sent only if it is not there."""

    def __init__(
        self, client: ObjectClient, folder: str, previous: StoredCheckpoint | None, there: dict[str, int]
    ) -> None:
        self._client = client
        self._folder = folder
        self._there = there
        self._algorithm = digests.preferred()
        is_comparable = previous is not None and previous.manifest.digest_algorithm == self._algorithm
        self._previous = previous if is_comparable else None

    def plan(self, payloads: Sequence[Payload], threads: int | None) -> list[ShardPlan]:
        """Divide tensors into objects: larger than files, because each costs a request."""
        manifest = self._previous.manifest if self._previous else None
        known = {file: shard.tensors for file, shard in shards_of(manifest).items()} if manifest else {}
        return plan_shards(payloads, manifest, known, shard_bytes=_OBJECT_BYTES, threads=threads)

    def write(self, shard_plan: ShardPlan) -> WrittenShard:
        """Copy an object within the store if nothing in it changed, else send it."""
        return self._copy(shard_plan) or self._send(shard_plan.shard)

    def _copy(self, shard_plan: ShardPlan) -> WrittenShard | None:
        if self._previous is None or shard_plan.file is None:
            return None
        manifest = self._previous.manifest
        entry = manifest.files[shard_plan.file]
        name = _object_name(entry.digest)
        if self._there.get(name) != entry.bytes:
            if entry.bytes > _COPY_MAX_BYTES:
                return None
            try:
                self._client.copy(f"{self._previous.path.name}/{shard_plan.file}", self._folder + name)
            except FileNotFoundError:
                return None
        payloads = shard_plan.shard.payloads
        tensors = {payload.name: manifest.tensors[payload.name]._replace(file=name) for payload in payloads}
        return WrittenShard(name, entry, tensors, is_linked=True)

    def _send(self, shard: Shard) -> WrittenShard:
        """Hash first, for the name; then send, unless an object of that name is there."""
        head = header(shard.payloads)
        entry, tensors = self._describe(shard, head)
        name = _object_name(entry.digest)
        tensors = {tensor: about._replace(file=name) for tensor, about in tensors.items()}
        if self._there.get(name) == entry.bytes:
            return WrittenShard(name, entry, tensors, is_linked=True)
        whole = digests.new(self._algorithm)

        def chunks() -> Iterator[bytes]:
            for chunk in _chunks(shard, head):
                whole.update(chunk)
                yield chunk

        is_small = entry.bytes < _SINGLE_PUT_MAX_BYTES
        self._client.put(self._folder + name, b"".join(chunks()) if is_small else chunks(), entry.bytes)
        if whole.hexdigest() != entry.digest:  # the object has other content than its name says
            self._client.delete([self._folder + name])
            names = ", ".join(tensors)
            raise Refused(f"the state changed during the save: {names}", hint="Wait, or save with block=False.")
        return WrittenShard(name, entry, tensors, is_linked=False)

    def _describe(self, shard: Shard, head: bytes) -> tuple[FileEntry, dict[str, TensorEntry]]:
        whole = digests.new(self._algorithm)
        whole.update(head)
        tensors: dict[str, TensorEntry] = {}
        offset = len(head)
        for payload in shard.payloads:
            data = payload.read()
            whole.update(data)
            tensors[payload.name] = describe_tensor("", payload, offset, data, self._algorithm, fingerprint=False)
            offset += len(data)
        return FileEntry(offset, whole.hexdigest(), len(head), digests.digest(head, self._algorithm)), tensors

    def write_documents(self, index: bytes, state: bytes) -> dict[str, FileEntry]:
        """Send the objects that are no shards, and return their entries."""
        files = {}
        for start, end, data in (("model-", ".safetensors.index.json", index), ("state-", ".json", state)):
            entry = FileEntry(len(data), digests.digest(data, self._algorithm))
            name = _object_name(entry.digest, start, end)
            if self._there.get(name) != entry.bytes:
                self._client.put(self._folder + name, data)
            files[name] = entry
        return files


def _object_name(digest: str, start: str = "model-", end: str = ".safetensors") -> str:
    return f"{start}{digest[:32]}{end}"


def _chunks(shard: Shard, head: bytes) -> Iterator[bytes]:
    yield head
    for payload in shard.payloads:
        data = payload.read()
        for start in range(0, len(data), _UPLOAD_CHUNK_BYTES):
            yield bytes(data[start : start + _UPLOAD_CHUNK_BYTES])


class ObjectReader(Reader):
    """Reads tensors of one checkpoint by ranges of its objects, verified like those of a folder."""

    def __init__(self, client: ObjectClient, found: StoredCheckpoint, *, verify: bool = True) -> None:
        super().__init__(found.path, found.manifest, verify=verify)
        self._client = client

    @property
    def is_gone(self) -> bool:
        return self._client.get(f"{self._folder.name}/{MANIFEST}") is None

    def file(self, name: str) -> bytes:
        entry = self._manifest.files.get(name)
        if entry is None:
            raise Damaged(f"{self._folder} has no {name}", hint=HINT, remedy=VERIFY)
        data = self._client.get(f"{self._folder.name}/{name}")
        if data is None:
            self._raise_missing(name)
        self._check(data, entry.digest, self._folder / name)
        return data

    def _batches(self, names: list[str]) -> list[list[str]]:
        return [[name] for name in names]  # a request each, several at a time

    def _read_batch(self, names: list[str]) -> dict[str, memoryview]:
        return {name: self._read(name) for name in names}

    def _read(self, name: str, *, is_faulted: bool = False) -> memoryview:
        tensor = self._entry(name)
        entry = self._manifest.files[tensor.file]
        if tensor.file not in self._maps:
            head = self._range(tensor.file, 0, entry.header_bytes)
            self._check(head, entry.header_digest, self._folder / tensor.file)
            self._maps[tensor.file] = head
        data = self._range(tensor.file, tensor.offset, tensor.bytes)
        self._check_tensor(data, name, tensor)
        return data

    def _range(self, file: str, start: int, length: int) -> memoryview:
        data = self._client.range(f"{self._folder.name}/{file}", start, length)
        return self._raise_missing(file) if data is None else data

    def _raise_missing(self, name: str) -> NoReturn:
        """Raise NotFound if the checkpoint was removed while it was read (P9), else Damaged."""
        if self.is_gone:
            raise NotFound(f"{self._folder} was removed meanwhile", hint="Load again: there is a newer one.")
        raise Damaged(f"{self._folder / name} is missing or too short", hint=HINT, remedy=VERIFY)


def _verify_object(
    client: ObjectClient, found: StoredCheckpoint, name: str, entry: FileEntry, size: int | None
) -> tuple[int, str]:
    """Return how many bytes of an object were read, and what is wrong with it."""
    if size is None:
        return 0, "is missing"
    if size != entry.bytes:
        return 0, f"has {size} bytes where {entry.bytes} were written"
    hasher = digests.new(found.manifest.digest_algorithm)
    for start in range(0, size, _VERIFY_CHUNK_BYTES):
        chunk = client.range(f"{found.path.name}/{name}", start, min(_VERIFY_CHUNK_BYTES, size - start))
        if chunk is None:
            return start, "is missing"
        hasher.update(chunk)
    return size, "" if hasher.hexdigest() == entry.digest else "is corrupt: its digest differs"


def _manifest_cache(found: list[StoredCheckpoint], tags: dict[int, str]) -> dict[str, Any]:
    """What `last` caches: an entry for each step, and each environment once, because most are the same."""
    environments: dict[str, Any] = {}
    entries = []
    for one in found:
        manifest = one.manifest
        text = json.dumps(manifest.environment, sort_keys=True)
        name = digests.digest(text.encode(), digests.preferred())[:16]
        environments[name] = manifest.environment
        about = {field: getattr(manifest, field) for field in _CACHED_FIELDS}
        sizes = {"bytes": manifest.total_bytes, "tensors": manifest.n_tensors, "files": manifest.n_files}
        entries.append(about | sizes | {"environment": name, "tag": tags.get(one.step, "")})
    return {"history": entries, "environments": environments}


def _cached_manifests(last: dict[str, Any] | None) -> dict[tuple[str, int], Manifest]:
    """Return what `last` caches, by tag of the manifest and step. An entry that is invalid is left out."""
    found: dict[tuple[str, int], Manifest] = {}
    entries, environments = (last or {}).get("history"), (last or {}).get("environments")
    for entry in entries if isinstance(entries, list) else []:
        try:
            manifest = _cached_manifest(entry, environments if isinstance(environments, dict) else {})
            found[entry["tag"], manifest.step] = manifest
        except (KeyError, TypeError, ValueError, AttributeError, Damaged):
            continue  # the manifest itself is read instead
    return found


def _cached_manifest(entry: dict[str, Any], environments: dict[str, Any]) -> Manifest:
    about = {field: entry[field] for field in _CACHED_FIELDS}
    sizes = {"n_bytes": entry["bytes"], "tensor_count": entry["tensors"], "file_count": entry["files"]}
    environment = environments[entry["environment"]]
    manifest = Brief(**about, digest_algorithm="", files={}, tensors={}, environment=environment, **sizes)
    numbers = (manifest.step, manifest.sequence, *sizes.values())
    if any(isinstance(number, bool) or not isinstance(number, int) for number in numbers):
        raise ValueError("a number is not one")
    _ = manifest.timestamp
    if not all(isinstance(manifest.metric(name), int | float) for name in manifest.metrics):
        raise ValueError("a metric is not a number")
    return manifest
