"""A model of the tail: what lies beyond a measurement, by extreme values."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition, Extra

ADDITION = Addition(
    commands=(AddedCommand("tail", "Extrapolate the tail beyond the measurement.", group="model"),),
    extra=Extra("tail", {"scipy": "scipy"}),
)
