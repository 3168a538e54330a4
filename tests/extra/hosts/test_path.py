"""The path between two hosts: what is measured of it, and what is of its ends."""

from __future__ import annotations

import hmac
import json
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pytest
from between import FAR, FAR_V6, PORT, Asking, Between, counts_of
from errors import code_of
from runs import AS_ROOT, needed

from tailscope.exceptions import UsageError
from tailscope.extra.hosts.ends import address_of
from tailscope.extra.hosts.words import warnings_of
from tailscope.store.reader import read_run
from tailscope.testbed.process import find_binary

if TYPE_CHECKING:
    from collections.abc import Callable

    from between import Found
    from conftest import Tailscope

pytestmark = pytest.mark.usefixtures("dataplane")

STOP_NS = 300_000_000
MOST_CLOSING = 64
"""Queries of a flow behind the last one, at most."""


@AS_ROOT
def test_a_path_is_measured_and_its_run_is_read_by_other_commands(
    tailscope: Tailscope, tmp_path: Path
) -> None:
    needed("ip")
    out = tmp_path / "path"
    words = ["run", "--to", FAR, "--rate", "500", "--duration", "1s", "--dscp", "46"]
    # A sender that asks whether the queue has times may have to ask twice.
    words += ["--txtime", "off"]
    with Between() as between:
        reflector = between.reflect()
        asking = [sys.executable, "-m", "tailscope", *words, "--flows", "2", "--out", str(out)]
        found = json.loads(between.run("near", *asking, "--json", "-"))
        counts = counts_of(reflector)
    hosts, ends = found["hosts"], found["hosts"]["ends"]
    assert ends["sent"] + ends["unsent"] == 500
    assert found["count"] == ends["sent"] < counts["answered"]
    assert (hosts["loss"]["lost"], hosts["drifted"]) == (0, 0)
    # Queries behind the last one ask when the last answers left.
    assert hosts["inexact"] == 0
    assert (hosts["dscp"], hosts["ttl"], hosts["one_way"]["error_ns"]) == ([46], [64], 0)
    assert [flow["sent"] for flow in hosts["flows"]] == [-(-ends["sent"] // 2), ends["sent"] // 2]
    assert ends["reflector"]["same_clock"]
    run = read_run(out)
    assert run.info.clock.source == "kernel-software"
    # A frame of 64 bytes has no room for a query with all that it asks for.
    assert run.info.about is not None
    assert run.info.about.size_bytes == ends["frame_bytes_min"] == ends["frame_bytes_max"] == 182
    assert run.summary["lost_in_dut"] == 0
    for words in (["verify", "--slo", "p50<1s"], ["explain"]):
        assert tailscope(*words, out).returncode == 0, words
    shown = json.loads(tailscope("runs", "show", out, "--json", "-").stdout)
    program, *again = shlex.split(shown["repeat"])
    assert (program, *again[:5]) == ("tailscope", "run", "--to", FAR, "--rate", "500")
    assert tailscope(*again, "--dry-run").returncode == 0


@AS_ROOT
def test_a_host_that_is_stopped_is_named_and_no_network(tmp_path: Path) -> None:
    """Both ends are stopped, one after the other: the path between them stays as fast."""
    needed("ip")
    with Between() as between:
        reflector = between.reflect()
        asking = between.asking(tmp_path / "path", "--rate=200", "--duration=2500ms")
        for pid in (reflector.pid, asking.process.pid):
            time.sleep(0.7)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STOP_NS / 1e9)
            os.kill(pid, signal.SIGCONT)
        summary, hosts, _ = asking.end()
    for stalls in (hosts.ends.stalls, hosts.reflector_stalls):
        [stopped] = [each for each in stalls if each.cause == "stopped"]
        assert stopped.stall_ns_max >= STOP_NS * 0.9
    assert hosts.in_reflector is not None
    assert hosts.in_reflector.ns_max >= STOP_NS * 0.5
    assert summary["latency_ns_max"] < STOP_NS / 3
    assert hosts.loss.lost == 0
    assert hosts.ends.unsent > 0


@AS_ROOT
def test_a_stop_before_the_first_answer_is_named(tmp_path: Path) -> None:
    needed("ip")
    with Between() as between:
        reflector = between.reflect()
        asking = between.asking(tmp_path / "path", "--rate=200", "--duration=500ms")
        os.kill(reflector.pid, signal.SIGSTOP)
        time.sleep(STOP_NS / 1e9)
        os.kill(reflector.pid, signal.SIGCONT)
        _, hosts, _ = asking.end()
    [stopped] = [each for each in hosts.reflector_stalls if each.cause == "stopped"]
    assert stopped.stall_ns_max >= STOP_NS * 0.5


@AS_ROOT
def test_ctrl_c_waits_for_what_the_reflector_still_has_to_tell(tmp_path: Path) -> None:
    needed("ip")
    with Between() as between:
        between.reflect()
        asking = between.asking(tmp_path / "path", "--rate=2000", "--flows=16", "--duration=60s")
        time.sleep(0.1)
        asking.process.send_signal(signal.SIGINT)
        _, hosts, _ = asking.end()
    # When the last answer of each flow left is told behind it.
    assert len(hosts.flows) == 16 and hosts.inexact == 0


@AS_ROOT
def test_what_a_host_refuses_is_counted_there_packet_by_packet(tmp_path: Path) -> None:
    """Rules of both hosts drop every fifth packet that is to leave."""
    needed("ip", "nft")
    with Between() as between:
        between.reflect()
        asking = between.asking(
            tmp_path / "path", "--rate=400", "--pattern=burst:8,0ns", "--duration=1s"
        )
        for side, port in (("near", "dport"), ("far", "sport")):
            rule = f"udp {port} {PORT} numgen inc mod 5 0 counter drop"
            chain = "chain out { type filter hook output priority 0;"
            between.run(side, "nft", f"table inet own {{\n{chain}\n{rule}\n}}\n}}\n")
        _, hosts, _ = asking.end()
        near, far = (
            int(between.run(side, "nft", "list", "ruleset").split("packets ")[1].split()[0])
            for side in ("near", "far")
        )
    ends, loss = hosts.ends, hosts.loss
    # The last ones may be of those that ask for no more than what is still to be told.
    assert 0 < ends.unsent_refused <= near <= ends.unsent_refused + MOST_CLOSING
    # Behind the last answer nothing tells on which way a packet was lost; no two in a row are.
    assert loss.where_unknown <= 1
    assert loss.lost == loss.reflector_unsent + loss.where_unknown
    assert 0 < loss.reflector_unsent <= far <= loss.reflector_unsent + MOST_CLOSING


@AS_ROOT
def test_packets_that_a_queue_refuses_leave_no_time_to_others(tmp_path: Path) -> None:
    """A queue of either host is too short for a burst: what leaves keeps its own time."""
    needed("ip", "tc")
    queue = ("tbf", "burst", "400", "rate")
    with Between() as between:
        between.reflect()
        between.run(
            "near", "tc", "qdisc", "add", "dev", "host0", "root", *queue, "20mbit", "limit", "2000"
        )
        between.run(
            "far", "tc", "qdisc", "add", "dev", "host0", "root", *queue, "4mbit", "limit", "1000"
        )
        asking = between.asking(
            tmp_path / "path", "--rate=2000", "--pattern=burst:20,0ns", "--duration=1s"
        )
        _, hosts, passages = asking.end()
    ends = hosts.ends
    assert 0 < ends.unsent_refused <= ends.unsent
    assert ends.reflector is not None
    assert ends.reflector.unsent > 0
    assert ends.stamped > ends.sent // 2
    # Both hosts have one clock and one cable.
    there_ns = (passages.received_ns - passages.departed_ns)[passages.exact]
    back_ns = (passages.arrived_ns - passages.answered_ns)[passages.exact]
    for way_ns in (there_ns, back_ns):
        assert len(way_ns) > 20
        assert way_ns.min() >= 0
        assert np.median(way_ns) < 100_000


@AS_ROOT
def test_what_waits_in_the_senders_own_queue_is_told_and_is_no_latency(tmp_path: Path) -> None:
    """Bursts of ten, for which the queue takes 10 times 0.7 ms."""
    needed("ip", "tc")
    queue = ("tbf", "burst", "400", "rate", "2mbit", "limit", "20000")
    with Between() as between:
        between.reflect()
        options = ("--rate=200", "--pattern=burst:10,0ns", "--duration=1s", "--txtime=off")
        _, without, _ = between.ask(tmp_path / "without", *options)
        between.run("near", "tc", "qdisc", "add", "dev", "host0", "root", *queue)
        summary, with_queue, _ = between.ask(tmp_path / "with", *options)
    for hosts in (without, with_queue):
        assert (hosts.loss.lost, hosts.ends.stamped) == (0, hosts.ends.sent)
    assert without.in_queue is not None
    assert with_queue.in_queue is not None
    assert with_queue.in_queue.ns_p50 > 10 * without.in_queue.ns_p50
    assert with_queue.in_queue.ns_p50 > 10 * summary["latency_ns_p50"]


@AS_ROOT
def test_loss_is_told_by_direction(tmp_path: Path) -> None:
    """Rules drop every fifth query, and every seventh answer that is left."""
    needed("ip", "nft")
    rules = (
        "table inet loss {{ chain in {{ type filter hook input priority 0;\n"
        "udp {port} 862 numgen inc mod {every} 0 counter drop\n}}\n}}\n"
    )
    with Between() as between:
        between.reflect()
        asking = between.asking(tmp_path / "path", "--rate=300", "--duration=1500ms")
        for side, port, every in (("far", "dport", 5), ("near", "sport", 7)):
            between.run(side, "nft", rules.format(port=port, every=every))
        summary, hosts, _ = asking.end()
        dropped = [
            int(between.run(side, "nft", "list", "ruleset").split("packets ")[1].split()[0])
            for side in ("far", "near")
        ]
    loss = hosts.loss
    assert loss.forth is not None
    assert loss.back is not None
    # Those behind the last one, which ask for what is still to be told, are dropped as well.
    assert loss.lost == summary["lost"] <= sum(dropped) <= loss.lost + 2 * MOST_CLOSING
    for number, lost in zip(dropped, (loss.forth, loss.back), strict=True):
        assert number - loss.where_unknown - MOST_CLOSING <= lost <= number
    assert loss.of_ends == 0
    assert min(dropped) > 10


@AS_ROOT
def test_a_plain_session_and_ipv6(tmp_path: Path) -> None:
    """Nothing beyond RFC 8762, as other reflectors know it: the ends say less."""
    needed("ip")
    with Between() as between:
        between.reflect()
        options = ("--plain", "--rate=200", "--duration=500ms", "--size=imix")
        summary, hosts, _ = between.ask(tmp_path / "path", *options, to=f"[{FAR_V6}]:{PORT}")
    assert summary["lost"] == 0
    assert hosts.ends.reflector is None
    assert hosts.one_way.error_ns is None
    assert hosts.inexact == summary["count"]


class _Other:
    """A reflector of others on this machine, which answers as a function says."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while True:
            query, sender = self._socket.recvfrom(1 << 16)
            if not query:
                return
            self._socket.sendto(self._answer(query), sender)

    def ask(self, folder: Path, *options: str) -> Found:
        """Measure to it."""
        folder.mkdir()
        to = f"127.0.0.1:{self._socket.getsockname()[1]}"
        words = [f"--to={to}", f"--record={folder}", "--duration=300ms", *options]
        # A sender that asks whether the queue has times may have to ask twice.
        words.append("--txtime=off")
        sender = subprocess.Popen(
            [str(find_binary()[0]), "sender", "--", "--rate=100", *words],
            stdout=subprocess.PIPE,
            text=True,
        )
        return Asking(sender, folder, to).end()


def _ntp(unix_ns: int) -> int:
    seconds, ns = divmod(unix_ns, 10**9)
    return (seconds + 2_208_988_800) << 32 | (ns << 32) // 10**9


def test_a_clock_that_is_set_leaves_no_latency_of_nothing(tmp_path: Path) -> None:
    """The reflector's clock is set forward while it has the 5th query, and back with the 9th."""
    ahead_ns, asked = 0, 0

    def answer(query: bytes) -> bytes:
        nonlocal ahead_ns, asked
        came, asked = time.time_ns() + ahead_ns, asked + 1
        ahead_ns += {5: 10**9, 9: -(10**9)}.get(asked, 0)
        left = time.time_ns() + ahead_ns
        number = query[:4]
        return b"".join(
            [number, struct.pack("!QHxxQ", _ntp(left), 1, _ntp(came)), query[:14], bytes(6)]
        )

    with _Other(answer) as other:
        summary, hosts, passages = other.ask(tmp_path / "path", "--plain")
    assert hosts.contradictory == 2
    wrong = passages.contradictory
    # The first query was to see whether anybody answers.
    assert np.flatnonzero(wrong).tolist() == [3, 7]
    assert np.array_equal(passages.latency_ns[wrong], passages.round_trip_ns[wrong])
    assert np.array_equal(passages.inexact_ns[wrong], passages.round_trip_ns[wrong])
    assert not passages.exact.any()
    assert summary["latency_ns_min"] > 0
    assert summary["least_latency_ns_max"] <= summary["latency_ns_max"]


def test_an_older_reflector_is_asked_in_its_own_form(tmp_path: Path) -> None:
    """It takes 56 bytes of version 1 alone, and tells a stall of which a later one would tell."""
    forms, asked = [], 0

    def answer(query: bytes) -> bytes:
        nonlocal asked
        came, asked = _ntp(time.time_ns()), asked + 1
        number, flags, kind, length = query[:4], *struct.unpack_from("!BBH", query, 64)
        value = query[68 : 68 + length]
        assert (flags, kind) == (0x80, 252)
        forms.append((value[:4], length))
        if forms[-1] == (b"tsw1", 56):
            flags, stalls = 0, int(asked > 10)
            told = struct.pack("!IIIIBBH", 1, 0, 0, stalls, 1, 0, 0)
            told += struct.pack("!QQIIII", time.time_ns(), 2_000_000, 0, 0, 0, 700)
            value = b"tsw1" + told
        base = [number, struct.pack("!QHxxQ", _ntp(time.time_ns()), 1, came), query[:14], bytes(6)]
        extensions = [query[44:64], struct.pack("!BBH", flags, kind, length), value]
        return b"".join([*base, *extensions, query[68 + length :]])

    with _Other(answer) as other:
        _, hosts, _ = other.ask(tmp_path / "path")
    assert list(dict.fromkeys(forms)) == [(b"tsw2", 60), (b"tsw1", 60), (b"tsw1", 56)]
    told = hosts.ends.reflector
    assert told is not None
    assert (told.older, told.stalls, told.handling_ns) == (True, 1, 700)
    [stalled] = hosts.reflector_stalls
    assert (stalled.cause, stalled.stall_ns_max) == ("stopped", 2_000_000)
    assert any("older version" in warning for warning in warnings_of(hosts))


def test_a_reflector_that_has_gone_is_asked_for_the_rest_no_longer_than_for_an_answer(
    tmp_path: Path,
) -> None:
    """It says of itself that it is one of tailscope, but of no answer when it left."""
    drain_s, closing_s = 3, list[float]()

    def answer(query: bytes) -> bytes:
        number = struct.unpack_from("!I", query)[0]
        if number >= 30:
            closing_s.append(time.monotonic())
            return b"gone"
        came = _ntp(time.time_ns())
        base = [query[:4], struct.pack("!QHxxQ", came, 1, came), query[:14], bytes(6)]
        return b"".join([*base, query[44:64], b"\0", query[65:]])

    for number in range(3):
        closing_s.clear()
        with _Other(answer) as other:
            _, hosts, _ = other.ask(tmp_path / f"path{number}", f"--drain={drain_s}s")
        # On a busy machine some leave too late to be sent.
        if hosts.ends.sent == 30:
            break
    assert hosts.ends.sent == 30
    # In three rounds: twice all of them, then what is left of the 64 that a reflector keeps.
    assert len(closing_s) == 64
    assert closing_s[-1] - closing_s[0] < drain_s


KEY = bytes(range(32))


def _key_file(folder: Path) -> str:
    file = folder / "key"
    file.write_text(KEY.hex())
    file.chmod(0o600)
    return f"--key-file={file}"


def _sealed(first: bytes, key: bytes = KEY) -> bytes:
    """Seal 96 bytes as RFC 8762 does, by the library of Python."""
    return first + hmac.digest(key, first, "sha256")[:16]


def test_a_reflector_with_a_key_answers_those_who_have_it(tmp_path: Path) -> None:
    reflector = _reflector(_key_file(tmp_path))
    sent, now = 0xEB00_0000_8000_0000, _ntp(time.time_ns())
    query = struct.pack("!I12xQHH68x", 7, sent, 0x8001, 513)
    wrong = [
        _sealed(query, bytes(32)),
        # Open, too short, and changed on the way.
        struct.pack("!IQHH28x", 9, sent, 0x8001, 513),
        struct.pack("!IQHH28x", 9, sent, 0x8001, 513) + bytes(68),
        _sealed(query)[:-1],
        bytes([1]) + _sealed(query)[1:],
    ]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(10)
        sender.connect(("127.0.0.1", _port_of(reflector.pid)))
        for packet in wrong:
            sender.send(packet)
        sender.send(_sealed(query))
        answer = sender.recv(1000)
        assert answer == _sealed(answer[:96])
        fields = struct.unpack("!I12xQHH4xQ8xI12xQH6xB15x", answer[:96])
        seq, left, _, ssid, came, of, of_sent, of_error, ttl = fields
        assert (seq, ssid, of, of_sent, of_error, ttl) == (0, 513, 7, sent, 0x8001, 64)
        assert now <= came <= left < now + (10 << 32)
        # An answer to an answer would go on for ever.
        sender.send(answer)
        sender.settimeout(0.2)
        with pytest.raises(TimeoutError):
            sender.recv(1000)
    counts = counts_of(reflector)
    assert counts["received"] == len(wrong) + 2
    assert (counts["answered"], counts["refused_key"], counts["malformed"]) == (1, 3, 3)


def test_a_sender_with_a_key_takes_no_other_answers(tmp_path: Path) -> None:
    """Every fourth answer is of somebody who does not have the key."""
    asked = 0

    def answer(query: bytes) -> bytes:
        nonlocal asked
        assert query[:112] == _sealed(query[:96])
        asked += 1
        number, error, now = query[:4], query[24:28], _ntp(time.time_ns())
        first = [number, bytes(12), struct.pack("!Q", now), error, bytes(4), struct.pack("!Q", now)]
        first += [bytes(8), number, bytes(12), query[16:26], bytes(6), bytes([64]), bytes(15)]
        return _sealed(b"".join(first), KEY if asked % 4 else bytes(32))

    with _Other(answer) as other:
        _, hosts, passages = other.ask(tmp_path / "path", "--plain", _key_file(tmp_path))
    ends = hosts.ends
    assert ends.wrong_key == asked // 4 > 0
    assert ends.received == len(passages.seq) == asked - 1 - ends.wrong_key
    assert (hosts.loss.lost, hosts.ttl) == (ends.wrong_key, (64,))


@AS_ROOT
def test_sealed_packets_carry_what_both_ends_say(tmp_path: Path) -> None:
    needed("ip")
    key = _key_file(tmp_path)
    with Between() as between:
        between.reflect(key)
        options = (key, "--rate=200", "--duration=500ms", "--dscp=46", "--size=300")
        summary, hosts, _ = between.ask(tmp_path / "path", *options)
    assert (summary["lost"], hosts.ends.wrong_key, hosts.dscp) == (0, 0, (46,))
    assert hosts.ends.reflector is not None
    assert hosts.one_way.error_ns == 0
    assert hosts.inexact < summary["count"] // 2


def test_a_key_that_others_may_read_is_refused(tailscope: Tailscope, tmp_path: Path) -> None:
    key = _key_file(tmp_path)
    Path(key.removeprefix("--key-file=")).chmod(0o644)
    out = tmp_path / "run"
    for words in (("reflect", "--port", "0"), ("run", "--to", "127.0.0.1:9", "--out", str(out))):
        done = tailscope(*words, key)
        assert (done.returncode, code_of(done)) == (1, "key-open-to-others")
    assert not out.exists()


def test_whatever_comes_a_reflector_goes_on_and_never_says_more() -> None:
    """Random packets of any size, and answers to it: no reply is longer than its query."""
    counts = _survives(2_000)
    assert counts["answered"] > 0


def test_nobody_guesses_a_key(tmp_path: Path) -> None:
    counts = _survives(2_000, _key_file(tmp_path))
    assert counts["answered"] == 0
    assert counts["refused_key"] > 0


@pytest.mark.long
def test_a_million_random_packets_change_nothing() -> None:
    _survives(1_000_000)


def _survives(packets: int, *options: str) -> dict[str, int]:
    random = np.random.default_rng(packets)
    reflector = _reflector("--rate-pps=1000000", *options)
    port = _port_of(reflector.pid)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        sender.setblocking(False)
        memory = _memory_kib(reflector.pid)
        sent, replies, longest = 0, 0, 0
        lengths = random.integers(0, 200, packets)
        noise = random.bytes(1 << 16)
        for at, length in enumerate(lengths.tolist()):
            start = (at * 7919) % (len(noise) - 200)
            sender.send(noise[start : start + length])
            sent += length
            if at % 64 == 0 or at == packets - 1:
                if at == packets - 1:
                    time.sleep(0.3)
                try:
                    while True:
                        reply = sender.recv(1 << 16)
                        replies, longest = replies + 1, max(longest, len(reply))
                        sent -= len(reply)
                except BlockingIOError:
                    pass
        grown = _memory_kib(reflector.pid) - memory
    counts = counts_of(reflector)
    assert counts["answered"] <= np.count_nonzero(lengths >= 41)
    assert counts["malformed"] > 0
    assert longest <= 199
    assert sent >= 0
    assert (replies > 0) == (counts["answered"] > 0)
    assert counts["sessions"] <= 65_536
    assert grown < 64 * 1024
    return counts


def _port_of(pid: int) -> int:
    listed = subprocess.run(["ss", "-lunpH"], capture_output=True, text=True, check=True).stdout
    [line] = [line for line in listed.splitlines() if f"pid={pid}," in line]
    return int(line.split()[3].rpartition(":")[2])


def _memory_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1])


def test_senders_of_others_are_answered_as_their_standards_say() -> None:
    """TWAMP light with the least padding that an answer fits in, and STAMP with a session."""
    reflector = _reflector()
    ntp = 0xEB00_0000_8000_0000
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(10)
        sender.connect(("127.0.0.1", _port_of(reflector.pid)))
        for number in range(3):
            sender.send(struct.pack("!IQH27x", number, ntp, 0x3FFF))
            answer = sender.recv(1000)
            assert len(answer) == 41
            seq, left, _, came, of, sent, error, ttl = struct.unpack("!IQHxxQIQHxxB", answer)
            assert (seq, of, sent, error, ttl) == (number, number, ntp, 0x3FFF, 64)
            assert 0 <= left - came < 1 << 32
        sender.send(struct.pack("!IQHH28xBBH4s", 9, ntp, 0x8001, 513, 0x80, 200, 4, b"mine"))
        answer = sender.recv(1000)
        assert struct.unpack_from("!I10xH8xI", answer) == (0, 513, 9)
        assert answer[44:] == bytes([0x80, 200, 0, 4]) + b"mine"
        sender.send(struct.pack("!IQH8x", 9, ntp, 0x3FFF))
        # An answer to an answer would go on for ever.
        sender.send(answer)
        sender.settimeout(0.2)
        with pytest.raises(TimeoutError):
            sender.recv(1000)
    counts = counts_of(reflector)
    assert (counts["answered"], counts["malformed"], counts["sessions"]) == (4, 2, 2)


def test_scapy_asks_and_reads_answers() -> None:
    """Its layer of STAMP writes queries with an extension, and takes the answers apart."""
    from scapy.contrib.stamp import (
        ErrorEstimate,
        STAMPSessionReflectorTestUnauthenticated,
        STAMPSessionSenderTestUnauthenticated,
        STAMPTestTLV,
    )

    reflector = _reflector()
    extensions = [STAMPTestTLV(flags="U", type=4, len=4, value=bytes([46 << 2, 0, 0, 0]))]
    estimate = ErrorEstimate(S=1, scale=12, multiplier=34)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(10)
        sender.connect(("127.0.0.1", _port_of(reflector.pid)))
        for number in range(3):
            query = STAMPSessionSenderTestUnauthenticated(
                seq=7 + number, ts=4e9, err_estimate=estimate, ssid=513, tlv_objects=extensions
            )
            sender.send(bytes(query))
            answer = STAMPSessionReflectorTestUnauthenticated(sender.recv(1000))
            assert (answer.seq, answer.seq_sender, answer.ssid) == (number, 7 + number, 513)
            assert (answer.ts_sender, answer.ttl_sender) == (query.ts, 64)
            assert bytes(answer.err_estimate_sender) == bytes(estimate)
            assert 0 <= answer.ts - answer.ts_rx < 10
            [extension] = answer.tlv_objects
            assert (int(extension.flags), extension.type, extension.len) == (0, 4, 4)
    assert counts_of(reflector)["answered"] == 3


@pytest.mark.parametrize("options", [("--plain",), ("--size=300", "--dscp=46")])
def test_scapy_reads_queries_and_answers(tmp_path: Path, options: tuple[str, ...]) -> None:
    """It returns extensions as they came, which says that it knows none of them."""
    from scapy.contrib.stamp import (
        ErrorEstimate,
        STAMPSessionReflectorTestUnauthenticated,
        STAMPSessionSenderTestUnauthenticated,
    )

    asked = 0

    def now() -> float:
        return time.time() + 2_208_988_800

    def answer(content: bytes) -> bytes:
        nonlocal asked
        came, query = now(), STAMPSessionSenderTestUnauthenticated(content)
        asked += 1
        reply = STAMPSessionReflectorTestUnauthenticated(
            seq=asked,
            ts=now(),
            err_estimate=ErrorEstimate(S=0, scale=20, multiplier=1),
            ssid=query.ssid,
            ts_rx=came,
            seq_sender=query.seq,
            ts_sender=query.ts,
            err_estimate_sender=query.err_estimate,
            ttl_sender=61,
            tlv_objects=query.tlv_objects,
        )
        return bytes(reply)

    with _Other(answer) as other:
        summary, hosts, _ = other.ask(tmp_path / "path", *options)
    # First queries see whether anybody answers, and in which form a reflector speaks of itself.
    asked -= 1 if options == ("--plain",) else 3
    assert (hosts.ends.sent, summary["lost"], hosts.ends.foreign) == (asked, 0, 0)
    assert (hosts.ends.reflector, hosts.ttl, hosts.dscp) == (None, (61,), ())
    assert (hosts.contradictory, hosts.drifted) == (0, 0)
    assert not hosts.ends.reflector_clock.synchronised


def _reflector(*options: str) -> subprocess.Popen[str]:
    reflector = subprocess.Popen(
        [str(find_binary()[0]), "reflect", "--", "--port=0", *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reflector.stdout is not None
    reflector.stdout.readline()
    return reflector


def test_only_allowed_sources_are_answered() -> None:
    reflector = _reflector("--allow=192.0.2.0/24")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(0.2)
        sender.sendto(bytes(44), ("127.0.0.1", _port_of(reflector.pid)))
        with pytest.raises(TimeoutError):
            sender.recv(100)
    counts = counts_of(reflector)
    assert (counts["received"], counts["refused_source"], counts["answered"]) == (1, 1, 0)


def test_a_plan_is_printed(tailscope: Tailscope) -> None:
    done = tailscope("run", "--to", "192.0.2.1", "--flows", "4", "--dscp", "46", "--dry-run")
    assert done.returncode == 0
    assert "192.0.2.1:862" in done.stdout
    assert "4 flows, DSCP 46" in done.stdout


def test_a_host_that_does_not_answer_is_an_error(tailscope: Tailscope, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = tailscope("run", "--to", "127.0.0.1:9", "--duration", "1s", "--out", out)
    assert (done.returncode, code_of(done)) == (1, "no-answer")
    assert not out.exists()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("192.0.2.1", "192.0.2.1:862"),
        ("192.0.2.1:8620", "192.0.2.1:8620"),
        ("2001:db8::1", "[2001:db8::1]:862"),
        ("[2001:db8::1]:8620", "[2001:db8::1]:8620"),
        ("fe80::1%lo", f"[fe80::1%{socket.if_nametoindex('lo')}]:862"),
    ],
)
def test_a_host_is_an_address_with_or_without_a_port(given: str, expected: str) -> None:
    assert address_of(given) == expected


def test_an_address_on_a_link_needs_its_interface() -> None:
    with pytest.raises(UsageError) as refused:
        address_of("[fe80::1]:862")
    assert refused.value.code == "no-scope"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--rate", "0"), "out-of-range"),
        (("--burst", "0"), "out-of-range"),
        (("--size", "1519"), "out-of-range"),
        (("--size", "64:1,1519:1"), "out-of-range"),
        (("--trim", "10s"), "trim"),
    ],
)
def test_what_no_run_can_have_is_refused(
    tailscope: Tailscope, options: tuple[str, str], code: str
) -> None:
    done = tailscope("run", "--to", "192.0.2.1", "--dry-run", *options)
    assert (done.returncode, code_of(done)) == (1, code)


@pytest.mark.parametrize("given", ["", ":862", "192.0.2.1:0", "192.0.2.1:port", "host:70000"])
def test_what_is_no_host_is_refused(given: str) -> None:
    with pytest.raises(UsageError) as refused:
        address_of(given)
    assert refused.value.code == "host-and-port"
