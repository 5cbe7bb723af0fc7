"""Which settings come back with a removed repository, with real git: none that runs a program."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.scan.user_git import git_program
from holdfast.workspace import Workspace
from holdfast.workspace.git_settings import is_safe_url, read_settings, split_settings, write_settings

ODD = """\
; a comment
[core]
\tbare = false
\tFileMode
[user]
\tname = "  A \\"quoted\\" name; # with \\\\ and\\ttab  "  # said
\temail = two \\
lines@x
[remote "a \\"b\\" \\\\ c"]
\turl = https://host/one
\turl = git@host:two/three.git
\tfetch = +refs/heads/*:refs/remotes/a/*
\tfetch = +refs/tags/*:refs/tags/*
[branch "Feature.One"]
\tremote = a \\"b\\" \\\\ c
\tmerge = refs/heads/Feature.One
[user]
\tname = another
[branch.old]
\trebase = true
[remote]
[submodule "lib/x"]
\tactive = true
\turl = ssh://git@host/x
"""

RUNS = {
    "core.fsmonitor": "{}", "core.sshCommand": "{}", "core.hooksPath": "{}", "core.editor": "{}", "core.pager": "{}",
    "core.gitProxy": "{}", "core.askPass": "{}", "core.alternateRefsCommand": "{}", "core.attributesFile": "{}",
    "core.worktree": "/", "core.sharedRepository": "all", "sequence.editor": "{}", "pager.log": "{}",
    "diff.external": "{}", "diff.x.command": "{}", "diff.x.textconv": "{}", "merge.x.driver": "{}",
    "mergetool.x.cmd": "{}", "difftool.x.cmd": "{}", "filter.x.clean": "{}", "filter.x.smudge": "{}",
    "filter.x.process": "{}", "credential.helper": "!{}", "credential.https://host.helper": "!{}", "alias.st": "!{}",
    "include.path": "{}", "includeIf.gitdir:/.path": "{}", "url.ext::sh -c x %.insteadOf": "https://host/",
    "remote.origin.uploadpack": "{}", "remote.origin.receivepack": "{}", "remote.origin.proxy": "{}",
    "remote.helper.vcs": "ext", "remote.helper.url": "https://host/", "remote.ext::sh -c x.fetch": "a:b",
    "remote.two.url": "ext::sh -c {}", "remote.two.fetch": "a:b", "branch.main.remote": "ext::sh -c {}",
    "branch.main.pushRemote": "{}", "submodule.x.update": "!{}", "submodule.x.url": "ext::sh -c {}",
    "submodule.../../x.url": "https://host/", "gpg.program": "{}", "gpg.ssh.defaultKeyCommand": "{}",
    "uploadpack.packObjectsHook": "{}", "trailer.x.command": "{}", "extensions.partialClone": "ext::sh -c {}",
    "extensions.refStorage": "reftable", "protocol.ext.allow": "always", "interactive.diffFilter": "{}",
    "gc.recentObjectsHook": "{}", "browser.x.cmd": "{}", "man.x.cmd": "{}", "web.browser": "x",
}  # fmt: skip


def _git(folder: Path, *words: str) -> str:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    names = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *names, *words], cwd=folder, env=environ, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    _git(place, "init", "-q")
    (place / "file.txt").write_text("one")
    _git(place, "add", ".")
    _git(place, "commit", "-q", "-m", "one")
    return place


@pytest.fixture
def workspace(folder: Path, tmp_path: Path) -> Workspace:
    return Workspace(folder, store=tmp_path / "store")


def _program() -> str:
    found = git_program(os.environ)
    assert found is not None
    return found


def test_git_reads_the_same_settings_again(folder: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text(ODD)
    settings = read_settings(_program(), folder / ".git", one)
    assert settings is not None
    kept, left = split_settings(settings, folder)
    assert not left and kept == settings
    other.write_bytes(write_settings(kept))
    command = ("config", "--null", "--list", "--file")
    assert _git(folder, *command, str(other)) == _git(folder, *command, str(one))


@pytest.mark.parametrize("key", RUNS)
def test_setting_that_may_run_a_program(key: str, folder: Path) -> None:
    file = folder / ".git" / "config"
    _git(folder, "remote", "add", "origin", "https://host/")
    before = read_settings(_program(), folder / ".git", file)
    _git(folder, "config", "--add", key, RUNS[key].format("/bin/program"))
    settings = read_settings(_program(), folder / ".git", file)
    assert settings is not None and before is not None and len(settings) == len(before) + 1
    kept, left = split_settings(settings, folder)
    if key != "remote.helper.url":
        assert len(left) == 1 and left[0].key.lower() == key.lower()
        assert kept == before


def test_remote_with_a_helper_is_left_out_whole(folder: Path) -> None:
    _git(folder, "remote", "add", "origin", "https://host/")
    _git(folder, "config", "remote.origin.vcs", "ext")
    _git(folder, "config", "branch.main.remote", "origin")
    settings = read_settings(_program(), folder / ".git", folder / ".git" / "config")
    assert settings is not None
    left = [each.key for each in split_settings(settings, folder)[1]]
    assert left == ["remote.origin.url", "remote.origin.fetch", "remote.origin.vcs", "branch.main.remote"]


@pytest.mark.parametrize(
    ("url", "is_safe"),
    [
        ("https://user@host/x.git", True),
        ("ssh://git@host:22/x", True),
        ("git://host/x", True),
        ("git@host:x/y.git", True),
        ("host:~user/x", True),
        ("/srv/git/x.git", True),
        ("file:///srv/git/x.git", True),
        ("ext::sh -c x", False),
        ("fd::3", False),
        ("https::https://host/", False),
        ("foo://host/x", False),
        ("--upload-pack=x", False),
        ("-oProxyCommand=x:y", False),
        ("ssh://-oProxyCommand=x/y", False),
        ("ssh://%2doProxyCommand=x/y", False),
        ("host:-x", False),
        ("../x.git", False),
        ("x.git", False),
        ("TOP/inner.git", False),
        ("file://TOP/inner.git", False),
        ("file:///%70roc/self/cwd/x", False),
        ("/proc/self/cwd/x.git", False),
        ("https://host/\nx", False),
        ("", False),
    ],
)
def test_urls(url: str, is_safe: bool, tmp_path: Path) -> None:
    assert is_safe_url(url.replace("TOP", str(tmp_path)), tmp_path) is is_safe


def test_planted_program_does_not_run_after_the_rescue(folder: Path, workspace: Workspace, tmp_path: Path) -> None:
    program, ran = tmp_path / "program", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    included = tmp_path / "included"
    included.write_text(f"[core]\n\tfsmonitor = {program}\n")
    _git(folder, "remote", "add", "origin", "https://host/x")
    _git(folder, "config", "user.name", "me")
    for key, value in (("core.fsmonitor", str(program)), ("include.path", str(included)), ("alias.x", f"!{program}")):
        _git(folder, "config", key, value)
    recorded = (folder / ".git" / "config").read_bytes()
    _git(folder, "status")
    assert ran.exists()  # what the store names would run
    workspace.save()
    ran.unlink()
    shutil.rmtree(folder / ".git")
    done = workspace.rescue_git()
    assert _git(folder, "status", "--porcelain") == "" and not ran.exists()
    assert done.settings_left == ("core.fsmonitor", "include.path", "alias.x")
    assert done.settings_file == str(folder / ".git" / "config.rescued")
    assert Path(done.settings_file).read_bytes() == recorded
    assert "3 settings that may run a program did not come back: core.fsmonitor," in done.notes[-1]
    assert _git(folder, "config", "--local", "user.name") == "me\n"
    assert _git(folder, "remote", "get-url", "origin") == "https://host/x\n"


def test_harmless_configuration_comes_back_as_it_was(folder: Path, workspace: Workspace) -> None:
    file = folder / ".git" / "config"
    file.write_bytes(b"# mine\n" + file.read_bytes() + ODD.encode())
    recorded = file.read_bytes()
    workspace.save()
    shutil.rmtree(folder / ".git")
    done = workspace.rescue_git()
    assert file.read_bytes() == recorded
    assert not done.settings_left and not done.settings_file and not (folder / ".git" / "config.rescued").exists()


def test_configuration_that_git_cannot_read(folder: Path, workspace: Workspace) -> None:
    workspace.save()
    (folder / ".git" / "config").write_text("[core\n")
    (folder / "file.txt").write_text("two")
    workspace.save()
    shutil.rmtree(folder / ".git")
    done = workspace.rescue_git()
    assert Path(done.settings_file).read_text() == "[core\n" and "cannot read" in done.notes[-1]
    assert _git(folder, "log", "--format=%s") == "one\n"
