"""A value that cannot be stored, found somewhere inside another: the path grows on the way out."""

from __future__ import annotations


class Cannot(Exception):
    """Why a value cannot be stored, and where it is, innermost step first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def inside(self, step: str) -> Cannot:
        """Note one more step on the way to the value."""
        self.steps.append(step)
        return self

    @property
    def path(self) -> str:
        return "".join(reversed(self.steps))
