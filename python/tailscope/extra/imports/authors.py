"""Tables of the papers' authors, as CSV: of latencies, of packets a second, and of gaps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from tailscope.engine.analysis import Histogram, Rate
from tailscope.exceptions import CaptureError
from tailscope.extra.imports.foreign import EveryPacket, ForeignRun, WorstPackets, buckets_of
from tailscope.store.authors import read_columns
from tailscope.store.run import SIDES
from tailscope.units import count_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.engine.analysis import Figure, Side
    from tailscope.models.buckets import Buckets

    Numbers = NDArray[np.integer]

KINDS = (
    *("hist", "percentiles", "stats", "transferrate", "worst", "latency-ts"),
    *("packetratepre", "packetratepost", "jitterpre", "jitterpost"),
)
"""Tables that are read."""

_NS_PER_MS = 1_000_000
_MOST_BYTES_OF_PACKETS = 256 << 20
"""Maximum size of a decompressed table of every packet: of six million packets or so."""
_NAME = re.compile(
    r"(?P<stem>.+?)(?:\.bucket_size(?P<bucket>[1-9]\d{0,15}))?\.trim_ms(?P<trim>\d{1,9}(?:\.\d{1,6})?)"
    rf"(?:\.num_worst\d+)?\.(?P<kind>{'|'.join(KINDS)})\.csv(?:\.zst|\.gz)?"
)


@dataclass
class Tables:
    """The tables of one run, by their kinds."""

    folder: Path
    stem: str
    """Common beginning of the file names."""
    trim_ms: str
    files: dict[str, Path] = field(default_factory=dict)
    bucket_ns: int | None = None
    """Bucket size of the histogram."""

    def read(self) -> ForeignRun:
        """Read all of them."""
        packets, warnings = self._packets()
        buckets = self._hist()
        if packets is not None:
            buckets = self._of_packets(packets, buckets)
        worst = self._worst()
        if worst is None and packets is not None:
            worst = packets.worst()
        rate = self._rate(packets, worst, warnings)
        figures = {**self._stats(rate), **self._transferrate()}
        gaps = self._gaps(figures)
        count, doubts = self._counted(buckets, figures)
        warnings += doubts
        if not count:
            raise CaptureError(
                f"{self.folder / self.stem}: expected latencies, got none", code="no-latencies"
            )
        if worst is not None and len(worst.latency_ns) > count:
            raise CaptureError(
                f"{self.files['worst']}: expected at most {count} packets, as"
                f" {'hist' if buckets else 'stats'} says, got {len(worst.latency_ns)}",
                code="packet-count",
            )
        figures |= {"lost": None, **self._lost(figures, count, buckets is not None, warnings)}
        return ForeignRun(
            kind="authors",
            name=self.stem,
            source=str(self.folder / self.stem),
            unit="ns",
            files=self.files,
            bucket_ns=self.bucket_ns,
            trim_ns=int(Decimal(self.trim_ms) * _NS_PER_MS),
            count=count,
            buckets=buckets,
            exact=self._percentiles(),
            worst=worst,
            packets=packets,
            gaps=gaps,
            rate=rate,
            figures=figures,
            warnings=tuple(warnings),
        )

    def _packets(self) -> tuple[EveryPacket | None, list[str]]:
        """Return every packet, and why they are left out if they are."""
        path = self.files.get("latency-ts")
        if path is None:
            return None, []
        try:
            latency, pre, post = read_columns(
                path, ("latency", "prets", "postts"), most_bytes=_MOST_BYTES_OF_PACKETS
            )
        except CaptureError as error:
            if error.code != "file-too-large" or not {"hist", "stats"} & {*self.files}:
                raise
            return None, [f"latency-ts is left out: {error}"]
        _check_sums(path, latency, pre, post)
        return EveryPacket.of(pre, latency), []

    def _of_packets(self, packets: EveryPacket, hist: Buckets | None) -> Buckets:
        """Count every packet, as the histogram must have it."""
        path = self.files["latency-ts"]
        if hist is not None:
            assert self.bucket_ns is not None
            width = np.uint64(self.bucket_ns)
            low_ns, counts = np.unique(packets.latency_ns // width * width, return_counts=True)
            if [*zip(low_ns, counts, strict=True)] != [*zip(hist.low_ns, hist.counts, strict=True)]:
                raise CaptureError(
                    f"{path}: latency-ts and hist are not of the same run: got"
                    f" {len(packets.pre_ns)} latencies, expected {hist.count} in the buckets of"
                    f" {self.files['hist'].name}",
                    code="tables-disagree",
                )
        return packets.buckets(path)

    def _rate(
        self, packets: EveryPacket | None, worst: WorstPackets | None, warnings: list[str]
    ) -> dict[Side, Rate]:
        """Return the packets of each side in each second, on the clock of the packets.

        Some scripts of the authors count seconds from the first packet of a side.
        """
        found: dict[Side, Rate] = {}
        is_guessed = False
        for side in SIDES:
            path = self.files.get(f"packetrate{side}")
            if path is None:
                continue
            start_ns, counts = read_columns(path, ("ts", "count"))
            _check_ascending(path, "ts", start_ns)
            start_ns = start_ns.astype(np.uint64)
            if len(start_ns) and not start_ns[0] and packets is not None:
                later_ns = packets.latency_ns if side == "post" else np.uint64(0)
                start_ns += (packets.pre_ns + later_ns).min()
            elif len(start_ns) and not start_ns[0] and worst is not None and len(worst.pre_ns):
                start_ns += worst.pre_ns.min()
                is_guessed = True
            found[side] = Rate(start_ns, counts.astype(np.uint64))
        if is_guessed:
            warnings.append(
                "when the first packet left is not known: the seconds of packetrate are counted"
                " from the earliest of the worst packets"
            )
        return found

    def _gaps(self, figures: Mapping[str, Figure]) -> dict[Side, Histogram]:
        """Return the time between packets of each side: a gap less than packets."""
        found: dict[Side, Histogram] = {}
        for side in SIDES:
            path = self.files.get(f"jitter{side}")
            if path is None:
                continue
            low_ns, counts = read_columns(path, ("bucket", "count"))
            _check_ascending(path, "bucket", low_ns)
            packets = figures.get(f"{side}_packets")
            if packets is not None:
                kept = int(packets) - int(figures[f"{side}_trimmed"] or 0)
                if int(counts.sum()) != max(0, kept - 1):
                    raise CaptureError(
                        f"{path}: jitter{side} and the number of packets are not of the same run:"
                        f" expected {max(0, kept - 1)} gaps, got {int(counts.sum())}",
                        code="tables-disagree",
                    )
            found[side] = Histogram(low_ns.astype(np.uint64), counts.astype(np.uint64))
        return found

    def _counted(
        self, buckets: Buckets | None, figures: dict[str, Figure]
    ) -> tuple[int, list[str]]:
        """Return the number of latencies, and warnings about it."""
        if buckets is not None:
            return buckets.count, []
        count = figures.get("post_packets")
        if count is None:
            raise CaptureError(
                f"{self.folder / self.stem}: expected a table hist or stats, got"
                f" {', '.join(self.files)}",
                code="no-statistics-table",
                hint="without them nobody knows of how many packets the others are",
            )
        trimmed = int(count) - int(figures["post_trimmed"] or 0)
        return trimmed, [
            f"n is {count_text(trimmed)}, the packets behind the device: without hist, how many of"
            " them were matched is not known"
        ]

    def _lost(
        self, figures: dict[str, Figure], count: int, is_matched: bool, warnings: list[str]
    ) -> dict[str, Figure]:
        """Return the packets sent, and those surely lost: more left than came back."""
        pre, post = figures.get("pre_packets"), figures.get("post_packets")
        if pre is None or post is None:
            return {}
        sent = int(pre) - int(figures["pre_trimmed"] or 0)
        came = int(post) - int(figures["post_trimmed"] or 0)
        least, most = sent - came, sent - count
        if least < 0 or most < 0:
            warnings.append(
                f"losses are unknown: {count_text(sent)} packets before the device,"
                f" {count_text(came)} behind it, {count_text(count)} matched"
            )
            return {}
        if not is_matched and least:
            warnings.append(
                f"{count_text(least)} packets more were seen before the device than behind it: at"
                " least so many are lost, if none was captured twice before it"
            )
        if is_matched and most > least:
            warnings.append(
                f"{count_text(least)} packets more were seen before the device than behind it: at"
                " least so many are lost, if none was captured twice before it, and at most"
                f" {count_text(most)}: {count_text(most - least)} behind it were not matched"
            )
        return {"sent": sent, "lost": least, "loss_ratio": least / sent if sent else None}

    def _hist(self) -> Buckets | None:
        if "hist" not in self.files:
            return None
        path = self.files["hist"]
        low, counts = read_columns(path, ("latency_bucket", "count"))
        if self.bucket_ns is None:
            raise CaptureError(
                f"{path}: expected .bucket_sizeN. in the name, the bucket size", code="bucket-size"
            )
        kept = counts > 0
        low_ns = low[kept]
        wrong = np.flatnonzero(low_ns % self.bucket_ns)
        if len(wrong):
            raise CaptureError(
                f"{path}: latency_bucket: expected multiples of {self.bucket_ns}, as the name says,"
                f" got {low_ns[wrong[0]]}",
                code="bucket-edge",
            )
        edges = low_ns.tolist()
        return buckets_of(
            path, edges, [low + self.bucket_ns for low in edges], counts[kept].tolist()
        )

    def _percentiles(self) -> dict[float, int]:
        if "percentiles" not in self.files:
            return {}
        path = self.files["percentiles"]
        quantiles, values = read_columns(path, ("percentile", "value"), fractions=("percentile",))
        if len(wrong := np.flatnonzero(~((quantiles >= 0) & (quantiles <= 1)))):
            raise CaptureError(
                f"{path}: row {wrong[0] + 1}: percentile: expected 0 to 1, got"
                f" {quantiles[wrong[0]]:g}",
                code="quantile",
            )
        return dict(zip(quantiles.tolist(), values.tolist(), strict=True))

    def _worst(self) -> WorstPackets | None:
        if "worst" not in self.files:
            return None
        path = self.files["worst"]
        latency, pre, post = read_columns(path, ("latency", "prets", "postts"))
        _check_sums(path, latency, pre, post)
        order = np.lexsort((pre, -latency.astype(np.int64)))
        return WorstPackets(latency[order], pre[order], post[order])

    def _stats(self, rate: Mapping[Side, Rate]) -> dict[str, Figure]:
        """Return the packets of each side; without a trim, their rate tells them, too."""
        counted = {side: int(each.counts.sum()) for side, each in rate.items()}
        if "stats" not in self.files:
            if len(counted) < len(SIDES) or Decimal(self.trim_ms):
                return {}
            figures: dict[str, Figure] = {}
            for side, packets in counted.items():
                figures |= {f"{side}_packets": packets, f"{side}_trimmed": 0}
            return figures
        path = self.files["stats"]
        names = ("pre_received", "post_received", "pre_received_trimmed", "post_received_trimmed")
        columns = read_columns(path, names)
        if len(columns[0]) != 1:
            raise CaptureError(f"{path}: expected one row, got {len(columns[0])}", code="csv-row")
        pre, post, pre_kept, post_kept = (int(column[0]) for column in columns)
        if pre_kept > pre or post_kept > post:
            raise CaptureError(
                f"{path}: expected no more packets with the trim than without it",
                code="trimmed-count",
            )
        for side, kept in zip(SIDES, (pre_kept, post_kept), strict=True):
            if counted.get(side, kept) != kept:
                raise CaptureError(
                    f"{path}: stats and packetrate{side} are not of the same run: expected"
                    f" {counted[side]} packets, got {kept}",
                    code="tables-disagree",
                )
        return {
            "pre_packets": pre,
            "post_packets": post,
            "pre_trimmed": pre - pre_kept,
            "post_trimmed": post - post_kept,
            "transfer_rate": post_kept / pre_kept if pre_kept else None,
        }

    def _transferrate(self) -> dict[str, Figure]:
        if "transferrate" not in self.files:
            return {}
        sides = {"pre_second_mean_pps": "pre_pkts_per_second"}
        sides["post_second_mean_pps"] = "post_pkts_per_second"
        columns = read_columns(
            self.files["transferrate"], tuple(sides.values()), fractions=tuple(sides.values())
        )
        found = zip(sides, columns, strict=True)
        return {name: float(column[0]) for name, column in found if len(column) == 1}


def grouped(paths: Iterable[Path]) -> list[Tables]:
    """Tables by the run that they are of; other files are left out."""
    found: dict[tuple[Path, str, str], Tables] = {}
    for path in paths:
        name = _NAME.fullmatch(path.name)
        if name is None:
            continue
        key = path.parent, name["stem"], name["trim"]
        tables = found.setdefault(key, Tables(*key))
        if name["kind"] in tables.files:
            other = tables.files[name["kind"]]
            raise CaptureError(
                f"{path}: a second table {name['kind']} of {name['stem']}, beside {other.name}",
                code="table-twice",
                hint="leave one of them",
            )
        tables.files[name["kind"]] = path
        if name["kind"] == "hist" and name["bucket"]:
            tables.bucket_ns = int(name["bucket"])
    return [*found.values()]


def _check_sums(path: Path, latency: Numbers, pre: Numbers, post: Numbers) -> None:
    wrong = np.flatnonzero(pre + latency != post)
    if len(wrong):
        at = wrong[0]
        raise CaptureError(
            f"{path}: row {at + 1}: postts: expected prets + latency,"
            f" {pre[at] + latency[at]}, got {post[at]}",
            code="sum-of-parts",
        )


def _check_ascending(path: Path, name: str, values: Numbers) -> None:
    wrong = np.flatnonzero(values[1:] <= values[:-1])
    if len(wrong):
        at = wrong[0] + 1
        raise CaptureError(
            f"{path}: row {at + 1}: {name}: expected more than {values[at - 1]}, got {values[at]}",
            code="csv-order",
        )
