"""The clauses that tests follow, by document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Clause:
    """A clause of a standard."""

    document: str
    section: str
    """Its number, or its title where the number is not what it is known by."""
    title: str
    """The subject of the clause."""

    @property
    def cited(self) -> str:
        """The clause as a report cites it."""
        if self.section[0].isdecimal():
            return f"{self.document} §{self.section}"
        return f"{self.document}, {self.section}"


_RFC2544, _RFC8219, _RFC9971 = "RFC 2544", "RFC 8219", "RFC 9971"
_TST009 = "ETSI GS NFV-TST 009"

FRAME_SIZES: Final = Clause(_RFC2544, "9.1", "frame sizes on Ethernet")
VERIFYING_FRAMES: Final = Clause(_RFC2544, "10", "verifying received frames")
BIDIRECTIONAL: Final = Clause(_RFC2544, "14", "bidirectional traffic")
MEDIA_MAXIMUM: Final = Clause(_RFC2544, "20", "maximum frame rate")
TRIAL: Final = Clause(_RFC2544, "23", "trial description")
TRIAL_DURATION: Final = Clause(_RFC2544, "24", "trial duration")
THROUGHPUT: Final = Clause(_RFC2544, "26.1", "throughput")
LATENCY: Final = Clause(_RFC2544, "26.2", "latency")
LOSS: Final = Clause(_RFC2544, "26.3", "frame loss rate")
BACK_TO_BACK: Final = Clause(_RFC2544, "26.4", "back-to-back frames")
RECOVERY: Final = Clause(_RFC2544, "26.5", "system recovery")
RESET: Final = Clause(_RFC2544, "26.6", "reset")
SOAK: Final = Clause("no standard", "a long trial at the throughput", "stability of the throughput")
STORE_AND_FORWARD: Final = Clause("RFC 1242", "3.8", "latency, by the kind of device")
B2B_BUFFERS: Final = Clause("RFC 9004", "Benchmark Calculations", "buffer time")

FRAME_SIZES_8219: Final = Clause(_RFC8219, "5.1.1", "frame sizes on Ethernet")
THROUGHPUT_8219: Final = Clause(_RFC8219, "7.1", "throughput")
LATENCY_8219: Final = Clause(_RFC8219, "7.2", "typical and worst-case latency")
PDV: Final = Clause(_RFC8219, "7.3.1", "packet delay variation")
IPDV: Final = Clause(_RFC8219, "7.3.2", "inter-packet delay variation")
LOSS_8219: Final = Clause(_RFC8219, "7.4", "frame loss rate")
BACK_TO_BACK_8219: Final = Clause(_RFC8219, "7.5", "back-to-back frames")
RECOVERY_8219: Final = Clause(_RFC8219, "7.6", "system recovery")
RESET_8219: Final = Clause(_RFC8219, "7.7", "reset")
SUMMARY_8219: Final = Clause(
    _RFC8219, "Summarizing Function and Variation", "median and percentiles of repetitions"
)

TST_SEARCH: Final = Clause(_TST009, "12.3.3", "binary search with loss verification")
TST_CAPACITY: Final = Clause(_TST009, "Capacity with a permitted loss ratio", "capacity")

MLR_2544: Final = Clause(
    _RFC9971, "MLRsearch Compliant with RFC 2544", "a goal of 60 s trials without loss"
)
MLR_TST009: Final = Clause(
    _RFC9971, "MLRsearch Compliant with TST009", "a goal that repeats trials with loss"
)
MLR_RESULTS: Final = Clause(
    _RFC9971, "Regular Goal Result", "Relevant Bounds, Conditional Throughput"
)
