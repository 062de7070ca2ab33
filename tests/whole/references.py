"""Small fits with fixed seeds, recorded before the models were rebuilt from parts: predictions, draws and scores.

`python -m tests.whole.references` records them again, after a deliberate change of numbers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pdno
from pdno import Training

FILE = Path(__file__).with_name("references.npz")
Arrays = dict[str, Any]


def predicted(model, a, *, scalars=None, members: int = 8, **sampling: Any) -> Arrays:
    """Statistics and draws of a model for some inputs."""
    options = {"scalars": scalars, "progress": False, **sampling}
    pred = model.predict(a, members=members, seed=3, quantiles=(0.1, 0.9), **options)
    out = {"mean": pred.mean, "std": pred.std, "low": pred.quantile(0.1), "high": pred.quantile(0.9), "novelty": pred.novelty}
    if pred.aleatoric_std is not None:
        out |= {"noise_std": pred.aleatoric_std, "model_std": pred.epistemic_std}
    out["draws"] = model.sample(a, members=3, seed=5, scalars=scalars, **sampling)
    out["evaluations"] = np.array([model.evaluations(**sampling)])
    return out


def elliptic(n: int = 120, points: int = 32, std: float = 0.05, seed: int = 0) -> pdno.Dataset:
    return pdno.generate(
        pdno.equation.Elliptic1D(points=points), train=n, test=4, noise=pdno.noise.Gaussian(std) if std else "none", seed=seed
    )


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def smooth(n: int, points: int, seed: int = 0, channels: int = 1) -> np.ndarray:
    g = rng(seed)
    x = (np.arange(points) + 0.5) / points
    waves = np.stack([np.cos(np.pi * k * x) for k in range(5)])
    return np.einsum("nck,kx->ncx", g.normal(size=(n, channels, 5)) / (1 + np.arange(5)), waves)


def default_1d() -> Arrays:
    data = elliptic()
    model = pdno.PDNO(training=Training(updates=20)).fit(data.train.a, data.train.u, seed=0, progress=False)
    out = predicted(model, data.test.a[:2])
    found = pdno.evaluate(model, data.test, members=20, progress=False)
    for name in ("mrle", "crps", "energy_score", "coverage_90", "spread_skill", "width_90"):
        out[f"score.{name}"] = np.array([found.scores[name].value, found.scores[name].error])
    out["nvlb"] = np.array([model.nvlb(data.test.a, data.test.u_eta)])
    out["s_theta"] = model.mean(data.test.a[:2])
    return out


def default_2d() -> Arrays:
    data = pdno.generate(pdno.equation.Darcy(points=16), train=60, test=2, noise="none", seed=1)
    model = pdno.PDNO(training=Training(updates=12)).fit(data.train.a, data.train.u, seed=1, progress=False)
    return predicted(model, data.test.a)


def default_scalars() -> Arrays:
    s = rng(1).uniform(size=(80, 2))
    x = np.linspace(0, 1, 24)
    u = np.sin(3 * s[:, :1] * x + s[:, 1:]) + 0.01 * rng(2).normal(size=(80, 24))
    model = pdno.PDNO(training=Training(updates=12)).fit(None, u, scalars=s, seed=0, progress=False)
    return predicted(model, None, scalars=s[:3] * 0.9)


def no_mean() -> Arrays:
    data = elliptic(seed=2)
    model = pdno.PDNO({"kind": "unet", "base": 8}, mean=None, training=Training(updates=25)).fit(
        data.train.a, data.train.u, seed=0, progress=False
    )
    out = predicted(model, data.test.a[:2], steps=6)
    out |= {
        f"ddim.{k}": v for k, v in predicted(model, data.test.a[:2], steps=5, sampler="ddim").items() if k in ("mean", "draws")
    }
    out |= {
        f"heun.{k}": v
        for k, v in predicted(model, data.test.a[:2], steps=4, sampler="heun").items()
        if k in ("mean", "draws", "evaluations")
    }
    out["nvlb"] = np.array([model.nvlb(data.test.a, data.test.u_eta)])
    out["s_theta"] = model.mean(data.test.a[:2])
    return out


def paper_like() -> Arrays:
    data = elliptic(n=60, seed=3)
    d = pdno.Diffusion(pdno.Schedule.linear(20), pdno.base.White(), "eps", "ddsm")
    t = Training(epochs=4, batch=20, optimizer="adam", rate=1e-3, rate_schedule="step", ema=0.0, clip=0.0)
    model = pdno.PDNO({"kind": "unet", "base": 8}, d, mean=None, variance="gaussian", steps=20, normalise="none", training=t)
    model.fit(data.train.a, data.train.u, seed=0, validation=0.0, progress=False)
    return predicted(model, data.test.a[:2])


def functional() -> Arrays:
    data = elliptic(n=60, seed=3)
    d = pdno.Diffusion(pdno.Schedule.cosine(20), pdno.Field(tau=3.0, r=2.0), "u0")
    model = pdno.PDNO({"kind": "fno", "modes": 6, "width": 8}, d, mean=None, t_start=2, training=Training(updates=15))
    model.fit(data.train.a, data.train.u, seed=0, progress=False)
    return predicted(model, data.test.a[:2], steps=6)


def kernel_symmetries() -> Arrays:
    data = pdno.generate(pdno.equation.Darcy(points=8), train=50, test=2, noise="none", seed=2)
    model = pdno.PDNO({"kind": "unet", "base": 8}, mean="kernel", symmetries="square", training=Training(updates=10))
    model.fit(data.train.a, data.train.u, seed=0, progress=False)
    return predicted(model, data.test.a)


def network_mean_kept() -> Arrays:
    a = smooth(300, 16, 4)
    sign = np.where(rng(5).random(300) < 0.5, -1.0, 1.0)[:, None, None]
    u = np.tanh(np.cumsum(a, -1) / 6) + 0.6 * sign + 0.02 * rng(6).normal(size=a.shape)
    network, loop = {"kind": "unet", "base": 8}, Training(updates=120, batch=32, rate=2e-3)
    model = pdno.PDNO(network, mean="fno", law="diffusion", residual_scale="scalar", training=loop)
    model.fit(a, u, seed=0, validation=0.3, progress=False)
    out = predicted(model, smooth(2, 16, 9))
    assert model.evaluations() > 0, model.fit_summary
    out["nvlb"] = np.array([model.nvlb(a[:20], u[:20])])
    return out


def linear_kept_sizes() -> Arrays:
    a = smooth(400, 16, 14)
    size = np.exp(a.mean(axis=2, keepdims=True))
    sign = np.where(rng(15).random(400) < 0.5, -1.0, 1.0)[:, None, None]
    u = np.cumsum(a, -1) / 6 + size * (0.6 * sign + 0.05 * rng(16).normal(size=a.shape))
    loop = Training(updates=150, batch=32, rate=2e-3)
    model = pdno.PDNO({"kind": "unet", "base": 8}, mean="linear", law="diffusion", training=loop)
    model.fit(a, u, seed=0, progress=False)
    out = predicted(model, smooth(2, 16, 9), steps=8)
    out["nvlb"] = np.array([model.nvlb(a[:20], u[:20])])
    return out


def amplitude_gaussian() -> Arrays:
    a = smooth(200, 16, 24)
    size = np.exp(1.5 * a.mean(axis=2, keepdims=True))
    u = np.cumsum(a, -1) / 6 + 0.2 * size * rng(26).normal(size=a.shape)
    model = pdno.PDNO("zero", mean="linear").fit(a, u, seed=0, progress=False)
    out = predicted(model, smooth(2, 16, 9))
    out["nvlb"] = np.array([model.nvlb(a[:20], u[:20])])
    return out


def fno() -> Arrays:
    data = elliptic(seed=5, std=0)
    model = pdno.baseline.FNO(training=Training(updates=15)).fit(data.train.a, data.train.u, seed=0, progress=False)
    return predicted(model, data.test.a[:2])


def unet_symmetric() -> Arrays:
    data = pdno.generate(pdno.equation.Darcy(points=16), train=30, test=2, noise="none", seed=7)
    model = pdno.baseline.UNet(training=Training(updates=6), symmetries="square").fit(
        data.train.a, data.train.u, seed=0, progress=False
    )
    return predicted(model, data.test.a)


def plain() -> Arrays:
    data = elliptic(seed=6)
    cls = pdno.baseline.Deterministic
    out = predicted(cls("linear").fit(data.train.a, data.train.u, seed=0, progress=False), data.test.a[:2])
    k = predicted(cls("kernel").fit(data.train.a, data.train.u, seed=0, progress=False), data.test.a[:2])
    return out | {f"kernel.{n}": v for n, v in k.items()}


def mask_varying() -> Arrays:
    a = smooth(100, 16, 34)
    u = np.cumsum(a, -1) / 6 + 0.05 * rng(36).normal(size=a.shape)
    mask = rng(37).random(a.shape) < 0.7
    model = pdno.PDNO(training=Training(updates=15)).fit(a, u, mask=mask, seed=0, progress=False)
    return predicted(model, smooth(2, 16, 9))


def mask_fixed() -> Arrays:
    a = smooth(100, 16, 44)
    u = np.cumsum(a, -1) / 6 + 0.05 * rng(46).normal(size=a.shape)
    mask = np.broadcast_to(np.arange(16) > 4, a.shape)
    model = pdno.PDNO(training=Training(updates=15)).fit(a, u, mask=mask, seed=0, progress=False)
    return predicted(model, smooth(2, 16, 9))


def two_channels() -> Arrays:
    a = smooth(120, 16, 54, channels=2)
    u = np.stack([np.cumsum(a[:, 0], -1) / 6, 1e-3 * a[:, 1] ** 2], axis=1) + np.array([0.05, 1e-4])[:, None] * rng(56).normal(
        size=a.shape
    )
    model = pdno.PDNO(training=Training(updates=15)).fit(a, u, dims="sample,channel,x", seed=0, progress=False)
    return predicted(model, smooth(2, 16, 9, channels=2))


def repeats() -> Arrays:
    a = np.repeat(smooth(40, 16, 64), 4, axis=0)
    u = np.cumsum(a, -1) / 6 + 0.1 * rng(66).normal(size=a.shape)
    model = pdno.PDNO("zero", mean="linear").fit(a, u, seed=0, progress=False)
    return predicted(model, smooth(2, 16, 9))


def groups() -> Arrays:
    a = smooth(90, 16, 74)
    u = np.cumsum(a, -1) / 6 + 0.1 * rng(76).normal(size=a.shape)
    model = pdno.PDNO(mean="kernel", training=Training(updates=8)).fit(
        a, u, group=np.repeat(np.arange(30), 3), seed=0, progress=False
    )
    return predicted(model, smooth(2, 16, 9))


def two_grids() -> Arrays:
    a = smooth(80, 24, 84)
    u = np.cumsum(a, -1)[..., ::2] / 6 + 0.02 * rng(86).normal(size=(80, 1, 12))
    model = pdno.PDNO({"kind": "unet", "base": 8}, training=Training(updates=8)).fit(a, u, seed=0, progress=False)
    return predicted(model, smooth(2, 24, 9))


def sum_of_means() -> Arrays:
    a = smooth(80, 16, 94)
    u = np.tanh(np.cumsum(a, -1) / 6) + 0.02 * rng(96).normal(size=a.shape)
    mean = pdno.mean.Sum(pdno.mean.Linear(), pdno.mean.Kernel())
    return predicted(pdno.PDNO("zero", mean=mean).fit(a, u, seed=0, progress=False), smooth(2, 16, 9))


def low_fidelity() -> Arrays:
    a = smooth(80, 16, 95)
    u = np.tanh(np.cumsum(a, -1) / 6) + 0.02 * rng(97).normal(size=a.shape)
    mean = pdno.mean.LowFidelity(lambda a: np.tanh(np.cumsum(a[..., ::2], -1) / 3))
    return predicted(pdno.PDNO("zero", mean=mean).fit(a, u, seed=0, progress=False), smooth(2, 16, 9))


def coarse_network() -> Arrays:
    a = smooth(80, 32, 98)
    u = np.cumsum(a, -1) / 6
    mean = pdno.mean.Network({"kind": "fno", "modes": 6, "width": 8}, points=16, training=Training(updates=12), kind="cell")
    return predicted(pdno.PDNO("zero", mean=mean).fit(a, u, seed=0, progress=False), smooth(2, 32, 9))


CLOSED_FORM = [amplitude_gaussian, plain, repeats, sum_of_means, low_fidelity]
NETWORKS = [
    default_1d,
    default_scalars,
    fno,
    groups,
    coarse_network,
]
SLOW = [
    default_2d,
    functional,
    kernel_symmetries,
    linear_kept_sizes,
    mask_fixed,
    mask_varying,
    network_mean_kept,
    no_mean,
    paper_like,
    two_channels,
    unet_symmetric,
    two_grids,
]


def record(cases: list[Callable[[], Arrays]]) -> None:
    """Write the file."""
    arrays = {f"{case.__name__}/{name}": np.asarray(v) for case in cases for name, v in case().items() if v is not None}
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    record([*CLOSED_FORM, *NETWORKS, *SLOW])
