"""Decides for each entry of a folder whether it is saved or left out, and by which rule."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Container
from typing import TYPE_CHECKING

from holdfast.model import Reason
from holdfast.scan import ignore, sqlite_files, user_git
from holdfast.scan.cache import FAILED, IGNORED, LEFT_OUT, UNKNOWN, YOUNG, Folder, row_of
from holdfast.scan.dir_handles import join
from holdfast.scan.ignore import BUILD_FOLDERS, DEPENDENCY_FOLDERS

if TYPE_CHECKING:
    from holdfast.scan.walk import Walk

_VIRTUALENV_NAMES = {"venv", "env", "virtualenv"}
_PARTLY = "partly: "  # the context of a left-out folder from which something is saved all the same
_PARTLY_HARD = "partly, excluded: "
_SLACK_NS = 50_000_000  # longer than the coarsest clock tick of a kernel
_COARSE_SLACK_NS = 3_000_000_000  # file systems that store whole seconds, or (FAT) even ones


def is_partly(context: str) -> bool:
    """Whether only some entries of a folder are saved: those that are wanted whatever the rules say."""
    return context.startswith((_PARTLY, _PARTLY_HARD))


class Judge:
    """Classifies the entries of one folder while it is listed."""

    def __init__(
        self,
        walk: Walk,
        folder: Folder,
        rules: ignore.Rules,
        fd: int,
        old: Folder | None,
        now: int,
        names: Container[str | None],
        *,
        is_git: bool,
    ) -> None:
        """`names`: all names in the folder. `is_git`: it is a git directory that also contains files of a project."""
        self._walk = walk
        self._folder = folder
        self._names = names
        self._rules = rules
        self._fd = fd
        self._old = old
        self._known = {name: place for place, name in enumerate(old.names)} if old else {}
        self._now = now
        self._is_git = is_git
        self._partly = is_partly(folder.context)
        self._hard = folder.context.startswith(_PARTLY_HARD)
        self.rows: list[int] = []
        self.contexts: dict[str, str] = {}

    def add(self, name: str, status: os.stat_result) -> None:
        path = join(self._folder.path, name)
        if self._is_git and user_git.is_of_git(name, status.st_mode):
            self._folder.skipped[name] = (Reason.GIT_DIRECTORY, "part of a repository's own folder")  # P6
        elif stat.S_ISDIR(status.st_mode):
            self._add_folder(name, path)
        elif stat.S_ISSOCK(status.st_mode) and not self._walk.wanted.file(path, hard=True):
            self._folder.skipped[name] = (Reason.SOCKET, "")  # P4: only its program can create it again
        else:
            self._add_file(name, path, status)

    def _add_folder(self, name: str, path: str) -> None:
        folder, walk = self._folder, self._walk
        if name == ".git":
            folder.skipped[name] = (Reason.GIT_DIRECTORY, "a repository's own folder")  # P6
            return
        if self._partly:  # the rule that left out the folder above is reported there, once
            if walk.wanted.folder(path, hard=self._hard):
                folder.folders.append(name)
            return
        verdict = self._rules.decide(path, is_dir=True)
        kind = verdict.kind if verdict else None
        rule = verdict.rule if verdict else folder.context
        if kind == ignore.INCLUDED or (kind is None and not folder.context and not self._is_dependency(name)):
            folder.folders.append(name)
            return
        if kind == ignore.EXCLUDED:
            self._skip_folder(name, path, Reason.EXCLUDED, rule)
        elif self._is_dependency(name):
            self._skip_folder(name, path, Reason.DEPENDENCIES, f"built-in: {name}")
        elif name in BUILD_FOLDERS:
            self._skip_folder(name, path, Reason.DEPENDENCIES, rule)
        elif folder.context:  # the limit for ignored folders counted it with the folder above
            folder.folders.append(name)
        else:
            folder.probes.append(name)  # counted in each scan: what grows inside does not change this folder's times
            if walk.is_small(self._fd, name):
                folder.folders.append(name)
                self.contexts[name] = rule
            else:
                self._skip_folder(name, path, Reason.IGNORED_MANY, rule)

    def _skip_folder(self, name: str, path: str, reason: Reason, rule: str) -> None:
        if self._walk.wanted.folder(path, hard=reason is Reason.EXCLUDED):  # P1: it holds what must be saved
            self._folder.folders.append(name)
            self.contexts[name] = (_PARTLY_HARD if reason is Reason.EXCLUDED else _PARTLY) + rule
        self._folder.skipped[name] = (reason, rule)  # P4: also where some of it is saved

    def _is_dependency(self, name: str) -> bool:
        if name in DEPENDENCY_FOLDERS:
            return True
        if name not in _VIRTUALENV_NAMES:
            return False
        with contextlib.suppress(OSError):  # `env` is also a common name for a folder of settings
            os.stat(f"{name}/pyvenv.cfg", dir_fd=self._fd, follow_symlinks=False)
            return True
        return False

    def _add_file(self, name: str, path: str, status: os.stat_result) -> None:
        folder = self._folder
        flags, size = 0, status.st_size
        judged = path
        if self._is_sidecar(name):  # P2: saved if its database is, and only then
            database = sqlite_files.family(name)[0]
            judged, size = join(folder.path, database), self._size(database)
        if self._partly:
            if not self._is_wanted(path, judged, hard=self._hard):
                return  # as in `_add_folder`, the rule is reported with the folder above
        else:
            verdict = self._rules.decide(judged, is_dir=False)
            kind = verdict.kind if verdict else None
            if kind == ignore.EXCLUDED and not self._is_wanted(path, judged, hard=True):
                folder.skipped[name] = (Reason.EXCLUDED, verdict.rule if verdict else "")
                return
            if kind == ignore.IGNORED or (folder.context and kind is None):
                is_small = size <= self._walk.limits.file_max_bytes
                flags = IGNORED if is_small else self._large(name, path, judged, verdict)
        self._add_row(name, status, flags)

    def _is_sidecar(self, name: str) -> bool:
        return sqlite_files.database_name(name) in self._names and sqlite_files.is_sidecar(name, self._fd)

    def _size(self, name: str) -> int:
        try:
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_size
        except OSError:
            return 0  # gone meanwhile

    def _is_wanted(self, path: str, judged: str, *, hard: bool) -> bool:
        wanted = self._walk.wanted
        return wanted.file(judged, hard=hard) or (judged != path and wanted.file(path, hard=True))

    def _large(self, name: str, path: str, judged: str, verdict: ignore.Verdict | None) -> int:
        """The flags of an ignored file above the size limit; its row stays, because its size can change."""
        if self._is_wanted(path, judged, hard=False):
            return 0
        rule = verdict.rule if verdict else self._folder.context
        self._folder.skipped[name] = (Reason.IGNORED_LARGE, rule)
        return LEFT_OUT

    def _add_row(self, name: str, status: os.stat_result, flags: int) -> None:
        folder, place = self._folder, len(self._folder.names)
        folder.names.append(name)
        self.rows += row_of(status, flags | young(status, self._now))
        content = UNKNOWN
        known = self._known.get(name)
        if self._old is not None and known is not None and not self._walk.rehash:
            content = _known_content(self._old, known, status)  # P8: not read again
            if content != UNKNOWN and name in self._old.extras:
                folder.extras[name] = self._old.extras[name]
        folder.contents += content
        if content == UNKNOWN and not flags & LEFT_OUT:
            self._walk.listing.pending.append((folder, place))


def _known_content(old: Folder, place: int, status: os.stat_result) -> bytes:
    """The content from the cache, if the file cannot have changed since (P2); else it is read again."""
    is_same = old.has_status(place, status) and not old.flags(place) & (FAILED | YOUNG)
    return old.content(place) if is_same else UNKNOWN


def young(status: os.stat_result, now: int) -> int:
    """YOUNG if a change after this scan could leave the same times (P2): the next scan then does not trust them."""
    # a whole number of seconds: perhaps of a file system that stores no more than that
    slack = _SLACK_NS if status.st_ctime_ns % 1_000_000_000 else _COARSE_SLACK_NS
    return YOUNG if status.st_ctime_ns > now - slack else 0
