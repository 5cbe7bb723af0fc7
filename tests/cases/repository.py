"""The user's own repository, made and asked with the real git program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .capture import Picture

PATH = os.environ["PATH"]  # of the run, also while a case takes git off the path

CONFIG = """\
[user]
    name = Somebody
    email = somebody@example.org
[init]
    defaultBranch = main
[protocol "file"]
    allow = always
[advice]
    detachedHead = false
"""


def environment(home: Path) -> dict[str, str]:
    """An environment in which nothing of this machine's git set-up can be seen."""
    return {"HOME": str(home), "PATH": PATH, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}


def git(folder: Path, home: Path, *words: str | bytes, check: bool = True, stdin: bytes = b"") -> bytes:
    """Run git in a folder and return what it prints."""
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environment(home), input=stdin, capture_output=True, check=False
    )
    if check and done.returncode:
        raise RuntimeError(f"git {words} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def is_git_dir(folder: Path, home: Path) -> bool:
    """Whether git itself takes a folder for a repository's own."""
    words = ["git", f"--git-dir={folder}", "rev-parse", "--git-dir"]
    return subprocess.run(words, env=environment(home), capture_output=True, check=False).returncode == 0


def make_home(home: Path) -> None:
    """Give a user who has a git configuration and nothing else."""
    (home / ".gitconfig").write_text(CONFIG)


def init(folder: Path, home: Path, *options: str) -> None:
    """Make an empty repository, without sample hooks."""
    git(folder, home, "init", "-q", "--template=", *options)


def make(folder: Path, home: Path) -> None:
    """Make a repository with a commit, a second branch, a staged change, an unstaged one and an untracked file."""
    init(folder, home)
    (folder / "src").mkdir()
    (folder / "README.md").write_text("# A project\n")
    (folder / "src" / "app.py").write_text("print('hello')\n")
    (folder / "src" / "staged.py").write_text("x = 1\n")
    git(folder, home, "add", "-A")
    git(folder, home, "commit", "-q", "-m", "first")
    git(folder, home, "branch", "side")
    (folder / "src" / "staged.py").write_text("x = 2\n")
    git(folder, home, "add", "src/staged.py")
    (folder / "README.md").write_text("# A project\n\nNot committed.\n")
    (folder / "notes.txt").write_text("not tracked\n")


def make_nested(folder: Path, home: Path, *, commit: bool = True) -> None:
    """Make a repository of its own inside another one."""
    folder.mkdir(parents=True)
    init(folder, home)
    (folder / "lib.py").write_text("lib = 1\n")
    if commit:
        git(folder, home, "add", "-A")
        git(folder, home, "commit", "-q", "-m", "nested")


def ignored(folder: Path, home: Path, picture: Picture) -> set[str]:
    """Which paths git's rules ignore right now; what is inside a nested repository is left out."""
    nested = tuple(name.removesuffix(".git") for name in picture if name.endswith("/.git"))
    names = [
        name
        for name in picture
        if name not in (".", ".git") and not name.startswith(nested or ("\0",)) and len(os.fsencode(name)) < 4000
    ]
    done = subprocess.run(
        ["git", "check-ignore", "-z", "--stdin"],
        cwd=folder,
        env=environment(home),
        input=b"\0".join(b"./" + os.fsencode(name) for name in names),  # the prefix disarms a leading colon
        capture_output=True,
        check=False,
    )
    if done.returncode > 1:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    return {os.fsdecode(name[2:]) for name in done.stdout.split(b"\0") if name}


def fsck(store: Path, home: Path) -> str:
    """What `git fsck --strict` says of a store; nothing when it is sound (that nothing names an object is no fault)."""
    done = subprocess.run(
        ["git", f"--git-dir={store}", "fsck", "--strict", "--no-dangling", "--no-progress"],
        env=environment(home),
        capture_output=True,
        check=False,
    )
    said = (done.stdout + done.stderr).decode(errors="replace")
    return said or (f"status {done.returncode}" if done.returncode else "")
