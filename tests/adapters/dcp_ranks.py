"""What each rank does, under `torchrun`: `dcp_ranks.py ACT FOLDER`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from holdfast.adapters.dcp import HoldfastReader, HoldfastWriter
from holdfast.errors import HoldfastError


def whole(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "rows": torch.randn(1001, 300, generator=generator),
        "columns": torch.randn(64, 513, generator=generator).bfloat16(),
        "both": torch.randn(40, 7, generator=generator),
        "frozen": torch.arange(600_000, dtype=torch.float32).reshape(1000, 600),
    }


def state_of(seed: int) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tensors = whole(seed)
    placed = {
        "rows": distribute_tensor(tensors["rows"], mesh, [Shard(0)]),
        "columns": distribute_tensor(tensors["columns"], mesh, [Shard(1)]),
        "both": distribute_tensor(tensors["both"], mesh, [Replicate()]),
        "frozen": distribute_tensor(tensors["frozen"], mesh, [Shard(0)]),
    }
    plain = {
        "scalar": torch.tensor(float(seed)),
        "empty": torch.empty(0, 3),
        "complex": torch.ones(3, dtype=torch.complex128),
    }
    return {"model": placed, "plain": plain, "epoch": seed, "nested": [{"lr": 0.1, "betas": (0.9, 0.99)}, "text"],
            f"rank{dist.get_rank()}": {"rng": torch.get_rng_state(), "mine": dist.get_rank()}}  # fmt: skip


def check(state: dict[str, Any], seed: int) -> None:
    for name, expected in whole(seed).items():
        found = state["model"][name]
        assert isinstance(found, DTensor)
        assert torch.equal(found.full_tensor(), expected), name
    assert state["plain"]["scalar"] == seed
    assert state["epoch"] == seed
    assert state["nested"] == [{"lr": 0.1, "betas": (0.9, 0.99)}, "text"]


def save(folder: str) -> None:
    for step in (1, 2):
        dcp.save(state_of(step), storage_writer=HoldfastWriter(folder, step=step))
    future = dcp.async_save(state := state_of(3), storage_writer=HoldfastWriter(folder), checkpoint_id="3")
    for tensor in state["model"].values():
        tensor.to_local().zero_()
    future.result()
    load(folder)


def load(folder: str) -> None:
    state = state_of(0)
    mine = f"rank{dist.get_rank()}"
    if dist.get_rank() >= 2:
        del state[mine]  # a rank that was not there when it was saved
    dcp.load(state, storage_reader=HoldfastReader(folder, step="latest"))
    check(state, 3)
    if mine in state:
        assert state[mine]["mine"] == dist.get_rank()


def fail(folder: str) -> None:
    """One rank has something that cannot be saved; every rank is told, and nothing is there."""
    state = state_of(4)
    if dist.get_rank() == 1:
        state["rank1"]["bad"] = HoldfastError
    try:
        dcp.save(state, storage_writer=HoldfastWriter(folder, step=4))
    except CheckpointException as error:
        assert "cannot be saved" in str(error)
    else:
        raise AssertionError("it was saved")
    dcp.save(state_of(5), storage_writer=HoldfastWriter(folder, step=5))


class Killed(HoldfastWriter):
    def write_data(self, plan: Any, planner: Any) -> Any:
        done = super().write_data(plan, planner)
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return done


def kill(folder: str) -> None:
    dcp.save(state_of(9), storage_writer=Killed(folder, step=9))


def damaged(folder: str) -> None:
    try:
        dcp.load(state_of(0), storage_reader=HoldfastReader(folder, step="latest"))
    except CheckpointException as error:
        assert "is not as it was written" in str(error)
    else:
        raise AssertionError("it was loaded")


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    {"save": save, "load": load, "fail": fail, "kill": kill, "damaged": damaged}[sys.argv[1]](sys.argv[2])
    Path(sys.argv[2], f"{sys.argv[1]}-done-{dist.get_rank()}-of-{dist.get_world_size()}").touch()
    dist.barrier()  # a rank that leaves while others still speak to it makes them abort
    dist.destroy_process_group()
    os._exit(0)  # the threads of gloo do not always outlive the end of the interpreter
