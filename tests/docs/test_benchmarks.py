"""The page of figures is what the benchmarks printed, never what somebody typed."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from .pages import ROOT


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("all")


def test_the_page_is_written_from_results(benchmarks: Any) -> None:
    results = json.loads(benchmarks.RESULTS.read_text("utf-8"))
    written = benchmarks.PAGE.read_text("utf-8")
    assert written == benchmarks.page(results), "write it again: python benchmarks/all.py --page"


def test_a_failed_benchmark_gives_no_figures(benchmarks: Any) -> None:
    assert benchmarks.run(benchmarks.Benchmark("none", ("hook.py", "--no-such-option"), "")) is None


def test_a_slow_benchmark_is_stopped_and_keeps_its_output(
    benchmarks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "slow.py"
    script.write_text("print('first', flush=True)\nimport signal\nsignal.pause()\n")
    monkeypatch.setattr(benchmarks, "LEAST_LIMIT_S", 1)
    found = benchmarks.run(benchmarks.Benchmark("slow", (str(script),), "", 0))
    assert found["output"] == "first"
    assert found["stopped"]
    assert "stopped at its time limit" in benchmarks.page({"hook": found})


class TestResume:
    def test_what_ended_at_this_commit_is_left_out(self, benchmarks: Any) -> None:
        hook = {"commit": "c", "command": "hook.py", "stopped": False}
        results = {"hook": hook, "git": {"commit": "b", "command": "git_record.py"}}
        assert benchmarks.wanted(["hook", "git", "plan"], results, "c") == ["git", "plan"]
        assert benchmarks.wanted(["hook", "git"], results, None) == ["hook", "git"]

    def test_what_was_stopped_or_had_other_options_runs_again(self, benchmarks: Any) -> None:
        stopped = {"commit": "c", "command": "hook.py", "stopped": True}
        other = {"commit": "c", "command": "git_record.py --commits 1"}
        assert benchmarks.wanted(["hook", "git"], {"hook": stopped, "git": other}, "c") == ["hook", "git"]

    def test_a_section_is_saved_as_it_ends(
        self, benchmarks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name, text in {
            "one": "print('goal 1: met')",
            "two": "print('goal 2: missed')",
            "three": "raise SystemExit(1)",
        }.items():
            (tmp_path / f"{name}.py").write_text(text)
        chosen = {
            name: benchmarks.Benchmark(name, (str(tmp_path / f"{name}.py"),), "", 1) for name in ("one", "three", "two")
        }
        monkeypatch.setattr(benchmarks, "BENCHMARKS", chosen)
        monkeypatch.setattr(benchmarks, "RESULTS", tmp_path / "results.json")
        monkeypatch.setattr(benchmarks, "PAGE", tmp_path / "page.md")
        monkeypatch.setattr("sys.argv", ["all.py"])
        assert benchmarks.main() == 1
        assert list(json.loads((tmp_path / "results.json").read_text())) == ["one", "two"]
        page = (tmp_path / "page.md").read_text()
        assert "1 are met, 1 are missed" in page
        assert "two        goal 2: missed" in page
        assert "- three" in page


def test_goals_are_counted(benchmarks: Any) -> None:
    found = {"output": "a  0.1 ×  ≤ 0.4 ×  met\n| b | 3 × | goal 2 ×: missed |\nwhat was missed"}
    text = benchmarks._goals({"plan": found})
    assert "1 are met, 1 are missed" in text
    assert "plan       b 3 × goal 2 ×: missed" in text


def test_every_script_exists(benchmarks: Any) -> None:
    assert all((benchmarks.HERE / each.words[0]).is_file() for each in benchmarks.BENCHMARKS.values())


def test_what_was_not_measured_is_listed(benchmarks: Any) -> None:
    page = benchmarks.page({})
    assert all(each.title in page for each in benchmarks.BENCHMARKS.values())
