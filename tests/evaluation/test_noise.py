"""Statistics of noise fields against closed forms: white, shared, autoregressive, proportional to u, dependent on the input."""

import numpy as np
import pytest

from pdno.evaluation.noise import bootstrap, growth, input_dependence, noise_statistics, rms_field

N, POINTS = 300, 64


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def within(score, value: float, times: float = 4.0) -> bool:
    """Within 4 standard errors."""
    return abs(score.value - value) < times * score.error


def autoregressive(count: int, points: int, correlation: float, seed: int = 0) -> np.ndarray:
    """Stationary fields with unit variance and ρ(k) = correlation^k, (count, 1, points)."""
    z = normal(count, 1, points, seed=seed)
    for x in range(1, points):
        z[..., x] = correlation * z[..., x - 1] + np.sqrt(1 - correlation**2) * z[..., x]
    return z


def test_white_noise() -> None:
    s = noise_statistics(0.3 * normal(N, 1, POINTS))
    assert within(s.scores["std"], 0.3)
    assert within(s.scores["neighbour_correlation"], 0.0)
    assert within(s.scores["shared_fraction"], 0.0)
    assert within(s.scores["average_std"], 1 / np.sqrt(POINTS))
    assert s.scores["correlation_length"].value < 1 / POINTS
    assert s.word == "white"
    z = (s.std - 0.3) / s.std_error
    assert 0.7 < np.sqrt(np.mean(z**2)) < 1.3  # errors have the right size


def test_bootstrap_errors_are_those_of_repetitions() -> None:
    """The error of one data set against the standard deviation over 100 data sets."""
    fields = normal(100, 40, 1, 16) * 0.8 + 0.6 * normal(100, 40, 1, 1, seed=1)
    for name in ("neighbour_correlation", "shared_fraction", "average_std"):
        scores = [noise_statistics(f, scale=np.ones(1)).scores[name] for f in fields]
        spread = np.std([s.value for s in scores])
        assert np.mean([s.error for s in scores]) == pytest.approx(spread, rel=0.25)


@pytest.mark.parametrize("shape", [(1, POINTS), (2, 8, 8), (1, 4, 4, 4)])
def test_a_field_shared_by_all_nodes(shape) -> None:
    fields = np.broadcast_to(normal(N, shape[0], *[1] * (len(shape) - 1)), (N, *shape)) + 0.1 * normal(N, *shape, seed=1)
    s = noise_statistics(fields)
    assert within(s.scores["shared_fraction"], 1 / 1.01)
    assert within(s.scores["neighbour_correlation"], 1 / 1.01)
    assert s.word.startswith("shared by the whole field")


def test_a_partly_shared_field() -> None:
    s = noise_statistics(np.sqrt(0.7) * normal(N, 1, POINTS) + np.sqrt(0.3) * normal(N, 1, 1, seed=1))
    assert within(s.scores["shared_fraction"], 0.3)
    assert s.word.startswith("partly shared by the whole field (0.2")


@pytest.mark.parametrize("correlation", [0.5, 0.9])
def test_autoregressive_fields_have_their_length(correlation) -> None:
    s = noise_statistics(autoregressive(N, 128, correlation))
    assert within(s.scores["neighbour_correlation"], correlation)
    assert within(s.scores["correlation_length"], -1 / np.log(correlation) / 128)
    assert s.word.startswith("correlated over a length of")
    exact = correlation ** (128 * s.lags)
    assert np.abs((s.correlation - exact) / s.correlation_error).max() < 4.5


def test_alternating_fields_are_anticorrelated() -> None:
    s = noise_statistics(autoregressive(N, POINTS, -0.5))
    assert within(s.scores["neighbour_correlation"], -0.5)
    assert "anticorrelated" in s.word


def test_channels_of_any_unit_count_equally() -> None:
    fields = np.concatenate([1e6 * normal(N, 1, POINTS), 1e-6 * autoregressive(N, POINTS, 0.8, seed=1)], axis=1)
    s = noise_statistics(fields)
    assert within(s.scores["neighbour_correlation"], 0.4)
    assert s.std[:, 0] == pytest.approx([1e6, 1e-6], rel=0.2)
    silent = np.concatenate([fields[:, 1:], 0 * fields[:, :1]], axis=1)  # a channel without noise does not count
    assert within(noise_statistics(silent).scores["neighbour_correlation"], 0.8)


def test_masked_nodes_have_no_effect() -> None:
    fields = autoregressive(N, POINTS, 0.8)
    mask = np.ones(fields.shape, dtype=bool)
    mask[:, :, 40:] = False
    mask[::2, :, :3] = False
    mask[0] = False
    s = noise_statistics(np.where(mask, fields, np.nan), mask=mask)
    assert within(s.scores["neighbour_correlation"], 0.8)
    assert np.isnan(s.std[0, 40:]).all()
    assert np.isfinite(s.std[0, :40]).all()
    white = noise_statistics(np.where(mask, normal(N, 1, POINTS), 7.0), mask=mask)
    assert within(white.scores["shared_fraction"], 0.0)


def test_dependent_fields_have_larger_errors() -> None:
    """Each field four times: the error is that of a quarter of the fields, but only if the copies have labels."""
    fields = autoregressive(60, POINTS, 0.8)
    once, labels = noise_statistics(fields), np.repeat(np.arange(60), 4)
    copies = noise_statistics(np.repeat(fields, 4, axis=0), labels=labels)
    assert copies.scores["neighbour_correlation"].value == pytest.approx(once.scores["neighbour_correlation"].value)
    assert copies.scores["neighbour_correlation"].error == pytest.approx(once.scores["neighbour_correlation"].error, rel=1e-6)


def test_few_fields_single_nodes_and_no_noise() -> None:
    assert noise_statistics(np.zeros((5, 1, 8))) is None
    assert noise_statistics(np.zeros((0, 1, 8))) is None
    single = noise_statistics(normal(5, 1, 1))
    assert set(single.scores) == {"std", "average_std", "shared_fraction"}
    assert single.word == ""
    one = noise_statistics(normal(1, 1, 8))
    assert np.isnan(one.scores["neighbour_correlation"].error)
    assert one.word == "white"  # nothing else can be shown with one field


def test_root_mean_squares_of_a_field_by_hand() -> None:
    rms, error = rms_field(np.array([[3.0, 1.0], [4.0, 1.0]]), np.array([[True, False], [True, True]]))
    assert rms == pytest.approx([np.sqrt(12.5), 1.0])
    assert error[0] == pytest.approx(np.std([9, 16], ddof=1) / np.sqrt(2) / (2 * rms[0]))
    assert np.isnan(error[1])


def test_the_bootstrap_of_a_mean() -> None:
    x = normal(400, 1)
    value, resamples = bootstrap(x, lambda s: s)
    assert value == pytest.approx(x.mean(axis=0))
    assert resamples.std() == pytest.approx(x.std() / 20, rel=0.2)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_growth_with_the_mean(exponent) -> None:
    """σ = |m|^b, with m of either sign and a profile of its own, which has no effect."""
    m = np.exp(0.5 * normal(N, 1, POINTS, seed=1)) * np.linspace(-2, 3, POINTS)
    b = growth(np.abs(m) ** exponent * normal(N, 1, POINTS), m)
    assert within(b, exponent)
    assert b.error < 0.2


def test_std_by_place_is_not_growth_with_the_mean() -> None:
    profile = np.linspace(0.1, 2, POINTS)
    b = growth(profile * normal(N, 1, POINTS), profile * (1 + 0.3 * normal(N, 1, 1, seed=1)))
    assert within(b, 0.0)


def test_growth_needs_a_mean_that_varies() -> None:
    assert growth(normal(N, 1, POINTS), np.ones((N, 1, POINTS)) + 0.01 * normal(N, 1, 1)) is None
    assert growth(normal(3, 1, 8), normal(3, 1, 8)) is None
    mask = np.ones((N, 1, 8), dtype=bool)
    mask[:, :, :4] = False
    m = np.where(mask, np.exp(normal(N, 1, 8, seed=2)), np.nan)
    assert within(growth(np.where(mask, m * normal(N, 1, 8), np.nan), m, mask=mask), 1.0)


def test_dependence_on_the_input() -> None:
    """log v = 2 f_1 + log χ²_d/d: the variance of the second term is about 2/d."""
    features, d = normal(N, 4, seed=1), 32
    chi = np.square(normal(N, d)).mean(axis=1)
    explained, p_value = input_dependence(np.exp(0.5 * features[:, 0]) * chi, features)
    assert within(explained, 0.25 / (0.25 + 2 / d))
    assert p_value < 0.01
    rejected = sum(input_dependence(c, features[:40])[1] < 0.01 for c in np.square(normal(100, 40, d, seed=3)).mean(axis=2))
    assert rejected <= 5  # expected: 0.5
    assert input_dependence(chi[:10], features[:10]) is None
    assert input_dependence(chi, np.ones((N, 1))) is None
    assert input_dependence(chi, np.zeros((N, 0))) is None


def test_many_features_do_not_overfit() -> None:
    explained, p_value = input_dependence(np.square(normal(40, 16)).mean(axis=1), normal(40, 100, seed=1))
    assert explained.value < 0.2
    assert p_value > 0.01
