"""Which workspace an event is about."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.adapters.agents.event import Event
from holdfast.errors import HoldfastError
from holdfast.scan.usergit import common_dir, git_dir
from holdfast.workspace.place import store_folder


def workspaces_of(event: Event, *, cwd: str, home: Path, environ: Mapping[str, str]) -> list[Path]:
    """The folders to save, by their real paths: mostly one; several where an agent has several open at once."""
    there = [each for each in event.folders if os.path.isabs(each) and os.path.isdir(each)]  # one may be moved away
    named = [Path(os.path.realpath(each)) for each in there]
    here = _real(event.cwd or ("" if named else cwd))  # some agents run their hooks in a folder of their own
    target = _real(event.path) if os.path.isabs(event.path) else None
    inside = [folder for folder in named if here is not None and here.is_relative_to(folder)]
    if target is not None:
        inside = [folder for folder in named if target.is_relative_to(folder)] or inside
    if inside:
        return [_within(max(inside, key=lambda each: len(each.parts)), here, target)]
    if here is None or len(named) > 1:
        return list(dict.fromkeys(named))
    root = _root(here, home, environ)
    if root is None and event.cwd and not os.path.isdir(event.cwd):  # it is gone: nobody meant what is above it
        here = _real(cwd) or here
        root = _root(here, home, environ)
    return [root or (named[0] if named else here)]


def _real(path: str) -> Path | None:
    """The real path of a folder, or of the nearest that is there."""
    if not path or not os.path.isabs(path) or "\0" in path:
        return None
    real = Path(os.path.realpath(path))
    while not real.is_dir() and real != real.parent:
        real = real.parent
    return real


def _within(project: Path, here: Path | None, target: Path | None) -> Path:
    """The project, or the worktree in it that the agent is in; unless its tool is about a file that is not in there."""
    tree = _worktree(here, project) if here is not None else project
    if target is None or target.is_relative_to(tree) or not target.is_relative_to(project):
        return tree
    return _worktree(target, project)


def _worktree(here: Path, project: Path) -> Path:
    """The folder of a git worktree that lies within the project and that the agent is in, else the project."""
    for folder in (here, *here.parents):
        if folder == project:
            break
        git = git_dir(folder)
        if git is not None and common_dir(git) != git:  # which a submodule has to itself, and belongs to the project
            return folder
    return project


def _root(here: Path, home: Path, environ: Mapping[str, str]) -> Path | None:
    """The nearest folder upward, below the home folder, that has checkpoints or is a repository."""
    home = Path(os.path.realpath(home))
    upward = [here]
    for folder in here.parents:
        if folder == home or folder == folder.parent:
            break
        upward.append(folder)
    for folder in upward:
        try:
            if (store_folder(folder, store=None, environ=environ) / "HEAD").exists():
                return folder
        except HoldfastError:
            continue
        if (folder / ".git").exists():
            return folder
    return None
