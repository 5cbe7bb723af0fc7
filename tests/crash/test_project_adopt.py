"""A fork that is adopted, killed at every write: the project is as it was, or as the fork is, state and all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import durable
from holdfast.project import SyncCheckpointManager
from holdfast.testing.disk_contract import EntryDescription, describe, differences
from holdfast.testing.faulty_disks import CountingDisk, DiskCall, KillingDisk, die_in_child, every_point

from . import workers
from .scene import Scene, settle_times

pytestmark = pytest.mark.crash


class Forked(NamedTuple):
    """A project and a fork of it that went on."""

    scene: Scene
    old: dict[str, EntryDescription]
    new: dict[str, EntryDescription]
    calls: list[DiskCall]

    def open(self) -> SyncCheckpointManager:
        return _open(self.scene)

    def act(self) -> None:
        self.open().adopt(self.scene.live / "fork", store=self.scene.live / "fork-store")


def _open(scene: Scene) -> SyncCheckpointManager:
    options: dict[str, Any] = {"store": scene.store, "home": scene.home, "environ": {"PATH": os.environ["PATH"]}}
    return SyncCheckpointManager(scene.ws, **options)


def _make(area: Path) -> Forked:
    scene = Scene(area)
    for name in ("app.ts", "gone.txt", "feature_list.json"):
        (scene.ws / name).write_text(f"{name} at first\n")
    settle_times(scene.ws)
    with durable.use_disk(CountingDisk()):
        manager = _open(scene)
        made = manager.create_checkpoint("good", state={"plan": 1})
        fork = scene.live / "fork"
        manager.fork(made.id, fork, store=scene.live / "fork-store")
    (fork / "app.ts").write_text("gone on in the fork\n")
    (fork / "gone.txt").unlink()
    (fork / "new.txt").write_text("made in the fork\n")
    (scene.ws / "app.ts").write_text("gone on here, and saved nowhere\n")
    scene.keep()
    staged = Forked(scene, describe(scene.ws), {}, [])
    calls = every_point(staged.act)
    staged = staged._replace(new=describe(scene.ws), calls=calls)
    assert differences(staged.old, staged.new)
    return staged


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[Forked]:
    return [_make(tmp_path_factory.mktemp("adopt")) for _ in range(workers.COUNT)]


def test_killed_at_any_write_it_is_old_or_new(stages: list[Forked]) -> None:
    def work(worker: int, call: DiskCall) -> None:
        stage = stages[worker]
        stage.scene.reset()
        assert die_in_child(KillingDisk(at=call.number, when="before"), stage.act)
        with durable.use_disk(CountingDisk()):
            manager = stage.open()
            manager.recover()
            now = describe(stage.scene.ws)
            is_old, is_new = not differences(stage.old, now), not differences(stage.new, now)
            assert is_old or is_new, f"in between: {differences(stage.old, now)}, {differences(stage.new, now)}"
            if is_new:
                assert manager.undo().state == {"plan": 1}
                assert not differences(stage.old, describe(stage.scene.ws))
            stage.act()
            assert not differences(stage.new, describe(stage.scene.ws))
            assert manager.verify().ok
        assert not stage.scene.fsck()

    workers.all_of(stages[0].calls, work)
