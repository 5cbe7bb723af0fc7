"""What follows a save: large new files and fast growth are named once, and thinning starts when it is due."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import NotFound, Workspace
from holdfast.remedies import word_remedy
from holdfast.workspace.upkeep.growth import (
    RUN_AFTER_BYTES,
    ignore_line,
    leave_notice,
    read_growth,
    read_report,
    take_notice,
)
from waiting import wait_for

HOUR = timedelta(hours=1)
GIB = 1 << 30


class Scene:
    """A workspace with a clock that a test sets, and a store that a test makes larger."""

    def __init__(self, project: Any) -> None:
        self.project = project
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.ws: Workspace = project.open(clock=lambda: self.now)
        self.saves = 0

    def save(self, *, after: timedelta = timedelta(0)) -> list[str]:
        self.now += after
        self.saves += 1
        self.project.write("file", b"%d" % self.saves)
        self.ws.save()
        return [". ".join(filter(None, [each.message, word_remedy(each.remedy)])) for each in self.ws.after_save()]

    def grow(self, size: int) -> None:
        """Make the packs larger, without taking any disk."""
        with open(self.project.store / "objects" / "pack" / "more", "ab") as file:
            os.truncate(file.fileno(), os.fstat(file.fileno()).st_size + size)

    def codes(self) -> list[str]:
        return [each.code for each in self.ws.status().attention]

    @property
    def started(self) -> float:
        """When thinning was last started."""
        return float(json.loads((self.project.store / "holdfast" / "growth.json").read_bytes())["run_at"])


@pytest.fixture
def scene(project: Any) -> Scene:
    scene = Scene(project)
    assert scene.save() == []
    return scene


class TestGrowth:
    def test_fast_growth_is_told_once_a_day(self, scene: Scene) -> None:
        scene.grow(GIB + 1)
        (message,) = scene.save(after=2 * HOUR)
        assert message == "The store grew by 1.0 GiB in the last 2 hours. usage() shows what takes space."
        assert scene.save(after=HOUR) == []
        assert "growth" in scene.codes()
        scene.grow(2 * GIB)
        assert len(scene.save(after=24 * HOUR)) == 1

    def test_slow_growth_is_not_told(self, scene: Scene) -> None:
        for _ in range(30):
            scene.grow(GIB // 30)
            assert scene.save(after=HOUR) == []
        assert "growth" not in scene.codes()

    def test_first_save_is_no_growth(self, project: Any) -> None:
        scene = Scene(project)
        scene.grow(3 * GIB)
        assert scene.save() == []
        assert scene.save(after=HOUR) == []

    def test_growth_within_the_first_hour_is_told(self, scene: Scene) -> None:
        scene.grow(GIB + 1)
        assert len(scene.save(after=timedelta(minutes=1))) == 1

    def test_clock_that_goes_back_tells_nothing_wrong(self, scene: Scene) -> None:
        for _ in range(5):
            scene.save(after=HOUR)
        assert scene.save(after=-9000 * HOUR) == []
        assert read_growth(scene.project.store, scene.now.timestamp()).grown_bytes < GIB


class TestLargeFiles:
    def large(self, scene: Scene, path: str, size: int = 100_000_000) -> None:
        os.truncate(scene.project.write(path), size)

    def test_new_one_is_named_once_with_the_line_that_ignores_it(self, scene: Scene) -> None:
        self.large(scene, "data/large [1].bin")
        (message,) = scene.save()
        line = r"/data/large \[1].bin"
        assert message == (
            "data/large [1].bin is new and large: 95 MiB. "
            f"To leave it out of checkpoints, add this line to .holdfastignore: {line}"
        )
        assert scene.save() == []
        (scene.project.root / "data" / "large [1].bin").unlink()
        scene.save()
        self.large(scene, "data/large [1].bin")
        assert scene.save() == []
        scene.project.write(".holdfastignore", line.encode())
        scene.save()
        with pytest.raises(NotFound):
            scene.ws.file("latest", "data/large [1].bin")

    def test_smaller_ones_are_not_named(self, scene: Scene) -> None:
        self.large(scene, "almost.bin", 99_999_999)
        assert scene.save() == []

    def test_status_names_it_before_it_is_saved(self, scene: Scene) -> None:
        self.large(scene, "large.bin")
        (found,) = scene.ws.status().attention
        assert found.code == "large-file"
        assert found.message.endswith("add this line to .holdfastignore: /large.bin")

    def test_line_matches_only_the_file(self) -> None:
        assert ignore_line("a*b?c[d\\e") == r"/a\*b\?c\[d\\e"
        assert ignore_line("#x ") == "/#x\\ "


class TestStarting:
    def test_not_in_the_first_hour(self, scene: Scene) -> None:
        before = scene.started
        scene.save(after=timedelta(minutes=59))
        assert scene.started == before

    @pytest.mark.parametrize("after", [HOUR, 100 * HOUR, -100 * HOUR])
    def test_after_an_hour_or_a_jump_of_the_clock(self, scene: Scene, after: timedelta) -> None:
        scene.save(after=after)
        assert scene.started == scene.now.timestamp()

    def test_early_if_the_store_grew_much(self, scene: Scene) -> None:
        scene.grow(RUN_AFTER_BYTES)
        scene.save(after=timedelta(minutes=1))
        assert scene.started == scene.now.timestamp()

    def test_runs_in_a_process_of_its_own(self, scene: Scene) -> None:
        scene.save(after=HOUR)
        report = wait_for(lambda: read_report(scene.project.store / "holdfast"))
        assert (report.removed, report.error) == (0, "")

    def test_a_file_named_holdfast_in_the_folder_is_not_run(
        self, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "holdfast.py").write_text("open('ran', 'w')")
        monkeypatch.chdir(tmp_path)
        scene.save(after=HOUR)
        assert wait_for(lambda: read_report(scene.project.store / "holdfast"))
        assert not (tmp_path / "ran").exists()

    def test_unreadable_note_is_made_again(self, scene: Scene) -> None:
        (scene.project.store / "holdfast" / "growth.json").write_text('{"samples": 3}')
        assert scene.save() == []
        assert scene.started == scene.now.timestamp()


def test_notice_is_taken_once(tmp_path: Path) -> None:
    (tmp_path / "holdfast").mkdir()
    assert take_notice(tmp_path) == ""
    leave_notice(tmp_path, ["one", "two"])
    assert take_notice(tmp_path) == "one two"
    assert take_notice(tmp_path) == ""
