"""Law and Given: m(a) is evaluated once, members are m(a) plus draws, uncertainties, and the state."""

from dataclasses import FrozenInstanceError
from typing import ClassVar, Self

import numpy as np
import pytest

import pdno
from pdno import PDNO, Diffusion, Pairs, Schedule, Training, UserError
from pdno.data.spaces import Spaces
from pdno.learning.budget import Terms
from pdno.mean import Constant, Kernel, Linear, LowFidelity, Mean, refitted
from pdno.mean.build import mean_from_state
from pdno.model.law import Law
from pdno.residual import Exact, Gaussian, Residuals, Rows, law_from_state
from pdno.work.state import State, flatten, unflatten
from tests.helpers import TINY, TWO, linear_pairs, normal
from tests.residual.coins import Coins

POINTS = 16


class Counting(Mean):
    """Half of the input, with a count of the calls: a mean of the user."""

    name: ClassVar[str] = "counting"

    def __init__(self, factor: float = 0.0) -> None:
        self.factor, self.calls = factor, 0

    def learn(self, pairs: Pairs, held_out: Pairs | None, terms: Terms) -> Self:
        self.factor = 0.5
        return self

    def __call__(self, a: np.ndarray, scalars: np.ndarray | None = None) -> np.ndarray:
        self.calls += 1
        return self.factor * a

    def residuals(self, *arguments: object, **options: object) -> np.ndarray:
        return refitted(self, *arguments, **options)

    def describe(self) -> str:
        return "Half of the input."

    def state(self) -> State:
        return State({"factor": self.factor})

    @classmethod
    def from_state(cls, state: State) -> Self:
        return cls(**state.settings)


def half(count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    a = normal(count, 1, POINTS)
    return a, a / 2 + 0.1 * normal(count, 1, POINTS, seed=1)


# Given


@pytest.mark.parametrize(
    "settings",
    [
        {"law": "gaussian"},
        {"law": "exact"},
        {"law": Coins()},
        {"law": "diffusion", "network": TINY, "training": TWO, "diffusion": Diffusion(Schedule.cosine(10))},
    ],
    ids=["gaussian", "exact", "own", "diffusion"],
)
def test_the_mean_is_evaluated_once(settings) -> None:
    """In predict, sample and nvlb, for all calls of the law together."""
    a, u = half()
    model = PDNO(mean=Counting(), **settings).fit(a, u, progress=False)
    mean = model.law.mean
    for request in (
        lambda: model.predict(a[:5], members=20, chunk=7, progress=False),
        lambda: model.sample(a[:5], members=20, chunk=7),
        lambda: list(model.given(a[:5]).stream(20, chunk=7)),
        lambda: model.mean(a[:5]),
        lambda: model.nvlb(a[:5], u[:5]) if model.law.residual.name in ("gaussian", "diffusion") else model.mean(a[:5]),
    ):
        mean.calls = 0
        request()
        assert mean.calls == 1


def test_members_are_the_mean_plus_draws() -> None:
    a, u = half()
    pairs, mean = Pairs.of(a, u), Counting(0.5)
    residual = Gaussian("point").learn(Residuals(pairs, u - mean(a)), None, Terms())
    given = Law(Spaces.of(pairs), mean, residual).given(a[:3])
    rows = [(i, m, values) for i, m, values in given.stream(4, seed=9, chunk=5, start=7)]
    inputs, members, values = (np.concatenate(part) for part in zip(*rows, strict=True))
    np.testing.assert_array_equal(inputs, np.repeat(np.arange(3), 4))
    np.testing.assert_array_equal(members, np.tile(np.arange(4), 3))
    draws = residual.draw(given.inputs, Rows(9, 7 + inputs, members, inputs))
    np.testing.assert_array_equal(values, a[inputs] / 2 + draws)
    np.testing.assert_array_equal(given.mean, a[:3] / 2)


def test_calls_have_a_fixed_number_of_rows() -> None:
    """The last one is padded by copies of the last member, which are dropped."""
    sizes = []

    class Noting(Coins):
        def draw(self, inputs, rows, **sampling: object) -> np.ndarray:
            sizes.append(len(rows.places))
            return super().draw(inputs, rows, **sampling)

    a, u = half()
    law = Law(Spaces.of(Pairs.of(a, u)), Counting(0.5), Noting(1.0))
    assert [len(values) for _, _, values in law.given(a[:3]).stream(5, chunk=4)] == [4, 4, 4, 3]
    assert sizes == [4, 4, 4, 4]


@pytest.mark.parametrize("residual", [Exact(), Coins(1.0)], ids=lambda law: law.name)
def test_the_mean_is_exact_for_centred_laws(residual) -> None:
    a, u = half()
    law = Law(Spaces.of(Pairs.of(a, u)), Counting(0.5), residual)
    np.testing.assert_array_equal(law.given(a[:2]).mean, a[:2] / 2)


def test_the_mean_of_a_diffusion_is_that_of_its_members() -> None:
    a, u = half()
    model = PDNO(TINY, Diffusion(Schedule.cosine(10)), mean="linear", law="diffusion", training=TWO).fit(a, u, progress=False)
    assert model.given(a[:2]).mean is None
    prediction = model.predict(a[:2], members=6, progress=False)
    np.testing.assert_allclose(prediction.mean, model.sample(a[:2], members=6).mean(axis=0), rtol=1e-9, atol=1e-12)


# Aleatoric and epistemic uncertainty


def test_repeated_inputs_separate_noise_from_errors_of_the_mean() -> None:
    rng = np.random.default_rng(0)
    a = np.repeat(rng.standard_normal((60, 1, POINTS)), 5, axis=0)
    u = np.sin(3 * a) + 0.1 * rng.standard_normal(a.shape)
    model = PDNO(law="gaussian", mean=Linear(degree=1, sparse=False)).fit(a, u)
    p = model.predict(rng.standard_normal((4, 1, POINTS)), members=20)
    assert p.aleatoric_std.mean() == pytest.approx(0.1, rel=0.1)
    assert p.epistemic_std.shape == p.mean.shape
    total = np.sqrt(p.aleatoric_std**2 + p.epistemic_std**2)
    np.testing.assert_allclose(total, np.broadcast_to(model.law.residual.std, total.shape), rtol=1e-9)


def test_a_kernel_separates_them_by_its_posterior() -> None:
    a, u, _ = linear_pairs(150, 0.2)
    model = PDNO(law="gaussian", mean=Kernel("gaussian")).fit(a, u)
    near = model.predict(a[:5], members=20)
    far = model.predict(5 * a[:5], members=20)
    assert near.aleatoric_std.mean() == pytest.approx(0.2, rel=0.15)
    assert far.epistemic_std.mean() > 1.5 * near.epistemic_std.mean()
    assert PDNO(law="gaussian", mean="linear").fit(a, u).predict(a[:2], members=20).aleatoric_std is None
    assert PDNO(law="exact", mean="kernel").fit(a, u).given(a[:2]).uncertainty() == (None, None)


# Counts


def test_evaluations_and_parameters_are_counted() -> None:
    a, u = half()
    network = {"name": "fno", "modes": 3, "width": 4}
    model = PDNO(TINY, Diffusion(Schedule.cosine(10)), mean=network, law="diffusion", training=TWO, steps=6)
    law = model.fit(a, u, progress=False).law
    assert (law.evaluations(), law.evaluations(steps=3)) == (6, 3)
    own, mean = law.residual.networks[0].parameters, law.mean.networks[0].parameters
    assert law.parameters == model.parameters == own + mean
    plain = Law(law.spaces, law.mean, Exact())
    assert (plain.evaluations(), plain.parameters) == (1, mean)


# Saving


def test_a_law_cannot_be_changed() -> None:
    a, u = half()
    law = Law(Spaces.of(Pairs.of(a, u)), Constant(), Exact())
    with pytest.raises(FrozenInstanceError):
        law.mean = Linear()


@pytest.mark.parametrize(
    "mean", ["constant", "linear", "kernel", "fno", {"name": "sum", "parts": ["linear", "kernel"]}], ids=str
)
@pytest.mark.parametrize("law", ["exact", "gaussian", pytest.param("diffusion", marks=pytest.mark.slow)])
def test_the_state_is_all_of_a_law(mean, law) -> None:
    a, u, _ = linear_pairs(40)
    how = {"network": TINY, "diffusion": Diffusion(Schedule.cosine(10)), "training": TWO}
    fitted = PDNO(mean=mean, law=law, **how).fit(a, u, progress=False).law
    again = Law.from_state(unflatten(*flatten(fitted.state())), mean_from_state, law_from_state)
    ours, theirs = (each.given(a[:3]) for each in (fitted, again))
    for x, y in zip(ours.stream(5), theirs.stream(5), strict=True):
        np.testing.assert_array_equal(x[2], y[2])
    assert again.summary == fitted.summary
    assert again.leaderboard == fitted.leaderboard
    assert dict(again.provenance) == dict(fitted.provenance)
    np.testing.assert_array_equal(again.fingerprints, fitted.fingerprints)
    np.testing.assert_array_equal(again.novelty.distance(a, None), fitted.novelty.distance(a, None))
    assert again.parameters == fitted.parameters


SLOW = pytest.mark.slow


@pytest.mark.parametrize("mean", [pytest.param("linear", marks=SLOW), pytest.param("kernel", marks=SLOW), "fno"])
def test_a_saved_model_predicts_bitwise_the_same(mean, tmp_path) -> None:
    a, u, _ = linear_pairs(60)
    model = PDNO({"kind": "unet", "base": 8}, mean=mean, training=Training(updates=2)).fit(a, u)
    model.save(tmp_path / "m.safetensors")
    again = pdno.load(tmp_path / "m.safetensors")
    p, q = (m.predict(a[:3], members=20) for m in (model, again))
    for name in ("mean", "std", "aleatoric_std", "epistemic_std"):
        np.testing.assert_array_equal(getattr(p, name), getattr(q, name))
    assert again.fit_summary == model.fit_summary
    assert again.leaderboard == model.leaderboard
    assert again.parameters == model.parameters
    again.save(tmp_path / "n.safetensors")
    assert (tmp_path / "m.safetensors").read_bytes() == (tmp_path / "n.safetensors").read_bytes()


def test_input_dependent_scales_are_saved(tmp_path) -> None:
    a, _, clean = linear_pairs(300)
    size = np.exp(np.random.default_rng(1).standard_normal((300, 1, 1)))
    u = clean + 0.1 * size * np.random.default_rng(2).standard_normal(clean.shape)
    model = PDNO(law="gaussian", mean="linear").fit(a, u)
    assert model.law.residual.spread.amplitude is not None
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(pdno.load(tmp_path / "m.safetensors").sample(a[:4], 5), model.sample(a[:4], 5))
    np.testing.assert_array_equal(model.sample(a[:4], 5)[:2], model.sample(a[:4], 2))  # for any number of members


def test_the_noise_of_repeated_inputs_is_saved(tmp_path) -> None:
    rng = np.random.default_rng(0)
    a = np.repeat(rng.standard_normal((40, 1, POINTS)), 3, axis=0)
    model = PDNO(law="gaussian", mean="linear").fit(a, a + 0.1 * rng.standard_normal(a.shape))
    assert model.law.noise_std is not None
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(pdno.load(tmp_path / "m.safetensors").law.noise_std, model.law.noise_std)


def test_code_of_the_user_is_not_saved_but_passed_to_load(tmp_path) -> None:
    a, u, _ = linear_pairs(40)
    model = PDNO(law="gaussian", mean=LowFidelity(np.sin)).fit(a, u)
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(UserError, match="mean 'lowfidelity' of your own; pass its class"):
        pdno.load(tmp_path / "m.safetensors")
    again = pdno.load(tmp_path / "m.safetensors", mean=lambda state: LowFidelity.from_state(state, np.sin))
    np.testing.assert_array_equal(again.sample(a[:3], 4), model.sample(a[:3], 4))


def test_a_mean_and_a_law_of_the_user_are_restored_from_their_own_states(tmp_path) -> None:
    """Their `from_state` is given exactly what `state` returned."""
    a, u = half()
    model = PDNO(mean=Counting(), law=Coins()).fit(a, u)
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(UserError, match="law 'coins' of your own; pass its class"):
        pdno.load(tmp_path / "m.safetensors", mean=Counting.from_state)
    again = pdno.load(tmp_path / "m.safetensors", mean=Counting.from_state, law=Coins.from_state)
    np.testing.assert_array_equal(again.sample(a[:3], 4), model.sample(a[:3], 4))
    assert again.settings() == model.settings()
