r"""Affine maps from the numbers that describe an input to the output, and how much of them the data can tell.

    m(a) = b + Bᵀφ(x),

φ being the values of a and the scalars, or their logarithms, and products of their leading components
(`pdno.mean.linear.features`). B is found by ridge regression in modes of the output (`pdno.mean.linear.ridge`) or, where few
numbers matter to each output, by least squares on those alone (`pdno.mean.linear.sparse`). Cross-validation decides on all of
it: generalised for logarithms, products and modes, with one fold in five held out for the last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ...draw import generator
from ...errors import UserError, nearest
from ..base import Array, Mean, checked, folds, inputs
from .features import Features
from .ridge import BASES, EXACT, FINEST, Affine, Ridge, variance_left
from .sparse import sparse_map

__all__ = ["Linear"]

Auto = Literal["auto"]
Choice = tuple[Features, Ridge]
Sparse = tuple[Features, Affine, float]  # and its score

TRIAL = 2048  # pairs that choose features, if pairs and numbers both are more
ALLOWED: dict[str, tuple[Any, ...]] = {
    "log": (True, False, "auto"),
    "degree": (1, 2, "auto"),
    "smooth": (False, *BASES[1:], "auto"),
    "sparse": (True, False, "auto"),
}


class Linear(Mean):
    """Ridge regression, and what belongs to it.

    Args:
        log: take logarithms of channels and scalars that are positive; "auto" if that is better.
        degree: 1 for an affine map, 2 with squares and products of the leading components; "auto" if that is better.
        smooth: basis of the outputs, "cosines" or "polynomials", or False for none; "auto" takes the best of the three.
        sparse: look for the few numbers that matter to each output; "auto" if that is better, True wherever there are few.
        penalty: λ, for inputs of unit variance, of all modes; "auto" by generalised cross-validation for each band of modes.
        components: leading components whose products are taken, as far as products are fewer than half the pairs.

    Once it has learned, `score` is the cross-validated mean square error over the variance of the outputs, noise included;
    `logged`, `products`, `basis`, `penalties` and `is_sparse` say what was chosen, and `describe` says so in words.

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
                raise UserError(f"{key} = {value!r} is not a choice; {nearest(str(value), map(str, allowed))}")
        if penalty != "auto" and not (_is(penalty, int | float) and 0 <= float(penalty) < np.inf):
            raise UserError(f"penalty = {penalty!r}: expected a number that is not negative, or 'auto'")
        if not _is(components, int) or components < 1:
            raise UserError(f"components = {components!r}: expected a whole number of at least one")
        self._features: Features | None = None

    def fit(self, a: Array, u: Array, scalars: Array | None = None, seed: int = 0) -> Self:
        features, ridge, sparse = self._learn(a, u, scalars, seed)
        self._features, self._map, self.score = sparse or (features, ridge.affine(), ridge.score)
        self.basis = "nodes" if sparse else ridge.basis
        self.penalties = np.zeros(0) if sparse else ridge.penalty
        self._shape = ridge.shape
        return self

    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        if self._features is None:
            raise UserError("this linear mean has not learned yet; call fit(a, u) or restore(arrays) first")
        x, expected = inputs(a, scalars), len(self._features.scale)
        if x.shape[1] != expected:
            raise UserError(
                f"inputs have {x.shape[1]} numbers each, expected {expected} as in learning; give the same channels and "
                "scalars on the same grid"
            )
        return self._map(self._features(x)).reshape(len(x), *self._shape)

    def residuals(
        self,
        a: Array,
        u: Array,
        scalars: Array | None = None,
        group: NDArray[np.integer] | None = None,
        count: int = 5,
        seed: int = 0,
    ) -> Array:
        """Of each pair by the fit to all others, in closed form; by folds if pairs have groups or the map is sparse."""
        if group is None or len(np.unique(group)) == len(group):
            _, ridge, sparse = self._learn(a, u, scalars, seed)
            found = None if sparse else ridge.left_out()
            if found is not None:
                return found
        return super().residuals(a, u, scalars, group, count, seed)

    @property
    def logged(self) -> bool:
        """Whether the logarithm of any input is taken."""
        return self._features is not None and bool(self._features.logged.any())

    @property
    def products(self) -> int:
        """Leading components whose products are taken, 0 for an affine map."""
        return 0 if self._features is None else self._features.leading.shape[1]

    @property
    def is_sparse(self) -> bool:
        """Whether few numbers matter to each output."""
        return self._features is not None and not len(self.penalties)

    def describe(self) -> str:
        """What was chosen, in a sentence."""
        if self._features is None:
            return "A linear mean that has not learned yet."
        number = len(self._features.scale)
        if self.is_sparse:
            used = np.count_nonzero(self._map.modes) / self._map.modes.shape[1]
            how = f"Least squares on the {used:.1f} of {number} inputs that matter to an output, on average"
        else:
            least, most = self.penalties.min(), self.penalties.max()
            how = f"Ridge regression on {number} inputs with a penalty "
            how += f"of {least:.1g}" if least == most else f"from {least:.1g} to {most:.1g}"
            how += "" if self.basis == "nodes" else f" by bands of {self.basis} of the output"
        how += ", logarithms of positive inputs" if self.logged else ""
        how += f", products of {self.products} leading components" if self.products else ""
        left = f"leaves {self.score:.3g} of the outputs' variance" if np.isfinite(self.score) else "has too few pairs"
        return f"{how}; cross-validation {left}."

    def settings(self) -> dict[str, Any]:
        penalty = self.penalty if self.penalty == "auto" else float(self.penalty)
        return {**{key: getattr(self, key) for key in ALLOWED}, "penalty": penalty, "components": self.components}

    def arrays(self) -> dict[str, Array]:
        if self._features is None:
            raise UserError("this linear mean has learned nothing that could be saved; call fit(a, u) first")
        found = {field.name: getattr(part, field.name) for part in (self._features, self._map) for field in fields(part)}
        shape, basis = np.array(self._shape, dtype=np.float64), np.array([BASES.index(self.basis)], dtype=np.float64)
        return {**found, "shape": shape, "basis": basis, "penalties": self.penalties, "score": np.array([self.score])}

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        parts = [[field.name for field in fields(part)] for part in (Features, Affine)]
        names = [*parts[0], *parts[1], "shape", "basis", "penalties", "score"]
        if missing := [name for name in names if name not in arrays]:
            raise UserError(f"arrays {missing} of a linear mean are missing, expected {names}; save it again")
        new = {name: np.array(arrays[name], dtype=np.float64) for name in names}
        self._features = Features(**{name: new[name] for name in parts[0]})
        self._map = Affine(**{name: new[name] for name in parts[1]})
        self._shape, self.basis = tuple(map(int, new["shape"])), BASES[int(new["basis"][0])]
        self.penalties, self.score = new["penalties"], float(new["score"][0])
        return self

    def _learn(self, a: Array, u: Array, scalars: Array | None, seed: int) -> tuple[Features, Ridge, Sparse | None]:
        """Features and fit, chosen by a part of the pairs where all are too many; and a sparse map if that is better."""
        a, u, s = checked(a, u, scalars)
        if not (x := inputs(a, s)).shape[1]:
            raise UserError("inputs have neither values nor scalars; give at least one of them")
        group = np.repeat(np.arange(a.shape[1]), int(np.prod(a.shape[2:])))
        group = np.append(group, a.shape[1] + np.arange(x.shape[1] - len(group)))  # a channel, or a scalar
        logarithms = self._logarithms(x, group)
        if min(x.shape) > TRIAL:
            rows = np.sort(generator(seed, "linear", 0).permutation(len(x))[:TRIAL])
            best = self._best([self._choose(x[rows], u[rows], group, logarithms)[0]], x, u)
        else:
            best = self._choose(x, u, group, logarithms)
        wanted = self.sparse is True or (self.sparse == "auto" and best[1].score > EXACT)
        return *best, self._sparse(*best, x, u, seed) if wanted else None

    def _choose(self, x: Array, u: Array, group: NDArray[np.intp], logarithms: list[NDArray[np.bool_]]) -> Choice:
        """The best of logarithms or none, with products or without, each in its best basis; then of their other weights."""
        found: list[tuple[Choice, list[Features]]] = []
        for logged in logarithms:
            plain = self._best([Features.of(x, group, logged)], x, u)
            products: list[Features] = []
            if self.degree == 2 or (self.degree == "auto" and plain[1].score > EXACT):
                products = list(plain[0].with_products(plain[0](x), plain[1].right[:, : self.components]))
            if self.degree != 2 or not products:
                found.append((plain, []))
            if products:
                found.append((self._best(products[:1], x, u), products[1:]))
            if plain[1].score < EXACT:
                break
        best, others = min(found, key=lambda each: each[0][1].score)
        return self._best(others, x, u, best)

    def _best(self, features: Sequence[Features], x: Array, u: Array, best: Choice | None = None) -> Choice:
        """Those of least score, best being one of them; nothing is tried after one that is exact."""
        for each in features:
            if best is None or best[1].score > EXACT:
                ridge = Ridge.of(each(x), u, self._bases(u.shape[2:]), self._penalty)
                best = (each, ridge) if best is None or ridge.score < best[1].score else best
        assert best is not None
        return best

    def _sparse(self, features: Features, ridge: Ridge, x: Array, u: Array, seed: int) -> Sparse | None:
        """The sparse map, if it predicts a fold held out better than ridge regression does, or is asked for."""
        plain, flat = features.plain(), u.reshape(len(u), -1)
        y = plain(x)
        found = sparse_map(y, flat)
        if found is None:
            return None
        kept, left = next(folds(len(x), 5, seed=seed))
        trial = sparse_map(y[kept], flat[kept])
        if trial is None:
            return None
        rival = Ridge.of(features(x[kept]), u[kept], (ridge.basis,), self._penalty).affine()
        guesses = (trial(y[left]), rival(features(x[left])))
        ours, theirs = (variance_left(guess.reshape(u[left].shape), u[left]) for guess in guesses)
        return None if self.sparse == "auto" and ours >= theirs else (plain, found, ours)

    @property
    def _penalty(self) -> float | None:
        return None if self.penalty == "auto" else float(self.penalty)

    def _bases(self, grid: tuple[int, ...]) -> tuple[str, ...]:
        if self.smooth == "auto":
            return BASES if max(grid, default=1) <= FINEST else BASES[:2]
        return (self.smooth or "nodes",)

    def _logarithms(self, x: Array, group: NDArray[np.intp]) -> list[NDArray[np.bool_]]:
        """Of which numbers to try them: of none; of channels and scalars that are positive, with three values or more."""
        parts, none = [x[:, group == g] for g in range(group.max() + 1)], np.zeros(len(group), dtype=bool)
        positive = np.array([(part > 0).all() for part in parts])
        if self.log is True and not positive.all():
            raise UserError(f"log = True, but inputs have values down to {x.min():g}; choose log='auto' or log=False")
        if self.log == "auto":  # of two values, logarithms are an affine map
            positive &= np.array([((part > part.min()) & (part < part.max())).any() for part in parts])
        if self.log is False or not positive.any():
            return [none]
        return [positive[group]] if self.log is True else [none, positive[group]]


def _is(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
