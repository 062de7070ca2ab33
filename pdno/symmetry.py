"""Exact symmetries of an operator S†: finite groups of maps g of inputs and of outputs with

    S†(g a) = g S†(a).

Two uses, both without any approximation:

    augment    (a, u) → (g a, g u), a random g for every pair: more pairs of the same operator,
    average    m̄(a) = |G|⁻¹ Σ_g g⁻¹ m(g a),        so that m̄(h a) = h m̄(a) for every h of the group G, whatever m is.

Symmetries are declared, by the equation (`equation.symmetries`) or by the user, never guessed from data:

| name                    | on a              | on u             | elements                          |
|-------------------------|-------------------|------------------|-----------------------------------|
| `square`                | the eight symmetries of the square    || 8                                 |
| `reflection`            | x_i → −x_i of any of the axes         || 2 for each axis                   |
| `translation`           | shifts along the periodic axes        || all shifts, or equally spaced ones |
| `odd-reflection`        | a(x) → −a(−x)     | u(x) → −u(−x)    | 2                                 |
| `reflection-complement` | a(x) → a(−x)      | u(x) → 1 − u(−x) | 2                                 |

and own pairs of maps (on_a, on_u) that are their own inverses, or (on_a, on_u, order) with gᵒʳᵈᵉʳ = 1. Several of them make
the group of all products. Names act on every channel alike: for vectors, whose components change places or signs, bring own
maps.

On a grid, x → −x is about the middle of the domain: index k → n − 1 − k on vertex and cell-centred axes, but k → −k mod n on
periodic ones, whose nodes are k·h. Maps take NumPy arrays and torch tensors (sample, channel, *grid), and any mesh.

**Sums over a group by characters.** If A is a subgroup of commuting involutions, its characters χ: A → {−1, 1} are as many as
its elements, and an output is the sum of its parts u_χ = |A|⁻¹ Σ_h χ(h) h u, on which h acts as χ(h).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .draw import generator
from .errors import UserError, nearest
from .grid import Grid

__all__ = ["NAMES", "Characters", "Symmetry", "augment", "average", "check", "group", "orbit", "table"]

Map = Callable[[Any], Any]
Own = tuple[Map, Map] | tuple[Map, Map, int]

NAMES = ("square", "reflection", "translation", "odd-reflection", "reflection-complement")
TESTED = 64  # products that `check` looks at


@dataclass(frozen=True)
class Symmetry:
    """An element g of a group: what it does to inputs and to outputs, and the inverse of the latter."""

    name: str
    on_a: Map
    on_u: Map
    undo: Map  # on_u backwards

    @property
    def linear(self) -> "Symmetry":
        """The same on differences of outputs: without the constant that maps such as u → 1 − u have."""
        return Symmetry(self.name, self.on_a, partial(_difference, of=self.on_u), partial(_difference, of=self.undo))

    def __matmul__(self, first: "Symmetry") -> "Symmetry":
        """g @ h: first h, then g."""
        name = " after ".join(g.name for g in (self, first) if g.name != "identity") or "identity"
        maps = ((first.on_a, self.on_a), (first.on_u, self.on_u), (self.undo, first.undo))
        return Symmetry(name, *(partial(_chain, maps=both) for both in maps))


def group(symmetries: str | Sequence[str | Own], grid: Grid, shifts: int | None = None) -> tuple[Symmetry, ...]:
    """All products of the symmetries that are named or given as maps, the identity first.

    Args:
        symmetries: for instance ``equation.symmetries``.
        grid: of inputs and outputs.
        shifts: number of equally spaced translations along each periodic axis, which must divide its points; all if None.

    >>> len(group("square", Grid.uniform(8, dim=2, kind="cell")))
    8
    >>> len(group(["translation", "odd-reflection"], Grid.uniform(8, kind="periodic"), shifts=4))
    8
    """
    chosen = [symmetries] if isinstance(symmetries, str) else list(symmetries)
    factors = [[_plain("identity", _same)], *(_named(s, grid, shifts) if isinstance(s, str) else _own(s) for s in chosen)]
    return tuple(reduce(lambda first, second: [g @ h for g, h in product(first, second)], factors))


def augment(
    a: Any,
    u: Any,
    elements: Sequence[Symmetry],
    seed: int = 0,
    index: Sequence[int] | NDArray[Any] | None = None,
    step: int = 0,
) -> tuple[Any, Any]:
    """Each pair under a random element, which is a function of (seed, number of the pair, step) alone.

    `index` numbers the pairs, from 0 if left out; another `step`, say the epoch, draws anew.
    """
    numbers = range(len(a)) if index is None else index
    if not len(a) == len(u) == len(numbers):
        raise UserError(f"got {len(a)} inputs, {len(u)} outputs and {len(numbers)} numbers of pairs; give as many of each")
    drawn = np.array([generator(seed, "symmetry", int(i), step).integers(len(elements)) for i in numbers], dtype=np.intp)
    new_a, new_u = (x.clone() if hasattr(x, "clone") else np.array(x) for x in (a, u))
    for k in np.unique(drawn):
        rows = np.flatnonzero(drawn == k)
        new_a[rows], new_u[rows] = elements[k].on_a(a[rows]), elements[k].on_u(u[rows])
    return new_a, new_u


def average(operator: Map, a: Any, elements: Sequence[Symmetry], count: int | None = None, seed: int = 0) -> Any:
    """|G|⁻¹ Σ_g g⁻¹ m(g a) for any operator m, or the mean over `count` elements that are drawn without repetition.

    With all elements of a group the result is equivariant, m̄(h a) = h m̄(a); with a few of them only nearly.
    """
    if count is not None and not 1 <= count <= len(elements):
        raise UserError(f"count = {count}: expected a number of elements from 1 to {len(elements)}, those of the group")
    few = count is not None and count < len(elements)
    chosen = generator(seed, "symmetry", 0).permutation(len(elements))[:count] if few else range(len(elements))
    total = sum(elements[k].undo(operator(elements[k].on_a(a))) for k in chosen)
    return total / len(chosen)


def orbit(values: Any, elements: Sequence[Symmetry], of: str = "a") -> Any:
    """All images g a of inputs, or g u of outputs (of="u"): (element, sample, channel, *grid)."""
    images = [(g.on_a if of == "a" else g.on_u)(values) for g in elements]
    if hasattr(values, "new_empty"):
        out = values.new_empty((len(images), *values.shape))
        for place, image in zip(out, images, strict=True):
            place.copy_(image)
        return out
    return np.stack(images)


def table(elements: Sequence[Symmetry], a: Any, u: Any) -> NDArray[np.intp]:
    """Multiplication table of a group: the place of g @ h in the list for each (g, h), −1 if it is not there.

    Found by applying all maps to a random pair of the shapes of a and u (sample, channel, *grid), of which only these matter.
    """
    return _products(elements, a, u, list(np.ndindex(len(elements), len(elements)))).reshape(len(elements), -1)


class Characters:
    """A group split into its largest subgroup A of commuting involutions that is found greedily, and representatives B:

        G = {h b: h ∈ A, b ∈ B},        A has the characters χ,        "rows" (b, i) stand for the copies b a_i.

    For an invariant kernel, k(g a, g b) = k(a, b), regression on all copies of n pairs falls apart into |A| systems of |B| n
    rows, those of the kernels k_χ(a, b) = Σ_h χ(h) k(a, h b) for the parts u_χ of outputs.

    >>> split = Characters(group("square", Grid.uniform(4, dim=2)), np.zeros((1, 1, 4, 4)), np.zeros((1, 1, 4, 4)))
    >>> len(split.signs), len(split.copies)
    (4, 2)
    """

    def __init__(self, elements: Sequence[Symmetry], a: Any, u: Any) -> None:
        self.elements, self.products = tuple(elements), table(elements, a, u)
        self.subgroup, self.signs = [0], np.ones((1, 1))  # χ(h): (character, element of A)
        for g in range(1, len(elements)):
            commutes = (self.products[g, self.subgroup] == self.products[self.subgroup, g]).all()
            if g not in self.subgroup and self.products[g, g] == 0 and commutes:
                self.subgroup += [int(self.products[g, h]) for h in self.subgroup]
                self.signs = np.block([[self.signs, self.signs], [self.signs, -self.signs]])
        self.copies: list[int] = []  # B
        for b in range(len(elements)):
            if not any(b in self.products[self.subgroup, other] for other in self.copies):
                self.copies.append(b)

    def matrices(self, gram: Callable[[Symmetry], NDArray[np.float64]], new: bool = False) -> list[NDArray[np.float64]]:
        """k_χ for each character from gram(g) = k(a_i, g a_j): of rows and rows, or (`new`) of inputs a_i and rows."""
        inverse = (self.products == 0).argmax(axis=1)
        rows = [0] if new else self.copies
        found: list[NDArray[np.float64]] = []
        for g, element in enumerate(self.elements):
            k = gram(element)
            n, m = k.shape
            found = found or [np.zeros((len(rows) * n, len(self.copies) * m)) for _ in self.signs]
            for (i, b), (j, c) in product(enumerate(rows), enumerate(self.copies)):
                h = self.products[self.products[b, g], inverse[c]]  # k(b a, h c a') = k(a, g a') for g = b⁻¹ h c
                if h in self.subgroup:
                    for matrix, sign in zip(found, self.signs[:, self.subgroup.index(h)], strict=True):
                        matrix[i * n : (i + 1) * n, j * m : (j + 1) * m] += sign * k
        return found

    def parts(self, u: NDArray[np.float64], centre: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
        """u_χ of the rows (b, i), of outputs less a centre that is the same for all elements."""
        for signs in self.signs:
            rows = []
            for b in self.copies:
                maps = [self.elements[self.products[h, b]].on_u for h in self.subgroup]
                rows.append(sum(sign * (on_u(u) - on_u(centre)) for on_u, sign in zip(maps, signs, strict=True)) / len(maps))
            yield np.concatenate(rows)

    def gather(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """c_i of fields g c_i that rows (b, i) have: the mean over b of b⁻¹ c_{b,i}, linear parts of maps only."""
        groups = np.split(rows, len(self.copies))
        back = [self.elements[b].undo for b in self.copies]
        fields = [undo(c) - undo(np.zeros_like(c[:1])) for undo, c in zip(back, groups, strict=True)]
        return np.asarray(np.mean(fields, axis=0))


def check(elements: Sequence[Symmetry], a: Any, u: Any, operator: Map | None = None, tolerance: float = 1e-6) -> None:
    """Refuse maps that are not what they claim, on a few pairs (sample, channel, *grid).

    Inverses must undo, products of two elements must be elements, and if an operator is given, m(g a) = g m(a) must hold.
    """
    for g in elements:
        _compare(g.undo(g.on_u(u)), u, tolerance, f"{g.name!r} and its inverse do not cancel on u", "correct its maps or order")
    places = list(np.ndindex(len(elements), len(elements)))
    if len(places) > TESTED:
        places = [places[k] for k in generator(0, "symmetry/check", 0).permutation(len(places))[:TESTED]]
    for (g, h), found in zip(places, _products(elements, a, u, places), strict=True):
        if found < 0:
            raise UserError(
                f"{elements[g].name!r} after {elements[h].name!r} is none of the {len(elements)} elements, expected a group; "
                "correct the maps or their order, or name what generates the missing elements"
            )
    if operator is not None:
        v = operator(a)
        for g in elements:
            what = f"{g.name!r} is no symmetry of the operator: m(g a) is not g m(a)"
            _compare(operator(g.on_a(a)), g.on_u(v), tolerance, what, "leave it out")


def _compare(x: Any, y: Any, tolerance: float, what: str, remedy: str) -> None:
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape:
        raise UserError(f"{what}: shapes are {x.shape} and {y.shape}; {remedy}")
    gap, size = float(np.abs(x - y).max(initial=0.0)), float(np.abs(y).max(initial=0.0)) or 1.0
    if not gap <= tolerance * size:
        raise UserError(f"{what}: they differ by {gap / size:.2g} of the largest value, expected {tolerance:g}; {remedy}")


def _products(elements: Sequence[Symmetry], a: Any, u: Any, places: list[tuple[int, ...]]) -> NDArray[np.intp]:
    """Which element g @ h is for each of the (g, h), −1 for none; on random values between ½ and 3/2."""
    draw = generator(0, "symmetry/table", 0)
    pair = [draw.uniform(0.5, 1.5, (1, *np.shape(x)[1:])) for x in (a, u)]

    def image(*maps: Symmetry) -> NDArray[np.float64]:
        both = [reduce(lambda x, f: f(x), ways, x) for ways, x in zip(_ways(maps), pair, strict=True)]
        values = np.concatenate([np.ravel(x) for x in both])
        if len(values) != len(weights):
            raise UserError(f"maps change the shapes {pair[0].shape} and {pair[1].shape} of a and u; give maps that keep them")
        return values

    weights = draw.standard_normal(sum(x.size for x in pair))
    keys, close = np.array([image(g) @ weights for g in elements]), 1e-9 * len(weights)  # groups may be large: one number each

    def place(x: NDArray[np.float64]) -> int:
        near = np.flatnonzero(np.abs(keys - x @ weights) < close).tolist()
        return next((k for k in near if np.abs(image(elements[k]) - x).max() < 1e-9), -1)

    order = np.argsort(keys)
    alike = np.flatnonzero(np.diff(keys[order]) < close)
    twice = [k for k in map(int, np.union1d(order[alike], order[alike + 1])) if place(image(elements[k])) != k]
    if twice:
        raise UserError(
            f"{elements[twice[0]].name!r} is in the group twice, expected {len(elements)} different elements; leave out the "
            "symmetry that others contain already"
        )
    return np.array([place(image(elements[h], elements[g])) for g, h in places], dtype=np.intp)


def _ways(maps: Sequence[Symmetry]) -> tuple[list[Map], list[Map]]:
    return [g.on_a for g in maps], [g.on_u for g in maps]


def _own(given: Own) -> list[Symmetry]:
    """The powers of a pair of maps."""
    on_a, on_u, order = given if len(given) == 3 else (*given, 2)
    if not (callable(on_a) and callable(on_u)) or order < 2:
        raise UserError(
            f"got {given!r}, expected (on_a, on_u) or (on_a, on_u, order): two functions and a number of at least 2"
        )

    def power(f: Map, times: int) -> Map:
        return partial(_chain, maps=(f,) * times)

    names = ["identity", *(f"own map to the power {k}" for k in range(1, order))]
    return [Symmetry(name, power(on_a, k), power(on_u, k), power(on_u, -k % order)) for k, name in enumerate(names)]


def _named(name: str, grid: Grid, shifts: int | None) -> list[Symmetry]:
    if name not in NAMES:
        raise UserError(f"symmetry {name!r} is unknown; {nearest(name, NAMES)}")
    if name == "translation":
        return _translations(grid, shifts)
    for axis in grid.axes:
        if axis.kind == "left":
            raise UserError(
                f"symmetry {name!r} needs x → −x, which moves the nodes of axis {axis.name!r}: its far end is not stored "
                "(kind 'left'); expected a vertex, cell-centred or periodic axis, so leave the symmetry out"
            )
    flips = [_reflection(grid, axes) for axes in product((False, True), repeat=grid.dim)]
    identity, through = flips[0], flips[-1].on_a
    if name == "odd-reflection":
        return [identity, _plain("odd reflection", partial(_chain, maps=(through, _negative)))]
    if name == "reflection-complement":
        on_u = partial(_chain, maps=(through, _complement))
        return [identity, Symmetry("reflection with complement", through, on_u, on_u)]
    if name == "reflection":
        return flips
    first, *others = grid.axes
    if grid.dim != 2 or (first.points, first.kind) != (others[0].points, others[0].kind):
        axes = " x ".join(f"{axis.points} {axis.kind}" for axis in grid.axes)
        raise UserError(
            f"the symmetries of the square need two axes of equal points and kind, got {axes}; say 'reflection' instead"
        )
    return [g @ h for g, h in product(flips, [identity, _plain("transposition", _transpose)])]


def _translations(grid: Grid, shifts: int | None) -> list[Symmetry]:
    """Equally spaced shifts along all periodic axes."""
    found = [_plain("identity", _same)]
    for i, axis in enumerate(grid.axes):
        if axis.kind != "periodic":
            continue
        count = axis.points if shifts is None else shifts
        if count < 1 or axis.points % count:
            raise UserError(
                f"shifts = {count}: expected a divisor of the {axis.points} points of axis {axis.name!r}; choose one"
            )
        along = [
            Symmetry(
                f"shift by {k}/{count} of {axis.name}" if k else "identity",
                *(partial(_shift, axis=i - grid.dim, part=part, of=count) for part in (k, k, -k)),
            )
            for k in range(count)
        ]
        found = [g @ h for g, h in product(found, along)]
    if all(axis.kind != "periodic" for axis in grid.axes):
        kinds = ", ".join(axis.kind for axis in grid.axes)
        raise UserError(f"symmetry 'translation' needs a periodic axis, got {kinds}; make the grid periodic or leave it out")
    return found


def _reflection(grid: Grid, chosen: Sequence[bool]) -> Symmetry:
    axes = [(i - grid.dim, axis.kind == "periodic") for i, axis in enumerate(grid.axes) if chosen[i]]
    names = " and ".join(axis.name for axis, reflected in zip(grid.axes, chosen, strict=True) if reflected)
    return _plain(f"reflection of {names}" if names else "identity", partial(_reflect, axes=tuple(axes)))


def _plain(name: str, both: Map) -> Symmetry:
    """A map that does the same to a and u, and is its own inverse."""
    return Symmetry(name, both, both, both)


def _same(x: Any) -> Any:
    return x


def _negative(x: Any) -> Any:
    return -x


def _complement(x: Any) -> Any:
    return 1 - x


def _difference(x: Any, of: Map) -> Any:
    return of(x) - of(0 * x[:1])


def _transpose(x: Any) -> Any:
    return x.swapaxes(-1, -2)


def _chain(x: Any, maps: Sequence[Map]) -> Any:
    """First the first map."""
    return reduce(lambda value, f: f(value), maps, x)


def _reflect(x: Any, axes: Sequence[tuple[int, bool]]) -> Any:
    for axis, periodic in axes:
        x = x.flip(axis) if hasattr(x, "flip") else np.flip(x, axis)
        x = _roll(x, 1, axis) if periodic else x
    return x


def _shift(x: Any, axis: int, part: int, of: int) -> Any:
    """By part/of of the axis, which must be a whole number of cells."""
    cells, rest = divmod(part * x.shape[axis], of)
    if rest:
        raise UserError(f"a shift by {part}/{of} of {x.shape[axis]} points is no whole number of cells; choose fewer shifts")
    return _roll(x, cells, axis)


def _roll(x: Any, cells: int, axis: int) -> Any:
    return x.roll(cells, axis) if hasattr(x, "roll") else np.roll(x, cells, axis)
