"""``tailscope host export``: settings for the tool that keeps them."""

from __future__ import annotations

import sys
from typing import Annotated

from tailscope.cli.options import CpusToFree, option

EXAMPLE = "tailscope host export --cpus 1 --format grub"


def command(
    cpus: CpusToFree,
    format_name: Annotated[str, option("--format", "NAME", "cmdline, grub, tuned or ansible.")],
) -> int:
    from tailscope.host.audit import cpus_to_keep_free
    from tailscope.host.export import export
    from tailscope.host.machine import Machine

    machine = Machine()
    sys.stdout.write(export(machine, cpus_to_keep_free(machine, cpus), format_name))
    return 0
