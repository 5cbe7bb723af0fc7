"""Which checkpoints to keep: a pure planner that every surface shares. Nothing is deleted here.

A policy is a set of reasons to keep; a checkpoint is removed only if no reason applies. Pins, names and what the caller
protects are kept always, and so is the newest. A cap on bytes comes last: it takes the oldest of what the other
reasons kept, never what is protected.

Sequence numbers order checkpoints (P10). Times only say how old one is; `ages` says so without trusting the clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise

from holdfast.errors import Refused
from holdfast.validation import check_limit, checked_options

_FOR_EVER = "kept until it is deleted"
_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_PAUSE_COUNTS = timedelta(hours=8)  # of a later pause, as evidence that an earlier one was real


@dataclass(frozen=True, slots=True)
class Record:
    """What the planner needs to know of a checkpoint."""

    id: str
    sequence: int
    timestamp: datetime
    kind: str = ""
    """A class of checkpoints with a rule of its own: a type, or any word."""
    session: str | None = None
    protected: str = ""
    """Why it is never taken (`pinned`, `named`, …); empty if it may be."""
    score: float | None = None
    """How good it is, where that is measured; greater is better."""
    turn: str | None = None
    """The turn that it belongs to; without one, its hour counts as its turn."""
    age: timedelta | None = None
    """How old it is, from `ages`; None: what the clock says."""


SPANS = ("keep_for", "keep_turns_for", "keep_hourly_for")
"""The reasons of a policy that are time spans."""


@checked_options
@dataclass(frozen=True, slots=True)
class Policy:
    """Reasons to keep a checkpoint; each that is not None counts for itself. With none at all everything is kept."""

    keep_last: int | None = None
    """How many of the newest to keep."""
    keep_for: timedelta | None = None
    """Those younger than this."""
    keep_every: int | None = None
    """Those whose sequence number is a multiple of this."""
    keep_last_per_session: int | None = None
    """How many of the newest of each session to keep."""
    keep_best: int | None = None
    """How many with the greatest score to keep; of equal scores, the earlier one."""
    keep_turns_for: timedelta | None = None
    """The newest of each turn, if it is younger than this."""
    keep_hourly_for: timedelta | None = None
    """The newest of each hour, if it is younger than this."""
    by_kind: Mapping[str, Policy | None] = field(default_factory=dict)
    """A policy for each kind, in place of this one; None keeps a kind for ever, whatever the cap on bytes."""
    max_bytes: int | None = None
    """All checkpoints together, as measured by the caller; the oldest go first."""

    def __post_init__(self) -> None:
        for name in ("keep_last", "keep_every", "keep_last_per_session", "keep_best", "max_bytes"):
            check_limit(getattr(self, name), name, least=1 if name == "keep_every" else 0)
        for name in SPANS:
            span = getattr(self, name)
            if span is not None and not isinstance(span, timedelta):
                raise Refused(f"{name} is {span!r}", hint="Give a timedelta, or None.")
            if span is not None and span < timedelta(0):
                raise Refused(f"{name} is negative", hint="Give a timedelta, or None.")
        for kind, own in self.by_kind.items():
            if own is not None and not isinstance(own, Policy):
                raise Refused(f"by_kind[{kind!r}] is {own!r}", hint="Give a Policy, or None to keep them for ever.")
            if own is not None and (own.by_kind or own.max_bytes is not None):
                raise Refused(
                    f"by_kind[{kind!r}] has a by_kind or a max_bytes of its own",
                    hint="Set them on the whole policy; the policy of a kind only has reasons to keep.",
                )

    @property
    def keeps_all(self) -> bool:
        """Whether no reason is given, so that nothing would go."""
        counts = (self.keep_last, self.keep_every, self.keep_last_per_session, self.keep_best)
        return all(reason is None for reason in (*counts, *(getattr(self, name) for name in SPANS)))


AUTOMATIC = Policy(keep_for=_DAY, keep_turns_for=7 * _DAY, keep_hourly_for=30 * _DAY)
"""What is kept of checkpoints that nobody asked for, unless the configuration says otherwise."""


def told(policy: Policy | None) -> str:
    """What a policy keeps, in words."""
    if policy is None or policy.keeps_all:
        return "until deleted"
    reasons = {
        "the last {}": policy.keep_last,
        "younger than {:g} days": policy.keep_for and policy.keep_for / _DAY,
        "one of each turn for {:g} days": policy.keep_turns_for and policy.keep_turns_for / _DAY,
        "one of each hour for {:g} days": policy.keep_hourly_for and policy.keep_hourly_for / _DAY,
        "one of every {}": policy.keep_every,
        "the last {} of each session": policy.keep_last_per_session,
        "the best {}": policy.keep_best,
    }
    return ", ".join(words.format(value) for words, value in reasons.items() if value is not None)


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What stays, and what goes, oldest first; each with the reason."""

    kept: dict[str, str]
    removed: list[str]


def plan(
    records: Iterable[Record],
    policy: Policy,
    now: datetime,
    *,
    bytes_without: Callable[[Sequence[str]], int] | None = None,
) -> RetentionPlan:
    """Decide which checkpoints go.

    `bytes_without` tells how many bytes are left once these are gone; it is asked only for `max_bytes`. Refused if
    `max_bytes` is given without it.
    """
    ordered = sorted(protect_kinds(records, policy), key=lambda record: record.sequence)
    kept = {record.id: record.protected for record in ordered if record.protected}
    if ordered:
        kept.setdefault(ordered[-1].id, "the newest")
    for own, group in _groups(ordered, policy):
        for checkpoint_id, why in _reasons(group, own, now):
            kept.setdefault(checkpoint_id, why)
    removed = [record.id for record in ordered if record.id not in kept]
    if policy.max_bytes is not None:
        takeable = [record.id for record in ordered[:-1] if not record.protected]
        removed = _capped(takeable, removed, policy.max_bytes, bytes_without)
    gone = set(removed)
    return RetentionPlan({record.id: kept[record.id] for record in ordered if record.id not in gone}, removed)


def ages(times: Sequence[datetime], now: datetime) -> list[timedelta]:
    """Return how old checkpoints are, given their times in the order of their sequence numbers.

    A clock that jumps must not make everything old. So the age is the sum of the steps from each checkpoint to the
    next, and to now. A step back counts nothing, and takes away what was counted of steps before it, up to a day: the
    clock, or that of one of several programs, was ahead. Nothing counts of a step of more than a day, which may be a
    pause or a clock set wrong, until a day has passed after it without the clock being set back; of each later step at
    most eight hours count for that. The result is never more than a clock that was never set back says.
    """
    steps = [later - earlier for earlier, later in pairwise([*times, now])]
    found, age, ahead = [timedelta(0)] * len(times), timedelta(0), timedelta(0)
    for at in range(len(steps) - 1, -1, -1):
        if steps[at] < timedelta(0):
            ahead = min(_DAY, ahead - steps[at])
        elif steps[at] <= _DAY or _is_confirmed(steps[at + 1 :]):
            taken = min(ahead, steps[at])
            ahead -= taken
            age += steps[at] - taken
        found[at] = age
    return found


def _is_confirmed(later: Sequence[timedelta]) -> bool:
    """Whether a long step was a pause and no wrong clock, by the steps after it."""
    since = evidence = timedelta(0)
    for at, step in enumerate(later, 1):
        since += step
        if since < timedelta(0):
            return False  # the clock was set back to before that step
        if at < len(later) or step <= _PAUSE_COUNTS:  # the last step is to now: the clock may be wrong at this moment
            evidence += max(timedelta(0), min(step, _PAUSE_COUNTS))
        if evidence >= _DAY:
            return True
    return False


def _young_newest(
    records: Sequence[Record], key: Callable[[Record], str | int], span: timedelta, now: datetime
) -> list[Record]:
    """Return the newest record of each key, if it is younger than `span`."""
    newest = {key(record): record for record in records}
    return [record for record in newest.values() if _age(record, now) < span]


def _age(record: Record, now: datetime) -> timedelta:
    return now - record.timestamp if record.age is None else record.age


def _hour(record: Record) -> int:
    return int(record.timestamp.timestamp() // _HOUR.total_seconds())


def protect_kinds(records: Iterable[Record], policy: Policy) -> list[Record]:
    """The records, those of a kind that is kept for ever protected."""
    kinds = {kind for kind, own in policy.by_kind.items() if own is None}
    return [replace(each, protected=each.protected or _FOR_EVER) if each.kind in kinds else each for each in records]


def _groups(records: Sequence[Record], policy: Policy) -> Iterator[tuple[Policy | None, list[Record]]]:
    """The records of each kind that has a policy of its own, and all others."""
    yield policy, [record for record in records if record.kind not in policy.by_kind]
    for kind, own in policy.by_kind.items():
        yield own, [record for record in records if record.kind == kind]


def _reasons(records: Sequence[Record], policy: Policy | None, now: datetime) -> Iterator[tuple[str, str]]:
    """Every reason to keep one of these records (oldest first)."""
    if policy is None or policy.keeps_all:
        yield from ((record.id, _FOR_EVER) for record in records)
        return
    if policy.keep_last:
        yield from ((record.id, f"among the last {policy.keep_last}") for record in records[-policy.keep_last :])
    if policy.keep_for is not None:
        young = [record for record in records if _age(record, now) < policy.keep_for]
        yield from ((record.id, "young enough") for record in young)
    if policy.keep_turns_for is not None:
        young = _young_newest(records, lambda each: each.turn or _hour(each), policy.keep_turns_for, now)
        yield from ((record.id, "the last of its turn") for record in young)
    if policy.keep_hourly_for is not None:
        young = _young_newest(records, _hour, policy.keep_hourly_for, now)
        yield from ((record.id, "the last of its hour") for record in young)
    if policy.keep_every:
        some = (record for record in records if record.sequence % policy.keep_every == 0)
        yield from ((record.id, f"one of every {policy.keep_every}") for record in some)
    if policy.keep_last_per_session:
        yield from _last_of_sessions(records, policy.keep_last_per_session)
    if policy.keep_best:
        scored = [record for record in records if record.score is not None and record.score == record.score]
        best = sorted(scored, key=lambda record: (-(record.score or 0.0), record.sequence))[: policy.keep_best]
        yield from ((record.id, f"among the best {policy.keep_best}") for record in best)


def _last_of_sessions(records: Sequence[Record], number: int) -> Iterator[tuple[str, str]]:
    sessions: dict[str, list[Record]] = {}
    for record in records:
        if record.session is not None:
            sessions.setdefault(record.session, []).append(record)
    for session in sessions.values():
        yield from ((record.id, f"among the last {number} of its session") for record in session[-number:])


def _capped(
    takeable: Sequence[str], removed: list[str], max_bytes: int, bytes_without: Callable[[Sequence[str]], int] | None
) -> list[str]:
    """Take the oldest, too, until what is left is small enough; as few as that needs."""
    if bytes_without is None:
        raise Refused("max_bytes is given, but the sizes of the checkpoints are unknown", hint="Leave max_bytes out.")
    gone = set(removed)
    more = [checkpoint_id for checkpoint_id in takeable if checkpoint_id not in gone]

    def taken(number: int) -> list[str]:
        chosen = gone | set(more[:number])
        return [checkpoint_id for checkpoint_id in takeable if checkpoint_id in chosen]

    number = bisect_left(range(len(more)), True, key=lambda number: bytes_without(taken(number)) <= max_bytes)
    return taken(number)
