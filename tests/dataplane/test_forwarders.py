"""Forwarders between the two ports of a generator."""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from errors import raises
from processes import over_memif

from tailscope.exceptions import AnalysisError, DataplaneError
from tailscope.store.records.messages import WorkResult
from tailscope.testbed.messages import FORWARDERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import FileIO
    from pathlib import Path

    from tailscope.store.records.messages import GeneratorResult
    from tailscope.testbed.messages import ForwarderResult


pytestmark = pytest.mark.usefixtures("dataplane")


def forwarded(
    generator_options: Sequence[str],
    dut_options: Sequence[str],
    program: str = "l3fwd",
    ports: int = 2,
) -> tuple[GeneratorResult, ForwarderResult]:
    """Send packets through a device, and return the results of generator and device."""
    traffic = ["--rate=30k", "--warm-up=0s", "--duration=100ms", "--drain=100ms"]
    with over_memif() as pair:

        def some(end: list[str]) -> list[str]:
            return end[: len(end) - 2 + ports]

        with pair.dut(FORWARDERS[program], dut_options, some(pair.ends.dut.eal)) as dut:
            dut.wait_ready()
            options = [*traffic, *generator_options]
            with pair.generator(options, some(pair.ends.generator.eal)) as generator:
                sent = generator.finish()
            dut.stop()
            result = dut.finish()
    assert sent is not None and result is not None
    return sent, result


@pytest.mark.parametrize("lookup", ["lpm", "fib"])
def test_a_router_ends_with_status_0(dataplane: Path, lookup: str) -> None:
    """Its tables went after the memory in which they lie: it said its result, and died."""
    eal = ["--lcores=0@0-1", "--no-shconf", "--no-huge", "-m", "512", "--no-pci"]
    ports = ["--vdev=net_null0", "--vdev=net_null1"]
    with subprocess.Popen(
        [dataplane, "l3fwd", *eal, *ports, "--", f"--lookup={lookup}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as router:
        assert router.stdout is not None and b'"ready"' in router.stdout.readline()
        router.terminate()
        assert b'"result"' in router.stdout.read()
    assert router.returncode == 0


def test_the_ports_stay_until_the_device_has_ended() -> None:
    options = ["--rate=10k", "--warm-up=0s", "--duration=100ms", "--keep-ports"]
    with (
        over_memif() as pair,
        pair.dut(FORWARDERS["l2fwd"], []) as dut,
        pair.generator(options) as generator,
    ):
        while generator.result is None:
            assert generator.next_event(30) is not None
        dut.stop()
        result = dut.finish()
        assert result is not None and [port.link_down_count for port in result.ports] == [0, 0]
        assert generator.is_running
        generator.stop()
        assert generator.finish() is not None and not generator.result.partial


@contextmanager
def pipe_at(path: Path) -> Iterator[tuple[str, FileIO]]:
    """Make the pipe of a program that is held: its option, and what to write bytes to."""
    os.mkfifo(path)
    with path.open("r+b", buffering=0) as pipe:
        yield f"--hold={path}", pipe


def test_programs_that_are_held_begin_with_their_bytes(tmp_path: Path) -> None:
    traffic = ["--rate=10k", "--warm-up=0s", "--duration=100ms"]
    with (
        pipe_at(tmp_path / "generator") as (hold_generator, of_generator),
        pipe_at(tmp_path / "dut") as (hold_dut, of_dut),
        over_memif() as pair,
        pair.generator([*traffic, hold_generator]) as generator,
        pair.dut(FORWARDERS["l2fwd"], [hold_dut]) as dut,
    ):
        for each, pipe in ((dut, of_dut), (generator, of_generator)):
            with pytest.raises(queue.Empty):
                each.next_event(0.5)
            pipe.write(bytes(1))
        dut.wait_ready()
        generator.wait_ready()
        with pytest.raises(queue.Empty):
            generator.next_event(0.5)
        of_dut.write(bytes(1))
        of_generator.write(bytes(1))
        result = generator.finish()
        assert result is not None and result.gen.sent > 0
        assert result.gen.matched == result.gen.sent
        dut.stop()
        assert dut.finish() is not None


def test_a_program_that_is_held_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    with (
        pipe_at(tmp_path / "pipe") as (hold, pipe),
        over_memif() as pair,
        pair.dut(FORWARDERS["l2fwd"], [hold]) as dut,
    ):
        pipe.write(bytes(1))
        dut.wait_ready()
        dut.stop()
        result = dut.finish()
    assert result is not None and result.lcores[0].rx_packets == 0


def dropped(dut: ForwarderResult) -> dict[str, int]:
    return {name: count for name, count in dut.lcores[0].dropped.items() if count}


def arrived(generator: GeneratorResult) -> int:
    """Return the number of sent packets; on a busy machine a few are too late to be sent."""
    traffic = generator.gen
    assert traffic.sent + traffic.unsent == 3000 and traffic.sent > 0
    return traffic.sent


def test_work_takes_its_time() -> None:
    """Work cannot be faster than its law: 3000 packets come in 100 ms, and each takes 1 ms."""
    _, dut = forwarded([], ["--law=fixed:1ms", "--batch=8"], "work")
    lcore = dut.lcores[0]
    assert 0 < lcore.tx_packets * 1_000_000 <= dut.duration_ns
    assert isinstance(dut, WorkResult)
    assert dut.work.batch_most == 8
    assert dut.work.batches * 8 >= lcore.rx_packets


@pytest.mark.parametrize(
    ("options", "value"), [(["--law=slow"], "slow"), (["--batch=0"], "0"), (["--batch=513"], "513")]
)
def test_work_that_cannot_be_done_is_refused(options: list[str], value: str) -> None:
    with raises(DataplaneError, "usage") as error:
        forwarded([], options, "work")
    assert str(error.value).startswith("dut: ") and value in str(error.value)


IPV4 = ("--src-ip=10.0.0.1", "--dst-ip=10.0.1.1")
IPV6 = ("--src-ip=fd00::1", "--dst-ip=fd00:1::1", "--size=84")


@pytest.mark.parametrize(
    "program",
    [
        "l2fwd",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("l3fwd", "delay", "work")),
    ],
)
def test_a_single_port_forwards_to_itself(program: str) -> None:
    generator, dut = forwarded([], [], program, ports=1)
    lost = dut.lcores[0].tx_dropped
    assert generator.gen.matched + lost == arrived(generator)


VLAN = (*IPV4, "--vlan=7", "--size=68")


@pytest.mark.parametrize(
    ("family", "lookup"),
    [
        (IPV4, "lpm"),
        (IPV6, "fib"),
        (VLAN, "lpm"),
        *(
            pytest.param(*values, marks=pytest.mark.long)
            for values in ((IPV4, "fib"), (IPV6, "lpm"), (VLAN, "fib"))
        ),
    ],
)
def test_without_routes_everything_goes_to_the_partner(
    family: tuple[str, ...], lookup: str
) -> None:
    generator, dut = forwarded(family, [f"--lookup={lookup}"])
    lost = dut.lcores[0].tx_dropped
    assert generator.gen.matched + lost == arrived(generator)
    assert not dropped(dut)


ROUTES = (
    ("10.0.1.0/24 1\n0.0.0.0/0 0\n", IPV4, True, "fib"),
    ("10.0.1.1/32 1 02:00:00:00:00:77\n10.0.1.0/24 0\n", IPV4, True, "lpm"),
    ("::/0 0\nfd00:1::/32 1\n", IPV6, True, "lpm"),
    ("fd00::/16 1\nfd00:1::1/128 0\n", IPV6, False, "fib"),
)
"""Routes that are tried always, with a kind of table."""

MORE_ROUTES = (
    *((*case, {"lpm": "fib", "fib": "lpm"}[lookup]) for *case, lookup in ROUTES),
    *(
        (*case, lookup)
        for case in (
            ("10.0.0.0/8 0\n10.0.1.0/24 1\n", IPV4, True),
            ("10.0.0.0/8 1\n10.0.1.0/24 0\n", IPV4, False),
            ("::/0 1\n", IPV6, True),
        )
        for lookup in ("lpm", "fib")
    ),
)


@pytest.mark.parametrize(
    ("routes", "family", "matched", "lookup"),
    [*ROUTES, *(pytest.param(*case, marks=pytest.mark.long) for case in MORE_ROUTES)],
)
def test_the_longest_prefix_decides(
    tmp_path: Path, routes: str, family: tuple[str, ...], matched: bool, lookup: str
) -> None:
    (tmp_path / "routes").write_text(routes)
    options = [f"--routes={tmp_path / 'routes'}", f"--lookup={lookup}"]
    generator, dut = forwarded(family, options)
    lcore = dut.lcores[0]
    assert lcore.rx_packets == arrived(generator)
    expected = arrived(generator) - lcore.tx_dropped if matched else 0
    assert generator.gen.matched == expected
    assert not dropped(dut)


def test_what_has_no_route_is_counted(tmp_path: Path) -> None:
    (tmp_path / "routes").write_text("192.168.0.0/16 1\n")
    generator, dut = forwarded(IPV4, [f"--routes={tmp_path / 'routes'}"])
    assert generator.gen.matched == 0
    assert dropped(dut) == {"no_route": arrived(generator)}


def test_time_to_live_is_counted_down(tmp_path: Path) -> None:
    from tailscope import analyze

    generator, _ = forwarded([*IPV4, f"--captures={tmp_path}"], [])
    captures = [tmp_path / f"{side}.pcapng.zst" for side in ("pre", "post")]
    with pytest.raises(AnalysisError) as error:
        analyze(*captures, match_on="frame")
    assert error.type is AnalysisError
    by_l3 = analyze(*captures, match_on="l3").summary
    assert by_l3["count"] == generator.gen.matched > 0


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        (["--routes=/no/such/file"], "file", "/no/such/file"),
        (["--config=(0,0,99)"], "option-value", "lcore 99"),
        (["--config=(7,0,0)"], "option-value", "port 7"),
        (["--lookup=guess"], "usage", "guess"),
    ],
)
def test_what_cannot_be_routed_is_refused(options: list[str], code: str, value: str) -> None:
    with raises(DataplaneError, code) as error:
        forwarded([], options)
    assert str(error.value).startswith("dut: ") and value in str(error.value)


def test_a_forwarder_survives_generators_that_come_and_go() -> None:
    with over_memif() as pair, pair.dut(FORWARDERS["l2fwd"], []) as dut:
        dut.wait_ready()
        for ends in (True, False, True):
            # The others are killed with full rings.
            duration = "100ms" if ends else "60s"
            options = ["--rate=500k", "--warm-up=50ms", f"--duration={duration}"]
            with pair.generator(options) as generator:
                generator.wait_ready()
                if ends:
                    result = generator.finish()
                    assert result is not None and result.gen.matched > 0
                else:
                    time.sleep(0.1)
            assert dut.is_running
        dut.stop()
        result = dut.finish()
    assert result is not None and result.lcores[0].rx_packets > 0


def test_a_forwarder_survives_a_peer_that_goes_before_it_is_greeted() -> None:
    with over_memif() as pair, pair.dut(FORWARDERS["l2fwd"], []) as dut:
        dut.wait_ready()
        served = re.search(r"socket=([^,]+)", " ".join(pair.ends.dut.eal))
        assert served is not None
        dut.process.signal(signal.SIGSTOP)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(served[1])
        dut.process.signal(signal.SIGCONT)
        with pair.generator(["--rate=50k", "--warm-up=50ms", "--duration=100ms"]) as generator:
            generator.wait_ready()
            result = generator.finish()
        assert result is not None and result.gen.matched > 0
        assert dut.is_running
