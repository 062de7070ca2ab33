"""Rates of the evaluation: the simulation has the stated distribution, and measured rates are those that are stated."""

import json

import numpy as np
import pytest

from benchmarks import statistics
from benchmarks.statistics import COMMON, GROUP, KINDS, LENGTH, OBSERVED, POINTS, RESULTS, X, draw
from benchmarks.statisticstables import RATES, rates_table
from benchmarks.tables import ROOT

STATED = {name: float(rate[1:-1]) / 100 for name, (_, rate) in RATES.items() if rate}


def test_errors_have_the_stated_distribution() -> None:
    rng = np.random.default_rng(0)
    z, groups, mask = draw("independent", 4000, rng)
    assert groups is None
    assert mask is None
    exact = np.exp(-(((X[:, None] - X) / LENGTH) ** 2) / 2)
    np.testing.assert_allclose(np.cov(z[:, 0].T), exact, atol=0.1)
    z, groups, _ = draw("grouped", 2000, rng)
    assert z.shape == (2000 * GROUP, 1, POINTS)
    first, second = z[::GROUP, 0, 5], z[1::GROUP, 0, 5]
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(COMMON, abs=0.05)
    assert z.var() == pytest.approx(1, abs=0.05)
    assert len(np.unique(groups)) == 2000
    _, _, mask = draw("masked", 500, rng)
    assert mask[:, 0, 1:].mean() == pytest.approx(OBSERVED, abs=0.02)
    assert mask.any(axis=(1, 2)).all()


@pytest.mark.parametrize("part", ["ranks", "novelty", "conformal", "verdicts"])
def test_parts_of_the_simulation_run(part, monkeypatch) -> None:
    monkeypatch.setattr(statistics, "COUNTS", (10,))
    function, _, kinds = statistics.PARTS[part]
    rows = statistics.rows_of(function(2, kinds[-1]), {"test": kinds[-1], "method": part})
    assert rows
    assert {row["metric"] for row in rows} <= set(RATES)
    assert all(row["train"] == 10 and row["evaluations"] == 2 for row in rows)


def test_measured_rates_hold() -> None:
    """No rate exceeds the stated one by more than three standard errors, with the error of a rate that is exactly as stated."""
    rows = json.loads(RESULTS.read_text())["rows"]
    assert {row["metric"] for row in rows} == set(RATES)
    assert {row["test"] for row in rows} == set(KINDS)
    for row in (row for row in rows if row["metric"] in STATED):
        stated, value = STATED[row["metric"]], row["value"]
        error = max(row["error"], np.sqrt(stated * (1 - stated) / row["evaluations"]) if row["value"] in (0, 1) else 0)
        wrong = stated - value if RATES[row["metric"]][1].startswith("≥") else value - stated
        assert wrong <= 3 * error, row


def test_the_table_has_a_line_for_each_rate_and_kind() -> None:
    (headings, *lines), note = rates_table(json.loads(RESULTS.read_text()))
    assert headings[:3] == ["rate", "stated", "data"]
    assert len({tuple(line[:3]) for line in lines}) == len(lines) > len(RATES)
    assert "repetitions" in note
    assert "<!-- results/statistics.json -->\nMeasured by `make statistics`" in (ROOT / "docs/evaluation.md").read_text()
