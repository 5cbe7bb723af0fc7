"""What another program has put where Holdfast writes is never lost (P1): it is refused, or kept under another name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.durable import use_disk
from holdfast.durable.disk import Disk
from holdfast.errors import Conflict, Damaged, Refused
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint, wait_for_save
from holdfast.training.folder import FolderRunStore
from holdfast.training.objects import ObjectRunStore

from .conftest import Faulty

pytestmark = pytest.mark.extras

FOREIGN = b'{"schema_version": 1, "metric": "loss", "mode": "min", "value": 0.1, "path": "ckpt-7.pt"}'


def _file(path: Path) -> None:
    path.write_bytes(FOREIGN)


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "weights.pt").write_bytes(FOREIGN)


def _link(path: Path) -> None:
    (path.parent / "ckpt-7.pt").write_bytes(FOREIGN)
    path.symlink_to("ckpt-7.pt")


def _binary(path: Path) -> None:
    path.write_bytes(b"\x80\x02}q\x00" * 500_000)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _pipe(path: Path) -> None:
    os.mkfifo(path)


KINDS = [_file, _folder, _link, _binary, _dangling, _pipe]


def _seen(path: Path) -> Any:
    """What is there, without following a link."""
    if path.is_symlink():
        return os.readlink(path)
    if path.is_dir():
        return {each.name: each.read_bytes() for each in path.iterdir()}
    return path.read_bytes() if path.is_file() else os.lstat(path).st_mode


def _save(out: Any, step: int, **options: Any) -> dict[str, Any]:
    state = {"x": torch.full((3,), float(step))}
    return save_checkpoint(out, step, state, metrics={"loss": 1.0 / step}, best_key="loss", **options)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("name", ["last", "best.json"])
class TestMarkers:
    def test_a_save_refuses_to_replace_one(self, name: str, make: Callable[[Path], None], tmp_path: Path) -> None:
        make(tmp_path / name)
        before = _seen(tmp_path / name)
        for options in ({}, {"block": False}, {"rewind": True}):
            with pytest.raises(Refused, match=name) as told:
                _save(tmp_path, 1, **options)
            assert f"kept as {name}.replaced-1" in told.value.hint
        assert _seen(tmp_path / name) == before
        assert not list(tmp_path.glob("step-*"))

    def test_adopting_keeps_it_beside(self, name: str, make: Callable[[Path], None], tmp_path: Path) -> None:
        make(tmp_path / name)
        before = _seen(tmp_path / name)
        meta = _save(tmp_path, 1, adopt=True)
        assert _seen(tmp_path / f"{name}.replaced-1") == before
        assert any(f"kept as {name}.replaced-1" in note for note in meta["notes"])
        assert _save(tmp_path, 2, adopt=True)["notes"] == []  # ours by now
        _save(tmp_path, 3)
        assert json.loads((tmp_path / name).read_text())["step"] == 3
        assert _seen(tmp_path / f"{name}.replaced-1") == before


def test_one_that_comes_between_two_saves_is_kept(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, best_key="loss", adopt=True)
    for step in (1, 2):
        (tmp_path / "last").unlink(missing_ok=True)
        (tmp_path / "last").write_text(f"theirs {step}")
        manager.save(step, {}, {"loss": 1.0})
        assert (tmp_path / f"last.replaced-{step}").read_text() == f"theirs {step}"


class MeddlingDisk(Disk):
    """Does something when the manifest is about to be written: in the middle of a save."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act

    def create(self, name: str, *, mode: int = 0o600, dir_fd: int | None = None) -> int:
        if name.endswith("manifest.json"):
            self._act()
        return super().create(name, mode=mode, dir_fd=dir_fd)


@pytest.mark.parametrize("name", ["last", "best.json"])
def test_one_that_comes_during_a_save_is_kept(name: str, tmp_path: Path) -> None:
    _save(tmp_path, 1)
    with use_disk(MeddlingDisk(lambda: (tmp_path / name).write_text("theirs"))), pytest.raises(Refused, match=name):
        _save(tmp_path, 2)
    assert (tmp_path / name).read_text() == "theirs"
    assert load_checkpoint(tmp_path)["x"].tolist() == [2, 2, 2]  # it was committed before


def test_a_marker_that_the_save_does_not_write_may_be_anybodys(tmp_path: Path) -> None:
    (tmp_path / "best.json").write_bytes(FOREIGN)
    for step in (1, 2, 3):
        meta = save_checkpoint(tmp_path, step, {}, metrics={"loss": 1.0}, keep_last_k=1)
    assert (meta["pruned"], list(meta["kept"])) == ([], [1, 2, 3])  # nobody can tell which is the best
    assert "best.json was not written by Holdfast" in meta["kept"][1]
    with pytest.raises(Damaged, match="was not written by Holdfast"):
        load_checkpoint(tmp_path, step="best")
    assert (tmp_path / "best.json").read_bytes() == FOREIGN


def test_resume_leaves_the_markers_of_others(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step, {"x": torch.full((3,), float(step))})
    for name in ("last", "best.json"):
        (tmp_path / name).write_bytes(FOREIGN)
    [shard] = (tmp_path / "step-00000002").glob("*.safetensors")
    shard.chmod(0o600)
    shard.write_bytes(shard.read_bytes()[:-1] + b"\7")
    resumed = CheckpointManager(tmp_path).resume()
    assert resumed is not None
    assert resumed.step == 1
    assert (tmp_path / "step-00000002.damaged-1").is_dir()
    for name in ("last", "best.json"):
        assert (tmp_path / name).read_bytes() == FOREIGN


class TestTemporaryNames:
    @pytest.mark.parametrize("name", ["saving-last", "saving-best.json", "saving-pins", "saving"])
    def test_a_file_of_others_is_kept(self, name: str, tmp_path: Path) -> None:
        (tmp_path / ".holdfast").mkdir()
        (tmp_path / ".holdfast" / name).write_text("mine")
        _save(tmp_path, 1, pin=True)
        assert (tmp_path / ".holdfast" / f"{name}.replaced-1").read_text() == "mine"

    @pytest.mark.parametrize("name", ["saving", "removing-step-00000007", "replaced-step-00000001", "saving-last"])
    def test_a_folder_with_a_file_of_others_is_kept(self, name: str, tmp_path: Path) -> None:
        _save(tmp_path, 1)
        folder = tmp_path / ".holdfast" / name
        folder.mkdir()
        for file in ("model-00001-of-00001.safetensors", "notes.txt"):
            (folder / file).write_text("mine")
        _save(tmp_path, 2)
        kept = tmp_path / ".holdfast" / f"{name}.replaced-1"
        assert (kept / "notes.txt").read_text() == "mine"
        assert sorted(os.listdir(tmp_path / ".holdfast")) == ["lock", kept.name]

    @pytest.mark.parametrize("left", [b"", b'{\n  "sch', b"\0" * 90, b'{\n  "schema_ver' + b"\0" * 70])
    def test_what_a_crash_left_of_a_marker_goes(self, left: bytes, tmp_path: Path) -> None:
        _save(tmp_path, 1)
        (tmp_path / ".holdfast" / "saving-last").write_bytes(left)
        _save(tmp_path, 2)
        assert os.listdir(tmp_path / ".holdfast") == ["lock"]


class TestSteps:
    def test_a_folder_with_another_manifest_is_not_moved(self, tmp_path: Path) -> None:
        folder = tmp_path / "step-00000001"
        folder.mkdir()
        (folder / "manifest.json").write_text('{"kind": "another.program"}')
        with pytest.raises(Conflict, match="not a Holdfast checkpoint"):
            _save(tmp_path, 1)
        assert (folder / "manifest.json").read_text() == '{"kind": "another.program"}'

    @pytest.mark.parametrize("empty", [True, False])
    def test_a_folder_that_comes_during_a_save_stays(self, empty: bool, tmp_path: Path) -> None:
        folder = tmp_path / "step-00000002"

        def meddle() -> None:
            folder.mkdir()
            if not empty:
                (folder / "theirs.pt").write_text("theirs")

        _save(tmp_path, 1)
        with use_disk(MeddlingDisk(meddle)), pytest.raises(Conflict, match="created by another program"):
            _save(tmp_path, 2, pin=True)
        assert os.listdir(folder) == ([] if empty else ["theirs.pt"])
        assert CheckpointManager(tmp_path).latest().step == 1  # type: ignore[union-attr]
        folder.rename(tmp_path / "moved")
        assert FolderRunStore(tmp_path).pinned() == set()
        _save(tmp_path, 2)


# in an object store


@pytest.mark.parametrize("name", ["last", "best.json"])
def test_a_save_to_a_store_refuses_to_replace_a_marker(name: str, url: str) -> None:
    client = ObjectRunStore(url).client
    for content in (FOREIGN, b"\x80\x02", b""):
        client.put(name, content)
        for options in ({}, {"rewind": True}):
            with pytest.raises(Refused, match=name):
                _save(url, 1, **options)
        with pytest.raises(Refused, match=name):
            _save(url, 1, block=False)
            wait_for_save()
        assert client.get(name) == content
    assert {entry.key for entry in client.list()} == {name}


@pytest.mark.parametrize("name", ["last", "best.json"])
def test_adopting_in_a_store_keeps_a_marker_beside(name: str, url: str) -> None:
    client = ObjectRunStore(url).client
    client.put(f"{name}.replaced-1", b"older")
    client.put(name, FOREIGN)
    meta = _save(url, 1, adopt=True)
    assert any(f"kept as {name}.replaced-2" in note for note in meta["notes"])
    assert _save(url, 2, adopt=True)["notes"] == []
    assert client.get(f"{name}.replaced-1") == b"older"
    assert client.get(f"{name}.replaced-2") == FOREIGN
    assert json.loads(client.get(name) or b"")["step"] == 2


def test_a_marker_that_comes_during_a_save_to_a_store_is_kept(url: str, server: tuple[Faulty, str]) -> None:
    client = ObjectRunStore(url).client
    _save(url, 1)
    server[0].once(
        "PUT /" + url.removeprefix("s3://") + "/step-00000002/manifest.json", lambda: client.put("last", b"x")
    )
    with pytest.raises(Refused, match="last"):
        _save(url, 2)
    assert client.get("last") == b"x"
    assert load_checkpoint(url, step=2)["x"].tolist() == [2, 2, 2]  # it was committed before


def test_resume_in_a_store_leaves_the_markers_of_others(url: str) -> None:
    for step in (1, 2):
        save_checkpoint(url, step, {"x": torch.full((3,), float(step))})
    folder = ObjectRunStore(url)
    file = folder.get(2).manifest.tensors["x"].file
    folder.client.put(f"step-00000002/{file}", b"")
    for name in ("last", "best.json"):
        folder.client.put(name, FOREIGN)
    resumed = CheckpointManager(url).resume()
    assert resumed is not None
    assert resumed.step == 1
    for name in ("last", "best.json"):
        assert folder.client.get(name) == FOREIGN


def test_a_sweep_of_a_store_removes_only_names_of_ours(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = ObjectRunStore(url).client
    theirs = [
        "step-00000009/model-00001-of-00002.safetensors", "step-00000009/model-final.bin", "step-00000009/state-x.json",
        ".holdfast/sequence-of-events.txt", ".holdfast/sequence-000000000099", "step-00000001/model-card.md",
    ]  # fmt: skip
    for key in theirs:
        client.put(key, b"theirs")
    ours = ["step-00000008/model-" + "0" * 32 + ".safetensors", ".holdfast/sequence-000000000000"]
    for key, data in zip(ours, (b"half", b""), strict=True):
        client.put(key, data)
    monkeypatch.setattr("holdfast.training.objects._ABANDONED_AFTER", timedelta(seconds=-1))
    _save(url, 1)
    keys = {entry.key for entry in client.list()}
    assert not keys & set(ours)
    assert set(theirs) <= keys


def test_a_step_of_a_store_with_another_manifest_is_not_moved(url: str) -> None:
    client = ObjectRunStore(url).client
    client.put("step-00000001/manifest.json", b'{"kind": "another.program"}')
    with pytest.raises(Conflict, match="not a Holdfast checkpoint"):
        _save(url, 1)
    assert client.get("step-00000001/manifest.json") == b'{"kind": "another.program"}'
    assert {entry.key for entry in client.list()} == {"step-00000001/manifest.json"}
