"""Deciding what a restore does: the digest holds a caller to what was shown; and what is left alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Checkpoint, Conflict, Workspace
from holdfast.model import Plan


@pytest.fixture
def saved(project: Any, ws: Workspace) -> Checkpoint:
    """A checkpoint, and a folder in which something of every kind has changed since."""
    for name in ("same", "changed", "gone", "folder/inner", "mode"):
        project.write(name, b"old\n")
    (project.root / "link").symlink_to("old")
    (project.root / "empty").mkdir()
    checkpoint = ws.save()
    project.write("changed", b"new\n")
    project.write("came", b"new\n")
    (project.root / "gone").unlink()
    (project.root / "empty").rmdir()
    (project.root / "mode").chmod(0o600)
    return checkpoint


def touch(path: Any) -> None:
    os.utime(path, ns=(1, 1))


CHANGES: dict[str, Callable[[Any], object]] = {
    "a file is edited that equals the checkpoint": lambda root: (root / "same").write_bytes(b"edited\n"),
    "a file is edited that was to be replaced": lambda root: (root / "changed").write_bytes(b"newer\n"),
    "a file is edited that was to be removed": lambda root: (root / "came").write_bytes(b"newer\n"),
    "a file comes": lambda root: (root / "another").write_bytes(b""),
    "a file goes": lambda root: (root / "same").unlink(),
    "a file that was to come is there": lambda root: (root / "gone").write_bytes(b"x"),
    "a file is touched": lambda root: touch(root / "same"),
    "a file that was to be replaced is touched": lambda root: touch(root / "changed"),
    "a mode changes": lambda root: (root / "same").chmod(0o700),
    "a mode that was to be changed is another": lambda root: (root / "mode").chmod(0o640),
    "a folder comes": lambda root: (root / "more").mkdir(),
    "an attribute is set": lambda root: os.setxattr(root / "same", "user.a", b"1"),
    "a link turns": lambda root: ((root / "link").unlink(), (root / "link").symlink_to("new")),
    "a file becomes a folder": lambda root: ((root / "same").unlink(), (root / "same").mkdir()),
    "a file gets a second name": lambda root: os.link(root / "same", root / "folder" / "again"),
    "a socket comes into the way": lambda root: socket.socket(socket.AF_UNIX).bind(str(root / "gone")),
}
EACH_CHANGE = [
    pytest.param(change, id=name, marks=[pytest.mark.linux] * ("attribute" in name)) for name, change in CHANGES.items()
]


class TestDigest:
    def test_it_is_the_same_for_the_same_state(self, project: Any, ws: Workspace, saved: Checkpoint) -> None:
        plan = ws.preview(saved.id)
        assert ws.preview(saved.id) == plan
        assert project.open().preview(saved.id).digest == plan.digest

    def test_it_does_not_depend_on_what_is_remembered_of_the_folder(
        self, project: Any, ws: Workspace, saved: Checkpoint
    ) -> None:
        before = ws.preview(saved.id).digest
        (project.store / "holdfast" / "scan.cache").unlink()
        for leftover in (project.store / "holdfast").glob("catalog.db*"):
            leftover.unlink()
        assert project.open().preview(saved.id).digest == before

    @pytest.mark.filterwarnings("ignore::ResourceWarning")  # the socket is made for its name
    @pytest.mark.parametrize("change", EACH_CHANGE)
    def test_digest_changes_with_anything_and_the_plan_is_refused(
        self, project: Any, ws: Workspace, saved: Checkpoint, change: Callable[[Any], object]
    ) -> None:
        plan = ws.preview(saved.id)
        change(project.root)
        assert ws.preview(saved.id).digest != plan.digest
        with pytest.raises(Conflict, match="changed since the plan"):
            ws.restore(saved.id, plan=plan)
        assert len(ws.list(safety=True)) == 1, "nothing was begun"

    def test_it_depends_on_the_target_the_paths_and_what_is_to_stay(
        self, project: Any, ws: Workspace, saved: Checkpoint
    ) -> None:
        project.write("more", b"more")
        other = ws.save()
        digests = {
            ws.preview(saved.id).digest,
            ws.preview(other.id).digest,
            ws.preview(saved.id, ["changed"]).digest,
            ws.preview(saved.id, ["changed", "came"]).digest,
            ws.preview(saved.id, keep_new=True).digest,
        }
        assert len(digests) == 5

    def test_a_plan_that_still_holds_is_carried_out_as_shown(
        self, project: Any, ws: Workspace, saved: Checkpoint
    ) -> None:
        plan = ws.preview(saved.id)
        done = ws.restore(saved.id, plan=plan)
        assert sorted(done.written) == sorted(plan.written + plan.replaced)
        assert sorted(done.removed) == sorted(plan.removed)

    def test_a_function_gets_the_plan_that_is_carried_out(self, project: Any, ws: Workspace, saved: Checkpoint) -> None:
        plans: list[Plan] = []
        previewed = ws.preview(saved.id)
        done = ws.restore(saved.id, plan=plans.append)
        assert plans == [previewed]
        assert sorted(done.removed) == sorted(previewed.removed)

    def test_a_function_that_raises_prevents_the_restore(self, project: Any, ws: Workspace, saved: Checkpoint) -> None:
        def everything() -> dict[str, bytes | None]:
            tops = (project.root, project.store / "objects", project.store / "refs")
            found = (path for top in tops for path in top.rglob("*"))
            return {str(path): path.read_bytes() if path.is_file() else None for path in found}

        def refuse(plan: Plan) -> None:
            assert plan
            raise KeyError("no")

        before = everything()
        with pytest.raises(KeyError):
            ws.restore(saved.id, plan=refuse)
        assert everything() == before
        assert not (project.store / "holdfast" / "journal.json").exists()

    def test_the_paths_and_wishes_of_a_plan_need_not_be_repeated(
        self, project: Any, ws: Workspace, saved: Checkpoint
    ) -> None:
        assert ws.restore(saved.id, plan=ws.preview(saved.id, ["changed"])).written == ["changed"]
        assert ws.restore(saved.id, plan=ws.preview(saved.id, keep_new=True)).removed == []
        assert (project.root / "came").exists()


class TestWhatIsPlanned:
    def test_each_path_is_told_once_under_what_would_happen_to_it(
        self, project: Any, ws: Workspace, saved: Checkpoint
    ) -> None:
        plan = ws.preview(saved.id)
        assert plan.written == ["empty", "gone"]
        assert plan.replaced == ["changed", "mode"]
        assert plan.removed == ["came"]
        assert (plan.kept, plan.blocked, plan.missing) == ({}, {}, {})
        assert plan.bytes_to_write == len(b"old\n") * 2
        assert plan

    def test_nothing_to_do_is_an_empty_plan(self, project: Any, ws: Workspace) -> None:
        project.write("file")
        saved = ws.save()
        assert not ws.preview(saved.id)

    def test_a_preview_stores_nothing_and_touches_nothing(self, project: Any, ws: Workspace, saved: Checkpoint) -> None:
        def everything() -> dict[str, tuple[int, int]]:
            tops = (project.root, project.store / "objects", project.store / "refs")
            found = {str(top): os.lstat(top) for top in tops}
            for top in tops:
                for folder, folders, files in os.walk(top):
                    found |= {f"{folder}/{name}": os.lstat(f"{folder}/{name}") for name in (*folders, *files)}
            return {path: (status.st_ino, status.st_mtime_ns) for path, status in found.items()}

        before = everything()
        ws.preview(saved.id)
        assert everything() == before

    def test_only_what_is_asked_for_is_planned(self, project: Any, ws: Workspace, saved: Checkpoint) -> None:
        plan = ws.preview(saved.id, ["changed", "came"])
        assert (plan.written, plan.replaced, plan.removed) == ([], ["changed"], ["came"])
        assert plan.paths == ("changed", "came")

    def test_what_the_folders_rules_ignore_is_kept_and_named(self, project: Any, ws: Workspace) -> None:
        project.write(".gitignore", b"*.log\n")
        saved = ws.save()
        project.write("new.log", b"log")
        project.write("new.txt", b"text")
        plan = ws.preview(saved.id)
        assert plan.removed == ["new.txt"]
        assert list(plan.kept) == ["new.log"]

    def test_a_repository_made_since_is_kept_and_named_once(self, project: Any, ws: Workspace, git: Any) -> None:
        saved = ws.save()
        project.write("clone/src/file")
        git("init", "--quiet", project.root / "clone")
        plan = ws.preview(saved.id)
        assert plan.removed == []
        assert {path for path in plan.kept if not path.endswith(".git")} == {"clone"}

    def test_what_a_repository_in_the_way_blocks_is_named(self, project: Any, ws: Workspace, git: Any) -> None:
        project.write("thing", b"old")
        saved = ws.save()
        (project.root / "thing").unlink()
        git("init", "--quiet", project.root / "thing")
        plan = ws.preview(saved.id)
        assert "repository" in plan.blocked["thing"]
        assert not ws.restore(saved.id).ok
        assert (project.root / "thing/.git/HEAD").exists()

    def test_what_was_never_held_and_is_gone_is_missing(self, project: Any) -> None:
        project.write("secret", b"never held")
        ws = project.open(exclude_patterns=["secret"])
        saved = ws.save()
        (project.root / "secret").unlink()
        assert list(ws.preview(saved.id).missing) == ["secret"]
