"""Two set-ups that are measured by turns."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from errors import raises
from msgspec.structs import replace
from runs import AS_ROOT, needed

from tailscope.engine.analysis import Clock, Recording
from tailscope.exceptions import EvidenceError, TestbedError
from tailscope.extra.duet.command import _side
from tailscope.extra.duet.kept import _BEGUN_NS, Held, KeptSetUp, _ran_ns, _stalled_ns, block_of
from tailscope.extra.duet.others import Others, OthersHeld
from tailscope.extra.duet.paired import NEVER
from tailscope.extra.duet.pairs import pairs
from tailscope.noise.tracer import SwitchTracer
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.namespaces import inside, namespace
from tailscope.testbed.tasks import status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

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
        # What waits has yet to fall asleep, and wakes now and then to see if it is to stop.
        waited_ns = _ran_ns(held.generator.ready.pid) - before[1]
        assert waited_ns < _BEGUN_NS, "it waits for its own turn"
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
        # As many as wait had their turn, and end meanwhile; as many are started for the pair after.
        assert len(children() - before) == 12
    assert children() == before
    assert not list(folders.glob("tailscope-*"))


def test_what_starts_for_the_next_pair_stands_still_while_packets_fly(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, before, stopped_ns = Held.let_go, children(), []

    def watched(held: Held) -> None:
        # By then, those that were asleep when they were to stop have done so.
        let_go(held)
        stopped = [pid for pid in children() - before if status_of(pid)["State"].startswith("T")]
        stopped_ns.append({pid: _ran_ns(pid) for pid in stopped})

    monkeypatch.setattr(Held, "let_go", watched)
    with closing(pairs(side("1ms"), side("1ms"), seed=1)) as measuring:
        next(measuring)
    ahead, later = stopped_ns
    assert len(ahead) == 4, "two devices and two generators"
    assert ahead.items() <= later.items()


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


@contextmanager
def daemons_child(*words: str) -> Iterator[int]:
    """Start a process as a daemon does: nothing of its environment says for whom."""
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)", *words]
    with subprocess.Popen(sleeping, env={}) as child:
        try:
            yield child.pid
        finally:
            child.kill()


def others_of(folder: RunFolder) -> Others:
    return Others(SwitchTracer(folder, []), folder.name, [], has_children=False)


def test_what_a_daemon_starts_for_the_device_is_known_by_its_command(folders: Path) -> None:
    with (
        RunFolder() as folder,
        daemons_child(f"--vdev=net_memif0,socket={folder.path}/wire.sock") as device,
        daemons_child("--vdev=net_memif0,socket=/elsewhere/wire.sock") as other,
    ):
        others = others_of(folder)
        assert others.is_own(device) and not others.is_own(other)


@AS_ROOT
def test_what_a_daemon_starts_for_the_device_is_known_by_its_network(folders: Path) -> None:
    with (
        RunFolder() as folder,
        namespace(f"{folder.name}-dut", quiet=True) as network,
        inside(network),
        daemons_child() as device,
    ):
        assert others_of(folder).is_own(device)


@AS_ROOT
def test_what_a_daemon_starts_for_the_device_is_known_by_its_mounts(folders: Path) -> None:
    """A container has the folder mounted that its command mounts into it."""
    with RunFolder() as folder, RunFolder() as another, process_of_a_container(folder.path) as pid:
        assert others_of(folder).is_own(pid) and not others_of(another).is_own(pid)


@contextmanager
def process_of_a_container(folder: Path) -> Iterator[int]:
    """Start a process with a folder mounted at another place, which nothing else tells."""
    words = f"mount --bind {folder} /mnt && cd / && exec env --ignore-environment cat"
    command = ["unshare", "--mount", "sh", "-c", words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as child:
        assert child.stdin and child.stdout
        child.stdin.write("mounted\n")
        # It is `cat` that answers: the shell with the folder in its words is gone.
        assert child.stdout.readline() == "mounted\n"
        yield child.pid
        child.stdin.close()


def test_the_generators_own_stalls_are_those_within_a_latency() -> None:
    def ns(*values: int) -> NDArray[np.int64]:
        return np.array(values, np.int64)

    clock = Clock(tsc=0, tsc_hz=1_000_000_000, unix_ns=1 << 60)
    none = ns()
    of_none = Recording(clock, none, none, none, none, none, none, none)
    recording = of_none._replace(stall_start_tsc=ns(100, 300), stall_duration_tsc=ns(50, 100))
    from_ns, to_ns = (each + (1 << 60) for each in (ns(0, 120, 90, 500), ns(90, 130, 350, 600)))
    assert _stalled_ns(recording, from_ns, to_ns).tolist() == [0, 10, 100, 0]
    assert _stalled_ns(of_none, from_ns, to_ns).tolist() == [0, 0, 0, 0]


def beside_stalls(served_ns: int, held_ns: int) -> Recording:
    """Packets every 100 µs, with a stall of 1 ms in each 20 ms.

    The device takes some time for one packet after the other, and holds each one for some more.
    """
    meant_ns = np.arange(1_000, 250_000_000, 100_000)
    start_ns = np.arange(5_000_500, 250_000_000, 20_000_000)
    end_ns = start_ns + 1_000_000
    at = np.searchsorted(start_ns, meant_ns, "right") - 1
    left_ns = np.where((at >= 0) & (meant_ns < end_ns[at]), end_ns[at], meant_ns)
    done = itertools.accumulate(
        left_ns.tolist(), lambda last, now: max(last, now) + served_ns, initial=0
    )
    back_ns = np.array([*done][1:]) + held_ns
    meant, left, back = (each.astype(np.uint64) for each in (meant_ns, left_ns, back_ns))
    stalls = start_ns.astype(np.uint64), np.full(len(start_ns), 1_000_000, np.uint64)
    clock = Clock(tsc=0, tsc_hz=1_000_000_000, unix_ns=1 << 60)
    seq, none = np.arange(len(back), dtype=np.uint64), np.zeros(0, np.uint64)
    return Recording(clock, meant, left, seq, back, none, *stalls)


@pytest.mark.parametrize(("served_ns", "held_ns"), [(60_000, 0), (1_000, 300_000)])
def test_the_generators_own_queue_is_open_where_programs_are_not_known(
    served_ns: int, held_ns: int
) -> None:
    """A device that always holds packets has no queue that a recording could tell."""
    recording = beside_stalls(served_ns, held_ns)
    block = block_of(side("1ms")[0], recording, OthersHeld.unknown())
    own_ns = served_ns + held_ns
    assert block.quantile(0.95, least=False) > own_ns
    for q in (0.5, 0.95):
        assert block.quantile(q, least=True) == pytest.approx(own_ns, rel=0.05)


def test_a_block_whose_packets_are_all_trimmed_is_named() -> None:
    """Nothing could be divided by their number."""
    none, one = np.zeros(0, np.uint64), np.ones(1, np.uint64)
    clock = Clock(tsc=0, tsc_hz=1_000_000_000, unix_ns=1 << 60)
    recording = Recording(clock, one, one, one - 1, one, none, none, none)
    with raises(EvidenceError, "empty-block"):
        block_of(replace(side("1ms")[0], trim_ns=1), recording, OthersHeld.unknown())


@AS_ROOT
def test_a_full_disk_is_named(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drain() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with RunFolder() as folder, SwitchTracer(folder, [0]) as tracer:
        tracer.start()
        monkeypatch.setattr(tracer._instance, "drain", drain)
        with pytest.raises(OSError, match=f"{folder.path}"):
            tracer.stop()


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
