"""The agents themselves, where they are at hand: they read what we write, and what they call works.

A stand-in on this machine answers for the model. Variables name the programs; without one, its test is skipped.
`.ci/run` installs Gemini CLI, Codex and Qwen Code where npm can. Claude Code comes with what the tests need: its
absence is a failure. Opencode asks the network for packages when it starts, and Copilot is large.

    HOLDFAST_TEST_CLAUDE   the program `claude`; else that which comes with the Claude Agent SDK
    HOLDFAST_TEST_GEMINI   `gemini.js`, which node runs
    HOLDFAST_TEST_CODEX    the program `codex`
    HOLDFAST_TEST_COPILOT  the program `copilot`
    HOLDFAST_TEST_OPENCODE the program `opencode`
    HOLDFAST_TEST_KILO     the program `kilo`
    HOLDFAST_TEST_QWEN     `cli.js` of Qwen Code, which node runs
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import history
from .models import ForClaude, ForCodex, ForGemini, ForOpencode, ForQwen, served

pytestmark = pytest.mark.agents

TIME_LIMIT_S = 300  # many times what it takes; only so that a program that hangs is not waited for
PROGRAMS = ("CLAUDE", "GEMINI", "CODEX", "COPILOT", "OPENCODE", "KILO", "QWEN")
NAMED = {name: os.environ.get(f"HOLDFAST_TEST_{name}", "") for name in PROGRAMS}


def program(name: str) -> str:
    """Where a program is. Where it is not, the test is skipped; under CI that of Claude Code fails."""
    found = NAMED[name] or (_of_the_sdk() if name == "CLAUDE" else "")
    if not found and name == "CLAUDE" and os.environ.get("CI"):
        pytest.fail("the Claude Agent SDK, which brings the program, is not installed")
    if not found:
        pytest.skip(f"HOLDFAST_TEST_{name} does not name the program")
    return found


def _of_the_sdk() -> str:
    sdk = importlib.util.find_spec("claude_agent_sdk")
    path = Path(sdk.origin).parent / "_bundled" / "claude" if sdk and sdk.origin else None
    return str(path) if path and path.exists() else ""


def holdfast(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *words], check=True, capture_output=True, text=True
    ).stdout


def run(words: list[str], **environment: str) -> str:
    ran = subprocess.run(
        words, capture_output=True, text=True, timeout=TIME_LIMIT_S, stdin=subprocess.DEVNULL, check=False,
        env={**os.environ, "PWD": os.getcwd(), **environment},
    )  # fmt: skip
    assert ran.returncode == 0, ran
    return ran.stdout


HOSTILE = "a1 $(touch pwned) !{touch pwned} !`touch pwned` `touch pwned` '; touch pwned; '"


def shown() -> str:
    """The last output of a command of Holdfast that an agent passed to its model."""
    return next(text for text in reversed(ForClaude.asked) if "This is a command of Holdfast" in text)


def claude(address: str, *words: str, prompt: str = "make a file") -> str:
    return run(
        [program("CLAUDE"), "-p", prompt, "--allowedTools", "Bash", *words],
        ANTHROPIC_API_KEY="none",
        ANTHROPIC_BASE_URL=address,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )


def test_claude_code_is_protected_and_resumes_a_conversation(project: Path) -> None:
    holdfast("install", "claude-code")
    with served(ForClaude) as address:
        assert "Done." in claude(address)
        first, second = history(project)
        assert (first.actor, second.actor) == (None, "claude-code")
        assert second.files_changed == ["made.txt"] and second.metadata["tool"] == "Bash"
        assert second.metadata["agent_version"][0].isdigit()
        assert second.state["conversation"]["text"]
        claude(address, "--continue")
        said = json.loads(holdfast("restore", second.id, "--with-conversation", "--yes", "--json"))["conversation"]
        assert said["is_new"] and said["resume"] == f"claude --resume {said['session']}"
        assert "Done." in claude(address, "--resume", said["session"])


def test_plugin_of_claude_code_is_valid_and_works(project: Path, home: Path) -> None:
    holdfast("install", "claude-code", "--plugin")
    folder = home / ".claude" / "skills" / "holdfast"
    assert "Validation passed" in run([program("CLAUDE"), "plugin", "validate", str(folder)])
    with served(ForClaude) as address:
        claude(address)
        first, second = history(project)
        assert (first.actor, second.actor, second.files_changed) == (None, "claude-code", ["made.txt"])
        assert any("checkpoint_preview" in text for text in ForClaude.asked)  # a tool of the MCP server
        claude(address, prompt="/holdfast:undo")
        assert "D made.txt" in shown() and not (project / "made.txt").exists()


def test_commands_of_claude_code_run_and_nothing_else_does(project: Path) -> None:
    holdfast("install", "claude-code")
    with served(ForClaude) as address:
        claude(address)
        claude(address, prompt="/holdfast:restore nope")
        assert "'nope' is neither a checkpoint nor a path" in shown()
        claude(address, prompt=f"/holdfast:restore {HOSTILE}")
        claude(address, prompt="/holdfast:undo")
        assert "D made.txt" in shown() and not (project / "made.txt").exists()
    assert not (project / "pwned").exists()


def gemini(address: str, prompt: str) -> None:
    run(
        ["node", program("GEMINI"), "-p", prompt, "--yolo", "--skip-trust", "-m", "gemini-2.5-flash"],
        GEMINI_API_KEY="none",
        GOOGLE_GEMINI_BASE_URL=address,
    )


def qwen(address: str, prompt: str, *words: str) -> str:
    return run(
        ["node", program("QWEN"), "-p", prompt, "--yolo", "--auth-type", "openai", "-m", "m", *words],
        OPENAI_API_KEY="none",
        OPENAI_BASE_URL=f"{address}/v1",
    )


def test_qwen_is_protected_and_resumes_a_conversation(project: Path) -> None:
    holdfast("install", "qwen")
    with served(ForQwen) as address:
        assert "Done." in qwen(address, "make a file")
        first, second = history(project)
        assert (first.actor, second.actor) == (None, "qwen")
        assert second.files_changed == ["made.txt"] and second.metadata["tool"] == "run_shell_command"
        qwen(address, f"/holdfast:restore {HOSTILE}")
        assert "neither in the checkpoint" in shown() or "no checkpoint" in shown()
        qwen(address, "/holdfast:undo")
        assert "D made.txt" in shown() and not (project / "made.txt").exists()
        said = json.loads(holdfast("restore", second.id, "--with-conversation", "--yes", "--json"))["conversation"]
        assert said["is_new"] and said["resume"] == f"qwen --resume {said['session']}"
        assert "Done." in qwen(address, "go on", "--resume", said["session"])
    assert not (project / "pwned").exists()


def test_gemini_has_its_tool_protected(project: Path, home: Path) -> None:
    settings = home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{\n  // mine\n  "security": {"auth": {"selectedType": "gemini-api-key"}}\n}\n')
    holdfast("install", "gemini")
    with served(ForGemini) as address:
        gemini(address, "make a file")
        first, second = history(project)
        gemini(address, f"/holdfast:restore {HOSTILE}")
        assert "neither in the checkpoint" in shown() or "no checkpoint" in shown()
        gemini(address, "/holdfast:undo")
        assert "D made.txt" in shown() and not (project / "made.txt").exists()
    assert not (project / "pwned").exists()
    assert (first.actor, second.actor) == (None, "gemini")
    assert second.files_changed == ["made.txt"] and second.metadata["tool"] == "run_shell_command"


def test_codex_is_protected_and_resumes_a_conversation(project: Path, home: Path) -> None:
    holdfast("install", "codex")
    found = _codex_hooks(project)
    installed = json.loads((home / ".codex" / "hooks.json").read_text())["hooks"]
    assert len(found["hooks"]) == len(installed) and not found["errors"] and not found["warnings"]
    assert {hook["trustStatus"] for hook in found["hooks"]} == {"untrusted"}
    state = [f'[hooks.state."{hook["key"]}"]\ntrusted_hash = "{hook["currentHash"]}"\n' for hook in found["hooks"]]
    with served(ForCodex) as address:
        provider = f'name = "stand-in"\nbase_url = "{address}/v1"\nwire_api = "responses"\n'
        config = f'model = "m"\nmodel_provider = "stand-in"\n[model_providers.stand-in]\n{provider}'
        (home / ".codex" / "config.toml").write_text(config + "".join(state))  # as if the user had accepted them
        assert json.loads(holdfast("doctor", "codex", "--json"))["items"][0]["trusted"] is True
        words = [program("CODEX"), "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"]
        assert "Done." in run([*words, "make a file"])
        first, second = history(project)
        assert (first.actor, second.actor) == (None, "codex")
        assert second.files_changed == ["made.txt"] and second.metadata["tool"] == "Bash"
        said = json.loads(holdfast("restore", second.id, "--with-conversation", "--yes", "--json"))["conversation"]
        assert said["is_new"] and said["resume"] == f"codex resume {said['session']}"
        assert "Done." in run([*words, "resume", said["session"], "go on"])


def _codex_hooks(project: Path) -> dict[str, Any]:
    """The hooks that Codex finds, as it lists them for its editors."""
    server = subprocess.Popen(
        [program("CODEX"), "app-server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    try:
        for message in (
            {"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "holdfast", "version": "0"}}},
            {"method": "initialized"},
            {"id": 1, "method": "hooks/list", "params": {"cwds": [str(project)]}},
        ):
            server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        answers = (json.loads(line) for line in server.stdout)
        (found,) = next(answer for answer in answers if answer.get("id") == 1)["result"]["data"]
        return found
    finally:
        server.kill()
        server.communicate()


def test_copilot_is_protected_and_its_conversation_kept(project: Path) -> None:
    holdfast("install", "copilot")
    with served(ForOpencode) as address:  # the same completions
        run(
            [program("COPILOT"), "-p", "make a file", "--allow-all-tools"],
            COPILOT_OFFLINE="true",
            COPILOT_AUTO_UPDATE="false",
            COPILOT_MODEL="m",
            COPILOT_PROVIDER_BASE_URL=f"{address}/v1",
        )
    first, second = history(project)
    assert (first.actor, second.actor) == (None, "copilot")
    assert second.files_changed == ["made.txt"] and second.metadata["tool"] == "bash"
    assert second.metadata["agent_version"][0].isdigit()
    assert "make a file" in second.state["conversation"]["text"]


@pytest.mark.parametrize("name", ["opencode", "kilo"])
def test_opencode_loads_the_plugin_and_has_its_tool_protected(name: str, project: Path, home: Path) -> None:
    path = program(name.upper())
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    holdfast("install", name)
    with served(ForOpencode) as address:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{address}/v1", "apiKey": "none"},
            "models": {"m": {"name": "m", "tool_call": True}},
        }
        config = {"provider": {"stand-in": provider}, "model": "stand-in/m", "permission": "allow", "autoupdate": False}
        (home / ".config" / name / f"{name}.json").write_text(json.dumps(config))
        quiet = {f"{name.upper()}_DISABLE_MODELS_FETCH": "1"}
        run([path, "run", "make a file"], **quiet)
        first, second = history(project)
        assert (first.actor, second.actor) == (None, name)
        assert second.files_changed == ["made.txt"] and second.metadata["tool"] == "bash"
        run([path, "run", "--command", "holdfast-restore", HOSTILE], **quiet)
        assert "no checkpoint" in shown() or "neither in the checkpoint" in shown() or "open quotation" in shown()
        run([path, "run", "--command", "holdfast-undo"], **quiet)
        assert "D made.txt" in shown() and not (project / "made.txt").exists()
    assert not (project / "pwned").exists()


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_the_plugin_for_opencode_hands_events_on(project: Path, home: Path) -> None:
    holdfast("install", "opencode")
    plugin = home / ".config" / "opencode" / "plugins" / "holdfast.js"
    module = plugin.with_suffix(".mjs")
    shutil.copy(plugin, module)
    script = f"""
import {{ writeFileSync }} from "node:fs"
import * as plugin from {json.dumps(str(module))}
const [make] = Object.values(plugin)
const hooks = await make({{ directory: process.cwd(), worktree: process.cwd() }})
const call = {{ tool: "bash", sessionID: "s", callID: "c" }}
await hooks.event({{ event: {{ type: "session.created", properties: {{ info: {{ id: "s" }} }} }} }})
await hooks["chat.message"]({{ sessionID: "s", messageID: "m" }}, {{}})
await hooks["tool.execute.before"](call, {{ args: {{ command: "make" }} }})
writeFileSync("made.txt", "agent\\n")
await hooks["tool.execute.after"]({{ ...call, args: {{ command: "make" }} }}, {{}})
await hooks.event({{ event: {{ type: "session.created", properties: {{ info: {{ id: "k", parentID: "s" }} }} }} }})
await hooks["chat.message"]({{ sessionID: "k", messageID: "n", agent: "general" }}, {{}})
const inner = {{ tool: "bash", sessionID: "k", callID: "d" }}
await hooks["tool.execute.before"](inner, {{ args: {{ command: "more" }} }})
writeFileSync("more.txt", "sub-agent\\n")
await hooks["tool.execute.after"]({{ ...inner, args: {{ command: "more" }} }}, {{}})
await hooks.event({{ event: {{ type: "session.idle", properties: {{ sessionID: "s" }} }} }})
"""
    run(["node", "--input-type=module", "-e", script])
    first, second, third = history(project)
    assert (third.actor, third.session, third.files_changed) == ("opencode/general", "s", ["more.txt"])
    assert (first.actor, second.actor, second.session) == (None, "opencode", "s")
    assert second.files_changed == ["made.txt"] and second.message == "bash: make"
