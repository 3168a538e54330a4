"""What commands say of stored runs: the answer first, in lines that fit, with few digits."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import termios
from fcntl import ioctl
from typing import TYPE_CHECKING

import numpy as np
import pytest
from captures import pair
from command import COMMAND
from msgspec.structs import replace
from synthetic import PACKETS, latencies, write_run

from tailscope.cli import application, terminal
from tailscope.cli.terminal import width_of, wrapped
from tailscope.store.reader import read_info
from tailscope.store.records.run import Stalls
from tailscope.words.levels import note_of, stop_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Said = Callable[..., str]

CAUSES = {
    "a thread of a long name that somebody gave it": 0.7,
    "local timer": 0.29,
    **{f"task small-{at}": 0.001 for at in range(10)},
}
SLO = "p99<50us, p99.9<1ms, loss<1e-3, max<1ms, reordered=0"
COMMANDS = {
    "show": ("show", "tainted", "--dir", "."),
    "show quiet": ("show", "quiet", "--dir", "."),
    "verify": ("verify", "tainted", "--slo", SLO),
    "verify several": ("verify", "tainted", "quiet", "lossy", "--slo", SLO),
    "compare": ("compare", "quiet", "tainted", "--single", "--fail-on", "p99>+10%"),
    "compare lossy": ("compare", "lossy", "quiet"),
    "list": ("list", "."),
    "analyze": ("analyze", "pre.pcap", "post.pcap"),
}
MORE_COMMANDS = {
    "audit": ("host", "audit", "--cpus", "0"),
    "plan": ("plan", "--quantile", "p99.9999", "--rate", "1k", "--relative-error", "0.01"),
    "run": ("run", "--dut", "l2fwd", "--dry-run"),
    "standard": ("search", "standard", "2544", "--dut", "l2fwd", "--dry-run"),
}
"""Commands without `-v`, or whose numbers are no results."""
ANSWERS = {
    "show": r"Median [\d.]+ ",
    "verify": r"tainted: (fail|inconclusive), ",
    "verify several": r"3 runs: ",
    "compare": r"Whether tainted differs from quiet|tainted is slower",
    "list": r"3 runs\.",
    "analyze": r"Median ",
}
_NUMBER = re.compile(r"(?<![\w.,=:/-])\d[\d,]*\.\d+(?![\w.])")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs: one undisturbed, one with stalls, one with lost and unsent packets; two captures."""
    folder = tmp_path_factory.mktemp("stored")
    stalled = np.arange(PACKETS) % 100 == 50
    quiet, slow = latencies(1), np.where(stalled, 3_531_360, latencies(2))
    write_run(folder / "quiet", quiet, causes=CAUSES)
    write_run(folder / "tainted", slow, stalled=stalled, stall_ns=88_000, causes=CAUSES)
    write_run(folder / "lossy", latencies(3), lost=200, unsent=1_000)
    pre, post = pair(folder / "captures", [3_531_360 + 10 * at for at in range(300)])
    pre.rename(folder / "pre.pcap")
    post.rename(folder / "post.pcap")
    return folder


@pytest.fixture
def said(stored: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Said:
    """What a command prints in a pipe."""
    monkeypatch.chdir(stored)

    def said(*words: str) -> str:
        application()([*words], standalone_mode=False)
        return capsys.readouterr().out

    return said


def on_terminal(folder: Path, columns: int, *words: str) -> str:
    """What a command prints on a terminal, colours included."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        [COMMAND, *words], stdout=theirs, stderr=theirs, cwd=folder, env=environment
    ):
        os.close(theirs)
        text = b""
        while chunk := _read(ours):
            text += chunk
    os.close(ours)
    return text.decode().replace("\r\n", "\n")


def _read(end: int) -> bytes:
    try:
        return os.read(end, 65_536)
    except OSError:  # Its other end is closed.
        return b""


@pytest.mark.parametrize("more", [(), ("-v",), ("--exact",)], ids=["short", "verbose", "exact"])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_of_a_pipe_is_wider_than_120(said: Said, name: str, more: tuple[str, ...]) -> None:
    if name == "list" and more == ("-v",):
        pytest.skip("it has no more to say")
    text = said(*COMMANDS[name], *more)
    assert max(map(width_of, text.splitlines())) <= 120, text
    assert "\x1b" not in text


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_wider_than_the_terminal(
    said: Said, name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "columns_of", lambda _: columns)
    text = said(*COMMANDS[name])
    assert max(map(width_of, text.splitlines())) <= columns, text


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", MORE_COMMANDS)
def test_plans_and_predictions_fit_as_well(
    said: Said, name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "columns_of", lambda _: columns)
    text = said(*MORE_COMMANDS[name])
    assert max(map(width_of, text.splitlines())) <= columns, text


@pytest.mark.parametrize("columns", range(20, 60))
def test_no_line_is_broken_in_what_belongs_together(columns: int) -> None:
    whole = ("`runs show x`", "12.5 µs", "99 %", "runs/a-b/c.pcap", "1,000 packets/s")
    text = f"it took {whole[1]} of {whole[3]}, {whole[2]} at {whole[4]}: see {whole[0]}"
    lines = wrapped(text, columns).splitlines()
    assert all(any(part in line for line in lines) for part in whole), lines
    assert max(map(width_of, lines)) <= columns
    assert " ".join(line.strip() for line in lines) == text


@pytest.mark.parametrize("name", ["tainted", "lossy"])
def test_trust_in_the_instrument_is_one_line(said: Said, name: str) -> None:
    for words in (("show", name), ("verify", name, "--slo", SLO)):
        lines = [line for line in said(*words).splitlines() if line.startswith("trust ")]
        assert len(lines) == 1, words
        assert re.match(r"trust +(green|amber|red), ", lines[0])


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_comes_first(said: Said, name: str) -> None:
    first = said(*COMMANDS[name]).splitlines()[0]
    assert re.match(ANSWERS[name], first), first


@pytest.mark.parametrize("name", COMMANDS)
def test_numbers_have_at_most_four_digits(said: Said, name: str) -> None:
    """Counts of packets are whole, and exact."""
    for line in said(*COMMANDS[name]).splitlines():
        if line.startswith(("  tailscope", "    -", "written")):
            continue
        for number in _NUMBER.findall(line):
            digits = re.sub("[.,]", "", number).lstrip("0")
            assert len(digits) <= 4, line


def test_all_digits_are_shown_if_asked_for(said: Said) -> None:
    exact, short = (said(*COMMANDS["analyze"], *more) for more in (("--exact",), ()))
    assert "3.531360 ms" in exact and "3.531360 ms" not in short
    assert "3.531 ms" in short


def test_taint_is_one_mark_with_one_line(said: Said) -> None:
    text = said(*COMMANDS["show"])
    assert " ~" in text and "(instrument)" not in text and "(tainted)" not in text
    assert sum(line.startswith("~ ") for line in text.splitlines()) == 1
    assert not any(re.fullmatch(r"[\w ]+  +-( +-)*", line) for line in text.splitlines())
    assert "~" not in said(*COMMANDS["show quiet"])


def test_what_gives_way_is_named(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "columns_of", lambda _: 80)
    text = " ".join(said(*COMMANDS["compare"]).split())
    assert "no room for 95 % interval: -v shows more, --json all" in text
    at_length = said(*COMMANDS["compare"], "-v")
    assert "no room" not in at_length
    assert "95 %" in next(line for line in at_length.splitlines() if line.startswith("figure"))


def test_only_warnings_and_verdicts_are_coloured(stored: Path) -> None:
    compared = on_terminal(stored, 80, *COMMANDS["compare"])
    assert "\x1b[33mwarning\x1b[0m" in compared and "\x1b[31mfail\x1b[0m" in compared
    assert "\x1b[" not in "".join(re.findall(r"^(?:note|Whether|p50).*", compared, re.M))


@pytest.mark.parametrize(
    ("warning", "note"),
    [
        (
            "matched 100.0 % of a sample by l3; 0.0 % by frame (a router?)",
            "matched by IP packet: the device routes",
        ),
        ("matched 43.0 % of a sample by l3; 0.0 % by frame (a router?)", None),
        ("no packet came back from the device", None),
    ],
)
def test_a_note_is_no_warning(warning: str, note: str | None) -> None:
    assert note_of(warning) == note


def test_small_causes_are_added_up(said: Said) -> None:
    short, long = (said(*COMMANDS["show quiet"], *more) for more in ((), ("-v",)))
    assert "10 others (-v lists them)" in short and "small-3" not in short
    assert "small-3" in long and "others" not in long


def test_unsent_packets_are_said_to_count_as_lost(said: Said) -> None:
    text = " ".join(said(*COMMANDS["compare lossy"]).split())
    assert "lost, unsent" in text
    assert "A 200 never came and 1,000 were not sent, B 0 never came" in text


def test_no_interval_is_beyond_what_can_be(said: Said, stored: Path) -> None:
    """Two runs that differ have an interval as wide as Student's for one degree of freedom."""
    for side, seeds in (("one", (4, 8)), ("other", (6, 7))):
        for seed in seeds:
            write_run(stored / side / f"run-{seed}", latencies(seed) * (1 + seed % 2))
    text = said("compare", "one", "other", "-v")
    [row] = [line for line in text.splitlines() if line.startswith("p50 ")]
    found = re.search(r" 2\.100 µs .* -(\d+) ns to \+\d", row)
    assert found is not None and int(found[1]) < 200, "no packet takes less than 2 µs"


def test_a_stopped_generator_is_said(stored: Path) -> None:
    info = read_info(stored / "quiet")
    assert not stop_text(info)
    assert info.instrument is not None
    stalls = replace(
        info.instrument.stalls,
        generator=Stalls(count=1, stall_ns_total=1, stall_ns_max=3_200_000_000, unrecorded=0),
    )
    stopped = replace(info, instrument=replace(info.instrument, stalls=stalls))
    assert "3.200 s" in stop_text(stopped)
