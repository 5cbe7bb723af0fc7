"""The index of the user's git, read without git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.scan import git_index, user_git
from holdfast.scan.git_index import read_index, staged_objects


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    _git(tmp_path, "init", "-q", "-b", "main")
    _git(tmp_path, "config", "user.name", "you")
    _git(tmp_path, "config", "user.email", "you@example.com")
    for name in ("lib/a b", "lib/b", "docs/c", "\u00e4", "x" * 200):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    _git(tmp_path, "add", ".")
    return tmp_path


def _listed(root: Path, *options: str) -> set[tuple[bytes, str]]:
    rows = [row.partition("\t") for row in _git(root, "ls-files", "--stage", "-z", *options).split("\0") if row]
    return {(path.encode(), row.split(" ")[1]) for row, _, path in rows if not row.startswith("160000")}


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_entries_are_those_that_git_lists(repository: Path, version: str) -> None:
    _git(repository, "update-index", f"--index-version={version}")
    _git(repository, "update-index", "--skip-worktree", "docs/c")  # an entry with more flags
    found = staged_objects(read_index(repository / ".git").data)
    assert found == _listed(repository) and len(found) == 5


def test_every_stage_of_a_conflict(repository: Path) -> None:
    _git(repository, "commit", "-q", "-m", "one")
    _git(repository, "checkout", "-q", "-b", "other")
    (repository / "lib/b").write_text("theirs")
    _git(repository, "commit", "-q", "-a", "-m", "theirs")
    _git(repository, "checkout", "-q", "main")
    (repository / "lib/b").write_text("ours")
    _git(repository, "commit", "-q", "-a", "-m", "ours")
    assert subprocess.run(["git", "-C", str(repository), "merge", "-q", "other"], capture_output=True).returncode == 1
    found = staged_objects(read_index(repository / ".git").data)
    assert found == _listed(repository) and len(found) == 7


def test_submodules_and_intended_files_have_no_content(repository: Path) -> None:
    _git(repository, "commit", "-q", "-m", "one")
    commit = _git(repository, "rev-parse", "HEAD")
    _git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},module")
    (repository / "later").write_text("later")
    _git(repository, "add", "--intent-to-add", "later")
    found = staged_objects(read_index(repository / ".git").data)
    assert commit not in dict(found).values() and len(found) == 5


def test_folders_of_a_sparse_index(repository: Path) -> None:
    _git(repository, "commit", "-q", "-m", "one")
    _git(repository, "sparse-checkout", "set", "--cone", "--sparse-index", "lib")
    found = staged_objects(read_index(repository / ".git").data)
    assert found == _listed(repository, "--sparse") and (b"docs/", _git(repository, "rev-parse", "HEAD:docs")) in found


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_digest_and_names_with_and_without_the_native_module(
    repository: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _git(repository, "update-index", f"--index-version={version}", "--skip-worktree", "docs/c")
    _git(repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    git = repository / ".git"
    found = read_index(git).digest, user_git._index_names(git, "index")
    monkeypatch.setattr(git_index, "_index_identity", None)
    monkeypatch.setattr(user_git, "_read_index_names", None)
    assert found == (read_index(git).digest, user_git._index_names(git, "index"))
    assert found[1] == sorted(["\u00e4".encode(), b"docs/c", b"lib/a b", b"lib/b", b"module", b"module/", b"x" * 200])


@pytest.mark.parametrize("cut", [0, 3, 11, 40, 100])
def test_nothing_of_a_damaged_index(repository: Path, cut: int) -> None:
    data = read_index(repository / ".git").data
    assert staged_objects(data[:cut]) == set()
    assert staged_objects(b"DIRC" + b"\xff" * 200) == set()
