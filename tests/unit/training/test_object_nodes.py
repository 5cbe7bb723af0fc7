"""Named tuples, dataclasses and other classes that hold tensors: they come back if they are registered."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from holdfast import serde
from holdfast.errors import Refused
from holdfast.training import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.extras

Bare = namedtuple("Bare", "x y")


@serde.register("tests.training.Moments")
class Moments(NamedTuple):
    count: int
    average: Any


@serde.register("tests.training.Ema")
@dataclass(slots=True)
class Ema:
    decay: float
    shadow: dict[str, Any] = field(default_factory=dict)
    late: Any = field(init=False)


@serde.register("tests.training.Plain")
@dataclass(frozen=True)
class Plain:
    lr: float


class Buffer:
    def __init__(self, data: Any) -> None:
        self.data = data


serde.register("tests.training.Buffer", encode=lambda value: {"data": value.data}, decode=lambda data: Buffer(**data))(
    Buffer
)


@dataclass
class Unregistered:
    x: Any


def there_and_back(value: Any, folder: Path, **options: Any) -> Any:
    return load_checkpoint(save_checkpoint(folder, 1, {"x": value}, rng=False)["path"], **options)["x"]


def test_a_named_tuple_comes_back(tmp_path: Path) -> None:
    weights = torch.arange(4.0)
    found = there_and_back(Moments(3, {"w": weights, "view": weights[1:]}), tmp_path)
    assert type(found) is Moments
    assert found.count == 3
    assert found.average["w"].equal(weights)
    found.average["w"][1] = 9
    assert found.average["view"][0] == 9  # they still share memory


def test_a_dataclass_comes_back_with_fields_that_have_no_value(tmp_path: Path) -> None:
    found = there_and_back([Ema(0.9, {"a": np.arange(3), "nested": Moments(1, torch.ones(2))})], tmp_path)[0]
    assert type(found) is Ema
    assert found.shadow["a"].tolist() == [0, 1, 2]
    assert type(found.shadow["nested"]) is Moments
    assert not hasattr(found, "late")


def test_a_class_with_functions_of_its_own_comes_back(tmp_path: Path) -> None:
    assert there_and_back(Buffer(torch.ones(2)), tmp_path).data.tolist() == [1, 1]


def test_what_holds_no_tensor_is_stored_as_before(tmp_path: Path) -> None:
    assert there_and_back(Plain(0.1), tmp_path) == Plain(0.1)
    assert '"$object"' in (tmp_path / "step-00000001" / "state.json").read_text()


def test_an_ordered_dict_comes_back(tmp_path: Path) -> None:
    module = torch.nn.Linear(2, 2).state_dict()
    found = there_and_back(module, tmp_path)
    assert type(found) is OrderedDict
    assert found._metadata == module._metadata
    assert list(found) == list(module)


@pytest.mark.parametrize(
    "value", [Bare(1, torch.ones(2)), Unregistered(torch.ones(2)), defaultdict(list, {"a": [torch.ones(2)]})]
)
def test_what_cannot_come_back_is_refused_by_name(value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jax", raising=False)  # with JAX loaded a named tuple comes back with like=
    with pytest.raises(Refused, match=rf"deep\.0 cannot be saved: its type is .*{type(value).__name__}") as refused:
        save_checkpoint(tmp_path / "out", 1, {"deep": [value]})
    assert "register" in refused.value.hint
    assert not (tmp_path / "out").exists()


def test_a_part_of_an_object_comes_as_a_mapping(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, {"x": Ema(0.9, {"a": torch.ones(2)}), "step": 3}, rng=False)["path"]
    assert load_checkpoint(path, only=["x.shadow.a"])["x"]["shadow"]["a"].tolist() == [1, 1]
    plain = load_checkpoint(path, weights_only=True)
    assert (type(plain["x"]), plain["x"]["decay"], plain["step"]) == (dict, 0.9, 3)
    assert load_checkpoint(path, mmap=True)["x"]["decay"] == 0.9


def test_a_class_that_is_not_registered_any_more_is_told(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"x": Moments(1, np.ones(2))}, rng=False)
    code = (
        "import sys\nfrom holdfast.errors import Refused\nfrom holdfast.training import load_checkpoint\n"
        "try:\n    load_checkpoint(sys.argv[1])\nexcept Refused as error:\n    print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert (
        "x is an object of 'tests.training.Moments', version 1, which is not registered in this process" in ran.stdout
    )


def test_an_older_version_is_brought_up(tmp_path: Path) -> None:
    old = serde.default_registry.of_id("tests.training.Grown")
    assert old is None

    class First(NamedTuple):
        weights: Any

    class Second(NamedTuple):
        weights: Any
        scale: float

    serde.default_registry.add(First, "tests.training.Grown")
    save_checkpoint(tmp_path, 1, {"x": First(torch.ones(2))}, rng=False)
    registry = serde.default_registry
    del registry._by_id["tests.training.Grown"]
    registry.add(Second, "tests.training.Grown", version=2, upgrades={1: lambda data: {**data, "scale": 1.0}})
    found = load_checkpoint(tmp_path)["x"]
    assert type(found) is Second
    assert (found.weights.tolist(), found.scale) == ([1, 1], 1.0)
