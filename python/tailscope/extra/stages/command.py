"""``tailscope stages``: where the packets of a flow spend their time in the kernel."""

from __future__ import annotations

import sys
from typing import Annotated

from tailscope.cli.options import STANDARD, DryRun, JsonFile, Quiet, option, write_json
from tailscope.cli.panels import MEASUREMENT, TRAFFIC
from tailscope.cli.status import UNDECIDED
from tailscope.cli.terminal import say, tell
from tailscope.units import positive_duration_ns

EXAMPLE = "tailscope stages --flow 'udp port 443' --duration 30s"


def command(
    flow: Annotated[
        str,
        option(
            "--flow",
            "EXPR",
            "Packets to follow, as tcpdump selects them by headers of IP and above.",
            TRAFFIC,
        ),
    ],
    lasts: Annotated[
        str | None,
        option(
            "--duration --for",
            "DURATION",
            "End after so long.  [default: Ctrl-C ends it]",
            MEASUREMENT,
        ),
    ] = None,
    json_file: JsonFile = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> int:
    """Exit status 3: no packet of the flow was seen.

    Packets are followed in all network namespaces of this machine, from the driver to recvmsg, and
    from the queue of a link to its driver.
    """
    from tailscope.extra.stages.follower import check_rights, compiled_flow, followed
    from tailscope.extra.stages.words import print_flow

    lasts_s = None if lasts is None else positive_duration_ns(lasts, "--duration") / 1e9
    program = compiled_flow(flow)
    if dry_run:
        print(f"{'flow':<15}{flow}")
        print(f"{'duration':<15}{'until Ctrl-C' if lasts_s is None else f'{lasts_s:g} s'}")
        return 0
    check_rights()

    def begun() -> None:
        if not quiet:
            say("following packets; Ctrl-C ends it", stream=sys.stderr)

    result = followed(program, lasts_s, begun)
    write_json(
        json_file, {"filter": flow, "flow": result.flow, "xdp": result.xdp, "cost": result.cost}
    )
    if json_file != STANDARD:
        print_flow(result)
    if not (result.flow.ways or result.flow.drops):
        tell("warning", f"no packet of {flow!r} was followed to its end")
        return UNDECIDED
    return 0
