"""An empty repository that borrows the objects of the user's: git works in it and reads none of the user's settings.

Nothing is written into the user's repository (P6), and nothing that its configuration names can run (P7).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from holdfast import durable
from holdfast.durable import private
from holdfast.errors import Unavailable
from holdfast.git_program import GitDone, run_git
from holdfast.scan.user_git import common_dir

_MAX_BYTES = 64 << 20


class GitScratch:
    """A bare repository in a new folder. The caller removes the folder."""

    def __init__(self, folder: Path, program: str, git: Path | None, object_format: str) -> None:
        """`git`: the git directory whose objects are borrowed; None: none are."""
        self.folder = folder
        self._program = program
        version, extension = (
            (0, "") if object_format == "sha1" else (1, f"[extensions]\n\tobjectFormat = {object_format}\n")
        )
        for name in ("", "objects", "objects/pack", "objects/info", "refs"):
            os.mkdir(folder / name, 0o700)
        config = f"[core]\n\trepositoryformatversion = {version}\n\tbare = true\n{extension}"
        self.write("config", config.encode())
        if git is not None:
            self.borrow(common_dir(git) / "objects")
            self._copy_shallow(common_dir(git))
        self.write("HEAD", b"ref: refs/heads/none\n")

    def write(self, name: str, data: bytes) -> None:
        """Write a file into it."""
        with open(self.folder / name, "wb", opener=private) as file:
            file.write(data)

    def borrow(self, objects: Path) -> None:
        """Read objects of another folder, too."""
        path = os.fsencode(os.path.abspath(objects))
        with open(self.folder / "objects" / "info" / "alternates", "ab", opener=private) as file:
            file.write(_quoted(path) + b"\n")

    def run(
        self,
        *command: str,
        input_data: bytes | None = None,
        stdout: IO[bytes] | None = None,
        environ: dict[str, str] | None = None,
        timeout_s: float | None = None,
        umask: int = 0o077,
    ) -> GitDone:
        """Run git in it; see `run_git`."""
        return run_git(
            self._program,
            command,
            git_dir=self.folder,
            input_data=input_data,
            stdout=stdout,
            environ=environ,
            timeout_s=timeout_s,
            umask=umask,
        )

    def kinds(self, names: Iterable[str], *, timeout_s: float | None = None) -> dict[str, str]:
        """Return the kind of each object that is there: `commit`, `tree`, `blob` or `tag`."""
        wanted = sorted(set(names))
        data = "".join(f"{name}\n" for name in wanted).encode("utf-8", "surrogateescape")
        options = "--batch-check=%(objectname) %(objecttype)"
        said = self.run("cat-file", options, "--buffer", input_data=data, timeout_s=timeout_s).output.decode()
        rows = (line.split(" ") for line in said.splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 2 and row[1] in ("commit", "tree", "blob", "tag")}

    def unreached(
        self, names: Iterable[str], tips: Iterable[str], *, newest: bool = False
    ) -> tuple[set[str], set[str]]:
        """Return which of these objects are there, and which of them lead to commits that the tips do not reach.

        `newest`: of the latter, none that another leads to. Unavailable if git cannot tell.
        """
        wanted, ends = set(names), set(tips)
        present = self.kinds(wanted | ends).keys()
        lines = [*sorted(wanted & present), *(f"^{name}" for name in sorted(ends & present))]
        done = self.run("rev-list", "--parents", "--stdin", input_data="".join(f"{line}\n" for line in lines).encode())
        if done.code:
            raise Unavailable(f"git could not list commits: {done.error}", hint="Run git fsck.")
        rows = [line.split() for line in done.output.decode().splitlines()]
        new = {row[0] for row in rows}
        if newest:
            new -= {parent for row in rows for parent in row[1:]}
        peeled = self._peeled(wanted & present)
        return wanted & present, {name for name in wanted & present if peeled.get(name, name) in new}

    def _peeled(self, names: Iterable[str]) -> dict[str, str]:
        """Return the commit that each tag names, and that each commit is."""
        wanted = sorted(names)
        data = "".join(f"{name}^{{commit}}\n" for name in wanted).encode()
        said = self.run("cat-file", "--batch-check=%(objectname) %(objecttype)", input_data=data).output.decode()
        rows = (line.split(" ") for line in said.splitlines())
        return {name: row[0] for name, row in zip(wanted, rows, strict=False) if row[1:] == ["commit"]}

    def _copy_shallow(self, shared: Path) -> None:
        try:
            data = durable.read_file(shared / "shallow", max_bytes=_MAX_BYTES)
        except OSError:
            return
        self.write("shallow", data)


def _quoted(path: bytes) -> bytes:
    """Spell a path for `alternates`, as git reads it."""
    if path[:1] not in (b'"', b"#") and b"\n" not in path:
        return path
    escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'
