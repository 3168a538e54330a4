"""The conformance of tests to their clauses, and the limits of their figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.extra.standards import clauses
from tailscope.extra.standards.asked import BURST_S, TRIAL_S
from tailscope.extra.standards.bench import DRAIN_S
from tailscope.extra.standards.records import ClauseRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.extra.standards.asked import Asked
    from tailscope.extra.standards.clauses import Clause
    from tailscope.extra.standards.records import FrameSizeResult

_NO_MEDIUM = ("memif", "veth", "vhost")
"""Wires that are memory: their medium has no rate."""
_LARGEST_BYTES = 1518
_RECOMMENDED_8219 = (1522, 2048, 4096, 8192, 9216)


def stands(
    asked: Asked, sizes: Sequence[str], wire: str, results: Sequence[FrameSizeResult]
) -> list[ClauseRecord]:
    """Say of each clause that matters whether the tests did as it asks."""
    return [*_general(asked, sizes, wire), *_of_tests(asked, results)]


def _general(asked: Asked, sizes: Sequence[str], wire: str) -> Iterator[ClauseRecord]:
    missing = [size for size in asked.standard.sizes if size not in sizes]
    if asked.standard.name == "8219":
        larger = ", ".join(map(str, _RECOMMENDED_8219))
        left_out = f"; without {', '.join(missing)}" if missing else ""
        yield _clause(
            clauses.FRAME_SIZES_8219,
            False,
            f"frames of {', '.join(sizes)} bytes{left_out}; {larger} bytes are recommended, too:"
            f" the generator's frames have at most {_LARGEST_BYTES}",
        )
    else:
        said = f"frames of {', '.join(sizes)} bytes"
        expected = f"; {', '.join(asked.standard.sizes)} required" if missing else ""
        yield _clause(clauses.FRAME_SIZES, not missing, said + expected)
    yield _clause(
        clauses.VERIFYING_FRAMES,
        True,
        "every frame carries its number; only those of a trial that came back unchanged count, each"
        " once, by the recordings of what left and what came: no counter of a port is used",
    )
    yield _clause(clauses.BIDIRECTIONAL, False, "traffic in one direction; both are recommended")
    if asked.max_rate_pps is None:
        yield _clause(
            clauses.MEDIA_MAXIMUM,
            False,
            f"{wire} has no maximum frame rate; the highest rate is what it carried without the"
            " device",
        )
    else:
        has_medium = wire not in _NO_MEDIUM
        why = "" if has_medium else f"; {wire} is no medium that has a maximum"
        yield _clause(
            clauses.MEDIA_MAXIMUM,
            has_medium,
            f"the highest rate is {asked.max_rate_pps:,} frames/s, as given{why}",
        )
    yield _clause(
        clauses.TRIAL,
        False,
        f"{asked.warm_up_s:g} s of traffic before each trial; it waits {DRAIN_S:g} s for its last"
        " frames; the device is started anew for each instead of having 5 s to settle",
    )
    is_long = asked.trial_s >= TRIAL_S
    yield _clause(
        clauses.TRIAL_DURATION,
        is_long,
        f"trials of {asked.trial_s:g} s" + ("" if is_long else f", {TRIAL_S:g} s required"),
    )


def _of_tests(asked: Asked, results: Sequence[FrameSizeResult]) -> Iterator[ClauseRecord]:
    tests = asked.every_test
    standard = asked.standard
    if "throughput" in tests:
        yield _clause(standard.tests["throughput"], *_throughput(asked, results))
    if "capacity" in tests:
        yield _clause(
            standard.tests["capacity"],
            True,
            f"the same search; a trial holds with a loss of at most {asked.capacity_loss:.3%}",
        )
    if "latency" in tests or "pdv" in tests:
        yield from _of_delays(asked, results)
    if "loss" in tests:
        yield _clause(
            standard.tests["loss"],
            True,
            "from the highest rate down by a tenth of it, until two trials in a row lose nothing",
        )
    if "back-to-back" in tests:
        times, is_long = asked.times("back-to-back"), asked.burst_s >= BURST_S
        conforms = times >= standard.repetitions["back-to-back"] and is_long
        says = f"mean of {times} searches, bursts of up to {asked.burst_s:g} s at the highest rate"
        if not conforms:
            says += f"; {standard.repetitions['back-to-back']} of {BURST_S:g} s required"
        bursts = [size.back_to_back for size in results]
        made = [0 if each is None else each.repetitions for each in bursts]
        yield _clause(standard.tests["back-to-back"], *_as_made(conforms, says, made, times))
        yield _clause(
            clauses.B2B_BUFFERS,
            True,
            "less what the device forwards meanwhile, where its throughput is known",
        )
    if "recovery" in tests:
        conforms, times = asked.trial_s >= TRIAL_S, asked.times("recovery")
        says = (
            f"{asked.trial_s:g} s at 110 % of the throughput, then half of that rate, mean of"
            f" {times}" + ("" if conforms else f"; {TRIAL_S:g} s required")
        )
        made = [0 if size.recovery is None else size.recovery.repetitions for size in results]
        yield _clause(standard.tests["recovery"], *_as_made(conforms, says, made, times))
    resets = {"2544": clauses.RESET, "8219": clauses.RESET_8219}
    if standard.name in resets:
        yield _clause(resets[standard.name], False, "not measured: no device is reset")
    if "goals" in tests:
        yield from _of_goals(asked, results)


def _throughput(asked: Asked, results: Sequence[FrameSizeResult]) -> tuple[bool, str]:
    says = f"binary search down to {asked.width:.2%} of the rate"
    if asked.tries > 1:
        z = "any loss" if asked.most_lost is None else f"a loss of up to {asked.most_lost} frames"
        says += f"; behind {z} a rate is tried again, max(r) = {asked.tries}"
    unknown = [
        each for each in results if each.throughput is not None and each.throughput.is_lower_bound
    ]
    if unknown:
        says += "; where the instrument ended the search, the throughput is not known"
    refused = [
        each
        for each in results
        if each.throughput is not None and each.throughput.limited_by == "back-pressure"
    ]
    if refused:
        says += (
            "; where the device took no more, no frame was lost: the generator could not send what"
            " the wire carries without the device"
        )
    return not (unknown or refused), says


def _as_made(conforms: bool, says: str, made: Sequence[int], times: int) -> tuple[bool, str]:
    """Take back that a test conforms where it was made less often than planned."""
    if min(made, default=times) >= times:
        return conforms, says
    return False, f"{says}; of some sizes only {min(made)} of {times} could be made"


def _of_delays(asked: Asked, results: Sequence[FrameSizeResult]) -> Iterator[ClauseRecord]:
    standard, tests = asked.standard, asked.tests
    made = [
        0 if (each := size.latency or size.delays) is None else each.repetitions for size in results
    ]
    if "latency" in tests:
        times, wanted = asked.times("latency"), standard.repetitions["latency"]
        conforms = times >= wanted and asked.stream_s >= 2 * TRIAL_S
        says = f"{times} streams of {asked.stream_s:g} s at the throughput; "
        if standard.name == "8219":
            says += "TL and WCL of every frame of the second half"
        else:
            says += "mean of the first frame of each second half"
        if not conforms:
            says += f"; {wanted} of {2 * TRIAL_S:g} s required"
        yield _clause(standard.tests["latency"], *_as_made(conforms, says, made, times))
    if "pdv" in tests:
        times, wanted = asked.times("pdv"), standard.repetitions["pdv"]
        lasts_s = asked.stream_s if "latency" in tests else asked.trial_s
        conforms = times >= wanted and lasts_s >= TRIAL_S
        says = f"{times} streams of {lasts_s:g} s at the throughput, every frame of them"
        if not conforms:
            says += f"; {wanted} of {TRIAL_S:g} s required"
        for clause in (clauses.PDV, clauses.IPDV):
            yield _clause(clause, *_as_made(conforms, says, made, times))
    if standard.name == "8219":
        yield _clause(
            clauses.SUMMARY_8219,
            True,
            "median of the repetitions, with their 1st and 99th percentile",
        )
    yield _clause(
        clauses.STORE_AND_FORWARD,
        False,
        "software takes both times, before a burst is handed to the wire and after one is taken"
        " from it: that is the latency neither of a store-and-forward nor of a bit-forwarding"
        " device",
    )


def _of_goals(asked: Asked, results: Sequence[FrameSizeResult]) -> Iterator[ClauseRecord]:
    goals = asked.goals
    irregular = [goal for each in results for goal in each.goals if not goal.is_regular]
    says = "both bounds, no further apart than the Goal Width"
    if irregular:
        says += "; results without an upper bound that frames were lost at are irregular"
    yield _clause(clauses.MLR_RESULTS, not irregular, says)
    for clause, sum_s, exceed_ratio in (
        (clauses.MLR_2544, TRIAL_S, 0.0),
        (clauses.MLR_TST009, 2 * TRIAL_S, 0.5),
    ):
        conforms = any(
            goal.final_trial_duration_s >= TRIAL_S
            and goal.duration_sum_s == sum_s
            and goal.loss_ratio == 0
            and goal.exceed_ratio == exceed_ratio
            for goal in goals
        )
        wanted = (
            f"Goal Final Trial Duration {TRIAL_S:g} s, Goal Duration Sum {sum_s:g} s, Goal Loss"
            f" Ratio 0, Goal Exceed Ratio {exceed_ratio:g}"
        )
        yield _clause(clause, conforms, wanted if conforms else f"no goal has {wanted}")


def cannot_claim(wire: str) -> list[str]:
    """List in sentences what the figures cannot claim."""
    found = [
        "The tester is software on a machine that it shares with the device: what it could not"
        " offer says nothing of the device, and is reported as the instrument's limit.",
        "Times are taken by software and include the way through the generator's ports; what the"
        " wire alone takes is what `tailscope calibrate` measures.",
    ]
    if wire in _NO_MEDIUM:
        found.append(
            f"{wire} is memory: it has no line rate, no preamble and no inter-frame gap. Rates are"
            " no shares of the rate of a medium, and back-to-back frames are as close as the"
            " generator sends them.",
        )
    found.append(
        "RFC 2544 is for an isolated test environment (RFC 6815), and compares devices only where"
        " testers, sizes and durations are the same.",
    )
    return found


def _clause(clause: Clause, conforms: bool, says: str) -> ClauseRecord:
    return ClauseRecord(
        document=clause.document,
        section=clause.section,
        title=clause.title,
        conforms=conforms,
        says=says,
    )
