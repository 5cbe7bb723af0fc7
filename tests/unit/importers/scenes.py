"""Sources as the tools themselves make them: with real git commands, in the manner of each."""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Mapping
from hashlib import sha1
from pathlib import Path
from typing import Any

from holdfast.importers import Imported, ImportPlan, ImportRequest, open_import
from holdfast.workspace import Workspace

_ENVIRON = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "Agent",
    "GIT_AUTHOR_EMAIL": "agent@example.com",
    "GIT_COMMITTER_NAME": "Agent",
    "GIT_COMMITTER_EMAIL": "agent@example.com",
    "PATH": os.environ["PATH"],
}


class Shadow:
    """A shadow repository and its workspace. Each commit is a minute later than the one before."""

    def __init__(self, git: Path, workspace: Path, *, first: str | None = None) -> None:
        self.git_dir = git
        self.workspace = workspace
        self.seconds = 1_700_000_000
        workspace.mkdir(exist_ok=True)
        self.git("init", "-q", "-b", "main", str(git.parent))
        self.git("config", "core.worktree", str(workspace))
        if first is not None:
            self.commit(first)

    def git(self, *args: str, stdin: bytes = b"") -> str:
        when = {"GIT_AUTHOR_DATE": f"{self.seconds} +0200", "GIT_COMMITTER_DATE": f"{self.seconds} +0200"}
        place = {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.workspace)}
        given = _ENVIRON | when | (place if args[0] != "init" else {})
        ran = subprocess.run(
            ["git", *args], cwd=self.workspace, env=given, input=stdin, capture_output=True, check=True
        )
        return ran.stdout.decode().strip()

    def save(self, message: str, files: Mapping[str, str | None] = {}) -> str:
        """Change files of the workspace, and commit all of it, as these tools do."""
        for name, text in files.items():
            path = self.workspace / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        self.git("add", "-A")
        return self.commit(message)

    def commit(self, message: str) -> str:
        self.seconds += 60
        self.git("commit", "-q", "--allow-empty", "--no-verify", "-m", message)
        return self.git("rev-parse", "HEAD")

    def literally(self, kind: str, data: bytes) -> str:
        """Write a loose object that git itself would not."""
        whole = b"%s %d\0%s" % (kind.encode(), len(data), data)
        name = sha1(whole).hexdigest()
        place = self.git_dir / "objects" / name[:2] / name[2:]
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(zlib.compress(whole))
        return name

    def commit_tree(self, tree: str, message: str = "made by hand") -> str:
        commit = self.git("commit-tree", tree, "-m", message)
        self.git("update-ref", "refs/heads/main", commit)
        return commit


def praisonai(tmp_path: Path) -> Shadow:
    """`~/.praisonai/checkpoints/HASH/.git`, which begins with an empty commit."""
    store = tmp_path / ".praisonai" / "checkpoints" / "0123456789ab"
    store.mkdir(parents=True)
    shadow = Shadow(store / ".git", tmp_path / "project", first="Initial checkpoint")
    (store / ".git" / "info" / "exclude").write_text(".praisonai\n__pycache__\n*.pyc\n.env\nnode_modules\n*.log\n")
    return shadow


def cline(tmp_path: Path) -> Shadow:
    """`globalStorage/…/checkpoints/HASH/.git`; the message of a commit has the task's id."""
    store = tmp_path / "globalStorage" / "checkpoints" / "1234567"
    store.mkdir(parents=True)
    shadow = Shadow(store / ".git", tmp_path / "project")
    (store / ".git" / "info" / "exclude").write_text(".git/\n.git_disabled/\nnode_modules/\n*.log\n")
    return shadow


def roo(tmp_path: Path) -> Shadow:
    """`tasks/TASK/checkpoints/.git`."""
    store = tmp_path / "globalStorage" / "tasks" / "0198c0de-task" / "checkpoints"
    store.mkdir(parents=True)
    shadow = Shadow(store / ".git", tmp_path / "project")
    (store / ".git" / "info" / "exclude").write_text("node_modules/\n*.log\n")
    return shadow


def plan(source: Path | str, target: Path | str | None = None, **options: Any) -> ImportPlan:
    return _with(source, target, options, "plan")


def run(source: Path | str, target: Path | str | None = None, **options: Any) -> Imported:
    """Plan and run, as the command does."""
    return _with(source, target, options, "run")


def _with(source: Path | str, target: Path | str | None, options: dict[str, Any], verb: str) -> Any:
    schemas = options.pop("schemas", ())
    request = ImportRequest(
        str(source), None if target is None else str(target), schemas=schemas, workspace_options=options
    )
    opened = open_import(request)
    try:
        planned = opened.plan()
        return planned if verb == "plan" else opened.run()
    finally:
        opened.close()


def messages(workspace: Path) -> list[str]:
    """Of all checkpoints, oldest first."""
    return [each.message for each in reversed(Workspace(workspace, create=False).list(None))]


def bytes_and_times(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every path of a folder with mode, time and content."""
    found = {}
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(where, name)
            status = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, content)
    return found
