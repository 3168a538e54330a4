"""What people say of captures: a run of theirs is listed and compared like others."""

from __future__ import annotations

import json
import platform
import random
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import captures
import pytest
from errors import code_of
from runs import write_mark

from tailscope.exceptions import UsageError
from tailscope.store.about import NamePattern, labels_of
from tailscope.store.info import host_of
from tailscope.store.reader import read_info, read_run

Run = Callable[..., Any]

SAID = {
    "dut": "l2fwd",
    "platform": "lxc",
    "kernel": "rt",
    "kernel_release": "5.10.0-rt",
    "boot": "quiet",
    "rate": "20k",
    "repeat": 2,
    "cards": "X710",
    "cpu_model": "EPYC",
    "clock": "nic-hardware",
    "labels": {"site": "Munich"},
}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    pre, post = captures.pair(tmp_path, [3_000 + at % 50 for at in range(2_000)])
    return pre, post


def analysed(tailscope: Run, pair: tuple[Path, Path], out: Path, *words: object) -> Path:
    done = tailscope("analyze", *pair, "--out", out, *words)
    assert done.returncode == 0, done.stderr
    return out


def listed(tailscope: Run, folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        tailscope("runs", "list", folder, "--json", "-").stdout
    )["runs"]
    return found


def test_what_was_not_said_is_unknown_and_never_the_analysts(
    tailscope: Run, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    run = analysed(tailscope, pair, tmp_path / "runs" / "plain")
    (row,) = listed(tailscope, tmp_path / "runs")
    for name in ("kernel", "kernel_release", "cpu_model", "cpu_count", "dut", "platform"):
        assert row[name] is None, name
    info = read_info(run)
    assert info.host.kernel_release == platform.release()
    assert host_of(info).kernel_release is None
    assert platform.release() not in (run / "report.html").read_text()


@pytest.mark.parametrize("as_json", [True, False])
def test_labels_stand_where_those_of_a_measurement_do(
    tailscope: Run, pair: tuple[Path, Path], tmp_path: Path, as_json: bool
) -> None:
    file = tmp_path / "about"
    lines = [f"{name}: {json.dumps(value)}" for name, value in SAID.items()]
    file.write_text(json.dumps(SAID) if as_json else "\n".join(lines))
    words = ("--about", file, "-D", "kernel=nohz", "-D", "labels.rack=7")
    run = analysed(tailscope, pair, tmp_path / "runs" / "a", *words)
    (row,) = listed(tailscope, tmp_path / "runs")
    wanted = {
        **{name: SAID[name] for name in ("dut", "platform", "boot", "repeat", "cards", "clock")},
        **{"kernel": "nohz", "rate_pps": 20_000, "labels": "site=Munich, rack=7"},
        **{"cpu_model": "EPYC", "kernel_release": "5.10.0-rt", "command": "analyze"},
    }
    assert {name: row[name] for name in wanted} == wanted
    chosen = tailscope("runs", "list", tmp_path / "runs", "dut=l2fwd", "rate>=10k", "labels~Munich")
    assert "a" in chosen.stdout.splitlines()[2]
    shown = tailscope("runs", "show", run).stdout
    for text in ("l2fwd", "lxc, kernel nohz 5.10.0-rt", "20,000 packets/s", "site=Munich, rack=7"):
        assert text in shown
    assert "EPYC" in (run / "report.html").read_text()


def test_the_command_that_repeats_it_says_the_same(
    tailscope: Run, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    words = [word for name in ("dut", "rate", "repeat") for word in ("-D", f"{name}={SAID[name]}")]
    run = analysed(tailscope, pair, tmp_path / "a", *words, "-D", "labels.a b=c d")
    repeat = json.loads(tailscope("runs", "show", run, "--json", "-").stdout)["repeat"]
    labels = ["dut=l2fwd", "rate=20000", "repeat=2", "labels.a b=c d"]
    options = [word for label in labels for word in ("-D", label)]
    assert shlex.split(repeat)[-10:] == [*options, "--out", "repeated"]


def test_names_of_files_say_labels(tailscope: Run, tmp_path: Path) -> None:
    folder = tmp_path / "captures" / "rt"
    folder.mkdir(parents=True)
    for repeat in (1, 2):
        pre, post = captures.pair(folder, [3_000] * 50)
        for path, side in ((pre, "pre"), (post, "post")):
            path.rename(folder / f"l2fwd-{side}-20k-repeat{repeat}.pcap")
    pattern = "{kernel}/{dut}-{side}-{rate}-repeat{repeat}"
    done = tailscope(
        *("analyze", tmp_path / "captures", "--out", tmp_path / "runs"),
        *("--name-pattern", pattern, "-D", "platform=bare"),
    )
    assert done.returncode == 0, done.stderr
    rows = listed(tailscope, tmp_path / "runs")
    assert sorted(row["repeat"] for row in rows) == [1, 2]
    for row in rows:
        assert (row["dut"], row["rate_pps"], row["kernel"]) == ("l2fwd", 20_000, "rt")
        assert row["platform"] == "bare"


@pytest.mark.parametrize(
    ("said", "error", "hint"),
    [
        ("kernl=rt", "-D kernl: unknown label", "did you mean kernel?"),
        ("colour=red", "-D colour: unknown label", "labels.NAME takes anything else"),
        ("labels=red", "-D labels: expected labels.NAME", "labels: "),
        ("dut.x=red", "-D dut.x: expected dut", "dut: "),
        ("kernel=windows", "-D kernel: got 'windows', expected one of vanilla, rt, nohz", None),
        ("repeat=-1", "-D repeat: got '-1', expected at least 0", None),
        ("burst=0", "-D burst: got 0, expected 1 to 512 packets", None),
        ("rate", "-D: got 'rate', expected NAME=VALUE", None),
    ],
)
def test_a_label_that_cannot_be_is_refused(
    tailscope: Run, pair: tuple[Path, Path], tmp_path: Path, said: str, error: str, hint: str | None
) -> None:
    done = tailscope("analyze", *pair, "--out", tmp_path / "a", "-D", said)
    assert done.returncode == 1
    assert f"error: {error}" in done.stderr
    assert hint is None or hint in done.stderr
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("dut: [", ":1: expected the node content"),
        ("dut: a\ndut: b", ":2: dut: it appears twice"),
        ("- dut", ": got a list, expected labels such as `dut: l2fwd`"),
        ("devise: x", ": devise: unknown label"),
        ("rate: true", ": rate: got True, expected a rate such as 10k"),
        ("labels: {a: [1]}", ": labels.a: got [1], expected a text or a number"),
    ],
)
def test_a_file_that_cannot_be_is_refused(
    tailscope: Run, pair: tuple[Path, Path], tmp_path: Path, content: str, said: str
) -> None:
    file = tmp_path / "about.yaml"
    file.write_text(content)
    done = tailscope("analyze", *pair, "--out", tmp_path / "a", "--about", file)
    assert done.returncode == 1
    assert f"error: {file}{said}" in done.stderr


def test_labels_describe_a_run(tailscope: Run, pair: tuple[Path, Path]) -> None:
    done = tailscope("analyze", *pair, "-D", "dut=l2fwd")
    assert done.returncode == 1
    assert code_of(done) == "requires-out"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("x", "expected at least one label"),
        ("{devise}", "{devise}: unknown label"),
        ("{rate}-{rate}", "expected each label once"),
    ],
)
def test_a_pattern_that_says_nothing_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        NamePattern(pattern)
    assert said in str(error.value)


def test_a_name_that_is_not_as_the_pattern_says(
    tailscope: Run, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    words = ("--out", tmp_path / "a", "--name-pattern", "rate{rate}")
    done = tailscope("analyze", *pair, *words)
    assert done.returncode == 1
    assert f"got '{pair[0].stem}'" in done.stderr and "'rate{rate}'" in done.stderr


def test_options_win_over_names_and_those_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "about.yaml"
    file.write_text("dut: a\nrate: 1k\nrepeat: 1\nlabels: {x: file, y: file}")
    labels = labels_of(file, {"repeat": "3", "labels.x": "option"}, "{rate}-{repeat}")
    found = labels.of(tmp_path / "2k-2", "2k-2")
    assert (found.dut, found.rate_pps, found.repeat) == ("a", 2_000, 3)
    assert found.labels == {"x": "option", "y": "file"}


def test_runs_from_before_labels_are_read(
    tailscope: Run, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    run = analysed(tailscope, pair, tmp_path / "a")
    content = json.loads((run / "run.json").read_text())
    content.pop("about", None)
    write_mark(run, content)
    assert read_run(run).info.about is None


def expression(pattern: str) -> re.Pattern[str]:
    """The same pattern as an expression, which tries all ways to divide a name."""
    parts = re.split(r"(\{\w+\}|\*)", pattern)
    kinds = {"*": "[^/]*?"}
    return re.compile(
        "".join(
            kinds.get(part, "([^/]+?)" if part.startswith("{") else re.escape(part))
            for part in parts
        )
    )


def test_a_pattern_divides_names_as_an_expression_does() -> None:
    draw = random.Random(1)
    matched = 0
    for _ in range(2_000):
        names = draw.sample(["dut", "rate", "repeat", "side"], 2)
        places = ["*", "*", "/", *(f"{{{name}}}" for name in names)]
        draw.shuffle(places)
        pattern = "".join(f"{draw.choice(['', '', 'a', 'b'])}{place}" for place in places)
        folder, stem = ("".join(draw.choices("ab", k=draw.randint(0, 6))) for _ in range(2))
        expected = expression(pattern).fullmatch(f"{folder or 'top'}/{stem}")
        path = Path("/top", folder, "file")
        if expected is None:
            with pytest.raises(UsageError):
                NamePattern(pattern).values(path, stem)
            continue
        matched += 1
        values = dict(zip(re.findall(r"\{(\w+)\}", pattern), expected.groups(), strict=True))
        values.pop("side", None)
        assert NamePattern(pattern).values(path, stem) == values
    assert matched > 100


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    """An expression would take years."""
    with pytest.raises(UsageError) as error:
        NamePattern("*a" * 30 + "{dut}b").values(Path("/x"), "a" * 255)
    assert error.value.code == "name-pattern-mismatch"
