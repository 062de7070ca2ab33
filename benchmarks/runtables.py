"""Tables of few runs of simulations, from results/runs.json."""

from typing import Any

import numpy as np

__all__ = ["TABLES"]

NEAR = 1.05  # ratio of the CRPS to the best one, that counts as equal
COVERAGE = (0.85, 0.95)  # aim of the average coverage of 90 % intervals
FEW_COVERAGE = (0.85, 0.97)  # likewise, of very few runs
LEAST_DECILE = 0.6  # aim of the lowest decile of the coverage of single inputs
PROMISED = 0.25  # aim of the relative difference of the promised error, and of a forecast, from the realised one
FEWEST = 20  # runs from which methods are compared
FEWEST_HONEST = 40  # runs from which predicted standard deviations are bounded
QUICK = 80  # runs up to which the median training time is taken

Table = tuple[list[list[str]], str]
Values = dict[tuple[str, int], dict[tuple[str, str], list[float]]]


def _values(contents: dict[str, Any]) -> Values:
    """Return the values of all designs, by (problem, runs) and (method, metric)."""
    settings: Values = {}
    for row in contents["rows"]:
        own = settings.setdefault((row["test"], row["train"]), {})
        if row["value"] is None:  # such as a forecast of a mean that has no cheap refits
            continue
        own.setdefault((row["method"], row["metric"]), []).append(row["value"])
        if row["metric"] == "crps":
            own.setdefault((row["method"], "seconds"), []).append(row["train_seconds"])
    return dict(sorted(settings.items(), key=lambda item: item[0][1]))


def runs(contents: dict[str, Any]) -> Table:
    """Return the table of the default and the best textbook emulator, averages over designs."""
    headings = ["problem", "runs", "designs", "CRPS", "CRPS / best other", "best other", "90 % coverage", "lowest decile"]
    lines = [[*headings, "error, promised / realised", "error with twice the runs, forecast / realised", "training time (s)"]]
    counts = dict.fromkeys(("near", "covered", "decile", "promised", "forecast", "forecasts"), 0)
    ratios, seconds, largest = [], [], 0.0
    settings = _values(contents)
    for (test, train), own in settings.items():
        if train < FEWEST or ("pdno", "crps") not in own:
            continue
        mean = {key: float(np.mean(values)) for key, values in own.items()}
        others = {method: value for (method, metric), value in mean.items() if metric == "crps" and method != "pdno"}
        if not others:
            continue
        best = min(others, key=lambda method: others[method])
        ratio = mean["pdno", "crps"] / others[best]
        coverage, decile = mean["pdno", "coverage_90"], mean["pdno", "coverage_90_lowest_decile"]
        promised = mean["pdno", "promised_error"] / mean["pdno", "error"] if ("pdno", "promised_error") in mean else np.nan
        ratios.append(ratio)
        counts["near"] += ratio <= NEAR
        counts["covered"] += COVERAGE[0] <= coverage <= COVERAGE[1]
        counts["decile"] += decile >= LEAST_DECILE
        counts["promised"] += abs(promised - 1) <= PROMISED
        forecast = _forecast(settings, test, train)
        counts["forecast"] += abs(forecast - 1) <= PROMISED
        counts["forecasts"] += bool(np.isfinite(forecast))
        largest = max(largest, *own["pdno", "largest_std"]) if train >= FEWEST_HONEST else largest
        seconds += own["pdno", "seconds"] if train <= QUICK else []
        cells = [_digits(mean["pdno", "crps"]), f"{ratio:.2f}", best, f"{coverage:.3f}", f"{decile:.2f}", f"{promised:.2f}"]
        cells += [f"{forecast:.2f}" if np.isfinite(forecast) else "", f"{mean['pdno', 'seconds']:.1f}"]
        lines.append([test, str(train), str(len(own["pdno", "crps"])), *cells])
    total = len(ratios)
    note = (
        f"In {counts['near']} of {total} settings the CRPS is the best or within 5 % of it, and at most "
        f"{max(ratios, default=0):.2f} times the best. The average coverage is from 85 to 95 % in {counts['covered']}, "
        f"the lowest decile at least 0.6 in {counts['decile']}, and the promised error within 25 % of the realised one in "
        f"{counts['promised']}. The forecast of the error with twice the runs is within 25 % of the realised one in "
        f"{counts['forecast']} of {counts['forecasts']}. From {FEWEST_HONEST} runs, the largest predicted standard deviation "
        f"is {largest:.2f} times the largest deviation of a training run from their average. The median training time up to "
        f"{QUICK} runs is {np.median(seconds) if seconds else np.nan:.1f} s of one core."
    )
    return lines, note


def _forecast(settings: Values, test: str, train: int) -> float:
    """Return the forecast of the root mean square error with twice the runs / the realised one; NaN if there is none."""
    now, later = settings[test, train], settings.get((test, 2 * train), {})
    if ("pdno", "forecast_rmse") not in now or ("pdno", "rmse") not in later:
        return float("nan")
    return float(np.mean(now["pdno", "forecast_rmse"]) / np.mean(later["pdno", "rmse"]))


def _digits(value: float) -> str:
    """Return a number with four decimals, or two significant digits if it is smaller."""
    return f"{value:.4f}" if value >= 0.001 else f"{value:.1e}"


def suggest(contents: dict[str, Any]) -> Table:
    """Return the table of suggested and random runs, averages over designs."""
    lines = [
        ["problem", "runs", "designs", "error, random", "error, suggested", "suggested / random", "90 % coverage, suggested"]
    ]
    ratios, coverages = [], []
    for (test, train), own in _values(contents).items():
        random, chosen = (float(np.mean(own[method, "rmse"])) for method in ("random", "suggest"))
        ratios.append(chosen / random)
        coverages.append(float(np.mean(own["suggest", "coverage_90"])))
        cells = [_digits(random), _digits(chosen), f"{ratios[-1]:.2f}", f"{coverages[-1]:.3f}"]
        lines.append([test, str(train), str(len(own["suggest", "rmse"])), *cells])
    inside = sum(COVERAGE[0] <= coverage <= COVERAGE[1] for coverage in coverages)
    note = (
        f"The median ratio is {np.median(ratios):.2f}, and the average coverage is from 85 to 95 % in {inside} of "
        f"{len(ratios)} problems."
    )
    return lines, note


def few(contents: dict[str, Any]) -> Table:
    """Return the table of very few runs: coverage of the default."""
    lines = [["runs", "models", "90 % coverage", "lowest", "highest", "lowest decile of single inputs"]]
    by_runs: dict[int, list[tuple[float, float]]] = {}
    for (_, train), own in _values(contents).items():
        if train < FEWEST:
            pairs = zip(own["pdno", "coverage_90"], own["pdno", "coverage_90_lowest_decile"], strict=True)
            by_runs.setdefault(train, []).extend(pairs)
    for train, values in by_runs.items():
        coverage, decile = np.array(values).T
        cells = [coverage.mean(), coverage.min(), coverage.max(), decile.mean()]
        lines.append([str(train), str(len(values)), *(f"{cell:.3f}" for cell in cells)])
    return lines, ""


TABLES = {"results/runs.json": runs, "results/runs.json few": few, "results/suggest.json": suggest}
