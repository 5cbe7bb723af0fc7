"""Send texts to a model in batches, and commit what comes back before anything else (P1)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from holdfast.errors import HoldfastError, Refused, Unavailable
from holdfast.indexing import sparse_vectors, vectors
from holdfast.indexing.ledger import Batch, Failure, Ledger
from holdfast.indexing.ledger.work_shares import TextClaims, UncontestedClaims
from holdfast.indexing.model_families import Families
from holdfast.indexing.spaces import CANARIES, Resolved

_TRIES = 7
"""Together they wait for a minute: most rate limits are per minute."""
_FIRST_WAIT_S = 1.0
_MAX_WAIT_S = 300.0
_POLL_S = 0.2
_ROUNDING = 1 + 1e-9
"""A sum of many prices may exceed the price of all: floats are rounded."""
_TEMPORARY_CODES = (408, 409, 425, 429, 500, 502, 503, 504, 529)
_TEMPORARY_NAMES = ("ratelimit", "throttl", "timeout", "connect")
_HINT = "What was paid for is kept: make a plan and apply it when the model answers."


@dataclass
class Budget:
    """What may be spent, and what was spent."""

    max_usd: float | None = None
    max_embeds: int | None = None
    usd: float = 0.0
    texts: int = 0
    tokens: int = 0

    def allows(self, texts: int, usd: float) -> bool:
        """Whether it covers this much more."""
        is_dear = self.max_usd is not None and self.usd + usd > self.max_usd * _ROUNDING
        return not is_dear and (self.max_embeds is None or self.texts + texts <= self.max_embeds)


@dataclass(frozen=True, slots=True)
class PendingText:
    """A text whose vector is missing."""

    key: str
    text: str
    document: str


@dataclass(frozen=True, slots=True)
class EmbedContext:
    """What the embedders of one run share."""

    ledger: Ledger
    families: Families
    budget: Budget
    on_batch: Callable[[], None] = lambda: None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


class _UsedUp(Exception):
    """The budget ended within a batch: a model was paid for results that cannot be used."""


class Embedder:
    """Sends the texts of one channel to its model."""

    def __init__(
        self, channel: Resolved, context: EmbedContext, *, claims: TextClaims | None = None, retry_failed: bool = False
    ) -> None:
        self.channel = channel
        self.pending: dict[str, PendingText] = {}
        self._failed: set[str] = set()
        self._blamed = ""
        """The document whose texts are at fault if a whole batch fails: the model answers, but not to them."""
        self._context = context
        self._ledger = context.ledger
        self._budget = context.budget
        self._claims = claims or UncontestedClaims()
        self._retry_failed = retry_failed

    def add(self, wanted: PendingText) -> None:
        """Send a text with the next batch, unless it failed in this run."""
        if wanted.key not in self._failed:
            self.pending.setdefault(wanted.key, wanted)

    def work(self, *, rest: bool = False) -> bool:
        """Send full batches, and with `rest` also the last one. Return False if the budget does not cover the next.

        Texts that another worker is sending are left to it; with `rest`, wait for them.
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
            elif done := self._done(self.pending):  # texts that others paid for meanwhile need no budget
                self._forget(done)
                elsewhere -= done
            else:
                return False
            if rest and elsewhere and len(elsewhere) == len(self.pending):
                if self._done(elsewhere) == elsewhere:  # their sender could not release the claims
                    self._forget(elsewhere)
                else:
                    self._claims.wait(_POLL_S, self._context.sleep)
                elsewhere.clear()
        return True

    def _claim_and_send(self, batch: list[PendingText]) -> set[str]:
        """Send texts that no worker has sent or is sending; return the keys of those that others are sending."""
        keys = {each.key for each in batch}
        with self._claims.claiming(sorted(keys)) as own:
            done = self._done(own)  # checked after claiming: from now on nobody else can pay for them
            mine = [each for each in batch if each.key in own - done]
            if self._sees_document and mine:  # the model needs whole documents
                own, mine = (keys, batch) if own == keys else (set(), [])
            if mine:
                self._pay(mine)
            self._forget(own)
        if mine:
            self._context.on_batch()
        return keys - own

    def _forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            del self.pending[key]

    def _done(self, keys: Iterable[str]) -> set[str]:
        wanted = list(keys)
        done = self._ledger.known(wanted)
        return done if self._retry_failed else done | self._ledger.poisoned(wanted)

    def _pay(self, batch: list[PendingText]) -> None:
        """Send a batch, and record results and failures."""
        before = self._budget.texts
        failed = self._send(batch)
        if len(failed) == len(batch):
            self._blame(failed, is_silent=self._budget.texts == before)
        if failed:
            self._ledger.add_batch(Batch(self.channel.space, {}, 0, 0, 0.0, 0.0, tuple(failed)))
        self._failed.update(each.key for each in failed)

    def _blame(self, failed: list[Failure], *, is_silent: bool) -> None:
        """If a whole batch fails, find out whether one document is at fault. Refused if it is the model."""
        document = failed[0].document
        is_one = all(each.document == document for each in failed)
        if not is_one or (is_silent and document != self._blamed and not self._answers()):
            model = self.channel.channel.model
            raise Refused(f"the model {model} fails for every text, {document} first: {failed[0].reason}", hint=_HINT)
        self._blamed = document

    def _answers(self) -> bool:
        """Whether the model still answers for a canary text, if the budget covers that."""
        if not self._budget.allows(1, self.price(CANARIES[:1])[1]):
            return True
        try:
            found, paid = self.ask(CANARIES[:1])
        except Unavailable:
            raise
        except Exception:  # a model may raise anything
            return False
        self._ledger.add_batch(paid)
        return isinstance(found[0], bytes)

    def ask(self, texts: Sequence[str], *, dimension: int | None = None) -> tuple[list[bytes | str], Batch]:
        """Return the checked vectors of texts, and the cost. An answer is paid for even if it is invalid."""
        sent = [self.channel.channel.doc_prompt + text for text in texts]
        began = self._context.clock()
        found = self._call_with_retry(sent)
        seconds = self._context.clock() - began
        paid = Batch(self.channel.space, {}, len(texts), *self._account(texts), seconds)
        try:
            if self.channel.channel.is_sparse:
                return sparse_vectors.check(found, expected=len(texts)), paid
            return vectors.check(found, expected=len(texts), dimension=dimension), paid
        except Refused:
            self._ledger.add_batch(paid)
            raise

    def price(self, texts: Sequence[str]) -> tuple[int, float]:
        """Return the tokens and dollars of texts."""
        tokens = sum(map(self.channel.channel.tokens, texts))
        return tokens, self.channel.usd(tokens, self._context.families) or 0.0

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

    def _next(self, size: int, elsewhere: set[str]) -> list[PendingText]:
        """Return the next batch, or the part of it that the budget covers; or a whole document, or nothing."""
        free = (each for each in self.pending.values() if each.key not in elsewhere)
        if not self._sees_document:
            return self._affordable(list(islice(free, size)))
        first = next(free)
        batch = [first, *(each for each in free if each.document == first.document)]
        return batch if len(self._affordable(batch)) == len(batch) else []

    def _affordable(self, batch: list[PendingText]) -> list[PendingText]:
        while batch and not self._budget.allows(len(batch), self.price([each.text for each in batch])[1]):
            batch = batch[:-1]
        return batch

    def _send(self, batch: list[PendingText]) -> list[Failure]:
        """Send a batch and commit the results; split one that fails until only the failing texts are left."""
        texts = [each.text for each in batch]
        try:
            found, paid = self.ask(texts, dimension=self.channel.native)
        except Unavailable:
            raise
        except Exception as error:  # a model may raise anything for one text
            if len(batch) == 1 or self._sees_document:
                return [_failure(each, f"{type(error).__name__}: {error}") for each in batch]
            middle, failed = len(batch) // 2, []
            for half in (batch[:middle], batch[middle:]):  # the first half may use up the budget
                if len(self._affordable(half)) < len(half):
                    raise _UsedUp from error
                failed += self._send(half)
            return failed
        bad = [(each, one) for each, one in zip(batch, found, strict=True) if isinstance(one, str)]
        if bad and self._sees_document:  # a document cannot be sent in parts later
            bad = [(each, bad[0][1]) for each in batch]
        lost = {each.key for each, _ in bad}
        good = {each.key: one for each, one in zip(batch, found, strict=True) if isinstance(one, bytes)}
        good = {key: one for key, one in good.items() if key not in lost}
        self._ledger.add_batch(replace(paid, vectors=good))
        return [_failure(each, f"its vector {reason}") for each, reason in bad]

    def _call_with_retry(self, texts: list[str]) -> Any:
        wait, tries = _FIRST_WAIT_S, 0
        while True:
            try:
                with self._claims.staying():
                    found = self.channel.channel.embed(texts)
                    return (
                        list(found) if isinstance(found, Iterator) else found
                    )  # a generator has not called the model yet
            except Exception as error:  # a model may raise anything
                tries += 1
                if not _is_temporary(error):
                    raise
                if tries == _TRIES:
                    raise Unavailable(
                        f"the model {self.channel.channel.model} does not answer: {error}", hint=_HINT
                    ) from error
                self._claims.wait(max(wait, _retry_after_s(error)), self._context.sleep)
                wait *= 2


def _is_temporary(error: BaseException) -> bool:
    """Whether to retry: a rate limit, a timeout, a server error, as the error itself or as its cause."""
    if isinstance(error, HoldfastError):
        return False
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    codes = [getattr(error, name, None) for name in ("status_code", "code")]
    codes.append(getattr(getattr(error, "response", None), "status_code", None))
    name = type(error).__name__.lower()
    if any(isinstance(each, int) and each in _TEMPORARY_CODES for each in codes) or any(
        each in name for each in _TEMPORARY_NAMES
    ):
        return True
    cause = error.__cause__ or getattr(error, "reason", None)  # urllib has it in `reason`
    return isinstance(cause, Exception) and _is_temporary(cause)


def _retry_after_s(error: Exception) -> float:
    """Return the Retry-After of an error or of its response, at most a few minutes."""
    headers = getattr(getattr(error, "response", error), "headers", None) or {}
    for value in (getattr(error, "retry_after", None), headers.get("retry-after")):
        try:
            seconds = float(value) if value is not None else 0.0
        except (TypeError, ValueError):  # a date: use our own delay
            continue
        if seconds > 0:
            return min(seconds, _MAX_WAIT_S)
    return 0.0


def _failure(wanted: PendingText, reason: str) -> Failure:
    return Failure(wanted.document, reason, "Change the text, or retry the documents that failed.", wanted.key)
