"""Problems and maps that several tests of linear means and of solvers share."""

import numpy as np

from pdno.mean.base import Mean, refitted
from pdno.mean.linear.linear import Linear
from pdno.work.state import State

PLAIN = {"log": False, "degree": 1, "smooth": False, "sparse": False}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def smooth(n: int, points: int, seed: int = 0) -> np.ndarray:
    """Random polynomials of degree 4: (n, 1, points)."""
    return (normal(n, 5, seed=seed) @ np.vander(np.linspace(-1, 1, points), 5).T)[:, None]


def error(mean: Linear, a: np.ndarray, u: np.ndarray, scalars: np.ndarray | None = None) -> float:
    return float(np.linalg.norm(mean(a, scalars) - u) / np.linalg.norm(u))


def scaled(a: np.ndarray) -> np.ndarray:
    """One channel of inputs, centred and divided by its total standard deviation."""
    x = a.reshape(len(a), -1)
    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0).sum())


def wavy(a) -> np.ndarray:
    """A nonlinear map, on the grid of a."""
    return np.sin(np.cumsum(a, axis=-1)) + 0.3 * a**2


class Nothing(Mean):
    """No correction."""

    name = "nothing"
    shape: tuple[int, ...]

    def learn(self, pairs, held_out, terms) -> "Nothing":
        self.target, self.scalars, self.shape = pairs.filled, pairs.scalars, pairs.u.shape[1:]
        return self

    def __call__(self, a, scalars=None) -> np.ndarray:
        return np.zeros((len(a), *self.shape))

    def residuals(self, a, u, scalars=None, group=None, count=5, seed=0) -> np.ndarray:
        return refitted(self, a, u, scalars, group, count, seed)

    def describe(self) -> str:
        return "Zero."

    def state(self) -> State:
        return State({"shape": list(self.shape)})

    @classmethod
    def from_state(cls, state) -> "Nothing":
        new = cls()
        new.shape = tuple(state.settings["shape"])
        return new
