"""Each rule speaks where there is evidence, and is silent where there is none."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace
from synthetic import OPTIMISED, PACKETS, floor_of, info_of, instrument, latencies, write_run
from wording import assert_wording

from tailscope.extra.recommend.compare import (
    best_quantile,
    least,
    ratio,
    tail_of,
    why_not_above,
)
from tailscope.extra.recommend.evidence import Evidence, read_evidence
from tailscope.extra.recommend.rules import RULES
from tailscope.extra.recommend.surroundings import cache, networking, optimised
from tailscope.extra.recommend.tables import tables
from tailscope.plan.fields import PlanFields
from tailscope.store.info import kernel
from tailscope.store.records.host import HostRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.extra.recommend.rule import RuleAnswer

    Make = Callable[..., Path]

LOW, HIGH = latencies(1, tail_ns=5_000), latencies(2, tail_ns=500_000)
RT, NOHZ = {"kernel_flavour": "rt"}, {"kernel_flavour": "nohz"}
CARDS = {
    "wire": "pci",
    "wire_options": {"generator": "0000:01:00.0+0000:01:00.1", "dut": "0000:02:00.0+0000:02:00.1"},
}
OTHER_CARDS = {
    **CARDS,
    "wire_options": {**CARDS["wire_options"], "dut": "0000:03:00.0+0000:03:00.1"},
}
OWN_PARTS = {"knobs": {"cache-allocation": "own parts"}}
NOHZ_ALONE = "nohz_full=1 isolcpus=1 rcu_nocbs=1 rcu_nocb_poll"
TOO_FEW = OPTIMISED.replace("audit=0", "audit=1").replace("irqaffinity=0 ", "")
GUEST = {"name": "vm", "parameters": "quiet"}
WRITTEN = {"knob": "smt", "path": "/sys/x", "original": None, "wanted": "off"}
RULE = {rule.id: rule for rule in RULES}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a run of a name, by default at 20,000 packets/s."""

    def make(name: str, latency_ns: Any = LOW, **how: Any) -> Path:
        return write_run(tmp_path / name, latency_ns, **{"rate_pps": 20_000, **how})

    return make


def thrice(*paths: Path) -> list[Path]:
    """Runs with two repetitions of each, which measured the same."""
    found = []
    for path in paths:
        again = [path.with_name(f"{path.name} {at}") for at in (2, 3)]
        for each in again:
            shutil.copytree(path, each, dirs_exist_ok=True)
        found += [path, *again]
    return found


def evidence(*paths: Path) -> Evidence:
    return read_evidence({path.name: path for path in paths})


def answer(rule: str, *paths: Path) -> RuleAnswer:
    return RULE[rule].answer(evidence(*paths))


def silent(rule: str, *paths: Path) -> str:
    """The reasons why a rule says nothing."""
    found = answer(rule, *paths)
    assert found.recommendation is None
    assert RULE[rule].applies(evidence(*paths)) is None
    return "; ".join(found.unsaid)


def spoken(rule: str, *paths: Path) -> tuple[str, tuple[int, ...], list[dict[str, Any]]]:
    """The only finding of a rule: its text, its runs, its figures."""
    found = answer(rule, *paths).recommendation
    assert found is not None and found.rule is RULE[rule]
    (finding,) = found.findings
    assert all(set(figure["runs"]) <= set(finding.runs) for figure in finding.figures)
    assert all(
        each["estimate_ci_low"] <= each["estimate"] <= each["estimate_ci_high"]
        for each in finding.figures
    )
    return finding.text, finding.runs, finding.figures


# --- I: timestamps


def test_times_taken_in_software(make: Make) -> None:
    floor = floor_of(400, 9_000, 0.99)
    stalled = np.arange(PACKETS) < 100
    text, runs, (share,) = spoken("I", make("a", stalled=stalled, info={"floor": floor}))
    assert_wording("recommend/timestamps-floor", text)
    assert runs == (1,)
    assert share["figure"] == "tainted_share" and share["estimate"] == 100 / PACKETS
    assert_wording("recommend/timestamps-no-floor", spoken("I", make("b"))[0])
    stamped = {"source": "kernel-software"}
    laboratory = make("c", info={"clock": stamped, "hosts": {"dut": {}}})
    said = spoken("I", laboratory)[0]
    assert_wording("recommend/timestamps-laboratory", said)
    assert "calibrate" not in said


def test_times_taken_in_hardware(make: Make) -> None:
    run = make("a", info={"clock": {"source": "nic-hardware"}})
    assert_wording("recommend/timestamps-hardware", silent("I", run))
    assert RULE["I"].answer(Evidence(())).unsaid[0].startswith("no run records")


# --- II: overload


def test_overload(make: Make) -> None:
    calm = make("10k", rate_pps=10_000)
    full = make("20k", 10 * LOW, lost=400)
    text, runs, figures = spoken("II", full, calm, make("40k", 10 * LOW, rate_pps=40_000, lost=900))
    assert set(runs) == {1, 2}
    assert_wording("recommend/overload", text)
    loss, after, before, times = figures
    assert loss["estimate"] == 400 / PACKETS and loss["estimate_ci_low"] > 0
    assert (after["runs"], before["runs"]) == ([1], [2])
    assert times["estimate"] == pytest.approx(10, rel=0.1) and times["level"] == 0.9


def test_no_overload(make: Make) -> None:
    calm = make("10k", rate_pps=10_000)
    assert_wording("recommend/overload-none", silent("II", calm))
    lossy = make("few lost", lost=3)
    assert_wording("recommend/overload-few-lost", silent("II", calm, lossy))
    assert_wording("recommend/overload-no-lower-rate", silent("II", lossy))
    on_purpose = make("filter", 10 * LOW, lost=400, dropped=400)
    assert "no loss" in silent("II", calm, on_purpose)
    unsent = make("unsent", 10 * LOW, unsent=7)
    assert_wording("recommend/overload-unsent", silent("II", calm, unsent))
    cut = make("10k cut", rate_pps=10_000, unsent=7)
    assert_wording(
        "recommend/overload-lower-rate-cut", silent("II", cut, make("20k", 10 * LOW, lost=400))
    )
    gone = make("all lost", lost=PACKETS)
    assert_wording("recommend/overload-all-lost", silent("II", calm, gone))


# --- III: kernels


def test_the_kernel_with_the_lower_tail(make: Make) -> None:
    vanilla = make(
        "vanilla", HIGH, dut="suricata", causes={"TLB shootdown": 0.6, "local timer": 0.1}
    )
    rt = make("rt", LOW, dut="suricata", host=RT, causes={"local timer": 0.5})
    text, runs, figures = spoken("III", *thrice(vanilla, rt))
    assert_wording("recommend/kernel", text)
    assert runs == (4, 5, 6, 1, 2, 3)
    assert [figure["figure"] for figure in figures] == ["latency_ns_p999"] * 2
    assert figures[0]["estimate_ci_high"] < figures[1]["estimate_ci_low"]


def test_a_kernel_for_a_thread_alone(make: Make) -> None:
    vanilla, nohz = make("vanilla", HIGH), make("nohz", LOW, host=NOHZ)
    assert_wording("recommend/kernel-nohz", spoken("III", *thrice(vanilla, nohz))[0])
    other = make("rt", latencies(9, tail_ns=50), host=RT)
    all_three = spoken("III", *thrice(vanilla, nohz, other))[0]
    assert_wording("recommend/kernel-third-is-best", all_three)
    without = spoken("III", *thrice(vanilla, other))[0]
    assert_wording("recommend/kernel-not-run", without)
    unknown = [
        make(f"c{at}", each, dut="bridge", wire="veth", host=host)
        for at, (each, host) in enumerate([(HIGH, {}), (LOW, RT)])
    ]
    assert_wording("recommend/kernel-unknown-layout", spoken("III", *thrice(*unknown))[0])


def test_no_choice_of_kernel(make: Make) -> None:
    vanilla = make("vanilla", HIGH, causes={"TLB shootdown": 0.25})
    assert_wording("recommend/kernel-only-one", silent("III", vanilla))
    alike = [
        make(name, latencies(seed), host=host)
        for name, seed, host in (("one", 3, {}), ("two", 4, RT))
    ]
    assert_wording("recommend/kernel-overlap", silent("III", *alike))
    few = [
        make(f"few {name}", each[:15], host=host)
        for name, each, host in (("one", HIGH, {}), ("two", LOW, RT))
    ]
    assert_wording("recommend/kernel-no-quantile", silent("III", *few))
    optimised_rt = make("optimised", LOW, host={**RT, "kernel_command_line": OPTIMISED})
    assert_wording("recommend/kernel-optimised", silent("III", make("plain", HIGH), optimised_rt))
    faster = make("faster", LOW, host=RT, rate_pps=40_000)
    assert "one kernel only" in silent("III", make("slower", HIGH), faster)


def test_what_only_the_instrument_shows_is_not_said(make: Make) -> None:
    tail = HIGH > 10_000
    rt = make("rt", LOW, host=RT)
    stalled = make("stalled", HIGH, stalled=tail, stall_ns=1_000_000_000)
    reason = silent("III", stalled, rt)
    assert_wording("recommend/kernel-instrument", reason)
    (row,) = [case.run.summary for case in evidence(stalled).cases]
    assert row["tainted"] >= tail.sum()
    hardly = make("hardly stalled", HIGH, stalled=tail, stall_ns=100)
    text, _, figures = spoken("III", *thrice(hardly, rt))
    assert "(instrument)" in text
    assert {each["figure"] for each in figures} >= {"latency_ns_p999", "least_latency_ns_p999"}


def test_of_an_older_run_nothing_bounds_what_the_instrument_stalled() -> None:
    figures = {"tainted": 3, "latency_ns_p99": 90, "least_latency_ns_p99": None}
    assert least(figures, "latency_ns_p99") == 0
    assert least({**figures, "tainted": 0}, "latency_ns_p99") == 90
    assert least({"latency_ns_p99": 90}, "latency_ns_p99") == 90


def test_every_repeat_counts(make: Make) -> None:
    rt = [make(f"rt {at}", latencies(at, tail_ns=5_000), host=RT) for at in (11, 12, 13)]
    vanilla = [make(f"vanilla {at}", latencies(at, tail_ns=500_000)) for at in (14, 15, 16)]
    text, runs, figures = spoken("III", *rt, *vanilla)
    assert runs == (1, 2, 3, 4, 5, 6) and figures[0]["n"] == 3 * PACKETS
    assert "[1][2][3]) against" in text
    reason = silent("III", *rt[:2], *vanilla)
    assert_wording("recommend/kernel-chance", reason)
    stray = make("vanilla 4", LOW)
    assert_wording("recommend/kernel-stray", silent("III", *rt, *vanilla, stray))


def test_runs_of_one_law_are_seldom_told_apart(make: Make) -> None:
    runs = [make(f"run {seed}", latencies(100 + seed)) for seed in range(24)]
    tails = [tail_of([case], 0.999) for case in evidence(*runs).cases]
    pairs = [
        why_not_above(upper, lower) is None
        for upper in tails
        for lower in tails
        if upper.latency_ns.estimate > lower.latency_ns.estimate
    ]
    assert len(pairs) > 200
    assert sum(pairs) / len(pairs) <= 0.05


# --- IV: NICs


def in_bursts(of: int, gap_ns: int = 50_000) -> Any:
    """Arrivals of packets that wait until so many are together."""
    at = np.arange(PACKETS)
    last = (at // of + 1) * of - 1
    return last * gap_ns + 3_000 + at % of * 200


def test_bursts_on_the_egress(make: Make) -> None:
    run = make("bursts", arrivals_ns=in_bursts(2), **CARDS)
    text, runs, (pre, post) = spoken("IV", run)
    assert_wording("recommend/nic-bursts", text)
    assert runs == (1,)
    assert pre["figure"] == "pre_back_to_back" and pre["estimate"] == 0
    assert post["figure"] == "post_back_to_back" and post["estimate"] == pytest.approx(
        0.5, abs=0.01
    )


def test_no_bursts(make: Make) -> None:
    assert_wording("recommend/nic-even", silent("IV", make("even", **CARDS)))
    wire = make("memif", arrivals_ns=in_bursts(2))
    assert_wording("recommend/nic-none", silent("IV", wire))
    fast = make("fast", rate_pps=4_000_000, **CARDS)
    assert "too coarse" in silent("IV", fast)


def test_cards_are_compared(make: Make) -> None:
    runs = thrice(make("one", LOW, **CARDS), make("other", HIGH, **OTHER_CARDS))
    text, _, figures = spoken("IV", *runs)
    assert_wording("recommend/nic-compared", text)
    assert len(figures) == 2
    assert "overlap" in silent("IV", make("a", **CARDS), make("b", **OTHER_CARDS))


# --- V: virtualisation


def test_what_virtualisation_costs(make: Make) -> None:
    bare, lxc = make("bare"), make("lxc", HIGH, platform_name="lxc")
    text, runs, figures = spoken("V", *thrice(bare, lxc))
    assert_wording("recommend/virtualisation", text)
    assert runs == (4, 5, 6, 1, 2, 3)
    tail, median = figures[2:]
    assert tail["figure"] == "latency_ns_p999_ratio" and tail["estimate"] > 10
    assert median["figure"] == "latency_ns_p50_ratio" and median["estimate"] == pytest.approx(
        1, abs=0.1
    )
    guest = make(
        "vm", HIGH, platform_name="vm", platform={"representative": True, "parameters": ""}
    )
    assert_wording("recommend/virtualisation-vhost", spoken("V", *thrice(bare, guest))[0])


def test_a_container_may_cost_nothing(make: Make) -> None:
    text, _, _ = spoken("V", *thrice(make("bare", HIGH), make("lxc", LOW, platform_name="lxc")))
    assert_wording("recommend/virtualisation-free", text)


def test_no_cost_of_virtualisation(make: Make) -> None:
    bare, lxc = make("bare"), make("lxc", latencies(5, tail_ns=5_000), platform_name="lxc")
    assert_wording("recommend/virtualisation-overlap", silent("V", bare, lxc))
    assert_wording("recommend/virtualisation-one", silent("V", bare))
    other = make("rt", HIGH, platform_name="lxc", host=RT)
    assert_wording("recommend/virtualisation-not-comparable", silent("V", bare, other))


# --- cache


def test_co_runners_in_the_same_cache(make: Make) -> None:
    alone, busy = make("alone"), make("busy", HIGH, co_runners={"cache": 1}, co_runner_cpus="2")
    text, runs, figures = spoken("cache", *thrice(alone, busy))
    assert_wording("recommend/cache-own", text)
    assert runs == (4, 5, 6, 1, 2, 3)
    assert figures[2]["figure"] == "latency_ns_p999_ratio" and figures[2]["estimate_ci_low"] > 1


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"co_runners": {"cpu": 2}, "co_runner_cpus": "2"}, "do not fill the cache"),
        ({"co_runners": {"cache": 1}, "co_runner_cpus": "1-2"}, "take polling CPUs themselves"),
        ({"co_runners": {"cache": 1}, "host": {"cpu_count": 2}}, "take polling CPUs themselves"),
        ({"co_runners": {"cache": 1}, "info": OWN_PARTS}, "the device's own"),
    ],
)  # fmt: skip
def test_co_runners_that_say_nothing_of_the_cache(
    make: Make, how: dict[str, Any], said: str
) -> None:
    quiet = {name: value for name, value in how.items() if not name.startswith("co_runner")}
    assert said in silent("cache", make("alone", **quiet), make("busy", HIGH, **how))


def test_a_cache_that_is_separated(make: Make) -> None:
    shared = make("shared", HIGH)
    own = make("own", LOW, host={"last_level_caches": "0,2-3;1"})
    text, _, _ = spoken("cache", *thrice(shared, own))
    assert_wording("recommend/cache-separated", text)
    assert "overlap" in silent("cache", make("also shared", LOW), own)
    assert_wording("recommend/cache-no-co-runners", silent("cache", shared))
    worse = make("worse", LOW, co_runners={"cache": 1})
    assert_wording("recommend/cache-co-runners-overlap", silent("cache", shared, worse))


# --- what runs are


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, False),
        ({"host": {"kernel_command_line": OPTIMISED}}, True),
        ({"host": {"kernel_command_line": TOO_FEW}}, False),
        ({"host": {"kernel_command_line": NOHZ_ALONE}}, False),
        ({"host": {"kernel_command_line": "rcu_nocbs=1 tsc=reliable idle=poll"},
          "knobs": {"nmi-watchdog": "0", "soft-watchdog": "0", "smt": "forceoff"}}, True),
        ({"host": {"kernel_command_line": None}}, None),
        ({"tuning": [{**WRITTEN, "refused": None}, {**WRITTEN, "refused": "no"}]}, True),
        ({"tuning": [{**WRITTEN, "refused": "no"}]}, False),
        ({"host": {"kernel_command_line": OPTIMISED}, "platform": GUEST}, False),
        ({"platform": {"name": "vm", "parameters": OPTIMISED}}, True),
        ({"hosts": {"dut": {"kernel_command_line": OPTIMISED}}}, True),
    ],
)  # fmt: skip
def test_optimised(info: dict[str, Any], expected: bool | None) -> None:
    plain = {"host": {"kernel_command_line": "quiet"}, "platform": {"name": "bare"}}
    assert optimised(info_of(**{**plain, **info}))[0] is expected


def test_the_kernel_is_the_one_the_device_ran_on() -> None:
    host = {"kernel_flavour": "rt"}
    assert kernel(info_of(host=host, platform={"name": "lxc"})) == "rt"
    for guest, expected in (
        ({"realtime": True}, "rt"),
        ({"nohz_full_cpus": "1"}, "nohz"),
        ({"nohz_full_cpus": ""}, "vanilla"),
    ):
        assert kernel(info_of(host=host, platform={"name": "vm", **guest})) == expected
    assert kernel(info_of(platform=None)) is None


def test_networking() -> None:
    for dut, wire, mode, expected in (
        ("l2fwd", "memif", None, "user space"),
        ("l2fwd", "veth", None, "kernel space"),
        ("mirred", "pci", None, "kernel space"),
        ("suricata", "pci", "af-packet", "kernel space"),
        ("suricata", "pci", "dpdk", "user space"),
    ):
        options = {} if mode is None else {"mode": mode}
        plan = PlanFields(dut=dut, wire=wire, dut_options=options)
        assert networking(plan) == expected


def test_who_shares_the_cache() -> None:
    polling = replace(instrument(), cpus={"generator": "0", "DuT": "2"})
    info = replace(info_of(), instrument=polling)
    assert cache(info)[0] == "unknown"
    for caches, expected in (("0-3", "shared"), ("0-1;2;3", "separated"), ("0-1;2-3", "shared")):
        host = HostRecord(last_level_caches=caches)
        assert cache(replace(info, host=host))[0] == expected
    assert cache(replace(info, knobs={"cache-allocation": "own parts"}))[0] == "separated"


def test_the_quantile_that_all_support(make: Make) -> None:
    cases = evidence(make("many"), make("few", LOW[:2_000], rate_pps=2_000)).cases
    assert [best_quantile([case]) for case in cases] == [0.999, 0.99]
    assert best_quantile(cases) == 0.99
    high, low = tail_of(cases[:1], 0.99), tail_of(cases[1:], 0.99)
    assert_wording("recommend/intervals-overlap", why_not_above(high, high))
    times = ratio(high, low)
    assert times.ci_low <= times.estimate <= times.ci_high and times.n == 2_000


# --- tables


def test_table_6_has_the_papers_rows(make: Make) -> None:
    optimised_rt = {**RT, "kernel_command_line": OPTIMISED}
    runs = [make("plain", HIGH, lost=5), make("tuned", LOW, host=optimised_rt)]
    runs += [make("link", LOW, dut="mirred", wire="veth", platform_name="lxc")]
    (table,) = tables(evidence(*runs))
    assert len(table.cells) == 8
    found = {(*each.setting[:2], *each.setting[3:]): each for each in table.cells}
    plain = found["bare", "user space", "vanilla", False]
    summary = evidence(runs[0]).cases[0].run.summary
    assert plain.tail is not None
    assert (plain.tail.quantile, plain.runs, plain.lost) == (0.999, (1,), 5)
    assert plain.tail.latency_ns.estimate == summary["latency_ns_p999"]
    assert plain.tail.latency_ns.ci_high == summary["latency_ns_p999_ci_high"]
    assert (plain.max_ns, plain.tail.latency_ns.n) == (summary["latency_ns_max"], summary["count"])
    assert found["bare", "user space", "rt", True].runs == (2,)
    assert found["lxc", "kernel space", "vanilla", False].runs == (3,)
    empty = found["vm", "user space", "rt", True]
    assert empty.tail is None and empty.max_ns is None and empty.runs == ()
    assert all(value in (None, []) for name, value in empty.record().items()
               if name not in empty.setting._fields)  # fmt: skip


def test_table_7_ranks_by_intervals(make: Make) -> None:
    alike = latencies(21, tail_ns=5_000)
    runs = [make("bare", LOW), make("lxc", alike, platform_name="lxc")]
    runs += [
        make(
            "vm",
            HIGH,
            platform_name="vm",
            host={"last_level_caches": None},
            platform={"parameters": ""},
        )
    ]
    (alone,) = tables(evidence(*runs))
    assert {row.rank for row in alone.ranks if row.runs} == {1}, "one run of each tells no order"
    (table,) = tables(evidence(*thrice(*runs)))
    ranks = {row.technology: row for row in table.ranks if row.runs}
    assert {name: row.rank for name, row in ranks.items()} == {"bare": 1, "lxc": 1, "vm": 3}
    assert {name: row.security for name, row in ranks.items()} == {
        "bare": ("✓✓✓",), "lxc": ("✗",), "vm": ("✓✓", "✓"),
    }  # fmt: skip
    assert {name: row.resources for name, row in ranks.items()} == {
        "bare": "✗✗", "lxc": "✓✓✓", "vm": "✓",
    }  # fmt: skip
    others = [row for row in table.ranks if not row.runs]
    assert len(others) == 3 and all(row.rank is None and row.optimised for row in others)


def test_other_traffic_has_other_tables(make: Make) -> None:
    found = tables(evidence(make("slow", rate_pps=10_000), make("fast"), make("again")))
    assert [table.facts.rate_pps for table in found] == [10_000, 20_000]
    (cell,) = [cell for cell in found[1].cells if cell.runs]
    assert cell.runs == (2, 3)
