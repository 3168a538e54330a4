"""The guidelines of commag2020 that `host audit` reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tailscope.extra.papers.guidelines import KNOBS
from tailscope.host.audit import audit
from tailscope.host.machine import Machine

if TYPE_CHECKING:
    from pathlib import Path

VANILLA = "Linux version 6.1.0 #1 SMP PREEMPT_DYNAMIC"


def states(
    root: Path, *, driver: str = "ixgbe", total: str = "63", made: str = "0", version: str = VANILLA
) -> dict[str, str]:
    """Judge a machine with two cards."""
    for slot in ("01", "02"):
        card = root / f"sys/bus/pci/devices/0000:{slot}:00.0"
        card.mkdir(parents=True)
        texts = {"class": "0x020000", "sriov_totalvfs": total, "sriov_numvfs": made}
        for name, text in texts.items():
            (card / name).write_text(f"{text}\n")
        bound = root / "sys/bus/pci/drivers" / driver
        bound.mkdir(parents=True, exist_ok=True)
        (card / "driver").symlink_to(bound)
    (root / "proc").mkdir()
    (root / "proc/version").write_text(f"{version}\n")
    return {each.name: each.state for each in audit(Machine(root), (1,), KNOBS).findings}


@pytest.mark.parametrize(
    ("changes", "name", "state"),
    [
        ({}, "packet-framework", "bad"),
        ({"driver": "vfio-pci"}, "packet-framework", "good"),
        ({}, "virtual-functions", "bad"),
        ({"made": "1"}, "virtual-functions", "good"),
        ({"total": "0"}, "virtual-functions", "not applicable"),
        ({}, "preemption", "bad"),
        ({"version": f"{VANILLA}_RT PREEMPT_RT"}, "preemption", "good"),
    ],
)
def test_a_guideline_is_judged(
    tmp_path: Path, changes: dict[str, str], name: str, state: str
) -> None:
    assert states(tmp_path, **changes)[name] == state


def test_a_machine_without_cards_has_none_to_judge(tmp_path: Path) -> None:
    found = audit(Machine(tmp_path), (1,), KNOBS).findings
    assert {each.state for each in found} == {"not applicable"}
