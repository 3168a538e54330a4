"""The engine and `tailscope analyze` against what others would do with the same captures."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import tailscope
from bench import duckdb_join, engine, hashing, postgres, tshark_pandas
from bench.clock import Contender, medians, say, seconds
from bench.cost import cost_of
from bench.pair import plain_pair, simulate
from bench.pair import tailscope as command
from bench.postgres_server import server as postgres_server
from bench.table import Row

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 3
LARGE_PACKETS = 10_000_000
MEMORY_MIB = 128


def small_rows(folder: Path) -> list[Row]:
    """300 000 packets a side against PostgreSQL, DuckDB, and tshark with pandas."""
    name, pre, post = plain_pair(folder)
    say(f"the pair: {name}")
    with postgres_server() as server:
        say("comparing the answers")
        ours = engine.answer(engine.analyse(pre, post))
        ours.assert_equals(duckdb_join.answer(duckdb_join.analyse(pre, post)), "DuckDB")
        ours.assert_equals(postgres.answer(postgres.analyse(server, pre, post)), "PostgreSQL")
        took = medians(
            ROUNDS,
            {
                "PostgreSQL": Contender(partial(postgres.analyse, server, pre, post)),
                "engine": Contender(partial(engine.analyse, pre, post), 5),
                "process": Contender(partial(command, "analyze", pre, post, "--trim", "1s"), 5),
                "DuckDB": Contender(partial(duckdb_join.analyse, pre, post), 5),
            },
        )
    sql, call, duck = took["PostgreSQL"], took["engine"], took["DuckDB"]
    rows = [
        Row(f"engine, {name}", "PostgreSQL", "speed-up", call, sql, "s", 500),
        Row("tailscope analyze", "PostgreSQL", "speed-up", took["process"], sql, "s", 60),
        Row("engine", "DuckDB", "speed-up", call, duck, "s", 20),
    ]
    if shutil.which(tshark_pandas.TSHARK) is None:
        say("tshark and pandas are left out: tshark is not installed")
        return rows
    say("tshark and pandas, once: quantiles only")
    found = []
    theirs = seconds(lambda: found.append(tshark_pandas.analyse(pre, post)))
    assert found == [ours.quantiles], "tshark and pandas: quantiles differ"
    process = took["process"]
    return [
        *rows,
        Row("tailscope analyze", "tshark, pandas", "speed-up", process, theirs, "s", None),
    ]


def large_rows(folder: Path) -> list[Row]:
    """10 M packets a side, of which 500 000 are within the window."""
    say("simulating 1 M and 10 M packets")
    tenth = simulate(folder / "tenth", "--packets", LARGE_PACKETS // 10, "--rate", "100k")
    pair = simulate(folder / "large", "--packets", LARGE_PACKETS, "--rate", "100k")
    took = medians(
        ROUNDS,
        {
            "engine": Contender(partial(tailscope.analyze, *pair, series=False)),
            "XXH3, one file after the other": Contender(partial(hashing.in_turn, pair)),
            "XXH3, both at once": Contender(partial(hashing.side_by_side, pair)),
        },
    )
    call, *hashed = took.items()
    targets = (2, None)  # the target is about one pass; what two threads reach is for the reader
    rows = [
        Row("engine, 2 x 10 M packets", name, "cost", call[1], took_s, "s", target)
        for (name, took_s), target in zip(hashed, targets, strict=True)
    ]
    return rows + _memory_rows(folder, tenth, pair)


def _memory_rows(folder: Path, tenth: tuple[Path, Path], pair: tuple[Path, Path]) -> list[Row]:
    """Memory follows the window, not the capture."""
    say("measuring memory")
    small, large = _peak_mib(tenth), _peak_mib(pair)
    for path in pair:
        path.unlink()
    fast = simulate(folder / "fast", "--packets", LARGE_PACKETS, "--rate", "1M")
    return [
        Row("memory, 100 kpps, 10 M", "", "absolute", large, None, "MiB", MEMORY_MIB),
        Row("memory, 100 kpps, 10 M", "1 M", "cost", large, small, "MiB", 1.1),
        Row("memory, 1 Mpps, 10 M", "", "absolute", _peak_mib(fast), None, "MiB", MEMORY_MIB),
    ]


def _peak_mib(pair: tuple[Path, Path]) -> float:
    return cost_of("analyze", *pair, "--json", "-").peak_mib
