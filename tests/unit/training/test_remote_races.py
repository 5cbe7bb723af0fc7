"""Savers, pruners and readers of one run in an object store, in between each other's requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from holdfast.errors import Conflict, NotFound, Unavailable
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint
from holdfast.training.objects import ObjectRunStore
from holdfast.training.save import SaveOptions, prepare
from holdfast.training.save import save as save_to

from .conftest import Faulty
from .scenes import remote_state, same

pytestmark = [
    pytest.mark.extras,
    pytest.mark.filterwarnings("ignore"),  # what the server says of its own dependencies
]


def save_as_another(url: str, step: int, state: Any, *, keep_last: int | None = None, **options: Any) -> dict[str, Any]:
    """Save as another process would: in this one, saves wait for each other."""
    request = SaveOptions(keep_last_k=keep_last, rng=False, **options)
    return save_to(ObjectRunStore(url), prepare(step, state, request))


@pytest.mark.parametrize("moment", ["/step-00000001/manifest.json", "PUT /{bucket}/runs/exp1/last"])
def test_savers_of_two_steps_count_on_and_both_are_told(url: str, server: tuple[Faulty, str], moment: str) -> None:
    wishes: dict[str, Any] = {"best_key": "loss", "pin": True}
    other = lambda: save_as_another(url, 2, {"x": 2}, metrics={"loss": 0.1}, **wishes)  # noqa: E731
    server[0].once(moment.replace("{bucket}", url.split("/")[2]), other)
    save_checkpoint(url, 1, {"x": 1}, metrics={"loss": 0.5}, **wishes)
    history = CheckpointManager(url).history()
    assert [(each.sequence, each.step, each.pinned) for each in history] == [(1, 1, True), (2, 2, True)]
    folder = ObjectRunStore(url)
    last, best = (json.loads(folder.client.get(name) or b"") for name in ("last", "best.json"))
    assert (last["step"], best["step"]) == (2, 2)
    assert [entry["step"] for entry in last["history"]] == [1, 2]


def test_a_number_is_given_once_whoever_looked_first(url: str, server: tuple[Faulty, str]) -> None:
    """The other one begins and ends while the first one sends its tensors."""
    server[0].once("/state-", lambda: save_as_another(url, 2, {"x": 2}))
    assert save_checkpoint(url, 1, {"x": 1})["sequence"] == 2
    assert load_checkpoint(url) == {"x": 1}
    assert json.loads(ObjectRunStore(url).client.get("last") or b"")["step"] == 1


def test_of_two_savers_of_one_step_the_second_takes_back_its_own(url: str, server: tuple[Faulty, str]) -> None:
    server[0].once("PUT /{}/runs/exp1/step-00000001/manifest".format(url.split("/")[2]),
                   lambda: save_as_another(url, 1, remote_state(2)))  # fmt: skip
    with pytest.raises(Conflict, match="another process saved step 1"):
        save_checkpoint(url, 1, remote_state(1), rng=False)
    assert same(remote_state(2), load_checkpoint(url))
    manifest = ObjectRunStore(url).get(1).manifest
    assert {entry.key for entry in ObjectRunStore(url).client.list("step-00000001")} == {
        f"step-00000001/{name}" for name in (*manifest.files, "manifest.json")
    }
    assert CheckpointManager(url).verify().ok


def test_who_sets_a_step_back_replaces_only_what_was_there(url: str, server: tuple[Faulty, str]) -> None:
    save_checkpoint(url, 1, {"x": 1})
    assert save_checkpoint(url, 1, {"x": 2}, rewind=True)["sequence"] == 2
    server[0].once("/state-", lambda: save_as_another(url, 1, {"x": 3}, rewind=True))
    with pytest.raises(Conflict, match="another process saved step 1"):
        save_checkpoint(url, 1, {"x": 4}, rewind=True)
    assert load_checkpoint(url) == {"x": 3}


def test_an_answer_that_is_lost_is_no_conflict_with_oneself(url: str, server: tuple[Faulty, str]) -> None:
    lost: list[str] = []

    def loses(what: str) -> bool:
        for name in ("/manifest.json", "/last", "/sequence-"):
            if what.startswith("PUT") and name in what and name not in lost:
                lost.append(name)
                return True
        return False

    server[0].loses = loses
    assert save_checkpoint(url, 1, {"x": 1})["step"] == 1
    assert len(lost) == 3
    assert load_checkpoint(url) == {"x": 1}


def test_what_cannot_be_pinned_as_was_asked_is_not_there(url: str, server: tuple[Faulty, str]) -> None:
    server[0].refuses = lambda number, what: "403 Forbidden" if "pins.json" in what and what.startswith("PUT") else ""
    with pytest.raises(Unavailable):
        save_checkpoint(url, 1, {"x": 1}, pin=True)
    server[0].calm()
    assert CheckpointManager(url).history() == []
    save_checkpoint(url, 1, {"x": 1}, pin=True)
    assert [(each.step, each.pinned) for each in CheckpointManager(url).history()] == [(1, True)]


def test_what_is_pinned_while_a_saver_decides_is_not_pruned(url: str, server: tuple[Faulty, str]) -> None:
    for step in (1, 2):
        save_checkpoint(url, step, {"x": step}, rng=False)
    server[0].once("PUT /{}/runs/exp1/last".format(url.split("/")[2]), lambda: CheckpointManager(url).pin(1))
    meta = save_checkpoint(url, 3, {"x": 3}, rng=False, keep_last_k=1)
    assert (meta["pruned"], meta["kept"]) == ([2], {1: "pinned", 3: "the newest"})
    assert [(each.step, each.pinned) for each in CheckpointManager(url).history()] == [(1, True), (3, False)]
    assert load_checkpoint(url, step=1) == {"x": 1}


def test_what_is_pruned_while_it_is_being_pinned_is_not_there(url: str, server: tuple[Faulty, str]) -> None:
    for step in (1, 2):
        save_checkpoint(url, step, {"x": step}, rng=False)
    prune = CheckpointManager(url, keep_last=1).prune
    server[0].once("PUT /{}/runs/exp1/.holdfast/pins".format(url.split("/")[2]), prune)
    with pytest.raises(NotFound, match="no checkpoint 1"):
        CheckpointManager(url).pin(1)


def test_pins_of_two_are_both_kept(url: str, server: tuple[Faulty, str]) -> None:
    manager = CheckpointManager(url)
    for step in (1, 2):
        manager.save(step, {"x": step})
    server[0].once("PUT /{}/runs/exp1/.holdfast/pins".format(url.split("/")[2]), lambda: CheckpointManager(url).pin(1))
    with pytest.raises(Conflict, match="pins"):
        manager.pin(2)
    manager.pin(2)
    assert [each.pinned for each in manager.history()] == [True, True]
    manager.pin(1, pinned=False)
    assert [each.pinned for each in manager.history()] == [False, True]


@pytest.mark.parametrize("step", ["latest", 1])
def test_a_reader_of_what_is_just_pruned_gets_the_newer(url: str, server: tuple[Faulty, str], step: Any) -> None:
    save_checkpoint(url, 1, remote_state(1), rng=False)
    moment = f"GET /{url.split('/')[2]}/runs/exp1/step-00000001/model-"
    prune = lambda: save_as_another(url, 2, remote_state(2), keep_last=1)  # noqa: E731
    server[0].once(moment, prune)
    if step == 1:
        with pytest.raises(NotFound, match="has no checkpoint 1"):
            load_checkpoint(url, step=step)
    else:
        assert same(remote_state(2), load_checkpoint(url, step=step))


def test_a_resume_from_what_is_just_pruned_finds_the_newer(url: str, server: tuple[Faulty, str]) -> None:
    save_checkpoint(url, 1, remote_state(1), rng=False)
    for moment, step in (("/step-00000001/manifest", 2), ("/step-00000002/model-", 3)):
        word = f"GET /{url.split('/')[2]}/runs/exp1{moment}"
        server[0].once(word, lambda step=step: save_as_another(url, step, remote_state(step), keep_last=1))
        resumed = CheckpointManager(url).resume(rng=False)
        assert resumed is not None
        assert same(remote_state(step), resumed.state)
        assert resumed.problems == ()
    with pytest.raises(NotFound, match="has nothing named"):
        CheckpointManager(url).resume(only=["nothing"])


def test_two_that_prune_at_once_do_not_trip(url: str, server: tuple[Faulty, str]) -> None:
    manager = CheckpointManager(url, keep_last=None)
    for step in (1, 2, 3):
        manager.save(step, {"x": torch.full((10,), float(step))})
    pruner = CheckpointManager(url, keep_last=1)
    server[0].once("POST", lambda: CheckpointManager(url, keep_last=1).prune())
    assert pruner.prune().removed == [1, 2]
    assert [each.step for each in manager.history()] == [3]
    assert {entry.key.partition("/")[0] for entry in ObjectRunStore(url).client.list()} == {
        ".holdfast", "last", "step-00000003",
    }  # fmt: skip
