"""Whose changes these are, decided from what is open; no disk, no clock."""

from __future__ import annotations

from dataclasses import replace

from holdfast.adapters.agents.event import Event, Kind
from holdfast.adapters.agents.ledger import Ledger, ledger_folder
from holdfast.adapters.agents.windows import Blame, Windows, after, blame, is_repeated


class Scene:
    """Plays events and asks whose the changes found at each are."""

    def __init__(self) -> None:
        self.windows = Windows()
        self.now = 1000.0
        self.dead: set[str] = set()

    def at(self, kind: Kind, tool_use: str = "", *, agent: str = "claude-code", session: str = "s", **more) -> Blame:
        event = Event(agent, kind, kind.value, session=session, tool_use=tool_use, tool="Bash", **more)
        found = blame(self.windows, event)
        self.windows = after(
            self.windows, event, now=self.now, owner=f"{agent}-{session}", is_alive=lambda owner: owner not in self.dead
        )
        return found


def test_between_tools_it_is_the_user_and_within_one_the_agent():
    scene = Scene()
    assert scene.at(Kind.START).actor is None
    assert scene.at(Kind.PROMPT).actor is None
    assert scene.at(Kind.BEFORE, "1").actor is None
    assert scene.at(Kind.AFTER, "1") == Blame("claude-code", "s")
    assert scene.at(Kind.BEFORE, "2").actor is None
    scene.at(Kind.AFTER, "2")
    assert scene.at(Kind.STOP).actor is None
    assert scene.at(Kind.END).actor is None


def test_a_tool_of_whose_beginning_nobody_told_is_the_agents_and_perhaps_the_users():
    scene = Scene()
    scene.at(Kind.PROMPT)
    assert scene.at(Kind.AFTER, "1") == Blame("claude-code", "s", ("user",))


def test_what_the_first_look_of_a_session_finds_is_the_users():
    scene = Scene()
    assert scene.at(Kind.AFTER, "1") == Blame(None, "s", ("claude-code",))  # as when the ledger was lost
    assert scene.at(Kind.AFTER, "2") == Blame("claude-code", "s", ("user",))
    scene.at(Kind.STOP)
    assert scene.at(Kind.AFTER, "3") == Blame(None, "s", ("claude-code",))  # resumed, and nobody told


def test_an_agent_that_joins_late_is_not_blamed_for_another():
    scene = Scene()
    scene.at(Kind.BEFORE, "1")
    assert scene.at(Kind.AFTER, "9", agent="gemini") == Blame("claude-code", "s", ("gemini", "user"))


def test_a_session_that_another_process_goes_on_with_begins_anew():
    scene = Scene()
    scene.at(Kind.PROMPT)
    event = Event("claude-code", Kind.AFTER, "PostToolUse", session="s", tool_use="1", tool="Bash")
    assert blame(scene.windows, event, owner="claude-code-s").actor == "claude-code"
    assert blame(scene.windows, event, owner="another") == Blame(None, "s", ("claude-code",))


def test_a_tool_that_begins_beside_another_finds_the_work_of_the_agent():
    scene = Scene()
    scene.at(Kind.BEFORE, "1")
    assert scene.at(Kind.BEFORE, "2").actor == "claude-code"
    scene.at(Kind.AFTER, "1")
    assert scene.at(Kind.PROMPT).actor == "claude-code"


def test_an_interrupted_tool_is_the_agents_and_perhaps_the_users():
    scene = Scene()
    scene.at(Kind.BEFORE, "1")
    assert scene.at(Kind.PROMPT) == Blame("claude-code", "s", ("user",))
    assert scene.at(Kind.BEFORE, "2").actor is None


def test_an_agent_that_died_within_a_tool_is_blamed_once_by_whoever_comes_next():
    scene = Scene()
    scene.at(Kind.BEFORE, "1", session="dead")
    scene.dead.add("claude-code-dead")
    assert scene.at(Kind.START, session="new") == Blame("claude-code", "dead", ("user",))
    assert scene.at(Kind.PROMPT, session="new").actor is None


def test_what_an_agent_that_died_had_begun_in_the_background_is_doubted_once():
    scene = Scene()
    scene.at(Kind.BEFORE, "1", session="dead", background=True)
    scene.at(Kind.AFTER, "1", session="dead", background=True)
    scene.dead.add("claude-code-dead")
    assert scene.at(Kind.START, session="new") == Blame(None, "new", ("claude-code",))
    assert scene.at(Kind.PROMPT, session="new") == Blame(None, "new")


def test_one_whose_process_is_not_known_is_believed_for_hours_only():
    scene = Scene()
    event = Event("claude-code", Kind.BEFORE, "PreToolUse", session="gone", tool_use="1", tool="Bash")
    scene.windows = after(scene.windows, event, now=0.0, owner="", is_alive=lambda owner: True)
    scene.now = 7 * 3600.0
    assert scene.at(Kind.START, session="new").actor == "claude-code"
    assert scene.at(Kind.PROMPT, session="new").actor is None


def test_of_two_agents_at_once_the_one_with_a_tool_running_did_it():
    scene = Scene()
    scene.at(Kind.BEFORE, "1", agent="claude-code")
    assert scene.at(Kind.BEFORE, "1", agent="gemini") == Blame("claude-code", "s")
    assert scene.at(Kind.AFTER, "1", agent="gemini") == Blame("gemini", "s", ("claude-code",))
    assert scene.at(Kind.AFTER, "1", agent="claude-code") == Blame("claude-code", "s")


def test_a_sub_agent_has_its_own_windows_and_whoever_sent_it_has_none():
    scene = Scene()
    scene.at(Kind.BEFORE, "task", delegates=True)
    assert scene.at(Kind.BEFORE, "1", sub="explorer", sub_id="a1").actor is None
    assert scene.at(Kind.AFTER, "1", sub="explorer", sub_id="a1").actor == "claude-code/explorer"
    scene.at(Kind.BEFORE, "2", sub="explorer", sub_id="a1")
    assert scene.at(Kind.SUB_STOP, sub="explorer", sub_id="a1").actor == "claude-code/explorer"
    assert scene.at(Kind.AFTER, "task", delegates=True).actor is None


def test_a_sub_agent_in_a_session_of_its_own_has_its_own_windows_and_whoever_sent_it_has_none():
    scene = Scene()
    scene.at(Kind.BEFORE, "task", agent="opencode", delegates=True)
    assert scene.at(Kind.BEFORE, "1", agent="opencode", session="sub").actor is None
    assert scene.at(Kind.AFTER, "1", agent="opencode", session="sub") == Blame("opencode", "sub")
    assert scene.at(Kind.PROMPT, agent="gemini").actor is None
    assert scene.at(Kind.AFTER, "task", agent="opencode", delegates=True).actor is None


def test_another_agent_is_nobody_that_work_was_given_to():
    scene = Scene()
    scene.at(Kind.BEFORE, "task", agent="opencode", delegates=True)
    assert scene.at(Kind.BEFORE, "1", agent="gemini") == Blame("opencode", "s")
    assert scene.at(Kind.AFTER, "task", agent="opencode", delegates=True).actor == "opencode"


def test_where_sub_agents_are_not_told_of_their_work_is_that_of_whoever_sent_them():
    scene = Scene()
    scene.at(Kind.BEFORE, "task", delegates=True)
    assert scene.at(Kind.AFTER, "task", delegates=True).actor == "claude-code"


def test_what_goes_on_in_the_background_is_the_agents_during_its_turn_and_perhaps_its_later():
    scene = Scene()
    scene.at(Kind.PROMPT)
    scene.at(Kind.BEFORE, "1", background=True)
    scene.at(Kind.AFTER, "1", background=True)
    assert scene.at(Kind.BEFORE, "2") == Blame("claude-code", "s", ("user",))
    scene.at(Kind.AFTER, "2")
    scene.at(Kind.STOP)
    assert scene.at(Kind.PROMPT) == Blame(None, "s", ("claude-code",))
    scene.at(Kind.END)
    assert scene.at(Kind.START) == Blame(None, "s")


def test_what_an_agent_says_of_its_background_at_the_end_of_a_turn_is_believed():
    scene = Scene()
    scene.at(Kind.BEFORE, "1", background=True)
    scene.at(Kind.AFTER, "1", background=True)
    scene.at(Kind.STOP, still_running=True)
    assert scene.at(Kind.PROMPT) == Blame(None, "s", ("claude-code",))
    scene.at(Kind.STOP, still_running=False)
    assert scene.at(Kind.PROMPT) == Blame(None, "s")


def test_a_tool_that_goes_on_after_the_turn_is_in_the_background_where_the_agent_tells_ends_reliably():
    scene = Scene()
    for still_running, actor in ((True, "codex"), (None, None)):
        scene.at(Kind.START, agent="codex")
        scene.at(Kind.BEFORE, "1", agent="codex")
        assert scene.at(Kind.STOP, agent="codex", still_running=still_running).actor == "codex"
        scene.at(Kind.PROMPT, agent="codex")
        assert scene.at(Kind.BEFORE, "2", agent="codex").actor == actor


def test_of_what_goes_on_after_the_turn_the_end_is_told_by_its_id():
    scene = Scene()
    scene.at(Kind.BEFORE, "1", agent="codex")
    scene.at(Kind.BEFORE, "2", agent="codex")
    scene.at(Kind.STOP, agent="codex", still_running=True)
    scene.at(Kind.PROMPT, agent="codex")
    assert scene.at(Kind.AFTER, "1", agent="codex").actor == "codex"
    assert scene.at(Kind.BEFORE, "3", agent="codex") == Blame("codex", "s", ("user",))  # the other goes on
    scene.at(Kind.AFTER, "3", agent="codex")
    scene.at(Kind.AFTER, "2", agent="codex")
    assert scene.at(Kind.BEFORE, "4", agent="codex").actor is None


def test_a_tool_that_was_denied_is_closed_by_the_end_of_its_step():
    scene = Scene()
    scene.at(Kind.BEFORE, "1")
    assert scene.at(Kind.BATCH).perhaps == ("user",)
    assert scene.at(Kind.BEFORE, "2").actor is None


def test_where_no_event_of_a_tool_ever_comes_the_end_of_the_turn_tells_of_the_agent():
    scene = Scene()
    scene.at(Kind.PROMPT)
    assert scene.at(Kind.STOP) == Blame("claude-code", "s", ("user",))
    assert scene.at(Kind.PROMPT).actor is None


def test_tools_without_ids_are_closed_in_their_order():
    scene = Scene()
    for _ in range(2):
        scene.at(Kind.BEFORE)
    scene.at(Kind.AFTER)
    assert scene.at(Kind.BEFORE).actor == "claude-code"
    scene.at(Kind.AFTER)
    scene.at(Kind.AFTER)
    assert scene.at(Kind.BEFORE).actor is None


def test_an_event_is_known_again_by_its_ids_and_not_otherwise():
    scene = Scene()
    scene.at(Kind.BEFORE, "1")
    event = Event("claude-code", Kind.BEFORE, "PreToolUse", session="s", tool_use="1")
    assert is_repeated(scene.windows, event)
    for other in ({"tool_use": "2"}, {"session": "t"}, {"agent": "cursor"}, {"kind": Kind.AFTER}, {"tool_use": ""}):
        assert not is_repeated(scene.windows, replace(event, **other))


def test_a_turn_that_stops_and_goes_on_stops_again():
    """As when a hook of somebody else tells the agent to go on."""
    scene = Scene()
    scene.at(Kind.PROMPT, turn="p")
    scene.at(Kind.STOP, turn="p")
    scene.at(Kind.BEFORE, "1", turn="p")
    assert scene.at(Kind.STOP, turn="p").actor == "claude-code"
    assert not is_repeated(scene.windows, Event("claude-code", Kind.STOP, "Stop", session="s", turn="p"))
    assert is_repeated(scene.windows, Event("claude-code", Kind.PROMPT, "UserPromptSubmit", session="s", turn="p"))


def test_an_id_that_comes_again_once_its_tool_has_ended_is_not_passed_over_and_nobody_is_sure_whose_it_is():
    scene = Scene()
    for doubt in ((), ("user",), ("user",)):
        assert scene.at(Kind.BEFORE, "1").actor is None
        assert is_repeated(scene.windows, tool(Kind.BEFORE))
        assert not is_repeated(scene.windows, tool(Kind.AFTER))
        assert scene.at(Kind.AFTER, "1") == Blame("claude-code", "s", doubt)
        assert is_repeated(scene.windows, tool(Kind.AFTER))
        assert not is_repeated(scene.windows, tool(Kind.BEFORE))


def test_an_id_that_comes_again_in_another_turn_is_that_of_another_tool():
    for another in (Kind.PROMPT, Kind.START, Kind.END):
        scene = Scene()
        scene.at(Kind.BEFORE, "1")
        scene.at(another, turn="2")
        assert not is_repeated(scene.windows, tool(Kind.BEFORE))
        assert scene.at(Kind.BEFORE, "1").actor is None
        assert scene.at(Kind.AFTER, "1") == Blame("claude-code", "s")


def tool(kind: Kind) -> Event:
    return Event("claude-code", kind, kind.value, session="s", tool_use="1", tool="Bash")


def test_what_is_remembered_stays_small():
    scene = Scene()
    for number in range(1000):
        scene.now += 1
        scene.at(Kind.BEFORE, str(number))
        scene.at(Kind.STOP, session=str(number))
    assert len(scene.windows.sessions) <= 32
    assert all(len(session.seen) <= 64 for session in scene.windows.sessions.values())


def test_windows_come_back_from_disk_as_they_were(tmp_path):
    scene = Scene()
    scene.at(Kind.BEFORE, "1", background=True, sub="explorer", sub_id="a")
    scene.at(Kind.AFTER, "2", background=True)
    ledger = Ledger(tmp_path)
    ledger.write(scene.windows)
    assert ledger.read() == scene.windows


def test_a_torn_file_leaves_the_one_before_it_and_nothing_readable_leaves_none(tmp_path):
    scene = Scene()
    ledger, folder = Ledger(tmp_path), ledger_folder(tmp_path)
    for number in range(3):
        scene.at(Kind.BEFORE, f"tool-{number}")
        ledger.write(scene.windows)
    (only,) = folder.glob("windows-*")
    whole = only.read_bytes()
    for damage in (b"", b"\n", whole[:-9], whole.replace(b"tool-2", b"tool-3"), b"00000000\n[]\n", b"\xff\n\xff"):
        (folder / "windows-4").write_bytes(damage)  # a kill while it was being written
        assert ledger.read() == scene.windows
        only.rename(folder / "aside")
        assert ledger.read() == Windows()
        (folder / "aside").rename(only)
    ledger.write(scene.windows)
    assert [path.name for path in folder.glob("windows-*")] == ["windows-5"]
