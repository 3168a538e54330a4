"""Formats of figures, and their colours: what can be said without drawing."""

from __future__ import annotations

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
