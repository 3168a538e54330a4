"""A run as people write it: named values, in text or as a file has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import convert

from tailscope.duts.catalogue import DUTS, without_image
from tailscope.exceptions import UsageError
from tailscope.experiment.packets import flow_count
from tailscope.experiment.plan import RunPlan
from tailscope.plan.fields import CAPTURED, fields_on
from tailscope.platforms.catalogue import PLATFORMS
from tailscope.units import is_bit_rate, mean_frame_bytes, rate_pps

if TYPE_CHECKING:
    from collections.abc import Mapping


FIELDS = fields_on("run")
"""The fields of an experiment by the names that people give them."""

TRAFFIC = {
    name: declared
    for name, declared in FIELDS.items()
    if declared.group == "traffic" and not name.startswith("wire")
}
"""Fields that a file may have in a block `traffic`."""

_FLOWS = ("src_ip", "dst_ip", "src_port", "dst_port")


def no_device(hint: str | None = None) -> UsageError:
    """The error where no device is named."""
    return UsageError(
        f"--dut: got none, expected one of {', '.join(DUTS)}",
        code="no-dut",
        hint=hint or "such as --dut l2fwd, a forwarder that does nothing else",
    )


def plan_of(fields: Mapping[str, object]) -> RunPlan:
    """Make a plan of fields; those that are missing or None have their defaults.

    Errors name a field as the command line does: ``--warm-up``.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if given.get("dut") is None:
        raise no_device()
    given["dut"], image = without_image(str(given["dut"]))
    given.setdefault("wire", _usual_wire(given["dut"], given.get("platform", "bare")))
    if "replay" in given:
        given.setdefault("warm_up", "0s")
        if "rate" not in given:
            given.setdefault("pattern", CAPTURED)
    if is_bit_rate(given.get("rate")):
        given["rate"] = _packet_rate(given)
    read: dict[str, object] = {}
    for name, value in given.items():
        field, found = FIELDS[name], FIELDS[name].read(value)
        if field.otherwise is not None and isinstance(found, str):
            read |= {field.attribute: None, field.otherwise: found}
        else:
            read[field.attribute] = found
    if image is not None:
        own = read.get("dut_options", {})
        assert isinstance(own, dict), "as it was read"
        read["dut_options"] = {**own, "image": image}
    if "flows" not in given:
        read["flows"] = flow_count(**{name: _text_of(read, name) for name in _FLOWS})
    return convert(read, RunPlan)


def _packet_rate(given: Mapping[str, object]) -> int:
    """Return the packet rate that is given in bits per second."""
    if "replay" in given:
        raise UsageError(
            f"--rate: got {given['rate']!r}, expected packets per second such as 10k with --replay:"
            " its frames are of many sizes",
            code="rate",
        )
    size = FIELDS["size"].read(given.get("size", FIELDS["size"].default))
    assert isinstance(size, int | str), "as it was read"
    return rate_pps(str(given["rate"]), "--rate", frame_bytes=mean_frame_bytes(size))


def _text_of(read: Mapping[str, object], name: str) -> str:
    return str(read.get(name, FIELDS[name].default))


def _usual_wire(dut: object, platform: object) -> str:
    """The first wire that both can have."""
    if dut not in DUTS or platform not in PLATFORMS:
        return "memif"
    usual = PLATFORMS[platform].wires
    return next((wire for wire in usual if wire in DUTS[dut].wires), usual[0])
