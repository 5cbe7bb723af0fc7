"""Safety checkpoints go, and what can be undone and redone stays what it was, at every moment of their going."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import Operation
from holdfast.workspace.stored.undo_stack import undo_stack, unremovable


class Safety(NamedTuple):
    """As much of a safety checkpoint as the undo stack needs."""

    id: str
    operation: Operation

    @property
    def verb(self) -> str:
        return self.operation.verb

    @property
    def target(self) -> str:
        return self.operation.target


def stack_of(steps: list[Any]) -> tuple[list[str], list[str]]:
    done, undone = undo_stack(steps)
    return [each.id for each in done], [each.id for each in undone]


def removable(steps: list[Any], wanted: set[str]) -> set[str]:
    return {step.id for step in steps} - {*unremovable(steps, wanted)}


def history(steps: Sequence[Safety]) -> tuple[list[str], list[str]]:
    """What can be undone and what can be redone, as docs/glossary.md has it."""
    done: list[str] = []
    undone: list[str] = []
    for step in steps:
        if step.verb == "restore":
            done, undone = [*done, step.id], []
        elif step.verb == "undo":
            done, undone = [each for each in done if each != step.target], [*undone, step.id]
        elif step.verb == "redo":
            done, undone = [*done, step.id], [each for each in undone if each != step.target]
    return done, undone


@st.composite
def lives(draw: st.DrawFn) -> list[Safety]:
    """What somebody did, one after the other."""
    steps: list[Safety] = []
    for number in range(draw(st.integers(0, 25))):
        done, undone = history(steps)
        verbs = ["restore", "found"] + ["undo"] * bool(done) + ["redo"] * bool(undone)
        verb = draw(st.sampled_from(verbs))
        target = done[-1] if verb == "undo" else undone[-1] if verb == "redo" else "some save"
        steps.append(Safety(f"{number}", Operation(verb, target)))
    return steps


@given(lives(), st.data())
def test_what_stays_can_be_undone_and_redone_as_before(steps: list[Safety], data: st.DataObject) -> None:
    wanted = {step.id for step in steps if data.draw(st.booleans())}
    done, undone = history(steps)
    assert stack_of(steps) == (done, undone)
    going = removable(steps, wanted)
    assert going <= wanted
    left = list(steps)
    for step in [step for step in steps if step.id in going]:
        left.remove(step)
        now = {each.id for each in left}
        expected = [each for each in done if each in now], [each for each in undone if each in now]
        assert history(left) == expected, f"once {step} is gone"


@given(lives())
def test_what_nobody_can_undo_or_redo_goes_whatever_lies_between(steps: list[Safety]) -> None:
    """So that restores and undos, again and again, do not gather for ever above one that stays."""
    done, undone = history(steps)
    wanted = {step.id for step in steps} - {*done, *undone}
    going = removable(steps, wanted)
    ends = [step.id for step in steps if step.verb == "restore"][-1:]
    assert wanted - going <= {*ends}, "only the last restore may have to tell that nothing can be redone"
