"""Training time lost per save of an 8 GB state on one GPU: `python benchmarks/training_gpu.py [--gb 8]`.

Needs torch, numpy and safetensors; what is missing beyond that (`blake3`) is done without. The loop trains a model
whose state (bf16 parameters, fp32 master weights, two moments) is as large as asked; the time lost by a save is that
of the steps during and after it, until the save has ended, less that of as many steps without one.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # without installing anything

import torch
import torch.distributed.checkpoint as dcp

from holdfast.training import load_checkpoint, save_checkpoint, wait_for_save


class Loop:
    """A model of square layers, trained with master weights."""

    def __init__(self, gigabytes: float, *, width: int = 8192, batch: int = 8192) -> None:
        layers = max(1, round(gigabytes * 1e9 / (width * width * 14)))
        self.model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers)))
        self.model = self.model.to("cuda", torch.bfloat16)
        self.master = [torch.nn.Parameter(weight.detach().float()) for weight in self.model.parameters()]
        self.optimizer = torch.optim.Adam(self.master, lr=1e-5, fused=True)
        self.batch = torch.randn(batch, width, device="cuda", dtype=torch.bfloat16)

    def step(self) -> None:
        self.model(self.batch).float().square().mean().backward()
        for weight, master in zip(self.model.parameters(), self.master, strict=True):
            master.grad = weight.grad.float()
            weight.grad = None
        self.optimizer.step()
        with torch.no_grad():
            for weight, master in zip(self.model.parameters(), self.master, strict=True):
                weight.copy_(master)

    def run(self, steps: int) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "master": [master.detach() for master in self.master],
            "optimizer": self.optimizer.state_dict(),
        }

    def gates(self) -> list[Any]:
        return [self.optimizer]


def lost(loop: Loop, begin: Callable[[int], Callable[[], Any]], step_s: float, at: int) -> tuple[float, float]:
    """How much longer the steps around a save take, and how long the save takes in all."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    end = begin(at)
    steps = 20
    for _ in range(steps):
        loop.step()
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    end()
    whole = time.perf_counter() - start
    return took - steps * step_s, whole


def holdfast_begin(loop: Loop, folder: Path, *, gated: bool) -> Callable[[int], Callable[[], Any]]:
    def begin(at: int) -> Callable[[], Any]:
        gate = loop.gates() if gated else None
        save_checkpoint(folder, at, loop.state(), block=False, gate=gate, keep_last_k=1)
        return wait_for_save

    return begin


def dcp_begin(loop: Loop, folder: Path) -> Callable[[int], Callable[[], Any]]:
    def begin(at: int) -> Callable[[], Any]:
        future = dcp.async_save(loop.state(), checkpoint_id=folder / str(at))
        return lambda: (future.result(), shutil.rmtree(folder / str(at), ignore_errors=True))

    return begin


def check(folder: Path, expected: dict[str, Any]) -> None:
    """What was saved is what the state was when it was saved, though training went on."""
    loaded = load_checkpoint(folder, map_location="cuda")
    for name, tensor in expected.items():
        assert torch.equal(loaded["model"][name], tensor), name
    print("the last checkpoint holds the state as it was, and is verified", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--folder", default=None)
    given = parser.parse_args()
    loop = Loop(given.gb)
    loop.run(3)
    step_s = statistics.median(loop.run(20) / 20 for _ in range(3))
    tensors = [*loop.model.parameters(), *loop.master]
    moments = [value for state in loop.optimizer.state.values() for value in state.values() if value.is_cuda]
    size = sum(tensor.numel() * tensor.element_size() for tensor in (*tensors, *moments))
    print(f"{torch.cuda.get_device_name()}: state {size / 1e9:.2f} GB, a step takes {step_s * 1000:.1f} ms", flush=True)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        root = Path(name)
        contenders = {
            "Holdfast, gated": holdfast_begin(loop, root / "gated", gated=True),
            "Holdfast": holdfast_begin(loop, root / "plain", gated=False),
            "dcp.async_save": dcp_begin(loop, root / "dcp"),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for at in range(given.rounds + 1):
            for name, begin in contenders.items():
                found[name].append(lost(loop, begin, step_s, at))
                loop.run(3)
        peer = statistics.median(pair[0] for pair in found["dcp.async_save"][1:])
        print("| save | first: lost | warm: lost | whole save | ratio to dcp.async_save |\n|---|---|---|---|---|")
        for name, pairs in found.items():
            warm = [pair[0] for pair in pairs[1:]]
            middle, whole = statistics.median(warm), statistics.median(pair[1] for pair in pairs[1:])
            spread = f"{middle:.3f} s [{min(warm):.3f}–{max(warm):.3f}]"
            print(f"| {name} | {pairs[0][0]:.3f} s | {spread} | {whole:.2f} s | {middle / peer:.2f} |", flush=True)
        expected = {key: tensor.clone() for key, tensor in loop.model.state_dict().items()}
        save_checkpoint(root / "last", 1, loop.state(), block=False, gate=loop.gates())
        loop.run(5)
        wait_for_save()
        check(root / "last", expected)


if __name__ == "__main__":
    main()
