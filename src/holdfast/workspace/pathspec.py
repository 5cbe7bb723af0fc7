"""Path arguments, with the meaning of git's pathspecs: parsing them, and which paths they select.

A path means itself and everything below it. In a pattern, `*`, `?` and `[…]` match any characters, slashes too, so that
`*.env` is found in every folder; a pattern has to match a whole path, and a backslash takes away the meaning of the
next character. `:(glob)`, `:(literal)`, `:(icase)`, `:(exclude)` (`:!`, `:^`) and `:(top)` (`:/`) are as in git; its
other magic is refused. A path that exists exactly as it is written is no pattern.
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import NotFound, Refused
from holdfast.validation import check_path

Paths = Sequence[str | os.PathLike[str]]

_WILD = re.compile(r"[*?\[\\]")
_SHORT = {"/": "top", "!": "exclude", "^": "exclude"}
_MAGIC = frozenset(["top", "literal", "icase", "glob", "exclude"])
_SHORT_UNKNOWN = frozenset("\"#%&',-:;<=>@_`~")  # git reserves them
_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": r"\x21-\x7e", "lower": "a-z", "print": r"\x20-\x7e", "punct": r"!-/:-@\[-`{-~", "space": r"\s",
    "upper": "A-Z", "xdigit": "0-9a-fA-F",
}  # fmt: skip


class _Spec(NamedTuple):
    """One parsed pathspec."""

    given: str
    path: str
    """As a literal path; empty for the workspace itself."""
    below_only: bool
    """Written with a slash at its end: a folder, never a file."""
    pattern: re.Pattern[str] | None
    is_open: bool
    """The pattern ends in a star that matches slashes: if it matches a folder, then all that is below it too."""
    ignore_case: bool
    exclude: bool

    def has(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether it selects a file, or with `is_folder` a folder and everything in it."""
        own, asked = (self.path.lower(), path.lower()) if self.ignore_case else (self.path, path)
        if not own or asked.startswith(f"{own}/") or (asked == own and (is_folder or not self.below_only)):
            return True
        if self.pattern is None or (is_folder and not self.is_open):
            return False
        return self.pattern.match(path) is not None

    def may_hold(self, folder: str) -> bool:
        """Whether it can select anything below a folder."""
        return (
            self.pattern is not None
            or self.ignore_case
            or not self.path
            or f"{folder}/".startswith(f"{self.path}/")
            or self.path.startswith(f"{folder}/")
        )


class Scope:
    """Everything, or what some pathspecs select. `path in scope` asks for a file; `has_folder` for a whole folder."""

    def __init__(self, paths: Sequence[str] | None, *, specs: Sequence[_Spec] | None = None) -> None:
        """`paths`: literal paths; None for everything. `specs`: parsed ones instead."""
        if specs is None:
            specs = [_Spec(path, path, False, None, False, False, False) for path in paths or ()]
        self._everything = paths is None
        self._chosen = [each for each in specs if not each.exclude]
        self._excluded = [each for each in specs if each.exclude]
        if self._excluded and not self._chosen:  # as git: everything but that
            self._chosen = [_Spec("", "", False, None, False, False, False)]
        self.paths = None if paths is None else tuple(each.path for each in self._chosen)
        """The selected paths, each taken literally."""
        self.given = None if paths is None else tuple(paths)
        self._seen: set[str] = set()

    def __contains__(self, path: str) -> bool:
        if self._everything:
            return True
        return any(each.has(path) for each in self._chosen) and not any(each.has(path) for each in self._excluded)

    def selects(self, path: str, *, is_folder: bool) -> bool:
        """Whether a file, or a folder with everything in it, is selected."""
        return self.has_folder(path) if is_folder else path in self

    def has_folder(self, path: str) -> bool:
        """Whether a folder is selected with everything in it."""
        if self._everything:
            return True
        if any(each.has(path, is_folder=True) or each.may_hold(path) for each in self._excluded):
            return False
        return any(each.has(path, is_folder=True) for each in self._chosen)

    def may_hold(self, folder: str) -> bool:
        """Whether anything below a folder can be selected."""
        return self._everything or not folder or any(each.may_hold(folder) for each in self._chosen)

    def see(self, path: str, *, is_folder: bool = False) -> None:
        """Note that a path exists somewhere, for `unmatched`."""
        for each in self._chosen:
            if each.given not in self._seen and each.has(path, is_folder=is_folder):
                self._seen.add(each.given)

    @property
    def unmatched(self) -> list[str]:
        """The pathspecs that select none of the paths seen."""
        return [each.given for each in self._chosen if each.given not in self._seen and each.path]


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
    """Parse pathspecs, relative to the workspace or absolute inside it.

    NotFound for one that selects nothing; Refused for one outside.
    """
    if paths is None:
        return Scope(None)
    specs = [_parse(f"./{each}" if is_at_home(each) and exists(each) else each, root, exists) for each in paths]
    for each in specs:
        if each.exclude or exists(each.path):
            continue
        if (each.pattern is None and not each.ignore_case) or not any(map(each.has, every_path())):
            what = "matches nothing in the checkpoint or" if each.pattern else "is neither in the checkpoint nor"
            raise NotFound(f"{each.given} {what} in the folder", hint="Check its spelling.")
    return Scope(paths, specs=specs)


def open_scope(paths: Sequence[str] | None, root: Path, exists: Callable[[str], bool] = lambda _: False) -> Scope:
    """Parse pathspecs that need not match now: `see` the paths there are, and ask for the `unmatched`."""
    return Scope(paths, specs=None if paths is None else [_parse(given, root, exists) for given in paths])


def check_matched(scope: Scope) -> None:
    """Raise NotFound for a pathspec that selects none of the paths seen in any checkpoint."""
    if unmatched := scope.unmatched:
        raise NotFound(f"no checkpoint contains {' or '.join(unmatched)}", hint="Check its spelling.")


def literal(path: str) -> str:
    """Return the pathspec that means exactly this path and what is below it."""
    return f":(literal){path}" if path.startswith(":") or _WILD.search(path) else path


def from_folder(given: str, folder: str) -> str:
    """Return a pathspec, meant from a subfolder of the workspace, as one from its top; `:/` is from the top already."""
    if not given or os.path.isabs(given) or is_at_home(given):
        return given  # an empty one is for the library to refuse
    magic, path = _split(given)
    if "top" in magic or not folder or folder == ".":
        return _joined(magic - {"top"}, path or ".")
    is_below = path.endswith(("/", "/."))
    joined = posixpath.normpath(posixpath.join(folder, path))
    if "literal" not in magic and _WILD.search(folder) and not joined.startswith("../"):
        rest = posixpath.relpath(joined, folder)  # the folder's own name is no pattern
        if _WILD.search(rest) and not rest.startswith(".."):
            joined = posixpath.join(re.sub(r"([*?\[\\])", r"\\\1", folder), rest)
        else:
            magic = (magic - {"glob"}) | {"literal"}
    return _joined(magic, f"{joined}/" if is_below and joined != "." else joined)


def relative(given: str, root: Path, exists: Callable[[str], bool] = lambda _: False) -> str:
    """Return a pathspec relative to the workspace, which keeps its meaning if the folder moves. Refused for one
    outside."""
    if (known := _as_it_is(given, root, exists)) is not None:
        return literal(known)  # also once it is gone
    magic, path = _split(given)
    inner = inside(path or ".", root)
    return _joined(magic - {"top"}, f"{inner}/" if inner and path.endswith("/") else inner or ".")


def inside(path: str, root: Path) -> str:
    """Return a path relative to the workspace. Refused for one outside."""
    if not path:
        raise Refused("a path is empty", hint="Name a path, or leave paths out for everything.")
    given = path
    if is_at_home(path) and not os.path.lexists(os.path.join(root, "~")):
        path = os.path.expanduser(path)
    if os.path.isabs(path):
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        path = os.path.relpath(real, root)
    path = os.path.normpath(path)
    if path == ".." or path.startswith("../"):
        raise Refused(f"{given!r} is outside the workspace", hint="Name a path inside it.")
    return "" if path == "." else path


def is_at_home(path: str) -> bool:
    """Whether a path begins with `~`: the home folder, unless the workspace has something of that name."""
    return path == "~" or path.startswith("~/")


def _as_it_is(given: str, root: Path, exists: Callable[[str], bool]) -> str | None:
    """The path of exactly this name, if there is one: `app/[id]/page.tsx` is no pattern then. Here we are more careful
    than git, because what it matches besides would be restored or purged without being asked for (P1)."""
    if not given.startswith(":") and not _WILD.search(given):
        return None
    try:
        path = inside(given, root)
    except Refused:
        return None
    return path if path and exists(path) else None


def _parse(given: str, root: Path, exists: Callable[[str], bool]) -> _Spec:
    if (known := _as_it_is(given, root, exists)) is not None:
        return _Spec(given, known, given.endswith("/"), None, False, False, False)
    magic, rest = _split(given) if given else (frozenset[str](), "")
    path = inside(rest if rest or not given else ".", root)
    is_below = rest.endswith("/") and bool(path)
    pattern = None
    text = f"{path}/" if is_below else path
    if "literal" not in magic and _WILD.search(path):
        pattern = _compiled(text, whole_folders="glob" in magic, ignore_case="icase" in magic)
    ends = re.search(r"(?:^|[^\\])(?:\\\\)*(\*+)\Z", text)
    is_open = pattern is not None and ends is not None
    if is_open and "glob" in magic:
        is_open = text == "**" or text.endswith("/**")
    return _Spec(given, path, is_below, pattern, is_open, "icase" in magic, "exclude" in magic)


def _split(given: str) -> tuple[frozenset[str], str]:
    """Split the magic words from the path of a pathspec. Refused for magic that is not known here."""
    if not given.startswith(":") or given == ":":
        return frozenset(), "." if given == ":" else given
    if given.startswith(":("):
        words, closed, path = given[2:].partition(")")
        magic = frozenset(filter(None, words.split(",")))
        if not closed:
            raise Refused(f"{given!r} has no closing parenthesis", hint="Write it as in :(glob)src/**/*.py")
        unknown = magic - _MAGIC
    else:
        end = 1
        while end < len(given) and given[end] in _SHORT:
            end += 1
        magic = frozenset(_SHORT[each] for each in given[1:end])
        unknown = frozenset(given[end : end + 1]) & (_SHORT_UNKNOWN - {":"})
        path = given[end + 1 :] if given[end : end + 1] == ":" else given[end:]
    if unknown:
        raise Refused(
            f"{given!r} has unknown magic {', '.join(sorted(unknown))!r}",
            hint="Known are top, literal, icase, glob and exclude; a file whose name begins with : is written ./:name.",
        )
    if {"literal", "glob"} <= magic:
        raise Refused(f"{given!r} is literal and a glob", hint="Leave out one of them.")
    return magic, path


def _joined(magic: frozenset[str], path: str) -> str:
    if magic:
        return f":({','.join(sorted(magic))}){path}"
    return f"./{path}" if path.startswith(":") else path


def _compiled(pattern: str, *, whole_folders: bool, ignore_case: bool) -> re.Pattern[str] | None:
    """Compile a pattern as git's wildmatch reads it; None if it can match nothing, as `a[`.

    whole_folders: `*` stays within a folder, and `**` stands for any number of whole folders.
    """
    flags = re.DOTALL | ((re.IGNORECASE | re.ASCII) if ignore_case else 0)
    any_one = "[^/]" if whole_folders else "."
    parts: list[str] = [""]
    """Between stars. Each star but the last takes as little as it can and is never asked again, so that a pattern of
    many stars cannot take for ever."""
    stars: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            end, is_folders = _stars(pattern, at)
            is_folders = is_folders and whole_folders
            if is_folders and end < len(pattern):
                parts[-1] += "(?:.*/)?"
                end += 1
            else:
                stars.append(".*" if is_folders or not whole_folders else "[^/]*")
                parts.append("")
            at = end
        elif char == "?":
            parts[-1] += any_one
            at += 1
        elif char == "[":
            one_of, at = _one_of(pattern, at)
            if one_of is None:
                return None
            parts[-1] += ("(?!/)" if whole_folders else "") + one_of
        elif char == "\\":
            if at + 1 == len(pattern):
                return None
            parts[-1] += re.escape(pattern[at + 1])
            at += 2
        else:
            parts[-1] += re.escape(char)
            at += 1
    text = parts[0]
    for number, (star, part) in enumerate(zip(stars, parts[1:], strict=True), 1):
        is_simple = number < len(stars) and "(?:.*/)?" not in "".join(parts)
        text += f"(?>{star}?{part})" if is_simple else f"{star}{part}"
    try:
        return re.compile(f"(?:{text})\\Z", flags)
    except re.error:
        return None


def _stars(pattern: str, at: int) -> tuple[int, bool]:
    """Where a row of stars ends, and whether it is `**` between slashes, which stands for whole folders."""
    end = len(pattern) - len(pattern[at:].lstrip("*"))
    is_alone = (at == 0 or pattern[at - 1] == "/") and (end == len(pattern) or pattern[end] == "/")
    return end, is_alone and end - at >= 2


def _one_of(pattern: str, at: int) -> tuple[str | None, int]:
    """Translate the `[…]` that begins here, and return where it ends; None if it does not end, or is not valid."""
    end = at + 1
    negated = pattern[end : end + 1] in ("!", "^")
    end += negated
    members: list[str] = []
    first = end
    while True:
        char = pattern[end : end + 1]
        if not char:
            return None, end
        if char == "]" and end > first:
            break
        if char == "[" and pattern[end + 1 : end + 2] == ":":
            close = pattern.find(":]", end + 2)
            name = pattern[end + 2 : close] if close >= 0 else ""
            if name not in _CLASSES:
                return None, end
            members.append(_CLASSES[name])
            end = close + 2
            continue
        low, end = _character(pattern, end)
        if pattern[end : end + 1] == "-" and pattern[end + 1 : end + 2] not in ("", "]"):
            high, end = _character(pattern, end + 1)
            if high >= low:
                members.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            members.append(re.escape(low))
    if not members:
        return ("." if negated else "(?!)"), end + 1
    return f"[{'^' if negated else ''}{''.join(members)}]", end + 1


def _character(pattern: str, at: int) -> tuple[str, int]:
    """A character of a `[…]`, and where the next begins."""
    if pattern[at] == "\\" and at + 1 < len(pattern):
        return pattern[at + 1], at + 2
    return pattern[at], at + 1
