r"""The denoising error e_n of a network, measured on held-out pairs: on average, by place, and by field.

    e_n = E‖𝒞^(−1/2)(ε − ε_θ)‖²/d,        e_n = s²/(s² + σ_n²) for the exact denoiser of N(m, s²𝒞), σ_n² = 1/γ_n − 1

so that σ_n² e_n/(1 − e_n) is the variance s_n² that is left to draw at step n. It need not be alike everywhere:

    by place    e_n(x), shrunk to e_n by what the scatter of few pairs explains; none if it explains everything
    by field    E[error of a field | its ε_θ] = e_n + b_n (z − z_n), z = 1 − ‖ε_θ‖²/d, with mean z_n over held-out pairs

For the exact denoiser of N(m, s²I), E z = s²/(s² + σ_n²): a field with a larger spread of its own has a larger z. The
regression coefficient b_n is 0 if all fields have the same s, because ε_θ and ε − ε_θ are then independent, and 1 if fields
have different s and many nodes. Values are limited to those of held-out fields.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._typing import Floats
from .base import White
from .chain import Denoiser, Diffusion

__all__ = ["DenoisingError", "OwnError", "denoising_error", "measure"]

SIGNIFICANT = 3.0  # standard errors by which b_n, and the weight of places, must exceed 0
LARGEST = 1 - 1e-6  # of e_n, which is 1 where nothing is left to draw but the data
FEWEST_FIELDS = 16  # held-out fields for errors by place and by field


@dataclass(frozen=True)
class OwnError:
    """The denoising error of a field, estimated from its own ε_θ.

    Args:
        slope: b_n, (N + 1,); 0 where fields are alike.
        centre: z_n.
        mean: e_n.
        low, high: smallest and largest value on held-out pairs.
    """

    slope: Floats
    centre: Floats
    mean: Floats
    low: Floats
    high: Floats

    def factor(self, n: int, eps: Tensor) -> Tensor | float:
        """Return s²/s_n² of each field, (batch, 1, …): the factor of the variance that is left to draw at step n.

        Args:
            n: step of the full chain.
            eps: ε_θ, (batch, channel, *grid).
        """
        if self.slope[n] == 0:
            return 1.0
        own = 1 - eps.square().flatten(1).double().mean(1)
        error = (self.mean[n] + self.slope[n] * (own - self.centre[n])).clamp(self.low[n], self.high[n])
        factor: Tensor = error / (1 - error) * (1 - self.mean[n]) / self.mean[n]
        return factor.reshape(-1, *(1,) * (eps.ndim - 1))

    @property
    def array(self) -> Floats:
        """All values, (5, N + 1), to be saved: `OwnError(*array)` restores it."""
        return np.stack([self.slope, self.centre, self.mean, self.low, self.high])


@dataclass(frozen=True)
class DenoisingError:
    """Measured denoising errors.

    Args:
        mean: e_n, (N + 1,); entry 0 is 0.
        place: e_n(x), (N + 1, channel, *grid); None if places are alike, or the base distribution is not white.
        own: by field; None if fields are alike, or the base distribution is not white.
    """

    mean: Floats
    place: Floats | None = None
    own: OwnError | None = None


def denoising_error(
    denoise: Denoiser,
    diffusion: Diffusion,
    u0: Tensor,
    a: Any,
    eps: Callable[[int], Tensor],
    mask: Tensor | None = None,
) -> Floats:
    """Return e_n = E‖𝒞^(−1/2)(ε − ε_θ)‖²/d for n = 1 … N, estimated on held-out pairs.

    Args:
        denoise: (n, v, a) ↦ E[U_0 | U_n = v].
        diffusion: forward chain.
        u0: held-out clean fields, (batch, channel, *grid).
        a: their condition, passed to `denoise`.
        eps: n ↦ a draw of ε in the shape of u0.
        mask: 1 at observed nodes, 0 at missing ones; broadcasts to u0. With a mask, e_n is the ratio of the energies of
            ε − ε_θ and of ε at the observed nodes, because a field with missing values cannot be whitened.

    Returns:
        (N + 1,); entry 0 is 0.
    """
    errors = [_mean(diffusion, noise, difference, mask) for noise, difference in _errors(denoise, diffusion, u0, a, eps)]
    return np.array([0.0, *errors])


def measure(
    denoise: Denoiser,
    diffusion: Diffusion,
    u0: Tensor,
    a: Any,
    eps: Callable[[int], Tensor],
    mask: Tensor | None = None,
) -> DenoisingError:
    """Measure e_n on average, by place and by field; arguments as in `denoising_error`."""
    means, places, fields, weights = [0.0], [np.zeros(tuple(u0.shape[1:]))], [np.zeros(5)], list[float]()
    unlike = isinstance(diffusion.law, White) and len(u0) >= FEWEST_FIELDS
    observed = None if mask is None else mask.expand_as(u0).double().cpu().numpy()
    for noise, difference in _errors(denoise, diffusion, u0, a, eps):
        means.append(_mean(diffusion, noise, difference, mask))
        if unlike:
            place, weight = _by_place(difference.double().cpu().numpy() ** 2, observed, means[-1])
            places.append(place)
            weights.append(weight)
            fields.append(_by_field(noise, difference, mask, means[-1]))
    if not unlike:
        return DenoisingError(np.array(means))
    own, chance = OwnError(*np.stack(fields, axis=1)), np.sqrt(2 / u0[0].numel())  # standard error of a weight
    alike = np.mean(weights) < SIGNIFICANT * chance
    return DenoisingError(np.array(means), None if alike else np.stack(places), own if own.slope.any() else None)


@torch.no_grad()
def _errors(
    denoise: Denoiser, diffusion: Diffusion, u0: Tensor, a: Any, eps: Callable[[int], Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ε and ε − ε_θ for n = 1 … N."""
    for n in range(1, diffusion.schedule.n_steps + 1):
        noise = eps(n)
        v = diffusion.forward(n, u0, noise)
        yield noise, noise - diffusion.eps_of(n, v, denoise(n, v, a))


def _mean(diffusion: Diffusion, noise: Tensor, difference: Tensor, mask: Tensor | None) -> float:
    if mask is None:
        white = diffusion.law.inverse_sqrt(difference.double().cpu().numpy(), noise.ndim - 2)
        return float(np.mean(white**2))
    energy = mask.expand_as(noise) if isinstance(diffusion.law, White) else mask * noise**2
    return float((mask * difference**2).sum() / energy.sum())


def _by_place(squares: Floats, observed: Floats | None, mean: float) -> tuple[Floats, float]:
    """Return the mean square at each place, shrunk to that of all places, (channel, *grid), and the weight of its own value.

    The weight is 1 − (variance of the mean over pairs)/(variance between places), both of logarithms: 0 or less but for chance
    if places are alike.
    """
    weights = np.ones_like(squares) if observed is None else observed
    count = weights.sum(axis=0)
    own = np.divide((weights * squares).sum(axis=0), count, out=np.full(count.shape, mean), where=count > 0)
    scatter = (weights * (squares - own) ** 2).sum(axis=0) / np.maximum(count * (count - 1), 1)
    if not own.min() > 0:
        return np.full(own.shape, mean), 0.0
    between = float(np.var(np.log(own)))
    weight = 1 - float((scatter / own**2).mean()) / between if between > 0 else 0.0
    shrunk = own ** max(0.0, weight)
    return np.asarray(mean * shrunk / shrunk.mean()), weight


def _by_field(noise: Tensor, difference: Tensor, mask: Tensor | None, mean: float) -> Floats:
    """Return b_n, z_n, e_n and the limits of the error of a field."""
    weights = torch.ones_like(noise) if mask is None else mask.expand_as(noise)
    total = weights.flatten(1).sum(1).double().clamp(min=1)
    error, energy = (
        ((weights * x.square()).flatten(1).sum(1).double() / total).cpu().numpy() for x in (difference, noise - difference)
    )
    own = 1 - energy
    centred = own - own.mean()
    slope = float((centred * error).sum() / max((centred**2).sum(), 1e-300))
    rest = error - error.mean() - slope * centred
    stderr = float(np.sqrt((rest**2).sum() / (len(own) - 2) / max((centred**2).sum(), 1e-300)))
    slope = min(slope, 1.0) if slope > SIGNIFICANT * stderr and 0 < mean < LARGEST else 0.0
    limits = np.clip([error.min(), error.max()], 0.0, LARGEST)
    return np.array([slope, own.mean(), mean, *limits])
