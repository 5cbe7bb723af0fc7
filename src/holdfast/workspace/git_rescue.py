"""Bringing back what the user's git has lost: as new branches and stashes, or a removed repository as a whole.

Written only on request (P6). No branch moves, nothing is overwritten, and no ref is made whose history is incomplete.

Order of writes (P3): objects, which git makes durable; then refs, each created only if there is none of its name; then
stashes; then the index, by git's own lock file, with a copy of the one before. A kill leaves some of them, and the next
rescue makes the rest. A removed repository is built beside its place and renamed into it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast import durable
from holdfast.durable import private
from holdfast.errors import Conflict, Unavailable
from holdfast.git_program import run_git
from holdfast.scan.git_refs import GitRefs, read_git_refs
from holdfast.scan.git_scratch import GitScratch
from holdfast.scan.user_git import common_dir, own_settings
from holdfast.shadowgit import TreeEntry
from holdfast.workspace.git_losses import HEADS, RESUMED, GitLoss, GitLosses, Recorded, named_commits
from holdfast.workspace.git_settings import read_settings, split_settings, write_settings
from holdfast.workspace.stored.git_data import content, extract, write_index
from holdfast.workspace.stored.repository import Repository

RESCUED = "refs/heads/rescued/"
_MOST_NAMES = 1000
_PLACE = r"(?:(?:\.\./)*\.git)?"  # at the folder or above it: nowhere else is a repository made that a store names (P7)
_TRIES = 20
_SETTINGS_LEFT = "config.rescued"
"""The recorded configuration, if some of it did not come back. Git does not read it."""
_MOST_KEYS = 10
_NOT_BROUGHT_BACK = "hooks, reflogs and remote-tracking refs are not recorded"
_WHO = {
    "GIT_COMMITTER_NAME": "Holdfast",
    "GIT_COMMITTER_EMAIL": "holdfast@localhost",
    "GIT_AUTHOR_NAME": "Holdfast",
    "GIT_AUTHOR_EMAIL": "holdfast@localhost",
}


@dataclass(frozen=True, slots=True)
class RescuedRef:
    """A new ref or stash, and the loss that it brings back."""

    ref: str
    """The full name of the ref; `refs/stash` for a stash."""
    loss: GitLoss


@dataclass(frozen=True, slots=True)
class GitRescue:
    """What a rescue did."""

    refs: list[RescuedRef]
    missing: list[GitLoss]
    """What could not be brought back, because objects are missing."""
    recreated: bool = False
    """Whether a removed repository was made again."""
    index: bool = False
    index_backup: str = ""
    """Where the index from before is; empty if there was none."""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What is never brought back."""
    settings_left: tuple[str, ...] = ()
    """Settings of the configuration that did not come back, because they may run a program."""
    settings_file: str = ""
    """The recorded configuration with these settings, for you to look at; git does not read it."""


class Rescuer:
    """Brings back what a checkpoint recorded. The scratch folder is in the store."""

    def __init__(self, repository: Repository, root: Path, program: str, recorded: Recorded) -> None:
        self._repository = repository
        self._root = root
        self._program = program
        self._recorded = recorded
        self._refs = recorded.refs
        self._data = recorded.data

    def rescue(self, found: GitLosses, git: Path | None, *, index: bool) -> GitRescue:
        """Bring back losses; with `index`, the index too. Conflict if another process works on git's objects."""
        lock = self._repository.git_lock()
        lock.acquire()
        with self._repository.git_work(lock) as work:
            if git is None:
                return self._recreate(work, found)
            scratch = GitScratch(work / "scratch", self._program, git, self._refs.object_format)
            self._extract(scratch)
            return self._into(scratch, git, found.losses, self._root, index=index)

    # into a repository that is there

    def _into(
        self, scratch: GitScratch, git: Path, losses: list[GitLoss], work_tree: Path, *, index: bool
    ) -> GitRescue:
        now, _ = read_git_refs(git)
        tips = {commit for _, _, commit, _ in named_commits(now)}
        complete = self._complete(scratch, git, losses, tips)
        staged = self._staged(scratch) if index else None
        self._install(scratch, git, [*complete, *(staged or ())], tips)
        keeps_names = (git / RESUMED).exists()
        made = []
        for loss in losses:
            if loss.commit in complete and loss.what != "stash":
                made.append(RescuedRef(self._create(git, now, loss, keeps_names=keeps_names), loss))
                now.refs[made[-1].ref] = loss.commit
        for loss in reversed([each for each in losses if each.what == "stash" and each.commit in complete]):
            made.append(RescuedRef(self._stash(git, now, loss, work_tree), loss))  # the oldest first
        problems, backup, has_index = [], "", False
        if index and staged is None:
            problems.append("the index was not brought back: staged contents are missing")
        elif index and (entry := self._data.file("index")) is not None:
            backup, has_index = self._put_index(git, entry), True
        elif index:
            problems.append("the checkpoint has no index")
        missing = [loss for loss in losses if loss.commit not in complete]
        if keeps_names and not missing:
            durable.disk().unlink(str(git / RESUMED))
        return GitRescue(made, missing, False, has_index, backup, tuple(problems))

    def _complete(self, scratch: GitScratch, git: Path, losses: Iterable[GitLoss], tips: set[str]) -> set[str]:
        """Return the commits of which everything is there, in the repository or the store."""
        names = {loss.commit for loss in losses}
        there = scratch.kinds(names | tips)
        is_partial = any("promisor" in key or "partialclone" in key for key in own_settings(git))
        found = set()
        for name in names & there.keys():
            lines = [name, *(f"^{tip}" for tip in tips & there.keys())]
            data = "".join(f"{line}\n" for line in lines).encode()
            done = scratch.run("rev-list", "--objects", "--missing=print", "--stdin", input_data=data)
            is_whole = is_partial or not any(line.startswith(b"?") for line in done.output.splitlines())
            if not done.code and is_whole:
                found.add(name)
        return found

    def _install(self, scratch: GitScratch, git: Path, names: Iterable[str], tips: set[str]) -> None:
        """Copy objects that only the store has into the repository."""
        wanted = sorted(set(names))
        if not self._data.packs or not wanted:
            return
        there = scratch.kinds(tips)
        data = "".join(f"{line}\n" for line in (*wanted, *(f"^{tip}" for tip in sorted(there)))).encode()
        pack = scratch.folder / "rescued.pack"
        with open(
            pack, "xb", opener=private
        ) as file:  # --local: not what the scratch repository borrows from the user's
            command = ("pack-objects", "-q", "--revs", "--local", "--stdout", "--missing=allow-any")
            done = scratch.run(*command, input_data=data, stdout=file)
        if done.code:
            raise Unavailable(f"git could not pack what to bring back: {done.error}", hint="Nothing was changed.")
        self._index_pack(scratch, pack, common_dir(git) / "objects", own_settings(git))

    def _index_pack(self, scratch: GitScratch, pack: Path, objects: Path, settings: Mapping[str, str]) -> None:
        """Add a pack to a repository, as git does it: under a temporary name, durable, then renamed."""
        shared = settings.get("core.sharedrepository", "")
        options = ["-c", f"core.sharedRepository={shared}"] if shared else []
        into = {"GIT_OBJECT_DIRECTORY": os.path.abspath(objects)}
        data = pack.read_bytes()
        if not int.from_bytes(data[8:12]):
            return
        done = scratch.run(*options, "index-pack", "--stdin", input_data=data, environ=into, umask=-1)
        if done.code:
            raise Unavailable(f"git could not add objects to {objects}: {done.error}", hint="No ref was made.")

    def _create(self, git: Path, now: GitRefs, loss: GitLoss, *, keeps_names: bool) -> str:
        """Create a ref, or return one that has the commit already, so that a second rescue adds none."""
        short = loss.name.removeprefix("refs/").removeprefix("heads/")
        wanted = loss.name if keeps_names and loss.name.startswith("refs/") else RESCUED + short
        for _ in range(_TRIES):
            name = _free_name(now.refs, wanted, loss.commit)
            if name in now.refs:
                return name
            zeros = "0" * len(loss.commit)
            done = self._in_repository(git, "update-ref", "-m", "holdfast: rescued", name, loss.commit, zeros)
            if not done:
                return name
            now.refs[name] = ""  # another process has made it, or one whose name excludes it
        raise Unavailable(f"cannot create {wanted}: {done}", hint="What was brought back so far stays.")

    def _stash(self, git: Path, now: GitRefs, loss: GitLoss, work_tree: Path) -> str:
        """Put a stash on the list again; a branch, if git refuses."""
        message = loss.message or "rescued by holdfast"
        work = {"GIT_WORK_TREE": os.fspath(work_tree)}
        if not self._in_repository(git, "stash", "store", "-q", "-m", message, loss.commit, environ=work):
            return "refs/stash"
        name = loss.name.replace("@{", "-").replace("}", "")
        return self._create(git, now, GitLoss("stash", name, loss.commit, True, True), keeps_names=False)

    def _in_repository(self, git: Path, *command: str, environ: Mapping[str, str] | None = None) -> str:
        """Run a command that changes a ref; return what went wrong."""
        environ = {**_WHO, **(environ or {})}
        done = run_git(self._program, command, git_dir=git, environ=environ, umask=-1)
        return (done.error or f"git {command[0]} ended with {done.code}") if done.code else ""

    # the index

    def _staged(self, scratch: GitScratch) -> list[str] | None:
        """Return the contents that the recorded index names; None if some are missing."""
        entry = self._data.file("index")
        if entry is None:
            return []
        write_index(self._repository.objects, self._data, scratch.folder)
        done = scratch.run("ls-files", "--stage", "-z", "--sparse")
        rows = [row.split(b" ", 2) for row in done.output.split(b"\0") if row]
        names = {row[1].decode() for row in rows if row[0] != b"160000" and row[1].strip(b"0")}
        if done.code or names - scratch.kinds(names).keys():
            return None
        return sorted(names)

    def _put_index(self, git: Path, entry: TreeEntry) -> str:
        """Replace the index by the recorded one, under git's lock; return the name of a copy of the one before."""
        objects = self._repository.objects
        lock = git / "index.lock"
        try:
            fd = durable.disk().create(str(lock))  # O_EXCL: git does the same
        except FileExistsError:
            raise Conflict(
                f"{lock} exists, so a git command may be running",
                hint="Wait for it to end; if none is running, remove the file.",
            ) from None
        try:
            try:
                for piece in content(objects, entry.mode, entry.oid):
                    durable.disk().write(fd, piece)
                durable.disk().fsync(fd)
            finally:
                os.close(fd)
            shared = self._data.file("shared-index")
            if (
                shared is not None
                and self._data.shared_index_name
                and not (git / self._data.shared_index_name).exists()
            ):
                data = b"".join(content(objects, shared.mode, shared.oid))
                durable.write_atomically(git / self._data.shared_index_name, data)
            backup = _backup(git)
            durable.disk().rename(str(lock), str(git / "index"))
        except BaseException:
            if lock.exists():
                durable.disk().unlink(str(lock))
            raise
        durable.sync_folder(git)
        return backup

    # a repository that was removed

    def _recreate(self, work: Path, found: GitLosses) -> GitRescue:
        """Make the repository again, beside its place, and rename it."""
        place = Path(os.path.normpath(self._root / (self._data.place or ".git")))
        is_ordinary = re.fullmatch(_PLACE, self._data.place) is not None
        if not is_ordinary or os.path.lexists(place):
            what = "has something at .git" if is_ordinary else "was a linked worktree or a submodule"
            raise Conflict(f"{self._root} {what}", hint="Repair it with git worktree or git submodule, or move it.")
        new = place.with_name(".git.holdfast-rescue")
        if new.exists():
            durable.remove_tree(str(new))  # of a rescue that was killed
        settings_left = self._init(new, place)
        scratch = GitScratch(work / "scratch", self._program, None, self._refs.object_format)
        self._extract(scratch)
        shallow = self._data.file("shallow")
        if shallow is not None:
            data = b"".join(content(self._repository.objects, shallow.mode, shallow.oid))
            for folder in (new, scratch.folder):
                (folder / "shallow").write_bytes(data)
        (new / RESUMED).write_text(f"{self._recorded.checkpoint.id}\n")
        has_index = self._data.file("index") is not None and self._staged(scratch) is not None
        for pack in sorted((scratch.folder / "objects" / "pack").glob("*.pack")):
            self._index_pack(scratch, pack, new / "objects", {})
        done = self._into(scratch, new, found.losses, place.parent, index=has_index)
        head = self._refs.head if self._refs.head.startswith("ref: ") or not done.missing else f"ref: {HEADS}main"
        durable.write_atomically(new / "HEAD", f"{head}\n".encode(), mode=0o644)
        durable.sync_folder(new)
        durable.disk().rename(str(new), str(place))  # commit point
        durable.sync_folder(place.parent)
        problems = [*done.problems, *(f"not recorded: {gap}" for gap in self._refs.gaps)]
        if self._refs.operation:
            problems.append(f"{self._refs.operation} was in progress and is not resumed")
        if not has_index and self._data.file("index") is not None:
            problems.append("the index was not brought back: contents that a remote has are missing")
        settings_file = os.fspath(place / _SETTINGS_LEFT) if os.path.lexists(place / _SETTINGS_LEFT) else ""
        notes = [_NOT_BROUGHT_BACK, *([_about_settings(settings_left, settings_file)] if settings_file else ())]
        return GitRescue(
            done.refs, done.missing, True, has_index, "", tuple(problems), tuple(notes), settings_left, settings_file
        )

    def _init(self, new: Path, place: Path) -> tuple[str, ...]:
        """Make an empty repository; return the recorded settings that it does not get."""
        command = ("init", "-q", "--bare", "--template=", f"--object-format={self._refs.object_format}", os.fspath(new))
        done = run_git(self._program, command, git_dir=new.parent, environ={"GIT_DIR": os.fspath(new)}, umask=-1)
        if done.code:
            raise Unavailable(f"git could not make {new}: {done.error}", hint="Nothing was changed.")
        data = (new / "config").read_bytes().replace(b"bare = true", b"bare = false")
        left: list[str] = []
        config = self._data.file("config")
        if config is not None:
            recorded = b"".join(content(self._repository.objects, config.mode, config.oid))
            file = new / _SETTINGS_LEFT
            durable.write_atomically(file, recorded)
            settings = read_settings(self._program, new, file)
            kept, others = split_settings(settings or (), place.parent)  # P7: no setting of a store runs a program
            left = list(dict.fromkeys(each.key for each in others))
            if settings is not None:
                data = write_settings(kept) if others else recorded
            if settings is not None and not others:
                durable.disk().unlink(str(file))
        durable.write_atomically(new / "config", data, mode=0o644)
        return tuple(left)

    # the scratch folder

    def _extract(self, scratch: GitScratch) -> None:
        """Put the packs that the checkpoint holds into the scratch repository."""
        for number, pack in enumerate(self._data.packs):
            file = scratch.folder / "objects" / "pack" / f"pack-{number}.pack"
            extract(self._repository.objects, pack, file)
            done = scratch.run("index-pack", os.fspath(file))
            if done.code:
                raise Unavailable(f"git cannot read a pack of the store: {done.error}", hint="Nothing was changed.")


def _about_settings(left: tuple[str, ...], file: str) -> str:
    if not left:
        return f"git cannot read the configuration that was recorded; it is in {file}"
    many = "1 setting" if len(left) == 1 else f"{len(left)} settings"
    names = ", ".join(left[:_MOST_KEYS]) + (f" and {len(left) - _MOST_KEYS} more" if len(left) > _MOST_KEYS else "")
    return f"{many} that may run a program did not come back: {names}. Look at {file} and copy what is yours."


def _free_name(refs: Mapping[str, str], wanted: str, commit: str) -> str:
    """Return a name that is free, or that of a ref that has the commit."""
    for number in range(1, _MOST_NAMES):
        name = wanted if number == 1 else f"{wanted}-{number}"
        if refs.get(name) == commit:
            return name
        is_taken = name in refs or any(each.startswith(f"{name}/") or name.startswith(f"{each}/") for each in refs)
        if not is_taken:
            return name
    raise Conflict(f"{wanted} and {_MOST_NAMES - 2} more names are taken", hint="Delete some of these branches.")


def _backup(git: Path) -> str:
    """Keep a copy of the index; return its name, or nothing if there is no index."""
    if not (git / "index").exists():
        return ""
    for number in range(1, _MOST_NAMES):
        place = git / f"index.before-rescue-{number}"
        if not os.path.lexists(place):
            durable.write_atomically(place, (git / "index").read_bytes())
            return os.fspath(place)
    raise Conflict(f"{git} has {_MOST_NAMES - 1} copies of its index", hint="Remove some index.before-rescue files.")
