"""The device ``ovs``: Open vSwitch in user space, on DPDK or on sockets of links."""

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.duts.dut import Dut, DutContext, Running, one_of
from tailscope.duts.program import RunningProgram, wait_for
from tailscope.exceptions import TestbedError, UsageError
from tailscope.host import remedies
from tailscope.testbed.programs import find_program, which

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope.store.records.dataplane import DutCounts
    from tailscope.testbed.places import Place, Process

_WITH_DPDK = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
"""Debian's switch with DPDK, installed beside the one without."""
_SWITCH = "ovs-vswitchd"
_TUN = Path("/dev/net/tun")
_SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
_BRIDGE, _PORTS = "bridge0", ("port0", "port1")
_READY_S = 30.0
_QUIET = ("-vsyslog:off", "-vfile:off", "--no-chdir")
_THERE_AND_BACK = "".join(
    f"in_port={here},actions=output:{there}\n" for here, there in ((1, 2), (2, 1))
)


def _flows(name: str, value: str) -> str | Path:
    """Read the option ``flows``: ``ports``, ``normal`` (learned addresses), or a file."""
    if not value:
        raise UsageError(
            f"--dut-option {name}: got nothing, expected ports, normal or a file", code="dut-option"
        )
    return value if value in ("ports", "normal") else Path(value).resolve()


class Ovs(Dut):
    """Open vSwitch with its datapath in user space, and its own database and switch.

    With DPDK or AF_XDP, a thread polls both ports on the device's CPU. Ports of AF_PACKET
    (``driver=system``) are polled by the main thread, which sleeps in between.
    """

    name = "ovs"
    about = "Open vSwitch in user space: by DPDK, AF_XDP or AF_PACKET"
    options = {  # noqa: RUF012
        "flows": _flows,
        "driver": one_of("dpdk", "system", "afxdp"),
    }
    wires = ("memif", "veth", "pci")
    programs = {  # noqa: RUF012
        "ovs-vsctl": "openvswitch-switch-dpdk",
        "ovsdb-server": "openvswitch-switch-dpdk",
        "unshare": "util-linux",
    }

    def __init__(self, options: Mapping[str, str], wire: str) -> None:
        super().__init__(options, wire)
        if wire == "memif" and self._driver != "dpdk":
            raise UsageError(
                f"--dut-option driver: got {self._driver!r}, expected dpdk with --wire memif",
                code="ovs-driver",
            )

    @property
    def _driver(self) -> str:
        return self.given.get("driver", "system" if self.wire == "veth" else "dpdk")

    @property
    def _flows(self) -> str | Path:
        return _flows("flows", self.given.get("flows", "ports"))

    @property
    def sending_queues(self) -> int:
        """Return 2: the polling thread and the main thread have a queue each."""
        return 2

    @property
    def uses_dpdk(self) -> bool:
        """Return True if the ports are opened by DPDK."""
        return self._driver == "dpdk"

    @property
    def pins_itself(self) -> bool:
        """Return True if there are polling threads, which have a CPU each."""
        return self._driver != "system"

    @property
    def device_files(self) -> tuple[Path, ...]:
        """Return the device file of which the datapath makes its own links."""
        return (_TUN,)

    @property
    def starts_in_s(self) -> float:
        """Return the time for a database, a switch and its ports, in seconds."""
        return 2.0

    def check(self) -> None:
        """Check the programs, DPDK if it is used, and the flow file."""
        super().check()
        if not _TUN.exists():
            raise TestbedError(f"dut ovs: no {_TUN}", code="no-tun", remedy=remedies.TUN)
        switch = self._program()
        if self.uses_dpdk and "DPDK" not in _version(switch):
            raise TestbedError(
                f"dut ovs: {switch}: built without DPDK",
                code="no-dpdk",
                remedy=remedies.OVS_WITH_DPDK,
                hint="use --wire veth",
            )
        flows = self._flows
        if isinstance(flows, Path) and not flows.is_file():
            raise TestbedError(
                f"dut ovs: no flow file {flows}",
                code="no-flows",
                hint="name a file as `ovs-ofctl add-flows` reads it; the ports are 1 and 2",
            )

    def _program(self) -> str:
        if self.uses_dpdk and which(_WITH_DPDK) is not None:
            return _WITH_DPDK
        return str(find_program("dut ovs", _SWITCH, "openvswitch-switch-dpdk"))

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Start a database and a switch, join its ports, and install the flows."""
        place = context.place
        home = place.folder / "ovs"
        place.run(["mkdir", "-p", str(home)])
        environment = _environment(home)
        database = f"unix:{home}/database"
        create = ["ovsdb-tool", "create", f"{home}/database.conf", _SCHEMA]
        place.run([*environment, *create])
        serve = ["ovsdb-server", f"{home}/database.conf", f"--remote=p{database}"]
        serve += [f"--unixctl={home}/server.control", *_QUIET]
        switch = [*self._apart(), self._program(), database]
        switch += [f"--unixctl={home}/switch.control", *_QUIET]
        with place.start(
            "database", [*environment, *serve], cpus=context.housekeeping, merged=True
        ) as server:
            ready = f"{home}/database"
            wait_for("ovsdb-server", server, lambda: _exists(place, ready), timeout_s=_READY_S)
            control = [*environment, "ovs-vsctl", f"--db={database}", "--timeout=20"]
            settings = ["set", "Open_vSwitch", ".", *self._settings(context)]
            prepared = [["--", "init"], settings]
            for words in prepared:
                place.run([*control, "--no-wait", *words])
            cpus = context.working if self._driver == "system" else context.allowed
            with place.start(
                "dut", [*environment, *switch], cpus=cpus, merged=True, urgent=True
            ) as process:
                wait_for(_SWITCH, process, r"\(Open vSwitch\) [0-9]", timeout_s=_READY_S)
                ports = self._ports(context)
                flows = self._join(place, environment, control, ports, process)
                yield _Running(
                    context,
                    process,
                    [*environment, "ovs-appctl", f"--target={home}/switch.control"],
                    environment,
                    version=_version(self._program()),
                    configuration=[switch, *prepared, ports, *flows],
                    rules_sha256=self._checksum(),
                )

    def _join(
        self,
        place: Place,
        environment: Sequence[str],
        control: Sequence[str],
        ports: Sequence[str],
        process: Process,
    ) -> list[list[str]]:
        """Join the ports, and return the commands that install the flows between them."""
        try:
            place.run([*control, *ports])
            # The switch goes on without a port, and reports that in its log alone.
            columns = ["--columns=name,error", "--format=json", "list", "Interface"]
            for name, error in json.loads(place.run([*control, *columns]))["data"]:
                if isinstance(error, str):
                    raise TestbedError(f"{name}: {error}", code="ovs-port")
            return self._add_flows(place, environment)
        except TestbedError as error:
            words = process.last_words()
            text = f"{_SWITCH}: {error}; it said: {words}"
            raise error.retold(text) from None

    def _apart(self) -> list[str]:
        """Return the words that start the switch in its own namespace over shared memory.

        All switches give the links that they make the same names.
        """
        if self.wire != "memif":
            return []
        users = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
        return ["unshare", *users, "--net"]

    def _settings(self, context: DutContext) -> list[str]:
        """Return the settings of the database: polling threads, and DPDK's options."""
        settings = {"pmd-cpu-mask": _mask(context.cpus)}
        if self.uses_dpdk:
            # Otherwise it adds an option that requires huge pages.
            legacy = ["--legacy-mem"] if "--no-huge" in context.side.eal else []
            settings |= {
                "dpdk-init": "true",
                "dpdk-lcore-mask": _mask(context.housekeeping or context.cpus),
                "dpdk-extra": shlex.join([*context.side.eal, *legacy, "--no-telemetry"]),
            }
        return [f"other_config:{name}={json.dumps(value)}" for name, value in settings.items()]

    def _ports(self, context: DutContext) -> list[str]:
        """Return the words that make the bridge and add both ports."""
        words = ["add-br", _BRIDGE, "--", "set", "bridge", _BRIDGE, "datapath_type=netdev"]
        ends = context.side.devices if self.uses_dpdk else context.side.links
        names = _PORTS if self.uses_dpdk else ends
        for number, (name, end) in enumerate(zip(names, ends, strict=True), 1):
            kind = [f"type={self._driver}"]
            if self.uses_dpdk:
                kind.append(f"options:dpdk-devargs={end}")
            words += ["--", "add-port", _BRIDGE, name, "--", "set", "Interface", name]
            words += [*kind, f"ofport_request={number}"]
        return words

    def _add_flows(self, place: Place, environment: Sequence[str]) -> list[list[str]]:
        flows = self._flows
        if flows == "normal":
            return []
        path = flows if isinstance(flows, Path) else place.write("ovs.flows", _THERE_AND_BACK)
        replace = ["ovs-ofctl", "--bundle", "replace-flows", _BRIDGE, str(path)]
        place.run([*environment, *replace])
        return [replace]

    def _checksum(self) -> str | None:
        flows = self._flows
        return sha256(flows.read_bytes()).hexdigest() if isinstance(flows, Path) else None


class _Running(RunningProgram):
    """A running switch, which is asked for its counters before it ends."""

    def __init__(
        self,
        context: DutContext,
        process: Process,
        control: Sequence[str],
        environment: Sequence[str],
        *,
        version: str,
        configuration: list[list[str]],
        rules_sha256: str | None,
    ) -> None:
        super().__init__(
            _SWITCH,
            process,
            version=version,
            configuration=configuration,
            counts=lambda: self._counted,
            rules_sha256=rules_sha256,
        )
        self._place, self._control = context.place, control
        self._environment = environment
        self._counted: DutCounts | None = None

    def stop(self) -> DutCounts | None:
        """Read the counters, and stop the switch."""
        from tailscope.duts.ovs_counters import counts_of

        # Without an answer there are no counts: the run is marked, and quotes the switch.
        with suppress(TestbedError):
            # Only after this do flows count all packets.
            self._place.run([*self._control, "revalidator/purge"])
            flows = ["ovs-ofctl", "--no-names", "dump-flows", _BRIDGE]
            self._counted = counts_of(
                self._place.run([*self._control, "dpctl/show", "--statistics"]),
                self._place.run([*self._control, "dpif-netdev/pmd-stats-show"]),
                self._place.run([*self._environment, *flows]),
            )
        # After a signal alone it would leave its own links, which matters on the host.
        with suppress(TestbedError):
            self._place.run([*self._control, "exit", "--cleanup"])
        return super().stop()


def _environment(home: Path) -> list[str]:
    """Return the words that give the programs a folder of their own for all their files."""
    folders = ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR")
    return ["env", *(f"{name}={home}" for name in folders)]


def _exists(place: Place, path: str) -> bool:
    try:
        place.run(["test", "-S", path])
    except TestbedError:
        return False
    return True


def _version(program: str) -> str:
    """Return the version of a switch, with that of DPDK if it has it."""
    import subprocess

    command = [program, "--version"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
    lines = output.splitlines()
    version = re.search(r"\(Open vSwitch\) (\S+)", output)
    dpdk = next((f" ({line})" for line in lines if line.startswith("DPDK ")), "")
    return f"Open vSwitch {version[1] if version else 'unknown'}{dpdk}"


def _mask(cpus: Sequence[int]) -> str:
    return f"{sum(1 << cpu for cpu in cpus):#x}"
