"""``tailscope calibrate --instruments``: instruments against devices of known latency."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.fields import option_of
from tailscope.cli.options import STANDARD, JsonFile, Quiet, option, packet_rate, write_json
from tailscope.cli.terminal import say, say_named
from tailscope.cli.view import View
from tailscope.units import duration_text, positive_duration_ns, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Collection

    from tailscope.extra.instruments.board import Board, Cell

EXAMPLE = "tailscope calibrate --instruments tailscope,ping,irtt --truths constant,stalls"

ALL = "all"
_SHOWN = ("p50", "p90", "p99", "p99.9", "mean", "max", "lost", "reordered")


def command(
    instruments: Annotated[
        str,
        option("--instruments", "NAMES", f"Instruments, joined by commas, or {ALL}."),
    ] = ALL,
    truths: Annotated[
        str, option("--truths", "NAMES", f"Devices of known latency, or {ALL}.")
    ] = ALL,
    rate: Annotated[str, option_of("rate", own_default=True)] = "1k",
    duration: Annotated[
        str, option_of("duration", "Duration of each measurement.", own_default=True)
    ] = "5s",
    repeats: Annotated[int, option("--repeats", "N", "Measurements of each cell.", min=1)] = 5,
    cpus: Annotated[str | None, option_of("cpus")] = None,
    json_file: JsonFile = None,
    quiet: Quiet = False,
) -> int:
    """Intervals reach from the least to the largest repeat.

    With five repeats, the median lies there with 94 %.
    """
    from tailscope.cli.live import LiveLine
    from tailscope.extra.instruments.board import INSTRUMENTS, measure
    from tailscope.extra.instruments.cpu_time import cpu_time, others_share
    from tailscope.extra.instruments.truths import truths as all_truths
    from tailscope.testbed.cores import pick_cores, read_topology

    rate_pps, duration_ns = packet_rate(rate), positive_duration_ns(duration, "--duration")
    known = all_truths(rate_pps)
    names = _chosen("--instruments", instruments, INSTRUMENTS, "instrument")
    wanted = {name: known[name] for name in _chosen("--truths", truths, known, "truth")}
    cores = pick_cores(read_topology(), ("generator", "dut"), cpus)
    began = cpu_time()
    about = {truth: each.about for truth, each in wanted.items()}
    settings = {"rate_pps": rate_pps, "duration_ns": duration_ns, "repeats": repeats}

    def keep(board: Board) -> None:
        """Write what there is: hours of measurements shall not be lost by what comes later."""
        machine = {"cpus": os.cpu_count() or 1, "others_cpu_share": others_share(began, cpu_time())}
        content = {**settings, **machine, "truths": about, **_content(names, board)}
        write_json(json_file, content)

    with LiveLine(quiet=quiet) as line:
        board = measure(
            names,
            wanted,
            cores,
            rate_pps=rate_pps,
            duration_ns=duration_ns,
            repeats=repeats,
            tell=line.show_step,
            keep=keep if json_file not in (None, STANDARD) else lambda _: None,
        )
    if json_file is not None:
        keep(board)
    if json_file != STANDARD:
        _print(names, wanted, board)
    return 0 if board.cells else 1


def _chosen(option_name: str, given: str, known: Collection[str], what: str) -> list[str]:
    if given == ALL:
        return list(known)
    names = list(dict.fromkeys(given.split(",")))
    for name in names:
        refuse_unknown(option_name, name, [*known, ALL], f"unknown-{what}")
    return names


def _content(names: list[str], board: Board) -> dict[str, object]:
    from dataclasses import asdict

    from tailscope.extra.instruments.board import INSTRUMENTS, NOT_TO_BE_HAD, versions
    from tailscope.extra.instruments.ranks import rankings

    told = versions(names)
    return {
        "instruments": {
            name: {"about": INSTRUMENTS[name].about, "version": told[name]} for name in names
        },
        "not_to_be_had": NOT_TO_BE_HAD,
        "cells": [cell.record() for cell in board.cells],
        "rankings": [asdict(each) for each in rankings(board.cells)],
        "failures": [asdict(each) for each in board.failures],
    }


def _print(names: list[str], wanted: Collection[str], board: Board) -> None:
    cells = {(cell.truth, cell.instrument, cell.statistic): cell for cell in board.cells}
    for truth in wanted:
        ours = [cell for cell in board.cells if cell.truth == truth]
        if not ours:
            continue
        shown = [each for each in _SHOWN if any(cell.statistic == each for cell in ours)]
        true = {cell.statistic: cell.true for cell in ours}
        rows = [("truth", *(_text(each, true[each]) for each in shown))]
        rows += [
            (name, *(_cell(cells.get((truth, name, each))) for each in shown))
            for name in names
            if any((truth, name, each) in cells for each in shown)
        ]
        View().print_table((truth, *shown), [rows])
        say("")
    for failure in board.failures:
        say_named("left out", f"{failure.instrument}, {failure.truth}: {failure.reason}")


def _cell(cell: Cell | None) -> str:
    return "-" if cell is None else _text(cell.statistic, cell.measured)


def _text(statistic: str, value: float) -> str:
    from tailscope.extra.instruments.board import SHARES

    return f"{value:.2%}" if statistic in SHARES else duration_text(value)
