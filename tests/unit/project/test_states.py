"""Values that JSON lacks in the states of a project: the same serializer, the same registry, told as JSON with tags."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Refused, Unavailable
from holdfast.durable import Disk, use_disk
from holdfast.project import CheckpointManager
from holdfast.serde import Registry

if TYPE_CHECKING:
    from .conftest import Place


@dataclass
class Basket:
    items: tuple[str, ...]


REGISTRY = Registry()
REGISTRY.add(Basket, "shop.Basket")
TEA = {"cart": Basket(("tea",))}


def test_they_come_back_and_are_told_as_json_with_tags(place: Place) -> None:
    manager = place.open(registry=REGISTRY)
    state = {**TEA, "plain": {"$tuple": [1]}, "seen": {1, 2}}
    made = manager.create_checkpoint("a", state=state)
    done = manager.rollback(made.id, state={"now": (1,)})
    assert done.state == manager.state(made.id) == state
    said = json.loads(json.dumps(done.to_dict()))
    assert said["state"] == {
        "cart": {"$object": ["shop.Basket", 1, {"items": {"$tuple": ["tea"]}}]},
        "plain": {"$tuple": [1]},
        "seen": {"$set": [1, 2]},
    }
    assert said["tagged_states"] == ["cart", "seen"]
    assert manager.undo().state == {"now": (1,)}


@pytest.mark.parametrize("ways", [{"registry": REGISTRY}, {"on_unknown": "keep"}, {"on_unknown": "tagged"}])
def test_a_fork_and_its_adoption_have_them(place: Place, ways: dict[str, Any]) -> None:
    manager = place.open(registry=REGISTRY)
    made = manager.create_checkpoint("a", state=TEA)
    folder, store = place.area / "fork", place.area / "fork store"
    other = place.open(**ways)
    other.fork(made.id, folder, store=store)
    adopted = other.adopt(folder, store=store)
    assert manager.state(adopted.checkpoint.id) == TEA


def test_outside_files_return_though_the_state_cannot_be_decoded(place: Place) -> None:
    outside = place.area / "list.json"
    outside.write_text("[]")
    manager = place.open(registry=REGISTRY, feature_list=outside)
    made = manager.create_checkpoint("a", state=TEA)
    outside.write_text('["changed"]')
    with pytest.raises(Refused, match=r"shop\.Basket is not registered"):
        place.open(feature_list=outside).rollback(made.id)
    assert outside.read_text() == '["changed"]', "nothing was begun"
    place.open(feature_list=outside, on_unknown="keep").rollback(made.id)
    assert outside.read_text() == "[]"


def test_what_changes_after_the_call_is_not_what_is_saved(place: Place) -> None:
    async def story() -> None:
        async with CheckpointManager(place.root, registry=REGISTRY, **place.options) as manager:
            talk = deque(["said"])
            making = asyncio.ensure_future(manager.create_checkpoint("a", state={"talk": talk}))
            await asyncio.sleep(0)  # the call is made; its work may not have begun
            talk.append("late")
            assert await manager.state((await making).id) == {"talk": deque(["said"])}
            with pytest.raises(Refused, match=r"context.*'a'.* \(tuple\)"):
                await manager.create_checkpoint("b", context={"a": (1,)})

    asyncio.run(story())


class FullDisk(Disk):
    """Has no room for what lies outside the folder."""

    def create(self, name: str, *args: object, **options: object) -> int:
        if name.endswith("list.json.holdfast-new"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        return super().create(name, *args, **options)  # type: ignore[arg-type]


def test_interrupted_rollback_is_finished_without_the_classes(place: Place) -> None:
    outside = place.area / "list.json"
    outside.write_text("[]")
    manager = place.open(registry=REGISTRY, feature_list=outside)
    made = manager.create_checkpoint("a", state=TEA)
    outside.write_text('["changed"]')
    with use_disk(FullDisk()), pytest.raises(Unavailable):
        manager.rollback(made.id)
    assert outside.read_text() == '["changed"]'
    assert "was finished" in place.open(feature_list=outside).recover()[0]
    assert outside.read_text() == "[]"
