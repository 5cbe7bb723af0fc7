"""Path arguments: parsing them, and which paths they select."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from holdfast.errors import NotFound, Refused
from holdfast.validation import check_path

Paths = Sequence[str | os.PathLike[str]]

_GLOB = re.compile(r"[*?\[]")
_PARTS = re.compile(r"\*\*/|\*\*|\[[!^]?\]?[^\]]*\]|.", re.DOTALL)
_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Scope:
    """Everything, or some paths and what is below them."""

    def __init__(
        self,
        paths: Sequence[str] | None,
        *,
        patterns: Sequence[re.Pattern[str]] = (),
        given: Sequence[str] | None = None,
    ) -> None:
        self.paths = None if paths is None else tuple(paths)
        self.given = self.paths if given is None else tuple(given)
        self._patterns = patterns

    def __contains__(self, path: str) -> bool:
        if self.paths is None:
            return True
        for chosen in self.paths:
            if path == chosen or path.startswith(f"{chosen}/") or not chosen:
                return True
        return any(pattern.match(path) for pattern in self._patterns)

    def may_hold(self, folder: str) -> bool:
        """Whether anything below a folder can be selected."""
        if self.paths is None or self._patterns or not folder:
            return True
        return any(chosen.startswith(f"{folder}/") for chosen in self.paths) or folder in self


def as_text(paths: Paths | None) -> list[str] | None:
    """Check paths of a caller, and return them as text."""
    if isinstance(paths, str | bytes | os.PathLike):
        raise Refused("paths is a single path, not a list", hint="Give a list of paths.")
    return None if paths is None else [check_path(path, "a path") if path != "" else "" for path in paths]


def parse_scope(
    paths: Sequence[str] | None,
    root: Path,
    exists: Callable[[str], bool],
    every_path: Callable[[], Iterable[str]],
) -> Scope:
    """Parse paths: relative to the workspace or absolute inside it; a literal path wins over a glob.

    NotFound for a path that neither exists nor, as a glob, matches anything; Refused for one outside.
    """
    if paths is None:
        return Scope(None)
    literal, patterns = [], []
    for given in paths:
        path = given if _is_at_home(given) and exists(given) else inside(given, root)
        pattern = _compiled(path) if _GLOB.search(path) else None
        if exists(path):
            literal.append(path)
        elif pattern and any(map(pattern.match, every_path())):
            patterns.append(pattern)
        else:
            what = "matches nothing in the checkpoint or" if pattern else "is neither in the checkpoint nor"
            raise NotFound(f"{given} {what} in the folder", hint="Check its spelling.")
    return Scope(literal, patterns=patterns, given=paths)


def open_scope(paths: Sequence[str] | None, root: Path) -> Scope:
    """Parse paths that need not exist now: one that could be a glob counts both ways."""
    if paths is None:
        return Scope(None)
    literal = [inside(given, root) for given in paths]
    patterns = [_compiled(path) for path in literal if _GLOB.search(path)]
    return Scope(literal, patterns=[pattern for pattern in patterns if pattern], given=paths)


def inside(path: str, root: Path) -> str:
    """Return a path relative to the workspace. Refused for one outside."""
    if not path:
        raise Refused("a path is empty", hint="Name a path, or leave paths out for everything.")
    given = path
    if _is_at_home(path) and not os.path.lexists(os.path.join(root, path)):
        path = os.path.expanduser(path)
    if os.path.isabs(path):
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        path = os.path.relpath(real, root)
    path = os.path.normpath(path)
    if path == ".." or path.startswith("../"):
        raise Refused(f"{given!r} is outside the workspace", hint="Name a path inside it.")
    return "" if path == "." else path


def _is_at_home(path: str) -> bool:
    """Whether a path begins with `~`. A file of the workspace that is called so wins over the home folder."""
    return path == "~" or path.startswith("~/")


def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(_glob(pattern))
    except re.error:
        return None  # "a[" is not a glob


def _glob(pattern: str) -> str:
    """Translate a glob: `*` stays within a folder, `**` does not; what is below a match matches too."""
    found = (_WILD.get(part) or _one_of(part) or re.escape(part) for part in _PARTS.findall(pattern))
    return f"(?s:{''.join(found)})(?:/.*)?\\Z"


def _one_of(part: str) -> str | None:
    """Translate `[a-z]` and `[!a-z]`; they never match a slash."""
    if len(part) < 3:
        return None
    negated, members = ("^", part[2:-1]) if part[1] in "!^" else ("", part[1:-1])
    return f"(?!/)[{negated}{re.sub(r'([^-])', lambda match: re.escape(match[1]), members)}]"
