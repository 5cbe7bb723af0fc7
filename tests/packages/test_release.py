"""`make release`: version, changelog, commit and tag by one command."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 12, 1)


def tool() -> Any:
    spec = spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "dev")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "dev@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for name in ("src/holdfast/__init__.py", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def test_version_date_commit_and_tag(project: Path) -> None:
    assert tool().release(project, "0.2.0", TODAY) == "v0.2.0"
    assert '__version__ = "0.2.0"\n' in (project / "src/holdfast/__init__.py").read_text()
    assert "## 0.2.0 (2026-12-01)\n" in (project / "CHANGELOG.md").read_text()
    assert git(project, "log", "-1", "--format=%s") == "release 0.2.0"
    assert git(project, "rev-parse", "v0.2.0^{commit}") == git(project, "rev-parse", "HEAD")
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("version", "word"),
    [("2", "is no version"), ("0.0.9", "is older"), ("0.1.0rc1", "is older"), ("", "is no version")],
)
def test_a_wrong_version_changes_nothing(project: Path, version: str, word: str) -> None:
    before = git(project, "rev-parse", "HEAD")
    with pytest.raises(SystemExit, match=word):
        tool().release(project, version, TODAY)
    assert git(project, "rev-parse", "HEAD") == before
    assert git(project, "status", "--porcelain") == git(project, "tag") == ""


def test_uncommitted_work_and_a_second_release_are_refused(project: Path) -> None:
    (project / "new.txt").write_text("1")
    with pytest.raises(SystemExit, match="not committed"):
        tool().release(project, "0.2.0", TODAY)
    (project / "new.txt").unlink()
    tool().release(project, "0.2.0", TODAY)
    with pytest.raises(SystemExit, match="nothing to release"):
        tool().release(project, "0.3.0", TODAY)


def test_without_a_version_it_says_how_it_is_called() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/release.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "make release VERSION=" in done.stderr
