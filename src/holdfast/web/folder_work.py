"""Searching and measuring a workspace, in a process that ends afterwards (`location_process`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.model import Match
from holdfast.workspace import Workspace
from holdfast.workspace.location import WorkspaceLocation

TELL_S = 0.2
"""How often, at most, it says how far it is."""


def throttled(say: Callable[..., None]) -> Callable[[str, int, int], None]:
    """Say how far the work is, but not thousands of times a second."""
    last = 0.0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done == total or now - last >= TELL_S:
            last = now
            say(progress=[stage, done, total])

    return progress


def search(workspace: Workspace, question: Mapping[str, Any], say: Callable[..., None]) -> list[Any]:
    """The matches, each as `found_in` makes it; while it goes on, what is found first."""
    found = workspace.search(
        question["text"],
        regex=question["regex"],
        ignore_case=question["ignore_case"],
        paths=[question["path"]] if question["path"] else None,
        limit=question["limit"],
        progress=throttled(say),
        found=lambda match: say(found=found_in(match)),
    )
    return [found_in(each) for each in found]


def found_in(match: Match) -> list[Any]:
    """A match with the ids of its checkpoints."""
    gone = match.disappeared_in.id if match.disappeared_in else None
    return [match.path, match.line, match.excerpt, match.first.id, match.last.id, gone, match.in_folder]


def usage(workspace: Workspace, limit: int) -> dict[str, Any]:
    """What takes space."""
    found = WorkspaceLocation(workspace).usage(limit)
    return {"fields": found.fields, "items": found.items, "more": found.more, "document": found.document}
