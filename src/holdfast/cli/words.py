"""Telling checkpoints from paths among the words of a command, as git does.

`--` is needed only where a word is both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast.errors import HoldfastError, NotFound, Refused
from holdfast.workspace.stored.ids import looks_like_id

if TYPE_CHECKING:
    from holdfast.cli.context import App
    from holdfast.workspace import Workspace
    from holdfast.workspace.stored.files import StoredPath

_RANGE = ".."
_AT = "@"
_FROM_HERE = ("./", "../")
_OF_PATHS = frozenset("/*?[")


def refs_and_paths(
    app: App, workspace: Workspace, words: Sequence[str], after_dashes: Sequence[str] | None, *, most: int
) -> tuple[list[str], list[str]]:
    """Split words into at most `most` references and the paths that follow them. A range `A..B` is two references.

    A usage error for a word that is both, if there is no `--`, and for a reference too many.
    """
    refs: list[str] = []
    for at, word in enumerate(words):
        ends = _ends(workspace, word)
        is_path = _is_path(app, word)
        if ends and is_path and after_dashes is None:
            raise click.UsageError(
                f"{word!r} is a checkpoint and a path; put -- before the path, or after the checkpoint"
            )
        if not ends and after_dashes is None:
            return refs, [*words[at:]]
        refs += ends or [word]  # with dashes it is a reference, and not found
        if len(refs) > most:
            raise click.UsageError(f"got unexpected extra argument ({word})")
    return refs, [*(after_dashes or ())]


def unknown_word(app: App, workspace: Workspace, paths: Sequence[str], error: NotFound) -> HoldfastError:
    """The error for a path that no checkpoint has: if it was rather meant as a checkpoint, that there is none."""
    first = paths[0] if paths else ""
    if not first or _is_path(app, first) or set(first) & _OF_PATHS:
        return error
    before, dots, after = first.partition(_RANGE)
    ends = [each for each in (before, after) if each]
    is_range = dots and any(_is_ref(workspace, each) for each in ends)
    if is_range and after.startswith("."):
        return NotFound(f"{first!r:.100} is neither a checkpoint nor a path", hint="A range has two dots: A..B.")
    try:
        for each in ends if is_range else [first]:
            workspace.get(each)
    except NotFound as unknown:
        if is_range or first.startswith((_AT, "latest")) or looks_like_id(first):
            return unknown
        return NotFound(
            f"{first!r:.100} is neither a checkpoint nor a path", hint=unknown.advice, remedy=unknown.remedy
        )
    return error


def files(app: App, workspace: Workspace, words: Sequence[str], after_dashes: Sequence[str]) -> list[tuple[str, str]]:
    """Read `REF:PATH…`, `REF PATH…` and `PATH…` (of the latest checkpoint): pairs of a reference and a path.

    A path after a colon is meant from the workspace, as git's is, unless it begins with `./` or `../`.
    """
    found: list[tuple[str, str]] = []
    ref = "latest"
    for at, word in enumerate(words):
        before, path = _split(workspace, word)
        if not word or (_is_time(workspace, before) and not _is_path(app, word)):
            workspace.get(before)  # NotFound
        if at == 0 and _is_ref(workspace, word):
            ref = word
        elif path and _is_ref(workspace, before or "latest"):
            here = app.paths(workspace, [path]) if path.startswith(_FROM_HERE) else [path]
            found += [(before or "latest", each) for each in here or ()]
        else:
            found += [(ref, each) for each in app.paths(workspace, [word]) or ()]
    return found + [(ref, each) for each in app.paths(workspace, after_dashes) or ()]


def stored_files(app: App, workspace: Workspace, words: Sequence[str], after_dashes: Sequence[str]) -> list[StoredPath]:
    """Find what `files` reads, each path in its checkpoint."""
    try:
        return [workspace.file(ref, path) for ref, path in files(app, workspace, words, after_dashes)]
    except NotFound as error:
        for word in words:
            before, path = _split(workspace, word)
            if before and path and not _is_path(app, word):
                workspace.get(before)  # NotFound: it is the checkpoint that is not there
        first = [word for word in words[:1] if ":" not in word and not _is_ref(workspace, word)]
        raise unknown_word(app, workspace, first, error) from None


def _split(workspace: Workspace, word: str) -> tuple[str, str]:
    """Split `REF:PATH`. A time may contain colons itself: `@14:05`, `@14:05:notes.txt`."""
    for at in range(len(word), 0, -1):
        if (at == len(word) or word[at] == ":") and _is_time(workspace, word[:at]):
            return word[:at], word[at + 1 :]
    before, _, path = word.partition(":")
    return before, path


def _is_time(workspace: Workspace, word: str) -> bool:
    if not word.startswith(_AT):
        return False
    try:
        workspace.parse_time(word.removeprefix(_AT))
    except Refused:
        return False
    return True


def _ends(workspace: Workspace, word: str) -> list[str]:
    """The references of a word: one, or the two of a range; none if it is no reference."""
    if _is_ref(workspace, word):
        return [word]
    first, dots, last = word.partition(_RANGE)
    if dots and (first or last) and not last.startswith((".", "/")):
        ends = [first or "latest", last or "latest"]
        if all(_is_ref(workspace, each) for each in ends):
            return ends
    return []


def _is_ref(workspace: Workspace, word: str) -> bool:
    try:
        workspace.get(word)
    except NotFound:
        return False
    except HoldfastError:  # ambiguous: the command that uses it says so
        return True
    return True


def _is_path(app: App, word: str) -> bool:
    return os.path.lexists(os.path.join(app.directory or "", word))
