"""Build residual laws from a name or a saved state. A new named law needs a file of its own and an entry here."""

from typing import Any

from torch import nn

from ..errors import UserError, nearest
from ..work.state import State
from .censored import Censored
from .copula import Copula
from .diffused import Diffused
from .exact import Exact
from .gaussian import Gaussian
from .law import ResidualLaw
from .posterior import PosteriorLaw
from .resampled import Resampled
from .scaled import Scaled
from .statistics import Statistics

__all__ = ["LAWS", "check_law_name", "law_from_state", "law_name"]

LAWS: dict[str, type[Any]] = {
    law.name: law for law in (Exact, Gaussian, PosteriorLaw, Resampled, Copula, Censored, Scaled, Statistics, Diffused)
}


SHORT_NAMES = {"scale": Scaled.name}


def law_name(law: Any) -> Any:
    """Return a law, or its name in place of a short one: "scaled" for "scale"."""
    return SHORT_NAMES.get(law, law) if isinstance(law, str) else law


def check_law_name(law: str) -> None:
    """Check the name of a law.

    Raises:
        UserError: if there is no law of this name.
    """
    if not isinstance(law, str):
        raise UserError(f"law = {law!r}: expected a name, such as 'gaussian', or a pdno.residual.ResidualLaw")
    if law_name(law) not in ("auto", *LAWS):
        raise UserError(f"law {law!r} is unknown; {nearest(law, ('auto', *LAWS))}")


def law_from_state(state: State, network: nn.Module | None = None, sampler: Any = None) -> ResidualLaw:
    """Restore a law from the state that `named_state` returned.

    Args:
        state: with the name of the law.
        network: the module for the weights of a network of your own.
        sampler: the function, if the sampler is one of your own.

    Raises:
        UserError: if the law is not one of pdno's.
    """
    settings = dict(state.settings)
    name, own = settings.pop("name"), State(settings, state.arrays, state.parts)
    if name not in LAWS:
        raise UserError(f"the file has a law {name!r} of your own; pass its class: pdno.load(…, law=YourLaw.from_state)")
    if name == Diffused.name:
        return Diffused.from_state(own, network, sampler)
    if name == Statistics.name:
        return Statistics.from_state(own, law_from_state)
    return LAWS[name].from_state(own)  # type: ignore[no-any-return]
