"""A network on pairs: built for their grid, fed with normalised fields, trained, saved.

    (a, scalars)  ──►  condition: channels on the grid of u  ──►  network  ──►  normalised outputs

If a has another dimension than u, the condition is on the grid of a, and the network begins with a learned projection.
It is a part of mean models and of diffusion models, which differ in the objective that they pass to `train`.
With symmetries, every training pair is transformed by a random element of their group.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .._typing import Array
from ..data.pairs import Pairs
from ..data.spaces import Spaces
from ..errors import UserError
from ..evaluation.metrics import mrle
from ..nn import NETWORKS, GridNetwork, Projected, Projection, build
from ..symmetry import Own, Symmetry, augment, check, group
from ..work.engine import fabric
from ..work.progress import progress_bar
from ..work.state import State
from .budget import Terms
from .loop import Objective, Trained, train
from .normalisation import Normalisation, Normalise
from .settings import Training

__all__ = ["NEEDS_GRID", "NetworkOnPairs", "device_of", "elements_of", "normalise_of", "plain"]

TRAINING_SHARE = 0.9  # of the time that is left; the rest is for measurements
VALIDATED = 256  # held-out pairs on which the validation loss is evaluated
DEVICES = {"gpu": "cuda"}  # other names of devices
PROJECTED = 8  # channels of an input of another dimension on the grid of u
OWN = "own"  # stands in files for a module of the user
NEEDS_GRID = (
    "networks need a grid, and these fields are on the nodes of a mesh; use mean 'linear' or 'kernel' and law 'gaussian', "
    "'resampled' or 'copula', or interpolate the fields to a grid"
)

Rows = NDArray[np.int64]


class NetworkOnPairs:
    """A module together with the spaces and normalisations of the pairs that it is trained on.

    Args:
        module: the network: of the condition alone, or (n, v, condition) if it takes a time step.
        spaces: grids and channels of a and u.
        normalisations: of "a", of "u", and of "scalars" if there are any.
        elements: of the group of symmetries; empty for none.

    `history` has the rows of the training log, and `updates` is the number of optimiser steps.
    """

    def __init__(
        self,
        module: nn.Module,
        spaces: Spaces,
        normalisations: Mapping[str, Normalisation],
        elements: Sequence[Symmetry] = (),
    ) -> None:
        self.module, self.spaces, self.elements = module, spaces, tuple(elements)
        self.normalisations = dict(normalisations)
        self.history: list[dict[str, Any]] = []
        self.updates = 0

    @classmethod
    def build(
        cls,
        network: str | Mapping[str, Any] | nn.Module,
        pairs: Pairs,
        spaces: Spaces,
        terms: Terms,
        *,
        normalise: tuple[Normalise, Normalise] = ("scalar", "scalar"),
        elements: Sequence[Symmetry] = (),
        time: bool = False,
    ) -> Self:
        """Build an untrained network for these pairs; its weights are a function of the seed.

        Args:
            network: a name, a mapping of settings, or a module, as `pdno.nn.build` takes it.
            pairs: training pairs, from which the normalisations are estimated.
            spaces: those of the pairs.
            terms: seed and precision.
            normalise: of a and of u.
            elements: of the group of symmetries.
            time: whether the network takes a time step and a noisy output beside the condition.
        """
        normalisations = {
            "a": Normalisation.of(pairs.a, normalise[0]),
            "u": Normalisation.of(pairs.u, normalise[1], pairs.mask),
        }
        if pairs.scalars is not None:
            normalisations["scalars"] = Normalisation.of(pairs.scalars, "scalar")
        module = _module(network, spaces, time, terms.seed)
        return cls(module.double() if terms.precision == "64-true" else module, spaces, normalisations, elements)

    def train(
        self,
        objective: Callable[[Pairs, str], Objective],
        pairs: Pairs,
        held_out: Pairs | None,
        training: Training,
        terms: Terms,
        settings: Mapping[str, Any],
        errors: tuple[Pairs, Callable[[Pairs], Array]] | None = None,
    ) -> Self:
        """Train the network, or resume its training in the folder of the run.

        Args:
            objective: (pairs, purpose) ↦ the loss of some rows of these pairs; the purpose "train" or "validation" is the
                name under which random numbers are drawn.
            pairs: training pairs.
            held_out: pairs for the validation loss.
            training: settings of the loop.
            terms: seed, folder, device and deadline.
            settings: whatever else defines the objective, as plain JSON types: a run is resumed only if it has the same.
            errors: pairs whose MRLE is logged if `terms` asks for it, and the function that predicts their outputs, in the
                shape of u, with the weights that `module` has.
        """
        engine = fabric(terms.device, terms.devices, terms.precision)
        self.module.to(engine.device)  # before the objective, whose constants are on the device of the network
        with progress_bar("training", "steps") if terms.progress else nullcontext() as bar:
            trained: Trained = train(
                self.module,
                objective(pairs, "train"),
                len(pairs),
                training,
                engine,
                seed=terms.seed,
                folder=terms.run,
                plan=self._plan(pairs, training, terms, settings),
                budget=terms.left(TRAINING_SHARE),
                validate=_validation(objective, held_out, training.batch) if held_out else None,
                errors=(terms.log_error, self._error(*errors)) if errors is not None and terms.log_error else None,
                progress=bar,
            )
        self.module, self.history, self.updates = trained.network, trained.history, trained.updates
        return self

    def _error(self, pairs: Pairs, predict: Callable[[Pairs], Array]) -> Callable[[nn.Module], float]:
        """Return the MRLE on pairs as a function of a network, which takes the place of `module` meanwhile."""

        def measure(network: nn.Module) -> float:
            module, self.module = self.module, network
            try:
                values = predict(pairs)
                return mrle(values, pairs.u, mask=pairs.mask).value if np.isfinite(values).all() else np.nan
            finally:
                self.module = module

        return measure

    def _plan(self, pairs: Pairs, training: Training, terms: Terms, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return what two runs must share for one to resume the other."""
        data: dict[str, Any] = {name: [float(n.mean.mean()), float(n.std.mean())] for name, n in self.normalisations.items()}
        data |= {"pairs": len(pairs), "first": float(f"{np.abs(pairs[:1].filled).mean():.5g}")}  # but for rounding
        loop = {name: value for name, value in vars(training).items() if name != "checkpoint_seconds"}
        plan = {"training": loop, "data": data, "spaces": self.spaces.state().settings, "network": self.settings}
        return {**plan, "seed": terms.seed, "precision": terms.precision, **settings}

    @property
    def settings(self) -> dict[str, Any] | str:
        """Kind and settings of the network as plain JSON types; "own" for a module of the user."""
        module = self.module.network if isinstance(self.module, Projected) else self.module
        for kind, cls in NETWORKS.items():
            if type(module) is cls:
                return {"kind": kind, **module.settings}
        return OWN

    @property
    def parameters(self) -> int:
        """Number of trained parameters."""
        return sum(p.numel() for p in self.module.parameters())

    @property
    def any_grid(self) -> bool:
        """Whether the network can be evaluated on other grids: an operator, one normalisation per channel, one grid."""
        fields = [self.normalisations[name] for name in ("a", "u")]
        by_channel = all(n.mean[0].size == n.std[0].size == 1 for n in fields)
        is_operator = isinstance(self.module, GridNetwork) and self.module.is_operator
        return is_operator and by_channel and self.spaces.a_shape[1:] == self.spaces.u_shape[1:]

    def rows(self, pairs: Pairs, seed: int | None = None) -> Callable[..., tuple[Tensor, Tensor, Tensor | None]]:
        """Return the function (rows, first, step) ↦ condition, normalised outputs and mask, on the network's device.

        With a seed and symmetries, each pair is transformed by an element that is a function of (seed, place in the batch,
        step).
        """
        a, u, scalars, mask = pairs.a, pairs.u, pairs.scalars, pairs.mask

        def get(rows: Rows, first: int = 0, step: int = 0) -> tuple[Tensor, Tensor, Tensor | None]:
            x, y = a[rows], u[rows]
            if self.elements and seed is not None:
                x, y = augment(x, y, self.elements, seed, np.arange(first, first + len(rows)), step)
            condition = self.condition(x, None if scalars is None else scalars[rows])
            outputs = self.normalisations["u"].normalise(y)
            observed = None if mask is None else self.tensor(mask[rows])
            return condition, self.tensor(outputs if mask is None else np.where(mask[rows], outputs, 0.0)), observed

        return get

    def condition(self, a: Array, scalars: Array | None) -> Tensor:
        """Return the network's view of inputs: (sample, channel, *grid of u), or *grid of a if that has another dimension."""
        if scalars is not None:
            scalars = self.normalisations["scalars"].normalise(scalars)
        return self.tensor(self.spaces.condition(self.normalisations["a"].normalise(a), scalars))

    def tensor(self, values: Array) -> Tensor:
        """Return values with the type of the network's parameters, on their device."""
        like = next(chain(self.module.parameters(), self.module.buffers()))
        dtype = np.float64 if like.dtype == torch.float64 else np.float32
        return torch.as_tensor(np.asarray(values, dtype=dtype)).to(like.device)

    def to(self, device: str) -> None:
        """Move the network; "auto" chooses a GPU if there is one.

        Raises:
            UserError: if this machine does not have the device.
        """
        self.module.to(device_of(device))

    def state(self) -> State:
        """Return weights, normalisations and settings, to be saved; a module of the user is saved by its weights alone."""
        weights = {name: value.detach().cpu().numpy() for name, value in self.module.state_dict().items()}
        parts = {name: normalisation.state() for name, normalisation in self.normalisations.items()}
        return State(
            {"network": self.settings, "updates": self.updates},
            {},
            {"spaces": self.spaces.state(), "normalisations": State({}, {}, parts), "weights": State({}, weights)},
        )

    @classmethod
    def from_state(
        cls, state: State, time: bool = False, network: nn.Module | None = None, elements: Sequence[Symmetry] = ()
    ) -> Self:
        """Restore what `state` returned.

        Args:
            state: settings, weights and normalisations.
            time: whether the network takes a time step.
            network: the module for the weights of a network of the user.
            elements: of the group of symmetries.

        Raises:
            UserError: if the weights do not fit the network, which is checked before memory is allocated.
        """
        spaces = Spaces.from_state(state.parts["spaces"])
        normalisations = {name: Normalisation.from_state(part) for name, part in state.parts["normalisations"].parts.items()}
        weights = {name: torch.from_numpy(np.array(v)) for name, v in state.parts["weights"].arrays.items()}
        module = _filled(_described(state.settings["network"], spaces, time, weights, network), weights)
        new = cls(module.eval(), spaces, normalisations, elements)
        new.updates = int(state.settings["updates"])
        return new


def device_of(name: str) -> torch.device:
    """Return the device of this name; "auto" is a GPU if there is one.

    Raises:
        UserError: if this machine does not have the device.
    """
    name = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else DEVICES.get(name, name)
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch raises one of them, depending on the device
        raise UserError(f"this machine cannot compute on {name!r}: {str(error).splitlines()[0]}") from None


def elements_of(symmetries: Sequence[str | Own], spaces: Spaces, pairs: Pairs | None = None) -> tuple[Symmetry, ...]:
    """Return the elements of the group of symmetries on the grid of u; with pairs, check on the first one that it is a group.

    Raises:
        UserError: if the pairs have missing outputs, a and u differ in dimension, or the maps are not a group.
    """
    if not symmetries:
        return ()
    if not spaces.same_dimension:
        raise UserError(
            f"symmetries act on a and u in the same way, but inputs have {len(spaces.a_shape) - 1} dimensions and outputs "
            f"{len(spaces.u_shape) - 1}; omit the symmetries"
        )
    if pairs is not None and pairs.mask is not None:
        raise UserError("symmetries cannot be combined with a mask, as they would move the missing nodes; omit one of them")
    elements = group(symmetries, spaces.grid)
    if pairs is not None:
        check(elements, pairs.a[:1], pairs.u[:1])
    return elements


def normalise_of(normalise: Normalise | Sequence[Normalise]) -> tuple[Normalise, Normalise]:
    """Return the normalisations of a and of u from one for both, or one for each."""
    if isinstance(normalise, str):
        return normalise, normalise
    if len(normalise) != 2:
        raise UserError(f"normalise = {normalise!r}: expected one setting, or one for a and one for u")
    return normalise[0], normalise[1]


def _module(network: Any, spaces: Spaces, time: bool, seed: int) -> nn.Module:
    """Return a network for these spaces; a module of the user, which takes a on its own grid, gets no projection."""
    channels = spaces.u_shape[0]
    if "node" in spaces.kind and not isinstance(network, nn.Module):
        raise UserError(NEEDS_GRID)
    periodic = tuple(kind == "periodic" for kind in spaces.kind)
    if spaces.same_dimension or isinstance(network, nn.Module):
        return build(network, spaces.u_shape[1:], spaces.channels + time * channels, channels, time, seed, periodic)
    inner = build(network, spaces.u_shape[1:], PROJECTED + time * channels, channels, time, seed, periodic)
    a_periodic = tuple(axis.kind == "periodic" for axis in spaces.a_grid.axes)
    source, target = (spaces.a_shape[1:], a_periodic), (spaces.u_shape[1:], periodic)
    return Projected(Projection(source, target, spaces.channels, PROJECTED, seed), inner)


def _validation(objective: Callable[[Pairs, str], Objective], held_out: Pairs, batch: int) -> Callable[[nn.Module], float]:
    """Return the validation loss as a function of a network."""
    rows = min(len(held_out), VALIDATED)
    size = min(batch, rows)

    def validate(network: nn.Module) -> float:
        loss = objective(held_out, "validation")
        starts = range(0, rows - size + 1, size)
        with torch.no_grad():
            return float(np.mean([float(loss(network, np.arange(lo, lo + size), lo, 0)) for lo in starts]))

    return validate


def _described(
    settings: Any, spaces: Spaces, time: bool, weights: Mapping[str, Tensor], network: nn.Module | None
) -> nn.Module:
    """Return the network that settings describe; one that does not fit the weights is refused before it is built."""
    if network is not None:
        return network
    if settings == OWN:
        raise UserError("the file has the weights of a network of your own; pass it: pdno.load(…, network=YourNetwork())")
    try:
        with torch.device("meta"):
            shapes = {name: v.shape for name, v in _module(settings, spaces, time, 0).state_dict().items()}
    except (ValueError, RuntimeError, TypeError) as error:  # settings of a network that cannot be built
        raise UserError(f"the file describes a network that does not exist: {str(error).splitlines()[0]}") from None
    if shapes != {name: v.shape for name, v in weights.items()}:
        raise UserError("the weights do not fit the network that the file describes; it cannot be used")
    return _module(settings, spaces, time, 0)


def _filled(module: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    module.to(next(iter(weights.values())).dtype)
    try:
        module.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise UserError(f"the weights do not fit this network: {str(error).splitlines()[-1].strip()}") from None
    return module


def plain(setting: Any) -> Any:
    """Return a setting as plain JSON types; "own" if it is, or contains, code of the user."""

    def number(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError

    try:
        return json.loads(json.dumps(setting, default=number))
    except TypeError:
        return OWN
