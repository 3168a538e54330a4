"""The way of each query: to the other host, through its reflector, and back.

Four times make a latency: a query leaves (1) and comes (2), its answer leaves (3) and comes (4).
The latency is (4 - 1) - (3 - 2). Each difference is of one clock, and what happens between 2 and 3
is the reflector's. The kernels of both hosts take these times, so that a program that does not run
changes none of them. Of the third the answer itself has only the program's own time; a later answer
has the kernel's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.engine.analysis import Clock, Recording
from tailscope.noise.intervals import union

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.store.records.messages import StallCause

    Integers = NDArray[np.int64]
    Rows = NDArray[np.void]

HERE, THERE = 0, 1
"""The ends of a stall: the sender and the reflector."""
CAUSES: tuple[StallCause, ...] = (
    "unknown",
    "stopped",
    "throttled",
    "preempted",
    "paged",
    "busy",
    "clock-step",
    "waited",
)
"""Causes of stalls, in the order of the data plane's numbers."""
_UNKNOWN_DSCP = 255
_UNTOLD, _BY_PROGRAM = 0, 2
"""What `by` says if the reflector's program took the time at which a query came; 0 if nobody says
who did."""
_DRIFT = 1_000
"""Two clocks run apart by no more than this part: a kernel slews its own by half of that."""
_NOTHING = np.zeros(0, np.int64)


class Stalls(NamedTuple):
    """Stalls of one end, by the sender's clock."""

    start_ns: Integers
    end_ns: Integers
    cause: Integers


@dataclass(frozen=True)
class Passages:
    """All answers in the order in which they came, and the queries that they answer."""

    intended_ns: Integers
    sent_ns: Integers
    """When each query was meant to leave, and when it left, by number."""
    stamped: NDArray[np.bool_]
    """Of which queries the kernel, or the card, says when they left."""
    in_queue_ns: Integers
    """How long queries waited in the queue of the sender's interface, of those of which the kernel
    says so; until they were to leave, they waited as they should."""
    flow_of: Integers
    """The flow of each query."""
    seq: Integers
    """The query of each answer."""
    answer_seq: Integers
    departed_ns: Integers
    received_ns: Integers
    answered_ns: Integers
    arrived_ns: Integers
    """The four times of each answer."""
    ttl: Integers
    dscp: Integers
    inexact_ns: Integers
    """What programs that did not run may have added to a latency; 0 if kernels took its times."""
    exact_forth: NDArray[np.bool_]
    exact_back: NDArray[np.bool_]
    """Of which answers kernels took the times of each direction, as far as anybody says."""
    exact: NDArray[np.bool_]
    """Of which answers kernels took all times."""
    stalls: tuple[Stalls, Stalls]
    """Stalls of the sender and of the reflector, as far as either told each of them."""

    @property
    def flow(self) -> Integers:
        """Return the flow of each answer."""
        return self.flow_of[self.seq]

    @property
    def round_trip_ns(self) -> Integers:
        """Return the times between departure and arrival."""
        return self.arrived_ns - self.departed_ns

    @property
    def in_reflector_ns(self) -> Integers:
        """Return the times in the reflector."""
        return self.answered_ns - self.received_ns

    @property
    def latency_ns(self) -> Integers:
        """Return the times in the network, or the most that they may be, whatever clocks say."""
        return latency_of(self.round_trip_ns, self.in_reflector_ns)

    @property
    def surest(self) -> NDArray[np.bool_]:
        """Return which answers have latencies that no program raised: all, if none is exact."""
        return self.exact if self.exact.any() else np.ones(len(self.exact), bool)

    @property
    def contradictory(self) -> NDArray[np.bool_]:
        """Return of which answers the times in the reflector cannot be true."""
        return are_impossible(self.round_trip_ns, self.in_reflector_ns)

    @property
    def drifted(self) -> NDArray[np.bool_]:
        """Return which others spent longer in the reflector than in all, as clocks run apart."""
        return (self.round_trip_ns < self.in_reflector_ns) & ~self.contradictory

    def recording(self) -> Recording:
        """Return what the analysis of a generator's packets takes, in ns since 1970."""
        # Cards of several queues may let packets overtake each other by some ns.
        departed = np.maximum.accumulate(self.sent_ns)
        arrived = departed[self.seq] + self.latency_ns
        order = np.argsort(arrived, kind="stable")
        start_ns, end_ns = self.uncertain()
        ticks = (
            np.minimum(self.intended_ns, departed),
            departed,
            self.seq[order],
            arrived[order],
            _NOTHING,
            start_ns,
            end_ns - start_ns,
        )
        return Recording(Clock(10**9, 0, 0), *(column.astype(np.uint64) for column in ticks))

    def uncertain(self) -> tuple[Integers, Integers]:
        """Return intervals that hold what programs may have added to latencies."""
        some = np.flatnonzero(self.inexact_ns > 0)
        start = self.departed_ns[some]
        # No longer than the latency itself: what follows was not delayed by it.
        lasted = np.minimum(self.inexact_ns[some], self.latency_ns[some])
        return union(start, start + lasted)

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """Return the columns of the table of passages."""
        unsigned = {
            "seq": self.seq,
            "flow": self.flow,
            "answer_seq": self.answer_seq,
            "sent_ns": self.departed_ns,
            "received_ns": self.received_ns,
            "answered_ns": self.answered_ns,
            "arrived_ns": self.arrived_ns,
            "ttl": self.ttl,
            "dscp": self.dscp,
        }
        return {
            **{name: column.astype(np.uint64) for name, column in unsigned.items()},
            "exact": self.exact,
        }


def are_impossible(round_trip_ns: Integers, held_ns: Integers) -> NDArray[np.bool_]:
    """Return which times in the reflector cannot be true, however far two clocks run apart.

    Its clock was set meanwhile, back or forward, or is wrong.
    """
    return (held_ns < 0) | (held_ns - round_trip_ns > held_ns // _DRIFT)


def latency_of(round_trip_ns: Integers, held_ns: Integers) -> Integers:
    """Return times in the network: round trips without the time in the reflector.

    Where that leaves less than nothing, it is the most that the clocks allow: what they run apart,
    or the round trip if one was set.
    """
    latency = round_trip_ns - held_ns
    allowed = np.where(latency < 0, latency + held_ns // _DRIFT, latency)
    most: Integers = np.where(are_impossible(round_trip_ns, held_ns), round_trip_ns, allowed)
    return np.minimum(most, round_trip_ns)


def read_passages(folder: Path) -> Passages:
    """Read what a sender recorded."""
    names = ("departures", "stamps", "arrivals", "follow_ups", "stalls")
    departures, stamps, arrivals, follow_ups, stalls = (
        np.load(folder / f"{name}.npy") for name in names
    )
    sent = _signed(departures["sent_ns"])
    in_program_ns = _signed(departures["handed_ns"]) - sent
    stamped = np.zeros(len(departures), bool)
    at = _signed(stamps["seq"])
    sent[at], stamped[at] = _signed(stamps["sent_ns"]), True
    intended, queued = _signed(departures["intended_ns"]), _signed(stamps["queued_ns"])
    in_queue = (sent[at] - np.maximum(queued, intended[at]))[queued > 0]
    seq, answer_seq = _signed(arrivals["seq"]), _signed(arrivals["answer_seq"])
    received, arrived = _signed(arrivals["received_ns"]), _signed(arrivals["arrived_ns"])
    flow_of = _signed(departures["flow"])
    answered, followed = _followed(arrivals, follow_ups, flow_of[seq], arrived - sent[seq])
    of_ends = _stalls_of_ends(stalls, received, (received + answered) // 2, sent[seq], arrived)
    # From the time in the answer until it came, by the sender's clock: the answer left meanwhile.
    on_way = (arrived - (arrived - sent[seq] - (answered - received)), arrived)
    there = _overlap(of_ends[THERE], *on_way)
    inexact = np.where(stamped[seq], 0, in_program_ns[seq]) + np.where(followed, 0, there)
    is_stamped = arrivals["stamped"] > 0
    here = _overlap(of_ends[HERE], sent[seq], arrived)
    inexact += np.where(is_stamped, 0, here)
    round_trip, held = arrived - sent[seq], answered - received
    by_program, is_ours = arrivals["by"] == _BY_PROGRAM, arrivals["by"] != _UNTOLD
    # Nobody knows how long it was in the network: no longer than is told.
    unknown = by_program | (held < 0) | (held > round_trip)
    latency = latency_of(round_trip, held)
    inexact = np.where(unknown, latency, inexact)
    exact_forth = stamped[seq] & ~by_program
    exact_back = is_stamped & (followed | ~is_ours)
    exact = exact_forth & exact_back & followed & ~unknown
    # A reflector that does not tell when an answer left may have had it until it came, but for what
    # the fastest packet takes.
    fastest_ns = latency[exact].min() if exact.any() else 0
    late = is_ours & ~followed & ~unknown
    inexact = np.where(late, np.maximum(inexact, latency - fastest_ns), inexact)
    return Passages(
        intended_ns=intended,
        sent_ns=sent,
        stamped=stamped,
        in_queue_ns=np.maximum(in_queue, 0),
        flow_of=flow_of,
        seq=seq,
        answer_seq=answer_seq,
        departed_ns=sent[seq],
        received_ns=received,
        answered_ns=answered,
        arrived_ns=arrived,
        ttl=_signed(arrivals["ttl"]),
        dscp=_signed(arrivals["dscp"]),
        inexact_ns=inexact,
        exact_forth=exact_forth,
        exact_back=exact_back,
        exact=exact,
        stalls=of_ends,
    )


def dscp_of(passages: Passages) -> tuple[int, ...]:
    """Return the classes of service with which queries came, where that is known."""
    found = np.unique(passages.dscp)
    return tuple(found[found != _UNKNOWN_DSCP].tolist())


def _signed(column: NDArray[np.generic]) -> Integers:
    return column.astype(np.int64)


def _followed(
    arrivals: Rows, follow_ups: Rows, flow: Integers, round_trip_ns: Integers
) -> tuple[Integers, NDArray[np.bool_]]:
    """Return when answers left, by the kernel where a later answer of the flow says so.

    Behind the last query of a flow, further ones ask for no more than that (`follow_ups`).
    """
    answered = _signed(arrivals["answered_ns"])
    own = (flow << 32) | _signed(arrivals["answer_seq"])
    tells = arrivals["followed"] > 0
    of_closing = (_signed(follow_ups["flow"]) << 32) | _signed(follow_ups["seq"])
    of_answers = (flow << 32)[tells] | _signed(arrivals["follow_seq"][tells])
    told, first = np.unique(np.concatenate([of_answers, of_closing]), return_index=True)
    if not len(told):
        return answered, np.zeros(len(answered), bool)
    at = np.minimum(np.searchsorted(told, own), len(told) - 1)
    left_ns = np.concatenate([arrivals["follow_ns"][tells], follow_ups["left_ns"]])
    follow_ns = _signed(left_ns)[first][at]
    # It left behind the time that its program gave it, and before it came: else the reflector was
    # started anew, and speaks of another answer with this number.
    later_ns = follow_ns - answered
    is_known = (told[at] == own) & (later_ns >= 0) & (later_ns <= round_trip_ns)
    return np.where(is_known, follow_ns, answered), is_known


def _stalls_of_ends(
    stalls: Rows, received: Integers, there: Integers, sent: Integers, arrived: Integers
) -> tuple[Stalls, Stalls]:
    """Return the stalls of both ends by the sender's clock.

    The reflector's clock is brought to it by the nearest packet, whose middle is the same moment
    for both.
    """
    ends = stalls["end"]
    here, other = (
        (_signed(stalls["start_ns"][ends == end]), _signed(stalls["lasted_ns"][ends == end]))
        for end in (HERE, THERE)
    )
    ahead = there - (sent + arrived) // 2
    order = np.argsort(received, kind="stable")
    at = np.minimum(np.searchsorted(received[order], other[0]), max(len(order) - 1, 0))
    start = other[0] - (ahead[order][at] if len(order) else 0)
    causes = [_signed(stalls["cause"][ends == end]) for end in (HERE, THERE)]
    return (
        Stalls(here[0], here[0] + here[1], causes[HERE]),
        Stalls(start, start + other[1], causes[THERE]),
    )


def _overlap(stalls: Stalls, start: Integers, end: Integers) -> Integers:
    """Return how much of each interval an end stalled."""
    from tailscope.noise.intervals import Coverage

    if not len(stalls.start_ns):
        return np.zeros(len(start), np.int64)
    within: Integers = Coverage(*union(stalls.start_ns, stalls.end_ns)).within(
        start, np.maximum(start, end)
    )
    return within
