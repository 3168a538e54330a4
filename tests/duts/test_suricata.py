"""Real Suricata: it forwards, and drops exactly the packets of its rules."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from captures import probe_numbers
from errors import code_of, raises
from runs import AS_ROOT, left_behind, needed, sound

from tailscope.duts.catalogue import dut_named
from tailscope.duts.dut import DutContext
from tailscope.duts.ruleset import checksum, generated_rules
from tailscope.duts.suricata import EVENT_RULES
from tailscope.exceptions import TestbedError, UsageError
from tailscope.testbed.places import Here
from tailscope.testbed.wires import Side

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from measurements import Place

    Measure = Callable[..., dict[str, Any]]

RATE = ("--rate", "2k")
# The rule matches the last byte of a probe's number, which follows its magic.
EVERY_256TH = (
    'drop udp any any -> any any (msg:"mine"; content:"|07|"; offset:11; depth:1; sid:1;)\n'
)


@pytest.fixture(autouse=True)
def suricata() -> None:
    needed("suricata")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "my own.rules"
    path.write_text(EVERY_256TH)
    return path


def dropped(captures: Path) -> set[int]:
    """Return the numbers of the packets that did not come out of the device."""
    pre, post = (probe_numbers(captures / f"{side}.pcapng.zst") for side in ("pre", "post"))
    return set(pre) - set(post)


@pytest.mark.long
@pytest.mark.parametrize(
    "wire", ["memif", pytest.param("veth", marks=AS_ROOT)], ids=["DPDK", "AF_PACKET"]
)
def test_it_forwards_everything_without_rules(measure: Measure, wire: str) -> None:
    figures = measure("--dut", "suricata", "--wire", wire, *RATE)
    info = sound(figures["out"])
    assert figures["count"] == figures["sent"] and figures["dropped_by_dut"] == 0
    assert info["dut"]["version"].startswith("Suricata version ")
    assert info["dut"]["result"]["accepted"] >= figures["sent"]
    mode = "dpdk" if wire == "memif" else "af-packet"
    assert mode in yaml.safe_load(info["dut"]["configuration"])


@pytest.mark.parametrize("rules", ["events", pytest.param("generated:300", marks=pytest.mark.long)])
def test_rules_that_only_raise_alerts_drop_nothing(measure: Measure, rules: str) -> None:
    figures = measure("--dut", "suricata", "--dut-option", f"rules={rules}", *RATE)
    device = sound(figures["out"])["dut"]
    assert figures["count"] == figures["sent"]
    assert device["result"]["rules_failed"] == 0
    if rules == "events":
        files = sorted(EVENT_RULES.glob("*.rules"))
        assert device["rules_sha256"] == checksum(files)
        expected = sum(map(active_rules, files))
    else:
        assert device["rules_sha256"] == sha256(generated_rules(300).encode()).hexdigest()
        expected = 300
    assert device["result"]["rules_loaded"] == expected


def active_rules(path: Path) -> int:
    """Count the rules of a file that are not commented out."""
    return sum(bool(line) and line[0] not in "# " for line in path.read_text().splitlines())


@pytest.mark.long
def test_all_kinds_of_generated_rules_are_understood(tmp_path: Path) -> None:
    """Suricata reads as many rules as a real set has."""
    rules = tmp_path / "made.rules"
    rules.write_text(generated_rules(2000))
    configuration = tmp_path / "suricata.yaml"
    dut: Any = dut_named("suricata", {"rules": str(rules)}, "memif")
    site = DutContext(Here(tmp_path), Side((), ("net_memif0",)), (0,), (0,), 1000)
    configuration.write_text(dut.configuration(site, tmp_path, [rules]))
    command = ["suricata", "-T", "-c", str(configuration), "-l", str(tmp_path)]
    done = subprocess.run(
        [*command, "--init-errors-fatal"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_default_rules_are_those_that_were_downloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed = tmp_path / "suricata.rules"
    monkeypatch.setattr("tailscope.duts.suricata.DEFAULT_RULES", installed)
    dut = dut_named("suricata", {"rules": "default"}, "memif")
    with raises(TestbedError, "no-rules") as refused:
        dut.check()
    assert str(installed) in str(refused.value)
    assert "suricata-update" in str(refused.value.hint)
    installed.write_text(EVERY_256TH)
    dut.check()


@pytest.mark.parametrize("rules", ["generated:0", "generated:x", "generated:"])
def test_a_number_of_rules_that_makes_no_sense_is_refused(rules: str) -> None:
    with raises(UsageError, "rule-count") as refused:
        dut_named("suricata", {"rules": rules}, "memif")
    assert "1,000,000" in str(refused.value)


@pytest.mark.parametrize(
    "wire", ["memif", pytest.param("veth", marks=AS_ROOT)], ids=["DPDK", "AF_PACKET"]
)
def test_the_filter_drops_exactly_what_its_rule_matches(
    measure: Measure, rules: Path, wire: str
) -> None:
    option = ("--dut-option", f"rules={rules}")
    figures = measure(
        "--dut", "suricata", "--wire", wire, *option, *RATE, "--captures", "--noise", "auto"
    )
    sound(figures["out"])
    wanted = {seq for seq in range(figures["sent"] + figures["unsent"]) if seq % 256 == 7}
    assert dropped(figures["out"] / "captures") == wanted
    assert figures["lost"] == figures["lost_in_dut"] == figures["dropped_by_dut"] == len(wanted) > 0


def test_what_it_cannot_read_is_passed_on(tailscope: Any, place: Place, rules: Path) -> None:
    rules.write_text('drop udp any any -> any any (msg:"broken; sid:1;\n')
    option = ("--dut-option", f"rules={rules}")
    out = place.path / "out"
    done = tailscope("run", "--dut", "suricata", *option, "--out", out, env=place.environment)
    assert done.returncode == 1
    assert code_of(done) == "program-ended"
    assert "missing semicolon" in done.stderr and str(rules) in done.stderr
    assert not out.exists()


def test_rules_that_are_not_there_are_named(tailscope: Any, place: Place) -> None:
    option = ("--dut-option", "rules=/no/such.rules")
    done = tailscope("run", "--dut", "suricata", *option, env=place.environment, cwd=place.path)
    assert done.returncode == 1
    assert code_of(done) == "no-rules" and "/no/such.rules" in done.stderr


@pytest.mark.long
@AS_ROOT
@pytest.mark.usefixtures("alone")
def test_it_lives_in_a_container(measure: Measure) -> None:
    needed("lxc-execute")
    figures = measure("--dut", "suricata", "--platform", "lxc", *RATE)
    info = sound(figures["out"])
    assert figures["count"] == figures["sent"] and info["platform"]["name"] == "lxc"
    assert not left_behind()


def test_two_cards_have_two_workers() -> None:
    for wire, options, cpus in (
        ("memif", {}, 1),
        ("vhost", {}, 1),
        ("pci", {}, 2),
        ("pci", {"ports": "1"}, 1),
        ("pci", {"mode": "af-packet"}, 1),
    ):
        assert dut_named("suricata", options, wire).cpus == cpus, (wire, options)


def test_two_ports_have_two_workers(tmp_path: Path) -> None:
    """They need too many CPUs for this machine, so the test reads their configuration."""
    dut = dut_named("suricata", {"ports": "2"}, "memif")
    assert dut.cpus == dut.ports == 2
    eal = ("--no-huge", "-m", "256", "--vdev=net_memif0,id=0", "--vdev=net_memif1,id=1")
    side = Side(eal, ("net_memif0", "net_memif1"))
    site = DutContext(Here(tmp_path), side, (2, 3), (0,), 1000)
    content = yaml.safe_load(dut.configuration(site, tmp_path, []))  # type: ignore[attr-defined]
    ports = {port["interface"]: port["copy-iface"] for port in content["dpdk"]["interfaces"]}
    assert ports == {"net_memif0": "net_memif1", "net_memif1": "net_memif0"}
    assert content["dpdk"]["eal-params"]["vdev"] == ["net_memif0,id=0", "net_memif1,id=1"]
    assert content["dpdk"]["eal-params"]["m"] == "256"
    affinity = content["threading"]["cpu-affinity"]
    assert affinity[0]["management-cpu-set"]["cpu"] == [0]
    assert affinity[1]["worker-cpu-set"]["cpu"] == [2, 3]
