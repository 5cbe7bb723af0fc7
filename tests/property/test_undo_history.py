"""Safety checkpoints go, and what can be undone and redone stays what it was, at every moment of their going."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from holdfast.workspace.upkeep.prune import _removable, _Step


def history(steps: Sequence[_Step]) -> tuple[list[str], list[str]]:
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
def lives(draw: st.DrawFn) -> list[_Step]:
    """What somebody did, one after the other."""
    steps: list[_Step] = []
    for number in range(draw(st.integers(0, 25))):
        done, undone = history(steps)
        verbs = ["restore", "found"] + ["undo"] * bool(done) + ["redo"] * bool(undone)
        verb = draw(st.sampled_from(verbs))
        target = done[-1] if verb == "undo" else undone[-1] if verb == "redo" else "some save"
        steps.append(_Step(f"{number}", verb, target))
    return steps


@given(lives(), st.data())
def test_what_stays_can_be_undone_and_redone_as_before(steps: list[_Step], data: st.DataObject) -> None:
    wanted = {step.id for step in steps if data.draw(st.booleans())}
    done, undone = history(steps)
    going = _removable(steps, wanted)
    assert going <= wanted
    left = list(steps)
    for step in [step for step in steps if step.id in going]:
        left.remove(step)
        now = {each.id for each in left}
        expected = [each for each in done if each in now], [each for each in undone if each in now]
        assert history(left) == expected, f"once {step} is gone"


@given(lives())
def test_what_nobody_can_undo_or_redo_goes_whatever_lies_between(steps: list[_Step]) -> None:
    """So that restores and undos, again and again, do not gather for ever above one that stays."""
    done, undone = history(steps)
    wanted = {step.id for step in steps} - {*done, *undone}
    going = _removable(steps, wanted)
    ends = [step.id for step in steps if step.verb == "restore"][-1:]
    assert wanted - going <= {*ends}, "only the last restore may have to tell that nothing can be redone"
