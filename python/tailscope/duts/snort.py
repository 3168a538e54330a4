"""The device ``snort``: Snort 3 as an inline network function, as in noms2020."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.duts.dut import Dut, DutContext, Running, as_it_is, one_of
from tailscope.duts.kernel import LinkCounters
from tailscope.duts.program import RunningProgram, wait_for
from tailscope.duts.ruleset import checksum
from tailscope.exceptions import TestbedError, UsageError
from tailscope.host import remedies
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.store.records.dataplane import SnortCounts

_READY_S = 600.0
"""Timeout in seconds: rules are compiled first."""
_OTHERWISE = "measure --dut suricata"
_PID_FILE = "snort.pid"
"""File of its process number, which Snort writes when it has read its rules."""
_OUTPUT = "snort.txt"
_SERVERS = ("DNS", "FTP", "HTTP", "SIP", "SMTP", "SQL", "SSH", "TELNET", "AIM")
_PORTS = ("FTP", "HTTP", "MAIL", "ORACLE", "SIP", "SSH", "FILE_DATA")
_ANY = {
    "nets": dict.fromkeys(
        ("HOME_NET", "EXTERNAL_NET", *(f"{name}_SERVERS" for name in _SERVERS)), "any"
    ),
    "ports": dict.fromkeys((f"{name}_PORTS" for name in _PORTS), "any"),
}
"""Variables that rules of others use: addresses and ports of a measurement are nobody's."""
_PASSED = ("allow", "replace", "whitelist", "ignore")
"""Verdicts by which a packet is forwarded."""


def _rules(_name: str, value: str) -> str | Path:
    return value if value == "none" else Path(value).resolve()


def _packets(name: str, value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= 1024:
        raise UsageError(
            f"--dut-option {name}: got {value!r}, expected 1 to 1024 packets", code="dut-option"
        )
    return int(value)


class Snort(Dut):
    """Snort 3, inline, on its packet module for DPDK or AF_PACKET."""

    name = "snort"
    about = "Snort 3 inline: forwards, or filters by rules"
    options = {  # noqa: RUF012
        "rules": _rules,
        "batch": _packets,
        "mode": one_of("dpdk", "afpacket"),
        "daq-dir": as_it_is,
    }
    programs = {"snort": "snort3, from source"}  # noqa: RUF012

    @property
    def uses_dpdk(self) -> bool:
        """Return True if the packet module is that for DPDK."""
        return self._mode == "dpdk"

    def guest_files(self) -> tuple[Path, ...]:
        """Return the folder of packet modules, and the rules."""
        return (*map(Path, self._folders), *self._rule_files)

    def check(self) -> None:
        """Check that Snort and the rule file exist."""
        if which("snort") is None:
            raise TestbedError(
                "dut snort: no program snort",
                code="no-program",
                remedy=remedies.SNORT,
                hint=_OTHERWISE,
            )
        for rules in self._rule_files:
            if not rules.is_file():
                raise TestbedError(f"dut snort: no rule file {rules}", code="no-rules")

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Write a configuration, start Snort, and wait until it processes packets."""
        output = context.place.run(["snort", "-V"])
        version = re.search(r"Version (\S+)", output)
        if version is None or not version[1].startswith("3."):
            raise TestbedError(
                f"dut snort: expected version 3, got {version[1] if version else output!r}",
                code="snort-version",
                remedy=remedies.SNORT,
                hint=_OTHERWISE,
            )
        self._check_module(context)
        configuration = self.configuration(context.side.eal, context.working)
        path = context.place.write("snort.lua", configuration)
        folder = str(context.place.folder)
        # Its errors come apart from its buffered output, which would bury them at the end. A third
        # output shows that it runs.
        command = ["sh", "-c", 'exec snort "$@" 3>&1 >"$0"', f"{folder}/{_OUTPUT}"]
        command += ["-c", str(path), "-Q", "-i", ":".join(self._inputs(context))]
        command += ["-l", folder, "-z", "1", "--create-pidfile"]
        counters = None if self.uses_dpdk else LinkCounters(context)
        with context.place.start("dut", command, cpus=context.allowed, urgent=True) as process:
            ready = partial(_is_ready, context)
            wait_for("snort", process, ready, timeout_s=_READY_S, waits_for="its packet sockets")
            yield RunningProgram(
                "snort",
                process,
                version=f"Snort {version[1]}",
                configuration=configuration,
                counts=lambda: _counts(context.place.read(_OUTPUT) or "", counters),
                rules_sha256=checksum(self._rule_files),
            )

    def configuration(self, eal: Sequence[str], cpus: Sequence[int]) -> str:
        """Return the smallest configuration that forwards."""
        variables = [f"dpdk_args={' '.join(eal)}"] if self.uses_dpdk else []
        module = {"name": self._mode, "mode": "inline", "variables": variables}
        batch = (
            {"batch_size": _packets("batch", self.given["batch"])} if "batch" in self.given else {}
        )
        rules = [{"variables": _ANY, "include": str(path)} for path in self._rule_files]
        parts = {
            "daq": {"module_dirs": self._folders, "modules": [module], **batch},
            "process": {"threads": [{"thread": 0, "cpuset": ",".join(map(str, cpus))}]},
            "ips": rules[0] if rules else {},
        }
        tables = [f"{name} = {_lua(value)}" for name, value in parts.items()]
        return "\n".join(["stream = { }", "stream_udp = { }", *tables]) + "\n"

    @property
    def _rule_files(self) -> list[Path]:
        rules = _rules("rules", self.given.get("rules", "none"))
        return [rules] if isinstance(rules, Path) else []

    @property
    def _folders(self) -> list[str]:
        """Folder of packet modules: the given one, or the one that was built with the program."""
        if "daq-dir" in self.given:
            return [self.given["daq-dir"]]
        program = which("snort")
        built = None if program is None else program.resolve().parents[1] / "lib" / "daq"
        return [str(built)] if built is not None and built.is_dir() else []

    @property
    def _mode(self) -> str:
        return self.given.get("mode", "afpacket" if self.wire == "veth" else "dpdk")

    def _inputs(self, context: DutContext) -> Sequence[str]:
        return ["dpdk0", "dpdk1"] if self.uses_dpdk else context.side.links

    def _check_module(self, context: DutContext) -> None:
        where = [word for folder in self._folders for word in ("--daq-dir", folder)]
        listed = context.place.run(["snort", *where, "--daq-list"])
        modules = re.findall(r"^(\w+)\(v\d+\)", listed, re.M)
        if self._mode not in modules:
            raise TestbedError(
                f"dut snort: no packet module {self._mode}, expected one of {', '.join(modules)}",
                code="snort-module",
                hint="build it for libdaq, and name its folder: --dut-option daq-dir=DIR",
            )


def _lua(value: object) -> str:
    """Format a value for Lua."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_lua(part)}" for name, part in value.items()) + " }"
    if isinstance(value, list):
        return "{ " + ", ".join(map(_lua, value)) + " }"
    if isinstance(value, int):
        return str(value)
    escaped = str(value).replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def _is_ready(context: DutContext) -> bool:
    """Return True if Snort has read its rules, and its packet sockets receive on all links.

    What it prints says nothing: it is buffered until Snort ends, and "Commencing packet
    processing" precedes the sockets. By DPDK there are none; the wire shows whether its ports are
    up.
    """
    number = context.place.read(_PID_FILE)
    if not number or not context.side.links:
        return bool(number)
    try:
        files = context.place.run(["ls", "-l", f"/proc/{number.strip()}/fd"])
        table = context.place.run(["cat", "/proc/net/packet"])
    except TestbedError:
        return False
    own = set(re.findall(r"socket:\[(\d+)\]", files))
    rows = map(str.split, table.splitlines()[1:])
    receiving = {link for *_, link, running, _, _, inode in rows if inode in own and running == "1"}
    return len(receiving) == len(context.side.links)


def _counts(log: str, counters: LinkCounters | None) -> SnortCounts | None:
    """Read what Snort counted and printed at its end; None if it printed nothing."""
    from tailscope.store.records.dataplane import SnortCounts

    _, found, printed = log.partition("\ndaq\n")
    if not found:
        return None
    section = printed.partition("\n---")[0]
    counted = {
        name: int(count.replace(",", ""))
        for name, count in re.findall(r"^ *(\w+): ([\d,]+)", section, re.M)
    }
    return SnortCounts(
        received=counted.get("received", 0),
        overflows=counted.get("dropped", 0),
        accepted=sum(counted.get(name, 0) for name in _PASSED),
        dropped=counted.get("block", 0),
        dropped_by_flow=counted.get("blacklist", 0),
        links={} if counters is None else counters.since(),
    )
