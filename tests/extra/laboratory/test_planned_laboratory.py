"""A dry run of an experiment with `hosts`: what is known without a connection, and what is not."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of
from measurements import SMALL
from wording import assert_wording

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from measurements import Place

HOSTS = {role: {"cards": ["a", "b"], "ssh": role} for role in ("loadgen", "dut", "timestamper")}


def planned(
    tailscope: Any, place: Place, path: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    done = tailscope("run", path, "--dry-run", *options, env=place.environment, cwd=place.path)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("how", ["tune: true", "noise: events", "power: rapl"])
def test_what_a_laboratory_has_to_record_is_asked_of_the_devices_machine(
    tailscope: Any, place: Place, how: str
) -> None:
    """What can be known without a connection is said; what cannot, too."""
    text = SMALL.replace("noise: stalls", how) + f"hosts: {json.dumps(HOSTS)}\n"
    done = planned(tailscope, place, place.experiment(text))
    assert re.search(rf"^not known yet .*\bdut\b.* {how}$", done.stdout, re.M)


def test_what_only_a_connection_can_tell_of_machines_is_listed(
    tailscope: Any, place: Place
) -> None:
    here = {**HOSTS, "loadgen": {"cards": ["no_such7", "b"]}}
    here["dut"] = {**HOSTS["dut"], "cpus": 4095}
    fixed = "{kernel: rt, boot: nosmt, duration"
    text = SMALL.replace("{duration", fixed) + f"hosts: {json.dumps(here)}\n"
    path = place.experiment(text)
    done = planned(tailscope, place, path)
    unknown = [line for line in done.stdout.splitlines() if line.startswith("not known yet")]
    listed = [line.removeprefix("not known yet").strip() for line in unknown]
    assert_wording("laboratory/not-known-yet", "\n".join(sorted(listed)))
    # This machine can be asked now.
    [missing] = [line for line in done.stdout.splitlines() if line.startswith("missing ")]
    assert_wording("laboratory/missing-link", missing)
    by_role = planned(tailscope, place, path, "--cpus", "dut=2-3").stdout
    assert " 2-3" in by_role and "4095" not in by_role
    refused = tailscope("run", path, "--cpus", "2,3", "--dry-run", env=place.environment)
    assert refused.returncode == 1 and code_of(refused) == "cpus-without-roles"


def test_a_laboratory_takes_longer_than_this_machine(tailscope: Any, place: Place) -> None:
    """Its machines have to be reached for each cell."""
    took = []
    for hosts in ({}, {"hosts": {**HOSTS, "loadgen": {"cards": ["a", "b"]}}}):
        text = SMALL + (f"hosts: {json.dumps(hosts['hosts'])}\n" if hosts else "")
        said = json.loads(planned(tailscope, place, place.experiment(text), "--json", "-").stdout)
        took.append(said["lasts_s"] / len(said["cells"]))
    assert took[1] > took[0] + 1
