"""Dates, times and their zones, to the microsecond, the fold and the name of the zone."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.errors import Unavailable
from holdfast.serde.cannot import Cannot


def take_zone(zone: tzinfo | None) -> Any:
    """None, the key of a zone, or an offset in microseconds with its name where it has one of its own."""
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # the name only if one was given
        return [offset // timedelta(microseconds=1), *name]
    if type(zone) is ZoneInfo and zone.key is not None and _is_known_by_key(zone):
        return zone.key
    raise Cannot(f"its zone is of type {type(zone).__module__}.{type(zone).__qualname__}")


def _is_known_by_key(zone: ZoneInfo) -> bool:
    """Whether the key stands for it. One that was read from a file may have any key, and refuses to be taken apart."""
    try:
        zone.__reduce__()
    except Exception:  # a PicklingError, which has no business in here
        return False
    return True


def make_zone(data: Any) -> tzinfo | None:
    if data is None:
        return None
    if isinstance(data, str):
        try:
            return ZoneInfo(data)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise Unavailable(f"the time zone {data!r} is not known here", hint="Install `tzdata`.") from None
    offset, *name = data
    return timezone(timedelta(microseconds=offset), *name)


def take_datetime(value: datetime) -> Any:
    return [value.replace(tzinfo=None).isoformat(), value.fold, take_zone(value.tzinfo)]


def make_datetime(data: Any) -> datetime:
    text, fold, zone = data
    return datetime.fromisoformat(text).replace(tzinfo=make_zone(zone), fold=fold)


def take_time(value: time) -> Any:
    return [value.replace(tzinfo=None).isoformat(), value.fold, take_zone(value.tzinfo)]


def make_time(data: Any) -> time:
    text, fold, zone = data
    return time.fromisoformat(text).replace(tzinfo=make_zone(zone), fold=fold)


def take_timedelta(value: timedelta) -> Any:
    return [value.days, value.seconds, value.microseconds]


def make_timedelta(data: Any) -> timedelta:
    days, seconds, microseconds = data
    return timedelta(days, seconds, microseconds)


def make_date(data: Any) -> date:
    return date.fromisoformat(data)
