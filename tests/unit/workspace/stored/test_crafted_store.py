"""Stores that somebody made to do harm, and files that were made to confuse one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.errors import Damaged, Refused
from holdfast.shadowgit import FILE_MODE, FOLDER_MODE, ObjectKind, TreeEntry, encode_tree
from holdfast.workspace.stored.record import Node, encode_record, write_commit

Git = Callable[..., bytes]

OWN = b"40755 1700000000000000000 - .\n"


class Crafted:
    """A checkpoint that no workspace gave rise to, written as a writer would."""

    def __init__(self, ws: Workspace) -> None:
        self._repository = ws._repository
        self._model = ws.save("model")
        self._writer = self._repository.objects.writer()

    def blob(self, data: bytes) -> bytes:
        return self._writer.add(ObjectKind.BLOB, data)

    def tree(self, *entries: tuple[int, bytes, bytes]) -> bytes:
        return self._writer.add(ObjectKind.TREE, encode_tree([TreeEntry(*entry) for entry in entries]))

    def publish(self, root: Node) -> str:
        checkpoint = self._model.replace(id="a9-crafted0", sequence=9, message="crafted", _lazy=None)
        contents = self._repository.contents(self._model)._replace(
            root=root, record=self.blob(encode_record(checkpoint))
        )
        commit = write_commit(self._writer, checkpoint, contents)
        self._writer.commit()
        self._repository.objects.set_ref(checkpoint.id, commit)
        return checkpoint.id


def craft_folder(ws: Workspace, stored: bytes, file: bytes = b"planted") -> str:
    """A checkpoint with one folder, of any name, and an executable file in it."""
    crafted = Crafted(ws)
    inner = crafted.tree((0o100755, file, crafted.blob(b"#!/bin/sh\n")))
    below = crafted.blob(OWN + b"100755 1700000000000000000 - " + file + b"\n")
    attrs = crafted.tree((FILE_MODE, b"%", crafted.blob(OWN)), (FILE_MODE, stored, below))
    return crafted.publish(Node(crafted.tree((FOLDER_MODE, stored, inner)), attrs, True))


def craft_pipe(ws: Workspace, name: bytes) -> str:
    """A checkpoint with one pipe, which only `attrs/` names."""
    crafted = Crafted(ws)
    attrs = crafted.blob(OWN + b"10644 1700000000000000000 - " + name + b"\n")
    return crafted.publish(Node(crafted.tree(), attrs, False))


def below(project: Any) -> set[str]:
    """Every path of the area but those in the store."""
    found = {os.fspath(path.relative_to(project.area)) for path in project.area.rglob("*")}
    return {path for path in found if path.split("/")[0] != "store"}


class TestNames:
    @pytest.mark.parametrize("stored", [b"%2E%2E", b"%2E", b"%2Egit"])
    def test_impossible_folder_is_damage_and_nothing_is_written(
        self, project: Any, ws: Workspace, git: Git, stored: bytes
    ) -> None:
        """P6: `..` leads out of the workspace, and into `.git` goes a hook that git would run."""
        git("init", "--quiet", "--template=", project.root)
        project.write("file")
        crafted = craft_folder(ws, stored)
        git("--git-dir", ws.store, "fsck", "--strict", "--no-dangling")  # git has nothing against it
        before, time = below(project), project.area.stat().st_mtime_ns
        again = project.open()
        with pytest.raises(Damaged, match="contains the invalid name"):
            again.restore(crafted)
        assert below(project) == before
        assert project.area.stat().st_mtime_ns == time

    @pytest.mark.parametrize("name", [b"..", b"../planted", b"/planted", b""])
    def test_a_pipe_of_such_a_name_is_damage_and_is_not_made(self, project: Any, ws: Workspace, name: bytes) -> None:
        crafted = craft_pipe(ws, name)
        before = below(project)
        with pytest.raises(Damaged):
            project.open().restore(crafted)
        assert below(project) == before

    @pytest.mark.parametrize(("craft", "name"), [(craft_folder, b"%2Egit"), (craft_pipe, b"../x")])
    def test_verify_names_the_checkpoint(
        self, project: Any, ws: Workspace, craft: Callable[[Workspace, bytes], str], name: bytes
    ) -> None:
        crafted = craft(ws, name)
        report = project.open().verify()
        assert not report.ok
        assert {key for problem in report.problems for key in problem.checkpoints} == {crafted}

    @pytest.mark.parametrize("stored", [b"folder", b"%2Egitmodules", b"%2Egit%2E"])
    def test_a_folder_that_a_workspace_can_have_is_restored(self, project: Any, ws: Workspace, stored: bytes) -> None:
        """What is refused above is refused for its name alone."""
        crafted = craft_folder(ws, stored)
        assert project.open().restore(crafted).ok
        name = stored.replace(b"%2E", b".").decode()
        assert (project.root / name / "planted").read_bytes() == b"#!/bin/sh\n"


class TestAttributes:
    @pytest.mark.parametrize("name", ["user.parts", "user.parts=3", "user.sparse", "user.link"])
    @pytest.mark.linux
    def test_xattr_named_like_an_own_field_is_only_an_xattr(
        self, project: Any, ws: Workspace, git: Git, name: str
    ) -> None:
        file = project.write("file", b"hello")
        os.setxattr(file, name, b"1")
        saved = ws.save()
        assert ws.verify().problems == []
        git("--git-dir", ws.store, "fsck", "--strict", "--no-dangling")
        assert git("--git-dir", ws.store, "show", f"{saved.id}:files/file") == b"hello"
        file.unlink()
        assert ws.restore(saved.id).ok
        assert (file.read_bytes(), os.getxattr(file, name)) == (b"hello", b"1")
        ws.merge()


class TestLargeRules:
    @pytest.mark.parametrize("name", [".gitignore", ".holdfastignore"])
    def test_chunked_ignore_file_does_not_stop_a_restore(self, project: Any, ws: Workspace, name: str) -> None:
        """It counts as empty, as it did when the checkpoint was made."""
        project.write(name, b"#\n" * (9 << 19))
        project.write("file")
        saved = ws.save()
        project.write("made-since")
        done = ws.restore(saved.id)
        assert (done.ok, done.removed) == (True, ["made-since"])


class TestSettings:
    """P7: git runs what a store's settings name, so only ours count."""

    @pytest.mark.parametrize(
        "setting",
        [
            ("extensions.partialClone", "origin"),
            ("core.sshCommand", "{}"),
            ("core.fsmonitor", "{}"),
            ("core.hooksPath", "/somewhere"),
            ("core.alternateRefsCommand", "{}"),
            ("uploadpack.packObjectsHook", "{}"),
            ("include.path", "elsewhere"),
        ],
        ids=lambda setting: setting[0],
    )
    def test_compact_refuses_settings_that_are_not_ours(
        self, project: Any, ws: Workspace, git: Git, setting: tuple[str, str]
    ) -> None:
        project.write("file")
        ws.save()
        key, value = setting
        git("--git-dir", ws.store, "config", key, value.format(project.area / "program"))
        packs = sorted((ws.store / "objects" / "pack").iterdir())
        with pytest.raises(Refused, match="config is not what Holdfast wrote"):
            project.open().compact()
        assert sorted((ws.store / "objects" / "pack").iterdir()) == packs
        assert [problem.what for problem in project.open().verify().problems] == ["config"]
        (ws.store / "config").unlink()
        assert project.open().compact().by_git
        assert project.open().verify().ok

    def test_a_promisor_that_would_run_a_program_does_not(self, project: Any, ws: Workspace, git: Git) -> None:
        """Git fetches what it lacks, and the settings say how."""
        project.write("file")
        saved = ws.save()
        ran = project.area / "ran"
        program = project.area / "program"
        program.write_text(f"#!/bin/sh\ntouch {ran}\nexit 1\n")
        program.chmod(0o700)
        for key, value in (
            ("core.repositoryformatversion", "1"),
            ("extensions.partialClone", "origin"),
            ("remote.origin.url", "ssh://nowhere/x"),
            ("remote.origin.promisor", "true"),
            ("core.sshCommand", os.fspath(program)),
            ("core.fsmonitor", os.fspath(program)),
        ):
            git("--git-dir", ws.store, "config", key, value)
        tag = ws.store / "refs" / "heads" / "own"
        tag.write_text("12" * 20 + "\n")
        with pytest.raises((Refused, Damaged)):
            project.open().compact()
        tag.unlink()
        with pytest.raises(Refused):
            project.open().compact()
        assert not ran.exists()
        assert project.open().get(saved.id).id == saved.id

    @pytest.mark.parametrize("name", ["commondir", "objects/info/alternates"])
    def test_compact_refuses_to_be_led_elsewhere(self, project: Any, ws: Workspace, name: str) -> None:
        project.write("file")
        ws.save()
        (ws.store / name).parent.mkdir(exist_ok=True)
        (ws.store / name).write_text(f"{project.area}\n")
        with pytest.raises(Refused, match="another repository"):
            project.open().compact()

    def test_the_git_program_is_not_looked_for_in_the_folder(self, project: Any) -> None:
        program = project.write("git", b"#!/bin/sh\ntouch ran\n")
        program.chmod(0o700)
        project.write("file")
        for path in (".", f":{project.root.name}", ""):
            ws = project.open(environ={"PATH": path})
            ws.save(allow_empty=True)
            with contextlib.chdir(project.root):
                assert not ws.compact().by_git
        assert not list(project.area.rglob("ran"))


YEAR_NS = 31_556_952 * 10**9


def craft_file(ws: Workspace, line: bytes) -> str:
    """A checkpoint with one file of which `attrs/` says anything at all."""
    crafted = Crafted(ws)
    tree = crafted.tree((FILE_MODE, b"file", crafted.blob(b"content")))
    return crafted.publish(Node(tree, crafted.blob(OWN + line + b" file\n"), False))


class TestStoredTimes:
    @pytest.mark.parametrize(
        "line",
        [
            b"100644 %d -" % (10**12 * YEAR_NS),
            b"100644 -%d -" % (10**12 * YEAR_NS),
            b"100644 " + b"9" * 5000 + b" -",
            b"7777100644 0 -",
            b"-100644 0 -",
            b"100644 0 owner=x:y",
            b"100644 0 parts=many",
            b"100644 0 xattr.user.a=A",
        ],
        ids=["far", "long ago", "digits", "mode", "negative mode", "owner", "parts", "xattr"],
    )
    def test_what_no_system_takes_is_damage(self, project: Any, ws: Workspace, line: bytes) -> None:
        project.write("file", b"mine")
        ref = craft_file(ws, line)
        for act in (ws.preview, ws.restore, lambda ref: ws.export(ref, project.area / "out")):
            with pytest.raises(Damaged, match="attributes cannot be read"):
                act(ref)
        assert (project.root / "file").read_bytes() == b"mine"
        assert not ws.verify().ok

    @pytest.mark.parametrize("mtime_ns", [10**6 * YEAR_NS, -(10**6) * YEAR_NS, 600 * YEAR_NS + 1])
    def test_a_time_that_the_disk_does_not_count_is_told(self, project: Any, ws: Workspace, mtime_ns: int) -> None:
        project.write("file", b"mine")
        done = ws.restore(craft_file(ws, b"100644 %d -" % mtime_ns))
        assert (project.root / "file").read_bytes() == b"content"
        is_kept = (project.root / "file").stat().st_mtime_ns == mtime_ns
        assert done.failed == ({} if is_kept else {"file": "its time could not be restored"})
        ws.undo()
        assert (project.root / "file").read_bytes() == b"mine"
