"""The page of a standard's tests: tables and figures with their clauses, and what they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import asdict

from tailscope.extra.standards.asked import STANDARDS
from tailscope.extra.standards.words import (
    clause_texts,
    frame_text,
    remarks_of,
    result_tables,
)
from tailscope.report.page import environment, scripts
from tailscope.report.picture import Axis, Layer, Picture
from tailscope.words.figures import device_text, platform_text

if TYPE_CHECKING:
    from tailscope.extra.standards.records import StandardRecord

_SIZE = Axis("frame [bytes]", "frame_bytes", starts_at_zero=True)
_RATE = Axis("frames/s", "rate_pps", starts_at_zero=True)
_OFFERED = Axis("offered, of the highest rate [%]", "max_rate_percent", starts_at_zero=True)
_LOSS = Axis("loss [%]", "loss_percent", starts_at_zero=True)


def standard_page(record: StandardRecord) -> str:
    """Draw what the tests found as one HTML page, which needs nothing else."""
    drawn = standard_pictures(record)
    host = {
        name.replace("_", " "): str(value)
        for name, value in asdict(record.host).items()
        if value is not None
    }
    return (
        environment("tailscope.extra.standards")
        .get_template("standard.html.j2")
        .render(
            title=STANDARDS[record.standard].about,
            setting=f"{device_text(record.plan)}, {platform_text(record.plan)},"
            f" {record.plan.wire}; trials of {record.trial_s:g} s",
            tables=result_tables(record),
            figures=drawn,
            clauses=clause_texts(record.clauses),
            cannot_claim=record.cannot_claim,
            remarks=[*remarks_of(record)],
            warnings=record.warnings,
            partial=record.partial,
            trials=[
                (
                    str(number),
                    each.test,
                    each.frame,
                    f"{each.rate_pps:,}",
                    f"{each.duration_s:g} s",
                    f"{each.frames_sent:,}",
                    f"{each.frames_received:,}",
                    f"{each.frames_tainted:,}",
                    each.not_offered or "",
                )
                for number, each in enumerate(record.trials, 1)
            ],
            host=host,
            scripts=scripts(drawn),
        )
    )


def standard_pictures(record: StandardRecord) -> list[Picture]:
    """The figures that RFC 2544 asks for: throughput by frame size, and loss by rate."""
    cited = STANDARDS[record.standard].tests
    found = []
    sizes = [
        (size.frame_bytes, size.throughput.rate_pps, size.max_rate_pps)
        for size in record.sizes
        if size.throughput is not None
        and size.throughput.rate_pps is not None
        and size.frame_bytes is not None
    ]
    if sizes:
        frame_bytes, rate_pps, highest = (
            np.array(column, np.float64) for column in zip(*sizes, strict=True)
        )
        layers = tuple(
            Layer("points", label, "", {"x": frame_bytes, "y": y}, label, colour)
            for colour, (label, y) in enumerate(
                (("carried without loss", rate_pps), ("highest rate offered", highest))
            )
        )
        title = f"Throughput by frame size ({cited['throughput'].cited})"
        found.append(Picture("throughput", title, "", _SIZE, _RATE, layers))
    losses = []
    for colour, size in enumerate(record.sizes):
        points = [each for each in size.loss if each.loss_percent is not None]
        if points:
            x = np.array([100 * each.max_rate_ratio for each in points])
            y = np.array([each.loss_percent for each in points], np.float64)
            label = frame_text(size)
            losses.append(Layer("points", label, "", {"x": x, "y": y}, label, colour))
    if losses:
        title = f"Loss by rate ({cited['loss'].cited})"
        found.append(Picture("loss", title, "", _OFFERED, _LOSS, tuple(losses)))
    return found
