"""Nodes of the pair plane. Oracle: φ evaluated node by node."""

import numpy as np
import pytest

from fermibose.theory.channel import Axis, pair_values


@pytest.mark.parametrize("r_folded", [True, False])
@pytest.mark.parametrize("t_folded", [True, False])
@pytest.mark.parametrize("steps", [(0.25, 0.25), (0.25, 0.3)])
def test_pair_values_are_those_of_every_node(r_folded, t_folded, steps):
    r = Axis.uniform(steps[0], 2.0, folded=r_folded)
    t = Axis.uniform(steps[1], 3.0, folded=t_folded)
    found = pair_values(np.tanh, r, t)
    for sign, values in zip((1, -1), found, strict=True):
        expected = [[np.tanh((b + sign * a) / 2**0.5) for b in t.nodes] for a in r.nodes]
        np.testing.assert_allclose(values, expected, atol=1e-14)
