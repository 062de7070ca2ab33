"""From a name or settings to a mean operator."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ..errors import UserError, nearest
from ..nn import NETWORKS
from .base import Mean
from .kernel.kernel import Kernel
from .linear.linear import Linear
from .network import Network
from .sum import Sum

__all__ = ["MEANS", "is_saveable", "mean_of"]

MEANS: dict[str, type[Any]] = {"linear": Linear, "kernel": Kernel, "network": Network, "sum": Sum}


def is_saveable(mean: Mean) -> bool:
    """Whether `mean_of` makes it again from its settings: own solvers, modules and symmetries are code."""
    settings = mean.settings()
    own = "own" in (settings.get("network"), *settings.get("symmetries", ()))
    return type(mean) in MEANS.values() and not own and all(map(is_saveable, mean.inner))


def mean_of(asked: str | Mapping[str, Any] | Mean, **known: Any) -> Mean:
    """A mean operator that has not learned yet; `known` are settings, such as symmetries, for those that take them.

    >>> mean_of("kernel", symmetries=("square",)).symmetries
    ('square',)
    """
    if isinstance(asked, Mean):
        return deepcopy(asked)
    if not isinstance(asked, str | Mapping):
        raise UserError(f"mean = {asked!r}: expected a name, a mapping of settings, or a pdno.mean.Mean")
    settings = {"name": asked} if isinstance(asked, str) else dict(asked)
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise UserError(f"mean = {asked!r}: expected settings with a name, such as {{'name': 'kernel'}}")
    if name in NETWORKS and name != "zero":
        return Network({"kind": name, **settings}, **known)
    if name not in MEANS:
        words = [*MEANS, *(network for network in NETWORKS if network != "zero")]
        others = [] if name in ("auto", "none") else ["auto", "none"]  # which only a PDNO takes
        raise UserError(f"mean {name!r} is unknown; {nearest(name, [*others, *words])}")
    if name == "sum":
        parts = settings.pop("parts", ())
        if settings:
            raise UserError(f"the mean 'sum' does not take these settings: {', '.join(settings)}; expected 'parts' alone")
        return Sum(*(mean_of(part, **known) for part in parts))
    try:
        return MEANS[name](**({} if name == "linear" else known) | settings)  # type: ignore[no-any-return]
    except TypeError as error:
        raise UserError(f"the mean {name!r} does not take these settings: {error}") from None
