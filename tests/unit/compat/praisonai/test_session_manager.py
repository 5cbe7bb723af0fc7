"""Checkpoints before the turns of a session, and files and conversation going back together."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.compat.praisonai.session_manager import SessionCheckpointManager

ON = {"checkpoints": {"auto": True}}


class Conversation:
    """A conversation store that can do what a manager may ask for."""

    def __init__(self, *messages: str) -> None:
        self.messages = list(messages)

    def get_messages(self, session_id: str) -> list[str]:
        return list(self.messages)

    def revert_to_message(self, session_id: str, index: int) -> bool:
        if not 0 <= index < len(self.messages):
            return False
        del self.messages[index + 1 :]
        return True


class Clearable(Conversation):
    def clear_messages(self, session_id: str) -> bool:
        self.messages = []
        return True


def made(workspace: Path, store: Any = None, session: str | None = None) -> SessionCheckpointManager:
    return SessionCheckpointManager.from_config(str(workspace), ON, session_store=store, session_id=session)


@pytest.fixture
def target(workspace: Path) -> Path:
    (workspace / "module.py").write_text("v0\n")
    return workspace / "module.py"


class TestSwitching:
    def test_off_by_default(self, workspace: Path) -> None:
        manager = SessionCheckpointManager.from_config(str(workspace))
        assert manager.enabled is False
        assert (manager.checkpoint_turn("x"), manager.revert(), manager.turns, manager.diff()) == (None, None, [], None)
        assert manager.dropped_message_count() is None

    @pytest.mark.parametrize(
        ("environment", "config", "default", "enabled"),
        [
            (None, None, True, True),
            (None, {"checkpoints": {"auto": False}}, True, False),
            (None, ON, False, True),
            (None, {"checkpoints": "yes"}, False, False),
            ("on", {"checkpoints": {"auto": False}}, False, True),
            (" TRUE ", None, False, True),
            ("off", ON, True, False),
        ],
    )
    def test_environment_then_configuration_then_default(
        self,
        workspace: Path,
        monkeypatch: pytest.MonkeyPatch,
        environment: str | None,
        config: Any,
        default: bool,
        enabled: bool,
    ) -> None:
        if environment is not None:
            monkeypatch.setenv("PRAISONAI_CHECKPOINTS", environment)
        assert SessionCheckpointManager.from_config(str(workspace), config, default=default).enabled is enabled

    def test_the_storage_folder_reaches_the_store(self, workspace: Path, tmp_path: Path) -> None:
        config = {"checkpoints": {"auto": True, "storage_dir": str(tmp_path / "stores")}}
        manager = SessionCheckpointManager.from_config(str(workspace), config)
        assert manager.storage_dir == manager._get_handler().storage_dir == str(tmp_path / "stores")
        manager.checkpoint_turn("x")
        assert (tmp_path / "stores").is_dir()


class TestReverting:
    def test_a_turn(self, workspace: Path, target: Path) -> None:
        manager = made(workspace)
        assert manager.checkpoint_turn("session start") is not None
        saved = manager.checkpoint_turn("refactor")
        target.write_text("rewritten\n")
        turn = manager.revert(1)
        assert turn is not None and (turn.turn, turn.checkpoint_id, turn.message) == (2, saved, "turn 2: refactor")
        assert target.read_text() == "v0\n"

    def test_one_after_the_other_walks_back(self, workspace: Path, target: Path) -> None:
        manager = made(workspace)
        for text in ("v1\n", "v2\n"):
            manager.checkpoint_turn("edit")
            target.write_text(text)
        assert len(manager.turns) == 2
        assert manager.revert() and target.read_text() == "v1\n" and len(manager.turns) == 1
        assert manager.revert() and target.read_text() == "v0\n" and manager.turns == []
        assert manager.revert() is None

    def test_several_at_once(self, workspace: Path, target: Path) -> None:
        manager = made(workspace)
        for text in ("v1\n", "v2\n", "v3\n"):
            manager.checkpoint_turn("edit")
            target.write_text(text)
        assert manager.revert(2) and target.read_text() == "v1\n" and len(manager.turns) == 1

    def test_more_than_there_are(self, workspace: Path, target: Path) -> None:
        manager = made(workspace)
        manager.checkpoint_turn("start")
        target.write_text("v1\n")
        assert manager.revert(5) is None and target.read_text() == "v1\n"

    def test_within_a_running_loop(self, workspace: Path, target: Path) -> None:
        manager = made(workspace)

        async def loop() -> None:
            manager.checkpoint_turn("edit")
            target.write_text("v1\n")
            assert manager.revert() is not None

        asyncio.run(loop())
        assert target.read_text() == "v0\n"

    def test_a_folder_that_cannot_be_saved_breaks_no_turn(self, home: Path, caplog: pytest.LogCaptureFixture) -> None:
        assert made(home).checkpoint_turn("x") is None
        assert "no checkpoint was saved before the turn" in caplog.text


class TestConversation:
    def test_goes_back_with_the_files(self, workspace: Path, target: Path) -> None:
        store = Conversation("u1", "a1")
        manager = made(workspace, store, "sid")
        manager.checkpoint_turn("refactor")
        target.write_text("v1\n")
        store.messages += ["a2", "a3"]
        assert manager.dropped_message_count(1) == 2
        assert manager.revert() and target.read_text() == "v0\n" and store.messages == ["u1", "a1"]

    def test_to_its_very_beginning(self, workspace: Path, target: Path) -> None:
        store = Clearable()
        manager = made(workspace, store, "sid")
        manager.checkpoint_turn("first")
        store.messages += ["u1", "a1"]
        assert manager.revert() and store.messages == []

    def test_a_store_that_cannot_be_emptied_keeps_all_of_it(self, workspace: Path, target: Path) -> None:
        store = Conversation()
        manager = made(workspace, store, "sid")
        manager.checkpoint_turn("first")
        target.write_text("v1\n")
        store.messages += ["u1", "a1"]
        assert manager.revert() and target.read_text() == "v0\n" and store.messages == ["u1", "a1"]

    def test_without_a_store_only_files_count(self, workspace: Path, target: Path) -> None:
        manager = made(workspace)
        manager.checkpoint_turn("x")
        assert manager.dropped_message_count(1) is None and manager.turns[0].message_count is None

    def test_the_other_form_of_a_store_is_counted_too(self, workspace: Path, target: Path) -> None:
        class Extended:
            messages = ("u1", "a1")

            def get_messages(self, session_id: str) -> None:
                return None

            def get_extended_session(self, session_id: str) -> Extended:
                return self

        manager = made(workspace, Extended(), "sid")
        manager.checkpoint_turn("x")
        assert manager.turns[0].message_count == 2

    def test_a_store_that_cannot_be_counted_breaks_no_turn(
        self, workspace: Path, target: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken:
            def get_messages(self, session_id: str) -> list[str]:
                raise OSError("the database is gone")

        manager = made(workspace, Broken(), "sid")
        assert manager.checkpoint_turn("x") and manager.turns[0].message_count is None
        assert "the database is gone" in caplog.text

    def test_if_it_cannot_go_back_the_files_do_not_either(
        self, workspace: Path, target: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken(Conversation):
            def revert_to_message(self, session_id: str, index: int) -> bool:
                raise OSError("the database is gone")

        manager = made(workspace, Broken("u1"), "sid")
        manager.checkpoint_turn("x")
        target.write_text("v1\n")
        assert manager.revert() is None and target.read_text() == "v1\n" and len(manager.turns) == 1
        assert "the database is gone" in caplog.text


class TestNextProcess:
    def test_finds_the_turns_of_its_session(self, workspace: Path, target: Path) -> None:
        store = Conversation("u1")
        first = made(workspace, store, "sid")
        for text in ("v1\n", "v2\n"):
            first.checkpoint_turn("edit")
            target.write_text(text)
        store.messages.append("a1")

        second = made(workspace, store, "sid")
        assert second.turns == first.turns and second.dropped_message_count(1) == 1
        assert second.revert() and target.read_text() == "v1\n" and store.messages == ["u1"]
        third = made(workspace, store, "sid")
        assert third.turns == second.turns and len(third.turns) == 1
        assert third.revert() and target.read_text() == "v0\n"
        assert made(workspace, store, "sid").turns == []

    def test_does_not_find_those_of_another(self, workspace: Path, target: Path) -> None:
        made(workspace, None, "sid").checkpoint_turn("edit")
        assert made(workspace, None, "other").turns == [] and made(workspace).turns == []


class TestDiff:
    def test_of_the_session_and_of_the_last_turn(self, workspace: Path, target: Path) -> None:
        manager = made(workspace)
        manager.checkpoint_turn("one")
        target.write_text("v1\n")
        manager.checkpoint_turn("two")
        (workspace / "lib").mkdir()
        (workspace / "lib" / "new.py").write_text("new\n")
        session, turn = manager.diff(), manager.diff(turn_only=True)
        assert session is not None and {file.path: file.status for file in session.files} == {
            "module.py": "modified",
            "lib/new.py": "added",
        }
        assert turn is not None and [file.path for file in turn.files] == ["lib/new.py"]
        one = manager.diff(path=" new.py ")
        assert one is not None and [file.path for file in one.files] == ["lib/new.py"]
        assert one.total_additions == 1

    def test_as_text(self, workspace: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
        manager = made(workspace, Clearable(), "sid")
        assert "disabled" in manager.render_diff(None)
        manager.checkpoint_turn("one")
        assert manager.render_diff(manager.diff()) == "No file changes this session."
        target.write_text("v1\n")
        manager.session_store.messages.append("u1")
        text = manager.render_diff(manager.diff(turn_only=True), "turn")
        assert "Changes this turn:" in text and "module.py  (+1/-1)" in text and "1 file(s)" in text
        manager.preview()
        printed = capsys.readouterr().out
        assert "module.py" in printed and "1 message(s)" in printed
