"""Load a model from its file. No code in the file is run, and shapes are compared before memory is allocated."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from ..diffusion.reverse import Sampler
from ..errors import UserError, nearest
from ..mean.base import Mean
from ..mean.build import mean_from_state
from ..mean.network import Network
from ..residual.build import law_from_state
from ..residual.law import ResidualLaw
from ..work import checkpoint
from ..work.folder import RunFolder
from ..work.state import State
from .baseline import FNO, Deterministic, UNet
from .intervals import intervals_in
from .law import Law
from .operator import PDNO
from .surrogate import KIND, Surrogate

__all__ = ["load"]

T = TypeVar("T")
MODELS: dict[str, type[Any]] = {model.name: model for model in (PDNO, FNO, UNet, Deterministic)}


def load(
    path: str | Path,
    network: nn.Module | None = None,
    device: str = "cpu",
    *,
    mean: Callable[[State], Mean] | None = None,
    law: Callable[[State], ResidualLaw] | None = None,
    sampler: Sampler | None = None,
) -> Surrogate:
    """Load a model that `save` or `pdno train` wrote.

    Args:
        path: the file, or the folder of a run, whose conformal calibration by `pdno evaluate` is loaded as well.
        network: the module for the weights of a network of your own.
        device: where to compute.
        mean: restores a mean of your own, for instance `YourMean.from_state`.
        law: restores a residual law of your own, for instance `YourLaw.from_state`.
        sampler: the function, if the sampler is one of your own.

    Returns:
        The fitted model.

    Raises:
        UserError: if there is no such file, it is damaged, or needs code of your own that is not given.
    """
    file = _file(Path(path))
    intervals = intervals_in(RunFolder(Path(path))) if Path(path).is_dir() else None
    state = checkpoint.load_state(file, KIND)
    settings = dict(state.settings)
    kind = settings.pop("model", None)
    if kind not in MODELS:
        raise UserError(f"{file} holds a model {kind!r} that this version does not have; {nearest(str(kind), MODELS)}")
    own: dict[str, Any] = {} if sampler is None else {"sampler": sampler}
    try:
        restored = Law.from_state(
            state.parts["law"],
            partial(_mean, network=None if kind == PDNO.name else network) if mean is None else partial(_own, mean),
            partial(law_from_state, network=network, **own) if law is None else partial(_own, law),
        )
        restored = restored if intervals is None else replace(restored, intervals=intervals)
        model: Surrogate = MODELS[kind].from_settings(settings, restored, **own)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if isinstance(error, UserError) else repr(error)
        raise UserError(f"{file} cannot be loaded: {reason}") from None
    return model.to(device)


def _file(path: Path) -> Path:
    """Return the file of a model, for the path of a file or of a run."""
    if not path.is_dir():
        return path
    run = RunFolder(path)
    if not run.model.exists():
        hint = "is not finished; run the same `pdno train` again" if run.config.exists() else "is not the folder of a run"
        raise UserError(f"{path} {hint}; there is no {run.model.name} in it")
    return run.model


def _mean(state: State, network: nn.Module | None) -> Mean:
    """Restore a mean; a network of the user's own gets its weights from the file."""
    if network is None or state.settings["name"] != Network.name:
        return mean_from_state(state)
    return Network.from_state(_unnamed(state), network)


def _own(restore: Callable[[State], T], state: State) -> T:
    """Restore a part of the user's own, from what its `state` returned."""
    return restore(_unnamed(state))


def _unnamed(state: State) -> State:
    """Return the state of a part without its name, which the file adds."""
    return State({key: value for key, value in state.settings.items() if key != "name"}, state.arrays, state.parts)
