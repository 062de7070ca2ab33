"""The paper's model with exact networks for Gaussian distributions, and with networks that are trained for seconds."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from torch import Tensor, nn

import pdno
from pdno import PDNO, Diffusion, Schedule, Training, UserError
from pdno.mean import Kernel, Linear, Network, Sum
from tests.helpers import ExactDenoiser, exact, normal, small

# Exact networks


@pytest.mark.slow
def test_an_exact_network_gives_calibrated_members() -> None:
    slope, s, members = 2.0, 0.3, 200
    a = normal(3000, 16)
    model = exact(slope, s).fit(a, slope * a + s * normal(3000, 16, seed=1), validation=0.6)
    a = normal(50, 16, seed=2)
    pred = model.predict(a, members=members, steps=10, chunk=1000)
    values = members * a.size
    scores = (pred.mean - slope * a) / s
    assert abs(scores.mean()) < 4 / np.sqrt(values)
    assert abs(scores.std() * np.sqrt(members) - 1) < 0.1
    assert np.sqrt(np.mean(pred.std**2)) == pytest.approx(s, rel=0.02)
    covered = np.diff(stats.norm.cdf([(pred.quantile(q) - slope * a) / s for q in (0.05, 0.95)]), axis=0).mean()
    assert covered == pytest.approx(0.9 * (members - 1) / (members + 1), abs=0.01)  # as quantiles of so few members have it


@pytest.mark.parametrize("sampler", ["ancestral", "ddim", "dpm", "gaussian-exact", "heun"])
def test_every_sampler_recovers_a_deterministic_map(sampler) -> None:
    a = normal(20, 16)
    model = exact(variance="noise-free", sampler=sampler).fit(a, a)
    draws = model.sample(a[:3], members=2, steps=12)
    np.testing.assert_allclose(draws, np.broadcast_to(a[:3], draws.shape), atol=1e-4)
    by_name = exact(variance="noise-free").fit(a, a).sample(a[:3], members=2, steps=12, sampler=sampler)
    np.testing.assert_array_equal(by_name, draws)


@pytest.mark.parametrize("sampler", ["ancestral", "ddim", "dpm", "gaussian-exact", "heun"])
def test_the_callback_is_called_after_each_step(sampler, data, model) -> None:
    seen: list[int] = []

    def note(n: int, v: Tensor) -> None:
        assert v.shape == (2, 1, 16)
        seen.append(n)

    model.sample(data[0][:2], steps=5, sampler=sampler, chunk=2, callback=note)
    assert seen == [10, 8, 6, 4, 2, 0]


def test_a_chain_that_ends_early_keeps_the_spread_of_its_last_step() -> None:
    a = normal(20, 16)
    model = exact(variance="noise-free", t_start=30).fit(a, a)
    gamma, seen = Schedule.cosine(100).gamma[30], []
    draws = model.sample(a[:1], members=400, steps=5, chunk=400, callback=lambda n, v: seen.append(n))
    assert seen[-1] == 30
    misses = (draws - a[:1]) / np.sqrt((1 - gamma) / gamma)
    assert abs(misses.mean()) < 4 / np.sqrt(misses.size)
    assert misses.std() == pytest.approx(1, abs=4 / np.sqrt(2 * misses.size))


def test_a_network_of_the_user_is_passed_to_load(tmp_path, data) -> None:
    a, _ = data
    model = exact(slope=3.0, s=0.1).fit(a, 3 * a)
    model.save(tmp_path / "own.safetensors")
    with pytest.raises(UserError, match=r"a network of your own; pass it: pdno\.load"):
        pdno.load(tmp_path / "own.safetensors")
    with pytest.raises(UserError, match="do not fit this network"):
        pdno.load(tmp_path / "own.safetensors", network=nn.Linear(2, 2))
    again = pdno.load(tmp_path / "own.safetensors", network=ExactDenoiser(3.0, 0.1))
    np.testing.assert_array_equal(again.sample(a[:2], members=3), model.sample(a[:2], members=3))


# The mean


def test_the_mean_of_an_exact_network() -> None:
    a = normal(20, 16)
    model = exact(2.0, 0.3).fit(a, 2 * a)
    np.testing.assert_allclose(model.mean(a[:3]), 2 * a[:3], atol=1e-3)  # √γ_N of the noise remains
    named = model.mean(xr.DataArray(a[:3], dims=("sample", "x"), coords={"sample": list("abc")}))
    assert named.dims == ("sample", "x")
    assert list(named["sample"].values) == list("abc")


def test_the_mean_is_one_evaluation(data) -> None:
    model = small().fit(*data)
    np.testing.assert_array_equal(model.mean(data[0][:3]), model.sample(data[0][:3], steps=1, sampler="ddim")[0])


def test_a_chain_that_ends_early_has_no_mean_and_no_bound(data) -> None:
    model = small(t_start=2).fit(*data)
    for request in (lambda: model.mean(data[0]), lambda: model.nvlb(*data)):
        with pytest.raises(UserError, match="t_start = 2"):
            request()


# Trained networks, and the variational bound


@pytest.fixture(scope="module")
def noise() -> tuple[PDNO, np.ndarray]:
    """Return a model that was trained on outputs N(5, .3²), and its inputs."""
    a, u = normal(600, 16), 5 + 0.3 * normal(600, 16, seed=1)
    loop, diffusion = Training(updates=200, batch=32, rate=3e-3, ema=0.95), Diffusion(Schedule.cosine(20), target="v")
    return small(diffusion=diffusion, training=loop).fit(a, u, validation=0.4, progress=False), a


@pytest.mark.slow
def test_learned_noise_has_the_right_spread(noise) -> None:
    model, a = noise
    pred = model.predict(a[:6], members=60, chunk=120)
    assert np.sqrt(np.mean(pred.std**2)) == pytest.approx(0.3, rel=0.04)
    assert pred.mean.mean() == pytest.approx(5, abs=0.03)


@pytest.mark.slow
def test_the_bound_of_the_likelihood_falls_with_training(noise) -> None:
    model, a = noise
    u = 5 + 0.3 * normal(600, 16, seed=3)
    before = small(diffusion=model.diffusion).fit(a, u).nvlb(a[:100], u[:100])
    assert np.isfinite(before)
    after = model.nvlb(a[:400], u[:400])
    assert entropy(0.3) - 0.6 < after < entropy(0.3) + 2  # an upper bound of it, up to the sampling error of 400 fields
    assert after < before - 5


def entropy(s: float) -> float:
    """Return the entropy of N(m, s²) at 16 nodes, the smallest mean of −log of a density."""
    return 16 * 0.5 * np.log(2 * np.pi * np.e * s**2)


@pytest.mark.parametrize("s", [1.0, 0.3])
def test_the_bound_of_an_exact_network_is_the_entropy(s) -> None:
    a, u = normal(600, 16), normal(600, 16, seed=1)
    model = exact(2.0, s).fit(a, 2 * a + s * u, validation=0.5)
    assert model.nvlb(a, 2 * a + s * u) == pytest.approx(entropy(s), abs=4 * np.sqrt(16 / 2 / 600))


def test_the_bound_is_in_units_of_u(data) -> None:
    a, u = data
    one, ten = (small().fit(a, factor * u).nvlb(a, factor * u) for factor in (1, 10))
    assert ten - one == pytest.approx(16 * np.log(10), abs=1e-3)
    named = xr.DataArray(u.T, dims=("x", "sample"))
    assert small().fit(a, u).nvlb(a, named) == one


# Runs


MEANS = {
    "linear": lambda: Linear(degree=1),
    "sum": lambda: Sum(Linear(degree=1), Kernel("rq")),
    "network": lambda: Network({"kind": "fno", "modes": 3, "width": 4}, training=Training(updates=2, batch=4)),
    "mapping": lambda: {"name": "sum", "parts": [Linear(degree=1), {"name": "kernel", "kernel": "rq"}]},
}


@pytest.mark.parametrize("mean", MEANS)
def test_a_run_is_resumed_with_the_same_mean(mean, data, tmp_path, monkeypatch) -> None:
    """Even if it was requested as an object, which is another one in another process."""
    how = {"law": "gaussian", "training": None, "budget": None}
    first = small(mean=MEANS[mean](), **how).fit(*data, run=tmp_path, progress=False)

    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("a mean was selected again")

    other = small(mean=Linear(degree=2), **how)
    monkeypatch.setattr("pdno.model.search.choose_mean", never)
    again = small(mean=MEANS[mean](), **how).fit(*data, run=tmp_path, progress=False)
    np.testing.assert_array_equal(again.sample(data[0][:3], 2), first.sample(data[0][:3], 2))
    with pytest.raises(AssertionError, match="a mean was selected again"):
        other.fit(*data, run=tmp_path, progress=False)
