"""``tailscope compare baseline``: runs against a file of earlier ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tailscope.cli.options import Exact, FailOn, JsonFile, JunitFile, Single, Verbose, argument
from tailscope.cli.view import View
from tailscope.exceptions import UsageError

EXAMPLE = "tailscope compare baseline baseline.json runs/3"


def command(
    baseline: Annotated[Path, argument("FILE", "File that `tailscope compare save` wrote.")],
    runs: Annotated[
        list[Path], argument("RUN...", "Runs, or folders of runs, that repeat each other.")
    ],
    fail_on: FailOn = None,
    single: Single = False,
    json_file: JsonFile = None,
    junit_file: JunitFile = None,
    exact: Exact = False,
    verbose: Verbose = False,
) -> int:
    """Exit status 2: a limit of --fail-on is exceeded; 3: there is not enough evidence.

    That includes runs of another machine, kernel, wire or rate than the baseline's.
    """
    from tailscope.cli.compare.repeats import named, repeated
    from tailscope.cli.compared import Compared
    from tailscope.compare.baseline import compare_with, read_baseline
    from tailscope.compare.limits import judge, parse_limits

    limits = parse_limits(fail_on or ())
    for option, is_given in (("--junit", junit_file is not None), ("--single", single)):
        if is_given and not limits:
            raise UsageError(f"{option} requires --fail-on", code="requires-fail-on")
    record = read_baseline(baseline)
    comparison, error = compare_with(record, baseline, repeated(runs), named(runs), limits)
    judged = [judge(limit, comparison, error, single=single) for limit in limits]
    compared = Compared([(comparison, judged)], (), limits, len(comparison.findings))
    return compared.tell("compare baseline", json_file, junit_file, View(exact, verbose))
