"""Damage is found, and hostile files lead nowhere."""

from __future__ import annotations

import json
import os
import pickle
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from holdfast.errors import Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint
from holdfast.training.stored.manifest import decode

from .scenes import same, small_state

pytestmark = pytest.mark.extras

LINUX = tuple(int(part) for part in platform.release().split(".")[:2]) if sys.platform == "linux" else (0, 0)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    meta = save_checkpoint(tmp_path / "out", 1, small_state(), metrics={"loss": 1.0}, best_key="loss")
    path = Path(meta["path"])
    for file in path.iterdir():
        file.chmod(0o644)
    return path


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def test_one_flipped_bit_is_found_wherever_it_is(saved: Path) -> None:
    random = Random(1)
    files = sorted(saved.iterdir())
    for number in range(60):
        file = files[number % len(files)]
        bit = random.randrange(8 * file.stat().st_size)
        flip(file, bit)
        with pytest.raises((Damaged, Refused)):
            load_checkpoint(saved)
        flip(file, bit)
    load_checkpoint(saved)


def test_a_map_is_verified_when_a_tensor_is_asked_for(saved: Path) -> None:
    [shard] = [file for file in saved.glob("*.safetensors") if b'"model.0.weight"' in file.read_bytes()[:500]]
    flip(shard, 8 * (shard.stat().st_size - 100))
    state = load_checkpoint(saved, mmap=True)
    assert state["model"]["0.bias"].shape == (600,)
    with pytest.raises(Damaged, match=r"model\.0\.weight"):
        state["model"]["0.weight"]
    assert load_checkpoint(saved, mmap=True, verify=False)["model"]["0.weight"].shape == (600, 600)


def test_an_optimiser_takes_what_is_mapped(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizers = [torch.optim.AdamW([weight], lr=rate, betas=(0.5, 0.6)) for rate in (0.1, 0.2)]
    weight.grad = torch.ones(3)
    optimizers[0].step()
    path = save_checkpoint(tmp_path, 1, {"optimizer": optimizers[0].state_dict()})["path"]
    optimizers[1].load_state_dict(load_checkpoint(path, mmap=True)["optimizer"])
    assert same(optimizers[0].state_dict(), optimizers[1].state_dict())


CUT_SHORT = """
import os, sys
from pathlib import Path
from holdfast.errors import Damaged
from holdfast.training import load_checkpoint

path = Path(sys.argv[1])
state = load_checkpoint(path, mmap=True)
assert state["model"]["1.bias"].shape == (600,)
[shard] = [file for file in path.glob("*.safetensors") if b'"model.1.bias"' in file.read_bytes()[:4096]]
os.truncate(shard, 4096)
try:
    state["model"]["0.bias"]
except Damaged as error:
    print(error)
"""


@pytest.mark.skipif(LINUX < (5, 14), reason="only newer systems tell it before it is too late")
def test_file_truncated_while_mapped_is_damage(saved: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", CUT_SHORT, saved], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "cannot be read" in ran.stdout


def test_what_is_not_asked_for_need_not_be_sound(saved: Path) -> None:
    [shard] = [file for file in saved.glob("*.safetensors") if b'"model.0.weight"' in file.read_bytes()[:500]]
    shard.unlink()
    assert load_checkpoint(saved, only=["model.0.bias"])["model"]["0.bias"].shape == (600,)
    with pytest.raises(Damaged, match="missing"):
        load_checkpoint(saved)


@pytest.mark.parametrize("name", ["manifest.json", "state.json", "model-00001-of-00004.safetensors"])
@pytest.mark.parametrize("how", ["missing", "truncated", "longer", "empty", "a folder", "a link", "a pipe"])
def test_a_file_that_is_not_what_was_written_is_damage(name: str, how: str, saved: Path) -> None:
    file = saved / name
    data = file.read_bytes()
    file.unlink()
    if how == "a folder":
        file.mkdir()
    elif how == "a link":
        (saved.parent / "elsewhere").write_bytes(data)
        file.symlink_to(saved.parent / "elsewhere" if name != "manifest.json" else "/nowhere")
    elif how == "a pipe":
        os.mkfifo(file)
    elif how != "missing":
        file.write_bytes({"truncated": data[:-10], "longer": data + b"\0", "empty": b""}[how])
    with pytest.raises((Damaged, NotFound)):
        load_checkpoint(saved)
    with pytest.raises(HoldfastError):
        load_checkpoint(saved.parent, step=1)
    assert not CheckpointManager(saved.parent).verify().ok


# a manifest that somebody made, with a right digest


def forge(saved: Path, change: Callable[[dict[str, Any]], None]) -> None:
    found = json.loads((saved / "manifest.json").read_text())
    del found["manifest_digest"]
    change(found)
    text = json.dumps(found, separators=(",", ":"))[:-1].encode()
    from holdfast.training.stored import digests

    digest = digests.digest(text, "blake3").encode()
    (saved / "manifest.json").write_bytes(text + b',"manifest_digest":"' + digest + b'"}\n')


def escape(found: dict[str, Any]) -> None:
    entry = found["files"].pop("state.json")
    found["files"]["../../../etc/passwd"] = entry


def lie_about_size(found: dict[str, Any]) -> None:
    next(iter(found["tensors"].values()))["shape"] = [1 << 40]


def lie_about_place(found: dict[str, Any]) -> None:
    next(iter(found["tensors"].values()))["offset"] = 1 << 40


def negative(found: dict[str, Any]) -> None:
    next(iter(found["tensors"].values()))["offset"] = -5


def unknown_type(found: dict[str, Any]) -> None:
    next(iter(found["tensors"].values()))["dtype"] = "F999"


def no_file(found: dict[str, Any]) -> None:
    next(iter(found["tensors"].values()))["file"] = "nothing"


def unknown_digest(found: dict[str, Any]) -> None:
    found["digest_algorithm"] = "md5"


def wrong_kind(found: dict[str, Any]) -> None:
    found["kind"] = "other"


def text_for_step(found: dict[str, Any]) -> None:
    found["step"] = "1"


def metric_of_text(found: dict[str, Any]) -> None:
    found["metrics"] = {"loss": "low"}


@pytest.mark.parametrize(
    "change",
    [
        escape, lie_about_size, lie_about_place, negative, unknown_type, no_file, unknown_digest, wrong_kind,
        text_for_step, metric_of_text,
    ],
)  # fmt: skip
def test_a_manifest_that_lies_is_damage(change: Callable[[dict[str, Any]], None], saved: Path) -> None:
    forge(saved, change)
    with pytest.raises(Damaged):
        load_checkpoint(saved)


def test_no_tensor_lies_in_the_header_of_its_file(saved: Path) -> None:
    forge(saved, lambda found: next(iter(found["tensors"].values())).update(offset=0))
    with pytest.raises(Damaged, match="lies outside its file"):
        load_checkpoint(saved, verify=False)


def test_a_manifest_of_a_newer_version_is_refused(saved: Path) -> None:
    forge(saved, lambda found: found.update(schema_version=2))
    with pytest.raises(Refused, match="schema_version 2"):
        load_checkpoint(saved)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'"x"', b"[" * 100_000, b"\xff\xfe", pickle.dumps(print)])
def test_what_is_no_manifest_is_damage(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode(data, "manifest.json")


@pytest.mark.parametrize(
    "tree",
    [
        {"$tensor": {"names": ["no such"], "kind": "torch"}},
        {"$tensor": {"names": ["model.0.weight"], "kind": "os"}},
        {"$tensor": {}},
        {"$tensor": {"names": [], "kind": "torch"}},
        {"$tensor": {"names": ["model.0.weight"], "kind": "torch", "stride": [-1, 1 << 60]}},
        {"$tensor": {"names": ["model.0.weight"], "kind": "torch", "stride": [0, 0]}},
        {"$tensor": {"names": ["model.0.weight"], "kind": "torch", "dtype": "bits1x8"}},
        {"$tensor": {"names": ["model.0.weight"], "kind": "torch", "layout": "sparse_coo"}},
        {"$tensor": {"names": ["model.0.weight"], "kind": "numpy", "dtype": "O", "shape": [1]}},
        {"$tensor": {"of": "no such", "kind": "torch"}},
        {"$pickle": "gASV"},
        {"$tuple": 5},
        {"$dict": [[1]]},
        {"$float": "1e999x"},
        {"$bytes": "***"},
        {"$ordered_dict": []},
    ],
    ids=repr,
)
def test_a_state_that_lies_is_damage(tree: Any, saved: Path) -> None:
    from holdfast.training.stored import digests

    whole = {"model": {"x": tree}, "base": json.loads((saved / "state.json").read_text())["state"]}
    data = json.dumps({"schema_version": 1, "state": whole}).encode()
    (saved / "state.json").write_bytes(data)
    entry = {"bytes": len(data), "digest": digests.digest(data, "blake3")}
    forge(saved, lambda found: found["files"].update({"state.json": entry}))
    with pytest.raises(HoldfastError):
        load_checkpoint(saved)


@pytest.mark.parametrize(("offset", "stride"), [(0, [1 << 40, 1]), (-1, [10, 1]), (99, [-10, 1])])
def test_a_view_cannot_leave_its_tensor(offset: int, stride: list[int], saved: Path) -> None:
    from holdfast.training.stored import digests

    state = json.loads((saved / "state.json").read_text())
    view = {"of": "model.0.weight", "kind": "torch", "offset": offset, "shape": [10, 10], "stride": stride}
    state["state"]["far"] = {"$tensor": view}
    data = json.dumps(state).encode()
    (saved / "state.json").write_bytes(data)
    entry = {"bytes": len(data), "digest": digests.digest(data, "blake3")}
    forge(saved, lambda found: found["files"].update({"state.json": entry}))
    with pytest.raises(Damaged, match="reaches outside"):
        load_checkpoint(saved)


# which one is found


def test_a_folder_that_is_not_whole_is_passed_over(saved: Path) -> None:
    out = saved.parent
    (out / "step-00000002").mkdir()
    (out / "step-00000003").mkdir()
    shutil.copy(saved / "manifest.json", out / "step-00000003")
    assert same(load_checkpoint(out), load_checkpoint(saved))
    with pytest.raises(Damaged):
        load_checkpoint(out, step=2)
    with pytest.raises(Damaged, match="contains step 1"):
        load_checkpoint(out, step=3)


def test_a_marker_that_lies_is_not_believed(saved: Path) -> None:
    out = saved.parent
    (out / "last").write_text('{"schema_version": 1, "path": "/etc"}')
    assert same(load_checkpoint(out / "last"), load_checkpoint(saved))
    (out / "last").write_bytes(b"\xff")
    assert same(load_checkpoint(out / "last"), load_checkpoint(saved))


def test_a_checkpoint_can_be_moved_and_copied(saved: Path, tmp_path: Path) -> None:
    before = load_checkpoint(saved)
    shutil.copytree(saved.parent, tmp_path / "copy")
    shutil.rmtree(saved.parent)
    assert same(before, load_checkpoint(tmp_path / "copy" / "last"))
    shutil.move(tmp_path / "copy" / saved.name, tmp_path / "alone")
    assert same(before, load_checkpoint(tmp_path / "alone"))


@pytest.mark.parametrize("path", ["nothing", "nothing/last", "nothing/best.json"])
def test_what_is_not_there_is_not_found(path: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load_checkpoint(tmp_path / path)


def test_a_folder_without_checkpoints_has_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no checkpoint latest"):
        load_checkpoint(tmp_path)


def test_a_damaged_step_is_put_aside_when_it_is_saved_again(saved: Path) -> None:
    (saved / "manifest.json").write_text("{}")
    meta = save_checkpoint(saved.parent, 1, {"x": torch.ones(1)})
    assert load_checkpoint(meta["path"])["x"] == 1
    assert (saved.parent / "step-00000001.damaged-1" / "manifest.json").read_text() == "{}"


@pytest.mark.parametrize("only", ["model", [1], [""]], ids=repr)
def test_names_are_given_in_a_list(only: Any, saved: Path) -> None:
    with pytest.raises(Refused, match="invalid only"):
        load_checkpoint(saved, only=only)


def test_a_name_that_nothing_has_is_not_found(saved: Path) -> None:
    with pytest.raises(NotFound, match="nothing named modle"):
        load_checkpoint(saved, only=["modle"])


@pytest.mark.parametrize("place", ["nowhere", "cuda:99", 99, object()])
def test_a_device_that_is_not_here_is_no_damage(place: Any, saved: Path) -> None:
    with pytest.raises(Unavailable, match="cannot move a tensor to"):
        load_checkpoint(saved, map_location=place)
    assert same(load_checkpoint(saved, map_location="cpu"), load_checkpoint(saved))


@pytest.mark.parametrize("path", ["", "last"])
def test_a_newest_that_cannot_be_read_is_passed_over_and_told(
    path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step, {"x": step})
    (tmp_path / "step-00000002" / "manifest.json").unlink()
    assert load_checkpoint(tmp_path / path)["x"] == 1
    assert [record.message.partition(" ")[0] for record in caplog.records] == ["skipped:"]
    assert "step-00000002 has no manifest.json" in caplog.text
