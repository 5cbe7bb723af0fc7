"""Refs and objects that somebody made with git in the store: heeded, never damage, and no hiding place for a purge."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Conflict, Workspace
from holdfast.retention import Policy

Git = Callable[..., bytes]
SECRET = b"API_KEY=sk-0123456789abcdef\n"


@pytest.fixture
def store(project: Any, ws: Workspace, git: Git) -> Git:
    """Three saves; git, at work in the store."""
    for number in range(3):
        project.write("file", b"version %d\n" % number)
        project.write("large", random.Random(1).randbytes(50_000) + b"%d" % number)  # compact makes a delta of it
        project.write(".env", SECRET)
        ws.save(f"{number}", name=f"save-{number}" if number else None)

    def run(*words: str, given: bytes = b"") -> bytes:
        who = ("-c", "user.name=somebody", "-c", "user.email=somebody@localhost")
        return git(f"--git-dir={project.store}", *who, *words, given=given)

    return run


@pytest.fixture
def tagged(ws: Workspace, store: Git) -> str:
    """An annotated tag, a plain one, and a branch with a commit of its own upon a checkpoint."""
    first = ws.list()[-1].id
    store("tag", "-a", "-m", "a tag with a text", "noted", first)
    store("tag", "plain", first)
    tree = store("rev-parse", f"{first}^{{tree}}").decode().strip()
    commit = store("commit-tree", tree, "-p", first, "-m", "upon it").decode().strip()
    store("update-ref", "refs/heads/mine", commit)
    return first


def check(project: Any, store: Git) -> None:
    report = project.open().verify()
    assert report.ok, report.problems
    store("fsck", "--strict")
    assert store("cat-file", "-p", "noted^{commit}^{tree}") == store("cat-file", "-p", "mine^{tree}")


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
def test_upkeep_goes_on_and_leaves_them_whole(
    project: Any, ws: Workspace, store: Git, tagged: str, packed: bool
) -> None:
    if packed:
        store("gc", "--quiet")
    ws = project.open()
    assert ws.verify().checkpoints == 3
    assert ws.usage().checkpoints
    assert [each.id for each in ws.prune(Policy(keep_last=1)).removed] == [tagged]
    ws.prune(Policy(keep_last=1), dry_run=False)
    check(project, store)
    ws.merge()
    check(project, store)
    ws = project.open(environ={"PATH": "/usr/bin:/bin"})
    assert ws.compact().by_git
    check(project, store)


def test_the_tag_of_a_checkpoint_under_another_name_is_named(project: Any, ws: Workspace, store: Git) -> None:
    latest = ws.list()[0].id
    store("tag", "moved", latest)
    store("tag", "-d", latest)
    [problem] = project.open().verify().problems
    assert problem.what == "refs/tags/moved"


@pytest.mark.parametrize("ref", ["refs/heads/kept", "refs/tags/kept"])
def test_a_purge_names_the_ref_that_would_keep_the_content(ws: Workspace, store: Git, ref: str) -> None:
    first = ws.list()[-1]
    store("update-ref", ref, first.commit)
    with pytest.raises(Conflict, match=ref):
        ws.purge(".env")
    assert ws.get(first.id).commit == first.commit
    store("update-ref", "-d", ref)
    ws.purge(".env")
    assert SECRET not in store("cat-file", "--batch-all-objects", "--batch")


def test_tag_of_something_else_does_not_stop_a_purge(project: Any, ws: Workspace, store: Git) -> None:
    blob = store("hash-object", "-w", "--stdin", given=b"something else\n").decode().strip()
    store("update-ref", "refs/tags/else", blob)
    ws.purge(".env")
    assert SECRET not in store("cat-file", "--batch-all-objects", "--batch")
    assert project.open().verify().ok


def test_objects_that_are_only_loose_are_read(project: Any, ws: Workspace, store: Git) -> None:
    first = ws.list()[-1]
    packs = list((project.store / "objects" / "pack").glob("*.pack"))
    for pack in packs:
        data = pack.read_bytes()
        pack.unlink()
        pack.with_suffix(".idx").unlink()
        store("unpack-objects", "-q", given=data)
    ws = project.open()
    assert ws.restore(first.id).ok
    assert (project.root / "file").read_bytes() == b"version 0\n"


def test_loose_object_with_the_wrong_id_is_not_read(ws: Workspace, store: Git, project: Any) -> None:
    from holdfast.shadowgit.git_files import loose_object

    name = store("hash-object", "-w", "--stdin", given=b"something\n").decode().strip()
    place = project.store / "objects" / name[:2] / name[2:]
    assert loose_object(project.store, bytes.fromhex(name)) is not None
    place.chmod(0o600)
    for data in (zlib.compress(b"blob 4\0else"), b"no zlib"):
        place.write_bytes(data)
        assert loose_object(project.store, bytes.fromhex(name)) is None


def test_a_ref_that_git_is_just_writing_is_passed_over(project: Any, ws: Workspace, store: Git) -> None:
    (project.store / "refs" / "tags" / "later.lock").write_bytes(b"")
    ws.merge()
    assert ws.usage().unneeded_bytes == 0
