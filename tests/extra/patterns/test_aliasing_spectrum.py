"""Spectra of delayed packets, a part at a time."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tailscope.extra.patterns.models.aliasing.spectrum import Arrivals, _power, peaks


@pytest.mark.parametrize(("values", "length"), [(30_000, 81_920), (400, 1_024), (7, 16), (3, 9)])
def test_power_is_that_of_one_transform(values: int, length: int) -> None:
    rng = np.random.default_rng(length)
    excess = rng.normal(size=values).astype(np.float32)
    whole = np.abs(np.fft.rfft(excess, length)[: length // 4]) ** 2
    near = 1e-4 * float(whole.mean())
    assert _power(excess, length, len(whole)) == pytest.approx(whole, abs=near)


def test_a_spectrum_takes_less_memory_than_one_transform() -> None:
    rng = np.random.default_rng(1)
    came = Arrivals(np.sort(rng.integers(0, 60 * 10**9, 10_000)))
    tracemalloc.start()
    peaks(came, np.arange(0, 10_000, 7))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    transform = 2 * len(came.counts) // 2 * np.dtype(np.complex64).itemsize
    assert most < 3.5 * transform
