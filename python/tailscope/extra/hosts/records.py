"""``hosts.json``: what both ends of a path counted."""

from __future__ import annotations

from typing import Final, Literal

from tailscope.store.records.base import Count, Record, Section, Signed
from tailscope.store.records.messages import CausedStalls, SentQueries

HOSTS_FORMAT: Final = 1


class TimesRecord(Section, frozen=True, kw_only=True):
    """Quantiles of times of all answered queries."""

    ns_min: Signed
    """The least."""
    ns_p50: Signed
    """The median."""
    ns_p99: Signed
    """The quantile 0.99."""
    ns_p999: Signed
    """The quantile 0.999."""
    ns_max: Signed
    """The longest."""


class MedianRecord(Section, frozen=True, kw_only=True):
    """Where the median of the path was while it was measured, with a confidence of 95 %."""

    ns_low: Signed
    """The lower end, without what both kernels may have added."""
    ns_high: Signed
    """The upper end."""
    stamps_ns: Count | None
    """What both kernels may have added to a latency: the time from the stamp of a packet until they
    handed it on. Null if one of them does not tell; `ns_low` then is without that of the other."""


class OneWayRecord(Section, frozen=True, kw_only=True, omit_defaults=True):
    """Latencies of one direction each: true within the error of both clocks."""

    error_ns: Count | None
    """The most that each of these times is off by; null if nobody knows, and there are none."""
    withheld_because: str | None = None
    """Reason why there are none."""
    forth: TimesRecord | None = None
    """From the sender to the reflector."""
    back: TimesRecord | None = None
    """From the reflector to the sender."""
    inexact_forth: Count = 0
    """Answers that `forth` leaves out, as a program took one of its times, and not a kernel."""
    inexact_back: Count = 0
    """Answers that `back` leaves out likewise."""


class LossRecord(Section, frozen=True, kw_only=True):
    """Queries without an answer, by where they were lost: the parts sum to `lost`."""

    lost: Count
    """Queries without an answer."""
    forth: Count | None
    """Queries that were lost on the way to the reflector; null if it keeps no state, or began to
    number anew in all flows, so that directions cannot be told. Of a reflector that tells nothing
    of itself (`ends.reflector` is null), those too that were lost in it."""
    back: Count | None
    """Answers lost in the network on the way back; null likewise, and if the numbers of a
    reflector that tells nothing of itself do not prove it in any flow."""
    where_unknown: Count
    """Nobody knows where: behind the last answer, as the reflector may not have run then; with a
    reflector that keeps no state; or in flows of which numbers do not prove it."""
    reflector_socket: Count
    """Queries for which the reflector's socket had no room."""
    reflector_refused: Count
    """Queries that the reflector refused, because they came too fast."""
    reflector_unsent: Count
    """Answers that the reflector's system did not take."""
    sender_socket: Count
    """Answers for which the sender's socket had no room."""
    anew_flows: Count
    """Flows in which the reflector began to number its answers anew, such as one that was started
    anew: their losses have no direction, and they are no part of `order`."""
    unproven_flows: Count
    """Flows with numbers that are missing, which may have been answers to others or to queries
    that the network doubled: that many losses have no direction."""

    @property
    def of_ends(self) -> int:
        """Packets that were lost in one of the ends."""
        of_reflector = self.reflector_socket + self.reflector_refused + self.reflector_unsent
        return of_reflector + self.sender_socket


class OrderRecord(Section, frozen=True, kw_only=True):
    """Packets that were overtaken, and those that came more than once."""

    reordered_forth: Count | None
    """Queries that came behind later ones; null if the reflector keeps no state, or began to number
    anew in all flows."""
    reordered_back: Count | None
    """Answers that came behind later ones; null likewise."""
    duplicated_forth: Count | None
    """Answers beyond the first to a query; null likewise."""
    duplicated_back: Count | None
    """Arrivals beyond the first of an answer; null likewise."""


class FlowRecord(Section, frozen=True, kw_only=True):
    """A flow: packets with one source port take one path, where there are several."""

    port: Count
    """Its source port."""
    sent: Count
    """Queries that left."""
    lost: Count
    """Queries without an answer."""
    latency: TimesRecord | None
    """Its latencies, of answers of which kernels took all times, if the run has any; null without
    an answer."""


class HostsRecord(Record, frozen=True, kw_only=True):
    """What both ends of a path know of it, and of themselves."""

    format: Literal[1] = HOSTS_FORMAT
    """Version of the format."""
    to: str
    """The reflector, as it was named."""
    address: str
    """Its address and port."""
    command: str | None = None
    """The command that measures it once more, for a shell."""
    late: TimesRecord | None = None
    """How much later than they were to queries left, of those of which the kernel or the card says
    when; null without any."""
    in_queue: TimesRecord | None = None
    """Time in the queue of the sender's interface (qdisc), of queries of which the kernel says so:
    from their coming to it, or from the time at which they were to leave if that is later, until
    the driver took them. It is before the latency, and no part of it. Null without any, as with a
    card."""
    loss: LossRecord
    """Where queries and answers were lost."""
    order: OrderRecord
    """Order and repetition."""
    median: MedianRecord | None = None
    """The interval of the median latency, of parts of the run and with the error of stamps; null of
    fewer than 98 answers."""
    round_trip: TimesRecord | None
    """From a query's departure to its answer's arrival, with the time in the reflector: what `ping`
    would say."""
    in_reflector: TimesRecord | None
    """Time in the reflector, which is no part of the run's latency."""
    one_way: OneWayRecord
    """Latencies of one direction each."""
    inexact: Count
    """Answers of which a program took one of the four times, and not a kernel: what kept it from
    running then is a part of the latency that the run has as the instrument's."""
    drifted: Count
    """Answers that spent longer in the reflector than in all, as far as clocks run apart (0.1 %):
    their latency is the most that this allows, an upper bound."""
    contradictory: Count
    """Answers that left before their query came, by the reflector's clock, or longer after it than
    all took: that clock was set meanwhile, or is wrong. Their latency is the round trip, an upper
    bound."""
    ttl: tuple[Count, ...]
    """Hop limits with which queries came."""
    dscp: tuple[Count, ...]
    """Classes of service with which queries came, if the reflector says so."""
    flows: tuple[FlowRecord, ...]
    """The flows, in the order of their source ports."""
    reflector_stalls: tuple[CausedStalls, ...]
    """Stalls of the reflector that it told one by one."""
    ends: SentQueries
    """What the sender counted, and what the reflector told of itself."""
