"""A network as a mean operator: `pdno.mean.regression.Regression` behind the protocol of means.

Smooth fields need few points. With `points` the network lives on a coarser mesh than the data, to which inputs and outputs are
carried by their Fourier or cosine series, and its answers back; they are then known on every mesh, that of the input.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
import xarray as xr
from torch import nn

from ..basis import Kind
from ..data.pairs import Pairs
from ..data.selection import SAMPLE
from ..data.spaces import Frame
from ..errors import UserError
from ..grid import interpolate
from ..learning.loop import Training
from ..learning.normalisation import Normalise, Scaling
from ..model.surrogate import Terms
from ..symmetry import Own
from .base import Array, Mean
from .regression import Regression

__all__ = ["Network"]

ENDLESS = 10**9  # steps, where a budget decides


class Network(Mean):
    """A network, trained on the relative L2 error with a moving average of its weights and a one-cycle rate.

    Args:
        network: "fno", "slim", "unet", a mapping of settings, or any module a ↦ u.
        symmetries: names or own maps, see `pdno.symmetry`.
        kind: of the grid's axes.
        normalise: of a and u.
        training: settings of the loop; those of `recipe` if left out.
        budget: seconds that training may take.
        points: along each axis, of the mesh that it lives on; None for that of the data.

    Good values: "slim" for two dimensions and rough inputs, "fno" for smooth and periodic ones; minutes to an hour of training.
    """

    name = "network"

    def __init__(
        self,
        network: str | Mapping[str, Any] | nn.Module = "slim",
        symmetries: str | Sequence[str | Own] = (),
        kind: Kind | Sequence[Kind] = "cell",
        normalise: Normalise | tuple[Normalise, Normalise] = "scalar",
        training: Training | None = None,
        budget: float | None = None,
        points: int | None = None,
    ) -> None:
        self.training, self.budget, self.points = training, budget, points
        normalise = tuple(normalise) if isinstance(normalise, list) else normalise  # from a file
        loop = recipe(budget is not None, network=network) if training is None else training
        self.model = Regression(network, normalise, loop, budget, symmetries, kind)

    @property
    def cheap_folds(self) -> bool:
        return False

    def to(self, device: str) -> None:
        self.model.to(device)

    @property
    def label(self) -> str:
        """The kind of the network."""
        asked = self.model.asked
        if isinstance(asked, nn.Module):
            return "own network"
        built = self.model.settings()["network"] if self.model.frame else asked
        return str(built.get("kind", "auto") if isinstance(built, Mapping) else built)

    def fit(self, a: Array, u: Array, scalars: Array | None = None, seed: int = 0) -> Self:
        return self.learn(_pairs(a, u, scalars), None, Terms(seed, progress=False))

    def learn(self, pairs: Pairs, validation: Pairs | None, terms: Terms, below: str = "") -> Self:
        """Learn from pairs, which may be masked, on these terms, with checkpoints in a folder of its own."""
        if self.points is not None:
            pairs, validation = (None if p is None else self._coarse(p) for p in (pairs, validation))  # type: ignore[assignment]
        self.model.learn(pairs, validation, **terms.options(below))
        return self

    def _coarse(self, pairs: Pairs) -> Pairs:
        """The pairs on the mesh of the network."""
        if pairs.mask is not None or pairs.a.shape[2:] != pairs.u.shape[2:]:
            raise UserError("another mesh needs inputs and outputs on one grid, without holes; leave out `points`")
        return _pairs(self._moved(pairs.a, self.points), self._moved(pairs.u, self.points), pairs.scalars)

    def _moved(self, values: Array, points: Any) -> Array:
        """Fields on a mesh with other points."""
        source = Frame((1, *values.shape[2:]), (1, *values.shape[2:])).grid(self.model.kind)
        target = source.with_points(*(points if isinstance(points, tuple) else (points,)))
        return interpolate(values, source, target, "spectral")

    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        frame = self.model.fitted()
        x = a if self.points is None else self._moved(a, self.points)
        got = x.shape[1:], 0 if scalars is None else scalars.shape[1]
        if got != (frame.a_shape, frame.scalars):
            raise UserError(
                f"an input has shape {got[0]} and {got[1]} scalars, expected {frame.a_shape} and {frame.scalars} as in "
                "learning; give the same channels and scalars on the same grid"
            )
        out = np.empty((len(a), *frame.u_shape))
        for inputs, _, values in self.model.stream(x, scalars):
            out[inputs] = values
        return out if self.points is None else self._moved(out, a.shape[2:])

    @property
    def parameters(self) -> int:
        self.model.fitted()
        return self.model.parameters

    def describe(self) -> str:
        """What it is, in a sentence."""
        if self.model.frame is None:
            return f"A network of kind {self.label!r} that has not learned yet."
        steps = self.model.provenance.get("updates", 0)
        how = f", symmetric under {', '.join(map(str, self.model.settings()['symmetries']))}" if self.model.symmetries else ""
        return f"A network of kind {self.label!r} with {self.parameters:,} parameters, trained for {steps} steps{how}."

    def settings(self) -> dict[str, Any]:
        return {**self.model.settings(), "points": self.points}

    def arrays(self) -> dict[str, Any]:
        frame = self.model.fitted()
        found = {name: v.cpu().numpy() for name, v in self.model.weights().items()}
        shapes = {"a_shape": frame.a_shape, "u_shape": frame.u_shape, "scalars": (frame.scalars,)}
        numbers = {name: np.array(values, dtype=np.float64) for name, values in shapes.items()}
        return {**found, **numbers, "updates": np.array([float(self.model.provenance.get("updates", 0))])}

    def restore(self, arrays: Mapping[str, Any]) -> Self:
        shapes = {name: tuple(int(n) for n in arrays[name]) for name in ("a_shape", "u_shape", "scalars")}
        self.model.frame = Frame(shapes["a_shape"], shapes["u_shape"], shapes["scalars"][0])
        names = {name.split(".")[1] for name in arrays if name.startswith("scaling.")}
        self.model.scalings = {n: Scaling(arrays[f"scaling.{n}.mean"], arrays[f"scaling.{n}.std"]) for n in names}
        self.model.provenance = {"updates": int(arrays["updates"][0])}
        self.model.orient()
        weights = {name[8:]: torch.from_numpy(np.array(v)) for name, v in arrays.items() if name.startswith("network.")}
        network = self.model._built(0).to(next(iter(weights.values())).dtype)
        try:
            network.load_state_dict(weights)
        except RuntimeError as error:
            raise UserError(f"the weights do not fit the network: {str(error).splitlines()[-1].strip()}") from None
        self.model.network = network.eval()
        return self


def recipe(limited: bool = False, given: Training | None = None, network: Any = None) -> Training:
    """The loop for regressions, with what is set in `given`; where only a budget limits it, as many steps as it allows."""
    plain = vars(Training())
    changed = {} if given is None else {name: value for name, value in vars(given).items() if value != plain[name]}
    kind = network.get("kind") if isinstance(network, Mapping) else network
    loop = replace(Training(rate=4e-3 if kind == "fno" else 2e-3, batch=16, ema=0.998), **changed)
    return replace(loop, updates=ENDLESS) if limited and loop.updates is None and loop.epochs is None else loop


def _pairs(a: Array, u: Array, scalars: Array | None) -> Pairs:
    """Arrays (sample, channel, *grid) as pairs."""
    axes = [("x", "y", "z")[: x.ndim - 2] for x in (a, u)]
    axes[0] = tuple(f"a_{x}" for x in axes[0]) if a.shape[2:] != u.shape[2:] else axes[0]
    variables = {"a": ((SAMPLE, "a_channel", *axes[0]), a), "u": ((SAMPLE, "u_channel", *axes[1]), u)}
    if scalars is not None:
        variables["scalars"] = ((SAMPLE, "parameter"), scalars)
    return Pairs(xr.Dataset(variables))
