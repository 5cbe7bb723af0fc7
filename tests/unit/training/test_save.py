"""Steps, markers, retention and sharing: what a folder of checkpoints looks like after each save."""

from __future__ import annotations

import errno
import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from holdfast.durable import Disk
from holdfast.errors import Conflict, NotFound, Refused, Unavailable
from holdfast.training import CheckpointManager, checkpoints, load_checkpoint, save_checkpoint, wait_for_save
from holdfast.training.checkpoints import open_run
from holdfast.training.folder import FolderRunStore
from holdfast.training.shard_reader import read_manifest
from holdfast.training.stored import shards
from holdfast.training.stored.manifest import Manifest
from unprivileged import unprivileged

from .scenes import same, small_state

pytestmark = pytest.mark.extras

MIB = 1 << 20


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))


def save_all(folder: Path, losses: list[float], **options: Any) -> list[dict[str, Any]]:
    return [
        save_checkpoint(folder, at, {"x": at}, metrics={"loss": loss}, best_key="loss", **options)
        for at, loss in enumerate(losses, 1)
    ]


def best(folder: Path) -> tuple[int, float]:
    found = json.loads((folder / "best.json").read_text())
    return found["step"], found["value"]


def test_the_example_of_the_predecessor_works(tmp_path: Path) -> None:
    state = small_state()
    meta = save_checkpoint(
        out_dir=tmp_path / "runs/exp1/checkpoints", step=1200, state=state, metrics={"val_loss": 1.23},
        best_key="val_loss", keep_last_k=3,
    )  # fmt: skip
    loaded = load_checkpoint(meta["path"], weights_only=True)
    assert same(state["model"], loaded["model"])
    assert loaded["epoch"] == state["epoch"]


def test_a_step_is_found_by_every_path_that_means_it(tmp_path: Path) -> None:
    save_all(tmp_path, [2.0, 1.0, 3.0])
    assert load_checkpoint(tmp_path / "last") == {"x": 3}
    assert load_checkpoint(tmp_path / "best.json") == {"x": 2}
    assert load_checkpoint(tmp_path) == {"x": 3}
    assert load_checkpoint(str(tmp_path), step="latest") == {"x": 3}
    assert load_checkpoint(tmp_path, step="best") == {"x": 2}
    assert load_checkpoint(tmp_path, step=1) == {"x": 1}
    assert load_checkpoint(tmp_path / "step-00000001") == {"x": 1}
    with pytest.raises(NotFound, match="no checkpoint 7"):
        load_checkpoint(tmp_path, step=7)


def test_every_file_says_its_version(tmp_path: Path) -> None:
    path = Path(save_checkpoint(tmp_path, 1, {"x": torch.ones(2)}, metrics={"l": 1}, best_key="l")["path"])
    for file in (tmp_path / "last", tmp_path / "best.json", path / "manifest.json", path / "state.json"):
        assert json.loads(file.read_text())["schema_version"] == 1
    assert json.loads((path / "model.safetensors.index.json").read_text())["metadata"]["schema_version"] == 1
    with safe_open(path / "model-00001-of-00001.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "schema_version": "1"}


def test_a_folder_is_read_without_holdfast(tmp_path: Path) -> None:
    state = small_state()
    path = Path(save_checkpoint(tmp_path, 1, state)["path"])
    index = json.loads((path / "model.safetensors.index.json").read_text())
    weights = {}
    for file in set(index["weight_map"].values()):
        weights |= load_file(path / file)
    assert weights.keys() == index["weight_map"].keys()
    for name, tensor in state["model"].items():
        assert same(tensor, weights[f"model.{name}"])


# best


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([3.0, 2.5, 2.4], (3, 2.4)),
        ([1.0, 1.0], (1, 1.0)),
        ([math.nan, 2.0, 3.0], (2, 2.0)),
        ([0.9, math.nan, 0.5, 0.7], (3, 0.5)),
        ([-math.inf, 2.0], (2, 2.0)),
    ],
)
def test_the_best_changes_only_on_strict_improvement(
    losses: list[float], expected: tuple[int, float], tmp_path: Path
) -> None:
    metas = save_all(tmp_path, losses, keep_last_k=1)
    assert best(tmp_path) == expected
    assert steps(tmp_path) == sorted({expected[0], len(losses)})
    assert [meta["step"] for meta in metas if meta["is_best"]][-1] == expected[0]


def test_the_best_stays_also_when_a_save_does_not_ask_for_it(tmp_path: Path) -> None:
    save_all(tmp_path, [1.0, 2.0])
    save_checkpoint(tmp_path, 3, {}, keep_last_k=1)
    assert steps(tmp_path) == [1, 3]
    assert best(tmp_path) == (1, 1.0)


def test_greater_can_be_better(tmp_path: Path) -> None:
    save_all(tmp_path, [0.5, 0.9, 0.7], mode="max")
    assert best(tmp_path) == (2, 0.9)


def test_nan_metric_is_saved_and_never_the_best(tmp_path: Path) -> None:
    meta = save_checkpoint(tmp_path, 1, {}, metrics={"loss": math.nan}, best_key="loss")
    assert "cannot be the best" in meta["notes"][0]
    assert math.isnan(meta["metrics"]["loss"])
    assert not (tmp_path / "best.json").exists()
    with pytest.raises(NotFound):
        load_checkpoint(tmp_path, step="best")


def test_numbers_of_numpy_are_metrics(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {}, metrics={"loss": np.float32(0.5), "n": np.int64(3)}, best_key="loss")
    assert best(tmp_path) == (1, 0.5)


@pytest.mark.parametrize("value", [torch.tensor(1.0), "1.0", None, True, np.array(1.0), [1.0]], ids=repr)
def test_what_is_no_number_is_no_metric(value: Any, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="the metric loss is a"):
        save_checkpoint(tmp_path / "out", 1, {}, metrics={"loss": value}, best_key="loss")
    assert not (tmp_path / "out").exists()


def test_the_metric_that_decides_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="which best_key names") as caught:
        save_checkpoint(tmp_path, 1, {}, metrics={"accuracy": 1.0}, best_key="loss")
    assert "accuracy" in caught.value.hint


# retention


def test_the_last_the_best_and_every_so_many_steps_stay(tmp_path: Path) -> None:
    save_all(tmp_path, [5, 1, 4, 2, 6, 7, 8, 9, 3, 8], keep_last_k=2, keep_best_k=2, keep_every=5)
    assert steps(tmp_path) == [2, 4, 5, 9, 10]


def test_nothing_goes_unless_somebody_says_what_stays(tmp_path: Path) -> None:
    save_all(tmp_path, [1, 2, 3, 4, 5])
    assert steps(tmp_path) == [1, 2, 3, 4, 5]


def test_what_cannot_be_pinned_as_was_asked_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise Unavailable("the disk is full", hint="Make room.")

    monkeypatch.setattr(FolderRunStore, "pin", fail)
    with pytest.raises(Unavailable, match="disk is full"):
        save_checkpoint(tmp_path, 1, {}, pin=True)
    assert steps(tmp_path) == []


def test_what_is_pinned_stays(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {}, pin=True)
    for step in (2, 3, 4):
        meta = save_checkpoint(tmp_path, step, {}, keep_last_k=1)
    assert steps(tmp_path) == [1, 4]
    assert meta["pruned"] == [3]
    assert meta["kept"] == {1: "pinned", 4: "the newest"}


def test_steps_are_counted_and_not_sorted_as_text(tmp_path: Path) -> None:
    for step in (9_000, 10_000, 99_999_999, 100_000_000):
        save_checkpoint(tmp_path, step, {}, keep_last_k=2)
    assert steps(tmp_path) == [99_999_999, 100_000_000]


def test_what_others_put_into_the_folder_stays(tmp_path: Path) -> None:
    for name in ("logs", "data2024", "step-1", "step-final", "step-00000009.bak"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
    (tmp_path / "weights.pt").write_text("mine")
    (tmp_path / "step-00000005").write_text("a file of somebody")
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, {}, keep_last_k=1)
    for name in ("logs", "data2024", "step-1", "step-final", "step-00000009.bak"):
        assert (tmp_path / name / "mine").read_text() == "mine"
    assert (tmp_path / "weights.pt").exists()
    with pytest.raises(Conflict, match="not a Holdfast checkpoint"):
        save_checkpoint(tmp_path, 5, {})


def test_what_others_put_beside_the_lock_stays(tmp_path: Path) -> None:
    for name in ("savings", "saving-plan", "removing-things", "replaced-x"):
        (tmp_path / ".holdfast" / name).mkdir(parents=True)
    for name in ("saving", "removing-step-00000001"):
        (tmp_path / ".holdfast" / name).mkdir()
    save_checkpoint(tmp_path, 1, {})
    left = sorted(path.name for path in (tmp_path / ".holdfast").iterdir())
    assert left == ["lock", "removing-things", "replaced-x", "saving-plan", "savings"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".holdfast", "last", "step-00000001"]


def test_replaced_checkpoint_with_foreign_files_is_kept_aside(tmp_path: Path) -> None:
    for number in (1, 2):
        path = Path(save_checkpoint(tmp_path, 1, {"x": number}, rewind=True)["path"])
        (path / "notes.txt").write_text(f"mine {number}")
    save_checkpoint(tmp_path, 1, {"x": 3}, rewind=True)
    for number in (1, 2):
        aside = tmp_path / f"step-00000001.replaced-{number}"
        assert (aside / "notes.txt").read_text() == f"mine {number}"
        assert load_checkpoint(aside) == {"x": number}
    assert load_checkpoint(tmp_path) == {"x": 3}
    assert [each.step for each in FolderRunStore(tmp_path).scan()[0]] == [1]


def test_a_checkpoint_that_holds_files_of_others_is_not_pruned(tmp_path: Path) -> None:
    path = Path(save_checkpoint(tmp_path, 1, {})["path"])
    (path / "tokenizer.json").write_text("mine")
    meta = save_checkpoint(tmp_path, 2, {}, keep_last_k=1)
    assert (path / "tokenizer.json").exists()
    assert "tokenizer.json" in meta["kept"][1]


# steps


def test_a_step_that_repeats_or_goes_back_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 5, {"x": 5})
    with pytest.raises(Conflict, match="step 5 is already saved"):
        save_checkpoint(tmp_path, 5, {"x": 6})
    with pytest.raises(Refused, match="step 4 comes before step 5"):
        save_checkpoint(tmp_path, 4, {"x": 4})
    assert load_checkpoint(tmp_path) == {"x": 5}
    assert steps(tmp_path) == [5]


def test_a_run_that_was_set_back_goes_on_from_there(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, {"x": step})
    save_checkpoint(tmp_path, 2, {"x": "again"}, rewind=True)
    assert load_checkpoint(tmp_path, step="latest") == {"x": "again"}
    assert json.loads((tmp_path / "last").read_text())["step"] == 2
    assert steps(tmp_path) == [1, 2, 3]
    assert os.listdir(tmp_path / ".holdfast") == ["lock"]


@pytest.mark.parametrize("step", [-1, 1.5, "1", None, True], ids=repr)
def test_a_step_is_a_whole_number(step: Any, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="invalid step"):
        save_checkpoint(tmp_path, step, {})


def test_a_number_that_was_given_is_not_given_again(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {})
    first = save_checkpoint(tmp_path, 2, {})
    for file in Path(first["path"]).iterdir():
        file.unlink()
    Path(first["path"]).rmdir()
    assert save_checkpoint(tmp_path, 2, {})["sequence"] == 3


# sharing


def test_a_tensor_that_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    state = {f"t{at}": torch.randn(MIB // 4 + at) for at in range(10)}
    save_checkpoint(tmp_path, 1, state, rng=False)
    state["t3"] = state["t3"] + 1
    meta = save_checkpoint(tmp_path, 2, state, rng=False)
    assert meta["bytes_written"] < 1.2 * MIB
    assert meta["files_shared"] == 9
    assert same(state, load_checkpoint(meta["path"]))


@pytest.mark.parametrize("code", [errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_where_files_cannot_be_linked_they_are_written_again(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Disk, "link", fail)
    state = {"x": torch.ones(MIB // 4), "y": torch.ones(3)}
    for step in (1, 2):
        assert save_checkpoint(tmp_path, step, state, rng=False, keep_last_k=1)["files_shared"] == 0
    assert same(state, load_checkpoint(tmp_path))


def test_save_work_is_linear_in_the_number_of_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(shape: tuple[int, ...]) -> int:
        sizes.append(len(shape))
        return math.prod(shape)

    monkeypatch.setattr(shards, "prod", counted)
    payloads = [shards.Payload(f"t{at}", "F32", (1000,), b"", memoryview) for at in range(2_000)]
    assert [len(shard.payloads) for shard in shards.arrange(payloads)] == [524, 524, 524, 428]
    assert len(sizes) == len(payloads)


def test_empty_tensors_keep_no_file_from_being_shared(tmp_path: Path) -> None:
    state = {"z": torch.zeros(0), "a": torch.ones(3), "y": torch.zeros(2, 0), "b": torch.ones(3)}
    save_checkpoint(tmp_path, 1, state, rng=False)
    assert save_checkpoint(tmp_path, 2, state, rng=False)["files_shared"] == 1


def test_a_single_byte_anywhere_is_a_change(tmp_path: Path) -> None:
    x = torch.zeros(4 * MIB, dtype=torch.uint8)
    save_checkpoint(tmp_path, 0, {"x": x}, rng=False)
    for step, at in enumerate((0, 1_234_567, 4 * MIB - 1), 1):
        x[at] += 1
        assert save_checkpoint(tmp_path, step, {"x": x}, rng=False)["files_shared"] == 0
        assert torch.equal(load_checkpoint(tmp_path)["x"], x)


def test_a_checkpoint_outlives_the_one_that_it_shares_files_with(tmp_path: Path) -> None:
    state = {"x": torch.randn(MIB)}
    for step in range(4):
        meta = save_checkpoint(tmp_path, step, state, keep_last_k=1)
    assert steps(tmp_path) == [3]
    assert same(state, load_checkpoint(meta["path"]))


def test_a_file_that_was_touched_is_not_shared(tmp_path: Path) -> None:
    state = {"x": torch.randn(MIB)}
    path = Path(save_checkpoint(tmp_path, 1, state, rng=False)["path"])
    shard = path / "model-00001-of-00001.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.chmod(0o644)
    shard.write_bytes(data)
    meta = save_checkpoint(tmp_path, 2, state, rng=False)
    assert meta["files_shared"] == 0
    assert same(state, load_checkpoint(meta["path"]))


# places


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Refused, match="is a file"):
        save_checkpoint(tmp_path / "file", 1, {})
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(Unavailable, match="failed"):
        unprivileged(lambda: save_checkpoint(tmp_path / "out", 1, {}))


@pytest.mark.parametrize("folder", ["", "a\0b"])
def test_a_folder_has_a_name(folder: str) -> None:
    with pytest.raises(Refused):
        save_checkpoint(folder, 1, {})


def test_many_savers_at_once_lose_nothing(tmp_path: Path) -> None:
    errors: list[Exception] = []

    def work(worker: int) -> None:
        try:
            for at in range(4):
                save_checkpoint(tmp_path, 10 * at + worker, {"worker": worker}, rewind=True)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(steps(tmp_path)) == 16
    sequences = [json.loads(path.read_text())["sequence"] for path in tmp_path.glob("step-*/manifest.json")]
    assert sorted(sequences) == list(range(1, 17))


def test_a_save_does_not_read_again_what_it_has_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who keeps a thousand checkpoints must not wait for a thousand manifests at every save (P8)."""
    read: list[str] = []

    def reading(folder: Path, *, verify: bool = True) -> Manifest:
        read.append(folder.name)
        return read_manifest(folder, verify=verify)

    monkeypatch.setattr("holdfast.training.folder.read_manifest", reading)
    for step in range(1, 8):
        read.clear()
        save_checkpoint(tmp_path, step, {"x": torch.ones(3)}, block=step % 2 == 0)
        wait_for_save()
        assert not read  # nor what it has written
    found, _ = open_run(tmp_path).scan()
    assert [len(each.manifest.tensors) for each in found] == [0] * 7
    assert [each.manifest.n_tensors for each in found] == [found[0].manifest.n_tensors] * 7


def test_save_works_if_the_previous_one_is_unreadable(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = {"x": torch.ones(300_000)}
    for step in (1, 2):
        path = save_checkpoint(tmp_path, step, state)["path"]
    checkpoints._folder_store.cache_clear()  # as in another process, which has not written it itself
    open_run(tmp_path).scan()
    manifest = Path(path, "manifest.json")
    times = manifest.stat()
    manifest.chmod(0o600)
    manifest.write_bytes(manifest.read_bytes().replace(b"x", b"y"))
    os.utime(manifest, ns=(times.st_atime_ns, times.st_mtime_ns))  # as a medium changes it, without a word
    meta = save_checkpoint(tmp_path, 3, state, keep_last_k=1, rng=False)
    assert meta["bytes_written"] == meta["bytes"]
    assert "files of earlier checkpoints cannot be reused" in caplog.text
    assert meta["pruned"] == [1]
    assert "is corrupt" in meta["kept"][2]
    assert not CheckpointManager(tmp_path).verify().ok
