"""Messages between the machines of a laboratory are understood whole, or an error."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st

import tailscope
from tailscope.exceptions import HostError
from tailscope.extra.laboratory.agents import Agent
from tailscope.extra.laboratory.protocol import (
    CountsEvent,
    DutReady,
    EndOrder,
    RecordingEvent,
    SendOrder,
    StopOrder,
    as_line,
    read_message,
    read_order,
)
from tailscope.extra.laboratory.recorded import MachineRecording
from tailscope.store.machine import this_host
from tailscope.store.records.dataplane import NoCounts
from tailscope.store.records.run import KernelNoise, PlatformRecord, TimestampedFile

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.extra.laboratory.protocol import Role

HELLO = json.dumps({"event": "hello", "version": str(tailscope.__version__)})
READY = DutReady(
    host=this_host(),
    boot_id="1",
    knobs={"ksm": None},
    tuning=[],
    reports=[],
    version="1",
    configuration=[["tc", "qdisc"], ["tc", "filter"]],
    platform=PlatformRecord(name="vm", representative=False),
    warnings=[],
    cpus=[1],
)


RECORDED = MachineRecording(
    times_by="unix",
    noise=KernelNoise(
        events=None,
        events_missing_because="not requested",
        interrupts={},
        counter_samples=2,
        steal_ns={"1": 0},
    ),
    warnings=[],
    own_work=["softirq NET_"],
    power=None,
    clock_set_by_ns=-5,
    files={"noise": TimestampedFile(path="/a/noise.parquet", size_bytes=1, sha256="")},
)


class Fake(Agent):
    """An agent that sends some lines, and ends."""

    def __init__(self, role: Role, *lines: str) -> None:
        super().__init__(role, "there")
        self.lines = lines

    def _open(self) -> None:
        for line in self.lines:
            self._receive(line)
        self._gone()

    def _write(self, line: str) -> None:
        pass

    def _copy(self, remote: str, target: Path) -> None:
        target.write_text("x")

    def _close(self) -> None:
        pass


def test_what_is_said_is_what_is_heard() -> None:
    for message in (READY, CountsEvent(counts=NoCounts(), died=None, recorded=RECORDED)):
        assert read_message("dut", as_line(message)) == message
    for order in (SendOrder(duration_ns=5), EndOrder(), StopOrder()):
        assert read_order(as_line(order)) == order


def wrong(line: Any, role: Role = "dut", code: str = "agent-message") -> str:
    """Return the error for a line that follows the greeting."""
    text = line if isinstance(line, str) else json.dumps(line)
    with Fake(role, "Welcome!", HELLO, text) as agent, raises(HostError, code) as error:
        agent.wait_for(DutReady if role == "dut" else RecordingEvent, 1)
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"cpus": ["1"]}, "cpus[0]: "),
        ({"cpus": None}, "cpus: "),
        ({"host": []}, "host: "),
        ({"more": 1}, "`more`"),
        ({"platform": {"name": {}}}, "platform.name: "),
        ({"event": "sent"}, "event: "),
    ],
)
def test_the_role_and_the_field_are_named(change: dict[str, Any], where: str) -> None:
    error = wrong({**json.loads(as_line(READY)), **change})
    assert error.startswith("dut (there): ") and where in error


def test_a_role_says_only_what_belongs_to_it() -> None:
    error = wrong(as_line(CountsEvent(counts=None, died=None, recorded=RECORDED)), "timestamper")
    assert error.startswith("timestamper (there): ")


def test_what_is_no_message_is_repeated_when_the_machine_is_gone() -> None:
    error = wrong("bash: no such file", code="connection-ended")
    assert error.startswith("dut (there): ") and error.endswith("Welcome! | bash: no such file")


@pytest.mark.parametrize("path", ["", "/", "/captures/.."])
def test_a_file_without_a_name_is_refused(path: str, tmp_path: Path) -> None:
    file = TimestampedFile(path=path, size_bytes=1, sha256="")
    with raises(HostError, "agent-message"):
        Fake("timestamper").fetch(file, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["/captures/x.pcap", "/../../etc/x.pcap", "../x.pcap", "x.pcap"])
def test_a_file_lands_where_it_is_wanted(path: str, tmp_path: Path) -> None:
    file = TimestampedFile(path=path, size_bytes=1, sha256=hashlib.sha256(b"x").hexdigest())
    assert Fake("timestamper").fetch(file, tmp_path) == tmp_path / "x.pcap"
    assert [path.name for path in tmp_path.iterdir()] == ["x.pcap"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
_DEEP = '{"do":"play","role":"dut","plan":' + '{"a":' * 100_000


@given(st.text() | _JSON.map(json.dumps) | st.just(_DEEP))
def test_whatever_is_said_ends_as_an_error(line: str) -> None:
    with suppress(HostError):
        assert read_message("dut", line) is None
    with pytest.raises(HostError):
        read_order(line)


@pytest.mark.parametrize(
    ("order", "value"),
    [
        ('{"do": "stop"}', "no role yet"),
        ('{"do": "dance"}', "'dance'"),
        ("hello", "no JSON object"),
        (
            '{"do": "play", "role": "dut", "plan": {"dut": "l2fwd", "rate_pps": "many"},'
            ' "cards": [], "cpus": null, "method": null}',
            "plan.rate_pps: ",
        ),
    ],
)
def test_an_agent_refuses_what_is_no_order(order: str, value: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailscope", "agent"],
        input=order + "\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    hello, error = map(json.loads, done.stdout.splitlines())
    assert hello["event"] == "hello" and error["event"] == "error"
    assert error["code"] == "agent-order" and value in error["message"]
    assert done.returncode == 1 and not done.stderr
