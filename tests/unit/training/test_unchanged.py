"""A save shares what did not change, and notices whatever did: a bit, a type, a shape, a name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.errors import Refused
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint
from holdfast.training.stored.manifest import decode

from .scenes import same
from .test_round_trip import DTYPES, bits

pytestmark = pytest.mark.extras

COUNT = 40
KIB = 1 << 10


def save(folder: Path, step: int, state: Any) -> dict[str, Any]:
    return save_checkpoint(folder, step, state, rng=False)


def filled_files(count: int) -> dict[str, torch.Tensor]:
    """Tensors of which four fill a file."""
    return {f"layer{at}": torch.full((120 * KIB,), float(at)) for at in range(count)}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_bit_is_noticed(dtype: torch.dtype, tmp_path: Path) -> None:
    state = {f"part{at}": bits(dtype, 3, 5) for at in range(COUNT)} | {"none": bits(dtype, 0, 5)}
    save(tmp_path, 1, state)
    assert save(tmp_path, 2, state)["files_shared"] == 1
    raw = state[f"part{COUNT - 1}"].view(-1).view(torch.uint8)
    raw[-1] ^= 1
    meta = save(tmp_path, 3, state)
    assert meta["files_shared"] == 0
    assert same(load_checkpoint(meta["path"]), state)


@pytest.mark.parametrize("n_bytes", [10, 240 * KIB, 3 << 20], ids=["small", "sampled", "file of its own"])
def test_a_bit_is_noticed_in_a_tensor_of_any_size(n_bytes: int, tmp_path: Path) -> None:
    state = {"x": bits(torch.uint8, n_bytes)}
    save(tmp_path, 1, state)
    assert save(tmp_path, 2, state)["files_shared"] == 1
    between_samples = int((n_bytes - 4 * KIB) * 10.5 / 15)
    state["x"][max(3, between_samples)] ^= 1
    meta = save(tmp_path, 3, state)
    assert meta["files_shared"] == 0
    assert same(load_checkpoint(meta["path"]), state)


@pytest.mark.parametrize(
    "after",
    [torch.ones(6).view(torch.int32), torch.ones(2, 3), torch.ones(6).view(torch.int16)],
    ids=["type", "shape", "both"],
)
def test_the_same_bytes_as_something_else_are_noticed(after: torch.Tensor, tmp_path: Path) -> None:
    save(tmp_path, 1, {"x": torch.ones(6)})
    path = save(tmp_path, 2, {"x": after})["path"]
    assert same(load_checkpoint(path), {"x": after})


def test_manifest_names_the_new_files_of_shared_ones(tmp_path: Path) -> None:
    """Files are counted in their names, so that one more renames them all; names of tensors may look like any of it."""
    state = filled_files(12)
    files = [f"model-{at:05d}-of-{count:05d}.safetensors" for count in range(1, 9) for at in range(1, count + 1)]
    forms = ("{}", 'x:"{}"', ':"{}"', '{{"file":"{}",', '"{}')
    names = [form.format(file) for file in files for form in forms]
    state |= {name: torch.full((3,), float(at)) for at, name in enumerate(names)}
    old = Path(save(tmp_path, 1, state)["path"])
    state |= {f"more{at}": torch.ones(120 * KIB) for at in range(6)}
    meta = save(tmp_path, 2, state)
    new = Path(meta["path"])
    assert meta["files_shared"] == len(list(old.glob("*.safetensors")))
    assert not {path.name for path in new.glob("*.safetensors")} & {path.name for path in old.iterdir()}
    manifest = decode((new / "manifest.json").read_bytes(), "it")
    where = json.loads((new / "model.safetensors.index.json").read_text())["weight_map"]
    assert where == {name: entry.file for name, entry in manifest.tensors.items()}
    assert set(where) == set(state)
    assert same(load_checkpoint(new), state)
    assert CheckpointManager(tmp_path).verify().ok


def test_another_process_shares_as_well(tmp_path: Path) -> None:
    """What this process remembers of its last save is not needed: the manifest says it all."""
    state = filled_files(8)
    first = save(tmp_path / "a", 1, state)
    (tmp_path / "a").rename(tmp_path / "b")  # another path: nobody remembers anything of it
    meta = save(tmp_path / "b", 2, state)
    assert meta["files_shared"] == len(list((tmp_path / "b" / Path(first["path"]).name).glob("*.safetensors")))
    assert same(load_checkpoint(meta["path"]), state)


def test_texts_that_look_like_what_stands_for_an_array(tmp_path: Path) -> None:
    """Arrays are put into the encoded state afterwards, in place of a text that a state may have as well."""
    state = {
        "a": "$array",
        "b": [torch.ones(2), "$array", '"$array"', torch.zeros(3)],
        "c": {"$array": torch.arange(4), "x": ("$array",)},
        "d": {1: torch.ones(1), "$array": "$array"},
        "array": "array",
    }
    assert same(load_checkpoint(save(tmp_path, 1, state)["path"]), state)


def test_a_tensor_whose_memory_shrank_is_refused(tmp_path: Path) -> None:
    tensor = torch.ones(1_000)
    tensor.untyped_storage().resize_(8)
    with pytest.raises(Refused, match=r"layer\.x cannot be saved: its memory was freed"):
        save(tmp_path, 1, {"layer": {"x": tensor}})


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_an_empty_tensor_alone(shape: tuple[int, ...], tmp_path: Path) -> None:
    state = {"x": torch.ones(shape)}
    for step in (1, 2):
        assert same(load_checkpoint(save(tmp_path, step, state)["path"]), state)


def test_names_that_meet_are_told_apart(tmp_path: Path) -> None:
    state = {"a.b": torch.ones(2), "a": {"b": torch.zeros(3)}, "a.b#2": torch.arange(2), "é\udcff": torch.ones(1)}
    for step in (1, 2):
        path = save(tmp_path, step, state)["path"]
        assert same(load_checkpoint(path), state)
