"""The device ``suricata``: Suricata as an inline network function, as in limbo2022."""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.duts.dut import Dut, DutContext, Running, one_of
from tailscope.duts.program import RunningProgram, wait_for
from tailscope.duts.ruleset import GENERATED_RULES, checksum, generated_rules, rules_to_generate
from tailscope.exceptions import TestbedError, UsageError
from tailscope.host import remedies

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.testbed.places import Place

DEFAULT_RULES = Path("/var/lib/suricata/rules/suricata.rules")
"""File of the rules that ``suricata-update`` downloads."""
EVENT_RULES = Path("/etc/suricata/rules")
"""Debian's folder of rules for events of decoders and applications."""
_FACTS = ("/etc/suricata/classification.config", "/etc/suricata/reference.config")
_QUIET_PROTOCOLS = {"modbus": 502, "dnp3": 20000, "enip": 44818}
_MOST_RULES = 1_000_000
_READY_S = 60.0
_READY_WITH_RULES_S = 600.0
"""Timeout with rules, in seconds: tens of thousands are compiled first."""
_ADDRESSES = ("HOME_NET", "EXTERNAL_NET")
_SERVERS = ("HTTP", "SMTP", "SQL", "DNS", "TELNET", "AIM", "DC", "DNP3", "MODBUS", "ENIP")
_PORTS = ("HTTP", "SHELLCODE", "ORACLE", "SSH", "DNP3", "MODBUS", "FILE_DATA", "FTP", "GENEVE")
_TUNNELS = ("VXLAN", "TEREDO")


def _rules(name: str, value: str) -> str | int | Path:
    """Read the option ``rules``: a word, the number of rules to generate, or a file."""
    count = rules_to_generate(name, value, usual=GENERATED_RULES, most=_MOST_RULES)
    if count is not None:
        return count
    if value in ("none", "events"):
        return value
    return DEFAULT_RULES if value == "default" else Path(value).resolve()


class Suricata(Dut):
    """Suricata, inline, in DPDK or AF_PACKET mode.

    Without rules it forwards; with rules it drops the packets that a ``drop`` rule matches. With
    one port, which a single worker serves, packets leave by the port of their arrival.
    """

    name = "suricata"
    about = "Suricata inline: forwards, or filters by rules"
    options = {  # noqa: RUF012
        "rules": _rules,
        "mode": one_of("dpdk", "af-packet"),
        "ports": one_of("1", "2"),
    }
    programs = {"suricata": "suricata"}  # noqa: RUF012

    @property
    def ports(self) -> int:
        """Return the number of ports: 1 if possible, as each has a worker that always polls."""
        has_two = self._mode == "af-packet" or self.wire == "pci"
        return int(self.given.get("ports", "2" if has_two else "1"))

    @property
    def cpus(self) -> int:
        """Return 1 for each polling worker; workers of AF_PACKET sleep, and share one CPU."""
        return self.ports if self.uses_dpdk else 1

    @property
    def _mode(self) -> str:
        return self.given.get("mode", "af-packet" if self.wire == "veth" else "dpdk")

    @property
    def _rules(self) -> str | int | Path:
        return _rules("rules", self.given.get("rules", "none"))

    @property
    def starts_in_s(self) -> float:
        """Return the time to start, in seconds, which grows with the rules."""
        return 3.0 + (self._rules / 1000 if isinstance(self._rules, int) else 0.0)

    @property
    def uses_dpdk(self) -> bool:
        """Return True in the mode for DPDK."""
        return self._mode == "dpdk"

    @property
    def pins_itself(self) -> bool:
        """Return True with DPDK: Suricata requires pinned workers there."""
        return self.uses_dpdk

    def guest_files(self) -> tuple[Path, ...]:
        """Return the files by which rules are classified, and the rules."""
        rules = EVENT_RULES if self._rules == "events" else self._rules
        return (*map(Path, _FACTS), *([rules] if isinstance(rules, Path) else []))

    def check(self) -> None:
        """Check that the program and the rules exist."""
        super().check()
        if self._mode == "af-packet" and self.ports == 1:
            raise UsageError(
                "dut suricata: AF_PACKET: got ports=1, expected 2", code="suricata-ports"
            )
        rules = self._rules
        if rules == DEFAULT_RULES and not rules.is_file():
            raise TestbedError(
                f"dut suricata: rules=default: no {rules}",
                code="no-rules",
                remedy=remedies.SURICATA_RULES,
                hint="name a file, rules=FILE, or let some be made, rules=generated",
            )
        if isinstance(rules, Path) and not rules.is_file():
            raise TestbedError(f"dut suricata: no rule file {rules}", code="no-rules")
        if rules == "events" and not any(EVENT_RULES.glob("*.rules")):
            raise TestbedError(
                f"dut suricata: no rules in {EVENT_RULES}",
                code="no-rules",
                hint="install Debian's suricata, or give --dut-option rules=FILE",
            )

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Write a configuration, start Suricata, and wait for its engine."""
        from tailscope.duts.eve import counts_of

        place = context.place
        version = _version(place, needs_dpdk=self.uses_dpdk)
        log = place.folder / "suricata"
        place.run(["mkdir", "-p", str(log)])
        files, rules_sha256 = self._rule_files(place)
        configuration = self.configuration(context, log, files)
        path = place.write("suricata.yaml", configuration)
        command = ["suricata", "-c", str(path), "-l", str(log), "--runmode", "workers"]
        command += [f"--{self._mode}", "--init-errors-fatal"]
        with place.start("dut", command, cpus=context.allowed, merged=True, urgent=True) as process:
            wait_for(
                "suricata",
                process,
                r"Engine started|engine started",
                timeout_s=_READY_WITH_RULES_S if files else _READY_S,
            )
            yield RunningProgram(
                "suricata",
                process,
                version=version,
                configuration=configuration,
                counts=lambda: counts_of(place.read("suricata/eve.json") or ""),
                rules_sha256=rules_sha256,
            )

    def configuration(self, context: DutContext, log: Path, rules: Sequence[Path]) -> str:
        """Return the smallest configuration that forwards; it logs counters alone."""
        import yaml

        content: dict[str, object] = {
            "vars": {
                "address-groups": {
                    **dict.fromkeys(_ADDRESSES, "any"),
                    **dict.fromkeys((f"{name}_SERVERS" for name in _SERVERS), "any"),
                    **{f"{name}_{end}": "any" for name in _SERVERS for end in ("SERVER", "CLIENT")},
                },
                "port-groups": dict.fromkeys(
                    (f"{name}_PORTS" for name in (*_PORTS, *_TUNNELS)), "any"
                ),
            },
            "default-log-dir": str(log),
            "stats": {"enabled": "yes", "interval": 8},
            "outputs": [
                {
                    "eve-log": {
                        "enabled": "yes",
                        "filetype": "regular",
                        "filename": "eve.json",
                        "types": [{"stats": {"totals": "yes", "threads": "no"}}],
                    }
                }
            ],
            "logging": {
                "default-log-level": "notice",
                "outputs": [{"console": {"enabled": "yes"}}],
            },
            "unix-command": {"enabled": "no"},
            "stream": {"inline": "auto"},
            "threading": {
                "set-cpu-affinity": "yes" if context.pinned else "no",
                "cpu-affinity": [
                    {"management-cpu-set": {"cpu": list(context.housekeeping)}},
                    {"worker-cpu-set": {"cpu": list(context.cpus), "mode": "exclusive"}},
                ],
            },
            # These are off by default, and Debian's rules use them.
            "app-layer": {
                "protocols": {
                    name: {"enabled": "yes", "detection-ports": {"dp": port}}
                    for name, port in _QUIET_PROTOCOLS.items()
                }
            },
            "classification-file": _FACTS[0],
            "reference-config-file": _FACTS[1],
            "default-rule-path": str(EVENT_RULES),
            "rule-files": list(map(str, rules)),
            **self._interfaces(context),
        }
        return "%YAML 1.1\n---\n" + yaml.safe_dump(content, sort_keys=False)

    def _rule_files(self, place: Place) -> tuple[list[Path], str | None]:
        """Return the rule files, as the device sees them, and their checksum."""
        rules = self._rules
        if isinstance(rules, int):
            text = generated_rules(rules)
            return [place.write("generated.rules", text)], sha256(text.encode()).hexdigest()
        if isinstance(rules, Path):
            files = [rules]
        else:
            files = sorted(EVENT_RULES.glob("*.rules")) if rules == "events" else []
        return files, checksum(files)

    def _interfaces(self, context: DutContext) -> dict[str, object]:
        if self.uses_dpdk:
            return {"dpdk": {"eal-params": _eal(context), "interfaces": self._dpdk_ports(context)}}
        first, second = context.side.links
        common = {
            "threads": 1,
            "cluster-type": "cluster_flow",
            "defrag": "no",
            "use-mmap": "yes",
            "copy-mode": "ips",
        }
        return {
            "af-packet": [
                {"interface": source, "cluster-id": 98 + at, "copy-iface": target, **common}
                for at, (source, target) in enumerate(((first, second), (second, first)))
            ]
        }

    def _dpdk_ports(self, context: DutContext) -> list[dict[str, object]]:
        devices = context.side.devices
        partners = devices if len(devices) == 1 else devices[::-1]
        common = {
            "threads": 1,
            "promisc": True,
            "multicast": False,
            "checksum-checks": False,
            "mtu": 1500,
            "mempool-size": 8191,
            "mempool-cache-size": 257,
            "rx-descriptors": 1024,
            "tx-descriptors": 1024,
            "copy-mode": "ips",
        }
        return [
            {"interface": device, "copy-iface": partner, **common}
            for device, partner in zip(devices, partners, strict=True)
        ]


def _eal(context: DutContext) -> dict[str, str | list[str | None] | None]:
    """Return DPDK's options as Suricata expects them: by name, several values as a list."""
    options: dict[str, str | list[str | None] | None] = {
        "proc-type": "primary",
        "no-telemetry": None,
    }
    words = list(context.side.eal)
    while words:
        name, equals, value = words.pop(0).lstrip("-").partition("=")
        if name.startswith("a") and ":" in name:
            name, equals, value = "allow", "=", name[1:]
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        if name in options:
            before = options[name]
            options[name] = [*before, value] if isinstance(before, list) else [before, value]
        else:
            options[name] = value or None
    return options


def _version(place: Place, *, needs_dpdk: bool) -> str:
    lines = place.run(["suricata", "--build-info"]).splitlines()
    version = next((line for line in lines if "version" in line), "unknown")
    has_dpdk = any(line.split() == ["DPDK", "support:", "yes"] for line in lines)
    if needs_dpdk and not has_dpdk:
        raise TestbedError(
            f"dut suricata: {version}: built without DPDK",
            code="no-dpdk",
            remedy=remedies.SURICATA_WITH_DPDK,
            hint="use --wire veth --dut-option mode=af-packet",
        )
    return version.removeprefix("This is ")
