"""``tailscope run --to``: measure the latency of every packet to another host and back."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.fields import option_of
from tailscope.cli.options import (
    STANDARD,
    DryRun,
    Exact,
    JsonFile,
    Quiet,
    Verbose,
    flag,
    option,
    write_json,
)
from tailscope.cli.panels import MEASUREMENT, OUTPUT, TRAFFIC
from tailscope.cli.status import INTERRUPTED
from tailscope.cli.terminal import say
from tailscope.exceptions import UsageError
from tailscope.units import duration_ns, duration_text, positive_duration_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.cli.view import View
    from tailscope.extra.hosts.session import Asked, HostsPlan
    from tailscope.plan.field import Field

TXTIMES = ("auto", "on", "off")
EXAMPLE = "tailscope run --to 192.0.2.1 --rate 1k --duration 60s --out runs/path"


def command(
    to: Annotated[
        str,
        option("--to", "HOST[:PORT]", "The other host, where `tailscope reflect` runs.", TRAFFIC),
    ],
    rate: Annotated[str, option_of("rate", own_default=True, panel=TRAFFIC)] = "1k",
    pattern: Annotated[str, option_of("pattern", own_default=True, panel=TRAFFIC)] = "cbr",
    burst: Annotated[int, option_of("burst", own_default=True, panel=TRAFFIC)] = 1,
    burst_gap: Annotated[str, option_of("burst_gap", own_default=True, panel=TRAFFIC)] = "0ns",
    size: Annotated[
        str,
        option(
            "--size",
            "BYTES",
            "Size of a frame in bytes, 64 to 1518, check sequence included; imix, or a mix as"
            " SIZE:WEIGHT,...; frames that have no room for a query are longer.",
            TRAFFIC,
        ),
    ] = "64",
    flows: Annotated[
        int,
        option(
            "--flows", "N", "Number of flows, with a source port each.", TRAFFIC, min=1, max=256
        ),
    ] = 1,
    source_port: Annotated[
        int,
        option(
            "--source-port",
            "PORT",
            "Source port of the first flow; 0 takes free ones.",
            TRAFFIC,
            min=0,
            max=65535,
        ),
    ] = 0,
    dscp: Annotated[
        int | None,
        option(
            "--dscp",
            "DSCP",
            "Class of service of queries and answers.  [default: none]",
            TRAFFIC,
            min=0,
            max=63,
        ),
    ] = None,
    plain: Annotated[
        bool, flag("--plain", "Ask for nothing beyond RFC 8762, nor TWAMP light.", TRAFFIC)
    ] = False,
    key_file: Annotated[
        Path | None,
        option(
            "--key-file",
            "FILE",
            "File with the key that the reflector has: packets are sealed by it.  [default: none]",
            TRAFFIC,
        ),
    ] = None,
    seed: Annotated[int, option_of("seed", own_default=True, panel=TRAFFIC)] = 1,
    duration: Annotated[str, option_of("duration", own_default=True, panel=MEASUREMENT)] = "10s",
    poll: Annotated[
        str,
        option("--poll", "HOW", "How to wait: sleep, or busy (a CPU).", MEASUREMENT),
    ] = "sleep",
    txtime: Annotated[
        str,
        option(
            "--txtime",
            "WHEN",
            "Let the queue of the interface (fq) send each packet at its time: on, off, or auto,"
            " where it can.",
            MEASUREMENT,
        ),
    ] = "auto",
    card: Annotated[
        str | None,
        option(
            "--card",
            "LINK",
            "Link whose card takes the times of packets (hardware timestamps).  [default: the"
            " kernel takes them]",
            MEASUREMENT,
        ),
    ] = None,
    trim: Annotated[str, option_of("trim", own_default=True, panel=MEASUREMENT)] = "0s",
    window: Annotated[str, option_of("window", own_default=True, panel=MEASUREMENT)] = "1s",
    bucket_size: Annotated[str, option_of("bucket", own_default=True, panel=OUTPUT)] = "100ns",
    worst: Annotated[int, option_of("worst", own_default=True, panel=OUTPUT)] = 5000,
    out: Annotated[Path | None, option("--out -o", "DIR", "Run directory.", OUTPUT)] = None,
    json_file: JsonFile = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    exact: Exact = False,
    verbose: Verbose = False,
) -> int:
    """The latency is the round trip without the time in the other host; it has no device."""
    given = {
        "to": to,
        "rate": rate,
        "pattern": pattern,
        "burst": burst,
        "burst-gap": burst_gap,
        "size": size,
        "flows": flows,
        "source-port": source_port,
        "dscp": dscp,
        "plain": plain,
        "key-file": key_file,
        "seed": seed,
        "duration": duration,
        "poll": poll,
        "txtime": txtime,
        "card": card,
        "trim": trim,
        "window": window,
        "bucket-size": bucket_size,
        "worst": worst,
    }
    from tailscope.cli.view import View
    from tailscope.extra.hosts.ends import address_of, check_poll
    from tailscope.extra.hosts.session import HostsPlan
    from tailscope.store.records.about import AboutRecord
    from tailscope.units import mix_parts

    check_poll(poll)
    if txtime not in TXTIMES:
        raise UsageError(f"--txtime: got {txtime!r}, expected auto, on or off", code="txtime")
    if card is not None and txtime == "on":
        raise UsageError("--card and --txtime on cannot be combined", code="card-and-txtime")
    gap_ns, pps = duration_ns(burst_gap, "--burst-gap"), _read("rate", rate)
    size_bytes = _field("size").read(size)
    for each, _ in mix_parts(size_bytes) if isinstance(size_bytes, str) else ((size_bytes, 1),):
        _field("size").check(each)
    lasts_ns = positive_duration_ns(duration, "--duration")
    about = AboutRecord(
        dut=f"path to {to}",
        rate_pps=pps,
        pattern=pattern,
        burst=_read("burst", burst),
        size_bytes=size_bytes if isinstance(size_bytes, int) else None,
        flows=flows,
        clock="kernel-software" if card is None else "kernel-hardware",
    )
    plan = HostsPlan(
        to=to,
        address=address_of(to),
        rate_pps=pps,
        pattern=_pattern(pattern, burst, gap_ns),
        about=about,
        size=str(size_bytes),
        flows=flows,
        source_port=source_port,
        dscp=dscp,
        duration_ns=lasts_ns,
        window_ns=positive_duration_ns(window, "--window"),
        trim_ns=_trim_ns(trim, lasts_ns),
        bucket_ns=positive_duration_ns(bucket_size, "--bucket-size"),
        worst=worst,
        seed=seed,
        poll=poll,
        txtime=txtime,
        card=card,
        plain=plain,
        key_file=key_file,
        command=_command(given),
        out=_folder(to) if out is None else out,
    )
    if dry_run:
        for name, text in _lines(plan):
            print(f"{name:<15}{text}")
        return 0
    return _run(plan, json_file, View(exact, verbose), quiet=quiet)


def _command(given: Mapping[str, object]) -> str:
    """Return the command, for a shell, with all options spelled out."""
    words = ["tailscope", "run"]
    for name, value in given.items():
        if value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False:
            words += [f"--{name}", str(value)]
    return shlex.join(words)


def _field(name: str) -> Field:
    from tailscope.plan.fields import fields_on

    return fields_on("run")[name]


def _read(name: str, given: str | int) -> int:
    """Read a number that `run` has too, within the same limits."""
    found = _field(name).read(given)
    _field(name).check(found)
    assert isinstance(found, int), "it holds a number"
    return found


def _trim_ns(trim: str, lasts_ns: int) -> int:
    found = duration_ns(trim, "--trim")
    if found >= lasts_ns:
        raise UsageError(
            f"--trim: got {trim}, expected less than --duration ({duration_text(lasts_ns)}):"
            " no packet would be left",
            code="trim",
        )
    return found


def _pattern(pattern: str, burst: int, gap_ns: int) -> str:
    """Return when queries leave, as the sender takes it."""
    if pattern not in ("cbr", "poisson"):
        raise UsageError(
            f"--pattern: got {pattern!r}, expected cbr or poisson", code="hosts-pattern"
        )
    if burst == 1:
        return pattern
    return f"{'burst' if pattern == 'cbr' else pattern}:{burst},{gap_ns}ns"


def _folder(to: str) -> Path:
    name = "".join(letter if letter.isalnum() else "-" for letter in to).strip("-")
    return Path("runs") / f"to-{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def _lines(plan: HostsPlan) -> list[tuple[str, str]]:
    flows = "1 flow" if plan.flows == 1 else f"{plan.flows} flows"
    service = "" if plan.dscp is None else f", DSCP {plan.dscp}"
    return [
        ("to", f"{plan.to} ({plan.address})"),
        (
            "traffic",
            f"{plan.rate_pps:,} packets/s, {plan.pattern}, frames of {plan.size} bytes, {flows}"
            f"{service}",
        ),
        ("duration", f"{plan.duration_ns / 1e9:g} s, and up to {plan.window_ns / 1e9:g} s more"),
        ("waits by", plan.poll),
        ("txtime", plan.txtime),
        ("times", "the kernel's" if plan.card is None else f"those of the card of {plan.card}"),
        ("out", str(plan.out)),
    ]


def _run(plan: HostsPlan, json_file: str | None, view: View, *, quiet: bool) -> int:
    from tailscope.extra.hosts.session import ask
    from tailscope.store.records.base import as_content

    if not quiet:
        lasts = f"{plan.duration_ns / 1e9:g} s"
        say(f"measuring to {plan.to} for {lasts}", stream=sys.stderr)
    asked = ask(plan)
    if json_file is not None:
        figures = {**asked.analysis.summary, "hosts": as_content(asked.record)}
        write_json(json_file, {**figures, "partial": asked.info.partial})
    if json_file != STANDARD:
        _print(plan, asked, view)
    if asked.interrupted:
        say("interrupted: everything measured until then was kept", stream=sys.stderr)
        return INTERRUPTED
    return 1 if asked.info.partial else 0


def _print(plan: HostsPlan, asked: Asked, view: View) -> None:
    from tailscope.cli.figures import print_table
    from tailscope.extra.hosts.explain import show_ends
    from tailscope.extra.hosts.words import FLOW_HEADER, flow_rows
    from tailscope.store.reader import read_figures

    print_table(read_figures(plan.out), asked.info, [plan.out], view)
    print()
    if len(asked.record.flows) > 1:
        view.print_table(FLOW_HEADER, [flow_rows(asked.record)], ("min",))
    show_ends(asked.record, view)
