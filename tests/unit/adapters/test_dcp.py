"""`torch.distributed.checkpoint` with Holdfast as its storage: on several ranks under `torchrun`, and on one."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex

from holdfast.adapters.dcp import HoldfastReader, HoldfastWriter, writer
from holdfast.adapters.dcp.metadata_json import piece_name
from holdfast.durable import Lock
from holdfast.errors import Damaged, Refused, Unavailable
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint
from holdfast.training.diff import Piece, Tensor, compare
from holdfast.training.folder import FolderRunStore

_SCRIPT = Path(__file__).with_name("dcp_ranks.py")

pytestmark = [
    pytest.mark.extras,
    pytest.mark.usefixtures("no_network"),
    pytest.mark.filterwarnings("ignore"),  # that there is one process only is what we want
]


def run(act: str, folder: Path, ranks: int) -> None:
    """Run an act on several ranks, to its end on all of them unless it is there to be killed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, f"--nproc_per_node={ranks}", str(_SCRIPT), act, str(folder)],
        env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    ended = [(folder / f"{act}-done-{rank}").exists() for rank in range(ranks)]
    is_whole = all(ended) and done.returncode == 0
    assert is_whole != (act == "kill"), done.stderr[-6000:]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What four ranks have left, once all that they checked held: see `scenes` in `dcp_ranks.py`."""
    folder = tmp_path_factory.mktemp("dcp")
    run("scenes", folder, 4)
    return folder


def test_groups_of_ranks_save_and_load_for_each_other(saved: Path) -> None:
    """Resharded 2 → 1, 3, 4 and 4 → 2; FSDP2 2 → 3; failures told to all; and what is left is what was committed."""
    steps = sorted(path.name for path in (saved / "two").glob("step-*"))
    assert steps == [f"step-0000000{step}" for step in (1, 2, 3, 5)]
    assert os.listdir(saved / "two" / ".holdfast") == ["lock"]
    for run_folder in ("two", "four", "fsdp"):
        assert CheckpointManager(saved / run_folder).verify().ok


def test_killed_rank_leaves_the_old_and_the_next_save_works(tmp_path: Path) -> None:
    run("kill", tmp_path, 2)
    run("go_on", tmp_path, 2)
    folder = tmp_path / "killed"
    assert sorted(path.name for path in folder.glob("step-*")) == [f"step-0000000{step}" for step in (1, 2, 3, 4)]
    assert os.listdir(folder / ".holdfast") == ["lock"]
    assert CheckpointManager(folder).verify().ok


def test_one_machine_loads_it_without_dcp(saved: Path) -> None:
    from .dcp_ranks import whole

    state = load_checkpoint(saved / "two", step=2)
    for name, expected in whole(2).items():
        assert torch.equal(state["model"][name], expected), name
    assert state["epoch"] == 2
    assert state["nested"] == [{"lr": 0.1, "betas": (0.9, 0.99)}, "text"]
    assert state["plain"]["complex"].dtype is torch.complex128
    assert state["rank1"]["mine"] == 1


def test_a_diff_compares_tensors_and_not_the_pieces_of_ranks(saved: Path) -> None:
    run_folder = FolderRunStore(saved / "reshard")
    steps = {step: run_folder.get(step) for step in range(1, 6)}
    assert len({len(steps[step].manifest.tensors) for step in (1, 2, 3, 4)}) == 4
    for old, new in itertools.permutations((1, 2, 3, 4), 2):
        found = compare(steps[old], steps[new], run_folder)
        assert not found, (old, new, found)
        assert found.same == 9
    found = compare(steps[1], steps[5], run_folder)
    [change] = found.changes
    assert (change.name, change.verb, change.detail) == ("model.columns", "changed", "BF16[64, 513]")
    assert change.max_change == pytest.approx(2.0, abs=0.05)
    assert (found.same, found.values) == (8, {})
    with pytest.raises(Damaged, match="pieces are missing"):
        pieces = steps[4].manifest.tensors
        Tensor("F32", (5, 3), (Piece("model.few", (0, 0), pieces["model.few"]),), "").read(
            run_folder.reader(steps[4], verify=True)
        )


def test_a_diff_compares_a_checkpoint_of_ranks_with_a_plain_one(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "reshard", tmp_path / "run")
    state = load_checkpoint(tmp_path / "run", step=4)
    save_checkpoint(tmp_path / "run", 6, state, rng=False)
    run_folder = FolderRunStore(tmp_path / "run")
    assert not compare(run_folder.get(4), run_folder.get(6), run_folder)
    state["plain"]["complex"] = torch.ones(3, 16, dtype=torch.uint8)
    save_checkpoint(tmp_path / "run", 7, state, rng=False)
    [change] = compare(run_folder.get(4), run_folder.get(7), run_folder).changes
    assert (change.name, change.verb) == ("plain.complex", "reshaped")


def test_nothing_on_the_disk_is_a_pickle(saved: Path) -> None:
    files = {path.suffix for path in saved.glob("two/step-*/*")}
    assert files == {".safetensors", ".json"}


def test_what_did_not_change_is_shared(saved: Path) -> None:
    shards = saved.glob("two/step-00000003/*.safetensors")
    frozen = [path for path in shards if b'"model.frozen' in path.read_bytes()[:300]]
    assert len(frozen) == 2
    assert {path.stat().st_nlink for path in frozen} == {4}


def test_planners_of_others_are_left_alone(tmp_path: Path) -> None:
    """One that caches its plans, one that keeps data of its own, one that flattens nothing, one that loads a part."""

    class Keeping(DefaultSavePlanner):  # type: ignore[misc]
        def create_global_plan(self, all_plans: Any) -> Any:
            plans, metadata = super().create_global_plan(all_plans)
            metadata.planner_data = {"mine": [1, {"two": (2, None)}]}
            return plans, metadata

    class Asking(DefaultLoadPlanner):  # type: ignore[misc]
        seen: Any = None

        def set_up_planner(self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False) -> None:
            Asking.seen = metadata.planner_data
            super().set_up_planner(state_dict, metadata, is_coordinator)

    for step in (1, 2, 3):
        planner = DefaultSavePlanner(enable_plan_caching=True)
        state = {"a": {"x": torch.full((3,), float(step))}, "n": step}
        dcp.save(state, storage_writer=HoldfastWriter(tmp_path, step=step), planner=planner, no_dist=True)
    dcp.save({"x": torch.ones(2)}, storage_writer=HoldfastWriter(tmp_path, step=4), planner=Keeping(), no_dist=True)
    plain = DefaultSavePlanner(flatten_state_dict=False)
    dcp.save({"x": torch.ones(2)}, storage_writer=HoldfastWriter(tmp_path, step=5), planner=plain, no_dist=True)
    for step in (1, 2, 3):
        state = {"a": {"x": torch.zeros(3)}, "n": 0}
        dcp.load(state, storage_reader=HoldfastReader(tmp_path, step=step), no_dist=True)
        assert (state["a"]["x"].tolist(), state["n"]) == ([step] * 3, step)
    for step, expected in ((4, {"mine": [1, {"two": (2, None)}]}), (5, None)):
        asking = Asking(flatten_state_dict=False, allow_partial_load=True)
        state = {"x": torch.zeros(2), "new": torch.zeros(1)}
        dcp.load(state, storage_reader=HoldfastReader(tmp_path, step=step), planner=asking, no_dist=True)
        assert Asking.seen == expected
        assert state["x"].tolist() == [1, 1]


def test_what_cannot_be_stored_is_refused_by_name(tmp_path: Path) -> None:
    for value in (torch.eye(2).to_sparse(), HoldfastWriter):
        with pytest.raises(CheckpointException, match=r"model\.w cannot be saved"):
            dcp.save({"model": {"w": value}}, storage_writer=HoldfastWriter(tmp_path, step=1), no_dist=True)
    assert not list(tmp_path.glob("step-*"))
    save_checkpoint(tmp_path, 1, {"x": 1})  # and the lock is free


def test_a_state_of_another_shape_is_not_filled_by_repeating(tmp_path: Path) -> None:
    class Careless(DefaultLoadPlanner):  # type: ignore[misc]
        def resolve_tensor(self, read_item: Any) -> torch.Tensor:
            return torch.zeros(5, 1)

    dcp.save({"x": torch.ones(1)}, storage_writer=HoldfastWriter(tmp_path, step=1), no_dist=True)
    with pytest.raises(CheckpointException, match=r"x has shape \[1\], and \[5, 1\] is asked for"):
        dcp.load({"x": torch.ones(1)}, storage_reader=HoldfastReader(tmp_path), planner=Careless(), no_dist=True)


def test_a_lock_is_held_as_long_as_its_save_and_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Writer:
        pass

    folder, taken, go_on = FolderRunStore(tmp_path), threading.Event(), threading.Event()
    writers = [Writer(), Writer(), Writer()]

    def beside() -> None:
        writer._take_lock(folder, writers[0])
        taken.set()
        go_on.wait()

    thread = threading.Thread(target=beside)
    thread.start()
    taken.wait()
    monkeypatch.setattr(writer, "WAIT_S", 0.01)
    try:
        with pytest.raises(Unavailable, match="still saving"):
            writer._take_lock(folder, writers[1])
    finally:
        go_on.set()
        thread.join()
    writer._take_lock(folder, writers[1])  # the save beside was brought to an end by another rank
    writer._take_lock(folder, writers[2])  # and so was the one of this thread
    lock = Lock(tmp_path / ".holdfast" / "lock")
    assert not lock.acquire(wait=False)
    writers.clear()
    assert lock.acquire(wait=False)
    lock.release()


def test_no_two_pieces_have_one_name() -> None:
    places = [("a", (0,)), ("a", (3,)), ("a@3", (0,)), ("a@3", (3,)), ("a@3@3", (0,)), ("a@3@0", (0,)), ("b@", ())]
    names = [piece_name(MetadataIndex(fqn, torch.Size(offsets))) for fqn, offsets in places]
    assert len(set(names)) == len(names)


def test_what_makes_no_sense_is_told(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"x": 1})
    with pytest.raises(Refused, match="was not saved by"):
        HoldfastReader(tmp_path).read_metadata()
    with pytest.raises(Refused, match="metadata of their own"):  # DCP's second try must not go where the first did not
        HoldfastReader(tmp_path).read_metadata(rank=1)
    with pytest.raises(Refused, match="checkpoint_id"):
        HoldfastWriter(tmp_path).reset("final")
    with pytest.raises(Refused, match="no step is given"):
        HoldfastWriter(tmp_path).set_up_storage_writer(True)
    with pytest.raises(Refused, match="use_collectives"):
        HoldfastWriter(tmp_path, step=2).set_up_storage_writer(True, use_collectives=False)
    for face in (HoldfastWriter, HoldfastReader):
        with pytest.raises(Refused, match="is a URL"):  # of which a `Path` has eaten a slash
            face(Path("s3://bucket/x"))
