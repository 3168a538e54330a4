"""``tailscope init``: a gate for a program of yours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from tailscope.cli.options import DryRun, argument, option
from tailscope.cli.terminal import say
from tailscope.exceptions import UsageError
from tailscope.units import printable

EXAMPLE = "tailscope init . --run './forward {eal}' --ready forwarding"

_LEVELS = ("p99<1ms", "loss<1e-3")


def command(
    project: Annotated[Path, argument("FOLDER", "The project that gets the files.")] = Path(),
    *,
    run: Annotated[
        str,
        option(
            "--run",
            "COMMAND",
            "The program: '{eal}' stands for DPDK's options for its ports, '{link0}' and"
            " '{link1}' for links of the kernel.",
        ),
    ],
    ready: Annotated[
        str | None, option("--ready", "PATTERN", "What it prints once it takes packets.")
    ] = None,
    ready_command: Annotated[
        str | None,
        option("--ready-command", "COMMAND", "A command that succeeds once it takes packets."),
    ] = None,
    slo: Annotated[
        list[str] | None,
        option(
            "--slo",
            "LEVEL",
            "The service level, as for `verify`; repeatable: all must be met."
            f"  [default: {', '.join(_LEVELS)}]",
        ),
    ] = None,
    ci: Annotated[
        Literal["github", "gitlab"], option("--ci", "NAME", "Where the job runs: github or gitlab.")
    ] = "github",
    dry_run: DryRun = False,
) -> int:
    """The gate has an experiment, a script that measures and judges, a job for CI, and a README."""
    from tailscope.duts.catalogue import dut_named
    from tailscope.extra.starter.files import FOLDER, Starter, write
    from tailscope.verdict.slo import parse_level

    if (ready is None) == (ready_command is None):
        raise UsageError(
            "--ready, --ready-command: expected one of them",
            code="no-probe",
            hint="such as --ready forwarding: a text that the program prints once it forwards",
        )
    if not any(word in run for word in ("{eal}", "{link")):
        raise UsageError(
            f"--run: got {run!r}, expected {{eal}} or {{links}} in it, by which it gets its ports",
            code="no-ports",
            hint=f"such as --run '{run} {{eal}}' for a program of DPDK, or '{run} {{links}}'",
        )
    options = {"run": run}
    if ready is not None:
        options["ready"] = ready
    if ready_command is not None:
        options["ready-command"] = ready_command
    wire = "memif" if "{eal}" in run else "veth"
    dut_named("command", options, wire)
    text = ", ".join(slo or _LEVELS)
    parse_level(text)
    levels = [part.replace(" ", "") for part in text.split(",")]
    fields = {
        "dut": "command",
        "dut_options": options,
        "wire": wire,
        "rate": "10k",
        "duration": "30s",
        "warm_up": "2s",
    }
    files = Starter(fields, levels, ci).files()
    if not dry_run:
        write(project, files)
    for path in files:
        say(str(project / path))
    if not dry_run:
        print(f"\nnext: see {printable(str(project / FOLDER / 'README.md'))}")
    return 0
