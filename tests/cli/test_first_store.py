"""Which folder a new store is for."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def repository(project: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    return project


def workspace_of(holdfast) -> Path:
    return Path(holdfast("where", "--json").json["workspace"])


@pytest.mark.parametrize("verb", [["save"], ["guard", "--", "true"], ["init"], ["init", "--save"]], ids=" ".join)
def test_in_a_subfolder_the_repository_is_protected(holdfast, repository, monkeypatch, verb):
    monkeypatch.chdir(repository / "src")
    ran = holdfast(*verb)
    assert ran.code == 0 and f"Created a store for {repository}" in ran.out + ran.err
    assert "the git repository that this folder is in; for this folder alone: holdfast -C . init" in ran.err
    assert workspace_of(holdfast) == repository
    assert "Created a store" not in holdfast("save").err


def test_a_worktree_and_a_submodule_are_repositories(holdfast, project, monkeypatch):
    (project / ".git").write_text("gitdir: elsewhere\n")
    monkeypatch.chdir(project / "src")
    holdfast("save")
    assert workspace_of(holdfast) == project


@pytest.mark.parametrize("verb", ["save", "init"])
def test_named_folder_is_meant_as_it_is(holdfast, repository, monkeypatch, verb):
    monkeypatch.chdir(repository / "src")
    ran = holdfast("-C", ".", verb)
    assert ran.code == 0 and f"Created a store for {repository / 'src'}" in ran.out + ran.err
    assert "git repository" not in ran.err


def test_without_a_repository_it_is_the_current_folder(holdfast, project, monkeypatch):
    monkeypatch.chdir(project / "src")
    assert f"Created a store for {project / 'src'}\n" in holdfast("save").err


def test_a_repository_around_the_home_folder_does_not_count(holdfast, project, tmp_path):
    for folder in (tmp_path / "home", tmp_path):
        (folder / ".git").mkdir()
    assert f"Created a store for {project}\n" in holdfast("save").err


def test_an_existing_store_further_up_is_used(holdfast, project, monkeypatch):
    holdfast.saved()
    (project / "src" / ".git").mkdir()
    monkeypatch.chdir(project / "src")
    assert "Created a store" not in holdfast("save").err and workspace_of(holdfast) == project


def test_project_settings_of_agents_are_those_of_the_repository(holdfast, repository, monkeypatch):
    monkeypatch.chdir(repository / "src")
    ran = holdfast("install", "codex", "--project")
    assert ran.code == 0 and str(repository / ".codex") in ran.out
    assert not (repository / "src" / ".codex").exists()
    assert str(repository / ".codex") in holdfast("doctor", "codex").out
    assert holdfast("uninstall", "codex", "--project").code == 0 and not list(repository.glob(".codex/*.json"))
    assert str(repository / "src" / ".codex") in holdfast("-C", ".", "install", "codex", "--project").out


def test_configuration_is_that_of_the_repository(holdfast, repository, monkeypatch, write: Callable[[str, str], Path]):
    write("holdfast.toml", "exclude_patterns = ['*.log']\n")
    monkeypatch.chdir(repository / "src")
    assert "holdfast.toml" in holdfast("config").out
