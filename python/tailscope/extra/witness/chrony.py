"""Logs of chronyd (``tracking.log``, ``statistics.log``), and what chronyc printed repeatedly."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tailscope.exceptions import UsageError
from tailscope.extra.witness.log import Log, LogReader
from tailscope.extra.witness.samples import Sample
from tailscope.extra.witness.times import fraction_ns, stamp_at_start

_S = 10**9
_PPB_PER_PPM = 1000
_MOST = 1e200
_NUMBER = r"[+-]?\d{1,9}(?:\.\d{1,9})?(?:e[+-]?\d{1,2})?"
_AT = r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (\S+) +"
_TRACKING = re.compile(
    rf"{_AT}\d+ +({_NUMBER}) +{_NUMBER} +({_NUMBER}) ([N+?-]) +\d+ +{_NUMBER} +({_NUMBER})(?: |$)"
)
_STATISTICS = re.compile(rf"{_AT}{_NUMBER} +({_NUMBER})(?: +{_NUMBER}){{4}} +\d+ +\d+ +\d+(?: |$)")
_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": _S}
_SOURCE = re.compile(
    rf"(\S+) +\d+ +\d+ +\S+ +{_NUMBER} +{_NUMBER} +([+-]?\d{{1,9}})(ns|us|ms|s) +\d"
)
_FIELD = re.compile(r"([A-Z][A-Za-z() ]*?) *: (.*)")
_CSV_FIELDS = 14
_UNKEPT = ("Not synchronised", "?")


def _ns(seconds: str) -> int:
    return round(_real(seconds) * _S)


def _real(text: str) -> float:
    """Read a number as chrony writes it; ValueError for what it cannot have measured."""
    number = float(text)
    if not abs(number) < _MOST:
        raise ValueError(text)
    return number


class TrackingLog(LogReader):
    """Reads ``tracking.log``: a line at each update of the clock."""

    def __init__(self, near_ns: int | None) -> None:
        self._near_ns = near_ns
        self._samples: list[Sample] = []

    def take(self, line: str) -> None:
        """Take the next line."""
        if (found := _TRACKING.match(line)) is None:
            return
        at = stamp_at_start(line, self._near_ns)
        assert at is not None, "the line begins with a time"
        _, _, frequency_ppm, offset_s, leap, rest_s = found.groups()
        offset_ns = max(_ns(offset_s), _ns(rest_s), key=abs)
        frequency_ppb = float(frequency_ppm) * _PPB_PER_PPM
        is_kept = leap not in _UNKEPT
        self._samples.append(Sample(at.unix_ns, offset_ns, frequency_ppb, is_kept=is_kept))

    def log(self) -> Log | None:
        """Return what was read; None if it is no such log."""
        return Log("tracking.log of chronyd", {"": self._samples}, _S) if self._samples else None


class StatisticsLog(LogReader):
    """Reads ``statistics.log``: a line at each measurement of a source."""

    def __init__(self, near_ns: int | None) -> None:
        self._near_ns = near_ns
        self._sources: dict[str, list[Sample]] = {}

    def take(self, line: str) -> None:
        """Take the next line."""
        if (found := _STATISTICS.match(line)) is None:
            return
        at = stamp_at_start(line, self._near_ns)
        assert at is not None, "the line begins with a time"
        _, source, offset_s = found.groups()
        self._sources.setdefault(source, []).append(Sample(at.unix_ns, _ns(offset_s)))

    def log(self) -> Log | None:
        """Return what was read; None if it is no such log."""
        if not self._sources:
            return None
        return Log("statistics.log of chronyd", {"": _most_asked(self._sources)}, _S)


def _most_asked(sources: dict[str, list[Sample]]) -> list[Sample]:
    """Return the samples of the source that was asked most often: others may be off themselves."""
    return max(sources.values(), key=len)


class PrintedTracking(LogReader):
    """Reads what ``chronyc tracking`` printed, or ``chronyc -c tracking``.

    What it printed tells of the last update of the clock, which `Ref time` says, however often it
    is asked meanwhile.
    """

    def __init__(self, near_ns: int | None) -> None:
        del near_ns
        self._fields: dict[str, str] = {}
        self._samples: dict[int, Sample] = {}

    def take(self, line: str) -> None:
        """Take the next line."""
        cells = line.strip().split(",")
        if len(cells) == _CSV_FIELDS:
            self._take_csv(cells)
        elif found := _FIELD.match(line):
            self._fields[found[1]] = found[2].strip()
            if found[1] == "Leap status":
                self._take_block(self._fields)
                self._fields = {}

    def _take_block(self, fields: dict[str, str]) -> None:
        try:
            at = datetime.strptime(fields["Ref time (UTC)"], "%a %b %d %H:%M:%S %Y")
            ppm, way = fields["Frequency"].split()[0::2]
            self._add(
                round(at.replace(tzinfo=UTC).timestamp()) * _S,
                (fields["System time"].split()[0], fields["Last offset"].split()[0]),
                _real(ppm) * (-1 if way == "slow" else 1),
                fields["Leap status"],
            )
        except (KeyError, ValueError, IndexError):
            raise UsageError(
                "--clock-log: what chronyc tracking printed: expected Ref time, System time, Last"
                " offset and Frequency before each Leap status",
                code="clock-log-block",
            ) from None

    def _take_csv(self, cells: list[str]) -> None:
        try:
            whole, _, fraction = cells[3].partition(".")
            at_ns = int(whole) * _S + fraction_ns(fraction)
            self._add(at_ns, (cells[4], cells[5]), _real(cells[7]), cells[13])
        except ValueError:
            return

    def _add(self, at_ns: int, offsets_s: tuple[str, str], ppm: float, leap: str) -> None:
        offset_ns = max(map(_ns, offsets_s), key=abs)
        former = self._samples.get(at_ns)
        if former is not None and former.offset_ns is not None:
            offset_ns = max(offset_ns, former.offset_ns, key=abs)
        is_kept = leap not in _UNKEPT
        self._samples[at_ns] = Sample(at_ns, offset_ns, ppm * _PPB_PER_PPM, is_kept=is_kept)

    def log(self) -> Log | None:
        """Return what was read; None if it is no such output."""
        samples = [self._samples[at_ns] for at_ns in sorted(self._samples)]
        return Log("output of chronyc tracking", {"": samples}, _S) if samples else None


class PrintedSources(LogReader):
    """Reads what ``chronyc sourcestats`` printed, with a time printed before each."""

    def __init__(self, near_ns: int | None) -> None:
        self._near_ns = near_ns
        self._at_ns: int | None = None
        self._sources: dict[str, list[Sample]] = {}
        self._former: dict[str, str] = {}

    def take(self, line: str) -> None:
        """Take the next line."""
        if found := _SOURCE.match(line):
            source, offset, unit = found.groups()
            if self._at_ns is None:
                raise UsageError(
                    "--clock-log: what chronyc sourcestats printed does not say when",
                    code="clock-log-undated",
                    hint="while sleep 1; do date -u +%FT%TZ; chronyc sourcestats; done > LOG",
                )
            # The same line once more tells of the same measurements.
            if self._former.get(source) != line:
                self._former[source] = line
                sample = Sample(self._at_ns, int(offset) * _UNITS[unit])
                self._sources.setdefault(source, []).append(sample)
        elif (at := stamp_at_start(line, self._near_ns)) is not None:
            self._at_ns = at.unix_ns

    def log(self) -> Log | None:
        """Return what was read; None if it is no such output."""
        if not self._sources:
            return None
        return Log("output of chronyc sourcestats", {"": _most_asked(self._sources)}, _S)
