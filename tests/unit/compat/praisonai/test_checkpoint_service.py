"""PraisonAI's service: what its programs and tests expect, and the defects that it does not have here."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast import Workspace, durable
from holdfast.compat.praisonai.checkpoint_service import CheckpointService, _delete
from holdfast.compat.praisonai.checkpoint_types import CheckpointEvent
from holdfast.testing.faulty_disks import ForgetfulDisk, PowerLoss, every_point

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture
def run() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def service(workspace: Path, tmp_path: Path, run: Run[Any]) -> Iterator[CheckpointService]:
    made = CheckpointService(str(workspace), str(tmp_path / "storage"))
    assert run(made.initialize())
    yield made
    run(made.cleanup())


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


async def save(service: CheckpointService, text: str, message: str | None = None, **options: Any) -> str:
    """Write `a.txt`, save, and return the id."""
    Path(service.workspace_dir, "a.txt").write_text(text)
    result = await service.save(message or text, **options)
    assert result.success and result.checkpoint is not None, result.error
    return result.checkpoint.id


class TestOpening:
    def test_nothing_happens_before_initialize(self, workspace: Path, tmp_path: Path, run: Run[Any]) -> None:
        service = CheckpointService(str(workspace), str(tmp_path / "storage"))
        assert service.workspace_dir == str(workspace) and not service.is_initialized
        assert not (tmp_path / "storage").exists()
        told = [run(service.save("x")), run(service.restore("x")), run(service.rewind())]
        assert {each.error for each in told} == {"Service not initialized"}
        assert run(service.list_checkpoints()) == [] and run(service.get_checkpoint("x")) is None
        assert run(service.diff()).error == "Service not initialized"

    def test_the_store_is_a_git_repository(self, service: CheckpointService) -> None:
        assert service.is_initialized and os.path.exists(service.git_dir)
        assert os.path.dirname(service.git_dir) == service.checkpoint_dir
        ran = subprocess.run(["git", "--git-dir", service.git_dir, "fsck"], capture_output=True)
        assert ran.returncode == 0

    def test_switched_off(self, workspace: Path, run: Run[Any]) -> None:
        assert run(CheckpointService(str(workspace), enabled=False).initialize()) is False

    @pytest.mark.parametrize("folder", ["~", "/", "/tmp", "/etc", "/nothing/here"])
    def test_a_protected_or_missing_folder_is_not_opened(
        self, folder: str, tmp_path: Path, run: Run[Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        service = CheckpointService(os.path.expanduser(folder), str(tmp_path / "storage"))
        assert run(service.initialize()) is False and not service.is_initialized
        assert "are not possible" in caplog.text

    def test_a_store_of_praisonai_is_left_alone(self, workspace: Path, tmp_path: Path, run: Run[Any]) -> None:
        service = CheckpointService(str(workspace), str(tmp_path / "storage"))
        theirs = Path(service.checkpoint_dir, ".git")
        subprocess.run(["git", "init", "-q", service.checkpoint_dir], check=True)
        before = files(theirs)
        (workspace / "a.txt").write_text("one")
        assert run(service.initialize()) and run(service.save("ours")).success
        assert run(service.delete_all()) and files(theirs) == before

    def test_settings_of_git_do_not_matter(self, workspace: Path, tmp_path: Path, home: Path, run: Run[Any]) -> None:
        (home / ".gitconfig").write_text(
            "[commit]\n\tgpgsign = true\n[core]\n\thooksPath = /nowhere\n\tautocrlf = true\n"
        )
        service = CheckpointService(str(workspace), str(tmp_path / "storage"))
        assert run(service.initialize())
        first = run(save(service, "unix\n"))
        run(save(service, "other"))
        assert run(service.restore(first)).success and (workspace / "a.txt").read_bytes() == b"unix\n"

    def test_closed_and_opened_again(self, service: CheckpointService, run: Run[Any]) -> None:
        saved = run(save(service, "one"))
        run(service.cleanup())
        assert not service.is_initialized
        assert run(service.initialize()) and run(service.get_checkpoint(saved)).id == saved

    def test_delete_all(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        run(save(service, "one"))
        assert os.path.exists(service.checkpoint_dir)
        assert run(service.delete_all()) and not os.path.exists(service.checkpoint_dir)
        assert not service.is_initialized and files(workspace) == {"a.txt": "one"}
        assert run(service.initialize()) and len(run(service.list_checkpoints())) == 1

    @pytest.mark.slow
    def test_a_deletion_that_is_interrupted_anywhere_leaves_all_or_nothing(self, tmp_path: Path, run: Run[Any]) -> None:
        def stored(name: str) -> CheckpointService:
            (tmp_path / name).mkdir()
            service = CheckpointService(str(tmp_path / name), str(tmp_path / f"{name}-storage"))
            run(service.initialize())
            run(save(service, "one"))
            run(service.cleanup())
            return service

        counted = stored("counted")
        points = every_point(lambda: _delete(Path(counted.git_dir)))
        assert len(points) > 5
        for point in points[::4]:
            service = stored(str(point.number))
            with durable.use_disk(ForgetfulDisk(at=point.number)), pytest.raises(PowerLoss):
                _delete(Path(service.git_dir))
            assert run(service.initialize())
            messages = [each.message for each in run(service.list_checkpoints())]
            assert messages in (["one", "Initial checkpoint"], ["Initial checkpoint"])
            assert run(service.delete_all()) and not os.path.exists(service.checkpoint_dir)

    def test_what_a_killed_deletion_left_is_removed(self, service: CheckpointService, run: Run[Any]) -> None:
        Path(f"{service.git_dir}-deleted", "objects").mkdir(parents=True)
        assert run(service.delete_all()) and not os.path.exists(service.checkpoint_dir)


class TestSaving:
    def test_a_checkpoint_is_returned(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        (workspace / "a.txt").write_text("one")
        result = run(service.save("first"))
        assert result.success and result.error is None
        made = result.checkpoint
        assert (made.message, made.short_id, made.files_changed, made.step) == ("first", made.id[:8], 1, None)
        assert made.timestamp.tzinfo is not None

    def test_no_changes(self, service: CheckpointService, run: Run[Any]) -> None:
        result = run(service.save("nothing"))
        assert not result.success and result.checkpoint is None and result.error == "No changes to checkpoint"
        assert run(service.save("nothing", allow_empty=True)).success
        run(save(service, "one"))
        assert run(service.save("again")).error == "No changes to checkpoint"
        assert run(service.save("again", step=3)).error == "No changes to checkpoint"

    def test_files_that_were_there_are_changes_to_the_first_save(
        self, workspace: Path, tmp_path: Path, run: Run[Any]
    ) -> None:
        (workspace / "a.txt").write_text("one")
        service = CheckpointService(str(workspace), str(tmp_path / "storage"))
        run(service.initialize())
        assert run(service.save("Before refactoring")).success
        assert run(service.save("Before refactoring")).error == "No changes to checkpoint"

    def test_what_is_excluded_is_neither_saved_nor_removed(
        self, service: CheckpointService, workspace: Path, run: Run[Any]
    ) -> None:
        first = run(save(service, "one"))
        (workspace / ".env").write_text("SECRET=1")
        (workspace / "debug.log").write_text("noise")
        assert run(service.save("only these")).error == "No changes to checkpoint"
        assert len(run(service.list_checkpoints())) == 2
        run(save(service, "two"))
        assert run(service.restore(first)).success
        assert files(workspace) == {"a.txt": "one", ".env": "SECRET=1", "debug.log": "noise"}

    @pytest.mark.parametrize("is_git", [True, False])
    def test_what_gitignore_names_is_neither_saved_nor_restored(
        self, service: CheckpointService, workspace: Path, run: Run[Any], is_git: bool
    ) -> None:
        if is_git:
            subprocess.run(["git", "init", "-q", str(workspace)], check=True)
        (workspace / ".gitignore").write_text("local.db\n")
        (workspace / "local.db").write_text("1")
        first = run(save(service, "one"))
        (workspace / "local.db").write_text("2")
        assert run(service.save("only ignored files")).error == "No changes to checkpoint"
        run(save(service, "two"))
        run(service.restore(first))
        assert (workspace / "a.txt").read_text() == "one"
        assert (workspace / "local.db").read_text() == "2"

    def test_ignored_files_are_saved_if_the_configuration_says_so(
        self, workspace: Path, tmp_path: Path, run: Run[Any]
    ) -> None:
        (workspace / "holdfast.toml").write_text("ignored_file_max_bytes = 100\nignored_total_max_bytes = 100\n")
        (workspace / ".gitignore").write_text("local.db\n")
        (workspace / "local.db").write_text("1")
        service = CheckpointService(str(workspace), str(tmp_path / "storage"))
        run(service.initialize())
        first = run(save(service, "one"))
        (workspace / "local.db").write_text("2")
        run(service.restore(first))
        assert (workspace / "local.db").read_text() == "1"

    def test_patterns_may_change_later(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        run(save(service, "one"))
        (workspace / "model.bin").write_text("large")
        run(service.cleanup())
        service.config.exclude_patterns.append("*.bin")
        run(service.initialize())
        assert run(service.save("only that")).error == "No changes to checkpoint"

    def test_many_at_once(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        async def work() -> list[Any]:
            (workspace / "a.txt").write_text("one")
            return await asyncio.gather(*(service.save(f"save {n}", allow_empty=True) for n in range(6)))

        assert all(each.success for each in run(work()))
        assert len(run(service.list_checkpoints())) == 7

    def test_old_ones_are_pruned_after_a_week(self, workspace: Path, tmp_path: Path, run: Run[Any]) -> None:
        service = CheckpointService(str(workspace), str(tmp_path / "storage"), max_checkpoints=2)
        told: list[Any] = []
        service.on(CheckpointEvent.CHECKPOINTS_PRUNED, told.append)
        old = datetime.now(UTC) - timedelta(days=8)
        before = Workspace(workspace, store=service.git_dir, clock=lambda: old)
        for text in ("1", "2", "3"):
            (workspace / "a.txt").write_text(text)
            before.save(text)
        run(service.initialize())
        run(save(service, "4"))
        assert [each.message for each in run(service.list_checkpoints())] == ["4", "3"]
        assert told == [{"action": "pruned", "removed_count": 2}]


class TestListing:
    def test_newest_first_after_what_initialize_found(self, service: CheckpointService, run: Run[Any]) -> None:
        made = [run(save(service, text)) for text in ("1", "2", "3")]
        listed = run(service.list_checkpoints())
        assert [each.id for each in listed[:3]] == made[::-1]
        assert [each.message for each in listed] == ["3", "2", "1", "Initial checkpoint"]
        assert len(run(service.list_checkpoints(limit=2))) == 2

    @pytest.mark.parametrize("message", ["a | b", "two\nlines", "ünïcode ✓", "'quoted' \"twice\""])
    def test_any_message_comes_back(self, service: CheckpointService, message: str, run: Run[Any]) -> None:
        saved = run(save(service, "one", message))
        assert run(service.list_checkpoints())[0].message == message
        assert run(service.get_checkpoint(saved)).message == message
        run(save(service, "two", "next"))
        assert run(service.rewind()).checkpoint.message == message

    def test_get_by_id_and_short_id(self, service: CheckpointService, run: Run[Any]) -> None:
        saved = run(save(service, "one"))
        assert run(service.get_checkpoint(saved)).id == run(service.get_checkpoint(saved[:8])).id == saved
        assert run(service.get_checkpoint("deadbeef")) is None

    def test_all_are_there_after_a_restart(self, service: CheckpointService, tmp_path: Path, run: Run[Any]) -> None:
        saved = run(save(service, "one", step=4))
        other = CheckpointService(service.workspace_dir, str(tmp_path / "storage"))
        run(other.initialize())
        assert run(other.get_checkpoint(saved)).step == 4
        assert run(other.get_checkpoint_by_step(4)).id == saved

    def test_a_wrong_limit_is_an_event_and_no_list(self, service: CheckpointService, run: Run[Any]) -> None:
        told: list[Any] = []
        service.on(CheckpointEvent.ERROR, told.append)
        assert run(service.list_checkpoints(limit=-1)) == []
        assert "limit" in told[0]["error"]


class TestRestoring:
    def test_files_come_back_and_new_ones_go(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        first = run(save(service, "one"))
        (workspace / "new.txt").write_text("new")
        run(save(service, "two"))
        result = run(service.restore(first))
        assert result.success and result.checkpoint.id == first and files(workspace) == {"a.txt": "one"}

    def test_the_full_id_is_returned_for_a_short_one(self, service: CheckpointService, run: Run[Any]) -> None:
        first = run(save(service, "one"))
        assert run(service.restore(first[:8])).checkpoint.id == first

    def test_what_save_returned_can_be_given(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        (workspace / "a.txt").write_text("one")
        first = run(service.save("one"))
        (workspace / "a.txt").write_text("two")
        second = run(service.save("two"))
        assert [file.path for file in run(service.diff(first, second)).files] == ["a.txt"]
        assert run(service.restore(first)).success and run(service.restore(second.checkpoint)).success

    def test_a_wrong_id_changes_nothing(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        run(save(service, "one"))
        (workspace / "untracked.txt").write_text("mine")
        told: list[Any] = []
        service.on(CheckpointEvent.ERROR, told.append)
        result = run(service.restore("deadbeef"))
        assert not result.success and "deadbeef" in result.error and told == [{"error": result.error}]
        assert files(workspace) == {"a.txt": "one", "untracked.txt": "mine"}

    def test_what_was_not_saved_can_be_brought_back(
        self, service: CheckpointService, workspace: Path, run: Run[Any]
    ) -> None:
        first = run(save(service, "one"))
        (workspace / "a.txt").write_text("not saved")
        run(service.restore(first))
        Workspace(workspace, store=service.git_dir).undo()
        assert files(workspace) == {"a.txt": "not saved"}

    def test_newer_checkpoints_stay(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        first, second = run(save(service, "one", step=1)), run(save(service, "two", step=2))
        run(service.restore(first))
        assert [each.id for each in run(service.list_checkpoints())][:2] == [second, first]
        assert run(service.restore(step=2)).success and files(workspace) == {"a.txt": "two"}

    def test_the_first_checkpoint_is_what_initialize_found(
        self, workspace: Path, tmp_path: Path, run: Run[Any]
    ) -> None:
        (workspace / "precious.txt").write_text("all my work")
        service = CheckpointService(str(workspace), str(tmp_path / "storage"))
        run(service.initialize())
        oldest = run(service.list_checkpoints())[-1]
        assert run(service.restore(oldest.id)).success
        assert files(workspace) == {"precious.txt": "all my work"}

    def test_modes_empty_folders_and_nested_repositories(
        self, service: CheckpointService, workspace: Path, run: Run[Any]
    ) -> None:
        (workspace / "key").write_text("secret")
        (workspace / "key").chmod(0o600)
        (workspace / "empty").mkdir()
        subprocess.run(["git", "init", "-q", str(workspace / "nested")], check=True)
        (workspace / "nested" / "code.py").write_text("one")
        first = run(save(service, "one"))
        (workspace / "key").unlink()
        (workspace / "empty").rmdir()
        (workspace / "nested" / "code.py").write_text("two")
        assert run(service.restore(first)).success
        assert (workspace / "key").stat().st_mode & 0o777 == 0o600 and (workspace / "empty").is_dir()
        assert (workspace / "nested" / "code.py").read_text() == "one"

    def test_what_could_not_be_restored_is_an_error(
        self, service: CheckpointService, workspace: Path, run: Run[Any]
    ) -> None:
        (workspace / "thing").write_text("a file")
        first = run(save(service, "one"))
        (workspace / "thing").unlink()
        subprocess.run(["git", "init", "-q", "--bare", str(workspace / "thing")], check=True)  # is never removed
        (workspace / "a.txt").write_text("two")
        told: list[str] = []
        for event in (CheckpointEvent.CHECKPOINT_RESTORED, CheckpointEvent.ERROR):
            service.on(event, lambda data, event=event: told.append(event.value))
        result = run(service.restore(first))
        assert not result.success and "thing" in result.error and result.checkpoint.id == first
        assert told == ["checkpoint_restored", "error"] and (workspace / "a.txt").read_text() == "one"

    def test_id_or_step(self, service: CheckpointService, run: Run[Any]) -> None:
        saved = run(save(service, "one", step=1))
        assert "not both" in run(service.restore(saved, step=1)).error
        assert not run(service.restore()).success


class TestSteps:
    def test_the_message_says_it(self, service: CheckpointService, run: Run[Any]) -> None:
        run(save(service, "one", "edit", step=1))
        assert run(service.list_checkpoints())[0].message == "[step-1] edit"
        assert run(service.list_checkpoints())[0].step == 1

    def test_the_message_may_say_it_alone(self, service: CheckpointService, run: Run[Any]) -> None:
        saved = run(save(service, "one", "[step-7] edit"))
        assert run(service.get_checkpoint_by_step(7)).id == saved

    def test_the_argument_wins(self, service: CheckpointService, run: Run[Any]) -> None:
        run(save(service, "one", "[step-2] retry", step=1))
        found = run(service.get_checkpoint_by_step(1))
        assert found.message == "[step-1] retry" and run(service.get_checkpoint_by_step(2)) is None

    def test_of_an_imported_checkpoint(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        (workspace / "a.txt").write_text("one")
        saved = Workspace(workspace, store=service.git_dir).save("[step-3] saved by PraisonAI")
        assert run(service.get_checkpoint_by_step(3)).id == saved.id and run(service.restore(step=3)).success

    def test_a_negative_one_is_rejected(self, service: CheckpointService, run: Run[Any]) -> None:
        assert "non-negative" in run(service.save("x", step=-1)).error

    def test_restored_by_step_the_newest_wins(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        for number in (1, 2, 3):
            run(save(service, f"content-{number}", step=number))
        assert run(service.restore(step=1)).checkpoint.step == 1 and files(workspace) == {"a.txt": "content-1"}
        newest = run(save(service, "content-2 again", step=2))
        assert run(service.restore(step=2)).checkpoint.id == newest

    def test_an_unknown_one(self, service: CheckpointService, run: Run[Any]) -> None:
        result = run(service.restore(step=99))
        assert not result.success and "step 99" in result.error


class TestRewinding:
    def test_by_one_and_by_more(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        for text in ("1", "2", "3", "4"):
            run(save(service, text))
        assert run(service.rewind()).checkpoint.message == "3" and files(workspace) == {"a.txt": "3"}
        assert run(service.rewind(2)).checkpoint.message == "1" and files(workspace) == {"a.txt": "1"}

    def test_too_far(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        run(save(service, "one"))
        result = run(service.rewind(5))
        assert not result.success and "Cannot rewind 5 step(s)" in result.error
        assert files(workspace) == {"a.txt": "one"}

    @pytest.mark.parametrize("steps", [0, -1])
    def test_not_at_all(self, service: CheckpointService, steps: int, run: Run[Any]) -> None:
        assert "steps must be >= 1" in run(service.rewind(steps)).error

    def test_beyond_max_checkpoints(self, workspace: Path, tmp_path: Path, run: Run[Any]) -> None:
        service = CheckpointService(str(workspace), str(tmp_path / "storage"), max_checkpoints=2)
        run(service.initialize())
        for text in ("1", "2", "3", "4", "5"):
            run(save(service, text))
        assert len(run(service.list_checkpoints())) >= 2
        assert run(service.rewind(4)).success and files(workspace) == {"a.txt": "1"}

    def test_after_one_save_nothing_is_lost(self, workspace: Path, tmp_path: Path, run: Run[Any]) -> None:
        (workspace / "precious.txt").write_text("all my work")
        service = CheckpointService(str(workspace), str(tmp_path / "storage"))
        run(service.initialize())
        run(save(service, "one"))
        assert run(service.rewind(1)).success
        assert files(workspace) == {"precious.txt": "all my work"}


class TestDiff:
    def test_the_folder_with_the_one_before_the_last(
        self, service: CheckpointService, workspace: Path, run: Run[Any]
    ) -> None:
        run(save(service, "hello\n"))
        (workspace / "a.txt").write_text("hello\nworld\n")
        diff = run(service.diff())
        assert diff.from_checkpoint and diff.to_checkpoint is None and diff.error is None
        [file] = diff.files
        assert (file.path, file.absolute_path, file.status) == ("a.txt", str(workspace / "a.txt"), "added")
        assert (file.additions, file.deletions) == (2, 0)

    def test_what_happened_to_a_file_is_not_guessed_from_its_lines(
        self, service: CheckpointService, workspace: Path, run: Run[Any]
    ) -> None:
        for name, text in {"more": "1\n", "less": "1\n2\n", "gone": "1\n", "old": "some text\n" * 9}.items():
            (workspace / name).write_text(text)
        (workspace / "binary").write_bytes(b"\0\1")
        first = run(save(service, "one"))
        for name, text in {"more": "1\n2\n", "less": "1\n", "ünï": "", "binary": "\0\2"}.items():
            (workspace / name).write_text(text)
        (workspace / "gone").unlink()
        (workspace / "old").rename(workspace / "new")
        second = run(save(service, "one", "second"))
        diff = run(service.diff(first, second))
        assert {file.path: file.status for file in diff.files} == {
            "more": "modified",
            "less": "modified",
            "gone": "deleted",
            "ünï": "added",
            "binary": "modified",
            "old": "deleted",
            "new": "added",
        }
        assert (diff.from_checkpoint, diff.to_checkpoint) == (first, second)

    def test_looking_changes_nothing(self, service: CheckpointService, workspace: Path, run: Run[Any]) -> None:
        run(save(service, "one"))
        (workspace / "a.txt").write_text("two")
        run(service.diff())
        assert run(service.save("two")).success

    def test_an_error_is_no_empty_diff(self, service: CheckpointService, run: Run[Any]) -> None:
        told: list[Any] = []
        service.on(CheckpointEvent.ERROR, told.append)
        diff = run(service.diff("deadbeef"))
        assert diff.files == [] and "deadbeef" in diff.error and told == [{"error": diff.error}]


class TestEvents:
    def test_each_is_told_once_and_before_the_call_returns(
        self, workspace: Path, tmp_path: Path, run: Run[Any]
    ) -> None:
        service = CheckpointService(str(workspace), str(tmp_path / "storage"))
        told: list[tuple[str, Any]] = []
        for event in CheckpointEvent:
            service.on(event, lambda data, event=event: told.append((event.value, data)))
        run(service.initialize())
        saved = run(save(service, "one"))
        run(service.restore(saved))
        assert [name for name, _ in told] == ["initialized", "checkpoint_created", "checkpoint_restored"]
        assert told[0][1] == {"workspace": str(workspace)} and told[1][1].id == told[2][1].id == saved

    def test_async_handlers_are_awaited(self, service: CheckpointService, run: Run[Any]) -> None:
        told: list[Any] = []

        async def handler(data: Any) -> None:
            await asyncio.sleep(0)
            told.append(data)

        service.on(CheckpointEvent.CHECKPOINT_CREATED, handler)
        run(save(service, "one"))
        assert len(told) == 1

    def test_one_that_fails_breaks_nothing(
        self, service: CheckpointService, run: Run[Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        async def later(data: Any) -> None:
            raise ValueError("later")

        def now(data: Any) -> None:
            raise ValueError("now")

        for handler in (now, later):
            service.on(CheckpointEvent.CHECKPOINT_CREATED, handler)
        with caplog.at_level(logging.ERROR, "holdfast"):
            run(save(service, "one"))
        assert caplog.text.count("failed") == 2
