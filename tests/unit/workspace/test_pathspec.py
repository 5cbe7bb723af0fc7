"""Which paths are meant: the same as git's pathspecs mean."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import NotFound, Refused, Workspace
from holdfast.workspace.pathspec import Scope, from_folder, literal, open_scope, parse_scope, relative

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
        folders = {path for path in PRESENT if any(each.startswith(f"{path}/") for each in PRESENT)}
        return [path for path in PRESENT if scope.selects(path, is_folder=path in folders)]

    return ask


class TestLiteral:
    @pytest.mark.parametrize("spelling", ["src", "src/", "./src", "src/.", "srcs/../src", "src//"])
    def test_a_folder_means_all_below_it_and_nothing_beside_it(self, meant: Meant, spelling: str) -> None:
        assert meant(spelling) == [path for path in PRESENT if path == "src" or path.startswith("src/")]

    @pytest.mark.parametrize("name", ["[a]", "*.py", "q?", "sp ace", "new\nline"])
    def test_a_literal_name_means_nothing_else(self, meant: Meant, name: str) -> None:
        assert meant(name) == meant(literal(name)) == [name]

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


class TestPattern:
    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("*.py", [path for path in PRESENT if path.endswith(".py")]),
            ("[a]", ["[a]", "a"]),
            ("[ad]*.py", ["a.py", "data.py"]),
            ("q?", ["q?", "qx"]),
            ("src/*.py", ["src/a.py", "src/deep/a.py", "src/deep/data.py", "src/deep/er/a.py"]),
            ("src[!x]b.txt", ["src/b.txt"]),
            (":(glob)*.py", ["a.py", "data.py", "*.py"]),
            (":(glob)src/*.py", ["src/a.py"]),
            (":(glob)src/**/data.py", ["src/deep/data.py"]),
            (":(glob)**/a.py", ["a.py", "src/a.py", "src/deep/a.py", "src/deep/er/a.py", "srcs/a.py"]),
            (":(icase)SRC/B.TXT", ["src/b.txt"]),
            (":/src/b.txt", ["src/b.txt"]),
            ("src/b\\.txt", ["src/b.txt"]),
        ],
    )
    def test_it_means_what_it_matches(self, meant: Meant, pattern: str, expected: list[str]) -> None:
        assert meant(pattern, absent=[pattern]) == [path for path in PRESENT if path in expected]

    def test_what_is_excluded_is_not_meant(self, meant: Meant) -> None:
        assert meant("src", ":!src/deep") == ["src/a.py", "src/b.txt"]
        assert meant(":^*.py", ":(exclude)src") == ["[a]", "a", "sp ace", "new\nline", "q?", "qx"]

    @pytest.mark.parametrize(
        ("pattern", "is_whole"),
        [
            ("src", True),
            ("src/", True),
            ("s*", True),
            ("s?c", False),
            ("*.d", False),
            (":(glob)s*", False),
            ("*", True),
        ],
    )
    def test_a_folder_is_selected_only_with_everything_in_it(self, tmp_path, pattern: str, is_whole: bool) -> None:
        assert open_scope([pattern], tmp_path).has_folder("src") is is_whole

    def test_a_folder_with_something_excluded_is_not_whole(self, tmp_path: Path) -> None:
        scope = open_scope(["src", ":!src/deep"], tmp_path)
        assert not scope.has_folder("src") and not scope.has_folder("src/deep") and scope.has_folder("src/other")

    def test_many_stars_take_no_time(self, tmp_path: Path) -> None:
        assert "a" * 200 not in open_scope(["*a" * 30 + "*b"], tmp_path)

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
    def test_an_existing_name_with_brackets_is_no_pattern(self, project: Any, ws: Workspace) -> None:
        for name in ("[a]", "a", "*.py", "x.py"):
            project.write(name, b"old")
        saved = ws.save()
        for name in ("[a]", "a", "*.py", "x.py"):
            project.write(name, b"new")
        assert ws.preview(saved.id, ["[a]"]).replaced == ["[a]"]
        assert [each.path for each in ws.search("old", paths=["[a]"])] == ["[a]"]
        assert ws.purge("[a]", dry_run=True).paths == ["[a]"]
        assert ws.preview(saved.id, [":(literal)[a]"]).replaced == ["[a]"]
        assert ws.preview(saved.id, [literal("*.py")]).replaced == ["*.py"]
        assert ws.preview(saved.id, ["?.py"]).replaced == ["*.py", "x.py"]
        assert ws.diff(saved.id, paths=[":(literal)[a]"]).modified_files == ["[a]"]

    def test_file_only_in_the_checkpoint_is_matched(self, project: Any, ws: Workspace) -> None:
        project.write("[b]", b"old")
        project.write("b", b"old")
        saved = ws.save()
        (project.root / "[b]").unlink()
        project.write("b", b"new")
        assert ws.restore(saved.id, [":(literal)[b]"]).written == ["[b]"]
        assert (project.root / "b").read_bytes() == b"new"

    def test_a_pattern_means_the_same_in_every_call(self, project: Any, ws: Workspace, tmp_path: Path) -> None:
        names = [".env", "deep/.env", "deep/er/prod.env", "x.env/file", "other"]
        for name in names:
            project.write(name, b"secret")
        saved = ws.save()
        for name in names:
            project.write(name, b"new")
        for patterns, meant in {
            ("*.env",): names[:3],
            (":(glob)*.env",): names[:1],
            ("*.env", ":!deep/er"): names[:2],
            ("deep",): names[1:3],
            ("x*",): names[3:4],
        }.items():
            given = list(patterns)
            assert ws.diff(saved.id, paths=given).modified_files == meant
            assert ws.preview(saved.id, given).replaced == meant
            assert [each.path for each in ws.search("secret", paths=given)] == meant
            assert ws.purge(*given, dry_run=True).paths in (meant, sorted({name.split("/")[0] for name in meant}))
            out = tmp_path / "-".join(patterns).replace("/", "_")
            ws.export(saved.id, out, given)
            assert sorted(each.relative_to(out).as_posix() for each in out.rglob("*") if each.is_file()) == meant

    @pytest.mark.parametrize("pattern", ["*.pem", "nowhere", ":(glob)er/*"])
    def test_one_that_matches_nothing_is_not_found(
        self, project: Any, ws: Workspace, tmp_path: Path, pattern: str
    ) -> None:
        project.write("deep/er/x", b"1")
        saved = ws.save()
        for call in (
            lambda: ws.diff(saved.id, paths=[pattern]),
            lambda: ws.preview(saved.id, [pattern]),
            lambda: ws.search("1", paths=["deep", pattern]),
            lambda: ws.purge("deep", pattern, dry_run=True),
            lambda: ws.export(saved.id, tmp_path / "out", [pattern]),
        ):
            with pytest.raises(NotFound, match=re.escape(pattern)):
                call()

    def test_purge_of_everything_is_refused_as_a_pattern_too(self, project: Any, ws: Workspace) -> None:
        project.write("a/b", b"1")
        ws.save()
        for pattern in (".", "*", "**", ":/", ":(glob)**"):
            with pytest.raises(Refused, match="whole workspace"):
                ws.purge(pattern, dry_run=True)

    def test_purge_of_a_folder_keeps_what_is_excluded(self, project: Any, ws: Workspace) -> None:
        for name in ("keys/a", "keys/public/b"):
            project.write(name, b"content of " + name.encode())
        ws.save()
        ws.purge("keys", ":!keys/public")
        assert [each.path for each in ws.search("content")] == ["keys/public/b"]


def test_open_scope_takes_missing_paths_and_patterns_both_ways(tmp_path: Path) -> None:
    scope = open_scope(["src/", "a[1].txt", "*.pem"], tmp_path)
    assert all(path in scope for path in ("src/deep/x", "a[1].txt", "a1.txt", "x.pem", "deep/x.pem"))
    assert not any(path in scope for path in ("source", "a2.txt", "src"))
    assert scope.has_folder("src")
    assert "anything" in open_scope(None, tmp_path)
    with pytest.raises(Refused):
        open_scope(["../x"], tmp_path)


@pytest.mark.parametrize("given", [":(attr:x)a", ":(bad)a", ":%a", ":(glob", ":(glob,literal)a"])
def test_unknown_magic_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(Refused):
        open_scope([given], tmp_path)


@pytest.mark.parametrize(
    ("given", "folder", "expected"),
    [
        ("a", "src", "src/a"), ("*.py", "src", "src/*.py"), ("..", "src", "."), ("../a", "src", "a"),
        (":/a", "src", "a"), (":/", "src", "."), (":!a", "src", ":(exclude)src/a"), ("a/", "src", "src/a/"),
        ("*.py", "s[1]", r"s\[1]/*.py"), ("a", "s[1]", ":(literal)s[1]/a"), ("/abs", "src", "/abs"),
        (".", "src", "src"), ("./:a", ".", "./:a"), ("../:a", "src", "./:a"),
    ],
)  # fmt: skip
def test_from_a_folder(given: str, folder: str, expected: str) -> None:
    assert from_folder(given, folder) == expected


@pytest.mark.parametrize("given", ["a", "src/*.py", ":(exclude)src/a/", ":/a", "./:x", ":(literal)[a]", "."])
def test_relative_keeps_the_meaning(tmp_path: Path, given: str) -> None:
    paths = ["a", "src/x.py", "src/a/b", ":x", "[a]", "other"]
    scopes = [open_scope([each], tmp_path) for each in (given, relative(given, tmp_path))]
    assert [path in scopes[0] for path in paths] == [path in scopes[1] for path in paths]
    assert relative(str(tmp_path / "src" / "*.py"), tmp_path) == "src/*.py"


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
        ("[!a]", "b", "a"),
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
def test_what_is_no_pattern_means_itself(tmp_path: Path, pattern: str) -> None:
    assert pattern in open_scope([pattern], tmp_path)
