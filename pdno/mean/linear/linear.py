r"""Affine maps from features of an input to the output, whose features and penalties are selected by cross-validation.

    m(a) = b + Bᵀφ(x),

where φ are the values of a and the scalars, or their logarithms, and products of their leading components
(`pdno.mean.linear.features`). B is estimated by ridge regression in modes of the output (`pdno.mean.linear.ridge`) or, if few
inputs matter to each output, by least squares on those alone (`pdno.mean.linear.sparse`). Generalised cross-validation, or
that on folds of whole groups of dependent pairs, selects logarithms, products, the basis of modes and penalties; the sparse map
is compared on one fold of five.
"""

from dataclasses import fields
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..._typing import Array, Floats, Ints, Mask
from ...data.pairs import Pairs
from ...data.split import folds
from ...draw import generator
from ...errors import UserError, nearest
from ...learning.budget import Terms
from ...work.state import State
from ..base import AnyGrid, Mean, checked, inputs, refitted
from ..reuse import Reusable
from .features import Features
from .ridge import BASES, EXACT, FINEST, Affine, Ridge, relative_error
from .shifts import MOST_VALUES, Shifts
from .sparse import sparse_map

__all__ = ["Linear"]

Auto = Literal["auto"]

MOST_PAIRS = 2048  # that select features, if there are more pairs and more inputs than that
FEWEST_USED = 0.05  # inputs of an output, on average, below which none is said to explain it
FOLDS = 5  # of which one is held out to compare a sparse map with ridge regression
ALLOWED: dict[str, tuple[Any, ...]] = {
    "log": (True, False, "auto"),
    "degree": (1, 2, "auto"),
    "smooth": (False, *BASES[1:], "auto"),
    "sparse": (True, False, "auto"),
}


class Fit(NamedTuple):
    """Features and the ridge regression on them."""

    features: Features
    ridge: Ridge


class Sparse(NamedTuple):
    """Features, the sparse map of them, and its score, see `Linear`."""

    features: Features
    map: Affine
    score: float


class Linear(Mean, AnyGrid):
    """Ridge regression on selected features, or sparse least squares.

    Args:
        log: take logarithms of channels and scalars that are positive; "auto" if that is better.
        degree: 1 for an affine map, 2 with squares and products of the leading components; "auto" if that is better.
        smooth: basis of the outputs, "cosines" or "polynomials", or False for none; "auto" selects the best of the three.
        sparse: use only the few inputs that matter to each output; "auto" if that is better, True wherever there are few.
        penalty: λ of all modes, for inputs of unit variance; "auto" by generalised cross-validation for each band of modes.
        components: maximum number of leading components whose products are taken; products are fewer than half the pairs.

    After training, `score` is the cross-validated mean square error relative to the variance of the outputs, noise included;
    `logged`, `products`, `basis`, `penalties` and `is_sparse` are what was selected, and `describe` puts it into words.

    Good values: the defaults. 10,000 pairs of 256 values take three seconds on one core, 1000 of 64² take six.

    >>> a = np.random.default_rng(0).normal(size=(50, 1, 8))
    >>> mean = Linear().fit(a, 3 * a[:, :, ::-1] + 1)
    >>> bool(np.allclose(mean(2 * a), 6 * a[:, :, ::-1] + 1))
    True
    """

    name: ClassVar[str] = "linear"

    def __init__(
        self,
        log: bool | Auto = "auto",
        degree: Literal[1, 2] | Auto = "auto",
        smooth: Literal[False, "cosines", "polynomials"] | Auto = "auto",
        sparse: bool | Auto = "auto",
        penalty: float | Auto = "auto",
        components: int = 30,
    ) -> None:
        self.log, self.degree, self.smooth, self.sparse = log, degree, smooth, sparse
        self.penalty, self.components = penalty, components
        for key, allowed in ALLOWED.items():
            value = getattr(self, key)
            if not any(value == each and type(value) is type(each) for each in allowed):
                raise UserError(f"{key} = {value!r} is unknown; {nearest(str(value), map(str, allowed))}")
        if penalty != "auto" and not (_is(penalty, int | float) and 0 <= float(penalty) < np.inf):
            raise UserError(f"penalty = {penalty!r}: expected a non-negative number or 'auto'")
        if not _is(components, int) or components < 1:
            raise UserError(f"components = {components!r}: expected a positive integer")
        self._features: Features | None = None
        self._reusable: Reusable | None = None  # leave-one-out residuals of the training pairs

    def learn(self, pairs: Pairs, held_out: Pairs | None, terms: Terms) -> Self:
        given, labels = (pairs.a, pairs.filled, pairs.scalars, terms.seed), _several(pairs.shared_labels())
        (features, ridge), sparse = self._select(*given, labels)
        left = None if sparse or labels is not None else ridge.left_out()
        self._reusable = Reusable.of(left, *given) if labels is None else None
        self._features, self._map, self.score = sparse or (features, ridge.affine(), ridge.score)
        self.basis = "nodes" if sparse else ridge.basis
        self.penalties = np.zeros(0) if sparse else ridge.penalty
        self._shape = ridge.shape
        return self

    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        features = self._trained()
        x, expected = inputs(a, scalars), len(features.scale)
        if x.shape[1] != expected:
            raise UserError(
                f"an input has {x.shape[1]} values, expected {expected} as in training; give the same channels and scalars on "
                "the same grid"
            )
        return self._map(features(x)).reshape(len(x), *self._shape)

    @property
    def any_grid(self) -> bool:
        """Whether each output is a sum of a few displaced values of the input."""
        return self._shifts() is not None

    def on_grid(self, a: Array, scalars: Array | None = None) -> Array:
        shifts = self._shifts()
        if shifts is None or a.shape[1] != shifts.channels or scalars is not None:
            raise UserError("this linear mean is not a sum of a few displaced values; interpolate inputs to its own grid")
        return shifts(a)

    def _shifts(self) -> Shifts | None:
        """Return the map as a sum of displaced values; None if it is not one."""
        features, size = self._trained(), int(np.prod(self._shape[1:]))
        values = len(features.scale)
        if features.logged.any() or features.leading.size or values > MOST_VALUES or values % size:
            return None
        constant = self._map(features(np.zeros((1, values))))[0]
        return Shifts.of(self._map(features(np.eye(values))) - constant, constant, values // size, self._shape)

    def residuals(
        self,
        a: Array,
        u: Array,
        scalars: Array | None = None,
        group: Ints | None = None,
        count: int = 5,
        seed: int = 0,
    ) -> Array:
        """Return leave-one-out residuals, in closed form; those of folds if pairs have groups or the map is sparse.

        On the training pairs the closed form is the one that `learn` computed.
        """
        if group is None or len(np.unique(group)) == len(group):
            closed = self._leave_one_out(a, u, scalars, seed)
            if closed is not None:
                return closed
        return refitted(self, a, u, scalars, group, count, seed)

    def _leave_one_out(self, a: Array, u: Array, scalars: Array | None, seed: int) -> Array | None:
        """Return leave-one-out residuals; None if they have no closed form."""
        reusable = self._reusable
        if reusable is not None and reusable.fits(a, u, scalars, seed):
            self._reusable = None  # it takes as much memory as u
            return None if reusable.values is None else reusable.values.copy()
        (_, ridge), sparse = self._select(a, u, scalars, seed, None)
        return None if sparse else ridge.left_out()

    @property
    def logged(self) -> bool:
        """Whether the logarithm of any input is taken."""
        return self._features is not None and bool(self._features.logged.any())

    @property
    def products(self) -> int:
        """Number of leading components whose products are taken; 0 for an affine map."""
        return 0 if self._features is None else self._features.leading.shape[1]

    @property
    def is_sparse(self) -> bool:
        """Whether few inputs matter to each output."""
        return self._features is not None and not len(self.penalties)

    def describe(self) -> str:
        """Describe the selected features and penalties in a sentence."""
        if self._features is None:
            return "A linear mean that has not been trained."
        values = len(self._features.scale)
        if self.is_sparse:
            used = np.count_nonzero(self._map.modes) / self._map.modes.shape[1]
            text = f"Least squares on {used:.1f} of {values} inputs for each output, on average"
            text = text if used >= FEWEST_USED else f"Least squares: none of {values} inputs explains the outputs"
        else:
            least, most = (f"{p:.1g}".replace("inf", "∞ (no input)") for p in (self.penalties.min(), self.penalties.max()))
            text = f"Ridge regression on {values} inputs with a penalty "
            text += f"of {least}" if least == most else f"from {least} to {most}"
            text += "" if self.basis == "nodes" else f" by bands of {self.basis} of the output"
        text += ", logarithms of positive inputs" if self.logged else ""
        text += f", products of {self.products} leading components" if self.products else ""
        if not np.isfinite(self.score):
            return f"{text}; there are too few pairs for cross-validation."
        return f"{text}; the cross-validated mean square error, noise included, is {self.score:.3g} of the outputs' variance."

    def state(self) -> State:
        features = self._trained()
        penalty = self.penalty if self.penalty == "auto" else float(self.penalty)
        settings = {**{key: getattr(self, key) for key in ALLOWED}, "penalty": penalty, "components": self.components}
        arrays = {field.name: getattr(part, field.name) for part in (features, self._map) for field in fields(part)}
        shape, basis = np.array(self._shape, dtype=np.float64), np.array([BASES.index(self.basis)], dtype=np.float64)
        arrays |= {"shape": shape, "basis": basis, "penalties": self.penalties, "score": np.array([self.score])}
        return State(settings, arrays)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned.

        Raises:
            UserError: if arrays are missing.
        """
        parts = [[field.name for field in fields(part)] for part in (Features, Affine)]
        names = [*parts[0], *parts[1], "shape", "basis", "penalties", "score"]
        if missing := [name for name in names if name not in state.arrays]:
            raise UserError(f"arrays {missing} of a linear mean are missing, expected {names}; save it again")
        new, arrays = cls(**state.settings), {name: np.array(state.arrays[name], dtype=np.float64) for name in names}
        new._features = Features(**{name: arrays[name] for name in parts[0]})
        new._map = Affine(**{name: arrays[name] for name in parts[1]})
        new._shape, new.basis = tuple(map(int, arrays["shape"])), BASES[int(arrays["basis"][0])]
        new.penalties, new.score = arrays["penalties"], float(arrays["score"][0])
        return new

    def _trained(self) -> Features:
        if self._features is None:
            raise UserError("this linear mean has not been trained; call fit(a, u) first")
        return self._features

    def _select(self, a: Array, u: Array, scalars: Array | None, seed: int, labels: Ints | None) -> tuple[Fit, Sparse | None]:
        """Return the best ridge regression, and the sparse map if that is better; some of many pairs select the features."""
        a, u, s = checked(a, u, scalars)
        if not (x := inputs(a, s)).shape[1]:
            raise UserError("inputs have neither values nor scalars; give at least one of them")
        group = np.repeat(np.arange(a.shape[1]), int(np.prod(a.shape[2:])))
        group = np.append(group, a.shape[1] + np.arange(x.shape[1] - len(group)))  # number of the channel or scalar
        logarithms = self._logarithms(x, group)
        if min(x.shape) > MOST_PAIRS:
            rows = np.sort(generator(seed, "linear", 0).permutation(len(x))[:MOST_PAIRS])
            some = None if labels is None else labels[rows]
            best = self._fit(self._select_features(x[rows], u[rows], group, logarithms, some).features, x, u, labels)
        else:
            best = self._select_features(x, u, group, logarithms, labels)
        wanted = self.sparse is True or (self.sparse == "auto" and best.ridge.score > EXACT)
        return best, self._sparse(best, x, u, seed, labels) if wanted else None

    def _select_features(
        self, x: Floats, u: Floats, group: NDArray[np.intp], logarithms: list[Mask], labels: Ints | None
    ) -> Fit:
        """Return the best fit with and without logarithms and products; then other weights of its products are tried."""
        candidates: list[tuple[Fit, list[Features]]] = []
        for logged in logarithms:
            plain = self._fit(Features.of(x, group, logged), x, u, labels)
            products: list[Features] = []
            if self.degree == 2 or (self.degree == "auto" and plain.ridge.score > EXACT):
                directions = plain.ridge.right[:, : self.components]
                products = list(plain.features.with_products(plain.features(x), directions))
            if self.degree != 2 or not products:
                candidates.append((plain, []))
            if products:
                candidates.append((self._fit(products[0], x, u, labels), products[1:]))
            if plain.ridge.score < EXACT:
                break
        best, others = min(candidates, key=lambda each: each[0].ridge.score)
        for features in others:
            if best.ridge.score > EXACT:
                fit = self._fit(features, x, u, labels)
                best = fit if fit.ridge.score < best.ridge.score else best
        return best

    def _fit(self, features: Features, x: Floats, u: Floats, labels: Ints | None) -> Fit:
        return Fit(features, Ridge.of(features(x), u, self._bases(u.shape[2:]), self._penalty, labels))

    def _sparse(self, fit: Fit, x: Floats, u: Floats, seed: int, labels: Ints | None) -> Sparse | None:
        """Return the sparse map, if it predicts a held-out fold better than ridge regression does, or was requested."""
        plain, flat = fit.features.plain(), u.reshape(len(u), -1)
        y = plain(x)
        whole = sparse_map(y, flat)
        if whole is None:
            return None
        kept, left = next(folds(len(x), FOLDS, labels, seed))
        trial = sparse_map(y[kept], flat[kept])
        if trial is None:
            return None
        some = None if labels is None else _several(labels[kept])
        ridge = Ridge.of(fit.features(x[kept]), u[kept], (fit.ridge.basis,), self._penalty, some).affine()
        predictions = (trial(y[left]), ridge(fit.features(x[left])))
        error, of_ridge = (relative_error(each.reshape(u[left].shape), u[left]) for each in predictions)
        return None if self.sparse == "auto" and error >= of_ridge else Sparse(plain, whole, error)

    @property
    def _penalty(self) -> float | None:
        return None if self.penalty == "auto" else float(self.penalty)

    def _bases(self, grid: tuple[int, ...]) -> tuple[str, ...]:
        if self.smooth == "auto":
            return BASES if max(grid, default=1) <= FINEST else BASES[:2]
        return (self.smooth or "nodes",)

    def _logarithms(self, x: Floats, group: NDArray[np.intp]) -> list[Mask]:
        """Return the masks of values whose logarithms are tried: none, and those of positive channels and scalars."""
        parts, none = [x[:, group == g] for g in range(group.max() + 1)], np.zeros(len(group), dtype=bool)
        positive = np.array([(part > 0).all() for part in parts])
        if self.log is True and not positive.all():
            raise UserError(f"log = True, but inputs have values down to {x.min():g}; set log='auto' or log=False")
        if self.log == "auto":  # for inputs with two different values, the logarithm is an affine map
            positive &= np.array([((part > part.min()) & (part < part.max())).any() for part in parts])
        if self.log is False or not positive.any():
            return [none]
        return [positive[group]] if self.log is True else [none, positive[group]]


def _several(labels: Ints | None) -> Ints | None:
    """Return labels of dependent pairs; None if they are all equal, so that no pair would be left."""
    return None if labels is None or (labels == labels[0]).all() else labels


def _is(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
