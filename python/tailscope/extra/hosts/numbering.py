"""What the numbers of answers prove of the way that queries and answers were lost.

A reflector numbers the answers of each flow from 0 on. A number that is missing is an answer that
was lost on the way back, a lost query without one was lost before it was answered. That holds only
while the reflector keeps its count, and only if no other packets took numbers from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.extra.hosts.passages import Passages
    from tailscope.store.records.messages import SentQueries

    Integers = NDArray[np.int64]


class FlowNumbers(NamedTuple):
    """The answers of a flow, in the order in which they came."""

    flow: int
    seqs: Integers
    answers: Integers
    arrived_ns: Integers
    missing: int
    """Queries without an answer before the last one that has one."""
    missing_answers: int
    """Numbers that the reflector passed over, or whose answers did not come."""
    is_doubled: bool
    """True if a query has several answers, which the network doubled on the way there."""


class Numbering(NamedTuple):
    """What is proven."""

    steady: tuple[FlowNumbers, ...]
    """Flows in which the reflector kept its count."""
    anew: int
    """Flows in which it began to count anew."""
    unproven: int
    """Flows with lost packets of which numbers do not prove the direction."""
    forth: int | None
    """Queries that were lost before they were answered; None if no flow tells."""
    back: int | None
    """Answers that were lost behind the reflector; None likewise."""


_NOTHING = Numbering((), 0, 0, None, None)


def numbering_of(passages: Passages, ends: SentQueries) -> Numbering:
    """Return what numbers prove; nothing of a reflector that copies those of queries."""
    if ends.reflector is None and np.array_equal(passages.seq, passages.answer_seq):
        return _NOTHING
    flows = np.unique(passages.flow).tolist()
    steady = [_numbers(passages, flow) for flow in flows if not _began_anew(passages, flow)]
    if not steady:
        return _NOTHING._replace(anew=len(flows))
    apart = _are_apart(steady)
    forth, back, unproven = 0, None, 0
    for each, is_apart in zip(steady, apart, strict=True):
        lost_back = min(each.missing, each.missing_answers)
        # Whoever else took numbers, so many queries had none.
        forth += each.missing - lost_back
        has_own_count = ends.reflector is not None or is_apart or not each.missing_answers
        if has_own_count and not (each.is_doubled and lost_back):
            back = (back or 0) + lost_back
        else:
            unproven += lost_back > 0
    return Numbering(tuple(steady), len(flows) - len(steady), unproven, forth, back)


def _began_anew(passages: Passages, flow: int) -> bool:
    """Return whether numbers contradict one count, by the sender's clock alone.

    An answer with a higher number left later. So it cannot have come before the query of a lower
    number left; and no number has two queries.
    """
    of_flow = passages.flow == flow
    order = np.argsort(passages.answer_seq[of_flow], kind="stable")
    answers, seqs = passages.answer_seq[of_flow][order], passages.seq[of_flow][order]
    departed = np.maximum.accumulate(passages.departed_ns[of_flow][order])
    is_same = answers[1:] == answers[:-1]
    return bool(
        np.any(seqs[1:][is_same] != seqs[:-1][is_same])
        or np.any(passages.arrived_ns[of_flow][order] < departed)
    )


def _numbers(passages: Passages, flow: int) -> FlowNumbers:
    of_flow = passages.flow == flow
    seqs, answers = passages.seq[of_flow], passages.answer_seq[of_flow]
    known = int(np.count_nonzero(passages.flow_of[: seqs.max() + 1] == flow))
    queries, different = len(np.unique(seqs)), len(np.unique(answers))
    missing, missing_answers = known - queries, int(answers.max()) + 1 - different
    # More numbers than queries: the network doubled some, or others took numbers.
    is_doubled = different > queries or missing_answers > missing
    arrived_ns = passages.arrived_ns[of_flow]
    return FlowNumbers(flow, seqs, answers, arrived_ns, missing, missing_answers, is_doubled)


def _are_apart(flows: list[FlowNumbers]) -> list[bool]:
    """Return of each flow whether it certainly shares its count with no other flow.

    Two that shared one could not have more different numbers than it gave. A flow alone proves
    nothing: other senders may share its count.
    """
    given = np.array([int(each.answers.max()) + 1 for each in flows])
    had = given - np.array([each.missing_answers for each in flows])
    apart = had[:, None] + had[None, :] > np.maximum(given[:, None], given[None, :])
    np.fill_diagonal(apart, val=len(flows) > 1)
    found: list[bool] = apart.all(axis=1).tolist()
    return found
