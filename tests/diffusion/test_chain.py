"""The forward chain, the targets and L_DDSM against closed forms of linear-Gaussian problems.

Every expectation is that of a quadratic function of Gaussian variables, which depends on their mean and covariance only.
`design` is a small batch with exactly this mean and covariance, so an average over it is the expectation up to rounding.
"""

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from pdno import Field, UserError
from pdno.diffusion.base import LowModes, White, as_base
from pdno.diffusion.chain import Diffusion
from pdno.diffusion.schedule import Schedule

D = 6
BASES = [White(), Field(tau=3, r=1), Field(tau=2, r=1, condition="periodic"), White() + LowModes()]
TARGETS = ["eps", "u0", "v", "flow", "mean"]
each_base = pytest.mark.parametrize("base", BASES, ids=["white", "neumann", "periodic", "low"])
each_target = pytest.mark.parametrize("target", TARGETS)
Predictor = Callable[[Tensor], Tensor]


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64)


def design(*sizes: int) -> tuple[Tensor, ...]:
    """Return vectors with joint mean 0 and covariance I: ±√k times each unit vector of R^k, k = Σ sizes."""
    k = sum(sizes)
    unit = k**0.5 * torch.eye(k, dtype=torch.float64)
    return torch.cat([unit, -unit]).split(sizes, dim=1)


def covariance(base) -> Tensor:
    root = as_base(base).sqrt(np.eye(D), 1)
    return torch.as_tensor(root @ root)


class Problem:
    """u₀ ~ N(mean, Σ) with a Σ that does not commute with 𝒞, and a batch (u₀, ε) with exactly their moments."""

    def __init__(self, base, spread: float = 1.0) -> None:
        self.c, self.mean = covariance(base), normal(D, seed=1)
        factor = spread * normal(D, D, seed=2) / D**0.5
        self.sigma = factor @ factor.T
        z, w = design(D, D)
        self.u0 = (self.mean + z @ factor.T)[:, None]
        self.eps = torch.as_tensor(as_base(base).sqrt(w.numpy(), 1))[:, None]

    def posterior(self, gamma: float) -> Predictor:
        """Return v ↦ E[U_0 | U_n = v], by Gaussian conditioning."""
        gain = gamma**0.5 * self.sigma @ torch.linalg.inv(gamma * self.sigma + (1 - gamma) * self.c)
        return lambda v: self.mean + (v - gamma**0.5 * self.mean) @ gain.T


def affine(seed: int) -> Predictor:
    a, b = normal(D, D, seed=seed), normal(D, seed=seed + 1000)
    return lambda v: v @ a.T + b


def network_of(diffusion: Diffusion, u0: Callable[[int, Tensor], Tensor]):
    """Return the network with this û₀(n, v), whatever the target; all samples of the batch have the same n."""

    def network(n: Tensor, v: Tensor, a: None) -> Tensor:
        clean = u0(int(n[0]), v)
        return diffusion.target_of(n, clean, diffusion.eps_of(n, v, clean))

    return network


def test_single_steps_compose_to_the_transition_from_u0() -> None:
    """`eqn:un_given_u0`: U_n is linear in u₀ and the ε_i. Applied alone, u₀ has the gain √γ_n, and Σ_i gain_i² = 1 − γ_n."""
    diffusion = Diffusion(Schedule.cosine(30))
    u = torch.zeros(31, 1, 2, dtype=torch.float64)
    u[0] = 1  # row 0 carries u₀, row i the noise of step i
    for n in range(1, 31):
        eps = torch.zeros_like(u)
        eps[n] = 1
        u = diffusion.step(n, u, eps)
        gamma = diffusion.schedule.gamma[n]
        np.testing.assert_allclose(u[0], np.sqrt(gamma), rtol=1e-12)
        np.testing.assert_allclose((u[1:] ** 2).sum(0), 1 - gamma, rtol=1e-12)
        jump = diffusion.forward(n, torch.eye(2)[:, :1, None].double(), torch.eye(2)[:, 1:, None].double())
        np.testing.assert_allclose(jump.flatten(), [np.sqrt(gamma), np.sqrt(1 - gamma)], rtol=1e-12)


@each_target
@pytest.mark.parametrize("schedule", [Schedule.cosine(100), Schedule.linear(100), Schedule.cosine(1)])
def test_u0_is_recovered_from_every_target_at_every_step(target, schedule) -> None:
    diffusion = Diffusion(schedule, target=target)
    numbers = torch.arange(1, schedule.n_steps + 1)
    u0, eps = (normal(schedule.n_steps, 2, 3, 4, seed=seed) for seed in (3, 4))
    v, output = diffusion.forward(numbers, u0, eps), diffusion.target_of(numbers, u0, eps)
    torch.testing.assert_close(diffusion.u0_of(numbers, v, output), u0, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(diffusion.eps_of(numbers, v, u0), eps, rtol=1e-9, atol=1e-11)
    for n in (1, schedule.n_steps):  # one number for all samples
        torch.testing.assert_close(diffusion.u0_of(n, v[n - 1 : n], output[n - 1 : n]), u0[n - 1 : n], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("schedule", [Schedule.cosine(100), Schedule.linear(20), Schedule.cosine(1)])
def test_targets_match_their_definitions(schedule) -> None:
    """ "mean" is m_θ of `eqn:reverse-transition` and m(n, u_n, u_0) of appendix `app:NVLB`."""
    n = torch.arange(1, schedule.n_steps + 1)
    u0, eps = normal(len(n), 1, 5, seed=5), normal(len(n), 1, 5, seed=6)
    outputs = {target: Diffusion(schedule, target=target).target_of(n, u0, eps) for target in TARGETS}
    v = Diffusion(schedule).forward(n, u0, eps)
    torch.testing.assert_close(outputs["mean"], Diffusion(schedule).reverse_mean(n, v, u0), rtol=1e-9, atol=1e-11)
    gamma, beta, before = (
        torch.as_tensor(x)[:, None, None] for x in (schedule.gamma[1:], schedule.beta[1:], schedule.gamma[:-1])
    )
    bayes = (1 - beta).sqrt() * (1 - before) / (1 - gamma) * v + before.sqrt() * beta / (1 - gamma) * u0
    torch.testing.assert_close(outputs["mean"], bayes, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(outputs["v"], gamma.sqrt() * eps - (1 - gamma).sqrt() * u0)
    assert torch.equal(outputs["u0"], u0)
    assert torch.equal(outputs["eps"], eps)


@each_target
@each_base
def test_the_loss_of_the_exact_predictor_is_the_irreducible_error(target, base) -> None:
    """It is tr Cov(F | v)/d for F = p u₀ + q ε, by Gaussian conditioning with the coefficients of the paper's formulas."""
    diffusion, problem = Diffusion(Schedule.cosine(10), base, target), Problem(base)
    beta, gamma = diffusion.schedule.beta, diffusion.schedule.gamma
    for n in range(1, 11):
        signal, noise = gamma[n] ** 0.5, (1 - gamma[n]) ** 0.5
        p, q = {
            "eps": (0, 1),
            "u0": (1, 0),
            "v": (-noise, signal),
            "flow": (-1, 1),
            "mean": (signal / (1 - beta[n]) ** 0.5, (noise - beta[n] / noise) / (1 - beta[n]) ** 0.5),
        }[target]
        cross = p * signal * problem.sigma + q * noise * problem.c
        given = p**2 * problem.sigma + q**2 * problem.c
        given = given - cross @ torch.linalg.solve(signal**2 * problem.sigma + noise**2 * problem.c, cross.T)
        network = network_of(diffusion, lambda n, v: problem.posterior(gamma[n])(v))
        loss = diffusion.loss(network, torch.full((4 * D,), n), problem.u0, problem.eps, None)
        assert float(loss) == pytest.approx(float(given.trace()) / D, rel=1e-8, abs=1e-12)


@each_target
def test_weight_ddsm_is_the_loss_of_the_noise_for_every_target(target) -> None:
    n = torch.arange(1, 101)
    u0, eps, wrong = (normal(100, 1, D, seed=seed) for seed in (7, 8, 9))
    diffusion = Diffusion(target=target, weight="ddsm")
    v = diffusion.forward(n, u0, eps)
    noise_loss = ((diffusion.eps_of(n, v, wrong) - eps) ** 2).mean()
    torch.testing.assert_close(diffusion.loss(network_with(diffusion, wrong), n, u0, eps, None), noise_loss, rtol=1e-9, atol=0)
    plain = Diffusion(target=target).loss(network_with(diffusion, wrong), n, u0, eps, None)
    assert torch.isclose(plain, noise_loss, rtol=1e-9) == (target == "eps")


@each_target
def test_weight_score_is_the_loss_of_the_score_for_every_target(target) -> None:
    """The objective of the function-space model: L_DDSM with the factor 1/(1 − e^(−t)), where e^(−t) = γ."""
    n = torch.arange(1, 101)
    u0, eps, wrong = (normal(100, 1, D, seed=seed) for seed in (7, 8, 9))
    diffusion = Diffusion(target=target, weight="score")
    v = diffusion.forward(n, u0, eps)
    score_loss = ((diffusion.score(n, v, wrong) - diffusion.score(n, v, u0)) ** 2).mean()
    torch.testing.assert_close(diffusion.loss(network_with(diffusion, wrong), n, u0, eps, None), score_loss, rtol=1e-9, atol=0)


def test_flow_matching_is_a_schedule_and_a_target() -> None:
    """x_t = (1−t) u₀ + t ε, with its velocity ε − u₀, is U_n times the root of (1−t)² + t²."""
    diffusion, u0, eps = Diffusion(Schedule.flow(10), target="flow"), normal(1, 1, D, seed=1), normal(1, 1, D, seed=2)
    for n in range(1, 11):
        t = 0.999 * n / 10
        torch.testing.assert_close(diffusion.forward(n, u0, eps) * ((1 - t) ** 2 + t**2) ** 0.5, (1 - t) * u0 + t * eps)
        velocity = diffusion.target_of(n, u0, eps)
        torch.testing.assert_close(velocity, eps - u0)
        torch.testing.assert_close(diffusion.u0_of(n, diffusion.forward(n, u0, eps), velocity), u0)


def network_with(diffusion: Diffusion, u0: Tensor):
    return lambda n, v, a: diffusion.target_of(n, u0, diffusion.eps_of(n, v, u0))


def test_nodes_outside_the_mask_do_not_count() -> None:
    u0, eps, n = normal(3, 1, 4, seed=10), normal(3, 1, 4, seed=11), torch.tensor([1, 50, 100])
    diffusion = Diffusion(target="u0")
    squares = (u0 - 2) ** 2
    mask = torch.tensor([[[1.0, 1, 0, 0]], [[1, 1, 1, 1]], [[0, 0, 0, 1]]], dtype=torch.float64)
    expected = (squares[0, 0, :2].sum() + squares[1].sum() + squares[2, 0, 3]) / 7
    two = torch.full_like(u0, 2.0)
    wrong_outside = torch.where(mask > 0, two, 1e6)
    torch.testing.assert_close(diffusion.loss(lambda *_: wrong_outside, n, u0, eps, None, mask), expected)
    shared_mask = torch.tensor([1.0, 1, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(diffusion.loss(lambda *_: two, n, u0, eps, None, shared_mask), squares[..., :2].mean())
    torch.testing.assert_close(diffusion.loss(lambda *_: two, n, u0, eps, None, torch.ones_like(mask)), squares.mean())
    assert diffusion.loss(lambda *_: two, n, u0, eps, None, torch.zeros_like(mask)) == 0
    of_samples = torch.stack([squares[0, 0, :2].mean(), squares[1].mean(), squares[2, 0, 3]])
    torch.testing.assert_close(diffusion.losses(lambda *_: wrong_outside, n, u0, eps, None, mask), of_samples)
    torch.testing.assert_close(diffusion.losses(lambda *_: two, n, u0, eps, None), squares.mean(dim=(1, 2)))


@each_base
def test_the_exact_noise_minimises_the_objective(base) -> None:
    """A perturbation δ of the exact ε raises L_DDSM by exactly E‖δ(U_n)‖²/d, for 20 random affine δ of either sign."""
    diffusion, problem = Diffusion(Schedule.cosine(10), base, "eps"), Problem(base)
    for n in (1, 5, 10):
        numbers, exact = torch.full((4 * D,), n), problem.posterior(diffusion.schedule.gamma[n])
        v = diffusion.forward(numbers, problem.u0, problem.eps)
        least = diffusion.loss(network_of(diffusion, lambda n, v: exact(v)), numbers, problem.u0, problem.eps, None)  # noqa: B023
        for seed in range(20):
            delta = (-1) ** seed * 0.1 * affine(seed // 2)(v)
            best = diffusion.eps_of(n, v, exact(v))
            loss = diffusion.loss(lambda *_: best + delta, numbers, problem.u0, problem.eps, None)  # noqa: B023
            torch.testing.assert_close(loss - least, (delta**2).mean(), rtol=1e-8, atol=1e-13)


@each_base
@pytest.mark.parametrize("spread", [1.0, 0.0])
def test_denoising_and_score_matching_differ_by_a_constant(base, spread) -> None:
    """`thm:DSM-objective-continuous`, `…-infinite`: ℓ_DSM − ℓ_SM = Tr 𝒞/(1−γ) − E‖Ψ‖² for all Ψ_θ.

    The constant is 0 for a Dirac distribution.
    """
    diffusion, problem = Diffusion(Schedule.cosine(10), base, "eps"), Problem(base, spread)
    for n in (1, 4, 10):
        gamma, numbers = diffusion.schedule.gamma[n], torch.full((4 * D,), n)
        v = diffusion.forward(numbers, problem.u0, problem.eps)
        of_pair, exact = diffusion.score(n, v, problem.u0), diffusion.score(n, v, problem.posterior(gamma)(v))
        constant = float(problem.c.trace()) / (1 - gamma) - float((exact**2).sum(-1).mean())
        for seed in range(5):
            theta = affine(seed)
            model = diffusion.score(n, v, theta(v))
            dsm, sm = (float(((model - score) ** 2).sum(-1).mean()) for score in (of_pair, exact))
            assert dsm - sm == pytest.approx(constant, rel=1e-8, abs=1e-11 * dsm)
            loss = diffusion.loss(network_of(diffusion, lambda n, v: theta(v)), numbers, problem.u0, problem.eps, None)  # noqa: B023
            assert float(loss) == pytest.approx((1 - gamma) * dsm / D, rel=1e-9)  # L_DDSM omits the prefactor
        assert constant == pytest.approx(0, abs=1e-9) if spread == 0 else constant > 0.1 * gamma


@each_base
def test_score_is_the_gradient_of_the_log_density(base) -> None:
    """`eqn:OU-score-function`: 𝒞∇log ρ_t of a Gaussian, by automatic differentiation of its log-density."""
    diffusion, problem = Diffusion(Schedule.cosine(10), base), Problem(base)
    for n in (1, 5, 10):
        gamma = diffusion.schedule.gamma[n]
        law = torch.distributions.MultivariateNormal(gamma**0.5 * problem.mean, gamma * problem.sigma + (1 - gamma) * problem.c)
        v = normal(5, 1, D, seed=12).requires_grad_()
        (gradient,) = torch.autograd.grad(law.log_prob(v).sum(), v)
        score = diffusion.score(n, v.detach(), problem.posterior(gamma)(v.detach()))
        torch.testing.assert_close(score, gradient @ problem.c, rtol=1e-7, atol=1e-9)


@each_base
@pytest.mark.parametrize("spread", [1.0, 0.0])
def test_mean_square_of_the_conditional_score(base, spread) -> None:
    """Tr 𝒞/(1 − e^{−t}), e^{−t} = γ: `eqn:conditional-score-estimate`; for a Dirac distribution `eqn:noise-free-estimates`."""
    diffusion, problem = Diffusion(Schedule.cosine(10), base), Problem(base, spread)
    trace = D * {"White": 1, "Field": 1, "SumBase": 2}[type(base).__name__]
    for n in range(1, 11):
        gamma = diffusion.schedule.gamma[n]
        v = diffusion.forward(n, problem.u0, problem.eps)
        clean = problem.u0 if spread else problem.posterior(gamma)(v)
        square = (diffusion.score(n, v, clean) ** 2).sum(-1).mean()
        assert float(square) == pytest.approx(trace / (1 - gamma), rel=1e-9)


def linear(weights: Tensor):
    """Return a network that is linear in (v, a), with separate weights for each n."""
    return lambda n, v, a: (weights[n - 1] @ torch.cat([v[:, 0], a], dim=1)[..., None]).transpose(1, 2)


@each_target
@each_base
def test_training_gives_the_posterior_mean(target, base) -> None:
    """u = G a + η: a linear map of (v, a) for each n, trained with L_DDSM, gives E[U_0 | U_n = v, a]."""
    steps, inputs = 4, 2
    diffusion, c = Diffusion(Schedule.cosine(steps), base, target), covariance(base)
    g, factor = normal(D, inputs, seed=13), 0.5 * normal(D, D, seed=14) / D**0.5
    a, z, w = (x.repeat(steps, 1) for x in design(inputs, D, D))
    u0, eps = (a @ g.T + z @ factor.T)[:, None], torch.as_tensor(as_base(base).sqrt(w.numpy(), 1))[:, None]
    n = torch.arange(1, steps + 1).repeat_interleave(len(a) // steps)
    weights = torch.zeros(steps, D, D + inputs, dtype=torch.float64)

    def loss(weights: Tensor) -> Tensor:
        return diffusion.loss(linear(weights), n, u0, eps, a)

    hessian = torch.autograd.functional.hessian(loss, weights, vectorize=True).reshape(weights.numel(), -1)
    (gradient,) = torch.autograd.functional.jacobian(loss, (weights,))
    weights = -torch.linalg.solve(hessian, gradient.flatten()).reshape(weights.shape)  # Newton: a quadratic function
    (gradient,) = torch.autograd.functional.jacobian(loss, (weights,))
    assert gradient.abs().max() < 1e-12
    v, a, sigma = normal(8, 1, D, seed=15), normal(8, inputs, seed=16), factor @ factor.T
    denoise = diffusion.denoiser(linear(weights))
    for step in range(1, steps + 1):
        gamma, mean = diffusion.schedule.gamma[step], (a @ g.T)[:, None]
        gain = gamma**0.5 * sigma @ torch.linalg.inv(gamma * sigma + (1 - gamma) * c)
        expected = mean + (v - gamma**0.5 * mean) @ gain.T
        torch.testing.assert_close(denoise(step, v, a), expected, rtol=1e-8, atol=1e-8)


def test_single_precision_and_steps_as_number_or_tensor() -> None:
    u0, eps = normal(2, 1, 4, seed=17).float(), normal(2, 1, 4, seed=18).float()
    diffusion = Diffusion()
    v = diffusion.forward(torch.tensor([7, 7]), u0, eps)
    assert v.dtype == torch.float32
    assert torch.equal(v, diffusion.forward(7, u0, eps))
    calls = []
    denoise = diffusion.denoiser(lambda n, v, a: calls.append((n, a)) or v)
    assert torch.equal(denoise(7, v, "condition"), v)  # target u₀
    assert calls[0][0].tolist() == [7, 7]
    assert calls[0][1] == "condition"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Diffusion(target="epsilon"), "did you mean 'eps'"),
        (lambda: Diffusion(weight="dsm"), "did you mean 'ddsm'"),
        (lambda: Diffusion(base="white"), "is not a base distribution"),
        (lambda: Diffusion(base=Field(tau=3, r=2, mean_free=True)), "needs variance in every mode"),
    ],
)
def test_mistakes_are_explained(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


@each_target
@each_base
@pytest.mark.parametrize("weight", ["target", "ddsm", "score"])
def test_json_round_trip(target, base, weight) -> None:
    """γ, the base distribution, target and weight are kept exactly."""
    diffusion = Diffusion(Schedule.linear(12), base, target, weight)
    again = Diffusion.from_json(json.loads(json.dumps(diffusion.to_json())))
    np.testing.assert_array_equal(again.schedule.gamma, diffusion.schedule.gamma)
    np.testing.assert_array_equal(again.schedule.n, diffusion.schedule.n)
    assert (again.law, again.target, again.weight) == (as_base(base), target, weight)
    assert again.to_json() == diffusion.to_json()


def test_json_by_hand() -> None:
    described = {"gamma": [1.0, 0.5], "base": [{"law": "white"}], "target": "eps", "weight": "ddsm"}
    assert Diffusion(Schedule([1.0, 0.5]), target="eps", weight="ddsm").to_json() == described


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma": [1.0, 2.0]}, "a schedule needs γ_0 > γ_1"),
        ({"base": [{"law": "whit"}]}, "did you mean 'white'"),
        ({"target": "epsilon"}, "did you mean 'eps'"),
        ({"weight": None}, "weight None is unknown"),
        ({"colour": 3}, "a diffusion is described by base, gamma, target, weight; got .*colour"),
    ],
)
def test_wrong_descriptions_are_explained(changes, message) -> None:
    with pytest.raises(UserError, match=message):
        Diffusion.from_json({**Diffusion().to_json(), **changes})


def test_a_missing_setting_is_explained() -> None:
    described = Diffusion().to_json()
    del described["weight"]
    with pytest.raises(UserError, match=r"a diffusion is described by base, gamma, target, weight; got gamma, base, target$"):
        Diffusion.from_json(described)
