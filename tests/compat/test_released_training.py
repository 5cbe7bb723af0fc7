"""Runs of every released format of training checkpoints are loaded, verified and gone on with."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint
from holdfast.training.stored.layout import SCHEMA_VERSION

from .make_training_run import STEPS, state

pytestmark = pytest.mark.extras

ARCHIVES = sorted(Path(__file__).parent.glob("training-*.tar.xz"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(request.param) as tar:
        tar.extractall(tmp_path, **options)
    return tmp_path / "run"


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, torch.Tensor):
        assert (found.dtype, found.shape, found.layout) == (expected.dtype, expected.shape, expected.layout)
        if expected.layout is torch.strided:
            assert found.stride() == expected.stride()
        assert torch.equal(*(each.detach().to_dense().to(torch.complex128) for each in (found, expected)))
    elif isinstance(expected, np.ndarray | np.generic):
        assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())
    else:
        assert found == expected or (found != found and expected != expected)


def test_there_is_a_run_of_every_format_there_has_been() -> None:
    assert [path.name for path in ARCHIVES] == [f"training-{at}.tar.xz" for at in range(1, SCHEMA_VERSION + 1)]


def test_every_state_comes_back_exactly(run: Path) -> None:
    for step in STEPS:
        found = load_checkpoint(run, step=step)
        assert_same(found, state(step))
        assert found["model"]["view"].data_ptr() == found["model"]["weight"][1:].data_ptr()


def test_it_says_what_it_said(run: Path) -> None:
    manager = CheckpointManager(run, best_key="loss")
    history = manager.history()
    assert [(each.step, each.sequence, each.metrics["loss"]) for each in history] == [
        (10, 1, 10.5), (20, 2, 0.5), (30, 3, 10.5),
    ]  # fmt: skip
    assert [each.pinned for each in history] == [True, False, False]
    assert history[0].metadata == {"name": "step 10"}
    assert history[0].config_hash == history[2].config_hash
    assert load_checkpoint(run / "best.json")["types"][1].item() == 20
    assert load_checkpoint(run / "last")["types"][1].item() == 30
    assert manager.verify().ok


def test_work_goes_on_in_it(run: Path) -> None:
    manager = CheckpointManager(run, best_key="loss", keep_last=1)
    resumed = manager.resume()
    assert resumed is not None
    assert (resumed.step, resumed.problems) == (30, ())
    meta = save_checkpoint(run, 40, resumed.state)
    assert meta["sequence"] == 4
    assert meta["files_shared"] >= 1  # what did not change is shared with what an older version wrote
    assert manager.prune().removed == [30]
    assert_same(load_checkpoint(run), state(30))
