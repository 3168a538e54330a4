"""Runs whose times mean nothing, because QEMU emulated the processor."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic import info_of

from tailscope.store.info import is_emulated


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({}, False),
        ({"host": {"cpu_model": "Intel(R) Xeon(R) D-1518 CPU @ 2.20GHz"}}, False),
        ({"platform": {"name": "vm", "representative": True}}, False),
        ({"platform": {"name": "vm", "representative": False}}, True),
        ({"host": {"cpu_model": "QEMU TCG CPU version 2.5+"}}, True),
    ],
)
def test_an_emulated_processor_is_noticed(sections: dict[str, Any], expected: bool) -> None:
    """Be it the guest's, or that of the machine on which all was measured."""
    assert is_emulated(info_of(**sections)) is expected
