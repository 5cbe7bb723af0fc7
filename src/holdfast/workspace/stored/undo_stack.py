"""The undo stack: which restores can be undone and redone. Nothing is stored but the safety checkpoints themselves.

A restore, an undo and a redo each save a safety checkpoint first (P1), which names the operation and its target. The
stack follows from these in the order of their numbers (P10): a restore or a redo can be undone until an undo names it;
an undo can be redone until a redo names it or another restore is made.
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

from collections.abc import Container, Iterable
from typing import NamedTuple

from holdfast.model import Checkpoint


class UndoStack(NamedTuple):
    """Restores that can be undone and redone, oldest first; each is the safety checkpoint saved before it."""

    done: list[Checkpoint]
    undone: list[Checkpoint]

    @property
    def next_undo(self) -> Checkpoint | None:
        """What `undo` would restore."""
        return self.done[-1] if self.done else None

    @property
    def next_redo(self) -> Checkpoint | None:
        """What `redo` would restore."""
        return self.undone[-1] if self.undone else None


def undo_stack(safeties: Iterable[Checkpoint]) -> UndoStack:
    """Return the stack, from all safety checkpoints, oldest first."""
    done: list[Checkpoint] = []
    undone: list[Checkpoint] = []
    for safety in safeties:
        verb, target = (safety.operation.verb, safety.operation.target) if safety.operation else ("", "")
        if verb == "restore":
            done.append(safety)
            undone.clear()
        elif verb == "undo":
            done = [other for other in done if other.id != target]
            undone.append(safety)
        elif verb == "redo":
            undone = [other for other in undone if other.id != target]
            done.append(safety)
    return UndoStack(done, undone)


def unremovable(checkpoints: Iterable[Checkpoint], wanted: Container[str]) -> list[str]:
    """Return the safety checkpoints that a prune may not remove; `wanted`: what it would; all are given, oldest first.

    An undo must stay while what it reverted stays, and so must the restore that ended what could be redone. If the
    others are deleted in this order, the rest can be undone and redone as before at every moment (P3).
    """
    steps = [(each.id, each.operation.verb, each.operation.target) for each in checkpoints if each.operation]
    last_restore = max((at for at, (_, verb, _) in enumerate(steps) if verb == "restore"), default=-1)
    done: set[str] = set()
    undone: set[str] = set()
    staying = []
    for at, (key, verb, target) in enumerate(steps):
        # a later restore ends what can be redone by now
        if key in wanted and not _tells(verb, target, done, set() if at < last_restore else undone):
            continue
        staying.append(key)
        if verb == "restore":
            done.add(key)
            undone.clear()
        elif verb == "undo":
            done.discard(target)
            undone.add(key)
        elif verb == "redo":
            undone.discard(target)
            done.add(key)
    return staying


def _tells(verb: str, target: str, done: Container[str], undone: set[str]) -> bool:
    """Whether, without this operation, something earlier would wrongly become undoable or redoable again."""
    if verb == "restore":
        return bool(undone)
    return target in (done if verb == "undo" else undone if verb == "redo" else ())
