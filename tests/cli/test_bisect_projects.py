"""`bisect` on ordinary projects: dependencies, editable installs, workspaces of npm, builds."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str, str], Path]


def states(holdfast, write: Write, name: str, text: str, *, bad_from: int, count: int = 4) -> None:
    """Save checkpoints of a file; `{}` in its text is 1 while it is good, and 0 from one of them on."""
    for number in range(1, count + 1):
        write(name, text.format(int(number < bad_from)) + f"# {number}\n")
        holdfast.saved()


def captured(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, data)
    return found


@pytest.fixture
def package(holdfast, project: Path, write: Write) -> Path:
    """A Python project with a virtual environment, into which it is installed in editable mode."""
    site = project / ".venv" / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    site.mkdir(parents=True)
    (project / ".venv" / "bin").mkdir()
    (project / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (project / ".venv" / "pyvenv.cfg").write_text(f"home = {os.path.dirname(sys.executable)}\n")
    (site / "installed.py").write_text("")
    return project


CHECK = "import installed, shop; assert shop.good"


class TestEditableInstalls:
    def site(self, package: Path) -> Path:
        return next(package.glob(".venv/lib/python*/site-packages"))

    def check(self, holdfast, write: Write, *, needs_warning: bool = True) -> None:
        states(holdfast, write, "src/shop/__init__.py", "good = {}\n", bad_from=3)
        ran = holdfast.spawn("bisect", "a1", "--", ".venv/bin/python", "-c", CHECK, PYTHONPATH="")
        assert ran.code == 0, ran
        assert "a3 is the first bad checkpoint" in ran.out
        assert ("editable" in ran.err) is needs_warning

    def test_by_a_path_file(self, holdfast, write: Write, package: Path):
        (self.site(package) / "__editable__.shop.pth").write_text(f"{package}/src\n")
        self.check(holdfast, write)

    def test_by_a_finder(self, holdfast, write: Write, package: Path):
        (self.site(package) / "__editable___shop_finder.py").write_text(
            f"""
import sys
from importlib.machinery import PathFinder
MAPPING = {{'shop': '{package}/src/shop'}}
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return PathFinder.find_spec(name, ['{package}/src']) if name == 'shop' else None
sys.meta_path.append(Finder)
"""
        )
        (self.site(package) / "__editable__.shop.pth").write_text("import __editable___shop_finder\n")
        self.check(holdfast, write)

    def test_by_an_environment_elsewhere(self, holdfast, write: Write, package: Path, monkeypatch):
        (self.site(package) / "shop.pth").write_text(f"{package}/src\n")
        elsewhere = package.parent / "environment"
        (package / ".venv").rename(elsewhere)
        monkeypatch.setenv("VIRTUAL_ENV", str(elsewhere))
        states(holdfast, write, "src/shop/__init__.py", "good = {}\n", bad_from=2)
        ran = holdfast.spawn("bisect", "a1", "--", f"{elsewhere}/bin/python", "-c", CHECK, PYTHONPATH="")
        assert ran.code == 0 and "a2 is the first bad checkpoint" in ran.out, ran

    def test_a_path_of_the_environment_is_led_to_the_scratch_folder(self, holdfast, write: Write, package: Path):
        states(holdfast, write, "src/shop/__init__.py", "good = {}\n", bad_from=2)
        words = ("bisect", "a1", "--", ".venv/bin/python", "-c", CHECK)
        ran = holdfast.spawn(*words, PYTHONPATH=os.pathsep.join([f"{package}/src", *sys.path]))
        assert ran.code == 0 and "a2 is the first bad checkpoint" in ran.out, ran


def test_dependencies_are_linked(holdfast, write: Write, project: Path):
    write("node_modules/left-pad/index.js", "module.exports = 1\n")
    write("packages/a/node_modules/b/index.js", "1\n")
    write("packages/a/main.js", "1\n")
    write("build/stale.o", "1\n")
    write(".gitignore", "build\n")
    subprocess.run(["git", "init", "-q", project], check=True)
    script = "test -f node_modules/left-pad/index.js && test -f packages/a/node_modules/b/index.js && grep -q 1 good"
    states(holdfast, write, "good", "{}\n", bad_from=3)
    before = captured(project)
    ran = holdfast.spawn("bisect", "a1", "--json", "--", "sh", "-c", f"test ! -e build && {script}")
    assert ran.code == 0, ran
    assert ran.json["first_bad"]["short_id"] == "a3"
    assert ran.json["linked"] == ["node_modules", "packages/a/node_modules"] and ran.json["changed"] == []
    assert captured(project) == before


def test_packages_of_a_monorepo_are_those_of_the_checkpoint(holdfast, write: Write, project: Path):
    for scope in ("", "@shop/"):
        at = project / "node_modules" / scope / "a"
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(os.path.relpath(project / "packages" / "a", at.parent))
    write("node_modules/other/index.js", "1\n")
    states(holdfast, write, "packages/a/index.js", "{}\n", bad_from=2)
    grep = 'for f in node_modules/a node_modules/@shop/a; do read x < $f/index.js; test "$x" = 1 || exit 1; done'
    ran = holdfast.spawn("bisect", "a1", "--", "sh", "-c", f"test -f node_modules/other/index.js && {grep}")
    assert ran.code == 0 and "a2 is the first bad checkpoint" in ran.out, ran


def test_a_command_that_removes_or_fills_dependencies_is_reported(holdfast, write: Write, project: Path):
    kept = write("node_modules/x/index.js", "1\n")
    states(holdfast, write, "good", "{}\n", bad_from=2)
    test = "read x < good; test $x = 1"
    ran = holdfast.spawn("bisect", "a1", "--", "sh", "-c", f"rm -rf node_modules; {test}")
    assert ran.code == 0 and kept.exists() and "The command changed" not in ran.err
    ran = holdfast.spawn("bisect", "a1", "--", "sh", "-c", f"touch node_modules/new; {test}")
    assert ran.code == 0 and "The command changed these" in ran.err and "node_modules" in ran.err


class TestTheSameResultEverywhere:
    def test_it_fails_without_what_checkpoints_lack(self, holdfast, write: Write):
        write(".holdfastignore", "data\n")
        write("data/set.csv", "1\n")
        states(holdfast, write, "good", "{}\n", bad_from=2)
        ran = holdfast.spawn("bisect", "a1", "--", "sh", "-c", "test -f data/set.csv && read x < good && test $x = 1")
        assert ran.code == 6 and "the test fails at a1, which should be good, and fails at a" in ran.err
        assert "lacks, such as data" in ran.err and "--in-place" in ran.err

    def test_it_succeeds_where_it_looks_at_the_workspace(self, holdfast, write: Write, project: Path):
        states(holdfast, write, "good", "{}\n", bad_from=2)
        write("good", "1\n")
        ran = holdfast.spawn("bisect", "a1", "--", "grep", "-q", "^1", str(project / "good"))
        assert ran.code == 6 and "which should be bad, and at a1 too" in ran.err and "--in-place" in ran.err
        assert "The command names the workspace itself" in ran.err


class TestInPlace:
    script = 'test "$PWD" = "$HERE" && test -f data/set.csv && touch made-by-test && read x < good && test $x = 1'

    @pytest.fixture
    def unsaved(self, holdfast, write: Write, project: Path, monkeypatch):
        """Four checkpoints, a folder that none of them has, and work that is not saved."""
        monkeypatch.setenv("HERE", str(project))
        write(".holdfastignore", "data\n")
        write("data/set.csv", "1\n")
        states(holdfast, write, "good", "{}\n", bad_from=3)
        write("good", "unsaved\n")
        write("new", "unsaved\n")
        os.utime(project / "new", ns=(1, 1_600_000_000_123_456_789))
        return captured(project)

    def test_it_finds_the_first_bad_one_and_brings_everything_back(self, holdfast, project, unsaved):
        ran = holdfast.spawn("bisect", "a1", "a4", "--in-place", "--", "sh", "-c", self.script)
        assert ran.code == 0 and "a3 is the first bad checkpoint" in ran.out, ran
        assert captured(project) == unsaved
        assert holdfast("undo").code == 3  # no restore is left to undo

    @pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])  # Ctrl-C; a time limit; the terminal is closed
    def test_interrupted_it_brings_everything_back(self, holdfast, project, unsaved, name):
        script = f"read x < good; test $x = 0 && kill -{name} $PPID && sleep 1; true"
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
        try:
            ran = holdfast.spawn("bisect", "a1", "a4", "--in-place", "--", "sh", "-c", script)
        finally:
            signal.signal(signal.SIGHUP, before)
        assert ran.code == 130, ran
        assert captured(project) == unsaved

    def test_a_second_interrupt_does_not_keep_it_from_bringing_everything_back(self, holdfast, project, unsaved):
        again = "(for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.02; kill -INT $0; done) >&- 2>&- &"
        script = f"read x < good; test $x = 0 && kill -INT $PPID && sh -c '{again}' $PPID; true"
        ran = holdfast.spawn("bisect", "a1", "a4", "--in-place", "--", "sh", "-c", script)
        assert ran.code == 130, ran
        assert captured(project) == unsaved

    def test_killed_it_says_how_to_bring_everything_back(self, holdfast, project, unsaved):
        script = "read x < good; test $x = 0 && kill -9 $PPID; true"
        ran = holdfast.spawn("bisect", "a1", "a4", "--in-place", "--", "sh", "-c", script)
        assert ran.code == -9 and "If this is killed: holdfast restore a5" in ran.err
        assert captured(project) != unsaved
        for command in ("log", "status", "diff"):
            assert "bring the folder back with: holdfast restore a5" in holdfast(command).err, command
        assert "interrupted-bisect" in [each["code"] for each in holdfast("status", "--json").json["attention"]]
        assert holdfast("restore", "a5").code == 0
        assert captured(project) == unsaved
        assert "was killed" not in holdfast("status").err + holdfast("status").out

    def test_a_save_after_the_kill_ends_the_warning(self, holdfast, project, write, unsaved):
        script = "read x < good; test $x = 0 && kill -9 $PPID; true"
        holdfast.spawn("bisect", "a1", "a4", "--in-place", "--", "sh", "-c", script)
        write("good", "on purpose\n")
        holdfast.saved()
        assert "bisect" not in holdfast("log").err

    def test_while_it_runs_nothing_is_said(self, holdfast, project, unsaved):
        script = f"{shlex.join(holdfast.command)} log; read x < good; test $x = 1"
        ran = holdfast.spawn("bisect", "a1", "a4", "--in-place", "--", "sh", "-c", script)
        assert ran.code == 0 and "was killed" not in ran.err, ran
        assert not list(project.parents[2].glob("state/holdfast/workspaces/*/holdfast/bisect"))

    def test_build_tools_build_again(self, holdfast, write: Write, project: Path):
        subprocess.run(["git", "init", "-q", project], check=True)
        write(".gitignore", "build\n")
        write("Makefile", "build/out: good\n\tmkdir -p build && cp good build/out\n")
        states(holdfast, write, "good", "{}\n", bad_from=3)
        script = "make -s build/out && read x < build/out && test $x = 1"
        ran = holdfast.spawn("bisect", "a1", "a4", "--in-place", "--", "sh", "-c", script)
        assert ran.code == 0 and "a3 is the first bad checkpoint" in ran.out, ran
        assert "perhaps built from others: build again:\n    build" in ran.err
