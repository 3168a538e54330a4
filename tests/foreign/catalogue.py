"""All kinds of foreign pairs, in the order of their table."""

# Each module enters its kinds.
# ruff: noqa: F401, I001
from . import (
    headers,
    directions,
    tunnels,
    repeats,
    spans,
    clocks,
    links,
    formats,
    forms,
    damaged,
    kernel,
    several,
    hosts,
    flows,
    refused,
)
from .case import CASES

__all__ = ["CASES"]
