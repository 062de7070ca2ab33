r"""A network as a mean: a regression a ↦ s_θ(a), trained on the relative L2 error ‖u − s_θ(a)‖/‖u‖ of scaled channels.

With symmetries G the network is trained on every pair under a random element of G, and its prediction is the average
|G|⁻¹ Σ_g g⁻¹ s_θ(g a), over some of the elements if there are many.

Smooth fields need few points. With `points` the network works on a coarser mesh than the data: inputs and outputs are moved
there by their Fourier or cosine series, and predictions back, to the mesh of the input.

With `physics`, the residual of the equation is a part of the loss, or all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from .._typing import Array, Ints
from ..basis import Kind, waves_of
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..errors import UserError
from ..evaluation.bands import Regression
from ..grid import Axis, Grid, interpolate
from ..learning.budget import Terms
from ..learning.loop import Objective
from ..learning.network import OWN, NetworkOnPairs, elements_of, normalise_of
from ..learning.normalisation import Normalise
from ..learning.settings import Rows, Training
from ..symmetry import Own, average
from ..work.state import State
from .base import AnyGrid, Mean, pairs_of, refitted
from .physics import Physics

__all__ = ["Network", "recipe"]

AVERAGED = 8  # elements of a group that a prediction is averaged over
CALL_VALUES = 2**13  # values of a call of the network: rows times values of a field
FEWEST_ROWS = 4  # of a call
MOST_ROWS = 64  # of a call
FEWEST_VALIDATION = 20  # held-out pairs, below which training is not shortened by their loss
LOGGED = 100  # pairs on which the error is logged, at most
PATIENCE = 5  # validations without a lower loss, of twenty: later steps would fit the noise of the training pairs


class Network(Mean, AnyGrid):
    """A network, trained on the relative L2 error with a moving average of its weights and a one-cycle learning rate.

    Args:
        network: "fno", "slim", "unet", a mapping of settings, or any module a ↦ u.
        symmetries: names or custom maps, see `pdno.symmetry`.
        kind: of the grid's axes.
        normalise: of a and u.
        training: settings of the loop; default: those of `recipe`.
        budget: seconds of training; default: what the model allows.
        points: along each axis, of the mesh that the network works on; None for that of the data.
        physics: residual of an equation as a further loss, see `pdno.mean.Physics`; it is not saved.

    Good values: "slim" for two dimensions and rough inputs, "fno" for smooth and periodic ones; minutes to an hour of training.
    """

    name: ClassVar[str] = "network"
    accepts_missing: ClassVar[bool] = True
    cheap_folds = False
    regression: Regression | None = None
    log_pairs: Pairs | None = None  # on which the error is logged in place of held-out pairs

    def __init__(
        self,
        network: str | Mapping[str, Any] | nn.Module = "slim",
        symmetries: str | Sequence[str | Own] = (),
        kind: Kind | Sequence[Kind] = "cell",
        normalise: Normalise | Sequence[Normalise] = "scalar",
        training: Training | None = None,
        budget: float | None = None,
        points: int | None = None,
        physics: Physics | None = None,
    ) -> None:
        self.network, self.kind, self.normalise = network, kind, normalise_of(normalise)
        self.symmetries = (symmetries,) if isinstance(symmetries, str) else tuple(symmetries)
        self.training, self.budget, self.points, self.physics = training, budget, points, physics
        if physics is not None and points is not None:
            raise UserError("the residual of an equation belongs to the mesh of the data; omit `points` or `physics`")

    @property
    def trained(self) -> NetworkOnPairs:
        """The trained network.

        Raises:
            UserError: before training.
        """
        if not self.networks:
            raise UserError("this network has not been trained; call fit(a, u) first")
        return self.networks[0]

    def learn(self, pairs: Pairs, held_out: Pairs | None, terms: Terms) -> Self:
        self.networks = ()
        if self.points is not None:
            pairs, held_out = self._coarse(pairs), None if held_out is None else self._coarse(held_out)
        terms = terms if self.budget is None else terms.within(self.budget)
        spaces = Spaces.of(pairs, kind=self.kind)
        elements = elements_of(self.symmetries, spaces, pairs)
        net = NetworkOnPairs.build(self.network, pairs, spaces, terms, normalise=self.normalise, elements=elements)
        training = self.training
        if training is None:
            training = recipe(terms.training, self.network)
            training = replace(training, batch=min(training.batch, len(pairs)))
            if len(held_out or ()) < FEWEST_VALIDATION:
                training = replace(training, patience=0)

        physics = self.physics
        if physics is not None:
            physics.check(pairs)

        def objective(some: Pairs, purpose: str) -> Objective:
            data = relative_error(net, some, terms.seed if purpose == "train" else None)
            return data if physics is None else physics.objective(net, some, data, terms.seed, purpose)

        logged = self.log_pairs or held_out
        errors = (logged[:LOGGED], lambda some: _evaluated(net, some.a, some.scalars)) if logged else None
        net.train(objective, pairs, held_out, training, terms, self._settings, errors)
        self.networks, self.regression = (net,), None
        if training.patience and held_out and held_out.mask is None and not (physics and physics.is_alone):
            prediction = _evaluated(net, held_out.a, held_out.scalars)
            self.regression = Regression.of(held_out.u, prediction, waves_of(spaces.kind))
        return self

    @property
    def _settings(self) -> dict[str, Any]:
        """What two runs must share for one to resume the other, beside data and training."""
        settings: dict[str, Any] = {"symmetries": _names(self.symmetries), "points": self.points}
        return settings if self.physics is None else {**settings, "physics": self.physics.describe()}

    def _coarse(self, pairs: Pairs) -> Pairs:
        """Return the pairs on the mesh of the network."""
        if pairs.mask is not None or pairs.a.shape[2:] != pairs.u.shape[2:]:
            raise UserError("another mesh needs inputs and outputs on one grid, without missing values; omit `points`")
        return pairs_of(self._moved(pairs.a, self.points), self._moved(pairs.u, self.points), pairs.scalars)

    def _moved(self, values: Array, points: Any) -> Array:
        """Return fields on a mesh with another number of points."""
        kinds = (self.kind,) * (values.ndim - 2) if isinstance(self.kind, str) else tuple(self.kind)
        axes = (Axis(n, kind, name=x) for n, kind, x in zip(values.shape[2:], kinds, "xyz", strict=False))
        source = Grid(tuple(axes))
        target = source.with_points(*(points if isinstance(points, tuple) else (points,)))
        return interpolate(values, source, target, "spectral")

    def __call__(self, a: Array, scalars: Array | None = None) -> Array:
        net = self.trained
        x = a if self.points is None else self._moved(a, self.points)
        got, spaces = (x.shape[1:], 0 if scalars is None else scalars.shape[1]), net.spaces
        if got != (spaces.a_shape, spaces.scalars):
            raise UserError(
                f"an input has shape {got[0]} and {got[1]} scalars, expected {spaces.a_shape} and {spaces.scalars} as in "
                "training; give the same channels and scalars on the same grid"
            )
        out = _evaluated(net, x, scalars)
        if self.regression is not None:
            out = self.regression(out)
        return out if self.points is None else self._moved(out, a.shape[2:])

    @property
    def any_grid(self) -> bool:
        """Whether the network is an operator, and nothing else depends on the grid of training."""
        if not self.networks or self.points is not None or self.regression is not None or OWN in _names(self.symmetries):
            return False
        return self.trained.any_grid

    def on_grid(self, a: Array, scalars: Array | None = None) -> Array:
        net, grid = self.trained, a.shape[2:]
        spaces = replace(net.spaces, a_shape=a.shape[1:], u_shape=(net.spaces.u_shape[0], *grid), coordinates={})
        there = NetworkOnPairs(net.module, spaces, net.normalisations, elements_of(self.symmetries, spaces))
        return _evaluated(there, a, scalars)

    def residuals(
        self,
        a: Array,
        u: Array,
        scalars: Array | None = None,
        group: Ints | None = None,
        count: int = 5,
        seed: int = 0,
    ) -> Array:
        return refitted(self, a, u, scalars, group, count, seed)

    @property
    def label(self) -> str:
        """The kind of the network."""
        settings = self.networks[0].settings if self.networks else self.network
        if isinstance(settings, Mapping):
            return str(settings.get("kind", "auto"))
        return "own network" if settings == OWN or isinstance(settings, nn.Module) else str(settings)

    def describe(self) -> str:
        """Describe kind, size and training in a sentence."""
        if not self.networks:
            return f"A network of kind {self.label!r} that has not been trained."
        net = self.trained
        group = f", symmetric under {', '.join(_names(self.symmetries))}" if self.symmetries else ""
        return f"A network of kind {self.label!r} with {net.parameters:,} parameters, trained for {net.updates} steps{group}."

    def state(self) -> State:
        kind = self.kind if isinstance(self.kind, str) else list(self.kind)
        training = None if self.training is None else asdict(self.training)
        settings: dict[str, Any] = {"symmetries": _names(self.symmetries), "kind": kind, "normalise": list(self.normalise)}
        settings |= {"training": training, "budget": self.budget, "points": self.points}
        parts = {"network": self.trained.state()}
        return State(settings, {}, parts if self.regression is None else {**parts, "regression": self.regression.state()})

    @classmethod
    def from_state(cls, state: State, network: nn.Module | None = None) -> Self:
        """Restore what `state` returned.

        Args:
            state: settings and weights.
            network: the module for the weights of a network of your own.
        """
        settings, saved = dict(state.settings), state.parts["network"]
        if OWN in settings["symmetries"]:
            raise UserError("a network with symmetries of your own is code, which is not saved; train it again")
        training = None if settings["training"] is None else Training(**settings.pop("training"))
        new = cls(saved.settings["network"] if network is None else network, **{**settings, "training": training})
        spaces = Spaces.from_state(saved.parts["spaces"])
        new.networks = (NetworkOnPairs.from_state(saved, False, network, elements_of(new.symmetries, spaces)),)
        if "regression" in state.parts:
            new.regression = Regression.from_state(state.parts["regression"])
        return new


def recipe(given: Training | None = None, network: Any = None) -> Training:
    """Return the settings of the loop for a network as a regression: defaults of this module, and settings of the user.

    Args:
        given: settings of the user; those that differ from the defaults of `Training` are kept. A given number of steps is not
            shortened.
        network: name, settings or module; an FNO has a learning rate of its own.
    """
    plain = vars(Training())
    changed = {} if given is None else {name: value for name, value in vars(given).items() if value != plain[name]}
    kind = network.get("kind") if isinstance(network, Mapping) else network
    rate = 4e-3 if kind in ("fno", "small-fno") else 2e-3
    stop = {} if given is not None and given.is_limited else {"validations": 20, "patience": PATIENCE}
    return replace(Training(rate=rate, batch=16, ema=0.998), **{**stop, **changed})


def relative_error(net: NetworkOnPairs, pairs: Pairs, seed: int | None) -> Objective:
    """Return the objective ‖u − s_θ(a)‖/‖u‖ with each channel divided by its standard deviation."""
    get, normalisation = net.rows(pairs, seed), net.normalisations["u"]
    unit = np.sqrt(np.mean(normalisation.std**2, axis=tuple(range(1, normalisation.std.ndim)), keepdims=True))
    mean, std = net.tensor(normalisation.mean / unit), net.tensor(normalisation.std / unit)
    size = np.sqrt(np.mean((normalisation.mean / unit) ** 2) + np.mean((normalisation.std / unit) ** 2))
    least = 1e-6 * float(size * np.sqrt(pairs.u[0].size))

    def loss(network: Any, rows: Rows, first: int, step: int) -> Tensor:
        a, u, mask = get(rows, first, step)
        error, size = (network(a) - u) * std, u * std + mean
        if mask is not None:
            error, size = error * mask, size * mask
        ratio: Tensor = error.flatten(1).norm(dim=1) / size.flatten(1).norm(dim=1).clamp(min=least)
        return ratio.mean()

    return loss


@torch.no_grad()
def _evaluated(net: NetworkOnPairs, a: Array, scalars: Array | None) -> Array:
    """Return s_θ(a), averaged over symmetries; calls have a fixed number of rows, the last one is padded."""
    net.module.eval()
    out = np.empty((len(a), *net.spaces.u_shape))
    size = int(np.clip(CALL_VALUES // int(np.prod(net.spaces.u_shape)), FEWEST_ROWS, MOST_ROWS))
    for first in range(0, len(a), size):
        rows = np.minimum(np.arange(first, first + size), len(a) - 1)
        s = None if scalars is None else scalars[rows]

        def predict(x: Array, s: Array | None = s) -> Array:
            values = net.module(net.condition(x, s)).double().cpu().numpy()
            return net.normalisations["u"].restore(values)

        count = min(AVERAGED, len(net.elements))
        values = average(predict, a[rows], net.elements, count) if net.elements else predict(a[rows])
        out[first : first + size] = values[: min(size, len(a) - first)]
    return out


def _names(symmetries: Sequence[str | Own]) -> list[str]:
    return [each if isinstance(each, str) else OWN for each in symmetries]
