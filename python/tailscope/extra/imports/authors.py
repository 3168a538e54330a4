"""Tables of the papers' authors, as CSV: hist, percentiles, stats, transferrate and worst."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from tailscope.exceptions import CaptureError
from tailscope.extra.imports.foreign import ForeignRun, WorstPackets, buckets_of
from tailscope.store.authors import read_columns
from tailscope.units import count_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tailscope.engine.analysis import Figure
    from tailscope.models.buckets import Buckets

KINDS = ("hist", "percentiles", "stats", "transferrate", "worst")
"""Tables that are read."""
UNREAD = ("latency-ts", "packetratepre", "packetratepost", "jitterpre", "jitterpost")
"""Tables that are not."""

_NS_PER_MS = 1_000_000
_NAME = re.compile(
    r"(?P<stem>.+?)(?:\.bucket_size(?P<bucket>[1-9]\d{0,15}))?\.trim_ms(?P<trim>\d{1,9}(?:\.\d{1,6})?)"
    rf"(?:\.num_worst\d+)?\.(?P<kind>{'|'.join((*KINDS, *UNREAD))})\.csv(?:\.zst|\.gz)?"
)


@dataclass
class Tables:
    """The tables of one run, by their kinds."""

    folder: Path
    stem: str
    """What their names begin with."""
    trim_ms: str
    files: dict[str, Path] = field(default_factory=dict)
    bucket_ns: int | None = None
    """Of the histogram."""
    unread: list[Path] = field(default_factory=list)

    def read(self) -> ForeignRun:
        """Read all of them."""
        buckets = self._hist()
        figures = {**self._stats(), **self._transferrate()}
        count, warnings = self._counted(buckets, figures)
        if not count:
            raise CaptureError(
                f"{self.folder / self.stem}: expected latencies, got none", code="no-latencies"
            )
        worst = self._worst()
        exact = self._percentiles()
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
            exact=exact,
            worst=worst,
            figures=figures,
            warnings=tuple(warnings),
        )

    def _counted(
        self, buckets: Buckets | None, figures: dict[str, Figure]
    ) -> tuple[int, list[str]]:
        """How many latencies there are, and what must be known of that."""
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
        """What was sent, and what surely did not come: more only left than came back."""
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
        wrong = np.flatnonzero(pre + latency != post)
        if len(wrong):
            at = wrong[0]
            raise CaptureError(
                f"{path}: row {at + 1}: postts: expected prets + latency,"
                f" {pre[at] + latency[at]}, got {post[at]}",
                code="sum-of-parts",
            )
        order = np.lexsort((pre, -latency.astype(np.int64)))
        return WorstPackets(latency[order], pre[order], post[order])

    def _stats(self) -> dict[str, Figure]:
        if "stats" not in self.files:
            return {}
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
        if name["kind"] in UNREAD:
            tables.unread.append(path)
            continue
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
    return [tables for tables in found.values() if tables.files]
