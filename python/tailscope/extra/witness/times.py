"""The times that lines of logs begin with: of syslog and journals, ISO 8601, date, or Unix."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_S = 10**9
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(\.\d+)?\s")
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)([.,]\d+)?\s?(Z|UTC|[+-]\d\d:?\d\d)?(?=\s|$)"
)
_UNIX = re.compile(r"(\d{9,11})(\.\d+)?(?=\s|$)")
_DATE = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?: (AM|PM))? ([A-Z]+) (\d{4})"
)
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_UTC = ("UTC", "GMT", "Z")


class Stamp(NamedTuple):
    """A time of a line: Unix time in ns, rounded down to its last digit."""

    unix_ns: int
    resolution_ns: int


def seconds_ns(text: str) -> int:
    """Return decimal seconds in ns."""
    whole, _, fraction = text.partition(".")
    return int(whole) * _S + fraction_ns(fraction)


def fraction_ns(digits: str) -> int:
    """Return the digits behind a decimal point of seconds in ns."""
    return int(f"{digits:0<9}"[:9])


def resolution_ns(digits: str) -> int:
    """Return the value of the last of these digits behind a decimal point of seconds, in ns."""
    return int(10 ** max(0, 9 - len(digits)))


def stamp_at_start(line: str, near_ns: int | None) -> Stamp | None:
    """Read the time that a line begins with, if it begins with one.

    Times of syslog have no year: the one is taken in which they are nearest to `near_ns`.
    """
    for pattern, read in _KINDS:
        if found := pattern.match(line):
            return read(found, near_ns)
    return None


def _iso(found: re.Match[str], _: int | None) -> Stamp:
    date, time, fraction, zone = found.groups()
    digits = (fraction or "")[1:]
    offset = "+00:00" if zone in (None, *_UTC) else zone
    try:
        return _stamp(datetime.fromisoformat(f"{date}T{time}{offset}"), digits)
    except ValueError:
        raise _unread(found) from None


def _syslog(found: re.Match[str], near_ns: int | None) -> Stamp:
    month, day, hour, minute, second, fraction = found.groups()
    if near_ns is None:
        raise UsageError(
            f"--clock-log: {found.group().strip()}: has no year, and a capture from a pipe does not"
            " say it",
            code="clock-log-year",
            hint="journalctl -o short-iso-precise has times with a year",
        )
    near = datetime.fromtimestamp(near_ns / _S, UTC)
    ymd = _month(month, found), int(day)
    hms = int(hour), int(minute), int(second)
    years = [near.year - 1, near.year, near.year + 1]
    leap = [year for year in years if ymd != (2, 29) or _is_leap(year)]
    times = [_utc(found, year, *ymd, *hms) for year in leap]
    if not times:
        raise _unread(found)
    nearest = min(times, key=lambda at: abs(at - near))
    return _stamp(nearest, (fraction or "")[1:])


def _date(found: re.Match[str], _: int | None) -> Stamp:
    month, day, hour, minute, second, half, zone, year = found.groups()
    if zone not in _UTC:
        raise UsageError(
            f"--clock-log: {found.group()}: got the time zone {zone}, expected UTC",
            code="clock-log-zone",
            hint="date -u writes times in UTC",
        )
    clock = int(hour) if half is None else int(hour) % 12 + (12 if half == "PM" else 0)
    ymd = int(year), _month(month, found), int(day)
    return _stamp(_utc(found, *ymd, clock, int(minute), int(second)), "")


def _unix(found: re.Match[str], _: int | None) -> Stamp:
    digits = (found[2] or "")[1:]
    return Stamp(int(found[1]) * _S + fraction_ns(digits), resolution_ns(digits))


def _stamp(at: datetime, digits: str) -> Stamp:
    return Stamp(round(at.timestamp()) * _S + fraction_ns(digits), resolution_ns(digits))


def _month(name: str, found: re.Match[str]) -> int:
    if name not in _MONTHS:
        raise _unread(found)
    return _MONTHS.index(name) + 1


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _utc(found: re.Match[str], *fields: int) -> datetime:
    year, month, day, hour, minute, second = fields
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise _unread(found) from None


def _unread(found: re.Match[str]) -> UsageError:
    return UsageError(
        f"--clock-log: got {found.group().strip()!r}, expected a time", code="clock-log-time"
    )


_KINDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], int | None], Stamp]], ...] = (
    (_ISO, _iso),
    (_SYSLOG, _syslog),
    (_DATE, _date),
    (_UNIX, _unix),
)
