"""Build mean models from a name, from settings, or from a saved state."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ..errors import UserError, nearest
from ..nn.build import NETWORKS, SMALL
from ..work.state import State
from .base import Mean
from .constant import Constant
from .kernel.kernel import Kernel
from .linear.linear import Linear
from .network import Network
from .process.process import Process
from .sum import Sum

__all__ = ["MEANS", "mean_from_state", "mean_of"]

MEANS: dict[str, type[Any]] = {mean.name: mean for mean in (Constant, Linear, Kernel, Process, Network, Sum)}
WITHOUT_SYMMETRIES = ("linear", "process")  # means that take neither symmetries nor the kind of the axes


def mean_of(mean: str | Mapping[str, Any] | Mean, **shared: Any) -> Mean:
    """Return an untrained mean.

    Args:
        mean: a name, a mapping {"name": …, settings …}, or a mean, which is copied.
        shared: settings, such as symmetries, for the means that take them.

    Raises:
        UserError: if the name is unknown or the settings do not fit.

    >>> mean_of("kernel", symmetries=("square",)).symmetries
    ('square',)
    """
    if isinstance(mean, Mean):
        return deepcopy(mean)
    if not isinstance(mean, str | Mapping):
        raise UserError(f"mean = {mean!r}: expected a name, a mapping of settings, or a pdno.mean.Mean")
    settings = {"name": mean} if isinstance(mean, str) else dict(mean)
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise UserError(f"mean = {mean!r}: expected settings with a name, such as {{'name': 'kernel'}}")
    if name in NETWORKS or name in SMALL:
        return Network({"kind": name, **settings}, **shared)
    if name not in MEANS:
        others = [] if name in ("auto", "none") else ["auto", "none"]  # which only a PDNO takes
        raise UserError(f"mean {name!r} is unknown; {nearest(name, [*others, *MEANS, *NETWORKS, *SMALL])}")
    if name == "sum":
        parts = settings.pop("parts", ())
        if settings:
            raise UserError(f"the mean 'sum' does not take the settings {', '.join(settings)}; expected 'parts' only")
        return Sum(*(mean_of(part, **shared) for part in parts))
    try:
        return MEANS[name](**({} if name in WITHOUT_SYMMETRIES else shared) | settings)  # type: ignore[no-any-return]
    except TypeError as error:
        raise UserError(f"the mean {name!r} does not take these settings: {error}") from None


def mean_from_state(state: State) -> Mean:
    """Restore a mean from the state that `named_state` returned.

    Raises:
        UserError: if the mean is not one of pdno's.
    """
    settings = dict(state.settings)
    name, own = settings.pop("name"), State(settings, state.arrays, state.parts)
    if name not in MEANS:
        raise UserError(f"the file has a mean {name!r} of your own; pass its class: pdno.load(…, mean=YourMean.from_state)")
    if name == "sum":
        return Sum.from_state(own, mean_from_state)
    return MEANS[name].from_state(own)  # type: ignore[no-any-return]
