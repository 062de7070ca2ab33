"""Features of the input for mixtures of residual laws."""

import numpy as np
import pytest

from pdno.data.spaces import Spaces
from pdno.mean.base import pairs_of
from pdno.residual.condition import Features, network_inputs
from pdno.residual.law import Inputs


def inputs(scale: float, count: int = 300) -> Inputs:
    rng = np.random.default_rng(0)
    a, mean = rng.standard_normal((2, count, 1, 16))
    return Inputs(a * np.exp(rng.standard_normal((count, 1, 1))), mean, scale * rng.standard_normal((count, 2)))


@pytest.mark.parametrize("scale", [1e5, 1.0, 1e-5])
def test_scalars_in_any_unit_and_sizes_are_features(scale) -> None:
    """Each is a linear function of the features, whatever the units of the others are."""
    some = inputs(scale)
    features = Features.of(some)(some)
    np.testing.assert_allclose(features.std(axis=0), 1, atol=0.05)
    size = np.log(np.sqrt(np.square(some.a).mean(axis=(1, 2))))
    for wanted in (size, *some.scalars.T):
        centred = wanted - wanted.mean()
        left = centred - features @ np.linalg.lstsq(features, centred, rcond=None)[0]
        assert left.std() < 1e-6 * centred.std()


def test_features_are_saved() -> None:
    some = inputs(1.0)
    features = Features.of(some)
    np.testing.assert_array_equal(Features.from_state(features.state())(some), features(some))


def test_modes_that_are_rounding_errors_are_no_inputs() -> None:
    """Inputs on a line with one mode, outputs on a plane: single precision changes scalars by rounding only."""
    x = (np.arange(32) + 0.5) / 32
    a = np.random.default_rng(0).standard_normal((20, 1, 1)) * np.cos(np.pi * x)
    spaces = Spaces.of(pairs_of(a, np.zeros((20, 1, 8, 8))))
    scalars = [network_inputs(Inputs(each, np.zeros((20, 1, 8, 8))), spaces)[1] for each in (a, a.astype(np.float32))]
    assert (np.count_nonzero(scalars[0], axis=0) > 0).sum() == 1
    np.testing.assert_allclose(scalars[1], scalars[0], rtol=1e-5)
