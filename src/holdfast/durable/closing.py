"""`with` for what is closed at the end of its block."""

from __future__ import annotations

import abc
from typing import Self


class Closing(abc.ABC):
    """Closes itself at the end of a `with` block."""

    __slots__ = ()

    @abc.abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
