"""Tables of few runs: averages over designs, ratios to the best other method, and how many settings reach the aims."""

from benchmarks import runtables


def rows(test, train, method, values, seconds=1.0):
    """Return rows of two designs, whose values differ by 20 % from their average."""
    fields = {"test": test, "train": train, "method": method, "train_seconds": seconds}
    return [{**fields, "metric": name, "value": value * f} for f in (0.8, 1.2) for name, value in values.items()]


def test_settings_are_compared_with_the_best_other_method():
    own = {"crps": 0.1, "coverage_90": 0.9, "coverage_90_lowest_decile": 0.7, "error": 1.0, "promised_error": 1.2}
    own |= {"largest_std": 0.5, "rmse": 0.2, "forecast_rmse": 0.12}
    later = {**own, "crps": 0.3, "coverage_90": 0.97, "promised_error": 2.0, "rmse": 0.1}
    contents = [*rows("heat", 20, "pdno", own), *rows("heat", 20, "nearest", {"crps": 0.2})]
    contents += [*rows("heat", 40, "pdno", later, 3.0), *rows("heat", 40, "nearest", {"crps": 0.2})]
    (headings, first, second), note = runtables.runs({"rows": contents})
    line = dict(zip(headings, first, strict=True))
    assert (line["designs"], line["CRPS"], line["CRPS / best other"], line["best other"]) == ("2", "0.1000", "0.50", "nearest")
    assert (line["error, promised / realised"], line["error with twice the runs, forecast / realised"]) == ("1.20", "1.20")
    assert dict(zip(headings, second, strict=True))["CRPS / best other"] == "1.50"
    assert "In 1 of 2 settings the CRPS is the best or within 5 % of it, and at most 1.50 times the best" in note
    assert "within 25 % of the realised one in 1. The forecast" in note
    assert "in 1 of 1. From 40 runs, the largest predicted standard deviation is 0.60 times" in note
    assert "up to 80 runs is 2.0 s" in note


def test_suggested_runs_are_compared_with_random_ones():
    contents = []
    for test, error in (("heat", 0.1), ("kink", 0.3)):
        contents += rows(test, 60, "random", {"rmse": 0.4, "coverage_90": 0.9})
        contents += rows(test, 60, "suggest", {"rmse": error, "coverage_90": 0.9})
    lines, note = runtables.suggest({"rows": contents})
    assert [line[5] for line in lines[1:]] == ["0.25", "0.75"]
    assert "The median ratio is 0.50, and the average coverage is from 85 to 95 % in 2 of 2 problems" in note
