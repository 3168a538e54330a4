"""Options that several commands have, and values as people write them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from tailscope.cli.panels import EXPERIMENT, OUTPUT
from tailscope.cli.terminal import tell
from tailscope.exceptions import UsageError
from tailscope.paths import step_to
from tailscope.registry import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Struct

    from tailscope.store.about import Labels

_MEDIAN = 0.5

STANDARD = "-"
"""Name that stands for standard input or output."""


def option(names: str, metavar: str, about: str, panel: str | None = None, **more: Any) -> Any:
    """Declare an option with a value: its names apart by a space, and the section of the help."""
    return typer.Option(*names.split(), metavar=metavar, help=about, rich_help_panel=panel, **more)


def flag(names: str, about: str, panel: str | None = None) -> Any:
    """Declare an option without a value."""
    return typer.Option(*names.split(), help=about, rich_help_panel=panel)


def argument(metavar: str, about: str, **more: Any) -> Any:
    """Declare an argument."""
    return typer.Argument(metavar=metavar, help=about, readable=False, **more)


RunName: TypeAlias = Annotated[
    str, argument("RUN", "A run directory, or the name of a run below --dir.")
]
RunNames: TypeAlias = Annotated[
    list[str], argument("RUN...", "Run directories, or names of runs below --dir.")
]
RunsFolder: TypeAlias = Annotated[Path, option("--dir", "DIR", "Folder of named runs.")]
JsonFile: TypeAlias = Annotated[
    str | None, option("--json", "FILE", "Write all figures as JSON; - is standard output.", OUTPUT)
]
JunitFile: TypeAlias = Annotated[
    Path | None, option("--junit", "FILE", "Write verdicts as JUnit XML.", OUTPUT)
]
FailOn: TypeAlias = Annotated[
    list[str] | None,
    option(
        "--fail-on",
        "LIMIT",
        "Regressions to fail on, such as 'p99.99>+10%, p99.9>+5us, lost>+0.1%'; repeatable.",
        OUTPUT,
    ),
]
Single: TypeAlias = Annotated[
    bool, flag("--single", "Let --fail-on judge one run a side, which tells of those two.", OUTPUT)
]
Keep: TypeAlias = Annotated[bool, flag("--keep", "Store all figures in the run, for its report.")]
AboutFile: TypeAlias = Annotated[
    Path | None,
    option(
        "--about",
        "FILE",
        "Labels that say what was measured, on what: dut, platform, ... (YAML or JSON).",
    ),
]
Labelled: TypeAlias = Annotated[
    list[str] | None,
    option("-D", "NAME=VALUE", "A label such as rate=10k; wins over FILE; repeatable."),
]
RunLabels: TypeAlias = Annotated[
    list[str] | None,
    option("--label", "NAME=RUN", "Name of a run in legends and tables; repeatable."),
]
NamedBy: TypeAlias = Annotated[
    str | None,
    option(
        "--name-pattern",
        "PATTERN",
        "Where names of files say labels, such as '{dut}-{rate}-repeat{repeat}-{side}'; *"
        " stands for anything.",
    ),
]
Exact: TypeAlias = Annotated[bool, flag("--exact", "Show all digits; without it, four.", OUTPUT)]
Verbose: TypeAlias = Annotated[
    bool, flag("--verbose -v", "Show all rows and columns, and how results came about.", OUTPUT)
]
CpusToFree: TypeAlias = Annotated[
    str, option("--cpus -c", "LIST", "CPUs to keep free: those that poll.")
]
DryRun: TypeAlias = Annotated[
    bool, flag("--dry-run", "Show what would be done, without doing it.", OUTPUT)
]
Quiet: TypeAlias = Annotated[bool, flag("--quiet", "Show no progress.", OUTPUT)]
Profile: TypeAlias = Annotated[
    str | None, option("--profile", "NAME", "Profile of the experiment to use.", EXPERIMENT)
]


def given_labels(runs: list[Path], given: list[str] | None) -> dict[Path, str]:
    """Read what ``--label`` calls runs."""
    by_path = {run.resolve(): run for run in runs}
    names: dict[Path, str] = {}
    for name, path in named_values(given, "--label").items():
        run = by_path.get(Path(path).resolve())
        if run is None:
            expected = ", ".join(map(str, runs))
            raise UsageError(
                f"--label: got {name}={path}, expected one of the runs: {expected}",
                code="label-run",
            )
        if run in names:
            raise UsageError(
                f"--label: got {names[run]} and {name} for {path}, expected one name",
                code="label-twice",
            )
        names[run] = name
    return names


def labelled(runs: list[Path], given: list[str] | None = None) -> dict[str, Path]:
    """Call each run by its label, or its name, or what its path does not share with names alike."""
    own = given_labels(runs, given)
    paths = [run.resolve() for run in runs]
    if len(set(paths)) != len(paths):
        raise UsageError("the same run is named twice", code="run-named-twice")
    labels = [path.name for path in paths]
    if len(set(labels)) != len(labels):
        shared = os.path.commonpath(paths)
        labels = [os.path.relpath(path, shared) for path in paths]
    names = [own.get(run, label) for run, label in zip(runs, labels, strict=True)]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(
            f"--label: got {twice} for a run, while another one is called that", code="label-taken"
        )
    return dict(zip(names, runs, strict=True))


def checked_figure(path: Path | None) -> Path | None:
    """Check the name of ``--figure``, whose end gives the format, and that it can be drawn."""
    from tailscope.report.formats import FORMATS

    if path is not None and path.suffix.lower().removeprefix(".") not in FORMATS:
        raise UsageError(
            f"--figure: expected a name that ends in .{', .'.join(FORMATS)}, got {path}",
            code="figure-format",
        )
    if path is not None:
        require("plot")
    return path


def labels(file: Path | None, given: list[str] | None, pattern: str | None) -> Labels | None:
    """Read what was said of captures or tables; None where nothing was."""
    if file is None and not given and pattern is None:
        return None
    from tailscope.store.about import labels_of

    return labels_of(file, named_values(given, "-D"), pattern)


def named_values(given: list[str] | None, option: str) -> dict[str, str]:
    """Read an option that is given as NAME=VALUE, once for each name."""
    values: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"{option}: got {text!r}, expected NAME=VALUE", code="name-value")
        if name in values:
            raise UsageError(f"{option}: got {name} twice", code="name-twice")
        values[name] = value
    return values


def packet_rate(text: str, option: str = "--rate", frame_bytes: float = 64) -> int:
    """Read a rate; of one in bits per second, say which packet rate it is."""
    from tailscope.units import bit_rate_text, is_bit_rate, rate_pps

    pps = rate_pps(text, option, frame_bytes=frame_bytes)
    if is_bit_rate(text):
        tell("note", f"{option}: {bit_rate_text(text, pps, frame_bytes)}")
    return pps


def tail_quantile(text: str) -> float:
    """Read ``--quantile``, and warn of one that nobody means: most packets may be slower."""
    from tailscope.units import percentile_name, quantile_of

    q = quantile_of(text, "--quantile")
    if 0 < q < _MEDIAN:
        name = percentile_name(q)
        tell("warning", f"--quantile: {text} is {name}, below the median; the tail is p99 or p99.9")
    return q


def named_files(texts: list[str], option: str) -> dict[str, Path]:
    """Read files that are given as NAME=FILE; without a name, one is called by its own."""
    files: dict[str, Path] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        path = Path(file if equals and "/" not in name else text)
        name = name if equals and "/" not in name else path.name
        if not path.exists():
            raise UsageError(
                f"{option}: {path}: no such file or folder", code="no-such-file", hint=step_to(path)
            )
        if name in files:
            raise UsageError(
                f"{option}: got {name} twice", code="name-twice", hint="name them: NAME=FILE"
            )
        files[name] = path
    return files


def refuse_idle_options(fields: Mapping[str, object]) -> None:
    """Refuse an option of a run that would do nothing without another one."""
    for name in ("co_runner_cpus", "co_runner_platform"):
        if fields.get(name) not in (None, "bare") and not fields.get("co_runners"):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option}: expected --co-runner, too", code="requires-co-runner")


def without_format(record: Struct) -> dict[str, object]:
    """Return a record as ``--json`` has it, without the fields that describe a file."""
    content = _content_of(record)
    return {name: value for name, value in content.items() if name not in ("format", "kept")}


def _content_of(record: Struct) -> dict[str, object]:
    from tailscope.store.records.base import as_content

    return as_content(record)


def write_json(file: str | None, content: object) -> None:
    """Write what ``--json`` asks for, if it does; records may be part of it."""
    if file is None:
        return
    text = json.dumps(content, indent=2, allow_nan=False, default=_content_of) + "\n"
    if file == STANDARD:
        sys.stdout.write(text)
        return
    from tailscope.store.atomic import write_text

    write_text(Path(file), text)
