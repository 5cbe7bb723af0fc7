"""Any nesting of tensors comes back exactly, with its types, strides and shared memory, or is refused by its path."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st

from examples import examples
from holdfast import durable
from holdfast.errors import Refused
from holdfast.testing.faulty_disks import FailingDisk
from holdfast.training import load_checkpoint, save_checkpoint, wait_for_save

pytestmark = pytest.mark.extras

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
TYPES = [
    *FLOATS, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu, torch.complex64, torch.complex128, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool,
]  # fmt: skip
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


def bits(n_bytes: int) -> bytes:
    """The same for the same length, so that an example that fails fails again."""
    return np.random.default_rng(n_bytes).bytes(n_bytes)


def filled(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Any bits that the type can have: NaNs with a payload, negative zeros."""
    if dtype is torch.bool:
        return filled(torch.uint8, shape) > 100
    count = int(np.prod(shape, dtype=int))
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(bits(count * dtype.itemsize)), dtype=dtype).reshape(shape)


@st.composite
def views(draw: st.DrawFn, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor, or what shares memory with it."""
    for _ in range(draw(st.integers(0, 2))):
        how = draw(st.sampled_from(["turned", "every second", "row", "spread", "from the second", "the same"]))
        if how == "turned":
            tensor = tensor.permute(tuple(reversed(range(tensor.dim()))))
        elif how == "spread":
            tensor = tensor.expand(2, *tensor.shape)
        elif tensor.dim() and tensor.shape[0]:
            steps = {"every second": slice(None, None, 2), "row": 0, "from the second": slice(1, None)}
            tensor = tensor[steps.get(how, slice(None))]
    return tensor


@st.composite
def tensors(draw: st.DrawFn, pool: list[torch.Tensor]) -> Any:
    tensor = draw(st.sampled_from(pool)) if draw(st.booleans()) else filled(draw(st.sampled_from(TYPES)), draw(SHAPES))
    tensor = draw(views(tensor))
    kind = draw(st.sampled_from(["plain", "plain", "plain", "parameter", "gradient", "sparse", "conjugate"]))
    if kind == "parameter":
        return torch.nn.Parameter(tensor, requires_grad=tensor.dtype in FLOATS and draw(st.booleans()))
    if kind == "gradient" and tensor.dtype in FLOATS:
        return tensor.detach().requires_grad_()
    if kind == "sparse" and tensor.dtype in (torch.float32, torch.int64) and tensor.dim() == 2:
        return tensor.to_sparse()
    return tensor.conj() if kind == "conjugate" and tensor.is_complex() else tensor


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    types = ["f8", "f4", "f2", "c16", "c8", "i8", ">i4", "u1", "?", "M8[ns]", "m8[s]", "S3", "U2", "V5", ">f8"]
    dtype, shape = np.dtype(draw(st.sampled_from(types))), draw(SHAPES)
    if dtype.kind in "US":
        array = np.full(shape, "ab", dtype)
    elif dtype.kind == "b":
        array = filled(torch.bool, shape).numpy()
    else:
        count = int(np.prod(shape, dtype=int))
        array = np.frombuffer(bits(count * dtype.itemsize), dtype).reshape(shape)
    how = draw(st.sampled_from(["plain", "turned", "backwards", "one"]))
    if how == "one" and array.size:
        return array.reshape(-1)[0]
    return array.T if how == "turned" else array[::-1] if how == "backwards" and array.ndim else array


PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5))
KEYS = st.one_of(st.text(max_size=4), st.integers(), st.sampled_from(["$tensor", "a.b", ""]))


@st.composite
def states(draw: st.DrawFn) -> Any:
    pool = [filled(draw(st.sampled_from(TYPES)), shape) for shape in ((4, 3), (6,))]
    leaves = st.one_of(tensors(pool), tensors(pool), arrays(), PLAIN)

    def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.lists(inner, max_size=4), st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(KEYS, inner, max_size=4), st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict),
        )  # fmt: skip

    return draw(st.recursive(nested(leaves), nested, max_leaves=12))


def walk(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield ("key", type(key), key)
            yield from walk(inner)
    elif isinstance(value, list | tuple):
        yield (type(value), len(value))
        for inner in value:
            yield from walk(inner)
    else:
        yield value


def picture(value: Any) -> Any:
    """Everything that must come back of a leaf, as something that can be compared."""
    if isinstance(value, torch.Tensor):
        about = (type(value), value.dtype, tuple(value.shape), value.layout, value.requires_grad)
        value = value.detach()
        if value.layout is not torch.strided:
            return (*about, value.is_coalesced(), picture(value._indices()), picture(value._values()))
        value = value.resolve_conj()  # as it is stored
        stride = tuple(step for step, size in zip(value.stride(), value.shape, strict=True) if size > 1)
        whole = torch.empty(value.numel(), dtype=value.dtype).copy_(value.reshape(-1))
        content = whole.view(torch.uint8).numpy().tobytes() if whole.numel() else b""
        return (*about, stride if value.numel() else None, content)
    if isinstance(value, np.ndarray | np.generic):
        return (type(value), value.dtype.str, value.shape, value.tobytes())
    return (type(value), repr(value))


def places(tensor: torch.Tensor) -> set[int]:
    """Where the elements of a tensor lie."""
    ranges = [range(size) for size in tensor.shape]
    steps = [step * tensor.element_size() for step in tensor.stride()]
    return {
        tensor.data_ptr() + sum(at * step for at, step in zip(index, steps, strict=True))
        for index in itertools.product(*ranges)
    }


def sharing(found: list[Any]) -> list[tuple[int, int]]:
    plain = [
        (at, places(value.detach()))
        for at, value in enumerate(found)
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_conj()
    ]
    return [(one, other) for (one, here), (other, there) in itertools.combinations(plain, 2) if here & there]


@pytest.fixture(scope="module", autouse=True)
def no_waiting() -> Iterator[None]:
    with durable.use_disk(FailingDisk(at=0)):  # which never fails, and never waits for the medium
        yield


@settings(max_examples=examples(120))
@given(state=states(), block=st.booleans(), mmap=st.booleans())
def test_any_state_comes_back_exactly_or_is_refused_by_its_path(state: Any, block: bool, mmap: bool) -> None:
    before = [picture(value) for value in walk(state)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            save_checkpoint(folder, 1, state, block=block, rng=False)
        except Refused as error:
            event("refused")
            assert "share memory" in error.message or "overlap in memory" in error.message
            return
        wait_for_save()
        loaded = load_checkpoint(folder, mmap=mmap)
        if mmap:
            loaded = _plain(loaded, state)
        assert [picture(value) for value in walk(state)] == before
        assert [picture(value) for value in walk(loaded)] == before
        assert sharing(list(walk(loaded))) == sharing(list(walk(state)))


def _plain(lazy: Any, like: Any) -> Any:
    """A mapping that reads when it is asked, as the dict that it stands for."""
    if isinstance(like, dict):
        assert list(lazy) == list(like)
        return {key: _plain(lazy[key], like[key]) for key in lazy}
    if isinstance(like, list | tuple):
        return type(like)(_plain(one, other) for one, other in zip(lazy, like, strict=True))
    return lazy


BAD = {
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "meta": lambda: torch.empty(2, device="meta"),
    "object": object,
    "set": lambda: {object()},
    "array of objects": lambda: np.array([object()]),
    "table": lambda: np.zeros(2, [("a", "i4")]),
    "layout": lambda: torch.ones(2, 2).to_mkldnn(),
    "own type": lambda: torch.ones(2).as_subclass(type("Own", (torch.Tensor,), {})),
}


@settings(max_examples=examples(60))
@given(state=st.lists(PLAIN, max_size=3), way=st.lists(st.sampled_from(["list", "dict", "tuple"]), max_size=4),
       bad=st.sampled_from(sorted(BAD)))  # fmt: skip
def test_unstorable_value_anywhere_is_refused_with_its_path(state: list[Any], way: list[str], bad: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that PyTorch means to give some of them up
        value: Any = BAD[bad]()
    path = []
    for how in way:
        path.append("deep" if how == "dict" else "1")
        value = {"deep": value} if how == "dict" else [None, value] if how == "list" else (None, value)
    where = ".".join(["bad", *reversed(path)])
    with tempfile.TemporaryDirectory() as folder:
        with pytest.raises(Refused) as told:
            save_checkpoint(folder + "/out", 1, {"rest": state, "bad": value}, rng=False)
        assert told.value.message.startswith(f"{where} cannot be saved")
        assert told.value.hint
