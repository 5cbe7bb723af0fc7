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


def test_a_short_soak_loses_nothing() -> None:
    command = [sys.executable, str(SOAK), "--seconds", "15", "--seed", "12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {line[:40].strip(): int(line[40:].replace(",", "")) for line in done.stdout.splitlines()[1:]}
    assert counts["operations"] > 0
    assert counts["kills"] > 0
    assert counts["losses"] == 0


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
