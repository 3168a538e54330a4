"""The platform ``podman`` with real containers, as root and as an ordinary user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from errors import raises
from measurements import NOBODY, children, quick, said_to_nobody, started
from runs import AS_ROOT, left_behind, needed, sound

from tailscope.exceptions import TestbedError, UsageError
from tailscope.platforms import podman as podman_platform
from tailscope.platforms.catalogue import platform_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements import Place

    Measure = Callable[..., dict[str, Any]]

RATE = ("--rate", "2k")


@pytest.fixture(autouse=True)
def podman() -> None:
    needed("podman", "nsenter")


@AS_ROOT
@pytest.mark.parametrize("dut", ["l2fwd", pytest.param("nftables", marks=pytest.mark.long)])
def test_a_device_lives_in_a_container(measure_hidden: Measure, dut: str) -> None:
    option = ("--platform-option", "memory=1024")
    figures = measure_hidden(
        "--dut", dut, "--platform", "podman", *option, *RATE, "--noise", "auto"
    )
    platform = sound(figures["out"])["platform"]
    assert figures["count"] == figures["sent"]
    assert platform["version"].startswith("podman version ")
    assert "--memory=1024m" in platform["configuration"]
    assert not left_behind()


@AS_ROOT
def test_an_ordinary_user_has_containers(place: Place, dataplane: Path) -> None:
    options = ("--dut", "l2fwd", "--platform", "podman", *quick(*RATE))
    out = place.path / "out"
    place.environment.pop("XDG_RUNTIME_DIR", None)
    said_to_nobody(place, "run", *options, "--out", str(out))
    folders = (*Path("/tmp").glob("containers-user-*"), *Path("/tmp").glob("podman-run-*"))
    assert not [path for path in folders if path.stat().st_uid == NOBODY]
    info = sound(out)
    assert info["platform"]["name"] == "podman"
    assert "--cgroup-parent" not in info["platform"]["configuration"]


@AS_ROOT
def test_the_container_has_a_namespace_and_groups_of_its_own(
    measure: Measure, tmp_path: Path
) -> None:
    """A device in the container lists what it sees."""
    seen = tmp_path / "seen"
    script = tmp_path / "look"
    script.write_text(
        f"#!/bin/sh\nexec 3>{seen}\nhostname >&3\nip -br link >&3\n"
        "cat /proc/self/cgroup >&3\necho up\nexec sleep 60\n"
    )
    script.chmod(0o755)
    given = ("--dut-option", f"run={script}", "--dut-option", "ready=^up$")
    options = ("--platform", "podman", "--wire", "veth")
    figures = measure("--dut", "command", *given, *options, *RATE, expected=1)
    container = sound(figures["out"])["platform"]["container"]
    name, *lines = seen.read_text().splitlines()
    assert name == container
    links = {line.split("@")[0].split()[0] for line in lines if ":/" not in line}
    assert links == {"lo", "dut0", "dut1"}
    assert any(f"podman.payload.{container}/" in line for line in lines)
    assert not left_behind()


@AS_ROOT
@pytest.mark.usefixtures("alone")
def test_what_a_killed_measurement_leaves_is_cleaned(tailscope: Any, place: Place) -> None:
    options = ("--dut", "l2fwd", "--platform", "podman", "--duration", "60s")
    process = started(place, "run", *options, "--out", str(place.path / "out"), processes=1)
    assert "gen" in children(process.pid)
    process.kill()
    process.communicate()
    done = tailscope("runs", "clean", env=place.environment)
    assert done.returncode == 0, done.stderr
    assert not left_behind() and not place.left()


def test_what_it_cannot_be_is_refused() -> None:
    for options, expected in (
        ({"runtime": "runsc"}, "crun or runc"),
        ({"memory": "0"}, "16,777,216 MiB"),
    ):
        with raises(UsageError, "platform-option") as error:
            platform_named("podman", options, None, None)
        assert expected in str(error.value)


@pytest.mark.parametrize("has_kata", [False, True])
def test_kata_is_refused_by_name(
    has_kata: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device could not join its guest, even where one would start."""
    if has_kata:
        for name in ("kata-runtime", "kvm"):
            (tmp_path / name).touch(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(podman_platform, "_KVM", tmp_path / "kvm")
    platform = platform_named("podman", {"runtime": "kata"}, None, None)
    with raises(TestbedError, "kata") as error:
        platform.check()
    assert ("the program kata-runtime" in str(error.value)) is not has_kata
    assert ("and KVM" in str(error.value)) is not has_kata
    assert "--platform vm" in str(error.value.hint)
