"""Reports of the programs that discipline clocks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailscope.extra.laboratory.stamps.host_clocks import clock_reports, parse_chronyc, parse_pmc

if TYPE_CHECKING:
    from pathlib import Path

CHRONYC = (
    "A9FEA97B,169.254.169.123,4,1700000000.123456789,-0.000001500,0.000000800,0.000004000,"
    "-12.345,0.001,0.020,0.000400000,0.000025000,16.1,Normal\n"
)
PMC = """sending: GET TIME_STATUS_NP
\t0cc47a.fffe.123456-0 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP
\t\tmaster_offset              -37
\t\tingress_time               1700000000000000000
\t\tgmPresent                  true
\t\tgmIdentity                 0cc47a.fffe.abcdef
"""


def test_chrony_gives_its_own_bound() -> None:
    found = parse_chronyc(CHRONYC)
    assert found is not None and found.program == "chronyc"
    assert (found.offset_ns, found.error_ns) == (-1500, 1500 + 25_000 + 200_000)
    assert found.said.startswith("4,1700000000.123456789") and "169.254" not in found.said


def test_ptp_gives_its_offset_and_no_error() -> None:
    found = parse_pmc(PMC)
    assert found is not None and found.program == "pmc"
    assert (found.offset_ns, found.error_ns) == (-37, None)
    assert found.said == "master_offset -37, gmPresent true"
    alone = parse_pmc(PMC.replace("true", "false"))
    assert alone is not None and alone.offset_ns is None


@pytest.mark.parametrize(
    "output",
    [
        "",
        "506 Cannot talk to daemon\n",
        CHRONYC.replace("Normal", "Not synchronised"),
        CHRONYC.replace("0.000025000", "soon"),
        CHRONYC.replace("0.000025000", "inf"),
        CHRONYC.replace(",16.1", ""),
    ],
)
def test_a_clock_that_follows_nothing_says_nothing(output: str) -> None:
    assert parse_chronyc(output) is None


@given(st.text())
def test_whatever_they_say_is_read(output: str) -> None:
    assert parse_chronyc(output) is None
    assert parse_pmc(output) is None


def test_programs_are_asked_if_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope.testbed.programs._ADDED", ())
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/nowhere")
    assert clock_reports() == []
    for name, text in (("chronyc", CHRONYC), ("pmc", PMC)):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{text}END\n")
        program.chmod(0o755)
    assert [report.program for report in clock_reports()] == ["chronyc", "pmc"]
    (tmp_path / "chronyc").write_text("#!/bin/sh\nexit 1\n")
    assert [report.program for report in clock_reports()] == ["pmc"]
