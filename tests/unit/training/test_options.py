"""Options and references of the training functions: unknown ones are refused, `~` is home, a checkpoint is its step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Refused
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint


class TestMaybeSave:
    def test_takes_its_own_interval(self, tmp_path: Path) -> None:
        manager = CheckpointManager(tmp_path)
        made = [step for step in range(1, 7) if manager.maybe_save(step, {"x": step}, save_steps=2)]
        assert made == [2, 4, 6]

    def test_its_own_interval_comes_first(self, tmp_path: Path) -> None:
        manager = CheckpointManager(tmp_path, save_steps=5)
        assert [step for step in range(1, 7) if manager.maybe_save(step, {"x": step}, save_steps=3)] == [3, 6]

    @pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
    def test_an_interval_that_makes_no_sense_is_refused(self, tmp_path: Path, wrong: Any) -> None:
        with pytest.raises(Refused):
            CheckpointManager(tmp_path).maybe_save(1, {}, save_steps=wrong)

    def test_an_unknown_option_is_refused_though_it_is_not_time(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="maybe_save has no option 'save_step'"):
            CheckpointManager(tmp_path, save_steps=5).maybe_save(1, {}, save_step=2)


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    for call in (lambda: manager.save(1, {}, keep_last=2), lambda: manager.save(1, {}, needs_best=False)):
        with pytest.raises(Refused, match="save has no option"):
            call()
    with pytest.raises(Refused, match="resume has no option 'weight_only'") as refused:
        manager.resume(weight_only=True)
    assert "weights_only" in refused.value.hint
    assert manager.history() == []


def test_options_of_a_save_are_those_of_save_checkpoint(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, save_steps=1)
    manager.maybe_save(1, {}, metadata={"note": "x"}, pin=True)
    [made] = manager.history()
    assert made.metadata == {"note": "x"} and made.pinned


def test_a_checkpoint_stands_for_its_step(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    for step in (1, 2):
        manager.save(step, {"x": step})
    first, last = manager.history()
    manager.pin(first)
    assert manager.history()[0].pinned
    resumed = manager.resume(first)
    assert resumed is not None and resumed.state == {"x": 1}
    assert load_checkpoint(last) == {"x": 2}


def test_a_run_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    meta = save_checkpoint("~/run", 1, {"x": 1})
    assert Path(meta["path"]).parent == tmp_path / "home" / "run"
    assert load_checkpoint("~/run/last") == {"x": 1}
    assert CheckpointManager("~/run").latest() is not None
    assert list((tmp_path / "work").iterdir()) == []
