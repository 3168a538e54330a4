"""Inputs by fuzzing that once broke the readers of counters and traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from errors import raises

from tailscope.exceptions import UsageError
from tailscope.noise.counters import read_readings
from tailscope.noise.traces import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.noise.traces import Reader

MANY_DIGITS = "9" * 5_000


@pytest.mark.parametrize(
    "text",
    [
        "timestamp_us;LOC_CPU0\n99999999999999999999;1\n99999999999999999999;2\n",
        f"timestamp_us;LOC_CPU0\n1;{MANY_DIGITS}\n2;1\n",
        "timestamp_us;LOC_CPU0\n1;1\n2;18446744073709551615\n",
        "1600000000.5\nCPU0CPU1\nLOC: 1 2 x\n",
        f"{MANY_DIGITS}\nCPU0\nLOC: 1 x\n",
        f"1600000000.5\nCPU{MANY_DIGITS}\nLOC: 1 x\n",
    ],
)
def test_counters_are_such_as_a_kernel_has(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_readings(path, "x")
    assert error.value.code.startswith("counters-")
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("reader", "line"),
    [
        ("perf", f"a 1 [001] {MANY_DIGITS}.000001: x:y:"),
        ("perf", f"PERF_RECORD_LOST lost {MANY_DIGITS}"),
        ("trace-cmd", f"CPU:{MANY_DIGITS} [EVENTS DROPPED]"),
        ("perf", "a" + " " * 60_000 + "x"),
        ("babeltrace2", "[1.000000001] x: { " + "cpu_id = 1 " * 5_000),
        ("perf", "a 1 [001] 1.000001: x:y: " + "z" * 70_000),
    ],
)
def test_lines_of_traces_are_bounded(tmp_path: Path, reader: Reader, line: str) -> None:
    """Lines are bounded in time, too: two of these took minutes."""
    path = tmp_path / "x.txt"
    path.write_text(line)
    with raises(UsageError, "trace-line") as error:
        list(Trace(path, reader, is_text=True, to_unix_ns=None).lines())
    assert str(error.value).startswith(f"{path}: line 1 ")
