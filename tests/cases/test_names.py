"""Names: whatever the disk can name is saved, listed, compared and restored under exactly that name."""

from __future__ import annotations

import json
import os

import pytest

from .harness import Case


def survive(case: Case, *names: str) -> None:
    """See files of these names lost, edited, and asked for one by one."""
    for number, name in enumerate(names):
        case.write(name, f"content {number}\n")
    checkpoint = case.save("with odd names")
    assert set(names) <= set(checkpoint.files_changed)
    assert json.loads(json.dumps(checkpoint.files_changed)) == checkpoint.files_changed

    for name in names:
        case.path(name).unlink()
    assert set(names) <= set(case.diff(checkpoint).deleted_files)
    assert case.restore(checkpoint).ok

    for name in names:
        case.write(name, b"edited\n")
    assert set(names) == set(case.diff(checkpoint).modified_files)
    for number, name in enumerate(names):
        assert case.restore(checkpoint, [name]).written == [name]
        assert case.read(name) == f"content {number}\n".encode()


def test_a_newline_in_a_name_does_not_split_it(case: Case) -> None:
    """Case 1."""
    survive(case, "a\nb", "folder\n/c\n", "\n")


def test_quotes_tabs_and_shell_characters_are_part_of_a_name(case: Case) -> None:
    """Case 2."""
    survive(case, "tab\there", 'double"quote', "back\\slash", "single'quote", "dollar$HOME", "tick`id`", "a;b&c|d>e")


def test_a_name_that_is_no_text_keeps_its_bytes(case: Case) -> None:
    """Case 3."""
    survive(case, os.fsdecode(b"\xff\xfe.txt"), os.fsdecode(b"caf\xe9/\x80"))


def test_names_that_differ_only_in_an_invalid_byte_are_two_files(case: Case) -> None:
    """Case 4."""
    survive(case, os.fsdecode(b"x\xff"), os.fsdecode(b"x\xfe"), "x\N{REPLACEMENT CHARACTER}")


def test_a_name_is_never_an_option_a_pathspec_or_a_response_file(case: Case) -> None:
    """Case 5."""
    survive(case, "-rf", "--help", ":(top)x", ":", "@file", "!x", "#x", "-", "--", "~", "HEAD")


def test_glob_characters_in_a_name_are_literal(case: Case) -> None:
    """Case 6."""
    survive(case, "[a]", "*.py", "a", "{b,c}", "b", "**", "?", "x.py")


def test_path_with_brackets_restores_only_that_file(case: Case) -> None:
    """Case 6."""
    case.write("[a]", b"bracketed")
    case.write("a", b"plain")
    checkpoint = case.save()
    case.write("[a]", b"1")
    case.write("a", b"2")
    assert case.restore(checkpoint, ["[a]"]).written == ["[a]"]
    assert (case.read("[a]"), case.read("a")) == (b"bracketed", b"2")


def test_spaces_and_dots_at_the_ends_of_a_name_stay(case: Case) -> None:
    """Case 7."""
    survive(case, " leading", "trailing ", "dot.", "   ", "...", " /x", "tail /y")


def test_names_that_windows_reserves_are_ordinary(case: Case) -> None:
    """Case 8."""
    survive(case, "nul", "con", "aux.txt", "COM1", "LPT9.log", "a:b", "a<b>c?")


def test_composed_and_decomposed_letters_are_two_names(case: Case) -> None:
    """Case 9."""
    survive(case, "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}")


def test_names_that_differ_only_in_case_are_two_files(case: Case) -> None:
    """Case 10."""
    survive(case, "README", "readme", "Folder/x", "folder/x")


def test_a_rename_that_changes_only_case_is_taken_back(case: Case) -> None:
    """Case 11."""
    case.write("Foo.py", b"content")
    checkpoint = case.save()
    case.path("Foo.py").rename(case.path("foo.py"))
    case.restore(checkpoint)
    assert case.read("Foo.py") == b"content"
    assert not case.path("foo.py").exists()


def test_a_name_of_255_bytes_is_not_cut(case: Case) -> None:
    """Case 12."""
    survive(case, "n" * 255, "\N{SNOWMAN}" * 85, ("d" * 255) + "/" + ("f" * 255))


def test_path_longer_than_path_max_is_saved_and_restored(case: Case) -> None:
    """Case 12."""
    depth, step = 30, "d" * 200
    _make_chain(case, step, depth, b"at the bottom\n")
    checkpoint = case.save()
    assert checkpoint.complete
    assert not [each for each in checkpoint.uncovered if each.path.startswith(step)]
    _make_chain(case, step, depth, b"edited\n")
    assert case.restore(checkpoint).ok
    os.system(f"rm -rf '{case.path(step)}'")
    assert case.restore(checkpoint).ok


def _make_chain(case: Case, step: str, depth: int, data: bytes) -> None:
    handle = os.open(case.root, os.O_RDONLY)
    for _ in range(depth):
        try:
            os.mkdir(step, dir_fd=handle)
        except FileExistsError:
            pass
        deeper = os.open(step, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = deeper
    file = os.open("bottom.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, dir_fd=handle)
    os.write(file, data)
    os.close(file)
    os.close(handle)


GIT_SPECIAL = [
    "folder/.git",
    ".GIT",
    ".Git/config",
    "git~1",
    "GIT~1/x",
    ".git ",
    ".git.",
    ".git::$INDEX_ALLOCATION",
    ".g\N{ZERO WIDTH NON-JOINER}it",
    "back\\.git",
    "back\\git~1",
    ".gitmodules",
    ".GITMODULES",
    "gitmod~1",
    ".gitattributes",
    "folder/.gitmodules",
    ".mailmap",
    "%2Egit",
    "%.git",
    "=2Egit",
    "~.git",
    "files",
    "attrs",
    "checkpoint.json",
]


@pytest.mark.parametrize("name", GIT_SPECIAL)
def test_a_name_that_git_treats_specially_is_user_data(case: Case, name: str) -> None:
    """Case 13."""
    survive(case, name)


def test_names_that_git_treats_specially_stand_side_by_side(case: Case) -> None:
    """Case 13."""
    survive(case, *GIT_SPECIAL)


def test_links_and_content_that_git_refuses_are_user_data(case: Case) -> None:
    """Case 13."""
    case.write("a/.gitmodules", '[submodule "../../x"]\n\turl = --upload-pack=touch${IFS}here\n\tpath = -x\n')
    case.write("b/.gitattributes", b"x" * 5000 + b" text\n")
    for name in ("c/.gitmodules", "c/.gitattributes", "c/.gitignore", "c/.mailmap", "c/.GIT"):
        case.path(name).parent.mkdir(exist_ok=True)
        case.path(name).symlink_to("../README.md")
    checkpoint = case.save()
    os.system(f"rm -rf '{case.path('a')}' '{case.path('b')}' '{case.path('c')}'")
    assert case.restore(checkpoint).ok


def test_foreign_git_file_does_not_redirect_the_engine(case: Case) -> None:
    """Case 13."""
    case.git("init", "-q", "--bare", "--template=", str(case.outside / "elsewhere"))
    case.write("folder/.git", f"gitdir: {case.outside / 'elsewhere'}\n")
    case.write("folder/x", b"1")
    checkpoint = case.save()
    case.write("folder/.git", b"gitdir: /nowhere\n")
    case.write("folder/x", b"2")
    assert case.restore(checkpoint).ok


def test_invisible_and_control_characters_in_a_name_are_kept(case: Case) -> None:
    """Case 15."""
    survive(
        case, "\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe", "zero\N{ZERO WIDTH SPACE}width", "bell\x07", "\x1b[31mred", "cr\r"
    )


def test_a_name_that_reads_like_a_value_is_a_name(case: Case) -> None:
    """Case 16."""
    survive(case, "null", "true", "1e5", "0", "None", "[]", "{}", '""', "latest")
