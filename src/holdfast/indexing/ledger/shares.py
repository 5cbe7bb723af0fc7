"""Who does what of a run: one worker everything, or several each a share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Order:
    """What a plan asks for, as far as workers have to agree on it."""

    settings_digest: str
    corpus_digest: str
    retry_failed: bool
    revision: int
    documents: Mapping[str, str]
    """What to publish: names, and the digests of their contents."""
    deleted: Sequence[str]


class Paying(Protocol):
    """Who pays for which text, so that no two do for the same."""

    def claiming(self, keys: Sequence[str]) -> AbstractContextManager[set[str]]:
        """Those that nobody else is sending at this moment; nobody else will until this is left."""
        ...

    def wait(self, seconds: float, sleep: Callable[[float], None]) -> None:
        """Let time go by without losing what one has."""
        ...

    def staying(self) -> AbstractContextManager[None]:
        """Not to lose what one has while a model takes its time; the ledger is told nothing else within."""
        ...


class PayingAlone:
    """Where there are no others, every text is one's own."""

    @contextlib.contextmanager
    def claiming(self, keys: Sequence[str]) -> Iterator[set[str]]:
        yield set(keys)

    def wait(self, seconds: float, sleep: Callable[[float], None]) -> None:
        sleep(seconds)

    def staying(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


class Share(Paying, Protocol):
    """One worker's part in a run.

    What it claimed is its own until its lease ends; each call makes the lease longer. Whether something is still its
    own is asked in `holding`, and stays so until that is left: nobody else publishes a document meanwhile.
    """

    generation: int

    def wanted(self) -> dict[str, str]:
        """What is to be published and is nobody's: names, and the digests of their contents."""
        ...

    def deletions(self) -> list[str]:
        """What is to be taken away and is nobody's."""
        ...

    def claim(self, names: Sequence[str]) -> set[str]:
        """Take those that nobody has, or whose worker's lease has ended."""
        ...

    def renew(self) -> None:
        """Say that one is still there."""
        ...

    def holding(self, names: Sequence[str]) -> AbstractContextManager[set[str]]:
        """Those that are still one's own. What the ledger is told within is one transaction."""
        ...

    def done(self, names: Sequence[str]) -> None:
        """Write off what is published or taken away; called while holding it."""
        ...

    def moved(self, names: Sequence[str]) -> None:
        """Write off what is not as it was planned."""
        ...

    def all_moved(self) -> list[str]:
        """What anybody found not to be as planned."""
        ...

    def release(self) -> None:
        """Leave what one has to others."""
        ...

    def left(self) -> bool:
        """Whether there is something that nobody has done yet; waits as long as others are at it."""
        ...

    def is_open(self) -> bool:
        """Whether the run is yet to be ended."""
        ...

    def close(self) -> None:
        """End the run, in one's turn."""
        ...


class Alone(PayingAlone):
    """The share of the only worker: everything."""

    def __init__(self, order: Order, generation: int) -> None:
        self.generation = generation
        self._wanted = dict(order.documents)
        self._deleted = list(order.deleted)
        self._moved: list[str] = []

    def wanted(self) -> dict[str, str]:
        return self._wanted

    def deletions(self) -> list[str]:
        return self._deleted

    def claim(self, names: Sequence[str]) -> set[str]:
        return set(names)

    def renew(self) -> None:
        return

    @contextlib.contextmanager
    def holding(self, names: Sequence[str]) -> Iterator[set[str]]:
        yield set(names)

    def done(self, names: Sequence[str]) -> None:
        return

    def moved(self, names: Sequence[str]) -> None:
        self._moved += names

    def all_moved(self) -> list[str]:
        return self._moved

    def release(self) -> None:
        return

    def left(self) -> bool:
        return False

    def is_open(self) -> bool:
        return True

    def close(self) -> None:
        return
