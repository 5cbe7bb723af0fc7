"""The `Trainer` of Transformers on several ranks, under `torchrun`: what each does is in `transformers_ranks.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

_SCRIPT = Path(__file__).with_name("transformers_ranks.py")

pytestmark = [
    pytest.mark.extras,
    pytest.mark.usefixtures("no_network"),
    pytest.mark.filterwarnings("ignore"),  # what the trainer says of its own dependencies
]


def run(acts: str, folder: Path, ranks: int) -> None:
    """Run acts on several ranks, each to its end on all of them."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    done = subprocess.run(
        [*command, str(_SCRIPT), acts, str(folder)], env=environment, capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    ended = [(folder / f"{act}-done-{rank}").exists() for act in acts.split(",") for rank in range(ranks)]
    assert all(ended) and done.returncode == 0, done.stderr[-6000:]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks run to the end and, again, to where they are stopped; new processes go on from there."""
    folder = tmp_path_factory.mktemp("ranks")
    run("first", folder, 2)
    run("again,plain,fail,signalled", folder, 2)
    return folder


def kept(folder: Path, name: str, rank: int) -> Any:
    return torch.load(folder / "kept" / name / f"{rank}.pt")


def same(left: Any, right: Any) -> bool:
    """Whether two nestings are equal, bit for bit."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else bool(left == right)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_run_of_two_ranks_goes_on_bit_for_bit(ran: Path, rank: int) -> None:
    """As the trainer's own checkpoint does, and as a run that was never stopped: weights, moments, random states."""
    straight = kept(ran, "straight", rank)
    assert same(kept(ran, "theirs", rank), straight)
    assert same(kept(ran, "ours", rank), straight)


def test_each_rank_has_random_states_of_its_own(ran: Path) -> None:
    draws = [kept(ran, "ours", rank)["draws"] for rank in (0, 1)]
    assert all(first != second for first, second in zip(*draws, strict=True))


def test_what_the_first_rank_cannot_do_is_told_to_all(ran: Path) -> None:
    told = [(ran / f"error-{rank}").read_text().splitlines() for rank in (0, 1)]
    assert [len(lines) for lines in told] == [2, 2]
    assert all("last was not written by Holdfast" in lines[0] for lines in told)
    assert all("was not prepared by Holdfast" in lines[1] for lines in told)
    assert all(line.startswith("rank 0 failed") for line in told[1])
    assert (ran / "taken/holdfast-14/notes.txt").read_text() == "mine"


def test_three_ranks_go_on_and_are_told_what_they_do_not_have(ran: Path) -> None:
    run("others", ran, 3)
    told = (ran / "told-3").read_text()
    assert "saved with a world size of 2 and is resumed with 3" in told
    assert "no random states for rank 2" in told


def test_one_process_goes_on_and_is_told_what_it_does_not_have(ran: Path) -> None:
    from .transformers_ranks import STEPS, HoldfastCallback, trainer

    callback = HoldfastCallback(ran / "ours-1")
    alone = trainer(ran / "with-1", callback)
    place = callback.prepare(alone)
    assert sorted(path.name for path in Path(place or "").glob("rng_state*")) == ["rng_state.pth"]
    assert "the random states of rank 1 are not used" in callback.notes[0]
    assert alone.train(resume_from_checkpoint=place).global_step == STEPS
