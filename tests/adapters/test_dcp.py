"""`torch.distributed.checkpoint` on several ranks, with Holdfast as its storage."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from holdfast.errors import Refused
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint

_SCRIPT = Path(__file__).with_name("dcp_ranks.py")


def run(act: str, folder: Path, ranks: int) -> int:
    """Run an act on several ranks; returns how it ended."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    done = subprocess.run(
        [*command, str(_SCRIPT), act, str(folder)], env=environment, capture_output=True, text=True, check=False,
        timeout=240,
    )  # fmt: skip
    ended = [(folder / f"{act}-done-{rank}-of-{ranks}").exists() for rank in range(ranks)]
    assert all(ended) or act == "kill", done.stderr[-3000:]
    return done.returncode


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dcp") / "out"
    folder.mkdir()
    assert run("save", folder, 2) == 0
    return folder


@pytest.mark.parametrize("ranks", [1, 3])
def test_what_two_ranks_saved_is_loaded_by_another_number(ranks: int, saved: Path) -> None:
    assert run("load", saved, ranks) == 0


def test_one_machine_loads_it_without_dcp(saved: Path) -> None:
    sys.path.insert(0, str(_SCRIPT.parent))
    from dcp_ranks import whole

    state = load_checkpoint(saved, step=2)
    for name, expected in whole(2).items():
        assert torch.equal(state["model"][name], expected), name
    assert state["epoch"] == 2
    assert state["nested"] == [{"lr": 0.1, "betas": (0.9, 0.99)}, "text"]
    assert state["plain"]["complex"].dtype is torch.complex128
    assert state["rank1"]["mine"] == 1


def test_nothing_on_the_disk_is_a_pickle(saved: Path) -> None:
    files = {path.suffix for path in saved.glob("step-*/*")}
    assert files == {".safetensors", ".json"}


def test_what_did_not_change_is_shared(saved: Path) -> None:
    frozen = [path for path in saved.glob("step-00000003/*.safetensors") if b'"model.frozen' in path.read_bytes()[:300]]
    assert len(frozen) == 2
    assert {path.stat().st_nlink for path in frozen} == {3}
    assert CheckpointManager(saved).verify().ok


def test_a_rank_that_fails_or_dies_leaves_the_old_on_all(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    assert run("kill", folder, 2) != 0
    assert run("load", folder, 2) == 0
    assert run("fail", folder, 2) == 0
    assert sorted(path.name for path in folder.glob("step-*")) == [f"step-0000000{step}" for step in (1, 2, 3, 5)]
    assert os.listdir(folder / ".holdfast") == ["lock"]


def test_a_damaged_piece_is_found_by_every_rank(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    for path in folder.glob("step-00000003/model-rank00001-*.safetensors"):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    assert run("damaged", folder, 2) == 0


def test_a_checkpoint_of_another_kind_is_told_apart(tmp_path: Path) -> None:
    from holdfast.adapters.dcp import HoldfastReader, HoldfastWriter

    save_checkpoint(tmp_path, 1, {"x": 1})
    with pytest.raises(Refused, match="was not saved by"):
        HoldfastReader(tmp_path).read_metadata()
    with pytest.raises(Refused, match="checkpoint_id"):
        HoldfastWriter(tmp_path).reset("final")
    with pytest.raises(Refused, match="step is not said"):
        HoldfastWriter(tmp_path).set_up_storage_writer(True)
