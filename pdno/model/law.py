r"""Mean plus residual,

    u | a = m(a) + t(a) S r,

and what was found out about its parts: m by `pdno.mean.choose`, S (`pdno.residual.scale`) and t (`pdno.residual.amplitude`) from
residuals of pairs that m has not learned from (out of fold where m has them in closed form, else those that were held out), and the data's own
noise where equal inputs were repeated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp
from torch import Tensor

from ..basis import Kind
from ..data.pairs import Pairs
from ..diffusion.chain import Diffusion, at
from ..errors import UserError, nearest
from ..mean import Kernel, Mean, mean_of
from ..mean.choice import Chosen, Trial
from ..mean.choose import WHITE, correlation, zeroed
from ..residual.amplitude import Amplitude
from ..residual.repeats import replicate_noise
from ..residual.scale import Kind as ScaleKind
from ..residual.scale import Scale
from ..symmetry import Symmetry

__all__ = ["Decomposition", "decompose"]

Array = NDArray[Any]
FEWEST = 100  # fields that can tell a Gaussian from others
HELD, SHIFTED = 20, 1.5  # pairs held out, and how much larger their residuals may be than those out of fold
SOME, OVERFIT = (
    200,
    0.7,
)  # pairs that tell, and residuals of pairs learned from, over those held out, below which they are no guide
TINY = 1e-300
ORIENTED, NUMBERS = 8, 2**24  # elements of a group that residuals are turned by: fewer for so many numbers


@dataclass
class Decomposition:
    """The parts; `finished` says why r is taken as Gaussian without trying more, nothing if a diffusion is to be tried."""

    mean: Mean
    scale: Scale
    amplitude: Amplitude | None = None
    noise: Array | None = None  # standard deviation of the data's own noise, (channel, *grid)
    trials: tuple[Trial, ...] = ()
    said: list[str] = field(default_factory=list)
    finished: str = ""

    def centre(self, a: Array, scalars: Array | None) -> tuple[Array, Array]:
        """m(a) and t(a)."""
        m = self.mean(a, scalars)
        return m, np.ones(len(a)) if self.amplitude is None else self.amplitude(a, m, scalars)

    @property
    def sizes(self) -> Array:
        """exp(e): how much larger fields are than t(a) says, some values of equal chance."""
        return np.ones(1) if self.amplitude is None else self.amplitude.sizes

    def left(self, a: Array, u: Array, scalars: Array | None) -> tuple[Array, Array]:
        """(u − m(a))/t(a), and t(a)."""
        m, t = self.centre(a, scalars)
        return (u - m) / t.reshape(-1, *(1,) * (u.ndim - 1)), t

    def gaussian_answer(self, diffusion: Diffusion, n: Tensor, v: Tensor, a: Any = None) -> Tensor:
        """What a network would have to answer if members were drawn without one: r = s ξ, ξ ~ N(0, I), s one of `sizes`.

        U_n given s is N(0, w), w = γs² + 1 − γ: U_0 is √γ v E[s²/w | v] and ε is √(1−γ) v E[1/w | v], on average. With s = 1
        the answer is 0 with the target "v".
        """
        gamma, shape = at(diffusion.schedule.gamma, n, v[:, :1].flatten(1)[:, :1]), (-1, *(1,) * (v.ndim - 1))
        s2 = torch.as_tensor(np.square(self.sizes), dtype=v.dtype, device=v.device)
        w = gamma * s2 + 1 - gamma  # (sample, size)
        chance = torch.softmax(-0.5 * (v[0].numel() * w.log() + v.flatten(1).square().sum(1, keepdim=True) / w), 1)
        u0 = (gamma.sqrt() * (chance * s2 / w).sum(1, keepdim=True)).reshape(shape) * v
        eps = ((1 - gamma).sqrt() * (chance / w).sum(1, keepdim=True)).reshape(shape) * v
        return diffusion.target_of(n, u0, eps)

    def log_likelihood(self, a: Array, u: Array, scalars: Array | None) -> Array:
        """log of the density of each u that is drawn without a network: of the mean over s of N(m(a), (t(a) s)² S Sᵀ)."""
        left, t = self.left(a, u, scalars)
        most, d, s = self.scale.log_likelihood(0 * left[:1])[0], self.seen(u.shape[1:]), self.sizes
        square = most - self.scale.log_likelihood(left)
        mixed = logsumexp(-square[:, None] / s**2 - d * np.log(s), axis=1) - np.log(len(s))
        return np.asarray(most + mixed - d * np.log(t))

    def seen(self, u_shape: tuple[int, ...]) -> int:
        """How many numbers of a field S does not take to 0."""
        return int((np.broadcast_to(self.scale.point, u_shape) > 0).sum())

    def spread(self, a: Array, scalars: Array | None, u_shape: tuple[int, ...]) -> tuple[Array | None, Array | None]:
        """Standard deviations of noise and of the model's error: from repeats, else from the posterior of a kernel."""
        shape = (len(a), *u_shape)
        if self.noise is not None and self.amplitude is None:  # else the noise too may differ between inputs
            rest = np.sqrt(np.maximum(self.scale.std**2 - self.noise**2, 0.0))
            return np.broadcast_to(self.noise, shape), np.broadcast_to(rest, shape)
        if isinstance(self.mean, Kernel):
            return np.broadcast_to(self.mean.noise_std, shape), self.mean.posterior_std(a, scalars)
        return None, None

    def normalise(self, left: Array, pairs: Pairs) -> Array:
        """r of residuals u − m(a)."""
        if self.amplitude is None:
            return self.scale.normalise(left)
        t = self.amplitude(pairs.a, pairs.u - left, pairs.scalars)
        return self.scale.normalise(left / t.reshape(-1, *(1,) * (left.ndim - 1)))

    def settings(self) -> dict[str, Any]:
        """What `restored` needs beside the arrays, as plain JSON types."""
        trials = [trial.to_json() for trial in self.trials]
        return {"mean": {"name": self.mean.name, **self.mean.settings()}, "trials": trials, "said": self.said}

    def arrays(self) -> dict[str, Array]:
        found = {f"mean.{name}": values for name, values in self.mean.arrays().items()}
        found |= {f"scale.{name}": values for name, values in self.scale.arrays().items()}
        if self.amplitude is not None:
            found |= {f"amplitude.{name}": values for name, values in self.amplitude.arrays().items()}
        return found if self.noise is None else {**found, "noise": self.noise}

    @classmethod
    def restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> "Decomposition":
        """From settings and arrays."""

        def below(prefix: str) -> dict[str, Array]:
            return {name[len(prefix) :]: values for name, values in arrays.items() if name.startswith(prefix)}

        operator = mean_of(settings["mean"]).restore(below("mean."))
        trials = tuple(Trial(**trial) for trial in settings.get("trials", ()))
        amplitude = Amplitude.from_arrays(below("amplitude.")) if "amplitude.rest" in arrays else None
        said = list(settings.get("said", ()))
        return cls(operator, Scale.from_arrays(below("scale.")), amplitude, arrays.get("noise"), trials, said)


def decompose(
    chosen: Chosen,
    pairs: Pairs,
    validation: Pairs | None,
    *,
    scale: str = "auto",
    kind: Kind | Sequence[Kind] = "cell",
    elements: Sequence[Symmetry] = (),
    seed: int = 0,
) -> tuple[Decomposition, Pairs, Pairs | None]:
    """The parts for a mean that has learned; also the pairs (a, r) to learn the law of r from, and those held out.

    Args:
        chosen: the mean, and how it was chosen.
        pairs: that it has learned from.
        validation: held out.
        scale: kind of S, or "auto".
        kind: of the grid's axes.
        elements: of the group of symmetries on this grid, by which residuals are turned.
        seed: of what is drawn.
    """
    if scale not in ("auto", *get_args(ScaleKind)):
        raise UserError(f"residual_scale {scale!r} is unknown; {nearest(str(scale), ('auto', *get_args(ScaleKind)))}")
    mean = chosen.mean
    if not mean.cheap_folds and not validation:
        raise UserError("the scale of what a network leaves is told by pairs held out; hold some out (validation=0.1)")
    folded = mean.cheap_folds and len(np.unique(_labels(pairs))) > 1
    noise = replicate_noise(pairs.fingerprints(), zeroed(pairs), pairs.mask)
    held = _left(mean, validation) if validation else None
    guide = folded or held is None or _is_guide(mean, pairs, held)
    pairs = pairs if guide else _some(pairs)
    left = _out_of_fold(mean, pairs, seed) if folded else _left(mean, pairs)
    measured, source = (held, validation) if validation and _harder(left, held, folded) else (left, pairs)
    assert measured is not None
    s = _scale_of(measured, source, scale, kind, _few(elements, measured.size))
    whole = all(part is None or part.mask is None or part.mask.all() for part in (pairs, validation))
    t = Amplitude.of(measured, s, source.a, source.u - measured, source.scalars, seed) if whole else None
    size = f"; {t.describe()}" if t is not None else ""
    said = [f"{chosen.why}. {mean.describe()}", f"Residual scale: {s.describe()}{size}."]
    if folded and source is not pairs:
        said.append("Held-out pairs are harder than those learned from, so the scale is theirs: are they of another kind?")
    parts = Decomposition(mean, s, t, noise, chosen.trials, said)
    r = s.filled(parts.normalise(left, pairs), seed, "train")
    parts.finished = _finished(chosen.exact, guide, t is None, r, pairs.mask)
    if validation is None or held is None:
        return parts, _with(pairs, r), None
    return parts, _with(pairs, r), _with(validation, s.filled(parts.normalise(held, validation), seed, "validation"))


def _finished(exact: bool, guide: bool, alike: bool, r: Array, mask: Array | None) -> str:
    """Why nothing is left for a diffusion to learn."""
    if exact:
        return "the answers are exact, but for rounding"
    if not guide:
        return "those of the pairs learned from are no guide to others"
    return "they are white, of one size, and Gaussian in every test" if alike and looks_gaussian(r, mask) else ""


def looks_gaussian(r: Array, mask: Array | None = None) -> bool:
    """Whether fields look like white noise: no neighbours together, all of one size, no skewness, no heavy or light tails.

    Third and fourth moments are averages over each field, and tested over fields, whose points may depend on each other.
    """
    if len(r) < FEWEST or mask is not None or abs(correlation(r)) > WHITE:
        return False
    axes = tuple(range(1, r.ndim))
    skew, tails = (r**3).mean(axis=axes), (r**4).mean(axis=axes) - 3 * np.mean(r**2) ** 2
    size, points = (r**2).mean(axis=axes), r[0].size
    if size.var() > 2 / points * size.mean() ** 2 * (1 + 6 / np.sqrt(len(size))):  # more than χ² of so many points
        return False
    return all(abs(each.mean()) < 4 * each.std(ddof=1) / np.sqrt(len(each)) for each in (skew, tails))


def _is_guide(mean: Mean, pairs: Pairs, held: Array) -> bool:
    """Whether residuals of pairs that m has learned from are like those of others: it may know them by heart."""
    return bool(np.mean(_rms(_left(mean, _some(pairs))) / np.maximum(_rms(held), TINY)) > OVERFIT)


def _some(pairs: Pairs) -> Pairs:
    return pairs[:: max(1, len(pairs) // SOME)]


def _harder(left: Array, held: Array | None, folded: bool) -> bool:
    """Whether S must come from the pairs held out: nothing else is honest, or their residuals are larger than out of fold."""
    if held is None:
        return False
    return not folded or (len(held) >= HELD and bool(np.mean(_rms(held) / np.maximum(_rms(left), TINY)) > SHIFTED))


def _out_of_fold(mean: Mean, pairs: Pairs, seed: int) -> Array:
    left = mean.residuals(pairs.a, zeroed(pairs), pairs.scalars, _groups(pairs), seed=seed)
    return left if pairs.mask is None else np.where(pairs.mask, left, 0.0)


def _scale_of(left: Array, pairs: Pairs, scale: Any, kind: Kind | Sequence[Kind], elements: Sequence[Symmetry]) -> Scale:
    """S from residuals in all orientations; those of one pair are no independent evidence."""
    kinds = [kind] * (left.ndim - 2) if isinstance(kind, str) else kind
    periodic = [each == "periodic" for each in kinds]
    groups = _groups(pairs)
    if elements:
        left = np.concatenate([g.linear.on_u(left) for g in elements])
        groups = np.tile(np.arange(len(pairs)) if groups is None else groups, len(elements))
    mask = None if pairs.mask is None or pairs.mask.all() else pairs.mask
    return Scale.of(left, scale, mask=mask, periodic=periodic, group=groups)


def _few(elements: Sequence[Symmetry], size: int) -> Sequence[Symmetry]:
    """Some elements, evenly from the list; copies of residuals of this size must not fill the memory."""
    count = int(np.clip(NUMBERS // size, 1, ORIENTED))
    return elements[:: max(1, len(elements) // count)][:count]


def _left(mean: Mean, pairs: Pairs) -> Array:
    """u − m(a), zero where u is not known."""
    left = pairs.u - mean(pairs.a, pairs.scalars)
    return left if pairs.mask is None else np.where(pairs.mask, left, 0.0)


def _groups(pairs: Pairs) -> Array | None:
    """Labels of pairs that must be left out together: the user's groups, or equal inputs; None if all differ."""
    numbers = np.unique(_labels(pairs), return_inverse=True)[1].reshape(-1)
    return None if numbers.max(initial=0) + 1 == len(pairs) else numbers


def _labels(pairs: Pairs) -> Array:
    return pairs.fingerprints() if pairs.group is None else pairs.group


def _rms(values: Array) -> Array:
    """Of each channel."""
    return np.asarray(np.sqrt(np.mean(values**2, axis=(0, *range(2, values.ndim)))))


def _with(pairs: Pairs, r: Array) -> Pairs:
    """The pairs with other outputs."""
    data = pairs.xarray.drop_vars("u_eta", errors="ignore")
    return Pairs(data.assign(u=xr.Variable(data["u"].dims, r)))
