"""AGIC's three shapes of layer weights go through (1, 1) and (N, β), as Table I of the paper defines them."""

from __future__ import annotations

import math

import pytest

from leakscope.attacks.agic import agic
from leakscope.errors import UsageError
from leakscope.matching.distances.layer_weights import ramp_shares

LAYERS = 21


@pytest.mark.parametrize(("ramp", "curve"), [("linear", float), ("exponential", math.exp), ("logarithmic", math.log)])
@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_the_function_of_the_table(ramp, curve, beta):
    # y = a·f(x) + b through (1, 1) and (N, β).
    a = (beta - 1) / (curve(LAYERS) - curve(1))
    b = 1 - a * curve(1)
    found = [1 + (beta - 1) * share for share in ramp_shares(LAYERS, ramp)]
    assert found == pytest.approx([a * curve(place) + b for place in range(1, LAYERS + 1)])


def test_few_and_many_layers():
    for ramp in ("linear", "exponential", "logarithmic"):
        assert ramp_shares(0, ramp) == []
        assert ramp_shares(1, ramp) == [0.0]
        assert ramp_shares(1_000, ramp)[-1] == 1.0


def test_an_unknown_ramp_is_refused():
    with pytest.raises(UsageError, match="linear, exponential, logarithmic"):
        agic(ramp="cubic")
