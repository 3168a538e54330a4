"""Instruments that are programs on two hosts, each started as its documentation says."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tailscope.exceptions import TestbedError
from tailscope.extra.instruments import loops
from tailscope.extra.instruments.hosts import SERVER
from tailscope.extra.instruments.reading import Reading, reordered_share
from tailscope.testbed.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.extra.instruments.hosts import Hosts

    Floats = NDArray[np.float64]

_SOCKPERF_PORT, _IPERF_PORT, _IRTT_PORT = 11_111, 5_201, 2_112
_PATIENCE_S = 20.0
"""Time that a program may take beyond its traffic."""
_PAYLOAD_BYTES = 64
_PING_LEAST_NS = 1_000_000
"""The shortest interval of ping other than none, which is a flood."""
_PING_TIME = re.compile(r"icmp_seq=(\d+) .*time=([0-9.]+) ms")
_PING_SUM = re.compile(r"(\d+) packets transmitted")
_RECEIVED = re.compile(r"\[Valid Duration\].*ReceivedMessages=(\d+)")
_UNLIKE = re.compile(r"# dropped messages = (\d+).*# out-of-order messages = (\d+)")


def ping(on: Hosts, rate_pps: int, duration_ns: int) -> Reading:
    """Take the times that ``ping`` prints for each answer."""
    interval_ns = max(_PING_LEAST_NS, 10**9 // rate_pps)
    count = max(1, duration_ns // interval_ns)
    program = _program("ping", "iputils-ping")
    # At such intervals it waits for the last answer, up to 10 ms, before it sends the next request.
    ends_s = math.ceil(duration_ns / 1e9) + 1
    command = _words(
        f"{program} -n -i {interval_ns / 1e9:.3f} -c {count} -W 1 -w {ends_s} {SERVER}"
    )
    said = on.run(command, timeout_s=duration_ns / 1e9 + _PATIENCE_S, expect=False)
    found = [(int(number), float(ms)) for number, ms in _PING_TIME.findall(said)]
    sent = _PING_SUM.search(said)
    if sent is None:
        raise _silent("ping", said)
    numbers, ms = np.array(found).T if found else (np.zeros(0), np.zeros(0))
    disorder = float(np.mean(numbers < np.maximum.accumulate(numbers))) if len(numbers) else 0.0
    return Reading(ms * 1e6, int(sent[1]), disorder)


def irtt(on: Hosts, rate_pps: int, duration_ns: int) -> Reading:
    """Take the round trips that ``irtt`` writes as JSON."""
    program = _program("irtt")
    server = f"{program} server -i 0 -b {SERVER}:{_IRTT_PORT}"
    with on.serving(_words(server), _IRTT_PORT):
        said = on.run(
            _words(
                f"{program} client -i {10**9 // rate_pps}ns -d {duration_ns}ns"
                f" -l {_PAYLOAD_BYTES} -Q -o - {SERVER}:{_IRTT_PORT}"
            ),
            timeout_s=duration_ns / 1e9 + _PATIENCE_S,
        )
    with _understood("irtt", said):
        trips = json.loads(said)["round_trips"]
        came = [trip for trip in trips if trip["lost"] == "false"]
        sent_ns = np.array([trip["timestamps"]["client"]["send"]["wall"] for trip in came], float)
        rtt_ns = np.array([trip["delay"]["rtt"] for trip in came], float)
    return Reading(rtt_ns, len(trips), reordered_share(sent_ns - sent_ns[:1], rtt_ns))


def sockperf_ping_pong(on: Hosts, rate_pps: int, duration_ns: int) -> Reading:  # noqa: ARG001
    """Let one message be answered before the next one leaves; the rate follows."""
    return _sockperf(on, duration_ns, "ping-pong", "")


def sockperf_tcp(on: Hosts, rate_pps: int, duration_ns: int) -> Reading:  # noqa: ARG001
    """Do the same over TCP, as netperf's TCP_RR does."""
    return _sockperf(on, duration_ns, "ping-pong", "--tcp")


def sockperf_under_load(on: Hosts, rate_pps: int, duration_ns: int) -> Reading:
    """Send messages at a rate, and have each of them answered."""
    return _sockperf(on, duration_ns, "under-load", f"--mps={rate_pps} --reply-every=1")


def _sockperf(on: Hosts, duration_ns: int, mode: str, more: str) -> Reading:
    program, log = _program("sockperf"), on.folder / "sockperf.csv"
    address = f"-i {SERVER} -p {_SOCKPERF_PORT}"
    tcp = "--tcp" if "--tcp" in more else ""
    seconds = max(1, round(duration_ns / 1e9))
    with on.serving(_words(f"{program} server {address} {tcp}"), _SOCKPERF_PORT):
        said = on.run(
            _words(
                f"{program} {mode} {address} {more} -t {seconds} -m {_PAYLOAD_BYTES}"
                f" --full-rtt --full-log {log}"
            ),
            timeout_s=seconds + _PATIENCE_S,
        )
    counted, unlike = _RECEIVED.search(said), _UNLIKE.search(said)
    if counted is None or unlike is None or not log.exists():
        raise _silent("sockperf", said)
    latency_ns = _full_log(log)
    log.unlink()
    dropped, disordered = map(int, unlike.groups())
    all_known = max(1, int(counted[1]) + dropped + disordered)
    return Reading(latency_ns, reordered=disordered / all_known, said={"lost": dropped / all_known})


def _full_log(path: Path) -> Floats:
    """Return the time from sending to receiving, of the messages that were answered."""
    rows = []
    for line in path.read_text().splitlines():
        try:
            sent, received = (_ns(part) for part in line.split(",")[1:3])
        except ValueError:
            continue
        if received > sent:
            rows.append(received - sent)
    return np.array(rows, float)


def _ns(seconds: str) -> int:
    whole, _, fraction = seconds.strip().partition(".")
    return int(whole) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9] or 0)


def iperf3_tcp(on: Hosts, rate_pps: int, duration_ns: int) -> Reading:
    """Take the round-trip times that the kernel's TCP estimates, of a paced stream."""
    said = _iperf3(on, rate_pps, duration_ns, "")
    with _understood("iperf3", said):
        [stream] = json.loads(said)["end"]["streams"]
        rtt_us = stream["sender"]
        return Reading(said={"mean": rtt_us["mean_rtt"] * 1e3, "max": rtt_us["max_rtt"] * 1e3})


def iperf3_udp(on: Hosts, rate_pps: int, duration_ns: int) -> Reading:
    """Take loss and disorder of a paced stream; iperf3 prints no latency of it."""
    said = _iperf3(on, rate_pps, duration_ns, "-u")
    with _understood("iperf3", said):
        end = json.loads(said)["end"]
        [stream] = end["streams"]
        total = max(1, end["sum"]["packets"])
        lost = end["sum"]["lost_packets"] / total
        return Reading(said={"lost": lost}, reordered=stream["udp"]["out_of_order"] / total)


def _iperf3(on: Hosts, rate_pps: int, duration_ns: int, more: str) -> str:
    program = _program("iperf3")
    server = f"{program} -s -1 -B {SERVER} -p {_IPERF_PORT}"
    seconds = max(1, round(duration_ns / 1e9))
    with on.serving(_words(server), _IPERF_PORT):
        return on.run(
            _words(
                f"{program} -c {SERVER} -p {_IPERF_PORT} -J -t {seconds} {more}"
                f" -l {_PAYLOAD_BYTES} -b {rate_pps * _PAYLOAD_BYTES * 8} --pacing-timer 100"
            ),
            timeout_s=seconds + _PATIENCE_S,
        )


def closed_loop(on: Hosts, rate_pps: int, duration_ns: int) -> Reading:
    """Ask, wait for the answer, and ask again when the next request is due or overdue."""
    return _loop("closed", on, rate_pps, duration_ns)


def open_loop(on: Hosts, rate_pps: int, duration_ns: int) -> Reading:
    """Ask by the clock, and count from the time at which a request was due."""
    return _loop("open", on, rate_pps, duration_ns)


def _loop(kind: str, on: Hosts, rate_pps: int, duration_ns: int) -> Reading:
    program, out = f"{sys.executable} -m {loops.__name__}", on.folder / "loop.npy"
    with on.serving(_words(f"{program} echo {SERVER}"), loops.PORT):
        on.run(
            _words(
                f"{program} {kind} {SERVER} --rate {rate_pps} --duration-ns {duration_ns}"
                f" --out {out}"
            ),
            timeout_s=duration_ns / 1e9 + _PATIENCE_S,
        )
    due_ns, latency_ns = np.load(out)
    came = np.isfinite(latency_ns)
    disorder = reordered_share(due_ns[came], latency_ns[came])
    return Reading(latency_ns[came], len(due_ns), disorder)


def _program(name: str, package: str | None = None) -> str:
    return str(find_program("instruments", name, package or name))


def _words(command: str) -> list[str]:
    return shlex.split(command)


@contextmanager
def _understood(name: str, said: str) -> Iterator[None]:
    """Within the block, figures that are missing from what a program said are its failure."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise _silent(name, said) from error


def _silent(name: str, said: str) -> TestbedError:
    return TestbedError(
        f"{name}: expected its figures, got {said.strip()[-200:] or 'nothing'!r}",
        code="instrument-failed",
    )
