"""Formats of figures, their styles and colours: what can be said without drawing."""

from __future__ import annotations

from dataclasses import dataclass, field

FORMATS = ("png", "svg", "pdf")

STYLES = ("screen", "paper")

OTHERS_COLOUR = "#7f868e"
"""Colour of what a legend does not name."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", OTHERS_COLOUR)
"""Okabe and Ito, without the black and the yellow that one of two themes would hide; and grey."""

CELLS = (
    "#440154",
    "#470d60",
    "#48186a",
    "#482374",
    "#472e7c",
    "#453882",
    "#424186",
    "#3e4a89",
    "#3a548c",
    "#365d8d",
    "#32658e",
    "#2e6d8e",
    "#2b758e",
    "#287d8e",
    "#25848e",
    "#228c8d",
    "#1f948c",
    "#1e9c89",
    "#20a386",
    "#25ab82",
    "#2eb37c",
    "#3aba76",
    "#48c16e",
    "#58c765",
    "#6ccd5a",
    "#7fd34e",
    "#93d741",
    "#a8db34",
    "#c0df25",
    "#d5e21a",
    "#eae51a",
    "#fde725",
)
"""Colours from few to many, in a dark theme: viridis, of Smith and van der Walt, in steps."""

_SETTINGS: dict[str, object] = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "grid.linewidth": 0.6,
    "pdf.fonttype": 42,
    "svg.hashsalt": "tailscope",
    "text.parse_math": False,
}


@dataclass(frozen=True)
class Style:
    """A style of figures."""

    width_in: float
    height_in: float
    """Size of one figure, without its legend."""
    colours: tuple[str, ...]
    settings: dict[str, object] = field(hash=False)
    """Settings of matplotlib."""
    titled: bool
    """True if figures have titles; in a paper the caption does that."""
    distinct: bool
    """True if dashes and markers differ where colours do, for print in grey."""


SCREEN = Style(
    width_in=7.2,
    height_in=3.7,
    colours=COLOURS,
    settings={
        **_SETTINGS,
        "axes.edgecolor": "#1b1f24",
        "font.size": 9,
        "grid.color": "#d0d7de",
        "lines.linewidth": 1.3,
        "lines.markersize": 3,
        "svg.fonttype": "none",
    },
    titled=True,
    distinct=False,
)

PAPER = Style(
    # A column of a page of two.
    width_in=3.45,
    height_in=2.3,
    # Ordered by lightness, so that neighbours differ in grey as well.
    colours=("#000000", "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#E69F00", "#999999"),
    settings={
        **_SETTINGS,
        "axes.linewidth": 0.6,
        "font.size": 7.5,
        "grid.color": "#cccccc",
        "grid.linewidth": 0.4,
        "lines.linewidth": 1.0,
        "lines.markersize": 2.2,
        # As outlines: a paper must not depend on the fonts of its readers.
        "svg.fonttype": "path",
    },
    titled=False,
    distinct=True,
)

LOOKS = dict(zip(STYLES, (SCREEN, PAPER), strict=True))
