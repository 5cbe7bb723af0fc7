"""Every parser takes what its writer wrote, and some hundred changes of it, without an error of the interpreter.

`test_fuzz.py` tries many more under a fuzzer. A failure shows the bytes; they belong into a unit test of the parser.
"""

from __future__ import annotations

import importlib.util

import pytest

from fuzz.all_targets import TARGETS
from fuzz.found import FOUND
from fuzz.target import Target, inputs, problem_with

MUTATIONS = 100
_QUICK = sorted(name for name, one in TARGETS.items() if not one.is_slow and not one.needs)
_SLOW = sorted(name for name, one in TARGETS.items() if one.is_slow or one.needs)


def _check(one: Target, mutations: int) -> None:
    for data in one.seeds():
        assert one.run(data) is None
    for data in (*FOUND.get(one.name, ()), *inputs(one, mutations=mutations)):
        problem = problem_with(one, data)
        if problem is not None:
            raise AssertionError(f"{one.name} cannot take {data!r}") from problem


def test_what_was_found_belongs_to_targets() -> None:
    assert FOUND.keys() <= TARGETS.keys()


@pytest.mark.parametrize("name", _QUICK)
def test_quick_parser(name: str) -> None:
    _check(TARGETS[name], MUTATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("name", _SLOW)
def test_slow_parser(name: str) -> None:
    one = TARGETS[name]
    if one.needs and importlib.util.find_spec(one.needs) is None:
        pytest.skip(f"{one.needs} is not installed")
    _check(one, MUTATIONS // 2)
