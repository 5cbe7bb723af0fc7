"""Turns: every agent's events are put into turns, and one turn can be undone. Real hooks, in processes of their own.

The events are written by hand after each agent's documentation.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.errors import NotFound

from .conftest import ScriptedAgent, helpers, wait_for

CLI = (sys.executable, "-m", "holdfast.cli")


class Talk:
    """A conversation with one agent, in its own events."""

    def __init__(self, agent: ScriptedAgent, name: str, session: str = "s", *, ids: bool = False) -> None:
        self._agent, self.name, self._session, self._ids = agent, name, session, ids
        self._turns = self._tools = 0

    def prompt(self, text: str) -> None:
        self._turns += 1
        self._tell("prompt", prompt=text)

    def edit(self, write: dict[str, str], *, sub: str = "", turn: int = 0, command: str = "") -> None:
        """Run one tool, which writes files."""
        end = self.begin(sub=sub, turn=turn, command=command)
        self._agent.change(write, [])
        end()

    def begin(self, *, sub: str = "", turn: int = 0, command: str = "") -> Callable[[], None]:
        """Begin a tool call; the result ends it."""
        self._tools += 1
        more: dict[str, Any] = {"tool_name": "Bash" if command else "Edit", "tool_input": {"command": command}}
        more |= {"toolName": more["tool_name"], "tool": more["tool_name"]}
        if self.name not in ("gemini", "copilot"):
            more |= {"tool_use_id": f"t{self._tools}", "callID": f"t{self._tools}"}
        if sub:
            more |= {"agent_id": sub, "agent_type": "explorer"}
        self._tell("before", turn=turn, **more)
        return lambda: self._tell("after", turn=turn, **more)

    def stop(self, **more: Any) -> None:
        self._tell("stop", **more)

    def _tell(self, kind: str, turn: int = 0, **more: Any) -> None:
        name = NAMES[self.name][kind]
        ids = {"session_id": self._session, "sessionId": self._session, "sessionID": self._session}
        if self.name == "opencode":
            ids |= {"turn_id": f"m{self._turns}"} if kind == "prompt" else {}
        elif self._ids:
            ids |= {"prompt_id": f"p{turn or self._turns}"}
        event = {"hook_event_name": name, "cwd": str(self._agent._project), **ids, **more}
        self._agent.hook(self.name, event, name)


class CursorTalk:
    """A chat with Cursor, or a sub-agent of one, in events as its desktop program was seen to report them."""

    def __init__(self, agent: ScriptedAgent, session: str) -> None:
        self._agent, self.session, self._tools = agent, session, 0

    def tell(self, name: str, **more: Any) -> None:
        own = {"conversation_id": self.session, "session_id": self.session, "generation_id": f"g of {self.session}"}
        common = {"cursor_version": "3.18.25", "workspace_roots": [str(self._agent._project)], "cwd": ""}
        self._agent.hook("cursor", {**own, **common, "hook_event_name": name, **more})

    def edit(self, write: dict[str, str], **more: Any) -> None:
        self._tools += 1
        more |= {"tool_name": "Shell", "tool_use_id": f"{self.session} {self._tools}"}
        self.tell("preToolUse", **more)
        self._agent.change(write, [])
        self.tell("postToolUse", **more)


NAMES = {
    "claude-code": {"prompt": "UserPromptSubmit", "before": "PreToolUse", "after": "PostToolUse", "stop": "Stop"},
    "gemini": {"prompt": "BeforeAgent", "before": "BeforeTool", "after": "AfterTool", "stop": "AfterAgent"},
    "copilot": {
        "prompt": "userPromptSubmitted",
        "before": "preToolUse",
        "after": "postToolUse",
        "stop": "agentStop",
    },
    "opencode": {
        "prompt": "chat.message",
        "before": "tool.execute.before",
        "after": "tool.execute.after",
        "stop": "session.idle",
    },
}


def cli(project: Path, *words: str, status: int = 0) -> Any:
    ran = subprocess.run([*CLI, *words, "--json"], cwd=project, capture_output=True, check=False, text=True)
    assert ran.returncode == status, ran
    return json.loads(ran.stdout)


def turns_of(project: Path) -> list[tuple[int | None, str, str, int]]:
    """Number, agent, prompt and count of checkpoints of each turn of an agent; newest first."""
    found = Workspace(project).turns().turns
    return [(each.number, each.key.agent, each.prompt, len(each.checkpoints)) for each in found if each.key]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_turns_without_ids_begin_with_their_prompts(name: str, agent: ScriptedAgent, project: Path) -> None:
    talk = Talk(agent, name)
    for number in (1, 2):
        talk.prompt("go on")  # the same words are another turn
        talk.edit({f"made{number}.txt": "x\n"})
        talk.edit({f"more{number}.txt": "x\n"})
        talk.stop()
    prompt = "" if name == "opencode" and not turns_of(project)[0][2] else "go on"
    assert turns_of(project) == [(2, name, prompt, 2), (1, name, prompt, 2)]
    cli(project, "undo", "--agent")
    assert not (project / "made2.txt").exists() and not (project / "more2.txt").exists()
    assert (project / "made1.txt").exists() and (project / "more1.txt").exists()
    cli(project, "undo", "--agent")  # the turn before
    assert not (project / "made1.txt").exists() and not (project / "more1.txt").exists()


def test_prompt_that_changed_nothing_is_a_turn(agent: ScriptedAgent, project: Path) -> None:
    talk = Talk(agent, "claude-code")
    talk.prompt("what is this?")
    talk.stop()
    talk.prompt("fix it")
    talk.edit({"a.txt": "fixed\n"})
    talk.prompt("explain")
    assert turns_of(project) == [
        (3, "claude-code", "explain", 0),
        (2, "claude-code", "fix it", 1),
        (1, "claude-code", "what is this?", 0),
    ]
    told = cli(project, "log")["turns"]
    assert [(each["number"], each["prompt"], len(each["checkpoints"])) for each in told if each["number"]] == [
        (3, "explain", 0),
        (2, "fix it", 1),
        (1, "what is this?", 0),
    ]
    lines = subprocess.run([*CLI, "log"], cwd=project, capture_output=True, text=True, check=True).stdout
    assert "turn 3, no files" in lines and "explain" in lines
    assert [each.number for each in Workspace(project).turns(grep="fix").turns] == [2]
    assert [each["number"] for each in cli(project, "log", "--session", "other")["turns"]] == []


class TestSecretsInWhatIsShort:
    KEY = "ghp_Zq3vT8mK1xW6bN4cR7yL2pD9sF5gH0jQ1aEu"

    @pytest.mark.parametrize("before", ["word " * 17, "word," * 17], ids=["after a blank", "in a long word"])
    def test_a_key_is_redacted_before_a_prompt_is_cut(self, agent: ScriptedAgent, project: Path, before: str) -> None:
        """The limit of 100 characters lies within the key."""
        (project / "holdfast.toml").write_text("redact = true\n")
        talk = Talk(agent, "claude-code")
        talk.prompt(f"{before}{self.KEY} {'and more ' * 20}")
        talk.edit({"a.txt": "1"}, command=f"echo {before}{self.KEY}; true {'and more ' * 20}")
        (turn,) = (each for each in Workspace(project).turns().turns if each.key)
        assert turn.prompt.startswith("word") and len(turn.prompt) <= 100 and "[redacted" in turn.prompt
        for path in Workspace(project).store.rglob("*"):
            assert not path.is_file() or self.KEY[:10].encode() not in path.read_bytes()

    def test_without_redaction_a_prompt_is_cut_at_a_blank(self, agent: ScriptedAgent, project: Path) -> None:
        talk = Talk(agent, "claude-code")
        talk.prompt("word " * 17 + self.KEY + " and more" * 20)
        talk.edit({"a.txt": "1"})
        assert turns_of(project)[0][2] == "word " * 16 + "word…"


class TestClosing:
    """What the agent says at the end of a turn, which no checkpoint has."""

    KEY = "ghp_Zq3vT8mK1xW6bN4cR7yL2pD9sF5gH0jQ1aEu"

    def closings(self, project: Path) -> list[str]:
        return [each.closing for each in Workspace(project).turns().turns if each.key]

    @pytest.mark.parametrize(
        ("name", "field"), [("claude-code", "last_assistant_message"), ("gemini", "prompt_response")]
    )
    def test_reported_by_the_agent(self, name: str, field: str, agent: ScriptedAgent, project: Path) -> None:
        talk = Talk(agent, name)
        talk.prompt("fix it")
        talk.edit({"a.txt": "fixed\n"})
        talk.stop(**{field: "Fixed.\n\nIt was \x1b[31mbroken."})
        talk.prompt("why?")
        talk.stop(**{field: "Because."})
        assert self.closings(project) == ["Because.", "Fixed.\n\nIt was  [31mbroken."]
        told = [each for each in cli(project, "log")["turns"] if each["number"]]
        assert [each["closing"] for each in told] == self.closings(project)
        assert cli(project, "show")["checkpoint"]["turn"]["closing"].startswith("Fixed.")
        shown = subprocess.run([*CLI, "show"], cwd=project, capture_output=True, text=True, check=True).stdout
        assert "the agent said" in shown and "It was" in shown

    def test_older_claude_code_is_read_from_its_conversation(self, agent: ScriptedAgent, project: Path) -> None:
        talk, file = Talk(agent, "claude-code"), project.parent / "s.jsonl"
        lines = [
            {"type": "user", "message": {"role": "user", "content": "fix it"}},
            {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "Fixed."}]}},
            {"type": "assistant", "isSidechain": True, "message": {"role": "assistant", "content": "from a helper"}},
            {"type": "system", "subtype": "turn_duration"},
        ]
        file.write_text("".join(json.dumps(each) + "\n" for each in lines))
        talk.prompt("fix it")
        talk.stop(transcript_path=str(file))
        assert self.closings(project) == ["Fixed."]
        file.write_text(json.dumps(lines[0]) + "\n")  # its answer is not written yet
        talk.prompt("again")
        talk.stop(transcript_path=str(file))
        assert self.closings(project)[0] == ""

    def test_secrets_are_replaced_and_long_ones_cut(self, agent: ScriptedAgent, project: Path) -> None:
        talk = Talk(agent, "claude-code")
        talk.prompt("which key?")
        talk.stop(last_assistant_message=f"It is {self.KEY}, " + "word " * 386 + self.KEY + " and more" * 1000)
        (said,) = self.closings(project)
        assert len(said) < 2000 and said.startswith("It is [redacted github-token]")
        assert said.endswith("word [redacted github-token] and more and…")
        for path in Workspace(project).store.rglob("*"):
            assert not path.is_file() or self.KEY[:20].encode() not in path.read_bytes()

    @pytest.mark.parametrize("is_reported", [True, False])
    def test_half_a_key_does_not_stay(self, agent: ScriptedAgent, project: Path, *, is_reported: bool) -> None:
        """A message without a blank is cut anywhere."""
        talk, file = Talk(agent, "claude-code"), project.parent / "s.jsonl"
        said = "word," * 395 + self.KEY + ",word" * 500
        talk.prompt("which key?")
        if is_reported:
            talk.stop(last_assistant_message=said)
        else:
            about = {"role": "assistant", "content": [{"type": "text", "text": said}]}
            file.write_text(json.dumps({"type": "assistant", "message": about}) + "\n")
            talk.stop(transcript_path=str(file))
        (kept,) = self.closings(project)
        assert self.KEY[:10] not in kept and "word,[redacted" in kept and len(kept) <= 2000 and kept.endswith("…")

    def test_sub_agents_and_later_stops(self, agent: ScriptedAgent, project: Path) -> None:
        talk = Talk(agent, "claude-code")
        talk.prompt("do")
        talk.stop(last_assistant_message="Half of it.")
        talk.stop(last_assistant_message="All of it.")  # another hook had it go on
        talk.stop(last_assistant_message="I looked.", agent_id="x", agent_type="explorer")
        assert self.closings(project) == ["All of it."]

    def test_purge_forgets_it(self, agent: ScriptedAgent, project: Path) -> None:
        talk = Talk(agent, "claude-code")
        talk.prompt("do")
        talk.edit({"a.txt": "fixed\n"})
        talk.stop(last_assistant_message="Fixed.")
        Workspace(project).purge("a.txt")
        assert self.closings(project) == [""]


def test_empty_turns_are_listed_once_over_pages(agent: ScriptedAgent, project: Path) -> None:
    talk = Talk(agent, "claude-code")
    for number in range(4):
        talk.prompt(f"ask {number}")
        talk.prompt(f"do {number}")
        talk.edit({"a.txt": f"{number}\n"})
    ws, seen, before = Workspace(project), [], None
    while True:
        page = ws.turns(1, before=before)
        seen += [each.number for each in page.turns if each.number]
        before = page.next
        if before is None:
            break
    assert seen == [8, 7, 6, 5, 4, 3, 2, 1]


def test_turn_whose_checkpoints_were_deleted_is_not_empty(agent: ScriptedAgent, project: Path) -> None:
    talk = Talk(agent, "claude-code")
    talk.prompt("do")
    talk.edit({"a.txt": "1\n"})
    talk.prompt("do more")
    talk.edit({"a.txt": "2\n"})
    ws = Workspace(project)
    ws.delete(next(each for each in ws.list() if each.metadata.get("turn_number") == 1))
    assert turns_of(project) == [(2, "claude-code", "do more", 1)]


def test_one_turn_among_others_is_undone_and_named(agent: ScriptedAgent, project: Path) -> None:
    talk = Talk(agent, "claude-code", ids=True)
    (project / "f.txt").write_text("".join(f"{number}\n" for number in range(30)))
    for number in (1, 2, 3):
        talk.prompt(f"change line {number * 8}")
        text = (project / "f.txt").read_text()
        talk.edit({"f.txt": text.replace(f"{number * 8}\n", f"turn {number}\n", 1), f"new{number}": "x"})
        (project / "mine.txt").write_text(f"{number}\n")
    plan = cli(project, "undo", "--turn", "2", "--dry-run")["plan"]
    assert plan["turn"] == {
        "agent": "claude-code",
        "session": "s",
        "turn": "p2",
        "number": 2,
        "prompt": "change line 16",
    }
    shown = subprocess.run(
        [*CLI, "undo", "--turn", "2", "--dry-run"], cwd=project, capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith("Undoing turn 2 of claude-code “change line 16” in ")
    cli(project, "undo", "--turn", "2")
    lines = (project / "f.txt").read_text().splitlines()
    assert (lines[8], lines[16], lines[24]) == ("turn 1", "16", "turn 3")
    assert [(project / f"new{number}").exists() for number in (1, 2, 3)] == [True, False, True]
    assert (project / "mine.txt").read_text() == "3\n"
    cli(project, "undo", "--agent")  # the last one that was not undone
    assert not (project / "new3").exists() and (project / "new1").exists()
    cli(project, "undo", "--agent")  # not the second, which was undone before
    assert not (project / "new1").exists()
    assert (project / "f.txt").read_text() == "".join(f"{number}\n" for number in range(30))


def test_whole_session_is_undone_on_request(agent: ScriptedAgent, project: Path) -> None:
    for session in ("s1", "s2"):
        talk = Talk(agent, "gemini", session)
        for number in (1, 2):
            talk.prompt("go on")
            talk.edit({f"{session}-{number}": "x"})
    cli(project, "undo", "--agent", "--session")
    assert sorted(path.name for path in project.glob("s?-?")) == ["s1-1", "s1-2"]


def test_turn_is_named_by_a_checkpoint_of_it_too(agent: ScriptedAgent, project: Path) -> None:
    talk = Talk(agent, "gemini")
    talk.prompt("one")
    talk.edit({"one": "x"})
    first = Workspace(project).get("latest")
    talk.prompt("two")
    talk.edit({"two": "x"})
    cli(project, "undo", "--turn", first.id)
    assert (project / "two").exists() and not (project / "one").exists()
    assert cli(project, "undo", "--turn", "9", status=3)["error"]["message"] == "there is no turn 9"
    with pytest.raises(NotFound, match="no turn of an agent"):
        Workspace(project).turn(Workspace(project).list()[-1])


def test_lost_turn_log_loses_no_number(agent: ScriptedAgent, project: Path) -> None:
    talk = Talk(agent, "gemini")
    talk.prompt("one")
    talk.edit({"one": "x"})
    ws = Workspace(project)
    (ws.store / "holdfast" / "turns.jsonl").unlink()
    talk.prompt("two")
    talk.edit({"two": "x"})
    assert turns_of(project) == [(2, "gemini", "two", 1), (1, "gemini", "one", 1)]
    cli(project, "undo", "--turn", "1")
    assert (project / "two").exists() and not (project / "one").exists()


class TestHostile:
    def test_subagent_belongs_to_its_turn(self, agent: ScriptedAgent, project: Path) -> None:
        talk = Talk(agent, "claude-code", ids=True)
        talk.prompt("look around")
        talk.edit({"sub.txt": "x"}, sub="e1", turn=77)  # an id of its own
        talk.edit({"main.txt": "x"})
        assert turns_of(project) == [(1, "claude-code", "look around", 2)]
        cli(project, "undo", "--agent")
        assert not (project / "sub.txt").exists() and not (project / "main.txt").exists()

    @pytest.mark.parametrize("ids", [False, True])
    def test_subagent_that_outlives_its_turn(self, ids: bool, agent: ScriptedAgent, project: Path) -> None:
        talk = Talk(agent, "claude-code", ids=ids)
        talk.prompt("start a sub-agent")
        talk.edit({"sub1.txt": "x"}, sub="e1")
        talk.stop()
        talk.prompt("something else")
        talk.edit({"main.txt": "x"})
        talk.edit({"sub2.txt": "x"}, sub="e1")  # of the first turn, in the second
        talk.edit({"last.txt": "x"})
        assert turns_of(project) == [
            (2, "claude-code", "something else", 2),
            (1, "claude-code", "start a sub-agent", 2),
        ]
        cli(project, "undo", "--agent")
        assert (project / "sub1.txt").exists() and (project / "sub2.txt").exists()
        assert not (project / "main.txt").exists() and not (project / "last.txt").exists()
        cli(project, "undo", "--agent")
        assert not (project / "sub1.txt").exists() and not (project / "sub2.txt").exists()

    @pytest.mark.parametrize("has_start", [False, True])
    def test_subagents_with_sessions_of_their_own(self, has_start: bool, agent: ScriptedAgent, project: Path) -> None:
        """Cursor: their events name no parent, and its command line reports no `subagentStart`."""
        main = CursorTalk(agent, "c1")
        main.tell("beforeSubmitPrompt", prompt="start sub-agents")
        tasks = [
            {"tool_use_id": f"task{n}", "tool_input": {"subagent_type": kind}}
            for n, kind in ((1, "explorer"), (2, "fixer"))
        ]
        for task in tasks:
            main.tell("preToolUse", tool_name="Task", **task)
            if has_start:
                main.tell("subagentStart", subagent_id=task["tool_use_id"], subagent_type="explorer")
        subs = [CursorTalk(agent, name) for name in ("c2", "c3")]
        subs[0].edit({"sub1.txt": "x"})
        subs[1].edit({"sub2.txt": "x"})
        for task in tasks:
            main.tell("postToolUse", tool_name="Task", **task)
        main.edit({"main.txt": "x"})
        main.tell("stop", status="completed")
        main.tell("beforeSubmitPrompt", prompt="something else", generation_id="g2")
        subs[0].edit({"late.txt": "x"})  # of the first turn, in the second
        main.edit({"other.txt": "x"}, generation_id="g2")
        assert turns_of(project) == [(2, "cursor", "something else", 1), (1, "cursor", "start sub-agents", 4)]
        made = {name: each.actor for each in Workspace(project).list(None) for name in each.files_changed}
        assert made["sub1.txt"] == made["late.txt"] == "cursor/explorer"
        assert (made["sub2.txt"], made["main.txt"]) == ("cursor/fixer", "cursor")
        cli(project, "undo", "--turn", "1")
        assert not any((project / name).exists() for name in ("sub1.txt", "sub2.txt", "late.txt", "main.txt"))
        assert (project / "other.txt").exists()

    def test_chat_beside_a_subagent_has_turns_of_its_own(self, agent: ScriptedAgent, project: Path) -> None:
        main, other = CursorTalk(agent, "c1"), CursorTalk(agent, "c4")
        main.tell("beforeSubmitPrompt", prompt="start a sub-agent")
        main.tell("preToolUse", tool_name="Task", tool_use_id="task1", tool_input={})
        other.tell("beforeSubmitPrompt", prompt="mine")  # a chat of the user's, before the sub-agent does anything
        other.edit({"other.txt": "x"})
        CursorTalk(agent, "c2").edit({"sub.txt": "x"})
        assert sorted(turns_of(project)) == [(1, "cursor", "start a sub-agent", 1), (2, "cursor", "mine", 1)]
        for each in (main, other):
            each.tell("preToolUse", tool_name="Task", tool_use_id=f"of {each.session}", tool_input={})
        CursorTalk(agent, "c5").edit({"whose.txt": "x"})  # either may have started it
        assert turns_of(project)[0] == (3, "cursor", "", 1)

    def test_two_agents_at_once(self, start: Callable[[], ScriptedAgent], agent: ScriptedAgent, project: Path) -> None:
        one, other = Talk(agent, "claude-code", "c", ids=True), Talk(start(), "gemini", "g")
        one.prompt("one's work")
        other.prompt("other's work")
        one.edit({"one1.txt": "x"})
        other.edit({"other1.txt": "x"})
        end = one.begin(command="make")
        other.edit({"other2.txt": "x"})  # while a tool of the first one runs
        end()
        one.edit({"one2.txt": "x"})
        assert {turn[:3] for turn in turns_of(project)} == {
            (1, "claude-code", "one's work"),
            (2, "gemini", "other's work"),
        }
        cli(project, "undo", "--agent")  # the one that worked last, and only that one
        assert not (project / "one1.txt").exists() and not (project / "one2.txt").exists()
        assert (project / "other1.txt").exists() and (project / "other2.txt").exists()
        cli(project, "undo", "--agent", "gemini")
        assert not (project / "other1.txt").exists()

    def test_agent_in_a_worktree_has_turns_of_its_own(self, agent: ScriptedAgent, project: Path) -> None:
        _git(project, "init", "-q")
        _git(project, "commit", "-q", "--allow-empty", "-m", "first")
        tree = project / ".claude" / "worktrees" / "try"
        _git(project, "worktree", "add", "-q", str(tree))
        talk = Talk(agent, "claude-code", ids=True)
        talk.prompt("in the project")
        talk.edit({"here.txt": "x"})
        agent._project = tree
        inside = Talk(agent, "claude-code", "w", ids=True)
        inside.prompt("in the worktree")
        inside.edit({"there.txt": "x"})
        assert turns_of(tree) == [(1, "claude-code", "in the worktree", 1)]
        assert turns_of(project) == [(1, "claude-code", "in the project", 1)]
        cli(tree, "undo", "--agent")
        assert not (tree / "there.txt").exists() and (project / "here.txt").exists()

    def test_killed_agent_leaves_a_turn_that_can_be_undone(
        self, start: Callable[[], ScriptedAgent], project: Path
    ) -> None:
        first = start()
        talk = Talk(first, "gemini", "g1")
        talk.prompt("die in the middle")
        talk.edit({"one.txt": "x"})
        talk.begin()
        first.change({"half.txt": "x"}, [])
        first.kill()
        second = Talk(start(), "gemini", "g2")
        second.prompt("next")
        (project / "mine.txt").write_text("mine\n")
        second.edit({"two.txt": "x"})
        assert turns_of(project) == [(2, "gemini", "next", 1), (1, "gemini", "die in the middle", 2)]
        cli(project, "undo", "--turn", "1")
        assert not (project / "one.txt").exists() and not (project / "half.txt").exists()
        assert (project / "two.txt").exists() and (project / "mine.txt").exists()

    def test_killed_helper_loses_nothing_of_the_turn(
        self, with_helper: Path, agent: ScriptedAgent, project: Path
    ) -> None:
        talk = Talk(agent, "gemini")
        talk.prompt("go on without a helper")
        talk.edit({"one.txt": "x"})
        end = talk.begin()
        for pid in wait_for(lambda: helpers(with_helper)):
            os.kill(pid, signal.SIGKILL)
        agent.change({"two.txt": "x"}, [])
        end()
        talk.edit({"three.txt": "x"})
        assert turns_of(project) == [(1, "gemini", "go on without a helper", 3)]
        cli(project, "undo", "--agent")
        assert not [name for name in ("one", "two", "three") if (project / f"{name}.txt").exists()]
        assert Workspace(project).verify().ok

    def test_kill_of_everything_in_mid_turn(
        self, start: Callable[[], ScriptedAgent], project: Path, with_helper: Path
    ) -> None:
        first = start()
        talk = Talk(first, "claude-code", "before", ids=True)
        talk.prompt("the machine stops")
        talk.edit({"one.txt": "x"}, sub="e1")
        talk.begin(command="make")
        first.change({"half.txt": "x"}, [])
        for pid in wait_for(lambda: helpers(with_helper)):
            os.kill(pid, signal.SIGKILL)
        first.kill()
        again = Talk(start(), "claude-code", "after", ids=True)
        again.prompt("go on")
        again.edit({"two.txt": "x"})
        assert turns_of(project) == [(2, "claude-code", "go on", 1), (1, "claude-code", "the machine stops", 2)]
        cli(project, "undo", "--turn", "1")
        assert not (project / "one.txt").exists() and not (project / "half.txt").exists()
        assert (project / "two.txt").exists() and Workspace(project).verify().ok

    @pytest.mark.parametrize("moment", ["between tools", "while a tool runs"])
    def test_branch_switch_by_the_person_is_not_undone(self, moment: str, agent: ScriptedAgent, project: Path) -> None:
        _git(project, "init", "-q", "-b", "main")
        _git(project, "add", ".")
        _git(project, "commit", "-q", "-m", "first")
        _git(project, "switch", "-q", "-c", "other")
        (project / "src" / "app.py").write_text("print('other')\n")
        _git(project, "commit", "-q", "-am", "other")
        _git(project, "switch", "-q", "main")
        talk = Talk(agent, "claude-code", ids=True)
        talk.prompt("edit")
        talk.edit({"one.txt": "x"})
        if moment == "between tools":
            _git(project, "switch", "-q", "other")
        end = talk.begin(command="sleep 60")
        if moment != "between tools":
            _git(project, "switch", "-q", "other")
        end()
        talk.edit({"two.txt": "x"})
        switched = next(each for each in Workspace(project).list() if "src/app.py" in each.files_changed)
        assert switched.actor is None
        assert switched.metadata.get("perhaps", []) == ([] if moment == "between tools" else ["claude-code"])
        cli(project, "undo", "--agent")
        assert (project / "src" / "app.py").read_text() == "print('other')\n"
        assert not (project / "one.txt").exists() and not (project / "two.txt").exists()

    def test_branch_switch_by_the_agent_is_the_agents(self, agent: ScriptedAgent, project: Path) -> None:
        _git(project, "init", "-q", "-b", "main")
        _git(project, "add", ".")
        _git(project, "commit", "-q", "-m", "first")
        talk = Talk(agent, "claude-code", ids=True)
        talk.prompt("switch")
        end = talk.begin(command="git switch -c other && make")
        _git(project, "switch", "-q", "-c", "other")
        (project / "built.txt").write_text("x")
        end()
        assert Workspace(project).get("latest").actor == "claude-code"
        assert Workspace(project).get("latest").metadata["perhaps"] == ["user"]


def _git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@x", "-C", str(folder), *words], check=True, capture_output=True
    )
