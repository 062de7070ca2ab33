r"""A cheap solver of one's own, corrected by another mean operator:

    m(a) = b·I s(a) + c(a),        c learns u − b·I s(a),

where s is, for instance, the same equation on a coarse grid, I interpolates to the grid of u, and b is a factor for each
channel, by least squares beside an affine map of the inputs, since what is affine c can do without the solver:

    b = argmin_b min_c̃ Σ_i ‖u_i − b·I s(a_i) − c̃(a_i)‖².

c̃ has the leading components of the inputs, or is a constant, or zero: noise leaves less to know b by, the more c̃ can do. I is
linear, by cosines or by sines (by Fourier series along periodic axes; `pdno.grid.interpolate`), whichever leaves least of that
sum. Of the three pairs of I and b, that one is taken for which ridge regression on u − b·I s(a) is best at pairs it leaves out.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from inspect import Parameter, signature
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray

from ..basis import Condition, Kind
from ..draw import generator
from ..errors import UserError, nearest
from ..grid import Axis, Grid, interpolate
from .base import Array, Mean, checked, inputs
from .linear.linear import Linear
from .sum import described, restored

__all__ = ["LowFidelity"]

Solver = Callable[..., Array]

CONDITIONS: dict[str, Condition | None] = {"linear": None, "cosines": "neumann", "sines": "dirichlet"}
WAYS = ("nothing", *CONDITIONS)  # of interpolation; "nothing" where grids are the same
TRIAL = 500  # pairs that tell b and I, if there are more
ROUNDING = 1e-20  # of a sum of squares


class LowFidelity(Mean):
    """A solver and what corrects it.

    Args:
        solver: a (sample, channel, *grid) → u (sample, channel, *any grid). It is given scalars (sample, parameter) as a
            second argument if it cannot do without one, or calls it "scalars".
        correction: the mean that learns u − b·I s(a); None for Linear().
        scale: find b; otherwise it is one.
        kind: of the axes of the grids of s and u, one for all or one each.

    Once it has learned, `factor` is b, (channel,), and `way` is how it interpolates. The solver is code and not saved:
    `restore` needs an object that is made with the same one.

    >>> a = np.random.default_rng(0).normal(size=(60, 1, 8))
    >>> mean = LowFidelity(lambda a: np.sin(a)).fit(a, 3 * np.sin(a) + a)
    >>> bool(np.allclose(mean(2 * a), 3 * np.sin(2 * a) + 2 * a)), mean.factor.round(9).tolist()
    (True, [3.0])
    """

    name: ClassVar[str] = "lowfidelity"

    def __init__(
        self, solver: Solver, correction: Mean | None = None, scale: bool = True, kind: Kind | Sequence[Kind] = "cell"
    ) -> None:
        if not callable(solver):
            raise UserError(f"solver = {solver!r}: expected a function of a; give one that returns u on any grid")
        if correction is not None and not isinstance(correction, Mean):
            raise UserError(f"correction = {correction!r}: expected a mean operator; give for instance Linear()")
        for each in [kind] if isinstance(kind, str) else kind:
            if each not in get_args(Kind):
                raise UserError(f"kind {each!r} of an axis is unknown; {nearest(str(each), get_args(Kind))}")
        self.solver, self.scale, self.kind = solver, bool(scale), kind
        self.correction = Linear() if correction is None else correction
        self.factor: Array = np.zeros(0)
        self.way = WAYS[0]
        self._shapes: tuple[tuple[int, ...], ...] = ()  # of an answer of the solver, and of u

    @property
    def inner(self) -> tuple[Mean, ...]:
        return (self.correction,)

    def fit(self, a: Array, u: Array, scalars: Array | None = None, seed: int = 0) -> Self:
        shapes, way, factor, target = self._target(a, u, scalars, seed)
        self.correction.fit(a, target, scalars, seed)
        self._shapes, self.way, self.factor = shapes, way, factor
        return self

    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        self._check()
        source, target = self._shapes
        s = self._solve(np.asarray(a, dtype=np.float64), scalars, target)
        if s.shape[1:] != source:
            raise self._wrong(
                f"gives fields of shape {s.shape[1:]}, expected {source} as in learning", "bring the same solver and grid"
            )
        return self._moved(s, target[1:], self.way) * _column(self.factor, s.ndim) + self.correction(a, scalars)

    def residuals(
        self,
        a: Array,
        u: Array,
        scalars: Array | None = None,
        group: NDArray[np.integer] | None = None,
        count: int = 5,
        seed: int = 0,
    ) -> Array:
        """Those of the correction, in closed form where it has one; the solver runs once.

        b and I are found from all pairs and not again for each fold: a number a channel and one choice, from all points.
        """
        target = self._target(a, u, scalars, seed)[-1]
        return self.correction.residuals(a, target, scalars, group, count, seed)

    def describe(self) -> str:
        """What was found, in a sentence."""
        if not self._shapes:
            return f"A solver ({self._name}) whose correction has not learned yet."
        times = " and ".join(f"{b:.3g}" for b in self.factor)
        how = "" if self.way == WAYS[0] else f", interpolated {'linearly' if self.way == 'linear' else f'by {self.way}'}"
        return f"The solver {self._name} times {times}{how}; its correction: {described(self.correction)}."

    def settings(self) -> dict[str, Any]:
        kind = self.kind if isinstance(self.kind, str) else list(self.kind)
        correction = {"name": self.correction.name, **self.correction.settings()}
        return {"kind_of_axes": kind, "scale": self.scale, "correction": correction}

    def arrays(self) -> dict[str, Array]:
        self._check()
        own = {"factor": self.factor, "way": [WAYS.index(self.way)], "solver_shape": self._shapes[0], "shape": self._shapes[1]}
        found = {name: np.array(values, dtype=np.float64) for name, values in own.items()}
        return found | {f"correction.{name}": values for name, values in self.correction.arrays().items()}

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        names = ("factor", "way", "solver_shape", "shape")
        if missing := [name for name in names if name not in arrays]:
            raise UserError(f"arrays {missing} of a corrected solver are missing, expected {list(names)}; save it again")
        restored(self.correction, {name: values for name, values in arrays.items() if name not in names}, "correction.")
        self.factor, self.way = np.array(arrays["factor"], dtype=np.float64), WAYS[int(arrays["way"][0])]
        self._shapes = tuple(tuple(int(n) for n in arrays[name]) for name in names[2:])
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with the same solver, which may hold what cannot be copied."""
        new = copy(self)
        new.correction = deepcopy(self.correction, memo)
        return new

    def _target(
        self, a: Array, u: Array, scalars: Array | None, seed: int
    ) -> tuple[tuple[tuple[int, ...], ...], str, Array, Array]:
        """Shapes of an answer and of u, the best interpolation, b, and u − b·I s(a)."""
        a, u, _ = checked(a, u, scalars)
        s, grid = self._solve(a, scalars, u.shape[1:]), u.shape[2:]
        rows = np.sort(generator(seed, "lowfidelity", 0).permutation(len(u))[:TRIAL])
        ways = WAYS[:1] if s.shape == u.shape else WAYS[1:]
        moved = {way: self._moved(s[rows], grid, way) for way in ways}
        way, factor = _best(a[rows], u[rows], moved, None if scalars is None else scalars[rows], self.scale)
        return (s.shape[1:], u.shape[1:]), way, factor, u - self._moved(s, grid, way) * _column(factor, u.ndim)

    def _solve(self, a: Array, scalars: Array | None, shape: tuple[int, ...]) -> Array:
        """The solver's answer, checked against the shape of one u."""
        answer = self._answer(a, scalars)
        try:
            s = np.asarray(answer, dtype=np.float64)
        except (TypeError, ValueError):
            raise self._wrong(f"returns {type(answer).__name__}, expected an array of numbers", "return one") from None
        expected = f"expected ({len(a)}, {', '.join([str(shape[0]), *('points' for _ in shape[1:])])})"
        if s.ndim != len(shape) + 1 or s.shape[:2] != (len(a), shape[0]):
            raise self._wrong(f"returns shape {s.shape}, {expected}", "return (sample, channel, *grid) as u has")
        if any(n != m and min(n, m) < 2 for n, m in zip(s.shape[2:], shape[1:], strict=True)):
            raise self._wrong(
                f"returns shape {s.shape}, which cannot be interpolated to {shape}, {expected}",
                "give at least two points along each axis",
            )
        if not np.isfinite(s).all():
            bad = np.flatnonzero(~np.isfinite(s).reshape(len(s), -1).all(axis=1))
            raise self._wrong(
                f"returns values that are NaN or infinite, for {len(bad)} of {len(s)} inputs, the first being number {bad[0]}; "
                "expected numbers",
                "mend it, or leave such inputs out",
            )
        return s

    def _answer(self, a: Array, scalars: Array | None) -> Any:
        second = _second(self.solver)
        if second is None or (second.default is not Parameter.empty and second.name != "scalars"):
            return self.solver(a)
        if scalars is None and second.default is Parameter.empty:
            raise self._wrong("takes two arguments, but there are no scalars", "give scalars, or a solver of a alone")
        return self.solver(a, scalars)

    def _moved(self, v: Array, grid: tuple[int, ...], way: str) -> Array:
        """Values on another grid. A left axis has no series, and one of two points no sines: linear there."""
        kinds = [self.kind] * len(grid) if isinstance(self.kind, str) else list(self.kind)
        if len(kinds) != len(grid):
            raise UserError(f"got {len(kinds)} kinds of axes for a grid of {grid}; give one for each axis, or one for all")
        for i, (points, kind) in enumerate(zip(grid, kinds, strict=True), start=2):
            if v.shape[i] == points:
                continue
            source, target = (Grid((Axis(n, kind),)) for n in (v.shape[i], points))
            series = way != "linear" and kind != "left" and min(source.shape + target.shape) > 2
            condition = CONDITIONS[way] if series and kind != "periodic" else None
            moved = interpolate(np.moveaxis(v, i, -1), source, target, "spectral" if series else "linear", condition)
            v = np.moveaxis(moved, -1, i)
        return v

    def _check(self) -> None:
        if not self._shapes:
            raise UserError(f"the correction of {self._name} has not learned yet; call fit(a, u) or restore(arrays) first")

    def _wrong(self, what: str, todo: str) -> UserError:
        return UserError(f"the solver {self._name} {what}; {todo}")

    @property
    def _name(self) -> str:
        solver = getattr(self.solver, "func", self.solver)  # of a partial one
        return repr(getattr(solver, "__qualname__", type(solver).__name__).rsplit("<locals>.")[-1])


def _column(factor: Array, ndim: int) -> Array:
    return factor.reshape(-1, *(1 for _ in range(ndim - 2)))


def _second(solver: Solver) -> Parameter | None:
    """What a function calls the second of its arguments that have a place."""
    try:
        parameters = signature(solver).parameters.values()
    except ValueError:  # compiled functions may have none
        return None
    places = [p for p in parameters if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    return places[1] if len(places) > 1 else None


def _bases(x: Array) -> list[Array]:
    """Orthonormal columns: none; a constant; that and as many components of inputs as half the pairs."""
    n = len(x)
    x = x - x.mean(axis=0)
    unit = x.std(axis=0)
    left, size, _ = np.linalg.svd(x / np.where(unit > 0, unit, 1), full_matrices=False)
    leading = left[:, size > 1e-10 * size.max(initial=0)][:, : n // 2]
    constant = np.full((n, 1), n**-0.5)
    return [np.zeros((n, 0)), constant, np.concatenate([constant, leading], axis=1)]


def _beside(v: Array, q: Array) -> Array:
    """What orthonormal columns leave of a field, (sample, channel, point)."""
    flat = v.reshape(len(v), -1)
    return np.asarray(flat - q @ (q.T @ flat)).reshape(*v.shape[:2], -1)


def _fitted(u: Array, s: Array, q: Array, scale: bool, otherwise: Array) -> tuple[Array, float]:
    """b of each channel by least squares beside q, which may have all of s in its span, and the part of u that they leave."""
    y, z = _beside(u, q), _beside(s, q)
    size, all_of = (np.square(v).sum(axis=(0, 2)) for v in (z, s.reshape(z.shape)))
    known = size > ROUNDING * all_of
    b = np.where(known, (y * z).sum(axis=(0, 2)) / np.where(known, size, 1), otherwise) if scale else otherwise
    return b, _relative(y - b[:, None] * z, y)


def _relative(left: Array, u: Array) -> float:
    """Mean squares of one over those of the other, (sample, channel, point), summed over channels."""
    part, whole = (np.square(v).sum(axis=(0, 2)) for v in (left, u))
    return float((part / np.where(whole > 0, whole, 1)).sum())


def _best(a: Array, u: Array, moved: Mapping[str, Array], scalars: Array | None, scale: bool) -> tuple[str, Array]:
    """Interpolation and b: the best beside each basis, and of these what an affine map corrects best, pairs being left out."""
    found: list[tuple[str, Array]] = []
    for q in _bases(inputs(a, scalars)):
        otherwise = found[-1][1] if found else np.ones(u.shape[1])
        fits = {way: _fitted(u, s, q, scale, otherwise) for way, s in moved.items()}
        way = min(fits, key=lambda each: fits[each][1])
        found.append((way, fits[way][0]))
    if len(u) < 2 or (not scale and len({way for way, _ in found}) == 1):
        return found[0]
    judge, flat = Linear(log=False, degree=1, sparse=False), u.reshape(*u.shape[:2], -1)
    left = [judge.residuals(a, u - moved[way] * _column(b, u.ndim), scalars).reshape(flat.shape) for way, b in found]
    return found[int(np.argmin([_relative(each, flat) for each in left]))]
