"""Checkpoints in an object store: a real S3 server on this machine, and what happens when it fails in between."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import torch

from holdfast.errors import Conflict, Damaged, NotFound, Unavailable
from holdfast.training import CheckpointManager, load_checkpoint, objects, save_checkpoint, wait_for_save

from .conftest import Faulty
from .scenes import remote_state as state
from .scenes import same

pytestmark = [
    pytest.mark.extras,
    pytest.mark.filterwarnings("ignore"),  # what the server says of its own dependencies
]


def test_a_run_in_an_object_store_is_as_one_in_a_folder(url: str) -> None:
    for step, loss in ((1, 0.5), (2, 0.4), (3, 0.6)):
        meta = save_checkpoint(url, step, state(step), metrics={"loss": loss}, best_key="loss", keep_last_k=2)
    assert meta["path"] == f"{url}/step-00000003"
    assert meta["pruned"] == [1]
    for path, step in ((meta["path"], 3), (f"{url}/last", 3), (f"{url}/best.json", 2), (url, 3)):
        assert same(state(step), load_checkpoint(path))
    assert same(state(2), load_checkpoint(url, step=2))
    assert list(load_checkpoint(url, only=["frozen"])) == ["frozen"]
    assert load_checkpoint(url, mmap=True)["big"][0] == 3
    with pytest.raises(NotFound):
        load_checkpoint(url, step=1)


def test_a_tensor_that_did_not_change_is_not_sent_again(url: str, server: tuple[Faulty, str]) -> None:
    save_checkpoint(url, 1, state(1), rng=False)
    meta = save_checkpoint(url, 2, {**state(1), "epoch": 2}, rng=False)
    assert meta["files_shared"] == 2
    assert meta["bytes_written"] < 10_000
    assert same({**state(1), "epoch": 2}, load_checkpoint(url))


def test_what_a_store_would_not_copy_is_sent_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_COPY_MAX_BYTES", 10_000)
    save_checkpoint(url, 1, state(1), rng=False)
    assert save_checkpoint(url, 2, state(1), rng=False)["files_shared"] == 0
    assert same(state(1), load_checkpoint(url))


def test_a_manager_resumes_verifies_and_saves_beside_the_loop(url: str) -> None:
    manager = CheckpointManager(url, block=False, keep_last=2, best_key="loss")
    for step in (1, 2, 3):
        manager.save(step, state(step), {"loss": -step})
    wait_for_save()
    resumed = CheckpointManager(url).resume()
    assert resumed is not None
    assert same(state(3), resumed.state)
    assert manager.verify().ok
    best = manager.best()
    assert best is not None
    assert best.step == 3


def test_two_that_save_one_step_cannot_overwrite_each_other(url: str) -> None:
    from holdfast.training.objects import ObjectRunStore
    from holdfast.training.save import SaveOptions, prepare, save

    outcomes: list[Any] = []

    def direct(worker: int) -> None:
        """As another process would: in this one, saves wait for each other."""
        pending = prepare(1, {"x": torch.full((2_000_000,), float(worker))}, SaveOptions(rng=False))
        try:
            outcomes.append(save(ObjectRunStore(url), pending))
        except Conflict as error:
            outcomes.append(error)

    threads = [threading.Thread(target=direct, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(outcome, dict) for outcome in outcomes) == 1
    loaded = load_checkpoint(url)["x"]
    assert (loaded == loaded[0]).all()
    assert CheckpointManager(url).verify().ok
    with pytest.raises(Conflict):
        save_checkpoint(url, 1, {"x": 9})


def test_a_server_that_refuses_at_any_request_leaves_the_old(url: str, server: tuple[Faulty, str]) -> None:
    app, _ = server
    save_checkpoint(url, 1, state(1), rng=False, threads=1)
    app.requests.clear()
    save_checkpoint(url, 2, state(2), rng=False, threads=1, keep_last_k=1)
    points = len(app.requests)
    assert points > 8
    for at in range(1, points, 2):
        step = 100 + at
        start = len(app.requests)
        app.refuses = lambda number, what, at=at, start=start: "403 Forbidden" if number - start >= at else ""
        with pytest.raises((Unavailable, NotFound)):
            save_checkpoint(url, step, state(step), rng=False, threads=1, keep_last_k=1)
        app.refuses = lambda number, what: ""
        found = load_checkpoint(url)
        assert (found["big"] == found["epoch"]).all()
        assert found["epoch"] in (2, step) or found["epoch"] > 100
    assert CheckpointManager(url).verify().ok


def test_a_failure_that_passes_is_tried_again(url: str, server: tuple[Faulty, str]) -> None:
    app, _ = server
    app.refuses = lambda number, what: "503 Slow Down" if number % 4 == 0 else ""
    save_checkpoint(url, 1, state(1), rng=False)
    app.refuses = lambda number, what: ""
    assert same(state(1), load_checkpoint(url))


def test_a_flipped_bit_is_found(url: str, server: tuple[Faulty, str]) -> None:
    import boto3

    path = save_checkpoint(url, 1, state(1), rng=False)["path"]
    client = boto3.client("s3", endpoint_url=server[1])
    bucket, _, key = path.removeprefix("s3://").partition("/")
    manifest = json.loads(client.get_object(Bucket=bucket, Key=f"{key}/manifest.json")["Body"].read())
    name = manifest["tensors"]["big"]["file"]
    data = bytearray(client.get_object(Bucket=bucket, Key=f"{key}/{name}")["Body"].read())
    data[-5] ^= 1
    client.put_object(Bucket=bucket, Key=f"{key}/{name}", Body=bytes(data))
    with pytest.raises(Damaged):
        load_checkpoint(url)
    assert not CheckpointManager(url).verify().ok
    assert load_checkpoint(url, only=["frozen"])["frozen"][1] == 1
    name = manifest["tensors"]["frozen"]["file"]
    data = bytearray(client.get_object(Bucket=bucket, Key=f"{key}/{name}")["Body"].read())
    data[20] ^= 1  # of what other readers of the format go by
    client.put_object(Bucket=bucket, Key=f"{key}/{name}", Body=bytes(data))
    with pytest.raises(Damaged):
        load_checkpoint(url, only=["frozen"])
