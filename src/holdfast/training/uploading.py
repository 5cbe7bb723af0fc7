"""The life of a save to an object store: shards, the rest, the manifest if none is there, the markers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.errors import Conflict, HoldfastError, Unavailable
from holdfast.training.briefly import history
from holdfast.training.folder import Found
from holdfast.training.objects import Seen
from holdfast.training.remote import DAMAGED, RemoteFolder
from holdfast.training.retaining import plan, prune
from holdfast.training.saving import Wish, check_step, markers, told
from holdfast.training.sending import Sender
from holdfast.training.stored.layout import BEST, LAST, MANIFEST, PRIVATE, step_name, step_of
from holdfast.training.stored.manifest import Manifest, is_foreign
from holdfast.training.stored.shards import Payload
from holdfast.training.threads import each
from holdfast.training.writing import WrittenShard

_LITTER_AFTER = timedelta(days=1)
_TRUSTED_FOR = timedelta(hours=12)
_OURS = re.compile(r"model-[0-9a-f]{32}\.safetensors(\.index\.json)?|state-[0-9a-f]{32}\.json")
"""How we name objects, after their content: nothing else is swept (P1)."""
_CLAIM = f"{PRIVATE}/sequence-"
_TRIES = 50


def save_remote(folder: RemoteFolder, wish: Wish) -> dict[str, Any]:
    """Make a checkpoint in an object store.

    On an error what was written stays for half a day: whoever saves the same step again does not send it again. Then
    a later save removes it.
    """
    found, replaced = prepare(folder, wish)
    written = send(folder, found, wish.step, wish.payloads, threads=wish.threads)
    return commit(folder, wish, written, found, replaced)


def prepare(folder: RemoteFolder, wish: Wish) -> tuple[list[Found], Seen | None]:
    """Look at what is there, and see that the step is free; returns also the manifest that it will replace."""
    found, broken = check_step(folder, wish)  # type: ignore[arg-type]  # the same verbs
    for wrong in broken:
        if wrong.step == wish.step:
            if is_foreign(folder.objects.get(f"{wrong.path.name}/{MANIFEST}") or b""):
                what = f"{wrong.path} is there, and is not a checkpoint of Holdfast"
                raise Conflict(what, hint="Move it away, or save elsewhere.")
            folder.mark_rest(found)
            folder.put_aside(wrong.path)
    return found, folder.objects.see(f"{step_name(wish.step)}/{MANIFEST}") if wish.rewind else None


def send(
    folder: RemoteFolder, found: list[Found], step: int, payloads: Sequence[Payload], *, threads: int | None
) -> list[WrittenShard]:
    """Bring tensors into the folder of a step, where nobody sees them before `commit`. `found` was just looked at."""
    stem = f"{step_name(step)}/"
    earlier = folder.full(found[-1]) if found else None
    sender = Sender(folder.objects, stem, earlier, _there(folder, stem))
    return each(sender.bring, sender.groups(payloads, threads), threads=threads)


def commit(
    folder: RemoteFolder, wish: Wish, written: list[WrittenShard], found: list[Found], replaced: Seen | None
) -> dict[str, Any]:
    """Make a checkpoint of what was sent: the documents, the manifest, the markers."""
    stem = f"{step_name(wish.step)}/"
    sender = Sender(folder.objects, stem, None, _there(folder, stem))
    files = {shard.name: shard.entry for shard in written} | sender.documents(wish, written)
    manifest = Manifest(
        step=wish.step, sequence=_claim(folder, found), created_at=wish.created_at,
        digest_algorithm=sender.algorithm, files=files, metrics=wish.metrics, metadata=wish.metadata,
        tensors={name: entry for shard in written for name, entry in shard.tensors.items()},
        environment=wish.environment, config_hash=wish.config_hash, writer="holdfast",
    )  # fmt: skip
    _check_there(folder, stem, manifest)  # P3: what is named is there
    if wish.pin:  # before there is anything to pin: whoever finds the checkpoint finds it pinned
        _pin(folder, wish.step)
    tag = _publish(folder, stem, manifest, replaced)
    return _conclude(folder, wish, Found(folder.path / step_name(wish.step), manifest), written, tag)


def _there(folder: RemoteFolder, stem: str) -> dict[str, int]:
    """What an interrupted save of this step has left: names, which say the content, and sizes.

    What is old is not trusted: somebody may be about to sweep it.
    """
    now = max([datetime.now(UTC), *(entry.modified for entry in folder.entries)])
    return {
        entry.key.removeprefix(stem): entry.size
        for entry in folder.entries
        if entry.key.startswith(stem) and now - entry.modified < _TRUSTED_FOR
    }


def _claim(folder: RemoteFolder, found: list[Found]) -> int:
    """A sequence number that nobody else has, greater than any that was given before (P10).

    Who saves at the same time claims another: an object of that name is there already.
    """
    marker = folder.parsed(LAST, folder.last) or {}
    given = marker.get("sequence", 0)
    number = max([given if isinstance(given, int) else 0, *(one.manifest.sequence for one in found)]) + 1
    for _ in range(_TRIES):
        if folder.objects.create(f"{_CLAIM}{number:012d}", b"") is not None:
            return number
        claims = [entry.key.removeprefix(_CLAIM) for entry in folder.objects.list(PRIVATE)]
        number = max([number, *(int(claim) for claim in claims if claim.isdecimal())]) + 1
    raise Unavailable(f"too many save to {folder.path} at once", hint="Save again.")


def _check_there(folder: RemoteFolder, stem: str, manifest: Manifest) -> None:
    sizes = {entry.key.removeprefix(stem): entry.size for entry in folder.objects.list(stem.rstrip("/"))}
    for name, entry in manifest.files.items():
        if sizes.get(name) != entry.bytes:
            raise Unavailable(f"{folder.path}/{stem}{name} was removed while we saved", hint="Save again.")


def _publish(folder: RemoteFolder, stem: str, manifest: Manifest, replaced: Seen | None) -> str:
    """The commit point; Conflict if somebody else was first."""
    data, key = manifest.encode(), stem + MANIFEST
    failure: HoldfastError | None = None
    tag = None
    try:
        tag = folder.objects.replace(key, data, replaced)
    except Unavailable as error:
        failure = error
    if tag is not None:
        return tag
    there = None
    with contextlib.suppress(HoldfastError):
        there = folder.objects.see(key)
    if there is not None and there.data == data:  # the answer was lost, not the request
        return there.version.get("e_tag", "")
    if failure is not None:
        raise failure
    _take_back(folder, stem, manifest)
    raise Conflict(
        f"step {manifest.step} was saved by somebody else meanwhile", hint="Use that one, or save another step."
    )


def _take_back(folder: RemoteFolder, stem: str, manifest: Manifest) -> None:
    """Remove what only we have written, now that nobody will name it."""
    with contextlib.suppress(HoldfastError):
        [theirs] = [one for one in folder.look()[0] if one.step == manifest.step]
        ours = set(manifest.files) - set(folder.full(theirs).manifest.files)
        folder.objects.delete([stem + name for name in ours])


def _conclude(folder: RemoteFolder, wish: Wish, new: Found, written: list[WrittenShard], tag: str) -> dict[str, Any]:
    """Move the markers, then prune; what counts is in the manifests already."""
    options: dict[str, Any] = {"best_key": wish.best_key, "mode": wish.mode, "now": new.manifest.timestamp}
    adopted = folder.adopt(markers(wish)) if wish.adopt else []
    for _ in range(_TRIES):
        best_seen = folder.objects.see(BEST) if wish.best_key else None
        found = [new if one.path == new.path else one for one in folder.look()[0]]
        trimmed = plan(folder, found, wish.keep, **options)  # type: ignore[arg-type]  # the same verbs
        best = folder.best_of(found, wish.best_key, wish.mode) if wish.best_key else None
        if _mark(folder, wish, best, best_seen, [one for one in found if one.step not in trimmed.removed]):
            break
    # less what was pinned since
    trimmed = prune(folder, found, wish.keep, **options, shown=trimmed)  # type: ignore[arg-type]  # the same verbs
    _sweep(folder, new)
    meta = told(wish, new, written, best is new) | {"pruned": trimmed.removed, "kept": trimmed.kept}
    return meta | {"notes": meta["notes"] + adopted}


def _pin(folder: RemoteFolder, step: int) -> None:
    for _ in range(_TRIES):
        with contextlib.suppress(Conflict):
            folder.pin(folder.pinned() | {step})
            return
    raise Conflict(f"somebody else changes the pins of {folder.path}", hint="Pin it again.")


def _mark(folder: RemoteFolder, wish: Wish, best: Found | None, best_seen: Seen | None, stay: list[Found]) -> bool:
    """Let `best.json` and `last` tell what was just looked at; False if somebody else has changed one meanwhile."""
    if wish.best_key and best is not None:
        value = best.manifest.metric(wish.best_key)
        about = {"metric": wish.best_key, "mode": wish.mode, "value": value, "step": best.step, "path": best.path.name}
        if not folder.mark(BEST, about, best_seen):
            return False
    if not stay:
        return True
    manifests = (entry for entry in folder.entries if entry.key.endswith(f"/{MANIFEST}"))
    tags = {step: entry.tag for entry in manifests if (step := step_of(entry.key.partition("/")[0])) is not None}
    newest = stay[-1]
    about = {"step": newest.step, "sequence": newest.manifest.sequence, "path": newest.path.name}
    return folder.mark(LAST, about | history(stay, tags), folder.last)


def _sweep(folder: RemoteFolder, new: Found) -> None:
    """Remove what saves that died left, once they are surely dead; and what this one replaced.

    Time is the store's: that of the manifest that was just written.
    """
    entries = {entry.key: entry for entry in folder.entries}
    written = entries.get(f"{new.path.name}/{MANIFEST}")
    if written is None:
        return
    tops = {key: key.partition("/") for key in entries}
    whole = {top for top, _, name in tops.values() if name == MANIFEST}
    aside = {top for top, _, name in tops.values() if name.startswith(DAMAGED)}
    doomed = []
    for key, (top, _, name) in tops.items():
        is_ours = _OURS.fullmatch(name) and step_of(top) is not None and top not in aside
        is_needed = top in whole and (top != new.path.name or name in new.manifest.files)
        is_claim = key.startswith(_CLAIM) and key.removeprefix(_CLAIM).isdecimal() and not entries[key].size
        if written.modified - entries[key].modified > _LITTER_AFTER and (is_claim or (is_ours and not is_needed)):
            doomed.append(key)
    folder.objects.delete(doomed)
