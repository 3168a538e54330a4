"""Two set-ups that are measured by turns."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from errors import raises
from msgspec.structs import replace
from runs import AS_ROOT, needed

from tailscope.exceptions import TestbedError
from tailscope.extra.duet.command import _side
from tailscope.extra.duet.kept import _BEGUN_NS, Held, KeptSetUp, _ran_ns
from tailscope.extra.duet.paired import NEVER
from tailscope.extra.duet.pairs import pairs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.extra.duet.command import Side

LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
HAS_LARGE_PAGES = LARGE_PAGES.exists() and "[never]" not in LARGE_PAGES.read_text()
pytestmark = pytest.mark.usefixtures("dataplane")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the private folders of measurements are."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def side(law: str, warm_up: str = "10ms") -> Side:
    fields = {"rate": "2k", "duration": "50ms", "warm_up": warm_up, "noise": "stalls"}
    text = f"{{dut: delay, dut_options: {{law: 'fixed:{law}'}}}}"
    return _side(text, {**fields, "power": "none"}, "A")


def children() -> set[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return set(map(int, listed.split()))


def test_each_side_has_its_own_packets_whatever_the_order(folders: Path) -> None:
    """A packet of one side that counted for the other would have its delay."""
    before = children()
    with closing(pairs(side("5ms"), side("400ms"), seed=1)) as measuring:
        found = list(itertools.islice(measuring, 3))
    assert {pair.b_was_first for pair in found} == {False, True}
    for pair in found:
        for block, delay_ms in ((pair.a, 5), (pair.b, 400)):
            assert len(block.latency_ns) and block.lost_share == 0
            assert block.latency_ns.min() >= delay_ms * 1_000_000
        assert pair.a.latency_ns.min() < 400_000_000
    assert children() == before
    assert not list(folders.glob("tailscope-*"))


def dies_before_its_turn(kill: Callable[[Held], None], patch: pytest.MonkeyPatch) -> None:
    wait_ready = KeptSetUp.wait_ready

    def killed(set_up: KeptSetUp) -> None:
        wait_ready(set_up)
        assert set_up.held is not None
        kill(set_up.held)

    patch.setattr(KeptSetUp, "wait_ready", killed)


def dies_in_its_turn(kill: Callable[[Held], None], patch: pytest.MonkeyPatch) -> None:
    let_go = Held.let_go

    def killed(held: Held) -> None:
        let_go(held)
        kill(held)

    patch.setattr(Held, "let_go", killed)


@pytest.mark.parametrize("when", [dies_before_its_turn, dies_in_its_turn])
def test_a_device_that_dies_is_named(
    when: Callable[[Callable[[Held], None], pytest.MonkeyPatch], None],
    folders: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kill(held: Held) -> None:
        held.device.process.signal(signal.SIGKILL)
        while held.device.is_running:
            time.sleep(0.01)

    when(kill, monkeypatch)
    before = children()
    with closing(pairs(side("1ms"), side("1ms"), seed=1)) as measuring:
        with raises(TestbedError, "program-ended") as error:
            next(measuring)
        assert str(error.value).startswith("dut: was ended by SIGKILL")
    assert children() == before
    assert not list(folders.glob("tailscope-*"))


def test_no_packet_leaves_before_the_device_polls(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a warm-up, the first packets would wait for the device, however long it takes."""
    let_go, polled_ns = Held.let_go, []

    def watched(held: Held) -> None:
        assert held.device.ready is not None and held.generator.ready is not None
        before = [_ran_ns(each.ready.pid) for each in (held.device, held.generator)]
        os.write(held.pipes[0], bytes(1))
        time.sleep(0.1)
        assert _ran_ns(held.generator.ready.pid) == before[1], "it waits for its own turn"
        let_go(held)
        polled_ns.append(_ran_ns(held.device.ready.pid) - before[0])

    monkeypatch.setattr(Held, "let_go", watched)
    with closing(pairs(side("1ms", "0s"), side("1ms", "0s"), seed=1)) as measuring:
        pair = next(measuring)
    assert min(polled_ns) >= _BEGUN_NS and len(polled_ns) == 2
    assert pair.a.lost_share == pair.b.lost_share == 0


@pytest.mark.skipif(not HAS_LARGE_PAGES, reason="this kernel gives no large pages")
def test_no_packet_of_a_pool_costs_a_page_fault(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device has 18,000 packets, and a generator 10,000."""
    let_go, faults = Held.let_go, []

    def counted(held: Held) -> None:
        for each in (held.device, held.generator):
            assert each.ready is not None
            stat = Path(f"/proc/{each.ready.pid}/stat").read_text()
            faults.append(int(stat.rpartition(")")[2].split()[7]))
        let_go(held)

    monkeypatch.setattr(Held, "let_go", counted)
    with closing(pairs(side("1ms"), side("1ms"), seed=1)) as measuring:
        next(measuring)
    assert len(faults) == 4 and max(faults) < 12_000


def test_what_waits_for_its_turn_ends_with_the_duet(folders: Path) -> None:
    before = children()
    with closing(pairs(side("1ms"), side("1ms"), seed=1)) as measuring:
        next(measuring)
        # As many as wait had their turn, and end meanwhile.
        assert len(children() - before) == 8
    assert children() == before
    assert not list(folders.glob("tailscope-*"))


@AS_ROOT
def test_a_program_on_the_cpu_of_a_device_is_named(folders: Path) -> None:
    plan, cores = side("1ms")
    [cpus] = plan.device.instance_cpus(cores)
    confined = f"import os; os.sched_setaffinity(0, {[*cpus.dut]})"
    spin = f"open('/proc/self/comm', 'w').write('busy'); {confined}\nwhile True: pass"
    other = subprocess.Popen([sys.executable, "-c", spin])
    try:
        with closing(pairs((plan, cores), (plan, cores), seed=1)) as measuring:
            pair = next(measuring)
    finally:
        other.kill()
        other.wait()
    for block in pair[:2]:
        assert block.others.programs_ns["busy"] > 1_000_000
        assert not block.left_free(1).all()


def test_without_the_right_all_packets_are_compared(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise TestbedError("kernel events: no right", code="rights")

    monkeypatch.setattr("tailscope.noise.tracer.tracefs", refused)
    with closing(pairs(side("1ms"), side("1ms"), seed=1)) as measuring:
        pair = next(measuring)
    assert pair.within_ns(0.5) == 0
    for block in pair[:2]:
        assert block.left_free(NEVER).all() and not block.others.watched_ns


def test_a_co_runner_that_ends_is_named(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block without it would be compared with one beside it."""
    needed("stress-ng")
    run = KeptSetUp._run_co_runners

    def killed(set_up: KeptSetUp, stack: ExitStack) -> object:
        running: Any = run(set_up, stack)
        [load] = running._running
        load.running._process.signal(signal.SIGKILL)
        load.running._process.wait_end(5)
        return running

    monkeypatch.setattr(KeptSetUp, "_run_co_runners", killed)
    plan, cores = side("1ms")
    plan = replace(plan, co_runners={"cpu": 1})
    before = children()
    with closing(pairs((plan, cores), (plan, cores), seed=1)) as measuring:
        with raises(TestbedError, "co-runner-ended") as error:
            next(measuring)
        assert str(error.value).startswith("co-runner stress-ng: was ended by SIGKILL")
    assert children() == before
