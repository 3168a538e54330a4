"""Mistakes of somebody new: each is answered by an error, and by what to do next."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import captures
import pytest
from errors import unwrapped
from nobody import as_nobody
from runs import AS_ROOT
from synthetic import latencies, write_run

from tailscope.cli import main
from tailscope.cli.terminal import width_of

if TYPE_CHECKING:
    from collections.abc import Iterator

INPUTS = Path(__file__).with_name("wrong_inputs.txt").read_text().splitlines()
EXPERIMENT = "name: small\nfixed: {dut: l2fwd, duration: 1s}\nvary: {rate: [1k, 2k]}\n"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What somebody may have lying around: two runs, two captures, an experiment, other files."""
    desk = tmp_path_factory.mktemp("desk")
    (desk / "runs").mkdir()
    for seed, name in enumerate(("first", "second")):
        write_run(desk / "runs" / name, latencies(seed))
    pre, post = captures.pair(desk / "made", [2_000 + at for at in range(300)])
    (desk / "captures").mkdir()
    for path, name in ((pre, "pre"), (post, "post")):
        (desk / f"{name}.pcap").write_bytes(path.read_bytes())
        path.rename(desk / "captures" / f"{name}.pcap")
    for name, text in (
        ("exp.yaml", EXPERIMENT),
        ("bad.yaml", "rate: [1\n"),
        ("unknown.yaml", "name: x\ndut: l2fwd\n"),
        ("empty.yaml", ""),
        ("empty.pcap", ""),
        ("notes.txt", "hello, these are notes\n"),
    ):
        (desk / name).write_text(text)
    (desk / "folder").mkdir()
    return desk


@pytest.fixture
def at_desk(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be at the desk, and take the handlers of signals back."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    monkeypatch.chdir(desk)
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("at_desk")
def test_a_single_capture_that_is_not_there_may_be_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["analyze", "captures/pr.pcap"]) == 1
    assert "did you mean captures/pre.pcap" in capsys.readouterr().err


@AS_ROOT
@pytest.mark.parametrize("words", ["verify {} --slo p99<1s", "runs show {}", "compare {0} {0}/b"])
@pytest.mark.parametrize("closed", ["", "run"])
def test_a_run_that_may_not_be_read_says_who_may(
    scratch: Path, capfd: pytest.CaptureFixture[str], words: str, closed: str
) -> None:
    scratch.chmod(0o755)
    run = write_run(scratch / "run", latencies(0))
    run.chmod(0o755)
    (scratch / closed).chmod(0o700)
    as_nobody(lambda: main(words.format(run).split()))
    said = unwrapped(capfd.readouterr().err)
    assert f"error: {run}" in said and "permission denied [system]" in said
    assert f"hint: you may not enter {scratch / closed}: `ls -ld {scratch / closed}`" in said


@pytest.mark.usefixtures("at_desk")
@pytest.mark.parametrize("line", INPUTS)
def test_a_wrong_input_has_a_next_step(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(shlex.split(line))
    said = capsys.readouterr().err
    assert status in (1, 3), said
    assert re.search(r"^error: (?:.*\n    )*.*\[[a-z0-9-]+\]$", said, re.M), said
    hint = re.search(r"^hint: .*(?:\n    .*)*", said, re.M)
    assert hint is not None, said
    assert not re.fullmatch(r"hint: See `[^`]*`\.", hint[0]), said
    assert "internal" not in said and "NoneType" not in said, said
    for row in said.splitlines():
        assert width_of(row) <= 120 or width_of(max(row.split(), key=width_of)) > 80, row
