"""Sets of CPUs as people and the kernel write them: lists such as ``1,3-5``, and masks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

CPU_ROLES = ("generator", "dut", "housekeeping")
"""Roles of the CPUs of a run."""

_MASK_WORD_DIGITS = 8


def parse_cpus(text: str, option: str | None = None) -> list[int]:
    """Read a list of CPUs as the kernel writes them, such as ``1,3-5``."""
    expected = f"got {text!r}, expected a list of CPUs such as 1,3-5"
    refused = UsageError(expected if option is None else f"{option}: {expected}", code="cpu-list")
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        try:
            low = int(first)
            high = int(last) if last else low
        except ValueError:
            raise refused from None
        if low < 0 or high < low or high - low > 1 << 16:
            raise refused
        cpus += range(low, high + 1)
    return cpus


def cpus_by_role(text: str, option: str) -> dict[str, list[int]]:
    """Read CPUs by role, such as ``generator=2,dut=4-5``, or a list for all that poll."""
    if "=" not in text:
        return {"": list(dict.fromkeys(parse_cpus(text, option)))}
    cpus: dict[str, list[int]] = {}
    for part in re.split(r",(?=[^\d,]*=)", text):
        role, _, listed = part.rpartition("=")
        if role not in CPU_ROLES:
            raise UsageError(
                f"{option}: got {text!r}, expected a list of CPUs such as 1,3-5, or one for each of"
                f" {', '.join(CPU_ROLES)}, such as generator=2,dut=4-5",
                code="cpu-role",
            )
        if role in cpus:
            raise UsageError(f"{option}: got {text!r}, expected {role} once", code="cpu-role-twice")
        anywhere = role == "dut" and listed == "any"
        cpus[role] = [] if anywhere else list(dict.fromkeys(parse_cpus(listed, option)))
    return cpus


def cpu_list(cpus: Iterable[int]) -> str:
    """Write CPUs as the kernel does.

    >>> cpu_list([5, 1, 3, 4])
    '1,3-5'
    """
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in ranges)


def parse_cpu_mask(text: str) -> set[int]:
    """Read a mask of CPUs.

    >>> sorted(parse_cpu_mask("1,00000003"))
    [0, 1, 32]
    """
    bits = int(text.strip().replace(",", ""), 16)
    return {cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1}


def cpu_mask(cpus: Iterable[int], like: str) -> str:
    """Write CPUs as a mask with as many digits as `like`, which the kernel wrote.

    >>> cpu_mask([0, 32], like="f,ffffffff")
    '1,00000001'
    """
    width = sum(char != "," for char in like.strip())
    digits = f"{sum(1 << cpu for cpu in set(cpus)):0{width}x}"
    first = len(digits) % _MASK_WORD_DIGITS
    rest = range(first, len(digits), _MASK_WORD_DIGITS)
    words = [digits[:first], *(digits[at : at + _MASK_WORD_DIGITS] for at in rest)]
    return ",".join(filter(None, words))
