"""What each rank does, under `torchrun`: `dcp_ranks.py ACT FOLDER`.

One start is costly, so one act has many scenes: groups of one to four of the same ranks save and load.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from holdfast.adapters.dcp import HoldfastReader, HoldfastWriter
from holdfast.durable import Lock
from holdfast.errors import HoldfastError


def whole(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "rows": torch.randn(1001, 300, generator=generator),
        "columns": torch.randn(64, 513, generator=generator).bfloat16(),
        "both": torch.randn(40, 7, generator=generator),
        "frozen": torch.arange(600_000, dtype=torch.float32).reshape(1000, 600),
        "few": torch.full((1, 3), float(seed)),  # fewer rows than ranks
        "rows@501,0": torch.full((2,), float(seed)),  # what a piece of another tensor might be called
    }


def state_of(seed: int, mesh: DeviceMesh) -> dict[str, Any]:
    tensors = whole(seed)
    places = {"rows": Shard(0), "columns": Shard(1), "both": Replicate(), "frozen": Shard(0), "few": Shard(0)}
    placed = {name: distribute_tensor(tensors[name], mesh, [place]) for name, place in places.items()}
    plain = {
        "scalar": torch.tensor(float(seed)),
        "empty": torch.empty(0, 3),
        "complex": torch.ones(3, dtype=torch.complex128),
    }
    return {"model": placed | {"rows@501,0": tensors["rows@501,0"]}, "plain": plain, "epoch": seed,
            "nested": [{"lr": 0.1, "betas": (0.9, 0.99)}, "text"],
            f"rank{dist.get_rank()}": {"rng": torch.get_rng_state(), "mine": dist.get_rank()}}  # fmt: skip


def check(state: dict[str, Any], seed: int) -> None:
    for name, expected in whole(seed).items():
        found = state["model"][name]
        assert torch.equal(found.full_tensor() if isinstance(found, DTensor) else found, expected), name
    assert state["plain"]["scalar"] == seed
    assert state["epoch"] == seed
    assert state["nested"] == [{"lr": 0.1, "betas": (0.9, 0.99)}, "text"]


def save(folder: Path | str, step: int, mesh: DeviceMesh, **options: Any) -> None:
    writer = HoldfastWriter(folder, step=step, **options)
    dcp.save(state_of(step, mesh), storage_writer=writer, process_group=mesh.get_group())


def load(folder: Path | str, step: int, mesh: DeviceMesh, saved_by: int) -> None:
    state = state_of(0, mesh)
    mine = f"rank{dist.get_rank()}"
    if dist.get_rank() >= saved_by:
        del state[mine]  # a rank that was not there when it was saved
    dcp.load(state, storage_reader=HoldfastReader(folder, step=step), process_group=mesh.get_group())
    check(state, step)
    if mine in state:
        assert state[mine]["mine"] == dist.get_rank()


def save_beside(folder: Path | str, mesh: DeviceMesh) -> None:
    state, group = state_of(3, mesh), mesh.get_group()
    future = dcp.async_save(state, storage_writer=HoldfastWriter(folder), checkpoint_id="3", process_group=group)
    for tensor in state["model"].values():
        (tensor.to_local() if isinstance(tensor, DTensor) else tensor).zero_()
    future.result()


def fail(folder: Path, mesh: DeviceMesh) -> None:
    """One rank has something that cannot be saved; all ranks get the error, nothing is stored, none is kept out."""
    state = state_of(4, mesh)
    if dist.get_rank() == 1:
        state["rank1"]["bad"] = HoldfastError
    try:
        dcp.save(state, storage_writer=HoldfastWriter(folder, step=4), process_group=mesh.get_group())
    except CheckpointException as error:
        assert "cannot be saved" in str(error)
    else:
        raise AssertionError("it was saved")
    gc.collect()  # DCP's own functions refer to each other, and to the writer
    if dist.get_rank() == 0:
        lock = Lock(folder / ".holdfast" / "lock")
        assert lock.acquire(wait=False)
        lock.release()
    dist.barrier(group=mesh.get_group())
    save(folder, 5, mesh)


def flip(folder: Path, copy: Path, mesh: DeviceMesh) -> None:
    """One flipped bit is found by the rank that reads it, and told to all."""
    if dist.get_rank() == 0:
        shutil.copytree(folder, copy)
        path = next(path for path in copy.glob("step-00000003/model-rank00001-*") if b'"model.rows' in _head(path))
        data = bytearray(path.read_bytes())
        data[-1000] ^= 4
        path.chmod(0o644)
        path.write_bytes(data)
    dist.barrier(group=mesh.get_group())
    try:
        load(copy, 3, mesh, 2)
    except CheckpointException as error:
        assert "model-rank00001-" in str(error)
        assert "is corrupt" in str(error)
        assert set(error.failures) == {1}
    else:
        raise AssertionError("it was loaded")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(2000)


def disagree(folder: Path, mesh: DeviceMesh) -> None:
    """Ranks that have found different checkpoints do not mix them."""
    try:
        load(folder, 2 + dist.get_rank(), mesh, 2)
    except CheckpointException as error:
        assert "different checkpoints: 2 and 3" in str(error)
    else:
        raise AssertionError("it was loaded")


def shard_fully(folder: Path, two: DeviceMesh, three: DeviceMesh) -> None:
    """FSDP2: a model and its optimiser, saved by two ranks and loaded by three."""
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    def made(mesh: DeviceMesh) -> tuple[Any, Any, list[float]]:
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(31, 17), torch.nn.ReLU(), torch.nn.Linear(17, 5))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        return model, optimizer, [step(model, optimizer)]

    def step(model: Any, optimizer: Any) -> float:
        torch.manual_seed(11)
        optimizer.zero_grad()
        loss = model(torch.randn(8, 31)).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    def full(model: Any, optimizer: Any) -> dict[str, Any]:
        states = get_state_dict(model, optimizer)
        moments = {
            f"{name}.{kind}": value for name, entry in states[1]["state"].items() for kind, value in entry.items()
        }
        return {name: value.full_tensor() if isinstance(value, DTensor) else value
                for name, value in {**states[0], **moments}.items()}  # fmt: skip

    kept = folder / "expected.pt"
    if dist.get_rank() < 2:
        model, optimizer, _ = made(two)
        step(model, optimizer)
        states = get_state_dict(model, optimizer)
        writer = HoldfastWriter(folder / "fsdp", step=1)
        dcp.save({"model": states[0], "optim": states[1]}, storage_writer=writer, process_group=two.get_group())
        expected = full(model, optimizer)
        if dist.get_rank() == 0:
            torch.save(expected, kept)
    dist.barrier()
    if dist.get_rank() < 3:
        model, optimizer, _ = made(three)
        states = dict(zip(("model", "optim"), get_state_dict(model, optimizer), strict=True))
        dcp.load(states, storage_reader=HoldfastReader(folder / "fsdp"), process_group=three.get_group())
        set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optim"])
        found = full(model, optimizer)
        for name, value in torch.load(kept, weights_only=True).items():
            assert torch.equal(found[name], value), name


def reshard(folder: Path, step: int, mesh: DeviceMesh, changed: float = 0.0) -> None:
    """The same tensors, by another number of ranks; or one of them with a single element changed."""
    state = state_of(7, mesh)
    del state[f"rank{dist.get_rank()}"]
    if changed:
        columns = whole(7)["columns"]
        columns[3, 500] += changed
        state["model"]["columns"] = distribute_tensor(columns, mesh, [Shard(1)])
    dcp.save(state, storage_writer=HoldfastWriter(folder, step=step), process_group=mesh.get_group())


def scenes(root: Path) -> None:
    """All that goes well or is refused, with four ranks and groups of them."""
    meshes = {count: DeviceMesh("cpu", list(range(count))) for count in (1, 2, 3, 4)}
    rank, folder = dist.get_rank(), root / "two"

    def scene(count: int, act: Any, *args: Any) -> None:
        if rank < count:
            act(*args)
        dist.barrier()

    two = meshes[2]
    scene(2, save, folder, 1, two)
    scene(2, save, folder, 2, two)
    scene(2, save_beside, folder, two)
    for count in (1, 2, 3, 4):
        scene(count, load, folder, 3, meshes[count], 2)
    scene(2, flip, folder, root / "flipped", two)
    scene(2, disagree, folder, two)
    scene(2, fail, folder, two)
    scene(4, save, root / "four", 1, meshes[4])
    scene(2, load, root / "four", 1, two, 4)
    shard_fully(root, two, meshes[3])
    for step, count in ((1, 2), (2, 3), (3, 1), (4, 4)):
        scene(count, reshard, root / "reshard", step, meshes[count])
    scene(3, reshard, root / "reshard", 5, meshes[3], 2.0)


class Killed(HoldfastWriter):
    def write_data(self, plan: Any, planner: Any) -> Any:
        done = super().write_data(plan, planner)
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return done


def kill(root: Path) -> None:
    """One rank dies in the middle of a save."""
    mesh, folder = DeviceMesh("cpu", [0, 1]), root / "killed"
    save(folder, 1, mesh)
    dcp.save(state_of(2, mesh), storage_writer=Killed(folder, step=2))


def go_on(root: Path) -> None:
    """What is started after that finds the old one and goes on; then it saves by processes beside."""
    mesh, folder = DeviceMesh("cpu", [0, 1]), root / "killed"
    if dist.get_rank() == 0:
        assert [path.name for path in folder.glob("step-*")] == ["step-00000001"]
        assert sorted(os.listdir(folder / ".holdfast")) == ["lock", "saving"]
    dist.barrier()
    load(folder, 1, mesh, 2)
    save(folder, 2, mesh)
    load(folder, 2, mesh, 2)
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    state = state_of(3, mesh)
    process = AsyncCheckpointerType.PROCESS
    for step in (3, 4):
        writer = HoldfastWriter(folder, step=step)
        future = dcp.async_save(state, storage_writer=writer, async_checkpointer_type=process)
        future.result()
    load_three = state_of(0, mesh)
    dcp.load(load_three, storage_reader=HoldfastReader(folder, step=4))
    check(load_three, 3)


def in_store(url: str) -> None:
    """Groups of ranks save to an object store and load from it; a failure of one leaves what was there."""
    meshes = {count: DeviceMesh("cpu", list(range(count))) for count in (1, 2, 3)}
    if dist.get_rank() < 2:
        two = meshes[2]
        save(url, 1, two)
        writer = HoldfastWriter(url, step=2)
        dcp.save(state_of(2, two), storage_writer=writer, process_group=two.get_group())
        if dist.get_rank() == 0:
            assert writer.saved["files_shared"] == 2  # `frozen`, of each rank
        save_beside(url, two)
        state = state_of(4, two)
        if dist.get_rank() == 1:
            state["rank1"]["bad"] = HoldfastError
        with contextlib.suppress(CheckpointException):
            dcp.save(state, storage_writer=HoldfastWriter(url, step=4), process_group=two.get_group())
            raise AssertionError("it was saved")
        try:
            save(url, 3, two)
        except CheckpointException as error:
            assert "step 3 is already saved" in str(error)
        else:
            raise AssertionError("it was saved")
    dist.barrier()
    for count, mesh in meshes.items():
        if dist.get_rank() < count:
            load(url, 3, mesh, 2)
        dist.barrier()


def kill_in_store(url: str) -> None:
    """One rank dies once its shards are sent."""
    dcp.save(state_of(4, DeviceMesh("cpu", [0, 1])), storage_writer=Killed(url, step=4))


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    acts = {act.__name__: act for act in (scenes, kill, go_on, in_store, kill_in_store)}
    acts[sys.argv[1]](sys.argv[3] if len(sys.argv) > 3 else Path(sys.argv[2]))
    Path(sys.argv[2], f"{sys.argv[1]}-done-{dist.get_rank()}").touch()
    dist.barrier()  # a rank that leaves while others still speak to it makes them abort
    os._exit(0)  # the threads of gloo do not always outlive the end of the interpreter
