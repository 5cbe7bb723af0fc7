"""Commands that the background helper runs: the same answers, never run twice, and alone wherever that is in doubt."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Workspace
from holdfast.adapters.agents import protocol
from holdfast.cli.through_helper import command_of
from waiting import wait_for

from .conftest import Program, Ran
from .test_terminal import Terminal

ALONE = 99
_ASK = (
    "import sys; from holdfast.cli.through_helper import ask; code = ask(sys.argv[1:], wait_s={}); "
    f"sys.exit({ALONE} if code is None else code)"
)
_HELPER = "from holdfast.cli.start import load_runner; from holdfast.adapters.agents.helper import stay; import os\n"
_HELPER += "os.chdir('/'); stay(dict(os.environ), load_runner)"


class Through(Program):
    """Runs a command in the helper only: its code is `ALONE` if that did not take it."""

    command = (sys.executable, "-c", _ASK.format(60))  # whatever else the machine does


@pytest.fixture(autouse=True)
def use_helper(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_HELPER")


@pytest.fixture
def through(project: Path, helper: int) -> Through:
    return Through(project)


@pytest.fixture
def helper(project: Path) -> Iterator[int]:
    """A helper of this home folder; its process."""
    environ = os.environ | {"HOLDFAST_HELPER_IDLE_S": "120"}
    process = subprocess.Popen([sys.executable, "-c", _HELPER], env=environ, stdin=subprocess.DEVNULL)
    wait_for(lambda: protocol.is_listening(os.environ) or process.poll() is not None)
    yield process.pid
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()


def _count(project: Path) -> int:
    with contextlib.closing(Workspace(project, create=False)) as workspace:
        return len(workspace.list(None))


def _plain(ran: Ran) -> tuple[int, str, str]:
    """What does not depend on when it ran."""
    texts = []
    for text in (ran.out, ran.err):
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)", "TIME", text)
        text = re.sub(r"\b[0-9a-f]{40}\b", "HASH", text)
        text = re.sub(r"\b(a\d+)-[0-9a-z]{8}\b", r"\1-ID", text)
        text = re.sub(r'("(free|store)_bytes": )\d+', r"\1N", text)
        text = re.sub(r"(disk used +)[\d.]+ \w+", r"\1N", text)  # a helper has written its scan cache
        texts.append(re.sub(r"\b\d+ s ago *", "AGO ", text))
    return ran.code, texts[0], texts[1]


LINES = [
    [],
    ["status"],
    ["status", "--json"],
    ["status", "--nonsense"],
    ["log"],
    ["log", "--json"],
    ["log", "-n", "1"],
    ["log", "--stat"],
    ["log", "nosuch"],
    ["--color", "always", "log"],
    ["-C", "src", "log"],
    ["-C", "nosuch", "status"],
    ["--store", "nosuch", "log"],
    ["diff"],
    ["diff", "--stat"],
    ["diff", "--json"],
    ["diff", "latest~1", "latest"],
    ["save"],
    ["save", "a message"],
    ["save", "one", "-m", "two"],
    ["save", "--json"],
    ["save", "--name", "x", "--pin"],
    ["save", "--type", "feature"],
    ["save", "--state", "x=state.json"],
    ["save", "--help"],
    ["save", "--exclude", "*.py", "--verbose"],
    ["restore"],
    ["restore", "latest~1"],
    ["restore", "latest~1", "--dry-run"],
    ["restore", "latest~1", "a.txt", "--json"],
    ["restore", "nosuch"],
    ["restore", "-p"],
    ["undo"],
    ["undo", "--dry-run"],
    ["undo", "--json"],
]


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_same_answer_with_and_without(words: list[str], holdfast: Program, through: Through, tmp_path: Path) -> None:
    holdfast.saved()
    (holdfast.project / "a.txt").write_text("two\n")
    (holdfast.project / "odd \x1b[31m\udcff.txt").write_text("odd\n")
    holdfast.saved("-m", "second")
    holdfast("restore", "latest~1")
    (holdfast.project / "src" / "b.py").write_text("print(2)\n")
    (holdfast.project / "state.json").write_text("{}")
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "home", kept / "home", symlinks=True)
    shutil.copytree(tmp_path / "state", kept / "state", symlinks=True, ignore=shutil.ignore_patterns("run"))
    alone = holdfast.spawn(*words, HOLDFAST_HELPER="0")
    after = _files(holdfast.project)
    for place in (holdfast.project, tmp_path / "state" / "holdfast" / "workspaces"):
        other = kept / place.relative_to(tmp_path)
        for entry in list(place.iterdir()):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.copytree(other, place, symlinks=True, dirs_exist_ok=True)
    served = through.spawn(*words)
    assert _plain(served) == _plain(alone)
    assert _files(holdfast.project) == after


def _files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_only_some_commands(through: Through) -> None:
    assert through.spawn("save").code == 0
    assert through.spawn("show").code == ALONE
    assert through.spawn("prune", "--dry-run").code == ALONE
    assert [command_of(words) for words in ([], ["-C", "save", "log"], ["--json", "diff"], ["--json"])] == [
        "status",
        "log",
        "diff",
        "",
    ]


def test_save_sees_what_changed(through: Through, project: Path) -> None:
    """The helper watches: every change is in the next checkpoint."""
    for number in range(5):
        (project / "a.txt").write_text(f"{number}\n")
        (project / f"new-{number}").mkdir()
        (project / f"new-{number}" / "x").write_text("x")
        assert f"{2 if number else 3} files" in through.spawn("save").out
    with contextlib.closing(Workspace(project, create=False)) as workspace:
        assert workspace.list(1)[0].files_changed == ["a.txt", "new-4/x"]


def test_folder_of_the_client_counts(through: Through, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    through.spawn("save")
    (project / "src" / "b.py").write_text("2\n")
    (project / "a.txt").write_text("2\n")
    monkeypatch.chdir(project / "src")
    assert "b.py" in through.spawn("restore", "latest", "b.py").err
    assert (project / "src" / "b.py").read_text() == "print(1)\n" and (project / "a.txt").read_text() == "2\n"


@pytest.mark.parametrize("name", ["PYTHON", "PYTHON_VERSION", "PYTHONPYCACHEPREFIX"])
def test_variable_that_changes_nothing(name: str, through: Through) -> None:
    """`make PYTHON=…` and containers set them for all that they run."""
    assert through.spawn("status", **{name: "x"}).code != ALONE


class TestAlone:
    """Where something is unusual, the command runs alone."""

    @pytest.mark.parametrize(
        "environ",
        [
            {"HOLDFAST_HELPER": "0"},
            {"PYTHONIOENCODING": "latin-1"},
            {"PYTHONWARNINGS": "error"},
            {"TZ": "Asia/Tokyo"},
            {"HOLDFAST_NATIVE": "0"},
            {"HOLDFAST_STORE_ROOT": "/nonexistent"},
            {"HOME": "relative"},
            {"TMPDIR": "/var/tmp"},
        ],
        ids=lambda environ: next(iter(environ)),
    )
    def test_other_environment(self, environ: dict[str, str], through: Through) -> None:
        assert through.spawn("status", **environ).code == ALONE

    def test_input_is_read(self, through: Through) -> None:
        assert through.spawn("save", "--state", "x=-", stdin=b"{}").code == ALONE

    @pytest.mark.parametrize("word", ["/dev/stdin", "x=/dev/fd/63", "/proc/self/cwd"])
    def test_open_file_of_the_client(self, word: str, through: Through) -> None:
        assert through.spawn("save", "--state", word).code == ALONE
        assert through.spawn("-C", word, "save").code == ALONE

    def test_limit_of_the_client(self, through: Through) -> None:
        command = ["/bin/sh", "-c", 'ulimit -f 1000; exec "$@"', "sh", *through.command, "save"]
        assert subprocess.run(command, check=False).returncode == ALONE

    def test_sandbox_of_the_client(self, through: Through) -> None:
        code = "import ctypes, os, sys; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
        command = [sys.executable, "-c", code, *through.command, "save"]  # PR_SET_NO_NEW_PRIVS
        assert subprocess.run(command, check=False).returncode == ALONE

    def test_closed_stream(self, through: Through) -> None:
        command = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *through.command, "save"]
        assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == ALONE

    def test_folder_that_others_can_enter(self, through: Through) -> None:
        os.chmod(protocol.socket_folder(os.environ), 0o755)
        assert through.spawn("status").code == ALONE

    def test_linked_folder(self, through: Through, tmp_path: Path) -> None:
        folder = Path(protocol.socket_folder(os.environ))
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
        assert through.spawn("status").code == ALONE

    def test_no_helper(self, project: Path) -> None:
        assert Through(project).spawn("save").code == ALONE

    def test_second_command_meanwhile(self, through: Through, project: Path) -> None:
        through.spawn("save")
        with _waiting(through, project, "save", "--allow-empty") as first:
            assert _is_running(first)
            assert through.spawn("log").code == ALONE
        assert first.returncode == 0


class TestStoppedHelper:
    def test_costs_little_and_does_nothing_later(self, holdfast: Program, through: Through, helper: int) -> None:
        through.spawn("save")
        os.kill(helper, signal.SIGSTOP)
        wait_for(lambda: ") T " in Path(f"/proc/{helper}/stat").read_text())
        hasty = [sys.executable, "-c", _ASK.format(0.05), "save", "--allow-empty"]
        assert subprocess.run(hasty, check=False).returncode == ALONE
        assert holdfast.spawn("save", "--allow-empty").code == 0
        os.kill(helper, signal.SIGCONT)
        assert "nothing changed" in through.spawn("save").out  # it has dealt with the others before
        assert _count(holdfast.project) == 2

    def test_unconfirmed_command_is_not_run(self, through: Through, project: Path) -> None:
        through.spawn("save")
        connection = _offer(["save", "--allow-empty"])
        assert connection.recv(1) == protocol.PROMISED
        connection.close()
        assert wait_for(lambda: "nothing changed" in through.spawn("save").out)
        assert _count(project) == 1


_LONG = """
import os, time
from holdfast.adapters.agents import protocol
from holdfast.adapters.agents.helper import Code, Helper
from holdfast.cli.start import load_runner

now, asked = 0.0, 0

def clock():
    global asked
    asked += 1
    return now

def load():
    run = load_runner()
    def work(command):
        global now
        now, since = now + 1e6, asked
        while asked < since + 3:  # it has looked several times whether it is over
            time.sleep(0.001)
        return run(command)
    return work

environ = dict(os.environ)
Helper(protocol.identity(environ), Code(), environ, clock).serve(load)
"""


def test_helper_does_not_end_while_a_command_runs(project: Path) -> None:
    environ = os.environ | {"HOLDFAST_HELPER_IDLE_S": "0.05"}
    process = subprocess.Popen([sys.executable, "-c", _LONG], env=environ, cwd="/", stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: protocol.is_listening(os.environ) or process.poll() is not None)
        assert Through(project).spawn("save").code == 0
        assert _count(project) == 1
    finally:
        process.kill()
        process.wait()


class TestEndsMidway:
    def test_new_code_ends_the_helper_after_the_command(self, project: Path, tmp_path: Path) -> None:
        package = Path(holdfast.__file__).parent
        shutil.copytree(package, tmp_path / "code" / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
        environ = os.environ | {"PYTHONPATH": str(tmp_path / "code"), "HOLDFAST_HELPER_IDLE_S": "120"}
        through = Through(project)
        with (
            pytest.MonkeyPatch.context() as patch,
            subprocess.Popen([sys.executable, "-c", _HELPER], env=environ, stdin=subprocess.DEVNULL) as process,
        ):
            patch.setenv("PYTHONPATH", environ["PYTHONPATH"])
            try:
                assert wait_for(lambda: through.spawn("save").code == 0)
                with _waiting(through, project, "save", "--allow-empty") as client:
                    assert _is_running(client)
                    os.utime(tmp_path / "code" / "holdfast" / "errors.py", (1, 1))
                    assert through.spawn("log").code == ALONE
                    assert client.poll() is None
                assert client.returncode == 0
                process.wait(30)
            finally:
                process.kill()
        assert _count(project) == 2

    def test_killed_helper_is_reported(self, through: Through, helper: int, project: Path) -> None:
        through.spawn("save")
        with _waiting(through, project, "save", "--allow-empty") as client:
            assert _is_running(client)
            os.kill(helper, signal.SIGKILL)
            _, said = client.communicate()
        assert client.returncode == 7
        assert b"the background helper ended while it ran this command" in said
        assert _count(project) == 1

    def test_ctrl_c_interrupts(self, through: Through, helper: int, project: Path) -> None:
        through.spawn("save")
        with _waiting(through, project, "save", "--allow-empty") as client:
            assert _is_running(client)
            client.send_signal(signal.SIGINT)
            _, said = client.communicate()
        assert client.returncode == 130 and b"interrupted" in said
        assert wait_for(lambda: not protocol.is_listening(os.environ))  # an interrupted helper ends
        assert _count(project) == 1

    def test_killed_client_interrupts(self, through: Through, project: Path) -> None:
        through.spawn("save")
        with _waiting(through, project, "save", "--allow-empty") as client:
            assert _is_running(client)
            client.kill()
            client.wait()
            assert wait_for(lambda: not protocol.is_listening(os.environ))
        assert _count(project) == 1


class TestTerminal:
    """Where somebody has to be asked, or the output needs a pager, the command runs alone."""

    def test_question_is_asked_once(self, holdfast: Program, helper: int, project: Path) -> None:
        holdfast.saved()
        (project / "a.txt").write_text("two\n")
        holdfast("restore", "latest")
        (project / "a.txt").write_text("three\n")
        holdfast.saved()
        terminal = Terminal([*Program.command, "undo"], {})
        terminal.expect("Undo it?")
        terminal.type(b"y\n")
        code, said = terminal.end()
        assert code == 0 and said.count("Undo it?") == said.count("The last restore") == 1 and "Undid" in said
        assert (project / "a.txt").read_text() == "two\n"

    def test_pager(self, holdfast: Program, helper: int, project: Path) -> None:
        for number in range(20):
            holdfast.saved("--allow-empty", "-m", f"number {number}")
        terminal = Terminal(
            [*Program.command, "log", "--flat"], {"HOLDFAST_PAGER": "sed s/number/paged/", "LINES": "10"}
        )
        code, said = terminal.end()
        assert code == 0 and "paged 19" in said and "number 19" not in said

    def test_short_output_is_coloured(self, holdfast: Program, through: Through) -> None:
        holdfast.saved("-m", "one")
        terminal = Terminal([*through.command, "log", "--flat"], {})
        code, said = terminal.end()
        assert code == 0 and "\x1b[" in said and "one" in said


def test_configuration_starts_a_helper(holdfast: Program, project: Path) -> None:
    (project / "holdfast.toml").write_text("helper = true\n")
    assert holdfast.spawn("save", HOLDFAST_HELPER_IDLE_S="20").code == 0
    assert wait_for(lambda: protocol.is_listening(os.environ))
    try:
        assert Through(project).spawn("save").code == 0
    finally:
        for lock in Path(protocol.socket_folder(os.environ)).glob("*.lock"):
            os.kill(int(lock.read_text()), signal.SIGKILL)


# tools of these tests


@contextlib.contextmanager
def _held(project: Path) -> Iterator[None]:
    """Hold the store's lock, so that a save waits."""
    with contextlib.closing(Workspace(project, create=False)) as workspace:
        path = workspace._repository.lock._path
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _started(program: Program, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([*program.command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        with process:
            pass


@contextlib.contextmanager
def _waiting(program: Program, project: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that waits for the store's lock, which is released before its end is awaited."""
    with contextlib.ExitStack() as lock:
        lock.enter_context(_held(project))  # before the command begins: it could end first
        with _started(program, *words) as process:
            try:
                yield process
            finally:
                lock.close()


def _is_running(client: subprocess.Popen[bytes]) -> bool:
    """Wait until a save that the helper runs for a client says that it waits for the lock."""
    assert client.stderr is not None
    return b"Waiting for" in client.stderr.readline()


def _offer(words: list[str]) -> socket.socket:
    """A client that has sent a command and has confirmed nothing."""
    identity = protocol.identity(os.environ)
    folder = protocol.open_socket_folder(os.environ)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(protocol.socket_path(folder, protocol.socket_name(identity)))
    os.close(folder)
    environ = b"\0".join(key + b"=" + value for key, value in os.environb.items())
    request = protocol.pack_request(
        [identity, protocol.COMMAND, environ, b"".join(word.encode() + b"\0" for word in words)]
    )
    connection.sendall(request)
    return connection
