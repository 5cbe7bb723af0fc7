"""Make the store of the present format that `test_released_formats.py` opens from then on.

    python tests/compat/make_store.py tests/compat/format-1.tar.xz

Run it once, when a format is released, and commit what it makes; it is never made again. The archive holds the store
and `expected.json`: for each checkpoint what a restore of it must leave, as plain calls saw it when it was saved.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
import tarfile
import tempfile
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast import Checkpoint, Workspace

_SOMEWHERE = "/somewhere/else/project"
"""Where the workspace is said to have been: nowhere, so that the store is taken for that of a moved one."""

_DAY_NS = 86_400 * 10**9


def picture(root: Path) -> dict[str, Any]:
    """Everything that P2 promises of each path below a folder, and of itself, as JSON."""
    found: dict[str, Any] = {}
    names: dict[int, list[str]] = {}
    waiting = [""]
    while waiting:
        path = waiting.pop()
        full = root / path
        status = os.lstat(full)
        if stat.S_ISDIR(status.st_mode):
            waiting += [f"{path}/{name}" if path else name for name in os.listdir(full)]
        if stat.S_ISREG(status.st_mode):
            names.setdefault(status.st_ino, []).append(path)
        found[path] = {
            "mode": f"{status.st_mode:o}",
            "mtime_ns": status.st_mtime_ns,
            "content": _content(full, status),
            "xattrs": _xattrs(full, status),
            "links": [],
        }
    for group in names.values():
        for path in group:
            found[path]["links"] = sorted(set(group) - {path})
    return found


def _content(full: Path, status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(full)
    return hashlib.sha256(full.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""


def _xattrs(full: Path, status: os.stat_result) -> dict[str, str]:
    if stat.S_ISLNK(status.st_mode):
        return {}
    names = [name for name in os.listxattr(full) if name.startswith("user.")]
    return {name: b64encode(os.getxattr(full, name)).decode() for name in sorted(names)}


def told(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a checkpoint says of itself."""
    return {
        "sequence": checkpoint.sequence,
        "message": checkpoint.message,
        "timestamp": checkpoint.timestamp.isoformat(),
        "name": checkpoint.name,
        "session": checkpoint.session,
        "actor": checkpoint.actor,
        "step": checkpoint.step,
        "parent": checkpoint.parent,
        "metadata": dict(checkpoint.metadata),
        "pinned": checkpoint.pinned,
        "complete": checkpoint.complete,
        "operation": checkpoint.operation and checkpoint.operation.verb,
        "state": checkpoint.state,
        "files_changed": checkpoint.files_changed,
        "uncovered": [[item.path, item.reason, item.detail] for item in checkpoint.uncovered],
    }


class Maker:
    """Makes one store, step by step, and notes what each step is to leave."""

    def __init__(self, area: Path) -> None:
        self.root = area / "project"
        self.store = area / "store"
        self.root.mkdir()
        self._home = area / "home"
        self._home.mkdir()
        self._days = 0
        self.expected: dict[str, Any] = {}
        self.ws = Workspace(
            self.root, store=self.store, home=self._home, environ={}, exclude_patterns=["*.secret"], clock=self._clock
        )

    def _clock(self) -> datetime:
        self._days += 1
        return datetime.fromtimestamp(1_700_000_000 + self._days * 86_400, UTC)

    def run(self) -> None:
        """Save, change, save, restore, undo, delete."""
        self._fill()
        first = self._save("the first", state={"conversation": ["hello"], "caf\xe9": {"half \ud800": None}})
        self._change()
        long = [{"role": "user", "content": f"message {number} " * 20} for number in range(150)]
        self._save(
            "everything that can be said\nof a checkpoint \N{SNOWMAN}",
            state={"conversation": long},
            session="s1",
            actor="agent",
            step=3,
            metadata={"ticket": 42, "tags": ["a", {"b": None}]},
            name="before refactor",
            pinned=True,
        )
        self._write("came", b"deleted with its checkpoint\n")
        self.ws.delete(self.ws.save("deleted").id)
        before = picture(self.root)
        self._note(self.ws.restore(first).undo_id, before)
        before = picture(self.root)
        self._note(self.ws.undo().undo_id, before)

    def _save(self, message: str, **options: Any) -> str:
        before = picture(self.root)
        return self._note(self.ws.save(message, **options).id, before)

    def _note(self, checkpoint_id: str, seen: dict[str, Any]) -> str:
        left_out = {path: row for path, row in seen.items() if not path.endswith(".secret")}
        self.expected[checkpoint_id] = {"files": left_out, "record": told(self.ws.get(checkpoint_id))}
        return checkpoint_id

    def _write(self, name: str, data: bytes, mode: int = 0o644) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
        return path

    def _fill(self) -> None:
        """Something of every kind."""
        shared = self._write("src/shared", b"one file, three names\n")
        for name in ("src/again", "also"):
            os.link(shared, self.root / name)
        self._write("src/run", b"#!/bin/sh\n", 0o755)
        self._write("private", b"secret\n", 0o600)
        self._write("empty", b"")
        self._write("not held.secret", b"left out by a rule\n")
        self._write(".gitignore", b"*.log\n")
        self._write("small.log", b"ignored, and held\n")
        for name in (
            ".gitmodules",
            "src/.git ",
            "%",
            "%2E",
            "two\nlines",
            "caf\xe9",
            os.fsdecode(b"\xff\xfe"),
            "back\\slash",
        ):
            self._write(name, os.fsencode(name))
        for number in range(10):
            self._write(f"many/file {number}", b"%d\n" % number)
        (self.root / "link").symlink_to("src/run")
        (self.root / "broken").symlink_to(os.fsdecode(b"nowhere \xff"))
        (self.root / "nothing" / "inside").mkdir(parents=True)
        os.mkfifo(self.root / "pipe", 0o640)
        with open(self._write("large", b"begin"), "r+b") as file:
            file.seek(5 << 20)
            file.write(b"middle")
            file.truncate((8 << 20) + 4096)
        os.setxattr(self.root / "private", "user.tag, odd", b"\0blue\xff")
        os.setxattr(self.root / "src", "user.folder", b"")
        (self.root / "nothing").chmod(0o711)
        self._date(1)

    def _change(self) -> None:
        (self.root / "src/run").unlink()
        self._write("src/run/inside", b"a folder now\n")
        shutil.rmtree(self.root / "nothing")
        self._write("nothing", b"a file now\n")
        self._write("private", b"other\n", 0o400)
        os.removexattr(self.root / "src", "user.folder")
        with open(self.root / "large", "r+b") as file:
            file.write(b"BEGIN")
        self._date(2)

    def _date(self, days: int) -> None:
        """Give everything a time of its own, innermost first, some of them before 1970."""
        paths = sorted((path for path in picture(self.root)), key=lambda path: (-path.count("/"), path))
        for number, path in enumerate([path for path in paths if path] + [""]):
            mtime_ns = days * _DAY_NS * 10_000 + number * 1_000_000_007
            mtime_ns = -number if number % 10 == 3 else mtime_ns
            os.utime(self.root / path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)


def main(archive: str) -> None:
    """Make a store and put it into an archive."""
    with tempfile.TemporaryDirectory() as name:
        area = Path(os.path.realpath(name))
        maker = Maker(area)
        maker.run()
        owner = maker.store / "holdfast" / "store.json"
        owner.write_text(json.dumps(json.loads(owner.read_bytes()) | {"workspace": _SOMEWHERE}, indent=1) + "\n")
        (area / "expected.json").write_text(json.dumps(maker.expected, indent=1, sort_keys=True))
        with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT) as tar:
            for part in ("store", "expected.json"):
                tar.add(area / part, part, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nobody's, of no particular time, so that the archive tells nothing of where it was made."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


if __name__ == "__main__":
    main(sys.argv[1])
