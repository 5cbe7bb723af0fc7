"""`.claude/checkpoints` of the checkpoint-manager skill: each becomes a checkpoint of the project.

The skill stores a commit of the user's git, the names of files that differed from it, and copies of the feature list
and the progress file. The files of the commit are read from the user's repository, as data (P6); those that differed
are not covered, since the skill did not store their content (P4).
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import durable
from holdfast.errors import Damaged, HoldfastError, NotFound, Refused
from holdfast.escaping import escape
from holdfast.importers.git_objects import GitObjects
from holdfast.importers.model import ImportRequest, NotCarried
from holdfast.importers.workspace_target import OutsideEntry, WorkspaceImport, WorkspaceTarget
from holdfast.model import Reason, Uncovered
from holdfast.project import Checkpoint
from holdfast.project.features import Features
from holdfast.project.metadata import metadata as project_metadata
from holdfast.scan import user_git
from holdfast.shadowgit import FOLDER_MODE, LINK_MODE
from holdfast.workspace.imports import OutsideCheckpoint, OutsideFile
from holdfast.workspace.requests import SaveRequest

_MAX_BYTES = 16 << 20
_FOLDER = Path(".claude", "checkpoints")
_RECORDS = ("metadata.json", "checkpoint.json")
_FEATURES = "feature_list.json"
_GIT_REF = "git-ref.txt"
_NEVER_SAVED = "changed when it was saved, and the skill did not store its content"
_VERSIONS = ("1", "1.0", "1.0.0")
"""What a record may give as its version. The skill itself, which is version 1.0.0, writes none."""
_KEPT = ("*",)
"""Whatever a checkpoint of the skill does not contain, a restore keeps: the skill never removed files."""


class Stored(NamedTuple):
    """One checkpoint of the skill."""

    place: Path
    """Its folder, or its file."""
    record: Checkpoint
    when: datetime


def recognize(source: str) -> bool:
    """Whether a folder contains checkpoints of the skill."""
    return any(True for _ in _places(Path(source)))


def open_source(request: ImportRequest) -> WorkspaceImport:
    """Open `.claude/checkpoints`, or a project that has one."""
    places = list(_places(Path(request.source)))
    if not places:
        raise Refused(f"{request.source} has no checkpoints of the skill", hint="Name the folder .claude/checkpoints.")
    project = Path(request.target) if request.target is not None else _project_of(Path(request.source))
    if not project.is_dir():
        raise NotFound(f"the project {project} does not exist", hint="Name it as the target.")
    target = WorkspaceTarget(project, request.workspace_options)
    git = user_git.git_dir(target.folder)
    commits = Commits(GitObjects(git)) if git is not None else None
    entries, losses = [], []
    for place in places:
        try:
            stored = _stored(place)
        except HoldfastError as error:
            losses.append(NotCarried(place.name, error.message))
            continue
        build = partial(_outside, stored, commits, target, os.path.realpath(request.source))
        entries.append((stored.when, OutsideEntry(_origin(stored), f"checkpoint {stored.record.id}", build)))
    entries.sort(key=lambda each: (each[0], each[1].name))
    return WorkspaceImport(
        "skill",
        "checkpoints of the skill checkpoint-manager",
        os.path.realpath(request.source),
        target,
        [entry for _, entry in entries],
        losses=losses,
        notes=() if commits else ["The project is not in git, so only the feature lists are carried over."],
    )


class Commits:
    """The commits of the user's repository, found by a beginning of their ids."""

    def __init__(self, objects: GitObjects) -> None:
        self.objects = objects
        self._known: dict[str, bytes] | None = None

    def tree(self, commit: str) -> bytes | None:
        """The tree of a commit; None if there is no such commit, or several."""
        if self._known is None:
            self._known = dict(self._all())
        wanted = commit.strip().lower()
        found = [tree for oid, tree in self._known.items() if oid.startswith(wanted)] if len(wanted) >= 4 else []
        return found[0] if len(found) == 1 else None

    def _all(self) -> Iterator[tuple[str, bytes]]:
        seen = set(self.objects.tips())
        stack = list(seen)
        while stack:
            try:
                commit = self.objects.commit(stack.pop())
            except Damaged:
                continue
            yield commit.oid.hex(), commit.tree
            new = [parent for parent in commit.parents if parent not in seen]
            seen.update(new)
            stack += new


def _project_of(source: Path) -> Path:
    real = Path(os.path.realpath(source))
    for above in (real, *real.parents):
        if above.name == "checkpoints" and above.parent.name == ".claude":
            return above.parents[1]
    if (real / _FOLDER).is_dir():
        return real
    raise Refused(f"{source} is not in a project", hint="Name the project as the target.")


def _places(source: Path) -> Iterator[Path]:
    """Yield the folder or file of each checkpoint."""
    if (source / _FOLDER).is_dir():
        source = source / _FOLDER
    if not source.is_dir():
        return
    if _is_record(source):
        yield source
        return
    for name in sorted(os.listdir(source)):
        place = source / name
        is_file = name.startswith("checkpoint-") and name.endswith(".json")
        if not place.is_symlink() and (is_file or _is_record(place)):
            yield place


def _is_record(place: Path) -> bool:
    """Whether a folder has the record of a checkpoint, readable or not."""
    try:
        if not any((place / name).is_file() for name in _RECORDS):
            return False
    except PermissionError:  # another tool's folder, unless its name says otherwise
        return place.name.startswith("checkpoint-")
    if place.name.startswith("checkpoint-"):
        return True
    try:
        values = _values(place)
    except Damaged:
        return False
    return "id" in values and ("git_state" in values or "feature_state" in values)


def _values(place: Path) -> dict[str, Any]:
    path = next((place / name for name in _RECORDS if (place / name).is_file()), place)
    found = _json(path)
    if not isinstance(found, dict):
        raise Damaged(f"{path.name} is not a JSON object")
    return found


def _json(path: Path) -> Any:
    try:
        return json.loads(durable.read_file(path, max_bytes=_MAX_BYTES, follow_links=False))
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path.name} is not JSON: {error}") from None


def _stored(place: Path) -> Stored:
    values = _values(place)
    version = values.get("schema_version", values.get("version"))
    if version is not None and str(version) not in _VERSIONS:
        raise Refused(f"its schema_version {escape(str(version)[:40])} is unknown")
    record = Checkpoint.from_dict(values)
    if not record.id:
        raise Damaged("it has no id")
    try:
        when = datetime.fromisoformat(record.timestamp)
        # The skill writes local time without a zone. Taken as UTC, its ids (checkpoint-20250115-103000) stay valid.
        when = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):  # OverflowError: a year that UTC does not have
        raise Damaged("it has no valid time") from None
    return Stored(place, record, when)


def _origin(stored: Stored) -> str:
    return f"skill:{stored.record.id}:{stored.record.timestamp}"


def _outside(
    stored: Stored, commits: Commits | None, target: WorkspaceTarget, source: str, known: Mapping[str, str]
) -> OutsideCheckpoint:
    record, mtime_ns = stored.record, int(stored.when.timestamp()) * 10**9
    copies, state = _copies(stored.place)
    dirty = {path.rstrip("/") for path in record.git_state.dirty_files if _is_inside(path)}
    edits: dict[str, OutsideFile | None] = {"": OutsideFile(target.permissions("", stat.S_IFDIR | 0o755), mtime_ns)}
    uncovered = {path: Uncovered(path, Reason.UNREADABLE, _NEVER_SAVED) for path in dirty if path not in copies}
    notes = []
    commit = record.git_state.commit_hash or _git_ref(stored.place)
    tree = commits.tree(commit) if commits is not None and commit else None
    if commits is not None and tree is None:
        notes.append(f"commit {commit or 'unknown'} is not in the repository, so its files are not carried over")
    if commits is not None and tree is not None:
        edits |= dict(_files(commits.objects, tree, target, mtime_ns, uncovered))
    for name, data in copies.items():
        edits[name] = OutsideFile(
            target.permissions(name, stat.S_IFREG | 0o644), mtime_ns, len(data), partial(bytes, data)
        )
    features = record.feature_state
    told = project_metadata(
        record.checkpoint_type,
        record.name,
        record.description,
        record.git_state,
        Features(features.current, list(features.completed), features.note),
        f"files/{_FEATURES}" if _FEATURES in copies else "",
        record.context,
        notes,
    )
    message = f"{record.name}: {record.description}" if record.description else record.name
    return OutsideCheckpoint(
        origin=_origin(stored),
        source=source,
        request=SaveRequest(message, metadata={**told, "skill_id": record.id}, state=state or None),
        timestamp=stored.when,
        edits=edits,
        uncovered=sorted(uncovered.values(), key=lambda each: each.path),
        exclude_patterns=_KEPT,
    )


def _files(
    objects: GitObjects, tree: bytes, target: WorkspaceTarget, mtime_ns: int, uncovered: dict[str, Uncovered]
) -> Iterator[tuple[str, OutsideFile]]:
    """The files of a commit, without those that are not covered."""
    dirty = set(uncovered)
    for path, _, entry in objects.diff(None, tree):
        if entry is None or path in dirty:
            continue
        if entry.mode == FOLDER_MODE:
            yield path, OutsideFile(target.permissions(path, stat.S_IFDIR | 0o755), mtime_ns)
            continue
        if not (stat.S_ISREG(entry.mode) or entry.mode == LINK_MODE):
            uncovered[path] = Uncovered(path, Reason.GIT_DIRECTORY, "a submodule, whose files git stores elsewhere")
            continue
        try:
            size = objects.blob_bytes(entry.oid)
        except Damaged as error:
            uncovered[path] = Uncovered(path, Reason.UNREADABLE, error.message)
            continue
        mode = stat.S_IFLNK | 0o777 if entry.mode == LINK_MODE else target.permissions(path, entry.mode)
        yield path, OutsideFile(mode, mtime_ns, size, partial(objects.blob, entry.oid), entry.oid)


def _copies(place: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The copies of files that a checkpoint has, by their names in the project, and other JSON as named state."""
    files: dict[str, bytes] = {}
    state: dict[str, Any] = {}
    if not place.is_dir():
        return files, state
    for name in sorted(os.listdir(place)):
        path = place / name
        if name in (*_RECORDS, _GIT_REF) or path.is_symlink() or not path.is_file():
            continue
        try:
            if name == _FEATURES or "progress" in name.lower():
                files[name] = durable.read_file(path, max_bytes=_MAX_BYTES, follow_links=False)
            elif name.endswith(".json"):
                state[path.stem] = _json(path)
        except OSError as error:
            raise Damaged(f"{name} cannot be read: {error.strerror}") from None
    return files, state


def _git_ref(place: Path) -> str:
    try:
        return durable.read_file(place / _GIT_REF, max_bytes=4096).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _is_inside(path: str) -> bool:
    """Whether a name of the record is a path below the project."""
    parts = path.rstrip("/").split("/")
    return bool(path) and not path.startswith("/") and "\0" not in path and not {"", ".", "..", ".git"} & set(parts)
