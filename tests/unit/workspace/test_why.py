"""Which rule decides about a path; each answer is compared with what a save really holds."""

from __future__ import annotations

import subprocess

import pytest

from holdfast import Refused, Workspace
from holdfast.model import Reason
from unprivileged import unprivileged


def agrees(ws: Workspace, path: str) -> bool:
    """Ask why, then save, and say whether the save held the path as the answer said."""
    said = ws.why(path).held
    checkpoint = ws.save(allow_empty=True)
    listed = set(checkpoint.files_changed) if checkpoint.parent is None else None
    if listed is None:
        ws.delete(checkpoint.id)
    return listed is None or said == (path in listed)


def test_a_plain_file_is_held_because_nothing_leaves_it_out(project, ws: Workspace) -> None:
    project.write("src/a.py")
    found = ws.why("src/a.py")
    assert (found.held, found.exists, found.reason, found.rule) == (True, True, None, "")
    assert found.sentence == "src/a.py is included: no rule excludes it"
    assert agrees(ws, "src/a.py")


def test_an_excluded_file_names_the_line_that_excludes_it(project, ws: Workspace) -> None:
    project.write("logs/today.log")
    project.write("logs/.holdfastignore", b"# old\n*.log\n")
    found = ws.why("logs/today.log")
    assert (found.held, found.reason, found.rule) == (False, Reason.EXCLUDED, "logs/.holdfastignore:2: *.log")
    assert agrees(ws, "logs/today.log")


def test_an_exclude_pattern_is_named(project) -> None:
    project.write("a.tmp")
    found = project.open(exclude_patterns=["*.tmp"]).why("a.tmp")
    assert (found.held, found.rule) == (False, "exclude_patterns: *.tmp")


def test_a_small_ignored_file_is_held_and_a_large_one_is_not(project, ws: Workspace) -> None:
    project.write(".gitignore", b"*.bin\n")
    project.write("small.bin")
    project.write("large.bin", bytes(2 << 20))
    small, large = ws.why("small.bin"), ws.why("large.bin")
    assert (small.held, small.rule) == (True, ".gitignore:1: *.bin")
    assert (large.held, large.reason, large.rule) == (False, Reason.IGNORED_LARGE, ".gitignore:1: *.bin")
    assert "1,048,576 bytes" in large.sentence
    assert agrees(ws, "small.bin")
    assert agrees(ws, "large.bin")


def test_a_large_ignored_file_that_git_tracks_is_held_for_that(project, ws: Workspace) -> None:
    project.write(".gitignore", b"*.bin\n")
    project.write("large.bin", bytes(2 << 20))
    for words in (["init", "-q"], ["add", "-f", "large.bin"]):
        subprocess.run(["git", "-C", str(project.root), *words], check=True)
    found = ws.why("large.bin")
    assert (found.held, found.rule) == (True, ".gitignore:1: *.bin")
    assert "git tracks it" in found.sentence
    assert agrees(ws, "large.bin")


def test_a_file_that_the_last_checkpoint_holds_stays_held(project, ws: Workspace) -> None:
    project.write("grown.bin")
    first = ws.save()
    project.write("grown.bin", bytes(2 << 20))
    project.write(".gitignore", b"*.bin\n")
    found = ws.why("grown.bin")
    assert found.held
    assert "the last checkpoint contains it" in found.sentence
    assert found.in_checkpoint == first.id


def test_a_file_in_a_left_out_folder_is_told_which_folder(project, ws: Workspace) -> None:
    project.write("node_modules/left-pad/index.js")
    found = ws.why("node_modules/left-pad/index.js")
    assert (found.held, found.reason, found.rule) == (False, Reason.DEPENDENCIES, "built-in: node_modules")
    assert "node_modules is not" in found.sentence


def test_a_negated_line_is_named_as_what_brings_a_path_in(project, ws: Workspace) -> None:
    project.write(".gitignore", b"*.bin\n")
    project.write(".holdfastignore", b"!large.bin\n")
    project.write("large.bin", bytes(2 << 20))
    found = ws.why("large.bin")
    assert (found.held, found.rule) == (True, ".holdfastignore:1: !large.bin")
    assert agrees(ws, "large.bin")


def test_what_is_inside_a_git_folder_is_never_held(project, ws: Workspace) -> None:
    subprocess.run(["git", "-C", str(project.root), "init", "-q"], check=True)
    assert ws.why(".git/config").reason is Reason.GIT_DIRECTORY


def test_a_path_that_is_not_there_is_judged_as_if_it_were(project, ws: Workspace) -> None:
    project.write(".holdfastignore", b"*.log\ncache/\n")
    absent, excluded, folder = ws.why("new.py"), ws.why("deep/new.log"), ws.why("cache/")
    assert (absent.exists, absent.held) == (False, True)
    assert (excluded.exists, excluded.held, excluded.rule) == (False, False, ".holdfastignore:1: *.log")
    assert (folder.held, folder.rule) == (False, ".holdfastignore:2: cache/")
    assert absent.sentence.startswith("new.py does not exist; it would be included")


def test_what_a_link_leads_to_is_not_held(project, ws: Workspace) -> None:
    project.write("real/a")
    (project.root / "link").symlink_to("real")
    assert ws.why("link").held
    found = ws.why("link/a")
    assert not found.held
    assert "links are not followed" in found.sentence


def test_a_file_that_cannot_be_read_is_not_held(project, ws: Workspace) -> None:
    project.write("secret").chmod(0)
    assert unprivileged(lambda: ws.why("secret")).reason is Reason.UNREADABLE


def test_a_folder_of_which_only_something_is_held_says_so(project, ws: Workspace) -> None:
    project.write("node_modules/mine.js")
    subprocess.run(["git", "-C", str(project.root), "init", "-q"], check=True)
    subprocess.run(["git", "-C", str(project.root), "add", "-f", "node_modules/mine.js"], check=True)
    project.write("node_modules/other.js")
    assert "something in it is included" in ws.why("node_modules").sentence
    assert ws.why("node_modules/mine.js").held
    assert not ws.why("node_modules/other.js").held


def test_workspace_root_is_held_and_outside_is_refused(ws: Workspace) -> None:
    assert ws.why(".").held
    with pytest.raises(Refused, match="outside"):
        ws.why("../other")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".git/", Reason.GIT_DIRECTORY),
        (".git/config", Reason.GIT_DIRECTORY),
        ("node_modules/", Reason.DEPENDENCIES),
        ("web/node_modules/left-pad/index.js", Reason.DEPENDENCIES),
        ("web/node_modules", Reason.DEPENDENCIES),  # a folder, going by its name
        (".git", Reason.GIT_DIRECTORY),
        ("modules", None),
    ],
)
def test_what_is_not_there_yet_is_answered_as_if_it_were(project, ws: Workspace, path: str, reason: Reason) -> None:
    found = ws.why(path)
    assert (found.exists, found.held, found.reason) == (False, reason is None, reason)
    is_folder = path.rstrip("/").endswith((".git", "node_modules"))
    project.write(f"{path}/x" if is_folder else path)
    assert ws.why(path.rstrip("/")).held is (reason is None)


def test_a_sidecar_is_held_because_its_database_is(project, ws: Workspace) -> None:
    project.write("app.db", b"SQLite format 3\0")
    project.write("app.db-wal", b"log")
    project.write(".holdfastignore", b"*-wal\n")
    found = ws.why("app.db-wal")
    assert found.sentence == "app.db-wal is included: it goes with the database app.db: no rule excludes it"
    assert agrees(ws, "app.db-wal")
