"""What cannot be saved is reported before anything is written, and nothing is lost."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.errors import Conflict, Damaged, Refused
from holdfast.training import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.extras


def freed() -> torch.Tensor:
    tensor = torch.ones(1000)
    tensor.untyped_storage().resize_(0)
    return tensor


def nested() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that they are new
        return torch._nested_tensor_from_tensor_list([torch.ones(2), torch.ones(3)])


def same_memory_twice(one: Any, other: Any) -> Callable[[], Any]:
    def make() -> Any:
        memory = np.zeros(8, np.uint8)
        return [memory.view(one), memory.view(other)]

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (freed, r"deep\.0 cannot be saved: its memory was freed"),
        (nested, r"deep\.0 cannot be saved: it is a nested tensor"),
        (lambda: torch._efficientzerotensor(3), r"deep\.0 cannot be saved: it is a tensor of zeros"),
        (lambda: torch.ones(2, 2).to_mkldnn(), r"deep\.0 cannot be saved: its layout"),
        (lambda: {torch.ones(1): 1}, r"deep\.0\.key .* cannot be saved: it is an array"),
        (lambda: {np.int64(3): 1}, r"deep\.0\.key .* cannot be saved: it is an array"),
        (same_memory_twice(">i8", "<M8[s]"), "share memory"),
        (same_memory_twice("u1", ">u2"), "share memory"),
    ],
    ids=["freed", "nested", "zeros", "mkldnn", "tensor as key", "array as key", "two types", "two sizes"],
)
def test_unstorable_value_is_refused_with_its_path(make: Callable[[], Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=message):
        save_checkpoint(tmp_path / "out", 1, {"deep": [make()]})
    assert not (tmp_path / "out").exists()


def test_two_types_of_one_memory_are_not_taken_for_one(tmp_path: Path) -> None:
    memory = torch.zeros(4, dtype=torch.uint8)
    with pytest.raises(Refused, match="share memory"):
        save_checkpoint(tmp_path, 1, {"a": memory, "b": memory.view(torch.float8_e8m0fnu)})


def test_a_state_that_holds_itself_is_refused_in_a_sentence(tmp_path: Path) -> None:
    state: dict[str, Any] = {}
    state["again"] = state
    with pytest.raises(Refused, match="contains itself") as told:
        save_checkpoint(tmp_path, 1, state)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize(
    "options",
    [
        {"metrics": {"loss": 10**400}, "best_key": "loss"},
        {"metrics": {"loss": 1.0}, "best_key": ["loss"]},
        {"metadata": ["a"]},
        {"metadata": {1: 2}},
        {"step": 2**63},
        {"step": 10**5000},
        {"out_dir": 3},
        {"out_dir": None},
        {"out_dir": b"/tmp"},
        {"keep_last_k": -1},
        {"keep_every": 0},
        {"threads": 0},
        {"threads": "2"},
        {"gate": 5},
    ],
    ids=lambda options: "-".join(options),
)
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Refused) as told:
        save_checkpoint(**{"out_dir": tmp_path / "out", "step": 1, "state": {"x": torch.ones(2)}} | options)
    assert told.value.hint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["last", "best.json", ".holdfast"])
def test_what_is_in_the_way_is_told_before_anything_is_written(name: str, tmp_path: Path) -> None:
    if name == ".holdfast":
        (tmp_path / name).write_text("mine")
    else:
        (tmp_path / name).mkdir()
    with pytest.raises(Refused, match=name):
        save_checkpoint(tmp_path, 1, {"x": torch.ones(2)}, metrics={"loss": 1.0}, best_key="loss")
    assert not list(tmp_path.glob("step-*"))


def test_links_lead_where_they_lead_or_are_told(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    save_checkpoint(tmp_path / "link", 1, {"x": torch.ones(2)})
    assert load_checkpoint(tmp_path / "real" / "last")["x"].tolist() == [1, 1]
    with pytest.raises(Refused, match="a broken link"):
        save_checkpoint(tmp_path / "dangling", 1, {"x": torch.ones(2)})
    os.symlink(tmp_path, tmp_path / "real" / "step-00000002")
    with pytest.raises(Conflict, match="not a Holdfast checkpoint"):
        save_checkpoint(tmp_path / "link", 2, {"x": torch.ones(2)})


def test_names_of_folders_may_be_anything(tmp_path: Path) -> None:
    for name in ("ä b\n☃ %20", "\udcff", "-rf *"):
        path = save_checkpoint(os.path.join(tmp_path, name), 1, {"x": torch.ones(2)})["path"]
        assert load_checkpoint(path)["x"].tolist() == [1, 1]


@pytest.mark.parametrize("text", ["{", '{"kind": "holdfast.training", "metric": "loss", "mode": "most"}', "[]"])
def test_nothing_is_pruned_while_the_best_is_unknown(text: str, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"x": 1}, metrics={"loss": 1.0}, best_key="loss")
    save_checkpoint(tmp_path, 2, {"x": 2})
    (tmp_path / "best.json").write_text(text)
    meta = save_checkpoint(tmp_path, 3, {"x": 3}, keep_last_k=1)
    assert (meta["pruned"], list(meta["kept"])) == ([], [1, 2, 3])
    assert "best.json" in meta["kept"][1]
    with pytest.raises(Damaged, match=r"best\.json"):
        load_checkpoint(tmp_path, step="best")
    meta = save_checkpoint(tmp_path, 4, {"x": 4}, metrics={"loss": 2.0}, best_key="loss", keep_last_k=1, adopt=True)
    assert meta["pruned"] == [2, 3]


def test_without_a_metric_the_best_few_are_not_pruned(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        meta = save_checkpoint(tmp_path, step, {}, metrics={"loss": 1.0}, keep_best_k=2, keep_last_k=1)
    assert meta["pruned"] == []
    assert "no metric is known" in meta["kept"][1]
    assert save_checkpoint(tmp_path, 4, {}, metrics={"loss": 2.0}, best_key="loss", keep_best_k=2, keep_last_k=1)[
        "pruned"
    ] == [3]


def test_while_nobody_can_tell_what_is_pinned_nothing_is_pruned(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"x": 1}, pin=True)
    (tmp_path / ".holdfast" / "pins.json").write_text("{")
    assert save_checkpoint(tmp_path, 2, {"x": 2}, keep_last_k=1)["pruned"] == []
    with pytest.raises(Damaged, match=r"pins\.json"):
        save_checkpoint(tmp_path, 3, {"x": 3}, pin=True)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-00000001", "step-00000002"]
