"""The platform ``vm`` with real guests of several kernels, and packets by vhost-user."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of, raises
from guests import kernel
from runs import left_behind, needed, sound

from tailscope.exceptions import TestbedError, UsageError
from tailscope.experiment.fields import plan_of
from tailscope.platforms import initramfs
from tailscope.platforms.accelerator import boots, find_accelerator
from tailscope.platforms.initramfs import GuestKernel, guest_kernel
from tailscope.platforms.vm import Vm
from tailscope.testbed.places import Here

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from measurements import Place

    Measure = Callable[..., dict[str, Any]]

RATE = ("--rate", "500", "--duration", "200ms", "--warm-up", "50ms", "--noise", "auto")
_WITHOUT_KVM_S = 120.0


@pytest.mark.parametrize(
    "kind", ["vanilla", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("rt", "nohz"))]
)
def test_l2fwd_lives_in_a_guest(measure_hidden: Measure, place: Place, kind: str) -> None:
    """A guest needs no root, and runs wherever the package lies."""
    kernel("rt" if kind == "rt" else "vanilla")
    figures = measure_hidden("--dut", "l2fwd", "--platform", "vm", "--kernel", kind, *RATE)
    info = sound(figures["out"])
    assert figures["count"] > 0.9 * figures["sent"]
    guest = info["platform"]
    assert guest["realtime"] == (kind == "rt") == ("PREEMPT_RT" in guest["kernel"])
    assert (guest["nohz_full_cpus"], guest["isolated_cpus"]) == (
        ("1", "1") if kind == "nohz" else ("(null)", "")
    )
    emulated = guest["accelerator"] == "tcg"
    assert guest["representative"] is not emulated
    if emulated:
        assert any("TCG" in warning for warning in figures["warnings"])
        assert "EMULATED" in (figures["out"] / "report.html").read_text()
    assert json.loads((place.path / "state/tailscope/kvm.json").read_text())["guest"]
    assert not left_behind()


@pytest.mark.long
@pytest.mark.parametrize("dut", ["mirred", "xdp"])
def test_the_guests_kernel_forwards(measure: Measure, dut: str) -> None:
    """Debian's kernel has XDP, which this machine's may lack."""
    needed("tc", "xdp-bench")
    own = kernel("vanilla")
    figures = measure("--dut", dut, "--platform", "vm", *RATE)
    info = sound(figures["out"])
    assert figures["count"] > 0.9 * figures["sent"]
    assert info["platform"]["kernel"].startswith(own.release)
    assert "redirect" in str(info["dut"]["configuration"])


@pytest.mark.long
@pytest.mark.parametrize("dut", ["wireguard", "ipsec"])
def test_the_guests_kernel_has_tunnels(measure: Measure, dut: str) -> None:
    """Debian's kernel has both tunnels."""
    needed("wg")
    kernel("vanilla")
    figures = measure("--dut", dut, "--platform", "vm", *RATE)
    device = sound(figures["out"])["dut"]
    assert figures["count"] > 0.9 * figures["sent"]
    near, far = (device["result"][end] for end in ("near", "far"))
    if dut == "ipsec":
        assert near["tx"]["packets"] >= far["rx"]["packets"] >= figures["count"]
        assert far["rx"]["failed"] == far["rx"]["replayed"] == 0
    else:
        assert ", WireGuard 1." in device["version"]
        assert near["tx_bytes"] >= far["rx_bytes"] > 80 * figures["count"]


@pytest.mark.long
def test_parameters_reach_the_guest(measure: Measure) -> None:
    kernel("vanilla")
    given = ("--boot", "isolcpus={cpus} skew_tick=1", "--platform-option", "accelerator=tcg")
    figures = measure("--dut", "l2fwd", "--platform", "vm", *given, *RATE)
    guest = sound(figures["out"])["platform"]
    assert guest["isolated_cpus"] == "1" and "skew_tick=1" in guest["parameters"]


@pytest.mark.long
def test_the_probe_tells_what_boots(tmp_path: Path) -> None:
    """The guest of the probe boots under TCG, and not with a damaged kernel."""
    own = kernel("vanilla")
    assert boots("tcg", own, Here(tmp_path), timeout_s=_WITHOUT_KVM_S)
    broken = tmp_path / "vmlinuz"
    broken.write_bytes(own.image.read_bytes()[:4096])
    assert not boots("tcg", GuestKernel(broken, own.modules, own.release), Here(tmp_path))


def test_kvm_that_is_wanted_and_does_not_boot_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailscope.platforms import accelerator

    own = kernel("vanilla")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(accelerator, "_KVM", tmp_path / "no-kvm")
    with raises(TestbedError, "kvm-boot") as error:
        find_accelerator("kvm", own, Here(tmp_path))
    assert "accelerator=tcg" in str(error.value.hint)
    assert find_accelerator("auto", own, Here(tmp_path)) == "tcg"


def test_without_a_kernel_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(initramfs, "_KERNELS", tmp_path)
    with raises(TestbedError, "no-guest-kernel") as error:
        guest_kernel("rt")
    assert "rt kernel" in str(error.value) and "make setup-vm" in str(error.value.hint)


def test_a_guest_boots_the_release_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(initramfs, "_KERNELS", tmp_path)
    (tmp_path / "rt").mkdir()
    for release in ("6.1.0-9-rt-amd64", "6.1.0-56-rt-amd64", "6.12.9-rt-amd64", "6.9.7-rt-amd64"):
        (tmp_path / "rt" / f"vmlinuz-{release}").touch()
    assert guest_kernel("rt").release == "6.12.9-rt-amd64"
    assert Vm({}, "rt-6.1")._kernel().release == "6.1.0-56-rt-amd64"
    with raises(TestbedError, "no-guest-kernel") as error:
        Vm({}, "rt-6.2").check()
    assert "rt-6.2 kernel" in str(error.value)


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        ({"accelerator": "xen"}, "platform-option", "auto, kvm, tcg"),
        ({"memory": "64"}, "platform-option", "512 MiB"),
        ({"speed": "fast"}, "unknown-platform-option", "accelerator, memory"),
    ],
)
def test_bad_options_are_named(options: dict[str, str], code: str, expected: str) -> None:
    with raises(UsageError, code) as error:
        plan_of({"dut": "l2fwd", "platform": "vm", "platform_options": options})
    assert expected in str(error.value)


def test_a_guest_needs_a_wire_of_its_own() -> None:
    with pytest.raises(UsageError) as error:
        plan_of({"dut": "l2fwd", "platform": "vm", "wire": "memif"})
    assert all(text in str(error.value) for text in ("'memif'", "vhost or pci", "--platform vm"))


def test_a_guest_that_does_not_boot_says_why(tailscope: Any, place: Place, tmp_path: Path) -> None:
    kernel("vanilla")
    refusing = tmp_path / "qemu-system-x86_64"
    refusing.write_text("#!/bin/sh\necho no room for a guest >&2; exit 1\n")
    refusing.chmod(0o755)
    environment = {**place.environment, "PATH": f"{tmp_path}:{place.environment['PATH']}"}
    options = ("--platform-option", "accelerator=tcg", "--out", place.path / "out")
    done = tailscope("run", "--dut", "l2fwd", "--platform", "vm", *options, env=environment)
    assert done.returncode == 1
    assert code_of(done) == "qemu-start" and "no room for a guest" in done.stderr
    assert not left_behind()
