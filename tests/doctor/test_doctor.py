"""``tailscope doctor``: everything registered is tried, and errors say what it says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from measurements import Place, told_nobody
from runs import AS_ROOT, needed

from tailscope.cli import main
from tailscope.doctor import trial
from tailscope.doctor.answer import busy_text, lacks
from tailscope.doctor.examination import examine_machine
from tailscope.duts.catalogue import DUTS
from tailscope.exceptions import TailscopeError, TestbedError
from tailscope.host import remedies
from tailscope.platforms.catalogue import PLATFORMS
from tailscope.registry import extras
from tailscope.store.records.base import as_content, convert
from tailscope.store.records.doctor import BusyProgram, DoctorRecord, MachineLoad
from tailscope.testbed import process
from tailscope.testbed.wires import WIRES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REGISTERED = {
    "wires": WIRES,
    "devices": DUTS,
    "platforms": PLATFORMS,
    "extras": extras(),
}


def by_name(findings: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in findings}


@pytest.fixture
def without_dataplane(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DoctorRecord:
    """What is found where the data plane was not built."""
    monkeypatch.setattr(process, "_BINARY", tmp_path / "tailscope-dp")
    return examine_machine()


@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_everything_registered_is_examined(
    tailscope: Callable[..., Any], place: Place, tmp_path: Path
) -> None:
    needed("ip")
    file = tmp_path / "doctor.json"
    done = tailscope("doctor", "--json", file, env=place.environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert convert(found, DoctorRecord, "doctor")
    for kind, registry in REGISTERED.items():
        assert [*by_name(found[kind])] == [*registry]
    assert " ".join(done.stdout.partition("\n\n")[0].split()) == found["answer"]
    assert by_name(found["wires"])["veth"]["state"] == "tried"
    assert by_name(found["devices"])["bridge"]["state"] == "tried"
    assert found["floor"]["quantiles"][0]["value_ns"] > 0
    assert not [*place.path.glob("state/**/floor-*")], "it is not kept"


@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_an_ordinary_user_is_told_which_privileges_add_what(place: Place) -> None:
    needed("setpriv")
    done = told_nobody(place, "doctor", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["answer"].startswith("This machine can measure: shared memory, ")
    wires, platforms = by_name(found["wires"]), by_name(found["platforms"])
    assert (wires["memif"]["state"], wires["veth"]["state"]) == ("tried", "missing")
    assert wires["veth"]["remedy"] == remedies.capabilities()
    bridge = by_name(found["devices"])["bridge"]
    if wires["vhost"]["state"] == "missing":
        assert bridge["remedy"] == remedies.capabilities()
    else:
        assert bridge["state"] == "found", "in a guest it needs no privileges"
    assert platforms["lxc"]["state"] == "missing"
    assert by_name(found["host_parts"])["tuning"]["remedy"] == remedies.SUDO


def test_without_the_data_plane_the_line_that_adds_it_is_that_of_a_run(
    without_dataplane: DoctorRecord,
) -> None:
    assert {wire.remedy for wire in without_dataplane.wires} == {remedies.DATAPLANE}
    assert {each.state for each in without_dataplane.devices} == {"missing"}
    assert without_dataplane.floor is None
    assert "measure nothing" in without_dataplane.answer
    [reason] = [text for text, remedy in lacks(without_dataplane) if remedy == remedies.DATAPLANE]
    assert all(name in reason for name in (*WIRES, *DUTS)), "one line adds all of them"
    with pytest.raises(TailscopeError) as refused:
        process.find_binary()
    assert refused.value.remedy == remedies.DATAPLANE
    assert refused.value.hint is not None
    assert refused.value.hint.startswith(remedies.DATAPLANE)
    assert "`tailscope doctor`" in refused.value.hint
    assert convert(as_content(without_dataplane), DoctorRecord, "doctor") == without_dataplane


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty", "\x7fELF and no more"),
        ("unlinked", "#!/bin/sh\necho error while loading shared libraries: libx >&2; exit 127"),
        ("killed", "#!/bin/sh\nkill -ILL $$"),
    ],
)
def test_a_program_that_is_there_and_does_not_start_is_missing(
    name: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / name
    program.write_text(content)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(TestbedError) as refused:
        trial.start_programs("dut x", {name: "a-package"})
    assert refused.value.remedy == remedies.package("a-package")


def test_a_program_that_knows_no_version_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "silent"
    program.write_text("#!/bin/sh\nexit 2")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    trial.start_programs("dut x", {"silent": "a-package"})


def test_what_a_program_keeps_while_it_is_tried_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "keeping"
    program.write_text(f'#!/bin/sh\necho > "$XDG_RUNTIME_DIR/kept"; pwd > {tmp_path}/tried\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    trial.start_programs("dut x", {"keeping": "a-package"})
    assert (tmp_path / "tried").is_file() and not (tmp_path / "kept").exists()


def test_a_run_says_before_it_starts_who_uses_its_cpus_and_what_its_rate_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def executed(*_: object, checked: Callable[[], None], **__: object) -> Any:
        checked()
        raise TestbedError("no more", code="started")

    monkeypatch.setattr("tailscope.noise.load.load_text", lambda cpus: f"chromium on {len(cpus)}")
    monkeypatch.setattr("tailscope.experiment.run.execute.execute", executed)
    words = ["run", "--dut", "l2fwd", "--rate", "1Gbps", "--out", str(tmp_path / "run")]
    assert main(words) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("--rate: 1Gbps is 1,488,095 packets/s: frames of 64 bytes")
    assert said[1] == "chromium on 2"
    assert said[2].endswith("[started]")


def test_who_is_busy_is_named(without_dataplane: DoctorRecord) -> None:
    from msgspec.structs import replace

    def busy(cpus: dict[str, float], **programs: float) -> str:
        named = tuple(BusyProgram(name=name, share=share) for name, share in programs.items())
        return busy_text(replace(without_dataplane, load=MachineLoad(cpus=cpus, programs=named)))

    assert busy({"0": 0.4}, chromium=0.38, cron=0.02) == "chromium 38 %"
    assert busy({"0": 0.4, "1": 0.01}) == "CPU 0 40 %"
    assert busy({"0": 0.01}) == "nobody"


def test_a_remedy_stands_before_what_can_be_done_instead() -> None:
    error = TailscopeError("no x", remedy="install x", hint="do without")
    assert error.remedy == "install x"
    assert error.hint is not None
    assert error.hint.startswith("install x, or do without; `tailscope doctor`")
    assert TailscopeError("no x", hint="do without").hint == "do without"
