"""One declaration of a run's fields: every place that has them has all of them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any, get_args

import pytest
from docs.reference.cli import commands
from errors import raises
from msgspec import ValidationError, convert, to_builtins
from msgspec.structs import fields
from synthetic import info_of

from tailscope.duts.catalogue import DUTS
from tailscope.exceptions import UsageError
from tailscope.experiment.campaign.spec import schema
from tailscope.experiment.device import Device
from tailscope.experiment.fields import FIELDS, TRAFFIC, plan_of
from tailscope.experiment.packets import Traffic
from tailscope.experiment.plan import HostPlan, Measurement
from tailscope.plan.field import (
    COUNT,
    CPUS,
    DURATION,
    LENGTH,
    RATE,
    SWITCH,
    TEXT,
    fields_of,
)
from tailscope.plan.fields import (
    DUT_NAMES,
    PLATFORM_NAMES,
    WIRE_NAMES,
    AboutFields,
    AnalysisFields,
    PairFields,
    PlanFields,
)
from tailscope.platforms.catalogue import PLATFORMS
from tailscope.store.columns import ABOUT, PLAN, RUN
from tailscope.store.records.base import as_content
from tailscope.store.repeat import command_of
from tailscope.testbed.wires import WIRES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.plan.field import Field, Kind

EVERY = {**fields_of(PlanFields), **fields_of(PairFields)}
OPTIONS = {
    name.removeprefix("tailscope "): {word for each in command.params for word in each.opts}
    for name, command in commands()
}

SAMPLES: dict[Kind, object] = {
    COUNT: 4,
    CPUS: "0,1",
    DURATION: "1500us",
    LENGTH: "250ms",
    RATE: "20k",
    SWITCH: True,
    TEXT: "a text",
}
WRITTEN: dict[str, object] = {
    **{name: SAMPLES.get(field.kind) for name, field in FIELDS.items()},
    "dut": "delay",
    "dut_options": {"law": "fixed:20us"},
    "platform": "lxc",
    "platform_options": {"name": "mine"},
    "kernel": "rt",
    "boot": "nohz_full={cpus} isolcpus={cpus}",
    "load": "one",
    "wire": "veth",
    "wire_options": {"driver": "af_packet"},
    "pattern": "cbr",
    "burst_gap": "100ns",
    "size": "72:1,128:3",
    "protocol": "icmp",
    "queues": 1,
    "vlan": None,
    "encap": "mpls:label=16",
    "src_mac": "02:00:00:00:00:07",
    "dst_mac": "02:00:00:00:00:08",
    "src_ip": "10.0.0.7",
    "dst_ip": "10.0.0.8,10.0.0.9",
    "src_port": "7,8,9,10",
    "dst_port": "80",
    "replay": None,
    "direction": "both",
    "noise": "stalls",
    "stages": "auto",
    "power": "command:echo 'a watt'",
    "co_runners": {"cpu": 1, "io": 2},
    "co_runner_platform": "podman",
}
"""Other than the defaults, but for what cannot be said beside the others."""
USUAL = {"pattern", "queues", "replay", "vlan"}


@pytest.mark.parametrize("field", EVERY.values(), ids=lambda field: field.attribute)
def test_a_field_is_an_option_where_it_says_so(field: Field) -> None:
    for command in OPTIONS.keys() & field.on:
        assert {field.option, *filter(None, [field.short])} <= OPTIONS[command]


def test_each_field_is_in_one_part_of_a_plan() -> None:
    """Parts repeat names and types, as a struct cannot be made of several others."""
    parts = [each for part in (Device, Traffic, Measurement, HostPlan) for each in fields(part)]
    own = fields(PlanFields)[len(fields(AnalysisFields)) :]
    declared = {each.name: get_args(each.type)[0] for each in own}
    assert [*declared.items()] == [(each.name, each.type) for each in parts]


def test_every_field_of_a_run_is_a_field_of_an_experiment() -> None:
    parts = schema()["$defs"]
    properties = parts["Fields"]["properties"]
    assert set(properties) == set(FIELDS) | {"traffic"}
    assert set(parts["Traffic"]["properties"]) == set(TRAFFIC)


def test_a_plan_can_name_what_is_in_the_catalogues() -> None:
    """Names are declared with the fields, so that help and records need no catalogue."""
    assert tuple(DUTS) == DUT_NAMES
    assert tuple(PLATFORMS) == PLATFORM_NAMES
    assert tuple(WIRES) == WIRE_NAMES


def test_every_field_but_a_few_is_a_column() -> None:
    assert set(EVERY) - set(PLAN) == {"kernel", "worst"}
    assert set(PLAN) - set(EVERY) == {"command"}


def test_every_label_is_a_column() -> None:
    labels = fields_of(AboutFields)
    assert set(labels) <= set(RUN)
    assert set(labels) - set(ABOUT) == {
        "kernel",
        "kernel_release",
        "clock",
        "cpu_model",
        "cpu_count",
    }


def test_a_label_means_what_the_field_of_its_name_does() -> None:
    fields = fields_of(PlanFields)
    for name, label in fields_of(AboutFields).items():
        if name in fields:
            # A label is of one size: captures do not say how sizes are mixed.
            kinds = {fields[name].kind, COUNT} if name == "size_bytes" else {fields[name].kind}
            assert label.kind in kinds
            assert label.name == fields[name].name


def test_a_run_with_every_field_is_repeated_exactly(tailscope: Callable[..., Any]) -> None:
    plan, usual = plan_of(WRITTEN), plan_of({"dut": "l2fwd"})
    assert {
        name
        for name, field in FIELDS.items()
        if getattr(plan, field.attribute) == getattr(usual, field.attribute)
    } == USUAL
    written = as_content(plan.record())
    program, *words = shlex.split(command_of(info_of(plan=written)) or "")
    assert program == "tailscope"
    words[words.index("--cpus") : words.index("--cpus") + 2] = []
    planned = json.loads(tailscope(*words, "--dry-run", "--json", "-").stdout)
    assert {name: planned[name] for name in written if name != "cpus"} == {
        name: value for name, value in written.items() if name != "cpus"
    }


def test_a_plan_is_read_back_as_it_was_written() -> None:
    plan = plan_of(WRITTEN)
    own = {name: value for name, value in as_content(plan.record()).items() if name in EVERY}
    assert to_builtins(convert(own, PlanFields)) == to_builtins(plan)


def test_what_no_field_is_called_is_not_left_out_of_the_repeated_command() -> None:
    plan = {**as_content(plan_of({"dut": "l2fwd"}).record()), "colour": "red"}
    with pytest.raises(ValidationError) as raised:
        info_of(plan=plan)
    assert "`colour`" in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "code", "got"),
    [
        ({"burst": 600}, "out-of-range", "--burst: got 600, expected 1 to 512 packets"),
        ({"size": 12}, "out-of-range", "--size: got 12, expected 64 to 1518 bytes"),
        ({"instances": 65}, "out-of-range", "--instances: got 65, expected 1 to 64"),
        ({"seed": -1}, "out-of-range", "--seed: got -1, expected at least 0"),
        ({"rate": 0}, "out-of-range", "--rate: got 0, expected at least 1 packet/s"),
        ({"load": "none"}, "unknown-name", "--load: got 'none', expected all or one"),
        (
            {"noise": "all"},
            "unknown-name",
            "--noise: got 'all', expected one of auto, events, stalls",
        ),
        (
            {"kernel": "windows"},
            "unknown-name",
            "--kernel: got 'windows', expected one of vanilla, rt, nohz",
        ),
        (
            {"kernel": "rt-"},
            "unknown-name",
            "--kernel: got 'rt-', expected one of vanilla, rt, nohz",
        ),
        (
            {"co_runners": {"gpu": 1}},
            "unknown-name",
            "--co-runner: got 'gpu', expected one of cpu, cache, memory",
        ),
        ({"co_runners": {"cpu": 0}}, "out-of-range", "--co-runner cpu: got 0, expected at least 1"),
        (
            {"co_runners": {"cpu": "x"}},
            "worker-count",
            "--co-runner cpu: got 'x', expected a number of workers",
        ),
    ],
)
def test_a_plan_has_what_is_allowed(fields: dict[str, object], code: str, got: str) -> None:
    with raises(UsageError, code) as error:
        plan_of({"dut": "l2fwd", **fields})
    assert str(error.value).startswith(got)


def test_a_duration_is_not_zero() -> None:
    with pytest.raises(UsageError) as error:
        plan_of({"dut": "l2fwd", "duration": "0s"})
    assert str(error.value).startswith("--duration: ")


def test_the_declaration_knows_nothing_of_what_is_built_on_it() -> None:
    """What reads runs has it without devices, platforms and wires."""
    program = "import sys, tailscope.plan.fields; print(*(name for name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    own = {name for name in done.stdout.split() if name.split(".")[0] == "tailscope"}
    low = ("exceptions", "plan", "plan.field", "plan.fields", "units")
    assert own == {"tailscope", *(f"tailscope.{name}" for name in low)}
