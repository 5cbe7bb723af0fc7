"""Installed dependencies, which checkpoints do not contain: links to them in a folder elsewhere, and whether something
there leads back to the workspace."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast import durable

INSTALLED = frozenset(
    {
        *("node_modules", "bower_components", "jspm_packages", ".yarn"),
        *(".venv", "venv", "env", "ENV", "virtualenv", "__pypackages__", ".pixi", ".conda"),
        *("vendor", "deps", "Pods", "Carthage", ".terraform"),
    }
)
"""Folders that a package manager fills. Build folders are not among them: what was built from other sources is newer
than these, and a build tool would take it for current."""
_ENTRIES_MAX = 5000
_FILE_MAX_BYTES = 1 << 20
_QUOTED = re.compile(r"""["'](/[^"']+)["']""")


class DependencyLinks:
    """Links to the dependencies of a workspace."""

    def __init__(self, root: Path, uncovered: Iterable[str]) -> None:
        """`uncovered`: the paths that checkpoints of the folder do not contain."""
        self._root = root
        there = sorted(path for path in uncovered if path and os.path.isdir(root / path))
        self.paths = [path for path in there if _is_installed(root / path)]
        """What is linked."""
        self.others = [path for path in there if path not in self.paths and os.path.basename(path) != ".git"]
        """What is neither in checkpoints nor linked."""
        self._before = {path: _fingerprint(root / path) for path in self.paths}

    def link_into(self, folder: Path) -> None:
        """Link the dependencies into an exported folder, where that does not have them itself."""
        for path in self.paths:
            place = folder / path
            if place.parent.is_dir() and not os.path.lexists(place):
                self._link(self._root / path, place, folder)

    def changed(self) -> list[str]:
        """The linked folders that changed since: a command wrote through a link."""
        return [path for path, before in self._before.items() if _fingerprint(self._root / path) != before]

    def _link(self, real: Path, place: Path, folder: Path) -> None:
        """Link one folder. If links in it lead to other folders of the workspace (packages of a monorepo), link its
        entries one by one, and those to the same place below `folder`."""
        if not any(self._inner(each) for each in _packages(real)):
            _symlink(str(real), place)
            return
        durable.disk().mkdir(str(place))
        for each in _packages(real):
            at = place / each.relative_to(real)
            if not at.parent.is_dir():
                durable.disk().mkdir(str(at.parent))
            inner = self._inner(each)
            _symlink(str(folder / inner) if inner else str(each), at)

    def _inner(self, entry: Path) -> str:
        """Where in the workspace an entry leads, outside of all dependencies; empty if it does not."""
        if not entry.is_symlink():
            return ""
        real = os.path.realpath(entry)
        inner = os.path.relpath(real, self._root)
        if inner == "." or inner.startswith("..") or not os.path.isdir(real):
            return ""
        return "" if any(part in INSTALLED for part in inner.split("/")) else inner


def editable_paths(prefixes: Iterable[Path], root: Path) -> list[str]:
    """Return the folders of a workspace, relative to it, that Python environments import from: packages that are
    installed in editable mode. Without that, code in another folder would be tested with the workspace's own."""
    found: dict[str, None] = {}
    for prefix in prefixes:
        for site in (*prefix.glob("lib/python*/site-packages"), *prefix.glob("lib64/python*/site-packages")):
            for path in _imported_from(site):
                inner = os.path.relpath(os.path.realpath(path), root)
                if not inner.startswith("..") and os.path.isdir(path) and not _is_in_dependencies(inner):
                    found[inner] = None
    return list(found)


def python_environments(folder: Path, program: str, environ: Mapping[str, str]) -> list[Path]:
    """Return the Python environments that a program run for a workspace may use."""
    found = [each.parent for each in folder.glob("*/pyvenv.cfg")]
    found += [Path(each) for each in (environ.get("VIRTUAL_ENV"), environ.get("CONDA_PREFIX")) if each]
    for name in (program, "python", "python3"):
        if path := shutil.which(name, path=environ.get("PATH")):
            found.append(Path(os.path.dirname(os.path.dirname(os.path.abspath(path)))))
    return list(dict.fromkeys(found))


def led_to(folder: Path, root: Path, environ: Mapping[str, str], editable: Sequence[str]) -> dict[str, str]:
    """Return the variables that lead Python and Node to the files of a folder instead of the workspace's own."""
    changed = {}
    for name in ("PYTHONPATH", "NODE_PATH"):
        before = [each for each in environ.get(name, "").split(os.pathsep) if each]
        after = [_moved(each, folder, root) for each in before]
        if name == "PYTHONPATH":
            after = list(dict.fromkeys([*(str(folder / each) for each in editable), *after]))
        if after != before:
            changed[name] = os.pathsep.join(after)
    return changed


def _moved(path: str, folder: Path, root: Path) -> str:
    if not os.path.isabs(path):
        return path
    inner = os.path.relpath(os.path.realpath(path), root)
    return path if inner.startswith("..") or _is_in_dependencies(inner) else os.path.normpath(folder / inner)


def _is_in_dependencies(inner: str) -> bool:
    return any(part in INSTALLED for part in inner.split("/"))


def _imported_from(site: Path) -> Iterator[str]:
    """Yield the folders that a site-packages folder adds to the path, by any of the ways of editable installs."""
    for file in (*site.glob("*.pth"), *site.glob("*.egg-link")):
        yield from (line for line in _text(file).splitlines() if os.path.isabs(line))
    for file in site.glob("__editable__*.py"):
        yield from map(os.path.dirname, _QUOTED.findall(_text(file)))
    for file in site.glob("*.dist-info/direct_url.json"):
        try:
            said = durable.parse_json(_text(file))
            if said["dir_info"]["editable"] is True and said["url"].startswith("file:"):
                project = unquote(urlsplit(said["url"]).path)
                yield os.path.join(project, "src") if os.path.isdir(os.path.join(project, "src")) else project
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


def _text(file: Path) -> str:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read(_FILE_MAX_BYTES)
    except OSError:
        return ""


def _is_installed(path: Path) -> bool:
    return path.name in INSTALLED or (path / "pyvenv.cfg").is_file()


def _packages(folder: Path) -> Iterator[Path]:
    """The entries of a folder, and those of its scopes (`@scope/package`)."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("@") and entry.is_dir() and not entry.is_symlink():
            yield from sorted(entry.iterdir())
        else:
            yield entry


def _fingerprint(folder: Path) -> list[tuple[str, int, int]]:
    """The entries of a folder and of the folders in it, up to a limit: enough to see that something was installed."""
    found: list[tuple[str, int, int]] = []
    level = [os.fspath(folder)]
    for _ in range(2):
        below: list[str] = []
        for path in level:
            try:
                with os.scandir(path) as entries:
                    for entry in entries:
                        status = entry.stat(follow_symlinks=False)
                        found.append((entry.path, status.st_ino, status.st_mtime_ns))
                        below += [entry.path] if entry.is_dir(follow_symlinks=False) else []
            except OSError:
                continue
            if len(found) > _ENTRIES_MAX:
                return sorted(found)
        level = below
    return sorted(each for each in found if os.path.basename(each[0]) not in _CACHES)


_CACHES = frozenset({"__pycache__", ".cache", ".vite", ".package-lock.json"})


def _symlink(target: str, place: Path) -> None:
    fd = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        durable.disk().symlink(target, place.name, dir_fd=fd)
    finally:
        os.close(fd)
