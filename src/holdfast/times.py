"""Times that people type: `10m`, `14:05`, `yesterday`. Pure: the clock and the time zone are passed in."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import NamedTuple

from holdfast.errors import Refused

_UNITS = {
    "s": "seconds", "sec": "seconds", "second": "seconds", "m": "minutes", "min": "minutes", "minute": "minutes",
    "h": "hours", "hour": "hours", "d": "days", "day": "days", "w": "weeks", "week": "weeks",
}  # fmt: skip
_PART = r"(\d{1,6})[ .]?([a-z]+?)s?"
_AGE = re.compile(rf"(?:{_PART}[ .]?)+?(?:ago)?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_TEXT_MAX_CHARS = 60
_DAYS_AGO = {"today": 0, "yesterday": 1}
EXAMPLES = "10m, 14:05, yesterday, 2026-11-01 or 2026-11-01T10:00"


class Span(NamedTuple):
    """A time as it was typed: a day has a beginning and an end, any other is a moment. Both are in UTC."""

    start: datetime
    end: datetime


def parse_time(text: str, *, now: datetime, zone: tzinfo | None = None) -> Span:
    """Read a time. `zone`: of a time without one; None is the zone of this computer. Refused if it is none.

    An age counts back from `now`. A time of day is the last time that it was that late. A day lasts until the next.
    """
    typed = " ".join(text.lower().split())[:_TEXT_MAX_CHARS]
    try:
        found = _parse(typed, text.strip(), now.astimezone(UTC), zone)
    except (OverflowError, ValueError, OSError):  # such as the 30th of February, or before the year 1
        found = None
    if found is None:
        raise Refused(f"{text!r:.80} is not a time", hint=f"Write {EXAMPLES}.")
    return found


def _parse(typed: str, whole: str, now: datetime, zone: tzinfo | None) -> Span | None:
    if typed == "now":
        return Span(now, now)
    if typed in _DAYS_AGO:
        return _day(_local(now, zone).date() - timedelta(days=_DAYS_AGO[typed]), zone)
    if clock := _CLOCK.fullmatch(typed):
        hour, minute, second = (int(part or 0) for part in clock.groups())
        today = _local(now, zone).date()
        moment = _utc(datetime.combine(today, time(hour, minute, second)), zone)
        if moment > now:
            moment = _utc(datetime.combine(today - timedelta(days=1), time(hour, minute, second)), zone)
        return Span(moment, moment)
    if _DAY.fullmatch(typed):
        return _day(date.fromisoformat(typed), zone)
    if age := _age(typed):
        return Span(now - age, now - age)
    if not _DAY.match(typed):
        return None
    moment = _utc(datetime.fromisoformat(whole), zone)
    return Span(moment, moment)


def _age(typed: str) -> timedelta | None:
    if not _AGE.fullmatch(typed):
        return None
    parts = re.findall(r"(\d+)[ .]?([a-z]+)", typed.removesuffix("ago"))
    units = [_UNITS.get(unit) or _UNITS.get(unit.removesuffix("s")) for _, unit in parts]
    if None in units:
        return None
    return sum((timedelta(**{str(unit): int(part[0])}) for part, unit in zip(parts, units, strict=True)), timedelta())


def _day(day: date, zone: tzinfo | None) -> Span:
    start = _utc(datetime.combine(day, time()), zone)
    after = _utc(datetime.combine(day + timedelta(days=1), time()), zone)
    return Span(start, after - timedelta(microseconds=1))


def _local(moment: datetime, zone: tzinfo | None) -> datetime:
    return moment.astimezone(zone)


def _utc(moment: datetime, zone: tzinfo | None) -> datetime:
    """A moment in UTC; one without a zone is in `zone`."""
    if moment.tzinfo is None and zone is not None:
        moment = moment.replace(tzinfo=zone)
    return moment.astimezone(UTC)
