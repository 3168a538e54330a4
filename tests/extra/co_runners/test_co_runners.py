"""Co-runners beside a device: loads and functions, in containers and in guests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of
from guests import kernel
from runs import AS_ROOT, left_behind, needed, sound

from tailscope.duts.catalogue import DUTS
from tailscope.duts.dut import Running
from tailscope.exceptions import TestbedError
from tailscope.experiment.fields import plan_of
from tailscope.extra.co_runners.co_runners import CoRunner, CoRunners, CoRunning
from tailscope.extra.co_runners.stress import KINDS
from tailscope.plan.fields import CO_RUNNERS
from tailscope.platforms.catalogue import PLATFORMS
from tailscope.testbed.folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    Measure = Callable[..., dict[str, Any]]

PACED = ("--rate", "200", "--duration", "1s", "--warm-up", "100ms", "--noise", "auto")


def beside(measure: Measure, platform: str, neighbours: str, *kinds: str) -> list[dict[str, Any]]:
    """Measure a forwarder beside co-runners; return what ``run.json`` says of these."""
    options = [word for kind in kinds for word in ("--co-runner", f"{kind}=1")]
    where = ("--platform", platform, "--co-runner-platform", neighbours)
    figures = measure("--dut", "l2fwd", *where, *options, *PACED)
    info = sound(figures["out"])
    assert not info["partial"], info["partial"]
    assert figures["count"] == figures["sent"]
    assert info["plan"]["co_runner_platform"] == neighbours
    assert not left_behind()
    found: list[dict[str, Any]] = info["co_runners"]
    assert {each["platform"]["name"] for each in found} == {neighbours}
    return found


def test_a_function_beside_another_has_packets_of_its_own(measure: Measure) -> None:
    [function] = beside(measure, "bare", "bare", "l2fwd")
    assert function["name"] == "l2fwd"
    assert function["received"] == function["sent"] > 200


@AS_ROOT
def test_a_load_and_a_function_in_containers(measure: Measure) -> None:
    needed("podman", "nsenter", "stress-ng")
    function, load = beside(measure, "bare", "podman", "cpu", "l2fwd")
    assert load["name"] == "stress-ng" and "sent" not in load
    assert load["platform"]["container"] != function["platform"]["container"]
    assert function["received"] == function["sent"] > 200


@AS_ROOT
@pytest.mark.long
@pytest.mark.parametrize("container", ["lxc", "podman"])
def test_a_container_beside_a_function_in_a_guest(
    measure: Measure, container: str, capsys: pytest.CaptureFixture[str]
) -> None:
    needed("lxc-execute", "podman", "nsenter")
    own = kernel("vanilla")
    [function] = beside(measure, container, "vm", "l2fwd")
    assert function["platform"]["kernel"].startswith(own.release)
    assert function["sent"] > 200 and function["received"] > 0.9 * function["sent"]
    told(capsys, f"{container} beside vm", function)


@AS_ROOT
@pytest.mark.long
def test_a_container_beside_a_load_in_a_guest(measure: Measure) -> None:
    needed("lxc-execute", "stress-ng")
    own = kernel("vanilla")
    [load] = beside(measure, "lxc", "vm", "cache")
    assert load["name"] == "stress-ng"
    assert load["platform"]["kernel"].startswith(own.release)


@AS_ROOT
@pytest.mark.long
@pytest.mark.parametrize("container", ["lxc", "podman"])
def test_a_guest_beside_containers(
    measure: Measure, container: str, capsys: pytest.CaptureFixture[str]
) -> None:
    needed("lxc-execute", "podman", "nsenter", "stress-ng")
    kernel("vanilla")
    function, load = beside(measure, "vm", container, "cache", "l2fwd")
    assert load["platform"]["container"] != function["platform"]["container"]
    assert function["sent"] > 200 and function["received"] > 0.9 * function["sent"]
    told(capsys, f"vm beside {container}", function)


def told(capsys: pytest.CaptureFixture[str], what: str, function: dict[str, Any]) -> None:
    with capsys.disabled():
        print(f"\n{what}: {function['sent']} sent through it, {function['received']} came back")


def test_a_function_that_ends_makes_a_partial_result() -> None:
    class Ended(Running):
        is_running = False

        def failure(self) -> TestbedError:
            return TestbedError("l2fwd: ended with status 1", code="program-ended")

        def stop(self) -> None:
            pass

    ended = CoRunner("l2fwd", "lxc", None, Ended())  # type: ignore[arg-type]
    assert CoRunning([ended]).failure() == "co-runner l2fwd: ended with status 1"
    assert CoRunning([]).failure() is None


def test_a_function_that_cannot_be_stopped_costs_no_measurement() -> None:
    class Stuck(Running):
        is_running = True

        def failure(self) -> TestbedError:
            return TestbedError("snort: got no counts", code="no-counts")

        def stop(self) -> None:
            raise self.failure()

    opened = SimpleNamespace(about={})
    stuck = CoRunner("snort", "bare", opened, Stuck())  # type: ignore[arg-type]
    [record] = CoRunning([stuck]).finish()
    assert (record.name, record.platform.name, record.sent) == ("snort", "bare", None)


def test_they_can_run_once_more_in_the_same_folder() -> None:
    """As `compare duet` has them in each of its blocks."""
    needed("stress-ng")
    plan = plan_of({"dut": "l2fwd", "co_runners": {"cpu": 1}})
    with RunFolder() as folder:
        for _ in range(2):
            with CoRunners(plan).open(folder, (0,)) as running:
                assert running.failure() is None
                [load] = running.finish()
                assert load.name == "stress-ng"


def test_a_platform_of_no_co_runner_is_refused(tailscope: Any) -> None:
    done = tailscope("run", "--dut", "l2fwd", "--co-runner-platform", "vm", "--dry-run")
    assert done.returncode == 1 and code_of(done) == "requires-co-runner"
    assert done.stderr.startswith("error: --co-runner-platform"), done.stderr


def test_its_packets_are_those_of_the_device(tailscope: Any) -> None:
    words = ("--co-runner", "l2fwd=2", "--co-runner-platform", "vm", "--dry-run")
    done = tailscope("run", "--dut", "l2fwd", *words)
    assert done.returncode == 0, done.stderr
    assert "beside co-runners: 2 l2fwd (vm)" in done.stdout


def test_every_kind_is_a_load_or_a_device_of_any_platform() -> None:
    assert {*KINDS} < {*CO_RUNNERS}
    for name in {*CO_RUNNERS} - {*KINDS}:
        assert all({*DUTS[name].wires} & {*platform.wires} for platform in PLATFORMS.values())
