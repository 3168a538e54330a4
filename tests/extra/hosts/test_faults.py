"""50 faults of both ends, none of which is the network's; and 50 of the network, none of an end's.

Clocks are set in guests, whose machine is their own (`test_hosts_in_guests.py`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from between import FAR, NEAR, Between
from runs import AS_ROOT, needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from between import Found

    Fault = Callable[[Between, int, int], None]

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("dataplane"), AS_ROOT]

TRAFFIC = ("--rate=200", "--duration=2s", "--drain=2s")
SENDER_PORT = 40_000
FAULT_S = 0.3
LEAST_NS = 100_000_000
"""What a fault must show as, at least."""
SHORT_NS = 1_000_000
"""How long the kernel at least keeps a program waiting that is idle by policy."""
MOST_NS = 20_000_000
"""What a path without a fault may take on a busy machine."""
READS_PER_S = 50
"""What a disk that is slow reads, each time a page or some beside it."""
PAGES, ROUNDS, MOST_ROUNDS = 10, 60, 300
"""How many pages a program must have waited for, and how often they are forced out."""
SWAP_BYTES = 64 << 20
_MADVISE, _PAGEOUT = 440, 21
_OLD: list[Path] = []
_GROUPS = Path("/sys/fs/cgroup/cpu")


def stop(between: Between, pid: int, other: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(FAULT_S)
    os.kill(pid, signal.SIGCONT)


def throttle(between: Between, pid: int, other: int) -> None:
    """Leave it 1 ms of each 400 ms."""
    group = _group_of(pid)
    (group / "cpu.cfs_period_us").write_text("400000")
    (group / "cpu.cfs_quota_us").write_text("1000")
    time.sleep(3 * FAULT_S)
    (group / "cpu.cfs_quota_us").write_text("-1")


def _group_of(pid: int) -> Path:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    [path] = [line.split(":", 2)[2] for line in lines if line.split(":")[1] == "cpu"]
    return _GROUPS / path.removeprefix("/")


@contextmanager
def group() -> Iterator[None]:
    """Let programs that are started in the block have a control group of their own."""
    made = _GROUPS / f"ts-{os.getpid()}-{time.monotonic_ns()}"
    made.mkdir()
    (made / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (_GROUPS / "cgroup.procs").write_text(str(os.getpid()))
        _OLD.append(made)


def starve(between: Between, pid: int, other: int) -> None:
    """Let others have its CPU."""
    subprocess.run(["chrt", "-i", "-p", "0", str(pid)], check=True)
    _occupy(pid)
    subprocess.run(["chrt", "-o", "-p", "0", str(pid)], check=True)


def outrank(between: Between, pid: int, other: int) -> None:
    """Let others of a higher priority want its CPU, too."""
    subprocess.run(["renice", "-n", "19", str(pid)], check=True, capture_output=True)
    _occupy(pid)


def _occupy(pid: int) -> None:
    """Keep the first CPU busy, and the process on it."""
    subprocess.run(["taskset", "-pc", "0", str(pid)], check=True, capture_output=True)
    busy = ["nice", "-n", "-15", "timeout", str(2 * FAULT_S), "sh", "-c", "while :; do :; done"]
    hogs = [subprocess.Popen(["taskset", "-c", "0", *busy]) for _ in range(3)]
    for hog in hogs:
        hog.wait()


@pytest.fixture(scope="module")
def swap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the machine a file to swap to: a disk is slow enough to be noticed."""
    needed("mkswap", "swapon", "swapoff")
    file = tmp_path_factory.mktemp("swap") / "file"
    file.touch(0o600)
    file.write_bytes(bytes(SWAP_BYTES))
    subprocess.run(["mkswap", str(file)], check=True, capture_output=True)
    if subprocess.run(["swapon", str(file)], capture_output=True, check=False).returncode:
        pytest.skip(f"the file system of {file.parent} takes no swap")
    yield
    subprocess.run(["swapoff", str(file)], check=True)
    file.unlink()


def page_out(between: Between, pid: int, other: int) -> None:
    """Force out what a program has in memory of its own, some times; its disk is a slow one."""
    group = Path("/sys/fs/cgroup/blkio", f"ts-{os.getpid()}-{time.monotonic_ns()}")
    group.mkdir()
    _OLD.append(group)
    device = Path("/tmp").stat().st_dev
    rule = f"{os.major(device)}:{os.minor(device)} {READS_PER_S}"
    (group / "blkio.throttle.read_iops_device").write_text(rule)
    (group / "cgroup.procs").write_text(str(pid))
    call = ctypes.CDLL(None, use_errno=True).syscall
    handle = os.pidfd_open(pid)
    before, number = _pages_read(pid), 0
    while number < ROUNDS or (_pages_read(pid) < before + PAGES and number < MOST_ROUNDS):
        number += 1
        parts = list(_own_memory(pid))
        vectors = b"".join(struct.pack("@PN", start, end - start) for start, end in parts)
        # What is locked or shared stays: it says so for a part, and the rest is forced out.
        for at in range(len(parts)):
            call(_MADVISE, handle, vectors[16 * at :], 1, _PAGEOUT, 0)
        # What was written to the disk is let go the next time, unless it was used meanwhile.
        time.sleep(0.02 if number % 2 else 0.002)
    os.close(handle)
    (group.parent / "cgroup.procs").write_text(str(pid))


def _pages_read(pid: int) -> int:
    """Return how often a program had to wait for a page from a disk."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[9])


def _own_memory(pid: int) -> Iterator[tuple[int, int]]:
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        where, rights, _, device, *_ = line.split()
        if rights.startswith("rw") and device == "00:00":
            start, end = where.split("-")
            yield int(start, 16), int(end, 16)


def flood(between: Between, pid: int, other: int) -> None:
    """Fill the socket of a reflector that does not look."""
    os.kill(pid, signal.SIGSTOP)
    code = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        f"[s.sendto(bytes(40), ({FAR!r}, 862)) for _ in range(12000)]"
    )
    between.run("near", "python3", "-c", code)
    time.sleep(FAULT_S)
    os.kill(pid, signal.SIGCONT)


def flood_back(between: Between, pid: int, reflector: int) -> None:
    """Fill the socket of a sender that does not look, before answers come to it."""
    os.kill(reflector, signal.SIGSTOP)
    time.sleep(FAULT_S)
    os.kill(pid, signal.SIGSTOP)
    code = (
        "import socket, struct; s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 17);"
        f"p = struct.pack('!HHHH', 862, {SENDER_PORT}, 48, 0) + bytes(40);"
        f"[s.sendto(p, ({NEAR!r}, 0)) for _ in range(12000)]"
    )
    between.run("far", "python3", "-c", code)
    os.kill(reflector, signal.SIGCONT)
    time.sleep(FAULT_S)
    os.kill(pid, signal.SIGCONT)


def _clean() -> None:
    while _OLD:
        with suppress(OSError):
            _OLD.pop().rmdir()


def ended(tmp_path: Path, fault: Fault, end: str) -> Found:
    with Between() as between:
        between.stack.callback(_clean)
        with group():
            reflector = between.reflect()
        with group():
            traffic = [*TRAFFIC[::2], "--duration=6s"] if "flood" in fault.__name__ else TRAFFIC
            port = f"--source-port={SENDER_PORT}"
            asking = between.asking(tmp_path / "path", *traffic, port)
        time.sleep(0.5)
        pids = [reflector.pid, asking.process.pid]
        fault(between, *(pids if end == "reflector" else reversed(pids)))
        return asking.end()


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize(
    ("fault", "end", "cause"),
    [
        (stop, "reflector", "stopped"),
        (stop, "sender", "stopped"),
        (throttle, "reflector", "throttled"),
        (throttle, "sender", "throttled"),
        (starve, "reflector", "preempted"),
        (starve, "sender", "preempted"),
        (outrank, "reflector", "preempted"),
        (outrank, "sender", "preempted"),
    ],
)
def test_a_fault_of_an_end_is_named_and_never_the_network(
    tmp_path: Path, fault: Fault, end: str, cause: str, number: int
) -> None:
    needed("ip", "taskset", "chrt")
    summary, hosts, _ = ended(tmp_path, fault, end)
    stalls = hosts.reflector_stalls if end == "reflector" else hosts.ends.stalls
    longest = max((each.stall_ns_max for each in stalls if each.cause == cause), default=0)
    print(end, cause, longest, summary["latency_ns_max"], hosts.loss)
    assert longest >= (SHORT_NS if cause == "preempted" else LEAST_NS)
    assert summary["latency_ns_max"] < longest / 2
    assert hosts.loss.lost == 0


@pytest.mark.usefixtures("swap")
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("end", ["reflector", "sender"])
def test_pages_that_were_forced_out_are_named_and_never_the_network(
    tmp_path: Path, end: str, number: int
) -> None:
    needed("ip")
    summary, hosts, _ = ended(tmp_path, page_out, end)
    stalls = hosts.reflector_stalls if end == "reflector" else hosts.ends.stalls
    print(end, stalls, summary["latency_ns_max"], hosts.loss)
    longest = max((each.stall_ns_max for each in stalls if each.cause == "paged"), default=0)
    assert longest >= SHORT_NS
    assert summary["latency_ns_max"] < MOST_NS
    assert hosts.loss.lost == 0


@pytest.mark.parametrize("number", range(5))
def test_what_a_socket_has_no_room_for_is_no_loss_of_the_network(
    tmp_path: Path, number: int
) -> None:
    needed("ip")
    summary, hosts, _ = ended(tmp_path, flood, "reflector")
    loss = hosts.loss
    print(loss, summary["latency_ns_max"])
    assert hosts.ends.reflector is not None
    assert hosts.ends.reflector.dropped > 0
    assert loss.forth == loss.back == 0
    assert loss.reflector_socket == loss.lost > 0
    assert summary["latency_ns_max"] < MOST_NS


@pytest.mark.parametrize("number", range(5))
def test_what_the_socket_of_a_sender_has_no_room_for_is_no_loss_of_the_network(
    tmp_path: Path, number: int
) -> None:
    needed("ip")
    summary, hosts, _ = ended(tmp_path, flood_back, "sender")
    loss = hosts.loss
    print(loss, summary["latency_ns_max"])
    assert hosts.ends.dropped > 0
    assert loss.forth == loss.back == 0
    assert loss.sender_socket == loss.lost > 0
    assert summary["latency_ns_max"] < MOST_NS


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize(
    "law",
    [
        ["--law=bimodal:1ms,120ms,0.05"],
        ["--law=bimodal:1ms,120ms,0.05", "--overtake"],
        ["--law=fixed:1ms", "--gate=queue:40ms,4"],
    ],
    ids=["delay", "reordering", "queue"],
)
def test_a_law_of_the_network_is_never_that_of_an_end(
    tmp_path: Path, law: list[str], number: int
) -> None:
    needed("ip", "ethtool")
    with Between([*law, f"--seed={number}"]) as between:
        between.reflect()
        summary, hosts, _ = between.ask(tmp_path / "path", *TRAFFIC)
    order, loss = hosts.order, hosts.loss
    print(summary["least_latency_ns_max"], loss, order)
    assert summary["least_latency_ns_max"] >= LEAST_NS
    assert loss.of_ends == 0
    assert (loss.lost > 0) == ("queue" in law[-1])
    assert ((order.reordered_forth or 0) > 0) == ((order.reordered_back or 0) > 0)
    assert ((order.reordered_forth or 0) > 0) == (law[-1] == "--overtake")


@pytest.mark.parametrize("number", range(10))
def test_a_stall_of_the_network_is_never_that_of_an_end(tmp_path: Path, number: int) -> None:
    needed("ip", "ethtool")
    law = ["--stall-period=1s", "--stall-duration=250ms", f"--seed={number}"]
    with Between(law) as between:
        between.reflect()
        summary, hosts, _ = between.ask(tmp_path / "path", *TRAFFIC)
    print(summary["latency_ns_max"], summary["least_latency_ns_max"], hosts.loss)
    assert summary["least_latency_ns_max"] >= LEAST_NS
    assert hosts.loss.of_ends == 0


@pytest.mark.parametrize("number", range(10))
def test_loss_in_the_network_is_never_that_of_an_end(tmp_path: Path, number: int) -> None:
    needed("ip", "nft")
    side, port = [("far", "dport"), ("near", "sport")][number % 2]
    rule = (
        "table inet loss {\ncounter dropped { }\nchain in { type filter hook input priority 0;\n"
        f'udp {port} 862 counter name "dropped" drop\n}}\n}}\n'
    )
    with Between() as between:
        between.reflect()
        asking = between.asking(tmp_path / "path", *TRAFFIC)
        time.sleep(0.5)
        between.run(side, "nft", rule)
        time.sleep(0.05 + 0.02 * number)
        between.run(side, "nft", "flush chain inet loss in")
        listed = between.run(side, "nft", "list", "counters")
        hosts = asking.end().record
    dropped = int(listed.split("packets ")[1].split()[0])
    print(dropped, hosts.loss)
    lost = hosts.loss.forth if side == "far" else hosts.loss.back
    assert lost is not None
    assert hosts.loss.lost == lost == dropped > 0
