"""The Fourier neural operator as a baseline: its objective by hand, that it learns, and the paper's recipes."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pdno
from pdno import Pairs, Training, UserError
from pdno.model.baseline import FNO
from pdno.model.paper import FNO_TESTS

SMALL = {"kind": "fno", "modes": 4, "width": 12}


class Affine(nn.Module):
    """a ↦ factor·a + shift."""

    def __init__(self, factor: float, shift: float) -> None:
        super().__init__()
        self.factor, self.shift = nn.Parameter(torch.tensor(factor)), nn.Parameter(torch.tensor(shift))

    def forward(self, a: Tensor) -> Tensor:
        return self.factor * a + self.shift


def waves(count: int, points: int = 24, seed: int = 0) -> np.ndarray:
    """Random periodic functions with two frequencies: (count, points)."""
    angles = 2 * np.pi * np.outer(np.arange(1, 3), np.arange(points) / points)
    return np.random.default_rng(seed).standard_normal((count, 4)) @ np.concatenate([np.cos(angles), np.sin(angles)])


def shifted(a: np.ndarray) -> np.ndarray:
    """A linear operator to learn: half of a, a quarter of the period later."""
    return 0.5 * np.roll(a, a.shape[-1] // 4, axis=-1)


@pytest.fixture(scope="module")
def learned() -> FNO:
    a = waves(200)
    settings = Training(updates=120, batch=20, rate=1e-2, ema=0.0)
    return FNO(SMALL, training=settings).fit(a, shifted(a), seed=0, progress=False)


def test_a_linear_operator_is_learned(learned) -> None:
    a = waves(40, seed=1)
    u = shifted(a)
    error = np.linalg.norm(learned.predict(a, members=1).mean - u, axis=1) / np.linalg.norm(u, axis=1)
    assert error.mean() < 0.1  # 1 for the zero predictor


def test_members_are_all_the_same(learned) -> None:
    a = waves(3, seed=2)
    draws = learned.sample(a, members=5, chunk=15)
    assert draws.shape == (5, 3, 24)
    for member in draws[1:]:
        np.testing.assert_allclose(member, draws[0], rtol=1e-6, atol=1e-7)
    predicted = learned.predict(a, members=5, quantiles=(0.05, 0.95), chunk=1)  # each member is the same call
    assert not predicted.std.any()
    np.testing.assert_allclose(predicted.quantile(0.05), predicted.quantile(0.95), rtol=1e-15)
    np.testing.assert_allclose(predicted.mean, draws[0], rtol=1e-5, atol=1e-6)


def test_a_saved_operator_answers_the_same_to_the_bit(learned, tmp_path) -> None:
    learned.save(tmp_path / "fno.safetensors")
    again = pdno.load(tmp_path / "fno.safetensors")
    assert isinstance(again, FNO)
    np.testing.assert_array_equal(again.sample(waves(3)), learned.sample(waves(3)))


def loss_of(a: np.ndarray, u: np.ndarray, network: nn.Module, normalise: str, **more: object) -> float:
    """The objective of all pairs, with a network that is hardly trained."""
    model = FNO(network, normalise, Training(updates=1, batch=2, rate=1e-12, ema=0.0))
    pairs = Pairs.of(a, u, **more)
    model.learn(pairs, None, progress=False)
    return float(model.objective(pairs, 0, "train")(model.network, np.arange(len(a)), 0, 0).detach())


def test_the_objective_is_the_relative_error_by_hand() -> None:
    a = np.array([[1.0, 2.0], [2.0, 2.0]])
    u = np.array([[3.0, 4.0], [0.0, 5.0]])
    by_hand = (np.sqrt(2**2 + 1**2) / 5 + np.sqrt(3**2 + 2**2) / 5) / 2  # the network answers [1, 3] and [3, 3]
    assert loss_of(a, u, Affine(2.0, -1.0), "none") == pytest.approx(by_hand, rel=1e-6)
    # normalised: what the network answers is in units of the standard deviation, the error is not
    answers = 2 * (a - a.mean()) / a.std() - 1
    misses = answers * u.std() + u.mean() - u
    by_hand = np.mean(np.linalg.norm(misses, axis=1) / np.linalg.norm(u, axis=1))
    assert loss_of(a, u, Affine(2.0, -1.0), "scalar") == pytest.approx(by_hand, rel=1e-6)


def test_masked_outputs_are_in_neither_norm() -> None:
    a = np.array([[1.0, 2.0], [2.0, 2.0]])
    mask = np.array([[True, True], [True, False]])
    for masked in (7.0, -300.0):
        u = np.array([[3.0, 4.0], [2.0, masked]])
        by_hand = (np.sqrt(4 + 1) / 5 + 1 / 2) / 2
        assert loss_of(a, u, Affine(2.0, -1.0), "none", mask=mask) == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize(
    ("test", "modes", "width", "halve_every", "normalise", "points", "parameters"),
    [
        ("darcy", 12, 32, 100, "pointwise", (32, 32), 2_376_449),
        ("burgers", 16, 64, 50, "none", (64,), 582_849),
        ("advection", 16, 128, 50, "none", (64,), 2_328_961),
    ],
)
def test_recipes_of_the_paper(test, modes, width, halve_every, normalise, points, parameters) -> None:
    model = FNO.paper(test)
    assert model.network == {"kind": "fno", "modes": modes, "width": width}
    assert model.normalise == normalise
    loop = model.training
    assert (loop.epochs, loop.batch, loop.optimizer, loop.rate) == (500, 20, "adam", 1e-3)
    assert (loop.rate_schedule, loop.halve_every, loop.weight_decay) == ("step", halve_every, 1e-4)
    assert (loop.ema, loop.clip) == (0, 0)
    a, u = np.random.default_rng(3).standard_normal((2, 4, 1, *points))
    model.training = Training(updates=1, batch=2)
    model.fit(a, u, validation=0, progress=False)
    assert sum(p.numel() for p in model.network.parameters()) == parameters
    assert model.sample(a[:1], chunk=1).shape == (1, 1, 1, *points)


def test_what_a_deterministic_operator_has_not_is_refused(learned) -> None:
    with pytest.raises(UserError, match="a deterministic operator has no setting 'steps'"):
        learned.sample(waves(1), steps=3)
    with pytest.raises(UserError, match=r"other tests than 'darci'; did you mean 'darcy'\?"):
        FNO.paper("darci")
    assert "elliptic1d" not in FNO_TESTS
    a = waves(4, points=6)
    with pytest.raises(UserError, match="a grid of 6 is too small for an FNO of 9 modes"):
        FNO({"kind": "fno", "modes": 9, "width": 4}, training=Training(updates=1)).fit(a, a)
