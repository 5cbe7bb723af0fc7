"""The user's own git: where a repository keeps its data, what its settings exclude, which files it tracks.

Everything here only reads (P6), needs no git program, and returns nothing for what it cannot read. Not
supported: `includeIf`, `config.worktree`, `~user/` and settings from the environment or a command line.
"""

from __future__ import annotations

import os
import re
import stat
import time
from bisect import bisect_left
from pathlib import Path

from holdfast import durable
from holdfast.scan.dir_handles import upwards
from holdfast.scan.ignore import MAX_IGNORE_BYTES, Around
from holdfast.scan.sweep import native

_MOST_INDEX_BYTES = 1 << 30

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Set

MAX_INCLUDE_DEPTH = 5
MAX_CONFIG_FILES = 64
"""At most this many configuration files that include each other are read."""

RACY_NS = 50_000_000
"""A file that changed this shortly before it was read may change again without new times."""

_SYSTEM_CONFIG = Path("/etc/gitconfig")


def git_dir(folder: Path) -> Path | None:
    """Return where the repository rooted at `folder` keeps its data: `.git`, or what a `.git` file names."""
    place = _named_dir(folder)
    if place is None:
        return None
    shared = common_dir(place)
    is_one = os.path.lexists(place / "HEAD") and _is_folder(shared / "objects") and _is_folder(shared / "refs")
    return place if is_one else None


def git_program(environ: Mapping[str, str]) -> str | None:
    """Return the git program in `PATH`. Only whole paths count there: `.` is whatever folder is worked in (P7)."""
    import shutil  # start-up cost, for who runs git

    places = environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which("git", path=os.pathsep.join(filter(os.path.isabs, places)))


def _named_dir(folder: Path) -> Path | None:
    place = folder / ".git"
    if _is_folder(place):
        return place
    text = _content(place)
    if text is None or not text.startswith(b"gitdir: "):
        return None
    return folder / os.fsdecode(text[8:].rstrip(b"\r\n"))


def common_dir(git: Path) -> Path:
    """Return the folder that a linked worktree's git directory shares with its repository; else `git` itself."""
    text = _content(git / "commondir")
    if text is None or b"\0" in text:
        return git
    return git / os.fsdecode(text.rstrip(b"\r\n"))


def info_exclude(git: Path) -> bytes:
    """Return the content of a repository's own exclude file, given its git directory."""
    return _content(common_dir(git) / "info" / "exclude") or b""


def repository_of(folder: Path) -> Path | None:
    """Return the root of the repository that a folder is in; None if there is none, or it belongs to another user.

    Like git, this looks no further than the folder's own file system.
    """
    start = os.stat(folder)
    for place in (folder, *folder.parents):
        try:
            status = os.stat(place)
        except OSError:
            return None
        if status.st_dev != start.st_dev:
            return None
        if git_dir(place) is not None:
            return place if status.st_uid in (start.st_uid, os.geteuid()) else None
    return None


def rules_around(repository: Path, folder: Path) -> Around:
    """Return the rules of a repository that apply in a folder of it."""
    git = git_dir(repository)
    path = os.fspath(folder.relative_to(repository))
    above = ("", *upwards(path.rpartition("/")[0]))
    files = {place: repository / place / ".gitignore" for place in above}
    texts = {place: _content(file) or b"" for place, file in files.items() if not file.is_symlink()}  # as git reads it
    return Around(path, gitignores=texts, info_exclude=info_exclude(git) if git else b"")


def excludes_file(home: Path, config_home: Path, repository: Path | None, *, system: Path = _SYSTEM_CONFIG) -> bytes:
    """Return the content of the user's exclude file: what `core.excludesFile` names, else `git/ignore`.

    repository: the root of the repository whose own settings count as well, if it is one.
    """
    places = [system, config_home / "git" / "config", home / ".gitconfig"]
    git = git_dir(repository) if repository is not None else None
    if git is not None:
        places.append(common_dir(git) / "config")
    config = _Config(home)
    chosen = [value for place in places for value in config.values(place, "core.excludesfile")]
    if not chosen:
        return _content(config_home / "git" / "ignore") or b""
    path = config.expanded(chosen[-1])
    if not path.is_absolute():
        if repository is None:
            return b""
        path = repository / path
    return _content(path) or b""


def own_settings(git: Path) -> dict[str, str]:
    """Return the settings of a repository's own configuration file, by lower-case key; includes are not followed."""
    return dict(_settings(os.fsdecode(_content(common_dir(git) / "config") or b"")))


class Tracked:
    """What a repository's index tracks. The index is read on the first question that `memo` cannot answer.

    memo, memo_key: the answers of an earlier `Tracked` and its key; they count while the index is the same. Paths are
    relative to the repository's root.
    """

    def __init__(
        self, git: Path, memo: dict[str, bool] | None, memo_key: bytes, *, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._git = git
        self._clock = clock
        self._key = self._stat_key()
        self._memo = dict(memo) if memo and memo_key and memo_key == self._key else {}
        self._names: list[bytes] | None = None

    @property
    def key(self) -> bytes:
        """Names the state of the index that the answers hold for; empty, which never counts, where that is unsure."""
        return self._key

    @property
    def memo(self) -> dict[str, bool]:
        """All answers so far: of files by path, of folders by path and a slash."""
        return self._memo

    def file(self, path: str) -> bool:
        """Whether this very path is tracked."""
        return self._answer(path)

    def folder(self, path: str) -> bool:
        """Whether anything below this folder is tracked, or the folder itself as a submodule."""
        return self._answer(path + "/")

    def _answer(self, question: str) -> bool:
        answer = self._memo.get(question)
        if answer is None:
            answer = self._memo[question] = self._look_up(os.fsencode(question))
        return answer

    def _look_up(self, question: bytes) -> bool:
        if self._names is None:
            self._names = _index_names(self._git, "index")
            if self._stat_key() != self._key:
                self._key = b""  # it was replaced in between: what was read is not what the key names
        if question == b"/":
            return bool(self._names)
        place = bisect_left(self._names, question)
        found = self._names[place] if place < len(self._names) else b""
        return found.startswith(question) if question.endswith(b"/") else found == question

    def _stat_key(self) -> bytes:
        try:
            status = os.stat(self._git / "index")
        except FileNotFoundError:
            return b"absent"
        except (OSError, ValueError):
            return b""
        if max(status.st_mtime_ns, status.st_ctime_ns) > self._clock() - RACY_NS:
            return b""
        return b"%d %d %d %d" % (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


# ---- Git directories ----

_HEAD = rb"ref:\s*refs/|[0-9a-fA-F]{40}"  # not compiled yet: start-up cost
_OWN_FILES = (
    r"(HEAD|[A-Z_]+_(HEAD|MSG|EDITMSG|MODE|RR)|AUTO_MERGE|BISECT_[A-Z_]+|NOTES_MERGE_[A-Z]+|commondir|config"
    r"|config\.worktree|description|gc\.(log|pid)|git-daemon-export-ok|gitdir|index|locked|packed-refs"
    r"|packed-refs\.new|sharedindex\..+|shallow)(\.lock)?"
)
_OWN_FOLDERS = {
    "NOTES_MERGE_WORKTREE", "annex", "hooks", "info", "lfs", "logs", "objects", "rebase-apply", "rebase-merge", "refs",
    "reftable", "rr-cache", "sequencer", "svn", "worktrees",
}  # fmt: skip
_OLD_FOLDERS = {"branches", "modules", "remotes"}
"""Seen in git directories, and common as folders of a project: what is of value in them are repositories again."""


def may_be_git_dir(names: Set[str]) -> bool:
    """Whether a folder with these names is worth asking `is_git_dir` about."""
    return {"objects", "refs"} <= names or "commondir" in names


def is_git_dir(folder: int, *, named: bool) -> bool:
    """Whether git would take the folder open at a descriptor for a repository's own folder, whatever its name is (P6).

    named: some `.git` names it. Then the folders are enough: one whose HEAD is damaged is still a repository.
    """
    try:
        common = os.fsdecode(_read_at(folder, "commondir").rstrip(b"\r\n"))
    except FileNotFoundError:
        common = "."
    except (OSError, ValueError):
        return False
    if not all(_is_folder(os.path.join(common, name), dir_fd=folder) for name in ("objects", "refs")):
        return False
    if named:
        return True
    try:
        if stat.S_ISLNK(os.stat("HEAD", dir_fd=folder, follow_symlinks=False).st_mode):
            return os.readlink("HEAD", dir_fd=folder).startswith("refs/")
        return bool(re.match(_HEAD, _read_at(folder, "HEAD")))
    except PermissionError:
        return True  # P6: in doubt, rather leave a folder out than write to a repository
    except (OSError, ValueError):
        return False


def is_all_git(name: str, names: Iterable[str]) -> bool:
    """Whether a git directory of this name contains nothing of a project, judging by the names of its entries.

    One that is hidden, or named as bare repositories are, is git's in any case. In others there may be a project:
    `git init --bare` in a folder of sources must not end their being saved.
    """
    if name.startswith(".") or name.endswith(".git"):
        return True
    return all(each in _OWN_FOLDERS | _OLD_FOLDERS or re.fullmatch(_OWN_FILES, each) for each in names)


def is_of_git(name: str, mode: int) -> bool:
    """Whether an entry of a git directory is git's own, which it reads and writes under this name."""
    if stat.S_ISDIR(mode):
        return name in _OWN_FOLDERS
    return bool(re.fullmatch(_OWN_FILES, name)) or (stat.S_ISLNK(mode) and name in _OWN_FOLDERS)


def named_folders(folder: Path) -> set[str]:
    """Return the folders, links resolved, that the `.git` of a folder names; whether they are repositories is open."""
    place = _named_dir(folder)
    if place is None:
        return set()
    return {os.path.realpath(each) for each in (place, common_dir(place))}


def _read_at(folder: int, name: str) -> bytes:
    """Read the beginning of a regular file in a folder. OSError if there is none."""
    fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(fd, 4096) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)


# ---- The index ----

_INDEX_HEADER_BYTES = 12
_read_index_names = getattr(native, "index_names", None)


def _index_names(git: Path, file: str) -> list[bytes]:
    """Return the sorted names in an index file; none where it is damaged.

    A submodule stands there twice, with and without a slash at its end, and a folder that a sparse index leaves out
    with one. Of a split index the shared file is read as well, what was since removed from it included.
    """
    data = _content(git / file, max_bytes=_MOST_INDEX_BYTES) or b""
    hash_bytes = 32 if _is_sha256(git) else 20
    try:
        names, end = _entries(data, hash_bytes)
    except (IndexError, ValueError):
        return []
    if data[end : end + 4] == b"link" and file == "index":  # always the first of the extensions
        shared = data[end + 8 : end + 8 + hash_bytes].hex()
        names += _index_names(git, f"sharedindex.{shared}")
    names.sort()
    return names


def _entries(data: bytes, hash_bytes: int) -> tuple[list[bytes], int]:
    """Read the names of an index and where its entries end. Raises IndexError or ValueError where it is damaged."""
    version = int.from_bytes(data[4:8])
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index")
    if _read_index_names is not None and version < 4 and len(data) >= _INDEX_HEADER_BYTES:
        found: tuple[list[bytes], int] = _read_index_names(data, hash_bytes)
        return found
    flags_at = 40 + hash_bytes
    names = []
    name = b""
    at = 12
    for _ in range(int.from_bytes(data[8:12])):
        is_submodule = data[at + 26] >> 4 == 0xE
        start = at + flags_at + (4 if data[at + flags_at] & 0x40 else 2)
        if version == 4:
            dropped, start = read_varint(data, start)
            if dropped > len(name):
                raise ValueError("a name is shorter than nothing")
            end = data.index(0, start)
            name = name[: len(name) - dropped] + data[start:end]
            at = end + 1
        else:
            end = data.index(0, start)
            name = data[start:end]
            at += (end - at + 8) & ~7
        if name:  # an entry of a split index that stands for one in the shared file has none
            names.append(name)
            if is_submodule:
                names.append(name + b"/")
    return names, at


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number as indexes of version 4 have it, and where it ends. IndexError if the data ends before."""
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = ((value + 1) << 7) + (data[at] & 127)
    return value, at + 1


def _is_sha256(git: Path) -> bool:
    settings = _settings(os.fsdecode(_content(common_dir(git) / "config") or b""))
    return any(name == "extensions.objectformat" and value.lower() == "sha256" for name, value in settings)


# ---- Configuration ----

_HEADER = r'\[([-.a-zA-Z0-9]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*)")?\]'
_KEY = r"([a-zA-Z][-a-zA-Z0-9]*)[ \t]*(=|$)"
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"', "\n": ""}


class _Config:
    """Reads configuration files, and those that they include."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._left = MAX_CONFIG_FILES

    def values(self, file: Path, key: str, *, depth: int = 0) -> Iterator[str]:
        """Yield the values of one setting, in order."""
        self._left -= 1
        data = _content(file) or b""
        folded = data.lower()
        if key.rpartition(".")[2].encode() not in folded and b"include" not in folded:
            return  # as most are; spares the parsing
        for name, value in _settings(os.fsdecode(data)):
            if name == key:
                yield value
            elif name == "include.path" and depth < MAX_INCLUDE_DEPTH and self._left > 0:
                yield from self.values(file.parent / self.expanded(value), key, depth=depth + 1)

    def expanded(self, path: str) -> Path:
        return self._home / path[2:] if path.startswith("~/") else Path(path)


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield each setting as (`section.key` or `section.subsection.key`, value), up to where the text makes no sense."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    header_at, key_at = re.compile(_HEADER).match, re.compile(_KEY, re.MULTILINE).match
    section = ""
    at = 0
    while at < len(text):
        if text[at] in " \t\r\n":
            at += 1
        elif text[at] in "#;":
            at = _line_end(text, at)
        elif header := header_at(text, at):
            section = header[1].lower() + ("" if header[2] is None else "." + re.sub(r"\\(.)", r"\1", header[2]))
            at = header.end()
        elif key := key_at(text, at):
            at = key.end()
            if key[2]:
                value, at = _value(text, at)
                if value is None:
                    return
                yield f"{section}.{key[1].lower()}", value
        else:
            return


def _value(text: str, at: int) -> tuple[str | None, int]:
    """Read a value and where it ends; None where it makes no sense."""
    chars: list[str] = []
    kept = 0  # what stands behind this is space at the end
    quoted = False
    while at < len(text) and text[at] != "\n":
        char = text[at]
        if char in "#;" and not quoted:
            at = _line_end(text, at)
            break
        if char == "\\":
            at += 1
            if text[at : at + 1] not in _ESCAPES:
                return None, at
            chars += _ESCAPES[text[at]]
        elif char == '"':
            quoted = not quoted
        elif quoted or chars or char not in " \t\r":
            chars.append(char)
        if quoted or char not in " \t\r":
            kept = len(chars)
        at += 1
    return (None if quoted else "".join(chars[:kept])), at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


# ---- Files ----


def _is_folder(place: str | Path, *, dir_fd: int | None = None) -> bool:
    try:
        return stat.S_ISDIR(os.stat(place, dir_fd=dir_fd).st_mode)
    except (OSError, ValueError):
        return False


def _content(place: Path, *, max_bytes: int = MAX_IGNORE_BYTES) -> bytes | None:
    """Read a regular file; None where there is none, it cannot be read or it is too large."""
    try:
        return durable.read_file(place, max_bytes=max_bytes)
    except OSError:
        return None
