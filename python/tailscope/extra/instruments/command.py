"""``tailscope calibrate instruments``: one device, several instruments, the known truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.fields import option_of
from tailscope.cli.options import Quiet, option, packet_rate
from tailscope.cli.terminal import say, say_named
from tailscope.cli.view import View
from tailscope.units import count_text, duration_text, positive_duration_ns

if TYPE_CHECKING:
    from tailscope.extra.instruments.compare import Seen

EXAMPLE = "tailscope calibrate instruments --out runs/instruments"


def command(
    out: Annotated[Path, option("--out -o", "DIR", "Folder for the figure and its data.")] = Path(
        "instruments"
    ),
    rate: Annotated[str, option_of("rate", own_default=True)] = "5k",
    duration: Annotated[
        str, option_of("duration", "Duration of each measurement.", own_default=True)
    ] = "5s",
    cpus: Annotated[str | None, option_of("cpus")] = None,
    quiet: Quiet = False,
) -> int:
    from tailscope.cli.live import LiveLine
    from tailscope.extra.instruments.compare import TRUTH, compare
    from tailscope.extra.instruments.drawing import instruments
    from tailscope.report.drawing import write_pictures
    from tailscope.testbed.cores import pick_cores, read_topology

    cores = pick_cores(read_topology(), ("generator", "dut"), cpus)
    line = LiveLine(quiet=quiet)
    results = compare(
        cores,
        rate_pps=packet_rate(rate),
        duration_ns=positive_duration_ns(duration, "--duration"),
        tell=lambda name: line.show_step(f"measuring with {name}"),
    )
    _print(results)
    seen = {
        instrument.name: instrument.analysis
        for instrument in results
        if instrument.analysis is not None
    }
    for path in write_pictures([instruments(seen, TRUTH)], out, ["svg"]) if seen else ():
        say(str(path))
    return 0 if seen else 1


def _print(results: list[Seen]) -> None:
    from tailscope.extra.instruments.compare import HIGH_NS, LOW_NS

    names = ("p50", "p90", "p99", "p999")
    header = ("instrument", "packets", "p50", "p90", "p99", "p99.9")
    rows = [("truth", "", *map(duration_text, (LOW_NS, LOW_NS, LOW_NS, HIGH_NS)))]
    for seen in results:
        if seen.analysis is None:
            say_named("left out", f"{seen.name}: {seen.why_not}")
            continue
        summary = seen.analysis.summary
        cells = [
            duration_text(float(summary[f"latency_ns_{name}"] or 0))
            if summary[f"latency_ns_{name}_supported"]
            else "-"
            for name in names
        ]
        count = count_text(int(summary["count"] or 0))
        rows.append((seen.name, count, *cells))
    View().print_table(header, [rows], ("packets",))
