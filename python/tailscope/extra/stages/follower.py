"""The program of the data plane that follows the packets of a flow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tailscope.registry import service
from tailscope.signals import patient
from tailscope.store.records.messages import FlowResult
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import Here
from tailscope.testbed.recording import RecordingProgram
from tailscope.testbed.rights import Capability
from tailscope.testbed.stage_recorder import check_stages

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_S = 0.05
_FRAMES = "RAW"
"""libpcap's name of packets that begin with their header of IP, as they are in the stack."""


def compiled_flow(expression: str) -> str:
    """Compile the filter of a flow."""
    program: str = service("packet_filter", "--flow")(expression, option="--flow", frames=_FRAMES)
    return program


def check_rights() -> None:
    """Check that this process may follow packets on this machine."""
    check_stages(
        "stages",
        (Capability.BPF, Capability.PERFMON, Capability.SYS_ADMIN),
        otherwise="run it as root; `tailscope tap` needs less, and sees a device from outside",
    )


def followed(program: str, lasts_s: float | None, begun: Callable[[], None]) -> FlowResult:
    """Follow what a filter accepts until the time is over or somebody ends it.

    `begun` is called when the kernel is watched.
    """
    with (
        RunFolder() as folder,
        patient(lambda: None) as patience,
        RecordingProgram(
            "flow", "flow", [f"--filter={program}"], FlowResult, place=Here(folder.path)
        ) as follower,
    ):
        begun()
        end_s = None if lasts_s is None else time.monotonic() + lasts_s
        while follower.process.is_running and not patience.asked:
            left_s = _LOOK_S if end_s is None else end_s - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(_LOOK_S, left_s))
        return follower.finish()
