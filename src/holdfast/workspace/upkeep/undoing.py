"""Which safety checkpoints may go without changing what can be undone and redone. Pure: nothing is deleted here.

What can be undone is told from all safety checkpoints in order (`Repository.history`): a restore or a redo can be,
until an undo names it; an undo can be redone, until a redo names it or another restore is made. So an undo must not go
while what it took back stays, nor the restore that ended what could be redone.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

UNDO_STEPS = 10
"""How many restores can be undone, one after the other, and redone, whatever a policy says."""


class Step(NamedTuple):
    """A safety checkpoint: what was done after it was taken."""

    id: str
    verb: str
    target: str


def may_go(steps: Sequence[Step], wanted: Container[str]) -> set[str]:
    """Of the wanted ones, those that may go; `steps` oldest first.

    Taken away in that order, at every moment the rest can be undone and redone as before.
    """
    last_restore = max((at for at, step in enumerate(steps) if step.verb == "restore"), default=-1)
    done: set[str] = set()
    undone: set[str] = set()
    going: set[str] = set()
    for at, step in enumerate(steps):
        is_ended = at < last_restore  # a later restore ends what can be redone by now
        if step.id in wanted and not _tells(step, done, set() if is_ended else undone):
            going.add(step.id)
        elif step.verb == "restore":
            done.add(step.id)
            undone.clear()
        elif step.verb == "undo":
            done.discard(step.target)
            undone.add(step.id)
        elif step.verb == "redo":
            undone.discard(step.target)
            done.add(step.id)
    return going


def _tells(step: Step, done: Container[str], undone: set[str]) -> bool:
    """Whether, without this step, something earlier could be undone or redone again."""
    if step.verb == "restore":
        return bool(undone)
    return step.target in (done if step.verb == "undo" else undone if step.verb == "redo" else ())
