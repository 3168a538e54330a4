"""Traffic and devices of known pattern, a packet at a time: what tests compare `detect` with.

Nothing here is shared with what it tests. A device takes packets, and says when each left, or
nothing for a packet that it dropped.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.series import Losses, Series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

US, MS, S = 1_000, 1_000_000, 1_000_000_000
BASE_NS = 20 * US


class Sent(NamedTuple):
    """A packet as it comes to the device."""

    at_ns: int
    size: int
    flow: int


def traffic(
    kind: str,
    rng: np.random.Generator,
    *,
    packets: int,
    pps: float,
    sizes: tuple[int, ...] = (1000,),
    flows: int = 8,
) -> list[Sent]:
    """Packets at a mean rate: evenly, at random, in bursts, or on and off."""
    gap = S / pps
    if kind == "even":
        gaps = np.full(packets, gap)
    elif kind == "random":
        gaps = rng.exponential(gap, packets)
    elif kind == "bursts":
        # Bursts of 40 to 200 packets at twenty times the rate, then silence.
        gaps = np.full(packets, gap / 20)
        at = 0
        while at < packets:
            burst = int(rng.integers(40, 200))
            gaps[at] = burst * gap * rng.uniform(0.7, 1.3)
            at += burst
    else:
        assert kind == "on-off", kind
        # A second half of the time at three times the mean, the rest slowly.
        gaps = rng.exponential(gap, packets)
        at = 0
        while at < packets:
            long = int(rng.integers(300, 900))
            gaps[at : at + long] /= 3
            gaps[at + long : at + 2 * long] *= 2
            at += 2 * long
    times = np.cumsum(gaps).astype(np.int64)
    size = rng.choice(np.array(sizes), packets)
    flow = rng.integers(0, flows, packets)
    return [Sent(*map(int, each)) for each in zip(times, size, flow, strict=True)]


def fifo(
    sent: list[Sent],
    *,
    rate: float,
    limit: float = float("inf"),
    unit: str = "bytes",
    limit_unit: str = "packets",
) -> Iterator[int | None]:
    """A queue with a limit before a link: `rate` a second in bytes or packets."""
    waiting: deque[tuple[float, int]] = deque()
    free = 0.0
    held = 0
    for packet in sent:
        while waiting and waiting[0][0] <= packet.at_ns:
            held -= waiting.popleft()[1]
        weight = packet.size if limit_unit == "bytes" else 1
        if held + weight > limit:
            yield None
            continue
        work = packet.size if unit == "bytes" else 1
        free = max(free, packet.at_ns) + work * S / rate
        waiting.append((free, weight))
        held += weight
        yield int(free) + BASE_NS


def early_dropping(
    sent: list[Sent], rng: np.random.Generator, *, rate: float, least: int, most: int
) -> Iterator[int | None]:
    """A queue that drops at random before it is full, as RED does."""
    waiting: deque[float] = deque()
    free = 0.0
    for packet in sent:
        while waiting and waiting[0] <= packet.at_ns:
            waiting.popleft()
        if rng.random() < 0.3 * (len(waiting) - least) / (most - least):
            yield None
            continue
        free = max(free, packet.at_ns) + packet.size * S / rate
        waiting.append(free)
        yield int(free) + BASE_NS


def fair(sent: list[Sent], *, rate: float, limit: int) -> list[int | None]:
    """A queue for each flow, served in turns."""
    queues: dict[int, deque[int]] = {packet.flow: deque() for packet in sent}
    left: list[int | None] = [None] * len(sent)
    turns = [*queues]
    now, at, turn = 0.0, 0, 0
    while at < len(sent) or any(queues.values()):
        if not any(queues.values()):
            now = max(now, float(sent[at].at_ns))
        while at < len(sent) and sent[at].at_ns <= now:
            if len(queues[sent[at].flow]) < limit:
                queues[sent[at].flow].append(at)
            at += 1
        while not queues[turns[turn]]:
            turn = (turn + 1) % len(turns)
        served = queues[turns[turn]].popleft()
        turn = (turn + 1) % len(turns)
        now += sent[served].size * S / rate
        left[served] = int(now) + BASE_NS
    return left


def one_behind_the_other(
    sent: list[Sent],
    first: Iterable[int | None],
    then: Callable[[list[Sent]], Iterator[int | None]],
) -> list[int | None]:
    """Two devices: what leaves the first comes to the second."""
    left = [*first]
    passed = sorted(
        (packet._replace(at_ns=gone), number)
        for number, (packet, gone) in enumerate(zip(sent, left, strict=True))
        if gone is not None
    )
    for (_, number), gone in zip(passed, then([packet for packet, _ in passed]), strict=True):
        left[number] = gone
    return left


def token_bucket(
    sent: list[Sent], *, rate: float, burst: int, limit_bytes: float = float("inf")
) -> Iterator[int | None]:
    """A shaper as Linux' tbf: a packet leaves once there are tokens for all of its bytes."""
    tokens, at = float(burst), 0.0
    waiting: deque[tuple[float, int]] = deque()
    held = 0
    before = 0.0
    for packet in sent:
        while waiting and waiting[0][0] <= packet.at_ns:
            held -= waiting.popleft()[1]
        if held + packet.size > limit_bytes:
            yield None
            continue
        now = max(before, float(packet.at_ns))
        tokens, at = min(burst, tokens + (now - at) * rate / S), now
        if tokens < packet.size:
            now += (packet.size - tokens) * S / rate
            tokens, at = float(packet.size), now
        tokens -= packet.size
        before = now
        if now > packet.at_ns:
            waiting.append((now, packet.size))
            held += packet.size
        yield int(now) + BASE_NS


def police(
    sent: list[Sent], *, rate: float, burst: float, unit: str = "bytes"
) -> Iterator[int | None]:
    """A bucket that drops what exceeds it, at once."""
    tokens, at = burst, 0
    for packet in sent:
        tokens, at = min(burst, tokens + (packet.at_ns - at) * rate / S), packet.at_ns
        work = packet.size if unit == "bytes" else 1
        if work > tokens:
            yield None
            continue
        tokens -= work
        yield packet.at_ns + BASE_NS


def stalled(sent: list[Sent], *, period_ns: int, held_ns: int) -> Iterator[int | None]:
    """A device that does nothing for a while, at a constant period."""
    free = 0
    for packet in sent:
        start = max(free, packet.at_ns)
        into = (start + 12345) % period_ns
        if into < held_ns:
            start += held_ns - into
        free = start + 300
        yield free + BASE_NS


def batched_by_count(sent: list[Sent], *, count: int) -> Iterator[int | None]:
    """A device that waits for so many packets, then sends them 100 ns apart."""
    for begin in range(0, len(sent), count):
        group = sent[begin : begin + count]
        for place, _ in enumerate(group):
            yield group[-1].at_ns + BASE_NS + 100 * place


def batched_by_timer(sent: list[Sent], *, period_ns: int) -> Iterator[int | None]:
    """A device that sends what came when its timer fires, 100 ns apart."""
    tick, place = -1, 0
    for packet in sent:
        due = packet.at_ns // period_ns + 1
        place = place + 1 if due == tick else 0
        tick = due
        yield due * period_ns + BASE_NS + 100 * place


def by_flow(
    sent: list[Sent], rng: np.random.Generator, *, levels: tuple[int, ...]
) -> Iterator[int]:
    """Paths by a hash of the flow."""
    for packet in sent:
        path = (packet.flow * 7 + 3) % len(levels)
        yield packet.at_ns + BASE_NS + levels[path] + int(rng.exponential(500))


def by_packet(
    sent: list[Sent], rng: np.random.Generator, *, levels: tuple[int, ...], turns: bool
) -> Iterator[int]:
    """Paths that are chosen anew for each packet: in turns or at random."""
    for number, packet in enumerate(sent):
        path = number % len(levels) if turns else int(rng.integers(len(levels)))
        yield packet.at_ns + BASE_NS + levels[path] + int(rng.exponential(500))


def in_order(sent: list[Sent], service_ns: np.ndarray) -> Iterator[int]:
    """A first-come-first-served device with a service time of its own for each packet."""
    free = 0
    for packet, service in zip(sent, service_ns, strict=True):
        free = max(free, packet.at_ns) + int(service)
        yield free + BASE_NS


def not_overtaking(sent: list[Sent], delay_ns: np.ndarray) -> Iterator[int]:
    """A delay of its own for each packet, none of which overtakes another."""
    front = 0
    for packet, delay in zip(sent, delay_ns, strict=True):
        front = max(front, packet.at_ns + int(delay))
        yield front + BASE_NS


def series_of(
    sent: list[Sent], left: list[int | None], rng: np.random.Generator, noise_ns: float = 0.0
) -> Series:
    """Both captures as arrays; `noise_ns` is the error of their clock at each packet."""
    is_lost = np.array([each is None for each in left])
    came = np.array([packet.at_ns for packet in sent])
    size = np.array([packet.size for packet in sent])
    flow = np.array([packet.flow for packet in sent])
    gone = np.array([0 if each is None else each for each in left])
    kept = ~is_lost
    order = np.argsort(gone, kind="stable")
    late = gone[order] + np.abs(rng.normal(0, noise_ns, len(gone))).astype(np.int64)
    # A capture writes packets in the order in which they leave.
    gone[order] = np.maximum.accumulate(late)
    return Series(
        came[kept],
        (gone - came)[kept],
        size[kept],
        flow[kept],
        Losses(came[is_lost], size[is_lost]),
    )
