"""Rights of an ordinary user with some capabilities or none, as docs/security.md describes them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of
from measurements import (
    NOBODY,
    Place,
    begun_by_nobody,
    polling,
    quick,
    replaced,
    told_nobody,
    wait_until,
)
from runs import AS_ROOT, left_behind, needed, sound
from test_cards import cabled

from tailscope.testbed.tracefs import tracefs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

pytestmark = [AS_ROOT, pytest.mark.usefixtures("dataplane", "setpriv")]

__all__ = ["cabled"]

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
VETH = ("--wire", "veth")
EVENTS = ("--noise", "events")
TRACER = {"dac_override", "sys_admin"}
MOUNTED = "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing"
UNMOUNTED = "! mountpoint -q /sys/kernel/tracing || umount -l /sys/kernel/tracing"


def shown(section: str) -> str:
    """Return a section of the page."""
    return PAGE.read_text().partition(f"\n### {section}\n")[2].partition("\n### ")[0]


def command_of(section: str) -> list[str]:
    """Return the words of the command in a section, up to tailscope."""
    text = shown(section).partition("```sh\n")[2].partition("```")[0]
    words = shlex.split(text.replace("\\\n", " "))
    return words[: words.index(".venv/bin/tailscope")]


def documented() -> frozenset[str]:
    """Return the capabilities of the command on the page."""
    options = dict(zip(words := command_of("Capabilities"), words[1:], strict=False))
    sets = [options[f"--{kind}"] for kind in ("inh-caps", "ambient-caps", "bounding-set")]
    named = [frozenset(text.removeprefix("-all,").split(",")) for text in sets]
    assert len({*named}) == 1
    return frozenset(name.removeprefix("+") for name in named[0])


def after(setup: str) -> tuple[str, ...]:
    """Return the words that start a command with its own mounts."""
    return ("unshare", "--mount", "sh", "-c", f'({setup}) && exec "$0" "$@"')


ENOUGH = documented()


@pytest.fixture(scope="session")
def setpriv() -> None:
    """Check for the programs, and undo the gift of an earlier session that was killed."""
    needed("setpriv", "ip")
    with tracefs() as root:
        given = root / "instances"
        if given.stat().st_uid == NOBODY:
            os.chown(given, 0, 0)
            root.chmod(0o700)


@pytest.fixture
def place(scratch: Path) -> Place:
    """Make a home outside of pytest's folders, which other users cannot enter."""
    return Place.in_folder(scratch)


@pytest.fixture(autouse=True)
def nothing_is_left(place: Place) -> Iterator[None]:
    """Check that no folder, namespace, process or tracer instance of this user is left behind."""
    yield
    assert not place.left()
    assert not [thing for thing in left_behind() if f"tailscope-{NOBODY}-" in thing]


def tried(
    place: Place, *options: str, capabilities: Collection[str] = ENOUGH
) -> subprocess.CompletedProcess[str]:
    """Run `l2fwd` as an ordinary user."""
    out = str(place.path / "out")
    arguments = ("run", *replaced({"--dut": "l2fwd"}, *quick(*options)), "--out", out)
    return told_nobody(place, *arguments, capabilities=capabilities)


def measured(place: Place, *options: str, capabilities: Collection[str] = ENOUGH) -> dict[str, Any]:
    """Return the record of a run whose packets are all accounted for."""
    done = tried(place, *options, capabilities=capabilities)
    assert done.returncode == 0, done.stderr
    assert (place.path / "out").stat().st_uid == NOBODY
    return sound(place.path / "out")


def has_named_causes(place: Place, run: dict[str, Any]) -> bool:
    """Return True if kernel events were recorded, and some have names."""
    import pyarrow.parquet as pq

    assert run["noise"]["events_missing_because"] is None
    assert run["noise"]["events"]["lost"]
    causes = {
        name
        for row in pq.read_table(place.path / "out" / "noise.parquet").to_pylist()
        for name in row.values()
        if isinstance(name, str)
    }
    return any(name.startswith(("local timer", "task ", "softirq ")) for name in causes)


def test_the_documented_capabilities_are_enough(place: Place) -> None:
    run = measured(place, *VETH, *EVENTS)
    assert run["plan"]["wire"] == "veth"
    assert has_named_causes(place, run)
    assert run["instrument"]["raised_priority"]


def test_the_table_explains_the_documented_capabilities() -> None:
    explained = set(re.findall(r"^\| `cap_(\w+)` \|", shown("Capabilities"), re.MULTILINE))
    assert explained - ENOUGH == {"ipc_lock"}
    assert explained >= ENOUGH


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param(name, marks=[pytest.mark.long] if name == "sys_nice" else [])
        for name in sorted(ENOUGH)
    ],
)
def test_each_capability_is_needed_for_what_the_page_says(place: Place, missing: str) -> None:
    fewer = ENOUGH - {missing}
    if missing == "sys_nice":
        run = measured(place, *VETH, *EVENTS, capabilities=fewer)
        assert run["instrument"]["raised_priority"] is False
        return
    done = tried(place, *VETH, *EVENTS, capabilities=fewer)
    assert done.returncode == 1
    assert code_of(done) == "missing-capability"
    assert f"wire veth: missing cap_{missing} " in done.stderr
    assert "setpriv --ambient-caps" in done.stderr
    assert not (place.path / "out").exists()


@pytest.mark.parametrize("mounted", [False, pytest.param(True, marks=pytest.mark.long)])
def test_events_need_two_capabilities(place: Place, mounted: bool) -> None:
    """One is enough if the tracer's files are mounted already."""
    enough = TRACER - {"sys_admin"} if mounted else TRACER
    setup = MOUNTED if mounted else UNMOUNTED
    place.outside = after(setup)
    for missing in enough:
        done = tried(place, *EVENTS, capabilities=TRACER - {missing})
        assert done.returncode == 1
        assert f"missing cap_{missing} [missing-capability]\n" in done.stderr
    assert has_named_causes(place, measured(place, *EVENTS, capabilities=enough))


def test_a_run_that_may_not_record_says_what_was_missing(place: Place) -> None:
    run = measured(place, "--noise", "auto", capabilities=())
    assert run["noise"]["events"] is None
    assert "missing cap_dac_override" in run["noise"]["events_missing_because"]


@pytest.mark.usefixtures("alone")
def test_af_xdp_needs_to_lock_memory(place: Place) -> None:
    af_xdp = (*VETH, "--wire-option", "driver=af_xdp")
    place.prefix = ("prlimit", "--memlock=65536:65536")
    done = tried(place, *af_xdp)
    assert done.returncode == 1
    assert code_of(done) == "missing-capability"
    assert "af_xdp: missing cap_ipc_lock " in done.stderr
    # test_veth checks that packets cross the kernel: on a busy machine that may take long.
    done = tried(place, *af_xdp, capabilities=ENOUGH | {"ipc_lock"})
    assert "error: " not in done.stderr
    assert "sent" in done.stdout


@pytest.mark.parametrize("wire", [pytest.param("veth", marks=pytest.mark.long), "pci"])
def test_devices_of_the_kernel_and_cards_work_too(
    place: Place, cabled: tuple[str, ...], wire: str
) -> None:
    measured(place, "--dut", "bridge", "--wire", wire, *(cabled if wire == "pci" else ()))


@pytest.mark.long
def test_a_folder_of_ones_own_for_namespaces_will_do(place: Place) -> None:
    own = f"mount -t tmpfs -o uid={NOBODY},mode=755 tmpfs /run"
    place.outside = after(own)
    measured(place, *VETH, capabilities=ENOUGH - {"dac_override"})


@pytest.fixture
def confined(place: Place) -> Place:
    """Return a place whose commands start in a user namespace, as on the page."""
    words = command_of("Kernel links in a user namespace")
    made = subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", "--clear-groups", *words, "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"no user namespaces for ordinary users: {made.stderr.strip()}")
    place.prefix = tuple(words)
    return place


def test_a_user_namespace_will_do_for_links(confined: Place) -> None:
    run = measured(confined, *VETH, capabilities=())
    assert run["plan"]["wire"] == "veth"
    assert run["instrument"]["raised_priority"] is False


OF_MACHINE = "of the machine"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (EVENTS, "missing cap_dac_override"),
        (("--wire-option", "driver=af_xdp"), "driver af_xdp: missing cap_"),
        (("--dut", "bridge"), "dut0: missing cap_dac_override, cap_net_admin"),
    ],
)
def test_what_a_user_namespace_lacks_is_named(
    confined: Place, options: tuple[str, ...], expected: str
) -> None:
    done = tried(confined, *VETH, *options, capabilities=())
    assert done.returncode == 1
    assert code_of(done) == "missing-capability"
    assert expected in done.stderr and OF_MACHINE in done.stderr


@pytest.mark.parametrize(
    ("without", "code", "remedy"),
    [
        ("--net", "no-network-namespace", "unshare --net"),
        ("mount", "read-only", "mount -t tmpfs tmpfs /run"),
    ],
)
def test_a_user_namespace_that_is_half_made_is_named(
    confined: Place, without: str, code: str, remedy: str
) -> None:
    if without == "mount":
        confined.prefix = confined.prefix[: confined.prefix.index("sh")]
    else:
        confined.prefix = tuple(word for word in confined.prefix if word != without)
    done = tried(confined, *VETH, capabilities=())
    assert done.returncode == 1
    assert code_of(done) == code and "error: wire veth: " in done.stderr
    assert remedy in done.stderr


@pytest.fixture
def given_away(alone: None, place: Place) -> Iterator[Place]:
    """Give the tracer's instances to a user, as on the page, until the test ends."""
    text = shown("Kernel events from an instance of your own")
    lines = [
        line.removeprefix("sudo ").replace("measurer", str(NOBODY))
        for line in text.partition("```sh\n")[2].partition("```")[0].splitlines()
    ]
    place.outside = after(MOUNTED)
    names = [word for line in lines for word in line.split() if word.startswith("/")]
    with tracefs() as root:
        files = [root / os.path.relpath(name, "/sys/kernel/tracing") for name in names]
        before = {path: path.stat() for path in files}
        try:
            subprocess.run([*place.outside, "sh", "-ec", "\n".join(lines)], check=True)
            yield place
        finally:
            for path, status in before.items():
                os.chown(path, status.st_uid, status.st_gid)
                path.chmod(status.st_mode & 0o7777)


@pytest.mark.parametrize("wire", ["memif", pytest.param("veth", marks=pytest.mark.long)])
def test_a_tracer_that_was_given_away_will_do(
    given_away: Place, request: pytest.FixtureRequest, wire: str
) -> None:
    if wire == "veth":
        request.getfixturevalue("confined")
    run = measured(given_away, "--wire", wire, *EVENTS, capabilities=())
    assert run["plan"]["wire"] == wire
    assert has_named_causes(given_away, run)


@pytest.mark.usefixtures("alone")
def test_a_killed_measurement_is_cleaned_by_who_may_measure(place: Place) -> None:
    out = str(place.path / "out")
    arguments = ("run", "--dut", "l2fwd", *VETH, *EVENTS, "--duration", "60s", "--out", out)
    process = begun_by_nobody(place, *arguments, capabilities=ENOUGH)
    wait_until(lambda: polling(process) >= 2, process)
    # Without these capabilities the user may not even look into it.
    spared = told_nobody(place, "runs", "clean")
    assert "nothing" in spared.stdout, spared
    process.send_signal(signal.SIGKILL)
    process.communicate()
    refused = told_nobody(place, "runs", "clean")
    assert refused.returncode == 1, refused
    assert re.search(r": /\S+/netns/tailscope-\S+: Permission denied", refused.stderr)
    assert "hint: " in refused.stderr
    done = told_nobody(place, "runs", "clean", capabilities=ENOUGH)
    assert done.returncode == 0, done
    assert "network namespace tailscope-" in done.stdout
    assert "kernel tracer tailscope-" in done.stdout
