"""Statistics of the members of a prediction, in memory that does not grow with their number."""

import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .._typing import Array, Mask
from ..data.meshes import Points, spaces_on
from ..errors import UserError
from ..evaluation.streaming import Statistics
from ..work.progress import progress_bar
from .law import Given, Law, positive
from .members import TOLERANCE, members_needed
from .transfer import UNRESOLVED

__all__ = ["Prediction", "draw_members", "given_for", "predict"]


@dataclass(frozen=True)
class Prediction:
    """Statistics of the members of each input, in the shape of u.

    Args:
        mean: the exact mean if the law has one, else that of the members.
        std: standard deviation of the members.
        members: their number.
        quantiles: by level.
        rank_error: 0 if quantiles are exact, else the largest error of their rank as a fraction of the members.
        novelty: out-of-distribution score of each input, (sample,), above 1 where it is flagged; None if the model has none.
        aleatoric_std: standard deviation of the observation noise; None if it is not available.
        epistemic_std: standard deviation of the model's error, which more data would reduce; None if it is not available.
        notes: what a prediction on another mesh than that of training is, in sentences.
    """

    mean: Any
    std: Any
    members: int
    quantiles: dict[float, Any] = field(default_factory=dict)
    rank_error: float = 0.0
    novelty: Array | None = None
    aleatoric_std: Any = None
    epistemic_std: Any = None
    notes: tuple[str, ...] = ()

    @property
    def is_ood(self) -> Mask | None:
        """True for out-of-distribution inputs, whose error bars are not reliable; None without a novelty score."""
        return None if self.novelty is None else self.novelty > 1

    def quantile(self, level: float) -> Any:
        """Return the quantile of this level.

        Raises:
            UserError: if it was not requested from `predict`.
        """
        if level not in self.quantiles:
            computed = ", ".join(f"{q:g}" for q in self.quantiles) or "none"
            raise UserError(
                f"quantile {level} was not computed (only {computed}); request it: predict(…, quantiles=({level},))"
            )
        return self.quantiles[level]


def predict(
    law: Law,
    a: Any,
    members: int | Literal["auto"] = 100,
    seed: int = 0,
    quantiles: tuple[float, ...] = (0.05, 0.95),
    *,
    scalars: Any = None,
    chunk: int | None = None,
    start: int = 0,
    progress: bool = True,
    tolerance: float = TOLERANCE,
    points: Points | None = None,
    **sampling: Any,
) -> Prediction:
    """Return mean, std and quantiles of each input's members; arguments as in `pdno.model.surrogate.Surrogate.predict`."""
    law, given = given_for(law, a, scalars, points)
    spaces, fields, parameters = law.spaces, given.a, given.scalars
    levels = _levels(quantiles)
    shape, deterministic = spaces.u_shape, law.residual.deterministic
    out = np.empty((2 + len(levels), len(fields), *shape))
    current, rank_error, done = Statistics(shape, levels), 0.0, 0
    if members == "auto":
        members = members_needed(given, _tolerance(tolerance), seed, start, **sampling)
    drawn = 1 if deterministic else positive(members)
    with progress_bar("predicting", "members") if progress else nullcontext() as bar:
        for inputs, _, values in given.stream(drawn, seed, chunk=chunk, start=start, **sampling):
            for i in np.unique(inputs):
                current.add(values[inputs == i])
                if current.moments.count == drawn:
                    std = np.zeros(shape) if deterministic else current.moments.std
                    out[:, i] = [current.moments.mean, std, *current.quantiles.values.values()]
                    rank_error = max(rank_error, current.quantiles.rank_error)
                    current = Statistics(shape, levels)
            done += len(inputs)
            if bar is not None:
                bar(done, len(fields) * drawn)
    if given.mean is not None:
        out[0] = given.mean
    mean, std, *rest = (spaces.outputs(values, a) for values in out)
    novelty = None if law.novelty is None else law.novelty.distance(given.inputs.a, parameters)
    noise, rest_std = (None if part is None else spaces.outputs(part, a) for part in given.uncertainty())
    notes = () if law.mesh is None else law.mesh.notes(law.residual)
    return Prediction(mean, std, members, dict(zip(levels, rest, strict=True)), rank_error, novelty, noise, rest_std, notes)


def draw_members(
    law: Law,
    a: Any,
    members: int,
    seed: int,
    scalars: Any,
    chunk: int | None,
    start: int,
    points: Points | None = None,
    **sampling: Any,
) -> Any:
    """Return members (member, *shape of u)."""
    law, given = given_for(law, a, scalars, points)
    out = np.empty((positive(members), len(given.a), *law.spaces.u_shape))
    for inputs, numbers, values in given.stream(members, seed, chunk=chunk, start=start, **sampling):
        out[numbers, inputs] = values
    return law.spaces.outputs(out, a)


def given_for(law: Law, a: Any, scalars: Any, points: Points | None = None) -> tuple[Law, Given]:
    """Return the law on the mesh of the user's inputs, and the distribution of u for them; arguments as in `predict`.

    Warns of inputs that their grid does not resolve.
    """
    law = law.on(spaces_on(law.spaces, a, points))
    given = law.given(*law.spaces.inputs(a, scalars))
    if law.mesh is not None and (part := law.mesh.unresolved(given.a)) > UNRESOLVED:
        warnings.warn(
            f"inputs are not resolved on their grid of {law.spaces.a_grid}: {100 * part:.0f} % of their variance is in the "
            f"highest modes; predictions depend on how they are interpolated to the grid of training, {law.mesh.source.a_grid}",
            stacklevel=4,
        )
    return law, given


def _tolerance(tolerance: Any) -> float:
    """Return a positive number."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float | np.integer | np.floating) or not tolerance > 0:
        raise UserError(f"tolerance = {tolerance!r}: expected a positive number, such as 0.03 for 3 % of the std")
    return float(tolerance)


def _levels(quantiles: Any) -> tuple[float, ...]:
    """Return the levels without duplicates."""
    if isinstance(quantiles, str) or not np.iterable(quantiles):
        raise UserError(f"quantiles = {quantiles!r}: expected levels, such as (0.05, 0.95)")
    return tuple(dict.fromkeys(quantiles))
