"""The refs of a bare git repository: a tag for each checkpoint, and the files that git needs to see a repository.

Separate from the objects, so that listing checkpoints does not load the code that reads them (start-up cost).
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from holdfast import durable
from holdfast.errors import Damaged, NotFound, Remedy

CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n[gc]\n\tauto = 0\n"
HEAD = b"ref: refs/heads/main\n"
VERIFY = Remedy("verify")
_PACKED_LINE = rb"[0-9a-f]{40} (refs/(?:tags|heads|remotes|notes|replace|original|bisect)/[^ ]+|refs/stash)"
_NAME_MAX_BYTES = 255  # of a file's name
_PEELED_LINE = rb"\^[0-9a-f]{40}"


class Refs:
    """The refs of one repository. Reading is safe during any write (P9); writing needs the store's lock."""

    def __init__(self, git_dir: Path) -> None:
        self.git_dir = git_dir
        self._tags = git_dir / "refs" / "tags"

    @property
    def exists(self) -> bool:
        """Whether there is a repository; one that has lost its HEAD still has its checkpoints."""
        return (self.git_dir / "HEAD").is_file() or bool(self.ref_names())

    def refs(self) -> dict[str, str]:
        """The checkpoint ids and the text of each ref (normally a commit's name in hex)."""
        found = self._packed_refs()
        for name in self.loose_refs():
            try:
                found[name] = (self._tags / name).read_bytes().decode("ascii", "replace").strip()
            except FileNotFoundError:
                continue
        return found

    def ref_names(self) -> set[str]:
        """The ids of all checkpoints, without reading what they point to."""
        return {*self._packed_refs(), *self.loose_refs()}

    def ref_marks(self) -> dict[str, str]:
        """The ids of all checkpoints, each with a mark that changes when its ref is replaced; none is read."""
        found = self._packed_refs()
        try:
            with os.scandir(self._tags) as entries:
                found |= {entry.name: str(entry.inode()) for entry in entries if entry.is_file(follow_symlinks=False)}
        except FileNotFoundError:
            pass
        return found

    def ref_mark(self, name: str) -> str:
        """The mark of one ref; empty if it has none of its own."""
        try:
            return str(os.lstat(self._tags / name).st_ino)
        except OSError:
            return ""

    def refs_status(self) -> list[os.stat_result] | None:
        """Changes whenever a ref is added, removed or replaced; None if there is no folder of refs."""
        try:
            found = [os.stat(self._tags)]
        except OSError:
            return None
        with contextlib.suppress(FileNotFoundError):
            found.append(os.stat(self.git_dir / "packed-refs"))
        return found

    def loose_refs(self) -> list[str]:
        try:
            with os.scandir(self._tags) as entries:
                return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def ref(self, name: str) -> bytes:
        """The commit that a ref names. NotFound, or Damaged if it names none."""
        try:
            text = (self._tags / name).read_bytes().decode("ascii", "replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            text = self._packed_refs().get(name, "")
            if not text:
                raise NotFound(f"there is no checkpoint {name}", remedy=Remedy("list")) from None
        try:
            oid = bytes.fromhex(text)
        except ValueError:
            oid = b""
        if len(oid) != 20:
            raise Damaged(f"the ref of checkpoint {name} does not name a commit", remedy=VERIFY)
        return oid

    def sync_refs(self) -> None:
        """Make all refs durable."""
        durable.sync_folder(self._tags)

    def set_ref(self, name: str, commit: bytes) -> None:
        """Name a commit: the commit point of a save (P3)."""
        via = self.git_dir / "new-ref"  # not in refs/, where git would list it as a ref
        durable.write_atomically(self._tags / name, commit.hex().encode() + b"\n", via=via)

    def delete_ref(self, *names: str) -> None:
        """Delete refs, in this order: for each, the commit point of its deletion (P3)."""
        lines = self._packed_file().splitlines(keepends=True)
        packed = {b"refs/tags/" + os.fsencode(name) for name in names}
        rest = [line for line in lines if line.rstrip().partition(b" ")[2] not in packed]
        if len(rest) < len(lines):
            durable.write_atomically(self.git_dir / "packed-refs", b"".join(rest))
        loose = [path for name in names if os.path.lexists(path := self._tags / name)]
        for path in loose:
            durable.disk().unlink(str(path))
        if loose:
            durable.sync_folder(self._tags)

    def packed_refs_problem(self) -> str:
        """What is wrong with `packed-refs`, if anything; a file cut between two lines cannot be detected."""
        if not (self.git_dir / "packed-refs").exists():
            return ""
        header, *lines = self._packed_file().split(b"\n")
        if not header.startswith(b"# pack-refs with: ") or not lines or lines.pop():
            return "its beginning or its end is missing"
        for number, line in enumerate(lines, 2):
            if not (re.fullmatch(_PACKED_LINE, line) or re.fullmatch(_PEELED_LINE, line)):
                return f"line {number} is not one"
        names = [line[41:] for line in lines if line[:1] != b"^"]
        return "" if names == sorted(names) else "its lines are not in order"

    def _packed_file(self) -> bytes:
        try:
            return (self.git_dir / "packed-refs").read_bytes()
        except FileNotFoundError:
            return b""

    def _packed_refs(self) -> dict[str, str]:
        found = {}
        for line in self._packed_file().decode("utf-8", "replace").splitlines():
            commit, _, name = line.partition(" refs/tags/")
            if name and line[0] not in "#^" and "\0" not in name and len(os.fsencode(name)) <= _NAME_MAX_BYTES:
                found[name] = commit
        return found
