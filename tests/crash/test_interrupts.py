"""Ctrl-C at any moment: a real SIGINT for a real program, from its first instant to its last.

It ends with 130 (or has ended already), shows no traceback, loses nothing, and the next command works.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast import NotFound, Workspace
from holdfast.cli import main as program
from holdfast.durable import use_disk
from holdfast.retention import Policy
from holdfast.testing.faulty_disks import CountingDisk, DiskCall, every_point

FILES = 100
MOMENTS = 4
ENDED = {0, 130, -signal.SIGINT}  # a shell tells the last two as 130
STARTING_S = 0.06
OUR_MAIN = re.compile(rb'/holdfast/cli/\w+\.py", line \d+, in main\n')  # Python's own start has one, too


@dataclass
class Interruption(CountingDisk):
    """Ctrl-C arrives just after the n-th changing call, before its caller can note that it was made."""

    at: int

    def __post_init__(self) -> None:
        super().__init__()

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        done = act()
        if call.number == self.at:
            raise KeyboardInterrupt
        return done


COMMANDS = {
    "save": ["save", "again"],
    "restore": ["restore", "latest~1", "--yes"],
    "prune": ["prune", "--keep-last", "1", "--yes"],
    "compact": ["compact"],
    "purge": ["purge", "d3", "--yes"],
    "export": ["export", "latest", "../out"],
    "bisect": ["bisect", "a1", "latest", "--", "sh", "-c", "test ! -e late"],
    "guard": ["guard", "--", "sh", "-c", "rm -r d1; sleep 0.1; exit 3"],
    "verify": ["verify"],
    "log": ["log"],
}


class Scene:
    """A folder with three checkpoints and a change, made anew for each moment."""

    def __init__(self, area: Path) -> None:
        self.area = area
        self.root = area / "home" / "project"
        self.root.mkdir(parents=True, exist_ok=True)
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "XDG_"))}
        path = os.pathsep.join(entry for entry in sys.path if entry)
        own = {"HOME": str(area / "home"), "XDG_STATE_HOME": str(area / "state"), "PYTHONPATH": path}
        self.environment = inherited | own

    def fill(self, seed: int) -> None:
        chance = random.Random(seed)
        for number in range(FILES):
            file = self.root / f"d{number % 10}" / f"f{number}"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(chance.randbytes(2000))

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", *args],
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, *args: str) -> tuple[int, bytes, bytes]:
        process = self.start(*args)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def ids(self) -> list[str]:
        code, out, err = self.run("log", "--all", "-n", "0", "--json")
        assert code == 0, err
        return [each["id"] for each in json.loads(out)["items"]]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scene = Scene(tmp_path_factory.mktemp("prepared"))
    for seed in range(3):
        scene.fill(seed)
        if seed == 2:
            (scene.root / "late").write_text("made since")
        assert scene.run("save", f"version {seed}")[0] == 0
    scene.fill(3)
    return scene.area


@pytest.fixture(autouse=True)
def interruptible() -> None:
    """In the background of a script Ctrl-C is ignored, and every child inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def scene_of(prepared: Path) -> Scene:
    """The prepared scene, as it was, in the same place: a store knows its folder by its path."""
    kept = prepared.with_name(f"{prepared.name}-kept")
    if not kept.exists():
        shutil.copytree(prepared, kept)
    shutil.rmtree(prepared)
    shutil.copytree(kept, prepared)
    return Scene(prepared)


def came_too_early(err: bytes) -> bool:
    """Whether Python itself was still being started, which answers as it likes."""
    words = (b"Traceback", b"Fatal Python error", b"Could not import runpy")  # struck twice, it has no traceback
    return any(word in err for word in words) and not OUR_MAIN.search(err)


@pytest.mark.crash
@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupted_command_stops_cleanly_and_loses_nothing(prepared: Path, name: str) -> None:
    scene = scene_of(prepared)
    began = time.monotonic()
    scene.run(*COMMANDS[name])
    takes = time.monotonic() - began
    after = scene.files()
    for moment in range(MOMENTS):
        scene = scene_of(prepared)
        before, known = scene.files(), scene.ids()
        process = scene.start(*COMMANDS[name])
        time.sleep(STARTING_S + takes * moment / MOMENTS)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=300)
        code = process.returncode
        if came_too_early(err):
            continue
        assert code in ENDED | ({3} if name == "guard" else set()), (moment, code, err)
        assert b"Traceback" not in err and b"Exception ignored" not in err, err
        left = scene.ids()  # the next command works
        if name == "purge":  # the next writer goes on with one that was begun
            assert scene.run("pin", "a1")[0] == 0
        found = scene.run("verify")
        assert found[0] == 0, (moment, found)
        now = scene.files()
        if name == "prune":
            assert known[0] in left
        else:
            assert set(known) <= set(left)
        if name == "restore":
            assert now in (before, after)
        elif name != "guard":
            assert now == before
        elif now != before:  # what the command did stays where its restore was interrupted; that can be had again
            assert scene.run("restore", left[0], "--yes")[0] == 0
        assert not [each for each in (*scene.root.iterdir(), *scene.root.parent.iterdir()) if ".holdfast" in each.name]


@pytest.mark.crash
def test_restore_interrupted_after_any_step_is_old_or_new(tmp_path: Path) -> None:
    root = tmp_path / "project"

    def scene() -> Workspace:
        for place in (root, tmp_path / "store"):
            shutil.rmtree(place, ignore_errors=True)
        (root / "kept").mkdir(parents=True)
        for name in ("edited", "gone", "kept/other"):
            (root / name).write_text("saved")
        ws = Workspace(root, store=tmp_path / "store", home=tmp_path, environ={})
        ws.save("saved")
        (root / "edited").write_text("never saved")
        (root / "gone").unlink()
        (root / "made" / "since").mkdir(parents=True)
        (root / "made" / "since" / "file").write_text("never saved either")
        return ws

    def files() -> dict[str, str]:
        return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}

    ws = scene()
    before = files()
    points = every_point(lambda: ws.restore("latest"))
    after = files()
    assert len(points) > 20 and before != after
    for point in points:
        ws = scene()
        with use_disk(Interruption(point.number)), contextlib.suppress(KeyboardInterrupt):
            ws.restore("latest")
        found = files()
        assert found in (before, after), point
        ws = Workspace(root, store=tmp_path / "store", home=tmp_path, environ={})
        assert files() == found, point
        if found == after:
            ws.undo()
            assert files() == before, point
        else:
            with pytest.raises(NotFound):  # nothing was restored
                ws.undo()
        assert ws.verify().ok


ACTS: dict[str, Callable[[Workspace], object]] = {
    "save": lambda ws: ws.save("new"),
    "prune": lambda ws: ws.prune(Policy(keep_last=1), dry_run=False),
    "purge": lambda ws: ws.purge("b1"),
    "pin": lambda ws: ws.pin("a1"),
    "delete": lambda ws: ws.delete("a1"),
    "export": lambda ws: ws.export("latest", ws.path.parent / "out"),
}


@pytest.mark.crash
@pytest.mark.parametrize("name", ACTS)
def test_verb_interrupted_after_any_step_leaves_a_sound_store(tmp_path: Path, name: str) -> None:
    root, store = tmp_path / "project", tmp_path / "store"

    def scene() -> Workspace:
        for place in (root, store, tmp_path / "out"):
            shutil.rmtree(place, ignore_errors=True)
        root.mkdir()
        ws = Workspace(root, store=store, home=tmp_path, environ={})
        for number in range(3):
            (root / f"b{number}").write_text(f"content {number}")
            ws.save(str(number))
        (root / "b0").write_text("never saved")
        return ws

    first = scene()
    for point in every_point(lambda: ACTS[name](first)):
        ws = scene()
        known = {each.id for each in ws.list()}
        with use_disk(Interruption(point.number)), contextlib.suppress(KeyboardInterrupt):
            ACTS[name](ws)
        assert (root / "b0").read_text() == "never saved"
        ws = Workspace(root, store=store, home=tmp_path, environ={})
        assert name in ("prune", "delete") or known <= {each.id for each in ws.list()}, point
        assert ws.save("after").message in ("after", "new") and ws.verify().ok, point
        assert not [each for each in os.listdir(tmp_path) if each.startswith(".holdfast")], point


@pytest.mark.crash
def test_a_second_ctrl_c_is_no_traceback_either(prepared: Path) -> None:
    scene = scene_of(prepared)
    for pause in (0.0, 0.001, 0.01):
        process = scene.start("verify")
        time.sleep(0.3)
        for _ in range(5):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(pause)
        _, err = process.communicate(timeout=300)
        if not came_too_early(err):
            assert process.returncode in ENDED and b"Traceback" not in err, (process.returncode, err)


def test_ctrl_c_during_start_up_is_silent(prepared: Path, tmp_path: Path) -> None:
    scene = scene_of(prepared)
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.abc, os, signal, sys\n"
        "class Trap(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == os.environ['TRAP']:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Trap())\n"
    )
    path = f"{tmp_path}{os.pathsep}{scene.environment['PYTHONPATH']}"
    for module in ("holdfast.cli.main", "holdfast.cli.streams", "click", "holdfast.workspace.workspace"):
        scene.environment = scene.environment | {"TRAP": module, "PYTHONPATH": path}
        code, out, err = scene.run("log", *(["-n5"] if module == "click" else []))  # as `-n 5`, it needs no click
        assert (code in (130, -signal.SIGINT), out, b"Traceback" in err) == (True, b"", False), (module, err)


STRUCK = """
import sys, types
import _signal as real

def signal(number, handler):
    if struck and handler == getattr(real, struck[0]):
        struck.clear()
        raise KeyboardInterrupt  # as the real one does if a signal came just before
    return real.signal(number, handler)

struck = [sys.argv.pop(1)]
sys.modules["_signal"] = types.SimpleNamespace(**vars(real) | {"signal": signal})
from holdfast.cli.start import main
code = main()
sys.exit(code if not struck else "it was not asked for")
"""


@pytest.mark.parametrize(("before", "code"), [("SIG_DFL", 130), ("default_int_handler", 130), ("SIG_IGN", 0)])
def test_ctrl_c_before_the_handler_is_set_is_no_traceback(prepared: Path, before: str, code: int) -> None:
    scene = scene_of(prepared)
    ran = subprocess.run(
        [sys.executable, "-c", STRUCK, before, "log"], cwd=scene.root, env=scene.environment, capture_output=True,
        check=False, timeout=600,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr, bool(ran.stdout)) == (code, b"", code == 0)


FREEING = """
import os, signal, sys, time
from holdfast.cli import main as program
from holdfast.cli.start import main

class Freed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

def load(args):
    Freed()
    time.sleep(600)
    return 0

program._run = load
sys.exit(main())
"""


def test_ctrl_c_while_an_object_is_freed_comes_a_moment_later() -> None:
    """Python can raise nothing there, and would go on; it frees one at the end of every import."""
    ran = subprocess.run([sys.executable, "-c", FREEING, "log"], capture_output=True, check=False, timeout=500)
    assert (ran.returncode, ran.stderr) == (130, b"error: interrupted\n")


def test_ctrl_c_while_a_class_is_made_is_no_bug_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def load(_: object) -> int:
        type("Checkpoint", (), {"metadata": Field()})  # Python 3.11 makes a RuntimeError of it
        return 0

    monkeypatch.setattr(program, "_run", load)
    assert (program.main(["log"]), capsys.readouterr().err) == (130, "error: interrupted\n")
