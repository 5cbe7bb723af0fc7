"""Differences for people: what came, went, changed or moved; and a patch that git applies."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast import CheckpointDiff, Workspace
from holdfast.model import LineCount, Renamed

Git = Callable[..., bytes]
Files = Mapping[str, bytes]

TEXT = b"".join(b"line %d\n" % number for number in range(40))


@pytest.fixture
def compare(project: Any, ws: Workspace) -> Callable[[Files, Files], CheckpointDiff]:
    """The difference between two folders of files."""

    def make(before: Files, after: Files) -> CheckpointDiff:
        for name, data in before.items():
            project.write(name, data)
        first = ws.save()
        for name in before:
            (project.root / name).unlink()
        for name, data in after.items():
            project.write(name, data)
        return ws.diff(first.id, ws.save().id)

    return make


Compare = Callable[[Files, Files], CheckpointDiff]


class TestWhatDiffers:
    def test_what_came_went_and_changed_is_told_apart(self, compare: Compare) -> None:
        diff = compare(
            {"gone": b"1\n", "changed": b"a\nb\n", "same": b"x"}, {"came": b"2\n", "changed": b"a\nc\n", "same": b"x"}
        )
        assert (diff.added_files, diff.deleted_files, diff.modified_files) == (["came"], ["gone"], ["changed"])
        assert diff.line_counts == {"came": LineCount(1, 0), "gone": LineCount(0, 1), "changed": LineCount(1, 1)}
        assert diff

    def test_nothing_is_nothing(self, project: Any, ws: Workspace) -> None:
        project.write("file")
        saved = ws.save()
        diff = ws.diff(saved.id, saved.id)
        assert not diff
        assert diff.diff_content == ""

    def test_touched_file_is_not_a_changed_file(self, project: Any, ws: Workspace) -> None:
        file = project.write("file")
        saved = ws.save()
        os.utime(file, ns=(0, 0))
        diff = ws.diff(saved.id)
        assert diff.touched_files == ["file"]
        assert diff.modified_files == []
        assert diff.diff_content == ""

    def test_a_change_of_mode_is_a_change_without_lines(self, project: Any, ws: Workspace) -> None:
        file = project.write("file")
        file.chmod(0o644)
        saved = ws.save()
        file.chmod(0o755)
        diff = ws.diff(saved.id)
        assert diff.modified_files == ["file"]
        assert diff.line_counts == {"file": LineCount(0, 0)}
        assert diff.diff_content == "diff --git a/file b/file\nold mode 100644\nnew mode 100755\n"

    def test_binary_files_are_named_and_not_shown(self, compare: Compare) -> None:
        diff = compare({"image": b"\x89PNG\0\1"}, {"image": b"\x89PNG\0\2"})
        assert diff.line_counts == {"image": LineCount(None, None)}
        assert diff.diff_content == "diff --git a/image b/image\nBinary files a/image and b/image differ\n"

    def test_text_that_is_no_utf_8_is_shown_and_keeps_its_bytes(self, compare: Compare) -> None:
        diff = compare({"file": b"caf\xe9\n"}, {"file": b"caf\xe8\n"})
        assert b"-caf\xe9\n+caf\xe8\n" in diff.diff_content.encode("utf-8", "surrogateescape")

    def test_a_file_too_large_to_be_shown_is_named(self, compare: Compare) -> None:
        diff = compare({"file": b"a\n" * 3_000_000}, {"file": b"b\n" * 3_000_000})
        assert diff.line_counts == {"file": LineCount(None, None)}
        assert len(diff.diff_content) < 1000

    def test_file_replaced_by_folder_is_a_removal_and_additions(self, project: Any, ws: Workspace) -> None:
        project.write("thing", TEXT)
        saved = ws.save()
        (project.root / "thing").unlink()
        project.write("thing/inner", b"other\n")
        diff = ws.diff(saved.id)
        assert diff.deleted_files == ["thing"]
        assert diff.added_files == ["thing/inner"]

    def test_diff_with_the_present_stores_nothing(self, project: Any, ws: Workspace) -> None:
        project.write("file", b"old\n")
        saved = ws.save()
        project.write("file", b"new\n")
        before = sorted(os.listdir(project.store / "objects" / "pack"))
        diff = ws.diff(saved.id)
        assert diff.to_id is None
        assert "-old\n+new\n" in diff.diff_content
        assert sorted(os.listdir(project.store / "objects" / "pack")) == before


class TestRenames:
    def test_a_file_that_moved_unchanged_is_a_rename(self, compare: Compare) -> None:
        diff = compare({"old/name": TEXT}, {"new/name": TEXT})
        assert diff.renamed_files == [Renamed("old/name", "new/name")]
        assert diff.added_files == diff.deleted_files == []
        assert "rename from old/name\nrename to new/name\n" in diff.diff_content
        assert "@@" not in diff.diff_content

    def test_moved_and_edited_file_is_a_rename_with_line_counts(self, compare: Compare) -> None:
        diff = compare({"old": TEXT}, {"new": TEXT.replace(b"line 7\n", b"line seven\n")})
        assert diff.renamed_files == [Renamed("old", "new")]
        assert diff.line_counts == {"new": LineCount(1, 1)}

    def test_a_file_of_which_less_than_half_is_left_is_another_one(self, compare: Compare) -> None:
        half = b"".join(b"other %d\n" % number for number in range(40))
        diff = compare({"old": TEXT}, {"new": TEXT[:100] + half})
        assert diff.renamed_files == []
        assert (diff.deleted_files, diff.added_files) == (["old"], ["new"])

    def test_the_most_alike_are_paired(self, compare: Compare) -> None:
        other = TEXT.replace(b"line", b"word")
        diff = compare(
            {"a": TEXT, "b": other},
            {"x": other.replace(b"word 1\n", b"x\n"), "y": TEXT.replace(b"line 1\n", b"y\n")},
        )
        assert diff.renamed_files == [Renamed("a", "y"), Renamed("b", "x")]

    def test_one_that_went_is_paired_once(self, compare: Compare) -> None:
        diff = compare({"old": TEXT}, {"one": TEXT, "two": TEXT})
        assert diff.renamed_files == [Renamed("old", "one")]
        assert diff.added_files == ["two"]


def test_names_are_quoted_as_git_quotes_them(project: Any, ws: Workspace, git: Git, tmp_path: Path) -> None:
    names = [
        *("plain", "two words", "tab\there", 'quo"te', "back\\slash", "new\nline", "caf\xe9", "trailing ", "a b/c d"),
        *('\N{SNOWMAN} and "', os.fsdecode(b"caf\xe9"), os.fsdecode(b"\xff\xfe\x80")),
    ]
    saved = ws.save()
    for name in names:
        project.write(name, b"content of %s\n" % os.fsencode(name))
    ours = _headers(ws.diff(saved.id).diff_content.encode("utf-8", "surrogateescape"))
    assert len(ours) == len(names)
    words = ["--git-dir", tmp_path / "git", "--work-tree", project.root]
    git(*words, "init", "--quiet")
    git(*words, "add", "--all")
    empty_tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    theirs = set()
    for quotepath in ("true", "false"):
        theirs |= _headers(
            git(*words, "-c", f"core.quotePath={quotepath}", "diff", "--cached", "--no-renames", empty_tree)
        )
    assert ours <= theirs


def _headers(patch: bytes) -> set[bytes]:
    return {line for line in patch.split(b"\n") if line.startswith(b"diff --git")}


def snapshot(root: Path) -> dict[str, tuple[bytes, bool]]:
    """The files of a folder: content and whether they can be run; links as their targets."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            data = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
            found[os.path.relpath(path, root)] = (data, bool(path.lstat().st_mode & 0o100) and not path.is_symlink())
    return found


class TestPatch:
    """`git apply` makes one folder of the other."""

    @pytest.fixture
    def check(self, project: Any, ws: Workspace, git: Git, tmp_path: Path) -> Callable[[Callable[[], None]], str]:
        def apply(change: Callable[[], None]) -> str:
            before = ws.save()
            shutil.copytree(project.root, tmp_path / "copy", symlinks=True)
            change()
            patch = ws.diff(before.id).diff_content
            git("-C", tmp_path / "copy", "apply", "--whitespace=nowarn", given=patch.encode("utf-8", "surrogateescape"))
            assert snapshot(tmp_path / "copy") == snapshot(project.root)
            return patch

        return apply

    def test_edits_anywhere_in_a_file(self, project: Any, check: Any) -> None:
        project.write("file", TEXT)
        check(lambda: project.write("file", b"first\n" + TEXT.replace(b"line 20\n", b"") + b"last\n"))

    def test_a_file_without_a_newline_at_its_end(self, project: Any, check: Any) -> None:
        project.write("loses", b"a\nb\n")
        project.write("gains", b"a\nb")
        project.write("keeps", b"a\nb")

        def change() -> None:
            project.write("loses", b"a\nb")
            project.write("gains", b"a\nb\n")
            project.write("keeps", b"c\nb")

        check(change)

    def test_files_that_come_and_go(self, project: Any, check: Any) -> None:
        project.write("gone/file", TEXT)

        def change() -> None:
            shutil.rmtree(project.root / "gone")
            project.write("new/deep/file", b"other\n")
            project.write("new/run", b"#!/bin/sh\n").chmod(0o755)

        check(change)

    def test_an_empty_file_that_comes_and_one_that_goes(self, project: Any, check: Any) -> None:
        project.write("gone", b"")

        def change() -> None:
            (project.root / "gone").unlink()
            project.write("filled", b"x\n")
            project.write("came", b"")

        check(change)

    def test_renames_with_and_without_edits(self, project: Any, check: Any) -> None:
        project.write("a/exact", TEXT)
        project.write("a/edited", TEXT.replace(b"line", b"word"))

        def change() -> None:
            (project.root / "b").mkdir()
            (project.root / "a/exact").rename(project.root / "b/exact")
            (project.root / "a/edited").unlink()
            (project.root / "a").rmdir()
            project.write("b/changed", TEXT.replace(b"line", b"word") + b"more\n")

        assert check(change).count("rename from") == 2

    def test_modes(self, project: Any, check: Any) -> None:
        project.write("run").chmod(0o644)
        project.write("both").chmod(0o755)

        def change() -> None:
            (project.root / "run").chmod(0o700)
            project.write("both", b"edited\n").chmod(0o640)

        check(change)

    def test_links(self, project: Any, check: Any) -> None:
        (project.root / "turned").symlink_to("old")
        (project.root / "gone").symlink_to("nowhere")

        def change() -> None:
            for name in ("turned", "gone"):
                (project.root / name).unlink()
            (project.root / "turned").symlink_to("new")
            (project.root / "came").symlink_to("somewhere else")

        check(change)

    @pytest.mark.parametrize("direction", ["to a link", "to a file"])
    def test_a_file_that_became_a_link_or_the_reverse(self, project: Any, check: Any, direction: str) -> None:
        if direction == "to a link":
            project.write("thing", b"target")
        else:
            (project.root / "thing").symlink_to("target")

        def change() -> None:
            (project.root / "thing").unlink()
            if direction == "to a link":
                (project.root / "thing").symlink_to("target")
            else:
                project.write("thing", b"target")

        check(change)

    def test_a_link_is_not_a_rename_of_a_file_that_holds_its_target(self, project: Any, check: Any) -> None:
        project.write("file", b"target")

        def change() -> None:
            (project.root / "file").unlink()
            (project.root / "link").symlink_to("target")

        check(change)

    def test_a_folder_in_the_place_of_a_file(self, project: Any, check: Any) -> None:
        project.write("thing", TEXT)

        def change() -> None:
            (project.root / "thing").unlink()
            project.write("thing/inner", b"other\n")

        check(change)

    def test_names_of_every_kind(self, project: Any, check: Any) -> None:
        names = [
            "two words",
            'quo"te',
            "back\\slash",
            "tab\t",
            "caf\xe9",
            os.fsdecode(b"\xff"),
            "a b/c",
            "-",
            "trail ",
            "bell\a",
            "x\r",
        ]
        for name in names:
            project.write(name, TEXT + os.fsencode(name) + b"\n")

        def change() -> None:
            for name in names[::2]:
                project.write(name, TEXT + b"changed\n" + os.fsencode(name) + b"\n")
            for name in names[1::2]:
                (project.root / name).rename(project.root / f"{name}.moved")

        check(change)

    def test_lines_that_end_in_carriage_returns_or_are_no_text(self, project: Any, check: Any) -> None:
        project.write("dos", b"a\r\nb\r\nc\r\n")
        project.write("latin", b"caf\xe9\nna\xefve\n")
        project.write("form", b"a\x0cb\x0bc\x1cd\n\x85\n")

        def change() -> None:
            project.write("dos", b"a\r\nB\r\nc\r\n")
            project.write("latin", b"caf\xe8\nna\xefve\n")
            project.write("form", b"a\x0cb\x0bc\x1cD\n\x85\n")

        check(change)

    @pytest.mark.parametrize("seed", range(3))
    def test_many_changes_at_once(self, project: Any, check: Any, seed: int) -> None:
        chance = random.Random(seed)
        for number in range(30):
            lines = [b"%d %d\n" % (number, chance.randrange(50)) for _ in range(chance.randrange(1, 60))]
            project.write(f"folder {number % 4}/file {number}", b"".join(lines))

        def change() -> None:
            for path in sorted(project.root.rglob("file *")):
                match chance.randrange(5):
                    case 0:
                        path.unlink()
                    case 1:
                        path.rename(path.with_name(f"{path.name} moved"))
                    case 2:
                        lines = path.read_bytes().splitlines(keepends=True)
                        lines.insert(chance.randrange(len(lines) + 1), b"inserted\n")
                        path.write_bytes(b"".join(lines))
                    case 3:
                        path.chmod(0o755)

        check(change)
