"""The feature list and the progress file: where they are, and what is kept of those that no rule would hold.

One that lies in the folder is held as a file, whatever the ignore rules say. One that lies outside, or in `.git`, is
held as state, by what it is for, and is written back only to where the manager is told that it is: never to a path that
stands in a checkpoint.
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
"""The name of the state that holds what lies outside the folder."""
FEATURES, PROGRESS = "feature_list", "progress_file"
_MOST_BYTES = 16 << 20
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE)


class Paper(NamedTuple):
    """A file that belongs to the project's own bookkeeping."""

    role: str
    name: str
    """As the caller gave it."""
    path: Path
    """Where it really is."""
    inside: str | None
    """Its path from the project's folder; None if it lies outside."""

    @property
    def stored_at(self) -> str:
        """Where its content is in a checkpoint's tree."""
        if self.inside is None:
            return f"state/{OUTSIDE}.json"
        names = (store_name(os.fsencode(part)) for part in self.inside.split("/"))
        return "files/" + os.fsdecode(b"/".join(names))


def find_papers(root: Path, given: Mapping[str, str | None]) -> list[Paper]:
    """Find them, by their roles; links are followed."""
    return [_paper(root, role, name) for role, name in given.items() if name is not None]


def _paper(root: Path, role: str, name: str) -> Paper:
    if not name or "\0" in name:
        raise Refused(f"{role} is {name!r}", hint="Name a file, or give None if there is none.")
    real = Path(os.path.realpath(root / name))
    is_inside = real.is_relative_to(root) and real != root and ".git" not in real.relative_to(root).parts
    return Paper(role, name, real, os.fspath(real.relative_to(root)) if is_inside else None)


def read_list(paper: Paper | None) -> Features:
    """What the feature list says now; the note says why nothing could be told."""
    if paper is None:
        return Features(note="the project has no feature list")
    data = _content(paper.path)
    return Features(note=f"{paper.name}: {data}") if isinstance(data, str) else read_features(data, paper.name)


# what lies outside


def keep_outside(papers: Sequence[Paper]) -> tuple[dict[str, JSON], list[str]]:
    """The content of those that lie outside, by role (None: there was none), and what could not be kept of them."""
    kept: dict[str, JSON] = {}
    failed = []
    for paper in papers:
        if paper.inside is not None:
            continue
        data = _content(paper.path)
        if isinstance(data, bytes):
            kept[paper.role] = {**_encoded(data), "mode": _mode(paper.path)}
        elif os.path.lexists(paper.path):
            failed.append(f"{paper.name} is not held: {data}")
        else:
            kept[paper.role] = None
    return kept, failed


def bring_back(papers: Sequence[Paper], kept: object, saved: object) -> list[str]:
    """Write those that lie outside as they were, each in one step (P3). Notes of what was left as it is, and why.

    `saved` is what `keep_outside` gave before: nothing is replaced that is not in there (P1).
    """
    said = kept if isinstance(kept, Mapping) else {}
    held = saved if isinstance(saved, Mapping) else {}
    notes = []
    for paper in papers:
        if paper.inside is not None or paper.role not in said:
            continue
        was, now = _decoded(said[paper.role]), _content(paper.path)
        if was is None:
            if isinstance(now, bytes):
                notes.append(f"{paper.name} was not there, lies outside the folder, and is left as it is")
        elif was[0] == now:
            continue
        elif os.path.lexists(paper.path) and not _is_saved(now, held.get(paper.role)):
            why = "was changed meanwhile" if isinstance(now, bytes) else f"could not be saved first, as {now},"
            notes.append(f"{paper.name} {why} and is left as it is")
        else:
            notes += _written(paper, *was)
    return notes


def _written(paper: Paper, data: bytes, mode: int) -> list[str]:
    """Write one; a note if it cannot be: that keeps nobody from going back. Unavailable if it may well be later."""
    try:
        _write(paper.path, data, mode)
    except OSError as error:
        if error.errno in _PASSING:
            raise Unavailable(
                f"{paper.name} could not be written: {error.strerror}",
                hint="The files are restored. Fix that; the next call goes on with it.",
            ) from error
        return [f"{paper.name} could not be written ({error.strerror}) and is not brought back"]
    return []


def _is_saved(now: bytes | str, held: object) -> bool:
    found = _decoded(held)
    return found is not None and found[0] == now


def _write(path: Path, data: bytes, mode: int) -> None:
    temporary = f"{path}.holdfast-new"
    if os.path.lexists(temporary):  # left by one that was killed here
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
    """What a file has in it, or why that cannot be had."""
    try:
        return durable.read_file(path, max_bytes=_MOST_BYTES)
    except FileNotFoundError:
        return "it is not there"
    except OSError as error:
        if error.errno == errno.EFBIG:
            return "it is above 16 MiB"
        is_no_file = error.errno in (errno.EISDIR, errno.EINVAL)
        return "it is no file" if is_no_file else f"it cannot be read ({error.strerror})"


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:  # it went meanwhile
        return 0o644


def _encoded(data: bytes) -> dict[str, JSON]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _decoded(said: Any) -> tuple[bytes, int] | None:
    """The content and mode of a file; None where there was none, or the stored value is not one of ours."""
    try:
        data = said["text"].encode() if "text" in said else base64.b64decode(said["base64"], validate=True)
        return data, stat.S_IMODE(int(said["mode"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
