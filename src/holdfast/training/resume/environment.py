"""The environment of a save: versions, the git commit, the hash of the configuration."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import Refused

_PACKAGES = ("torch", "numpy", "jax", "safetensors", "transformers", "lightning", "accelerate")


def capture_environment(folder: Path) -> dict[str, Any]:
    """Return the versions of loaded packages, and the git commit of the repository that contains `folder`."""
    packages = {name: getattr(sys.modules.get(name), "__version__", None) for name in _PACKAGES}
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: str(version) for name, version in packages.items() if version},
    }
    if (commit := git_commit(folder)) is not None:
        found["git_commit"] = commit
    return found


def git_commit(folder: Path) -> str | None:
    """Return the commit that is checked out, read from git's files (P6); None if there is none."""
    try:
        git = next((place / ".git" for place in (folder, *folder.parents) if (place / ".git").exists()), None)
        if git is None:
            return None
        if git.is_file():  # a worktree or a submodule, whose git folder is elsewhere
            git = git.parent / git.read_text().strip().removeprefix("gitdir: ")
        head = (git / "HEAD").read_text().strip()
        return _resolved(git, head)
    except (OSError, UnicodeDecodeError):
        return None


def _resolved(git: Path, head: str) -> str | None:
    if not head.startswith("ref: "):
        return head if _is_commit(head) else None
    ref = head.removeprefix("ref: ")
    common = git / "commondir"
    shared = git / common.read_text().strip() if common.is_file() else git
    for place in (git, shared):
        if (place / ref).is_file():
            found = (place / ref).read_text().strip()
            return found if _is_commit(found) else None
    packed = shared / "packed-refs"
    for line in packed.read_text().splitlines() if packed.is_file() else ():
        commit, _, name = line.partition(" ")
        if name == ref and _is_commit(commit):
            return commit
    return None


def _is_commit(text: str) -> bool:
    return len(text) in (40, 64) and all(char in "0123456789abcdef" for char in text)


def config_hash(config: Any) -> str | None:
    """Return the hash of a configuration. The order of its keys does not matter."""
    if config is None:
        return None
    if not isinstance(config, Mapping) and hasattr(config, "__dict__"):
        config = vars(config)  # such as argparse.Namespace
    try:
        text = json.dumps(config, sort_keys=True, allow_nan=False, default=str)
    except (TypeError, ValueError) as error:
        raise Refused(f"config cannot be encoded as JSON: {error}", hint="Give a dict of plain values.") from None
    return hashlib.sha256(text.encode()).hexdigest()
