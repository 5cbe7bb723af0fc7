"""The page of figures is what the benchmarks printed, never what somebody typed."""

from __future__ import annotations

import importlib
import json
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


def test_every_script_exists(benchmarks: Any) -> None:
    assert all((benchmarks.HERE / each.words[0]).is_file() for each in benchmarks.BENCHMARKS.values())


def test_what_was_not_measured_is_listed(benchmarks: Any) -> None:
    page = benchmarks.page({})
    assert all(each.title in page for each in benchmarks.BENCHMARKS.values())
