"""Features of the input for mixtures of residual laws."""

import numpy as np
import pytest

from pdno.residual.condition import Features
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
