"""Paid work: texts go to a model in batches, and what comes back is written down before anything else happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from holdfast.errors import HoldfastError, Refused, Unavailable
from holdfast.indexing import sparse, vectors
from holdfast.indexing.families import Families
from holdfast.indexing.ledger import Batch, Failure, Ledger
from holdfast.indexing.ledger.shares import Paying, PayingAlone
from holdfast.indexing.spaces import CANARIES, Resolved

_TRIES = 7
"""All in all they wait for a minute, which is what most limits are counted by."""
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 300.0
_POLL_S = 0.2
_ROUNDING = 1 + 1e-9
"""By how much a sum of many prices may be more than the price of all: floats are rounded."""
_PASSING_CODES = (408, 409, 425, 429, 500, 502, 503, 504, 529)
_PASSING_NAMES = ("ratelimit", "throttl", "timeout", "connect")
_HINT = "What was paid for is kept: make a plan and apply it when the model answers."


@dataclass
class Budget:
    """What may be spent, and what was."""

    max_usd: float | None = None
    max_embeds: int | None = None
    usd: float = 0.0
    texts: int = 0
    tokens: int = 0

    def allows(self, texts: int, usd: float) -> bool:
        """Whether this much more is within it."""
        is_dear = self.max_usd is not None and self.usd + usd > self.max_usd * _ROUNDING
        return not is_dear and (self.max_embeds is None or self.texts + texts <= self.max_embeds)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A text whose vector is missing."""

    key: str
    text: str
    document: str


class _UsedUp(Exception):
    """The budget ended in the midst of a batch: a model was paid for what nobody can use."""


class Embedder:
    """Sends the texts of one channel."""

    def __init__(
        self,
        channel: Resolved,
        ledger: Ledger,
        families: Families,
        budget: Budget,
        *,
        paying: Paying | None = None,
        retry_failed: bool = False,
        on_batch: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.channel = channel
        self.pending: dict[str, Wanted] = {}
        self._failed: set[str] = set()
        self._blamed = ""
        """The document whose texts are at fault if all of a batch fail: the model answers, but not to them."""
        self._ledger = ledger
        self._families = families
        self._budget = budget
        self._paying = paying or PayingAlone()
        self._retry_failed = retry_failed
        self._on_batch = on_batch
        self._sleep = sleep
        self._clock = clock

    def want(self, wanted: Wanted) -> None:
        """Have a text sent with the next batch; not one that failed in this very run."""
        if wanted.key not in self._failed:
            self.pending.setdefault(wanted.key, wanted)

    def work(self, *, rest: bool = False) -> bool:
        """Send full batches, and with `rest` the last one too. False if the budget does not allow the next.

        What another worker is sending at this moment is left to it; with `rest`, it is waited for.
        """
        size = self.channel.channel.batch_size
        elsewhere: set[str] = set()
        while len(self.pending) - len(elsewhere) >= size or (rest and self.pending):
            batch = self._next(size, elsewhere)
            if batch:
                try:
                    elsewhere |= self._claim_and_send(batch)
                except _UsedUp:
                    return False
            elif done := self._done(self.pending):  # what others paid for meanwhile needs no budget
                self._forget(done)
                elsewhere -= done
            else:
                return False
            if rest and elsewhere and len(elsewhere) == len(self.pending):
                if self._done(elsewhere) == elsewhere:  # whoever paid for them could not let go of them
                    self._forget(elsewhere)
                else:
                    self._paying.wait(_POLL_S, self._sleep)
                elsewhere.clear()
        return True

    def _claim_and_send(self, batch: list[Wanted]) -> set[str]:
        """Send what nobody has sent and nobody else is sending; the keys of what others are at."""
        keys = {each.key for each in batch}
        with self._paying.claiming(sorted(keys)) as own:
            done = self._done(own)  # asked now that they are one's own: nobody can pay for them from here on
            mine = [each for each in batch if each.key in own - done]
            if self._sees_document and mine:  # it is asked for whole documents only
                own, mine = (keys, batch) if own == keys else (set(), [])
            if mine:
                self._pay(mine)
            self._forget(own)
        if mine:
            self._on_batch()
        return keys - own

    def _forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            del self.pending[key]

    def _done(self, keys: Iterable[str]) -> set[str]:
        asked = list(keys)
        done = self._ledger.known(asked)
        return done if self._retry_failed else done | self._ledger.poisoned(asked)

    def _pay(self, batch: list[Wanted]) -> None:
        """Send a batch, and write down what comes back and what fails."""
        before = self._budget.texts
        failed = self._send(batch)
        if len(failed) == len(batch):
            self._blame(failed, is_silent=self._budget.texts == before)
        if failed:
            self._ledger.add_batch(Batch(self.channel.space, {}, 0, 0, 0.0, 0.0, tuple(failed)))
        self._failed.update(each.key for each in failed)

    def _blame(self, failed: list[Failure], *, is_silent: bool) -> None:
        """Where all of a batch fails, see that it is one document that is at fault. Refused if it is the model."""
        document = failed[0].document
        is_one = all(each.document == document for each in failed)
        if not is_one or (is_silent and document != self._blamed and not self._answers()):
            model = self.channel.channel.model
            raise Refused(f"{model} fails for every text, {document} first: {failed[0].reason}", hint=_HINT)
        self._blamed = document

    def _answers(self) -> bool:
        """Whether the model has a vector for a text that it had one for before, as far as the budget lets one ask."""
        if not self._budget.allows(1, self.price(CANARIES[:1])[1]):
            return True
        try:
            found, paid = self.ask(CANARIES[:1])
        except Unavailable:
            raise
        except Exception:  # a model is others' code, and may raise anything
            return False
        self._ledger.add_batch(paid)
        return isinstance(found[0], bytes)

    def ask(self, texts: Sequence[str], *, dimension: int | None = None) -> tuple[list[bytes | str], Batch]:
        """What the model says, checked, and what that cost. An answer is paid for, whatever is in it."""
        sent = [self.channel.channel.doc_prompt + text for text in texts]
        began = self._clock()
        found = self._patiently(sent)
        seconds = self._clock() - began
        paid = Batch(self.channel.space, {}, len(texts), *self._account(texts), seconds)
        try:
            if self.channel.channel.is_sparse:
                return sparse.check(found, expected=len(texts)), paid
            return vectors.check(found, expected=len(texts), dimension=dimension), paid
        except Refused:
            self._ledger.add_batch(paid)
            raise

    def price(self, texts: Sequence[str]) -> tuple[int, float]:
        """Tokens and dollars of texts."""
        tokens = sum(map(self.channel.channel.tokens, texts))
        return tokens, self.channel.usd(tokens, self._families) or 0.0

    def _account(self, texts: Sequence[str]) -> tuple[int, float]:
        """Count texts as sent."""
        tokens, usd = self.price(texts)
        self._budget.texts += len(texts)
        self._budget.tokens += tokens
        self._budget.usd += usd
        return tokens, usd

    @property
    def _sees_document(self) -> bool:
        return self.channel.channel.sees_document

    def _next(self, size: int, elsewhere: set[str]) -> list[Wanted]:
        """What to send: a batch, or a part of it that the budget allows; or all of a document, or nothing."""
        free = (each for each in self.pending.values() if each.key not in elsewhere)
        if not self._sees_document:
            return self._affordable(list(islice(free, size)))
        first = next(free)
        batch = [first, *(each for each in free if each.document == first.document)]
        return batch if len(self._affordable(batch)) == len(batch) else []

    def _affordable(self, batch: list[Wanted]) -> list[Wanted]:
        while batch and not self._budget.allows(len(batch), self.price([each.text for each in batch])[1]):
            batch = batch[:-1]
        return batch

    def _send(self, batch: list[Wanted]) -> list[Failure]:
        """Send a batch and commit what comes back; halve one that fails, until only the texts that do it are left."""
        texts = [each.text for each in batch]
        try:
            found, paid = self.ask(texts, dimension=self.channel.native)
        except Unavailable:
            raise
        except Exception as error:  # a model is others' code, and may raise anything for one text
            if len(batch) == 1 or self._sees_document:
                return [_failure(each, f"{type(error).__name__}: {error}") for each in batch]
            middle, failed = len(batch) // 2, []
            for half in (batch[:middle], batch[middle:]):  # what the first one took is not there for the second
                if len(self._affordable(half)) < len(half):
                    raise _UsedUp from error
                failed += self._send(half)
            return failed
        bad = [(each, one) for each, one in zip(batch, found, strict=True) if isinstance(one, str)]
        if bad and self._sees_document:  # or those that are missing would be asked for without the others
            bad = [(each, bad[0][1]) for each in batch]
        lost = {each.key for each, _ in bad}
        good = {each.key: one for each, one in zip(batch, found, strict=True) if isinstance(one, bytes)}
        good = {key: one for key, one in good.items() if key not in lost}
        self._ledger.add_batch(replace(paid, vectors=good))
        return [_failure(each, f"its vector {reason}") for each, reason in bad]

    def _patiently(self, texts: list[str]) -> Any:
        wait, tries = _FIRST_WAIT_S, 0
        while True:
            try:
                with self._paying.staying():
                    found = self.channel.channel.embed(texts)
                    return list(found) if isinstance(found, Iterator) else found  # else nothing was asked for yet
            except Exception as error:  # a model is others' code, and may raise anything
                tries += 1
                if not _passes(error):
                    raise
                if tries == _TRIES:
                    raise Unavailable(f"{self.channel.channel.model} does not answer: {error}", hint=_HINT) from error
                self._paying.wait(max(wait, _asked_to_wait_s(error)), self._sleep)
                wait *= 2


def _passes(error: BaseException) -> bool:
    """Whether it is worth trying again: a limit, a time-out, a server in trouble; by itself, or by what led to it."""
    if isinstance(error, HoldfastError):
        return False
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    said = [getattr(error, name, None) for name in ("status_code", "code")]
    said.append(getattr(getattr(error, "response", None), "status_code", None))
    name = type(error).__name__.lower()
    if any(isinstance(each, int) and each in _PASSING_CODES for each in said) or any(
        each in name for each in _PASSING_NAMES
    ):
        return True
    cause = error.__cause__ or getattr(error, "reason", None)  # the latter is where urllib has it
    return isinstance(cause, Exception) and _passes(cause)


def _asked_to_wait_s(error: Exception) -> float:
    """How long a server asks to be left alone, by the error itself or its answer's headers; at most a few minutes."""
    headers = getattr(getattr(error, "response", error), "headers", None) or {}
    for said in (getattr(error, "retry_after", None), headers.get("retry-after")):
        try:
            seconds = float(said) if said is not None else 0.0
        except (TypeError, ValueError):  # a date: one's own patience has to do
            continue
        if seconds > 0:
            return min(seconds, _LONGEST_WAIT_S)
    return 0.0


def _failure(wanted: Wanted, reason: str) -> Failure:
    return Failure(wanted.document, reason, "Change the text, or try again with retry_failed=True.", wanted.key)
