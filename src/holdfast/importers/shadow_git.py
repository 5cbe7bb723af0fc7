"""Shadow git repositories of PraisonAI, Cline and Roo: each commit becomes a checkpoint of the workspace.

Order (P10): the commits get the next sequence numbers, parents before children and otherwise by time, so they come
after the checkpoints that the workspace has already. Each keeps its time. When all are there, the folder is saved as it
is, so that `latest` is the folder and not an old commit.
"""

from __future__ import annotations

import heapq
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import Damaged, NotFound, Refused
from holdfast.escaping import escape_path
from holdfast.importers.git_objects import BLOB_MAX_BYTES, Commit, GitObjects, TreeChange
from holdfast.importers.model import Imported, ImportPlan, ImportRequest, Losses, NotCarried, check_outside
from holdfast.importers.workspace_target import WorkspaceTarget
from holdfast.model import Progress, Reason, Uncovered
from holdfast.scan import user_git
from holdfast.scan.dir_handles import split, upwards
from holdfast.shadowgit import EMPTY_TREE, FOLDER_MODE, LINK_MODE, TreeEntry
from holdfast.workspace.imports import OutsideCheckpoint, OutsideFile
from holdfast.workspace.requests import SaveRequest

TITLE = "a shadow git repository"
_GITLINK = 0o160000
_TARGET_MAX_BYTES = 4096  # of a link, with the NUL at its end
_DISABLED = ".git_disabled"
"""What Cline and Roo rename the `.git` of a nested repository to while they add files."""
_STEP = re.compile(r"\[step-(\d{1,9})\] ?")  # PraisonAI
_TASK = re.compile(r"checkpoint-[0-9a-f-]+?-(\d{10,})")  # Cline: checkpoint-HASH-TASK
_TASK_FOLDER = re.compile(r"/tasks/([^/]+)/checkpoints(?:/|$)")  # Roo
_LAST_SECOND = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())


def recognize(source: str) -> bool:
    """Whether a folder is a git repository; whether it is a shadow, `open_source` decides.

    A project with checkpoints of its own below `.claude` is more likely meant for these.
    """
    return _git_dir(Path(source)) is not None and not Path(source, ".claude", "checkpoints").is_dir()


def open_source(request: ImportRequest) -> ShadowGitImport:
    """Open a shadow repository. Refused if it names no workspace and the request does not either."""
    git = _git_dir(Path(request.source))
    if git is None:
        raise Refused(f"{request.source} is not a git repository", hint="Name the folder with HEAD and objects.")
    objects = GitObjects(git)
    if request.target is not None:
        workspace = Path(request.target)
    elif "core.worktree" in objects.settings:
        workspace = git / objects.settings["core.worktree"]
    else:
        raise Refused(
            f"{request.source} is a git repository that does not name the folder it saves (core.worktree)",
            hint="If it is another tool's shadow repository, name that folder as the target.",
        )
    if not workspace.is_dir():
        raise NotFound(
            f"the folder {workspace} of these checkpoints does not exist",
            hint="If it was moved, name its new place as the target.",
        )
    check_outside(workspace, git)  # a restore would change the source
    return ShadowGitImport(git, objects, workspace, request)


def _git_dir(folder: Path) -> Path | None:
    if not folder.is_dir():
        return None
    names = {each for each in ("HEAD", "objects", "refs") if (folder / each).exists()}
    return folder if len(names) == 3 else user_git.git_dir(folder)


class _History(NamedTuple):
    """The commits of a repository that are checkpoints, oldest first."""

    commits: Sequence[Commit]
    notes: Sequence[str]
    losses: Sequence[NotCarried]
    """Commits that refs name and that cannot be read."""


class ShadowGitImport:
    """Imports the commits of one shadow repository into one workspace."""

    def __init__(self, git: Path, objects: GitObjects, workspace: Path, request: ImportRequest) -> None:
        self._git = git
        self._objects = objects
        self._target = WorkspaceTarget(workspace, request.workspace_options)
        self._source = os.path.realpath(request.source)
        self._losses = Losses()
        self._unreadable: set[bytes] = set()
        self._trees: dict[bytes, bytes] = {}
        """The tree of each commit that is imported, to compare others with."""
        self._uncovered: dict[bytes, dict[str, Uncovered]] = {}
        """What each of these commits does not cover, as far as the plan knows."""
        self._history: _History | None = None

    def plan(self, progress: Progress | None = None) -> ImportPlan:
        """Read all commits and trees, so that an invalid source is refused before anything is written."""
        self._objects.info_exclude()  # Unavailable if it cannot be read
        history = self._read_history(progress)
        self._losses = Losses(history.losses)
        known = self._target.known()
        size = 0
        carried = 0
        present = 0
        for number, commit in enumerate(history.commits, 1):
            if progress is not None:
                progress("reading", number, len(history.commits))
            try:
                size += self._look(commit)
            except Damaged as error:
                self._losses.add(_shown(commit), error.message)
                continue
            carried += 1
            present += _origin(commit) in known
            self._trees[commit.oid] = commit.tree
        if not carried:
            losses = self._losses.all()
            raise Damaged(
                f"no commit of {self._source} can be read" + (f": {losses[0].why}" if losses else ""),
                hint="Check the source with git fsck.",
            )
        return ImportPlan(
            kind="shadow-git",
            title=TITLE,
            source=self._source,
            target=os.fspath(self._target.folder),
            checkpoints=carried,
            present=present,
            not_carried=self._losses.all(),
            notes=[*history.notes, *self._renamed_repositories(history.commits[-1])],
            bytes=size,
        )

    def run(self, progress: Progress | None = None) -> Imported:
        """Add the commits that the workspace lacks."""
        history = self._read_history(None)
        self._losses = Losses(history.losses)
        self._trees.clear()
        target = self._target
        known = dict(target.known())
        added = present = 0
        for number, commit in enumerate(history.commits, 1):
            if progress is not None:
                progress("importing", number, len(history.commits))
            try:
                uncovered, is_new = self._carry(commit, known)
            except Damaged as error:
                self._losses.add(_shown(commit), error.message)
                continue
            for each in uncovered:
                self._losses.add(escape_path(each.path), each.detail)
            added += is_new
            present += not is_new
            self._trees[commit.oid] = commit.tree
        notes = [*history.notes, *target.save_folder(f"the folder when {self._source} was imported")]
        return Imported(added, present, self._losses.all(), notes)

    def close(self) -> None:
        self._target.close()

    # which commits

    def _read_history(self, progress: Progress | None) -> _History:
        """Find all commits that refs and reflogs lead to, in the order in which they are imported."""
        if self._history is not None:
            return self._history
        found: dict[bytes, Commit] = {}
        tips = self._objects.tips()
        if not tips:
            raise NotFound(f"{self._source} has no commits", hint="Nothing was saved there yet.")
        gone, losses = 0, Losses()
        stack = [(oid, is_ref) for oid, is_ref in sorted(tips.items(), key=lambda tip: tip[1])]
        seen = set(tips)
        while stack:
            oid, is_ref = stack.pop()
            try:
                commit = self._objects.commit(oid)
            except Damaged as error:
                if is_ref:
                    losses.add(f"commit {oid.hex()[:10]}", error.message)
                else:
                    gone += 1  # git deletes what only a reflog names after some weeks
                continue
            found[commit.oid] = commit
            if progress is not None:
                progress("finding commits", len(found), 0)
            for parent in commit.parents:
                if parent not in seen:
                    seen.add(parent)
                    stack.append((parent, is_ref))
        ordered = list(_ordered(found, self._objects.made_in_order()))
        commits = [each for each in ordered if each.parents or each.tree != EMPTY_TREE]
        notes = []
        if len(commits) < len(ordered):
            notes.append("The first commit has no files and is left out: restoring it would remove everything.")
        if gone:
            notes.append(f"{gone} older commits that only the reflog names are gone from the source.")
        if not commits and found:
            raise NotFound(f"{self._source} contains no files yet", hint="Nothing was saved there yet.")
        self._history = _History(commits, notes, losses.all())
        return self._history

    def _renamed_repositories(self, newest: Commit) -> Iterator[str]:
        """Name nested repositories of the workspace whose folder was renamed, and not renamed back."""
        folders = [""]
        try:
            folders += [each.path for each in self._objects.diff(None, newest.tree) if _is_folder(each.after)]
        except Damaged:
            return
        for folder in folders:
            place = self._target.folder / folder / _DISABLED
            if place.is_dir():
                yield f"{place} is a repository that was renamed and not renamed back; rename it to .git."

    # one commit

    def _look(self, commit: Commit) -> int:
        """Read what a commit changes, except for contents; return how many bytes these have."""
        total = 0
        base = self._base(commit)
        uncovered = {} if base is None else dict(self._uncovered[base])
        for change in self._objects.diff(self._base_tree(commit), commit.tree):
            if not self._update(uncovered, change) and change.after is not None and not _is_folder(change.after):
                total += self._objects.blob_bytes(change.after.oid)
        for path in [each for each in uncovered if _is_below(each, uncovered)]:
            del uncovered[path]
        for path, why in uncovered.items():
            self._losses.add(escape_path(path), why.detail)
        self._uncovered[commit.oid] = uncovered
        return total

    def _update(self, uncovered: dict[str, Uncovered], change: TreeChange) -> bool:
        """Apply a change to what is not covered; return whether its path is not."""
        path, _, after = change
        for old in [old for old in uncovered if old == path or (after is None and old.startswith(f"{path}/"))]:
            del uncovered[old]
        why = self._why_uncovered(change)
        if why is not None:
            uncovered[path] = why
        return why is not None

    def _carry(self, commit: Commit, known: dict[str, str]) -> tuple[Sequence[Uncovered], bool]:
        """Add a commit; return what it does not cover, and whether it is new."""
        origin = _origin(commit)
        if origin in known:
            checkpoint = self._target.get(known[origin])
            if checkpoint is not None:
                return checkpoint.uncovered, False
        while True:
            before = len(self._unreadable)
            outside = self._outside(commit, known)
            try:
                added = self._target.add(outside)
            except Damaged:
                if len(self._unreadable) == before:
                    raise
                continue  # again without the content that turned out to be damaged
            known[origin] = added.id
            return outside.uncovered, added.is_new

    def _base(self, commit: Commit) -> bytes | None:
        """The commit that it is compared with: its first parent that is imported."""
        return next((parent for parent in commit.parents if parent in self._trees), None)

    def _base_tree(self, commit: Commit) -> bytes | None:
        base = self._base(commit)
        return None if base is None else self._trees[base]

    def _outside(self, commit: Commit, known: Mapping[str, str]) -> OutsideCheckpoint:
        seconds = min(max(commit.seconds, 0), _LAST_SECOND)
        base = self._base(commit)
        base_id = known[f"git:{base.hex()}"] if base is not None else None
        uncovered = {each.path: each for each in self._target.uncovered(base_id)}
        edits: dict[str, OutsideFile | None] = {}
        mtime_ns = seconds * 10**9
        changed_folders = set() if base_id else {""}
        for change in self._objects.diff(self._base_tree(commit), commit.tree):
            path, before, after = change
            if before is None or after is None:
                changed_folders.add(split(path)[0])
            if self._update(uncovered, change):
                if before is not None:
                    edits[path] = None
            elif not (before and after and _is_folder(before) and _is_folder(after)):
                edits[path] = None if after is None else self._file(path, after, mtime_ns)
        for path in [each for each in uncovered if _is_below(each, uncovered)]:
            del uncovered[path]
        for path in [each for each in edits if _is_below(each, uncovered)]:
            del edits[path]
        for path in changed_folders:
            if path not in edits and path not in uncovered and not _is_below(path, uncovered):
                edits[path] = OutsideFile(self._target.permissions(path, stat.S_IFDIR | 0o755), mtime_ns)
        message, step = _message(commit)
        return OutsideCheckpoint(
            origin=_origin(commit),
            source=self._source,
            request=SaveRequest(
                message,
                session=self._session(commit),
                step=step,
                # What the first commit contains was there before the tool (attribution goes by who saved).
                actor=(commit.author or None) if base_id is not None else None,
            ),
            timestamp=datetime.fromtimestamp(seconds, UTC),
            edits=edits,
            base=base_id,
            uncovered=sorted(uncovered.values(), key=lambda each: each.path),
            info_exclude=self._objects.info_exclude(),
        )

    def _why_uncovered(self, change: TreeChange) -> Uncovered | None:
        """Say why the path of a change cannot be carried over; None if it can."""
        path, _, entry = change
        if entry is None:
            return None
        if entry.mode == _GITLINK:
            return Uncovered(path, Reason.GIT_DIRECTORY, "a nested repository, of which the source has no files")
        if split(path)[1] == _DISABLED and _is_folder(entry):
            return Uncovered(path, Reason.GIT_DIRECTORY, "the own folder of a nested repository, renamed by the tool")
        if entry.mode == FOLDER_MODE:
            return None
        if not (stat.S_ISREG(entry.mode) or entry.mode == LINK_MODE):
            return Uncovered(path, Reason.UNREADABLE, f"of the unknown type {entry.mode:o}")
        if entry.oid in self._unreadable:
            return Uncovered(path, Reason.UNREADABLE, "its content in the source is damaged")
        try:
            size = self._objects.blob_bytes(entry.oid)
            is_link = entry.mode == LINK_MODE
            if is_link and (not 0 < size < _TARGET_MAX_BYTES or b"\0" in self._objects.blob(entry.oid)):
                return Uncovered(path, Reason.UNREADABLE, "a link with a target that no file system has")
        except Damaged as error:
            return Uncovered(path, Reason.UNREADABLE, error.message)
        if size > BLOB_MAX_BYTES:
            return Uncovered(path, Reason.UNREADABLE, f"it has {size:,} bytes; at most {BLOB_MAX_BYTES:,} are read")
        return None

    def _file(self, path: str, entry: TreeEntry, mtime_ns: int) -> OutsideFile:
        if entry.mode == FOLDER_MODE:
            return OutsideFile(self._target.permissions(path, stat.S_IFDIR | 0o755), mtime_ns)
        mode = stat.S_IFLNK | 0o777 if entry.mode == LINK_MODE else self._target.permissions(path, entry.mode)
        read = partial(self._content, entry.oid)
        return OutsideFile(mode, mtime_ns, self._objects.blob_bytes(entry.oid), read, entry.oid)

    def _content(self, oid: bytes) -> bytes:
        try:
            return self._objects.blob(oid)
        except Damaged:
            self._unreadable.add(oid)
            raise

    def _session(self, commit: Commit) -> str | None:
        found = _TASK.search(commit.message) or _TASK_FOLDER.search(self._source)
        return found[1] if found else None


def _ordered(commits: Mapping[bytes, Commit], numbers: Mapping[bytes, int]) -> Iterator[Commit]:
    """Yield parents before their children, and otherwise by time; `numbers` decide between equal times."""
    children: dict[bytes, list[bytes]] = {}
    waiting: dict[bytes, int] = {}
    for commit in commits.values():
        parents = {each for each in commit.parents if each in commits}
        waiting[commit.oid] = len(parents)
        for parent in parents:
            children.setdefault(parent, []).append(commit.oid)
    keys = {oid: (each.seconds, numbers.get(oid, len(numbers)), oid) for oid, each in commits.items()}
    ready = [keys[oid] for oid, count in waiting.items() if not count]
    heapq.heapify(ready)
    while ready:
        oid = heapq.heappop(ready)[-1]
        yield commits[oid]
        for child in children.get(oid, ()):
            waiting[child] -= 1
            if not waiting[child]:
                heapq.heappush(ready, keys[child])


def _message(commit: Commit) -> tuple[str, int | None]:
    step = _STEP.match(commit.message)
    return (commit.message[step.end() :], int(step[1])) if step else (commit.message, None)


def _origin(commit: Commit) -> str:
    return f"git:{commit.oid.hex()}"


def _shown(commit: Commit) -> str:
    return f"commit {commit.oid.hex()[:10]}"


def _is_folder(entry: TreeEntry | None) -> bool:
    return entry is not None and entry.mode == FOLDER_MODE


def _is_below(path: str, others: Mapping[str, object]) -> bool:
    return any(above in others for above in upwards(split(path)[0]))
