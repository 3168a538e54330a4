"""``tailscope plan``: how long must be measured for a quantile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from tailscope.cli.fields import option_of
from tailscope.cli.options import STANDARD, JsonFile, option, packet_rate, tail_quantile, write_json
from tailscope.cli.status import UNDECIDED
from tailscope.cli.table import print_table
from tailscope.cli.terminal import say
from tailscope.exceptions import RunError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXAMPLE = "tailscope plan --quantile p99.999 --rate 10k"

_LEAST_BEYOND = 1e-12
_BEYOND = (0, 1, 10)
_HEADER = ("statement", "packets", "lasts", "with bursts", "lasts")
_NOTHING = "-"


def command(
    quantile: Annotated[str, option("--quantile", "Q", "Quantile, such as p99.999.")],
    rate: Annotated[str, option_of("rate", own_default=True)],
    relative_error: Annotated[
        float | None,
        option(
            "--relative-error",
            "E",
            "Relative error to allow, such as 0.1, of the share beyond the quantile (and,"
            " with --from, of the latency).",
        ),
    ] = None,
    from_run: Annotated[
        Path | None, option("--from", "RUN", "Run with typical latencies and bursts.")
    ] = None,
    json_file: JsonFile = None,
) -> int:
    """Exit status 3: the run of --from has too few packets for an answer."""
    return _run(_plan(quantile, rate, relative_error, from_run, json_file))


@dataclass(frozen=True)
class SampleRequest:
    """The quantile and the rate to plan for, with the output."""

    quantile: float
    rate_pps: int
    relative_error: float | None
    from_run: Path | None
    json_file: str | None


def _plan(
    quantile: str,
    rate: str,
    relative_error: float | None,
    from_run: Path | None,
    json_file: str | None,
) -> SampleRequest:
    q = tail_quantile(quantile)
    if not 0 < q <= 1 - _LEAST_BEYOND:
        raise UsageError(
            f"--quantile: expected more than 0 and less than 1, got {q:g}",
            code="quantile",
            hint="0.99999 is p99.999",
        )
    if relative_error is not None and not 0 < relative_error < 1:
        raise UsageError(
            f"--relative-error: expected more than 0 and less than 1, got {relative_error:g}",
            code="relative-error",
        )
    packets_per_s = packet_rate(rate)
    if not packets_per_s:
        raise UsageError(f"--rate: expected at least 1 packet per second, got {rate}", code="rate")
    return SampleRequest(q, packets_per_s, relative_error, from_run, json_file)


def _run(plan: SampleRequest) -> int:
    latency_ns = None if plan.from_run is None else _latencies(plan.from_run)
    sizes = _sizes(plan, latency_ns)
    write_json(plan.json_file, _record(plan, sizes))
    if plan.json_file != STANDARD:
        _print(plan, sizes)
    return UNDECIDED if sizes.reason else 0


def _latencies(path: Path) -> NDArray[np.float64]:
    import numpy as np

    from tailscope.store.reader import open_packets, read_run

    with open_packets(path, read_run(path).info) as packets:
        (latency_ns,) = packets.columns("latency_ns")
    if not len(latency_ns):
        raise RunError(f"{path}: no packet of this run has a latency", code="no-latency")
    return np.asarray(latency_ns, np.float64)


class _Sizes(NamedTuple):
    """The number of packets that each statement takes."""

    packets: dict[str, int | None]
    """Number of packets, by statement; None if it is not known, or was not asked for."""
    design_effect: float | None
    """Number of packets of the run that count as one."""
    reason: str | None
    """Reason why the latency itself cannot be known."""

    def with_bursts(self, name: str) -> int | None:
        """Return the same numbers for packets that are delayed in bursts, as in that run."""
        count = self.packets[name]
        if count is None or self.design_effect is None:
            return None
        return math.ceil(count * self.design_effect)


def _sizes(plan: SampleRequest, latency_ns: NDArray[np.float64] | None) -> _Sizes:
    from tailscope.models import samples
    from tailscope.models.counting import design_effect

    q, error, design = plan.quantile, plan.relative_error, None
    latency = samples.SampleSize(None)
    if latency_ns is not None:
        design = design_effect(latency_ns, latency_ns > samples.quantile_of(latency_ns, q))
        if error is not None:
            latency = samples.packets_for_latency(latency_ns, q, error)
    packets = {
        "supported": samples.packets_for_support(q),
        "interval": samples.packets_for_interval(q),
        **{f"bound_{beyond}_beyond": samples.packets_for_bound(q, beyond) for beyond in _BEYOND},
        "share": None if error is None else samples.packets_for_share(q, error),
        "latency": latency.packets,
    }
    return _Sizes(packets, design, latency.reason)


def _record(plan: SampleRequest, sizes: _Sizes) -> dict[str, float | str | None]:
    from tailscope.models.estimate import LEVEL

    record: dict[str, float | str | None] = {
        "quantile": plan.quantile,
        "rate_pps": plan.rate_pps,
        "level": LEVEL,
        "relative_error": plan.relative_error,
        "design_effect": sizes.design_effect,
    }
    for name, count in sizes.packets.items():
        for suffix, each in (("", count), ("_with_bursts", sizes.with_bursts(name))):
            record[f"{name}_packets{suffix}"] = each
            record[f"{name}_s{suffix}"] = None if each is None else each / plan.rate_pps
    return {**record, "reason": sizes.reason}


def _print(plan: SampleRequest, sizes: _Sizes) -> None:
    from tailscope.registry import offered
    from tailscope.units import percentile_name

    name = percentile_name(plan.quantile)
    error = "" if plan.relative_error is None else f"within {plan.relative_error:.3g} of itself"
    statements = {
        "supported": f"{name} is supported: 10 packets beyond",
        "interval": f"{name} has an interval of 95 %",
        "bound_0_beyond": f"{name} is below a limit, with 95 %: none beyond",
        "bound_1_beyond": "  the same, 1 beyond",
        "bound_10_beyond": "  the same, 10 beyond",
        "share": f"the share beyond is known {error}",
        "latency": f"{name} is known {error}",
    }
    rows = [
        (text, *_amount(plan, sizes.packets[key]), *_amount(plan, sizes.with_bursts(key)))
        for key, text in statements.items()
        if sizes.packets[key] is not None
    ]
    print_table(_HEADER, [rows])
    if sizes.design_effect is None:
        say("more packets are needed if delays come in bursts: --from RUN shows how many")
    else:
        say(f"a burst counts as one: {sizes.design_effect:.1f} packets in that run")
    if sizes.reason is not None:
        say(f"{name} itself: {sizes.reason}")
    for tell_next in () if plan.from_run is None else offered("next_run"):
        if sentence := tell_next(plan.from_run, plan.quantile):
            say(sentence)


def _amount(plan: SampleRequest, packets: int | None) -> tuple[str, str]:
    from tailscope.units import count_text, long_text

    if packets is None:
        return _NOTHING, _NOTHING
    return count_text(packets), long_text(packets / plan.rate_pps)
