"""What a tired person types, and what must not come of it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from holdfast.cli import progress
from holdfast.cli.context import App, typed


def test_empty_variable_is_not_the_current_folder(holdfast, write):
    holdfast.saved()
    path = write("a.txt", "work of an hour\n")
    assert holdfast("-C", "", "restore", "latest", "--yes").code == 2
    assert path.read_text() == "work of an hour\n"


def test_concurrent_save_reports_that_its_message_was_not_kept(holdfast, write, monkeypatch):
    holdfast.saved()
    write("a.txt", "two\n")

    @contextmanager
    def beside_another():
        assert holdfast.spawn("save", "theirs").code == 0
        yield None

    monkeypatch.setattr(progress, "shown", beside_another)
    ran = holdfast("save", "mine")
    assert "a2  nothing changed" in ran.out and "were not saved" in ran.err
    write("a.txt", "three\n")
    assert holdfast("save", "mine", "--json").json["new"] is False


def test_suggested_command_can_be_typed_as_it_is(holdfast, project, tmp_path, monkeypatch):
    monkeypatch.chdir(project.parent)
    project.rename("my project")
    path, state = Path("my project/a.txt"), tmp_path / "n.json"
    state.write_text("3")
    for number in (1, 2, 3):
        path.write_text(f"{number}\n")
        holdfast("-C", "my project", "save", "--session", "late shift", "--state", f"the step={state}")
    restored = holdfast("-C", "my project", "restore", "latest~1", "--yes")
    assert _typed(holdfast, restored.err, "state with: ").out == "3\n"
    assert path.read_text() == "2\n"
    undone = _typed(holdfast, restored.out, "undo with: ")
    assert path.read_text() == "3\n"
    _typed(holdfast, undone.out, "redo with: ")
    assert path.read_text() == "2\n"
    page = holdfast("-C", "my project", "log", "--flat", "-n", "2", "--session", "late shift")
    assert _typed(holdfast, page.err, "more: ").out.splitlines()[1].startswith("a1 ")


def _typed(holdfast, said: str, after: str):
    """Run the command that a line names, as a shell would."""
    program, *words = shlex.split(said.partition(after)[2].splitlines()[0])
    assert program == "holdfast"
    ran = holdfast(*words)
    assert ran.code == 0, ran
    return ran


def test_a_command_that_is_named_repeats_no_password():
    with click.Context(click.Command("log"), obj=App(directory="s3://me:sesame@host/run")):
        assert typed("log", "redis://:sesame@host/0") == "holdfast -C 's3://me:…@host/run' log 'redis://:…@host/0'"


def test_an_empty_path_restores_nothing(holdfast, write):
    holdfast.saved()
    path = write("a.txt", "work of an hour\n")
    ran = holdfast("restore", "latest", "", "--yes")
    assert (ran.code, path.read_text()) == (6, "work of an hour\n")
    assert "empty" in ran.err


@pytest.mark.parametrize("command", [("restore", "latest", "*.rs", "--yes"), ("diff", "--", "*.rs")])
def test_pattern_without_matches_is_an_error(holdfast, command):
    holdfast.saved()
    ran = holdfast(*command)
    assert ran.code == 3 and "matches nothing" in ran.err


def test_a_diff_tells_of_folders_that_no_file_tells_of(holdfast, project):
    (project / "empty").mkdir()
    (project / "src").chmod(0o755)
    holdfast.saved()
    (project / "empty").rmdir()
    (project / "new").mkdir()
    (project / "src").chmod(0o700)
    ran = holdfast("diff")
    assert "No differences" not in ran.err
    assert holdfast("diff", "--json").json["changed_folders"] == ["empty", "new", "src"]


def test_a_diff_does_not_call_deleted_what_is_only_left_out_now(holdfast, write):
    holdfast.saved()
    write(".holdfastignore", "a.txt\n")
    found = holdfast("diff", "--json").json
    assert found["deleted_files"] == []
    assert "not covered now" in found["uncompared"]["a.txt"]
    assert "1 path not compared" in holdfast("diff").err


def test_a_diff_does_not_call_added_what_the_checkpoint_left_out(holdfast, write):
    write("t.tmp", "there all along\n")
    holdfast.saved("--exclude", "*.tmp")
    found = holdfast("diff", "--json").json
    assert found["added_files"] == []
    assert "not covered by a1" in found["uncompared"]["t.tmp"]


def test_restore_command_resets_folder_modes_and_times(holdfast, project):
    os.utime(project / "src", (1e9, 1e9))
    project.chmod(0o755)
    holdfast.saved()
    os.utime(project / "src", (2e9, 2e9))
    project.chmod(0o700)
    assert "\n    .\n" in holdfast("restore", "latest", "--dry-run").out
    assert holdfast("restore", "latest", "--yes").code == 0
    assert (project.stat().st_mode & 0o777, (project / "src").stat().st_mtime) == (0o755, 1e9)


def test_a_time_alone_is_worth_a_restore(holdfast, project):
    os.utime(project / "src", (1e9, 1e9))
    holdfast.saved()
    os.utime(project / "src", (2e9, 2e9))
    assert "set back the time of 1 path" in holdfast("restore", "latest", "--dry-run").out
    holdfast("restore", "latest", "--yes")
    assert (project / "src").stat().st_mtime == 1e9


def test_what_was_never_held_is_not_called_restored(holdfast, project):
    (project / "node_modules").mkdir()
    holdfast.saved()
    (project / "node_modules").rmdir()
    os.utime(project, ns=(0, holdfast.project.stat().st_mtime_ns))
    holdfast("restore", "latest", "--yes")
    ran = holdfast("restore", "latest", "--dry-run")
    assert "everything is as" not in ran.out and "node_modules" in ran.out


def test_large_file_diff_works_against_the_folder(holdfast, write):
    lines = [f"{number}\n" for number in range(200_000)]
    write("numbers.txt", "".join(lines))
    holdfast.saved()
    write("numbers.txt", "".join(lines[1:]))
    assert "+0 -1" in holdfast("diff", "--stat").out
    write("numbers.txt", "".join(lines) * 4)
    assert "too large to show" in holdfast("diff").out


def test_a_store_is_not_made_among_the_files_of_somebody(holdfast, tmp_path, project):
    other = tmp_path / "other"
    other.mkdir(mode=0o755)
    (other / "theirs.txt").write_text("mine")
    ran = holdfast("--store", str(other), "save")
    assert ran.code == 6 and os.listdir(other) == ["theirs.txt"]
    (other / "theirs.txt").unlink()
    assert holdfast("--store", str(other), "save").code == 0
    assert other.stat().st_mode & 0o777 == 0o700


def test_a_repository_is_not_taken_for_a_store(holdfast, tmp_path):
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "theirs.git"], check=True)
    before = sorted(os.listdir(tmp_path / "theirs.git"))
    for command in ("save", "log"):
        ran = holdfast("--store", str(tmp_path / "theirs.git"), command)
        assert ran.code == 6 and "git repository" in ran.err
    assert sorted(os.listdir(tmp_path / "theirs.git")) == before


@pytest.mark.parametrize("lost", ["HEAD", "refs/tags"])
def test_a_store_that_lost_a_part_of_itself_goes_on(holdfast, write, lost):
    holdfast.saved()
    store = holdfast("where", "--json").json["store"]
    subprocess.run(["rm", "-r", f"{store}/{lost}"], check=True)
    if lost == "HEAD":
        assert holdfast("log", "--json").json["items"]
        assert holdfast("verify").code == 5
    write("a.txt", "two\n")
    assert holdfast("save").code == 0
    assert holdfast("verify").code == 0


def test_undo_works_after_another_safety_checkpoint_is_deleted(holdfast, write):
    first = holdfast.saved()
    write("a.txt", "two\n")
    second = holdfast.saved()
    safety = []
    for target in (first, second, first):
        safety.append(holdfast("restore", target, "--yes", "--json").json["restored"]["undo_id"])
    holdfast("undo")
    holdfast("rm", safety[2], "--yes")
    assert holdfast("undo").code == 0
    assert (holdfast.project / "a.txt").read_text() == "one\n"


def test_undo_and_redo_name_the_restore_that_they_turn(holdfast, write):
    holdfast.saved()
    write("a.txt", "two\n")
    holdfast("restore", "latest", "--yes")
    assert holdfast("undo").out.startswith("Undid the restore to a1: ")
    assert holdfast("redo").out.startswith("Redid the restore to a1: ")
    assert holdfast("undo").out.startswith("Undid the restore to a1: ")


def test_save_without_changes_reports_an_unkept_message(holdfast):
    holdfast.saved()
    assert "not saved" in holdfast("save", "important words").err
    assert "not saved" not in holdfast("save").err


def test_closed_input_is_not_a_bug(holdfast):
    ran = subprocess.run(
        " ".join([*holdfast.command, "save", "--state", "talk=-", "<&-"]), shell=True, capture_output=True, check=False
    )
    assert ran.returncode == 7 and b"stdin is closed" in ran.stderr


def test_a_path_in_the_place_of_a_checkpoint_is_recognised(holdfast):
    holdfast.saved()
    assert holdfast("diff", "latest", "src/").code == 0


def test_global_options_after_the_command_are_explained(holdfast):
    assert "before the command" in holdfast("log", "-C", ".").err


def test_home_is_a_workspace_only_when_it_is_said(holdfast, tmp_path):
    assert holdfast("-C", str(tmp_path / "home"), "save").code == 6
    assert holdfast("-C", str(tmp_path / "home"), "--allow-home", "save").code == 0


@pytest.mark.parametrize("command", ["guard", "bisect"])
def test_the_line_of_usage_shows_where_the_command_comes(holdfast, command):
    assert holdfast(command, "--help").out.splitlines()[0].endswith(" -- COMMAND...")


def copied(folder: Path, to: Path) -> Path:
    """Move a folder as to another disk: nothing proves that it is the same."""
    shutil.copytree(folder, to)
    shutil.rmtree(folder)
    return to


def test_who_moved_a_folder_is_told_where_its_checkpoints_are(holdfast, project, monkeypatch):
    saved = holdfast.saved()
    store = holdfast("where", "--json").json["store"]
    moved = copied(project, project.parent.parent / project.name)
    monkeypatch.chdir(moved)
    absent = holdfast("log")
    assert absent.code == 3 and f"If it was {project} before: holdfast --store {store} log" in absent.err
    looked = holdfast("--store", store, "log")
    assert saved.partition("-")[0] in looked.out
    assert f"If it is {moved} now, take them along: holdfast --store {store} save" in looked.err
    assert holdfast("log").code == 3  # who only looks takes nothing from a folder that may come back
    took = holdfast("--store", store, "save", "--allow-empty")
    assert took.code == 0 and "take them along" not in took.err
    assert [each["id"] for each in holdfast("log", "--json").json["items"]][-1] == saved


def test_suggestion_for_a_moved_folder_names_that_folder(holdfast, project, monkeypatch):
    """Typed in another folder, it must not take the store along to there."""
    saved = holdfast.saved()
    moved = copied(project, project.parent / "moved")
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    looked = _typed(holdfast, holdfast("-C", "../moved", "log").err, " before: ")
    assert _typed(holdfast, looked.err, "take them along: ").code == 0
    assert [each["id"] for each in holdfast("-C", str(moved), "log", "--json").json["items"]][-1] == saved
    assert holdfast("log").code == 3


@pytest.mark.parametrize("has_link", [False, True], ids=["gone", "a link is left"])
def test_moved_folder_continues_its_history(holdfast, project, monkeypatch, has_link):
    saved = holdfast.saved()
    store = holdfast("where", "--json").json["store"]
    moved = project.rename(project.parent / "moved")
    if has_link:
        project.symlink_to(moved)
    monkeypatch.chdir(moved)
    looked = holdfast("log")
    assert saved.partition("-")[0] in looked.out and f"This folder was {project} before" in looked.err
    (moved / "a.txt").write_text("two\n")
    told = holdfast("save")
    assert told.code == 0 and f"This folder was {project} before; its checkpoints continue." in told.err
    assert "Created a store" not in told.err
    assert [each["id"] for each in holdfast("log", "--json").json["items"]][-1] == saved
    assert holdfast("where", "--json").json["store"] == store and "This folder was" not in holdfast("save").err


def test_new_folder_with_the_inode_of_a_deleted_one_is_not_taken_for_it(holdfast, project, monkeypatch):
    holdfast.saved()
    moved = project.rename(project.parent / "renamed")  # the same inode; nothing in it is as it was
    shutil.rmtree(moved / "src")
    (moved / "a.txt").unlink()
    (moved / "a.txt").write_text("another project\n")
    monkeypatch.chdir(moved)
    begun = holdfast("save")
    assert "Created a store" in begun.err and "This folder was" not in begun.err


def test_copy_of_a_deleted_folder_of_another_name_says_it_begins(holdfast, project, monkeypatch):
    holdfast.saved()
    monkeypatch.chdir(copied(project, project.parent / "renamed"))
    assert f"If it was {project} before" in holdfast("log").err
    assert f"Created a store for {project.parent / 'renamed'}" in holdfast("save").err


def test_a_folder_that_is_moved_twice_leaves_its_place_to_others(holdfast, project, monkeypatch):
    holdfast.saved()
    store = holdfast("where", "--json").json["store"]
    for name in ("second", "third"):
        moved = project.rename(project.parent / name)
        monkeypatch.chdir(moved)
        assert holdfast("--store", store, "save", name).code == 0
        assert holdfast("where", "--json").json["store"] == store
        project = moved
    second = project.with_name("second")
    second.mkdir()
    assert holdfast("-C", str(second), "save").code == 0
    assert holdfast("-C", str(second), "where", "--json").json["store"] != store


def test_new_folder_at_an_old_path_has_its_own_store(holdfast, project, monkeypatch):
    first = holdfast.saved()
    store = holdfast("where", "--json").json["store"]
    moved = project.rename(project.parent / "moved")
    assert holdfast("-C", str(moved), "--store", store, "save").code == 0
    project.mkdir()
    monkeypatch.chdir(project)
    assert "has no checkpoints yet" in holdfast("log").err
    away = moved.rename(project.parent / "away")  # as on a disk that is not there for a while
    begun = holdfast("save", "new here")
    assert begun.code == 0 and f"This store is new. If it was {moved} before" in begun.err
    away.rename(moved)
    assert [each["message"] for each in holdfast("log", "--json").json["items"]] == ["new here"]
    assert [each["id"] for each in holdfast("-C", str(moved), "log", "--json").json["items"]] == [first]


def test_folder_moved_back_keeps_its_store(holdfast, project, monkeypatch):
    saved = holdfast.saved()
    store = holdfast("where", "--json").json["store"]
    moved = project.rename(project.parent / "moved")
    assert holdfast("-C", str(moved), "--store", store, "save").code == 0
    moved.rename(project)
    monkeypatch.chdir(project)
    assert f"This folder was {moved} before" in holdfast("save").err
    assert [each["id"] for each in holdfast("log", "--json").json["items"]] == [saved]
    assert os.listdir(Path(store).parent) == [Path(store).name]


def test_who_moved_a_folder_does_not_begin_anew_unawares(holdfast, project, monkeypatch):
    holdfast.saved()
    monkeypatch.chdir(copied(project, project.parent.parent / project.name))
    assert f"This store is new. If it was {project} before" in holdfast("save").err
    assert "If it was" not in holdfast("save", "again").err


def test_no_move_hint_if_every_store_has_its_folder(holdfast, project, tmp_path, monkeypatch):
    holdfast.saved()
    other = tmp_path / "home" / "other" / project.name
    other.mkdir(parents=True)
    monkeypatch.chdir(other)
    assert "If it was" not in holdfast("log").err + holdfast("save").err


def test_no_move_hint_if_the_first_save_was_killed(holdfast):
    holdfast.saved()
    store = Path(holdfast("where", "--json").json["store"])
    for path in store.iterdir():
        if path.is_dir() and path.name != "holdfast":  # which is made first
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()
    assert "If it was" not in holdfast("log").err + holdfast("save").err


def test_a_store_that_is_open_to_others_is_refused(holdfast, write, tmp_path) -> None:
    write("a", "text")
    store = tmp_path / "a-store"
    assert holdfast("--store", str(store), "save", "one").code == 0
    store.chmod(0o755)
    ran = holdfast("--store", str(store), "log")
    assert ran.code == 6
    assert "is open to other users (mode 755)" in ran.err and f"chmod 700 {store}" in ran.err
    assert "one" in holdfast("--trust-store", "--store", str(store), "log").out


def test_restore_of_a_path_alone_says_how(holdfast, project, write):
    holdfast("save")
    write("a.txt", "two\n")
    ran = holdfast("restore", "a.txt", "src")
    assert ran.code == 3 and "hint:  To restore this path: holdfast restore latest a.txt src" in ran.err
    assert "To restore" not in holdfast("restore", "nowhere").err


class TestSavesWithoutChangedFiles:
    @pytest.fixture
    def repository(self, project):
        def git(*words):
            who = ("-c", "user.name=a", "-c", "user.email=a@b")
            subprocess.run(["git", *who, *words], cwd=project, check=True, capture_output=True)

        shutil.rmtree(project)
        project.mkdir()
        os.chdir(project)
        git("init", "-q")
        return git

    def test_new_empty_repository_is_saved_completely(self, holdfast, repository):
        ran = holdfast("save")
        assert (ran.code, ran.out) == (0, "a1  0 files saved\n") and "could not be saved" not in ran.err
        assert holdfast("status", "--json").json["attention"] == []

    def test_only_a_commit_of_your_git(self, holdfast, repository, write):
        write("a.txt", "one\n")
        holdfast.saved()
        repository("add", ".")
        repository("commit", "-q", "-m", "one")
        assert holdfast("save").out == "a2  no files changed, only the git branch or commit\n"

    def test_nothing_at_all(self, holdfast):
        holdfast.saved()
        assert holdfast("save", "--allow-empty").out == "a2  no files changed\n"


def test_lines_are_not_counted_against_a_deleted_parent(holdfast, write):
    for text in ("one\n", "two\n"):
        write("a.txt", text)
        holdfast.saved()
    assert holdfast("rm", "a1", "--yes").code == 0
    assert holdfast("log").out.splitlines()[0].endswith("  1 file")


def test_plan_of_a_dry_run_is_the_answer(holdfast, project):
    holdfast.saved()
    os.chdir(project.parent)
    shutil.rmtree(project)
    ran = holdfast("workspaces", "--remove-gone", str(project), "--dry-run")
    assert ran.code == 0 and ran.out.splitlines()[1].split()[0] == str(project)
