"""An object store that fails, forgets, delays and lies."""

from __future__ import annotations

import json
import math
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.errors import Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.training import CheckpointManager, load_checkpoint, object_client, objects, save_checkpoint
from holdfast.training.objects import ObjectRunStore

from .conftest import Faulty
from .scenes import remote_state, same

pytestmark = [
    pytest.mark.extras,
    pytest.mark.filterwarnings("ignore"),  # what the server says of its own dependencies
]

Server = tuple[Faulty, str]


def client(server: Server) -> Any:
    import boto3

    return boto3.client("s3", endpoint_url=server[1])


def place(url: str) -> tuple[str, str]:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    return bucket, prefix


def test_what_an_interrupted_save_has_sent_is_not_sent_again(url: str, server: Server) -> None:
    app = server[0]
    app.refuses = lambda number, what: "403 Forbidden" if "manifest.json" in what and what.startswith("PUT") else ""
    with pytest.raises(Unavailable):
        save_checkpoint(url, 1, remote_state(1), rng=False)
    app.calm()
    with pytest.raises(NotFound):
        load_checkpoint(url)
    app.requests.clear()
    save_checkpoint(url, 1, {**remote_state(1), "frozen": torch.zeros(400_000, dtype=torch.int64)}, rng=False)
    sent = [what for what in app.requests if what.startswith(("PUT", "POST")) and ".safetensors?" in what]
    assert len(sent) == 1  # only what is another than it was
    assert load_checkpoint(url)["big"][0] == 1
    assert CheckpointManager(url).verify().ok


def test_a_part_that_fails_is_sent_again_or_nothing_is_there(url: str, server: Server) -> None:
    app = server[0]
    failed: set[str] = set()

    def refuses(number: int, what: str) -> str:
        if "partNumber=2" in what and what not in failed:
            failed.add(what)
            return "500 Internal Server Error"
        return ""

    app.refuses = refuses
    save_checkpoint(url, 1, remote_state(1), rng=False)
    assert len(failed) == 1
    assert same(remote_state(1), load_checkpoint(url))
    app.refuses = lambda number, what: "403 Forbidden" if "partNumber=2" in what else ""
    with pytest.raises(Unavailable, match="access denied"):
        save_checkpoint(url, 2, remote_state(2), rng=False)
    app.calm()
    assert "Uploads" not in client(server).list_multipart_uploads(Bucket=place(url)[0])
    assert same(remote_state(1), load_checkpoint(url))


def test_looking_costs_a_request_a_page_and_not_a_step(
    url: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = CheckpointManager(url, keep_last=None, config={"lr": 1})
    for step in range(8):
        manager.save(step, {"x": torch.ones(100)}, {"loss": step}, metadata={"note": step})
    count = len(ObjectRunStore(url).client.list())
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    server[0].requests.clear()
    history = manager.history()
    pages = [what for what in server[0].requests if "list-type" in what]
    assert len(pages) == math.ceil(count / 10) > 2
    assert len(server[0].requests) - len(pages) == 2  # `last`, and the pins
    local = CheckpointManager(url)._store.get(3).manifest
    assert [each.metrics["loss"] for each in history] == list(range(8))
    assert (history[3].n_bytes, history[3].n_tensors) == (local.total_bytes, len(local.tensors))
    assert (history[3].metadata, history[3].environment) == ({"note": 3}, local.environment)
    assert history[3].config_hash == local.config_hash is not None


def test_a_last_that_lies_is_not_believed(url: str, server: Server) -> None:
    """Of a step that was copied by hand, `last` seems to know everything: the tag is that of the original."""
    save_checkpoint(url, 1, {"x": 1})
    bucket, prefix = place(url)
    store = client(server)
    for entry in ObjectRunStore(url).client.list("step-00000001"):
        source = {"Bucket": bucket, "Key": f"{prefix}/{entry.key}"}
        store.copy_object(Bucket=bucket, Key=f"{prefix}/{entry.key.replace('001/', '009/')}", CopySource=source)
    assert [each.step for each in CheckpointManager(url).history()] == [1]
    with pytest.raises(Damaged, match="contains step 1"):
        load_checkpoint(url, step=9)
    for text in (b"no JSON", b'{"schema_version": 1, "history": [{"tag": 1}, 7], "sequence": "x"}'):
        store.put_object(Bucket=bucket, Key=f"{prefix}/last", Body=text)
        assert load_checkpoint(url, step=1) == {"x": 1}


def test_an_object_that_is_missing_or_cut_off_is_damage(url: str, server: Server) -> None:
    path = save_checkpoint(url, 1, remote_state(1), rng=False)["path"]
    manifest = ObjectRunStore(url).get(1).manifest
    bucket, key = place(f"{path}/{manifest.tensors['big'].file}")
    store = client(server)
    whole = store.get_object(Bucket=bucket, Key=key)["Body"].read()
    for size in (len(whole) - 1, 6_000_000, 100, 0):
        store.put_object(Bucket=bucket, Key=key, Body=whole[:size])
        with pytest.raises(Damaged, match="missing or too short"):
            load_checkpoint(url)
        [problem] = CheckpointManager(url).verify().problems
        assert f"has {size} bytes" in problem.detail
    store.delete_object(Bucket=bucket, Key=key)
    with pytest.raises(Damaged, match="missing or too short"):
        load_checkpoint(url)
    assert [problem.detail for problem in CheckpointManager(url).verify().problems] == ["is missing"]
    assert load_checkpoint(url, only=["frozen"])["frozen"][1] == 1


def test_a_damaged_newest_is_put_aside_and_never_swept(
    url: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        state, metrics = {"x": torch.full((10,), float(step))}, {"loss": 3.0 - step}
        save_checkpoint(url, step, state, metrics=metrics, best_key="loss", rng=False)
    manifest = ObjectRunStore(url).get(2).manifest
    bucket, key = place(f"{url}/step-00000002/{manifest.tensors['x'].file}")
    client(server).put_object(Bucket=bucket, Key=key, Body=b"")
    manager = CheckpointManager(url)
    resumed = manager.resume()
    assert resumed is not None
    assert resumed.step == 1
    assert [each.step for each in manager.history()] == [1]
    for marker in ("last", "best.json"):
        bucket, key = place(f"{url}/{marker}")
        said = json.loads(client(server).get_object(Bucket=bucket, Key=key)["Body"].read())
        assert (said["step"], said["path"], said.get("value")) == (1, "step-00000001", {"best.json": 2.0}.get(marker))
    monkeypatch.setattr(objects, "_ABANDONED_AFTER", timedelta(seconds=-1))
    manager.save(2, {"x": torch.full((10,), 5.0)})
    names = {entry.key for entry in ObjectRunStore(url).client.list("step-00000002")}
    assert {f"step-00000002/{name}" for name in (*manifest.files, "manifest.json.damaged-1")} <= names
    assert load_checkpoint(url)["x"][0] == 5


def test_a_step_whose_manifest_is_broken_can_be_saved_again(
    url: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    save_checkpoint(url, 1, {"x": 1})
    bucket, prefix = place(url)
    client(server).put_object(Bucket=bucket, Key=f"{prefix}/step-00000001/manifest.json", Body=b"{}")
    with pytest.raises(Damaged):
        load_checkpoint(url)
    save_checkpoint(f"{url}/other", 1, {"x": 1})
    save_checkpoint(f"{url}/other", 2, {"x": 2})
    client(server).put_object(Bucket=bucket, Key=f"{prefix}/other/step-00000002/manifest.json", Body=b"{}")
    assert load_checkpoint(f"{url}/other") == {"x": 1}
    assert "skipped: " in caplog.text
    save_checkpoint(url, 1, {"x": 2})
    assert load_checkpoint(url) == {"x": 2}
    found = client(server).get_object(Bucket=bucket, Key=f"{prefix}/step-00000001/manifest.json.damaged-1")
    assert found["Body"].read() == b"{}"


def test_nothing_is_named_that_is_not_there(url: str, server: Server) -> None:
    """What an interrupted save has left is taken for granted; somebody sweeps it just then."""
    server[0].refuses = lambda number, what: "403 Forbidden" if "PUT" in what and "manifest.json" in what else ""
    with pytest.raises(Unavailable):
        save_checkpoint(url, 1, remote_state(1), rng=False)
    objects_of_it = ObjectRunStore(url).client
    shards = [entry.key for entry in objects_of_it.list("step-00000001") if entry.key.endswith(".safetensors")]
    server[0].once("/sequence-", lambda: objects_of_it.delete(shards[:1]))
    with pytest.raises(Unavailable, match="was removed during the save"):
        save_checkpoint(url, 1, remote_state(1), rng=False)
    save_checkpoint(url, 1, remote_state(1), rng=False)
    assert same(remote_state(1), load_checkpoint(url))


def test_what_is_old_is_not_taken_for_granted(url: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may be about to sweep it."""
    server[0].refuses = lambda number, what: "403 Forbidden" if "PUT" in what and "manifest.json" in what else ""
    with pytest.raises(Unavailable):
        save_checkpoint(url, 1, {"x": torch.ones(10)}, rng=False)
    server[0].calm()
    server[0].requests.clear()
    monkeypatch.setattr(objects, "_REUSED_FOR", timedelta(days=-1))
    save_checkpoint(url, 1, {"x": torch.ones(10)}, rng=False)
    assert [what for what in server[0].requests if what.startswith("PUT") and ".safetensors?" in what]


def test_a_state_that_changes_while_it_is_sent_is_no_checkpoint(url: str, server: Server) -> None:
    state = {"big": torch.zeros(3_000_000)}
    server[0].once("uploads", lambda: state["big"].fill_(1.0))
    with pytest.raises(Refused, match="changed during the save: big"):
        save_checkpoint(url, 1, state, rng=False)
    assert CheckpointManager(url).history() == []
    save_checkpoint(url, 1, state, rng=False)
    assert load_checkpoint(url)["big"].min() == 1


def test_interrupted_removal_leaves_nothing_that_looks_whole(url: str, server: Server) -> None:
    for step in (1, 2):
        save_checkpoint(url, step, {"x": torch.full((10,), float(step))}, rng=False)
    asked: list[str] = []

    def refuses(number: int, what: str) -> str:
        if what.startswith(("DELETE", "POST")):
            asked.append(what)
        return "403 Forbidden" if len(asked) > 1 else ""

    server[0].refuses = refuses
    with pytest.raises(Unavailable):
        CheckpointManager(url, keep_last=1).prune()
    server[0].calm()
    assert [each.step for each in CheckpointManager(url).history()] == [2]
    assert CheckpointManager(url).verify().ok


def test_what_dead_saves_left_is_swept_once_it_is_old(
    url: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(url, 1, {"x": torch.ones(10)})
    server[0].refuses = lambda number, what: "403 Forbidden" if "-00000002/manifest.json" in what else ""
    with pytest.raises(Unavailable):
        save_checkpoint(url, 2, {"x": torch.ones(10) * 2})
    server[0].calm()
    bucket, prefix = place(url)
    client(server).put_object(Bucket=bucket, Key=f"{prefix}/step-00000002/notes.txt", Body=b"mine")
    save_checkpoint(url, 3, {"x": torch.ones(10) * 3})
    assert len(ObjectRunStore(url).client.list("step-00000002")) > 1  # its saver may still be at it
    monkeypatch.setattr(objects, "_ABANDONED_AFTER", timedelta(seconds=-1))
    save_checkpoint(url, 4, {"x": torch.ones(10) * 4})
    assert [entry.key for entry in ObjectRunStore(url).client.list("step-00000002")] == ["step-00000002/notes.txt"]
    assert ObjectRunStore(url).client.list(".holdfast") == []
    assert CheckpointManager(url).verify().ok
    assert save_checkpoint(url, 5, {"x": 5})["sequence"] == 5


def test_a_request_that_hangs_is_sent_again(url: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(url, 1, remote_state(1), rng=False)
    monkeypatch.setenv("AWS_TIMEOUT", "2s")
    answered = threading.Event()
    try:
        server[0].once(f"GET /{place(url)[0]}/runs/exp1/step-00000001/model-", lambda: answered.wait(60))
        assert same(remote_state(1), load_checkpoint(url))
        answered.set()
        monkeypatch.setenv("AWS_TIMEOUT", "5s")  # a manifest is not sent twice, so nothing else may hang
        answered = threading.Event()
        server[0].once(f"PUT /{place(url)[0]}/runs/exp1/step-00000002/model-", lambda: answered.wait(60))
        save_checkpoint(url, 2, remote_state(2), rng=False)
    finally:
        answered.set()
    assert same(remote_state(2), load_checkpoint(url))


def test_a_storm_of_refusals_ends_in_one_sentence(url: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(url, 1, {"x": 1})
    monkeypatch.setitem(object_client.RETRY, "max_retries", 2)
    server[0].refuses = lambda number, what: "503 Slow Down"
    server[0].requests.clear()
    for act in (lambda: save_checkpoint(url, 2, {"x": 2}), lambda: load_checkpoint(url)):
        with pytest.raises(Unavailable, match="503") as caught:
            act()
        assert "\n" not in str(caught.value)
        assert caught.value.hint
    assert len(server[0].requests) == 6
    server[0].calm()
    assert load_checkpoint(url) == {"x": 1}
    save_checkpoint(url, 2, {"x": 2})


def test_without_credentials_one_is_told_which_to_set(
    url: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", server[1])
    server[0].refuses = lambda number, what: "404 Not Found" if "/latest/" in what else ""
    with pytest.raises(Unavailable, match="no credentials found") as caught:
        save_checkpoint(url, 1, {"x": 1})
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint


def test_a_bucket_that_is_not_there_is_told(url: str) -> None:
    for act in (
        lambda: save_checkpoint("s3://no-such-bucket/x", 1, {"x": 1}),
        lambda: load_checkpoint("s3://no-such-bucket/x"),
        lambda: CheckpointManager("s3://no-such-bucket/x").history(),
    ):
        with pytest.raises(NotFound, match="the bucket does not exist"):
            act()
    with pytest.raises(NotFound, match="has no checkpoint"):
        load_checkpoint(url)


@pytest.mark.parametrize("wrong", ["memory://", "memory:///x", "foo://x", "s3://", "s3:///x", Path("s3://bucket/x")])
def test_a_place_that_keeps_nothing_is_refused(wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for act in (lambda: save_checkpoint(wrong, 1, {"x": 1}), lambda: load_checkpoint(wrong)):
        with pytest.raises(HoldfastError) as caught:
            act()
        assert isinstance(caught.value, Refused)
    assert list(tmp_path.iterdir()) == []


def test_a_url_of_a_file_is_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    meta = save_checkpoint(f"file://{tmp_path}/a%20b", 1, {"x": 1})
    assert meta["path"] == str(folder / "step-00000001")
    assert load_checkpoint(folder) == load_checkpoint(folder.as_uri()) == {"x": 1}
    with pytest.raises(Refused, match="not a folder on this machine"):
        save_checkpoint("file://elsewhere/x", 1, {"x": 1})
