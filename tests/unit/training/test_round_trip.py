"""Whatever a state holds comes back exactly, or is refused by name."""

from __future__ import annotations

import datetime
import math
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.errors import Refused
from holdfast.training import load_checkpoint, save_checkpoint

from .scenes import same, small_state

pytestmark = pytest.mark.extras

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex32, torch.complex64,
    torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]  # fmt: skip


def trip(state: Any, folder: Path, **options: Any) -> Any:
    return load_checkpoint(save_checkpoint(folder, 1, state)["path"], **options)


def bits(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """A tensor of a type with every kind of bits in it."""
    size = math.prod(shape) * dtype.itemsize
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (size,), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_bit_of_every_type_comes_back(dtype: torch.dtype, mmap: bool, tmp_path: Path) -> None:
    state = {"matrix": bits(dtype, 5, 7), "scalar": bits(dtype).reshape(()), "empty": bits(dtype, 0, 3)}
    loaded = trip(state, tmp_path, mmap=mmap)
    for name, tensor in state.items():
        assert same(tensor, loaded[name]), name


def test_a_model_and_its_optimiser_go_on_from_what_was_loaded(tmp_path: Path) -> None:
    state = small_state()
    loaded = trip(state, tmp_path)
    assert same(state, loaded)
    assert loaded["model"]._metadata == state["model"]._metadata
    model = torch.nn.Sequential(torch.nn.Linear(600, 600), torch.nn.BatchNorm1d(600))
    assert not model.load_state_dict(loaded["model"]).missing_keys
    torch.optim.Adam(model.parameters()).load_state_dict(loaded["optimizer"])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4).T,
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(12)[::3],
        torch.randn(6, 8)[1:4, 2:7],
        torch.randn(1, 3).expand(4, 3),
        torch.randn(3).expand(2, 5, 3),
        torch.ones(1).expand(5),
        torch.tensor(2.0).expand(3, 3),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(4, 4)[0:0],
    ],
    ids=[
        "transposed",
        "channels-last",
        "stepped",
        "window",
        "expanded",
        "expanded-twice",
        "one-expanded",
        "scalar-expanded",
        "conjugated",
        "empty-view",
    ],
)
def test_strides_come_back(tensor: torch.Tensor, tmp_path: Path) -> None:
    loaded = trip({"x": tensor}, tmp_path)["x"]
    assert torch.equal(loaded, tensor.resolve_conj())
    assert loaded.stride() == tensor.stride()


def test_what_was_one_tensor_is_one_again(tmp_path: Path) -> None:
    weight = torch.randn(4, 4)
    loaded = trip({"embedding": weight, "head": weight, "rows": weight[1:3], "column": weight[:, 2]}, tmp_path)
    loaded["embedding"][1, 2] = 77.0
    assert loaded["head"][1, 2] == loaded["rows"][0, 2] == loaded["column"][1] == 77.0


def test_a_view_that_comes_first_is_still_a_view(tmp_path: Path) -> None:
    whole = torch.nn.Parameter(torch.randn(6))
    loaded = trip({"part": whole.detach()[2:4], "whole": whole}, tmp_path)
    assert isinstance(loaded["whole"], torch.nn.Parameter)
    loaded["part"][0] = 5.0
    assert loaded["whole"][2] == 5.0


def test_a_strided_tensor_twice_is_one_again(tmp_path: Path) -> None:
    column = torch.randn(5, 3)[:, 1]
    loaded = trip({"a": column, "b": column}, tmp_path)
    loaded["a"][0] = 9.0
    assert loaded["b"][0] == 9.0


def test_disjoint_views_of_one_buffer_are_stored_apart(tmp_path: Path) -> None:
    flat, matrix = torch.randn(100), torch.randn(6, 6)
    state = {"a": flat[:40], "b": flat[40:], "even": matrix[:, ::2], "odd": matrix[:, 1::2]}
    assert same(state, trip(state, tmp_path))


def test_shared_conjugate_is_shared_again(tmp_path: Path) -> None:
    original = torch.randn(5, dtype=torch.complex64)
    flipped = original.conj()
    loaded = trip({"a": flipped, "b": flipped, "c": flipped[1:3]}, tmp_path)
    assert torch.equal(loaded["a"], flipped)
    loaded["a"][1] = 7.0
    assert loaded["b"][1] == loaded["c"][0] == 7.0
    for other in (flipped, flipped.imag):
        with pytest.raises(Refused, match="share memory"):
            save_checkpoint(tmp_path, 9, {"a": original, "b": other})


def test_windows_that_overlap_are_refused_by_name(tmp_path: Path) -> None:
    flat = torch.randn(100)
    with pytest.raises(Refused, match=r"model\.a and model\.b share memory"):
        save_checkpoint(tmp_path, 1, {"model": {"a": flat[:60], "b": flat[40:]}})
    assert not list(tmp_path.glob("step-*"))


def test_parameters_and_gradients_flags_come_back(tmp_path: Path) -> None:
    state = {"p": torch.nn.Parameter(torch.randn(2)), "t": torch.randn(2, requires_grad=True)}
    frozen = torch.nn.Parameter(torch.randn(2), requires_grad=False)
    loaded = trip({**state, "frozen": frozen}, tmp_path)
    assert isinstance(loaded["p"], torch.nn.Parameter)
    assert loaded["p"].requires_grad
    assert loaded["t"].requires_grad
    assert not loaded["frozen"].requires_grad


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_sparse_tensors_come_back(layout: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dense = torch.eye(4, dtype=torch.float64) * 3
        block = (2, 2) if layout.startswith("bs") else None
        sparse = (
            dense.to_sparse() if layout == "coo" else getattr(dense, f"to_sparse_{layout}")(*([block] if block else []))
        )
        loaded = trip({"x": sparse}, tmp_path)["x"]
        assert loaded.layout == sparse.layout
        assert torch.equal(loaded.to_dense(), dense)


def test_a_sparse_tensor_that_is_not_coalesced_stays_so(tmp_path: Path) -> None:
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, 0]]), torch.tensor([1.0, 2.0]), (3,), check_invariants=True)
    loaded = trip({"x": sparse}, tmp_path)["x"]
    assert not loaded.is_coalesced()
    assert loaded._values().tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(6).reshape(2, 3).T, np.arange(10)[::-1],
        np.array(3.5), np.zeros((0, 3)), np.array([1, 2], dtype=">i4"), np.array([1 + 2j]), np.array([True, False]),
        np.array(["2026-01-01"], dtype="datetime64[D]"), np.array(["a", "bcd"]), np.array([b"xy"]),
        np.array([1.5], dtype=np.longdouble), np.broadcast_to(np.arange(3), (2, 3)),
    ],
)  # fmt: skip
def test_arrays_of_numpy_come_back(array: np.ndarray, tmp_path: Path) -> None:
    loaded = trip({"x": array}, tmp_path)["x"]
    assert type(loaded) is np.ndarray
    assert loaded.dtype == array.dtype
    assert loaded.shape == array.shape
    assert np.array_equal(loaded, array)


def test_scalars_of_numpy_come_back(tmp_path: Path) -> None:
    loaded = trip({"x": np.float32(1.5), "y": np.int16(-3)}, tmp_path)
    assert type(loaded["x"]) is np.float32
    assert type(loaded["y"]) is np.int16
    assert (loaded["x"], loaded["y"]) == (1.5, -3)


def test_everything_that_is_no_tensor_comes_back(tmp_path: Path) -> None:
    state = {
        "none": None, "yes": True, "large": 2**200, "float": 0.1, "minus zero": -0.0, "inf": -math.inf, "nan": math.nan,
        "text": "größe \udc80 \0", "bytes": b"\0\xff", "tuple": (1, (2, [3])), "empty": [{}, [], ()], "set": {1, 2},
        "complex": 1 - 2j, "when": datetime.datetime(2026, 1, 2, 3, 4, 5, 6), "path": Path("/x/y"),
        1: {2.5: "number keys", (1, 2): "tuple keys", None: 0}, "$tensor": "a dollar",
        "ordered": OrderedDict(b=1, a=OrderedDict()), "nested": {"$dict": {"$tuple": [1]}},
    }  # fmt: skip
    assert same(state, trip(state, tmp_path))


@pytest.mark.parametrize("state", [torch.arange(3), 5, None, [], {}, [torch.ones(1), {"x": 1}], ()], ids=repr)
def test_a_state_need_not_be_a_dict(state: Any, tmp_path: Path) -> None:
    assert same(state, trip(state, tmp_path))


def test_names_that_would_collide_are_kept_apart(tmp_path: Path) -> None:
    state = {"a": {"b.c": torch.ones(1)}, "a.b": {"c": torch.zeros(1)}, "__metadata__": torch.full((1,), 2.0)}
    assert same(state, trip(state, tmp_path))


class Opaque:
    pass


def refused() -> dict[str, tuple[Any, str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    holds_itself: dict[str, Any] = {}
    holds_itself["x"] = holds_itself
    return {
        "an object": (Opaque(), "Opaque"),
        "a function": (len, "builtin_function_or_method"),
        "a quantised tensor": (quantised, "quantized"),
        "a meta tensor": (torch.ones(2, device="meta"), "meta"),
        "a tensor that overlaps itself": (torch.arange(5).as_strided((3, 3), (1, 1)), "overlap"),
        "objects in an array": (np.array([Opaque()]), "object"),
        "a record array": (np.zeros(2, dtype=[("a", "i4")]), "cannot be saved"),
        "a number of too many digits": (-(10**5000), "too many digits"),
        "an array whose elements have no bytes": (np.zeros(2, "V0"), "V0"),
        "a masked array": (np.ma.masked_array([1, 2], [True, False]), "MaskedArray"),
        "a subclass of a tensor": (torch.ones(2).as_subclass(_Subclass), "_Subclass"),
        "what contains itself": (holds_itself, "nested too deeply"),
        "a subclass of a dict": (type("Own", (dict,), {})(), "Own"),
        "a subclass of a dict with items": (type("Own", (dict,), {})(a=1), "Own"),
        "a subclass of a dict with numbers for keys": (type("Own", (dict,), {})({1: 2}), "Own"),
        "a subclass of a list": (type("Own", (list,), {})([1]), "Own"),
        "a subclass of an ordered dict": (type("Own", (OrderedDict,), {})(a=1), "Own"),
    }


class _Subclass(torch.Tensor):
    pass


@pytest.mark.parametrize("name", list(refused()))
def test_what_cannot_be_stored_exactly_is_refused_with_its_path(name: str, tmp_path: Path) -> None:
    value, word = refused()[name]
    with pytest.raises(Refused, match=word) as caught:
        save_checkpoint(tmp_path / "out", 1, {"model": {"layers": [0, value]}})
    assert "model.layers.1" in str(caught.value)
    assert caught.value.hint
    assert not (tmp_path / "out").exists()


class TestWeightsOnly:
    def test_tensors_and_plain_values_are_loaded(self, tmp_path: Path) -> None:
        tensor = torch.ones(2)
        state = {"a": tensor, "n": 1, "list": [1, tensor, "x"], "d": {"b": True, "f": math.inf}, "t": (tensor, None)}
        state |= {"bytes": b"x", "set": {1, 2}, "empty": {}, "big": 1 << 80}
        assert same(state, trip(state, tmp_path / "whole", weights_only=True))
        assert same(state, trip(state, tmp_path / "mapped", weights_only=True, mmap=True).copy())

    def test_an_optimizer_goes_on(self, tmp_path: Path) -> None:
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.AdamW([weight], lr=0.5)
        weight.sum().backward()
        optimizer.step()
        loaded = trip({"optimizer": optimizer.state_dict()}, tmp_path, weights_only=True)
        assert same(optimizer.state_dict(), loaded["optimizer"])
        other = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=0.1)
        other.load_state_dict(loaded["optimizer"])
        assert other.param_groups[0]["lr"] == 0.5

    def test_values_of_other_classes_are_left_out(self, tmp_path: Path) -> None:
        state = {"at": datetime.datetime(2026, 1, 2), "list": [1, Path("x")], "sets": {Path("y")}, "n": 1}
        assert trip(state, tmp_path, weights_only=True) == {"list": [1, None], "n": 1}


def test_what_is_named_is_loaded_alone(tmp_path: Path) -> None:
    tensor = torch.ones(2)
    state = {"model": {"a.weight": tensor, "a.bias": tensor * 2, "b": tensor * 3}, "epoch": 3}
    path = save_checkpoint(tmp_path, 1, state)["path"]
    assert same({"model": {"a.weight": tensor, "a.bias": tensor * 2}}, load_checkpoint(path, only=["model.a"]))
    assert same({"model": {"a.bias": tensor * 2}}, load_checkpoint(path, only=["*.bias"]))
    assert load_checkpoint(path, only=["epoch"]) == {"epoch": 3}
    assert list(load_checkpoint(path, only=["model.b"], mmap=True)["model"]) == ["b"]


def test_what_was_loaded_can_be_changed_and_the_checkpoint_stays(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, {"x": torch.ones(1000, 1000)})["path"]
    for mmap in (False, True):
        load_checkpoint(path, mmap=mmap)["x"].add_(1)
        assert load_checkpoint(path)["x"].max() == 1


def test_every_tensor_lies_where_the_processor_can_use_it(tmp_path: Path) -> None:
    state = {f"pad{at}": torch.ones(at, dtype=torch.uint8) for at in range(1, 9)}
    state |= {f"c{at}": torch.ones(3, dtype=torch.complex128) for at in range(8)}
    loaded = trip(state, tmp_path)
    assert all(tensor.data_ptr() % tensor.element_size() == 0 for tensor in loaded.values())
    assert same(state, loaded)
