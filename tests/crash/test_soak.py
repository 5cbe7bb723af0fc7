"""The endurance harness: a short run of it loses nothing, and its model notices a loss."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import servers

pytestmark = pytest.mark.crash

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    spec = importlib.util.spec_from_file_location("soak", SOAK)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def counts_in(report: str) -> dict[str, int]:
    lines = [line for line in report.splitlines()[1:] if ", then " not in line]
    return {line[:40].strip(): int(line[40:].replace(",", "")) for line in lines}


def test_a_short_soak_loses_nothing() -> None:
    command = [sys.executable, str(SOAK), "--seconds", "15", "--seed", "12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = counts_in(done.stdout)
    assert counts["operations"] > 0
    assert counts["kills"] > 0
    assert counts["losses"] == 0


@pytest.mark.server
def test_a_short_soak_of_everything_loses_nothing() -> None:
    servers.require_postgres()
    command = [sys.executable, str(SOAK), "--seconds", "20", "--seed", "12", "--everything"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = counts_in(done.stdout)
    for what in ("operations: step", "operations: train", "operations: edit", "processes"):
        assert counts[what] > 0, done.stdout


class TestModelsOfOthers:
    """What was saved and is gone is noticed, and what is there is not."""

    @pytest.fixture
    def area(self, tmp_path: Path, soak: ModuleType) -> Path:
        for name in ("disk", "logs"):
            (tmp_path / name).mkdir()
        (tmp_path / "postgres").write_text(f"sqlite:///{tmp_path}/states.db")  # the model is the same
        return tmp_path

    @pytest.mark.parametrize(("said", "is_lost"), [(3, False), (4, True)])
    def test_training(self, soak: ModuleType, area: Path, said: int, is_lost: bool) -> None:
        process = soak.KINDS["training"](area, "training0-1", 1)
        for _ in range(3):
            process.train()
        process.say(trained=said)
        process.close()
        report = soak.Report(0)
        soak._compare_others(area, report)
        assert bool(report.losses) is is_lost

    @pytest.mark.parametrize("is_lost", [False, True])
    def test_states(self, soak: ModuleType, area: Path, is_lost: bool) -> None:
        process = soak.KINDS["states"](area, "states0-1", 1)
        for _ in range(5):
            process.step()
        if is_lost:
            stepped = next(each for each in soak.soak_kinds.logs(area, "states0"))
            process.say(stepped=stepped["stepped"], to=stepped["to"] + 1)
        process.close()
        report = soak.Report(0)
        soak._compare_others(area, report)
        assert bool(report.losses) is is_lost

    def test_states_that_were_not_saved(self, soak: ModuleType, area: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        process = soak.KINDS["states"](area, "states0-1", 1)
        process.step()
        process.close()
        monkeypatch.setattr(soak.soak_kinds, "state_of", lambda session, number: {"step": number, "other": session})
        report = soak.Report(0)
        soak._compare_others(area, report)
        assert len(report.losses) == 1

    def test_an_index(self, soak: ModuleType, area: Path) -> None:
        process = soak.KINDS["index"](area, "index0-1", 1)
        for _ in range(10):
            process.folder.mkdir(exist_ok=True)
            process.edit()
        process.apply()
        process.close()
        report = soak.Report(0)
        soak._compare_others(area, report)
        assert report.losses == [] and report.counts["documents compared"] > 0
        assert report.counts["texts embedded more than once"] == 0


class TestModel:
    @pytest.fixture
    def area(self, tmp_path: Path, soak: ModuleType) -> Path:
        for name in ("disk/ws/worker0", "logs", "home"):
            (tmp_path / name).mkdir(parents=True)
        (tmp_path / "disk/ws/worker0/file").write_text(f"text-{1:024x}")
        return tmp_path

    def compare(self, soak: ModuleType, area: Path, *said: dict[str, object]) -> list[str]:
        (area / "logs" / "worker0-1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in said))
        report = soak.Report(0)
        soak._compare(area, random.Random(0), report)
        losses: list[str] = report.losses
        return losses

    def test_finds_nothing_where_nothing_is_lost(self, soak: ModuleType, area: Path) -> None:
        made = soak.open_workspace(area).save()
        contains = {"worker0/file": [f"text-{1:024x}"]}
        said = [{"wrote": f"text-{1:024x}"}, {"saved": made.id, "contains": contains}, {"did": "save"}]
        assert self.compare(soak, area, *said) == []

    def test_notices_a_lost_text(self, soak: ModuleType, area: Path) -> None:
        assert self.compare(soak, area, {"wrote": f"text-{2:024x}"}) == [f"lost: text-{2:024x}"]

    def test_forgives_a_text_that_its_writer_replaced(self, soak: ModuleType, area: Path) -> None:
        text = f"text-{2:024x}"
        assert self.compare(soak, area, {"wrote": text}, {"gone": [text]}) == []

    def test_notices_a_lost_checkpoint(self, soak: ModuleType, area: Path) -> None:
        assert self.compare(soak, area, {"saved": "zz9", "contains": {"worker0/file": []}}) == [
            "checkpoint zz9 is gone"
        ]

    def test_notices_other_content(self, soak: ModuleType, area: Path) -> None:
        made = soak.open_workspace(area).save()
        (loss,) = self.compare(soak, area, {"saved": made.id, "contains": {"worker0/file": ["text-x"]}})
        assert loss.startswith(f"checkpoint {made.id} contains")

    def test_reports_what_broke(self, soak: ModuleType, area: Path) -> None:
        assert self.compare(soak, area, {"broken": "save: OSError"}) == ["save: OSError\n"]
