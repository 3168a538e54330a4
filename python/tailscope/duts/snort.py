"""The device ``snort``: Snort 3 as an inline network function, as in noms2020."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.duts.dut import Dut, DutContext, Running, as_it_is, one_of
from tailscope.duts.program import RunningProgram, wait_for
from tailscope.duts.ruleset import checksum
from tailscope.exceptions import TestbedError, UsageError
from tailscope.host import remedies
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.store.records.dataplane import SnortCounts

_READY_S = 120.0
_OTHERWISE = "measure --dut suricata"


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
        folders = [Path(self.given["daq-dir"])] if "daq-dir" in self.given else []
        rules = self._rules
        return (*folders, *([rules] if isinstance(rules, Path) else []))

    def check(self) -> None:
        """Check that Snort and the rule file exist."""
        if which("snort") is None:
            raise TestbedError(
                "dut snort: no program snort",
                code="no-program",
                remedy=remedies.SNORT,
                hint=_OTHERWISE,
            )
        rules = self._rules
        if isinstance(rules, Path) and not rules.is_file():
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
        command = ["snort", "-c", str(path), "-Q", "-i", ":".join(self._inputs(context))]
        command += ["-l", str(context.place.folder), "-z", "1"]
        with context.place.start(
            "dut", command, cpus=context.allowed, merged=True, urgent=True
        ) as process:
            wait_for("snort", process, r"Commencing packet processing", timeout_s=_READY_S)
            yield RunningProgram(
                "snort",
                process,
                version=f"Snort {version[1]}",
                configuration=configuration,
                counts=lambda: _counts(context.place.read("dut.log")),
                rules_sha256=checksum([rules] if isinstance(rules := self._rules, Path) else []),
            )

    def configuration(self, eal: Sequence[str], cpus: Sequence[int]) -> str:
        """Return the smallest configuration that forwards."""
        rules = self._rules
        variables = [f"dpdk_args={' '.join(eal)}"] if self.uses_dpdk else ["use_tx_ring"]
        module = {"name": self._mode, "mode": "inline", "variables": variables}
        folders = [self.given["daq-dir"]] if "daq-dir" in self.given else []
        batch = (
            {"batch_size": _packets("batch", self.given["batch"])} if "batch" in self.given else {}
        )
        parts = {
            "daq": {"module_dirs": folders, "modules": [module], **batch},
            "process": {"threads": [{"thread": 0, "cpuset": ",".join(map(str, cpus))}]},
            "ips": {} if rules == "none" else {"include": str(rules)},
        }
        tables = [f"{name} = {_lua(value)}" for name, value in parts.items()]
        return "\n".join(["stream = { }", "stream_udp = { }", *tables]) + "\n"

    @property
    def _rules(self) -> str | Path:
        return _rules("rules", self.given.get("rules", "none"))

    @property
    def _mode(self) -> str:
        return self.given.get("mode", "afpacket" if self.wire == "veth" else "dpdk")

    def _inputs(self, context: DutContext) -> Sequence[str]:
        return ["dpdk0", "dpdk1"] if self.uses_dpdk else context.side.links

    def _check_module(self, context: DutContext) -> None:
        where = ["--daq-dir", self.given["daq-dir"]] if "daq-dir" in self.given else []
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


def _counts(log: str | None) -> SnortCounts | None:
    """Read the verdicts that Snort printed at its end; None if there are none."""
    from tailscope.store.records.dataplane import SnortCounts

    names = {"block": "dropped", "blacklist": "dropped_by_flow", "allow": "accepted"}
    counts = {
        field: int(match[1].replace(",", ""))
        for name, field in names.items()
        if (match := re.search(rf"^\s*{name}: ([\d,]+)", log or "", re.M))
    }
    return SnortCounts(**counts) if counts else None
