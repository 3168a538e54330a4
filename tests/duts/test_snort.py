"""Real Snort 3, inline over AF_PACKET: it forwards, filters, and counts as the kernel does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from captures import probe_numbers
from errors import code_of, raises
from runs import AS_ROOT, sound

from tailscope.duts import snort
from tailscope.duts.catalogue import dut_named
from tailscope.exceptions import TestbedError
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements import Place

    Measure = Callable[..., dict[str, Any]]

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "src" / "snort3"
COMMUNITY = "configs/snort/snort3-community-rules/snort3-community.rules"
RATE = ("--wire", "veth", "--rate", "2k", "--duration", "500ms")
EVERY_256TH = 'drop udp any any -> any any (msg:"mine"; content:"|07|",offset 11,depth 1; sid:1;)\n'
"""The rule matches the last byte of a probe's number, which follows its magic."""


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Snort: of the machine, of `make setup-snort`, or of the folder that SNORT names."""
    found = which("snort") or _unpacked(tmp_path_factory.mktemp("snort"))
    if found is None:
        pytest.skip("no Snort 3: make setup-snort SNORT=DIR, or SNORT=DIR pytest")
    said = subprocess.run([found, "-V"], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        pytest.skip(f"{found} does not start: {said.stderr.strip()}")
    return found


def _unpacked(folder: Path) -> Path | None:
    """Unpack a built Snort, unless its folder is one already."""
    source = Path(os.environ.get("SNORT", BESIDE))
    for archive in source.glob("*.tar.zst"):
        subprocess.run(["tar", "--zstd", "-xf", archive, "-C", folder], check=True)
    programs = [path for root in (source, folder) for path in root.glob("**/bin/snort")]
    return programs[0] if programs else None


@pytest.fixture
def inline(place: Place, program: Path) -> None:
    """Commands find Snort on their PATH."""
    place.environment["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "my own.rules"
    path.write_text(EVERY_256TH)
    return path


def counters_agree(info: dict[str, Any]) -> dict[str, Any]:
    """Compare what generator, kernel and Snort counted, and return Snort's counts."""
    counts: dict[str, Any] = info["dut"]["result"]
    first, second = counts["links"].values()
    out, back = info["instrument"]["generator"]["ports"]
    assert out["tx_packets"] == first["rx_packets"] == counts["received"] + counts["overflows"]
    assert counts["received"] == counts["accepted"] + counts["dropped"] + counts["dropped_by_flow"]
    assert counts["accepted"] == second["tx_packets"] >= back["rx_packets"]
    return counts


@AS_ROOT
def test_it_forwards_everything_without_rules(measure: Measure, inline: None) -> None:
    figures = measure("--dut", "snort", *RATE)
    info = sound(figures["out"])
    counts = counters_agree(info)
    assert figures["count"] == figures["sent"]
    assert counts["accepted"] == info["instrument"]["generator"]["ports"][1]["rx_packets"]
    assert counts["dropped"] == counts["dropped_by_flow"] == 0
    assert re.fullmatch(r"Snort 3\.[\d.]+", info["dut"]["version"])
    [cpu] = [cpu for role, cpu in info["instrument"]["cpus"].items() if role == "DuT"]
    assert f"cpuset = '{cpu}'" in info["dut"]["configuration"]


@AS_ROOT
def test_the_filter_drops_exactly_what_its_rule_matches(
    measure: Measure, inline: None, rules: Path
) -> None:
    figures = measure("--dut", "snort", "--dut-option", f"rules={rules}", *RATE, "--captures")
    info = sound(figures["out"])
    counts = counters_agree(info)
    pre, post = (
        set(probe_numbers(figures["out"] / "captures" / f"{side}.pcapng.zst"))
        for side in ("pre", "post")
    )
    assert pre - post == {seq for seq in pre if seq % 256 == 7} != set()
    assert figures["lost"] == figures["lost_in_dut"] == figures["dropped_by_dut"] == len(pre - post)
    assert counts["dropped"] >= figures["lost"]
    assert info["dut"]["rules_sha256"] == sha256(EVERY_256TH.encode()).hexdigest()


@AS_ROOT
def test_the_papers_rules_drop_nothing(measure: Measure, inline: None, data: Path) -> None:
    """Snort-filter: the community's rules, whose variables the configuration has to name."""
    rules = data / "hipnet21" / COMMUNITY
    figures = measure("--dut", "snort", "--dut-option", f"rules={rules}", *RATE)
    counts = counters_agree(sound(figures["out"]))
    assert figures["count"] == figures["sent"]
    assert counts["dropped"] == counts["dropped_by_flow"] == 0


@AS_ROOT
@pytest.mark.long
@pytest.mark.parametrize("platform", ["lxc", "podman"])
def test_it_runs_in_containers(measure: Measure, inline: None, platform: str) -> None:
    figures = measure("--dut", "snort", "--platform", platform, *RATE)
    counts = sound(figures["out"])["dut"]["result"]
    assert figures["count"] == figures["sent"] <= counts["accepted"]


@AS_ROOT
@pytest.mark.long
def test_more_than_it_can_take_is_counted_where_it_was_lost(measure: Measure, inline: None) -> None:
    figures = measure("--dut", "snort", "--wire", "veth", "--rate", "1M", "--duration", "2s")
    counts = counters_agree(sound(figures["out"]))
    assert figures["lost"] > 0 or figures["unsent"] > 0
    assert counts["overflows"] >= figures["lost_in_dut"]


@AS_ROOT
def test_what_it_cannot_read_is_quoted_at_once(
    tailscope: Any, place: Place, dataplane: Path, inline: None, rules: Path
) -> None:
    rules.write_text('drop udp any any -> any any (content:"|07|"; offset:11; sid:1;)\n')
    option = ("--dut-option", f"rules={rules}")
    out = place.path / "out"
    done = tailscope(
        "run", "--dut", "snort", *option, "--wire", "veth", "--out", out, env=place.environment
    )
    assert done.returncode == 1
    assert code_of(done) == "program-ended"
    said = " ".join(done.stderr.split())
    assert f"{rules}:1" in said and "offset" in said and "status 1" in said
    assert not out.exists()


@AS_ROOT
def test_a_snort_that_dies_is_no_snort_that_waits(
    tailscope: Any, place: Place, dataplane: Path, program: Path, tmp_path: Path
) -> None:
    """Without its links, Snort says so and ends, with status 0."""
    fake = tmp_path / "snort"
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *-Q*) ip link delete dut0;; esac\nexec {program} "$@"\n'
    )
    fake.chmod(0o755)
    place.environment["PATH"] = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    modules = f"daq-dir={program.resolve().parents[1]}/lib/daq"
    given = ("--dut", "snort", "--wire", "veth", "--dut-option", modules)
    done = tailscope("run", *given, env=place.environment)
    assert done.returncode == 1
    assert code_of(done) == "program-ended"
    assert "dut0" in done.stderr


def test_it_is_configured_for_dpdk(tmp_path: Path) -> None:
    rules = tmp_path / "it's.rules"
    rules.touch()
    dut: Any = dut_named("snort", {"rules": str(rules), "batch": "4", "daq-dir": "/opt/daq"})
    text = dut.configuration(("--no-huge", "--vdev=net_memif0,id=0"), (3,))
    assert "name = 'dpdk', mode = 'inline'" in text
    assert "variables = { 'dpdk_args=--no-huge --vdev=net_memif0,id=0' }" in text
    assert "module_dirs = { '/opt/daq' }" in text and "batch_size = 4" in text
    assert "cpuset = '3'" in text
    assert f"include = '{tmp_path}/it\\'s.rules'" in text
    if shutil.which("luac"):
        subprocess.run(["luac", "-p", "-"], input=text, text=True, check=True)


def test_it_takes_links_over_veth() -> None:
    dut: Any = dut_named("snort", {}, "veth")
    assert not dut.uses_dpdk
    assert "name = 'afpacket'" in dut.configuration((), (1,))


def test_a_missing_snort_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snort, "which", lambda _program: None)
    with raises(TestbedError, "no-program") as error:
        dut_named("snort", {}).check()
    assert "snort3" in str(error.value.hint)


def test_rules_of_others_find_their_variables(tmp_path: Path) -> None:
    rules = tmp_path / "community.rules"
    rules.touch()
    dut: Any = dut_named("snort", {"rules": str(rules)}, "veth")
    text = dut.configuration((), (1,))
    assert "HOME_NET = 'any'" in text and "HTTP_PORTS = 'any'" in text
