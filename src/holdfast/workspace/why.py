"""Why a save now would include a path or not: the one rule that decides."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.model import Checkpoint, Reason, Why
from holdfast.scan import user_git
from holdfast.scan.cache import IGNORED, MODE, WIDTH, Folder
from holdfast.scan.dir_handles import Handles, split, upwards
from holdfast.scan.ignore import DEPENDENCY_FOLDERS, EXCLUDED, INCLUDED, MAX_IGNORE_BYTES, Sources, Verdict, decide_path
from holdfast.scan.sqlite_files import database_name, is_sidecar
from holdfast.workspace.capture.scanner import Judged, Scanner
from holdfast.workspace.pathspec import inside
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.tree import TreeReader

_BECAUSE = {
    Reason.EXCLUDED: "it is excluded",
    Reason.DEPENDENCIES: "it is a dependency or build folder, which a tool can create again",
    Reason.IGNORED_LARGE: "git's rules ignore it, and it is above {file_max}",
    Reason.IGNORED_MANY: "git's rules ignore it, and the ignored files together exceed the limit",
    Reason.GIT_DIRECTORY: "a git directory is never saved",
    Reason.OTHER_FILESYSTEM: "another file system begins there",
    Reason.SOCKET: "a socket has no content",
    Reason.UNREADABLE: "it cannot be read",
}


class _Decision(NamedTuple):
    held: bool
    because: str
    reason: Reason | None = None
    rule: str = ""


def why(path: str, repository: Repository, scanner: Scanner) -> Why:
    """Say what decides about a path. Refused outside the workspace."""
    wanted = inside(path, scanner.root)
    head = repository.head()
    judged = scanner.judge(head)
    with Handles(os.fspath(scanner.root)) as handles:
        status = _status(handles, wanted)
        is_folder = _names_a_folder(path) if status is None else stat.S_ISDIR(status.st_mode)
        asker = _Asker(judged, handles, scanner.root)
        database = database_name(wanted) if status is not None and _is_sidecar(handles, wanted) else None
        if database is None:
            found = asker.decide(wanted, is_folder)
        else:
            found = asker.decide(database, False)
            found = found._replace(because=f"it goes with the database {database}: {found.because}")
    return Why(
        path=wanted or ".",
        held=found.held,
        exists=status is not None,
        reason=found.reason,
        rule=found.rule,
        in_checkpoint=_holder(repository, head, wanted),
        sentence=_sentence(wanted or ".", found, exists=status is not None),
    )


class _Asker:
    """Evaluates a scan for one path, from the top down, as the walk did."""

    def __init__(self, judged: Judged, handles: Handles, root: Path) -> None:
        self._judged = judged
        self._handles = handles
        self._root = root

    def decide(self, path: str, is_folder: bool) -> _Decision:
        left_out: _Decision | None = None
        parts = path.split("/") if path else []
        for depth, name in enumerate(parts):
            here, is_last = "/".join(parts[: depth + 1]), depth + 1 == len(parts)
            folder = self._judged.listing.folders.get("/".join(parts[:depth]))
            if folder is None:
                break
            if name in folder.skipped:
                left_out = self._left_out(folder, name, here, path)
            if name in folder.folders:
                continue
            place = folder.place(name)
            if place is not None and not is_last:
                return _Decision(False, f"{here} is not a folder, and links are not followed")
            if place is not None and folder.holds(place):
                return self._file(path, folder, place)
            return left_out or self._absent(path, is_folder, folder)
        if left_out is not None and path in self._judged.listing.folders:
            return _Decision(True, f"{left_out.because}; but something in it is included", rule=left_out.rule)
        if left_out is not None:
            return left_out
        return self._held(path, self._judged.listing.folders[path]) if path else _Decision(True, "it is the workspace")

    def _file(self, path: str, folder: Folder, place: int) -> _Decision:
        name = folder.names[place]
        mode, dir_fd = folder.rows[WIDTH * place + MODE], self._handles.open(folder.path)
        if stat.S_ISREG(mode) and not os.access(name, os.R_OK, dir_fd=dir_fd, effective_ids=True):
            return self._say(Reason.UNREADABLE, "")
        anyway = "" if folder.flags(place) & IGNORED else self._judged.wanted.because(path, is_folder=False)
        return self._held(path, folder, is_folder=False, anyway=anyway)

    def _absent(self, path: str, is_folder: bool, folder: Folder) -> _Decision:
        """Decide about a path that does not exist."""
        for here in reversed([each for each in upwards(path) if is_folder or each != path]):
            name = here.rpartition("/")[2]
            if name == ".git":
                return self._say(Reason.GIT_DIRECTORY, "")
            verdict = self._verdict(here, is_folder=True)
            if name in DEPENDENCY_FOLDERS and (verdict is None or verdict.kind != INCLUDED):
                return self._say(Reason.DEPENDENCIES, f"built-in: {name}")
        verdict = self._verdict(path, is_folder)
        if verdict is not None and verdict.kind == EXCLUDED:
            return self._say(Reason.EXCLUDED, verdict.rule)
        return self._held(path, folder, is_folder=is_folder)

    def _left_out(self, folder: Folder, name: str, here: str, path: str) -> _Decision:
        reason, rule = folder.skipped[name]
        found = self._say(Reason(reason), rule)
        return found if here == path else found._replace(because=f"{here} is not: {found.because}")

    def _say(self, reason: Reason, rule: str) -> _Decision:
        text = _BECAUSE.get(reason, str(reason.value)).format(file_max=f"{self._judged.limits.file_max_bytes:,} bytes")
        return _Decision(False, text, reason, rule)

    def _held(self, path: str, folder: Folder, *, is_folder: bool = True, anyway: str = "") -> _Decision:
        """Say why a path is included; `anyway`: why, although it is ignored and not small."""
        verdict = self._verdict(path, is_folder)
        rule = verdict.rule if verdict else folder.context
        if not rule:
            return _Decision(True, "no rule excludes it")
        if verdict is not None and verdict.kind == INCLUDED:
            return _Decision(True, "a rule includes it, whatever git's rules say", rule=rule)
        if anyway:
            return _Decision(True, f"a rule excludes it, but {anyway}", rule=rule)
        most = self._judged.limits.file_max_bytes
        return _Decision(True, f"git's rules ignore it, but files up to {most:,} bytes are included anyway", rule=rule)

    def _verdict(self, path: str, is_folder: bool) -> Verdict | None:
        return decide_path(self._judged.rules, path, is_dir=is_folder, sources=self._sources)

    def _sources(self, folder: str) -> Sources:
        git = user_git.git_dir(self._root / folder)
        return Sources(
            gitignore=self._text(folder, ".gitignore"),
            holdfastignore=self._text(folder, ".holdfastignore"),
            repository=git is not None,
            info_exclude=user_git.info_exclude(git) if git else None,
        )

    def _text(self, folder: str, name: str) -> bytes | None:
        try:
            fd = self._handles.open(folder)
            return durable.read_file(name, max_bytes=MAX_IGNORE_BYTES, dir_fd=fd, follow_links=False)
        except OSError:
            return None


def _names_a_folder(path: str) -> bool:
    """Whether a path that does not exist would be a folder, by its name."""
    name = path.rpartition("/")[2]
    return not name or name == ".git" or name in DEPENDENCY_FOLDERS


def _status(handles: Handles, path: str) -> os.stat_result | None:
    folder, name = split(path)
    try:
        return os.stat(name or ".", dir_fd=handles.open(folder), follow_symlinks=False)
    except OSError:
        return None


def _is_sidecar(handles: Handles, path: str) -> bool:
    folder, name = split(path)
    return is_sidecar(name, handles.open(folder))


def _holder(repository: Repository, head: Checkpoint | None, path: str) -> str | None:
    if head is None:
        return None
    entry = TreeReader(repository.objects).find(repository.contents(head).root, path)
    return head.id if entry is not None else None


def _sentence(path: str, found: _Decision, *, exists: bool) -> str:
    verb = ("is included" if found.held else "is not included") if exists else "does not exist; it would "
    if not exists:
        verb += "be included" if found.held else "not be included"
    rule = f" ({found.rule})" if found.rule else ""
    return f"{path} {verb}: {found.because}{rule}"
