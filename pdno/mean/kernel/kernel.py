"""Vector-valued Gaussian-process regression (Batlle, Darcy, Hosseini and Owhadi 2023), the special case that the paper names:

    u = c + f(a) + η,        f ~ GP(0, k ⊗ 𝒞),        m(a) = ĉ + k(a)ᵀ (K + ν)⁻¹ (u − ĉ),        k(a, b) = κ(|φ(a) − φ(b)|/ℓ),

where c has a flat prior (ĉ by generalised least squares). The features φ are the lowest modes of an input (DCT-II; Fourier
along periodic axes), each channel normalised and with a mean square of one, and the normalised scalars:

    φ_k(a) ∝ (|k|² + 2)^(−s/2) â_k,        k counted in half waves.

κ is "matern52", "matern32", "rq" (rational quadratic, (1 + r²/2α)^(−α)) or "gaussian"; for "linear", k = φᵀφ. 𝒞 and the
covariance of the noise η are diagonal in the modes of outputs. Bands of modes with different signal-to-noise ratios have
different nuggets ν; in bands with no signal m is constant, and shrunk by the rule of James and Stein.

**Selection.** Without the rows I, the residuals there are (Dubrule 1983)

    r_I = P_II⁻¹ (P u)_I,        P = K_ν⁻¹ − K_ν⁻¹1 (1ᵀK_ν⁻¹1)⁻¹ 1ᵀK_ν⁻¹,        K_ν = K + ν,

and Σ r² over some pairs, each left out together with all pairs of its group, or of its input, selects κ, ℓ, s, α, ν, the weight
of scalars, and whether logarithms of inputs are taken (`pdno.mean.kernel.search`).

**Symmetries** G (`pdno.symmetry`) with k(g a, g b) = k(a, b): regression on all copies (g a, g u) of the pairs has

    m(a) = ĉ + Σ_g g⁻¹ Σ_i k(g a, a_i) c_i,

and decouples into a system for each character of a subgroup (`pdno.mean.kernel.characters`). A pair is left out with all of its
copies. For groups that are too large, or do not preserve k, m is averaged over the group instead.

**Posterior.** var (c + f(a))(x) = Σ v(a) s²(x) over characters and nuggets, with s²(x) = uᵀPu/(n − 1) at each node and v(a) as
in `pdno.mean.kernel.variance`.
"""

from collections.abc import Iterator, Sequence
from copy import copy as shallow
from typing import Any, Self

import numpy as np

from ..._typing import Array, Floats, Ints, Mask
from ...basis import Kind, fields, modes
from ...data.pairs import Pairs
from ...data.split import folds
from ...draw import generator
from ...errors import UserError, nearest
from ...learning.budget import Terms
from ...symmetry import Own, check
from ...work.engine import memory_allowed
from ...work.state import State
from ..base import Mean, Posterior, checked, pairs_of, steady
from ..reuse import Reusable
from .characters import Characters
from .covariance import KERNELS, Features, Hyper, Units
from .domain import Domain
from .search import MOST_PAIRS, MOST_ROWS, Search
from .solve import Labels, log_likelihood, regress, together, without_label
from .variance import Variance

__all__ = ["KERNELS", "Hyper", "Kernel", "log_likelihood"]

CONSTANT = 1e-12  # relative range of outputs below which they are constant up to rounding
ROUNDING = 1e-12  # relative to outputs: modes of a character that are smaller are zero up to rounding
BLOCK = 2**22  # numbers that a prediction works on at a time
OWN = "own"  # stands in files for a symmetry of the user
ARRAYS = ("level", "nuggets", *Units._fields, "a", "scalars", "mean", "coefficients", "scales", "noise", "numbers")


class Kernel(Mean, Posterior):
    """Regression by a Gaussian process.

    Args:
        kernel: one of KERNELS, or "auto".
        symmetries: names or custom maps, as in `pdno.symmetry.group`; declare exact ones only.
        kind: of the axes of the grids, one for all or one each; only whether they are periodic has an effect.
        shifts: number of equally spaced translations along each periodic axis, for the symmetry "translation". The default,
            four in 1-D and two in 2-D if they divide the number of points, is small enough to train on all copies.
        log: whether logarithms of inputs are taken; None tries it where they are positive.
        most: maximum number of training pairs, drawn at random; None for 8000, or as many as half of the memory allows.
        budget: seconds for `fit` and `residuals` together; the search is shortened and fewer pairs are used. Default: what
            the model allows.

    After training, `hyper` has the hyper-parameters, and `error` is the mean relative error ‖r‖/‖u‖ of leave-one-out residuals
    (before averages over symmetries, if any).

    Good values: the defaults, up to some thousand pairs; time grows as the cube of their number.

    >>> a = np.random.default_rng(0).normal(size=(60, 1, 16))
    >>> kernel = Kernel().fit(a[:50], np.tanh(np.cumsum(a[:50], axis=-1) / 4))
    >>> kernel(a[50:]).shape, kernel.posterior_std(a[50:]).shape
    ((10, 1, 16), (10, 1, 16))
    """

    name = "kernel"
    hyper: Hyper
    error: float
    _domain: Domain
    _split: Characters  # of the group, or of the identity alone if m is averaged over the group
    _features: Features
    _phi: Floats  # features of the training inputs

    def __init__(
        self,
        kernel: str = "auto",
        symmetries: str | Sequence[str | Own] = (),
        kind: Kind | Sequence[Kind] = "cell",
        shifts: int | None = None,
        log: bool | None = None,
        most: int | None = None,
        budget: float | None = None,
    ) -> None:
        if kernel not in ("auto", *KERNELS):
            raise UserError(f"kernel {kernel!r} is unknown; {nearest(kernel, ('auto', *KERNELS))}")
        if most is not None and most < 2:
            raise UserError(f"most = {most}: expected at least two training pairs")
        self.kernel, self.kind, self.shifts, self.log, self.most, self.budget = kernel, kind, shifts, log, most, budget
        self.symmetries = (symmetries,) if isinstance(symmetries, str) else tuple(symmetries)
        self._arrays: dict[str, Floats] = {}
        self._affordable: int | None = None  # pairs that the budget allows
        self._reusable: Reusable | None = None  # leave-one-out residuals of the training pairs
        self._variance: Variance | None = None  # computed on first use

    def learn(self, pairs: Pairs, held_out: Pairs | None, terms: Terms) -> Self:
        given, self._reusable = (pairs.a, pairs.filled, pairs.scalars), None
        a, u, s = checked(*given)
        if len(a) < 2:
            raise UserError(f"got {len(a)} pairs, expected at least two for training; provide more")
        constant = np.ptp(u, axis=0).max() <= CONSTANT * np.abs(u).max()
        if constant:  # the search would fit rounding errors
            u = np.broadcast_to(u.mean(axis=0), u.shape)
        self._domain = Domain.of(a.shape, u.shape, self.symmetries, self.kind, self.shifts)
        check(self._domain.elements, a[:1], u[:1])
        self._affordable, budget = None, terms.left_here() if self.budget is None else self.budget
        order, labels = generator(terms.seed, "kernel", 0).permutation(len(a)), together(pairs.labels())
        search = Search(self._domain, self.kernel, self.log, budget)
        selected = search.run(a, u, s, labels, order[:MOST_PAIRS], self._count(len(a)))
        self.hyper, self._affordable = selected.hyper, selected.affordable
        self._features = Features(selected.hyper, selected.units, self._domain.waves[0])
        self._split = self._domain.characters(selected.copied)
        self._arrays = {"level": selected.level, "nuggets": selected.nuggets}
        rows = np.sort(order[: self._count(len(a))])
        left = self._solve(a[rows], u[rows], s[rows], together(labels[rows]))
        self.error = _relative_error(left, u[rows])
        numbers = [KERNELS.index(self.hyper.kernel), *self.hyper[1:], self.error, len(a), self._copied]
        self._arrays["numbers"] = np.array(numbers, dtype=np.float64)
        group = pairs.shared_labels()
        if not constant and not self._averaged and (group is None or len(rows) == len(a)):
            self._reusable = Reusable.of(left, *given, terms.seed, group)
        return self

    def residuals(
        self,
        a: Array,
        u: Array,
        scalars: Array | None = None,
        group: Ints | None = None,
        count: int = 5,
        seed: int = 0,
    ) -> Array:
        """Return closed-form residuals without one pair, or group of pairs, with the hyper-parameters selected on all pairs.

        Pairs that are not used for training are predicted by the others. There are `count` folds if m is an average over
        symmetries, or pairs have groups and not all are used for training. On the training pairs, the residuals are those that
        `learn` computed.
        """
        if not self._arrays:
            pairs = pairs_of(a, u, scalars, group=group)
            return shallow(self).learn(pairs, None, Terms(seed, progress=False)).residuals(a, u, scalars, group, count, seed)
        labels = np.arange(len(a)) if group is None else np.unique(group, return_inverse=True)[1].reshape(-1)
        single = bool(labels.max() + 1 == len(labels))
        reused = self._reused(a, u, scalars, seed, None if single else labels)
        a, u, s = checked(a, u, scalars)
        if labels.max() == 0:
            raise UserError("all pairs are of one group, so that none would be left for training; provide at least two groups")
        if self._averaged or not (single or self._count(len(a)) == len(a)):
            return self._folded(a, u, s, labels, count, seed)
        copy, left = shallow(self), np.empty(u.shape)
        order = generator(seed, "kernel", 0).permutation(len(a))
        rows, others = (np.sort(part) for part in np.split(order, [self._count(len(a))]))
        left[rows] = copy._solve(a[rows], u[rows], s[rows], labels[rows]) if reused is None else reused
        left[others] = u[others] - copy(a[others], s[others])
        return left

    def _reused(self, a: Array, u: Array, scalars: Array | None, seed: int, labels: Labels | None) -> Array | None:
        """Return the residuals that `learn` computed from these arrays, once: they take as much memory as u."""
        if self._reusable is None or not self._reusable.fits(a, u, scalars, seed, labels):
            return None
        values, self._reusable = self._reusable.values, None
        return values

    def _folded(self, a: Floats, u: Floats, s: Floats, labels: Labels, count: int, seed: int) -> Floats:
        """Return the residuals of `count` folds."""
        copy, left, order = shallow(self), np.empty(u.shape), generator(seed, "kernel", 0).permutation(len(a))
        for kept, out in folds(len(a), count, labels, seed):
            rows = np.sort(order[np.isin(order, kept)][: self._count(len(kept))])
            copy._solve(a[rows], u[rows], s[rows], labels[rows])
            left[out] = u[out] - copy(a[out], s[out])
        return left

    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        a, s = self._inputs(a, scalars)
        mean, c, elements = self._arrays["mean"], self._arrays["coefficients"], self._domain.elements
        out = np.empty((len(a), *mean.shape))
        for block in _blocks(len(a), len(c) + self._phi.shape[1] + mean.size):
            total: Any = 0.0
            for g in elements:
                v = self.hyper.gram(self._features(g.on_a(a[block]), s[block]), self._phi) @ c.reshape(len(c), -1)
                total = total + g.undo(v.reshape(-1, *mean.shape)) - g.undo(np.zeros((1, *mean.shape)))
            out[block] = mean + total / (1 if self._copied else len(elements))
        return out

    def uncertainty(self, a: Array, scalars: Array | None = None) -> tuple[Array, Array]:
        std = self.posterior_std(a, scalars)
        return np.broadcast_to(self.noise_std, std.shape), std

    def posterior_std(self, a: Array, scalars: Array | None = None) -> Array:
        """Return the standard deviation of c + f(a) given the data, without noise, in the shape of u."""
        v = np.tensordot(self._variances(a, scalars), self._arrays["scales"], axes=((1, 2), (0, 1)))
        return np.asarray(np.sqrt(np.maximum(v, 0)))

    def variance(self, a: Array, scalars: Array | None = None) -> Array:
        """Return ∫ posterior_std² / ∫ s² over the grid, (sample,); it is v(a) if there is one character and one nugget."""
        v, scale = self._variances(a, scalars), self._arrays["scales"]
        scale = scale.reshape(*scale.shape[:2], -1).mean(axis=2)
        return np.asarray(np.tensordot(v, scale, axes=((1, 2), (0, 1))) / (scale.sum() or 1.0))

    @property
    def noise_std(self) -> Array:
        """Standard deviation of the noise η at each node, √Σ ν s²: (channel, *grid)."""
        return np.asarray(np.sqrt(self._trained()["noise"]))

    def describe(self) -> str:
        """Describe the hyper-parameters in a sentence."""
        if not self._arrays:
            return "A kernel mean that has not been trained."
        h, pairs, given = self.hyper, len(self._arrays["a"]), int(self._arrays["numbers"][-2])
        kernel = f"rational quadratic kernel of shape {h.shape:.2g}" if h.kernel == "rq" else f"{h.kernel} kernel"
        copies = "each with its symmetric copies" if self._copied else "averaged over symmetries"
        elements = len(self._domain.elements)
        return (
            f"Gaussian-process regression on {pairs} pairs{f' of {given}' if given > pairs else ''}"
            f"{f', {copies} ({elements})' if elements > 1 else ''}: a {kernel}"
            f"{f', length {h.length:.3g},' if h.kernel != 'linear' else ''} of the modes of {'log a' if h.log else 'a'} "
            f"weighted by (k² + 2)^(−{h.exponent / 2:.3g}), nuggets {', '.join(f'{x:.1g}' for x in self._arrays['nuggets'])}; "
            f"the leave-one-out relative error is {self.error:.3g}."
        )

    def state(self) -> State:
        kind = self.kind if isinstance(self.kind, str) else list(self.kind)
        symmetries = [name if isinstance(name, str) else OWN for name in self.symmetries]
        named = {"kernel": self.kernel, "symmetries": symmetries, "kind": kind}
        return State({**named, "shifts": self.shifts, "log": self.log, "most": self.most}, dict(self._trained()))

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned.

        Raises:
            UserError: if arrays are missing, or symmetries are code of the user, which is not saved.
        """
        if OWN in state.settings["symmetries"]:
            raise UserError("a kernel mean with symmetries of your own is code, which is not saved; train it again")
        if missing := [name for name in ARRAYS if name not in state.arrays]:
            raise UserError(f"arrays {missing} of a kernel mean are missing, expected {list(ARRAYS)}; save it again")
        new = cls(**state.settings)
        new._arrays = {name: np.array(values, dtype=np.float64) for name, values in state.arrays.items()}
        numbers = (float(x) for x in new._arrays["numbers"])
        kernel, length, exponent, shape, balance, log, new.error, _, copied = numbers
        new.hyper = Hyper(KERNELS[int(kernel)], length, exponent, shape, balance, bool(log))
        shapes = new._arrays["a"].shape, (1, *new._arrays["mean"].shape)
        new._domain = Domain.of(*shapes, new.symmetries, new.kind, new.shifts)
        new._split = new._domain.characters(bool(copied))
        units = Units(*(new._arrays[name] for name in Units._fields))
        new._features = Features(new.hyper, units, new._domain.waves[0])
        new._phi = new._features(new._arrays["a"], new._arrays["scalars"])
        new._affordable = len(new._phi)
        return new

    def _trained(self) -> dict[str, Floats]:
        if not self._arrays:
            raise UserError("this kernel mean has not been trained; call fit(a, u) first")
        return self._arrays

    def _inputs(self, a: Array, scalars: Array | None) -> tuple[Floats, Floats]:
        trained = self._trained()
        a, _, s = checked(a, a, scalars, least=0)
        expected = [trained[name].shape[1:] for name in ("a", "scalars")]
        if [a.shape[1:], s.shape[1:]] != expected:
            raise UserError(
                f"an input has shape {a.shape[1:]} and scalars {s.shape[1:]}, expected {expected[0]} and {expected[1]} as in "
                "training; give the same channels and scalars on the same grid"
            )
        return a, s

    @property
    def _copied(self) -> bool:
        """Whether symmetric copies are trained on."""
        return len(self._split.elements) > 1

    @property
    def _averaged(self) -> bool:
        """Whether m is an average over symmetries."""
        return len(self._domain.elements) > 1 and not self._copied

    def _count(self, given: int) -> int:
        """Return how many of the given pairs to train on."""
        allowed, linear = memory_allowed(), self._domain.bytes_needed(1, 0)
        fit = int((np.sqrt(linear**2 + 4 * 40 * allowed) - linear) / 80)
        pairs = min(given, self.most or max(2, min(MOST_ROWS, fit)), self._affordable or given)
        if (needed := self._domain.bytes_needed(pairs)) > allowed:
            raise UserError(
                f"regression on {pairs} pairs needs {needed / 1e9:.1f} GB of memory, {allowed / 1e9:.1f} GB are allowed; "
                f"set most={fit} to train on some of the pairs"
            )
        return pairs

    def _solve(self, a: Floats, u: Floats, s: Floats, labels: Labels) -> Floats:
        """Solve for the coefficients; return the residuals of each pair by the regression without its label."""
        split, nuggets, level, waves, n = (
            self._split,
            self._arrays["nuggets"],
            self._arrays["level"],
            self._domain.waves[1],
            len(u),
        )
        shape, elements = u.shape[1:], self._domain.elements
        self._phi, self._variance = self._features(a, s), None
        centre = self._domain.centre(u, split.elements, level < 0)
        grams = split.matrices(lambda g: self.hyper.gram(self._phi, self._features(g.on_a(a), s)))
        c, left, mean = np.zeros((len(grams[0]), *shape)), np.zeros(u.shape), centre.copy()
        size = np.repeat(self._domain.channel_sizes(u), level.size // shape[0])
        scales, noise = np.zeros((len(grams), len(nuggets), *shape)), np.zeros(shape)

        def field(values: Floats, at: Mask) -> Floats:
            full = np.zeros((len(values), level.size))
            full[:, at] = values
            return fields(full.reshape(-1, *shape), waves)

        for x, (k, part) in enumerate(zip(grams, split.parts(u, centre), strict=True)):
            y = modes(part, waves).reshape(len(part), -1)
            live = np.abs(y).max(axis=0) > ROUNDING * size  # modes that belong to this character
            for i in range(-1, len(nuggets)):
                at = (level == i) & live
                if i < 0:  # no signal
                    left += field(without_label(y[:n, at], labels), at)
                    noise += np.square(field(y[:, at], at)).mean(axis=0)
                if i < 0 or not at.any():
                    continue
                solved, constant, without = regress(k, y[:, at], nuggets[i], x == 0, np.tile(labels, len(split.copies)))
                c += (part_c := field(solved, at))
                left += field(without[:n], at)
                mean += field(constant[None], at)
                scales[x, i] = (part_c * field(y[:, at], at)).sum(axis=0) / (len(y) - (x == 0))
                noise += nuggets[i] * scales[x, i]
        if len(elements) == 1:  # nodes that never vary
            still = steady(u)
            mean, c, left = np.where(still, u[0], mean), np.where(still, 0.0, c), np.where(still, 0.0, left)
            scales, noise = np.where(still, 0.0, scales), np.where(still, 0.0, noise)
        mean = np.mean([g.undo(mean) for g in elements], axis=0)[0]
        spread = np.sqrt(np.maximum(0, [*scales.reshape(-1, *shape), noise]))
        spread = np.mean([(g.undo(spread) - g.undo(0 * spread[:1])) ** 2 for g in elements], axis=0)  # equal at symmetric nodes
        new = {"mean": mean, "coefficients": split.gather(c), "scales": spread[:-1].reshape(scales.shape), "noise": spread[-1]}
        self._arrays = self._arrays | self._features.units._asdict() | {"a": a, "scalars": s} | new
        return left

    def _variances(self, a: Array, scalars: Array | None) -> Floats:
        """Return v(a), (sample, character, nugget): an average over symmetries unless copies are trained on."""
        a, s = self._inputs(a, scalars)
        if self._variance is None:
            trained = (self._arrays[name] for name in ("a", "scalars", "nuggets"))
            self._variance = Variance(self._split, self._features, *trained)
        return self._variance(a, s, self._domain.elements[:1] if self._copied else self._domain.elements)


def _relative_error(left: Floats, u: Floats) -> float:
    """Return the mean over samples of ‖r‖/‖u‖."""
    sizes = [np.sqrt(np.square(x).reshape(len(x), -1).sum(axis=1)) for x in (left, u)]
    return float((sizes[0] / np.where(sizes[1] > 0, sizes[1], 1)).mean())


def _blocks(count: int, width: int) -> Iterator[slice]:
    rows = max(1, BLOCK // width)
    return (slice(first, first + rows) for first in range(0, count, rows))
