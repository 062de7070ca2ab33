"""u = m(a) + t(a) S r: the parts, what is kept, and what comes out for laws that are known."""

import time

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pdno
from pdno import PDNO, Diffusion, Pairs, Schedule, Training, UserError
from pdno.diffusion.base import LowModes, White
from pdno.diffusion.reverse import ancestral, denoising_error, variance
from pdno.mean import Kernel, Linear, LowFidelity, Network
from pdno.model import law as decomposition
from pdno.model.law import looks_gaussian
from pdno.model.surrogate import Terms
from pdno.nn import Zero

STILL = Training(updates=1, rate=1e-30, ema=0.0)
POINTS = 16


def pairs(count: int = 400, sigma: float = 0.2, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, outputs that are linear in them with white noise, and clean outputs."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((count, 1, POINTS))
    clean = np.cumsum(a, axis=2) / 4 + 1
    return a, clean + sigma * rng.standard_normal(clean.shape), clean


BLUR = 0.3


class Coin(nn.Module):
    """The exact answer, with the target "v", for residuals ±√(1 − BLUR²) + N(0, BLUR²) at each point."""

    def __init__(self, diffusion: Diffusion) -> None:
        super().__init__()
        self.gamma = diffusion.schedule.gamma
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
        gamma = torch.as_tensor(self.gamma, dtype=v.dtype)[n].reshape(-1, *(1,) * (v.ndim - 1))
        c, var = (1 - BLUR**2) ** 0.5, gamma * BLUR**2 + 1 - gamma
        sign = torch.tanh(gamma.sqrt() * c * v / var)
        u0 = c * sign + gamma.sqrt() * BLUR**2 / var * (v - gamma.sqrt() * c * sign)
        return (gamma.sqrt() * v - u0) / (1 - gamma).sqrt() + 0 * self.weight


def test_no_network_is_exact_for_unit_gaussians_through_the_whole_chain() -> None:
    """e_n = γ_n, and every sub-chain ends in N(0, 1)."""
    diffusion = Diffusion(Schedule.cosine(50), target="v")
    denoise = diffusion.denoiser(Zero(dim=1))
    rng = torch.Generator().manual_seed(0)
    u0 = torch.randn(4000, 1, 16, generator=rng)
    error = denoising_error(denoise, diffusion, u0, u0, lambda n: torch.randn(u0.shape, generator=rng))
    np.testing.assert_allclose(error[1:], diffusion.schedule.gamma[1:], rtol=0.02)
    for steps in (1, 3, 50):
        chain = diffusion.schedule.subchain(steps)
        var = variance("analytic", chain, diffusion.schedule.gamma)
        noise = [torch.randn(u0.shape, generator=rng) for _ in range(steps + 1)]
        end = ancestral(denoise, noise[0], u0, chain, var, lambda n, noise=noise: torch.randn(u0.shape, generator=rng))
        assert float(end.var()) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("sigma", [0.01, 0.2, 5.0])
def test_white_noise_is_recovered_and_covered(sigma) -> None:
    a, u, _ = pairs(3000, sigma)
    model = PDNO("zero", mean=Linear(degree=1, sparse=False)).fit(a, u)
    fresh, noisy, clean = pairs(1000, sigma, seed=1)
    p = model.predict(fresh, members=200, quantiles=(0.25, 0.75, 0.05, 0.95, 0.025, 0.975), progress=False)
    assert np.sqrt(np.mean(p.std**2)) == pytest.approx(sigma, rel=0.02)
    for low, high, level in ((0.25, 0.75, 0.5), (0.05, 0.95, 0.9), (0.025, 0.975, 0.95)):
        inside = (noisy > p.quantile(low)) & (noisy < p.quantile(high))
        assert inside.mean() == pytest.approx(level, abs=0.015)
    assert model.evaluations() == 0
    np.testing.assert_array_equal(p.mean, model.mean(fresh))  # and not that of 200 members
    assert np.abs(model.mean(fresh) - clean).mean() < 0.2 * sigma


def test_exact_answers_have_no_spread() -> None:
    a, _, clean = pairs(200)
    model = PDNO(training=STILL).fit(a, clean)
    fresh, _, truth = pairs(20, seed=1)
    draws = model.sample(fresh, members=3)
    np.testing.assert_allclose(draws, np.broadcast_to(truth, draws.shape), atol=1e-9)
    assert "exact" in model.said[0]


def test_a_network_is_kept_where_it_knows_more_than_a_gaussian() -> None:
    """Coins at every point: the exact network is kept, and members are coins again, of which there are two values."""
    diffusion = Diffusion(Schedule.cosine(60), target="v")
    a, _, clean = pairs(600)
    coin, blur = np.random.default_rng(1).standard_normal((2, *clean.shape))
    u = clean + (1 - BLUR**2) ** 0.5 * np.sign(coin) + BLUR * blur
    model = PDNO(Coin(diffusion), diffusion, mean=Linear(degree=1, sparse=False), residual_scale="scalar", training=STILL)
    model.fit(a, u)
    assert any("The diffusion was kept" in line for line in model.said)
    draws = model.sample(a[:20], members=20) - model.parts.mean(a[:20])
    near = np.abs(np.abs(draws) - (1 - BLUR**2) ** 0.5) < 2 * BLUR
    assert np.mean(near) > 0.88  # of a Gaussian, .60
    assert np.mean(draws > 0) == pytest.approx(0.5, abs=0.05)
    late = Terms(progress=False, deadline=time.monotonic() - 1)
    assert model._fewest(Pairs.of(a[:9], draws[0, :9]), late) == 20
    assert "no time to try others" in model.said[-1]


def test_the_same_network_is_dropped_where_residuals_are_gaussian(monkeypatch) -> None:
    diffusion = Diffusion(Schedule.cosine(60), target="v")
    a, u, _ = pairs(600)
    monkeypatch.setattr(decomposition, "looks_gaussian", lambda r, mask: False)
    model = PDNO(Coin(diffusion), diffusion, mean=Linear(degree=1, sparse=False), training=STILL).fit(a, u)
    assert any("dropped" in line for line in model.said)
    assert isinstance(model.network, Zero)
    assert model.error is None


@pytest.mark.parametrize("seed", range(5))
def test_white_gaussian_noise_looks_like_it(seed) -> None:
    assert looks_gaussian(np.random.default_rng(seed).standard_normal((500, 1, 32)))


@pytest.mark.parametrize(
    "law",
    [
        lambda rng, shape: np.sign(rng.standard_normal(shape)),
        lambda rng, shape: rng.laplace(size=shape) / np.sqrt(2),
        lambda rng, shape: rng.exponential(size=shape) - 1,
        lambda rng, shape: rng.standard_normal(shape) * np.exp(0.5 * rng.standard_normal((shape[0], 1, 1)) - 0.5),
        lambda rng, shape: np.cumsum(rng.standard_normal(shape), axis=2) / 4,
        lambda rng, shape: 0.7 * rng.standard_normal(shape) + 0.7 * np.sign(rng.standard_normal((shape[0], 1, 1))),
    ],
    ids=["coins", "Laplace", "skew", "sizes that differ", "a walk", "shared shifts"],
)
def test_other_laws_do_not(law) -> None:
    assert not looks_gaussian(law(np.random.default_rng(0), (500, 1, 32)))


def test_noise_that_looks_gaussian_is_not_learned() -> None:
    a, u, _ = pairs(600)
    model = PDNO({"kind": "unet", "base": 8}, mean=Linear(degree=1, sparse=False), training=Training(updates=2)).fit(a, u)
    assert "Gaussian in every test" in model.said[-1]
    assert model.provenance["updates"] == 0


def test_residuals_of_a_network_that_overfits_are_no_guide() -> None:
    """A mean that answers pairs it has seen exactly, and others badly: S is that of pairs held out."""

    class Memory(Network):
        def learn(self, pairs, validation, terms, below="") -> "Memory":
            self.known = {x.tobytes(): y for x, y in zip(pairs.a, pairs.u, strict=True)}
            return self

        def __call__(self, a, scalars=None) -> np.ndarray:
            return np.stack([self.known.get(x.tobytes(), np.zeros((1, POINTS))) for x in a])

        def describe(self) -> str:
            return "A memory."

    a, _, clean = pairs(100)
    model = PDNO(mean=Memory(), residual_scale="scalar", training=STILL).fit(a, clean)
    assert any("no guide to others" in line for line in model.said)
    held = np.sqrt(np.mean(clean**2))
    assert float(model.parts.scale.std.mean()) == pytest.approx(held, rel=0.3)


def test_repeated_inputs_tell_noise_from_error() -> None:
    rng = np.random.default_rng(0)
    a = np.repeat(rng.standard_normal((60, 1, POINTS)), 5, axis=0)
    u = np.sin(3 * a) + 0.1 * rng.standard_normal(a.shape)
    model = PDNO("zero", mean=Linear(degree=1, sparse=False)).fit(a, u)
    p = model.predict(rng.standard_normal((4, 1, POINTS)), members=20)
    assert p.noise_std.mean() == pytest.approx(0.1, rel=0.1)
    assert p.model_std.shape == p.mean.shape
    total = np.sqrt(p.noise_std**2 + p.model_std**2)
    np.testing.assert_allclose(total, np.broadcast_to(model.parts.scale.std, total.shape), rtol=1e-9)


def test_a_kernel_tells_them_apart_by_its_posterior() -> None:
    a, u, _ = pairs(150, 0.2)
    model = PDNO("zero", mean=Kernel("gaussian")).fit(a, u)
    near = model.predict(a[:5], members=20)
    far = model.predict(5 * a[:5], members=20)
    assert near.noise_std.mean() == pytest.approx(0.2, rel=0.15)
    assert far.model_std.mean() > 1.5 * near.model_std.mean()
    assert PDNO("zero", mean="linear").fit(a, u).predict(a[:2], members=20).noise_std is None


@pytest.mark.parametrize("mean", ["linear", "kernel", "fno"])
def test_a_saved_model_answers_with_the_same_bits(mean, tmp_path) -> None:
    a, u, _ = pairs(60)
    model = PDNO({"kind": "unet", "base": 8}, mean=mean, training=Training(updates=2)).fit(a, u)
    model.save(tmp_path / "m.safetensors")
    again = pdno.load(tmp_path / "m.safetensors")
    p, q = (m.predict(a[:3], members=20) for m in (model, again))
    for name in ("mean", "std", "noise_std", "model_std"):
        np.testing.assert_array_equal(getattr(p, name), getattr(q, name))
    assert again.said == model.said
    assert again.parts.trials == model.parts.trials
    assert again.parameters == model.parameters
    again.save(tmp_path / "n.safetensors")
    assert (tmp_path / "m.safetensors").read_bytes() == (tmp_path / "n.safetensors").read_bytes()


def test_amplitudes_are_saved_too(tmp_path) -> None:
    a, _, clean = pairs(300)
    size = np.exp(np.random.default_rng(1).standard_normal((300, 1, 1)))
    u = clean + 0.1 * size * np.random.default_rng(2).standard_normal(clean.shape)
    model = PDNO("zero", mean="linear").fit(a, u)
    assert model.parts.amplitude is not None
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(pdno.load(tmp_path / "m.safetensors").sample(a[:4], 5), model.sample(a[:4], 5))
    np.testing.assert_array_equal(model.sample(a[:4], 5)[:2], model.sample(a[:4], 2))  # whatever the number of members


def test_symmetries_make_the_scale_symmetric() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((200, 1, POINTS))
    u = a + np.linspace(0.1, 1, POINTS) * rng.standard_normal(a.shape)  # noise that is not
    plain = PDNO("zero", mean="linear", residual_scale="point").fit(a, u).parts.scale.point
    model = PDNO("zero", mean="linear", residual_scale="point", symmetries="reflection").fit(a, u)
    np.testing.assert_allclose(model.parts.scale.point, model.parts.scale.point[:, ::-1])
    assert plain[0, -1] > 3 * plain[0, 0]


@pytest.mark.parametrize("kind", ["scalar", "point", "mode", "both"])
def test_the_kind_of_scale_is_the_users(kind) -> None:
    a, u, _ = pairs(60)
    assert PDNO("zero", mean="linear", residual_scale=kind).fit(a, u).parts.scale.kind == kind


def test_holes_that_are_the_same_for_all_samples_are_left_out() -> None:
    a, u, clean = pairs(300)
    mask = np.ones(u.shape, dtype=bool)
    mask[..., :4] = False
    model = PDNO("zero", mean="linear").fit(a, np.where(mask, u, np.nan), mask="nan")
    error = (model.mean(a) - clean)[mask]
    assert np.sqrt(np.mean(error**2)) < 0.1
    assert model.parts.scale.std.max() == pytest.approx(0.2, rel=0.1)


def test_a_base_law_that_is_not_white_does_not_change_gaussians() -> None:
    a, u, _ = pairs(300)
    base = White() + LowModes(1, 3.0)
    model = PDNO("zero", Diffusion(Schedule.cosine(20), base, "v"), mean=Linear(degree=1, sparse=False)).fit(a, u)
    assert model.sample(a[:50], 50).std(axis=0).mean() == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize("target", ["v", "u0", "eps"])
def test_no_target_beats_gaussians_by_being_compared_with_zero(target) -> None:
    """The answer that is exact for unit Gaussians has the least loss, in whatever it is expressed."""
    diffusion = Diffusion(Schedule.cosine(20), target=target)
    model = PDNO("zero", diffusion, mean="linear").fit(*pairs(40)[:2])
    assert model.parts.amplitude is None
    r, eps = torch.randn(2, 4000, 1, 8, generator=torch.Generator().manual_seed(0))
    for n in (2, 10, 19):
        v = diffusion.forward(n, r, eps)
        answer = model.parts.gaussian_answer(diffusion, torch.full((4000,), n), v)
        missed = diffusion.target_of(n, r, eps) - answer
        assert float((missed * v).mean()) == pytest.approx(0, abs=0.02 * float(missed.std()))  # nothing left to be told by v


def test_own_code_is_not_saved(tmp_path) -> None:
    a, u, _ = pairs(40)
    model = PDNO("zero", mean=LowFidelity(np.sin)).fit(a, u)
    with pytest.raises(UserError, match="code of your own"):
        model.save(tmp_path / "m.safetensors")


def test_the_likelihood_bound_of_a_gaussian_is_its_likelihood() -> None:
    a, u, _ = pairs(500)
    model = PDNO("zero", mean=Linear(degree=1, sparse=False), residual_scale="scalar").fit(a, u)
    fresh, noisy, _ = pairs(50, seed=1)
    s = float(model.parts.scale.std.mean())
    left = noisy - model.mean(fresh)
    exact = 0.5 * np.mean((left**2).sum(axis=(1, 2))) / s**2 + POINTS * np.log(s * np.sqrt(2 * np.pi))
    assert model.nvlb(fresh, noisy) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mean": "lineer"}, "mean 'lineer' is unknown; did you mean 'linear'"),
        ({"mean": 3}, "mean = 3: expected a name"),
        ({"residual_scale": "pixel", "mean": "linear"}, "residual_scale 'pixel' is unknown"),
        ({"symmetries": "square", "mean": "linear"}, "symmetries of the square need two axes"),
        ({"kind": ("cell", "cell"), "symmetries": "reflection", "mean": "linear"}, "got 2 kinds of axes"),
    ],
)
def test_mistakes_are_told(settings, words) -> None:
    a, u, _ = pairs(30)
    with pytest.raises(UserError, match=words):
        PDNO("zero", **settings).fit(a, u)


def test_held_out_pairs_that_are_harder_tell_the_scale() -> None:
    """Out of fold a linear map is exact where it learned from small inputs, and wrong for the large ones that were held out."""
    rng = np.random.default_rng(0)
    a, b = 0.01 * rng.standard_normal((200, 1, POINTS)), rng.standard_normal((60, 1, POINTS))
    model = PDNO("zero", mean=Linear(degree=1, sparse=False)).fit(a, np.sin(a), validation=Pairs.of(b, np.sin(b)))
    truth = np.sqrt(np.mean((np.sin(b) - model.mean(b)) ** 2))
    assert float(np.sqrt(np.mean(model.sample(b, 50).std(axis=0) ** 2))) == pytest.approx(truth, rel=0.4)
    assert any("harder" in line for line in model.said)


def test_pairs_of_ones_own_for_validation_tell_the_scale() -> None:
    a, u, _ = pairs(200, 0.1)
    b, v, _ = pairs(100, 0.4, seed=1)
    held = PDNO("zero", mean=Network("fno", training=STILL)).fit(a, u, validation=Pairs.of(b, v))
    assert float(held.parts.scale.std.mean()) > 0.4


# What a Gaussian is compared by


def test_a_channel_that_is_always_zero_is_nothing_to_learn() -> None:
    """Noise in one channel, nothing in the other: residuals are Gaussian, and no network is trained to draw zeros."""
    a, u, _ = pairs(600)
    both, dims = np.concatenate([u, np.zeros_like(u)], axis=1), "sample,channel,x"
    model = PDNO(mean=Linear(degree=1, sparse=False), training=STILL).fit(a, both, dims=dims)
    assert isinstance(model.network, Zero)
    assert "Gaussian in every test" in model.said[-1]
    np.testing.assert_array_equal(np.ptp(model.sample(a[:3], 5)[:, :, 1]), 0)


@pytest.mark.parametrize("kind", ["point", "both"])
def test_what_the_scale_cannot_see_is_filled_with_noise(kind) -> None:
    """S takes the filling to 0, r is white, and nothing changes where S sees everything."""
    rng = np.random.default_rng(0)
    left = np.cumsum(rng.standard_normal((4000, 1, 12)), axis=2)
    left[..., [0, 5]] = 0
    scale = pdno.residual.scale.Scale.of(left, kind)
    r = scale.filled(scale.normalise(left), seed=1)
    np.testing.assert_allclose(scale.restore(r), left, atol=1e-9)
    np.testing.assert_allclose(np.var(r, axis=0)[0, [0, 5]], 1, atol=0.15)
    whole = pdno.residual.scale.Scale.of(left[..., 6:], kind)
    np.testing.assert_array_equal(whole.filled(left[..., 6:]), left[..., 6:])


def of_many_sizes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """White noise whose size differs from pair to pair, and nothing tells it."""
    rng = np.random.default_rng(seed)
    a, noise = rng.standard_normal((2, count, 1, POINTS))
    return a, a + np.exp(0.7 * rng.standard_normal((count, 1, 1))) * noise


def test_a_gaussian_of_many_sizes_answers_as_its_members_are_drawn() -> None:
    """U_0 given v, against the average over many draws of s and ξ with the weight of v."""
    model = PDNO("zero", mean=Linear(degree=1, sparse=False), residual_scale="scalar").fit(*of_many_sizes(800, 0))
    s, diffusion = model.parts.sizes, model.diffusion
    assert s.std() > 0.3
    n, v = torch.tensor([20, 60]), torch.randn(2, 1, POINTS, generator=torch.Generator().manual_seed(0)).double()
    answer = model.parts.gaussian_answer(diffusion, n, v)
    for row in range(2):
        gamma = diffusion.schedule.gamma[int(n[row])]
        w = gamma * s**2 + 1 - gamma
        square = float(v[row].square().sum())
        chance = np.exp(-0.5 * (POINTS * np.log(w) + square / w))
        u0 = np.sqrt(gamma) * (chance * s**2 / w).sum() / chance.sum() * v[row].numpy()
        found = diffusion.u0_of(n[row : row + 1], v[row : row + 1], answer[row : row + 1])
        np.testing.assert_allclose(found.numpy()[0], u0, rtol=1e-6)


def test_the_likelihood_of_many_sizes_is_that_of_the_mixture() -> None:
    model = PDNO("zero", mean=Linear(degree=1, sparse=False), residual_scale="scalar").fit(*of_many_sizes(800, 0))
    a, u = of_many_sizes(50, 1)
    t, unit, s = model.parts.amplitude(a, model.mean(a)), float(model.parts.scale.std.mean()), model.parts.sizes
    square = ((u - model.mean(a)) ** 2).sum(axis=(1, 2))
    std = unit * t[:, None] * s
    density = np.mean(np.exp(-0.5 * square[:, None] / std**2) / (std * np.sqrt(2 * np.pi)) ** POINTS, axis=1)
    assert model.nvlb(a, u) == pytest.approx(-np.log(density).mean(), rel=1e-9)


def test_own_symmetries_do_not_stand_in_the_way_of_a_diffusion() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 1, POINTS))
    model = PDNO({"kind": "slim", "widths": [8]}, mean="kernel", symmetries=[(np.negative, np.negative)], training=STILL)
    for _ in range(2):  # and again
        model.fit(a, np.sinh(a) + 0.1 * rng.standard_exponential(a.shape), progress=False)
    assert model.parts.mean.name == "kernel"
