"""Who else saves training states, each as its guide says: a checkpoint in place of the one before.

Orbax and torchsnapshot take part where they are installed and work with the PyTorch that is.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

from holdfast.training import load_checkpoint, save_checkpoint

State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contender:
    """Saves a state as the one checkpoint of a folder, and loads what is there."""

    save: Callable[[Path, int, State], Any]
    load: Callable[[Path, State], Any]


def torch_save(state: State, path: Path) -> None:
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def _tensors(state: State) -> dict[str, torch.Tensor]:
    moments = state["optimizer"]["state"].items()
    return state["model"] | {f"o.{at}.{name}": tensor for at, pair in moments for name, tensor in pair.items()}


def _dcp_save(folder: Path, step: int, state: State) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(_tensors(state), checkpoint_id=folder / "dcp", no_dist=True)


def _dcp_load(folder: Path, room: State) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(_tensors(room), checkpoint_id=folder / "dcp", no_dist=True)


def contenders() -> dict[str, Contender]:
    """Those that are here."""
    found = {
        "Holdfast": Contender(
            lambda folder, step, state: save_checkpoint(folder, step, state, keep_last_k=1),
            lambda folder, room: load_checkpoint(folder),
        ),
        "torch.save": Contender(
            lambda folder, step, state: torch_save(state, folder / "state.pt"),
            lambda folder, room: torch.load(folder / "state.pt", weights_only=True),
        ),
        "safetensors": Contender(
            lambda folder, step, state: save_file(_tensors(state), folder / "state.safetensors"),
            lambda folder, room: [tensor.clone() for tensor in load_file(folder / "state.safetensors").values()],
        ),
        "DCP": Contender(_dcp_save, _dcp_load),
    }
    for name, make in (("Orbax", _orbax), ("torchsnapshot", _torchsnapshot)):
        try:
            found[name] = make()
        except ImportError:
            continue
    return found


def _orbax() -> Contender:
    import numpy as np
    import orbax.checkpoint as ocp

    def save(folder: Path, step: int, state: State) -> None:
        arrays = {name.replace(".", "_"): tensor.numpy() for name, tensor in _tensors(state).items()}
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(folder / "orbax", arrays, force=True)

    def load(folder: Path, room: State) -> Any:
        with ocp.PyTreeCheckpointer() as checkpointer:
            return [np.asarray(array) for array in checkpointer.restore(folder / "orbax").values()]

    return Contender(save, load)


def _torchsnapshot() -> Contender:
    from torchsnapshot import Snapshot, StateDict

    def save(folder: Path, step: int, state: State) -> None:
        Snapshot.take(str(folder / "snapshot"), {"state": StateDict(**_tensors(state))})

    def load(folder: Path, room: State) -> None:
        Snapshot(str(folder / "snapshot")).restore({"state": StateDict(**_tensors(room))})

    return Contender(save, load)
