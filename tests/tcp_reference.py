"""The slow, obvious answer to `tcp-bytes`: streams byte by byte, straight from `docs/analyze.md`.

Nothing here is shared with the engine: streams are dictionaries of bytes, every rule is a scan.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PROOF = 8
"""Fewest bytes that two streams have in common."""


class Segment(NamedTuple):
    """A captured TCP segment."""

    ts: int
    source: tuple[str, int]
    target: tuple[str, int]
    sequence: int
    acknowledged: int | None
    flags: str
    """Letters of S, F and R."""
    data: bytes


class Byte(NamedTuple):
    """A byte of a stream: its value, and the packet that was the first to carry it."""

    value: int
    ts: int
    packet: int


@dataclass
class Stream:
    """One direction of a connection; its places count from 0, where it begins if it was opened."""

    first: int | None = None
    opened: bool = False
    reached: int = 0
    held: dict[int, Byte] = field(default_factory=dict)
    end: int | None = None
    confirmed: int | None = None

    def place(self, sequence: int) -> int:
        """The place of a sequence number that is nearest to what was reached."""
        assert self.first is not None
        near = (sequence - self.first - self.reached) % 2**32
        return self.reached + (near if near < 2**31 else near - 2**32)


@dataclass
class Connection:
    """Two streams by who sends."""

    streams: dict[tuple[str, int], Stream]
    opener: tuple[str, int] | None = None
    reset: bool = False


@dataclass
class Capture:
    """What a capture holds."""

    connections: list[Connection] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    """Packets of which all bytes had been seen."""
    empty: list[int] = field(default_factory=list)


def read(segments: list[Segment]) -> Capture:
    """Take the segments of a capture, in order of time, apart into streams."""
    found, open_now = Capture(), {}
    for packet, one in enumerate(segments):
        ends = frozenset((one.source, one.target))
        first = (one.sequence + ("S" in one.flags)) % 2**32
        known = open_now.get(ends)
        if known is None or ("S" in one.flags and _begins_anew(known, one, first)):
            known = Connection({one.source: Stream(), one.target: Stream()})
            open_now[ends] = known
            found.connections.append(known)
        _take(known, one, first, packet, found)
    return found


def _begins_anew(known: Connection, one: Segment, first: int) -> bool:
    stream = known.streams[one.source]
    if stream.opened:
        return stream.first != first
    if one.acknowledged is not None:
        return stream.first is not None
    return any(each.first is not None for each in known.streams.values())


def _take(known: Connection, one: Segment, first: int, packet: int, found: Capture) -> None:
    stream, other = known.streams[one.source], known.streams[one.target]
    if "S" in one.flags:
        stream.first, stream.opened = first, True
        if known.opener is None:
            known.opener = one.source if one.acknowledged is None else one.target
    if one.acknowledged is not None and other.first is not None:
        place = other.place(one.acknowledged)
        other.confirmed = place if other.confirmed is None else max(place, other.confirmed)
    if "R" in one.flags:
        known.reset = True
        found.empty.append(packet)
        return
    if stream.first is None:
        stream.first = first
    start = stream.place(first)
    if "F" in one.flags:
        stream.end = start + len(one.data)
    if not one.data:
        found.empty.append(packet)
        return
    new = 0
    for place, value in enumerate(one.data, start):
        if place not in stream.held and not (stream.opened and place < 0):
            stream.held[place] = Byte(value, one.ts, packet)
            new += 1
    stream.reached = max(stream.reached, start + len(one.data))
    if not new:
        found.again.append(packet)


# --- which stream is which ----------------------------------------------------


SEVERAL = "several"


class Lay(NamedTuple):
    """How one stream lies over another: how far on, and how many bytes are equal."""

    shift: int
    bytes: int


def common(one: Stream, other: Stream, shift: int) -> int | None:
    """How many bytes both have; None if any differ."""
    count = 0
    for place, byte in one.held.items():
        match = other.held.get(place + shift)
        if match is not None:
            if match.value != byte.value:
                return None
            count += 1
    return count


def lay(one: Stream, other: Stream) -> Lay | str | None:
    """How one stream lies over another."""
    if one.opened and other.opened and (count := common(one, other, 0)):
        return Lay(0, count)
    fits = []
    for shift in range(min(other.held) - max(one.held), max(other.held) - min(one.held) + 1):
        count = common(one, other, shift)
        if count is not None and count >= PROOF:
            fits.append(Lay(shift, count))
    fits.sort(key=lambda fit: fit.bytes)
    if len(fits) > 1 and 2 * fits[-2].bytes >= fits[-1].bytes:
        return SEVERAL
    return fits[-1] if fits else None


@dataclass
class Candidate:
    """A connection behind the device that one before it may be."""

    behind: int
    names: dict[tuple[str, int], tuple[str, int]]
    """The sender behind the device of each sender before it."""
    lays: dict[tuple[str, int], Lay | str]

    @property
    def repeats(self) -> bool:
        return SEVERAL in self.lays.values()


def candidates(one: Connection, behind: list[Connection]) -> list[Candidate]:
    """All connections that have the same bytes in both streams."""
    found = []
    for number, other in enumerate(behind):
        mine, theirs = list(one.streams), list(other.streams)
        for names in (
            dict(zip(mine, theirs, strict=True)),
            dict(zip(mine, theirs[::-1], strict=True)),
        ):
            if one.opener and other.opener and names[one.opener] != other.opener:
                continue
            pairs = {
                name: (one.streams[name], other.streams[names[name]])
                for name in names
                if one.streams[name].held and other.streams[names[name]].held
            }
            lays = {name: lay(*pair) for name, pair in pairs.items()}
            if None in lays.values():
                continue
            candidate = Candidate(number, names, {k: v for k, v in lays.items() if v is not None})
            equal = sum(each.bytes for each in lays.values() if isinstance(each, Lay))
            if equal >= PROOF or candidate.repeats:
                found.append(candidate)
    return found


def follows(source: Stream, sink: Stream, shift: int, window: int) -> bool:
    """Whether each piece came to the sink when it had left the source, within a window."""
    if source.end is not None and sink.held and max(sink.held) >= source.end + shift:
        return False
    times = _times(source, sink, shift)
    return all(seen is None or 0 <= seen - sent < window for sent, seen in times)


def _times(source: Stream, sink: Stream, shift: int) -> Iterator[tuple[int, int | None]]:
    """When each piece of a packet was seen, and when all of it on the other side."""
    for piece in _pieces(source):
        seen = [sink.held.get(place + shift) for place in piece]
        known = [byte.ts for byte in seen if byte is not None]
        yield source.held[piece[0]].ts, max(known) if len(known) == len(piece) else None


def _pieces(stream: Stream) -> list[list[int]]:
    """Places that follow each other, of one packet each."""
    pieces: list[list[int]] = []
    for place in sorted(stream.held):
        before = stream.held.get(place - 1)
        if before is not None and before.packet == stream.held[place].packet:
            pieces[-1].append(place)
        else:
            pieces.append([place])
    return pieces


def possible(
    one: Connection, behind: list[Connection], candidate: Candidate, opener: bool, window: int
) -> bool:
    """Whether time permits that the opener, or the other end, sends what comes out."""
    senders = [name for name in one.streams if one.opener is None or (name == one.opener) == opener]
    return any(_permits(one, behind, candidate, sender, window) for sender in senders)


def _permits(
    one: Connection,
    behind: list[Connection],
    candidate: Candidate,
    sender: tuple[str, int],
    window: int,
) -> bool:
    for name, fit in candidate.lays.items():
        if isinstance(fit, str):
            continue
        mine = one.streams[name]
        theirs = behind[candidate.behind].streams[candidate.names[name]]
        there = name == sender
        if there and not follows(mine, theirs, fit.shift, window):
            return False
        if not there and not follows(theirs, mine, -fit.shift, window):
            return False
    return True


AMBIGUOUS = "ambiguous"
Partners = dict[int, "Candidate | str"]


def certain(left: dict[int, list[Candidate]]) -> dict[int, Candidate]:
    """Connections that are each other's only candidates."""
    wanted = Counter(each.behind for some in left.values() for each in some)
    return {
        number: some[0]
        for number, some in left.items()
        if len(some) == 1 and wanted[some[0].behind] == 1 and not some[0].repeats
    }


def partners(before: Capture, behind: Capture, window: int) -> Partners:
    """Which connection behind the device is that before it."""
    sides = before.connections, behind.connections
    left = {number: candidates(one, sides[1]) for number, one in enumerate(sides[0])}
    known: Partners = dict(certain(left))
    left = {number: some for number, some in left.items() if some and number not in known}

    def allowed(number: int, candidate: Candidate, opener: bool) -> bool:
        return possible(sides[0][number], sides[1], candidate, opener, window)

    ways = [
        opener
        for opener in (True, False)
        if any(
            allowed(number, each, opener)
            for number, each in known.items()
            if isinstance(each, Candidate) and sides[0][number].opener is not None
        )
    ] or [True, False]
    kept = [
        {number: [e for e in some if allowed(number, e, way)] for number, some in left.items()}
        for way in ways
    ]
    found = [certain(each) for each in kept]
    if len(found) == 2 and len(found[0]) == len(found[1]):
        kept = [left]
        found = [found[0] if found[0] == found[1] else {}]
    best = max(range(len(found)), key=lambda at: len(found[at]))
    known |= found[best]
    for number, some in kept[best].items():
        if some and number not in known:
            known[number] = AMBIGUOUS
    return known


# --- what became of each packet -----------------------------------------------


@dataclass
class Answer:
    """What became of the packets before the device, by place."""

    latency_ns: dict[int, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    outside: set[int] = field(default_factory=set)
    ambiguous: set[int] = field(default_factory=set)
    reverse: set[int] = field(default_factory=set)
    retransmitted: tuple[int, int] = (0, 0)
    paired: int = 0


def answer(pre: list[Segment], post: list[Segment], window: int) -> Answer:
    """Everything about two captures whose packets are in order of time."""
    before, behind = read(pre), read(post)
    known = partners(before, behind, window)
    found = Answer(retransmitted=(len(before.again), len(behind.again)))
    for number, one in enumerate(before.connections):
        partner = known.get(number)
        forward = _forward(one, behind, partner)
        found.paired += isinstance(partner, Candidate)
        for name, stream in one.streams.items():
            packets: dict[int, list[int]] = {}
            for place, byte in stream.held.items():
                packets.setdefault(byte.packet, []).append(place)
            for packet, places in packets.items():
                if partner == AMBIGUOUS:
                    found.ambiguous.add(packet)
                elif not isinstance(partner, Candidate) or name not in partner.lays:
                    found.outside.add(packet)
                elif name not in forward:
                    found.reverse.add(packet)
                else:
                    connection = behind.connections[partner.behind]
                    _judge(found, (packet, places, pre[packet].ts), connection, name, partner)
    _judge_ends(found, pre, post)
    return found


def _forward(
    one: Connection, behind: Capture, partner: Candidate | str | None
) -> set[tuple[str, int]]:
    """The senders whose bytes come out behind the device: of two that whose bytes take longer."""
    if not isinstance(partner, Candidate):
        return set()
    spans = {}
    for name, fit in partner.lays.items():
        assert isinstance(fit, Lay)
        there = behind.connections[partner.behind].streams[partner.names[name]]
        times = _times(one.streams[name], there, fit.shift)
        spans[name] = sorted(seen - sent for sent, seen in times if seen is not None)
    if len(spans) == 2 and all(spans.values()):
        (one_name, one_span), (other_name, other_span) = spans.items()
        takes_longer = (one_span[0], one_span[-1]) > (other_span[0], other_span[-1])
        return {one_name} if takes_longer else {other_name}
    return {name for name, span in spans.items() if span and span[-1] >= 0}


def _judge(
    found: Answer,
    packet: tuple[int, list[int], int],
    connection: Connection,
    name: tuple[str, int],
    partner: Candidate,
) -> None:
    """Judge the bytes of a packet by those behind the device."""
    number, places, ts = packet
    there, fit = connection.streams[partner.names[name]], partner.lays[name]
    assert isinstance(fit, Lay)
    missing = [place + fit.shift for place in places if place + fit.shift not in there.held]
    if not missing:
        found.latency_ns[number] = max(there.held[at + fit.shift].ts for at in places) - ts
    elif any(_is_lost(connection, there, at) for at in missing):
        found.lost.add(number)
    else:
        found.outside.add(number)


def _is_lost(connection: Connection, stream: Stream, place: int) -> bool:
    ended = connection.reset or (stream.end is not None and stream.end <= place)
    confirmed = stream.confirmed is not None and stream.confirmed > place
    went_on = place < max(stream.held)
    return min(stream.held) <= place and not confirmed and (went_on or ended)


def _judge_ends(found: Answer, pre: list[Segment], post: list[Segment]) -> None:
    """What would have come before the capture behind began, or after it ended, is not judged."""
    longest = max(found.latency_ns.values(), default=None)
    for seq in sorted(found.lost):
        ts = pre[seq].ts
        if ts < post[0].ts or (longest is not None and ts + longest > post[-1].ts):
            found.lost.remove(seq)
            found.outside.add(seq)
