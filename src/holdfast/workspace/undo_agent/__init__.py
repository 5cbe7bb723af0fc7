"""Undo only what an agent changed: the plan, and the target that a restore then goes to."""
