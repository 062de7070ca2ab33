"""The physics-informed loss: residuals in torch, gradients, and networks that are trained on an equation."""

import math

import numpy as np
import pytest
import torch

import pdno
from pdno import PDNO, Training, UserError
from pdno.equation import Advection, Burgers, Darcy, Elliptic1D
from pdno.learning.budget import Terms
from pdno.mean import Network, Physics
from pdno.mean.base import pairs_of
from tests.helpers import normal

EQUATIONS = [Elliptic1D(points=16), Darcy(points=8), Advection(points=16)]
by_name = pytest.mark.parametrize("equation", EQUATIONS, ids=lambda equation: equation.name)
FEW = Training(updates=150, batch=16, rate=5e-3, ema=0.98)


def tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    return [torch.as_tensor(array) for array in arrays]


class Linear(torch.nn.Module):
    """A linear map of the values of a, as a network whose optimum is known: (batch, 1, points) to the same."""

    def __init__(self, points: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(points, points)

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        return self.layer(a)


# Residuals in torch


@by_name
def test_residuals_in_torch_are_those_in_numpy(equation) -> None:
    a = equation.sample_input(3, seed=0)
    u = equation.solve(a) * (1 + 0.1 * normal(*a.shape))
    expected = equation.residual(u, a)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(Physics(equation).residual(*tensors(u, a)).numpy(), expected, rtol=1e-12, atol=1e-12)


@by_name
def test_residuals_in_torch_vanish_at_the_solution(equation) -> None:
    a = equation.sample_input(3, seed=1)
    u = equation.solve(a)
    physics = Physics(equation)
    terms = physics.residual(*tensors(2 * u, a)).abs().max()
    assert physics.residual(*tensors(u, a)).abs().max() < 1e-9 * terms


@by_name
def test_gradients_agree_with_finite_differences(equation) -> None:
    a = equation.sample_input(2, seed=2)
    u = equation.solve(a) + 0.1 * normal(*a.shape)
    direction, step = normal(*a.shape, seed=1), 1e-4
    v = torch.as_tensor(u).requires_grad_()
    Physics(equation).residual(v, torch.as_tensor(a)).square().sum().backward()

    def loss(t: float) -> float:
        return float(np.square(equation.residual(u + t * direction, a)).sum())

    slope = (loss(step) - loss(-step)) / (2 * step)  # exact for a quadratic but for rounding
    np.testing.assert_allclose(float((v.grad.numpy() * direction).sum()), slope, rtol=1e-6)


def test_inputs_of_a_batch_are_not_changed() -> None:
    equation = Darcy(points=8)
    a = equation.sample_input(2)
    u, before = normal(*a.shape), normal(*a.shape)
    equation.residual(u, a)
    np.testing.assert_array_equal(u, before)


# Training


def test_the_equation_alone_has_the_solution_of_the_equation_as_optimum() -> None:
    """u = shift of a: a linear network attains it, and no output is used: they are noise."""
    equation = Advection(points=16)
    a = equation.sample_input(200, seed=0)
    noise = 0.5 + 0.5 * normal(*a.shape)
    training = Training(updates=600, batch=32, rate=2e-2, ema=0.9)
    mean = Network(Linear(16), normalise="none", training=training, physics=Physics(equation, weight=math.inf))
    mean.learn(pairs_of(a, noise), None, Terms(0, progress=False))
    new = equation.sample_input(50, seed=1)
    assert np.linalg.norm(mean(new) - equation.solve(new)) < 0.05 * np.linalg.norm(equation.solve(new))


def test_further_inputs_determine_what_few_pairs_do_not() -> None:
    """With 8 pairs a linear map of 16 values is not determined; with the equation at 200 further inputs it is."""
    equation = Advection(points=16)
    a, new = equation.sample_input(8, seed=0), equation.sample_input(50, seed=1)
    training = Training(updates=600, batch=8, rate=2e-2, ema=0.9)

    def error(physics: Physics | None) -> float:
        mean = Network(Linear(16), normalise="none", training=training, physics=physics)
        mean.learn(pairs_of(a, equation.solve(a)), None, Terms(0, progress=False))
        return float(np.linalg.norm(mean(new) - equation.solve(new)) / np.linalg.norm(equation.solve(new)))

    assert error(Physics(equation, inputs=equation.sample_input(200, seed=2))) < 0.15
    assert error(None) > 0.4


def test_a_model_of_a_users_equation_with_scalars(tmp_path) -> None:
    """u = (1 + s) a from the equation alone, by a function of the user; the model is saved without it."""
    a, s = normal(60, 1, 8), np.abs(normal(60, 1, seed=1))
    physics = Physics(lambda u, a, s: u - (1 + s[:, :, None]) * a, weight=math.inf)
    mean = Network({"kind": "fno", "modes": 3, "width": 12}, training=FEW, physics=physics)
    u = (1 + s[:, :, None]) * a
    model = PDNO(mean=mean, law="gaussian").fit(a[:50], u[:50], scalars=s[:50], seed=0)
    prediction = model.mean(a[50:], scalars=s[50:])
    assert np.linalg.norm(prediction - u[50:]) < 0.5 * np.linalg.norm(u[50:])
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(pdno.load(tmp_path / "model.safetensors").mean(a[50:], scalars=s[50:]), prediction)


def test_an_equation_of_inputs_and_outputs_of_different_dimensions() -> None:
    """u(x, y) = a(x) y from the equation alone: its residual takes a on its own grid."""
    y = torch.linspace(0, 1, 6)
    a = normal(80, 1, 1) * np.cos(np.pi * (np.arange(8) + 0.5) / 8) + 1
    physics = Physics(lambda u, a: u - a[..., None] * y.to(a), weight=math.inf)
    network = {"kind": "slim", "widths": (16, 32), "patch": 1, "blocks": 1}
    u = a[..., None] * y.numpy()
    mean = Network(network, training=FEW, physics=physics).learn(pairs_of(a[:60], u[:60]), None, Terms(0, progress=False))
    assert np.linalg.norm(mean(a[60:]) - u[60:]) < 0.2 * np.linalg.norm(u[60:])


def test_missing_outputs_are_filled_by_the_equation() -> None:
    """Outputs are observed in the left half only, and wrong elsewhere; the equation determines the right half."""
    equation = Advection(points=16)
    a = equation.sample_input(100, seed=0)
    u, mask = equation.solve(a), np.zeros(a.shape, bool)
    mask[..., :8] = True
    training = Training(updates=600, batch=32, rate=2e-2, ema=0.9)
    mean = Network(Linear(16), normalise="none", training=training, physics=Physics(equation))
    mean.learn(pairs_of(a, np.where(mask, u, 7.0), mask=mask), None, Terms(0, progress=False))
    assert np.linalg.norm(mean(a) - u) < 0.1 * np.linalg.norm(u)


def test_the_loss_by_hand() -> None:
    """u = 0 from a network of zeros: data 1, physics 1, so that L = 1 + λ."""
    equation = Advection(points=16)
    a = equation.sample_input(4, seed=3)
    a[:, :, :8] = np.array([1.0, 0.0] * 4)  # solutions of one size
    network = Linear(16)
    torch.nn.init.zeros_(network.layer.weight)
    torch.nn.init.zeros_(network.layer.bias)
    still = Training(updates=1, batch=4, rate=1e-12, ema=0.0)
    for weight, expected in ((0.25, 1.25), (3.0, 4.0), (math.inf, 1.0)):
        mean = Network(network, normalise="none", training=still, physics=Physics(equation, weight))
        mean.learn(pairs_of(a, equation.solve(a)), None, Terms(0, progress=False))
        np.testing.assert_allclose(mean.trained.history[-1]["loss"], expected, rtol=1e-5)


@pytest.mark.parametrize("s", [0.0, 0.5, 2.0])
def test_the_norm_of_a_wave_is_divided_by_a_power_of_its_wavenumber(s) -> None:
    x, y = (np.arange(8) + 0.5) / 8, (np.arange(6) + 0.5) / 6
    wave = 3 * np.outer(np.cos(2 * np.pi * x), np.cos(3 * np.pi * y))
    norms = Physics(EQUATIONS[0], smoothing=s).squared_norm(torch.as_tensor(np.stack([wave, np.ones((8, 6))])[:, None]))
    np.testing.assert_allclose(norms, [9 * 48 / 4 * (1 + 2**2 + 3**2) ** -s, 48.0])


def test_with_every_smoothing_the_norm_is_positive_and_smaller() -> None:
    r = torch.as_tensor(normal(5, 2, 7, 4))
    plain, smooth = (Physics(EQUATIONS[0], smoothing=s).squared_norm(r) for s in (0.0, 1e-12))
    np.testing.assert_allclose(smooth, plain)
    assert ((Physics(EQUATIONS[0], smoothing=1.0).squared_norm(r) < plain) & (plain > 0)).all()


# Mistakes


@pytest.mark.parametrize(
    ("physics", "words"),
    [
        (lambda: Physics("darcy"), "expected a pdno.equation.Equation or a function"),
        (lambda: Physics(EQUATIONS[0], weight=0.0), "weight = 0.0: expected a positive number; omit `physics`"),
        (lambda: Physics(EQUATIONS[0], weight=math.nan), "weight = nan"),
        (lambda: Physics(EQUATIONS[0], smoothing=-1.0), "smoothing = -1.0: expected a number of at least 0"),
        (lambda: Physics(Burgers(points=16)), "Burgers has no differentiable residual; pass a function"),
        (lambda: Physics(Elliptic1D(points=20)), r"u has shape \(2, 1, 16\); Elliptic1D expects"),
        (lambda: Physics(EQUATIONS[0], inputs=np.ones((4, 1, 8))), r"further inputs have shape \(4, 1, 8\).*\(sample, 1, 16\)"),
        (lambda: Physics(EQUATIONS[0], inputs=np.ones((4, 1, 16)), scalars=np.ones((4, 1))), "need scalars if, and only if"),
        (lambda: Physics(lambda u, a: (u - a).sum()), r"returned a tensor of shape \(\) for 2 pairs"),
        (lambda: Physics(lambda u, a: u.detach() - a), "computed from u by torch functions"),
        (lambda: Physics(lambda u, a: 0.0), "returned a float"),
    ],
)
def test_residuals_that_cannot_be_used(physics, words) -> None:
    a = np.exp(normal(6, 1, 16))
    with pytest.raises(UserError, match=words):
        Network("fno", training=FEW, physics=physics()).fit(a, a)


def test_another_mesh_is_refused() -> None:
    with pytest.raises(UserError, match="omit `points` or `physics`"):
        Network("fno", points=8, physics=Physics(EQUATIONS[0]))
