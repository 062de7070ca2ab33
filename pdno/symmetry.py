"""Exact symmetries of an operator S†: finite groups of maps g of inputs and outputs with

    S†(g a) = g S†(a).

Both uses are exact:

    augment    (a, u) → (g a, g u) with a random g for every pair: further pairs of the same operator,
    average    m̄(a) = |G|⁻¹ Σ_g g⁻¹ m(g a) for any map m: then m̄(h a) = h m̄(a) for every h in the group G.

Symmetries are declared by the equation (`equation.symmetries`) or by the user; they are never inferred from data:

| name                    | on a              | on u             | elements                          |
|-------------------------|-------------------|------------------|-----------------------------------|
| `square`                | the eight symmetries of the square    || 8                                 |
| `reflection`            | x_i → −x_i for any subset of the axes || 2 per axis                        |
| `translation`           | shifts along the periodic axes        || all shifts, or a given number     |
| `odd-reflection`        | a(x) → −a(−x)     | u(x) → −u(−x)    | 2                                 |
| `reflection-complement` | a(x) → a(−x)      | u(x) → 1 − u(−x) | 2                                 |

or as custom maps (on_a, on_u) that are their own inverses, or (on_a, on_u, order) with gᵒʳᵈᵉʳ = 1. Several symmetries generate
the group of all their products. Named symmetries act on every channel in the same way; vector fields, whose components are
permuted or change sign, need custom maps.

On a grid, x → −x is the reflection about the middle of the domain: index k → n − 1 − k on vertex and cell-centred axes, but
k → −k mod n on periodic axes, whose nodes are k·h. The maps accept NumPy arrays and torch tensors (sample, channel, *grid) of
any resolution.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from typing import Any

import numpy as np

from ._typing import Floats, Ints
from .draw import generator, streams
from .errors import UserError, nearest
from .grid import Grid

__all__ = ["NAMES", "Own", "Symmetry", "augment", "average", "check", "group", "multiplication_table", "orbit"]

Map = Callable[[Any], Any]
Own = tuple[Map, Map] | tuple[Map, Map, int]  # custom maps: (on_a, on_u) or (on_a, on_u, order)

NAMES = ("square", "reflection", "translation", "odd-reflection", "reflection-complement")
MAX_CHECKED_PRODUCTS = 64  # of two elements, in `check`: bounds its time for large groups


@dataclass(frozen=True)
class Symmetry:
    """An element g of a group. Its maps accept NumPy arrays and torch tensors (sample, channel, *grid).

    Args:
        name: of the element.
        on_a, on_u: maps of inputs and of outputs.
        undo: inverse of on_u.
    """

    name: str
    on_a: Map
    on_u: Map
    undo: Map  # inverse of on_u

    @property
    def linear(self) -> "Symmetry":
        """The element with the linear part of on_u, which maps differences of outputs: u → 1 − u becomes u → −u."""
        return Symmetry(self.name, self.on_a, partial(_difference, of=self.on_u), partial(_difference, of=self.undo))

    def __matmul__(self, first: "Symmetry") -> "Symmetry":
        """Return g @ h: first h, then g."""
        name = " after ".join(g.name for g in (self, first) if g.name != "identity") or "identity"
        maps = ((first.on_a, self.on_a), (first.on_u, self.on_u), (self.undo, first.undo))
        return Symmetry(name, *(partial(_chain, maps=both) for both in maps))


def group(symmetries: str | Sequence[str | Own], grid: Grid, shifts: int | None = None) -> tuple[Symmetry, ...]:
    """Return all elements of the group that the symmetries generate, the identity first.

    Args:
        symmetries: names or custom maps, for instance ``equation.symmetries``.
        grid: grid of inputs and outputs.
        shifts: number of equally spaced translations along each periodic axis, a divisor of its points; default: all.

    Raises:
        UserError: if a name is unknown, or a symmetry does not exist on this grid.

    >>> len(group("square", Grid.uniform(8, dim=2, kind="cell")))
    8
    >>> len(group(["translation", "odd-reflection"], Grid.uniform(8, kind="periodic"), shifts=4))
    8
    """
    generators = [symmetries] if isinstance(symmetries, str) else list(symmetries)
    factors = [[_involution("identity", _identity)]]
    factors += [_named(s, grid, shifts) if isinstance(s, str) else _custom(s) for s in generators]
    return tuple(reduce(lambda first, second: [g @ h for g, h in product(first, second)], factors))


def augment(
    a: Any,
    u: Any,
    elements: Sequence[Symmetry],
    seed: int = 0,
    index: Sequence[int] | Ints | None = None,
    step: int = 0,
) -> tuple[Any, Any]:
    """Transform each pair by a random element, which is a function of (seed, index of the pair, step) alone.

    Args:
        a, u: pairs, (sample, channel, *grid).
        elements: the group.
        index: index of each pair; default: 0, 1, …
        step: number of the draw, for instance the epoch.

    Returns:
        (g a, g u), in the shapes of a and u.

    Raises:
        UserError: if the numbers of inputs, outputs and indices differ.
    """
    indices = range(len(a)) if index is None else index
    if not len(a) == len(u) == len(indices):
        raise UserError(f"got {len(a)} inputs, {len(u)} outputs and {len(indices)} indices of pairs; give equally many")
    each = streams(seed, "symmetry", indices, [step] * len(indices))
    choice = np.array([stream.integers(len(elements)) for stream in each], dtype=np.intp)
    new_a, new_u = (x.clone() if _is_tensor(x) else np.array(x) for x in (a, u))
    for k in np.unique(choice):
        rows = np.flatnonzero(choice == k)
        new_a[rows], new_u[rows] = elements[k].on_a(a[rows]), elements[k].on_u(u[rows])
    return new_a, new_u


def average(operator: Map, a: Any, elements: Sequence[Symmetry], count: int | None = None, seed: int = 0) -> Any:
    """Return |G|⁻¹ Σ_g g⁻¹ m(g a) for any operator m.

    The mean over all elements of a group is equivariant, m̄(h a) = h m̄(a); the mean over some is so approximately.

    Args:
        operator: the map m from inputs to outputs.
        a: inputs, (sample, channel, *grid).
        elements: the group.
        count: number of elements to average over, drawn without replacement; default: all.
        seed: of this draw.

    Returns:
        m̄(a), in the shape of m(a).

    Raises:
        UserError: if count is not between 1 and the size of the group.
    """
    if count is not None and not 1 <= count <= len(elements):
        raise UserError(f"count = {count}: expected a number of elements from 1 to {len(elements)}, the size of the group")
    subset = count is not None and count < len(elements)
    indices = generator(seed, "symmetry", 0).permutation(len(elements))[:count] if subset else range(len(elements))
    total = sum(elements[k].undo(operator(elements[k].on_a(a))) for k in indices)
    return total / len(indices)


def orbit(values: Any, elements: Sequence[Symmetry], of: str = "a") -> Any:
    """Return all images g a of inputs, or g u of outputs.

    Args:
        values: (sample, channel, *grid).
        elements: the group.
        of: "a" for inputs, "u" for outputs.

    Returns:
        (element, sample, channel, *grid).
    """
    images = [(g.on_a if of == "a" else g.on_u)(values) for g in elements]
    if _is_tensor(values):
        out = values.new_empty((len(images), *values.shape))
        for target, image in zip(out, images, strict=True):
            target.copy_(image)
        return out
    return np.stack(images)


def multiplication_table(elements: Sequence[Symmetry], a: Any, u: Any) -> Ints:
    """Return the index of g @ h in the list for each (g, h), −1 if it is not in the list: (element, element).

    The maps are compared by applying them to a random pair with the shapes of a and u, (sample, channel, *grid).
    """
    return _products(elements, a, u, list(np.ndindex(len(elements), len(elements)))).reshape(len(elements), -1)


def check(elements: Sequence[Symmetry], a: Any, u: Any, operator: Map | None = None, tolerance: float = 1e-6) -> None:
    """Check on a few pairs that the elements are a group and, if an operator m is given, that m(g a) = g m(a).

    Args:
        elements: the group; a random subset of the products of two elements is checked if there are many.
        a, u: pairs, (sample, channel, *grid).
        operator: the map m from inputs to outputs.
        tolerance: largest difference, relative to the largest value.

    Raises:
        UserError: if an inverse is wrong, a product of two elements is missing, or the operator is not equivariant.
    """
    for g in elements:
        _compare(g.undo(g.on_u(u)), u, tolerance, f"{g.name!r} and its inverse do not cancel on u", "correct its maps or order")
    pairs = list(np.ndindex(len(elements), len(elements)))
    if len(pairs) > MAX_CHECKED_PRODUCTS:
        pairs = [pairs[k] for k in generator(0, "symmetry/check", 0).permutation(len(pairs))[:MAX_CHECKED_PRODUCTS]]
    for (g, h), product_index in zip(pairs, _products(elements, a, u, pairs), strict=True):
        if product_index < 0:
            raise UserError(
                f"{elements[g].name!r} after {elements[h].name!r} is none of the {len(elements)} elements, expected a group; "
                "correct the maps or their order, or add the symmetries that generate the missing elements"
            )
    if operator is not None:
        v = operator(a)
        for g in elements:
            failure = f"{g.name!r} is not a symmetry of the operator: m(g a) is not g m(a)"
            _compare(operator(g.on_a(a)), g.on_u(v), tolerance, failure, "remove it")


def _compare(x: Any, y: Any, tolerance: float, failure: str, remedy: str) -> None:
    """Raise UserError with this failure and remedy unless x and y agree."""
    x, y = np.asarray(x), np.asarray(y)
    if x.shape != y.shape:
        raise UserError(f"{failure}: the shapes are {x.shape} and {y.shape}; {remedy}")
    gap, size = float(np.abs(x - y).max(initial=0.0)), float(np.abs(y).max(initial=0.0)) or 1.0
    if not gap <= tolerance * size:
        raise UserError(f"{failure}: relative difference {gap / size:.2g}, expected at most {tolerance:g}; {remedy}")


def _products(elements: Sequence[Symmetry], a: Any, u: Any, pairs: list[tuple[int, ...]]) -> Ints:
    """Return the index of the element g @ h for each (g, h), −1 for none, by applying the maps to random values in (½, 3/2)."""
    stream = generator(0, "symmetry/table", 0)
    sample = [stream.uniform(0.5, 1.5, (1, *np.shape(x)[1:])) for x in (a, u)]

    def image(*maps: Symmetry) -> Floats:
        chains = [g.on_a for g in maps], [g.on_u for g in maps]
        values = np.concatenate([np.ravel(_chain(x, chain)) for chain, x in zip(chains, sample, strict=True)])
        if len(values) != len(weights):
            shapes = " and ".join(str(x.shape) for x in sample)
            raise UserError(f"maps change the shapes {shapes} of a and u; give maps that preserve them")
        return values

    weights = stream.standard_normal(sum(x.size for x in sample))
    # Groups may be large: images are compared by one random projection each, and in full only where the projections agree.
    keys, tolerance = np.array([image(g) @ weights for g in elements]), 1e-9 * len(weights)

    def index(x: Floats) -> int:
        candidates = np.flatnonzero(np.abs(keys - x @ weights) < tolerance).tolist()
        return next((k for k in candidates if np.abs(image(elements[k]) - x).max() < 1e-9), -1)

    order = np.argsort(keys)
    close = np.flatnonzero(np.diff(keys[order]) < tolerance)
    duplicates = [k for k in map(int, np.union1d(order[close], order[close + 1])) if index(image(elements[k])) != k]
    if duplicates:
        raise UserError(
            f"{elements[duplicates[0]].name!r} is in the group twice, expected {len(elements)} different elements; remove the "
            "symmetry that the others already contain"
        )
    return np.array([index(image(elements[h], elements[g])) for g, h in pairs], dtype=np.intp)


def _custom(maps: Own) -> list[Symmetry]:
    """Return the powers of a pair of custom maps."""
    on_a, on_u, order = maps if len(maps) == 3 else (*maps, 2)
    if not (callable(on_a) and callable(on_u)) or order < 2:
        raise UserError(f"got {maps!r}, expected (on_a, on_u) or (on_a, on_u, order): two functions and a number of at least 2")

    def power(f: Map, exponent: int) -> Map:
        return partial(_chain, maps=(f,) * exponent)

    names = ["identity", *(f"custom map to the power {k}" for k in range(1, order))]
    return [Symmetry(name, power(on_a, k), power(on_u, k), power(on_u, -k % order)) for k, name in enumerate(names)]


def _named(name: str, grid: Grid, shifts: int | None) -> list[Symmetry]:
    """Return the elements of a named symmetry."""
    if name not in NAMES:
        raise UserError(f"symmetry {name!r} is unknown; {nearest(name, NAMES)}")
    if name == "translation":
        return _translations(grid, shifts)
    for axis in grid.axes:
        if axis.kind == "left":
            raise UserError(
                f"symmetry {name!r} needs x → −x, which does not map the nodes of axis {axis.name!r} to nodes: its far end is "
                "not stored (kind 'left'); expected a vertex, cell-centred or periodic axis; remove the symmetry"
            )
    reflections = [_reflection(grid, reflected) for reflected in product((False, True), repeat=grid.dim)]
    identity, all_axes = reflections[0], reflections[-1].on_a
    if name == "odd-reflection":
        return [identity, _involution("odd reflection", partial(_chain, maps=(all_axes, _negative)))]
    if name == "reflection-complement":
        on_u = partial(_chain, maps=(all_axes, _complement))
        return [identity, Symmetry("reflection with complement", all_axes, on_u, on_u)]
    if name == "reflection":
        return reflections
    first, *others = grid.axes
    if grid.dim != 2 or (first.points, first.kind) != (others[0].points, others[0].kind):
        axes = " x ".join(f"{axis.points} {axis.kind}" for axis in grid.axes)
        raise UserError(f"symmetry 'square' needs two axes of equal points and kind, got {axes}; use 'reflection' instead")
    return [g @ h for g, h in product(reflections, [identity, _involution("transposition", _transpose)])]


def _translations(grid: Grid, shifts: int | None) -> list[Symmetry]:
    """Return equally spaced shifts along all periodic axes."""
    elements = [_involution("identity", _identity)]
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
                *(partial(_shift, axis=i - grid.dim, numerator=n, denominator=count) for n in (k, k, -k)),
            )
            for k in range(count)
        ]
        elements = [g @ h for g, h in product(elements, along)]
    if all(axis.kind != "periodic" for axis in grid.axes):
        kinds = ", ".join(axis.kind for axis in grid.axes)
        raise UserError(f"symmetry 'translation' needs a periodic axis, got {kinds}; use a periodic grid or remove it")
    return elements


def _reflection(grid: Grid, reflected: Sequence[bool]) -> Symmetry:
    """Return the reflection of the flagged axes."""
    axes = [(i - grid.dim, axis.kind == "periodic") for i, axis in enumerate(grid.axes) if reflected[i]]
    names = " and ".join(axis.name for axis, flag in zip(grid.axes, reflected, strict=True) if flag)
    return _involution(f"reflection of {names}" if names else "identity", partial(_reflect, axes=tuple(axes)))


def _involution(name: str, f: Map) -> Symmetry:
    """Return the symmetry that maps both a and u by f, where f is its own inverse."""
    return Symmetry(name, f, f, f)


def _identity(x: Any) -> Any:
    return x


def _negative(x: Any) -> Any:
    return -x


def _complement(x: Any) -> Any:
    return 1 - x


def _difference(x: Any, of: Map) -> Any:
    """Apply the linear part of an affine map."""
    return of(x) - of(0 * x[:1])


def _transpose(x: Any) -> Any:
    return x.swapaxes(-1, -2)


def _chain(x: Any, maps: Sequence[Map]) -> Any:
    """Apply the maps to x, the first one first."""
    return reduce(lambda value, f: f(value), maps, x)


def _reflect(x: Any, axes: Sequence[tuple[int, bool]]) -> Any:
    """Reflect the axes, given as (axis, periodic)."""
    for axis, periodic in axes:
        x = x.flip(axis) if _is_tensor(x) else np.flip(x, axis)
        x = _roll(x, 1, axis) if periodic else x
    return x


def _shift(x: Any, axis: int, numerator: int, denominator: int) -> Any:
    """Shift by the fraction numerator/denominator of the axis, which must be a whole number of cells."""
    cells, remainder = divmod(numerator * x.shape[axis], denominator)
    if remainder:
        raise UserError(
            f"a shift by {numerator}/{denominator} of {x.shape[axis]} points is not a whole number of cells; use fewer shifts"
        )
    return _roll(x, cells, axis)


def _roll(x: Any, cells: int, axis: int) -> Any:
    return x.roll(cells, axis) if _is_tensor(x) else np.roll(x, cells, axis)


def _is_tensor(x: Any) -> bool:
    """Return whether x is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)
