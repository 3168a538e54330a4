"""The line that adds what a machine lacks: errors and ``tailscope doctor`` print the same one."""

from __future__ import annotations

_PAGE = "docs/security.md"
_OTHER_KERNEL = "boot a distribution's kernel"

BUILD = "run `make setup`"
DATAPLANE = f"install DPDK (Debian, Ubuntu: apt install libdpdk-dev), then {BUILD}"
GUESTS = "run `make setup-vm`"
KVM = "load kvm_intel or kvm_amd, and join the group kvm"
OVS_WITH_DPDK = "install one with DPDK (Debian, Ubuntu: apt install openvswitch-switch-dpdk)"
SURICATA_WITH_DPDK = "`make setup-suricata` installs one with DPDK"
SURICATA_RULES = "`suricata-update` downloads rules"
SNORT = "`make setup-snort SNORT=DIR` builds one from the sources of snort3 and libdaq in DIR"
TUN = "load the kernel's module: modprobe tun"
RUNTIME = "install one (Debian, Ubuntu: apt install crun runc)"
LIBRARIES = "install it (Debian, Ubuntu: apt install libstdc++6 has what NumPy needs)"
SUDO = "run it with sudo"
NAMES = f"in a user namespace, mount a tmpfs on /run ({_PAGE})"
NETWORK = f"start it with `unshare --net`, too ({_PAGE})"
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
    return f"pip install 'tailscope[{name}]'"


def capabilities() -> str:
    """Return the line that gives a process the capabilities that it lacks."""
    return f"run as root, or with these capabilities ({_PAGE})"
