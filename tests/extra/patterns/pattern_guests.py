"""Queues and policers of another kernel, in a guest of QEMU, with that kernel's counters.

Run by itself, it prints what is said of each: ``python pattern_guests.py``.
"""

from __future__ import annotations

import json
import signal
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from command import run
from foreign.files import packet, pcap
from foreign.frames import SERVER, udp_frame
from guests import NETWORK, booted, fetch, kernel

from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tailscope.platforms.guest import Guest
    from tailscope.testbed.places import Process

MODULES = (
    *("veth", "sch_tbf", "sch_htb", "sch_netem", "sch_fq_codel", "sch_codel", "sch_sfq", "sch_red"),
    *("sch_fq", "sch_pie", "sch_cake", "sch_ingress", "cls_matchall", "act_police"),
)
PROGRAMS = ("tc", "tcpdump", "tcpreplay", "iperf3", "ethtool", "ping")
DISTRIBUTION = "/usr/lib/x86_64-linux-gnu/tc/normal.dist"
SECONDS = 3
PATIENCE_S = 600
DRAINED_S = 1.5
"""How long tcpdump is given to take the last packets out of its buffers."""
KEPT = 96
"""Bytes of each packet that are captured."""
BURST_GAP_NS = 10_000


class Discipline(NamedTuple):
    """A device with traffic, and the truth."""

    name: str
    commands: tuple[str, ...]
    """Commands of `tc` in the router."""
    traffic: str
    true: frozenset[str]
    wanted: frozenset[str]
    """Patterns of which one is to be named."""
    figures: dict[str, dict[str, float]]
    """Figures in truth, by pattern."""


class Seen(NamedTuple):
    """What a discipline did to packets."""

    before: Path
    behind: Path
    dropped: int
    """Packets that the kernel counted as dropped."""


def schedule(kind: str, pps: float, sizes: tuple[int, ...], flows: int = 6) -> bytes:
    """Numbered datagrams as a capture that tcpreplay sends."""
    rng = np.random.default_rng(len(kind) + int(pps))
    count = int(pps * SECONDS)
    if kind == "even":
        due_ns = np.arange(count) * (1e9 / pps)
    elif kind == "random":
        due_ns = np.cumsum(rng.exponential(1e9 / pps, count))
    else:
        bursts = rng.integers(30, 120, count)
        bursts = bursts[: np.searchsorted(np.cumsum(bursts), count)]
        pauses_ns = bursts / pps * 1e9 * rng.uniform(0.6, 1.4, len(bursts))
        starts_ns = np.cumsum(pauses_ns) - pauses_ns
        within = np.concatenate([np.arange(burst) for burst in bursts])
        due_ns = np.repeat(starts_ns, bursts) + within * BURST_GAP_NS
    chosen = rng.choice(sizes, len(due_ns))
    ports = 40_000 + rng.integers(0, flows, len(due_ns))
    start_ns = 1_700_000_000 * 10**9
    return pcap(
        [
            packet(start_ns + int(ns), udp_frame(number, size=int(size) - 42, sport=int(port)))
            for number, (ns, size, port) in enumerate(zip(due_ns, chosen, ports, strict=True))
        ]
    )


TRAFFIC = {
    "even": ("even", 1000, (300,)),
    "random": ("random", 1000, (1000,)),
    "mixed": ("random", 1300, (100, 400, 1400)),
    "bursts": ("bursts", 1000, (1000,)),
    "above": ("random", 1300, (1000,)),
    "one flow": ("random", 1300, (1000,), 1),
}
"""Traffic of UDP: the kind, packets a second, and sizes of frames."""
OUT = "qdisc add dev tap-out "
RATE = 8e6 / 8
RED = "red limit 400kb min 30kb max 60kb avpkt 1000 burst 40 probability 0.5"
RATED = {"rate_bytes_per_s": RATE}


def disciplines() -> Iterable[Discipline]:
    """All of them; each shaper's rate is 8 Mbit/s; `kb` of `tc` are KiB."""
    for traffic in ("even", "random", "bursts", "tcp"):
        yield _of(f"none, {traffic}", (), traffic)
    yield from _shapers()
    yield from _links()
    yield from _policers()
    yield from _emulated()


def _of(
    name: str,
    commands: tuple[str, ...],
    traffic: str,
    true: str = "",
    wanted: str = "",
    figures: dict[str, dict[str, float]] | None = None,
) -> Discipline:
    """A discipline with its patterns between commas; TCP may have retransmissions, too."""
    patterns = [frozenset(filter(None, each.split(", "))) for each in (true, wanted)]
    if traffic == "tcp":
        patterns[0] |= {"retransmissions"}
    return Discipline(name, commands, traffic, *patterns, figures or {})


def _shaped(**figures: float) -> dict[str, dict[str, float]]:
    return {"queue": RATED, "full queue": RATED | figures, "token bucket": RATED}


def _shapers() -> Iterable[Discipline]:
    shaped, early = "queue, full queue, token bucket", "queue, token bucket"
    some = "queue, full queue"
    tbf = (OUT + "root tbf rate 8mbit burst 16kb limit 64kb",)
    truth = _shaped(limit_bytes=64 * 1024)
    burst = truth | {"token bucket": RATED | {"burst_bytes": 16 * 1024}}
    yield _of("tbf, bursts", tbf, "bursts", shaped, "token bucket", burst)
    yield _of("tbf, above", tbf, "above", shaped, "full queue", truth)
    yield _of("tbf, tcp", tbf, "tcp", shaped, some, truth)
    htb = (
        OUT + "root handle 1: htb default 1",
        "class add dev tap-out parent 1: classid 1:1 htb rate 8mbit burst 4kb",
    )
    child = OUT + "parent 1:1 handle 2: "
    for unit, limit in (("packets", 60), ("bytes", 50_000)):
        kind = f"{unit[0]}fifo limit {limit}"
        commands, truth = (*htb, child + kind), _shaped(**{f"limit_{unit}": limit})
        yield _of(f"htb, {kind}, above", commands, "above", shaped, "full queue", truth)
        yield _of(f"htb, {kind}, tcp", commands, "tcp", shaped, some, truth)
    long = (*htb, child + "pfifo limit 1000")
    yield _of("htb, pfifo limit 1000, bursts", long, "bursts", early, "queue", _shaped())
    # A queue of which some packets are dropped early is not full.
    for kind in ("fq_codel", "codel", "pie", RED):
        for traffic in ("above", "tcp"):
            name = f"htb, {kind.split()[0]}, {traffic}"
            yield _of(name, (*htb, child + kind), traffic, early, "queue", _shaped())
    fair = (*htb, child + "fq_codel")
    yield _of("htb, fq_codel, one flow", fair, "one flow", early, "queue", _shaped())
    short = (*htb, child + "fq_codel limit 50")
    yield _of(
        "htb, fq_codel limit 50, above", short, "above", shaped, some, _shaped(limit_packets=50)
    )
    yield _of("htb, sfq, above", (*htb, child + "sfq"), "above", shaped, some, _shaped())
    cake = (OUT + "root cake bandwidth 8mbit raw",)
    yield _of("cake, above", cake, "above", early, "queue", _shaped())
    by_flow = (OUT + "root fq maxrate 1mbit",)
    yield _of("fq maxrate 1mbit a flow, random", by_flow, "random", "queue")


def _links() -> Iterable[Discipline]:
    """The rate of netem, whose queue begins at the first byte: it has no bucket."""
    some = "queue, full queue"
    short = (OUT + "root netem rate 8mbit limit 50",)
    truth = _shaped(limit_packets=50)
    yield _of("netem rate limit 50, above", short, "above", some, "full queue", truth)
    yield _of("netem rate limit 50, tcp", short, "tcp", some, some, truth)
    for options in ("rate 8mbit limit 500", "rate 8mbit delay 5ms limit 500"):
        link = (f"{OUT}root netem {options}",)
        yield _of(f"netem {options}, bursts", link, "bursts", "queue", "queue", _shaped())


def _policers() -> Iterable[Discipline]:
    for rate, burst, unit in ((6e6 / 8, 20 * 1024, "bytes"), (700, 40, "packets")):
        options = (
            f"rate {rate * 8:.0f}bit burst {burst}"
            if unit == "bytes"
            else f"pkts_rate {rate} pkts_burst {burst}"
        )
        commands = (
            "qdisc add dev tap-in clsact",
            "filter add dev tap-in ingress protocol ip matchall"
            f" action police {options} conform-exceed drop",
        )
        truth = {"policer": {f"rate_{unit}_per_s": rate, f"burst_{unit}": burst}}
        for traffic in ("bursts", "above", *(["mixed"] if unit == "packets" else [])):
            name = f"police {options}, {traffic}"
            yield _of(name, commands, traffic, "policer", "policer", truth)
        if unit == "bytes":
            yield _of(f"police {options}, tcp", commands, "tcp", "policer", "", truth)


def _emulated() -> Iterable[Discipline]:
    netem = OUT + "root netem limit 10000 "
    for options, traffic in (
        *(("delay 5ms", traffic) for traffic in ("random", "bursts", "tcp")),
        ("delay 5ms 2ms", "random"),
        ("delay 5ms 1ms distribution normal", "random"),
        *(("loss 5%", traffic) for traffic in ("random", "bursts", "tcp")),
        ("loss gemodel 2% 30%", "random"),
        ("duplicate 10%", "random"),
    ):
        yield _of(f"netem {options}, {traffic}", (netem + options,), traffic)
    for options, traffic in (("reorder 25% 50%", "even"), ("reorder 20%", "random")):
        commands = (f"{netem}delay 10ms {options}",)
        name = f"netem delay 10ms {options}, {traffic}"
        yield _of(name, commands, traffic, "reordering", "reordering")
    for options, traffic in (
        ("10ms 10ms", "even"),
        ("10ms 10ms", "random"),
    ):
        yield _of(
            f"netem slot {options}, {traffic}",
            (f"{netem}slot {options}",),
            traffic,
            "batching",
            "batching",
        )
    yield _of("netem slot 5ms 20ms, random", (netem + "slot 5ms 20ms",), "random", "batching")


class Router(NamedTuple):
    """A router of a guest, between a client and a server."""

    guest: Guest
    traffic: dict[str, Path]
    """Captures for tcpreplay, which have the same paths in the guest."""

    def run(self, role: str, *words: object) -> str:
        """Run a program in a namespace to its end; what it prints."""
        return self.guest.run(_in(role, *words), timeout_s=PATIENCE_S)

    def start(self, role: str, *words: object, ready: str) -> Process:
        """Start a program, and wait until it says that it is ready."""
        process = self.guest.start(str(words[0]), _in(role, *words), merged=True)
        while (line := process.next_line(PATIENCE_S)) is None or ready not in line:
            assert process.is_running, process.last_words()
        return process

    def send(self, traffic: str) -> None:
        """Send traffic from the client to the server, and wait until it has passed."""
        if traffic == "tcp":
            self.start("server", "iperf3", "-s", "-1", "--forceflush", ready="Server listening")
            self.run("client", "iperf3", "-c", SERVER, "-t", SECONDS, "-b", "20M")
        else:
            words = ("-q", "--timer=nano", "-i", "eth0", self.traffic[traffic])
            self.run("client", "tcpreplay", *words)
        while any(each["backlog"] for each in self.qdiscs()):
            self.run("router", "sleep", 0.1)
        # What comes last proves that all before it is lost, if it is not there.
        self.run("client", "ping", "-q", "-c", 2, "-i", 0.2, SERVER)

    def qdiscs(self) -> list[dict[str, Any]]:
        """The disciplines of the port to the server, with their counters."""
        said = self.run("router", "tc", "-s", "-j", "qdisc", "show", "dev", "tap-out")
        found: list[dict[str, Any]] = json.loads(said)
        return found

    def dropped(self) -> int:
        """What the root of the disciplines and the policers have dropped."""
        roots = sum(each["drops"] for each in self.qdiscs() if each.get("root"))
        said = self.run("router", "tc", "-s", "-j", "filter", "show", "dev", "tap-in", "ingress")
        options = [each.get("options", {}) for each in json.loads(said)]
        actions = [action for each in options for action in each.get("actions", [])]
        return roots + sum(action["stats"]["drops"] for action in actions)


@contextmanager
def router(folder: Path) -> Iterator[Router]:
    """A router in a guest; the guest's time passes by its own instructions."""
    traffic = {name: folder / f"{name.replace(' ', '-')}.pcap" for name in TRAFFIC}
    for name, path in traffic.items():
        path.write_bytes(schedule(*TRAFFIC[name]))
    with booted(
        kernel("vanilla"),
        folder,
        modules=MODULES,
        programs=[Path(str(which(name))) for name in PROGRAMS],
        files=[Path(DISTRIBUTION), *traffic.values()],
        memory_mb=1024,
        counted=True,
    ) as guest:
        guest.run(["sh", "-c", NETWORK], timeout_s=PATIENCE_S)
        yield Router(guest, traffic)


def _in(role: str, *words: object) -> list[str]:
    return ["ip", "netns", "exec", role, *map(str, words)]


def captured(discipline: Discipline, router: Router, folder: Path) -> Seen:
    """Send traffic through a discipline, and fetch what was captured on both sides of it."""
    for command in discipline.commands:
        router.run("router", "tc", *command.split())
    words = ("-B", 16_384, "-s", KEPT, "--time-stamp-precision=nano", "-Z", "root")
    filtered = ("ip", "and", "dst", "host", SERVER)
    taps = {name: f"/tmp/{name}.pcap" for name in ("tap-in", "tap-out")}
    capturing = [
        router.start(
            "router", "tcpdump", "-i", name, "-w", path, *words, *filtered, ready="listening on"
        )
        for name, path in taps.items()
    ]
    router.send(discipline.traffic)
    router.run("router", "sleep", DRAINED_S)
    dropped = router.dropped()
    for process in capturing:
        process.signal(signal.SIGINT)
        said = [*iter(partial(process.next_line, PATIENCE_S), None)]
        assert "0 packets dropped by kernel" in said, said
    for name, path in taps.items():
        (folder / f"{name}.pcap").write_bytes(fetch(router.guest, path))
    added = [command.split()[3:5] for command in discipline.commands if "qdisc" in command]
    for link, place in added[:1]:
        router.run("router", "tc", "qdisc", "del", "dev", link, place)
    return Seen(*(folder / f"{name}.pcap" for name in taps), dropped)


class Said(NamedTuple):
    """What tailscope says of a discipline."""

    summary: dict[str, Any]
    named: dict[str, dict[str, Any]]
    """Figures by pattern."""
    refused: dict[str, str]
    """Reasons by pattern."""

    def wrong(self, discipline: Discipline) -> list[str]:
        """What is said that is not true, or off by more than a tenth."""
        found = [pattern for pattern in self.named if pattern not in discipline.true]
        for pattern, figures in self.named.items():
            for figure, value in discipline.figures.get(pattern, {}).items():
                number = figures.get(figure)
                if number is not None and abs(number / value - 1) > 0.1:
                    found.append(f"{pattern}: {figure} {number:.5g}, not {value:.5g}")
        return found

    def verdict(self, discipline: Discipline) -> str:
        """Say whether the device is named right, wrongly, or not at all."""
        if self.wrong(discipline):
            return "wrong"
        is_named = not discipline.wanted or discipline.wanted & self.named.keys()
        return "right" if is_named else "refused"


def said_of(seen: Seen, folder: Path) -> Said:
    """Analyse and explain the captures."""
    out = folder / "run"
    analysed = run(
        "analyze", seen.before, seen.behind, "--out", out, "--json", "-", timeout=PATIENCE_S
    )
    assert analysed.returncode == 0, analysed.stderr
    explained = run("explain", out, "--json", "-", timeout=PATIENCE_S)
    assert explained.returncode == 0, explained.stderr
    patterns = json.loads(explained.stdout)["patterns"]
    return Said(
        json.loads(analysed.stdout),
        {each["pattern"]: each["figures"] for each in patterns["named"]},
        {each["pattern"]: each["reason"] for each in patterns["refused"]},
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, router(Path(name)) as inside:
        for number, discipline in enumerate(disciplines()):
            folder = Path(name, f"case-{number}")
            folder.mkdir()
            seen = captured(discipline, inside, folder)
            said = said_of(seen, folder)
            found = ", ".join([*said.named, *said.wrong(discipline)]) or "-"
            lost = f"{said.summary['lost']} of {seen.dropped} lost"
            print(
                f"{discipline.name:<48} {said.verdict(discipline):8} {lost:16} {found}", flush=True
            )
