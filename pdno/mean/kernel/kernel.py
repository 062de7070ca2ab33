"""Vector-valued Gaussian-process regression (Batlle, Darcy, Hosseini and Owhadi 2023), the special case that the paper names:

    u = c + f(a) + η,        f ~ GP(0, k ⊗ 𝒞),        m(a) = ĉ + k(a)ᵀ (K + ν)⁻¹ (u − ĉ),        k(a, b) = κ(|φ(a) − φ(b)|/ℓ),

where c has a flat prior (ĉ by generalised least squares). Features φ are the lowest modes of an input (DCT-II; Fourier along
periodic axes), each channel in its own units and with a mean square of one, and scalars in theirs:

    φ_k(a) ∝ (|k|² + 2)^(−s/2) â_k,        k counted in half waves.

κ is "matern52", "matern32", "rq" (rational quadratic, (1 + r²/2α)^(−α)) or "gaussian", or k = φᵀφ, "linear". 𝒞 is diagonal in
the modes of outputs and so is the noise η: bands of modes, in which outputs have different shares of noise, have different
nuggets ν, and where there is nothing but noise about a constant, m is that, shrunk by the rule of James and Stein.

**Choice.** Leaving out rows I changes the residuals there to (Dubrule 1983)

    r_I = P_II⁻¹ (P u)_I,        P = K_ν⁻¹ − K_ν⁻¹1 (1ᵀK_ν⁻¹1)⁻¹ 1ᵀK_ν⁻¹,        K_ν = K + ν,

and Σ r² over some pairs chooses κ, ℓ, s, α, ν, the weight of scalars, and whether inputs are taken by their logarithms.

**Symmetries** G (`pdno.symmetry`) with k(g a, g b) = k(a, b): regression on all copies (g a, g u) of the pairs has

    m(a) = ĉ + Σ_g g⁻¹ Σ_i k(g a, a_i) c_i,

and falls apart into systems for the characters of a subgroup. Leaving out a pair leaves out all of its copies. Groups that are
too large for that, or do not preserve k, serve to average m alone.

**Posterior.** var (c + f(a))(x) = Σ v(a) s²(x) over characters and nuggets, with s²(x) = uᵀPu/(n − 1) at each point and
v(a) = k(a, a) − k(a)ᵀK_ν⁻¹k(a) + (1 − 1ᵀK_ν⁻¹k(a))²/(1ᵀK_ν⁻¹1).
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy as shallow
from functools import cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from ...basis import Kind
from ...data.open import memory_allowed
from ...draw import generator
from ...errors import UserError, nearest
from ...grid import Axis, Grid
from ...modes import Waves, fields, modes, squared_waves
from ...symmetry import Characters, Own, Symmetry, check, group
from ..base import Array, Mean, checked, folds
from .covariance import KERNELS, Hyper, Units, unit_of
from .solve import LEVELS, NUGGETS, Errors, Labels, cholesky_of, descend, levels, log_likelihood, project, regress, score

__all__ = ["KERNELS", "Hyper", "Kernel", "log_likelihood"]

AUTO = KERNELS[:3]
COARSE, FINE, LAST = 300, 800, 2000  # rows that choose κ, then ℓ, s and α, and at last the nuggets
BANDS = 12  # of output modes
WHOLE = 2.0  # work for all output modes, over that for some directions of them
ORBIT, ROWS = 8, 8000  # largest group and largest number of rows that are learned from
BLOCK = 2**22  # numbers that a prediction works on at a time


class Kernel(Mean):
    """Regression by a Gaussian process; see above.

    Args:
        kernel: one of KERNELS, or "auto".
        symmetries: names or own maps, as `pdno.symmetry.group` takes them; declare only what holds exactly.
        kind: of the axes of the grids, one for all or one each; it matters whether they are periodic.
        shifts: number of equally spaced translations along each axis, if that is a symmetry. Left out, it is four on a line and
            two in the plane, as far as they divide its points: few enough for copies to be learned from.
        log: whether inputs are taken by their logarithms; None tries it where they are positive.
        most: pairs that are learned from, drawn if there are more; None means 8000, or what half of the memory allows.
        budget: seconds that `fit` and `residuals` may take together: the search ends earlier, and fewer pairs are learned from.

    Good values: the defaults, up to some thousand pairs; time grows as the cube of their number.

    >>> a = np.random.default_rng(0).normal(size=(60, 1, 16))
    >>> kernel = Kernel().fit(a[:50], np.tanh(np.cumsum(a[:50], axis=-1) / 4))
    >>> kernel(a[50:]).shape, kernel.posterior_std(a[50:]).shape
    ((10, 1, 16), (10, 1, 16))
    """

    name = "kernel"
    hyper: Hyper
    error: float
    """Mean relative error ‖r‖/‖u‖ of pairs that are left out one by one (before averages over symmetries, if any)."""

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
            raise UserError(f"most = {most}: expected at least two pairs to learn from")
        self.kernel, self.kind, self.shifts, self.log, self.most, self.budget = kernel, kind, shifts, log, most, budget
        self.symmetries = (symmetries,) if isinstance(symmetries, str) else tuple(symmetries)
        self._learned: dict[str, Array] = {}
        self._timely: int | None = None  # pairs that the budget allows

    def settings(self) -> dict[str, Any]:
        kind = self.kind if isinstance(self.kind, str) else list(self.kind)
        symmetries = [name if isinstance(name, str) else "own" for name in self.symmetries]
        named = {"kernel": self.kernel, "symmetries": symmetries, "kind": kind}
        return {**named, "shifts": self.shifts, "log": self.log, "most": self.most}

    def fit(self, a: Array, u: Array, scalars: Array | None = None, seed: int = 0) -> Self:
        a, u, s = checked(a, u, scalars)
        if len(a) < 2:
            raise UserError(f"got {len(a)} pairs, expected at least two to learn from; bring more")
        if np.ptp(u, axis=0).max() <= 1e-12 * np.abs(u).max():  # constant but for rounding, which is not worth a search
            u = np.broadcast_to(u.mean(axis=0), u.shape)
        self._prepare(a.shape, u.shape)
        check(self._elements, a[:1], u[:1])
        self._timely, end = None, math.inf if self.budget is None else time.monotonic() + self.budget
        order = generator(seed, "kernel", 0).permutation(len(a))
        self._choose(a, u, s, order[:LAST], self._pairs(len(a)), end)
        rows = np.sort(order[: self._pairs(len(a))])
        left = self._learn(a[rows], u[rows], s[rows], np.arange(len(rows)))
        sizes = [np.sqrt(np.square(x).reshape(len(x), -1).sum(axis=1)) for x in (left, u[rows])]
        self.error = float((sizes[0] / np.where(sizes[1] > 0, sizes[1], 1)).mean())
        numbers = [KERNELS.index(self.hyper.kernel), *self.hyper[1:], self.error, len(a), self._copied]
        self._learned["numbers"] = np.array(numbers, dtype=np.float64)
        return self

    def residuals(
        self,
        a: Array,
        u: Array,
        scalars: Array | None = None,
        group: NDArray[np.integer] | None = None,
        count: int = 5,
        seed: int = 0,
    ) -> Array:
        """Closed-form residuals that leave out one pair, or group of pairs, with what was chosen once for all of them.

        Pairs beyond those that are learned from are left out anyway. Where m is an average over symmetries, `count` folds.
        """
        copy = shallow(self) if self._learned else shallow(self).fit(a, u, scalars, seed)
        a, u, s = checked(a, u, scalars)
        labels = np.arange(len(a)) if group is None else np.unique(group, return_inverse=True)[1].reshape(-1)
        if labels.max() == 0:
            raise UserError("all pairs are of one group, so that nothing is left to learn from; bring at least two groups")
        averaged = len(copy._elements) > 1 and not copy._copied
        left, order = np.empty(u.shape), generator(seed, "kernel", 0).permutation(len(a))
        for kept, out in folds(len(a), count, labels, seed) if averaged else copy._sides(labels, seed):
            rows = np.sort(order[np.isin(order, kept)][: copy._pairs(len(kept))]) if averaged else kept
            closed = copy._learn(a[rows], u[rows], s[rows], labels[rows])
            left[out] = u[out] - copy(a[out], s[out])
            if not averaged:
                left[rows] = closed
        return left

    def _sides(self, labels: Labels, seed: int) -> Iterator[tuple[Labels, Labels]]:
        """Rows to learn from, whole groups of them, and all others."""
        order = generator(seed, "kernel", 0).permutation(int(labels.max()) + 1)
        filled = np.cumsum(np.bincount(labels)[order])
        some = order[: max(1, int((filled <= self._pairs(len(labels))).sum()))]
        kept = np.isin(labels, some)
        yield np.flatnonzero(kept), np.flatnonzero(~kept)

    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        a, s = self._inputs(a, scalars)
        mean, c = self._learned["mean"], self._learned["coefficients"]
        out = np.empty((len(a), *mean.shape))
        for block in _blocks(len(a), len(c) + self._phi.shape[1] + mean.size):
            total: Any = 0.0
            for g in self._elements:
                v = self.hyper.gram(self._features(g.on_a(a[block]), s[block]), self._phi) @ c.reshape(len(c), -1)
                total = total + g.undo(v.reshape(-1, *mean.shape)) - g.undo(np.zeros((1, *mean.shape)))
            out[block] = mean + total / (1 if self._copied else len(self._elements))
        return out

    def posterior_std(self, a: Array, scalars: Array | None = None) -> Array:
        """Standard deviation of c + f(a) given the data, without noise, in the shape of u."""
        v = np.tensordot(self._variances(a, scalars), self._learned["scales"], axes=((1, 2), (0, 1)))
        return np.asarray(np.sqrt(np.maximum(v, 0)))

    def variance(self, a: Array, scalars: Array | None = None) -> Array:
        """Mean square of `posterior_std` over the field as a fraction of that of s: (sample,); v(a) if that is one number."""
        v, scale = self._variances(a, scalars), self._learned["scales"]
        scale = scale.reshape(*scale.shape[:2], -1).mean(axis=2)
        return np.asarray(np.tensordot(v, scale, axes=((1, 2), (0, 1))) / (scale.sum() or 1.0))

    @property
    def noise_std(self) -> Array:
        """Standard deviation of the noise η at each point, √Σ ν s²: (channel, *grid)."""
        return np.asarray(np.sqrt(self._learned["noise"]))

    def describe(self) -> str:
        """What was chosen, in a sentence."""
        h, pairs, given = self.hyper, len(self._learned["a"]), int(self._learned["numbers"][-2])
        kernel = f"rational quadratic kernel of shape {h.shape:.2g}" if h.kernel == "rq" else f"{h.kernel} kernel"
        how = "each with its symmetric copies" if self._copied else "averaged over symmetries"
        return (
            f"Gaussian-process regression on {pairs} pairs{f' of {given}' if given > pairs else ''}"
            f"{f', {how} ({len(self._elements)})' if len(self._elements) > 1 else ''}: a {kernel}"
            f"{f', length {h.length:.3g},' if h.kernel != 'linear' else ''} of the modes of {'log a' if h.log else 'a'} "
            f"weighted by (k² + 2)^(−{h.exponent / 2:.3g}), nuggets {', '.join(f'{x:.1g}' for x in self._learned['nuggets'])}; "
            f"left-out pairs have a relative error of {self.error:.3g}."
        )

    def arrays(self) -> dict[str, Array]:
        return dict(self._learned)

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        self._learned = {name: np.array(values, dtype=np.float64) for name, values in arrays.items()}
        kernel, length, exponent, shape, balance, log, self.error, _, copied = (float(x) for x in arrays["numbers"])
        self.hyper = Hyper(KERNELS[int(kernel)], length, exponent, shape, balance, bool(log))
        self._units = Units(*(self._learned[name] for name in Units._fields))
        self._prepare(self._learned["a"].shape, (1, *self._learned["mean"].shape))
        self._split_by(bool(copied))
        self._phi = self._features(self._learned["a"], self._learned["scalars"])
        self._timely = len(self._phi)
        return self

    def _inputs(self, a: Array, scalars: Array | None) -> tuple[Array, Array]:
        if not self._learned:
            raise UserError("this kernel regression has not learned anything yet; call fit first")
        a, _, s = checked(a, a, scalars, least=0)
        known = [self._learned[name].shape[1:] for name in ("a", "scalars")]
        if [a.shape[1:], s.shape[1:]] != known:
            raise UserError(
                f"an input has shape {a.shape[1:]} and scalars {s.shape[1:]}, expected {known[0]} and {known[1]} as learned "
                "from; bring such ones"
            )
        return a, s

    def _prepare(self, a: tuple[int, ...], u: tuple[int, ...]) -> None:
        """The group, and which axes are periodic, from the shapes of a and u."""
        kinds = [(self.kind,) * (len(x) - 2) if isinstance(self.kind, str) else tuple(self.kind) for x in (a, u)]
        if [len(kind) for kind in kinds] != [len(a) - 2, len(u) - 2]:
            raise UserError(f"got {len(self.kind)} kinds of axes for inputs {a} and outputs {u}; give one for each axis")
        self._waves: list[Waves] = [tuple(k == "periodic" for k in kind) for kind in kinds]
        axes = (Axis(n, kind, name=name) for n, kind, name in zip(a[2:], kinds[0], "xyzt", strict=False))
        grid = Grid(tuple(axes)) if self.symmetries else Grid.uniform(2)
        few = math.gcd(4 if grid.dim == 1 else 2, *grid.shape)
        self._elements = group(self.symmetries, grid, few if self.shifts is None else self.shifts)
        self._shapes = a, u

    def _split_by(self, copied: bool) -> None:
        """Learn from symmetric copies or not."""
        self._copied = copied
        self._factors: list[list[tuple[Array, Array]]] = []
        self._split = Characters(
            self._elements if copied else self._elements[:1], *(np.zeros((1, *x[1:])) for x in self._shapes)
        )

    def _features(self, a: Array, scalars: Array) -> Array:
        weights = self._units.weights(self.hyper, a.shape[2:], self._waves[0])
        return np.asarray(self._units.modes(a, scalars, self.hyper.log, self._waves[0]) * weights)

    def _pairs(self, given: int) -> int:
        """How many pairs to learn from."""
        allowed, linear = memory_allowed(), self._needed(1, 0)
        fit = int((np.sqrt(linear**2 + 4 * 40 * allowed) - linear) / 80)
        pairs = min(given, self.most or max(2, min(ROWS, fit)), self._timely or given)
        if self._needed(pairs) > allowed:
            raise UserError(
                f"regression on {pairs} pairs needs {self._needed(pairs) / 1e9:.1f} GB of memory, {allowed / 1e9:.1f} GB are "
                f"allowed; set most={fit} to learn from a part of the pairs"
            )
        return pairs

    def _needed(self, rows: int, matrices: int = 5) -> int:
        """Bytes: some matrices of the kernel, and fields."""
        return 8 * rows * (matrices * rows + 8 * sum(int(np.prod(shape[1:])) for shape in self._shapes))

    def _choose(self, a: Array, u: Array, s: Array, rows: Labels, pairs: int, end: float) -> None:
        """Hyper-parameters and the nugget of each output mode, by leave-one-out errors: without symmetries, then with them."""
        stop = end if self.budget is None else end - self.budget / 3  # of the search
        images = self._elements if len(self._elements) <= ORBIT else self._elements[:1]
        some = rows[: max(2, FINE // len(images))]
        turned, tiled = np.concatenate([g.on_a(a[some]) for g in images]), np.tile(s[some], (len(images), 1))
        positive = bool((a > 0).all() and (turned > 0).all())
        if self.log and not positive:
            raise UserError("log = True, but inputs or their symmetric copies are not all positive; set log = False")
        logs = [False, True] if self.log is None and positive else [bool(self.log)]
        units = {log: Units.of(turned, tiled, log, self._waves[0]) for log in logs}
        a, u, s = a[rows], u[rows], s[rows]
        bands = self._bands(u.shape[1:])
        self._split_by(False)
        m = min(COARSE, len(a))
        errors = self._errors(units, a[:m], u[:m], s[:m], bands)
        kernels = AUTO if self.kernel == "auto" else (self.kernel,)
        grid = [Hyper(kernels[0], ell, e, log=log) for ell in (1.0, 4.0, 16.0) for e in (0.0, 1.0) for log in logs]
        start = min(grid, key=lambda h: score(errors(h)))
        ends = [descend(start._replace(kernel=kernel), errors, (1.0, 0.5), s.shape[1] > 0, stop) for kernel in kernels]
        self.hyper = min(ends, key=lambda h: score(errors(h)))
        self._units = units[self.hyper.log]
        self._split_by(self._may_copy(a[:4], s[:4], pairs))
        if self._copied or (len(a) > COARSE and time.monotonic() < stop):
            m = min(int(FINE / len(self._split.copies) / len(self._split.signs) ** (1 / 3)), len(a))  # work of so many rows
            errors = self._errors(units, a[:m], u[:m], s[:m], bands)
            self.hyper = descend(self.hyper, errors, (0.5,), s.shape[1] > 0, stop)
        if len(a) > FINE and not self._copied and time.monotonic() < stop:
            m, errors = len(a), self._errors(units, a, u, s, bands)
        begin = time.monotonic()
        level, nuggets = levels(errors(self.hyper, 1))
        if self.budget is not None:
            once = WHOLE * (time.monotonic() - begin) * LEVELS / len(NUGGETS)  # for m pairs
            solves = 4 if len(self._elements) > 1 and not self._copied else 2  # as large, of `fit` and `residuals`
            self._timely = max(m, int(m * (max(0.0, end - time.monotonic()) / (solves * once)) ** (1 / 3)))
        self._learned = {"level": level[bands].astype(np.float64), "nuggets": nuggets}

    def _may_copy(self, a: Array, s: Array, pairs: int) -> bool:
        """Whether symmetric copies can be learned from: they must be few, and the kernel must be the same for them."""
        if not 1 < len(self._elements) <= ORBIT:
            return False
        split = Characters(self._elements, *(np.zeros((1, *x[1:])) for x in self._shapes))
        rows = pairs * len(split.copies)
        if rows > ROWS or self._needed(rows, 4 + (1 + LEVELS) * len(split.signs)) > memory_allowed():
            return False
        grams = [self.hyper.gram(f, f) for f in (self._features(g.on_a(a), s) for g in self._elements)]
        return all(np.allclose(grams[0], k, rtol=1e-6, atol=1e-9) for k in grams)

    def _bands(self, shape: tuple[int, ...]) -> Labels:
        """The band of each output mode: by |k|, and by channel unless own maps may mix them."""
        k = np.sqrt(squared_waves(shape[1:], self._waves[1])).round()
        band = np.digitize(k, np.unique(np.geomspace(1, max(2.0, k.max()), BANDS).round()))
        apart = all(isinstance(name, str) for name in self.symmetries) * (int(band.max()) + 1)
        return np.concatenate([band + apart * channel for channel in range(shape[0])])

    def _errors(self, units: Mapping[bool, Units], a: Array, u: Array, s: Array, bands: Labels) -> Errors:
        """The function that gives Σ r² in each band, for a constant m and for every fourth of NUGGETS or more of them."""
        unit = unit_of(u, (0, *range(2, u.ndim))).reshape(-1, *(1 for _ in self._waves[1]))
        centre, labels = self._centre(u), np.tile(np.arange(len(a)), len(self._split.copies))
        parts = (*self._split.parts(u, centre), u, (u - centre) * len(a) / (len(a) - 1))
        pairs = [project(modes(part / unit, self._waves[1]).reshape(len(part), -1), bands) for part in parts]
        (*targets, zero, about), of = [y for y, _ in pairs], pairs[0][1]
        nothing = len(self._split.copies) * np.minimum(*(np.bincount(of, np.square(y).sum(axis=0)) for y in (zero, about)))
        turned = [g.on_a(a) for g in self._split.elements]
        turned_modes = {log: [scale.modes(x, s, log, self._waves[0]) for x in turned] for log, scale in units.items()}

        @cache
        def errors(h: Hyper, step: int = 4) -> Array:
            weights = units[h.log].weights(h, a.shape[2:], self._waves[0])
            phi = turned_modes[h.log][0] * weights
            grams = self._split.matrices(lambda g: h.gram(phi, turned_modes[h.log][self._split.elements.index(g)] * weights))
            found = [nothing]
            for nugget in NUGGETS[::step]:
                left = [regress(k, y, nugget, i == 0, labels)[2] for i, (k, y) in enumerate(zip(grams, targets, strict=True))]
                found.append(np.bincount(of, np.square(left).sum(axis=(0, 1))))
            return np.stack(found)

        return errors

    def _centre(self, u: Array, shrunk: NDArray[np.bool_] | None = None) -> Array:
        """The mean of outputs over all copies, (1, channel, *grid); of some modes by James and Stein's rule for each band."""
        each = np.mean([g.on_u(u) for g in self._split.elements], axis=0)
        mean, bands = modes(each.mean(axis=0, keepdims=True), self._waves[1]), self._bands(u.shape[1:])
        if shrunk is not None and shrunk.any():
            noise = modes(each, self._waves[1]).var(axis=0).ravel() / (len(u) - 1)
            size = np.bincount(bands, np.square(mean).ravel())
            factor = np.maximum(0, 1 - np.bincount(bands, noise) / np.where(size > 0, size, 1))
            mean *= np.where(shrunk, factor[bands], 1).reshape(mean.shape)
        return fields(mean, self._waves[1])

    def _learn(self, a: Array, u: Array, s: Array, labels: Labels) -> Array:
        """Solve for the coefficients; the residuals that leave out all rows of a label."""
        split, nuggets, level, waves, n = self._split, self._learned["nuggets"], self._learned["level"], self._waves[1], len(u)
        shape = u.shape[1:]
        self._phi = self._features(a, s)
        centre = self._centre(u, level < 0)
        grams = split.matrices(lambda g: self.hyper.gram(self._phi, self._features(g.on_a(a), s)))
        c, left, mean = np.zeros((len(grams[0]), *shape)), np.zeros(u.shape), centre.copy()
        scales, noise = np.zeros((len(grams), len(nuggets), *shape)), np.zeros(shape)

        def field(values: Array, at: NDArray[np.bool_]) -> Array:
            full = np.zeros((len(values), level.size))
            full[:, at] = values
            return fields(full.reshape(-1, *shape), waves)

        for x, (k, part) in enumerate(zip(grams, split.parts(u, centre), strict=True)):
            y = modes(part, waves).reshape(len(part), -1)
            live = np.abs(y).max(axis=0) > 1e-12 * np.abs(u).max()  # modes that belong to this character
            for i in range(-1, len(nuggets)):
                at = (level == i) & live
                if i < 0:  # nothing but noise
                    left += field(y[:n, at], at)
                    noise += np.square(field(y[:, at], at)).mean(axis=0)
                if i < 0 or not at.any():
                    continue
                found, constant, without = regress(k, y[:, at], nuggets[i], x == 0, np.tile(labels, len(split.copies)))
                c += (part_c := field(found, at))
                left += field(without[:n], at)
                mean += field(constant[None], at)
                scales[x, i] = (part_c * field(y[:, at], at)).sum(axis=0) / (len(y) - (x == 0))
                noise += nuggets[i] * scales[x, i]
        mean = np.mean([g.undo(mean) for g in self._elements], axis=0)[0]
        spread = np.sqrt(np.maximum(0, [*scales.reshape(-1, *shape), noise]))  # is the same at symmetric points
        spread = np.mean([(g.undo(spread) - g.undo(0 * spread[:1])) ** 2 for g in self._elements], axis=0)
        new = {"mean": mean, "coefficients": split.gather(c), "scales": spread[:-1].reshape(scales.shape), "noise": spread[-1]}
        self._learned = self._learned | self._units._asdict() | {"a": a, "scalars": s} | new
        return left

    def _variances(self, a: Array, scalars: Array | None) -> Array:
        """v(a) of each character and nugget, (sample, character, nugget): an average over symmetries without copies."""
        a, s = self._inputs(a, scalars)
        known, split, h = (self._learned["a"], self._learned["scalars"]), self._split, self.hyper

        def cross(phi: Array, g: Symmetry) -> Array:
            return h.gram(phi, self._features(g.on_a(known[0]), known[1]))

        if not self._factors:
            for k in split.matrices(partial(cross, self._phi)):
                factors = [cholesky_of(k, nugget) for nugget in self._learned["nuggets"]]
                self._factors.append([(factor, cho_solve((factor, True), np.ones(len(k)))) for factor in factors])
        images = self._elements[:1] if self._copied else self._elements
        found = np.zeros((len(a), *self._learned["scales"].shape[:2]))
        for image in images:
            phi = self._features(image.on_a(a), s)
            turned = [self._features(split.elements[g].on_a(image.on_a(a)), s) for g in split.subgroup]
            own = [h.of((phi * f).sum(axis=1), np.square(phi - f).sum(axis=1)) for f in turned]
            rows = split.matrices(partial(cross, phi), new=True)
            for x, k in enumerate(rows):
                for i, (factor, ones) in enumerate(self._factors[x]):
                    v = split.signs[x] @ own - np.square(solve_triangular(factor, k.T, lower=True)).sum(axis=0)
                    found[:, x, i] += (v + (x == 0) * (1 - k @ ones) ** 2 / ones.sum()) / len(images)
        return found


def _blocks(count: int, width: int) -> Iterator[slice]:
    rows = max(1, BLOCK // width)
    return (slice(first, first + rows) for first in range(0, count, rows))
