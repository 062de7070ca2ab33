"""Generate pairs: field → a → equation → u → noise → u^η → store, in parallel, resumable after an interruption.

Pair i of a split is a function of (settings, seed, split, i), not of the number of pairs, of workers, or of the block that it
is computed in. A larger data set begins with the pairs of a smaller one, and test pairs do not depend on the number of training
pairs.
"""

import platform
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .. import __version__
from .._typing import Floats
from ..equation import EQUATIONS, Equation
from ..errors import UserError
from ..noise import NAMES, Noise, parse
from ..work.engine import run
from . import store
from .dataset import Dataset, layout, open_store
from .pairs import Pairs

__all__ = ["generate"]

Block = tuple[str, int, int]
Result = TypeVar("Result")
Progress = Callable[[int, int], None]

SOFTWARE = ("numpy", "scipy", "zarr", "numcodecs")  # packages whose versions may change the bytes of a store
FIRST = {"train": 0, "test": 2**32}  # index of the first pair of a split; training inputs are eq.sample_input(train, seed)
ALLOWED = {  # smallest and largest value of each number
    "train": (1, FIRST["test"]),
    "test": (0, 2**32),
    "seed": (0, 2**63 - 1),
    "workers": (1, 10_000),
}


@dataclass(frozen=True)
class Recipe:
    """Equation, noise and seed: everything that a block of pairs depends on."""

    equation: Equation
    noise: Noise | None
    seed: int

    def __call__(self, block: Block) -> dict[str, Floats]:
        """Return the arrays of a block: a and noisy u of training pairs; a, clean u and noisy u_eta of test pairs."""
        split, first, end = block
        index = FIRST[split] + first
        a = self._checked("sample_input", self.equation.sample_input(end - first, self.seed, index), end - first)
        u = self._checked("solve", self.equation.solve(a), end - first)
        u_eta = u if self.noise is None else u + self.noise.sample(u, self.seed, index)
        for role, values in (("inputs", a), ("outputs", u), ("noisy outputs", u_eta)):
            if not np.isfinite(values).all():
                rows = f"{split} pairs {first} to {end - 1}"
                raise UserError(f"{self.equation.name} returned NaN or infinite {role} among {rows}; check settings and noise")
        if self.noise is None:
            return {"a": a, "u": u}
        return {"a": a, "u": u_eta} if split == "train" else {"a": a, "u": u, "u_eta": u_eta}

    def _checked(self, method: str, values: Any, count: int) -> Floats:
        """Return the result of a method of the equation; raise UserError unless it is real, (count, channel, *grid)."""
        v = np.asarray(values)
        shape = self.equation.grid.shape
        if v.dtype.kind not in "biuf" or v.ndim != 2 + len(shape) or v.shape[0] != count or v.shape[2:] != shape:
            expected = f"real numbers of shape ({count}, channel, {', '.join(map(str, shape))})"
            raise UserError(f"{method} of {self.equation.name} returned {v.dtype} of shape {v.shape}; expected {expected}")
        return v

    def check(self) -> None:
        """Raise UserError unless equation and noise have their protocols, and inputs depend on seed and index alone."""
        needed = ("name", "grid", "sample_input", "solve")
        if isinstance(self.equation, type) or any(getattr(self.equation, name, None) is None for name in needed):
            raise UserError(f"{self.equation!r} is not an equation; give for instance pdno.equation.Darcy(points=64)")
        if self.noise is not None and (isinstance(self.noise, type) or not isinstance(self.noise, Noise)):
            raise UserError(f"noise = {self.noise!r} is not a noise distribution; give for instance pdno.noise.Gaussian(0.05)")
        two, second = (np.asarray(self.equation.sample_input(n, self.seed, 2 - n)) for n in (2, 1))
        if not np.array_equal(two[1:], second):
            raise UserError(
                f"sample_input of {self.equation.name} does not respect `first`: input 1 differs if drawn alone (first=1) "
                "and together with input 0; draw input i from pdno.draw.generator(seed, name, first + i)"
            )

    def pairs(self, arrays: dict[str, Any]) -> Pairs:
        """Return the arrays of blocks as pairs on the grid of the equation."""
        dims = ("sample", "channel", *self.equation.grid.names)
        return Pairs.of(**arrays, dims=(dims, dims), coordinates=self.equation.grid.coordinates)


def generate(
    equation: Equation,
    train: int,
    test: int = 0,
    noise: Noise | str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    workers: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Generate pairs (a, u) of an equation.

    Args:
        equation: for instance ``pdno.equation.Darcy(points=64)``.
        train: number of training pairs; their outputs are noisy.
        test: number of test pairs; they have clean outputs `u` and, with noise, noisy outputs `u_eta`.
        noise: a distribution of `pdno.noise`, or its specification as on the command line (``"gaussian:0.05"``).
        seed: of all random draws.
        out: path of a store to write; None keeps the pairs in memory.
        workers: number of processes. In a script, more than one needs the usual ``if __name__ == "__main__":``.
        scheduler: address of a Dask scheduler (``tcp://…``) to compute on a cluster instead.
        progress: called with (pairs done, total number of pairs) after each block.

    Returns:
        Training and test pairs, in memory or, with `out`, from the store.

    Raises:
        UserError: if arguments are invalid, or the equation returns values that are not finite.

    >>> import pdno
    >>> data = pdno.generate(pdno.equation.Elliptic1D(), train=10, test=2, noise="gaussian:0.05")
    >>> data.test.u_eta.shape
    (2, 1, 128)
    """
    train, test, seed, workers = _whole_numbers(train=train, test=test, seed=seed, workers=workers)
    if out is not None:
        store.check_free(Path(out).absolute())  # before anything is solved
    recipe = Recipe(equation, parse(noise) if isinstance(noise, str) else noise, seed)
    recipe.check()
    first_pairs = {split: recipe((split, 0, 1)) for split in FIRST}
    provenance = _provenance(recipe, train, test, first_pairs)
    templates = {split: recipe.pairs(arrays) for split, arrays in first_pairs.items()}
    plan = layout(templates, {"train": train, "test": test}, equation.grid, provenance)
    blocks = store.blocks(plan)
    if out is None:
        computed = dict(_follow(run(recipe, blocks, workers, scheduler), 0, train + test, progress))
        parts = {split: [computed[block] for block in blocks if block[0] == split] for split in FIRST}
        pairs = {split: recipe.pairs(_joined(parts[split])) if parts[split] else templates[split][:0] for split in FIRST}
        return Dataset(pairs["train"], pairs["test"], provenance, equation.grid)
    path = Path(out).absolute()
    with store.building(path, plan) as root:
        missing = [block for block in blocks if not store.is_complete(root, *block)]
        done = train + test - sum(end - first for _, first, end in missing)
        for _ in _follow(run(partial(_write, recipe, root), missing, workers, scheduler), done, train + test, progress):
            pass
    return open_store(path)


def _write(recipe: Recipe, root: Path, block: Block) -> None:
    store.write(root, block[0], block[1], recipe(block))


def _follow(
    results: Generator[tuple[Block, Result]], done: int, total: int, progress: Progress | None
) -> Iterator[tuple[Block, Result]]:
    """Yield the results, and call `progress` after each."""
    with closing(results):  # ends the workers, also if `progress` raises
        for block, result in results:
            done += block[2] - block[1]
            if progress is not None:
                progress(done, total)
            yield block, result


def _joined(parts: list[dict[str, Floats]]) -> dict[str, Floats]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _provenance(recipe: Recipe, train: int, test: int, first_pairs: dict[str, dict[str, Floats]]) -> dict[str, Any]:
    """Return everything needed to reproduce the store byte for byte, and nothing else.

    The fingerprint is a hash of the first pairs. It distinguishes recipes with equal names (own equations, own noise,
    processors with other rounding), so that a store is only ever completed by the recipe that it was begun with.
    """
    fingerprint = blake2b(digest_size=8)
    for arrays in first_pairs.values():
        for values in arrays.values():
            fingerprint.update(values.tobytes())
    return {
        "schema": 1,
        "name": recipe.equation.name,
        "equation": {"name": recipe.equation.name, "settings": recipe.equation.settings()},
        "noise": "none" if recipe.noise is None else recipe.noise.spec,
        "seed": recipe.seed,
        "command": _command(recipe, train, test),
        "fingerprint": fingerprint.hexdigest(),
        "version": __version__,
        "software": {"python": platform.python_version(), **{name: version(name) for name in SOFTWARE}},
    }


def _command(recipe: Recipe, train: int, test: int) -> str:
    """Return the command that generates the same store; empty for a user's own equation or noise."""
    equation, noise = recipe.equation, "none" if recipe.noise is None else recipe.noise.spec
    builtin = EQUATIONS.get(equation.name)
    if type(equation) is not builtin or noise.partition(":")[0] not in NAMES:
        return ""
    defaults, settings = builtin().settings(), equation.settings()
    changed = [f"--set {key}={value!r}" for key, value in settings.items() if key != "points" and value != defaults[key]]
    counts = f"--points {settings['points']} --train {train} --test {test} --noise {noise} --seed {recipe.seed}"
    return " ".join(["pdno generate", equation.name, counts, *changed])


def _whole_numbers(**numbers: int) -> list[int]:
    """Return the numbers as integers, if they are whole and in their ranges."""
    for name, value in numbers.items():
        least, most = ALLOWED[name]
        if not isinstance(value, int | np.integer) or not least <= value <= most:
            raise UserError(f"{name} = {value!r}: expected a whole number from {least} to {most}")
    return [int(value) for value in numbers.values()]
