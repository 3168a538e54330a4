"""The papers' recommendations as rules: each speaks where runs give it evidence, and says on what.

A rule yields findings, and reasons why it has nothing to say of something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailscope.extra.recommend.compare import (
    MEDIAN,
    cited,
    have_medians,
    proportion,
    ratio,
    record_of,
    tail_of,
    tails,
    why_not_above,
    why_overlapping,
)
from tailscope.extra.recommend.evidence import CARDS, SHARED_MEMORY
from tailscope.extra.recommend.rule import (
    NoEvidence,
    Rule,
    RunEvidence,
    co_runners_text,
    lowest_against_highest,
    numbers,
    of_tails,
    share_text,
    times_text,
    where,
)
from tailscope.extra.recommend.surroundings import (
    SEVERAL_THREADS,
    SINGLE_THREAD,
)
from tailscope.host.cpus import parse_cpus
from tailscope.units import count_text, duration_text, percentile_name
from tailscope.words.figures import CLOCKS, unknown_floor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailscope.extra.recommend.evidence import Case, Evidence, Facts
    from tailscope.extra.recommend.rule import Said

JUMP = 2.0
"""Smallest growth of the median in overload, where every packet queues."""
BURSTY = 0.01
"""Smallest growth of the share of packets that leave back to back; a smaller one may be due to
stalls.
"""

_SOFTWARE_CLOCKS = ("tsc", "kernel-software")
_UNKNOWN_CLOCKS = ("capture-file", "imported")
_TLB = "TLB shootdown"
_CACHE_KINDS = ("cache", "memory")
_COARSE_BUCKETS = 2


def _timestamps(evidence: Evidence) -> Said:
    """Apply I: times that are taken in software."""
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in evidence.cases:
        key = (case.facts.clock, case.facts.wire, _floor_text(case))
        groups.setdefault(key, []).append(case)
    for (clock, wire, floor), cases in groups.items():
        if clock in _UNKNOWN_CLOCKS:
            yield NoEvidence(
                f"{wire}: nobody said what took the timestamps {cited(numbers(cases))}"
            )
            continue
        if clock not in _SOFTWARE_CLOCKS:
            yield NoEvidence(f"{wire}: hardware timestamps ({clock})")
            continue
        runs = numbers(cases)
        text = f"{wire}: software timestamps ({CLOCKS[clock]}): {cited(runs)}. {floor}"
        figures = []
        matched = sum(int(case.run.summary["count"] or 0) for case in cases)
        if matched and all("tainted" in case.run.summary for case in cases):
            tainted = sum(int(case.run.summary["tainted"] or 0) for case in cases)
            share = proportion(tainted, matched)
            figures.append(record_of("tainted_share", runs, share))
            text += (
                f" The instrument's own stalls taint {share_text(share)} of the samples, the"
                f" longest took {duration_text(_longest_stall_ns(cases))}."
            )
        yield RunEvidence(text, runs, figures)
    if not groups:
        yield NoEvidence("no run records the clock of its timestamps")


def _floor_text(case: Case) -> str:
    floor = case.floor
    if floor is None:
        return f"Their floor is {unknown_floor(case.run.info)}."
    believed = floor.believed_up_to
    upto = "at no percentile" if believed is None else f"up to {percentile_name(believed)}"
    median, tail = duration_text(floor.latency_ns_p50), duration_text(floor.latency_ns_p999)
    return f"Floor: p50 {median}, p99.9 {tail}; believed {upto}."


def _longest_stall_ns(cases: Sequence[Case]) -> int:
    return max(case.longest_stall_ns for case in cases)


def _overload(evidence: Evidence) -> Said:
    """Apply II: from some rate on the device loses packets, and all of them queue."""
    for facts, by_rate in evidence.compared_by("rate_pps"):
        if any(case.lost is None for cases in by_rate.values() for case in cases):
            yield NoEvidence(f"{where(facts)}: what was imported does not tell what was lost")
            continue
        rates = sorted(by_rate)
        lossy = [rate for rate in rates if _lost(by_rate[rate])]
        if not lossy:
            yield NoEvidence(_no_loss(facts, rates, by_rate))
        for rate in lossy:
            free = [each for each in rates if each < rate and _carries(by_rate[each])]
            overloaded = _overloaded(facts, by_rate, rate, free[-1] if free else None)
            yield overloaded
            if isinstance(overloaded, RunEvidence):
                break
    if not evidence.cases:
        yield NoEvidence("no measured runs")


def _overloaded(
    facts: Facts, by_rate: dict[int, list[Case]], rate: int, free: int | None
) -> RunEvidence | NoEvidence:
    above = by_rate[rate]
    loss = proportion(_lost(above), _sent(above))
    sentence = f"{where(facts)}: {share_text(loss)} are lost at {count_text(rate)} packets/s"
    if free is None:
        return NoEvidence(
            f"{sentence} {cited(numbers(above))}, and no lower rate without loss was run"
        )
    below = by_rate[free]
    if not have_medians(below, above):
        return NoEvidence(f"{sentence} {cited(numbers(above))}, and too few came back for a median")
    before, after = tail_of(below, MEDIAN), tail_of(above, MEDIAN)
    times = ratio(after, before)
    if times.ci_low < JUMP or why_overlapping(after, before) is not None:
        return NoEvidence(
            f"{sentence} {cited(numbers(above))}, but the median is {times_text(times)} that at"
            f" {count_text(free)} packets/s: not every packet queues"
        )
    text = (
        f"{sentence}, and the median is {times_text(times)} that at {count_text(free)} packets/s,"
        f" the highest rate below without loss: {after.text()} against {before.text()}. Stay at or"
        f" below {count_text(free)} packets/s, or give the device more CPUs."
    )
    figures = [
        record_of("loss_ratio", numbers(above), loss),
        *after.records(),
        *before.records(),
        record_of("latency_ns_p50_ratio", (*after.runs, *before.runs), times),
    ]
    return RunEvidence(text, (*after.runs, *before.runs), figures)


def _no_loss(facts: Facts, rates: Sequence[int], by_rate: dict[int, list[Case]]) -> str:
    text = f"{where(facts)}: no loss in the DuT up to {count_text(rates[-1])} packets/s"
    cut = next((rate for rate in rates if _unsent(by_rate[rate])), None)
    if cut is None:
        return text
    return (
        f"{text}; at {count_text(cut)} packets/s {cited(numbers(by_rate[cut]))} packets could not"
        " be sent: the wire, or the device behind it, cannot carry this rate"
    )


def _lost(cases: Sequence[Case]) -> int:
    return sum(case.lost or 0 for case in cases)


def _carries(cases: Sequence[Case]) -> bool:
    """Return whether nothing was lost at a rate, and all packets could be sent."""
    return all(case.lost == 0 for case in cases) and not _unsent(cases)


def _sent(cases: Sequence[Case]) -> int:
    return sum(int(case.run.summary["sent"] or 0) for case in cases)


def _unsent(cases: Sequence[Case]) -> int:
    return sum(case.unsent for case in cases)


def _kernel(evidence: Evidence) -> Said:
    """Apply III: the kernel with the lowest tail, for a device with a certain layout of threads."""
    for facts, by_kernel in evidence.compared_by("kernel"):
        kernels = {name: cases for name, cases in by_kernel.items() if name is not None}
        if len(kernels) < 2:
            only = ", ".join(kernels) or "an unknown one"
            yield NoEvidence(f"{where(facts)}: one kernel only: {only}{_tlb_text(kernels)}")
            continue
        tail_of = dict(zip(kernels, tails(*kernels.values()), strict=False))
        if not tail_of:
            yield NoEvidence(f"{where(facts)}: kernels share no supported quantile")
            continue
        best, *others = sorted(tail_of, key=lambda name: tail_of[name].latency_ns.estimate)
        reasons = {name: why_not_above(tail_of[name], tail_of[best]) for name in others}
        beaten = [name for name in others if reasons[name] is None]
        if not beaten:
            why = "; ".join(f"{best} and {name}: {reasons[name]}" for name in others)
            yield NoEvidence(f"{where(facts)}: {why}")
            continue
        against = " and ".join(f"{tail_of[name].text()} with {name}" for name in beaten)
        text = (
            f"{where(facts)}: use {best} rather than {' or '.join(beaten)}:"
            f" {tail_of[best].text()} against {against}."
            f" {_layout_text(facts.device, best, kernels)}{_tlb_text(kernels)}."
        )
        compared = [tail_of[name] for name in (best, *beaten)]
        yield of_tails(text, compared)
    if not evidence.cases:
        yield NoEvidence("no measured runs")


def _layout_text(device: str, best: str, kernels: Iterable[str]) -> str:
    if device in SINGLE_THREAD:
        layout, paper = "a polling thread alone on its CPU", "nohz"
    elif device in SEVERAL_THREADS:
        layout, paper = "several threads that share CPUs", "rt"
    else:
        return "How its threads are laid out is not known"
    agreement = "as it is here" if best == paper else "which does not show here"
    agreement = agreement if paper in kernels else "which was not run here"
    return f"It has {layout}: the paper found {paper} best for this, {agreement}"


def _tlb_text(kernels: dict[str, list[Case]]) -> str:
    """Describe the share of TLB shootdowns in the tails, if kernel events tell."""
    shares = [
        (f"with {name} {cited([case.number])}", share)
        for name, cases in kernels.items()
        for case in cases
        if (share := _tlb_share(case)) is not None
    ]
    parts = [f"{share:.1%} {who}" for who, share in shares] if any(dict(shares).values()) else []
    return f". Of the tails' excess TLB shootdowns are {', '.join(parts)}" if parts else ""


def _tlb_share(case: Case) -> float | None:
    explanation = case.run.explanation
    if explanation is None or not case.facts.recorded[0]:
        return None
    return sum(cause.share for cause in explanation.causes if cause.cause == _TLB)


def _cards(evidence: Evidence) -> Said:
    """Apply IV: cards that make bursts of packets, or whose tail lies above another card's."""
    over_cards = [case for case in evidence.cases if case.facts.wire == CARDS]
    if not over_cards:
        yield NoEvidence("no run over real network cards")
        return
    for case in over_cards:
        yield _bursts(case)
    for facts, by_cards in evidence.compared_by("cards"):
        named_cards = {name: cases for name, cases in by_cards.items() if name}
        if len(named_cards) > 1:
            yield lowest_against_highest(facts, named_cards, "use {lower} rather than {upper}")


def _bursts(case: Case) -> RunEvidence | NoEvidence:
    half_gap_ns = 1e9 / case.facts.rate_pps / 2
    if case.bucket_ns is None or half_gap_ns < _COARSE_BUCKETS * case.bucket_ns:
        return NoEvidence(f"[{case.number}]: buckets of the gaps are too coarse for its rate")
    shares = {}
    for side in ("pre", "post"):
        gaps = case.run.gaps[side]
        total = int(gaps.counts.sum())
        if not total:
            return NoEvidence(f"[{case.number}]: no gaps between packets")
        close = int(gaps.counts[gaps.bucket_ns < half_gap_ns].sum())
        shares[side] = proportion(close, total)
    pre, post = shares["pre"], shares["post"]
    sentence = (
        f"{share_text(post)} of the packets behind the device follow within half of the mean gap,"
        f" {share_text(pre)} before it [{case.number}]"
    )
    if post.ci_low - pre.ci_high < BURSTY:
        return NoEvidence(f"{where(case.facts)}: {sentence}")
    figures = [
        record_of(f"{side}_back_to_back", (case.number,), share) for side, share in shares.items()
    ]
    text = f"{where(case.facts)}: packets leave in bursts: {sentence}."
    return RunEvidence(text, (case.number,), figures)


def _virtualisation(evidence: Evidence) -> Said:
    """Apply V: the cost of a container or a guest, at the median and in the tail."""
    compared = False
    for facts, by_technology in evidence.compared_by("technology"):
        for name in ("lxc", "podman", "vm"):
            if name in by_technology and "bare" in by_technology:
                compared = True
                both = {each: by_technology[each] for each in (name, "bare")}
                yield _virtual(facts, both, name)
    if not compared:
        technologies = sorted({case.facts.technology or "unknown" for case in evidence.cases})
        yield NoEvidence(
            f"no comparable runs on bare and on another: {', '.join(technologies) or 'no runs'}"
        )


def _virtual(facts: Facts, both: dict[str, list[Case]], name: str) -> RunEvidence | NoEvidence:
    compared_tails = tails(*both.values())
    if not compared_tails:
        return NoEvidence(f"{where(facts)}: {name} and bare share no supported quantile")
    virtual, bare = compared_tails
    upper, lower = (
        (virtual, bare)
        if virtual.latency_ns.estimate >= bare.latency_ns.estimate
        else (bare, virtual)
    )
    reason = why_not_above(upper, lower)
    if reason is not None:
        return NoEvidence(f"{where(facts)}: {name} and bare: {reason}")
    tail_times = ratio(virtual, bare)
    median_times = None
    if have_medians(*both.values()):
        median_times = ratio(*(tail_of(cases, MEDIAN) for cases in both.values()))
    if upper is virtual:
        advice = f"use bare if the tail matters, {name} if it does not"
    else:
        advice = f"{name} does not lengthen the tail here"
    in_memory = name == "vm" and facts.wire == SHARED_MEMORY
    port = " (its port is vhost, not memif)" if in_memory else ""
    median = "unknown" if median_times is None else times_text(median_times)
    text = (
        f"{where(facts)}: {advice}: on {name}{port} {percentile_name(virtual.quantile)} is"
        f" {times_text(tail_times)} that on bare, and the median {median}:"
        f" {virtual.text()} against {bare.text()}."
    )
    runs = (*virtual.runs, *bare.runs)
    figures = [
        *virtual.records(),
        *bare.records(),
        record_of(f"{virtual.figure}_ratio", runs, tail_times),
    ]
    if median_times is not None:
        figures.append(record_of("latency_ns_p50_ratio", runs, median_times))
    return RunEvidence(text, runs, figures)


def _cache(evidence: Evidence) -> Said:
    """Apply the rule of the cache: co-runners that fill it, shared beside separate caches."""
    compared = False
    for facts, by_co_runners in evidence.compared_by("co_runners"):
        alone = by_co_runners.get(())
        for co_runners, cases in by_co_runners.items():
            if co_runners and alone is not None:
                compared = True
                yield _beside(facts, co_runners, cases, alone)
    for facts, by_cache in evidence.compared_by("cache"):
        if "separated" in by_cache and "shared" in by_cache:
            compared = True
            both = {name: by_cache[name] for name in ("shared", "separated")}
            yield lowest_against_highest(facts, both, "the cache is better {lower} than {upper}")
    if not compared:
        yield NoEvidence(
            "no comparable runs with and without co-runners, or with shared and separated cache"
        )


def _beside(
    facts: Facts, co_runners: tuple[Any, ...], cases: list[Case], alone: list[Case]
) -> RunEvidence | NoEvidence:
    who = co_runners_text(co_runners)
    if not any(kind.split()[0] in _CACHE_KINDS for kind, _ in co_runners[0]):
        return NoEvidence(f"{where(facts)}: {who} do not fill the cache")
    if any(_on_polling_cpus(case) for case in cases):
        return NoEvidence(
            f"{where(facts)}: {who} take polling CPUs themselves, not the cache alone"
        )
    if facts.cache == "separated":
        return NoEvidence(f"{where(facts)}: beside {who} the cache is the device's own")
    compared_tails = tails(cases, alone)
    if not compared_tails:
        return NoEvidence(f"{where(facts)}: with and without {who} share no supported quantile")
    busy, quiet = compared_tails
    reason = why_not_above(busy, quiet)
    if reason is not None:
        return NoEvidence(f"{where(facts)}: with and without {who}: {reason}")
    times = ratio(busy, quiet)
    cache_text = (
        cases[0].cache_because if facts.cache == "shared" else "whether it is shared is unknown"
    )
    text = (
        f"{where(facts)}: give the device a cache of its own (the knob cache-allocation, or CPUs"
        f" whose cache nobody else has): beside {who} {percentile_name(busy.quantile)} is"
        f" {times_text(times)} that without: {busy.text()} against {quiet.text()}; {cache_text}."
    )
    runs = (*busy.runs, *quiet.runs)
    ratio_figure = record_of(f"{busy.figure}_ratio", runs, times)
    figures = [*busy.records(), *quiet.records(), ratio_figure]
    return RunEvidence(text, runs, figures)


def _on_polling_cpus(case: Case) -> bool:
    """Return whether co-runners had the device's CPUs, or no other CPU was left for them."""
    _, given = case.facts.co_runners
    if given is not None:
        return not case.cpus.isdisjoint(parse_cpus(given))
    return len(case.pollers) >= case.facts.machine[1]


RULES: tuple[Rule, ...] = (
    Rule(
        "I",
        "Measurement setup",
        "limbo2022 §5, Recommendation I",
        "Use hardware timestamps: a timestamper whose cards stamp every packet (`hosts`).",
        _timestamps,
    ),
    Rule(
        "II",
        "Avoid overload",
        "limbo2022 §6.2, Recommendation II",
        "Stay below the rate at which the device begins to lose packets.",
        _overload,
    ),
    Rule(
        "III",
        "Choice of kernel",
        "limbo2022 §6.2, Recommendation III",
        "Use the kernel that suits how the device's threads share CPUs.",
        _kernel,
    ),
    Rule(
        "IV",
        "Choice of NIC",
        "limbo2022 §6.2, Recommendation IV",
        "Test the card at its intended rate; complex cards send in bursts.",
        _cards,
    ),
    Rule(
        "V",
        "Choice of virtualisation",
        "limbo2022 §6.2, Recommendation V; containers2024 §5.4, §5.5, §7",
        "Virtualisation has its price in the tail: pay it where the tail does not matter.",
        _virtualisation,
    ),
    Rule(
        "cache",
        "Cache sharing",
        "containers2024 §5.2, §5.5, §7",
        "Give the device a last-level cache, or a part of one, that nobody else fills.",
        _cache,
    ),
)
"""All rules, in the order of the papers."""
