r"""A cascade of two models, from a coarse to a fine grid, as the conclusion of the paper proposes:

    u | a = I u_c + d,        u_c ~ q_c(· | R a),        d ~ q_f(· | a, I u_c)

R averages over cells of a grid that is coarser by a factor (or takes every k-th node), I interpolates. The coarse model is
trained on pairs (R a, R u), the fine one on the detail d = u − I R u, with a and I R u as its input. A member of the cascade is
a member of the coarse model, to which the fine model adds the detail that the coarse grid does not have. On a coarse grid a
model is trained in a fraction of the time, and the detail depends mostly on what is near.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from .._typing import Array
from ..basis import Condition, Kind
from ..data.arrays import arranged
from ..data.spaces import unit_grid
from ..draw import generator
from ..errors import UserError
from ..grid import interpolate, restrict
from ..work.files import replacing
from .saving import load
from .surrogate import Surrogate

__all__ = ["Cascade"]

FILES = ("coarse.safetensors", "fine.safetensors")
SETTINGS = "cascade.json"
Way = tuple[Literal["linear", "spectral"], Condition | None]  # of interpolation, and the boundary condition of its modes
WAYS: tuple[Way, ...] = (("linear", None), ("spectral", None), ("spectral", "dirichlet"))


class Cascade:
    """A model on a coarse grid, whose members a second model refines.

    Args:
        coarse: model of R u given R a.
        fine: model of the detail given a and I u_c, which are its channels.
        factor: number of nodes of the fine grid per node of the coarse one, along each axis.
        kind: of the grid's axes, "cell", "vertex", "periodic" or "left"; one for all or one each.

    a and u are on one grid, (sample, channel, *grid). After training, `way` is the interpolation I: that with the smallest
    detail on the training pairs.

    >>> import pdno
    >>> data = pdno.generate(pdno.equation.Darcy(points=16), train=40, test=1)
    >>> parts = [pdno.PDNO(mean="linear", law="gaussian") for _ in range(2)]
    >>> cascade = Cascade(*parts, factor=2).fit(data.train.a, data.train.u, progress=False)
    >>> cascade.sample(data.test.a, members=3).shape
    (3, 1, 1, 16, 16)
    """

    def __init__(self, coarse: Surrogate, fine: Surrogate, factor: int = 4, kind: Kind | Sequence[Kind] = "cell") -> None:
        if factor < 2:
            raise UserError(f"factor = {factor}: a coarse grid needs a factor of at least 2")
        self.coarse, self.fine, self.factor, self.kind = coarse, fine, factor, kind
        self.way = WAYS[0]

    def fit(self, a: Any, u: Any, *, seed: int = 0, **options: Any) -> Self:
        """Train both models.

        Args:
            a, u: inputs and outputs on one grid, (sample, channel, *grid).
            seed: of everything that is drawn.
            options: of `fit` of the two models, such as validation=0.1.

        Raises:
            UserError: if a and u are on two grids, or the grid is not a multiple of the coarse one.
        """
        pairs, _ = arranged(a, u, None, None, None, None)
        if pairs.a.shape[2:] != pairs.u.shape[2:]:
            raise UserError(f"a is {pairs.a.shape}, u is {pairs.u.shape}: a cascade needs both on one grid; interpolate one")
        low = self.restricted(pairs.u)
        bounded = all(axis.kind in ("cell", "vertex") for axis in unit_grid(low.shape[2:], self.kind).axes)
        ways = WAYS if bounded else WAYS[:1] if "left" in str(self.kind) else WAYS[:2]
        self.way = min(ways, key=lambda way: float(np.square(pairs.u - self.raised(low, way)).sum()))
        options |= {"seed": seed, "dims": ",".join(["sample", "channel", *"xyz"[: pairs.u.ndim - 2]])}
        self.coarse.fit(self.restricted(pairs.a), low, **options)
        raised = self.raised(low)
        self.fine.fit(np.concatenate([pairs.a, raised], axis=1), pairs.u - raised, **options)
        return self

    def sample(self, a: Any, members: int = 1, seed: int = 0) -> Array:
        """Draw members of u | a; member m of input i is a function of (seed, i, m).

        Args:
            a: inputs, (sample, channel, *grid).
            members: number of members.
            seed: of the draws.

        Returns:
            (member, sample, channel, *grid).
        """
        raised = self.interpolated(a, members, seed)
        seeds = [int(generator(seed, "cascade", m).integers(2**62)) for m in range(members)]  # of the details
        pairs = zip(raised, seeds, strict=True)
        return np.stack([low + self.fine.sample(np.concatenate([a, low], axis=1), 1, each)[0] for low, each in pairs])

    def interpolated(self, a: Any, members: int = 1, seed: int = 0) -> Array:
        """Return members of the coarse model alone, interpolated; as in `sample`."""
        return np.stack([self.raised(each) for each in self.coarse.sample(self.restricted(np.asarray(a)), members, seed)])

    def save(self, folder: str | Path) -> None:
        """Write both models and the settings into a folder, for `load`."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        for model, name in zip((self.coarse, self.fine), FILES, strict=True):
            model.save(path / name)
        settings = {"factor": self.factor, "kind": self.kind, "way": list(self.way)}
        with replacing(path / SETTINGS) as partial:
            partial.write_text(json.dumps(settings))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            UserError: if files are missing or damaged.
        """
        path = Path(folder) / SETTINGS
        try:
            settings = json.loads(path.read_text())
            coarse, fine = (load(path.with_name(name)) for name in FILES)
            new = cls(coarse, fine, int(settings["factor"]), settings["kind"])
            new.way = next(way for way in WAYS if list(way) == settings["way"])
        except (OSError, ValueError, KeyError, StopIteration) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{path} does not describe a cascade ({error!r}); save it again") from None
        return new

    def restricted(self, u: Array) -> Array:
        """Return R u: averages over cells, or values at every k-th node.

        Raises:
            UserError: if the grid is not a multiple of a coarse one.
        """
        fine = unit_grid(u.shape[2:], self.kind)
        if any(axis.intervals % self.factor for axis in fine.axes):
            raise UserError(f"a grid of {fine} is not a multiple of {self.factor}; choose another factor, or other points")
        coarse = fine.with_points(*(axis.intervals // self.factor + axis.points - axis.intervals for axis in fine.axes))
        return restrict(u, fine, coarse, "average" if all(axis.kind == "cell" for axis in fine.axes) else "stride")

    def raised(self, u: Array, way: Way | None = None) -> Array:
        """Return I u, from the coarse to the fine grid."""
        method, condition = way or self.way
        coarse = unit_grid(u.shape[2:], self.kind)
        fine = coarse.with_points(*(axis.intervals * self.factor + axis.points - axis.intervals for axis in coarse.axes))
        return interpolate(u, coarse, fine, method, condition)
