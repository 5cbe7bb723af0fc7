"""What each rank does, under `torchrun`: `lightning_ranks.py FOLDER`. A real trainer, by DDP."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as L  # noqa: N812  # the name that its own pages use
import torch
import torch.distributed as dist

from holdfast.adapters.lightning import STORE, HoldfastIO


class Model(L.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, number: int) -> Any:
        return self.layer(batch).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.05)


def fit(folder: Path, epochs: int, resume: str | None = None) -> torch.Tensor:
    L.seed_everything(0)
    checkpoints = L.callbacks.ModelCheckpoint(folder, save_last=True, save_top_k=-1, filename="{epoch}")
    trainer = L.Trainer(
        max_epochs=epochs, plugins=[HoldfastIO()], callbacks=[checkpoints], logger=False, accelerator="cpu",
        strategy="ddp", devices=dist.get_world_size(), enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=folder,
    )  # fmt: skip
    module = Model()
    trainer.fit(module, torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=4), ckpt_path=resume)
    return module.layer.weight.detach().clone()


def scenes(root: Path) -> None:
    straight = fit(root / "straight", 4)
    fit(root / "stopped", 2)
    dist.barrier()
    assert len(list((root / "stopped" / STORE).glob("step-*"))) == 3  # one for each epoch, and `last`
    newest = HoldfastIO.newest(root / "stopped")
    assert newest is not None
    dist.barrier()
    assert torch.equal(fit(root / "stopped", 4, newest), straight)
    dist.barrier()
    assert HoldfastIO.newest(root / "stopped") is not None


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    scenes(Path(sys.argv[1]))
    Path(sys.argv[1], f"done-{dist.get_rank()}").touch()
    dist.barrier()
    os._exit(0)  # the threads of gloo do not always outlive the end of the interpreter
