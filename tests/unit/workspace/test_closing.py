"""Closing: every descriptor goes at once, without the garbage collector, whichever surface held it."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.adapters.agents.helper import Code, Helper
from holdfast.flow import Checkpoint, CheckpointMetadata, open_states
from holdfast.indexing.ledger import open_ledger
from holdfast.project import SyncCheckpointManager
from holdfast.training import CheckpointManager, load_checkpoint
from holdfast.workspace.service.service import CheckpointService


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _descriptors() -> list[str]:
    """What the process has open; inotify instances, which carry the watches, included."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # the one by which they were listed
            continue
    return sorted(found)


def _use_workspace(folder: Path, *, close: bool = True) -> None:
    ws = Workspace(folder, store=folder.parent / "store", home=folder.parent, environ={}, watch=True)
    first = ws.save("one")
    (folder / "a.txt").write_text("2")
    ws.save("two")
    ws.restore(first.id)
    ws.undo()
    assert ws.diff(first.id) and ws.verify().ok
    if close:
        ws.close()


def _drop_workspace(folder: Path) -> None:
    _use_workspace(folder, close=False)


def _use_closed_workspace(folder: Path) -> None:
    ws = Workspace(folder, store=folder.parent / "store", home=folder.parent, environ={})
    saved = ws.save("one", state={"key": 1})
    ws.close()
    (folder / "a.txt").write_text("2")
    assert ws.get(saved.id).state == {"key": 1} and ws.save("two").files_changed == ["a.txt"]
    ws.close()


def _use_service(folder: Path) -> None:
    async def work() -> None:
        async with CheckpointService(folder, folder.parent / "store", watch=True) as service:
            saved = await service.save("one")
            (folder / "a.txt").write_text("2")
            await service.restore(saved.id)

    asyncio.run(work())


def _use_manager(folder: Path) -> None:
    manager = SyncCheckpointManager(folder, store=folder.parent / "store")
    made = manager.create_checkpoint("one")
    (folder / "a.txt").write_text("2")
    manager.rollback(made.id)
    manager.fork(made.id, folder.parent / "fork", store=folder.parent / "fork-store")
    manager.close()


def _use_states(folder: Path) -> None:
    with open_states(f"sqlite:///{folder.parent / 'states.db'}") as states:
        meta = CheckpointMetadata("c1", "one", datetime.now(UTC), "node", 1)
        states.save(Checkpoint(meta, {"a": 1}))
        readers = [threading.Thread(target=states.load, args=("one",)) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()


def _use_training(folder: Path) -> None:
    numpy = pytest.importorskip("numpy")
    with CheckpointManager(folder.parent / "run") as manager:
        manager.save(1, {"sizes": numpy.zeros(4)})
    load_checkpoint(folder.parent / "run")


def _use_ledger(folder: Path) -> None:
    with open_ledger(folder.parent / "ledger.db"):
        pass


@pytest.mark.parametrize(
    "use",
    [
        _use_workspace,
        _drop_workspace,
        _use_closed_workspace,
        _use_service,
        _use_manager,
        _use_states,
        _use_training,
        _use_ledger,
    ],
)
def test_close_leaves_no_descriptor(use: Callable[[Path], None], tmp_path: Path) -> None:
    before: list[str] = []
    for number in range(3):  # the first loads what Python keeps open
        folder = tmp_path / str(number) / "ws"
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("1")
        if number == 1:
            before = _descriptors()
        use(folder)
    assert _descriptors() == before


def test_helper_keeps_no_descriptor_of_workspaces_it_let_go(tmp_path: Path) -> None:
    helper = Helper(b"identity", Code(), {})
    environ = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    counts = []
    for number in range(20):
        folder = tmp_path / f"ws{number}"
        folder.mkdir()
        (folder / "a.txt").write_text("1")
        helper.opened(folder, environ).save("one")
        counts.append(len(_descriptors()))
    assert counts[-1] == counts[-8]  # as many as of the workspaces that it keeps


def test_helper_closes_everything_when_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "ws"
    folder.mkdir()
    before = _descriptors()
    environ = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "HOLDFAST_HELPER_IDLE_S": "0"}
    environ["XDG_RUNTIME_DIR"] = str(tmp_path)
    helper = Helper(b"identity", Code(), environ)
    helper.opened(folder, environ).save("one")
    helper.serve()
    assert _descriptors() == before
