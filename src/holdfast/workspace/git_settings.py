"""Which settings of a recorded git configuration come back with a removed repository: those that cannot run a program.

A store may be foreign or crafted (P7), and many settings name a program that git runs at the next command. So only what
is listed here comes back; everything else, what newer versions of git have included, stays in a file that git does not
read. Git itself reads the recorded file, so nothing depends on a second parser.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from holdfast.git_program import run_git

_KEPT = frozenset({
    "core.repositoryformatversion", "core.bare", "core.filemode", "core.ignorecase", "core.precomposeunicode",
    "core.symlinks",
    "core.logallrefupdates", "core.autocrlf", "core.eol", "core.safecrlf", "core.quotepath", "core.abbrev",
    "core.splitindex",
    "core.untrackedcache", "core.sparsecheckout", "core.sparsecheckoutcone", "core.bigfilethreshold",
    "core.commitgraph",
    "extensions.objectformat", "extensions.worktreeconfig", "extensions.preciousobjects",
    "index.sparse", "index.version", "index.threads", "index.skiphash",
    "user.name", "user.email", "author.name", "author.email", "committer.name", "committer.email",
    "pull.rebase", "pull.ff", "push.default", "push.autosetupremote", "push.followtags", "fetch.prune",
    "fetch.prunetags",
    "merge.ff", "merge.conflictstyle", "rebase.autostash", "rebase.autosquash", "rerere.enabled",
    "init.defaultbranch",
    "diff.renames", "diff.algorithm", "gc.auto", "submodule.active", "lfs.repositoryformatversion",
})  # fmt: skip
_SHARED = frozenset({"0", "1", "false", "true", "umask", "group"})  # not: writable for everybody
_OF_REMOTE = frozenset({"url", "pushurl", "fetch", "promisor", "partialclonefilter", "tagopt", "prune"})
_OF_BRANCH = frozenset({"merge", "rebase", "description"})
_URLS = frozenset({"url", "pushurl"})
_SCHEMES = frozenset({"https", "http", "ssh", "git"})
_SCP = re.compile(r"(?:[\w.+~][\w.+~-]*@)?[\w.][\w.-]*:(?!:)[^-].*")
_LINE_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"})


class Setting(NamedTuple):
    """A setting of a git configuration, as git names it: section and name in lower case."""

    section: str
    subsection: str | None
    name: str
    value: str | None
    """None if the line has only a name, which means true."""

    @property
    def key(self) -> str:
        return ".".join(part for part in (self.section, self.subsection, self.name) if part is not None)


def read_settings(program: str, git: Path, file: Path) -> list[Setting] | None:
    """Have git read a configuration file, without the files that it includes; None if git cannot read it."""
    command = ("config", "--file", os.path.abspath(file), "--no-includes", "--null", "--list")
    done = run_git(program, command, git_dir=git)
    if done.code:
        return None
    return [_setting(row) for row in os.fsdecode(done.output).split("\0") if row]


def split_settings(settings: Iterable[Setting], work_tree: Path) -> tuple[list[Setting], list[Setting]]:
    """Return the settings that can run nothing, and the others."""
    settings = list(settings)
    urls: dict[str, list[str]] = {}
    for each in settings:
        if each.section == "remote" and each.name in _URLS:
            urls.setdefault(each.subsection or "", []).append(each.value or "")
    remotes = {  # git takes the name of a remote without a URL for the URL
        name for name, found in urls.items() if _is_name(name) and all(is_safe_url(url, work_tree) for url in found)
    }
    remotes -= {each.subsection for each in settings if each.section == "remote" and each.name == "vcs"}
    kept: list[Setting] = []
    others: list[Setting] = []
    for each in settings:
        (kept if _is_kept(each, remotes, work_tree) else others).append(each)
    return kept, others


def write_settings(settings: Iterable[Setting]) -> bytes:
    """Return a configuration file from which git reads these settings, in this order."""
    return os.fsencode("".join(_lines(settings)))


def is_safe_url(url: str, work_tree: Path) -> bool:
    """Whether git runs nothing but its own programs and ssh for a URL. A repository in the work tree has hooks."""
    if url.startswith("-") or not url.isprintable():
        return False
    if os.path.isabs(url):
        return _is_outside(url, work_tree)
    try:
        parts = urlsplit(url)
        if url.startswith("file:///"):
            return _is_outside(unquote(parts.path), work_tree) and _is_outside(parts.path, work_tree)
        if "://" in url:
            host = (parts.hostname or "-").lstrip("[")
            user = unquote(parts.username or "")
            return parts.scheme in _SCHEMES and not unquote(host).startswith("-") and not user.startswith("-")
    except ValueError:
        return False
    return _SCP.fullmatch(url) is not None


def _setting(row: str) -> Setting:
    key, has_value, value = row.partition("\n")
    section, _, rest = key.partition(".")
    subsection, has_subsection, name = rest.rpartition(".")
    return Setting(section, subsection if has_subsection else None, name, value if has_value else None)


def _is_kept(each: Setting, remotes: set[str], work_tree: Path) -> bool:
    value = each.value or ""
    if each.subsection is None:
        if each.key == "core.sharedrepository":
            return value in _SHARED
        if each.key == "extensions.partialclone":
            return value in remotes
        return each.key in _KEPT
    if each.section == "remote":
        return each.name in _OF_REMOTE and each.subsection in remotes
    if each.section == "branch":
        if each.name in ("remote", "pushremote"):  # may be a URL
            return value == "." or value in remotes
        return each.name in _OF_BRANCH
    if each.section == "submodule" and _is_name(each.subsection):
        return each.name == "active" or (each.name == "url" and is_safe_url(value, work_tree))
    return False


def _is_name(name: str) -> bool:
    """Whether a name of a remote or a submodule is neither an option, a URL nor a way out of a folder."""
    return bool(name) and name.isprintable() and name[0] not in "-/" and ":" not in name and ".." not in name.split("/")


def _is_outside(path: str, work_tree: Path) -> bool:
    """Whether a path is outside of the work tree, whichever process asks."""
    whole = os.path.realpath(path)
    top = os.path.realpath(work_tree)
    named = os.path.normpath(path)
    is_per_process = any(f"{each}/".startswith(("/proc/", "/dev/", "//")) for each in (whole, named))
    return not is_per_process and f"{whole}/" != f"{top}/" and not f"{whole}/".startswith(f"{top}/")


def _lines(settings: Iterable[Setting]) -> Iterator[str]:
    above: tuple[str, str | None] | None = None
    for each in settings:
        if (each.section, each.subsection) != above:
            above = each.section, each.subsection
            quoted = (each.subsection or "").replace("\\", "\\\\").replace('"', '\\"')
            yield f"[{each.section}]\n" if each.subsection is None else f'[{each.section} "{quoted}"]\n'
        value = "" if each.value is None else f' = "{each.value.translate(_LINE_ESCAPES)}"'
        yield f"\t{each.name}{value}\n"
