"""Each type is kept as long as its rule says, no matter who prunes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Refused
from holdfast.project import CheckpointType, SyncCheckpointManager
from holdfast.retention import Policy

if TYPE_CHECKING:
    from .conftest import Place


def names(manager: SyncCheckpointManager) -> list[str]:
    return [each.name for each in reversed(manager.list(None))]


def make(place: Place, manager: SyncCheckpointManager, kind: str, number: int) -> None:
    for each in range(1, number + 1):
        place.write("src/app.ts", f"{kind} {each}\n")
        manager.create_checkpoint(f"{kind} {each}", type=kind)


def test_automatic_keeps_five_session_three_and_the_others_all(place: Place, manager: SyncCheckpointManager) -> None:
    for kind in CheckpointType:
        make(place, manager, kind.value, 7)
    assert names(manager) == [
        *(f"automatic {number}" for number in range(3, 8)),
        *(f"manual {number}" for number in range(1, 8)),
        *(f"feature {number}" for number in range(1, 8)),
        *(f"session {number}" for number in range(5, 8)),
    ]
    assert manager.verify().ok


@pytest.mark.parametrize(
    "rule",
    [
        {"automatic": 2},
        {CheckpointType.AUTOMATIC: Policy(keep_last=2)},
        Policy(by_kind={"automatic": Policy(keep_last=2)}),
    ],
    ids=["number", "policy", "by kind"],
)
def test_other_numbers_can_be_asked_for(place: Place, rule: object) -> None:
    manager = place.open(retention=rule)
    make(place, manager, "automatic", 4)
    make(place, manager, "session", 4)
    assert names(manager) == ["automatic 3", "automatic 4", "session 2", "session 3", "session 4"]


def test_a_type_can_be_kept_for_ever_or_by_age(place: Place) -> None:
    manager = place.open(retention={"automatic": None, "session": Policy(keep_last=1, keep_for=timedelta(days=1))})
    make(place, manager, "automatic", 7)
    make(place, manager, "session", 5)
    assert len(names(manager)) == 12


def test_what_is_pinned_stays(place: Place, manager: SyncCheckpointManager) -> None:
    manager.create_checkpoint("pinned", type="automatic", pinned=True)
    make(place, manager, "automatic", 6)
    assert names(manager)[0] == "pinned"
    assert manager.list(None)[-1].pinned


def test_a_cap_on_bytes_takes_automatic_ones_and_never_features(place: Place) -> None:
    manager = place.open(retention=Policy(max_bytes=0))
    make(place, manager, "feature", 2)
    make(place, manager, "automatic", 3)
    assert names(manager) == ["feature 1", "feature 2", "automatic 3"]


def test_a_policy_that_knows_no_types_takes_none_that_is_kept(place: Place, manager: SyncCheckpointManager) -> None:
    make(place, manager, "feature", 2)
    make(place, manager, "manual", 2)
    for number in range(3):
        place.write("src/app.ts", f"plain {number}\n")
        manager.workspace.save(f"plain {number}")
    place.open().workspace.prune(Policy(keep_last=1), dry_run=False)
    assert names(manager) == ["feature 1", "feature 2", "manual 1", "manual 2"]
    assert [each.message for each in manager.workspace.list(1)] == ["plain 2"]


def test_rollbacks_that_nobody_undoes_do_not_gather_for_ever(place: Place, manager: SyncCheckpointManager) -> None:
    first = manager.create_checkpoint("first")
    for number in range(24):
        place.write("src/app.ts", f"{number}\n")
        manager.rollback(first.id)
    manager.create_checkpoint("last", type="automatic")
    every = manager.workspace.list(None, safety=True)
    assert sum(1 for each in every if each.operation) == 20
    manager.undo()
    manager.undo()
    assert (place.root / "src" / "app.ts").read_text() == "22\n"


def test_configured_retention_is_used_beside_the_rules(place: Place) -> None:
    place.write("holdfast.toml", "[retention]\nmax_bytes = 0\n")
    manager = place.open()
    make(place, manager, "manual", 1)
    make(place, manager, "automatic", 3)
    assert names(manager) == ["manual 1", "automatic 3"]


def test_caller_overrides_configuration_by_type(place: Place) -> None:
    place.write("holdfast.toml", "[retention.types]\nautomatic = 2\nsession = 1\n")
    manager = place.open()
    make(place, manager, "automatic", 4)
    make(place, manager, "session", 4)
    assert names(manager) == ["automatic 3", "automatic 4", "session 4"]
    make(place, place.open(retention={"automatic": 3}), "automatic", 2)
    assert names(manager) == ["automatic 4", "session 4", "automatic 1", "automatic 2"]


def test_a_checkpoint_is_made_although_pruning_fails_and_says_so(place: Place, manager: SyncCheckpointManager) -> None:
    make(place, manager, "automatic", 2)
    (place.store / "holdfast" / "kinds.json").write_text("{")
    made = manager.create_checkpoint("c", type="automatic")
    assert "pruning failed" in made.notes[-1]
    assert manager.get(made.id) == made
    place.open().create_checkpoint("d", type="automatic")
    assert place.open().verify().ok


@pytest.mark.parametrize("rule", [3, {"weekly": 1}, {"automatic": -1}, {"automatic": "all"}], ids=repr)
def test_rules_that_make_no_sense_are_refused_at_once(place: Place, rule: object) -> None:
    with pytest.raises(Refused):
        place.open(retention=rule)
