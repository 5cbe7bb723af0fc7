"""git inside: the user's repositories are only read, in whatever state they are, and never steer the engine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from . import repository
from .harness import Case
from .people import UNPRIVILEGED_ID, needs_root


def nest(case: Case, name: str = "nested", *, commit: bool = True) -> Path:
    """Make a repository inside the workspace."""
    repository.make_nested(case.path(name), case.home, commit=commit)
    return case.path(name)


def test_nested_repository_file_is_restored_but_not_its_git(case: Case) -> None:
    """Case 75."""
    nested = nest(case)
    checkpoint = case.save()
    assert ("nested/.git", "git-directory") in [(each.path, each.reason) for each in checkpoint.uncovered]
    case.write("nested/lib.py", b"edited")
    case.git("commit", "-q", "-a", "-m", "in the nested one", cwd=nested)
    case.write("nested/new.py", b"made since")
    assert case.restore(checkpoint).ok
    assert case.read("nested/lib.py") == b"lib = 1\n"
    assert b"in the nested one" in case.git("log", "-1", cwd=nested)


def test_removed_nested_repository_returns_without_history(case: Case) -> None:
    """Case 75."""
    nest(case)
    checkpoint = case.save()
    shutil.rmtree(case.path("nested"))
    result = case.restore(checkpoint)
    assert case.read("nested/lib.py") == b"lib = 1\n"
    assert "nested/.git" in result.missing


def test_nested_repository_without_commits_is_harmless(case: Case) -> None:
    """Case 76."""
    nest(case, commit=False)
    nest(case, "a/deeper/one", commit=False)
    checkpoint = case.save()
    assert checkpoint.complete
    case.write("nested/lib.py", b"edited")
    case.write("a/deeper/one/lib.py", b"edited")
    case.write("src/app.py", b"edited")
    assert case.restore(checkpoint).ok


@pytest.mark.parametrize("place", ["cloned", "src/cloned", "made/since/cloned"])
def test_a_repository_cloned_since_is_left_alone_and_named(case: Case, place: str) -> None:
    """Case 77."""
    checkpoint = case.save()
    case.path(place).parent.mkdir(parents=True, exist_ok=True)
    case.git("clone", "-q", "--template=", str(case.root), place)
    case.write(f"{place}/work.txt", b"not committed")
    case.write("beside.txt", b"made since")
    result = case.restore(checkpoint)
    assert place in [name.rstrip("/") for name in result.kept]
    assert case.read(f"{place}/work.txt") == b"not committed"
    assert case.git("log", "-1", "--format=%s", cwd=case.path(place)) == b"first\n"
    assert result.removed == ["beside.txt"]


def test_a_linked_worktree_made_since_is_left_alone_and_named(case: Case) -> None:
    """Case 77."""
    checkpoint = case.save()
    case.git("worktree", "add", "-q", "tree", "side")
    case.write("tree/work.txt", b"not committed")
    result = case.restore(checkpoint)
    assert "tree" in [name.rstrip("/") for name in result.kept]
    assert case.read("tree/work.txt") == b"not committed"


def test_repository_in_place_of_a_file_is_left_and_reported(case: Case) -> None:
    """Case 77."""
    case.write("thing", b"a file")
    checkpoint = case.save()
    case.path("thing").unlink()
    nest(case, "thing")
    result = case.restore(checkpoint)
    assert "thing" in result.failed
    assert case.path("thing/.git").is_dir()


def test_nested_repository_keeps_its_index_and_merge(case: Case) -> None:
    """Case 78."""
    nested = nest(case)
    _stop_in_a_merge(case, nested, "lib.py")
    case.write("nested/staged.py", b"staged")
    case.git("add", "staged.py", cwd=nested)
    checkpoint = case.save()
    status = case.git("status", "--porcelain", cwd=nested)
    case.write("nested/lib.py", b"resolved by the agent\n")
    case.path("nested/staged.py").unlink()
    assert case.restore(checkpoint).ok
    assert case.git("status", "--porcelain", cwd=nested) == status


def _stop_in_a_merge(case: Case, folder: Path, name: str) -> None:
    case.git("checkout", "-q", "-b", "theirs", cwd=folder)
    (folder / name).write_bytes(b"theirs\n")
    case.git("commit", "-q", "-m", "theirs", "--", name, cwd=folder)
    case.git("checkout", "-q", "main", cwd=folder)
    (folder / name).write_bytes(b"ours\n")
    case.git("commit", "-q", "-m", "ours", "--", name, cwd=folder)
    case.git("merge", "-q", "theirs", cwd=folder, check=False)
    assert (folder / ".git" / "MERGE_HEAD").exists()


@pytest.mark.parametrize("state", ["clean", "dirty", "other commit", "uninitialised", "removed"])
def test_submodule_files_are_restored_and_its_git_left_alone(case: Case, state: str) -> None:
    """Case 79."""
    origin = case.outside / "origin"
    repository.make_nested(origin, case.home)
    case.git("submodule", "--quiet", "add", str(origin), "module")
    case.git("commit", "-q", "-m", "with a submodule")
    module = case.path("module")
    if state == "dirty":
        case.write("module/lib.py", b"dirty")
    elif state == "uninitialised":
        case.git("submodule", "deinit", "-q", "-f", "module")
    checkpoint = case.save()
    if state == "other commit":
        case.write("module/lib.py", b"newer")
        case.git("commit", "-q", "-a", "-m", "newer", cwd=module)
    elif state == "removed":
        shutil.rmtree(module)
    elif state == "uninitialised":
        case.git("submodule", "--quiet", "update", "--init")
    else:
        case.write("module/lib.py", b"edited by the agent")
    case.restore(checkpoint)


def test_a_git_file_of_a_submodule_is_kept_word_for_word(case: Case) -> None:
    """Case 80."""
    origin = case.outside / "origin"
    repository.make_nested(origin, case.home)
    case.git("submodule", "--quiet", "add", str(origin), "module")
    text = case.read("module/.git")
    checkpoint = case.save()
    case.write("module/.git", b"gitdir: /somewhere/else\n")
    assert case.restore(checkpoint).ok
    assert case.read("module/.git") == text
    assert case.git("rev-parse", "--abbrev-ref", "HEAD", cwd=case.path("module")) == b"main\n"


def test_worktrees_of_one_repository_have_separate_stores(case: Case) -> None:
    """Case 80."""
    case.use_default_store()
    main = case.root
    case.git("worktree", "add", "-q", str(case.area / "tree"), "side")
    main_store = case.ws.store
    in_main = case.save("in the main one")
    case.root = case.area / "tree"
    case.reopen()
    assert case.ws.store != main_store
    assert case.ws.list() == []
    text = case.read(".git")
    checkpoint = case.save("in the linked one")
    case.write("README.md", b"edited")
    case.write(".git", b"gitdir: nowhere\n")
    assert case.restore(checkpoint).ok
    assert case.read(".git") == text
    assert [each.id for each in case.open(main).list()] == [in_main.id]


def test_a_commit_made_after_the_save_stays_on_its_branch(case: Case) -> None:
    """Case 81."""
    checkpoint = case.save()
    case.write("src/app.py", b"print('committed')\n")
    case.git("commit", "-q", "-a", "-m", "after the save")
    head = case.git("rev-parse", "HEAD")
    assert case.restore(checkpoint).ok
    assert case.git("rev-parse", "HEAD", "main") == head * 2
    assert case.read("src/app.py") == b"print('hello')\n"


@pytest.mark.parametrize("move", ["switch", "detach", "rebase", "stash", "reset", "amend"])
def test_the_users_position_is_left_where_it_is(case: Case, move: str) -> None:
    """Case 82."""
    checkpoint = case.save()
    moves = {
        "switch": [("switch", "-q", "-f", "side")],
        "detach": [("checkout", "-q", "-f", "--detach")],
        "rebase": [
            ("stash", "-q"),
            ("commit", "-q", "--allow-empty", "-m", "x"),
            ("rebase", "-q", "--force-rebase", "side"),
        ],
        "stash": [("stash", "-q", "-u")],
        "reset": [("reset", "-q", "--hard")],
        "amend": [("commit", "-q", "--amend", "-a", "-m", "amended")],
    }
    for words in moves[move]:
        case.git(*words)
    case.write("made-since.txt", b"1")
    assert case.restore(checkpoint).ok
    assert case.read("notes.txt") == b"not tracked\n"


def test_the_index_is_never_written(case: Case) -> None:
    """Case 83."""
    case.write("intended.py", b"to be added\n")
    case.git("add", "-N", "intended.py")
    case.git("rm", "-q", "--cached", "src/app.py")
    case.write("src/staged.py", b"x = 3\n")
    status = case.git("status", "--porcelain=v2")
    checkpoint = case.save()
    case.write("src/staged.py", b"x = 4\n")
    case.path("intended.py").unlink()
    case.path("src/app.py").unlink()
    assert case.restore(checkpoint).ok
    assert case.git("status", "--porcelain=v2") == status


@pytest.mark.parametrize("operation", ["merge", "rebase", "cherry-pick", "bisect"])
def test_an_operation_of_git_that_is_under_way_stays_under_way(case: Case, operation: str) -> None:
    """Case 84."""
    case.git("commit", "-q", "-a", "-m", "all of it")
    if operation == "bisect":
        case.git("bisect", "start")
        case.git("bisect", "bad")
    else:
        _stop_in_a_merge(case, case.root, "src/app.py")
        if operation != "merge":
            case.git("merge", "--abort")
            case.git(operation, "theirs", check=False)
    status = case.git("status")
    checkpoint = case.save()
    case.write("src/app.py", b"resolved by the agent\n")
    case.write("new.txt", b"made since")
    assert case.restore(checkpoint).ok
    assert case.git("status") == status


def test_sparse_checkout_exclusions_are_not_missing(case: Case) -> None:
    """Case 85."""
    case.write("docs/guide.md", b"guide\n")
    case.write("lib/code.py", b"code\n")
    case.git("add", "-A")
    case.git("commit", "-q", "-m", "more folders")
    case.git("sparse-checkout", "set", "--sparse-index", "lib")
    assert not case.path("docs").exists()
    checkpoint = case.save()
    assert checkpoint.complete
    case.write("lib/code.py", b"edited\n")
    result = case.restore(checkpoint)
    assert result.ok
    assert not result.missing
    assert not case.path("docs").exists()


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_a_file_that_git_was_told_not_to_look_at_is_looked_at(case: Case, flag: str) -> None:
    """Case 85."""
    case.git("update-index", flag, "src/app.py")
    case.write("src/app.py", b"local change that git does not see\n")
    checkpoint = case.save()
    case.write("src/app.py", b"edited by the agent, not seen either\n")
    assert case.restore(checkpoint).ok
    assert case.read("src/app.py") == b"local change that git does not see\n"
    case.path("src/app.py").unlink()
    without = case.save("without the file")
    case.write("src/app.py", b"back")
    assert case.restore(without).ok
    assert not case.path("src/app.py").exists()


def test_a_partial_clone_is_not_completed_behind_the_users_back(case: Case) -> None:
    """Case 85."""
    case.git("config", "uploadpack.allowFilter", "true")
    partial = case.area / "partial"
    case.git("clone", "-q", "--template=", "--filter=blob:none", "--sparse", f"file://{case.root}", str(partial))
    case.root = partial
    checkpoint = case.save()
    case.write("README.md", b"edited")
    assert case.restore(checkpoint).ok
    assert not case.path("src").exists()


GIT_VARIABLES = {
    "GIT_DIR": "{decoy}/.git",
    "GIT_WORK_TREE": "{decoy}",
    "GIT_INDEX_FILE": "{decoy}/.git/index",
    "GIT_OBJECT_DIRECTORY": "{decoy}/.git/objects",
    "GIT_COMMON_DIR": "{decoy}/.git",
    "GIT_CEILING_DIRECTORIES": "{decoy}:/",
    "GIT_NAMESPACE": "decoy",
    "GIT_CONFIG_GLOBAL": "{decoy}/hostile",
    "GIT_CONFIG_SYSTEM": "{decoy}/hostile",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.excludesFile",
    "GIT_CONFIG_VALUE_0": "{decoy}/ignore-all",
    "GIT_DEFAULT_HASH": "sha256",
    "GIT_TEMPLATE_DIR": "{decoy}",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "{decoy}/.git/objects",
}


@pytest.mark.parametrize("name", [*GIT_VARIABLES, "all"])
def test_variables_of_git_redirect_nothing(case: Case, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Case 86."""
    decoy = case.outside / "decoy"
    repository.make_nested(decoy, case.home)
    (decoy / "hostile").write_text(f"[core]\n\texcludesFile = {decoy}/ignore-all\n")
    (decoy / "ignore-all").write_text("*\n")
    case.write("large.bin", os.urandom((1 << 20) + 1))
    for each in GIT_VARIABLES if name == "all" else [name]:
        monkeypatch.setenv(each, GIT_VARIABLES[each].format(decoy=decoy))
    checkpoint = case.save()
    assert [each.path for each in checkpoint.uncovered] == [".git"]
    case.write("README.md", b"edited")
    case.path("large.bin").unlink()
    assert case.restore(checkpoint).ok


HOSTILE_CONFIG = """
[core]
    hooksPath = {outside}/hooks
    fsmonitor = {outside}/run-me
    pager = {outside}/run-me
    editor = {outside}/run-me
    sshCommand = {outside}/run-me
    fileMode = false
    trustctime = false
    checkStat = minimal
    ignoreStat = true
    symlinks = false
    precomposeUnicode = true
    ignoreCase = true
    preloadIndex = false
    bare = {bare}
    worktree = {outside}
[commit]
    gpgsign = true
[gpg]
    program = {outside}/run-me
[alias]
    status = !{outside}/run-me
[safe]
    directory = /nowhere
[diff]
    external = {outside}/run-me
[include]
    path = {outside}/included
[extensions]
    worktreeConfig = true
"""


@pytest.mark.parametrize("where", ["home", "repository"])
def test_the_users_configuration_has_no_effect(case: Case, where: str) -> None:
    """Case 87."""
    for name in ("hooks/pre-commit", "hooks/post-checkout", "hooks/post-index-change", "run-me"):
        program = case.outside / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\ntouch {case.outside}/it-was-run\n")
        program.chmod(0o755)
    config = case.home / ".gitconfig" if where == "home" else case.root / ".git" / "config"
    harmless = config.read_text()
    config.write_text(harmless + HOSTILE_CONFIG.format(outside=case.outside, bare="false"))
    case.write("tool", b"#!/bin/sh\n", mode=0o755)
    case.path("link").symlink_to("tool")
    case.write("Tool", b"differs in case")
    checkpoint = case.save("under a hostile configuration")
    config.write_text(harmless)
    assert case.save("the same state").id == checkpoint.id
    config.write_text(harmless + HOSTILE_CONFIG.format(outside=case.outside, bare="true"))
    case.path("tool").chmod(0o644)
    case.path("link").unlink()
    case.path("Tool").unlink()
    with case.watched("restore"):  # the harness itself would ask git, under this configuration
        assert case.ws.restore(checkpoint.id).ok
    assert case.path("tool").stat().st_mode & 0o777 == 0o755
    assert case.path("link").is_symlink()
    assert case.read("Tool") == b"differs in case"
    config.write_text(harmless)


def test_a_broken_configuration_does_not_stop_a_save(case: Case) -> None:
    """Case 87."""
    config = case.root / ".git" / "config"
    sound = config.read_text()
    config.write_text("[core\nthis is no configuration\n")
    checkpoint = case.save()
    assert checkpoint.complete
    config.write_text(sound)
    case.write("README.md", b"edited")
    assert case.restore(checkpoint).ok


def test_a_repository_of_another_object_format_is_like_any_other(case: Case) -> None:
    """Case 88."""
    shutil.rmtree(case.root / ".git")
    repository.init(case.root, case.home, "--object-format=sha256")
    case.write(".gitignore", b"*.bin\n")
    case.write("forced.bin", os.urandom((1 << 20) + 1))
    case.git("add", "-f", "forced.bin", "src")
    case.git("commit", "-q", "-m", "sha256")
    checkpoint = case.save()
    assert [each.path for each in checkpoint.uncovered] == [".git"]
    case.path("forced.bin").unlink()
    assert case.restore(checkpoint).ok


def test_a_bare_repository_is_left_alone(case: Case) -> None:
    """Case 88."""
    bare = case.area / "bare"
    case.git("clone", "-q", "--bare", "--template=", str(case.root), str(bare))
    case.root = bare
    case.write("notes.txt", b"of a person")
    checkpoint = case.save()
    case.write("HEAD", b"ref: refs/heads/side\n")
    case.write("notes.txt", b"edited")
    assert case.restore(checkpoint).ok
    assert case.read("notes.txt") == b"of a person"
    assert case.git("rev-parse", "--abbrev-ref", "HEAD", cwd=bare) == b"side\n"
    shutil.rmtree(case.path("objects"))
    assert "objects" in case.preview(checkpoint.id).missing


@needs_root
def test_a_repository_of_another_user_is_like_any_other(case: Case) -> None:
    """Case 88."""
    case.write(".gitignore", b"*.bin\n")
    case.write("forced.bin", os.urandom((1 << 20) + 1))
    case.git("add", "-f", "forced.bin")
    for parent, folders, names in os.walk(case.root):
        for name in (".", *folders, *names):
            os.chown(os.path.join(parent, name), UNPRIVILEGED_ID, UNPRIVILEGED_ID, follow_symlinks=False)
    (case.home / ".gitconfig").write_text(repository.CONFIG + f"[safe]\n\tdirectory = {case.root}\n")
    checkpoint = case.save()
    assert [each.path for each in checkpoint.uncovered] == [".git"]
    case.path("forced.bin").unlink()
    case.write("README.md", b"edited")
    assert case.restore(checkpoint).ok


def test_what_git_clean_removed_comes_back(case: Case) -> None:
    """Case 90."""
    case.write(".gitignore", b".env\nlocal/\nnode_modules/\n")
    case.write(".env", b"TOKEN=1")
    case.write("local/db.sqlite", b"rows")
    case.write("node_modules/x/index.js", b"dependency")
    case.path("empty").mkdir()
    checkpoint = case.save()
    case.git("clean", "-q", "-fdx")
    assert not case.path(".env").exists()
    result = case.restore(checkpoint)
    assert case.read(".env") == b"TOKEN=1"
    assert case.read("local/db.sqlite") == b"rows"
    assert case.path("empty").is_dir()
    assert set(result.missing) == {"node_modules"}


def test_a_git_folder_that_was_deleted_is_said_to_be_missing(case: Case) -> None:
    """Case 91."""
    checkpoint = case.save()
    shutil.rmtree(case.root / ".git")
    case.write("README.md", b"edited")
    plan = case.preview(checkpoint.id)
    assert ".git" in plan.missing
    result = case.restore(checkpoint)
    assert ".git" in result.missing
    assert case.read("README.md") == b"# A project\n\nNot committed.\n"


def test_without_a_repository_and_without_git_everything_works(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 92."""
    shutil.rmtree(case.root / ".git")
    nowhere = case.outside / "bin"
    nowhere.mkdir()
    monkeypatch.setenv("PATH", str(nowhere))
    case.write(".gitignore", b"*.log\n")
    checkpoint = case.save()
    assert checkpoint.uncovered == ()
    case.write("README.md", b"edited")
    case.write("new.txt", b"made since")
    case.write("new.log", b"made since, ignored")
    result = case.restore(checkpoint)
    assert result.removed == ["new.txt"]
    assert "new.log" in result.kept
    case.diff(checkpoint)
    case.ws.merge()


@pytest.mark.parametrize("in_repository", [True, False])
def test_a_repository_keeps_nothing_from_the_engine(case: Case, in_repository: bool) -> None:
    """Case 92."""
    if not in_repository:
        shutil.rmtree(case.root / ".git")
    checkpoint = case.save()
    for path in [path for path in case.root.iterdir() if path.name != ".git"]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert case.restore(checkpoint).ok
    assert case.git_store("log", "--all", "--format=%H").count(b"\n") >= 1
