"""Lightning's own trainer, with Holdfast as its `CheckpointIO`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import lightning.pytorch as L  # noqa: N812  # the name that its own pages use
import pytest
import torch

from holdfast.adapters.lightning import STORE, HoldfastIO
from holdfast.errors import Damaged, NotFound, Refused
from holdfast.training import save_checkpoint

pytestmark = [
    pytest.mark.extras,
    pytest.mark.usefixtures("no_network"),
    pytest.mark.filterwarnings("ignore"),  # what Lightning says of loaders, loggers and its dependencies
]


def model() -> Any:
    class Model(L.LightningModule):
        def __init__(self, width: int = 4) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(width, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            loss = self.layer(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    return Model()


def fit(folder: Path, epochs: int, *, resume: str | None = None, plugin: Any = None) -> Any:
    torch.manual_seed(0)
    checkpoints = L.callbacks.ModelCheckpoint(folder, save_last=True, save_top_k=2, monitor="loss", filename="{epoch}")
    trainer = L.Trainer(
        max_epochs=epochs, plugins=[plugin or HoldfastIO()], callbacks=[checkpoints], logger=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    module = model()
    loader = torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4)
    trainer.fit(module, loader, ckpt_path=resume)
    return trainer, module


def test_a_trainer_saves_keeps_and_resumes(tmp_path: Path) -> None:
    trainer, module = fit(tmp_path, 3)
    names = sorted(path.name for path in tmp_path.glob("*.ckpt"))
    assert "last.ckpt" in names
    assert len(names) == 3
    saved = HoldfastIO().load_checkpoint(tmp_path / "last.ckpt")
    assert torch.equal(saved["state_dict"]["layer.weight"], module.layer.weight)
    assert saved["global_step"] == trainer.global_step == 6
    assert len(list((tmp_path / STORE).glob("step-*"))) <= 3
    resumed, _ = fit(tmp_path, 5, resume=str(tmp_path / "last.ckpt"))
    assert resumed.global_step == 10


class Stopped(BaseException):
    """As if the process had ended there."""


class Stopping(HoldfastIO):
    """Is stopped in the middle of its fifth save: the checkpoint is there, and no file names it."""

    saves = 0

    def _remove_unnamed(self, folder: Any) -> None:
        super()._remove_unnamed(folder)
        self.saves += 1

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        if self.saves == 4:
            save_checkpoint(Path(path).parent / STORE, 4, checkpoint)
            raise Stopped
        super().save_checkpoint(checkpoint, path)


def test_run_stopped_while_saving_resumes_from_the_newest_intact(tmp_path: Path) -> None:
    straight, expected = fit(tmp_path / "straight", 5)
    folder = tmp_path / "stopped"
    assert HoldfastIO.newest(folder) is None
    with pytest.raises(Stopped):
        fit(folder, 5, plugin=Stopping())
    newest = HoldfastIO.newest(folder)
    assert newest is not None
    assert HoldfastIO().load_checkpoint(newest)["epoch"] == 1
    [shard] = (folder / STORE / "step-00000003").glob("*.safetensors")  # shared with the one before, of the same epoch
    shard.chmod(0o644)
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x55")
    older = HoldfastIO.newest(folder)
    assert older is not None
    assert HoldfastIO().load_checkpoint(older)["epoch"] == 0
    resumed, module = fit(folder, 5, resume=older)
    assert resumed.global_step == straight.global_step == 10
    assert torch.equal(module.layer.weight, expected.layer.weight)


def test_every_kind_of_map_location_is_understood(tmp_path: Path) -> None:
    io = HoldfastIO()
    io.save_checkpoint({"x": torch.ones(3)}, tmp_path / "a.ckpt")
    meta, stays = torch.device("meta"), torch.device("cpu")
    for given, expected in (
        (None, stays), ("meta", meta), (meta, meta), ({"cpu": "meta"}, meta), ({"cuda:0": "meta"}, stays),
        (lambda storage, place: storage, stays), (lambda storage, place: None, stays),
        (lambda storage, place: torch.UntypedStorage(0, device="meta") if place == "cpu" else None, meta),
    ):  # fmt: skip
        assert io.load_checkpoint(tmp_path / "a.ckpt", map_location=given)["x"].device == expected


def test_what_no_file_names_any_more_goes(tmp_path: Path) -> None:
    io = HoldfastIO()
    for number in range(3):
        io.save_checkpoint({"x": number}, tmp_path / f"{number}.ckpt")
    io.remove_checkpoint(tmp_path / "0.ckpt")
    assert len(list((tmp_path / STORE).glob("step-*"))) == 2
    assert io.load_checkpoint(tmp_path / "1.ckpt") == {"x": 1}
    io.save_checkpoint({"x": "new"}, tmp_path / "1.ckpt")
    assert io.load_checkpoint(tmp_path / "1.ckpt") == {"x": "new"}
    assert len(list((tmp_path / STORE).glob("step-*"))) == 2


def test_two_trainers_do_not_sweep_each_others_new_files(tmp_path: Path) -> None:
    start, errors = threading.Barrier(2), []

    def save(name: str) -> None:
        try:
            start.wait()
            for number in range(8):
                HoldfastIO().save_checkpoint({"x": number, "global_step": number}, tmp_path / f"{name}-{number}.ckpt")
                HoldfastIO().remove_checkpoint(tmp_path / f"{name}-{number - 1}.ckpt")
        except Exception as error:
            errors.append(error)

    trainers = [threading.Thread(target=save, args=(name,)) for name in ("one", "other")]
    for trainer in trainers:
        trainer.start()
    for trainer in trainers:
        trainer.join()
    assert errors == []
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["one-7.ckpt", "other-7.ckpt"]
    for path in tmp_path.glob("*.ckpt"):
        assert HoldfastIO().load_checkpoint(path)["x"] == 7
    assert len(list((tmp_path / STORE).glob("step-*"))) == 2


def test_file_of_a_broken_checkpoint_is_not_reused(tmp_path: Path) -> None:
    io = HoldfastIO()
    for number in range(2):
        io.save_checkpoint({"x": number}, tmp_path / f"{number}.ckpt")
    manifest = tmp_path / STORE / "step-00000001" / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_bytes(manifest.read_bytes()[:-1])
    io.save_checkpoint({"x": 2}, tmp_path / "2.ckpt")
    with pytest.raises(Damaged):
        io.load_checkpoint(tmp_path / "1.ckpt")
    shutil.rmtree(tmp_path / STORE)
    io.save_checkpoint({"x": 3}, tmp_path / "3.ckpt")
    for number in range(3):
        with pytest.raises(NotFound):
            io.load_checkpoint(tmp_path / f"{number}.ckpt")
    assert io.load_checkpoint(tmp_path / "3.ckpt") == {"x": 3}


def test_a_file_that_goes_or_cannot_be_read_ends_no_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    io = HoldfastIO()
    for number in range(2):
        io.save_checkpoint({"x": number}, tmp_path / f"{number}.ckpt")
    before, error = Path.read_bytes, FileNotFoundError

    def read(path: Path) -> bytes:
        if path.name == "0.ckpt":
            raise error(path)
        return before(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    error = PermissionError
    io.save_checkpoint({"x": 2}, tmp_path / "2.ckpt")
    assert "0.ckpt cannot be read" in caplog.text
    assert len(list((tmp_path / STORE).glob("step-*"))) == 3
    error = FileNotFoundError
    io.save_checkpoint({"x": 3}, tmp_path / "3.ckpt")
    assert len(list((tmp_path / STORE).glob("step-*"))) == 3


def test_what_is_not_there_or_not_ours_is_told(tmp_path: Path) -> None:
    io = HoldfastIO()
    with pytest.raises(NotFound):
        io.load_checkpoint(tmp_path / "nothing.ckpt")
    torch.save({"x": 1}, tmp_path / "other.ckpt")
    with pytest.raises(Damaged, match="not a checkpoint of HoldfastIO"):
        io.load_checkpoint(tmp_path / "other.ckpt")
    with pytest.raises(Refused, match="x cannot be saved"):
        io.save_checkpoint({"x": object()}, tmp_path / "bad.ckpt")
    assert not (tmp_path / "bad.ckpt").exists()
    io.remove_checkpoint(tmp_path / "nothing.ckpt")
    with pytest.raises(Refused, match="is a URL"):
        io.save_checkpoint({"x": 1}, "s3://bucket/last.ckpt")


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_checkpoint_of_another_plugin_is_not_replaced(kind: str, tmp_path: Path) -> None:
    target, mine = tmp_path / "last.ckpt", tmp_path / "mine.pt"
    torch.save({"x": 1}, mine)
    if kind == "file":
        shutil.copy(mine, target)
    elif kind == "folder":
        target.mkdir()
        shutil.copy(mine, target / "mine.pt")
    else:
        target.symlink_to(mine.name)
    for _ in range(2):
        with pytest.raises(Refused, match=r"last\.ckpt was not written by Holdfast"):
            HoldfastIO().save_checkpoint({"x": 2}, target)
    HoldfastIO().remove_checkpoint(target)
    assert not list((tmp_path / STORE).glob("step-*"))
    HoldfastIO(adopt=True).save_checkpoint({"x": 2}, target)
    kept = tmp_path / "last.ckpt.replaced-1"
    assert torch.load(kept / "mine.pt" if kind == "folder" else kept) == {"x": 1}
    assert HoldfastIO().load_checkpoint(target) == {"x": 2}
    HoldfastIO().save_checkpoint({"x": 3}, target)
    HoldfastIO().remove_checkpoint(target)
    assert not target.exists()
    assert kept.exists()


def test_file_beside_a_checkpoint_is_not_temporary(tmp_path: Path) -> None:
    (tmp_path / "a.ckpt.new").write_text("mine")
    HoldfastIO().save_checkpoint({"x": 1}, tmp_path / "a.ckpt")
    assert (tmp_path / "a.ckpt.new").read_text() == "mine"


def test_two_ranks_save_once_and_go_on_bit_for_bit(tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    script = str(Path(__file__).with_name("lightning_ranks.py"))
    done = subprocess.run(
        [*command, script, str(tmp_path)], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert all((tmp_path / f"done-{rank}").exists() for rank in (0, 1)), done.stderr[-6000:]
