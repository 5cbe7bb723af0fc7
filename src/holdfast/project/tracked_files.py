"""The feature list and the progress file, which every checkpoint of a project contains.

One inside the folder is saved as a file, even if ignore rules exclude it. One outside, or in `.git`, is saved as state
under its role, and is restored only to the path that the manager was constructed with: never to a path that a
checkpoint names.
"""

from __future__ import annotations

import base64
import errno
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import durable
from holdfast.errors import Refused, Unavailable
from holdfast.model import JSON
from holdfast.project.features import Features, read_features
from holdfast.shadowgit import store_name

OUTSIDE = "holdfast.outside"
"""The name of the state that contains the files outside the folder."""
FEATURES, PROGRESS = "feature_list", "progress_file"
_MAX_BYTES = 16 << 20
_TEMPORARY_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE)


class TrackedFile(NamedTuple):
    """The feature list or the progress file."""

    role: str
    name: str
    """As the caller passed it."""
    path: Path
    """Where it really is."""
    inside: str | None
    """Its path relative to the project's folder; None if it is outside."""

    @property
    def stored_at(self) -> str:
        """Where its content is in a checkpoint's tree."""
        if self.inside is None:
            return f"state/{OUTSIDE}.json"
        names = (store_name(os.fsencode(part)) for part in self.inside.split("/"))
        return "files/" + os.fsdecode(b"/".join(names))


def find_tracked_files(root: Path, given: Mapping[str, str | None]) -> list[TrackedFile]:
    """Find the files by their roles; links are followed."""
    return [_find(root, role, name) for role, name in given.items() if name is not None]


def _find(root: Path, role: str, name: str) -> TrackedFile:
    if not name or "\0" in name:
        raise Refused(f"{role} is {name!r}", hint="Pass the path of a file, or None if there is none.")
    real = Path(os.path.realpath(root / name))
    is_inside = real.is_relative_to(root) and real != root and ".git" not in real.relative_to(root).parts
    return TrackedFile(role, name, real, os.fspath(real.relative_to(root)) if is_inside else None)


def read_feature_list(file: TrackedFile | None) -> Features:
    """Read the feature list; if it cannot be read, the note says why."""
    if file is None:
        return Features(note="the project has no feature list")
    data = _content(file.path)
    return Features(note=f"{file.name}: {data}") if isinstance(data, str) else read_features(data, file.name)


# files outside the folder


def save_outside(files: Sequence[TrackedFile]) -> tuple[dict[str, JSON], list[str]]:
    """The content of the files outside the folder by role (None: no file), and what could not be saved."""
    saved: dict[str, JSON] = {}
    failed = []
    for file in files:
        if file.inside is not None:
            continue
        data = _content(file.path)
        if isinstance(data, bytes):
            saved[file.role] = {**_encoded(data), "mode": _mode(file.path)}
        elif os.path.lexists(file.path):
            failed.append(f"{file.name} could not be saved: {data}")
        else:
            saved[file.role] = None
    return saved, failed


def restore_outside(files: Sequence[TrackedFile], wanted: object, saved: object) -> list[str]:
    """Restore the files outside the folder, each in one step (P3). Returns notes on what was not restored, and why.

    `wanted` is from the checkpoint, `saved` is what `save_outside` returned before: what is not in it is not replaced
    (P1).
    """
    targets = wanted if isinstance(wanted, Mapping) else {}
    safe = saved if isinstance(saved, Mapping) else {}
    notes = []
    for file in files:
        if file.inside is not None or file.role not in targets:
            continue
        was, now = _decoded(targets[file.role]), _content(file.path)
        if was is None:
            if isinstance(now, bytes):
                notes.append(f"{file.name} did not exist then; it is outside the folder and was not removed")
        elif was[0] == now:
            continue
        elif os.path.lexists(file.path) and not _is_saved(now, safe.get(file.role)):
            why = "was changed meanwhile" if isinstance(now, bytes) else f"could not be saved first ({now})"
            notes.append(f"{file.name} {why} and was not restored")
        else:
            notes += _written(file, *was)
    return notes


def _written(file: TrackedFile, data: bytes, mode: int) -> list[str]:
    """Write one file; a note if that fails, which does not fail the rollback. Unavailable if it may work later."""
    try:
        _write(file.path, data, mode)
    except OSError as error:
        if error.errno in _TEMPORARY_ERRORS:
            raise Unavailable(
                f"{file.name} could not be written: {error.strerror}",
                hint="The files are restored. Fix that; the next call continues with it.",
            ) from error
        return [f"{file.name} could not be written ({error.strerror}) and was not restored"]
    return []


def _is_saved(now: bytes | str, saved: object) -> bool:
    found = _decoded(saved)
    return found is not None and found[0] == now


def _write(path: Path, data: bytes, mode: int) -> None:
    temporary = f"{path}.holdfast-new"
    if os.path.lexists(temporary):  # left by a process that was killed here
        durable.disk().unlink(temporary)
    fd = durable.disk().create(temporary)
    try:
        durable.disk().write(fd, data)
        durable.disk().chmod(fd, mode)
        durable.disk().fsync(fd)
    finally:
        os.close(fd)
    durable.disk().rename(temporary, str(path))
    durable.sync_folder(path.parent)


def _content(path: Path) -> bytes | str:
    """The content of a file, or why it cannot be read."""
    try:
        return durable.read_file(path, max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return "it does not exist"
    except OSError as error:
        if error.errno == errno.EFBIG:
            return "it is larger than 16 MiB"
        is_no_file = error.errno in (errno.EISDIR, errno.EINVAL)
        return "it is not a file" if is_no_file else f"it cannot be read ({error.strerror})"


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:  # removed meanwhile
        return 0o644


def _encoded(data: bytes) -> dict[str, JSON]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _decoded(stored: Any) -> tuple[bytes, int] | None:
    """The content and mode of a file; None if there was no file, or the stored value is invalid."""
    try:
        data = stored["text"].encode() if "text" in stored else base64.b64decode(stored["base64"], validate=True)
        return data, stat.S_IMODE(int(stored["mode"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
