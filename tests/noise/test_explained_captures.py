"""`tailscope explain` of captures that were analysed, by what was recorded beside them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pytest
from errors import code_of
from polled import SECOND, readings, write_authors_csv, write_snapshots
from synthetic import latencies, write_run
from wording import assert_wording

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.noise.counters import Readings

    Run = Callable[..., "subprocess.CompletedProcess[str]"]

BEGIN_S = 1_600_000_000
LASTED_S = 40
GAP_NS = 2_000_000
SLOW_S = (1, 5, 8, 13, 21, 26, 30, 37)
USUAL_NS, LATE_NS = 10_000, 300_000
TIMER_NS = 250_000


@pytest.fixture(scope="module")
def analysed(tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures in Unix time; at eight moments two packets in a row are late."""
    folder = tmp_path_factory.mktemp("captures")
    took = np.full(LASTED_S * SECOND // GAP_NS, USUAL_NS)
    took += np.random.default_rng(1).integers(0, 500, len(took))
    for second in SLOW_S:
        at = (second * SECOND + SECOND // 2) // GAP_NS
        took[at : at + 2] = LATE_NS
    pre, post = captures.pair(folder, took.tolist(), start=BEGIN_S * SECOND, gap=GAP_NS)
    done = tailscope("analyze", pre, post, "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder / "run"


def counters(start_s: int = BEGIN_S - 5, *, planted: bool = True) -> Readings:
    """Polled each second from five seconds before the captures until five after."""
    counts = np.random.default_rng(2).poisson(4, (LASTED_S + 10, 3))
    counts[:, 2] = 250
    if planted:
        counts[:, 1] = 0
        counts[np.array(SLOW_S) + 5, 1] = 2
    return readings(counts, start_ns=start_s * SECOND)


def printed_json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("write", [write_authors_csv, write_snapshots])
def test_a_counter_that_moved_with_slow_packets_is_named(
    analysed: Path,
    tailscope: Run,
    tmp_path: Path,
    write: Callable[[Path, Readings], Path],
) -> None:
    file = write(tmp_path / "irq.csv", counters())
    done = tailscope("explain", analysed, "--interrupts", f"guest={file}")
    assert done.returncode == 0, done.stderr
    assert_wording("noise/associated", done.stdout)
    assert "caused" not in done.stdout
    record = printed_json(
        tailscope("explain", analysed, "--interrupts", f"guest={file}", "--json", "-")
    )
    tail = record["tail"]
    assert record["packet"] is None
    assert tail["evidence"] is None
    assert tail["causes"] == []
    assert tail["associated"]["evidence"] == "associated"
    assert [row["cpu"] for row in tail["associated"]["counters"] if row["is_associated"]] == [1]


def test_counters_that_do_not_move_with_them_are_not(
    analysed: Path, tailscope: Run, tmp_path: Path
) -> None:
    file = write_authors_csv(tmp_path / "irq.csv", counters(planted=False))
    done = tailscope("explain", analysed, "--interrupts", file)
    assert done.returncode == 0, done.stderr
    assert_wording("noise/not-associated", done.stdout)


def test_counters_of_another_clock_need_an_offset(
    analysed: Path, tailscope: Run, tmp_path: Path
) -> None:
    file = write_authors_csv(tmp_path / "irq.csv", counters(7))
    refused = tailscope("explain", analysed, "--interrupts", file)
    assert refused.returncode == 1
    assert code_of(refused) == "times-apart"
    assert all(text in refused.stderr for text in ("irq.csv: ", " 7.000000 to 57.000000"))
    assert "--offset TIME" in refused.stderr
    offset = f"irq.csv={BEGIN_S - 12}s"
    done = tailscope(
        "explain", analysed, "--interrupts", file, "--offset", offset, "--offset-error", "100ms"
    )
    assert done.returncode == 0, done.stderr
    assert_wording("noise/associated-at-an-offset", done.stdout)


def test_what_is_kept_is_shown_and_reported(analysed: Path, tailscope: Run, tmp_path: Path) -> None:
    file = write_authors_csv(tmp_path / "irq.csv", counters())
    done = tailscope("explain", analysed, "--interrupts", file, "--keep")
    assert done.returncode == 0, done.stderr
    kept = json.loads((analysed / "explanation.json").read_text())
    assert "--keep" in kept["kept"]["command"]
    shown = tailscope("runs", "show", analysed)
    record = printed_json(tailscope("runs", "show", analysed, "--json", "-"))["explanation"][
        "associated"
    ]
    associated = [row for row in record["counters"] if row["is_associated"]]
    [named] = [f"{row['counter']} on CPU {row['cpu']}" for row in associated]
    assert named == "TLB TLB shootdowns on CPU 1" and named in shown.stdout
    page = tmp_path / "report.html"
    assert tailscope("report", analysed, "--out", page).returncode == 0
    assert named in page.read_text()
    assert (
        printed_json(tailscope("runs", "show", analysed, "--json", "-"))["explanation"]["evidence"]
        is None
    )
    kept["packets"] += 1
    (analysed / "explanation.json").write_text(json.dumps(kept))
    again = tailscope("report", analysed, "--out", page)
    assert named not in page.read_text()
    assert "explanation.json" in again.stderr + page.read_text()
    (analysed / "explanation.json").unlink()


def trace(path: Path, start_s: int, *, pid: int = 50) -> Path:
    """Write perf script's output: a forwarder that polls on CPU 2, and a timer in slow packets."""
    lines = [
        f"{'swapper':>16} {0:5} [002] {start_s - 1}.000000000: sched:sched_switch: "
        f"prev_comm=swapper/2 prev_pid=0 ==> next_comm=l2fwd next_pid={pid} next_prio=1"
    ]
    for second in SLOW_S:
        for late_ns, edge in ((20_000, "entry"), (20_000 + TIMER_NS, "exit")):
            at = f"{start_s + second}.{SECOND // 2 + late_ns:09}"
            lines.append(
                f"{'l2fwd':>16} {pid:5} [002] {at}: irq_vectors:local_timer_{edge}: vector=236"
            )
            lines.append(
                f"{'other':>16} {9:5} [001] {at}: irq_vectors:reschedule_{edge}: vector=253"
            )
    lines.append(
        f"{'l2fwd':>16} {pid:5} [002] {start_s + LASTED_S + 1}.000000000: sched:sched_switch: "
        f"prev_comm=l2fwd prev_pid={pid} ==> next_comm=swapper/2 next_pid=0 next_prio=1"
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_trace_on_the_clock_of_the_captures_names_causes(
    analysed: Path, tailscope: Run, tmp_path: Path
) -> None:
    file = trace(tmp_path / "perf.txt", BEGIN_S)
    options = ("--trace", file, "--cpus", 2, "--quantile", "0.999")
    tail = printed_json(tailscope("explain", analysed, *options, "--json", "-"))["tail"]
    assert tail["evidence"] == "caused"
    assert tail["associated"] is None
    assert tail["packets"] == 2 * len(SLOW_S)
    causes = {(each["part"], each["cause"]): each for each in tail["causes"]}
    # Of each two late packets the first one met it.
    assert causes["dut", "local timer"]["packets"] == len(SLOW_S)
    assert causes["dut", "local timer"]["total_ns"] == len(SLOW_S) * TIMER_NS
    assert ("dut", "reschedule") not in causes
    [record] = tail["traces"]
    assert record["own_work"] == ["task l2fwd"]
    assert record["alignment"] == {"basis": "unix", "offset_ns": 0, "error_ns": 0}
    assert record["uncovered_packets"] == 0
    words = tailscope("explain", analysed, *options).stdout
    assert "DuT: local timer" in words
    assert "associated" not in words
    story = printed_json(tailscope("explain", analysed, *options, "--packet", "750", "--json", "-"))
    assert story["packet"]["lines"][0]["cause"] == "local timer"


def test_the_error_of_a_clock_is_taken_off_every_cause(
    analysed: Path, tailscope: Run, tmp_path: Path
) -> None:
    file = trace(tmp_path / "perf.txt", 77)
    options = ("--trace", f"dut={file}", "--cpus", "dut=2", "--quantile", "0.999")
    refused = tailscope("explain", analysed, *options)
    assert refused.returncode == 1
    assert code_of(refused) == "times-apart"
    assert all(text in refused.stderr for text in ("dut: ", "76.000000 to 118.000000"))
    known = ("--offset", f"{BEGIN_S - 77}s", "--offset-error", "15us")
    tail = printed_json(tailscope("explain", analysed, *options, *known, "--json", "-"))["tail"]
    causes = {each["cause"]: each["total_ns"] for each in tail["causes"]}
    assert causes["local timer"] == len(SLOW_S) * (TIMER_NS - 2 * 15_000)
    assert tail["traces"][0]["alignment"]["basis"] == "given"
    known = ("--offset", f"{BEGIN_S - 77}s", "--offset-error", "1ms")
    tail = printed_json(tailscope("explain", analysed, *options, *known, "--json", "-"))["tail"]
    assert "local timer" not in {each["cause"] for each in tail["causes"]}


def test_a_trace_and_counters_stay_apart(analysed: Path, tailscope: Run, tmp_path: Path) -> None:
    done = tailscope(
        *("explain", analysed, "--cpus", "events=2"),
        *("--trace", f"events={trace(tmp_path / 'perf.txt', BEGIN_S)}"),
        *("--interrupts", f"polled={write_authors_csv(tmp_path / 'irq.csv', counters())}"),
    )
    assert done.returncode == 0, done.stderr
    caused, associated = done.stdout.split("packets are slow")
    assert "DuT: local timer" in caused
    assert "polled" not in caused
    assert "TLB shootdowns on CPU 1" in associated


def test_options_that_do_not_fit_are_refused(
    analysed: Path, tailscope: Run, tmp_path: Path
) -> None:
    file = write_authors_csv(tmp_path / "irq.csv", counters())
    text = trace(tmp_path / "perf.txt", BEGIN_S)
    measured = write_run(tmp_path / "measured", latencies(1)[:2_000])
    for run, options, named in (
        (analysed, ["--keep"], ["--keep", "--interrupts", "--trace"]),
        (analysed, ["--offset", "1s"], ["--offset", "--interrupts", "--trace"]),
        (analysed, ["--trace", text], ["--trace perf.txt", "--cpus"]),
        (analysed, ["--interrupts", file, "--own-work", "x"], ["--own-work", "--trace"]),
        (analysed, ["--interrupts", file, "--packet", "1"], ["--packet", "--trace"]),
        (analysed, ["--interrupts", file, "--interrupts", file], ["irq.csv", "twice"]),
        (analysed, ["--interrupts", tmp_path / "none"], [f"{tmp_path}/none: "]),
        (analysed, ["--interrupts", text], ["line 1: ", "[counters-format]"]),
        (analysed, ["--trace", file, "--cpus", "2"], ["irq.csv: ", "[trace-format]"]),
        (analysed, ["--trace", text, "--cpus", "7"], ["CPU 7", "[trace-lacks-cpu]"]),
        (measured, ["--interrupts", file], ["measured"]),
    ):
        done = tailscope("explain", run, *options)
        assert done.returncode == 1, options
        [error] = re.findall(r"^error: .*", done.stderr, re.M)
        assert all(name in error for name in named), error
    back = counters()
    back.counts[9, 1] = 0
    broken = write_authors_csv(tmp_path / "back.csv", back)
    done = tailscope("explain", analysed, "--interrupts", broken)
    assert code_of(done) == "counters-fall"
    named = ("reading 10, ", ", CPU 1: ", "got 0, ", "TLB TLB shootdowns")
    assert all(text in done.stderr for text in named)


def test_tlb_shootdowns_of_a_guest_are_associated_at_a_known_offset(
    data: Path, tailscope: Run, tmp_path: Path
) -> None:
    """hipnet21: the counters of guest and host count from the start of their own pollers."""
    folder = data / "hipnet21" / "snort-filter-tlbshootdown" / "vm"
    pre, post = (next(folder.glob(f"*{side}*.zst")) for side in ("pre", "post"))
    assert tailscope("analyze", pre, post, "--out", tmp_path / "run").returncode == 0
    files = [
        *("--interrupts", f"guest={next(folder.glob('irq-*'))}"),
        *("--interrupts", f"host={next(folder.glob('irqvmhost-*'))}"),
    ]
    known = (*files, "--offset", "-25.8s", "--offset-error", "200ms", "--json", "-")
    found = printed_json(tailscope("explain", tmp_path / "run", *known))["tail"]["associated"]
    named = {
        (row["source"], row["counter"], row["cpu"]): row
        for row in found["counters"]
        if row["is_associated"]
    }
    shootdowns = named["guest", "TLB TLB shootdowns", 1]
    assert (shootdowns["slow_count"], shootdowns["rest_count"]) == (9, 0)
    assert shootdowns["ratio_ci_low"] > 2
    assert ("guest", "CAL Function call interrupts", 1) in named
    assert {(source, cpu) for source, _, cpu in named} == {("guest", 1)}
    # Two episodes match shootdowns at some offset by chance, too.
    unknown = printed_json(tailscope("explain", tmp_path / "run", *files[:2], "--json", "-"))[
        "tail"
    ]
    assert not any(row["is_associated"] for row in unknown["associated"]["counters"])


def test_the_timer_of_a_guest_cannot_be_associated_by_polling(
    data: Path, tailscope: Run, tmp_path: Path
) -> None:
    folder = data / "noms2020-vm" / "dpdk-l2fwd"
    pre, post = (next(folder.glob(f"*{side}*.zst")) for side in ("pre", "post"))
    assert tailscope("analyze", pre, post, "--out", tmp_path / "run").returncode == 0
    guest = next(folder.glob("irq-*"))
    done = tailscope("explain", tmp_path / "run", "--interrupts", f"guest={guest}")
    assert done.returncode == 0, done.stderr
    record = printed_json(
        tailscope("explain", tmp_path / "run", "--interrupts", f"guest={guest}", "--json", "-")
    )
    found = record["tail"]["associated"]
    timer = {
        row["cpu"]: round(row["rate_hz"])
        for row in found["regular"]
        if row["counter"].startswith("LOC ")
    }
    assert timer[0] == timer[1] == 250
    assert not any(row["is_associated"] for row in found["counters"])
    assert "`model aliasing RUN" in done.stdout
