"""The noise in `results.json`, in tables, and in figures of the report."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from .. import plot
from .._typing import Array
from ..errors import UserError
from ..evaluation.density import density
from ..evaluation.ensemble import FUNCTIONAL_LEVEL
from ..evaluation.noise import within
from ..evaluation.score import Score
from ..evaluation.scoring import Evaluation
from ..evaluation.structure import PREFIXES
from .results import NOISE, SOURCES
from .terminal import text_table

__all__ = ["arrays_of", "drawings", "is_noise", "mixtures", "mixtures_of", "noise_rows", "noise_table"]

MOST_DRAWS = 5000  # of a scalar that are saved for the report
DENSITY_POINTS = 801  # of an exact density


def is_noise(metric: str) -> bool:
    """Return whether a metric is a statistic of the noise, which has a table of its own."""
    prefix, _, name = metric.partition("_")
    return prefix in SOURCES and name in NOISE


# What `pdno evaluate` writes


def mixtures_of(e: Evaluation) -> list[dict[str, Any]]:
    """Return the Gaussian components at the field's average and where the standard deviation is largest, as plain types."""
    if e.noise is None:
        return []
    places, rows = (e.noise.places[0], e.noise.places[-1]), []
    for place, exact, index in zip(places, (e.noise.exact[0], e.noise.exact[-1]), (0, 1), strict=True):
        for name, source in e.noise.sources.items():
            fit = source.fits[index] if source.fits else None
            if fit is not None:
                m, errors = fit.mixture, (fit.weight_errors, fit.mean_errors, fit.std_errors)
            elif exact is not None and name == "truth":
                m, errors = exact, (np.full(len(exact.weights), np.nan),) * 3
            else:
                continue
            for numbers in zip(m.weights, m.means, m.stds, *errors, strict=True):
                keys = ("weight", "mean", "std", "weight_error", "mean_error", "std_error")
                rows.append(
                    {"place": place.name, "source": PREFIXES[name], **dict(zip(keys, map(float, numbers), strict=True))}
                )
    return rows


def arrays_of(e: Evaluation) -> dict[str, Array]:
    """Return the arrays of the noise that the report plots."""
    arrays: dict[str, Array] = {}
    if e.joint is not None:
        arrays |= {"noise.joint.observed": e.joint[0], "noise.joint.bounds": e.joint[1]}
    if e.noise is None:
        return arrays
    for name, source in e.noise.sources.items():
        s = source.statistics
        arrays |= {f"noise.std.{name}": s.std, f"noise.std_error.{name}": s.std_error}
        if len(s.lags):
            arrays["noise.lags"] = s.lags
            arrays |= {f"noise.correlation.{name}": s.correlation, f"noise.correlation_error.{name}": s.correlation_error}
        for place, values in zip(e.noise.places, source.values, strict=True):
            if name != "truth" or source.fits:
                arrays[f"noise.values.{place.name}.{name}"] = values[:MOST_DRAWS]
    for place, exact in zip(e.noise.places, e.noise.exact, strict=True):
        if exact is not None:
            low, high = (exact.means - 6 * exact.stds).min(), (exact.means + 6 * exact.stds).max()
            near = np.linspace(-6, 6, 61) * exact.stds[:, None] + exact.means[:, None]
            x = np.unique(np.concatenate([np.linspace(low, high, DENSITY_POINTS), near.ravel()]))
            arrays[f"noise.exact.{place.name}"] = np.stack([x, exact.pdf(x)])
    return arrays


# Tables


def noise_rows(contents: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and the rows of the table of the noise, as text; no rows for results of earlier versions."""
    found = {row["metric"]: row for row in contents["rows"] if is_noise(row["metric"])}
    sources = [prefix for prefix in SOURCES if any(metric.startswith(f"{prefix}_") for metric in found)]
    rows = []
    for name, (_, text) in NOISE.items():
        cells = [_cell(found.get(f"{prefix}_{name}"), counted=name.endswith("_modes")) for prefix in sources]
        if any(cells):
            rows.append([text, *cells])
    return ["noise", *(SOURCES[prefix] for prefix in sources)], rows


def _cell(row: Mapping[str, Any] | None, counted: bool) -> str:
    if row is None or row["value"] is None:
        return ""
    if counted:
        return f"{row['value']:.0f}"
    return within(Score(row["value"], np.nan if row["error"] is None else row["error"], np.empty(0)))


def mixtures(contents: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of the table of Gaussian components, as text."""
    rows = []
    for row in contents.get("mixtures", ()):
        cells = [_number(row[key], row[f"{key}_error"]) for key in ("weight", "mean", "std")]
        rows.append([row["place"], SOURCES[row["source"]], *cells])
    return rows


def _number(value: float, error: float | None) -> str:
    return f"{value:.3g}" if error is None else within(Score(value, error, np.empty(0)))


def noise_table(contents: Mapping[str, Any]) -> Table | None:
    """Return the statistics of the noise as a table for the terminal; None if there are none."""
    columns, rows = noise_rows(contents)
    short = {text: label for label, text in NOISE.values()}
    return text_table(columns, ([short[text], *cells] for text, *cells in rows)) if rows else None


# Figures

Drawings = list[tuple[Callable[[Any], Figure], str]]  # functions of the theme, with captions


def drawings(arrays: Mapping[str, Array], axes: Any, xlabel: str = "x") -> Drawings:
    """Return the figures of the noise, as far as the arrays exist."""
    found: Drawings = []
    std = _estimates(arrays, "std")
    along: Any = {"x": axes or None, "xlabel": xlabel}
    if std:
        found.append(
            (
                lambda theme: plot.noise_std({k: (v[:1], e[:1]) for k, (v, e) in std.items()}, **along, theme=theme),
                "Standard deviation of the noise by place (root mean square over test inputs), with its standard error.",
            )
        )
    if "noise.lags" in arrays:
        found.append(
            (
                lambda theme: plot.noise_correlation(arrays["noise.lags"], _estimates(arrays, "correlation"), theme=theme),
                "Correlation of two nodes against their distance: that of members should be that of held-out errors.",
            )
        )
    places = _places(arrays)
    if places:
        found.append(
            (
                lambda theme: plot.noise_density(places, theme=theme),
                "Density of the noise: histogram of held-out errors, kernel density estimate of members with a bandwidth that "
                "resolves narrow modes, and the true density if it is known, averaged over the bins of the histogram.",
            )
        )
    if "noise.joint.observed" in arrays:
        joint = arrays["noise.joint.observed"][:, :, 0], arrays["noise.joint.bounds"][:, :, :, 0]
        found.append(
            (
                lambda theme: plot.functionals(*joint, FUNCTIONAL_LEVEL, theme=theme),
                "Functionals of whole fields: 90 % intervals of the members, and the observed value, for up to 40 test inputs.",
            )
        )
    return found


def _estimates(arrays: Mapping[str, Array], name: str) -> dict[str, tuple[Array, Array]]:
    """Return values and errors of each source."""
    return {
        source: (arrays[f"noise.{name}.{source}"], arrays[f"noise.{name}_error.{source}"])
        for source in PREFIXES
        if f"noise.{name}.{source}" in arrays
    }


def _places(arrays: Mapping[str, Array]) -> list[Any]:
    """Return the panels of `plot.noise_density`."""
    start = "noise.values."
    names = dict.fromkeys(key[len(start) :].rsplit(".", 1)[0] for key in arrays if key.startswith(start))
    panels = []
    for name in names:
        draws = {source: arrays[f"{start}{name}.{source}"] for source in PREFIXES if f"{start}{name}.{source}" in arrays}
        estimates = {}
        for source in set(draws) - {"residuals"}:
            try:
                estimate = density(draws[source], 2048)
            except UserError:  # constant
                continue
            estimates[source] = (estimate.x, estimate.density)
        exact = arrays.get(f"noise.exact.{name}")
        if "residuals" in draws:
            panels.append((name, draws, estimates, None if exact is None else (exact[0], exact[1])))
    return panels
