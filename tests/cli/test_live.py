"""What is shown while it runs: it fits the terminal, and nothing of it is left."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyte
import pytest
from captures import pair
from command import COMMAND
from rich.cells import cell_len
from shelves import copied, shelf
from synthetic import PACKETS, latencies, write_run
from wcwidth import wcswidth
from wording import assert_wording

from tailscope.cli import application, campaign
from tailscope.cli.live import LiveLine, Pace
from tailscope.cli.terminal import cut, fitting, width_of
from tailscope.cli.view import View
from tailscope.exceptions import TestbedError
from tailscope.store.records.messages import GeneratorProgress, LoopProgress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from measurements import Place

ROWS = 200
FRAME = re.compile(r"\r\x1b\[J([^\r\n\x1b]+)\r(?!\n)")
"""What is shown in place."""

EXPERIMENT = """\
name: small
fixed: {duration: 200ms, warm_up: 50ms, rate: 5k}
vary: {dut: [l2fwd, l3fwd]}
repeats: 2
"""

columns = pytest.mark.parametrize("columns", [60, 80, 120])


class Terminal:
    """A pseudo-terminal, and what is on its screen."""

    def __init__(self, columns: int) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(columns)
        self.columns = columns or 80
        self.screen = pyte.Screen(self.columns, ROWS)
        self.said = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")()

    def resize(self, columns: int) -> None:
        termios.tcsetwinsize(self.ours, (ROWS, columns))

    def read(self) -> None:
        """Take what has been written, and show it."""
        stream = pyte.ByteStream(self.screen)
        while select.select([self.ours], [], [], 0)[0]:
            self._take(stream)

    def run(self, *words: object, env: dict[str, str], press: str | None = None) -> int:
        """Run the command with this terminal; type a key when it shows something in place."""
        stream = pyte.ByteStream(self.screen)
        process = subprocess.Popen(
            [COMMAND, *map(str, words)],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env={**env, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        while process.poll() is None:
            if select.select([self.ours], [], [], 0.05)[0]:
                self._take(stream)
            if press is not None and self.frames:
                os.write(self.ours, press.encode())
                press = None
        self.read()
        return process.returncode

    def _take(self, stream: pyte.ByteStream) -> None:
        data = os.read(self.ours, 1 << 16)
        self.said += self.decoder.decode(data)
        stream.feed(data)

    @property
    def frames(self) -> list[str]:
        return FRAME.findall(self.said)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]


@pytest.fixture
def terminals(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes a terminal of so many columns that this process writes to."""
    monkeypatch.setenv("TERM", "xterm")
    with ExitStack() as stack:

        def make(columns: int) -> Terminal:
            made = Terminal(columns)
            stack.callback(os.close, made.ours)
            for name in ("stdout", "stderr"):
                file = stack.enter_context(os.fdopen(os.dup(made.theirs), "w"))
                monkeypatch.setattr(sys, name, file)
            stack.callback(os.close, made.theirs)
            return made

        yield make


def at(elapsed_s: float, **changed: Any) -> GeneratorProgress:
    """What a generator says after so many seconds, at 10,000 packets a second."""
    packets = round(10_000 * elapsed_s)
    said: dict[str, Any] = {
        "state": "measuring", "elapsed_s": elapsed_s, "rx_packets": packets,
        "tx_packets": packets, "sent": packets, "received": packets - 3, "unsent": 0,
        "stalls": 12, "stall_ns_total": 500_000, "stall_ns_max": 80_000,
        "latency_ns_p50": 5_120, "latency_ns_p999": 104_448, "latency_ns_max": 1_234_567,
        "latency_ns_buckets": [],
    }  # fmt: skip
    return GeneratorProgress(**{**said, **changed})


WARM_UP: dict[str, Any] = {
    "state": "warm-up", "sent": 0, "received": 0,
    "latency_ns_p50": None, "latency_ns_p999": None, "latency_ns_max": None,
}  # fmt: skip


def fits(found: Sequence[str], columns: int) -> bool:
    return bool(found) and all(0 < wcswidth(line) < columns for line in found)


SHOWN = {
    60: ("24.0 s left", "p99.9 104.4 µs", "max 1.235 ms", "lost ≤ 3"),
    80: ("24.0 s left", "p50 5.120 µs", "p99.9 104.4 µs", "max 1.235 ms", "lost ≤ 3", "stalls 12"),
    120: (
        *("20%", "24.0 s left", "10,000 packets/s", "p50 5.120 µs", "p99.9 104.4 µs"),
        *("max 1.235 ms", "lost ≤ 3", "stalls 12", "stalled 0.0%"),
    ),
}


@columns
def test_a_measurement_takes_one_line(terminals: Any, columns: int) -> None:
    terminal = terminals(columns)
    pace = Pace(warm_up_s=1, duration_s=29)
    with LiveLine() as line:
        line.show(pace.parts(at(1.0, **WARM_UP)))
        for elapsed_s in range(2, 7):
            line.show(pace.parts(at(float(elapsed_s))))
        terminal.read()
        assert [terminal.lines, terminal.screen.cursor.y] == [[terminal.frames[-1]], 0]
        line.say("stays")
    terminal.read()
    assert terminal.lines == ["stays"]
    assert fits(terminal.frames, columns)
    assert set(re.split(" {2,}", terminal.frames[-1])) >= set(SHOWN[columns])
    assert set(re.findall(r"\x1b.*?[A-Za-z]", terminal.said)) == {"\x1b[J"}, "no colours"


@columns
def test_a_campaign_takes_a_line_and_one_for_each_cell(
    terminals: Any, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(plan: Any, cores: Any, *, progress: Any, **_: Any) -> Any:
        progress(at(1.0))
        progress(at(2.0))
        raise TestbedError("the device died " * 8)

    monkeypatch.setattr("tailscope.experiment.run.execute.execute", execute)
    monkeypatch.setattr("tailscope.noise.load.load_text", lambda _: None)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    terminal = terminals(columns)
    status = campaign.run_experiment(
        tmp_path / "experiment.yaml",
        **{"profile": None, "only": {}, "resume": False, "cpus": None, "out": tmp_path / "out"},
        **{"json_file": None, "dry_run": False, "quiet": False, "view": View()},
    )
    terminal.read()
    assert status == 1
    assert fits(terminal.frames, columns)
    for failed in range(4):
        counts = [(failed, "failed"), (1, "running"), (3 - failed, "pending")]
        said = [f"{count} {state}" for count, state in counts if count]
        frames = [each for each in terminal.frames if set(said) <= set(each.split("  "))]
        assert frames and all(" left" in each for each in frames)
    assert any("p99.9 104.4 µs" in each for each in terminal.frames)
    begun = [line for line in terminal.lines if line[0] != " "]
    assert [line[:5] for line in begun[:4]] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert_wording("run/all-cells-failed", begun[4])
    assert sum(line.count("died") for line in terminal.lines) == 8, "the reason is whole, once"
    assert all("failed: as " in line for line in begun[1:4])
    assert not any("running" in line for line in terminal.lines)


@columns
def test_a_list_is_as_wide_as_the_terminal(
    tailscope: Any, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runs = shelf(tmp_path / "runs")
    long_name = f"{'日本' * 30}-repeat=3"
    copied(runs / "plain", runs / long_name)
    terminal = Terminal(columns)
    assert terminal.run("runs", "list", runs, env=dict(os.environ)) == 0
    printed = terminal.said.splitlines()
    assert all(wcswidth(line) <= columns for line in printed)
    header = next(line for line in terminal.lines if line.startswith("run "))
    assert {"run", "tail", "state"} <= set(header.split())
    assert ("sent" in header.split()) == ("no room for" not in terminal.said), (
        "what is not shown is named"
    )
    [cut_name] = [line for line in printed if "repeat=3" in line]
    assert cut_name.startswith("日本") and "…" in cut_name and "p99.9" in cut_name
    whole = tailscope("runs", "list", runs).stdout
    assert max(map(wcswidth, whole.splitlines())) <= 120, "a pipe is as wide as that"


@pytest.fixture(scope="module")
def tainted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with everything that makes tables wide: bounds, two ends, causes of long names."""
    folder = tmp_path_factory.mktemp("tainted")
    stalled = np.arange(PACKETS) % 100 == 50
    found = np.where(stalled, 3_531_360, latencies(1))
    causes = {"a thread of a long name that somebody gave it": 0.7, "local timer": 0.2}
    for name in ("one", "other"):
        write_run(folder / name, found, stalled=stalled, stall_ns=88_000, causes=causes)
    return folder


@pytest.mark.parametrize("command", ["runs show", "verify", "compare", "analyze"])
def test_tables_fit_the_terminal_and_say_the_same(
    terminals: Any,
    tainted: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    """All of it, as `-v` asks for, is broken between words."""
    monkeypatch.chdir(tainted)
    monkeypatch.setenv("NO_COLOR", "1")
    words: dict[str, list[Any]] = {
        "runs show": ["one"],
        "verify": ["one", "--slo", "p99<50us, p99.9<1ms, loss<1e-3, max<1ms"],
        "compare": ["one", "other"],
        "analyze": pair(Path("captures"), [3_531_360 + 10 * at for at in range(300)]),
    }
    asked = [*command.split(), *map(str, words[command]), "-v"]
    application()(asked, standalone_mode=False)
    whole = capsys.readouterr().out
    terminal = terminals(80)
    application()(asked, standalone_mode=False)
    sys.stdout.flush()
    terminal.read()
    lines = terminal.said.splitlines()
    assert max(map(width_of, lines)) <= 80 < max(map(width_of, whole.splitlines())) <= 120

    def words_of(text: str) -> list[str]:
        return sorted(re.sub(r"─| \\(?=\s)", "", text).split())

    assert words_of(terminal.said) == words_of(whole)


def test_a_recording_that_is_written_says_how_long_that_takes() -> None:
    pace = Pace(1, 29)
    pace.parts(at(30.0))
    recorded: dict[str, Any] = {"state": "writing", "recorded": 1_000}
    first = pace.parts(at(31.0, **recorded, written=200))
    second = pace.parts(at(33.0, **recorded, written=400))
    assert first == {"what": "writing 20%"}
    assert second == {"what": "writing 40%", "left": "6.0 s left"}


def test_a_terminal_that_becomes_narrower(terminals: Any) -> None:
    terminal = terminals(120)
    pace = Pace(1, 29)
    with LiveLine() as line:
        line.show(pace.parts(at(2.0)))
        terminal.resize(60)
        line.show(pace.parts(at(3.0)))
    terminal.read()
    first, second = terminal.frames
    assert wcswidth(first) > 80 and fits([second], 60)
    assert terminal.lines == []


@pytest.mark.parametrize("columns", [0, 1, 2, 5, 10])
def test_a_strange_width(terminals: Any, columns: int) -> None:
    terminal = terminals(columns)
    with LiveLine() as line:
        line.show(Pace(1, 29).parts(at(2.0)))
        line.show_text("測定" * 100)
    terminal.read()
    assert all(wcswidth(frame) < (columns or 80) for frame in terminal.frames)
    assert "p99.9 104.4 µs" in terminal.said or columns
    assert terminal.lines == []


def test_a_dumb_terminal_gets_plain_lines(terminals: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("tailscope.cli.live._EVERY_S", 0)
    terminal = terminals(80)
    with LiveLine() as line:
        line.show(Pace(1, 29).parts(at(2.0)))
    terminal.read()
    assert "\x1b" not in terminal.said
    assert fits(terminal.said.splitlines(), 80) and len(terminal.lines) == 1


def test_without_a_terminal_lines_fit_120_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope.cli.live._EVERY_S", 0)
    with LiveLine() as line:
        line.show(Pace(1, 29).parts(at(2.0, unsent=7)))
    said = capsys.readouterr()
    assert said.out == ""
    assert_wording("run/progress", said.err)


def test_quiet_says_only_what_must_be_known(terminals: Any) -> None:
    terminal = terminals(80)
    with LiveLine(quiet=True) as line:
        line.show(Pace(1, 29).parts(at(2.0)))
        line.show_text("waits")
        line.show_step("trial 1")
        line.say("interrupted")
    terminal.read()
    assert terminal.frames == [] and terminal.lines == ["interrupted"]


def test_time_begins_with_the_measurement() -> None:
    """Between warm-up and measurement memory is made ready: here for 4 s."""
    pace = Pace(warm_up_s=1, duration_s=10)
    left = [
        pace.parts(event)["left"]
        for event in (at(0.5, **WARM_UP), at(5.0, **WARM_UP), at(6.0), at(16.0, state="draining"))
    ]
    assert left == ["10.5 s left", "10.0 s left", "9.0 s left", "0.0 s left"]


def test_loops_without_packets_say_how_long_they_take() -> None:
    event = LoopProgress(
        **{"state": "forwarding", "elapsed_s": 4.0, "rx_packets": 0, "tx_packets": 0},
        **{"tx_dropped": 0, "stalls": 3, "stall_ns_max": 2_000},
    )
    parts = Pace(duration_s=10).loop_parts(event)
    assert list(parts.values()) == ["4.0 s", "40%", "6.0 s left", "stalls 3", "longest 2.000 µs"]


@pytest.mark.parametrize("text", ["plain text", "日本語のテキスト", "a日b本c", "é́"])
@pytest.mark.parametrize("columns", range(12))
def test_a_cut_text_fits(text: str, columns: int) -> None:
    assert width_of(cut(text, columns)) <= columns
    assert cut(text, 100) == text


def test_one_column_is_what_rich_says_too() -> None:
    visible = [chr(point) for point in range(0x20, 0x3000) if chr(point).isprintable()]
    assert [width_of(each) for each in visible] == [cell_len(each) for each in visible]


def test_the_important_parts_stay() -> None:
    widths = {"a": 5, "b": 5, "c": 5}
    assert fitting(widths, "cab", 19) == {"a", "b", "c"}
    assert fitting(widths, "cab", 18) == {"a", "c"}
    assert fitting(widths, "cab", 1) == {"c"}


def begins_with_results(lines: list[str]) -> bool:
    """Whether nothing precedes the answer, but for what a busy machine makes of it."""
    [answer, *_] = [at for at, line in enumerate(lines) if "Median " in line]
    return answer == 0 or any(text in lines[0] for text in ("Not usable for ", "Other programs "))


@pytest.mark.usefixtures("dataplane")
@pytest.mark.parametrize(
    "press",
    [pytest.param(None, id="ends", marks=pytest.mark.long), pytest.param("\x03", id="Ctrl-C")],
)
def test_a_run_leaves_its_results_alone(place: Place, press: str | None) -> None:
    terminal = Terminal(80)
    lasts = "1200ms" if press is None else "20s"
    traffic = ("--dut", "l2fwd", "--rate", "1k", "--warm-up", "50ms", "--duration", lasts)
    out = place.path / "out"
    status = terminal.run("run", *traffic, "--out", out, env=place.environment, press=press)
    assert status == (0 if press is None else 130)
    assert fits(terminal.frames, 80)
    assert any("p99.9 " in frame and " left" in frame for frame in terminal.frames)
    assert begins_with_results(terminal.lines)
    assert ("^C" in terminal.said) == (press is not None)
    rubbish = [line for line in terminal.lines if "^C" in line or " s left" in line]
    assert rubbish == []


@pytest.mark.usefixtures("dataplane")
@pytest.mark.long
def test_a_quiet_run_shows_results_alone(place: Place) -> None:
    terminal = Terminal(80)
    traffic = ("--dut", "l2fwd", "--rate", "1k", "--warm-up", "50ms", "--duration", "1200ms")
    arguments = ("run", *traffic, "--quiet", "--out", place.path / "out")
    assert terminal.run(*arguments, env=place.environment) == 0
    assert terminal.frames == [] and begins_with_results(terminal.lines)
