r"""The distribution of a few numbers given an input: a linear trend, and a Gaussian mixture, conditional or not.

    z = B φ + z′,        p(z′ | φ) = Σ_j w_j(φ) N(z′; μ_j(φ), L_j(φ) L_j(φ)ᵀ),        φ = features of the input,

with w, μ and the triangular L from a small network that minimises −log p on training pairs. B is a ridge regression of those
numbers that it predicts better than their mean on held-out pairs, and 0 for others. Without φ, z′ is drawn from its
training values with a small kernel (a kernel density estimate). It has a width for each number, because modes of one may be
narrow while others vary continuously, and is narrower where values are dense (Abramson's square-root law) if this is more
likely. Widths have the largest likelihood on held-out pairs, whose modes may be wider because the error of a mean is larger
there. Values and widths are shrunk so that draws have the variance of the values, which a kernel would increase (Silverman
1986, section 6.4.1). The conditional distribution is used where it has a higher likelihood on held-out pairs, by more than one
standard error.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy.stats import multivariate_normal
from torch import Tensor, nn

from .._typing import Array
from ..draw import generator
from ..evaluation.dependence import stderr_of_mean
from ..work.state import State

__all__ = ["ConditionalMixture"]

COMPONENTS = 12  # J
HIDDEN = 64  # units of the two hidden layers
BATCH = 256  # pairs per update
RATE = 3e-3  # largest learning rate
UPDATES = 3000  # at most
DECAY = 1e-3  # weight decay
CHECK_EVERY = 100  # updates between two evaluations on held-out pairs; the best weights are kept
SMALLEST = 3e-3  # standard deviation of a component, in units of that of z
FEWEST = 200  # training pairs for a conditional mixture
FEWEST_HELD_OUT = 20  # held-out pairs to select it by
RIDGE = 0.01  # penalty of the trend, relative to the variance of a feature
SIGNIFICANT = 2.0  # standard errors by which a trend must be better than none
FEWEST_SECONDS = 0.05  # of training, below which the distribution does not depend on the input
KERNEL_PAIRS = 2000  # training values from which the kernel density is evaluated
BANDWIDTH_PAIRS = 1200  # training values from which the widths of the kernel are selected
FEWEST_WIDTH_PAIRS = 50  # held-out values to select the widths by
WIDTHS = np.geomspace(0.004, 0.8, 14)  # that are compared
ROUNDS = 2  # of the selection of all widths
MOST_LOCAL = math.log(4)  # log factor by which a width may differ where values are dense or rare
TINY = 1e-300


@dataclass(frozen=True)
class _Rows:
    """Features and standardised z of some pairs."""

    x: Tensor
    z: Tensor


class ConditionalMixture:
    """A distribution of z given features of the input.

    Args:
        updates: of the network, at most.

    `describe` says which one was selected.
    """

    def __init__(self, updates: int = UPDATES) -> None:
        self.updates = updates
        self.trend = np.zeros((0, 0))  # Bᵀ, (feature, K)
        self.centre = self.spread = np.zeros(0)
        self.values = np.zeros((0, 0))  # standardised training values, for the kernel density, shrunk
        self.widths = np.zeros((0, 0))  # of the kernel at each training value, in units of the standard deviations of z
        self.network: nn.Sequential | None = None

    def learn(
        self, x: Array, z: Array, held_out: tuple[Array, Array] | None = None, seed: int = 0, seconds: float | None = None
    ) -> Self:
        """Estimate the distribution.

        Args:
            x: features, (sample, feature), standardised.
            z: (sample, K).
            held_out: x and z of held-out pairs; without them the distribution does not depend on x.
            seed: of initial weights and batches.
            seconds: that training may take.
        """
        self.trend = _trend(x, z, held_out)
        z = z - x @ self.trend
        held_out = None if held_out is None else (held_out[0], held_out[1] - held_out[0] @ self.trend)
        self.centre, spread = z.mean(axis=0), z.std(axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        values = (z - self.centre) / self.spread
        values = values[np.argsort(values[:, 0], kind="stable")]  # near values have near numbers
        new = None if held_out is None else (held_out[1] - self.centre) / self.spread
        self.values, self.widths = _shrunk(values, _bandwidths(values, new, seed))
        if held_out is None or len(z) < FEWEST or len(held_out[1]) < FEWEST_HELD_OUT:
            return self
        if seconds is not None and seconds < FEWEST_SECONDS:
            return self
        train, validation = self._rows(x, z), self._rows(*held_out)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            network = _network(x.shape[1], z.shape[1])
        likelihood = _fit(network, train, validation, seed, self.updates, seconds)
        gain = likelihood - _kernel_log_density(self.values, self.widths, validation.z.numpy().astype(np.float64))
        if gain.mean() > stderr_of_mean(gain, None):
            self.network = network
        return self

    def _rows(self, x: Array, z: Array) -> _Rows:
        return _Rows(*(torch.as_tensor(np.asarray(v, dtype=np.float32)) for v in (x, (z - self.centre) / self.spread)))

    @property
    def is_conditional(self) -> bool:
        """Whether the distribution depends on the input."""
        return self.network is not None

    def prepare(self, x: Array) -> "Callable[[Array, Array, Array], Array]":
        """Return the function (places, uniform, normal) ↦ z, (row, K).

        Args:
            x: features of some inputs, (sample, feature).

        Returns:
            A function of the rows of x, (row,), of uniform numbers, (row,), and of standard normal numbers, (row, K).
        """
        trend = x @ self.trend
        if self.network is None:

            def unconditional(places: Array, uniform: Array, normal: Array) -> Array:
                number = np.minimum((uniform * len(self.values)).astype(np.intp), len(self.values) - 1)
                return trend[places] + self._restored(self.values[number] + self.widths[number] * normal)

            return unconditional
        with torch.no_grad():
            parts = _parameters(self.network(torch.as_tensor(np.asarray(x, dtype=np.float32))), self.values.shape[1])
        weights, centres, factors = (part.double().numpy() for part in parts)
        edges = np.exp(weights).cumsum(axis=1)

        def conditional(places: Array, uniform: Array, normal: Array) -> Array:
            number = np.minimum((uniform[:, None] * edges[places, -1:] > edges[places]).sum(axis=1), COMPONENTS - 1)
            z = centres[places, number] + np.einsum("rij,rj->ri", factors[places, number], normal)
            return trend[places] + self._restored(z)

        return conditional

    def _restored(self, z: Array) -> Array:
        """Return standardised values in units of z, within the range of the training values and two widths of the kernel."""
        low, high = (self.values - 2 * self.widths).min(axis=0), (self.values + 2 * self.widths).max(axis=0)
        return np.asarray(self.centre + self.spread * np.clip(z, low, high))

    def over_gaussian(self, x: Array, z: Array, count: int) -> Array:
        """Return the log of the kernel density of the first numbers of z, less that of a Gaussian.

        Args:
            x: features of held-out pairs, (sample, feature).
            z: of these pairs, (sample, K).
            count: of these numbers that are compared.

        Returns:
            (sample,).
        """
        values, points = self.values[:, :count], ((z - x @ self.trend - self.centre) / self.spread)[:, :count]
        widths = self.widths[:, :count]
        covariance = np.cov(values.T) + np.diag(np.square(widths).mean(axis=0))
        gaussian = multivariate_normal(values.mean(axis=0), covariance, allow_singular=True)
        return np.asarray(_kernel_log_density(values, widths, points) - np.atleast_1d(gaussian.logpdf(points)))

    def describe(self) -> str:
        """Describe the distribution in a few words."""
        return f"a mixture of {COMPONENTS} Gaussians that depends on the input" if self.network else "a kernel density"

    def state(self) -> State:
        """Return values, kernel widths and weights, to be saved."""
        arrays = {"trend": self.trend, "centre": self.centre, "spread": self.spread}
        arrays |= {"values": self.values, "widths": self.widths}
        parts = {}
        if self.network is not None:
            parts["weights"] = State({}, {k: v.detach().cpu().numpy() for k, v in self.network.state_dict().items()})
        return State({}, arrays, parts)

    @classmethod
    def from_state(cls, state: State) -> "ConditionalMixture":
        """Restore what `state` returned."""
        new = cls()
        arrays = {name: np.asarray(value) for name, value in state.arrays.items()}
        new.trend, new.centre, new.spread = (arrays[k] for k in ("trend", "centre", "spread"))
        new.values, new.widths = arrays["values"], arrays["widths"]
        if "weights" in state.parts:
            weights = {k: torch.from_numpy(np.array(v)) for k, v in state.parts["weights"].arrays.items()}
            new.network = _network(weights["0.weight"].shape[1], new.values.shape[1])
            new.network.load_state_dict(weights)
        return new


def _trend(x: Array, z: Array, held_out: tuple[Array, Array] | None) -> Array:
    """Return Bᵀ, (feature, K): columns of numbers that a ridge regression does not predict better than their mean are 0."""
    none = np.zeros((x.shape[1], z.shape[1]))
    if held_out is None or len(z) < FEWEST or len(held_out[1]) < FEWEST_HELD_OUT:
        return none
    about, centre = z - z.mean(axis=0), x.mean(axis=0)
    trend = np.linalg.solve((x - centre).T @ (x - centre) + RIDGE * len(x) * np.eye(x.shape[1]), (x - centre).T @ about)
    new_x, new = held_out[0] - centre, held_out[1] - z.mean(axis=0)
    gains = np.square(new) - np.square(new - new_x @ trend)
    kept = [gain.mean() > SIGNIFICANT * stderr_of_mean(gain, None) for gain in gains.T]
    return np.where(kept, trend, none)


def _network(features: int, size: int) -> nn.Sequential:
    out = COMPONENTS * (1 + size + size * (size + 1) // 2)
    last = nn.Linear(HIDDEN, out)
    network = nn.Sequential(nn.Linear(features, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(), last)
    nn.init.zeros_(last.weight)
    with torch.no_grad():  # components start spread over the range of z
        last.bias[COMPONENTS : COMPONENTS * (1 + size)] = torch.randn(COMPONENTS * size)
        last.bias[COMPONENTS * (1 + size) :] = math.log(0.5)
    return network


def _parameters(out: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return log weights, centres and triangular factors: (row, J), (row, J, K), (row, J, K, K)."""
    sizes = [COMPONENTS, COMPONENTS * size, COMPONENTS * size * (size + 1) // 2]
    weights, centres, rest = torch.split(out, sizes, dim=1)
    rest = rest.reshape(len(out), COMPONENTS, -1)
    stds = SMALLEST + rest[..., :size].clamp(max=5.0).exp()
    factors = torch.diag_embed(stds)
    if size > 1:
        i, j = torch.tril_indices(size, size, -1)
        factors = factors.index_put(
            (torch.arange(len(out))[:, None, None], torch.arange(COMPONENTS)[:, None], i, j), rest[..., size:] - math.log(0.5)
        )
    return weights.log_softmax(1), centres.reshape(len(out), COMPONENTS, size), factors


def _log_density(out: Tensor, z: Tensor) -> Tensor:
    """Return log p of each row."""
    size = z.shape[1]
    weights, centres, factors = _parameters(out, size)
    white = torch.linalg.solve_triangular(factors, (z[:, None] - centres)[..., None], upper=False)[..., 0]
    volume = factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.logsumexp(weights - 0.5 * white.square().sum(-1) - volume, 1) - 0.5 * size * math.log(2 * math.pi)


def _fit(network: nn.Sequential, train: _Rows, held_out: _Rows, seed: int, updates: int, seconds: float | None) -> Array:
    """Minimise −log p; keep the weights of the largest held-out likelihood and return it for each held-out pair."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    best, kept, values = -math.inf, network.state_dict(), np.zeros(0)
    begin, rng = time.monotonic(), generator(seed, "mixture", 0)
    for step in range(updates):
        share = step / updates if seconds is None else max(step / updates, min(1.0, (time.monotonic() - begin) / seconds))
        for group in optimizer.param_groups:
            group["lr"] = 0.5 * RATE * (1 + math.cos(math.pi * share))
        rows = torch.as_tensor(rng.integers(len(train.z), size=BATCH))
        loss = -_log_density(network(train.x[rows]), train.z[rows]).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % CHECK_EVERY == 0 or step + 1 == updates or share >= 1:
            with torch.no_grad():
                now = _log_density(network(held_out.x), held_out.z).double().numpy()
            if now.mean() > best:
                best, values = float(now.mean()), now
                kept = {name: value.clone() for name, value in network.state_dict().items()}
        if share >= 1:
            break
    network.load_state_dict(kept)
    return values


def _bandwidths(z: Array, new: Array | None, seed: int) -> Array:
    """Return the kernel widths of largest likelihood, in units of the standard deviations of z.

    Args:
        z: training values, (sample, K).
        new: held-out values; if there are few of them, half of the training values take their place.
        seed: of the selection of some training values.

    Returns:
        The width at each training value, (sample, K).
    """
    if len(z) < 8:
        return np.full(z.shape, WIDTHS[-3])
    order = generator(seed, "mixture/bandwidth", 0).permutation(len(z))[:BANDWIDTH_PAIRS]
    known, points = order[: len(order) // 2], z[order[len(order) // 2 :]]
    if new is not None and len(new) >= FEWEST_WIDTH_PAIRS:
        known, points = order, new

    def likelihood(widths: Array) -> float:
        return float(_kernel_log_density(*_shrunk(z[known], widths[known]), points).mean())

    return max((_widths(local, likelihood) for local in (np.ones(z.shape), _local(z))), key=likelihood)


def _shrunk(z: Array, widths: Array) -> tuple[Array, Array]:
    """Return standardised values and widths of the kernel, divided by the standard deviation of z plus the kernel."""
    wider = np.sqrt(1 + np.square(widths).mean(axis=0))
    return z / wider, widths / wider


def _widths(local: Array, likelihood: Callable[[Array], float]) -> Array:
    """Return widths of largest likelihood, (sample, K): those of each number in turn, multiplied by `local`."""
    widths = np.full(local.shape[1], WIDTHS[-3])
    for k in [*range(len(widths))] * ROUNDS:
        tried = [np.where(np.arange(len(widths)) == k, width, widths) for width in WIDTHS]
        widths = max(tried, key=lambda each: likelihood(local * each))
    return np.asarray(local * widths)


def _local(z: Array) -> Array:
    """Return the root of the distance to near values of the same number, relative to its geometric mean: (sample, K)."""
    near, out = max(1, round(math.sqrt(len(z)))), np.ones(z.shape)
    for k, values in enumerate(z.T):
        order = np.argsort(values)
        rank = np.arange(len(z))
        low, high = np.maximum(rank - near, 0), np.minimum(rank + near, len(z) - 1)
        distance = (values[order[high]] - values[order[low]]) / np.maximum(high - low, 1)
        logs = np.log(np.maximum(distance, TINY))
        out[order, k] = np.exp(np.clip((logs - logs.mean()) / 2, -MOST_LOCAL, MOST_LOCAL))
    return out


def _kernel_log_density(z: Array, widths: Array, points: Array) -> Array:
    """Return the log of the kernel density estimate from values z, with a width each, at some points: (point,)."""
    every = max(1, len(z) // KERNEL_PAIRS)
    some, widths = z[::every], widths[::every]
    squares = np.square((points[:, None] - some[None]) / widths).sum(axis=2) + 2 * np.log(widths).sum(axis=1)
    lowest = squares.min(axis=1, keepdims=True)
    total = np.log(np.exp(-0.5 * (squares - lowest)).mean(axis=1)) - 0.5 * lowest[:, 0]
    return np.asarray(total - 0.5 * z.shape[1] * math.log(2 * math.pi))
