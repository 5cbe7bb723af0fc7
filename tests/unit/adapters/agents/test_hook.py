"""Whatever comes on stdin, and whatever is around: the agent's turn goes on, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

from holdfast import Checkpoint, NotFound, Workspace
from holdfast.adapters.agents.hook import after_save
from holdfast.project import SyncCheckpointManager
from holdfast.workspace.upkeep.growth import take_notice

from .conftest import HOOK, history, log_text

EVENT = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "t1"}


def hook(agent: str, data: bytes, **options) -> None:
    """Run the hook: it ends with 0 and says nothing."""
    ran = subprocess.run([*HOOK, agent], input=data, capture_output=True, check=False, **options)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def event(project: Path, **more: object) -> bytes:
    return json.dumps({**EVENT, "cwd": str(project), **more}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b'{"hook_event_name": "PreToolUse", "cwd": "',
        b"[" * 100_000,
        b"\0" * 99,
    ],
    ids=["nothing", "cut", "list", "null", "not text", "truncated", "deep", "zeros"],
)
def test_input_that_is_no_event_still_has_the_folder_saved(data: bytes, project: Path, home: Path) -> None:
    hook("claude-code", data)
    assert "not a JSON object" in log_text(home)
    (only,) = history(project)
    assert only.actor is None and "a.txt" in only.files_changed


def test_checkpoints_carry_the_types_of_a_project(project: Path) -> None:
    for number, name in enumerate(("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse")):
        (project / "a.txt").write_text(f"{number}\n")
        hook("claude-code", event(project, hook_event_name=name, tool_use_id=f"t{number}"))
    manager = SyncCheckpointManager(project)
    found = [each.checkpoint_type.value for each in reversed(manager.list())]
    assert found == ["session", "automatic", "automatic", "automatic"]
    assert [each.id for each in manager.list(type="session")] == [history(project)[0].id]
    assert Workspace(project).list(type="automatic") == history(project)[:0:-1]


def test_a_project_prunes_its_own_checkpoints_only(project: Path) -> None:
    """Undoing a turn of an agent needs what its hooks saved."""
    for number in range(7):
        (project / "a.txt").write_text(f"{number}\n")
        hook("claude-code", event(project, tool_use_id=f"t{number}"))
    manager = SyncCheckpointManager(project)
    for number in range(7):
        (project / "a.txt").write_text(f"own {number}\n")
        manager.create_checkpoint(f"own {number}", type="automatic")
    found = manager.list(type="automatic")
    assert [each.name for each in found[:5]] == [f"own {number}" for number in range(6, 1, -1)]
    assert [each.name for each in found[5:]] == [""] * 7


def test_the_prompt_is_recorded_with_what_the_agent_does(project: Path) -> None:
    def one(name: str, **more: object) -> None:
        hook("claude-code", event(project, hook_event_name=name, **more))

    one("UserPromptSubmit", prompt="Fix the login test\nand nothing else", prompt_id="p1")
    one("PreToolUse", prompt_id="p1")
    (project / "a.txt").write_text("the agent's\n")
    one("PostToolUse", prompt_id="p1")
    agents, users = history(project)[-1], history(project)[0]
    assert (agents.actor, agents.metadata["prompt"], agents.metadata["turn"]) == (
        "claude-code",
        "Fix the login test",
        "p1",
    )
    assert users.message == "before prompt: Fix the login test" and "prompt" not in users.metadata


def test_the_model_is_recorded_with_what_the_agent_does(project: Path, home: Path) -> None:
    def edit(text: str, **more: object) -> Checkpoint:
        hook("codex", event(project, **more))
        (project / "a.txt").write_text(text)
        hook("codex", event(project, hook_event_name="PostToolUse", **more))
        return history(project)[-1]

    assert edit("one\n", model="gpt-5", tool_use_id="t1").metadata["model"] == "gpt-5"
    assert "model" not in history(project)[0].metadata  # the user's
    conversation = home / "conversation.jsonl"
    messages = [{"message": {"model": name}} for name in ("claude-old", "claude-opus-4-5", "<synthetic>", 7)]
    conversation.write_text("".join(json.dumps(each) + "\n" for each in messages))
    assert edit("two\n", transcript_path=str(conversation), tool_use_id="t2").metadata["model"] == "claude-opus-4-5"
    assert "model" not in edit("three\n", tool_use_id="t3").metadata


def test_a_truncated_event_is_read_as_far_as_it_goes(project: Path, home: Path) -> None:
    hook("claude-code", event(project, tool_input={"command": "make a lot of things"})[:-20], cwd="/")
    hook(
        "claude-code",
        b'{"hook_event_name": "PostToolUse", "tool_use_id": "t1", "session_id": "s", "x": {"y"',
        cwd=project,
    )
    assert [each.metadata["event"] for each in history(project)] == ["PreToolUse"]


def test_a_hundred_megabytes_are_read_to_their_end(project: Path, home: Path) -> None:
    start = event(project, tool_name="Write")[:-1] + b', "tool_input": {"content": "'
    hook("claude-code", start + b"x" * 100_000_000 + b'"}}', cwd="/")
    (only,) = history(project)
    assert only.metadata["tool"] == "Write"


def test_bytes_that_are_no_text_come_through(project: Path) -> None:
    hook("claude-code", event(project, tool_input={"command": "XX"}).replace(b"XX", b"ls \xff\xfe\x1b[2J"))
    (only,) = history(project)
    assert only.message.startswith("before Bash: ls ") and "\x1b" not in only.message


def test_fields_of_odd_types_are_passed_over(project: Path) -> None:
    odd = {"session_id": ["s"], "tool_name": {"a": 1}, "tool_use_id": 7, "tool_input": "{", "transcript_path": 3}
    hook("claude-code", event(project, **odd))
    assert len(history(project)) == 1


def test_an_agent_that_nobody_knows_gets_a_line_in_the_log(project: Path, home: Path) -> None:
    hook("nobody", event(project))
    assert "unknown agent 'nobody'" in log_text(home)


def test_an_event_that_says_nothing_of_files_leaves_no_trace(project: Path, home: Path) -> None:
    hook("claude-code", event(project, hook_event_name="Notification"))
    hook("claude-code", event(project, tool_name="Read"))
    assert not (home / ".local" / "state" / "holdfast" / "workspaces").exists() and log_text(home) == ""


def test_agent_in_the_home_folder_is_told_once_a_session_that_nothing_is_saved(home: Path, project: Path) -> None:
    def said(session: str, agent: str = "claude-code") -> bytes:
        words = [*HOOK, agent]
        data = event(home, session_id=session)
        return subprocess.run(words, input=data, capture_output=True, check=True, cwd=home).stdout

    told = json.loads(said("s1"))["systemMessage"]
    assert told.startswith("Holdfast saves no checkpoints here: ") and "is your home folder" in told
    assert said("s1") == b""
    assert b"is your home folder" in said("s2")
    assert log_text(home).count("is your home folder") == 3 and "allow_home" not in log_text(home)
    assert not (home / ".local" / "state" / "holdfast" / "workspaces").exists()


def test_a_folder_that_is_gone_gets_a_line_in_the_log(project: Path, home: Path) -> None:
    gone = home / "gone"
    gone.mkdir()
    hook("claude-code", event(gone / "deeper"), cwd=gone)
    assert len(history(gone)) == 1  # the nearest that is there


def test_of_a_folder_that_is_gone_what_is_above_it_is_not_saved(project: Path, home: Path) -> None:
    above = home / "above"
    above.mkdir()
    (above / "file").write_text("x")
    words = [*HOOK, "claude-code"]
    ran = subprocess.run(words, input=event(above / "gone"), capture_output=True, check=True, cwd="/")
    assert b"/ is a system folder" in ran.stdout
    assert "is a system folder" in log_text(home)
    with pytest.raises(NotFound):
        history(above)
    subprocess.run(["git", "init", "-q", above], check=True)
    hook("claude-code", event(above / "gone"), cwd="/")
    assert len(history(above)) == 1


def test_a_store_that_cannot_be_written_gets_a_line_in_the_log(project: Path, home: Path) -> None:
    stores = home / ".local" / "state" / "holdfast"
    stores.mkdir(parents=True)
    (stores / "workspaces").write_text("in the way")
    ran = subprocess.run([*HOOK, "claude-code"], input=event(project), capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert "could not save a checkpoint before Bash" in json.loads(ran.stdout)["systemMessage"]
    assert "in the way" not in log_text(home) and "PreToolUse" in log_text(home)


@pytest.mark.parametrize("wait_s", ["nan", "inf", "-1", "soon"])
def test_a_time_to_wait_that_makes_no_sense_is_passed_over(project: Path, wait_s: str) -> None:
    hook("claude-code", event(project), env={**os.environ, "HOLDFAST_HOOK_WAIT_S": wait_s})
    assert len(history(project)) == 1


def test_stdin_that_is_closed_is_no_error(project: Path) -> None:
    ran = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *HOOK, "claude-code"], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


@pytest.mark.parametrize("closed", ["<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_agent_that_closes_standard_streams_is_saved(project: Path, home: Path, closed: str) -> None:
    ran = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *HOOK, "claude-code"], input=event(project))
    assert ran.returncode == 0
    assert len(history(project)) == 1
    assert "no checkpoint was saved" not in log_text(home)


def test_relative_home_is_relative_to_the_agents_folder(project: Path, home: Path) -> None:
    hook("claude-code", event(project), env={**os.environ, "HOME": "../.."})
    assert len(history(project)) == 1


def test_git_variables_lead_nowhere(project: Path, home: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    other = tmp_path / "other.git"
    before = sorted(os.walk(project / ".git"))
    hook(
        "claude-code",
        event(project),
        env={**os.environ, "GIT_DIR": str(other), "GIT_WORK_TREE": "/", "GIT_INDEX_FILE": "x"},
    )
    assert len(history(project)) == 1 and not other.exists()
    assert sorted(os.walk(project / ".git")) == before


def test_the_log_never_grows_large(project: Path, home: Path) -> None:
    log = home / ".local" / "state" / "holdfast" / "agents" / "hook.log"
    log.parent.mkdir(parents=True)
    log.write_text("x" * 300_000)
    hook("nobody", b"{}")
    assert log.stat().st_size < 1000 and log.with_suffix(".log.1").stat().st_size == 300_000


def test_cursor_running_the_hooks_of_claude_code_too_counts_once(project: Path) -> None:
    own = {"conversation_id": "c", "cursor_version": "2.4.1", "workspace_roots": [str(project)], "tool_use_id": "t"}
    for agent, name in (("cursor", "preToolUse"), ("claude-code", "PreToolUse")):
        hook(agent, json.dumps({**own, "hook_event_name": name, "tool_name": "Write"}).encode())
    (project / "made.txt").write_text("agent\n")
    for agent, name in (("claude-code", "PostToolUse"), ("cursor", "postToolUse")):
        hook(agent, json.dumps({**own, "hook_event_name": name, "tool_name": "Write"}).encode())
    hook("claude-code", json.dumps({**own, "hook_event_name": "PreToolUse", "tool_name": "Write"}).encode())  # late
    (project / "mine.txt").write_text("user\n")
    hook("cursor", json.dumps({**own, "hook_event_name": "stop", "generation_id": "g"}).encode())
    assert [(each.actor, each.files_changed[-1]) for each in history(project)[1:]] == [
        ("cursor", "made.txt"),
        (None, "mine.txt"),
    ]


def test_tool_with_a_reused_id_is_saved_before_and_after(project: Path) -> None:
    for mine, agents in (("one", "two"), ("three", "four")):
        (project / "a.txt").write_text(mine)
        hook("claude-code", event(project))
        (project / "a.txt").write_text(agents)
        hook("claude-code", event(project, hook_event_name="PostToolUse"))
    assert [each.actor for each in history(project)] == [None, "claude-code", None, "claude-code"]


def test_two_hooks_for_one_event_make_one_checkpoint(project: Path) -> None:
    running = [subprocess.Popen([*HOOK, "claude-code"], stdin=subprocess.PIPE) for _ in range(4)]
    for process in running:
        process.stdin.write(event(project))
        process.stdin.close()
    assert [process.wait() for process in running] == [0] * 4
    assert len(history(project)) == 1


def test_a_worktree_within_the_project_is_a_workspace_of_its_own(project: Path) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@x", "-C", str(project)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    tree = project / ".claude" / "worktrees" / "try"
    subprocess.run([*git, "worktree", "add", "-q", str(tree)], check=True, capture_output=True)
    (tree / "b.txt").write_text("b\n")
    inside = {**os.environ, "CLAUDE_PROJECT_DIR": str(project)}
    hook("claude-code", event(tree), env=inside)
    assert len(history(tree)) == 1
    edit = {"tool_name": "Edit", "tool_use_id": "t2", "tool_input": {"file_path": str(project / "a.txt")}}
    hook("claude-code", event(tree, **edit), env=inside)  # from there, a file of the project is changed
    assert len(history(tree)) == 1 and len(history(project)) == 1


def test_submodule_is_part_of_the_project(project: Path, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@x", "-c", "protocol.file.allow=always", "-C"]
    other = tmp_path / "library"
    for folder in (other, project):
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run([*git, str(other), "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    add = [*git, str(project), "submodule", "add", "-q", str(other), "library"]
    subprocess.run(add, check=True, capture_output=True)
    (project / "library" / "new.txt").write_text("new\n")
    inside = {**os.environ, "CLAUDE_PROJECT_DIR": str(project)}
    hook("claude-code", event(project / "library"), env=inside)
    (saved,) = history(project)
    assert {"a.txt", "library/new.txt"} <= set(saved.files_changed)


def test_agent_in_a_subfolder_saves_the_project(project: Path) -> None:
    Workspace(project).save("first")
    (project / "a.txt").write_text("two\n")
    hook("codex", event(project / "src"), cwd=project / "src")
    assert [each.files_changed for each in history(project)][1:] == [["a.txt"]]


def test_hook_in_a_folder_of_its_own_saves_the_project(project: Path, home: Path) -> None:
    """Cursor does, for hooks of the user; and most of its events, and those of its shell, name no folder."""
    own = home / ".cursor"
    own.mkdir()
    common = {"conversation_id": "c", "cursor_version": "3.18.25", "workspace_roots": [str(project)]}
    hook("cursor", json.dumps({**common, "hook_event_name": "beforeSubmitPrompt", "prompt": "go"}).encode(), cwd=own)
    (saved,) = history(project)
    assert "a.txt" in saved.files_changed
    shell = {**common, "tool_name": "Shell", "tool_use_id": "t", "tool_input": {"command": "make"}, "cwd": ""}
    hook("cursor", json.dumps({**shell, "hook_event_name": "preToolUse"}).encode(), cwd=own)
    (project / "made.txt").write_text("agent\n")
    hook("cursor", json.dumps({**shell, "hook_event_name": "postToolUse"}).encode(), cwd=own)
    assert history(project)[-1].actor == "cursor" and history(project)[-1].files_changed == ["made.txt"]


def test_command_outside_the_project_saves_the_project(project: Path, tmp_path: Path) -> None:
    inside = {**os.environ, "CLAUDE_PROJECT_DIR": str(project)}
    (tmp_path / "elsewhere").mkdir()
    hook("claude-code", event(tmp_path / "elsewhere"), env=inside)
    assert len(history(project)) == 1
    subprocess.run(["git", "init", "-q", str(tmp_path / "elsewhere")], check=True)
    (project / "a.txt").write_text("two\n")
    edit = {"tool_name": "Edit", "tool_use_id": "t2", "tool_input": {"file_path": str(project / "a.txt")}}
    hook("claude-code", event(tmp_path / "elsewhere", **edit), env=inside)  # from another repository
    assert len(history(project)) == 2


def test_parents_of_a_moved_project_are_not_saved(project: Path) -> None:
    inside = {**os.environ, "CLAUDE_PROJECT_DIR": str(project)}
    moved = project.rename(project.with_name("moved"))
    hook("claude-code", event(project), env=inside, cwd=moved)
    assert len(history(moved)) == 1
    with pytest.raises(NotFound):
        Workspace(project.parent, create=False)


def test_an_agent_that_leaves_the_pipe_open_is_not_held_up(project: Path) -> None:
    with subprocess.Popen([*HOOK, "claude-code"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        patience = threading.Timer(100, process.kill)  # one that waits for the end of its input fails
        patience.start()
        process.stdin.write(event(project))
        process.stdin.flush()
        assert (process.wait(), process.stdout.read()) == (0, b"")
        patience.cancel()
    assert history(project)[0].metadata["tool_use"] == "t1"


def test_growth_is_told_by_the_next_hook_with_the_command_to_type(project: Path, home: Path) -> None:
    hook("claude-code", event(project))
    workspace = Workspace(project)
    after_save(workspace)
    with open(workspace.store / "objects" / "pack" / "more", "wb") as file:  # takes no disk
        file.truncate((1 << 30) + 1)
    after_save(workspace)
    assert take_notice(workspace.store).endswith("in the last hour. See what takes space: holdfast usage")
