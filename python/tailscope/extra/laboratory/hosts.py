"""The section `hosts` of an experiment, which describes the machines of a laboratory."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from tailscope.exceptions import UsageError
from tailscope.experiment.campaign.spec import Name
from tailscope.experiment.campaign.typed import WrongError
from tailscope.extra.laboratory.functions import FunctionDriver
from tailscope.units import positive_duration_ns

_KERNEL = r"^(default|(vanilla|rt|nohz)(-[A-Za-z0-9.+~_-]+)?)$(?!\n)"


class Host(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A machine with a role."""

    ssh: Annotated[
        str | None,
        Meta(
            description="USER@ADDRESS or a name from your ssh configuration; this machine by"
            " default."
        ),
    ] = None
    port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)] | None, Meta(description="Port of its sshd.")
    ] = None
    cards: Annotated[
        list[str],
        Meta(
            min_length=2,
            max_length=2,
            description="Two network cards: PCI addresses for DPDK, or links of the kernel. Of the"
            " load generator: sending, receiving; of the device: receiving, sending; of the"
            " timestamper: what goes to the device, and what comes from it.",
        ),
    ]
    command: Annotated[str, Meta(description="Command that starts tailscope on that machine.")] = (
        "tailscope"
    )
    cpus: Annotated[
        str | int | None,
        Meta(
            description="CPUs to poll on, such as '2,3': one, or for the device as many as it"
            " polls on.",
            extra={"expected": "a list of CPUs such as 1,3-5"},
        ),
    ] = None


class Boot(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The way to reboot the machine, once each time, so that a power cycle boots as before."""

    how: Annotated[
        Literal["grub", "systemd-boot", "kexec", "command"],
        Meta(
            description="grub, systemd-boot or kexec on the machine, as root; or a command of"
            " yours on this one."
        ),
    ]
    kernels: Annotated[
        dict[
            Annotated[
                str,
                Meta(
                    pattern=_KERNEL,
                    extra={"expected": "default, vanilla, rt, nohz, or a name such as rt-6.12"},
                ),
            ],
            Name,
        ],
        Meta(
            description="Release (as `uname -r` prints it) of each kernel that cells name, such as"
            " rt or rt-6.12; default is for cells that name parameters, but no kernel. nohz is"
            " vanilla by default. Required, except with command.",
            extra_json_schema={"propertyNames": {"pattern": _KERNEL}},
        ),
    ] = field(default_factory=dict)
    command: Annotated[
        Annotated[list[str], Meta(min_length=1)] | None,
        Meta(
            description="Command that reboots the machine, run on this one without a shell. It is"
            " given the kernel's release or name (default for the machine's own boot), then each"
            " parameter."
        ),
    ] = None
    wait: Annotated[str, Meta(description="Time limit for the machine to come back.")] = "600s"
    power_cycle: Annotated[
        Annotated[list[str], Meta(min_length=1)] | None,
        Meta(
            description="Command that switches a machine off and on if it does not come back, such"
            " as ipmitool's; run on this one without a shell."
        ),
    ] = None

    def __post_init__(self) -> None:
        """Check the time limit, and that there is a command exactly with how: command."""
        try:
            positive_duration_ns(self.wait, "wait")
        except UsageError:
            message = f"got {self.wait!r}, expected a time such as 600s"
            raise WrongError(["wait"], message) from None
        if (self.how == "command") != (self.command is not None):
            got = "no command" if self.command is None else "a command"
            expected = "expected command with how: command, and only then"
            raise WrongError([], f"got {got} with how: {self.how}, {expected}")


class Dut(Host, frozen=True, kw_only=True):
    """The machine of the device."""

    boot: Annotated[
        Boot | None,
        Meta(
            description="How to boot the kernels and parameters of cells; it is never rebooted by"
            " default."
        ),
    ] = None
    vfs: Annotated[
        FunctionDriver | dict[Literal["bare", "lxc", "podman", "vm"], FunctionDriver] | None,
        Meta(
            description="Make a virtual function (SR-IOV) of each card, and use it in place of the"
            " card: as a link of the kernel, or by vfio-pci for DPDK and guests. They are removed"
            " afterwards. By platform, such as {vm: vfio-pci}, cells of other platforms have the"
            " cards themselves: those named by PCI address are handed to vfio-pci for the run."
        ),
    ] = None

    def functions(self, platform: str) -> FunctionDriver | None:
        """Return the driver of virtual functions on a platform; None if it has the cards."""
        if not isinstance(self.vfs, dict):
            return self.vfs
        return next((driver for name, driver in self.vfs.items() if name == platform), None)


class Timestamper(Host, frozen=True, kw_only=True):
    """The machine that records the traffic, by TAPs."""

    method: Annotated[
        Literal["auto", "socket", "tcpdump", "stamp"],
        Meta(
            description="Program that records frames: tailscope-dp socket or tcpdump (links), or"
            " tailscope-dp stamp (PCI addresses)."
        ),
    ] = "auto"


class Hosts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A laboratory of up to three machines."""

    loadgen: Host
    dut: Dut
    timestamper: Timestamper

    def record(self) -> dict[str, object]:
        """Return the record for `campaign.json`.

        The way to boot changes no figure, and may change until ``--resume``.
        """
        return {
            role: {
                name: value
                for name, value in asdict(host).items()
                if value is not None and name != "boot"
            }
            for role, host in asdict(self).items()
        }


SECTION = Annotated[
    Hosts | None, Meta(description="Machines of a laboratory; this machine by default.")
]
