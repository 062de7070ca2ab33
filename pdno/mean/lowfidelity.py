r"""A cheap solver, corrected by another mean:

    m(a) = b·I s(a) + c(a),        c is trained on u − b·I s(a),

where s is, for instance, the same equation on a coarse grid, I interpolates to the grid of u, and b is a factor for each
channel. b is estimated by least squares together with an affine map c̃ of the inputs, as c can represent affine maps itself:

    b = argmin_b min_c̃ Σ_i ‖u_i − b·I s(a_i) − c̃(a_i)‖².

c̃ is zero, a constant, or affine in the leading components of the inputs; the more c̃ can represent, the larger is the variance
of b with noisy outputs. For each of the three, I is the interpolation with the smallest sum: linear, by cosines or by sines (by
Fourier series along periodic axes; `pdno.grid.interpolate`). Of the three pairs of I and b, the one is selected for which ridge
regression of u − b·I s(a) on a has the smallest leave-one-out error.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy, deepcopy
from inspect import Parameter, signature
from typing import Any, ClassVar, NamedTuple, Self, get_args

import numpy as np

from .._typing import Array, Floats, Ints
from ..basis import Condition, Kind
from ..data.pairs import Pairs
from ..draw import generator
from ..errors import UserError, nearest
from ..grid import Axis, Grid, interpolate
from ..learning.budget import Terms
from ..work.state import State
from .base import Mean, checked, inputs, named_state, pairs_of
from .build import mean_from_state
from .linear.linear import Linear
from .reuse import Reusable
from .sum import described

__all__ = ["LowFidelity"]

Solver = Callable[..., Array]

CONDITIONS: dict[str, Condition | None] = {"linear": None, "cosines": "neumann", "sines": "dirichlet"}  # by interpolation
NO_INTERPOLATION = "none"  # the solver has the grid of u
MOST_PAIRS = 500  # from which b and I are estimated
ROUNDING = 1e-20  # relative sum of squares: less of s beside c̃ is rounding error
RANK = 1e-10  # relative to the largest singular value: components with smaller ones are rounding error


class Target(NamedTuple):
    """The training outputs of the correction, and how they were computed.

    Args:
        shapes: of a solution of the solver and of u, (channel, *grid).
        interpolation: I.
        factor: b, (channel,).
        values: u − b·I s(a), in the shape of u.
    """

    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    interpolation: str
    factor: Floats
    values: Floats


class LowFidelity(Mean):
    """A solver with a trained correction.

    Args:
        solver: a (sample, channel, *grid) → u (sample, channel, *any grid). Scalars (sample, parameter) are its second argument
            if it requires one, or if that is named "scalars".
        correction: the mean that is trained on u − b·I s(a); default: Linear().
        scale: estimate b; otherwise it is one.
        kind: of the axes of the grids of s and u, one for all or one each.

    After training, `factor` is b, (channel,), and `interpolation` is "linear", "cosines", "sines", or "none" if the solver has
    the grid of u. The solver is code, which is not saved: `from_state` needs the same one.

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
            raise UserError(f"solver = {solver!r}: expected a function of a that returns u on any grid")
        if correction is not None and not isinstance(correction, Mean):
            raise UserError(f"correction = {correction!r}: expected a mean model, for instance pdno.mean.Linear()")
        for each in [kind] if isinstance(kind, str) else kind:
            if each not in get_args(Kind):
                raise UserError(f"kind {each!r} of an axis is unknown; {nearest(str(each), get_args(Kind))}")
        self.solver, self.scale, self.kind = solver, bool(scale), kind
        self.correction = Linear() if correction is None else correction
        self.parts, self.cheap_folds = (self.correction,), self.correction.cheap_folds
        self.factor: Floats = np.zeros(0)
        self.interpolation = NO_INTERPOLATION
        self._shapes: tuple[tuple[int, ...], ...] = ()  # see Target
        self._reusable: Reusable | None = None  # u − b·I s(a) of the training pairs

    def learn(self, pairs: Pairs, held_out: Pairs | None, terms: Terms) -> Self:
        given = (pairs.a, pairs.filled, pairs.scalars, terms.seed)
        target = self._target(*given)
        self.correction.learn(pairs.with_outputs(target.values), None, terms)
        self._shapes, self.interpolation, self.factor = target.shapes, target.interpolation, target.factor
        self._reusable = Reusable.of(target.values, *given)
        return self

    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        self._check()
        source, target = self._shapes
        s = self._solve(np.asarray(a, dtype=np.float64), scalars, target)
        if s.shape[1:] != source:
            raise self._error(
                f"returns fields of shape {s.shape[1:]}, expected {source} as in training", "use the same solver and grid"
            )
        return self._moved(s, target[1:], self.interpolation) * _column(self.factor, s.ndim) + self.correction(a, scalars)

    def residuals(
        self,
        a: Array,
        u: Array,
        scalars: Array | None = None,
        group: Ints | None = None,
        count: int = 5,
        seed: int = 0,
    ) -> Array:
        """Return the out-of-fold residuals of the correction, in closed form if it has one.

        b and I are estimated from all pairs, not again for each fold: they are one number per channel and one choice. The
        solver runs once; on the training pairs it does not run again.
        """
        target = None
        if self._reusable is not None and self._reusable.fits(a, u, scalars, seed):
            target, self._reusable = self._reusable.values, None  # it takes as much memory as u
        if target is None:
            target = self._target(a, u, scalars, seed).values
        return self.correction.residuals(a, target, scalars, group, count, seed)

    def describe(self) -> str:
        """Describe factor, interpolation and correction in a sentence."""
        if not self._shapes:
            return f"A solver ({self._name}) whose correction has not been trained."
        factors, moved = " and ".join(f"{b:.3g}" for b in self.factor), ""
        if self.interpolation != NO_INTERPOLATION:
            moved = f", interpolated {'linearly' if self.interpolation == 'linear' else f'by {self.interpolation}'}"
        return f"The solver {self._name} times {factors}{moved}; its correction: {described(self.correction)}."

    def state(self) -> State:
        self._check()
        kind = self.kind if isinstance(self.kind, str) else list(self.kind)
        settings: dict[str, Any] = {"kind": kind, "scale": self.scale, "interpolation": self.interpolation}
        settings["shapes"] = [list(shape) for shape in self._shapes]
        return State(settings, {"factor": self.factor}, {"correction": named_state(self.correction)})

    @classmethod
    def from_state(cls, state: State, solver: Solver | None = None) -> Self:
        """Restore what `state` returned; the solver is code, which is not saved: pass the same one.

        Raises:
            UserError: if no solver is passed, or arrays are missing.
        """
        if solver is None:
            raise UserError(
                "the solver of a LowFidelity mean is code, which is not saved; pass it: "
                "pdno.load(…, mean=lambda state: LowFidelity.from_state(state, solver))"
            )
        if "factor" not in state.arrays:
            raise UserError("the array 'factor' of a LowFidelity mean is missing; save it again")
        kind = state.settings["kind"]
        new = cls(solver, mean_from_state(state.parts["correction"]), state.settings["scale"], kind)
        new.factor = np.array(state.arrays["factor"], dtype=np.float64)
        new.interpolation = str(state.settings["interpolation"])
        new._shapes = tuple(tuple(shape) for shape in state.settings["shapes"])
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy with the same solver, which may hold objects that cannot be copied."""
        new = copy(self)
        new.correction = deepcopy(self.correction, memo)
        new.parts = (new.correction,)
        return new

    def _target(self, a: Array, u: Array, scalars: Array | None, seed: int) -> Target:
        """Estimate b and I; return the outputs that the correction is trained on."""
        a, u, _ = checked(a, u, scalars)
        s, grid = self._solve(a, scalars, u.shape[1:]), u.shape[2:]
        rows = np.sort(generator(seed, "lowfidelity", 0).permutation(len(u))[:MOST_PAIRS])
        names = [NO_INTERPOLATION] if s.shape == u.shape else list(CONDITIONS)
        moved = {name: self._moved(s[rows], grid, name) for name in names}
        name, factor = _best(a[rows], u[rows], moved, None if scalars is None else scalars[rows], self.scale)
        values = u - self._moved(s, grid, name) * _column(factor, u.ndim)
        return Target((s.shape[1:], u.shape[1:]), name, factor, values)

    def _solve(self, a: Array, scalars: Array | None, shape: tuple[int, ...]) -> Floats:
        """Return the solver's solutions, (sample, channel, *its grid); raise UserError unless they can be interpolated to u."""
        solution = self._call(a, scalars)
        try:
            s = np.asarray(solution, dtype=np.float64)
        except (TypeError, ValueError):
            raise self._error(
                f"returns {type(solution).__name__}, expected an array of numbers", "return a NumPy array"
            ) from None
        expected = f"expected ({len(a)}, {', '.join([str(shape[0]), *('points' for _ in shape[1:])])})"
        if s.ndim != len(shape) + 1 or s.shape[:2] != (len(a), shape[0]):
            raise self._error(f"returns shape {s.shape}, {expected}", "return (sample, channel, *grid) as u has")
        if any(n != m and min(n, m) < 2 for n, m in zip(s.shape[2:], shape[1:], strict=True)):
            raise self._error(
                f"returns shape {s.shape}, which cannot be interpolated to {shape}, {expected}",
                "return at least two points along each axis",
            )
        if not np.isfinite(s).all():
            bad = np.flatnonzero(~np.isfinite(s).reshape(len(s), -1).all(axis=1))
            raise self._error(
                f"returns NaN or infinite values for {len(bad)} of {len(s)} inputs, the first of which is number {bad[0]}, "
                "expected finite numbers",
                "correct it, or remove such inputs",
            )
        return s

    def _call(self, a: Array, scalars: Array | None) -> Any:
        """Return what the solver returns, called with scalars if it takes them."""
        second = _second(self.solver)
        if second is None or (second.default is not Parameter.empty and second.name != "scalars"):
            return self.solver(a)
        if scalars is None and second.default is Parameter.empty:
            raise self._error("takes two arguments, but there are no scalars", "give scalars, or a solver of a alone")
        return self.solver(a, scalars)

    def _moved(self, v: Array, grid: tuple[int, ...], interpolation: str) -> Array:
        """Interpolate fields to another grid; linearly along axes that have no series ("left") or no sines (two points)."""
        kinds = [self.kind] * len(grid) if isinstance(self.kind, str) else list(self.kind)
        if len(kinds) != len(grid):
            raise UserError(f"got {len(kinds)} kinds of axes for a grid of {grid}; give one for each axis, or one for all")
        for i, (points, kind) in enumerate(zip(grid, kinds, strict=True), start=2):
            if v.shape[i] == points:
                continue
            source, target = (Grid((Axis(n, kind),)) for n in (v.shape[i], points))
            series = interpolation != "linear" and kind != "left" and min(source.shape + target.shape) > 2
            condition = CONDITIONS[interpolation] if series and kind != "periodic" else None
            moved = interpolate(np.moveaxis(v, i, -1), source, target, "spectral" if series else "linear", condition)
            v = np.moveaxis(moved, -1, i)
        return v

    def _check(self) -> None:
        if not self._shapes:
            raise UserError(f"the correction of {self._name} has not been trained; call fit(a, u) first")

    def _error(self, problem: str, remedy: str) -> UserError:
        return UserError(f"the solver {self._name} {problem}; {remedy}")

    @property
    def _name(self) -> str:
        solver = getattr(self.solver, "func", self.solver)  # of a functools.partial
        return repr(getattr(solver, "__qualname__", type(solver).__name__).rsplit("<locals>.")[-1])


def _column(factor: Floats, ndim: int) -> Floats:
    return factor.reshape(-1, *(1 for _ in range(ndim - 2)))


def _second(solver: Solver) -> Parameter | None:
    """Return the second positional parameter of a function; None if it has none."""
    try:
        parameters = signature(solver).parameters.values()
    except ValueError:  # compiled functions may have no signature
        return None
    positional = [p for p in parameters if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    return positional[1] if len(positional) > 1 else None


def _bases(x: Floats) -> list[Floats]:
    """Return orthonormal columns (sample, column) for each c̃: none; a constant; that and at most n/2 leading components."""
    n = len(x)
    x = x - x.mean(axis=0)
    unit = x.std(axis=0)
    left, size, _ = np.linalg.svd(x / np.where(unit > 0, unit, 1), full_matrices=False)
    leading = left[:, size > RANK * size.max(initial=0)][:, : n // 2]
    constant = np.full((n, 1), n**-0.5)
    return [np.zeros((n, 0)), constant, np.concatenate([constant, leading], axis=1)]


def _beside(v: Array, q: Floats) -> Floats:
    """Return fields minus their projection on orthonormal columns q: (sample, channel, node)."""
    flat = v.reshape(len(v), -1)
    return np.asarray(flat - q @ (q.T @ flat)).reshape(*v.shape[:2], -1)


def _least_squares(u: Array, s: Array, q: Floats, scale: bool, otherwise: Floats) -> tuple[Floats, float]:
    """Return b of each channel by least squares together with q, and the relative sum of squares of the residual.

    Args:
        u, s: outputs and interpolated solutions, (sample, channel, *grid).
        q: orthonormal columns of c̃.
        scale: whether b is estimated.
        otherwise: b if it is not estimated, or where s is in the span of q.
    """
    y, z = _beside(u, q), _beside(s, q)
    size, total = (np.square(v).sum(axis=(0, 2)) for v in (z, s.reshape(z.shape)))
    determined = size > ROUNDING * total
    b = np.where(determined, (y * z).sum(axis=(0, 2)) / np.where(determined, size, 1), otherwise) if scale else otherwise
    return b, _relative(y - b[:, None] * z, y)


def _relative(residual: Floats, u: Floats) -> float:
    """Return the sum over channels of Σ residual² / Σ u², both (sample, channel, node)."""
    part, whole = (np.square(v).sum(axis=(0, 2)) for v in (residual, u))
    return float((part / np.where(whole > 0, whole, 1)).sum())


def _best(a: Array, u: Array, moved: Mapping[str, Array], scalars: Array | None, scale: bool) -> tuple[str, Floats]:
    """Return I and b: the best with each c̃, and of these the one with the smallest leave-one-out error of an affine correction.

    Args:
        a, u, scalars: pairs.
        moved: solutions on the grid of u, by interpolation.
        scale: whether b is estimated.
    """
    candidates: list[tuple[str, Floats]] = []
    for q in _bases(inputs(a, scalars)):
        otherwise = candidates[-1][1] if candidates else np.ones(u.shape[1])
        fits = {name: _least_squares(u, s, q, scale, otherwise) for name, s in moved.items()}
        name = min(fits, key=lambda each: fits[each][1])
        candidates.append((name, fits[name][0]))
    if len(u) < 2 or (not scale and len({name for name, _ in candidates}) == 1):
        return candidates[0]
    affine, flat = Linear(log=False, degree=1, sparse=False), u.reshape(*u.shape[:2], -1)
    targets = [u - moved[name] * _column(b, u.ndim) for name, b in candidates]
    labels = pairs_of(a, u, scalars).shared_labels()
    group = None if labels is None or not labels.any() else labels
    errors = [_relative(affine.residuals(a, target, scalars, group).reshape(flat.shape), flat) for target in targets]
    return candidates[int(np.argmin(errors))]
