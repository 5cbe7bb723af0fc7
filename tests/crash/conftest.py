"""Scenes are prepared and rehearsed once for each operation, and put back for each interruption."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.testing.faulty_disks import DiskCall

from . import workers
from .aftermath import Rehearsal, rehearse
from .operations import Operation
from .scene import Scene

Stages = list[tuple[Scene, Rehearsal]]
_FEW_CALLS = 200
_DEFAULT_TIER = {"later save", "restore of some paths", "prune"}  # one that adds, one that replaces, one that removes


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most operations to the full tier."""
    for item in items:
        operation = item.callspec.params.get("operation") if hasattr(item, "callspec") else None
        if isinstance(operation, Operation) and operation.name not in _DEFAULT_TIER:
            item.add_marker(pytest.mark.crash)


def points(stages: Stages) -> list[DiskCall]:
    """The calls at which to interrupt: all, or, of an operation with very many, each kind of passage a few times."""
    calls = stages[0][1].calls
    if len(calls) <= _FEW_CALLS:
        return calls
    seen: dict[tuple[str, ...], int] = {}
    found = []
    for number, call in enumerate(calls):
        passage = tuple(each.name for each in calls[max(0, number - 1) : number + 2])
        seen[passage] = seen.get(passage, 0) + 1
        if seen[passage] <= 2:
            found.append(call)
    return [*found, calls[-1]]


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Operation], Stages]:
    """For an operation: a scene and its rehearsal for each worker."""
    known: dict[str, Stages] = {}

    def get(operation: Operation) -> Stages:
        if operation.name not in known:
            scenes = [Scene(tmp_path_factory.mktemp(str(operation))) for _ in range(workers.COUNT)]
            known[operation.name] = [(scene, rehearse(scene, operation)) for scene in scenes]
        return known[operation.name]

    return get
