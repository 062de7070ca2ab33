"""Statistics of the members of a prediction, in memory that does not grow with their number.

Quantiles that were not requested, intervals, bands and functionals are computed from the members drawn again (`Draws`).
"""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from .._typing import Array, Mask
from ..data.meshes import Points, spaces_on
from ..data.pairs import Pairs
from ..data.split import one_of_each
from ..errors import UserError
from ..evaluation.conformal import Conformal
from ..evaluation.dependence import groups_of
from ..evaluation.streaming import Statistics
from ..work.progress import progress_bar
from .draws import Draws, Functional, central_of
from .intervals import Intervals
from .law import Given, Law, positive
from .members import TOLERANCE, members_needed
from .transfer import UNRESOLVED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Prediction", "calibrate", "draw_members", "given_for", "predict"]

DESCRIPTIONS = {"mean": "mean of the members", "std": "standard deviation of the members"}
SUFFIXES = (".nc", ".zarr")  # of files that a prediction is saved to
SHOWN = 3  # members in a plot


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
        draws: what draws the members again.
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
    draws: Draws | None = field(default=None, repr=False, compare=False)

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

    @property
    def intervals(self) -> Intervals | None:
        """The conformal calibration of the model, if it has one for these members, sampling settings and this grid."""
        law = self._drawn.given.law
        if law.mesh is not None or law.intervals is None:
            return None
        members = None if law.residual.deterministic else self._drawn.count
        return law.intervals if law.intervals.belong_to(members, self._drawn.sampling) else None

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Return lower and upper bound of the interval at each point, each in the shape of u.

        If the model was calibrated for this level with as many members (`Surrogate.calibrate`), the interval is conformal: it
        covers at least this fraction of new observations, on average over inputs. Otherwise it is that of the members.
        """
        lower, upper = self._central(level)
        if (calibrated := self.intervals) is not None and calibrated.level == level:
            lower, upper = calibrated.points.apply(lower, upper, self._plain(self.std))
        return self._like(lower), self._like(upper)

    def band(self, level: float = 0.9) -> tuple[Any, Any]:
        """Return lower and upper bound of the band that covers a whole field with this probability, each in the shape of u.

        It is conformal where `interval` is; otherwise it is mean ± c·std, where c is that of the members of each input.
        """
        central_of(level, self._drawn.count)
        if (calibrated := self.intervals) is not None and calibrated.level == level:
            lower, upper = calibrated.fields.apply(*self._central(level), self._plain(self.std))
        else:
            mean, std = self._plain(self.mean), self._plain(self.std)
            c = self._drawn.band_factor(mean, std, level).reshape(-1, *[1] * (mean.ndim - 1))
            lower, upper = mean - c * std, mean + c * std
        return self._like(lower), self._like(upper)

    def functional(self, function: Callable[[Array], Any]) -> Functional:
        """Return the distribution of a functional of the field, such as ``pred.functional(lambda u: u.max(axis=-1))``.

        Args:
            function: of members of one input, (member, *shape of u), with values (member, …).

        Returns:
            Its values (member, sample, …), with mean, std, quantiles and intervals.

        Raises:
            UserError: if its values are not one for each member.
        """
        spaces = self._drawn.given.law.spaces
        return self._drawn.functional(lambda u: function((u if spaces.channel else u[:, 0]).astype(spaces.dtype, copy=False)))

    def to_xarray(self) -> xr.Dataset:
        """Return mean, std, quantiles and what else there is as a data set, with the coordinates of u."""
        named = {**DESCRIPTIONS, **{f"quantile_{q:g}": f"{100 * q:g} % quantile of the members" for q in self.quantiles}}
        fields = {"mean": self.mean, "std": self.std, **{f"quantile_{q:g}": v for q, v in self.quantiles.items()}}
        fields |= {name: v for name in ("aleatoric_std", "epistemic_std") if (v := getattr(self, name)) is not None}
        units = {k: v for k, v in self._drawn.given.law.spaces.labels.get("u", {}).items() if k == "units"}
        labelled = {
            name: self._labelled(v).assign_attrs(long_name=named.get(name, name), **units) for name, v in fields.items()
        }
        per_input = {} if self.novelty is None else {"novelty": self.novelty, "is_ood": self.is_ood}
        return xr.Dataset(
            {**labelled, **{name: ("sample", v) for name, v in per_input.items()}}, attrs={"members": self.members}
        )

    def save(self, path: str | Path) -> None:
        """Write `to_xarray` to a netCDF file (.nc) or a Zarr store (.zarr).

        Raises:
            UserError: if the file exists, or has another suffix.
        """
        path = Path(path)
        if path.suffix not in SUFFIXES:
            raise UserError(f"{path.name}: a prediction is saved as netCDF or Zarr; call it {path.stem}.nc or {path.stem}.zarr")
        if path.exists():
            raise UserError(f"{path} exists already and is never overwritten; choose another name")
        if path.suffix == ".nc":
            self.to_xarray().to_netcdf(path, engine="h5netcdf")
        else:
            self.to_xarray().to_zarr(path, consolidated=False)

    def plot(self, number: int = 0, channel: int = 0, **options: Any) -> "Figure":
        """Plot the prediction for one input, with three members.

        Args:
            number: of the input.
            channel: of the output.
            options: as in `pdno.plot.fields`, such as the truth u, (*shape of u) without the samples.
        """
        import pdno  # figures stand below models; users call them by the same name

        draws, spaces, part = self._drawn, self._drawn.given.law.spaces, slice(channel, channel + 1)
        a = None if spaces.without_field else draws.given.a[number, :1]
        axes = [v for name in spaces.axes if (v := spaces.coordinates.get(name)) is not None and v.dtype.kind in "iuf"]
        x: Any = axes if len(axes) == len(spaces.axes) else None
        x = x if spaces.nodes is None else pdno.plot.style.triangulation(spaces.nodes)
        members = [member[part] for _, values in draws.of(number, SHOWN).batches() for member in values]
        mean, std = (self._plain(values)[number, part] for values in (self.mean, self.std))
        given = {name: self._plain(options[name])[0, part] for name in ("u", "observed") if options.get(name) is not None}
        options = {"x": x, "u": None, "labels": spaces.plot_labels(), **options, **given}
        figure: Figure = pdno.plot.fields(a, mean=mean, std=std, members=members, **options)
        return figure

    @property
    def _drawn(self) -> Draws:
        if self.draws is None:
            raise UserError("this prediction was made without a model, so that its members cannot be drawn again")
        return self.draws

    def _central(self, level: float) -> tuple[Array, Array]:
        """Return the central interval of the members, each bound (sample, channel, *grid)."""
        levels = central_of(level, self._drawn.count)
        if all(q in self.quantiles for q in levels):
            return self._plain(self.quantiles[levels[0]]), self._plain(self.quantiles[levels[1]])
        lower, upper = self._drawn.quantiles(levels)
        return lower, upper

    def _plain(self, values: Any) -> Array:
        """Return values in the shape of u as (sample, channel, *grid)."""
        return np.asarray(values).reshape(-1, *self._drawn.given.law.spaces.u_shape)

    def _like(self, values: Array) -> Any:
        """Return values (sample, channel, *grid) in the layout and type of the mean."""
        return self._drawn.given.law.spaces.outputs(values, self.mean)

    def _labelled(self, values: Any) -> xr.DataArray:
        """Return values in the shape of u with names of axes and coordinates."""
        if isinstance(values, xr.DataArray):
            return values
        labelled: xr.DataArray = self._drawn.given.law.spaces.outputs(self._plain(values), xr.DataArray())
        return labelled


def calibrate(
    law: Law, pairs: Pairs, level: float = 0.9, members: int = 100, seed: int = 0, progress: bool = True, **sampling: Any
) -> Intervals:
    """Return the conformal calibration of a law on held-out pairs; arguments as in `Surrogate.calibrate`."""
    pairs = pairs[one_of_each(groups_of(pairs), len(pairs))]  # independent ones
    count = 1 if law.residual.deterministic else positive(members)
    levels = central_of(level, count)
    p = predict(law, pairs.a, count, seed, levels, scalars=pairs.scalars, progress=progress, **sampling)
    u = pairs.u if pairs.u_eta is None else pairs.u_eta
    lower, upper, std = (np.asarray(v).reshape(u.shape) for v in (p.quantiles[levels[0]], p.quantiles[levels[1]], p.std))
    points, fields = (Conformal.of(lower, upper, std, u, level, share=share, mask=pairs.mask) for share in (None, 1.0))
    return Intervals(points, fields, sampling, count)


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
    draws = Draws(given, 1 if deterministic else positive(members), seed, start, chunk, sampling)
    with progress_bar("predicting", "members") if progress else nullcontext() as bar:
        for i, values in draws.batches():
            current.add(values)
            if current.moments.count == draws.count:
                std = np.zeros(shape) if deterministic else current.moments.std
                out[:, i] = [current.moments.mean, std, *current.quantiles.values.values()]
                rank_error = max(rank_error, current.quantiles.rank_error)
                current = Statistics(shape, levels)
            done += len(values)
            if bar is not None:
                bar(done, len(fields) * draws.count)
    if given.mean is not None:
        out[0] = given.mean
    mean, std, *rest = (spaces.outputs(values, a) for values in out)
    novelty = None if law.novelty is None else law.novelty.distance(given.inputs.a, parameters)
    noise, rest_std = (None if part is None else spaces.outputs(part, a) for part in given.uncertainty())
    notes = () if law.mesh is None else law.mesh.notes(law.residual)
    quantiles_ = dict(zip(levels, rest, strict=True))
    return Prediction(mean, std, members, quantiles_, rank_error, novelty, noise, rest_std, notes, draws)


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
