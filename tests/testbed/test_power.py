"""Power sources: a machine made of files, a program that stands for a server, a command."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from documentation import undocumented
from errors import code_of, raises
from runs import sound
from wording import assert_wording

from tailscope.exceptions import TestbedError, UsageError
from tailscope.host.machine import Machine
from tailscope.testbed import power
from tailscope.testbed.places import Here
from tailscope.testbed.power import (
    Command,
    Ipmi,
    PowerRecorder,
    Rapl,
    check_power,
    source_named,
)

if TYPE_CHECKING:
    from pathlib import Path

    from measurements import Place

Measure = Callable[..., dict[str, Any]]
Run = Callable[..., Any]

RANGE_UJ = 262_143_328_850
ZONES = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "package-1",
    "intel-rapl:2": "psys",
    "intel-rapl:10": "package-10",
    "intel-rapl-mmio:0": "package-0",
}
DCMI = """
    Instantaneous power reading:                   220 Watts
    Minimum during sampling period:                 30 Watts
    Maximum during sampling period:                490 Watts
    Average power reading over sample period:      218 Watts
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   activated
"""
# The power of this machine depends on the running programs of the measurement.
METER = """
import os
mark = b"TAILSCOPE_MEASUREMENT=" + os.environb[b"TAILSCOPE_MEASUREMENT"]
found = set()
for pid in filter(str.isdecimal, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            if mark in environ.read():
                with open(f"/proc/{pid}/cmdline", "rb") as command:
                    found.update(command.read().split(b"\\0"))
    except OSError:
        pass
print(45 if b"gen" in found else 42 if b"l2fwd" in found else 31)
"""


def zones(root: Path) -> Path:
    """Make the files of a machine with three packages, one of which counts memory."""
    for number, (zone, name) in enumerate(ZONES.items()):
        folder = root / "sys/class/powercap" / zone
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        (folder / "energy_uj").write_text(f"{1000 + number}\n")
    return root


def script(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(body)
    path.chmod(0o755)
    return path


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_rapl_reads_packages_and_memory_once(tmp_path: Path, here: Here) -> None:
    source = Rapl(Machine(zones(tmp_path)))
    source.check()
    assert source.domains == ("package-0", "package-0/dram", "package-1", "package-10")
    assert source.includes == ", ".join(source.domains)
    assert source.range_uj == (RANGE_UJ,) * 4
    assert source.read(here) == (1000, 1002, 1003, 1005)


def test_rapl_says_why_not(tmp_path: Path, here: Here) -> None:
    with raises(TestbedError, "no-rapl") as none:
        Rapl(Machine(tmp_path)).check()
    assert "intel_rapl_msr" in str(none.value.hint)
    counter = zones(tmp_path) / "sys/class/powercap/intel-rapl:0/energy_uj"
    for wrong in ("x\n", "-5\n", f"{RANGE_UJ + 1}\n"):
        counter.write_text(wrong)
        with raises(TestbedError, "power-reading") as error:
            Rapl(Machine(tmp_path)).read(here)
        assert f"energy_uj: got '{wrong.strip()}'" in str(error.value)
    counter.unlink()
    counter.mkdir()
    with raises(TestbedError, "rapl-denied") as unread:
        Rapl(Machine(tmp_path)).check()
    assert "energy_uj" in str(unread.value) and "root" in str(unread.value.hint)


def test_ipmi_is_asked_by_its_program(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    script(tmp_path, "ipmitool", f'#!/bin/sh\necho "$@" > {asked}\ncat <<END\n{DCMI}\nEND\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    source = Ipmi()
    source.check()
    assert source.read(here) == (220,)
    assert asked.read_text() == "dcmi power reading\n"
    script(tmp_path, "ipmitool", "#!/bin/sh\necho DCMI request failed >&2; exit 1\n")
    with raises(TestbedError, "command-failed") as failed:
        source.read(here)
    assert "DCMI request failed" in str(failed.value)
    script(tmp_path, "ipmitool", "#!/bin/sh\necho Power reading state is: deactivated\n")
    with raises(TestbedError, "power-reading") as refused:
        source.read(here)
    assert "got 'Power reading" in str(refused.value)


def test_a_command_prints_watts(tmp_path: Path, here: Here) -> None:
    meter = script(tmp_path, "my meter", '#!/bin/sh\necho " $1 "\n')
    source = source_named(f"command:'{meter}' 45.20")
    assert source is not None
    source.check()
    (watts,) = source.read(here)
    assert str(watts) == "45.20"
    # No shell reads it.
    assert Command([str(meter), "4; echo 5"]).name.endswith("'4; echo 5'")
    with raises(TestbedError, "power-reading") as refused:
        Command([str(meter), "4; echo 5"]).read(here)
    assert "'4; echo 5'" in str(refused.value)


@pytest.mark.parametrize("output", ["", "45 W", "nan", "inf", "-1", "45\n46", "x" * 200])
def test_what_is_no_number_is_refused(tmp_path: Path, here: Here, output: str) -> None:
    meter = script(tmp_path, "meter", f"#!/bin/sh\nprintf '%s' '{output}'\n")
    with raises(TestbedError, "power-reading") as error:
        Command([str(meter)]).read(here)
    assert str(meter) in str(error.value) and repr(output[:80]) in str(error.value)


def test_a_command_that_hangs_is_ended(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "_TIMEOUT_S", 0.2)
    with raises(TestbedError, "command-timeout") as error:
        Command(["sleep", "60"]).read(here)
    assert "sleep 60: " in str(error.value) and "0.2 s" in str(error.value)


@pytest.mark.parametrize("text", ["", "watts", "RAPL", "command:", "command:'x"])
def test_sources_that_are_none_are_refused(text: str) -> None:
    with raises(UsageError, "power-source") as error:
        source_named(text)
    assert f"--power: got {text!r}" in str(error.value)


def test_what_is_wanted_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    check_power("auto")
    check_power("none")
    with raises(TestbedError, "no-program") as error:
        check_power("command:/no/meter -x")
    assert "/no/meter" in str(error.value)
    monkeypatch.setattr(power, "which", lambda program: None)
    with raises(TestbedError, "no-program"):
        check_power("command:meter")


def test_readings_have_times_and_failures_reasons(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.write_text("45\n")
    meter = script(tmp_path, "meter", f"#!/bin/sh\ncat {shown}\n")
    recorder = PowerRecorder(tmp_path, f"command:{shlex.quote(str(meter))}", phase_s=0.3)
    with recorder:
        recorder.rest("idle")
        shown.write_text("broken\n")
        time.sleep(0.3)
        shown.write_text("47\n")
        recorder.rest("running")
    recorded = recorder.finish()
    assert recorded.failures
    assert "got 'broken'" in recorded.failures[0]
    times = [reading.unix_ns for reading in recorded.readings]
    assert times == sorted(set(times))
    assert abs(times[0] - time.time_ns()) < 60_000_000_000
    assert all(reading.took_ns > 0 for reading in recorded.readings)
    idle, running = recorded.phases["idle"], recorded.phases["running"]
    assert idle[0] + 300_000_000 <= idle[1] < running[0]
    assert {idle[0], idle[1], running[0], running[1]} <= set(times)
    assert {reading.values for reading in recorded.readings} == {(Decimal(45),), (Decimal(47),)}


def test_the_first_reading_must_be_one(tmp_path: Path) -> None:
    with (
        raises(TestbedError, "power-reading") as error,
        PowerRecorder(tmp_path, "command:echo x", phase_s=1),
    ):
        pass
    assert all(text in str(error.value) for text in ("echo x: ", "got 'x'"))


@pytest.mark.parametrize("what", ["none", "auto"])
def test_without_a_source_nobody_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(power, "Machine", lambda: Machine(tmp_path))
    with PowerRecorder(tmp_path, what, phase_s=3600) as recorder:
        recorder.rest("idle")
    recorded = recorder.finish()
    assert (recorded.source, recorded.readings, recorded.phases) == (None, [], {})
    assert recorded.why_not is not None
    assert ("no RAPL" if what == "auto" else "not requested") in recorded.why_not


def test_counters_are_read_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "Machine", lambda: Machine(zones(tmp_path)))
    with PowerRecorder(tmp_path, "auto", phase_s=0.5) as recorder:
        recorder.rest("idle")
    recorded = recorder.finish()
    assert recorded.source is not None and recorded.source.name == "rapl"
    assert not recorded.failures
    assert {reading.values for reading in recorded.readings} == {(1000, 1002, 1003, 1005)}


def meter_of(place: Place) -> str:
    """Return a meter that looks at the running programs of its measurement."""
    (place.path / "meter.py").write_text(METER)
    return f"command:{shlex.join([sys.executable, '-IS', str(place.path / 'meter.py')])}"


@pytest.mark.usefixtures("dataplane")
def test_a_run_says_what_a_packet_takes(measure: Measure, place: Place, tailscope: Run) -> None:
    figures = measure("--dut", "l2fwd", "--power", meter_of(place), "--duration", "1s")
    assert_wording("energy/command-includes", figures["power_includes"])
    watts = {"idle": 31, "running": 42, "processing": 45}
    for phase, expected in watts.items():
        assert figures[f"power_w_{phase}"] == pytest.approx(expected, abs=0.5)
        low, high = (figures[f"power_w_{phase}_ci_{end}"] for end in ("low", "high"))
        assert low < expected < high
    energy_j = figures["energy_j_per_packet"]
    assert energy_j == pytest.approx(45 * figures["pre_duration_s"] / figures["sent"], rel=0.02)
    assert figures["energy_j_per_million_packets"] == pytest.approx(1e6 * energy_j)
    assert not undocumented(set(figures) - {"out"}, "analyze.md", "run.md", "energy.md")

    info = sound(figures["out"])
    drawn = info["power"]
    assert drawn["source"].startswith("command:")
    assert drawn["readings_failed"] == 0
    assert 0 < drawn["reading_ns_p50"] <= drawn["reading_ns_max"]
    assert list(drawn["phases"]) == list(watts)
    assert not undocumented(drawn, "energy.md")
    summary = json.loads((figures["out"] / "summary.json").read_text())
    assert {name: summary[name] for name in drawn["figures"]} == drawn["figures"]

    table = pq.read_table(figures["out"] / "power.parquet").to_pydict()
    assert not undocumented(table, "energy.md")
    assert set(table["watts"]) == {31, 42, 45}
    # A late reading does not cover all of the time before it.
    stretches = list(zip(table["start_ns"], table["end_ns"], strict=True))
    assert all(start < end for start, end in stretches)
    assert all(end <= start for (_, end), (start, _) in pairwise(stretches))
    assert "energy of a packet" in (figures["out"] / "report.html").read_text()

    done = tailscope("model", "energy", figures["out"], "--json", "-")
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["power_w_processing_above_idle"] == pytest.approx(14, abs=0.5)


@pytest.mark.usefixtures("dataplane")
def test_a_meter_that_fails_costs_no_run(measure: Measure, place: Place) -> None:
    once = place.path / "once"
    meter = script(place.path, "meter", f"#!/bin/sh\nmkdir {once} && echo 45\n")
    figures = measure(
        "--dut", "l2fwd", "--power", f"command:{shlex.quote(str(meter))}", "--power-phase", "200ms"
    )
    assert figures["power_w_processing"] is figures["energy_j_per_packet_above_idle"] is None
    drawn = sound(figures["out"])["power"]
    assert drawn["readings_failed"] > 0
    assert drawn["reasons"]["power_w_idle"].startswith("got 0 readings")
    assert any(drawn["reasons"]["power_w_processing"] in text for text in figures["warnings"])


@pytest.mark.usefixtures("dataplane")
def test_without_a_source_there_are_no_figures(measure: Measure) -> None:
    figures = measure("--dut", "l2fwd", "--power", "none")
    assert not [name for name in figures if name.startswith(("power", "energy"))]
    assert sound(figures["out"])["power"] == {"source": None, "missing_because": "not requested"}
    assert not (figures["out"] / "power.parquet").exists()


def test_a_plan_says_what_is_missing(tailscope: Run) -> None:
    options = ["run", "--dut", "l2fwd", "--dry-run", "--json", "-"]
    plan = json.loads(tailscope(*options, "--power", "command:/no/meter").stdout)
    assert plan["power_phase_ns"] == 1_000_000_000
    assert any("/no/meter" in lack for lack in plan["missing"])
    done = tailscope(*options, "--power", "watts")
    assert done.returncode == 1
    assert code_of(done) == "power-source" and "'watts'" in done.stderr
