"""`install`, `uninstall` and `doctor`, as people run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.agents.names import AGENT_NAMES

from .conftest import HOOK, ScriptedAgent, history


def run(*words: str, code: int = 0) -> str:
    ran = subprocess.run([sys.executable, "-m", "holdfast.cli", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran
    return ran.stdout


def doctor(name: str, code: int = 0) -> Any:
    (found,) = json.loads(run("doctor", name, "--json", code=code))["items"]
    return found


@pytest.mark.parametrize("name", AGENT_NAMES)
def test_install_then_doctor_then_uninstall(name: str, project: Path, home: Path) -> None:
    assert doctor(name)["installed"] == {}
    before = sorted(path for path in home.rglob("*") if ".local" not in path.parts)
    run("install", name)
    found = doctor(name, code=8 if name == "codex" else 0)
    (path,) = found["installed"].values()
    assert Path(path).is_relative_to(home) and found["not_covered"]
    assert "already" in run("install", name)
    run("uninstall", name)
    assert doctor(name)["installed"] == {}
    assert sorted(path for path in home.rglob("*") if ".local" not in path.parts) == before


def test_doctor_lists_the_commands(project: Path, home: Path) -> None:
    assert doctor("claude-code")["commands"] == {}
    run("install", "claude-code")
    files = doctor("claude-code")["commands"]
    assert {Path(path).stem for path in files} == {"undo", "timeline", "restore", "status"}
    assert set(files.values()) == {"as installed"} and "4 files in" in run("doctor", "claude-code")
    undo, status, old, *_ = map(Path, files)
    undo.write_text(undo.read_text() + "mine\n")
    status.unlink()
    _as_installed_by_an_older_version(old)
    assert list(doctor("claude-code")["commands"].values()) == ["edited", "missing", "old", "as installed"]
    assert "undo.md edited" in run("doctor", "claude-code")


def _as_installed_by_an_older_version(path: Path) -> None:
    """Change a file, and the receipt of its installation with it."""
    was = path.read_bytes()
    path.write_bytes(was + b"older\n")
    for receipt in Path(os.environ["HOME"]).rglob("receipt.json"):
        text = receipt.read_text()
        receipt.write_text(text.replace(sha256(was).hexdigest(), sha256(path.read_bytes()).hexdigest()))


class TestPlugin:
    def files(self, home: Path) -> dict[str, bytes]:
        found = (path for path in home.rglob("*") if ".local" not in path.parts)
        return {str(path.relative_to(home)): path.read_bytes() if path.is_file() else b"/" for path in found}

    def test_installed_and_removed_exactly(self, project: Path, home: Path) -> None:
        before = self.files(home)
        run("install", "claude-code", "--plugin")
        found = doctor("claude-code")
        folder = home / ".claude" / "skills" / "holdfast"
        assert found["installed"] == {"user": str(folder / "hooks" / "hooks.json")}
        assert {str(Path(path).relative_to(folder)) for path in found["commands"]} == {
            ".claude-plugin/plugin.json", ".mcp.json", "hooks/hooks.json",
            "commands/undo.md", "commands/timeline.md", "commands/restore.md", "commands/status.md",
        }  # fmt: skip
        assert not (home / ".claude" / "settings.json").exists()
        assert "already" in run("install", "claude-code", "--plugin")
        run("uninstall", "claude-code")
        assert self.files(home) == before

    def test_replaces_the_other_form_and_back(self, project: Path, home: Path) -> None:
        (home / ".claude").mkdir()
        (home / ".claude" / "settings.json").write_text('{"mine": 1}')
        before = self.files(home)
        run("install", "claude-code")
        plain = self.files(home)
        run("install", "claude-code", "--plugin")
        assert (home / ".claude" / "settings.json").read_text() == '{"mine": 1}'
        assert not (home / ".claude" / "commands").exists()
        run("install", "claude-code")
        assert self.files(home).keys() == plain.keys()
        run("uninstall", "claude-code")
        assert self.files(home) == before

    def test_edited_files_stay(self, project: Path, home: Path) -> None:
        run("install", "claude-code", "--plugin")
        mine = home / ".claude" / "skills" / "holdfast" / "commands" / "undo.md"
        mine.write_text("mine\n")
        assert "stays" in run("uninstall", "claude-code")
        assert mine.read_text() == "mine\n" and sum(path.is_file() for path in (home / ".claude").rglob("*")) == 1

    def test_another_agent_has_none(self, project: Path) -> None:
        run("install", "gemini", "--plugin", code=6)


def _pipe(place: Path) -> None:
    os.mkfifo(place)


def _device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def _huge(place: Path) -> None:
    with open(place, "wb") as file:
        file.truncate(1 << 40)


def _deep(place: Path) -> None:
    place.write_text('{"hooks": ' + "[" * 100_000)


@pytest.mark.parametrize("make", [_pipe, _device, _huge, _deep])
@pytest.mark.parametrize("name", AGENT_NAMES)
def test_settings_that_are_anything_hold_up_nobody(
    name: str, make: Callable[[Path], None], project: Path, home: Path
) -> None:
    run("install", name)
    (path,) = doctor(name, code=8 if name == "codex" else 0)["installed"].values()
    settings = Path(path)
    settings.unlink()
    make(settings)
    for words in (["install", name], ["uninstall", name], ["doctor", name]):
        ran = subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *words], capture_output=True, text=True, check=False, timeout=120
        )
        assert ran.returncode in (0, 6, 8), ran
        assert "Traceback" not in ran.stderr and "bug" not in ran.stderr and len(ran.stderr) < 2000
    assert os.path.lexists(settings), "what we did not make is left alone"
    event = {"hook_event_name": "BeforeTool" if name == "gemini" else "PreToolUse", "tool_name": "x", "session_id": "s"}
    ran = subprocess.run([*HOOK, name], input=json.dumps(event), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert name in ("opencode", "kilo") or history(project), "its plugin has events of other names"


def test_who_names_no_agent_is_told_which_there_are_in_a_line(project: Path) -> None:
    ran = subprocess.run([sys.executable, "-m", "holdfast.cli", "install"], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: missing argument 'AGENT...'. Choose from: claude-code, gemini, codex, ")


def test_entries_have_an_absolute_path_for_a_relative_home(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "../..")
    run("install", "cursor")
    (entry,) = json.loads((home / ".cursor" / "hooks.json").read_text())["hooks"]["stop"]
    assert entry["command"].startswith(f"{home}/.local/state/")


def test_a_dry_run_shows_the_change_and_makes_none(project: Path, home: Path) -> None:
    out = run("install", "cursor", "--project", "--dry-run")
    assert "+++ " in out and "hook cursor" in out and not (project / ".cursor").exists()


@pytest.mark.parametrize("name", AGENT_NAMES)
def test_shared_project_settings_get_a_warning(name: str, project: Path) -> None:
    ran = subprocess.run([*HOOK[:-1], "install", name, "--project"], capture_output=True, text=True, check=True)
    assert "do not commit them" in ran.stderr


def test_what_is_installed_can_be_run_as_it_stands(project: Path, home: Path) -> None:
    run("install", "claude-code", "gemini")
    said = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    handler = said["PreToolUse"][0]["hooks"][0]
    event = {"session_id": "s", "cwd": str(project), "hook_event_name": "PreToolUse", "tool_name": "Bash"}
    subprocess.run(
        [handler["command"], *handler["args"]], input=json.dumps(event).encode(), check=True, env=_bare(home)
    )
    said = json.loads((home / ".gemini" / "settings.json").read_text())["hooks"]
    event["hook_event_name"] = "BeforeTool"
    line = said["BeforeTool"][0]["hooks"][0]["command"]
    subprocess.run(["/bin/sh", "-c", line], input=json.dumps(event).encode(), check=True, env=_bare(home))
    assert doctor("claude-code")["fired"]["event"] == "PreToolUse"
    assert doctor("gemini")["fired"]["event"] == "BeforeTool"


def _bare(home: Path) -> dict[str, str]:
    """Without a PATH, as some desktop programs start their children."""
    return {"HOME": str(home), "HOLDFAST_HELPER": "0", "PYTHONPATH": os.environ["PYTHONPATH"]}


def test_doctor_tells_that_a_hook_fired_and_which_version(project: Path) -> None:
    event = {
        "conversation_id": "s",
        "workspace_roots": [str(project)],
        "hook_event_name": "stop",
        "cursor_version": "2.4.1",
    }
    subprocess.run([*HOOK, "cursor"], input=json.dumps(event).encode(), check=True)
    fired = doctor("cursor")["fired"]
    assert fired["event"] == "stop" and fired["version"] == "2.4.1" and fired["count"] == 1
    assert "never" in run("doctor", "gemini") and "version 2.4.1" in run("doctor", "cursor")


def test_doctor_tells_whether_codex_trusts_the_hooks(project: Path, home: Path) -> None:
    run("install", "codex")
    assert doctor("codex", code=8)["trusted"] is False
    hooks = home / ".codex" / "hooks.json"
    keys = []
    for event, groups in json.loads(hooks.read_text())["hooks"].items():
        snake = "".join("_" + each.lower() if each.isupper() else each for each in event).lstrip("_")
        for number, group in enumerate(groups):
            spelled = json.dumps(  # sorted, without a blank: what Codex hashes
                {"event_name": snake, "hooks": [{"async": False, **group["hooks"][0]}]},
                sort_keys=True,
                separators=(",", ":"),
            )
            digest = sha256(spelled.encode()).hexdigest()
            keys.append(f'[hooks.state."{hooks}:{snake}:{number}:0"]\ntrusted_hash = "sha256:{digest}"\n')
    (home / ".codex" / "config.toml").write_text("\n".join(keys[1:]))
    assert doctor("codex", code=8)["trusted"] is False
    (home / ".codex" / "config.toml").write_text("\n".join(keys))
    assert doctor("codex")["trusted"] is True
    (home / ".codex" / "config.toml").write_text("\n".join(keys) + "enabled = false\n")
    assert "disabled" in doctor("codex", code=8)["problems"][0]
    other = keys[0].replace("sha256:", "sha256:0")  # of an entry as it was once
    (home / ".codex" / "config.toml").write_text("\n".join([other, *keys[1:]]))
    assert "not trusted in their current form" in doctor("codex", code=8)["problems"][0]
    (home / ".codex" / "config.toml").write_text("[features]\nhooks = false\n\n" + "\n".join(keys))
    assert "disabled" in doctor("codex", code=8)["problems"][0]
    (home / ".codex" / "config.toml").write_text("[")
    assert "cannot be read" in doctor("codex", code=8)["problems"][0]


def test_doctor_tells_whether_gemini_runs_the_hooks(project: Path, home: Path) -> None:
    run("install", "gemini", "--project")
    untrusted = doctor("gemini", code=8)
    assert untrusted["trusted"] is False and "not trusted yet" in untrusted["problems"][0]
    settings = project / ".gemini" / "settings.json"
    said = json.loads(settings.read_text())
    command = said["hooks"]["BeforeTool"][0]["hooks"][0]["command"]
    (home / ".gemini").mkdir()
    (home / ".gemini" / "trusted_hooks.json").write_text(json.dumps({str(project): [f"holdfast:{command}"]}))
    assert doctor("gemini")["trusted"] is True
    settings.write_text(json.dumps({**said, "hooksConfig": {"enabled": False, "disabled": ["holdfast"]}}))
    assert len(doctor("gemini", code=8)["problems"]) == 2


def test_doctor_finds_the_trust_file_of_gemini(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_CLI_HOME", str(home / "elsewhere"))
    run("install", "gemini", "--project")
    said = json.loads((project / ".gemini" / "settings.json").read_text())
    command = said["hooks"]["BeforeTool"][0]["hooks"][0]["command"]
    kept = home / "elsewhere" / ".gemini" / "trusted_hooks.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({str(project): [f"holdfast:{command}"]}))
    assert doctor("gemini")["trusted"] is True


@pytest.mark.parametrize("name", AGENT_NAMES)
def test_doctor_in_the_home_folder_says_that_nothing_is_saved(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    run("install", name)
    assert any("nothing is saved here" in line for line in doctor(name, code=8)["problems"])
    text = run("doctor", name, code=8)
    assert "is your home folder. Start the agent in a project folder" in text and "not covered" not in text


def test_doctor_says_what_is_not_covered_only_where_hooks_work(project: Path) -> None:
    assert "Nothing is saved; install with: holdfast install codex" in run("doctor", "codex")
    for name in ("codex", "claude-code"):
        run("install", name)
    assert "not covered" not in run("doctor", "codex", code=8)  # not trusted yet
    assert "not covered: Files outside the project folder are not saved." in run("doctor", "claude-code")


ODD: list[Any] = [5, None, "x", [], {}, [5, "x", None], {"hooks": 5}, [{"hooks": None}, {"hooks": ["x"]}]]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_doctor_tolerates_other_entries_beside_ours(odd: Any, project: Path, home: Path) -> None:
    run("install", "codex")
    run("install", "gemini", "--project")
    codex, gemini = home / ".codex" / "hooks.json", project / ".gemini" / "settings.json"
    for path in (codex, gemini):
        said = json.loads(path.read_text())
        said["hooks"] = {"Odd": odd, **said["hooks"]}
        next(iter(list(said["hooks"].values())[1]))["hooks"].append(odd)
        path.write_text(json.dumps({**said, "hooksConfig": odd if path == codex else {"disabled": odd}}))
    (home / ".codex" / "config.toml").write_text("[hooks]\nstate = 5\n")
    (home / ".gemini").mkdir()
    (home / ".gemini" / "trusted_hooks.json").write_text(json.dumps({str(project): odd}))
    assert doctor("codex", code=8)["trusted"] is False
    assert doctor("gemini", code=8)["trusted"] is False


def test_doctor_reports_foreign_entries_and_unreadable_settings(project: Path, home: Path) -> None:
    run("install", "claude-code")
    settings = home / ".claude" / "settings.json"
    settings.write_text(settings.read_text().replace('"timeout": 60', '"timeout": 1', 1))
    assert "holdfast install claude-code --user" in doctor("claude-code", code=8)["problems"][0]
    for data in (b"{", b"\xff\xfe{\x00}\x00"):
        settings.write_bytes(data)
        assert "cannot be read" in doctor("claude-code", code=8)["problems"][0]
    settings.unlink()
    os.mkfifo(settings)
    assert "is not a file" in doctor("claude-code", code=8)["problems"][0]
    settings.unlink()
    settings.mkdir()
    assert "is a folder" in doctor("claude-code", code=8)["problems"][0]


UNREADABLE = {"latin": b"\xff", "deep": b"x = " + b"[" * 100_000, "cut": b"{", "pipe": None}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_doctor_tolerates_other_files_of_codex_and_gemini(kind: str, project: Path, home: Path) -> None:
    run("install", "codex")
    run("install", "gemini", "--project")
    (home / ".gemini").mkdir()
    data = UNREADABLE[kind]
    for path in (home / ".codex" / "config.toml", home / ".gemini" / "trusted_hooks.json"):
        if data is None:
            os.mkfifo(path)
        else:
            path.write_bytes(data.removeprefix(b"x = ") if path.suffix == ".json" else data)
    assert "cannot be read" in doctor("codex", code=8)["problems"][0]
    assert doctor("gemini", code=8)["trusted"] is False


def test_doctor_reports_claude_code_settings_that_disable_hooks(project: Path, home: Path) -> None:
    run("install", "claude-code")
    own, shared = home / ".claude" / "settings.json", project / ".claude" / "settings.json"
    private = shared.with_name("settings.local.json")
    shared.parent.mkdir()
    text = own.read_text()
    own.write_text(text.replace('"hooks": {', '"disableAllHooks": true, "hooks": {', 1))
    assert f"disabled (disableAllHooks in {own})" in doctor("claude-code", code=8)["problems"][0]
    shared.write_text('{"disableAllHooks": false} // the nearest decides')
    assert not doctor("claude-code")["problems"]
    own.write_text(text)
    shared.write_text('{"disableAllHooks": true}')
    assert f"disabled (disableAllHooks in {shared})" in doctor("claude-code", code=8)["problems"][0]
    private.write_text('{"disableAllHooks": false}')
    assert not doctor("claude-code")["problems"]
    private.write_text('{"disableAllHooks": "no"}')
    assert str(shared) in doctor("claude-code", code=8)["problems"][0]


def test_doctor_reports_copilot_settings_that_disable_hooks(project: Path, home: Path) -> None:
    run("install", "copilot")
    hooks, own = home / ".copilot" / "hooks" / "holdfast.json", home / ".copilot" / "settings.json"
    shared = project / ".github" / "copilot" / "settings.json"
    shared.parent.mkdir(parents=True)
    assert not doctor("copilot")["problems"]
    for path in (own, shared, shared.with_name("settings.local.json")):
        path.write_text('{"disableAllHooks": true} // for today')
        assert doctor("copilot", code=8)["problems"] == [f"hooks are disabled (disableAllHooks in {path})"]
    path.write_text('{"disableAllHooks": false} // the nearest decides')
    assert not doctor("copilot")["problems"]
    hooks.write_text(hooks.read_text().replace('"version": 1', '"version": 1, "disableAllHooks": true'))
    assert doctor("copilot", code=8)["problems"] == [f"hooks are disabled (disableAllHooks in {hooks})"]


@pytest.mark.parametrize("name", ["hook_event_name", "hookEventName"])
def test_reader_of_claude_settings_without_args_is_not_blocked(name: str, project: Path, home: Path) -> None:
    """An old version of it; and VS Code, which says when an event was, and tells its own session."""
    run("install", "claude-code")
    said = json.loads((home / ".claude" / "settings.json").read_text())["hooks"]
    event = {name: "PreToolUse", "cwd": str(project), "tool_name": "Bash", "tool_use_id": "t"}
    if name == "hookEventName":
        event |= {"sessionId": "s", "timestamp": "2026-11-16T12:20:34.246Z"}
    ran = subprocess.run(
        ["/bin/sh", "-c", said["PreToolUse"][0]["hooks"][0]["command"]], input=json.dumps(event).encode(),
        capture_output=True, check=False, env=_bare(home),
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    assert doctor("claude-code" if name == "hook_event_name" else "copilot")["fired"]


def test_copilot_works_without_the_program(project: Path, home: Path) -> None:
    """It denies a tool whose hook fails."""
    run("install", "copilot")
    said = json.loads((home / ".copilot" / "hooks" / "holdfast.json").read_text())["hooks"]
    line = said["preToolUse"][0]["bash"]
    (home / ".local" / "state" / "holdfast" / "agents" / "bin" / "holdfast").unlink()
    ran = subprocess.run(["/bin/sh", "-c", line], input=b"{}", capture_output=True, check=False, env=_bare(home))
    assert (ran.returncode, ran.stdout) == (0, b"")
    run("uninstall", "copilot")
    assert not (home / ".copilot").exists()


def test_command_follows_to_another_interpreter(project: Path, home: Path) -> None:
    run("install", "codex")
    entries = (home / ".codex" / "hooks.json").read_bytes()
    shim = home / ".local" / "state" / "holdfast" / "agents" / "bin" / "holdfast"
    text = shim.read_text()
    shim.write_text(text.replace(sys.executable, "/elsewhere/python"))
    assert "another Holdfast" in doctor("codex", code=8)["problems"][0]
    run("install", "codex")
    assert shim.read_text() == text and (home / ".codex" / "hooks.json").read_bytes() == entries


def test_hooks_succeed_without_holdfast(project: Path, home: Path) -> None:
    run("install", "gemini")
    shim = home / ".local" / "state" / "holdfast" / "agents" / "bin" / "holdfast"
    text = shim.read_text()
    bare = {"HOME": str(home), "PYTHONHOME": "", "HOLDFAST_HELPER": "0"}
    broken = text.replace("code = main()", "code = 1 / 0")
    gone_from = ((sys.executable, "/no/python"), ("holdfast.cli.start", "holdfast_is_gone"))
    for gone in (*(text.replace(*names) for names in gone_from), broken):
        shim.write_text(gone)
        ran = subprocess.run([shim, "hook", "gemini"], input=b"{}", capture_output=True, check=False, env=bare)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_nothing_of_the_project_is_imported_by_its_hook(project: Path, home: Path) -> None:
    """A folder that an agent works in may hold anything, also files named as modules are."""
    run("install", "claude-code")
    for name in ("_socket.py", "holdfast.py", "re.py", "json.py", "time.py"):
        (project / name).write_text(f"open({str(home / 'imported')!r}, 'a').write({name!r})\n")
    shim = home / ".local" / "state" / "holdfast" / "agents" / "bin" / "holdfast"
    event = {"session_id": "s", "cwd": str(project), "hook_event_name": "PreToolUse", "tool_name": "Bash"}
    subprocess.run([shim, "hook", "claude-code"], input=json.dumps(event).encode(), check=True, cwd=project)
    assert not (home / "imported").exists() and len(history(project)) == 1


@pytest.mark.parametrize(("variable", "value"), [("PYTHONPATH", "{}/src"), ("PYTHONHOME", "/nowhere")])
def test_python_variables_of_the_agent_have_no_effect(project: Path, home: Path, variable: str, value: str) -> None:
    run("install", "claude-code")
    for name in ("_socket.py", "holdfast.py", "json.py"):
        (project / "src" / name).write_text("raise SystemError('this is for the project alone')\n")
    shim = home / ".local" / "state" / "holdfast" / "agents" / "bin" / "holdfast"
    event = {"session_id": "s", "cwd": str(project), "hook_event_name": "PreToolUse", "tool_name": "Bash"}
    environ = {key: text for key, text in os.environ.items() if not key.startswith("PYTHON")}
    environ[variable] = value.format(project)
    told = json.dumps(event).encode()
    ran = subprocess.run([shim, "hook", "claude-code"], input=told, capture_output=True, check=False, env=environ)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    assert len(history(project)) == 1


def test_save_by_a_tool_is_the_agents_and_by_the_user_is_not(project: Path, start: Callable[[], ScriptedAgent]) -> None:
    agent = start()
    event = {"session_id": "s", "cwd": str(project), "prompt_id": "p", "tool_name": "Bash", "tool_use_id": "t"}
    agent.hook("claude-code", {**event, "hook_event_name": "PreToolUse"})
    agent.change({"made.txt": "agent\n"}, [])
    assert agent.run(sys.executable, "-m", "holdfast.cli", "save", "on the way")["code"] == 0
    (project / "mine.txt").write_text("user\n")
    run("save", "mine")
    agent.change({"later.txt": "agent\n"}, [])
    agent.hook("claude-code", {**event, "hook_event_name": "PostToolUse"})
    assert [(each.actor, each.files_changed) for each in history(project)[1:]] == [
        ("claude-code", ["made.txt"]),
        (None, ["mine.txt"]),
        ("claude-code", ["later.txt"]),
    ]
    run("undo", "--agent", "--yes")
    assert sorted(each.name for each in project.glob("*.txt")) == ["a.txt", "mine.txt", "old.txt"]


def test_save_by_a_tool_beside_another_agent_may_be_of_both(project: Path, start: Callable[[], ScriptedAgent]) -> None:
    agent, other = start(), start()
    event = {"session_id": "s", "cwd": str(project), "tool_use_id": "t"}
    other.hook("gemini", {**event, "hook_event_name": "BeforeTool", "tool_name": "run_shell_command"})
    agent.hook("claude-code", {**event, "hook_event_name": "PreToolUse", "tool_name": "Bash"})
    agent.change({"made.txt": "by one of them\n"}, [])
    agent.run(sys.executable, "-m", "holdfast.cli", "save")
    assert (history(project)[-1].actor, history(project)[-1].metadata["perhaps"]) == ("claude-code", ["gemini"])
