"""The running kernel is recognised, and another one is requested."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

import pytest
from errors import raises

from tailscope.exceptions import OtherKernelError, TestbedError, UsageError
from tailscope.experiment.fields import plan_of
from tailscope.host.fingerprint import arm_model, fingerprint, last_level_caches
from tailscope.host.kernel import check_kernel, running_kernel
from tailscope.plan.fields import KERNELS
from tailscope.platforms.vm import Vm

if TYPE_CHECKING:
    from pathlib import Path

    from measurements import Place


def test_this_machine_is_described() -> None:
    described = fingerprint()
    assert described["kernel_release"] == platform.release()
    assert described["kernel_flavour"] in KERNELS
    assert int(described["kernel_hz"] or 0) in (100, 250, 300, 1000)
    assert described["kernel_tick"] in ("periodic", "idle", "full")


def test_a_processor_of_arm_is_described_by_the_numbers_of_its_cores() -> None:
    small = {"CPU implementer": "0x41", "CPU part": "0xd05", "CPU revision": "0"}
    big = {"CPU implementer": "0x41", "CPU part": "0xd0a", "CPU variant": "0x1"}
    assert arm_model([small, small, big, {}]) == "ARM 0x41 0xd05 0 + 0x41 0xd0a 0x1"
    assert arm_model([{}]) is None


def test_guests_are_of_x86_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "a", "6", "v", "aarch64")))
    with raises(TestbedError, "x86-alone"):
        Vm({}).check()


def machine(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.skipif("PREEMPT_RT" in os.uname().version, reason="it says rt anyway")
@pytest.mark.parametrize(
    ("files", "flavour", "preemption", "tick"),
    [
        ({"sys__kernel__realtime": "1\n"}, "rt", "rt", "idle"),
        (
            {
                "sys__devices__system__cpu__nohz_full": "2-3\n",
                "sys__devices__system__cpu__isolated": "2-3\n",
                "proc__cmdline": "preempt=none nohz_full=2-3",
            },
            "nohz",
            "none",
            "full",
        ),
        (
            {
                "sys__devices__system__cpu__nohz_full": "(null)\n",
                "proc__cmdline": "quiet nohz=off",
                "sys__kernel__debug__sched__preempt": "none (voluntary) full\n",
            },
            "vanilla",
            "voluntary",
            "periodic",
        ),
    ],
)
def test_kernels_are_told_apart(
    tmp_path: Path, files: dict[str, str], flavour: str, preemption: str, tick: str
) -> None:
    running = running_kernel(machine(tmp_path, **files))
    assert (running.flavour, running.preemption, running.tick) == (flavour, preemption, tick)


def other() -> str:
    return next(name for name in KERNELS if name != running_kernel().flavour)


def test_another_kernel_is_asked_for() -> None:
    check_kernel(running_kernel().flavour)
    with pytest.raises(OtherKernelError) as error:
        check_kernel(other())
    assert f"expected {other()}" in str(error.value)
    assert "boot" in str(error.value.hint) and "--platform vm" in str(error.value.hint)
    with pytest.raises(UsageError) as unknown:
        plan_of({"dut": "l2fwd", "kernel": "windows"})
    assert all(text in str(unknown.value) for text in ("kernel", "windows", *KERNELS))


def test_a_release_of_a_kernel_is_asked_for() -> None:
    running = running_kernel()
    number = running.release.partition("-")[0]
    check_kernel(f"{running.flavour}-{number}")
    for release in (f"{number}1", "2.6"):
        with raises(OtherKernelError, "kernel-flavour") as error:
            check_kernel(f"{running.flavour}-{release}")
        assert f"{running.flavour}-{release}, got" in str(error.value)
    with raises(UsageError, "unknown-name"):
        plan_of({"dut": "l2fwd", "kernel": "windows-95"})
    with raises(UsageError, "unknown-name") as unfinished:
        plan_of({"dut": "l2fwd", "kernel": "rt-"})
    assert unfinished.value.hint == "did you mean rt?"


def test_parameters_that_were_not_booted_with_are_asked_for() -> None:
    with pytest.raises(OtherKernelError) as error:
        check_kernel(None, "no_such=1")
    assert "no_such=1" in str(error.value) and "no_such=1" in str(error.value.hint)
    with raises(OtherKernelError, "kernel-flavour") as both:
        check_kernel(other(), "no_such=1")
    for text in (str(both.value), str(both.value.hint)):
        assert "no_such=1" in text, "one boot is for both"


@pytest.mark.parametrize(
    ("asked", "code"),
    [({"kernel": other()}, "kernel-flavour"), ({"boot": "no_such={cpus}"}, "kernel-parameters")],
)
def test_the_kernel_of_a_guests_host_is_asked_for(asked: dict[str, str], code: str) -> None:
    with raises(OtherKernelError, code) as error:
        Vm({"host": "same"}, **asked).check()
    assert "host" in str(error.value) and "guest" not in str(error.value.hint)
    with raises(UsageError, "platform-option"):
        Vm({"host": "windows"})


def test_a_run_on_another_kernel_stops_with_what_to_boot(tailscope: Any, place: Place) -> None:
    out = place.path / "out"
    arguments = ("run", "--dut", "l2fwd", "--kernel", other(), "--out", out)
    done = tailscope(*arguments, env=place.environment)
    assert done.returncode == 1
    assert f"error: kernel: expected {other()}" in done.stderr
    assert "hint: boot" in done.stderr
    assert not out.exists()


def test_who_shares_a_last_level_cache(tmp_path: Path) -> None:
    assert last_level_caches(tmp_path) is None
    for cpu, sharing in enumerate(("10-11", "10-11", "2", "2")):
        for level, listed in ((1, str(cpu)), (3, sharing)):
            cache = tmp_path / f"cpu{cpu}/cache/index{level}"
            cache.mkdir(parents=True)
            (cache / "level").write_text(f"{level}\n")
            (cache / "shared_cpu_list").write_text(f"{listed}\n")
    assert last_level_caches(tmp_path) == "2;10-11"
