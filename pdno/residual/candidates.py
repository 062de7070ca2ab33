"""Laws with networks, and statistics by principal components, among which the default selects: from cheap to costly."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from .diffused import Diffused
from .gaussian import Gaussian
from .law import ResidualLaw
from .scaled import Scaled
from .statistics import Statistics

__all__ = ["LINEAR", "Candidate", "candidates"]

FEWEST_PAIRS = 100  # training pairs for networks
LINEAR = "linear statistics"  # statistics by principal components, without a network
DIFFUSION_SECONDS = 240.0  # of the time that is left for laws, below which a diffusion of fields is not tried
SECONDS_PER_NODE = 480.0 / 1024  # likewise, for large fields


@dataclass(frozen=True)
class Candidate:
    """A law with a network that may be selected.

    Args:
        make: returns a new, untrained law, given the spread of the Gaussian law.
        weight: share of the screening time, relative to other candidates.
        least_seconds: of the time that is left for laws, below which there is no time for it.
        fewest_pairs: training pairs that it needs.
        required: whether the user asked for it: errors are then raised, otherwise they are reasons not to try it.
    """

    name: str
    make: Callable[[Gaussian], ResidualLaw]
    weight: float
    least_seconds: float = 0.0
    fewest_pairs: int = FEWEST_PAIRS
    required: bool = False


def candidates(diffused: Diffused, nodes: int = 0) -> tuple[Candidate, ...]:
    """Return the laws with networks, from cheap to costly; only the diffusion if its network was given.

    Args:
        diffused: untrained diffusion with the settings of the model; it shares S and t with the Gaussian law.
        nodes: of a field; a diffusion of large fields needs more time.
    """

    def diffusion(gaussian: Gaussian) -> ResidualLaw:
        return deepcopy(diffused).with_spread(gaussian.spread).before_tuning()

    if diffused.network != "auto":
        return (Candidate(Diffused.name, diffusion, 1.0, fewest_pairs=1, required=True),)
    training = diffused.training if diffused.training.is_limited else None
    return (
        Candidate(LINEAR, lambda gaussian: Statistics("auto", Gaussian(), "linear", training), 0.2),
        Candidate(Scaled.name, lambda gaussian: Scaled(training=training), 0.25),
        Candidate(Statistics.name, lambda gaussian: Statistics(training=training), 0.6),
        Candidate(Diffused.name, diffusion, 1.0, max(DIFFUSION_SECONDS, SECONDS_PER_NODE * nodes)),
    )
