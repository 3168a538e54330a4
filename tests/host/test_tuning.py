"""Settings come back, byte for byte, whatever happens in between."""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of, commands_in, raises
from nobody import as_nobody
from trees import (
    CPUS,
    IMMOVABLE,
    KERNEL,
    MACHINES,
    NODE_PAGES,
    RESCTRL,
    THP,
    VM,
    KernelTree,
    snapshot,
    tree,
)
from wording import assert_wording

from tailscope.cli.host.apply import command as apply_command
from tailscope.cli.reminder import remind
from tailscope.exceptions import TestbedError, TuningError, UsageError
from tailscope.host.apply import KnobOutcome, applicable, apply, planned, revert, tuned
from tailscope.host.audit import audit, remarks
from tailscope.host.journal import _line, journal_file, tuning_lock
from tailscope.host.knobs.catalogue import knobs_named
from tailscope.host.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tailscope.host.knobs.knob import Cpus

ODD = {
    f"{VM}/stat_interval": "7\n",
    f"{VM}/dirty_writeback_centisecs": "777\n",
    f"{VM}/swappiness": "  61\n",
    f"{KERNEL}/sched_rt_runtime_us": "123456\n",
    f"{KERNEL}/watchdog_cpumask": "0,2-3,6-7\n",
    f"{THP}/enabled": "always [madvise] never\n",
    f"{THP}/defrag": "always [defer] defer+madvise madvise never\n",
    f"{VM}/nr_hugepages": "3\n",
}
FEW = ["stat-interval", "thp-defrag", "governor", "isolated-cpuset", "cache-*", "nic-coalescing"]
ALSO_LEFT_OUT = ("cpu-dma-latency", "irqbalance")
BY = "a test"


@pytest.fixture
def machine(tmp_path: Path) -> KernelTree:
    """AMD, sixteen CPUs, cgroup v2, with values that nobody would guess."""
    return KernelTree(tree(tmp_path / "root", MACHINES["stock-amd"][0]() | ODD))


CORES = (6, 7)
NEEDED = {
    "/proc/cpuinfo",
    f"{CPUS}/online",
    f"{RESCTRL}/schemata",
    f"{RESCTRL}/info/L3/num_closids",
}
NEEDED |= {f"{CPUS}/cpu{cpu}/cache/index3/id" for cpu in range(16)}
"""What sharing out a cache reads."""


def rewrite(machine: Machine, content: bytes) -> None:
    """Put something else into the journal, or make it again."""
    journal_file(machine).touch(0o600)
    journal_file(machine).write_bytes(content)


def refused(outcomes: list[KnobOutcome]) -> set[str]:
    return {outcome.path for outcome in outcomes if outcome.refused is not None}


# --- there and back -----------------------------------------------------------


@pytest.mark.parametrize("name", ["stock-intel", "stock-amd", "optimised-intel", "sparse"])
@pytest.mark.parametrize("only", [None, ["*"]])
def test_originals_come_back(name: str, only: list[str] | None, tmp_path: Path) -> None:
    files, cpus = MACHINES[name]
    there = files()
    odd = {path: text for path, text in ODD.items() if path in there}
    machine = KernelTree(tree(tmp_path / "root", there | odd))
    before = snapshot(machine.root)
    outcomes = apply(machine, cpus, only, by=BY)
    assert (snapshot(machine.root) != before) == bool(outcomes)
    found = revert(machine)
    assert not found.failed
    assert snapshot(machine.root) == before
    assert not journal_file(machine).exists()
    assert revert(machine).by is None


def test_what_was_set_is_as_it_should_be(machine: KernelTree) -> None:
    """Every knob is set except what refuses: interrupt 0 and one RCU thread."""
    outcomes = apply(machine, CORES, ["*"], by=BY)
    assert refused(outcomes) == {"/proc/irq/0/smp_affinity_list", "affinity:23/rcuop/2"}
    left = {
        finding.name
        for finding in audit(machine, CORES).findings
        if finding.kind == "runtime" and finding.state == "bad"
    }
    assert left == {"irq-affinity", "rcu-threads"}
    control = str(machine.read("/sys/fs/cgroup/cgroup.subtree_control"))
    assert control.split() == ["cpuset", "cpu", "io", "memory", "pids"]
    assert machine.read("/sys/fs/cgroup/tailscope/cpuset.cpus.partition") == "isolated\n"
    assert str(machine.read("/sys/fs/resctrl/tailscope-7/schemata")).startswith("    L3:0=f800;1=")
    assert str(machine.read("/sys/fs/resctrl/schemata")).startswith("    L3:0=3f;1=ffff\n")


def test_parts_of_the_cache_do_not_overlap(machine: KernelTree) -> None:
    apply(machine, CORES, ["cache-allocation"], by=BY)
    files = ["tailscope-6/schemata", "tailscope-7/schemata", "schemata"]
    texts = [str(machine.read(f"/sys/fs/resctrl/{file}")) for file in files]
    masks = [int(text.partition("L3:0=")[2].partition(";")[0], 16) for text in texts]
    assert sum(masks) == 0xFFFF == masks[0] | masks[1] | masks[2]


@pytest.mark.parametrize("cpus", [(6,), (6, 7), (5, 6, 7), (6, 7, 8)])
def test_every_cache_is_shared_out_as_the_kernel_wants_it(tmp_path: Path, cpus: Cpus) -> None:
    """Masks have no holes and enough bits, wherever each CPU and the others can have that."""
    [knob] = knobs_named(["cache-allocation"])
    most = max(Counter(cpu // 8 for cpu in cpus).values())
    files = {path: text for path, text in MACHINES["stock-amd"][0]().items() if path in NEEDED}
    for ways, least in itertools.product(range(1, 21), range(1, 4)):
        info = {"cbm_mask": f"{(1 << ways) - 1:x}\n", "min_cbm_bits": f"{least}\n"}
        files |= {f"{RESCTRL}/info/L3/{name}": text for name, text in info.items()}
        machine = KernelTree(tree(tmp_path / f"{ways}-{least}", files))
        changes = knob.changes(machine, cpus)
        assert bool(changes) == (ways >= least * (most + 1))
        for change in changes:
            machine.write(*change)


def test_the_kernel_explains_a_part_that_it_refuses(machine: KernelTree) -> None:
    """Other programs have all groups but one, and each CPU needs its own."""
    others = {f"{RESCTRL}/other-{number}/schemata": "L3:0=ff\n" for number in range(14)}
    tree(machine.root, {f"{RESCTRL}/info/last_cmd_status": "ok\n", **others})
    before = snapshot(machine.root)
    *_, last = apply(machine, CORES, ["cache-allocation"], by=BY)
    assert (last.path, last.refused) == (f"{RESCTRL}/tailscope-7/", "Out of CLOSIDs")
    assert not revert(machine).failed
    (machine.root / RESCTRL[1:] / "info/last_cmd_status").write_text("ok\n")
    assert snapshot(machine.root) == before


def test_groups_are_counted_by_what_has_the_fewest(machine: KernelTree) -> None:
    assert planned(machine, CORES, ["cache-allocation"])
    tree(machine.root, {f"{RESCTRL}/info/MB/num_closids": "2\n"})
    assert not planned(machine, CORES, ["cache-allocation"])


def test_a_change_that_needs_another_is_not_tried_without_it(machine: KernelTree) -> None:
    machine.stuck = ("/sys/fs/resctrl/tailscope-6/schemata",)
    outcomes = apply(machine, CORES, ["cache-allocation", "stat-interval"], by=BY)
    tried = [outcome.path for outcome in outcomes if outcome.knob == "cache-allocation"]
    assert tried == ["/sys/fs/resctrl/tailscope-6/", "/sys/fs/resctrl/tailscope-6/schemata"]
    assert machine.read(f"{VM}/stat_interval") == "3600\n"
    assert not revert(machine).failed


def test_a_value_that_is_not_taken_is_refused(machine: KernelTree) -> None:
    class Deaf(KernelTree):
        def write(self, path: str, text: str) -> None:
            super().write(path, "5" if path.endswith("nr_hugepages") and text == "128" else text)

    deaf = Deaf(machine.root)
    outcomes = apply(deaf, CORES, ["hugepages"], by=BY)
    assert [outcome.refused for outcome in outcomes] == ["it reads '5'"] * 2
    assert not journal_file(machine).exists()
    assert [machine.read(NODE_PAGES.format(node)) for node in (0, 1)] == ["1\n", "2\n"]


def test_only_what_is_asked_for_is_set(machine: KernelTree) -> None:
    before = snapshot(machine.root)
    assert {knob.name for knob, _ in planned(machine, CORES, ["thp-*"])} == {"thp-defrag"}
    assert not {"isolated-cpuset", "nic-rings"} & {knob.name for knob, _ in planned(machine, CORES)}
    apply(machine, CORES, ["thp-defrag"], by=BY)
    after = snapshot(machine.root)
    assert {path for path in after if after[path] != before[path]} == {f"{THP}/defrag"[1:]}


def test_a_plan_is_only_a_plan(machine: KernelTree) -> None:
    before = snapshot(machine.root)
    assert planned(machine, CORES)
    assert snapshot(machine.root) == before and not journal_file(machine).exists()
    apply(machine, CORES, by=BY)
    applied = snapshot(machine.root)
    assert revert(machine, dry_run=True).restored
    assert snapshot(machine.root) == applied and journal_file(machine).exists()


def test_a_second_application_is_refused(machine: KernelTree) -> None:
    apply(machine, CORES, ["stat-interval"], by=BY)
    with raises(TuningError, "already-tuned") as error:
        apply(machine, CORES, ["ksm"], by=BY)
    assert str(error.value).startswith(str(journal_file(machine)))
    assert "tailscope host revert" in commands_in(error.value.hint)
    assert machine.read("/sys/kernel/mm/ksm/run") == "1\n"


def test_a_failure_is_said_and_tried_again(machine: KernelTree) -> None:
    apply(machine, CORES, ["stat-interval", "ksm"], by=BY)
    machine.stuck = ("/sys/kernel/mm/ksm",)
    (failed,) = revert(machine).failed
    assert failed[0].path == "/sys/kernel/mm/ksm/run" and failed[1] == IMMOVABLE
    assert machine.read(f"{VM}/stat_interval") == "7\n"
    machine.stuck = ()
    assert not revert(machine).failed
    assert machine.read("/sys/kernel/mm/ksm/run") == "1\n"


def test_where_nothing_was_taken_nothing_is_to_revert(machine: KernelTree) -> None:
    before = snapshot(machine.root)
    machine.stuck = ("/sys/kernel/mm/ksm", f"{VM}/stat_interval")
    assert len(refused(apply(machine, CORES, ["ksm", "stat-interval"], by=BY))) == 2
    assert snapshot(machine.root) == before and not journal_file(machine).exists()


def test_the_command_says_what_became_of_it(
    machine: KernelTree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*only: str, cpus: str = "6-7") -> tuple[int, str, str]:
        status = apply_command(cpus, yes=True, dry_run=False, only=list(only))
        return status, *capsys.readouterr()

    monkeypatch.setattr("tailscope.host.machine.Machine", lambda: machine)
    machine.stuck = ("/sys/kernel/mm/ksm",)
    status, output, errors = said("ksm")
    assert status == 1 and IMMOVABLE in output
    assert_wording("host/apply-refused", errors)
    status, output, errors = said("cpu-dma-*")
    assert status == 0 and not errors
    assert_wording("host/apply-held", output)
    status, output, errors = said("ksm", "stat-interval", cpus="0-15")
    [remark] = remarks(machine, tuple(range(16)))
    assert output.startswith(f"{remark}\n")
    assert status == 0 and re.findall(r"\d+", errors)[:2] == ["1", "1"]
    assert "tailscope host revert" in commands_in(errors)


def test_what_cannot_be_read_is_not_gone(machine: KernelTree) -> None:
    """A task that has another name by now is; a card that answers nothing is not."""

    class Silent(KernelTree):
        def read(self, path: str) -> str | None:
            return None if path.startswith("ethtool:") else super().read(path)

    apply(machine, CORES, ["nic-coalescing"], by=BY)
    failed = revert(Silent(machine.root)).failed
    assert {why for _, why in failed} == {"not there"} and journal_file(machine).exists()
    assert not revert(machine).failed
    assert not Machine().exists(f"affinity:{os.getpid()}/another")
    assert not Machine().exists("ethtool:nothing0/ring/rx")
    assert Machine().exists("ethtool:lo/ring/rx")


def test_controllers_of_others_stay(machine: KernelTree) -> None:
    control = "/sys/fs/cgroup/cgroup.subtree_control"
    apply(machine, CORES, ["isolated-cpuset"], by=BY)
    (machine.root / control[1:]).write_text("cpuset cpu io memory hugetlb pids\n")
    assert not revert(machine).failed
    assert str(machine.read(control)).split() == ["cpu", "io", "memory", "hugetlb", "pids"]


def test_what_is_left_out_is_said(machine: KernelTree) -> None:
    (machine.root / "proc/501").mkdir(parents=True)
    (machine.root / "proc/501/comm").write_text("irqbalance\n")
    usual = applicable(machine, CORES, holding=False).left_out
    assert set(usual) == {"isolated-cpuset", "nic-pause", "nic-rings", *ALSO_LEFT_OUT}
    assert "cpu-dma-latency" not in applicable(machine, CORES).left_out
    named = ["numa-balancing", "cpu-dma*", "smt", "ksm"]
    found = applicable(machine, CORES, named)
    assert [knob.name for knob in found.knobs] == ["ksm", "numa-balancing", "cpu-dma-latency"]
    assert list(found.left_out) == ["smt"]
    with tuned(machine, CORES, ["ksm"], by=BY):
        again = applicable(machine, CORES, ["ksm"])
    assert not again.knobs and list(again.left_out) == ["ksm"]
    assert_wording("host/left-out", "\n".join([*found.left_out.values(), *again.left_out.values()]))


def test_what_is_gone_needs_no_restoring(machine: KernelTree) -> None:
    apply(machine, CORES, ["rcu-threads", "stat-interval"], by=BY)
    (machine.root / "affinity:16/rcuog/0").unlink()
    assert not revert(machine).failed


def test_a_card_out_of_sight_is_not_restored(machine: KernelTree) -> None:
    """After a run that was killed it is in another namespace, or at another driver."""
    (outcome, *_) = apply(machine, CORES, ["nic-coalescing"], by=BY)
    card = machine.root / outcome.path
    hidden = card.read_bytes()
    card.unlink()
    (failed, *_) = revert(machine).failed
    assert failed[0].path == outcome.path and "runs clean" in failed[1]
    card.write_bytes(hidden)
    assert not revert(machine).failed
    assert machine.read(outcome.path) == outcome.original


# --- as long as a block lasts -------------------------------------------------


def test_a_block_is_tuned(machine: KernelTree) -> None:
    before = snapshot(machine.root)
    names = {knob.name for knob in applicable(machine, CORES).knobs}
    assert {"cpu-dma-latency", "governor"} < names and "isolated-cpuset" not in names
    late = {knob.name for knob in knobs_named(names) if knob.lags}
    assert late == {"stat-interval"}
    with tuned(machine, CORES, by=BY) as outcomes:
        assert {outcome.knob for outcome in outcomes} == names - late
        assert machine.read("/dev/cpu_dma_latency") == "\0\0\0\0"
        assert machine.read(f"{CPUS}/cpu6/cpufreq/scaling_governor") == "performance\n"
        assert {knob.name for knob in applicable(machine, CORES).knobs} == {
            "irq-affinity",
            "rcu-threads",
            *late,
        }
    after = snapshot(machine.root)
    # The kernel forgets what was written there; a file does not.
    assert after.pop("dev/cpu_dma_latency") != before.pop("dev/cpu_dma_latency")
    assert after == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_block_that_fails_is_reverted(machine: KernelTree, error: type[BaseException]) -> None:
    before = snapshot(machine.root)
    with pytest.raises(error), tuned(machine, CORES, FEW, by=BY):
        assert snapshot(machine.root) != before
        raise error
    assert snapshot(machine.root) == before


def test_leave_one_out(machine: KernelTree) -> None:
    """Knobs are named as in an ablation, down to none at all."""
    before = snapshot(machine.root)
    with tuned(machine, CORES, [], by=BY) as outcomes:
        assert outcomes == [] and snapshot(machine.root) == before
    with tuned(machine, CORES, ["ksm", "thp-defrag"], by=BY) as outcomes:
        assert {outcome.knob for outcome in outcomes} == {"ksm", "thp-defrag"}


def test_a_block_leaves_alone_what_was_applied_before(machine: KernelTree) -> None:
    apply(machine, CORES, ["ksm"], by=BY)
    with tuned(machine, CORES, ["ksm"], by=BY) as outcomes:
        assert outcomes == []
    assert machine.read("/sys/kernel/mm/ksm/run") == "0\n" and journal_file(machine).exists()


def test_two_do_not_tune_at_once(machine: KernelTree) -> None:
    with tuned(machine, CORES, ["ksm"], by=BY):
        with raises(TuningError, "tuning-locked"):
            revert(machine)
        with raises(TuningError, "tuning-locked"):
            apply(machine, CORES, ["stat-interval"], by=BY)
        assert machine.read("/sys/kernel/mm/ksm/run") == "0\n"


# --- crashes ------------------------------------------------------------------


class Dying(KernelTree):
    """A machine on which something happens once, before or after a certain write."""

    def __init__(self, root: Path, at: int, when: str, what: Callable[[], object]) -> None:
        super().__init__(root)
        self.left, self.when, self.what = at, when, what

    def _now(self, when: str) -> None:
        if when == self.when:
            self.left -= 1
            if self.left == -1:
                self.what()

    def write(self, path: str, text: str) -> None:
        self._now("before")
        super().write(path, text)
        self._now("behind")

    def remove_folder(self, path: str) -> None:
        self._now("before")
        super().remove_folder(path)
        self._now("behind")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(function: Callable[[], object]) -> bool:
    """Return True if a process that calls a function is killed."""
    child = os.fork()
    if child == 0:
        try:
            function()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def steps(at_most: int) -> Iterator[tuple[int, str]]:
    return ((at, when) for at in range(at_most) for when in ("before", "behind"))


def test_killed_at_every_step_of_applying(machine: KernelTree) -> None:
    before = snapshot(machine.root)
    count = sum(len(changes) for _, changes in planned(machine, CORES, FEW))
    assert count > 12
    for at, when in steps(count):
        dying = Dying(machine.root, at, when, die)
        assert killed(lambda dying=dying: apply(dying, CORES, FEW, by=BY)), (at, when)
        assert journal_file(machine).exists()
        assert not revert(machine).failed, (at, when)
        assert snapshot(machine.root) == before, (at, when)


def test_killed_at_every_step_of_reverting(machine: KernelTree) -> None:
    before = snapshot(machine.root)
    apply(machine, CORES, FEW, by=BY)
    journal, applied = journal_file(machine).read_bytes(), machine.root.with_name("applied")
    shutil.copytree(machine.root, applied)
    for at, when in steps(1000):
        shutil.rmtree(machine.root)
        shutil.copytree(applied, machine.root)
        rewrite(machine, journal)
        dying = Dying(machine.root, at, when, die)
        was_killed = killed(lambda dying=dying: revert(dying))
        assert not revert(machine).failed, (at, when)
        assert snapshot(machine.root) == before, (at, when)
        if not was_killed:
            break
    assert at > 10


@pytest.mark.parametrize("at", [0, 3, 9])
def test_ctrl_c_takes_back_what_was_done(machine: KernelTree, at: int) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    before = snapshot(machine.root)
    with pytest.raises(KeyboardInterrupt):
        apply(Dying(machine.root, at, "behind", interrupt), CORES, FEW, by=BY)
    assert snapshot(machine.root) == before and not journal_file(machine).exists()


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """Signals that end a command, each of them as Ctrl-C."""
    ending = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    before = [signal.signal(each, signal.default_int_handler) for each in ending]
    yield ending
    for each, handler in zip(ending, before, strict=True):
        signal.signal(each, handler)


def test_signals_wait_until_all_is_restored(machine: KernelTree, signals: list[int]) -> None:
    before = snapshot(machine.root)
    count = len(apply(machine, CORES, FEW, by=BY))
    assert not revert(machine).failed
    for at, each in zip(range(0, count, 3), itertools.cycle(signals), strict=False):
        with pytest.raises(KeyboardInterrupt), tuned(machine, CORES, FEW, by=BY):
            dying = Dying(machine.root, at, "behind", lambda each=each: signal.raise_signal(each))
            machine.write, machine.remove_folder = dying.write, dying.remove_folder  # type: ignore[method-assign]
        assert snapshot(machine.root) == before, (at, each)
        assert not journal_file(machine).exists()
        del machine.write, machine.remove_folder
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


SIGNALLED = """
import os, signal, sys
from tailscope import cli

cli._interrupt_by_signals()
try:
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGHUP))
    for name in sys.argv[1:]:
        os.kill(os.getpid(), getattr(signal, name))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGHUP))
except KeyboardInterrupt:
    for _ in range(1000):
        pass
    print("taken back")
else:
    print("not ended")
"""


@pytest.mark.parametrize(
    ("names", "nohup", "expected"),
    [
        (["SIGTERM"], False, "taken back"),
        (["SIGHUP"], False, "taken back"),
        (["SIGHUP", "SIGTERM"], False, "taken back"),
        (["SIGHUP"], True, "not ended"),
    ],
)
def test_signals_end_a_command_as_ctrl_c_does(names: list[str], nohup: bool, expected: str) -> None:
    """One, though two come at once, as at the end of a session."""
    command = [*(["nohup"] if nohup else []), sys.executable, "-c", SIGNALLED, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{expected}\n"


def test_ctrl_c_while_the_journal_is_begun(
    machine: KernelTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = snapshot(machine.root)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("tailscope.host.journal._append", interrupted)
        apply(machine, CORES, FEW, by=BY)
    assert snapshot(machine.root) == before and not journal_file(machine).exists()


def test_a_line_that_a_crash_tore_stands_for_nothing(machine: KernelTree) -> None:
    """The line is on the disk before the change is made, so where it is torn none was."""
    before = snapshot(machine.root)
    killed(lambda: apply(Dying(machine.root, 2, "before", die), CORES, FEW, by=BY))
    journal, half = journal_file(machine).read_bytes(), machine.root.with_name("half")
    shutil.copytree(machine.root, half)
    last = len(journal.splitlines(keepends=True)[-1])
    for length in range(len(journal) - last, len(journal), 7):
        shutil.rmtree(machine.root)
        shutil.copytree(half, machine.root)
        rewrite(machine, journal[:length])
        assert not revert(machine).failed
        assert snapshot(machine.root) == before


@pytest.mark.parametrize("length", [0, 1, 50])
def test_a_journal_that_hardly_began(machine: KernelTree, length: int) -> None:
    apply(machine, CORES, ["ksm"], by=BY)
    journal = journal_file(machine).read_bytes()
    assert not revert(machine).failed
    rewrite(machine, journal[:length])
    assert not revert(machine).failed
    assert not journal_file(machine).exists()


# --- journals that do not fit -------------------------------------------------


def test_the_journal_is_its_owners_alone(machine: KernelTree) -> None:
    apply(machine, CORES, ["ksm"], by=BY)
    assert journal_file(machine).stat().st_mode & 0o777 == 0o600
    assert journal_file(machine).parent.stat().st_mode & 0o777 == 0o755
    assert journal_file(Machine()) == Path("/run/tailscope/journal.jsonl")
    head, line = map(json.loads, journal_file(machine).read_text().splitlines())
    assert head["by"] == BY and head["machine"] == "0123456789abcdef0123456789abcdef\n"
    assert (line["path"], line["original"]) == ("/sys/kernel/mm/ksm/run", "1\n")


def test_the_environment_does_not_move_the_journal(
    machine: KernelTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = journal_file(Machine()), journal_file(machine)
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(machine.root))
    assert (journal_file(Machine()), journal_file(machine)) == before


def test_what_others_could_have_written_is_not_believed(machine: KernelTree) -> None:
    apply(machine, CORES, ["ksm"], by=BY)
    file, folder = journal_file(machine), machine.run_folder
    for path, mode in ((file, 0o604), (file, 0o620), (folder, 0o777)):
        usual = path.stat().st_mode
        path.chmod(mode)
        with raises(TuningError, "journal-owner") as error:
            revert(machine)
        assert str(error.value).startswith(f"{path}: ")
        assert ("drwxr-xr-x" if path == folder else "-rw-------") in str(error.value)
        path.chmod(usual)
    elsewhere = file.with_name("elsewhere")
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    with pytest.raises(OSError) as link:
        revert(machine)
    assert link.value.errno == errno.ELOOP
    with raises(TuningError, "already-tuned"):
        apply(machine, CORES, ["stat-interval"], by=BY)
    elsewhere.replace(file)
    if os.geteuid() == 0:
        os.chown(file, 1234, -1)
        with raises(TuningError, "journal-owner") as error:
            revert(machine)
        assert re.findall(r"user (\d+)", str(error.value)) == ["1234", "0"]
        os.chown(file, 0, -1)
    assert not revert(machine).failed


@pytest.mark.parametrize(
    "change",
    [
        {"path": "/etc/passwd"},
        {"path": "/proc/self/cwd/file"},
        {"path": "/proc/sys/../../etc/passwd"},
        {"path": "/sys/../etc/passwd"},
        {"path": "affinity:../etc/passwd"},
        {"path": None},
        {"original": 1},
        {"wanted": None},
        {"more": "keys"},
    ],
)
def test_a_journal_changes_settings_alone(machine: KernelTree, change: dict[str, Any]) -> None:
    """Checksums are for accidents: whoever writes a journal can write them too."""
    apply(machine, CORES, ["ksm"], by=BY)
    head, line = journal_file(machine).read_bytes().splitlines()
    record = {**json.loads(line), **change}
    number, _ = record.pop("line"), record.pop("crc32")
    rewrite(machine, head + b"\n" + _line(record, number) + b"\n")
    with raises(TuningError, "journal-damaged") as error:
        revert(machine)
    assert f"{journal_file(machine)}: line 2: " in str(error.value)


def test_bytes_that_are_no_text_come_back(machine: KernelTree) -> None:
    file = machine.root / "sys/kernel/mm/ksm/run"
    file.write_bytes(b"\xff\xfe\x00 1\n")
    apply(machine, CORES, ["ksm"], by=BY)
    assert file.read_bytes() == b"0\n"
    assert not revert(machine).failed
    assert file.read_bytes() == b"\xff\xfe\x00 1\n"


def test_a_damaged_journal_is_not_believed(machine: KernelTree) -> None:
    apply(machine, CORES, ["stat-interval", "ksm", "thp-defrag"], by=BY)
    applied = snapshot(machine.root)
    journal = journal_file(machine).read_bytes()
    lines = journal.splitlines(keepends=True)
    damaged = {
        1: journal.replace(b"a test", b"a tost"),
        2: b"".join((lines[0], lines[2], lines[1], lines[3])),
        3: b"".join((*lines[:2], b"\xff\n", *lines[3:])),
        4: b"".join((*lines[:3], b"[]\n")),
    }
    for number, content in damaged.items():
        rewrite(machine, content)
        with raises(TuningError, "journal-damaged") as error:
            revert(machine)
        assert f"{journal_file(machine)}: line {number}: " in str(error.value)
        assert snapshot(machine.root) == applied
        assert journal_file(machine).read_bytes() == content


def _with_head(machine: KernelTree, change: dict[str, Any]) -> None:
    """Give the journal another head; None leaves a field out."""
    first, *others = journal_file(machine).read_bytes().splitlines(keepends=True)
    head = {**json.loads(first), **change}
    number, _ = head.pop("line"), head.pop("crc32")
    head = {name: value for name, value in head.items() if value is not None}
    rewrite(machine, b"".join((_line(head, number), b"\n", *others)))


def test_a_journal_from_before_formats_is_believed(machine: KernelTree) -> None:
    before = snapshot(machine.root)
    apply(machine, CORES, ["ksm"], by=BY)
    assert json.loads(journal_file(machine).read_bytes().splitlines()[0])["format"] == 1
    _with_head(machine, {"format": None})
    assert not revert(machine).failed
    assert snapshot(machine.root) == before


def test_a_journal_of_another_format_is_left_alone(machine: KernelTree) -> None:
    apply(machine, CORES, ["ksm"], by=BY)
    applied = snapshot(machine.root)
    _with_head(machine, {"format": 2})
    with raises(TuningError, "journal-format") as error:
        revert(machine)
    assert "got 2" in str(error.value) and "expected 1" in str(error.value)
    assert error.value.hint is not None
    assert snapshot(machine.root) == applied and journal_file(machine).exists()


def test_another_machines_journal_is_not_believed(machine: KernelTree) -> None:
    apply(machine, CORES, ["ksm"], by=BY)
    (machine.root / "etc/machine-id").write_text("fedcba\n")
    with raises(TuningError, "other-machine") as error:
        revert(machine)
    assert re.findall(r"(?:got|expected) (\w{4})", str(error.value)) == ["0123", "fedc"]
    assert machine.read("/sys/kernel/mm/ksm/run") == "0\n"


def test_booting_has_taken_all_back(machine: KernelTree) -> None:
    apply(machine, CORES, ["ksm"], by=BY)
    (machine.root / "proc/sys/kernel/random/boot_id").write_text("another\n")
    found = revert(machine)
    assert found.aside is not None and found.aside.exists() and not found.restored
    assert machine.read("/sys/kernel/mm/ksm/run") == "0\n"
    assert revert(machine).by is None


def test_names_that_cannot_be_set(machine: KernelTree) -> None:
    for name, code in (("turbos", "no-such-knob"), ("isolcpus", "knob-needs-boot")):
        with raises(UsageError, code) as error:
            apply(machine, CORES, [name], by=BY)
        assert repr(name) in str(error.value)
    assert not journal_file(machine).exists()


# --- for real -----------------------------------------------------------------

REAL = {f"{VM}/stat_interval": "7", f"{VM}/dirty_writeback_centisecs": "777", f"{THP}/defrag": ""}
HARMLESS = ("stat-interval", "writeback-interval", "thp-defrag")
writable = pytest.mark.skipif(
    os.geteuid() != 0 or not all(os.access(path, os.W_OK) for path in REAL),
    reason="changing settings of the host requires root",
)


@pytest.fixture
def odd_host(alone: None) -> Iterator[dict[str, bytes]]:
    """This machine with odd values, which it does not keep."""
    originals = {path: Machine().read(path) for path in REAL}
    defrag = str(originals[f"{THP}/defrag"])
    odd = REAL | {f"{THP}/defrag": "madvise" if "[defer+madvise]" in defrag else "defer+madvise"}
    try:
        for path, text in odd.items():
            Machine().write(path, text)
        yield {path: Path(path).read_bytes() for path in REAL}
    finally:
        for path, text in originals.items():
            word = str(text).partition("[")[2].partition("]")[0]
            Machine().write(path, word or str(text))


def reminded() -> str:
    with redirect_stderr(io.StringIO()) as said:
        remind()
    return said.getvalue()


def only(names: tuple[str, ...]) -> list[str]:
    return [word for name in names for word in ("--only", name)]


@writable
def test_this_machine_comes_back(tailscope: Callable[..., Any], odd_host: dict[str, bytes]) -> None:
    def now() -> dict[str, bytes]:
        return {path: Path(path).read_bytes() for path in REAL}

    dry = tailscope("host", "apply", "--cpus", "0", *only(HARMLESS), "--dry-run")
    assert dry.returncode == 0 and now() == odd_host
    assert f"{VM}/stat_interval: 7 -> 3600" in dry.stdout
    done = tailscope("host", "apply", "--cpus", "0", *only(HARMLESS), "--yes")
    assert done.returncode == 0, done.stderr
    assert "3 set, " in done.stderr
    assert now()[f"{VM}/stat_interval"] == b"3600\n"
    assert b"[never]" in now()[f"{THP}/defrag"]
    again = tailscope("host", "apply", "--cpus", "0", "--only", "swappiness", "--yes")
    assert again.returncode == 1 and code_of(again) == "already-tuned"
    measuring = tailscope("run", "--dut", "l2fwd", "--dry-run")
    reminder = measuring.stderr.splitlines()[0]
    assert "tailscope host apply --cpus 0" in commands_in(reminder)
    assert_wording("host/reminder-unread", as_nobody(reminded))
    back = tailscope("host", "revert")
    assert back.returncode == 0, back.stderr
    assert now() == odd_host
    assert "nothing to revert" in tailscope("host", "revert").stdout
    assert "tuned by" not in tailscope("run", "--dut", "l2fwd", "--dry-run").stderr


@writable
def test_this_machine_comes_back_after_sigkill(odd_host: dict[str, bytes]) -> None:
    for at in range(len(HARMLESS)):
        for when in ("before", "behind"):
            host = Stopping(at, when)
            assert killed(lambda host=host: apply(host, (0,), HARMLESS, by=BY))
            assert not revert(Machine()).failed
            assert {path: Path(path).read_bytes() for path in REAL} == odd_host


class Stopping(Machine):
    """This machine, on which the process dies at a certain write."""

    def __init__(self, at: int, when: str) -> None:
        super().__init__()
        self.left, self.when = at, when

    def write(self, path: str, text: str) -> None:
        if self.left == 0 and self.when == "before":
            die()
        super().write(path, text)
        if self.left == 0:
            die()
        self.left -= 1


@writable
def test_nobody_is_asked_without_a_terminal(tailscope: Callable[..., Any]) -> None:
    before = Path(f"{VM}/stat_interval").read_bytes()
    done = tailscope("host", "apply", "--cpus", "0", "--only", "stat-interval")
    if before == b"3600\n":
        assert "nothing to change" in done.stdout
        return
    assert done.returncode == 1
    assert code_of(done) is not None and "--yes" in done.stderr
    assert Path(f"{VM}/stat_interval").read_bytes() == before


@writable
@pytest.mark.parametrize(("answer", "expected"), [("n", b"7\n"), ("y", b"3600\n")])
def test_a_person_is_asked(
    tailscope: Callable[..., Any], odd_host: dict[str, bytes], answer: str, expected: bytes
) -> None:
    person, terminal = os.openpty()
    try:
        os.write(person, f"{answer}\n".encode())
        options = ("--cpus", "0", "--only", "stat-interval")
        done = tailscope("host", "apply", *options, stdin=terminal)
    finally:
        os.close(person)
        os.close(terminal)
    assert done.returncode == 0, done.stderr
    assert "write this?" in done.stderr
    assert Path(f"{VM}/stat_interval").read_bytes() == expected
    assert tailscope("host", "revert").returncode == 0
    assert Path(f"{VM}/stat_interval").read_bytes() == b"7\n"


def refusal(function: Callable[[], object]) -> str:
    with pytest.raises(TestbedError) as error:
        function()
    return error.value.code


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_settings_are_roots() -> None:
    for function in (
        lambda: apply(Machine(), (0,), ["stat-interval"], by=BY),
        lambda: revert(Machine()),
        lambda: tuned(Machine(), (0,), by=BY).__enter__(),
    ):
        assert as_nobody(lambda function=function: refusal(function)) == "root-required"


def test_affinities_of_tasks_are_set() -> None:
    """The task is our own: which kernel tasks can be moved differs between machines."""
    with subprocess.Popen(["sleep", "60"]) as task:
        try:
            path = f"affinity:{task.pid}/sleep"
            cpu = min(os.sched_getaffinity(0))
            deadline_s = time.monotonic() + 10
            while Machine().read(path) is None and time.monotonic() < deadline_s:
                time.sleep(0.01)  # Until it has become sleep.
            Machine().write(path, str(cpu))
            assert Machine().read(path) == str(cpu)
            assert Machine().read(f"affinity:{task.pid}/another") is None
            with pytest.raises(ProcessLookupError, match="another"):
                Machine().write(f"affinity:{task.pid}/another", str(cpu))
        finally:
            task.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="links are root's")
def test_settings_of_cards_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TAP has no ring and one setting of coalescing, which no knob needs."""
    from tailscope.host import cards

    monkeypatch.setitem(cards._GROUPS["coalescing"].fields, "rx-frames", 2)
    tap = f"tstap{os.getpid() % 100_000}"
    subprocess.run(["ip", "tuntap", "add", "dev", tap, "mode", "tap"], check=True)
    try:
        path = f"ethtool:{tap}/coalescing/rx-frames"
        assert Machine().read(path) == "0"
        Machine().write(path, "5")
        assert Machine().read(path) == "5"
        assert Machine().read(f"ethtool:{tap}/ring/rx") is None
        with pytest.raises(OSError) as error:
            Machine().write(f"ethtool:{tap}/coalescing/rx-usecs", "5")
        assert error.value.errno == errno.EOPNOTSUPP
    finally:
        subprocess.run(["ip", "link", "del", tap], check=True)


def test_a_reminder_needs_no_readable_journal(machine: KernelTree, capsys: Any) -> None:
    remind(machine)
    apply(machine, CORES, ["ksm"], by=BY)
    remind(machine)
    with tuning_lock(machine):
        remind(machine)
    rewrite(machine, b"damaged\n")
    remind(machine)
    assert_wording("host/reminder", capsys.readouterr().err)
