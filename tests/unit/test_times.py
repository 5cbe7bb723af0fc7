"""Times that people type."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from holdfast.errors import Refused
from holdfast.times import parse_time

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 18, 9, 30, 15, tzinfo=UTC)  # 10:30:15 in Berlin


def _moment(text: str) -> datetime:
    span = parse_time(text, now=NOW, zone=BERLIN)
    assert span.start == span.end
    return span.start.astimezone(BERLIN)


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("10m", timedelta(minutes=10)),
        ("10 min ago", timedelta(minutes=10)),
        ("3 h ago", timedelta(hours=3)),
        ("45 s ago", timedelta(seconds=45)),
        ("1h30m", timedelta(minutes=90)),
        ("2 days ago", timedelta(days=2)),
        ("2.weeks.ago", timedelta(weeks=2)),
        ("1 hour 5 minutes", timedelta(minutes=65)),
        ("NOW", timedelta()),
    ],
)
def test_an_age_counts_back_from_now(text, age):
    assert _moment(text) == NOW - age


def test_a_time_of_day_is_the_last_one():
    assert _moment("09:05") == datetime(2026, 11, 18, 9, 5, tzinfo=BERLIN)
    assert _moment("14:05:30") == datetime(2026, 11, 17, 14, 5, 30, tzinfo=BERLIN)


def test_a_day_has_a_beginning_and_an_end():
    day = parse_time("yesterday", now=NOW, zone=BERLIN)
    assert day.start == datetime(2026, 11, 17, tzinfo=BERLIN)
    assert day.end == datetime(2026, 11, 18, tzinfo=BERLIN) - timedelta(microseconds=1)
    assert parse_time("2026-11-17", now=NOW, zone=BERLIN) == day
    assert parse_time("today", now=NOW, zone=BERLIN).start == datetime(2026, 11, 18, tzinfo=BERLIN)


def test_a_day_on_which_the_clocks_change_has_25_hours():
    day = parse_time("2026-10-25", now=NOW, zone=BERLIN)
    assert day.end - day.start > timedelta(hours=24, minutes=59)


def test_an_iso_time_is_local_unless_it_has_a_zone():
    assert _moment("2026-07-01T10:00") == datetime(2026, 7, 1, 10, tzinfo=BERLIN)
    assert _moment("2026-07-01 10:00:05") == datetime(2026, 7, 1, 10, 0, 5, tzinfo=BERLIN)
    assert _moment("2026-07-01T10:00Z") == datetime(2026, 7, 1, 10, tzinfo=UTC)


def test_without_a_zone_the_computers_counts(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        found = parse_time("2026-07-01T10:00", now=NOW).start
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == datetime(2026, 7, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "soon", "10", "10x", "25:00", "12:60", "2026-02-30", "2026-13-01", "tomorrow", "m", "ago", "9" * 400]
)
def test_anything_else_is_refused(text):
    with pytest.raises(Refused, match="is not a time"):
        parse_time(text, now=NOW, zone=BERLIN)


def test_an_age_beyond_the_calendar_is_refused():
    with pytest.raises(Refused):
        parse_time("999999w", now=NOW)
