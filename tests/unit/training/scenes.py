"""States that a training loop might have, and what is compared of them."""

from __future__ import annotations

from typing import Any

import torch


def small_state(seed: int = 0, *, side: int = 600) -> dict[str, Any]:
    """A model and its optimiser after one step: three tensors that have files of their own, and small ones."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(side, side), torch.nn.BatchNorm1d(side))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, side)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}


def same(left: Any, right: Any) -> bool:
    """Whether two states are equal bit for bit, of the same types throughout."""
    if isinstance(left, torch.Tensor):
        alike = type(left) is type(right) and left.dtype == right.dtype and left.shape == right.shape
        return alike and left.layout == right.layout and _bits(left) == _bits(right)
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right) or (left != left and right != right)


def _bits(tensor: torch.Tensor) -> bytes:
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def remote_state(step: int) -> dict[str, Any]:
    return {
        "big": torch.full((3_000_000,), float(step)),
        "frozen": torch.arange(400_000),
        "epoch": step,
        "t": (1, None),
    }
