"""Where the user's own git stands: the branch and the commit of HEAD. Only reads (P6), and needs no git program."""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import os
import re
from pathlib import Path
from typing import NamedTuple

from holdfast import durable
from holdfast.scan.user_git import common_dir

_HASH = rb"(?:[0-9a-f]{40}|[0-9a-f]{64})"  # not compiled yet: start-up cost
_REF = rb"ref: *(\S.*)"
_HEADS = "refs/heads/"
_LONGEST_CHAIN = 5
_MOST_BYTES = 256 << 20  # packed-refs of a repository with millions of tags
_UNDER_WAY = {  # a rebase first: while it picks or merges a commit, it is all of these
    "rebase-merge": "a rebase",
    "rebase-apply/applying": "an am",
    "rebase-apply": "a rebase",
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisect",
}


class Head(NamedTuple):
    """What HEAD is: on a branch, detached (no branch), unborn (no commit), or not to be read (neither)."""

    commit: str = ""
    branch: str = ""
    problem: str = ""
    """Why it could not be read."""


def read_head(git: Path) -> Head:
    """Read HEAD, given a git directory (a linked worktree's own one included)."""
    text = _read(git / "HEAD")
    if text is None:
        return Head(problem=f"{git / 'HEAD'} cannot be read")
    named = re.fullmatch(_REF, text)
    if named is None:
        return Head(text.decode()) if re.fullmatch(_HASH, text) else Head(problem=f"{git / 'HEAD'} makes no sense")
    if (common_dir(git) / "reftable").is_dir():
        return Head(problem="its refs are kept in a reftable, which is not read")
    ref = os.fsdecode(named[1])
    return Head(_resolved(git, ref), ref.removeprefix(_HEADS))


def under_way(git: Path) -> str:
    """What git has begun and not ended, such as a merge; empty if nothing."""
    return next((what for name, what in _UNDER_WAY.items() if os.path.lexists(git / name)), "")


def ending(what: str) -> str:
    """The command that ends what is under way and goes back to before it."""
    noun = what.partition(" ")[2]
    return "git bisect reset" if noun == "bisect" else f"git {noun} --abort"


def _resolved(git: Path, ref: str) -> str:
    """The commit that a ref names, loose or packed; empty if there is none."""
    shared = common_dir(git)
    for _ in range(_LONGEST_CHAIN):
        if ".." in ref.split("/") or ref.startswith("/"):
            return ""
        text = _read(git / ref) or _read(shared / ref)
        if text is None:
            return _packed(shared, ref)
        if re.fullmatch(_HASH, text):
            return text.decode()
        named = re.fullmatch(_REF, text)
        if named is None:
            return ""
        ref = os.fsdecode(named[1])
    return ""


def _packed(shared: Path, ref: str) -> str:
    ending = b" " + os.fsencode(ref)
    for line in (_read(shared / "packed-refs") or b"").splitlines():
        if line.endswith(ending) and re.fullmatch(_HASH, line[: -len(ending)]):
            return line[: -len(ending)].decode()
    return ""


def _read(path: Path) -> bytes | None:
    try:
        return durable.read_file(path, max_bytes=_MOST_BYTES).strip()
    except OSError:
        return None
