"""Options that several commands have, and values as people write them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

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

RunName: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run directory, or the name of a run below --dir."),
]
RunNames: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Run directories, or names of runs below --dir."),
]
RunsFolder: TypeAlias = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="Folder of named runs.")
]
JsonFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write all figures as JSON; - is standard output.",
        rich_help_panel=OUTPUT,
    ),
]
JunitFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--junit", metavar="FILE", help="Write verdicts as JUnit XML.", rich_help_panel=OUTPUT
    ),
]
FailOn: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="LIMIT",
        help="Regression to fail on: 'p99.99>+10%', 'p99.9>+5us', 'lost>+0.1%'; repeatable.",
        rich_help_panel=OUTPUT,
    ),
]
Keep: TypeAlias = Annotated[
    bool, typer.Option("--keep", help="Store all figures in the run, for its report.")
]
AboutFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--about",
        metavar="FILE",
        help="Labels that say what was measured, on what: dut, platform, ... (YAML or JSON).",
    ),
]
Labelled: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-D", metavar="NAME=VALUE", help="A label such as rate=10k; wins over FILE; repeatable."
    ),
]
RunLabels: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="NAME=RUN", help="Name of a run in legends and tables; repeatable."
    ),
]
NamedBy: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--name-pattern",
        metavar="PATTERN",
        help="Where names of files say labels, such as '{dut}-{rate}-repeat{repeat}-{side}'; *"
        " stands for anything.",
    ),
]
Exact: TypeAlias = Annotated[
    bool,
    typer.Option("--exact", help="Show all digits; without it, four.", rich_help_panel=OUTPUT),
]
Verbose: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Show all rows and columns, and how results came about.",
        rich_help_panel=OUTPUT,
    ),
]
CpusToFree: TypeAlias = Annotated[
    str, typer.Option("--cpus", "-c", metavar="LIST", help="CPUs to keep free: those that poll.")
]
DryRun: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Show what would be done, without doing it.", rich_help_panel=OUTPUT
    ),
]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=OUTPUT)
]
Profile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Profile of the experiment to use.",
        rich_help_panel=EXPERIMENT,
    ),
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
    if q < _MEDIAN:
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
    if fields.get("co_runner_cpus") is not None and not fields.get("co_runners"):
        raise UsageError("--co-runner-cpus: expected --co-runner, too", code="requires-co-runner")


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
