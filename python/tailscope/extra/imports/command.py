"""``tailscope runs import``: results of others as run directories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.options import (
    STANDARD,
    AboutFile,
    Exact,
    JsonFile,
    Labelled,
    NamedBy,
    Verbose,
    argument,
    labels,
    option,
    write_json,
)
from tailscope.cli.terminal import tell
from tailscope.exceptions import CaptureError, TailscopeError, UsageError, said
from tailscope.paths import hint_of
from tailscope.units import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope.cli.view import View
    from tailscope.extra.imports.find import Found
    from tailscope.store.about import Labels
    from tailscope.store.run import Run

EXAMPLE = "tailscope runs import latency.hgrm --unit us --out runs/theirs"


def command(
    path: Annotated[
        Path,
        argument(
            "FILE | DIR",
            "Tables of the papers' authors; a log or percentile output of HdrHistogram or wrk2;"
            " a histogram of MoonGen, cyclictest, rtla; sockperf's full log; JSON of irtt, TRex,"
            " iperf3 or cyclictest; one latency a line; or a folder with such files, such as the"
            " results of pos with their loop variables.",
        ),
    ],
    out: Annotated[
        Path,
        option(
            "--out -o",
            "RUN_DIR",
            "Write a run directory; of several runs, one for each in this folder.",
        ),
    ],
    unit: Annotated[
        str | None,
        option(
            "--unit", "UNIT", "Unit of the values, where a file does not say it: ns, us, ms or s."
        ),
    ] = None,
    about: AboutFile = None,
    define: Labelled = None,
    name_pattern: NamedBy = None,
    json_file: JsonFile = None,
    exact: Exact = False,
    verbose: Verbose = False,
) -> int:
    """Anything that cannot be concluded from such a file is refused by name, and never guessed."""
    from tailscope.cli.view import View
    from tailscope.extra.imports.foreign import UNITS

    if unit is not None and unit not in UNITS:
        raise UsageError(
            f"--unit: got {unit!r}, expected one of {', '.join(UNITS)}",
            code="unit",
            hint=did_you_mean(unit, UNITS),
        )
    said = labels(about, define, name_pattern)
    return _run(ImportRequest(path, out, unit, said, json_file, View(exact, verbose)))


@dataclass(frozen=True)
class ImportRequest:
    """A request: the files to import, and the place for runs."""

    path: Path
    out: Path
    unit: str | None
    labels: Labels | None
    json_file: str | None
    view: View


def _run(plan: ImportRequest) -> int:
    from tailscope.extra.imports.find import find

    found = find(plan.path, plan.unit)
    for path in found.unread:
        tell("warning", f"not imported: {path}")
    for path in found.counters:
        tell(
            "hint",
            "counters say what delays go along with, where every packet is known:"
            f" tailscope explain RUN --interrupts {path}",
        )
    everything: list[dict[str, object]] = []
    failed = 0
    for name, folder, result in _imported(plan, found):
        if isinstance(result, Exception):
            failed += 1
            everything.append({"run": name, "error": said(result)})
            code = getattr(result, "code", "system")
            tell("error", f"{said(result)} [{code}]")
            if hint := hint_of(result):
                tell("hint", hint)
            continue
        everything.append({"run": name, **result.summary, "warnings": list(result.warnings)})
        if plan.json_file != STANDARD:
            _print(plan, name, folder, result)
    if plan.json_file is not None:
        write_json(plan.json_file, everything)
    return 1 if failed else 0


def _imported(plan: ImportRequest, found: Found) -> Iterator[tuple[str, Path, Run | Exception]]:
    """The name and the directory of each run, and the run or why there is none."""
    from tailscope.extra.imports.write import write_import

    is_folder = plan.path.is_dir()
    for source in found.sources:
        below = source.path.relative_to(plan.path) if is_folder else Path()
        try:
            runs = source.read()
        except (TailscopeError, OSError) as error:
            yield str(below), plan.out, error
            continue
        is_alone = not is_folder and len(runs) == 1
        for run in runs:
            folder = plan.out if is_alone else plan.out / below / run.name
            try:
                _check_name(source.path, run.name)
                said = found.loops.labels(plan.labels, source.path, run.name)
                about = None if said is None else said.of(source.path / run.name, run.name)
                yield str(below / run.name), folder, write_import(run, about, folder)
            except (TailscopeError, OSError) as error:
                yield str(below / run.name), folder, error


def _check_name(path: Path, name: str) -> None:
    """See that a name, which may come from the file, is one of a folder."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise CaptureError(
            f"{path}: expected a name that a folder may have, got {name!r}", code="run-name"
        )


def _print(plan: ImportRequest, name: str, folder: Path, run: Run) -> None:
    from tailscope.cli.figures import one_line, print_table

    if folder == plan.out:
        print_table(run, run.info, [folder], plan.view)
    else:
        plan.view.say(one_line(name, run))
