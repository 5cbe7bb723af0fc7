"""Part of the contract of states: what a later checkpoint is made of is not taken from under it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.errors import Refused
from holdfast.flow import MADE_OF_PARENTS, States
from holdfast.retention import Policy
from holdfast.testing.flow_scenes import Sound, point

WHOLE, FURTHER = False, True


def chain(states: States, *marks: dict[str, bool], session: str = "s") -> None:
    """Checkpoints c0, c1 …, each on top of the one before, and what each says of what it is made of."""
    for number, each in enumerate(marks):
        parent = f"c{number - 1}" if number else None
        extra = {MADE_OF_PARENTS: each} if each else {}
        states.save(point(f"c{number}", None, session, parent_id=parent, extra=extra, run_id=f"r{number}"))


def left(states: States) -> list[str]:
    return [each.checkpoint_id for each in reversed(states.metadata("s", None))]


class ParentsContract(Sound):
    """Checkpoints that say they are made of their parents keep them."""

    def test_a_policy_leaves_what_a_later_checkpoint_is_made_of(self, states: States) -> None:
        chain(states, {"x": WHOLE}, {"x": FURTHER}, {"x": WHOLE}, {"x": FURTHER}, {}, {"x": FURTHER})
        chain(states, {}, {}, {}, session="t")
        plan = states.prune(Policy(keep_last=0), dry_run=True)
        done = states.prune(Policy(keep_last=0))
        assert left(states) == ["c2", "c3", "c4", "c5"]
        assert [each.checkpoint_id for each in states.metadata("t")] == ["c2"]
        assert done.removed == plan.removed and done.kept == plan.kept
        assert sorted(done.kept.values()).count("a later one is made of it") == 3
        assert not states.prune(Policy(keep_last=0)).removed

    def test_those_that_stay_for_others_are_whole_themselves(self, states: States) -> None:
        chain(
            states, {"x": WHOLE, "y": WHOLE}, {"x": FURTHER, "y": FURTHER}, {"x": WHOLE, "y": FURTHER},
            {"x": FURTHER, "y": WHOLE}, {"x": FURTHER, "y": FURTHER},
        )  # fmt: skip
        states.prune(Policy(keep_last=0))
        assert left(states) == ["c0", "c1", "c2", "c3", "c4"]

    def test_what_was_not_shown_stays_with_all_that_it_is_made_of(self, states: States) -> None:
        chain(states, {"x": WHOLE}, {"x": FURTHER}, {"x": WHOLE})
        plan = states.prune(Policy(keep_last=0), dry_run=True)
        assert [each.checkpoint_id for each in plan.removed] == ["c0", "c1"]
        only_first = replace(plan, removed=plan.removed[:1])
        assert not states.prune(Policy(keep_last=0), plan=only_first).removed
        assert left(states) == ["c0", "c1", "c2"]

    def test_to_delete_what_a_later_checkpoint_is_made_of_is_refused(self, states: States) -> None:
        chain(states, {"x": WHOLE}, {"x": FURTHER}, {"x": FURTHER})
        with pytest.raises(Refused, match="made of") as refused:
            states.delete("s", "c0")
        assert refused.value.hint
        with pytest.raises(Refused, match="made of"):
            states.delete_runs(["r0", "r1"])
        assert left(states) == ["c0", "c1", "c2"]
        assert states.delete("s", "c2") == 1
        assert states.delete_runs(["r0", "r1"]) == 2
        chain(states, {"x": WHOLE}, {"x": WHOLE})
        assert states.delete("s", "c0") == 1
        assert states.delete("s") == 1

    def test_another_branch_that_came_last_and_is_whole_does_not_hide_what_is_needed(self, states: States) -> None:
        chain(states, {}, {"x": FURTHER}, {"x": FURTHER})
        states.save(point("b", parent_id="c0", run_id="b"))
        with pytest.raises(Refused, match="made of"):
            states.delete("s", "c0")
        with pytest.raises(Refused, match="made of"):
            states.delete_runs(["r1"])
        assert left(states) == ["c0", "c1", "c2", "b"]
        assert states.delete_runs(["r2", "b"]) == 2

    def test_what_is_made_of_its_parents_is_forked_with_them_only(self, states: States) -> None:
        chain(states, {"x": WHOLE}, {"x": FURTHER})
        with pytest.raises(Refused, match="made of") as refused:
            states.fork("s", into="f")
        assert refused.value.hint
        assert states.store.session("f") is None
        states.fork("s", "c0", into="f")
        states.fork("s", into="g", history=True)
        assert len(states.metadata("g")) == 2

    def test_a_parent_that_names_itself_or_is_gone_is_not_looked_for_for_ever(self, states: States) -> None:
        further = {MADE_OF_PARENTS: {"x": FURTHER}}
        states.save(point("a", parent_id="a", extra=further))
        states.save(point("b", parent_id="gone", extra=further))
        states.save(point("c", parent_id="d", extra=further))
        states.save(point("d", parent_id="c", extra=further))
        states.save(point("e", extra={MADE_OF_PARENTS: "nonsense"}))
        states.prune(Policy(keep_last=3))
        assert left(states) == ["c", "d", "e"]

    def test_what_is_saved_while_something_is_deleted_is_not_taken_from_under(
        self, states: States, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chain(states, {"x": WHOLE}, {"x": FURTHER})
        self._save_before_deletion(states, monkeypatch, "c2", "c1")
        with pytest.raises(Refused, match="made of"):
            states.delete("s", "c1")
        assert left(states) == ["c0", "c1", "c2"]
        self._save_before_deletion(states, monkeypatch, "c3", None)
        assert states.delete("s", "c2") == 1
        assert left(states) == ["c0", "c1", "c3"]
        self.assert_sound(states)

    def test_what_is_saved_while_a_policy_prunes_is_not_taken_from_under(
        self, states: States, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chain(states, {"x": WHOLE}, {"x": WHOLE}, {"x": WHOLE})
        chain(states, {}, {}, {}, session="t")
        self._save_before_deletion(states, monkeypatch, "c3", "c0", deletions=2)
        done = states.prune(Policy(keep_last=0))
        assert left(states) == ["c0", "c1", "c2", "c3"]
        assert [each.checkpoint_id for each in states.metadata("t")] == ["c2"]
        assert len(done.removed) == 2
        assert sorted(done.kept.values()).count("its session was saved into meanwhile") == 2
        assert len(states.prune(Policy(keep_last=0)).removed) == 2
        assert left(states) == ["c0", "c3"]
        self.assert_sound(states)

    def test_a_policy_locks_no_session_of_which_nothing_goes(
        self, states: States, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("s", "t", "u"):
            chain(states, *[{"x": WHOLE}] * (3 if name == "s" else 1), session=name)
        delete, asked = states.store.delete, []

        def noted(places: Any, **more: Any) -> int:
            asked.append({place.session for place in places})
            return delete(places, **more)

        monkeypatch.setattr(states.store, "delete", noted)
        assert len(states.prune(Policy(keep_last=1)).removed) == 2
        assert asked == [{"s"}]

    @staticmethod
    def _save_before_deletion(
        states: States, monkeypatch: pytest.MonkeyPatch, name: str, parent: str | None, *, deletions: int = 1
    ) -> None:
        """Save a checkpoint that is made of another just before the first deletions of rows."""
        delete, extra = states.store.delete, {MADE_OF_PARENTS: {"x": FURTHER if parent else WHOLE}}
        left_over = list(range(deletions))

        def late(*args: Any, **more: Any) -> int:
            left_over.pop()
            if not left_over:
                monkeypatch.undo()
            states.save(point(name, None, "s", parent_id=parent, extra=extra))
            return delete(*args, **more)

        monkeypatch.setattr(states.store, "delete", late)
