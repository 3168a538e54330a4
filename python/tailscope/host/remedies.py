"""The line that adds what a machine lacks: errors and ``tailscope doctor`` print the same one."""

from __future__ import annotations

from pathlib import Path

_IS_CHECKOUT = (Path(__file__).parents[3] / "pyproject.toml").is_file()
_IN_REPOSITORY = "" if _IS_CHECKOUT else "in the project's repository: "
"""Where targets of make are: a wheel has none."""
_OTHER_KERNEL = "boot a distribution's kernel"

BUILD = "run `make setup`" if _IS_CHECKOUT else "install a wheel of tailscope with a data plane"
DATAPLANE = (
    f"install DPDK (Debian, Ubuntu: apt install libdpdk-dev), then {BUILD}"
    if _IS_CHECKOUT
    else BUILD
)
GUESTS = f"{_IN_REPOSITORY}run `make setup-vm`"
KVM = "load kvm_intel or kvm_amd, and join the group kvm"
OVS_WITH_DPDK = "install one with DPDK (Debian, Ubuntu: apt install openvswitch-switch-dpdk)"
SURICATA_WITH_DPDK = f"{_IN_REPOSITORY}`make setup-suricata` installs one with DPDK"
SURICATA_RULES = "`suricata-update` downloads rules"
SNORT = (
    f"{_IN_REPOSITORY}`make setup-snort SNORT=DIR` builds one from the sources of snort3 and libdaq"
    " in DIR"
)
TUN = "load the kernel's module: modprobe tun"
RUNTIME = "install one (Debian, Ubuntu: apt install crun runc)"
LIBRARIES = "install it (Debian, Ubuntu: apt install libstdc++6 has what NumPy needs)"
SUDO = "run it with sudo"
NAMES = "in a user namespace, run `mount -t tmpfs tmpfs /run` first"
NETWORK = "start it with `unshare --net`, too"
TRACING = f"{_OTHER_KERNEL} (CONFIG_FTRACE)"
KERNEL_TYPES = f"{_OTHER_KERNEL} (CONFIG_DEBUG_INFO_BTF)"
KERNEL_OF_DEBIAN = "use --platform vm, whose kernel is Debian's and has it"
RAPL = (
    "`modprobe intel_rapl_msr`, which helps on x86-64 alone and on no virtual machine;"
    " others: `--power ipmi` or `--power 'command:CMD ARGS'`"
)
RAPL_RIGHTS = "run as root: since 2020 the kernel lets nobody else read these counters"
CARDS = "add cards: two for the generator, two for the device"
HUGEPAGES = "`sudo tailscope host apply --only hugepages --cpus LIST` reserves some"


def package(name: str) -> str:
    """Return the line that installs a package of the distribution."""
    return f"install it (Debian, Ubuntu: apt install {name})"


def pip_extra(name: str) -> str:
    """Return the line that installs an extra of the Python package."""
    return pip_install(f"'tailscope[{name}]'")


def pip_install(what: str) -> str:
    """Return the line that has pip install something."""
    return f"pip install {what}"


def capabilities() -> str:
    """Return the line that gives a process the capabilities that it lacks."""
    return "run as root, or with these capabilities (`setpriv --ambient-caps` gives them)"
