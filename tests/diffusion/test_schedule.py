"""The noise schedule: printed values, hand arithmetic, and transitions of a sub-chain against their single steps."""

import numpy as np
import pytest

from pdno import UserError
from pdno.diffusion.schedule import Schedule

CHAINS = [
    Schedule.cosine(100),
    Schedule.cosine(7),
    Schedule.cosine(1000),
    Schedule.linear(100),
    Schedule.linear(10),
    Schedule.from_beta([0.1, 0.5, 0.2, 0.9]),
    Schedule.flow(20),
    Schedule.from_alpha(lambda t: 0.1 + 20 * t, 1.0, 30),
]


def test_printed_values_of_the_cosine_schedule() -> None:
    chain = Schedule.cosine(100)
    values = [f"{x:.3g}" for x in (chain.beta[1], chain.gamma[50], chain.gamma[100])]
    assert values == ["0.000631", "0.494", "2.43e-07"]


def test_printed_values_of_the_linear_schedule() -> None:
    chain = Schedule.linear(100)
    values = [f"{x:.3g}" for x in (chain.beta[1], chain.beta[100], chain.gamma[1], chain.gamma[50], chain.gamma[100])]
    assert values == ["0.001", "0.2", "0.999", "0.0742", "2.04e-05"]
    thousand = Schedule.linear(1000)  # the schedule of Ho et al. (2020)
    np.testing.assert_allclose(thousand.beta[[1, 1000]], [1e-4, 0.02], rtol=1e-9)
    assert f"{thousand.gamma[-1]:.3g}" == "4.04e-05"


def test_cosine_is_the_squared_cosine_where_beta_is_not_bounded() -> None:
    """Nichol and Dhariwal: γ_n = f(n)/f(0) except for the last step, whose β would be 1."""
    for n_steps in (4, 100, 999):
        chain = Schedule.cosine(n_steps)
        angle = (np.arange(n_steps + 1) / n_steps + 0.008) / 1.008 * np.pi / 2
        np.testing.assert_allclose(chain.gamma[:-1], (np.cos(angle) ** 2 / np.cos(angle[0]) ** 2)[:-1], rtol=1e-11)
        assert chain.beta[-1] == pytest.approx(0.999, abs=1e-12)


def test_linear_has_the_same_sum_of_beta_for_every_number_of_steps() -> None:
    """Σβ = 1000·(1e-4 + .02)/2 as long as no β exceeds its bound, so γ_N depends little on N."""
    for n_steps in (21, 50, 100, 1000):
        assert Schedule.linear(n_steps).beta.sum() == pytest.approx(10.05, rel=1e-10)
    assert Schedule.linear(10).beta.max() == pytest.approx(0.999)


def test_gamma_is_the_integral_of_alpha() -> None:
    """α(t) = b + (B − b) t, the rate of the linear schedule: γ(t) = exp(−b t − (B − b) t²/2)."""
    chain, t = Schedule.from_alpha(lambda t: 0.1 + 19.9 * t, 1.0, 50), np.arange(51) / 50
    np.testing.assert_allclose(chain.gamma, np.exp(-0.1 * t - 19.9 * t**2 / 2), rtol=1e-10)
    constant = Schedule.from_alpha(lambda t: 1.0, 3.0, 4)  # the Ornstein–Uhlenbeck process of the function-space model
    np.testing.assert_allclose(constant.gamma, np.exp(-0.75 * np.arange(5)), rtol=1e-12)
    with pytest.raises(UserError, match="a schedule needs γ_0 > γ_1"):
        Schedule.from_alpha(lambda t: t - 0.5)


@pytest.mark.parametrize("make", [Schedule.cosine, Schedule.linear, Schedule.flow])
@pytest.mark.parametrize("n_steps", [1, 2, 3, 20, 1000])
def test_any_number_of_steps(make, n_steps) -> None:
    chain = make(n_steps)
    assert chain.n_steps == n_steps
    assert chain.n.tolist() == list(range(n_steps + 1))
    assert chain.gamma.shape == chain.beta.shape == (n_steps + 1,)
    assert (chain.gamma[0], chain.beta[0]) == (1, 0)
    assert (chain.beta[1:] > 0).all()
    assert (chain.beta < 1).all()


def test_beta_by_hand() -> None:
    chain = Schedule.from_beta([0.5, 0.2])
    np.testing.assert_allclose(chain.gamma, [1, 0.5, 0.4])
    np.testing.assert_allclose(chain.beta, [0, 0.5, 0.2])
    np.testing.assert_allclose(Schedule([1, 0.5, 0.4]).beta, chain.beta)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 1])
def test_a_transition_of_a_subchain_is_the_product_of_its_single_steps(chain, share) -> None:
    """Single steps u ← √(1−β) u + √β ε from m to n have the gain √(1−β′) and the variance β′ = 1 − γ_n/γ_m."""
    short = chain.subchain(max(1, round(share * chain.n_steps)))
    np.testing.assert_array_equal(short.gamma, chain.gamma[short.n])
    assert (short.n[0], short.n[-1]) == (0, chain.n_steps)
    for k, (m, n) in enumerate(zip(short.n[:-1], short.n[1:], strict=True), start=1):
        gain, variance = 1.0, 0.0
        for i in range(m + 1, n + 1):
            gain *= np.sqrt(1 - chain.beta[i])
            variance = (1 - chain.beta[i]) * variance + chain.beta[i]
        assert gain**2 == pytest.approx(1 - short.beta[k], rel=1e-9, abs=1e-15)
        assert variance == pytest.approx(short.beta[k], rel=1e-10)
        assert short.beta[k] == pytest.approx(1 - chain.gamma[n] / chain.gamma[m], rel=1e-10)


def test_even_spacing() -> None:
    for steps in (1, 3, 7, 40, 99, 100):
        strides = np.diff(Schedule.cosine(100).subchain(steps).n)
        assert strides.size == steps
        assert strides.max() - strides.min() <= 1


def test_a_chain_may_end_early() -> None:
    chain = Schedule.cosine(100)
    early = chain.subchain(t_start=30)
    assert early.n.tolist() == list(range(30, 101))
    np.testing.assert_array_equal(early.gamma, chain.gamma[30:])
    np.testing.assert_allclose(early.beta[1:], chain.beta[31:], rtol=1e-12)
    assert chain.subchain(5, t_start=50).n.tolist() == [50, 60, 70, 80, 90, 100]
    assert chain.subchain(1, t_start=99).n.tolist() == [99, 100]
    assert chain.subchain().n.tolist() == chain.n.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Schedule.cosine(0), "at least one step"),
        (lambda: Schedule.linear(-3), "at least one step"),
        (lambda: Schedule.from_beta([]), "at least one step"),
        (lambda: Schedule.from_beta([0.1, 0.0]), "γ_0 > γ_1"),
        (lambda: Schedule.from_beta([0.1, 1.0]), "γ_0 > γ_1"),
        (lambda: Schedule.from_beta([-0.1]), "γ_0 > γ_1"),
        (lambda: Schedule([1, 0.5, float("nan")]), "γ_0 > γ_1"),
        (lambda: Schedule([1.5, 1.0, 0.5]), "γ_0 > γ_1"),
        (lambda: Schedule([[1, 0.5]]), "γ_0 > γ_1"),
        (lambda: Schedule([1, 0.5], n=[0, 1, 2]), "one number n for each"),
        (lambda: Schedule([1, 0.5, 0.2], n=[0, 2, 1]), "ascending"),
        (lambda: Schedule([0.9, 0.5]), "γ = 1 at number 0"),
        (lambda: Schedule([1, 0.5], n=[3, 4]), "γ = 1 at number 0"),
        (lambda: Schedule.cosine(100).subchain(0), "from 1 to 100"),
        (lambda: Schedule.cosine(100).subchain(101), "from 1 to 100"),
        (lambda: Schedule.cosine(100).subchain(51, t_start=50), "from 1 to 50"),
        (lambda: Schedule.cosine(100).subchain(t_start=100), "from 0 to 99"),
        (lambda: Schedule.cosine(100).subchain(t_start=-1), "from 0 to 99"),
        (lambda: Schedule.cosine(100).subchain(t_start=30).subchain(5), "shortened already"),
        (lambda: Schedule.cosine(100).subchain(5, spacing="qadratic"), "did you mean 'quadratic'"),
    ],
)
def test_mistakes_are_explained(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize(("steps", "t_start"), [(1, 0), (2, 0), (5, 0), (20, 0), (99, 0), (100, 0), (10, 50), (50, 50)])
def test_quadratic_spacing_is_fine_where_the_noise_level_is_low(steps, t_start) -> None:
    n = Schedule.cosine(100).subchain(steps, t_start, "quadratic").n
    assert (len(n), n[0], n[-1]) == (steps + 1, t_start, 100)
    strides = np.diff(n)
    assert (strides >= 1).all()
    assert (np.diff(strides) >= -1).all()  # non-decreasing up to rounding


def test_quadratic_spacing_by_hand() -> None:
    assert Schedule.cosine(100).subchain(5, spacing="quadratic").n.tolist() == [0, 4, 16, 36, 64, 100]


# Geometric noise levels


def test_geometric_levels_with_the_target_v_are_the_preconditioning_of_karras() -> None:
    """D = c_skip x + c_out F with x = u₀ + σ ε, c_skip = 1/(1 + σ²), c_out = σ/√(1 + σ²), c_in x = v, F = −(the target v)."""
    chain = Schedule.geometric(50, 0.01, 30.0)
    sigma = np.geomspace(0.01, 30.0, 50)
    np.testing.assert_allclose(chain.gamma[1:], 1 / (1 + sigma**2))
    u0, eps = np.random.default_rng(0).standard_normal((2, 50))
    gamma = chain.gamma[1:]
    v, target = np.sqrt(gamma) * u0 + np.sqrt(1 - gamma) * eps, np.sqrt(gamma) * eps - np.sqrt(1 - gamma) * u0
    x = u0 + sigma * eps
    np.testing.assert_allclose(x / np.sqrt(1 + sigma**2), v)
    np.testing.assert_allclose(x / (1 + sigma**2) - sigma / np.sqrt(1 + sigma**2) * target, u0, atol=1e-10)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (2.0, 1.0), (-1.0, 1.0)])
def test_geometric_levels_must_increase_from_above_zero(low, high) -> None:
    with pytest.raises(UserError, match="noise levels must be positive and increase"):
        Schedule.geometric(10, low, high)
