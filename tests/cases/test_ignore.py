"""Ignore rules: they decide as git does, are frozen with the checkpoint, and never lead to a loss."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from holdfast import Checkpoint
from holdfast.model import Reason

from . import repository
from .harness import Case, is_under
from .people import by_somebody

LARGE = (1 << 20) + 1


def reasons(checkpoint: Checkpoint) -> dict[str, Reason]:
    """What a checkpoint leaves out, apart from the repository's own folder."""
    return {each.path: each.reason for each in checkpoint.uncovered if each.path != ".git"}


def test_a_small_ignored_file_is_captured_and_restored(case: Case) -> None:
    """Case 64."""
    case.write(".gitignore", b".env\n*.sqlite\nlocal/\n")
    held = {".env": b"TOKEN=1\n", "app.sqlite": b"database" * 100, "local/settings.json": b"{}", "local/a/b": b"deep"}
    for name, data in held.items():
        case.write(name, data)
    checkpoint = case.save()
    assert reasons(checkpoint) == {}
    for name in held:
        case.write(name, b"changed by the agent")
    assert case.restore(checkpoint).ok
    shutil.rmtree(case.path("local"))
    case.path(".env").unlink()
    assert case.restore(checkpoint).ok
    assert {name: case.read(name) for name in held} == held


def test_an_ignored_file_made_since_is_never_removed(case: Case) -> None:
    """Case 64."""
    case.write(".gitignore", b".env\n")
    checkpoint = case.save()
    case.write(".env", b"made since")
    case.write("visible", b"made since, not ignored")
    result = case.restore(checkpoint)
    assert ".env" in result.kept
    assert result.removed == ["visible"]


@pytest.mark.parametrize("folder", ["dist", "build", "target", "vendor"])
def test_build_folder_is_left_out_only_if_ignored(case: Case, folder: str) -> None:
    """Case 65."""
    case.write(f"{folder}/out.js", b"built")
    held = case.save("not ignored")
    assert reasons(held) == {}
    shutil.rmtree(case.path(folder))
    assert case.restore(held).ok
    case.ws.delete(held.id)
    shutil.rmtree(case.path(folder))
    case.save("without it")
    case.write(".gitignore", f"{folder}/\n")
    case.write(f"{folder}/new.js", b"never held")
    left_out = case.save("ignored")
    assert reasons(left_out) == {folder: Reason.DEPENDENCIES}
    shutil.rmtree(case.path(folder))
    result = case.restore(left_out)
    assert folder in result.missing


def test_an_ignored_data_folder_removed_by_hand_comes_back(case: Case) -> None:
    """Case 65."""
    case.write(".gitignore", b"data/\n")
    case.write("data/a.csv", b"1,2\n")
    case.write("data/raw/b.csv", b"3,4\n")
    case.write("data/raw/large.bin", os.urandom(LARGE))
    checkpoint = case.save()
    assert reasons(checkpoint) == {"data/raw/large.bin": Reason.IGNORED_LARGE}
    shutil.rmtree(case.path("data"))
    result = case.restore(checkpoint)
    assert case.read("data/raw/b.csv") == b"3,4\n"
    assert set(result.missing) == {"data/raw/large.bin"}


def test_ignored_files_are_held_up_to_a_limit_for_all_together(case: Case) -> None:
    """Case 65."""
    case.reopen(ignored_total_max_bytes=10_000)
    case.write(".gitignore", b"cache/\n")
    for number in range(20):
        case.write(f"cache/{number}", os.urandom(1000))
    checkpoint = case.save()
    assert set(reasons(checkpoint).values()) == {Reason.IGNORED_MANY}
    result = case.restore(checkpoint)
    assert result.ok
    shutil.rmtree(case.path("cache"))
    result = case.restore(checkpoint)
    held = sum(path.stat().st_size for path in case.path("cache").glob("*"))
    assert held <= 10_000


@pytest.mark.parametrize("committed", [False, True])
def test_files_of_a_removed_new_rule_are_not_deleted(case: Case, committed: bool) -> None:
    """Case 66."""
    case.write(".gitignore", b"*.tmp\n")
    if committed:
        case.git("add", ".gitignore")
        case.git("commit", "-q", "-m", "rules", "--", ".gitignore")
    checkpoint = case.save()
    case.write(".gitignore", b"*.tmp\nuploads/\n*.pdf\n")
    case.write("uploads/photo.jpg", b"a user's photo")
    case.write("thesis.pdf", os.urandom(LARGE))
    result = case.restore(checkpoint)
    assert case.read(".gitignore") == b"*.tmp\n"
    assert case.read("uploads/photo.jpg") == b"a user's photo"
    assert is_under("uploads/photo.jpg", list(result.kept))
    assert "thesis.pdf" in result.kept


def test_files_ignored_by_a_lost_rule_are_not_new(case: Case) -> None:
    """Case 67."""
    case.write(".gitignore", b"*.log\nbig/\n")
    case.write("big/blob", os.urandom(LARGE))
    checkpoint = case.save()
    case.write(".gitignore", b"")
    case.write("since.log", b"ignored under the rules of the checkpoint")
    result = case.restore(checkpoint)
    assert "since.log" in result.kept
    assert case.read("since.log") == b"ignored under the rules of the checkpoint"
    assert case.path("big/blob").exists()


def test_held_file_stays_covered_when_it_becomes_ignored(case: Case) -> None:
    """Case 68."""
    first = os.urandom(LARGE)
    second = os.urandom(LARGE)
    case.write("data.bin", first)
    before = case.save()
    case.write(".gitignore", b"data.bin\n")
    case.write("data.bin", second)
    after = case.save()
    assert reasons(after) == {}
    case.path("data.bin").unlink()
    assert case.restore(after).ok
    assert case.read("data.bin") == second
    assert case.restore(before).ok
    assert case.read("data.bin") == first


@pytest.mark.parametrize("index", ["2", "4", "split", "intent-to-add", "untracked-cache"])
def test_a_file_that_was_added_by_force_is_captured(case: Case, index: str) -> None:
    """Case 69."""
    data = os.urandom(LARGE)
    case.write(".gitignore", b"*.bin\n")
    case.write("forced.bin", data)
    case.write("deep/down/forced.bin", data[1:] + b"x")
    case.write("not-forced.bin", data)
    if index in ("2", "4"):
        case.git("config", "index.version", index)
    elif index == "split":
        case.git("config", "core.splitIndex", "true")
        case.git("update-index", "--split-index")
    elif index == "untracked-cache":
        case.git("update-index", "--force-untracked-cache")
    how = ("-N", "-f") if index == "intent-to-add" else ("-f",)
    case.git("add", *how, "forced.bin", "deep/down/forced.bin")
    checkpoint = case.save()
    assert reasons(checkpoint) == {"not-forced.bin": Reason.IGNORED_LARGE}
    case.path("forced.bin").unlink()
    case.path("deep/down/forced.bin").unlink()
    assert case.restore(checkpoint).ok
    assert case.read("forced.bin") == data


RULES = {
    "nested": {".gitignore": b"*.a\n", "x/.gitignore": b"!keep.a\n*.b\n", "x/y/.gitignore": b"/top\n"},
    "negation": {".gitignore": b"*\n!*/\n!*.py\n!keep\n"},
    "negation below an ignored folder": {".gitignore": b"x/\n!x/y/keep\n!keep\n"},
    "stars": {".gitignore": b"**/b\nx/**/c\na/**\n!a/b/\n"},
    "trailing spaces": {".gitignore": b"keep   \nfoo\\ \n\\ lead\nz \\ \n"},
    "escapes": {".gitignore": b"\\#x\n\\!x\n#y\nwild\\*card\n\\\\back\n"},
    "carriage returns": {".gitignore": b"*.a\r\nkeep\r\n!x/y/keep\r\n"},
    "byte order mark": {".gitignore": b"\xef\xbb\xbf*.a\nkeep\n"},
    "classes": {".gitignore": b"[a-c].py\n[!x]z\n[[:digit:]]*\n[]-]\nx/[yz]/c\n[a\n"},
    "anchors": {".gitignore": b"/keep\nx/keep\n/x/y\nb/\n"},
    "questions": {".gitignore": b"?\n??.py\nx?y\n"},
    "no newline at the end": {".gitignore": b"*.a\nkeep"},
    "empty lines": {".gitignore": b"\n\n  \n\t\n/\n!\n*.a\n"},
    "bytes": {".gitignore": b"\xff*\ncaf\xe9\n"},
    "exclude file": {".git/info/exclude": b"*.a\n/x/keep\n", ".gitignore": b"!b.a\n"},
}
NAMES = [
    "keep", "keep   ", "foo ", "foo", " lead", "#x", "!x", "#y", "y", "wild*card", "wildXcard", "\\back", "b.a",
    "keep.a",
    "a.py", "d.py", "ab.py", "1two", "xz", "yz", "[]", "-", "]", "[a", "b", "c", "z  ", "xzy", os.fsdecode(b"\xffx"),
    os.fsdecode(b"caf\xe9"), "top",
]  # fmt: skip
FOLDERS = ["", "x/", "x/y/", "a/", "a/b/", "x/y/z/"]


def fill(case: Case) -> None:
    """Make every name in every folder, with content so that none is within a limit of nothing."""
    for folder in FOLDERS:
        case.path(folder).mkdir(parents=True, exist_ok=True)
    for folder in FOLDERS:
        for name in NAMES:
            if not case.path(folder + name).is_dir():
                case.write(folder + name, b"1")


def decisions(case: Case) -> tuple[set[str], set[str]]:
    """The files that git calls ignored, and those that the engine does, with its limit at nothing."""
    checkpoint = case.save(allow_empty=True)
    picture = case.capture()
    files = {name for name, entry in picture.items() if entry.kind != "folder"}
    left_out = [each.path for each in checkpoint.uncovered if each.reason is not Reason.GIT_DIRECTORY]
    return repository.ignored(case.root, case.home, picture) & files, {
        name for name in files if is_under(name, left_out)
    }


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_rules_decide_as_git_decides(case: Case, rules: dict[str, bytes]) -> None:
    """Case 70."""
    case.reopen(ignored_file_max_bytes=0)
    (case.root / ".git" / "info").mkdir(exist_ok=True)
    fill(case)
    for name, data in rules.items():
        case.write(name, data)
    by_git, by_engine = decisions(case)
    assert by_engine == by_git
    assert by_git


@pytest.mark.slow
def test_rules_made_up_at_random_decide_as_git_decides(case: Case) -> None:
    """Case 70."""
    dice = random.Random(70)
    case.reopen(ignored_file_max_bytes=0)
    for name in ("a", "b.py", "x/a", "x/b.py", "x/y/a", "x/y/z/b.py", "x/y/z/a b", "q/a", "q/x/y/a", "-a", "#a"):
        case.write(name + ("" if name != "a" else ".a"), b"1")
    pieces = ["a", "b", "x", "y", "z", "q", "*", "**", "?", "/", "/", ".py", "!", "\\", " ", "[ab]", "[!a]", "#", ".a"]
    case.store_area.mkdir(mode=0o700)
    for number in range(60):
        case.reopen(store=case.store_area / str(number))  # what a checkpoint holds already would stay covered
        lines = ["".join(dice.choices(pieces, k=dice.randint(1, 5))) for _ in range(dice.randint(1, 5))]
        place = dice.choice([".gitignore", "x/.gitignore", "x/y/.gitignore"])
        case.write(place, "\n".join(lines) + "\n")
        by_git, by_engine = decisions(case)
        assert by_engine == by_git, f"{place}: {lines}"


def test_the_record_says_which_rule_left_a_path_out(case: Case) -> None:
    """Case 70."""
    case.write("deep/.gitignore", b"# comment\n*.huge\n")
    case.write("deep/x.huge", os.urandom(LARGE))
    checkpoint = case.save()
    [left_out] = [each for each in checkpoint.uncovered if each.path != ".git"]
    assert "*.huge" in left_out.detail
    assert "deep/.gitignore" in left_out.detail


@pytest.mark.parametrize("place", ["info/exclude", "excludesFile", "home", "xdg"])
@pytest.mark.parametrize("when", ["only at the save", "only at the restore"])
def test_rules_outside_the_tree_are_frozen_with_the_checkpoint(case: Case, place: str, when: str) -> None:
    """Case 71."""
    rules = _outer_rules(case, place)
    rules.parent.mkdir(parents=True, exist_ok=True)
    if when == "only at the save":
        rules.write_bytes(b"*.cache\n")
        case.write("big.cache", os.urandom(LARGE))
    checkpoint = case.save()
    assert reasons(checkpoint) == ({"big.cache": Reason.IGNORED_LARGE} if when == "only at the save" else {})
    rules.write_bytes(b"" if when == "only at the save" else b"*.cache\n")
    case.write("since.cache", b"ignored by one of the two")
    result = case.restore(checkpoint)
    assert "since.cache" in result.kept


def _outer_rules(case: Case, place: str) -> Path:
    if place == "info/exclude":
        return case.root / ".git" / "info" / "exclude"
    if place == "excludesFile":
        case.git("config", "core.excludesFile", str(case.outside / "rules"))
        return case.outside / "rules"
    if place == "home":
        case.git("config", "--global", "core.excludesFile", "~/my-rules")
        return case.home / "my-rules"
    return case.home / ".config" / "git" / "ignore"


@pytest.mark.parametrize("folder", ["node_modules", ".venv", "__pycache__"])
@pytest.mark.parametrize("ignored", [True, False])
def test_dependency_tree_is_skipped_and_not_deleted(case: Case, folder: str, ignored: bool) -> None:
    """Case 72."""
    if ignored:
        case.write(".gitignore", f"{folder}/\n")
    for number in range(500):
        case.write(f"web/{folder}/p{number % 50}/{number}.js", b"module.exports = 1\n")
    checkpoint = case.save()
    assert reasons(checkpoint) == {f"web/{folder}": Reason.DEPENDENCIES}
    assert not [name for name in checkpoint.files_changed if folder in name.split("/")]
    case.write(f"web/{folder}/p1/1.js", b"patched by the agent")
    case.write(f"web/{folder}/new/x.js", b"installed since")
    assert case.restore(checkpoint).ok
    assert case.read(f"web/{folder}/new/x.js") == b"installed since"


def test_dependency_tree_installed_later_is_not_deleted(case: Case) -> None:
    """Case 72."""
    checkpoint = case.save()
    case.write("node_modules/a/index.js", b"installed since")
    result = case.restore(checkpoint)
    assert is_under("node_modules", list(result.kept))
    assert case.read("node_modules/a/index.js") == b"installed since"


@pytest.mark.parametrize("kind", ["link inside", "link outside", "folder", "pipe", "huge", "binary"])
def test_odd_ignore_file_is_handled_safely(case: Case, kind: str) -> None:
    """Case 73."""
    place = case.path("odd/.gitignore")
    case.write("odd/file.txt", b"1")
    if kind == "link inside":
        case.write("rules", b"*\n")
        place.symlink_to("../rules")
    elif kind == "link outside":
        (case.outside / "rules").write_bytes(b"*\n")
        place.symlink_to(case.outside / "rules")
    elif kind == "folder":
        case.write("odd/.gitignore/inside", b"2")
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "huge":
        place.write_bytes(b"pattern-that-matches-nothing-%d\n" * (1 << 17) + b"\0" * (4 << 20) + b"\n*.a\n")
    else:
        place.write_bytes(random.Random(73).randbytes(50_000))
    checkpoint = case.save()
    assert checkpoint.complete
    case.write("odd/file.txt", b"edited")
    assert case.restore(checkpoint).ok
    assert case.read("odd/file.txt") == b"1"


@by_somebody
def test_unreadable_ignore_file_is_reported(case: Case) -> None:
    """Case 73."""
    case.write("odd/.gitignore", b"*\n", mode=0o000)
    case.write("odd/file.txt", b"1")
    checkpoint = case.save()
    assert reasons(checkpoint) == {"odd/.gitignore": Reason.UNREADABLE}
    case.write("odd/file.txt", b"edited")
    case.restore(checkpoint)
    assert case.path("odd/.gitignore").exists()


def test_a_checkpoint_that_holds_nothing_is_not_a_success(case: Case) -> None:
    """Case 74."""
    case.write(".holdfastignore", b"*\n")
    checkpoint = case.save()
    assert not checkpoint.complete
    assert Reason.NOTHING_HELD in reasons(checkpoint).values()
    case.restore(checkpoint)
    assert case.read("notes.txt") == b"not tracked\n"
    case.path(".holdfastignore").unlink()
    case.restore(checkpoint)
    assert case.read("notes.txt") == b"not tracked\n"


def test_a_repository_that_ignores_everything_is_still_held(case: Case) -> None:
    """Case 74."""
    case.write(".gitignore", b"*\n")
    case.write("new.txt", b"ignored and small")
    checkpoint = case.save()
    assert checkpoint.complete
    case.path("new.txt").unlink()
    assert case.restore(checkpoint).ok


@pytest.mark.parametrize("how", ["file", "nested file", "option"])
def test_what_is_excluded_is_neither_held_nor_touched(case: Case, how: str) -> None:
    """Case 71."""
    if how == "option":
        case.reopen(exclude_patterns=("*.raw", "private/"))
    elif how == "file":
        case.write(".holdfastignore", b"*.raw\nprivate/\n")
    else:
        case.write("deep/.holdfastignore", b"*.raw\nprivate/\n")
    case.write("deep/a.raw", b"small, and excluded for good")
    case.write("deep/private/key", b"nor this")
    checkpoint = case.save()
    assert reasons(checkpoint) == {"deep/a.raw": Reason.EXCLUDED, "deep/private": Reason.EXCLUDED}
    case.write("deep/a.raw", b"changed")
    case.write("deep/b.raw", b"made since")
    result = case.restore(checkpoint)
    assert case.read("deep/a.raw") == b"changed"
    assert case.read("deep/b.raw") == b"made since"
    assert "deep/b.raw" in result.kept
