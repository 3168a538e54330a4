"""The tables and figures of five papers, and what stands for each of them here."""

from __future__ import annotations

from tailscope.registry import Addition

ADDITION = Addition(
    services={
        "figures": "figures:FIGURES",
        "told-of-cells": "told:told",
        "generated-pages": "page:pages",
        "reported-knobs": "guidelines:KNOBS",
    },
)
