"""Which paths are meant: a literal name wins over a glob, and a glob means what it means everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import NotFound, Refused, Workspace
from holdfast.workspace.pathspec import Scope, open_scope, parse_scope

PRESENT = [
    "a.py",
    "data.py",
    "[a]",
    "a",
    "*.py",
    "src",
    "src/a.py",
    "src/b.txt",
    "src/deep",
    "src/deep/a.py",
    "src/deep/data.py",
    "src/deep/er/a.py",
    "srcs",
    "srcs/a.py",
    "sp ace",
    "new\nline",
    "q?",
    "qx",
]

Meant = Callable[..., list[str]]


@pytest.fixture
def meant(tmp_path: Path) -> Meant:
    """The paths that are meant, of those there are."""

    def ask(*given: str | os.PathLike[str], absent: Sequence[str] = ()) -> list[str]:
        here = set(PRESENT) - set(absent)
        paths = [os.fsdecode(path) for path in given]
        scope = parse_scope(paths, tmp_path, lambda path: not path or path in here, lambda: PRESENT)
        return [path for path in PRESENT if path in scope]

    return ask


class TestLiteral:
    @pytest.mark.parametrize("spelling", ["src", "src/", "./src", "src/.", "srcs/../src", "src//"])
    def test_a_folder_means_all_below_it_and_nothing_beside_it(self, meant: Meant, spelling: str) -> None:
        assert meant(spelling) == [path for path in PRESENT if path == "src" or path.startswith("src/")]

    @pytest.mark.parametrize("name", ["[a]", "*.py", "q?", "sp ace", "new\nline"])
    def test_existing_name_that_looks_like_a_glob_is_literal(self, meant: Meant, name: str) -> None:
        assert meant(name) == [name]

    def test_an_absolute_path_in_the_workspace_is_a_path_of_it(self, meant: Meant, tmp_path: Path) -> None:
        assert meant(tmp_path / "src" / "b.txt") == ["src/b.txt"]
        assert meant(tmp_path) == PRESENT

    @pytest.mark.parametrize("root", [".", "./", "src/.."])
    def test_the_workspace_itself_means_everything(self, meant: Meant, root: str) -> None:
        assert meant(root) == PRESENT

    def test_a_path_is_a_path_whatever_its_type(self, meant: Meant) -> None:
        assert meant(Path("src/b.txt")) == ["src/b.txt"]
        assert meant("a", Path("qx")) == ["a", "qx"]

    def test_no_paths_mean_nothing_and_none_means_everything(self, meant: Meant, tmp_path: Path) -> None:
        assert meant() == []
        everything = parse_scope(None, tmp_path, lambda _: False, list)
        assert all(path in everything for path in PRESENT)


class TestGlob:
    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("*.py", ["a.py", "data.py", "*.py"]),
            ("[a]", ["a"]),
            ("[ad]*.py", ["a.py", "data.py"]),
            ("[!a].py", ["*.py"]),
            ("q?", ["q?", "qx"]),
            ("src/*.py", ["src/a.py"]),
            ("src/*", ["src/a.py", "src/b.txt", "src/deep", "src/deep/a.py", "src/deep/data.py", "src/deep/er/a.py"]),
            ("*/deep", ["src/deep", "src/deep/a.py", "src/deep/data.py", "src/deep/er/a.py"]),
            ("src/**/data.py", ["src/deep/data.py"]),
            ("**/b.txt", ["src/b.txt"]),
            ("src/**", [path for path in PRESENT if path.startswith("src/")]),
            ("s?c/b.txt", ["src/b.txt"]),
        ],
    )
    def test_it_means_what_it_matches(self, meant: Meant, pattern: str, expected: list[str]) -> None:
        absent = [name for name in (pattern,) if name in PRESENT]
        assert meant(pattern, absent=absent) == [path for path in PRESENT if path in expected]

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("**/a.py", ["a.py", "src/a.py", "src/deep/a.py", "src/deep/er/a.py", "srcs/a.py"]),
            ("src/**/a.py", ["src/a.py", "src/deep/a.py", "src/deep/er/a.py"]),
        ],
    )
    def test_two_stars_match_whole_folders_only(self, meant: Meant, pattern: str, expected: list[str]) -> None:
        assert meant(pattern) == expected

    def test_a_star_does_not_leave_its_folder(self, meant: Meant) -> None:
        assert "src/a.py" not in meant("*.py", absent=["*.py"])

    def test_a_class_of_characters_does_not_match_a_slash(self, meant: Meant) -> None:
        with pytest.raises(NotFound):
            meant("src[!x]b.txt")

    def test_one_that_matches_nothing_is_not_found(self, meant: Meant) -> None:
        with pytest.raises(NotFound, match="matches nothing"):
            meant("a", "*.rs")

    def test_other_characters_of_expressions_mean_themselves(self, tmp_path: Path) -> None:
        scope = parse_scope(["a.(b)+*"], tmp_path, lambda _: False, lambda: ["a.(b)+c"])
        assert "a.(b)+c" in scope
        assert "axbb" not in scope


class TestRefusal:
    @pytest.mark.parametrize("path", ["..", "../x", "src/../../x", "/etc/passwd"])
    def test_a_path_outside_is_refused(self, meant: Meant, path: str) -> None:
        with pytest.raises(Refused, match="outside"):
            meant(path)

    def test_a_path_outside_through_a_link_is_refused(self, meant: Meant, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("/etc")
        with pytest.raises(Refused, match="outside"):
            meant(tmp_path / "link" / "passwd")

    def test_a_path_that_is_nowhere_is_not_found_and_named(self, meant: Meant) -> None:
        with pytest.raises(NotFound, match="nowhere"):
            meant("a", "nowhere")

    def test_empty_path_is_refused(self, meant: Meant) -> None:
        with pytest.raises(Refused, match="empty"):
            meant("a", "")


def test_a_scope_says_what_was_given() -> None:
    assert Scope(None).given is None
    assert Scope(["a"]).given == ("a",)


class TestThroughAWorkspace:
    def test_a_name_with_brackets_restores_only_that_file(self, project: Any, ws: Workspace) -> None:
        for name in ("[a]", "a", "*.py", "x.py"):
            project.write(name, b"old")
        saved = ws.save()
        for name in ("[a]", "a", "*.py", "x.py"):
            project.write(name, b"new")
        assert ws.preview(saved.id, ["[a]"]).replaced == ["[a]"]
        assert ws.preview(saved.id, ["*.py"]).replaced == ["*.py"]
        assert ws.preview(saved.id, ["?.py"]).replaced == ["*.py", "x.py"]
        assert ws.diff(saved.id, paths=["[a]"]).modified_files == ["[a]"]

    def test_file_only_in_the_checkpoint_is_matched(self, project: Any, ws: Workspace) -> None:
        project.write("[b]", b"old")
        project.write("b", b"old")
        saved = ws.save()
        (project.root / "[b]").unlink()
        project.write("b", b"new")
        assert ws.restore(saved.id, ["[b]"]).written == ["[b]"]
        assert (project.root / "b").read_bytes() == b"new"


def test_open_scope_takes_missing_paths_and_globs_both_ways(tmp_path: Path) -> None:
    scope = open_scope(["src/", "a[1].txt", "*.pem"], tmp_path)
    assert all(path in scope for path in ("src", "src/deep/x", "a[1].txt", "a1.txt", "x.pem"))
    assert not any(path in scope for path in ("source", "a2.txt", "deep/x.pem"))
    assert "anything" in open_scope(None, tmp_path)
    with pytest.raises(Refused):
        open_scope(["../x"], tmp_path)


def test_a_scope_tells_below_which_folders_it_can_have_anything(tmp_path: Path) -> None:
    scope = open_scope(["src/deep/x"], tmp_path)
    assert [scope.may_hold(folder) for folder in ("", "src", "src/deep", "src/other", "sr")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert open_scope(["src"], tmp_path).may_hold("src/below")
    assert open_scope(["**/x"], tmp_path).may_hold("anywhere")


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("x[[]y", "x[y", "xy"),
        ("[*].txt", "*.txt", "a.txt"),
        ("[?]", "?", "a"),
        ("[]]x", "]x", "x"),
        ("[!]a]", "b", "]"),
        ("[a&&b]", "&", "c"),
        ("[a-c]/x", "b/x", "d/x"),
        ("[!a]", "b", "/"),
        ("[a||b]", "|", "c"),
    ],
)
def test_a_set_means_its_characters_and_warns_of_nothing(
    tmp_path: Path, pattern: str, matching: str, other: str
) -> None:
    scope = open_scope([pattern], tmp_path)
    assert matching in scope
    assert other not in scope


@pytest.mark.parametrize("pattern", ["x[[", "[", "[!", "[z-a]"])
def test_what_is_no_glob_means_itself(tmp_path: Path, pattern: str) -> None:
    assert pattern in open_scope([pattern], tmp_path)
