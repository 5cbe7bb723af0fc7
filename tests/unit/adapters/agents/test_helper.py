"""The helper: starts by itself, serves only its user and its own code, may be killed at any moment, is never needed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from holdfast import Workspace, durable
from holdfast.adapters.agents import client, protocol
from holdfast.adapters.agents.helper import Code, Helper
from holdfast.workspace.store_paths import store_folder
from holdfast.workspace.upkeep.growth import Notice

from .conftest import HOOK, helpers, history, log_text, wait_for

EVENT = {"session_id": "s", "tool_name": "Bash"}


def hook(project: Path, name: str, tool_use: str, **environment: str) -> bytes:
    data = json.dumps({**EVENT, "hook_event_name": name, "tool_use_id": tool_use, "cwd": str(project)}).encode()
    ran = subprocess.run(
        [*HOOK, "claude-code"], input=data, capture_output=True, check=False, env={**os.environ, **environment}
    )
    assert ran.returncode == 0 and ran.stderr == b""
    return ran.stdout


def tool(project: Path, number: int) -> None:
    """A tool that writes a file of its own."""
    hook(project, "PreToolUse", f"t{number}")
    (project / f"made-{number}.txt").write_text(f"{number}\n")
    hook(project, "PostToolUse", f"t{number}")


@contextlib.contextmanager
def _holding(lock: Path) -> Iterator[None]:
    """Another process has the lock meanwhile."""
    code = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, 2); print(flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    yield
    process.communicate(b"\n")


def _connected(run: Path) -> socket.socket:
    """A connection to the helper, which has a name before it listens."""
    (name,) = wait_for(lambda: [path.name for path in run.iterdir() if path.suffix != ".lock"])
    folder, connection = os.open(run, os.O_RDONLY), socket.socket(socket.AF_UNIX)
    wait_for(lambda: connection.connect_ex(f"/proc/self/fd/{folder}/{name}") == 0)
    os.close(folder)
    return connection


def test_the_first_hook_leaves_a_helper_and_the_others_use_it(project: Path, with_helper: Path) -> None:
    tool(project, 1)
    (pid,) = wait_for(lambda: helpers(with_helper))
    tool(project, 2)
    assert helpers(with_helper) == [pid]
    assert [each.files_changed for each in history(project)][1:] == [["made-1.txt"], ["made-2.txt"]]
    assert with_helper.stat().st_mode & 0o777 == 0o700


def _is_dead(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # nobody has to wait for it
        return True


def test_killed_helper_is_replaced(project: Path, with_helper: Path) -> None:
    for number in range(3):
        tool(project, number)
        (pid,) = wait_for(lambda: helpers(with_helper))
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda pid=pid: _is_dead(pid))
    assert [each.actor for each in history(project)] == [None, *["claude-code"] * 3]


def test_hook_does_the_work_of_a_killed_helper(project: Path, with_helper: Path) -> None:
    tool(project, 1)
    (pid,) = wait_for(lambda: helpers(with_helper))
    _connected(with_helper).close()  # it says that it is there before it listens
    os.kill(pid, signal.SIGSTOP)
    (project / "mine.txt").write_text("user\n")
    data = json.dumps({**EVENT, "hook_event_name": "PreToolUse", "tool_use_id": "t2", "cwd": str(project)}).encode()
    process = subprocess.Popen([*HOOK, "claude-code"], stdin=subprocess.PIPE)
    process.stdin.write(data)
    process.stdin.close()
    time.sleep(0.3)
    assert process.poll() is None  # it waits for an answer
    os.kill(pid, signal.SIGKILL)
    assert process.wait(timeout=300) == 0
    assert history(project)[-1].files_changed == ["mine.txt"]


def test_when_the_answer_comes_the_checkpoint_is_there(project: Path, with_helper: Path) -> None:
    for number in range(5):
        (project / "mine.txt").write_text(f"{number}\n")
        hook(project, "PreToolUse", f"t{number}")
        for pid in helpers(with_helper):
            os.kill(pid, signal.SIGSTOP)  # whatever it would still do does not count
        assert len(history(project)) == number + 1
        for pid in helpers(with_helper):
            os.kill(pid, signal.SIGCONT)


def test_a_helper_of_other_code_does_not_answer(project: Path, with_helper: Path, tmp_path: Path) -> None:
    """The same path, another content: as after an upgrade, or in the middle of one."""
    import holdfast

    code = tmp_path / "code"
    shutil.copytree(Path(holdfast.__file__).parent, code / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {"PYTHONPATH": os.pathsep.join([str(code), os.environ["PYTHONPATH"]])}
    hook(project, "PreToolUse", "t1", **environment)
    (pid,) = wait_for(lambda: helpers(with_helper))
    with open(code / "holdfast" / "adapters" / "agents" / "hook.py", "a") as file:
        file.write("# changed\n")
    (project / "mine.txt").write_text("user\n")
    hook(project, "PreToolUse", "t2", **environment)
    assert len(history(project)) == 2
    wait_for(lambda: helpers(with_helper) not in ([], [pid]))


def test_a_folder_of_sockets_that_others_can_enter_is_not_used(project: Path, with_helper: Path) -> None:
    with_helper.mkdir(parents=True)
    with_helper.chmod(0o755)
    tool(project, 1)
    assert len(history(project)) == 2 and list(with_helper.iterdir()) == []


def test_something_else_at_the_socket_is_not_believed(project: Path, with_helper: Path) -> None:
    with_helper.mkdir(parents=True, mode=0o700)
    environ = {key: value for key, value in os.environ.items() if key.startswith(client._FORWARDED_VARIABLES)}
    name = protocol.socket_name(protocol.identity(environ))
    listener = socket.socket(socket.AF_UNIX)
    folder = os.open(with_helper, os.O_RDONLY)
    listener.bind(f"/proc/self/fd/{folder}/{name}")
    listener.listen()
    process = subprocess.Popen([*HOOK, "claude-code"], stdin=subprocess.PIPE)
    process.stdin.write(json.dumps({**EVENT, "hook_event_name": "PreToolUse", "cwd": str(project)}).encode())
    process.stdin.close()
    connection, _ = listener.accept()
    connection.sendall(b"whatever")
    connection.close()
    assert process.wait(timeout=300) == 0
    assert len(history(project)) == 1
    listener.close()
    os.close(folder)


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"x\n", b"1 2 3\n", b"9 9 9 9 9 9 9 999999999999\n", b"0 0 0 0 0 0 0 0\n"]
)
def test_nonsense_at_the_socket_is_answered_with_no(data: bytes, project: Path, with_helper: Path) -> None:
    hook(project, "PreToolUse", "t1")
    (pid,) = wait_for(lambda: helpers(with_helper))
    with _connected(with_helper) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) in (b"no\n", b"")
    (project / "mine.txt").write_text("user\n")
    hook(project, "PreToolUse", "t2")
    assert helpers(with_helper) == [pid] and len(history(project)) == 2


def test_request_for_another_helper_is_rejected(project: Path, with_helper: Path) -> None:
    hook(project, "PreToolUse", "t1")
    wait_for(lambda: helpers(with_helper))
    (project / "mine.txt").write_text("user\n")
    event = json.dumps({**EVENT, "hook_event_name": "PreToolUse", "tool_use_id": "t2", "cwd": str(project)}).encode()
    environ = b"\0".join(os.fsencode(f"{key}={os.environ[key]}") for key in ("HOME", "PYTHONPATH"))
    with _connected(with_helper) as connection:
        about = [
            b"of another version",
            b"claude-code",
            b"",
            os.fsencode(project),
            b"1",
            b"9999999999.0",
            environ,
            event,
        ]
        connection.sendall(protocol.pack_request(about))
        assert connection.recv(100) == b"no\n"
    assert len(history(project)) == 1


def test_an_idle_helper_ends_and_leaves_no_socket(
    project: Path, with_helper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HELPER_IDLE_S", "0.5")
    hook(project, "PreToolUse", "t1")
    wait_for(lambda: any(lock.read_text() for lock in with_helper.glob("*.lock")) and not helpers(with_helper))
    assert [path.suffix for path in with_helper.iterdir()] == [".lock"]


class TestSocketIsGone:
    """A helper that nobody can reach ends at its next wake-up, and not before what it is at has ended."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        """Not `with_helper`, which kills whoever its lock names: here that is this process."""
        return Path(protocol.socket_folder({"XDG_STATE_HOME": str(tmp_path / "state")}))

    def start(self, run: Path, tmp_path: Path) -> tuple[threading.Thread, list[float]]:
        """A helper that is never idle; the list grows each time that it looks."""
        looks: list[float] = []
        environ = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOLDFAST_HELPER_IDLE_S": "0.05"}
        helper = Helper(protocol.identity(environ), Code(), environ, clock=lambda: looks.append(0.0) or 0.0)
        thread = threading.Thread(target=helper.serve, daemon=True)
        thread.start()
        wait_for(lambda: run.exists() and [path for path in run.iterdir() if path.suffix != ".lock"])
        return thread, looks

    def looked(self, looks: list[float]) -> bool:
        before = len(looks)
        return bool(wait_for(lambda: len(looks) > before + 3))

    def test_folder_removed(self, run: Path, tmp_path: Path) -> None:
        thread, looks = self.start(run, tmp_path)
        assert self.looked(looks) and thread.is_alive()
        shutil.rmtree(run)
        thread.join(60)
        assert not thread.is_alive()

    def test_request_under_way(self, run: Path, tmp_path: Path) -> None:
        thread, looks = self.start(run, tmp_path)
        connection = _connected(run)
        before = len(looks)
        wait_for(lambda: len(looks) > before)
        shutil.rmtree(run)
        assert self.looked(looks) and thread.is_alive()
        connection.close()
        thread.join(60)
        assert not thread.is_alive()

    def test_socket_of_another_helper_stays(self, run: Path, tmp_path: Path) -> None:
        thread, _ = self.start(run, tmp_path)
        (path,) = [path for path in run.iterdir() if path.suffix != ".lock"]
        path.unlink()
        path.write_text("of another helper")
        thread.join(60)
        assert not thread.is_alive() and path.exists()


def test_many_hooks_at_once_leave_one_helper(project: Path, with_helper: Path) -> None:
    data = json.dumps({**EVENT, "hook_event_name": "PreToolUse", "cwd": str(project)}).encode()
    running = [subprocess.Popen([*HOOK, "claude-code"], stdin=subprocess.PIPE) for _ in range(6)]
    for process in running:
        process.stdin.write(data)
        process.stdin.close()
    assert [process.wait() for process in running] == [0] * 6
    wait_for(lambda: helpers(with_helper))
    assert len(helpers(with_helper)) == 1 and len(history(project)) == 1


def test_changed_configuration_and_removed_store_are_noticed(project: Path, with_helper: Path) -> None:
    tool(project, 1)
    wait_for(lambda: helpers(with_helper))
    (project / "holdfast.toml").write_text('exclude_patterns = ["*.secret"]\n')
    (project / "a.secret").write_text("hidden\n")
    hook(project, "PreToolUse", "t2")
    assert "a.secret" not in history(project)[-1].files_changed
    import shutil

    shutil.rmtree(store_folder(project, store=None, environ=os.environ))
    hook(project, "PreToolUse", "t3")
    assert len(history(project)) == 1


def test_a_workspace_that_cannot_be_opened_holds_up_no_other(project: Path, home: Path) -> None:
    stuck = home / "code" / "stuck"
    stuck.mkdir()
    lock = store_folder(stuck, store=None, environ=os.environ) / "holdfast" / "lock"
    durable.make_folder(lock.parent)
    helper = Helper(b"", Code(), dict(os.environ))
    with _holding(lock):  # so that its store cannot be made
        waiting = threading.Thread(target=helper.opened, args=(stuck, os.environ), daemon=True)
        waiting.start()
        wait_for(lambda: helper._openings[stuck].locked() if stuck in helper._openings else False)
        other = threading.Thread(target=helper.opened, args=(project, os.environ), daemon=True)
        other.start()
        other.join(120)
        assert not other.is_alive() and waiting.is_alive()
    waiting.join(120)
    assert not waiting.is_alive()
    helper._close()


@pytest.mark.parametrize("name", ["holdfast.toml", "pyproject.toml"])
def test_a_configuration_that_is_a_pipe_holds_up_no_hook(name: str, project: Path, with_helper: Path) -> None:
    os.mkfifo(project / name)
    tool(project, 1)
    tool(project, 2)
    assert [each.actor for each in history(project)] == [None, "claude-code", "claude-code"]


def test_save_longer_than_the_timeout_continues_and_is_marked(project: Path, with_helper: Path) -> None:
    Workspace(project)  # makes the store
    with _holding(store_folder(project, store=None, environ=os.environ) / "holdfast" / "lock"):
        said = json.loads(hook(project, "PreToolUse", "t1", HOLDFAST_HOOK_WAIT_S="0.5"))
        assert "incomplete" in said["systemMessage"]
    (saved,) = wait_for(lambda: history(project))
    assert "incomplete" in saved.metadata and saved.metadata["perhaps"] == ["claude-code"]


def test_hook_that_times_out_while_asking_gets_its_checkpoint(project: Path, home: Path, with_helper: Path) -> None:
    """An agent may be slow to say what its event is."""
    tool(project, 1)
    wait_for(lambda: helpers(with_helper))
    (project / "mine.txt").write_text("user\n")
    hook(project, "PreToolUse", "t2", HOLDFAST_HOOK_WAIT_S="0")
    wait_for(lambda: history(project)[-1].files_changed == ["mine.txt"])
    assert log_text(home) == ""


def test_the_client_loads_next_to_nothing() -> None:
    """The time of a hook is the time of its imports."""
    module = "holdfast.adapters.agents.client"
    code = f"import sys; before = set(sys.modules); import {module}; print(*set(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others = {name for name in ran.stdout.split() if not name.startswith("holdfast")}
    assert others <= {"_socket", "__future__"}
    assert len(ran.stdout.split()) - len(others) == 5


@pytest.mark.slow
def test_a_hook_that_is_killed_at_any_moment_loses_nothing(project: Path, home: Path) -> None:
    """Both the hook and its child, as when a machine runs out of memory; then everything goes on."""
    random = Random(7)
    for number in range(12):
        (project / f"made-{number}.txt").write_text(f"{number}\n")
        data = json.dumps({**EVENT, "hook_event_name": "PreToolUse", "tool_use_id": f"k{number}", "cwd": str(project)})
        process = subprocess.Popen([*HOOK, "claude-code"], stdin=subprocess.PIPE)
        process.stdin.write(data.encode())
        process.stdin.close()
        time.sleep(random.uniform(0.02, 0.5))
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            with contextlib.suppress(ProcessLookupError):  # it was done just then
                os.kill(int(child), signal.SIGKILL)
        process.kill()
        process.wait()
    hook(project, "PreToolUse", "last")
    (project / "agent.txt").write_text("agent\n")
    hook(project, "PostToolUse", "last")
    found = history(project)
    assert found[-1].files_changed == ["agent.txt"] and found[-1].actor == "claude-code"
    held = {path for each in found for path in each.files_changed}
    assert held >= {f"made-{number}.txt" for number in range(12)}
    assert Workspace(project).verify().ok


def test_an_agent_that_ends_all_it_started_leaves_the_helper(project: Path, with_helper: Path) -> None:
    data = json.dumps({**EVENT, "hook_event_name": "PreToolUse", "cwd": str(project)}).encode()
    words = ["sh", "-c", '"$@"; kill -9 -$$', "sh", *HOOK, "claude-code"]
    subprocess.run(words, input=data, start_new_session=True, capture_output=True, check=False)
    wait_for(lambda: helpers(with_helper))


def test_a_child_that_is_ended_before_it_saved_is_told_of(project: Path, home: Path) -> None:
    Workspace(project)
    with _holding(store_folder(project, store=None, environ=os.environ) / "holdfast" / "lock"):
        process = subprocess.Popen([*HOOK, "claude-code"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.stdin.write(json.dumps({**EVENT, "hook_event_name": "PreToolUse", "cwd": str(project)}).encode())
        process.stdin.close()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        (child,) = wait_for(lambda: children.read_text().split())
        os.kill(int(child), signal.SIGKILL)
        said = json.loads(process.stdout.read())
        assert process.wait() == 0
        process.stdout.close()
    assert "could not save" in said["systemMessage"] and "no checkpoint was saved" in log_text(home)


class TestAfterTheAnswer:
    """What follows a save is not in the path of a hook."""

    @staticmethod
    def answer(project: Path, order: list[str], **options: str) -> bytes:
        """Have an event handled, and note in which order the answer and what follows it come."""
        from holdfast.adapters.agents import helper
        from holdfast.adapters.agents.hook import HookCall, open_workspace

        class Watched(Workspace):
            def after_save(self) -> list[Notice]:
                order.append("after")
                return [Notice("something to tell")]

        def opened(folder: Path, environ: Mapping[str, str]) -> Workspace:
            workspace = open_workspace(folder, environ)
            workspace.__class__ = Watched
            return workspace

        data = json.dumps({**EVENT, "hook_event_name": "PostToolUse", "cwd": str(project)}).encode()
        call = HookCall("claude-code", "", data, str(project), os.getpid(), time.time() + 60, dict(os.environ))
        here, there = socket.socketpair()
        with here, there:
            here.settimeout(60)
            send = there.sendall

            class Connection:
                def sendall(self, data: bytes) -> None:
                    order.append("answer")
                    send(data)

                def close(self) -> None:
                    there.close()

            helper._answer(Connection(), call, opened)  # type: ignore[arg-type]
            return protocol.receive_reply(here) or b""

    def test_answer_comes_first(self, project: Path) -> None:
        order: list[str] = []
        (project / "new.txt").write_text("new\n")
        assert self.answer(project, order) == b""
        assert order == ["answer", "after"]

    def test_next_hook_tells_it_once(self, project: Path) -> None:
        for number, told in enumerate([False, True, True]):
            (project / "new.txt").write_text(f"{number}\n")
            assert (b"something to tell" in self.answer(project, [])) is told

    def test_hook_itself_does_not_load_thinning(self, project: Path) -> None:
        code = (
            "import sys; from holdfast.adapters.agents import helper, hook;"
            "print([each for each in sys.modules if each.endswith(('.thinning', '.prune', '.pack_merge'))])"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == "[]"
