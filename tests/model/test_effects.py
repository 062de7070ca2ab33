"""The mean under structured noise: random effects that whole fields share."""

import numpy as np
import pytest

from pdno import Pairs, UserError
from pdno.data.spaces import Spaces
from pdno.learning.budget import Terms
from pdno.mean import Linear
from pdno.mean.choice import Choice, Effects, Trial
from pdno.mean.choose import MeanSelection
from pdno.mean.network import Network
from pdno.model.decompose import decompose
from pdno.model.effects import RandomEffect, network_without_effects, refit
from pdno.residual import Residuals
from pdno.residual.law import MeanResiduals
from tests.helpers import linear_pairs

QUIET = Terms(progress=False)
PATTERN = np.random.default_rng(5).standard_normal(16)


def shifted_pairs(count: int, seed: int, shift: float = 1.0) -> tuple[Pairs, np.ndarray, np.ndarray]:
    """Return pairs with ± a rough pattern on whole fields and white noise of standard deviation .01, clean outputs, signs."""
    a, _, clean = linear_pairs(count, seed=seed)
    rng = np.random.default_rng(seed + 100)
    b = shift * rng.choice([-1.0, 1.0], (count, 1, 1))
    return Pairs.of(a, clean + b * PATTERN + 0.01 * rng.standard_normal(clean.shape)), clean, b


def decomposed(choice: Choice, pairs: Pairs, held_out: Pairs) -> MeanResiduals:
    return decompose(choice, pairs, held_out, Spaces.of(pairs))[0]


def fitted(pairs: Pairs) -> Choice:
    return Choice(Linear(degree=1, sparse=False).learn(pairs, None, QUIET), (), "As requested")


def test_numbers_are_those_of_generalised_least_squares() -> None:
    """The error of the mean is large where noise is: least squares would weigh all nodes alike."""
    rng = np.random.default_rng(0)
    b, std = rng.standard_normal((1000, 1, 1)), np.array([0.01] * 4 + [0.8] * 12)
    values = b + std * rng.standard_normal((1000, 1, 16))
    effect = RandomEffect.of(Residuals(Pairs.of(rng.standard_normal(values.shape), values), values))
    assert effect is not None
    found = np.tensordot(effect.numbers(values), effect.fields, 1)[..., :4]
    assert np.sqrt(np.mean((found - b) ** 2)) < 0.05
    assert np.sqrt(np.mean((values.mean(axis=2, keepdims=True) - b) ** 2)) > 0.15


def test_white_noise_has_no_effect_of_whole_fields() -> None:
    values = np.random.default_rng(0).standard_normal((500, 1, 16))
    assert RandomEffect.of(Residuals(Pairs.of(values, values), values)) is None


def test_residuals_without_anything_else_have_no_effect_to_estimate() -> None:
    """Of exact rank one: there is nothing to weigh nodes by."""
    values = np.random.default_rng(0).choice([-1.0, 1.0], (50, 1, 1)) * np.ones(16)
    a = np.random.default_rng(1).standard_normal(values.shape)
    assert RandomEffect.of(Residuals(Pairs.of(a, values), values)) is None


def test_a_refitted_mean_is_better_and_its_residuals_are_out_of_fold() -> None:
    pairs, _, _ = shifted_pairs(200, 0)
    held_out, _, _ = shifted_pairs(100, 1)
    new, truth, _ = shifted_pairs(200, 2)
    before = fitted(pairs)
    residuals = decomposed(before, pairs, held_out)
    choice, after = refit(before, pairs, held_out, residuals, lambda each: decomposed(each, pairs, held_out), QUIET)
    assert choice.effects is not None
    assert "refitted" in choice.reason

    def beside(fields: np.ndarray) -> float:
        """Return the size of fields without the pattern, along which the effect cannot be told from an error of the mean."""
        along = fields @ PATTERN / (PATTERN @ PATTERN)
        return float(np.sqrt(np.mean((fields - along[..., None] * PATTERN) ** 2)))

    errors = [beside(each.mean(new.a) - truth) for each in (choice, before)]
    assert errors[0] < 0.2 * errors[1]
    np.testing.assert_allclose(after.held_out.values, held_out.u - choice.mean(held_out.a), atol=1e-12)
    assert beside(after.train.values) == pytest.approx(beside(after.held_out.values), rel=0.1)


def test_modes_show_the_error_of_the_mean_along_an_effect() -> None:
    """An offset of ± 1: regression on noisy offsets has an error that is an offset, too; refitting with ẑ would keep it."""
    a, _, clean = linear_pairs(300, seed=0)
    rng = np.random.default_rng(3)
    offset = rng.choice([-1.0, 1.0], (300, 1, 1))
    pairs = Pairs.of(a, clean + offset + 0.01 * rng.standard_normal(clean.shape))
    train, held_out = pairs[:250], pairs[250:]
    first = fitted(train)
    before = decomposed(first, train, held_out)
    effect = RandomEffect.of(before.train)
    assert effect is not None
    assert effect.modes is not None
    found = effect.effects(before.train.values, np.zeros(1))()
    raw = np.tensordot(effect.numbers(before.train.values), effect.fields, 1)
    errors = [np.std((each - offset[:250]).mean(axis=(1, 2))) for each in (found, raw)]
    assert errors[0] < 0.3 * errors[1]
    new, _ = refit(first, train, held_out, before, lambda each: decomposed(each, train, held_out), QUIET)
    new_a, _, new_clean = linear_pairs(500, seed=9)
    error = [np.std((each.mean(new_a) - new_clean).mean(axis=(1, 2))) for each in (first, new)]
    assert error[1] < 0.2 * error[0]


def test_a_number_with_one_mode_is_not_changed() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((400, 1, 1)) + 0.1 * rng.standard_normal((400, 1, 16))
    effect = RandomEffect.of(Residuals(Pairs.of(values, values), values))
    assert effect is not None
    assert effect.modes is None
    np.testing.assert_array_equal(effect.effects(values, np.zeros(1)).numbers, effect.numbers(values))


def test_a_mean_that_is_no_better_is_not_kept() -> None:
    pairs, _, _ = shifted_pairs(200, 0, shift=0.0)
    held_out, _, _ = shifted_pairs(100, 1, shift=0.0)
    choice = fitted(pairs)
    residuals = decomposed(choice, pairs, held_out)
    same, unchanged = refit(choice, pairs, held_out, residuals, lambda each: decomposed(each, pairs, held_out), QUIET)
    assert same is choice
    assert unchanged is residuals


def test_a_choice_is_saved_with_its_effects(tmp_path) -> None:
    pairs, _, b = shifted_pairs(50, 0)
    choice = Choice(fitted(pairs).mean, (), "refitted", effects=Effects(b[:, :, 0], np.ones((1, 1, pairs.u.shape[2]))))
    choice.save(tmp_path, {})
    again = Choice.load(tmp_path, {})
    assert again is not None
    assert again.effects is not None
    np.testing.assert_array_equal(again.effects(), choice.effects())
    residuals = [decomposed(each, pairs, pairs).train.values for each in (choice, again)]
    np.testing.assert_allclose(residuals[0], residuals[1], atol=1e-12)


class Known(Network):
    """A stand-in for a network: it records the outputs that it is trained on, and its predictions are exact or zero."""

    def __init__(self, exact: bool) -> None:
        super().__init__("fno")
        self.exact, self.outputs = exact, np.zeros(0)

    def learn(self, pairs: Pairs, held_out: Pairs | None, terms: Terms) -> "Known":
        self.outputs, self.held_out = pairs.u, held_out
        return self

    def __call__(self, a: np.ndarray, scalars: np.ndarray | None = None) -> np.ndarray:
        return clean_outputs(a) if self.exact else np.zeros(a.shape)


def clean_outputs(a: np.ndarray) -> np.ndarray:
    return Linear(degree=1, sparse=False).fit(*linear_pairs(100)[::2])(a)


def screened_means(pairs: Pairs, held_out: Pairs, network: Network, monkeypatch) -> MeanSelection:
    """Return candidates after the screening of an FNO, which is this network."""
    means = MeanSelection(pairs, held_out, Terms(progress=False).within(100.0), (), "cell")
    means.trials.append(Trial("fno-screening", 0.5, "", 1.0))
    monkeypatch.setattr(means, "network", lambda kind, is_short: network)
    monkeypatch.setattr(means, "is_short", lambda kind, seconds: True)
    return means


@pytest.mark.parametrize("exact", [True, False])
def test_a_network_is_trained_without_effects_and_kept_if_less_is_left(exact, monkeypatch) -> None:
    pairs, clean, _ = shifted_pairs(200, 0)
    held_out, truth, _ = shifted_pairs(100, 1)
    network, before = Known(exact), fitted(pairs)
    means = screened_means(pairs, held_out, network, monkeypatch)
    residuals = decomposed(before, pairs, held_out)
    choice, after = network_without_effects(
        means, before, residuals, lambda each: decomposed(each, pairs, held_out), means.terms
    )
    for outputs, true in ((network.outputs, clean), (network.held_out.u, truth)):
        error = np.sqrt(np.mean((outputs - true) ** 2))
        assert error < 0.3 * PATTERN.std()  # of fields that are shifted by ± the pattern
    assert (choice.mean is network) == exact
    assert [trial.name for trial in choice.trials if trial.selected] == ["fno-refitted"] * exact
    if exact:
        np.testing.assert_allclose(after.held_out.values, held_out.u - truth, atol=1e-6)
    else:
        assert after is residuals
        assert choice.trials[-1].name == "fno-refitted"


def test_a_network_that_cannot_be_trained_is_skipped(monkeypatch) -> None:
    class Failing(Known):
        def learn(self, pairs: Pairs, held_out: Pairs | None, terms: Terms) -> "Known":
            raise UserError("the loss became NaN")

    pairs, _, _ = shifted_pairs(200, 0)
    held_out, _, _ = shifted_pairs(100, 1)
    means = screened_means(pairs, held_out, Failing(True), monkeypatch)
    choice = fitted(pairs)
    residuals = decomposed(choice, pairs, held_out)
    same, unchanged = network_without_effects(means, choice, residuals, lambda each: residuals, means.terms)
    assert same.mean is choice.mean
    assert unchanged is residuals
    assert same.trials[-1] == Trial("fno-refitted", None, "the loss became NaN")


def test_a_network_that_is_worse_along_the_effects_is_not_kept(monkeypatch) -> None:
    """Nothing else is left of its residuals, but its error along the pattern is twice as large as the effect itself."""

    class Along(Known):
        def __call__(self, a: np.ndarray, scalars: np.ndarray | None = None) -> np.ndarray:
            return clean_outputs(a) + 2 * PATTERN

    pairs, _, _ = shifted_pairs(200, 0)
    held_out, _, _ = shifted_pairs(100, 1)
    means = screened_means(pairs, held_out, Along(True), monkeypatch)
    choice = fitted(pairs)
    residuals = decomposed(choice, pairs, held_out)
    same, _ = network_without_effects(means, choice, residuals, lambda each: residuals, means.terms)
    assert same.mean is choice.mean


@pytest.mark.parametrize(("noise", "is_tried"), [(1.0, True), (2.5, False)])
def test_a_network_is_tried_if_effects_have_most_of_the_variance(noise, is_tried, monkeypatch) -> None:
    """The effect has 60 % of the variance, or 30 %."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((400, 1, 16))
    u = 1.25 * rng.choice([-1.0, 1.0], (400, 1, 1)) + noise * rng.standard_normal(a.shape)
    pairs, held_out, network = Pairs.of(a[:300], u[:300]), Pairs.of(a[300:], u[300:]), Known(False)
    means = screened_means(pairs, held_out, network, monkeypatch)
    values = [Residuals(each, each.u) for each in (pairs, held_out)]
    residuals = MeanResiduals(values[0], values[1], values[0])
    network_without_effects(means, fitted(pairs), residuals, lambda each: residuals, means.terms)
    assert (network.outputs.size > 0) == is_tried
