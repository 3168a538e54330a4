"""``tailscope reflect``: answer another host that measures the path to this one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from tailscope.cli.options import option
from tailscope.cli.panels import MEASUREMENT, TRAFFIC
from tailscope.cli.terminal import say
from tailscope.units import count_text, counted, duration_text

EXAMPLE = "tailscope reflect --allow 192.0.2.0/24"


def command(
    port: Annotated[
        int,
        option(
            "--port",
            "PORT",
            "UDP port to listen at; 0 takes a free one.",
            TRAFFIC,
            min=0,
            max=65535,
        ),
    ] = 862,
    address: Annotated[
        str | None,
        option("--address", "ADDRESS", "Address to listen at.  [default: all]", TRAFFIC),
    ] = None,
    allow: Annotated[
        list[str] | None,
        option(
            "--allow",
            "PREFIX",
            "Sources to answer, such as 192.0.2.0/24; repeatable.  [default: private networks]",
            TRAFFIC,
        ),
    ] = None,
    rate_limit: Annotated[
        str,
        option("--rate-limit", "PPS", "Packets per second that each source is answered.", TRAFFIC),
    ] = "100k",
    key_file: Annotated[
        Path | None,
        option(
            "--key-file",
            "FILE",
            "File with a key: only packets that are sealed by it are answered.  [default: none]",
            TRAFFIC,
        ),
    ] = None,
    card: Annotated[
        str | None,
        option(
            "--card",
            "LINK",
            "Link whose card takes the times of packets (hardware timestamps).  [default: the"
            " kernel takes them]",
            MEASUREMENT,
        ),
    ] = None,
    poll: Annotated[
        str,
        option("--poll", "HOW", "How to wait for packets: sleep, or busy (a CPU).", MEASUREMENT),
    ] = "sleep",
) -> int:
    """Ctrl-C ends it.

    It speaks STAMP (RFC 8762) and TWAMP light, never answers with more bytes than came, and gives
    up root once it listens.
    """
    from tailscope.extra.hosts.cards import stamping
    from tailscope.extra.hosts.ends import Reflector, become_nobody, check_poll
    from tailscope.signals import patient
    from tailscope.testbed.folder import RunFolder
    from tailscope.testbed.places import Here
    from tailscope.units import rate_pps

    check_poll(poll)
    options = [f"--port={port}", f"--poll={poll}"]
    options.append(f"--rate-pps={rate_pps(rate_limit, '--rate-limit')}")
    options += [f"--address={address}"] if address else []
    options += [f"--key-file={key_file}"] if key_file else []
    options += [f"--card={card}"] if card else []
    options += [f"--allow={','.join(allow)}"] if allow else []
    with (
        # Nobody can remove it where everybody has files.
        RunFolder(on_disk=True) as folder,
        stamping(card),
        patient(lambda: None) as patience,
        Reflector(options, place=Here(folder.path)) as reflector,
    ):
        # A card has its setting back at the end, which only root gives it.
        if card is None:
            become_nobody([folder.path, *folder.path.iterdir()])
        say(f"answering at port {reflector.ready.udp_port}; Ctrl-C ends it", stream=sys.stderr)
        counts = reflector.follow(lambda: patience.asked).reflect
    print(
        f"{counted(counts.answered, 'answer')} to {counted(counts.received, 'packet')} in"
        f" {counted(counts.sessions, 'session')}"
    )
    refused = {
        "from addresses that are not allowed": counts.refused_source,
        "from ports of services": counts.refused_port,
        "beyond --rate-limit": counts.refused_rate,
        "not sealed by the key": counts.refused_key,
        "no query": counts.malformed,
        "answers that the system did not take": counts.unsent,
        "lost in the socket": counts.dropped,
    }
    for what, number in refused.items():
        if number:
            print(f"  {count_text(number)} {what}")
    for stalls in counts.stalls:
        longest = duration_text(stalls.stall_ns_max)
        print(f"  {counted(stalls.count, 'stall')}, {stalls.cause}: the longest took {longest}")
    return 0
