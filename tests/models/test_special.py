"""Special functions: against SciPy's where those are right, against exact arithmetic elsewhere.

SciPy 1.17 is wrong in a few places that tailscope asks for: its quantile of the beta law of 1000
and 10^9 does not depend on the share, and `bdtr(2, 15 * 10**9, 1e-8)` is 2e-7 instead of 8e-62.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special as scipy
from scipy.stats import false_discovery_control

from tailscope.models.counting import share_beyond
from tailscope.models.differences import ranks_around
from tailscope.models.samples import packets_for_bound
from tailscope.models.special import bdtr, betainc, betaincinv, stdtrit
from tailscope.noise.association import _adjusted

if TYPE_CHECKING:
    from numpy.typing import NDArray

PARAMETERS = (1e-3, 0.1, 0.5, 1, 1.5, 2, 5, 10.3, 50, 300.5, 1e3, 12345.6, 1e6, 1e9)
PLACES = (1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.3, 0.5, 0.9, 0.999, 1 - 1e-6, 1 - 1e-9)
SHARES = (1e-30, 1e-9, 1e-3, 0.025, 0.3, 0.5, 0.7, 0.95, 0.999, 1 - 1e-6)
LAWS = tuple(product(PARAMETERS, PARAMETERS))
EXACT = 1e-10


def errors(ours: list[float], theirs: list[float]) -> NDArray[np.float64]:
    return np.abs(np.array(ours) / np.array(theirs) - 1)


def exact_bdtr(k: int, n: int, p: Decimal) -> Decimal:
    """The binomial law by its sum, with 60 digits."""
    with localcontext(prec=60):
        term = total = (1 - p) ** n
        for number in range(k):
            term *= (n - number) * p / ((number + 1) * (1 - p))
            total += term
        return +total


def test_shares_are_those_of_scipy() -> None:
    cases = [(a, b, x) for (a, b), x in product(LAWS, PLACES) if scipy.betainc(a, b, x) > 1e-300]
    assert len(cases) > 1600
    theirs = [float(scipy.betainc(*case)) for case in cases]
    assert errors([betainc(*case) for case in cases], theirs).max() < EXACT


def test_places_are_those_of_scipy() -> None:
    """As far as SciPy itself finds both shares again there, and a place can be told from 1."""
    cases = []
    for (a, b), p in product(LAWS, SHARES):
        x = float(scipy.betaincinv(a, b, p))
        shares = [float(scipy.betainc(a, b, x)), float(scipy.betaincc(a, b, x))]
        if 1e-290 < x < 1 - 1e-6 and max(errors(shares, [p, 1 - p])) < EXACT / 100:
            cases.append((a, b, p, x))
    assert len(cases) > 1100
    assert errors([betaincinv(*case[:3]) for case in cases], [x for *_, x in cases]).max() < EXACT


@given(
    a=st.floats(0.1, 1e9),
    b=st.floats(0.1, 1e9),
    p=st.floats(1e-12, 0.9),
)
def test_the_share_up_to_a_place_is_found_again(a: float, b: float, p: float) -> None:
    x = betaincinv(a, b, p)
    if 1e-300 < x < 0.5:
        assert betainc(a, b, x) == pytest.approx(p, rel=1e-9)


def test_the_ends_of_a_beta_law() -> None:
    assert (betainc(2, 3, 0), betainc(2, 3, 1)) == (0, 1)
    assert (betaincinv(2, 3, 0), betaincinv(2, 3, 1)) == (0, 1)


@pytest.mark.parametrize("df", [1, 1.5, 2, 5, 10.5, 30, 99, 1e4, 1e9])
def test_quantiles_of_student_are_those_of_scipy(df: float) -> None:
    shares = [1e-100, 1e-12, 1e-3, 0.005, 0.025, 0.05, 0.2, 0.4, 0.7, 0.975, 0.9999]
    theirs = [float(scipy.stdtrit(df, p)) for p in shares]
    assert errors([stdtrit(df, p) for p in shares], theirs).max() < EXACT
    assert stdtrit(df, 0.5) == 0


@pytest.mark.parametrize("p", [1e-200, 1e-6, 0.025, 0.499999, 0.5000001])
def test_quantiles_of_student_with_one_degree_of_freedom(p: float) -> None:
    assert stdtrit(1, p) == pytest.approx(-1 / math.tan(math.pi * p), rel=1e-9)


@pytest.mark.parametrize("rare", ["0.1", "0.001", "1e-6", "1e-8", "1e-9"])
@pytest.mark.parametrize("k", [0, 1, 10, 100])
@pytest.mark.parametrize("times", ["0.1", "1", "3", "15"])
def test_a_binomial_law_is_its_sum(rare: str, k: int, times: str) -> None:
    n = k + 1 + int((k + 1) * Decimal(times) / Decimal(rare))
    exact = float(exact_bdtr(k, n, Decimal(rare)))
    assert bdtr(k, n, float(rare)) == pytest.approx(exact, rel=EXACT, abs=1e-300)


@pytest.mark.parametrize("beyond", [0, 1, 5, 30, 100])
@pytest.mark.parametrize("rare", ["0.5", "0.01", "1e-4", "1e-6", "1e-8", "1e-9"])
def test_numbers_of_packets_are_exact(rare: str, beyond: int) -> None:
    packets = packets_for_bound(float(1 - Decimal(rare)), beyond)
    error = Decimal("0.05")
    assert exact_bdtr(beyond, packets, Decimal(rare)) <= error
    assert exact_bdtr(beyond, packets - 1, Decimal(rare)) > error


@pytest.mark.parametrize("q", [0.5, 0.99, 0.999, 0.99999, 0.9999999])
@pytest.mark.parametrize("packets", [20, 1000, 12_345, 10**6, 10**9])
@pytest.mark.parametrize("design", [1, 1.7, 300.5])
def test_ranks_are_those_of_scipy(
    monkeypatch: pytest.MonkeyPatch, q: float, packets: int, design: float
) -> None:
    cases = [(q, packets, design, error) for error in (0.0005, 0.025, 0.05)]
    ours = [ranks_around(*case) for case in cases]
    monkeypatch.setattr("tailscope.models.differences.betainc", scipy.betainc)
    assert ours == [ranks_around(*case) for case in cases]


def test_bounds_of_a_rare_share_are_around_it() -> None:
    share = share_beyond(1000, 10**9)
    assert share.ci_low == pytest.approx(9.4856e-07, rel=1e-5)
    assert share.ci_high == pytest.approx(1.0536e-06, rel=1e-5)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_p_values_are_adjusted_as_scipy_does(p_values: list[float]) -> None:
    ours, theirs = _adjusted(np.array(p_values)), false_discovery_control(p_values, method="bh")
    assert ours == pytest.approx(theirs.tolist(), rel=1e-12)
