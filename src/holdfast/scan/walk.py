"""Walking the tree: which entries there are, which of them changed, which are left out and by what rule.

A folder whose own times are unchanged since a scan that it predates has the same names, so only its known files are
looked at; any other is listed anew. Nothing is read here but ignore files: entries whose content is not known from
the cache are left in `Listing.pending` for `holdfast.scan.read`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Set
from pathlib import Path
from typing import Protocol

from holdfast import durable
from holdfast.durable import platform
from holdfast.errors import Unavailable
from holdfast.model import Reason
from holdfast.scan import user_git
from holdfast.scan.attrs import extras_of
from holdfast.scan.cache import FAILED, FLAGS, IGNORED, LEFT_OUT, MODE, UNKNOWN, WIDTH, YOUNG, Folder, Key, columns
from holdfast.scan.cached_folders import CachedFolders, ScannedFolders
from holdfast.scan.classify import Judge, is_partly, young
from holdfast.scan.dir_handles import SHORTAGES, Handles, join, split, upwards
from holdfast.scan.ignore import MAX_IGNORE_BYTES, Rules
from holdfast.scan.limits import Limits, has_few_entries, hold_to_total
from holdfast.scan.scan_start import ScanStart

GIT_FOLDER = "a repository's own folder"
_ROUNDS = 8  # until every git directory that a `.git` points to is known; two, unless one changes meanwhile
RETRY = {Reason.UNREADABLE, Reason.CHANGED, Reason.OTHER_FILESYSTEM, Reason.LIVE_DATABASE}


class Wanted(Protocol):
    """What is saved whatever the rules say: files that the user's git tracks, that are in the last checkpoint, or that
    a restore is about to replace (P1)."""

    def file(self, path: str, *, hard: bool) -> bool:
        """Whether to save a file; `hard`: although the user excluded it by name."""

    def folder(self, path: str, *, hard: bool) -> bool:
        """Whether to save anything in a folder."""

    @property
    def may_override(self) -> bool:
        """Whether anything is saved although the user excluded it."""


class Listing:
    """The result of a walk: the folders, parents before children, and the entries that must be read."""

    def __init__(self, owner: tuple[int, int], device: int, swept: CachedFolders | None = None) -> None:
        self.folders: MutableMapping[str, Folder] = {} if swept is None else ScannedFolders(swept)
        self.pending: list[tuple[Folder, int]] = []
        self.changed: set[str] = set()  # folders that differ from the cache
        self.owner = owner
        self.device = device
        self.vanished = False
        self.repositories: dict[str, bytes] = {}  # folders with a .git: their info/exclude
        self.rules: dict[str, Rules] = {}  # what decides in folders with ignore files of their own
        self.oversized_rules: list[str] = []


class Walk:
    """One walk over a workspace."""

    def __init__(
        self,
        handles: Handles,
        root: Path,
        *,
        cache: Mapping[str, Folder],
        rules: Rules,
        wanted: Wanted,
        limits: Limits,
        rehash: bool = False,
        swept: CachedFolders | None = None,
        cover: Callable[[str, int], None] | None = None,
        clock: Callable[[], int] = time.time_ns,
        since: ScanStart | None = None,
    ) -> None:
        """`swept`: the cache, if a sweep has just compared it with the disk. `cover` is called with each folder before
        it is read. `clock`: nanoseconds, of the clock that stamps files; any other could make a file that changes
        during the scan look old enough to be trusted (P2). `since`: when the sweep began, by that clock.
        """
        self._clock = clock
        self._handles = handles
        self._root = root
        self._cache = cache
        self._rules = rules
        self.wanted = wanted
        self.limits = limits
        self.rehash = rehash
        self._cover = cover
        self._named: set[str] = set()  # folders that a `.git` file somewhere in the workspace points to
        self._mixed: set[str] = set()  # git directories that also contain files of a project
        self._clocks: dict[int, bool] = {}  # whether the files of a device are stamped by the clock of this machine
        self._has_lost = False  # whether anything may have left a folder since the scan began
        self.mounts = mounts_below(os.fsencode(root))
        self._above_mounts = {above for mount in self.mounts for above in (*upwards(mount), "")}
        status = os.fstat(handles.open(""))
        self.began_ns = clock()
        self._since = since or ScanStart(self.began_ns, time.monotonic_ns())
        self.identity = (status.st_dev, status.st_ino, status.st_uid, status.st_gid)
        self._swept = None if rehash or cover or swept is None or not _is_of(swept, status) else swept
        self.listing = Listing((status.st_uid, status.st_gid), status.st_dev, self._swept)

    def run(self) -> Listing:
        """Walk. Unavailable if the workspace itself cannot be listed."""
        for _ in range(_ROUNDS):
            self._descend("", self._rules, "")
            if not self._met_too_early():
                break  # P6: else a git directory is among the folders; walk again, knowing of it
            self.listing = Listing(self.listing.owner, self.listing.device, self._swept)
        # last: which ignored files are saved depends on how large all of them together are
        hold_to_total(self.listing, self.wanted, self.limits.total_max_bytes)
        return self.listing

    def _descend(self, start: str, outer: Rules, start_context: str) -> None:
        """Visit a folder and everything below it."""
        stack: list[tuple[str, Rules, str]] = [(start, outer, start_context)]
        while stack:
            path, rules, context = stack.pop()
            if self._adopt(path, rules, context):
                continue
            found = self._visit(path, rules, context)
            if found is not None and not self._adopt_below(path, found):
                folder, inner, contexts = found
                for name in reversed(folder.folders):  # so that they are visited in order
                    stack.append((join(path, name), inner, contexts.get(name, context)))

    def _adopt(self, path: str, rules: Rules, context: str) -> bool:
        """Take a folder and all below it as the sweep found them: for each of them `_reuse` would say so."""
        folders, swept = self.listing.folders, self._swept
        # Above a mount, `_visit` has to leave it out (P4): the times of a folder do not show what is mounted below.
        if swept is None or context or path in self._above_mounts or not isinstance(folders, ScannedFolders):
            return False
        number = swept.number(path)
        if number is None or not swept.is_plain(number) or swept.rules(number) != rules.digest:
            return False
        folders.adopt(number)
        return True

    def _adopt_below(self, path: str, found: tuple[Folder, Rules, dict[str, str]]) -> bool:
        """Take all folders below one that is itself as in the cache."""
        (folder, inner, contexts), folders, swept = found, self.listing.folders, self._swept
        if swept is None or contexts or folder.context or path in self._above_mounts:
            return False
        number = swept.number(path)
        if number is None or folder is not swept.folder(number) or not swept.is_plain_below(number):
            return False
        if inner.digest != folder.rules or not isinstance(folders, ScannedFolders):
            return False
        folders.adopt_below(number)
        return True

    def _visit(self, path: str, rules: Rules, context: str) -> tuple[Folder, Rules, dict[str, str]] | None:
        """Scan one folder; None if it cannot be entered, which is then recorded in its parent (P4)."""
        listing = self.listing
        try:
            if path in self.mounts:
                self._leave_out(path, Reason.OTHER_FILESYSTEM, "a mount point")
                return None
            known = self._reuse(path, rules, context) if self._swept is not None else None
            if known is not None:
                listing.folders[path] = known[0]
                return known
            fd = self._handles.open(path)
            if self._cover is not None:
                self._cover(path, fd)  # watch first, then read: a change in between is seen by one of the two
            status = os.fstat(fd)
            if status.st_dev != listing.device:  # without mountinfo, a mount still has a device number of its own
                self._leave_out(path, Reason.OTHER_FILESYSTEM, "a mount point")
                return None
            found = self._look(path, fd, status, rules, context)
            if found is None:
                self._leave_out(path, Reason.GIT_DIRECTORY, GIT_FOLDER)
                return None
        except PermissionError as error:
            self._leave_out(path, Reason.UNREADABLE, error.strerror or "permission denied")
            return None
        except OSError as error:
            if error.errno in SHORTAGES:
                raise  # P4: no reason to leave this path out; the scan fails
            if not path or isinstance(error, FileNotFoundError | NotADirectoryError):
                self._vanish(path, error)
            else:
                self._leave_out(path, Reason.UNREADABLE, error.strerror or str(error))
            return None
        folder = found[0]
        listing.folders[path] = folder
        if folder is not self._cache.get(path):
            listing.changed.add(path)
        return found

    def moved(self) -> bool:
        """Whether a folder changed after it was walked: something may have moved past the walk unseen.

        A move changes the times of the folder that loses the name, and that folder is listed again. So all folders are
        checked if one that was listed had changed since the scan began, or changed before it was read: the name may
        be in any other. If none had, nothing left a folder before it was read, and only the folders that differ from
        the cache are checked; one from which a folder vanished is among them.
        """
        root = self._handles.open("")
        listing = self.listing
        for path, inode, mtime_ns in _identities(listing.folders, None if self._has_lost else listing.changed):
            try:
                status = os.stat(path or ".", dir_fd=root, follow_symlinks=False)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    continue  # deeper than PATH_MAX: `stat` by path cannot reach it
                return True
            if (status.st_ino, status.st_mtime_ns) != (inode, mtime_ns):  # not ctime, which chmod changes, too
                return True
        return False

    # one folder

    def _look(
        self, path: str, fd: int, status: os.stat_result, outer: Rules, context: str
    ) -> tuple[Folder, Rules, dict[str, str]] | None:
        """Scan a folder; None if it is a git directory (P6), which it may have become since the last scan."""
        key = (status.st_dev, status.st_ino, status.st_mode, status.st_mtime_ns, status.st_ctime_ns)
        old = self._cache.get(path)
        now = self._clock()  # before anything is read: what changes afterwards is young, and not trusted next time (P2)
        # The names in a folder change its mtime and ctime. With both unchanged since a scan that was later than them,
        # the names are the same, and only the known files need a `stat` (P8).
        if old is not None and old.key == key and _is_reusable(old, context):
            rules = self._rules_of(path, fd, outer, *old.sources) if any(old.sources) else outer
            if rules.digest == old.rules:
                same = self._same_names(path, fd, old, now)
                if same is not None:
                    return same, rules, self._contexts(path, same, rules) if same.probes else {}
        return self._list(path, fd, status, key, outer, context, old, now)

    def _reuse(self, path: str, outer: Rules, context: str) -> tuple[Folder, Rules, dict[str, str]] | None:
        """The folder from the cache, if the sweep found its status and files unchanged; None if it has to be looked at.

        The sweep knows no rules: what they leave out, and small ignored folders, are checked here as in `_look`.
        """
        old = self._swept.get(path) if self._swept is not None and self._swept.is_unchanged(path) else None
        if old is None or not _is_reusable(old, context):
            return None
        if old.key[0] != self.listing.device or not _has_plain_numbers(old):
            return None
        if not (old.skipped or old.probes or any(old.sources)):
            return (old, outer, {}) if outer.digest == old.rules else None
        fd = self._handles.open(path)
        rules = self._rules_of(path, fd, outer, *old.sources) if any(old.sources) else outer
        if rules.digest != old.rules or not self._has_same_gaps(path, fd, old):
            return None
        return old, rules, self._contexts(path, old, rules) if old.probes else {}

    def _has_same_gaps(self, path: str, fd: int, old: Folder) -> bool:
        """Whether what was left out still is, and small ignored folders are still small."""
        if old.skipped and not self._still_skipped(path, old):
            return False
        return all(self.is_small(fd, name) == (name in old.folders) for name in old.probes)

    def _same_names(self, path: str, fd: int, old: Folder, now: int) -> Folder | None:
        """Check the known entries alone; None if the folder has to be listed after all."""
        if not self._has_same_gaps(path, fd, old):
            return None
        try:
            changed = self._changed(fd, old)
        except FileNotFoundError:
            return None  # removed since the folder's times were read: list what is there now
        if not changed:
            return old
        folder = old.copy()
        for name, status in changed:
            place = folder.place(name)
            if place is None or not self._renew(folder, place, status, now):
                return None
        folder.count_ignored()
        return folder

    def _changed(self, fd: int, old: Folder) -> list[tuple[str, os.stat_result]]:
        """The known entries that changed. FileNotFoundError if one is gone. The hot loop of every save (P8)."""
        names, rows = old.looked_at()
        columns = iter(rows)
        lstat, rehash, is_settled = os.stat, self.rehash, old.is_settled
        changed = []
        for name, mode, inode, size, mtime_ns, ctime_ns, _, flags in zip(names, *[columns] * WIDTH, strict=True):
            status = lstat(name, dir_fd=fd, follow_symlinks=False)
            # ctime first: every change of content, mode, owner or links moves it, and no program can set it back. The
            # others notice a file that came from elsewhere with the same ctime.
            if (
                status.st_ctime_ns != ctime_ns
                or status.st_mtime_ns != mtime_ns
                or status.st_ino != inode
                or status.st_size != size
                or status.st_mode != mode
                or rehash
                or not (is_settled or flags <= LEFT_OUT)
            ):
                changed.append((name, status))
        return changed

    def _renew(self, folder: Folder, place: int, status: os.stat_result, now: int) -> bool:
        """Update a changed entry; False if it has to be classified again."""
        at = WIDTH * place
        flags = folder.rows[at + FLAGS]
        is_large = status.st_size > self.limits.file_max_bytes
        # what was no file, or is none any more, or changes sides at the size limit, is for `classify` to decide
        if not stat.S_ISREG(status.st_mode) or stat.S_IFMT(folder.rows[at + MODE]) != stat.S_IFREG or flags & FAILED:
            return False
        if flags & (IGNORED | LEFT_OUT) and (is_large or flags & LEFT_OUT):
            return False
        folder.set_status(place, status, (flags & ~YOUNG) | young(status, now))
        folder.set_content(place, UNKNOWN)
        self.listing.pending.append((folder, place))
        return True

    def _still_skipped(self, path: str, old: Folder) -> bool:
        wanted, override = self.wanted, self.wanted.may_override
        for name, (reason, _) in old.skipped.items():
            if reason in RETRY:
                return False  # P4: what failed is tried again in each scan
            if reason == Reason.GIT_DIRECTORY:
                if name != ".git" and not self._is_git_at(join(path, name), alone=True):
                    return False
                continue
            hard = reason in (Reason.EXCLUDED, Reason.SOCKET)
            if hard and not override:
                continue
            full = join(path, name)
            if wanted.folder(full, hard=hard) or wanted.file(full, hard=hard):
                return False
        return True

    def _contexts(self, path: str, folder: Folder, rules: Rules) -> dict[str, str]:
        """Why the folders in it are ignored, for those that are."""
        if folder.context:
            return {}
        found = {}
        for name in folder.probes:
            if name in folder.folders:
                verdict = rules.decide(join(path, name), is_dir=True)
                found[name] = verdict.rule if verdict else ""
        return found

    # listing

    def _list(
        self,
        path: str,
        fd: int,
        status: os.stat_result,
        key: Key,
        outer: Rules,
        context: str,
        old: Folder | None,
        now: int,
    ) -> tuple[Folder, Rules, dict[str, str]] | None:
        self._has_lost = self._has_lost or self._may_have_lost(status)
        with os.scandir(fd) as entries:
            found = sorted(entries, key=_name)  # `Folder.place` searches by halves; the same names, the same columns
        names = {entry.name for entry in found}
        is_git = self._is_git(path, fd, names)
        if is_git and path and user_git.is_all_git(split(path)[1], names):
            return None
        (self._mixed.add if is_git else self._mixed.discard)(path)
        folder = Folder(path, key)
        folder.like_git = user_git.may_be_git_dir(names)
        folder.sources = (".gitignore" in names, ".holdfastignore" in names, ".git" in names)
        folder.trusted = not young(status, now)  # P2: a name that comes in the same clock tick would not show
        folder.extra = extras_of(fd, status, self.listing.owner)
        folder.context = context
        rules = self._rules_of(path, fd, outer, *folder.sources) if any(folder.sources) else outer
        folder.rules = rules.digest
        judge = Judge(self, folder, rules, fd, old, now, names, is_git=is_git)
        for entry in found:
            with contextlib.suppress(FileNotFoundError):  # gone since the folder was listed
                judge.add(entry.name, entry.stat(follow_symlinks=False))
        folder.rows = columns(judge.rows)
        folder.count_ignored()
        return folder, rules, judge.contexts

    def _may_have_lost(self, status: os.stat_result) -> bool:
        """Whether anything may have left a folder with this status since the scan began.

        If the clock was set back meanwhile, or is not the one that stamps files, the times of what changed since may be
        earlier than that.
        """
        is_ours = self._clocks.get(status.st_dev)
        if is_ours is None:
            is_ours = self._clocks[status.st_dev] = has_our_clock(os.fsencode(self._root), status.st_dev)
        if not is_ours:
            return True
        return bool(young(status, min(self._since.file_ns, self.began_ns))) or self._since.is_doubtful(self._clock)

    def _rules_of(self, path: str, fd: int, outer: Rules, gitignore: bool, holdfastignore: bool, git: bool) -> Rules:
        where = user_git.git_dir(self._root / path) if git else None
        exclude = user_git.info_exclude(where) if where else None
        if where:
            self.listing.repositories[path] = exclude or b""
        if git:
            inside = f"{self._root}/"
            named = user_git.named_folders(self._root / path)
            self._named |= {each.removeprefix(inside) for each in named if each.startswith(inside)}
        rules = self.listing.rules[path] = outer.inside(
            path,
            gitignore=self._ignore_file(path, fd, ".gitignore") if gitignore else None,
            holdfastignore=self._ignore_file(path, fd, ".holdfastignore") if holdfastignore else None,
            repository=where is not None,
            info_exclude=exclude,
        )
        return rules

    def _ignore_file(self, path: str, fd: int, name: str) -> bytes | None:
        """The text of an ignore file. A link, a folder, an unreadable or an oversized one has no rules, as in git."""
        try:
            return durable.read_file(name, max_bytes=MAX_IGNORE_BYTES, dir_fd=fd, follow_links=False)
        except OSError as error:
            if error.errno in (*SHORTAGES, errno.EIO):
                raise  # P4: without its rules, other files would be saved than the user expects
            if error.errno == errno.EFBIG:
                self.listing.oversized_rules.append(join(path, name))
            return None

    # git directories

    def _is_git(self, path: str, fd: int, names: Set[str]) -> bool:
        return user_git.may_be_git_dir(names) and user_git.is_git_dir(fd, named=path in self._named)

    def _is_git_at(self, path: str, *, alone: bool) -> bool:
        """Whether a folder is a git directory now; `alone`: with nothing of a project in it."""
        try:
            fd = self._handles.open(path)
            names = set(os.listdir(fd))
            return self._is_git(path, fd, names) and (not alone or user_git.is_all_git(split(path)[1], names))
        except OSError as error:
            if error.errno in SHORTAGES:
                raise  # P6: unknown is not "no"
            return False

    def _met_too_early(self) -> bool:
        """Whether a git directory was taken for a project folder before the `.git` that points to it was read (P6)."""
        early = [path for path in self._named - self._mixed if path in self.listing.folders]
        return any(self._is_git_at(path, alone=False) for path in early)

    def is_small(self, fd: int, name: str) -> bool:
        """Whether an ignored folder has few enough entries to be saved."""
        return has_few_entries(fd, name, self.limits.folder_max_entries)

    # what cannot be entered

    def _leave_out(self, path: str, reason: Reason, detail: str) -> None:
        if not path:
            raise Unavailable(f"{self._root} cannot be read: {detail}", hint="Check its permissions.")
        name = split(path)[1]
        parent = self._change_parent(path)
        parent.skipped[name] = (reason, detail)
        if reason is Reason.GIT_DIRECTORY:  # checked again in each scan, whatever its size
            parent.probes = [other for other in parent.probes if other != name]

    def _vanish(self, path: str, error: OSError) -> None:
        """A folder was removed during the walk: it is absent, unless it is the workspace itself."""
        if not path:
            raise Unavailable(f"{self._root} is gone: {error.strerror}", hint="Is its disk still there?")
        self.listing.vanished = True
        self._change_parent(path).trusted = False  # P2: it was listed a moment too early; the next scan lists it again

    def _change_parent(self, path: str) -> Folder:
        parent, _, name = path.rpartition("/")
        listing = self.listing
        folder = listing.folders[parent]
        if parent not in listing.changed:  # it is the cache's own: never change that one
            folder = folder.copy()
            listing.folders[parent] = folder
            listing.changed.add(parent)
        folder.folders = [other for other in folder.folders if other != name]
        return folder


def _is_reusable(old: Folder, context: str) -> bool:
    """Whether a folder of the cache may be used again where its status is the same."""
    # P6: whether it is a git directory depends on what its files contain, not on their names. Of a folder of which only
    # some entries are saved, which ones can change without it.
    return old.trusted and old.context == context and not old.like_git and not (context and is_partly(context))


def _has_plain_numbers(old: Folder) -> bool:
    """Whether all numbers of a folder fit into the columns that the sweep compared."""
    return old.stored is not None and not old.stored.far


def _is_of(swept: CachedFolders, status: os.stat_result) -> bool:
    """Whether the workspace that is open is the one that the cache is of: its path may lead to another one by now."""
    folder = swept.get("")
    return folder is not None and folder.key[:2] == (status.st_dev, status.st_ino)


def _identities(folders: Mapping[str, Folder], paths: Set[str] | None) -> Iterator[tuple[str, int, int]]:
    """Path, inode and modification time of some folders, or of all."""
    if paths is None and isinstance(folders, ScannedFolders):
        yield from folders.identities()
        return
    for path in folders if paths is None else paths:
        key = folders[path].key
        yield path, key[1], key[3]


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def mounts_below(root: bytes) -> frozenset[str]:
    """Mount points inside the workspace, also those of the same device (bind mounts)."""
    prefix = root.rstrip(b"/") + b"/"
    # Where the system does not tell, a mount of another device is still known by its number
    return frozenset(os.fsdecode(where[len(prefix) :]) for where, _, _ in platform.mounts() if where.startswith(prefix))


_OUR_CLOCK = frozenset([b"btrfs", b"overlay", b"ramfs", b"tmpfs", b"zfs", b"bcachefs", b"ubifs"])
"""Types of file systems without a device of their own whose files are stamped by this machine's kernel."""


def has_our_clock(root: bytes, device: int) -> bool:
    """Whether a folder's files are known to be stamped by the clock of this machine. On a network disk, or one that a
    virtual machine shares with its host, they are not: that clock may be behind by seconds."""
    if sys.platform != "linux":
        return False
    if os.major(device):
        return True  # a disk
    mounts, number = [*platform.mounts()], b"0:%d" % os.minor(device)
    found = [kind for _, device_number, kind in mounts if device_number == number]
    if not found:  # each subvolume of btrfs has a number of its own, which is in no list
        place = os.path.realpath(root) + b"/"
        above = [(len(where), kind) for where, _, kind in mounts if place.startswith(where.rstrip(b"/") + b"/")]
        found = [kind for length, kind in above if length == max(above)[0]]
    return bool(found) and all(kind in _OUR_CLOCK for kind in found)
