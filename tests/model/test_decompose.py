"""From a mean to its residuals: out of fold, in-sample or held-out, and what is estimated from which."""

from typing import ClassVar, Self

import numpy as np
import pytest

from pdno import PDNO, Pairs, UserError
from pdno.data.spaces import Spaces
from pdno.learning.budget import Terms
from pdno.mean import Constant, Kernel, Linear, Mean, Network, refitted
from pdno.mean.base import pairs_of
from pdno.mean.choice import Choice
from pdno.model.decompose import decompose, in_sample
from pdno.work.state import State
from tests.helpers import STILL, linear_pairs, normal

POINTS = 16
QUIET = Terms(progress=False)
LINEAR = Linear(degree=1, sparse=False)


class Memory(Mean):
    """A mean that is exact for its training pairs and zero for all others: overfitted."""

    name: ClassVar[str] = "memory"
    cheap_folds = False

    def learn(self, pairs: Pairs, held_out: Pairs | None, terms: Terms) -> Self:
        self.outputs = {x.tobytes(): y for x, y in zip(pairs.a, pairs.u, strict=True)}
        return self

    def __call__(self, a: np.ndarray, scalars: np.ndarray | None = None) -> np.ndarray:
        return np.stack([self.outputs.get(x.tobytes(), np.zeros((1, POINTS))) for x in a])

    def residuals(self, *arguments: object, **options: object) -> np.ndarray:
        return refitted(self, *arguments, **options)

    def describe(self) -> str:
        return "A memory."

    def state(self) -> State:
        return State({})

    @classmethod
    def from_state(cls, state: State) -> Self:
        return cls()


def chosen(mean: Mean, pairs: Pairs, held_out: Pairs | None = None) -> Choice:
    return Choice(mean.learn(pairs, held_out, QUIET), (), "As requested")


# Residuals


def test_residuals_are_out_of_fold_if_these_are_cheap() -> None:
    """A linear map is known in closed form without each pair: residuals are those of `Mean.residuals`."""
    a, u, _ = linear_pairs(60)
    pairs = Pairs.of(a, u)
    mean = Linear(degree=1, sparse=False)
    left, remarks = decompose(chosen(mean, pairs), pairs, None, Spaces.of(pairs), seed=3)
    np.testing.assert_array_equal(left.train.values, mean.residuals(a, u, seed=3))
    assert left.measured is left.train
    assert (left.held_out, left.exact, left.representative, remarks) == (None, False, True, [])
    inside = in_sample(mean, pairs, Spaces.of(pairs))
    np.testing.assert_allclose(inside.values, u - mean(a), rtol=1e-12)
    assert np.std(inside.values) < 0.9 * np.std(left.train.values)


def test_groups_are_left_out_together() -> None:
    a, u, _ = linear_pairs(60)
    group = np.repeat(np.arange(30), 2)
    pairs, mean = Pairs.of(a, u, group=group), Linear(degree=1, sparse=False)
    left, _ = decompose(chosen(mean, pairs), pairs, None, Spaces.of(pairs))
    np.testing.assert_array_equal(left.train.values, mean.residuals(a, u, None, group))


@pytest.mark.parametrize(
    ("mean", "size"), [(Linear(degree=1, sparse=False), 1e-9), (Constant(), 1e-8)], ids=["linear", "constant"]
)
def test_rounding_errors_are_no_residuals(mean, size) -> None:
    """At nodes that never vary, and in a channel that is constant, residuals are 0; small channels keep theirs."""
    a, units = normal(60, 1, POINTS), np.array([1e5, 1e-8, 0.0])[:, None]
    u = units * (a + 0.1 * normal(60, 1, POINTS, seed=1)) + np.array([0, 0, 273.15])[:, None]
    u[:, 0, 0] = 3e5
    pairs = pairs_of(a, u)
    choice = Choice(mean.learn(pairs, None, QUIET), (), "")
    values = decompose(choice, pairs, None, Spaces.of(pairs))[0].train.values
    assert not values[:, 0, 0].any()
    assert not values[:, 2].any()
    assert values[:, 1].std() == pytest.approx(size, rel=0.25)


def test_missing_outputs_have_zero_residuals() -> None:
    a, u, _ = linear_pairs(60)
    mask = np.ones(u.shape, dtype=bool)
    mask[..., 3] = False
    pairs, held_out = (
        Pairs.of(x, np.where(mask[: len(x)], y, np.nan), mask=mask[: len(x)]) for x, y in ((a, u), (a[:9], u[:9]))
    )
    left, _ = decompose(chosen(Linear(degree=1, sparse=False), pairs), pairs, held_out, Spaces.of(pairs))
    for part in (left.train, left.held_out):
        assert not part.values[..., 3].any()
        assert np.isfinite(part.values).all()


def test_residuals_of_periodic_axes_are_periodic() -> None:
    a, u, _ = linear_pairs(40)
    pairs = Pairs.of(a, u)
    left, _ = decompose(chosen(Linear(), pairs), pairs, None, Spaces.of(pairs, kind="periodic"))
    assert left.train.periodic == (True,)


def test_held_out_residuals_that_are_known_are_not_computed_again() -> None:
    a, u, _ = linear_pairs(40)
    pairs, held_out, known = Pairs.of(a, u), Pairs.of(a[:5], u[:5]), normal(5, 1, POINTS)
    choice = Choice(Linear().learn(pairs, None, QUIET), (), "As requested", held_out=known)
    left, _ = decompose(choice, pairs, held_out, Spaces.of(pairs))
    np.testing.assert_array_equal(left.held_out.values, known)


# Where the scale is estimated


def test_in_sample_residuals_of_an_overfitted_mean_are_not_used() -> None:
    """S is estimated from held-out residuals, and no diffusion is trained."""
    a, _, clean = linear_pairs(100)
    model = PDNO(mean=Memory(), residual_scale="scalar", training=STILL).fit(a, clean)
    assert any("not representative, as the mean is overfitted" in line for line in model.fit_summary)
    held_out = np.sqrt(np.mean(clean**2))
    assert float(model.law.residual.spread.scale.std.mean()) == pytest.approx(held_out, rel=0.3)
    pairs, other = Pairs.of(a[:80], clean[:80]), Pairs.of(a[80:], clean[80:])
    left, _ = decompose(chosen(Memory(), pairs), pairs, other, Spaces.of(pairs))
    assert not left.representative
    assert left.measured is left.held_out
    assert not left.train.values.any()
    np.testing.assert_array_equal(left.held_out.values, clean[80:])


def test_residuals_of_an_overfitted_mean_are_cross_fitted_if_there_is_time() -> None:
    """Copies of a memory predict 0 for pairs of other folds: residuals are u, with the size of the held-out ones."""
    a, _, clean = linear_pairs(100)
    pairs, other = Pairs.of(a[:80], clean[:80]), Pairs.of(a[80:], 3 * clean[80:])
    left, remarks = decompose(chosen(Memory(), pairs), pairs, other, Spaces.of(pairs), terms=QUIET.within(60.0))
    assert left.representative
    assert left.out_of_fold
    ratio = left.train.values / clean[:80]
    np.testing.assert_allclose(ratio, ratio[0, 0, 0])
    assert np.mean(left.train.values**2) == pytest.approx(np.mean((3 * clean[80:]) ** 2))
    np.testing.assert_allclose(left.train.inputs.mean, 0, atol=1e-12)  # predictions of the copies, not u − residual
    assert len(left.measured) == 80
    assert any("trained without the pair" in line for line in remarks)
    late, _ = decompose(chosen(Memory(), pairs), pairs, other, Spaces.of(pairs), terms=QUIET.within(1.0))
    assert not late.representative  # no time for copies


def test_the_scale_is_not_smaller_than_in_sample_residuals() -> None:
    """A mean that is not overfitted: its scale has the larger size of few held-out and of in-sample residuals."""
    a, u, _ = linear_pairs(100)
    pairs, few = Pairs.of(a[:90], u[:90]), slice(90, 100)
    mean = Network("fno", training=STILL)
    for factor in (0.1, 3.0):
        size = factor * np.sqrt(np.mean(u[:90] ** 2))
        choice = Choice(mean.learn(pairs, None, QUIET), (), "As requested", held_out=np.full(u[few].shape, size))
        left, _ = decompose(choice, pairs, Pairs.of(a[few], u[few]), Spaces.of(pairs))
        found = np.sqrt(np.mean(left.measured.values**2))
        inside = np.sqrt(np.mean((u[:90] - mean(a[:90])) ** 2))
        assert not left.out_of_fold
        assert found == pytest.approx(max(size, inside))


def test_members_of_an_overfitted_mean_are_correlated() -> None:
    """From 60 pairs, six of them held out: neighbours of members are correlated as the errors are."""
    rng = np.random.default_rng(0)
    a, u = rng.standard_normal((60, 1, POINTS)), np.cumsum(rng.standard_normal((60, 1, POINTS)), axis=2)
    model = PDNO(mean=Memory(), law="gaussian", budget=30).fit(a, u, progress=False)
    members = model.sample(rng.standard_normal((1, 1, POINTS)), 300)[:, 0, 0]
    near, expected = (np.mean(x[:, 1:] * x[:, :-1]) / np.mean(x**2) for x in (members, u[:, 0]))
    assert near == pytest.approx(expected, abs=0.05)


def test_missing_outputs_do_not_count_in_the_size_of_residuals() -> None:
    """Cross-fitted and held-out residuals are compared where they are observed."""
    a, _, clean = linear_pairs(100)
    mask = np.ones(clean.shape, dtype=bool)
    mask[:80, :, ::2] = False
    pairs, other = (Pairs.of(a[k], clean[k], mask=mask[k]) for k in (slice(80), slice(80, 100)))
    left, _ = decompose(chosen(Memory(), pairs), pairs, other, Spaces.of(pairs), terms=QUIET.within(60.0))
    size = np.sqrt(np.mean(left.train.values[mask[:80]] ** 2))
    assert size == pytest.approx(np.sqrt(np.mean(clean[80:] ** 2)))


def test_a_mean_without_cheap_folds_needs_held_out_pairs() -> None:
    a, u, _ = linear_pairs(20)
    pairs = Pairs.of(a, u)
    with pytest.raises(UserError, match="a network mean needs validation pairs to estimate the residual scale; got none"):
        decompose(chosen(Memory(), pairs), pairs, None, Spaces.of(pairs))


def test_a_distribution_shift_is_reported_and_sets_the_scale() -> None:
    """A linear map is exact for small inputs, and wrong for the large ones that are held out."""
    rng = np.random.default_rng(0)
    a, b = 0.01 * rng.standard_normal((200, 1, POINTS)), rng.standard_normal((60, 1, POINTS))
    model = PDNO(law="gaussian", mean=LINEAR).fit(a, np.sin(a), validation=Pairs.of(b, np.sin(b)))
    truth = np.sqrt(np.mean((np.sin(b) - model.mean(b)) ** 2))
    assert float(np.sqrt(np.mean(model.sample(b, 50).std(axis=0) ** 2))) == pytest.approx(truth, rel=0.4)
    assert any("check for distribution shift" in line for line in model.fit_summary)


def test_the_scale_of_a_network_is_that_of_held_out_pairs() -> None:
    a, u, _ = linear_pairs(200, 0.1)
    b, v, _ = linear_pairs(100, 0.4, seed=1)
    model = PDNO(law="gaussian", mean=Network("fno", training=STILL)).fit(a, u, validation=Pairs.of(b, v))
    assert float(model.law.residual.spread.scale.std.mean()) > 0.4


# Settings of the model


def test_own_symmetries_can_be_combined_with_a_diffusion() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 1, POINTS))
    model = PDNO({"kind": "slim", "widths": [8]}, mean="kernel", symmetries=[(np.negative, np.negative)], training=STILL)
    for _ in range(2):  # also a second time
        model.fit(a, np.sinh(a) + 0.1 * rng.standard_exponential(a.shape), progress=False)
    assert isinstance(model.law.mean, Kernel)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mean": "lineer"}, "mean 'lineer' is unknown; did you mean 'linear'"),
        ({"mean": 3}, "mean = 3: expected a name"),
        ({"residual_scale": "pixel", "mean": "linear"}, "residual_scale 'pixel' is unknown"),
        ({"symmetries": "square", "mean": "linear"}, "symmetry 'square' needs two axes"),
        ({"kind": ("cell", "cell"), "symmetries": "reflection", "mean": "linear"}, "got 2 kinds of axes"),
        ({"law": 4, "mean": "linear"}, "law = 4: expected a name"),
        ({"law": "gausian", "mean": "linear"}, r"law 'gausian' is unknown; did you mean 'gaussian'\?"),
    ],
)
def test_wrong_settings_are_refused(settings, words) -> None:
    a, u, _ = linear_pairs(30)
    with pytest.raises(UserError, match=words):
        PDNO("zero", **settings).fit(a, u)
