"""Tables of few runs of simulations, from results/runs.json."""

from typing import Any

import numpy as np

__all__ = ["TABLES"]

NEAR = 1.05  # ratio of the CRPS to the best one, that counts as equal
MOST_RATIO = 1.3  # of the CRPS to the best one
COVERAGE = (0.85, 0.95)  # aim of the average coverage of 90 % intervals
FEW_COVERAGE = (0.85, 0.97)  # likewise, of very few runs
LEAST_DECILE = 0.6  # aim of the lowest decile of the coverage of single inputs
PROMISED = 0.25  # aim of the relative difference of the promised error from the realised one
FEWEST = 20  # runs from which methods are compared

Table = tuple[list[list[str]], str]
Values = dict[tuple[str, int], dict[tuple[str, str], list[float]]]


def _values(contents: dict[str, Any]) -> Values:
    """Return the values of all designs, by (problem, runs) and (method, metric)."""
    settings: Values = {}
    for row in contents["rows"]:
        own = settings.setdefault((row["test"], row["train"]), {})
        own.setdefault((row["method"], row["metric"]), []).append(row["value"])
        if row["metric"] == "crps":
            own.setdefault((row["method"], "seconds"), []).append(row["train_seconds"])
    return dict(sorted(settings.items(), key=lambda item: item[0][1]))


def runs(contents: dict[str, Any]) -> Table:
    """Return the table of the default and the best textbook emulator, averages over designs."""
    headings = ["problem", "runs", "designs", "CRPS", "CRPS / best other", "best other", "90 % coverage", "lowest decile"]
    lines = [[*headings, "error, promised / realised", "training time (s)"]]
    counts = dict.fromkeys(("near", "covered", "decile", "promised"), 0)
    ratios = []
    for (test, train), own in _values(contents).items():
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
        cells = [f"{mean['pdno', 'crps']:.4f}", f"{ratio:.2f}", best, f"{coverage:.3f}", f"{decile:.2f}", f"{promised:.2f}"]
        lines.append([test, str(train), str(len(own["pdno", "crps"])), *cells, f"{mean['pdno', 'seconds']:.1f}"])
    total = len(ratios)
    note = (
        f"In {counts['near']} of {total} settings the CRPS is the best or within 5 % of it, and at most "
        f"{max(ratios, default=0):.2f} times the best. The average coverage is from 85 to 95 % in {counts['covered']}, "
        f"the lowest decile at least 0.6 in {counts['decile']}, and the promised error within 25 % of the realised one in "
        f"{counts['promised']}."
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


TABLES = {"results/runs.json": runs, "results/runs.json few": few}
