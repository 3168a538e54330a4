"""A plan says everything that a run will do; it can be printed, stored and run again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tailscope.duts.dataplane import LOOP, dut_named
from tailscope.exceptions import UsageError
from tailscope.testbed.wires import wire_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.testbed.cores import Cores

__all__ = ["RunPlan"]

PATTERNS = ("cbr", "poisson")
_MOST_BURST = 512


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """One run: a device, a wire, traffic, and how long.

    Attributes
    ----------
    dut : str
        The device's name.
    dut_options : Mapping of str to str
    wire : str
        The kind of wire.
    wire_options : Mapping of str to str
    rate_pps : int
        Mean rate of the generator.
    pattern : str
        ``cbr`` or ``poisson``.
    burst : int
        Packets back to back.
    size_bytes : int
        Of a frame, with its check sequence.
    flows : int
        Flows, which differ by source port.
    seed : int
        Of the Poisson process.
    warm_up_ns, duration_ns : int
        How long to send before the measurement, and during it.
    captures : bool
        Whether to keep captures of both sides.
    trim_ns, window_ns, bucket_ns, worst
        As in `tailscope.analyze`.
    """

    dut: str
    dut_options: Mapping[str, str] = field(default_factory=dict)
    wire: str = "memif"
    wire_options: Mapping[str, str] = field(default_factory=dict)
    rate_pps: int = 10_000
    pattern: str = "cbr"
    burst: int = 1
    size_bytes: int = 64
    flows: int = 1
    seed: int = 1
    warm_up_ns: int = 1_000_000_000
    duration_ns: int = 10_000_000_000
    captures: bool = False
    trim_ns: int = 0
    window_ns: int = 5_000_000_000
    bucket_ns: int = 100
    worst: int = 5000

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise UsageError(f"--pattern: got {self.pattern!r}, expected {' or '.join(PATTERNS)}")
        if not 1 <= self.burst <= _MOST_BURST:
            raise UsageError(f"--burst: got {self.burst}, expected 1 to {_MOST_BURST} packets")
        if self.burst > 1 and self.pattern != "cbr":
            raise UsageError(f"--burst: got {self.burst}, expected 1 with --pattern poisson")
        if not 64 <= self.size_bytes <= 1518:
            raise UsageError(f"--size: got {self.size_bytes}, expected 64 to 1518 bytes")
        if not 1 <= self.flows < 1 << 16:
            raise UsageError(f"--flows: got {self.flows}, expected 1 to 65535")
        for option, value in (("--rate", self.rate_pps), ("--duration", self.duration_ns)):
            if value < 1:
                raise UsageError(f"{option}: got {value}, expected more")
        dut_named(self.dut).arguments(self.dut_options)
        wire_named(self.wire, self.wire_options)

    @property
    def pollers(self) -> int:
        """How many processes poll."""
        return 1 if self.dut == LOOP else 2

    @property
    def instrument(self) -> str:
        """What has a floor of its own: the wire, and what drives it."""
        return wire_named(self.wire, self.wire_options).instrument

    @property
    def stall_ns(self) -> int:
        """A turn of a polling loop that takes longer is a stall."""
        return wire_named(self.wire, self.wire_options).stall_ns

    def record(self) -> dict[str, Any]:
        """The plan as ``run.json`` keeps it."""
        return {"command": "run", **asdict(self), "stall_ns": self.stall_ns}

    def generator_options(self) -> list[str]:
        """Arguments of ``tailscope-dp gen``, apart from folders."""
        return [
            f"--rate={self.rate_pps}",
            f"--pattern={self.pattern}",
            f"--burst={self.burst}",
            f"--size={self.size_bytes}",
            f"--flows={self.flows}",
            f"--seed={self.seed}",
            f"--warm-up={self.warm_up_ns}ns",
            f"--duration={self.duration_ns}ns",
            f"--stall-ns={self.stall_ns}",
        ]

    def describe(self, cores: Cores) -> dict[str, str]:
        """The plan in words, for ``--dry-run``."""
        from tailscope.wording import device_text, traffic_text

        plan = self.record()
        roles = ["generator", "DuT"][: self.pollers]
        pinned = ", ".join(
            f"{role} on CPU {cpu}" for role, cpu in zip(roles, cores.pollers, strict=True)
        )
        return {
            "device": device_text(plan),
            "wire": self.wire,
            "traffic": traffic_text(plan),
            "packets": f"{self.rate_pps * self.duration_ns // 1_000_000_000:,}",
            "cores": f"{pinned}; all else on CPU {', '.join(map(str, cores.housekeeping))}",
        }
