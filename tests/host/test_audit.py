"""Machines are judged as they are: stock and optimised ones, Intel and AMD, with files missing.

What is expected is in `golden`, as the command prints it and as JSON; `RENEW_GOLDEN=1 pytest
tests/host/test_audit.py` writes it anew, to be read before it is committed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of, raises
from nobody import as_nobody
from trees import (
    CPUS,
    IPV6_ROUTES,
    KERNEL,
    MACHINES,
    NODE_PAGES,
    VM,
    debian,
    interrupts,
    optimised_intel,
    snapshot,
    tree,
)
from wording import assert_wording

from tailscope.cli.host.audit import print_audit
from tailscope.exceptions import UsageError
from tailscope.host.audit import STATES, Audit, audit, cpus_to_keep_free
from tailscope.host.cpus import cpu_list, cpu_mask, parse_cpu_mask
from tailscope.host.knobs.catalogue import KNOBS, knobs_named
from tailscope.host.machine import Machine, chosen

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).with_name("golden")


def audited(root: Path, files: dict[str, str], cpus: tuple[int, ...]) -> Audit:
    return audit(Machine(tree(root, files)), cpus)


def state(report: Audit, name: str) -> tuple[str, str | None]:
    finding = next(finding for finding in report.findings if finding.name == name)
    return finding.state, finding.as_is


@pytest.mark.parametrize("name", MACHINES)
def test_machines_are_judged(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, cpus = MACHINES[name]
    report = audited(tmp_path, files(), cpus)
    print_audit(report)
    text = capsys.readouterr().out
    record = json.dumps(report.record(), indent=1, ensure_ascii=False) + "\n"
    for path, content in {f"{name}.txt": text, f"{name}.json": record}.items():
        if os.environ.get("RENEW_GOLDEN"):
            (GOLDEN / path).write_text(content)
        assert content == (GOLDEN / path).read_text(), path


def test_an_audit_writes_nothing(tmp_path: Path) -> None:
    files, cpus = MACHINES["stock-amd"]
    root = tree(tmp_path, files())
    before = snapshot(root)
    audit(Machine(root), cpus)
    assert snapshot(root) == before


def test_the_score_is_the_share_of_what_is_known(tmp_path: Path) -> None:
    stock, cpus = MACHINES["stock-intel"]
    before = audited(tmp_path / "stock", stock(), cpus).score
    after = audited(tmp_path / "optimised", optimised_intel(), (1, 2, 3)).score
    assert before is not None and after is not None
    assert before < 0.1 < 0.9 < after
    assert audited(tmp_path / "empty", {}, (1,)).score is None


def test_the_tables_of_the_papers_are_whole() -> None:
    """Each parameter of limbo2022 Table 1 and containers2024 Table 2 is some knob's."""
    names = "isolcpus nohz_full rcu_nocbs rcu_nocb_poll irqaffinity idle intel_idle.max_cstate"
    names += " intel_pstate tsc mce audit nmi_watchdog skew_tick nosoftlockup nosmt"
    parameters = [getattr(knob, "parameter", "").partition("=")[0] for knob in KNOBS]
    assert set(names.split()) <= set(parameters)


def test_knobs_are_described() -> None:
    assert len({knob.name for knob in KNOBS}) == len(KNOBS)
    for knob in KNOBS:
        assert knob.name.replace("-", "").isalnum() and knob.name == knob.name.lower()
        assert all((knob.title, knob.why, knob.source, knob.cost, knob.risk)), knob.name
        assert knob.kind in ("boot", "runtime", "held", "report")


def test_knobs_are_found_by_name() -> None:
    assert [knob.name for knob in knobs_named(["stat-interval"])] == ["stat-interval"]
    assert {knob.name for knob in knobs_named(["nic-*", "smt"])} > {"nic-rings", "smt"}
    with raises(UsageError, "no-such-knob") as error:
        knobs_named(["turbo", "turbos"])
    assert all(name in str(error.value) for name in ("'turbos'", "isolcpus, "))


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        ("isolcpus=managed_irq,domain,1-N", "isolcpus", "good"),
        ("rcu_nocbs=1-3", "rcu-nocbs", "good"),
        ("rcu_nocbs=2-N,1", "rcu-nocbs", "good"),
        ("rcu_nocbs=2-N", "rcu-nocbs", "bad"),
        ("rcu_nocbs=all", "rcu-nocbs", "good"),
        ("rcu_nocbs=1", "rcu-nocbs", "bad"),
        ("rcu_nocbs=1-2 rcu_nocbs=3", "rcu-nocbs", "bad"),
        ("-- rcu_nocbs=1-2", "rcu-nocbs", "bad"),
        ("irqaffinity=0,3", "irqaffinity", "good"),
        ("irqaffinity=0,3-N", "irqaffinity", "good"),
        ("irqaffinity=0,2-N", "irqaffinity", "bad"),
        ("irqaffinity=0-1", "irqaffinity", "bad"),
        ("audit=off", "audit", "good"),
        ("audit=1", "audit", "bad"),
        ("audit=0 audit=1", "audit", "bad"),
        ("rcu_nocb_poll", "rcu-nocb-poll", "good"),
        ("skew_tick=1", "skew-tick", "good"),
        ("idle=poll", "idle-poll", "not applicable"),
    ],
)
def test_command_lines_are_read(line: str, name: str, expected: str, tmp_path: Path) -> None:
    files = debian() | {"/proc/cmdline": f"quiet {line}\n", f"{CPUS}/isolated": "1-3\n"}
    assert state(audited(tmp_path, files, (1, 2)), name)[0] == expected


def test_what_a_kernel_ignores_is_bad(tmp_path: Path) -> None:
    """Debian's kernels of the papers took nohz_full for no parameter of theirs."""
    files = optimised_intel()
    assert state(audited(tmp_path / "with", files, (1, 2)), "nohz-full")[0] == "good"
    del files[f"{CPUS}/nohz_full"]
    assert state(audited(tmp_path / "without", files, (1, 2)), "nohz-full")[0] == "bad"


def test_the_kernels_own_list_is_believed_alone(tmp_path: Path) -> None:
    line = {"/proc/cmdline": "isolcpus=2-N nohz_full=2-N\n"}
    files = debian() | line | {f"{CPUS}/isolated": "2-3\n", f"{CPUS}/nohz_full": "3\n"}
    report = audited(tmp_path / "named", files, (2, 3))
    assert state(report, "isolcpus") == ("good", "isolcpus=2-N")
    assert state(report, "nohz-full") == ("bad", "nohz_full=2-N")
    files |= {"/proc/cmdline": "rcu_nocbs=2\n", f"{CPUS}/nohz_full": "3\n"}
    report = audited(tmp_path / "otherwise", files, (2, 3))
    assert state(report, "isolcpus")[0] == "good"
    assert_wording("host/isolated-otherwise", str(state(report, "isolcpus")[1]))
    assert state(report, "rcu-nocbs") == ("good", "rcu_nocbs=2")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "bad"),
        ({f"{CPUS}/isolated": "2\n", f"{CPUS}/nohz_full": "3\n"}, "good"),
        ({f"{CPUS}/isolated": "2\n"}, "bad"),
        ({"/etc/default/irqbalance": "IRQBALANCE_BANNED_CPULIST=2-3\n"}, "good"),
        ({"/etc/sysconfig/irqbalance": 'IRQBALANCE_BANNED_CPULIST="2,3"\n'}, "good"),
        ({"/etc/sysconfig/irqbalance": "IRQBALANCE_BANNED_CPUS=0000000C\n"}, "good"),
        (
            {
                "/etc/default/irqbalance": "IRQBALANCE_BANNED_CPUS=1\n",
                f"{CPUS}/isolated": "2-3\n",
            },
            "bad",
        ),
    ],
)
def test_irqbalance_spares_cpus(files: dict[str, str], expected: str, tmp_path: Path) -> None:
    files = debian() | {"/proc/501/comm": "irqbalance\n"} | files
    assert state(audited(tmp_path, files, (2, 3)), "irqbalance")[0] == expected


def test_interrupts_that_cannot_move_are_not_judged(tmp_path: Path) -> None:
    """Since Linux 6.11 nobody may write to their files."""
    machine = Machine(tree(tmp_path, debian() | interrupts(4, {0: "0-3", 9: "0"}, {})))
    assert state(audit(machine, (1, 2)), "irq-affinity")[0] == "bad"
    (tmp_path / "proc/irq/0/smp_affinity_list").chmod(0o444)
    assert state(audit(machine, (1, 2)), "irq-affinity")[0] == "good"


def test_hugepages_may_be_on_any_node(tmp_path: Path) -> None:
    for name, counts, expected in (("a", (256, 0), "good"), ("b", (200, 0), "bad")):
        nodes = {NODE_PAGES.format(node): f"{count}\n" for node, count in enumerate(counts)}
        report = audited(tmp_path / name, debian() | nodes, (1, 2))
        assert state(report, "hugepages")[0] == expected


def test_misspelt_parameters_are_named(tmp_path: Path) -> None:
    files = debian() | {"/proc/cmdline": "rcu_nocbs_poll nosoftlookup"}
    report = audited(tmp_path, files, (1, 2))
    assert state(report, "rcu-nocb-poll") == ("bad", "absent, misspelt rcu_nocbs_poll")
    assert state(report, "soft-watchdog") == ("bad", "1, misspelt nosoftlookup")


def test_where_ticks_stop_timers_should_move(tmp_path: Path) -> None:
    files = debian() | {f"{CPUS}/nohz_full": "1-2\n"}
    assert state(audited(tmp_path / "without", files, (1, 2)), "timer-migration")[0] == "good"
    assert state(audited(tmp_path / "with", files, (1, 3)), "timer-migration")[0] == "bad"


def test_all_cpus_cannot_be_kept_free(tmp_path: Path) -> None:
    report = audited(tmp_path, debian(), (0, 1, 2, 3))
    for name in ("isolcpus", "irqaffinity", "irq-affinity", "workqueue-cpumask", "rcu-threads"):
        assert state(report, name)[0] == "not applicable", name
    [remark] = report.remarks
    assert_wording("host/no-cpu-left", remark)


@pytest.mark.parametrize(
    "routes",
    [
        {"/proc/net/route": "Iface\tDestination\nvmbr0\t00000000\n"},
        {
            "/proc/net/route": "Iface\tDestination\n",
            "/proc/net/ipv6_route": IPV6_ROUTES.format(zeros=0, card="vmbr0"),
        },
    ],
)
def test_the_card_that_the_machine_is_reached_by(routes: dict[str, str], tmp_path: Path) -> None:
    """A bridge on a VLAN of a bond of two cards; another card is free."""
    files, cpus = MACHINES["stock-intel"]
    machine = Machine(tree(tmp_path, files() | routes))
    layers = {"vmbr0": ["bond0.7"], "bond0.7": ["bond0"], "bond0": ["eno1"], "eno1": []}
    for upper, lower in layers.items():
        folder = tmp_path / "sys/class/net" / upper
        folder.mkdir(exist_ok=True)
        for card in lower:
            (folder / f"lower_{card}").symlink_to(f"../{card}")
    (tmp_path / "sys/class/net/eno1/upper_bond0").symlink_to("../bond0")
    report = audit(machine, cpus)
    assert state(report, "management-nic")[0] == "bad"
    assert_wording("host/management-nic", str(state(report, "management-nic")[1]))
    assert "eno1" not in str(state(report, "nic-coalescing"))
    assert "enp1s0f0" in str(state(report, "nic-coalescing"))


def test_the_fair_server_is_looked_at_where_root_can(tmp_path: Path) -> None:
    file = "/sys/kernel/debug/sched/fair_server/cpu{}/runtime"
    files = debian() | {file.format(cpu): "50000000\n" for cpu in range(4)}
    assert state(audited(tmp_path / "with", files, (1, 2)), "fair-server") == ("bad", "50000000")
    report = audited(tmp_path / "without", debian(), (1, 2))
    assert state(report, "fair-server")[0] == "not applicable"


def test_values_that_are_better_still_are_good(tmp_path: Path) -> None:
    files = debian() | {f"{VM}/stat_interval": "86400\n", f"{VM}/dirty_writeback_centisecs": "0\n"}
    report = audited(tmp_path, files, (1, 2))
    assert state(report, "stat-interval") == ("good", "86400")
    assert state(report, "writeback-interval") == ("good", "0")
    assert state(report, "hugepages") == ("bad", "0")


def test_siblings_that_stay_are_not_good(tmp_path: Path) -> None:
    files = debian() | {f"{CPUS}/smt/control": "on\n"}
    files |= {
        f"{CPUS}/cpu{cpu}/topology/thread_siblings_list": f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}\n"
        for cpu in range(4)
    }
    for cpus in ((1,), (2,)):
        report = audited(tmp_path / str(cpus[0]), files, cpus)
        assert state(report, "smt") == ("bad", "on")


def test_what_cannot_be_read_is_not_judged(tmp_path: Path) -> None:
    files = {f"{CPUS}/online": "0-3\n", f"{VM}/swappiness/": "", f"{KERNEL}/nmi_watchdog": "0\n"}
    report = audited(tmp_path, files, (1,))
    assert state(report, "swappiness") == ("unknown", None)
    assert state(report, "audit") == ("unknown", None)
    assert state(report, "nmi-watchdog") == ("good", "0")
    assert report.score == 1


def test_cpus_that_are_not_there_are_refused(tmp_path: Path) -> None:
    machine = Machine(tree(tmp_path, debian()))
    assert cpus_to_keep_free(machine, "3,1-2,1") == (1, 2, 3)
    with raises(UsageError, "no-such-cpu") as error:
        cpus_to_keep_free(machine, "3,4,7")
    assert all(cpus in str(error.value) for cpus in ("4,7", "0-3"))


def test_masks_and_lists_are_the_kernels() -> None:
    assert cpu_mask([0, 32], like="f,ffffffff\n") == "1,00000001"
    assert cpu_mask([1], like="0000ffff\n") == "00000002"
    assert parse_cpu_mask("1,00000003\n") == {0, 1, 32}
    assert cpu_list([3, 1, 2, 7]) == "1-3,7"
    assert chosen("a [b c] d\n") == "b c"


# --- the command, on this machine ---------------------------------------------


def test_the_command_prints_a_table(tailscope: Callable[..., Any]) -> None:
    done = tailscope("host", "audit", "--cpus", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split()[:2] == ["state", "knob"]
    assert "score" in done.stdout.splitlines()[-1]


def test_the_command_prints_json(tailscope: Callable[..., Any]) -> None:
    done = tailscope("host", "audit", "--cpus", "0", "--json", "-")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["cpus"] == "0"
    names = [knob["name"] for knob in report["knobs"]]
    assert names[: len(KNOBS)] == [knob.name for knob in KNOBS]
    assert {knob["state"] for knob in report["knobs"]} <= set(STATES)
    assert report["score"] is None or 0 <= report["score"] <= 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_audit_needs_no_privilege() -> None:
    report = as_nobody(lambda: audit(Machine(), (0,)).score is not None)
    assert report == "True"


@pytest.mark.parametrize(
    ("options", "code", "got"),
    [
        ((), "missing-parameter", ""),
        (("--cpus", "4000"), "no-such-cpu", "4000"),
        (("--cpus", "two"), "cpu-list", "'two'"),
    ],
)
def test_bad_cpus_are_named(
    tailscope: Callable[..., Any], options: tuple[str, ...], code: str, got: str
) -> None:
    done = tailscope("host", "audit", *options)
    assert done.returncode == 1 and code_of(done) == code
    assert "--cpus" in done.stderr and got in done.stderr
