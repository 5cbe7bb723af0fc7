"""The conversation is kept with the files, and comes back beside the one that goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.adapters.agents import transcript
from holdfast.adapters.agents.event import AgentEvent, EventKind

from .conftest import HOOK, history, log_text

OLD = "0b5f2a44-1111-4222-8333-444455556666"
PATHS = {
    "claude-code": f".claude/projects/-project/{OLD}.jsonl",
    "codex": f".codex/sessions/2026/09/01/rollout-2026-09-01T08-00-00-{OLD}.jsonl",
    "gemini": f".gemini/tmp/project/chats/session-2026-09-01T08-00-{OLD[:8]}.json",
    "cursor": f".cursor/projects/project/agent-transcripts/{OLD}.jsonl",
}
EVENTS = {"claude-code": "PreToolUse", "codex": "PreToolUse", "gemini": "BeforeTool", "cursor": "preToolUse"}


def lines(name: str, count: int, cwd: str) -> bytes:
    if name == "gemini":
        messages = [{"id": f"m{number}", "type": "user", "content": "…"} for number in range(count)]
        return json.dumps({"sessionId": OLD, "projectHash": "abc", "messages": messages}, indent=2).encode()
    if name == "codex":
        first = {"type": "session_meta", "payload": {"id": OLD, "cwd": cwd}}
        return b"".join(
            json.dumps(line).encode() + b"\n"
            for line in [first, *({"type": "response_item", "payload": {"id": f"m{n}"}} for n in range(count))]
        )
    return b"".join(
        json.dumps({"uuid": f"m{n}", "sessionId": OLD, "cwd": cwd, "text": f'say "sessionId":"{OLD}" ü'}).encode()
        + b"\n"
        for n in range(count)
    )


class Conversation:
    """A conversation with one agent, and the hook that is called in it."""

    def __init__(self, name: str, home: Path, project: Path) -> None:
        self.name, self.project = name, project
        self.path = home / PATHS[name]
        self.path.parent.mkdir(parents=True)
        self._number = 0

    def says(self, count: int) -> bytes:
        data = lines(self.name, count, str(self.project))
        self.path.write_bytes(data)
        return data

    def fire(self, **more: Any) -> dict[str, Any]:
        """An event before a tool, after the user changed something; what was kept of the conversation."""
        self._number += 1
        (self.project / "a.txt").write_text(f"{self._number}\n")
        event = {
            "session_id": OLD,
            "conversation_id": OLD,
            "cwd": str(self.project),
            "workspace_roots": [str(self.project)],
            "hook_event_name": EVENTS[self.name],
            "tool_name": "Shell",
            "tool_use_id": f"t{self._number}",
            "transcript_path": str(self.path),
            **more,
        }
        subprocess.run([*HOOK, self.name], input=json.dumps(event).encode(), check=True)
        found: dict[str, Any] = history(self.project)[-1].state[transcript.STATE]
        return found


@pytest.fixture
def claude(home: Path, project: Path) -> Conversation:
    return Conversation("claude-code", home, project)


def restore(*words: str) -> Any:
    ran = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "restore", *words, "--yes", "--json"], capture_output=True, check=False
    )
    return ran.returncode, json.loads(ran.stdout)


@pytest.mark.parametrize("name", PATHS)
def test_position_and_content_are_kept_with_the_files(name: str, home: Path, project: Path) -> None:
    conversation = Conversation(name, home, project)
    data = conversation.says(5)
    kept = conversation.fire()
    assert kept["text"].encode() == data and kept["bytes"] == len(data)
    assert kept["sha256"] == sha256(data).hexdigest()
    assert kept["session"] == OLD and kept["agent"] == name
    assert kept["message"] == (None if name == "gemini" else "m4")


@pytest.mark.parametrize(
    ("name", "resume"), [("claude-code", "claude --resume"), ("codex", "codex resume"), ("gemini", "gemini --resume")]
)
def test_files_and_conversation_come_back_together(name: str, resume: str, home: Path, project: Path) -> None:
    conversation = Conversation(name, home, project)
    before = conversation.says(3)
    conversation.fire()
    now = conversation.says(9)
    conversation.fire()
    code, said = restore("latest~1", "--with-conversation")
    assert code == 0 and (project / "a.txt").read_text() == "1\n"
    assert conversation.path.read_bytes() == now  # the only copy of what was said since
    brought = said["conversation"]
    new = Path(brought["path"])
    assert new != conversation.path and new.parent == conversation.path.parent
    assert brought["session"] != OLD and brought["resume"] == f"{resume} {brought['session']}"
    assert brought["session"][:8] in new.name
    text = new.read_bytes()
    assert brought["session"].encode() in text
    assert text.replace(brought["session"].encode(), OLD.encode()) == before
    if name == "claude-code":
        assert text.count(b'\\"sessionId\\":\\"' + OLD.encode()) == 3  # what was said about it is not touched


def test_unchanged_conversation_is_resumed_as_it_is(claude: Conversation) -> None:
    claude.says(3)
    claude.fire()
    before = sorted(claude.path.parent.iterdir())
    _, said = restore("latest", "--with-conversation")
    assert said["conversation"]["is_new"] is False and said["conversation"]["resume"] == f"claude --resume {OLD}"
    assert sorted(claude.path.parent.iterdir()) == before


def test_unresumable_conversation_can_be_read(home: Path, project: Path) -> None:
    conversation = Conversation("cursor", home, project)
    data = conversation.says(2)
    conversation.fire()
    conversation.says(3)
    _, said = restore("latest", "--with-conversation")
    assert said["conversation"]["resume"] == ""
    assert Path(said["conversation"]["path"]).read_bytes() == data
    assert Path(said["conversation"]["path"]).is_relative_to(home / ".local")


def test_a_last_line_that_is_still_being_written_is_left_out(claude: Conversation) -> None:
    data = claude.says(2)
    with open(claude.path, "ab") as file:
        file.write(b'{"uuid": "half')
    assert claude.fire()["bytes"] == len(data)


def test_a_conversation_that_is_missing_is_said_to_be(claude: Conversation, home: Path, project: Path) -> None:
    kept = claude.fire()
    assert "No such file" in kept["missing"] and "No such file" in log_text(home)
    code, said = restore("latest", "--with-conversation")
    assert code == 3 and "does not contain the conversation" in said["error"]["message"]


def test_a_compressed_one_is_kept_as_it_is(home: Path, project: Path) -> None:
    conversation = Conversation("codex", home, project)
    data = b"\x28\xb5\x2f\xfd" + os.urandom(100)
    conversation.path.with_name(conversation.path.name + ".zst").write_bytes(data)
    kept = conversation.fire()
    assert kept["path"].endswith(".zst") and kept["sha256"] == sha256(data).hexdigest()
    Path(kept["path"]).unlink()
    _, said = restore("latest", "--with-conversation")
    assert Path(said["conversation"]["path"]).read_bytes() == data and said["conversation"]["resume"] == ""


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_one_of_another_project_is_not_kept(name: str, home: Path, project: Path, tmp_path: Path) -> None:
    conversation = Conversation(name, home, project)
    conversation.path.write_bytes(lines(name, 2, str(tmp_path / "elsewhere")))
    assert "another project" in conversation.fire()["missing"]


@pytest.mark.parametrize("path", ["/etc/passwd", "/dev/zero", "/proc/self/environ", "relative.jsonl", "\0.jsonl"])
def test_what_is_no_conversation_is_not_read(path: str, claude: Conversation) -> None:
    kept = claude.fire(transcript_path=path)
    assert kept["missing"] and "text" not in kept


def test_a_pipe_does_not_hold_the_hook_up(claude: Conversation) -> None:
    os.mkfifo(claude.path)
    assert claude.fire()["missing"]


def test_bytes_that_are_no_text_come_back(claude: Conversation, project: Path) -> None:
    data = b'{"uuid": "m0", "x": "\xff\xfe\xed\xa0\x80"}\n'
    claude.path.write_bytes(data)
    claude.fire()
    claude.path.unlink()
    _, said = restore("latest", "--with-conversation")
    assert Path(said["conversation"]["path"]).read_bytes() == data


def test_very_large_conversation_is_restored_by_position(claude: Conversation, project: Path) -> None:
    line = json.dumps({"uuid": "m", "sessionId": OLD, "cwd": str(project), "x": "y" * 100_000}).encode() + b"\n"
    data = line * (transcript.MAX_BYTES // len(line) + 2)
    claude.path.write_bytes(data)
    kept = claude.fire()
    assert "text" not in kept and kept["bytes"] == len(data) and "larger" in kept["missing"]
    with open(claude.path, "ab") as file:
        file.write(b'{"uuid": "later"}\n')
    _, said = restore("latest", "--with-conversation")
    assert Path(said["conversation"]["path"]).stat().st_size == len(data)
    claude.path.write_bytes(b"another\n")
    code, _ = restore("latest", "--with-conversation")
    assert code == 3


def test_path_outside_the_agents_folder_is_not_written(claude: Conversation, home: Path, project: Path) -> None:
    """A store may come from somewhere else: what it names is not where anything is written."""
    said = {"agent": "claude-code", "session": OLD, "path": str(home / ".ssh" / "x.jsonl"), "bytes": 2, "text": "a\n"}
    (home / ".ssh").mkdir()
    Workspace(project).save("bad", state={transcript.STATE: {**said, "sha256": sha256(b"a\n").hexdigest()}})
    _, found = restore("latest", "--with-conversation")
    assert list((home / ".ssh").iterdir()) == []
    assert Path(found["conversation"]["path"]).is_relative_to(home / ".local")


def test_session_that_is_no_plain_name_is_not_executed(claude: Conversation, project: Path) -> None:
    claude.path.write_bytes(b"a\n")
    said = {"agent": "claude-code", "session": "x; rm -rf ~", "path": str(claude.path), "bytes": 2, "text": "a\n"}
    Workspace(project).save("bad", state={transcript.STATE: {**said, "sha256": sha256(b"a\n").hexdigest()}})
    _, found = restore("latest", "--with-conversation")
    assert not found["conversation"]["resume"] and not found["conversation"]["is_new"]


def test_a_file_of_another_user_is_not_read(claude: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    claude.says(3)
    event = AgentEvent("claude-code", EventKind.BEFORE, "PreToolUse", session=OLD, transcript=str(claude.path))
    assert "text" in transcript.capture(event, claude.project)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    kept = transcript.capture(event, claude.project)
    assert "not a file of this user" in kept["missing"] and "text" not in kept


def test_altered_content_is_refused_before_any_restore(claude: Conversation, project: Path) -> None:
    said = {"agent": "claude-code", "session": OLD, "path": str(claude.path), "bytes": 2, "text": "b\n"}
    Workspace(project).save("bad", state={transcript.STATE: {**said, "sha256": sha256(b"a\n").hexdigest()}})
    (project / "a.txt").write_text("changed\n")
    code, _ = restore("latest", "--with-conversation")
    assert code == 5 and (project / "a.txt").read_text() == "changed\n"


def test_a_conversation_that_grows_costs_what_it_grew_by(claude: Conversation, project: Path) -> None:
    line = lambda n: json.dumps({"uuid": f"m{n}", "text": sha256(b"%d" % n).hexdigest() * 20}) + "\n"  # noqa: E731
    claude.path.write_text("".join(map(line, range(2000))))
    claude.fire()
    store = Workspace(project).store
    before = sum(path.stat().st_size for path in store.rglob("*.pack"))
    for n in range(5):
        with open(claude.path, "a") as file:
            file.write(line(2000 + n))
        claude.fire()
    after = sum(path.stat().st_size for path in store.rglob("*.pack"))
    assert after - before < before / 4


def test_conversation_is_saved_before_compaction(claude: Conversation, project: Path) -> None:
    claude.says(3)
    claude.fire()
    claude.says(4)
    event = {
        "session_id": OLD,
        "cwd": str(project),
        "hook_event_name": "PreCompact",
        "transcript_path": str(claude.path),
    }
    subprocess.run([*HOOK, "claude-code"], input=json.dumps(event).encode(), check=True)
    last = history(project)[-1]
    assert last.metadata["event"] == "PreCompact" and last.state[transcript.STATE]["message"] == "m3"


def test_redact_replaces_secrets_in_conversations_only(claude: Conversation, project: Path) -> None:
    key = "ghp_Zq3vT8mK1xW6bN4cR7yL2pD9sF5gH0jQ1aEu"
    (project / "holdfast.toml").write_text("redact = true\n")
    (project / "key.txt").write_text(key)
    claude.path.write_text(json.dumps({"text": f"my key\n{key}"}) + "\n")
    said = claude.fire()
    assert key not in str(said) and "[redacted github-token]" in str(said)
    assert Workspace(project).file("latest", "key.txt").read() == key.encode()
