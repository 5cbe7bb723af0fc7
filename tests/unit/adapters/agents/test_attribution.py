"""Whose changes these are, decided from what is open; no disk, no clock."""

from __future__ import annotations

from dataclasses import replace

from holdfast.adapters.agents.attribution import AgentSessions, ChangeAuthor, apply_event, find_author, is_repeated
from holdfast.adapters.agents.event import AgentEvent, EventKind
from holdfast.adapters.agents.parent_process import session_folder
from holdfast.adapters.agents.session_file import SessionFile


class Scene:
    """Plays events and asks whose the changes found at each are."""

    def __init__(self) -> None:
        self.windows = AgentSessions()
        self.now = 1000.0
        self.dead: set[str] = set()

    def at(
        self, kind: EventKind, tool_use: str = "", *, agent: str = "claude-code", session: str = "s", **more
    ) -> ChangeAuthor:
        event = AgentEvent(agent, kind, kind.value, session=session, tool_use=tool_use, tool="Bash", **more)
        found = find_author(self.windows, event)
        self.windows = apply_event(
            self.windows, event, now=self.now, owner=f"{agent}-{session}", is_alive=lambda owner: owner not in self.dead
        )
        return found


def test_between_tools_it_is_the_user_and_within_one_the_agent():
    scene = Scene()
    assert scene.at(EventKind.START).actor is None
    assert scene.at(EventKind.PROMPT).actor is None
    assert scene.at(EventKind.BEFORE, "1").actor is None
    assert scene.at(EventKind.AFTER, "1") == ChangeAuthor("claude-code", "s")
    assert scene.at(EventKind.BEFORE, "2").actor is None
    scene.at(EventKind.AFTER, "2")
    assert scene.at(EventKind.STOP).actor is None
    assert scene.at(EventKind.END).actor is None


def test_tool_without_start_event_is_the_agents_with_doubt():
    scene = Scene()
    scene.at(EventKind.PROMPT)
    assert scene.at(EventKind.AFTER, "1") == ChangeAuthor("claude-code", "s", ("user",))


def test_what_the_first_look_of_a_session_finds_is_the_users():
    scene = Scene()
    assert scene.at(EventKind.AFTER, "1") == ChangeAuthor(None, "s", ("claude-code",))  # as when the ledger was lost
    assert scene.at(EventKind.AFTER, "2") == ChangeAuthor("claude-code", "s", ("user",))
    scene.at(EventKind.STOP)
    assert scene.at(EventKind.AFTER, "3") == ChangeAuthor(None, "s", ("claude-code",))  # resumed, and nobody told


def test_an_agent_that_joins_late_is_not_blamed_for_another():
    scene = Scene()
    scene.at(EventKind.BEFORE, "1")
    assert scene.at(EventKind.AFTER, "9", agent="gemini") == ChangeAuthor("claude-code", "s", ("gemini", "user"))


def test_a_session_that_another_process_goes_on_with_begins_anew():
    scene = Scene()
    scene.at(EventKind.PROMPT)
    event = AgentEvent("claude-code", EventKind.AFTER, "PostToolUse", session="s", tool_use="1", tool="Bash")
    assert find_author(scene.windows, event, owner="claude-code-s").actor == "claude-code"
    assert find_author(scene.windows, event, owner="another") == ChangeAuthor(None, "s", ("claude-code",))


def test_tool_beside_another_finds_the_agents_work():
    scene = Scene()
    scene.at(EventKind.BEFORE, "1")
    assert scene.at(EventKind.BEFORE, "2").actor == "claude-code"
    scene.at(EventKind.AFTER, "1")
    assert scene.at(EventKind.PROMPT).actor == "claude-code"


def test_an_interrupted_tool_is_the_agents_and_perhaps_the_users():
    scene = Scene()
    scene.at(EventKind.BEFORE, "1")
    assert scene.at(EventKind.PROMPT) == ChangeAuthor("claude-code", "s", ("user",))
    assert scene.at(EventKind.BEFORE, "2").actor is None


def test_dead_agents_tool_is_attributed_once():
    scene = Scene()
    scene.at(EventKind.BEFORE, "1", session="dead")
    scene.dead.add("claude-code-dead")
    assert scene.at(EventKind.START, session="new") == ChangeAuthor("claude-code", "dead", ("user",))
    assert scene.at(EventKind.PROMPT, session="new").actor is None


def test_dead_agents_background_work_is_doubted_once():
    scene = Scene()
    scene.at(EventKind.BEFORE, "1", session="dead", background=True)
    scene.at(EventKind.AFTER, "1", session="dead", background=True)
    scene.dead.add("claude-code-dead")
    assert scene.at(EventKind.START, session="new") == ChangeAuthor(None, "new", ("claude-code",))
    assert scene.at(EventKind.PROMPT, session="new") == ChangeAuthor(None, "new")


def test_agent_of_unknown_process_expires_after_hours():
    scene = Scene()
    event = AgentEvent("claude-code", EventKind.BEFORE, "PreToolUse", session="gone", tool_use="1", tool="Bash")
    scene.windows = apply_event(scene.windows, event, now=0.0, owner="", is_alive=lambda owner: True)
    scene.now = 7 * 3600.0
    assert scene.at(EventKind.START, session="new").actor == "claude-code"
    assert scene.at(EventKind.PROMPT, session="new").actor is None


def test_of_two_agents_the_one_with_a_running_tool_did_it():
    scene = Scene()
    scene.at(EventKind.BEFORE, "1", agent="claude-code")
    assert scene.at(EventKind.BEFORE, "1", agent="gemini") == ChangeAuthor("claude-code", "s")
    assert scene.at(EventKind.AFTER, "1", agent="gemini") == ChangeAuthor("gemini", "s", ("claude-code",))
    assert scene.at(EventKind.AFTER, "1", agent="claude-code") == ChangeAuthor("claude-code", "s")


def test_subagent_has_its_own_turns_and_its_parent_none():
    scene = Scene()
    scene.at(EventKind.BEFORE, "task", delegates=True)
    assert scene.at(EventKind.BEFORE, "1", sub="explorer", sub_id="a1").actor is None
    assert scene.at(EventKind.AFTER, "1", sub="explorer", sub_id="a1").actor == "claude-code/explorer"
    scene.at(EventKind.BEFORE, "2", sub="explorer", sub_id="a1")
    assert scene.at(EventKind.SUB_STOP, sub="explorer", sub_id="a1").actor == "claude-code/explorer"
    assert scene.at(EventKind.AFTER, "task", delegates=True).actor is None


def test_subagent_in_its_own_session_has_its_own_turns():
    scene = Scene()
    scene.at(EventKind.BEFORE, "task", agent="opencode", delegates=True)
    assert scene.at(EventKind.BEFORE, "1", agent="opencode", session="sub").actor is None
    assert scene.at(EventKind.AFTER, "1", agent="opencode", session="sub") == ChangeAuthor("opencode", "sub")
    assert scene.at(EventKind.PROMPT, agent="gemini").actor is None
    assert scene.at(EventKind.AFTER, "task", agent="opencode", delegates=True).actor is None


def test_another_agent_is_nobody_that_work_was_given_to():
    scene = Scene()
    scene.at(EventKind.BEFORE, "task", agent="opencode", delegates=True)
    assert scene.at(EventKind.BEFORE, "1", agent="gemini") == ChangeAuthor("opencode", "s")
    assert scene.at(EventKind.AFTER, "task", agent="opencode", delegates=True).actor == "opencode"


def test_unreported_subagent_work_is_the_parents():
    scene = Scene()
    scene.at(EventKind.BEFORE, "task", delegates=True)
    assert scene.at(EventKind.AFTER, "task", delegates=True).actor == "claude-code"


def test_background_work_is_the_agents_in_its_turn_then_doubted():
    scene = Scene()
    scene.at(EventKind.PROMPT)
    scene.at(EventKind.BEFORE, "1", background=True)
    scene.at(EventKind.AFTER, "1", background=True)
    assert scene.at(EventKind.BEFORE, "2") == ChangeAuthor("claude-code", "s", ("user",))
    scene.at(EventKind.AFTER, "2")
    scene.at(EventKind.STOP)
    assert scene.at(EventKind.PROMPT) == ChangeAuthor(None, "s", ("claude-code",))
    scene.at(EventKind.END)
    assert scene.at(EventKind.START) == ChangeAuthor(None, "s")


def test_agents_report_of_background_work_is_believed():
    scene = Scene()
    scene.at(EventKind.BEFORE, "1", background=True)
    scene.at(EventKind.AFTER, "1", background=True)
    scene.at(EventKind.STOP, still_running=True)
    assert scene.at(EventKind.PROMPT) == ChangeAuthor(None, "s", ("claude-code",))
    scene.at(EventKind.STOP, still_running=False)
    assert scene.at(EventKind.PROMPT) == ChangeAuthor(None, "s")


def test_tool_running_after_the_turn_is_in_the_background():
    scene = Scene()
    for still_running, actor in ((True, "codex"), (None, None)):
        scene.at(EventKind.START, agent="codex")
        scene.at(EventKind.BEFORE, "1", agent="codex")
        assert scene.at(EventKind.STOP, agent="codex", still_running=still_running).actor == "codex"
        scene.at(EventKind.PROMPT, agent="codex")
        assert scene.at(EventKind.BEFORE, "2", agent="codex").actor == actor


def test_background_tool_ends_by_its_id():
    scene = Scene()
    scene.at(EventKind.BEFORE, "1", agent="codex")
    scene.at(EventKind.BEFORE, "2", agent="codex")
    scene.at(EventKind.STOP, agent="codex", still_running=True)
    scene.at(EventKind.PROMPT, agent="codex")
    assert scene.at(EventKind.AFTER, "1", agent="codex").actor == "codex"
    assert scene.at(EventKind.BEFORE, "3", agent="codex") == ChangeAuthor("codex", "s", ("user",))  # the other goes on
    scene.at(EventKind.AFTER, "3", agent="codex")
    scene.at(EventKind.AFTER, "2", agent="codex")
    assert scene.at(EventKind.BEFORE, "4", agent="codex").actor is None


def test_a_tool_that_was_denied_is_closed_by_the_end_of_its_step():
    scene = Scene()
    scene.at(EventKind.BEFORE, "1")
    assert scene.at(EventKind.BATCH).perhaps == ("user",)
    assert scene.at(EventKind.BEFORE, "2").actor is None


def test_without_tool_events_the_end_of_turn_counts():
    scene = Scene()
    scene.at(EventKind.PROMPT)
    assert scene.at(EventKind.STOP) == ChangeAuthor("claude-code", "s", ("user",))
    assert scene.at(EventKind.PROMPT).actor is None


def test_tools_without_ids_are_closed_in_their_order():
    scene = Scene()
    for _ in range(2):
        scene.at(EventKind.BEFORE)
    scene.at(EventKind.AFTER)
    assert scene.at(EventKind.BEFORE).actor == "claude-code"
    scene.at(EventKind.AFTER)
    scene.at(EventKind.AFTER)
    assert scene.at(EventKind.BEFORE).actor is None


def test_an_event_is_known_again_by_its_ids_and_not_otherwise():
    scene = Scene()
    scene.at(EventKind.BEFORE, "1")
    event = AgentEvent("claude-code", EventKind.BEFORE, "PreToolUse", session="s", tool_use="1")
    assert is_repeated(scene.windows, event)
    for other in (
        {"tool_use": "2"},
        {"session": "t"},
        {"agent": "cursor"},
        {"kind": EventKind.AFTER},
        {"tool_use": ""},
    ):
        assert not is_repeated(scene.windows, replace(event, **other))


def test_a_turn_that_stops_and_goes_on_stops_again():
    """As when a hook of somebody else tells the agent to go on."""
    scene = Scene()
    scene.at(EventKind.PROMPT, turn="p")
    scene.at(EventKind.STOP, turn="p")
    scene.at(EventKind.BEFORE, "1", turn="p")
    assert scene.at(EventKind.STOP, turn="p").actor == "claude-code"
    assert not is_repeated(scene.windows, AgentEvent("claude-code", EventKind.STOP, "Stop", session="s", turn="p"))
    assert is_repeated(
        scene.windows, AgentEvent("claude-code", EventKind.PROMPT, "UserPromptSubmit", session="s", turn="p")
    )


def test_reused_id_of_an_ended_tool_is_in_doubt():
    scene = Scene()
    for doubt in ((), ("user",), ("user",)):
        assert scene.at(EventKind.BEFORE, "1").actor is None
        assert is_repeated(scene.windows, tool(EventKind.BEFORE))
        assert not is_repeated(scene.windows, tool(EventKind.AFTER))
        assert scene.at(EventKind.AFTER, "1") == ChangeAuthor("claude-code", "s", doubt)
        assert is_repeated(scene.windows, tool(EventKind.AFTER))
        assert not is_repeated(scene.windows, tool(EventKind.BEFORE))


def test_reused_id_in_another_turn_is_another_tool():
    for another in (EventKind.PROMPT, EventKind.START, EventKind.END):
        scene = Scene()
        scene.at(EventKind.BEFORE, "1")
        scene.at(another, turn="2")
        assert not is_repeated(scene.windows, tool(EventKind.BEFORE))
        assert scene.at(EventKind.BEFORE, "1").actor is None
        assert scene.at(EventKind.AFTER, "1") == ChangeAuthor("claude-code", "s")


def tool(kind: EventKind) -> AgentEvent:
    return AgentEvent("claude-code", kind, kind.value, session="s", tool_use="1", tool="Bash")


def test_what_is_remembered_stays_small():
    scene = Scene()
    for number in range(1000):
        scene.now += 1
        scene.at(EventKind.BEFORE, str(number))
        scene.at(EventKind.STOP, session=str(number))
    assert len(scene.windows.sessions) <= 32
    assert all(len(session.seen) <= 64 for session in scene.windows.sessions.values())


def test_windows_come_back_from_disk_as_they_were(tmp_path):
    scene = Scene()
    scene.at(EventKind.BEFORE, "1", background=True, sub="explorer", sub_id="a")
    scene.at(EventKind.AFTER, "2", background=True)
    ledger = SessionFile(tmp_path)
    ledger.write(scene.windows)
    assert ledger.read() == scene.windows


def test_torn_session_file_falls_back_to_the_previous_one(tmp_path):
    scene = Scene()
    ledger, folder = SessionFile(tmp_path), session_folder(tmp_path)
    for number in range(3):
        scene.at(EventKind.BEFORE, f"tool-{number}")
        ledger.write(scene.windows)
    (only,) = folder.glob("windows-*")
    whole = only.read_bytes()
    for damage in (b"", b"\n", whole[:-9], whole.replace(b"tool-2", b"tool-3"), b"00000000\n[]\n", b"\xff\n\xff"):
        (folder / "windows-4").write_bytes(damage)  # a kill while it was being written
        assert ledger.read() == scene.windows
        only.rename(folder / "aside")
        assert ledger.read() == AgentSessions()
        (folder / "aside").rename(only)
    ledger.write(scene.windows)
    assert [path.name for path in folder.glob("windows-*")] == ["windows-5"]
