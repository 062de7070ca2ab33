"""Inputs, a map and regressions that several tests of kernel means share."""

from copy import copy

import numpy as np

from pdno.mean.kernel.kernel import Kernel

POINTS = 8


def inputs(samples: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(samples, *(shape or (1, POINTS))))


def operator(a) -> np.ndarray:
    """A smooth nonlinear map, all of whose output modes depend on a."""
    return 2 + np.tanh(a) + 0.3 * np.roll(a, 1, axis=-1) ** 2


def fitted(samples: int = 40, noise: float = 0.0, **settings: object) -> tuple[Kernel, np.ndarray, np.ndarray]:
    a = inputs(samples)
    u = operator(a) + noise * inputs(samples, seed=1)
    return Kernel(**{"kernel": "matern52", **settings}).fit(a, u), a, u


def textbook(kernel: Kernel, a, u, new, nugget: float) -> tuple[np.ndarray, np.ndarray]:
    """Kriging with an unknown constant as one linear system: its mean, (sample, …), and the variance factor, (sample,)."""
    trained, phi = (kernel._features(x, np.zeros((len(x), 0))) for x in (a, new))
    h, n = kernel.hyper, len(a)
    system = np.block([[h.gram(trained, trained) + nugget * np.eye(n), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    right = np.concatenate([h.gram(trained, phi), np.ones((1, len(new)))])
    weights = np.linalg.solve(system, right)
    own = np.array([h.gram(x[None], x[None])[0, 0] for x in phi])
    return np.tensordot(weights[:n].T, u, axes=1), own - (weights * right).sum(axis=0)


def refit(kernel: Kernel, a, u, rows, scalars=None) -> Kernel:
    """Regression on some rows with the same hyper-parameters."""
    new, s = copy(kernel), np.zeros((len(a), 0)) if scalars is None else scalars
    new._solve(a[rows], u[rows], s[rows], np.arange(len(rows)))
    return new
