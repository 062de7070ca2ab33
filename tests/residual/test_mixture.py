"""The conditional mixture: an exact two-point law that depends on the input, and one that does not."""

import numpy as np
import pytest

from pdno.residual.mixture import ConditionalMixture

N = 1500


def data(seed: int, conditional: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return z = ±(1 + x) with a standard deviation of .05, or ±1; the sign is a fair coin."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(N, 2))
    sign = rng.choice([-1.0, 1.0], size=N)
    size = 1.5 + x[:, 0] if conditional else np.ones(N)
    return x, (sign * size + 0.05 * rng.standard_normal(N))[:, None]


def drawn(law: ConditionalMixture, x: np.ndarray, members: int = 2000) -> np.ndarray:
    rng = np.random.default_rng(9)
    places = np.repeat(np.arange(len(x)), members)
    sample = law.prepare(x)
    return sample(places, rng.random(len(places)), rng.standard_normal((len(places), 1))).reshape(len(x), members)


@pytest.mark.slow
def test_a_distribution_that_depends_on_the_input_is_learned() -> None:
    x, z = data(0, conditional=True)
    law = ConditionalMixture(updates=500).learn(x, z, data(1, conditional=True), seed=0)
    assert law.is_conditional
    new = np.array([[-0.8, 0.0], [0.8, 0.5]])
    for size, draws in zip(1.5 + new[:, 0], drawn(law, new), strict=True):
        assert np.mean(draws > 0) == pytest.approx(0.5, abs=0.12)
        assert np.mean(np.abs(np.abs(draws) - size) < 0.25) > 0.9
        assert np.abs(draws).mean() == pytest.approx(size, rel=0.06)


def test_a_distribution_that_does_not_depend_on_the_input_keeps_its_modes() -> None:
    x, z = data(0, conditional=False)
    law = ConditionalMixture().learn(x, z)
    draws = drawn(law, x[:1])
    assert not law.is_conditional
    assert np.mean(np.abs(np.abs(draws) - 1) < 0.2) > 0.98
    assert np.abs(draws).std() == pytest.approx(0.05, rel=0.4)


def test_it_is_restored_from_its_state() -> None:
    x, z = data(0, conditional=True)
    law = ConditionalMixture(updates=100).learn(x[:300], z[:300], (x[300:400], z[300:400]))
    back = ConditionalMixture.from_state(law.state())
    np.testing.assert_array_equal(drawn(back, x[:3], 5), drawn(law, x[:3], 5))
    assert back.describe() == law.describe()


def test_without_time_the_distribution_does_not_depend_on_the_input() -> None:
    x, z = data(0, conditional=True)
    law = ConditionalMixture().learn(x, z, data(1, conditional=True), seconds=0.0)
    assert not law.is_conditional
    assert np.isfinite(drawn(law, x[:2], 10)).all()


@pytest.mark.parametrize("width", [0.05, 0.3])
def test_modes_have_the_width_of_held_out_values(width) -> None:
    """Training values have narrow modes, as the residuals of an overfitted mean do; held-out ones are wider."""
    rng = np.random.default_rng(0)
    sign, sign_new = rng.choice([-1.0, 1.0], N), rng.choice([-1.0, 1.0], 400)
    z, new = sign + 0.05 * rng.standard_normal(N), sign_new + width * rng.standard_normal(400)
    law = ConditionalMixture(updates=1).learn(np.zeros((N, 1)), z[:, None], (np.zeros((400, 1)), new[:, None]))
    law.network = None
    assert np.abs(np.abs(drawn(law, np.zeros((1, 1)))).std()) == pytest.approx(width, rel=0.25)


def test_the_likelihood_of_modes_is_higher_than_that_of_a_gaussian() -> None:
    """In closed form: log N(z; 0, 1) is −½ log 2π − ½ on average, and that of the two modes −log 2 − log .05 more."""
    law = ConditionalMixture().learn(*data(0, conditional=False))
    gains = law.over_gaussian(*data(1, conditional=False), 1)
    assert gains.mean() == pytest.approx(-np.log(2 * 0.05), abs=0.1)
    x, new = np.zeros((N, 1)), np.random.default_rng(1).standard_normal((500, 2))
    gaussian = ConditionalMixture().learn(x, np.random.default_rng(0).standard_normal((N, 2)))
    assert -0.1 < gaussian.over_gaussian(x[:500], new, 1).mean() < 0.01
    assert -0.2 < gaussian.over_gaussian(x[:500], new, 2).mean() < 0.01


def test_a_trend_is_found_where_there_is_one() -> None:
    """The second number is 2x₁ plus two modes, which a kernel density of its values alone would blur."""
    rng = np.random.default_rng(0)
    x, new = rng.standard_normal((N, 3)), rng.standard_normal((300, 3))

    def numbers(x: np.ndarray) -> np.ndarray:
        modes = rng.choice([-1.0, 1.0], len(x)) + 0.05 * rng.standard_normal(len(x))
        return np.column_stack([rng.standard_normal(len(x)), 2 * x[:, 1] + modes])

    law = ConditionalMixture(updates=1).learn(x, numbers(x), (new, numbers(new)))
    assert not law.is_conditional
    np.testing.assert_allclose(law.trend, [[0, 0], [0, 2], [0, 0]], atol=0.1)
    assert not law.trend[:, 0].any()
    place = np.zeros(2000, int)
    draws = law.prepare(np.array([[0.0, 3.0, 0.0]]))(place, rng.random(2000), rng.standard_normal((2000, 2)))
    near = np.abs(np.abs(draws[:, 1] - 6.0) - 1.0)
    assert np.mean(near < 0.3) > 0.9
    again, uniform, normal = ConditionalMixture.from_state(law.state()), rng.random(9), rng.standard_normal((9, 2))
    same = [each.prepare(x[:9])(np.arange(9), uniform, normal) for each in (law, again)]
    np.testing.assert_array_equal(*same)


def test_a_narrow_mode_stays_narrow_beside_a_wide_one() -> None:
    """One width for all values, a compromise between the two, would make the narrow mode wider by half."""
    rng = np.random.default_rng(0)

    def numbers(count: int) -> np.ndarray:
        wide = rng.random(count) < 0.5
        return np.where(wide, 1 + 0.2 * rng.standard_normal(count), -1 + 0.02 * rng.standard_normal(count))[:, None]

    law = ConditionalMixture(updates=1).learn(np.zeros((N, 1)), numbers(N), (np.zeros((300, 1)), numbers(300)))
    law.network = None
    draws = drawn(law, np.zeros((1, 1)))
    assert draws[draws < 0].std() == pytest.approx(0.02, rel=0.2)
    assert draws[draws > 0].std() == pytest.approx(0.2, rel=0.15)


def test_draws_have_the_variance_of_the_values() -> None:
    """The kernel of a density of four numbers is wide, a third of a standard deviation; 20,000 draws have an error of .5 %."""
    z = np.random.default_rng(0).standard_normal((N, 4))
    law = ConditionalMixture().learn(np.zeros((N, 1)), z)
    assert np.square(law.widths).mean() > 0.05  # a kernel that is added alone would make them 3 % larger
    rng = np.random.default_rng(1)
    draws = law.prepare(np.zeros((1, 1)))(np.zeros(20_000, int), rng.random(20_000), rng.standard_normal((20_000, 4)))
    np.testing.assert_allclose(draws.std(axis=0), z.std(axis=0), rtol=0.02)
