"""The retention planner: what each reason keeps, what nothing keeps, and what is never taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Refused
from holdfast.retention import Policy, Record, ages, plan

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def records(number: int, **fields: Callable[[int], object]) -> list[Record]:
    """A number of checkpoints, one an hour, the last an hour ago; each field is made from its number."""
    found = []
    for each in range(1, number + 1):
        more = {name: make(each) for name, make in fields.items()}
        found.append(Record(f"c{each}", each, NOW - timedelta(hours=number - each + 1), **more))  # type: ignore[arg-type]
    return found


def removed(found: Sequence[Record], policy: Policy, **options: Callable[[Sequence[str]], int]) -> list[str]:
    return plan(found, policy, NOW, **options).removed


class TestReasons:
    def test_with_no_reason_nothing_goes(self) -> None:
        assert removed(records(5), Policy()) == []

    def test_the_last_are_kept(self) -> None:
        assert removed(records(5), Policy(keep_last=2)) == ["c1", "c2", "c3"]

    def test_the_young_are_kept(self) -> None:
        assert removed(records(5), Policy(keep_for=timedelta(hours=2, minutes=30))) == ["c1", "c2", "c3"]

    def test_what_is_just_so_old_is_not_young_any_more(self) -> None:
        assert removed(records(5), Policy(keep_for=timedelta(hours=2))) == ["c1", "c2", "c3", "c4"]

    def test_one_of_every_so_many_is_kept(self) -> None:
        assert removed(records(7), Policy(keep_every=3)) == ["c1", "c2", "c4", "c5"]

    def test_the_last_of_each_session_are_kept(self) -> None:
        found = records(6, session=lambda number: "even" if number % 2 == 0 else "odd")
        assert removed(found, Policy(keep_last_per_session=1)) == ["c1", "c2", "c3", "c4"]

    def test_best_are_kept_earlier_of_equals_and_never_nan(self) -> None:
        scores = [1.0, 3.0, float("nan"), 3.0, 2.0, None, 0.0]
        found = records(7, score=lambda number: scores[number - 1])
        assert removed(found, Policy(keep_best=2)) == ["c1", "c3", "c5", "c6"]
        assert removed(found, Policy(keep_best=1)) == ["c1", "c3", "c4", "c5", "c6"]

    def test_what_is_no_number_is_not_the_best_by_coming_first(self) -> None:
        scores = [float("nan"), 3.0, 1.0]
        assert removed(records(3, score=lambda number: scores[number - 1]), Policy(keep_best=1)) == ["c1"]

    def test_one_reason_is_enough(self) -> None:
        assert removed(records(6), Policy(keep_last=1, keep_every=2)) == ["c1", "c3", "c5"]

    def test_each_kind_has_its_own_policy(self) -> None:
        kinds = ["auto", "manual", "auto", "feature", "auto", "manual", "auto"]
        found = records(7, kind=lambda number: kinds[number - 1])
        policy = Policy(keep_last=1, by_kind={"auto": Policy(keep_last=2), "feature": None})
        assert removed(found, policy) == ["c1", "c2", "c3"]

    def test_every_kept_one_has_its_reason(self) -> None:
        found = records(3, protected=lambda number: "pinned" if number == 1 else "")
        assert plan(found, Policy(keep_last=1), NOW).kept == {"c1": "pinned", "c3": "the newest"}


class TestNeverTaken:
    def test_what_is_protected_stays_though_it_is_the_oldest(self) -> None:
        found = records(4, protected=lambda number: "named" if number == 1 else "")
        assert removed(found, Policy(keep_last=1)) == ["c2", "c3"]

    def test_the_newest_stays_whatever_the_policy(self) -> None:
        assert removed(records(3), Policy(keep_last=0)) == ["c1", "c2"]
        assert removed(records(3), Policy(max_bytes=0), bytes_without=lambda gone: 10 - len(gone)) == ["c1", "c2"]

    def test_order_is_counted_not_timed(self) -> None:
        found = [Record("first", 1, NOW), Record("second", 2, NOW - timedelta(days=9))]
        assert removed(found, Policy(keep_last=1)) == ["first"]


class TestCap:
    def test_the_oldest_go_until_it_is_small_enough_and_no_more(self) -> None:
        assert removed(records(9), Policy(max_bytes=70), bytes_without=lambda gone: 100 - 10 * len(gone)) == [
            "c1",
            "c2",
            "c3",
        ]

    def test_nothing_goes_while_there_is_room(self) -> None:
        assert removed(records(3), Policy(max_bytes=100), bytes_without=lambda gone: 100) == []

    def test_it_passes_over_what_is_protected_and_over_reasons(self) -> None:
        found = records(5, protected=lambda number: "pinned" if number == 2 else "")
        policy = Policy(keep_last=5, max_bytes=30)
        assert removed(found, policy, bytes_without=lambda gone: 50 - 10 * len(gone)) == ["c1", "c3"]

    def test_without_a_measure_it_is_refused(self) -> None:
        with pytest.raises(Refused):
            removed(records(2), Policy(max_bytes=1))


@pytest.mark.parametrize(
    "wrong",
    [{"keep_last": -1}, {"keep_last": True}, {"keep_every": 0}, {"keep_for": timedelta(-1)}, {"max_bytes": 1.5}],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(Refused):
        Policy(**wrong)  # type: ignore[arg-type]


NUMBERS = st.none() | st.integers(0, 8)


@given(
    found=st.lists(
        st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from([None, "s", "t"]), st.booleans()), max_size=12
    ),
    keep_last=NUMBERS,
    per_session=NUMBERS,
    hours=NUMBERS,
)
def test_every_record_is_kept_or_deleted_and_protected_stay(
    found: list[tuple[str, str | None, bool]], keep_last: int | None, per_session: int | None, hours: int | None
) -> None:
    given = [
        Record(f"c{place}", place, NOW - timedelta(hours=12 - place), kind, session, "pinned" if pinned else "")
        for place, (kind, session, pinned) in enumerate(found)
    ]
    young = None if hours is None else timedelta(hours=hours)
    policy = Policy(keep_last=keep_last, keep_last_per_session=per_session, keep_for=young, by_kind={"b": None})
    made = plan(given, policy, NOW)

    assert sorted([*made.kept, *made.removed]) == sorted(record.id for record in given)
    assert all(made.kept.values())
    by_id = {record.id: record for record in given}
    assert not any(by_id[gone].protected or by_id[gone].kind == "b" for gone in made.removed)
    if keep_last is not None:
        others = [record.id for record in given if record.kind != "b"]
        assert not set(made.removed) & set(others[len(others) - keep_last :] if keep_last else [])
    assert plan([by_id[kept] for kept in made.kept], policy, NOW).removed == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"keep_for": 30},
        {"by_kind": {"daily": 5}},
        {"by_kind": {"daily": Policy(max_bytes=5)}},
        {"by_kind": {"daily": Policy(by_kind={"weekly": None})}},
    ],
    ids=str,
)
def test_what_would_be_passed_over_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=next(iter(wrong))):
        Policy(**wrong)


DAY, HOUR, YEAR = timedelta(days=1), timedelta(hours=1), timedelta(days=365)
THINNING = Policy(keep_for=DAY, keep_turns_for=7 * DAY, keep_hourly_for=30 * DAY)


def aged(*days: float, **fields: Callable[[int], object]) -> list[Record]:
    """Checkpoints of these ages in days, oldest first."""
    found = []
    for number, age in enumerate(days, 1):
        more = {name: make(number) for name, make in fields.items()}
        found.append(Record(f"c{number}", number, NOW - age * DAY, **more))  # type: ignore[arg-type]
    return found


class TestTurnsAndHours:
    def test_all_of_the_last_day_stay(self) -> None:
        assert removed(aged(0.99, 0.5, 0.5, 0.5, 0.1, turn=lambda _: "one"), THINNING) == []

    def test_one_of_each_turn_stays_for_a_week(self) -> None:
        found = aged(3, 2.9999, 2.9998, 2.9997, 0, turn=lambda number: "first" if number < 3 else "second")
        assert removed(found, THINNING) == ["c1", "c3"]

    def test_without_a_turn_one_of_each_hour_stays(self) -> None:
        found = aged(3, 3 - 1 / 48, 3 - 2 / 48, 3 - 3 / 48, 0)
        assert removed(found, THINNING) == ["c1", "c3"]

    def test_one_of_each_hour_stays_for_a_month(self) -> None:
        found = aged(8, 8 - 1 / 48, 8 - 2 / 48, 8 - 3 / 48, 0, turn=lambda number: f"turn {number}")
        assert removed(found, THINNING) == ["c1", "c3"]

    def test_nothing_older_stays(self) -> None:
        assert removed(aged(31, 30, 29.99, 0), THINNING) == ["c1", "c2"]

    def test_age_overrides_the_clock(self) -> None:
        assert removed(aged(100, 99, 0, age=lambda _: HOUR), THINNING) == []

    def test_spans_are_checked(self) -> None:
        for name in ("keep_turns_for", "keep_hourly_for"):
            with pytest.raises(Refused, match=f"{name} is negative"):
                Policy(**{name: -DAY})
            with pytest.raises(Refused, match=name):
                Policy(**{name: 3})  # type: ignore[arg-type]


class TestAges:
    def test_of_nothing(self) -> None:
        assert ages([], NOW) == []

    def test_ages_are_those_of_the_clock(self) -> None:
        times = [NOW - hours * HOUR for hours in (50, 30, 12, 11, 1)]
        assert ages(times, NOW) == [hours * HOUR for hours in (50, 30, 12, 11, 1)]

    def test_clock_a_year_ahead_ages_nothing(self) -> None:
        times = [NOW - 2 * HOUR, NOW - HOUR]
        assert ages(times, NOW + YEAR) == [HOUR, timedelta(0)]
        assert ages([*times, NOW + YEAR], NOW + YEAR + HOUR) == [2 * HOUR, HOUR, HOUR]

    def test_clock_set_ahead_and_back_ages_nothing(self) -> None:
        times = [NOW - 2 * HOUR, NOW + YEAR, NOW - HOUR]
        assert ages(times, NOW) == [HOUR, HOUR, HOUR]
        wild = [NOW - 2 * HOUR, *([NOW + YEAR, NOW - HOUR] * 50)]
        assert max(ages(wild, NOW)) == HOUR

    def test_clocks_of_two_programs_a_day_apart_age_nothing(self) -> None:
        minute = timedelta(minutes=1)
        times = [NOW - (60 - at) * minute + at % 2 * (DAY - HOUR) for at in range(60)]
        assert ages(times, NOW)[0] <= HOUR

    def test_time_of_1970_does_not_make_a_checkpoint_old(self) -> None:
        times = [NOW - 2 * HOUR, datetime(1970, 1, 1, tzinfo=UTC), NOW - HOUR]
        assert ages(times, NOW) == [HOUR, HOUR, HOUR]

    def test_pause_counts_after_a_day_of_work(self) -> None:
        pause = [NOW - 20 * DAY, NOW]
        work = [NOW + hours * HOUR for hours in range(1, 25)]
        assert ages([*pause, *work[:22]], work[22])[0] == 23 * HOUR
        assert ages([*pause, *work[:23]], work[23])[0] == 21 * DAY

    def test_pause_counts_after_three_more(self) -> None:
        weekly = [NOW - 7 * weeks * DAY for weeks in range(4, -1, -1)]
        assert ages(weekly, NOW)[0] == 7 * DAY
        assert ages(weekly[1:], NOW)[0] == timedelta(0)


_STEPS = st.lists(st.sampled_from([0, 1, 60, 3600, 40_000, 90_000, 700_000, 4_000_000]), min_size=1, max_size=40)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Record], datetime]:
    """Records with turns, sessions and protected ones among them, by a clock that may jump, and a time after."""
    steps = draw(_STEPS)
    jumps = draw(st.dictionaries(st.integers(0, len(steps)), st.sampled_from([-YEAR, YEAR, -DAY]), max_size=3))
    found, time = [], datetime(2029, 1, 1, tzinfo=UTC)
    for number, step in enumerate(steps):
        time += timedelta(seconds=step) + jumps.get(number, timedelta(0))
        turn = draw(st.sampled_from([None, "a", "b", "c"]))
        protected = draw(st.sampled_from(["", "", "pinned"]))
        found.append(Record(f"c{number}", number, time, turn=turn, protected=protected))
    return found, time + timedelta(seconds=draw(st.integers(0, 4_000_000)))


def with_ages(found: list[Record], now: datetime) -> list[Record]:
    old = ages([each.timestamp for each in found], now)
    return [replace(each, age=age) for each, age in zip(found, old, strict=True)]


class TestThinningProperties:
    @given(histories())
    def test_protected_and_newest_are_never_taken(self, history: tuple[list[Record], datetime]) -> None:
        found, now = history
        left = plan(with_ages(found, now), THINNING, now).kept
        assert {each.id for each in found if each.protected} | {found[-1].id} <= left.keys()

    @given(histories())
    def test_second_plan_takes_nothing(self, history: tuple[list[Record], datetime]) -> None:
        found, now = history
        known = with_ages(found, now)
        left = plan(known, THINNING, now).kept
        assert plan([each for each in known if each.id in left], THINNING, now).removed == []

    @given(histories(), st.integers(0, 4_000_000))
    def test_what_goes_would_also_go_later(self, history: tuple[list[Record], datetime], seconds: int) -> None:
        found, now = history
        later = [replace(each, age=each.age + timedelta(seconds=seconds)) for each in with_ages(found, now)]  # type: ignore[operator]
        gone = plan(with_ages(found, now), THINNING, now).removed
        assert set(gone) <= set(plan(later, THINNING, now).removed)

    @given(histories(), st.sampled_from([YEAR, -YEAR, 50 * YEAR]))
    def test_jump_of_the_clock_takes_nothing_more(
        self, history: tuple[list[Record], datetime], jump: timedelta
    ) -> None:
        found, now = history
        taken = set(plan(with_ages(found, now), THINNING, now).removed)
        assert set(plan(with_ages(found, now + jump), THINNING, now + jump).removed) <= taken

    @given(histories())
    def test_ages_fall_with_the_sequence(self, history: tuple[list[Record], datetime]) -> None:
        found, now = history
        old = ages([each.timestamp for each in found], now)
        assert old == sorted(old, reverse=True)
        assert min(old) >= timedelta(0)
