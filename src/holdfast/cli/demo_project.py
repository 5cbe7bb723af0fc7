"""The small project of `holdfast demo`: made, wrecked, and looked at in every respect that has to come back."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

FILES = {
    "README.md": (0o644, "# Shop\n\nSells kelp.\n"),
    ".gitignore": (0o644, ".env\n"),
    ".env": (0o600, "PAYMENT_KEY=not-a-real-key\n"),
    "config.toml": (0o644, '[shop]\ncurrency = "EUR"\ndebug = false\n'),
    "deploy.sh": (0o755, "#!/bin/sh\necho deploying\n"),
    "secrets/token": (0o600, "not-a-real-token\n"),
    "src/app.py": (0o644, "from cart import total\n\nprint(total([1, 2, 3]))\n"),
    "src/cart.py": (0o644, "def total(prices):\n    return sum(prices)\n"),
}
LINK = ("current", "src/app.py")
EMPTY_FOLDER = "uploads"

BREAKAGE = (
    "rm -rf src uploads .env",
    "echo 'debug = true' > config.toml",
    "chmod 777 secrets/token",
    "ln -sf /dev/null current",
    "echo scratch > notes.tmp",
)

_MADE_NS = 1_700_000_000_123_456_789
_STEP_NS = 86_400_000_000_017


class Entry(NamedTuple):
    """Everything of one path that a restore has to bring back."""

    kind: str
    mode: int
    mtime_ns: int
    content: bytes


Snapshot = dict[str, Entry]


def make(project: Path) -> None:
    """Make the project, every path with a time of its own."""
    project.mkdir()
    for name, (mode, text) in FILES.items():
        path = project / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
    (project / EMPTY_FOLDER).mkdir(mode=0o750)
    (project / LINK[0]).symlink_to(LINK[1])
    for at, path in enumerate(reversed([project, *sorted(project.rglob("*"))])):
        when = _MADE_NS + at * _STEP_NS
        os.utime(path, ns=(when, when), follow_symlinks=False)


def wreck(project: Path) -> None:
    """Do what `BREAKAGE` says."""
    shutil.rmtree(project / "src")
    (project / EMPTY_FOLDER).rmdir()
    (project / ".env").unlink()
    (project / "config.toml").write_text("debug = true\n")
    (project / "secrets/token").chmod(0o777)
    (project / LINK[0]).unlink()
    (project / LINK[0]).symlink_to("/dev/null")
    (project / "notes.tmp").write_text("scratch\n")


def snapshot(project: Path) -> Snapshot:
    """Look at every path of the project."""
    return {str(path.relative_to(project)): _entry(path) for path in [project, *sorted(project.rglob("*"))]}


def _entry(path: Path) -> Entry:
    status = path.lstat()
    kind, content = "folder", b""
    if stat.S_ISLNK(status.st_mode):
        kind, content = "link", os.fsencode(os.readlink(path))
    elif stat.S_ISREG(status.st_mode):
        kind, content = "file", path.read_bytes()
    return Entry(kind, stat.S_IMODE(status.st_mode), status.st_mtime_ns, content)


def tree(project: Path) -> list[str]:
    """Return the project as lines of mode and name."""
    lines = []
    for path in sorted(project.rglob("*")):
        target = f" -> {os.readlink(path)}" if path.is_symlink() else ""
        lines.append(f"{stat.filemode(path.lstat().st_mode)}  {path.relative_to(project)}{target}")
    return lines


def differences(wanted: Snapshot, found: Snapshot) -> list[str]:
    """Return one line for each path that is not as wanted, naming what differs."""
    lines = []
    for path in sorted(wanted.keys() | found.keys()):
        if path not in found:
            lines.append(f"{path} is missing")
        elif path not in wanted:
            lines.append(f"{path} should not be there")
        elif wanted[path] != found[path]:
            both = zip(Entry._fields, wanted[path], found[path], strict=True)
            lines.append(f"{path} differs in " + ", ".join(name for name, old, new in both if old != new))
    return lines
