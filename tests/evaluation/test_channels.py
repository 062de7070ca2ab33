"""Channels of any units, constant ones, and outputs that are exact: each is judged by itself, and rounding is not judged."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import pdno
from pdno.evaluation.channels import channel_names, channel_units
from pdno.evaluation.ranks import Ranks, pit
from pdno.evaluation.scoring import ALPHA, Evaluation, evaluate
from pdno.evaluation.verdict import verdict
from tests.evaluation.known import POINTS, Known, pairs

DIMS = (("sample", "channel", "x"), ("sample", "channel", "x"))


class Channels:
    """u_c | a ~ N(offset_c + unit_c (1 − lost_c) a, (unit_c spread_c)²) for each channel c; deterministic without spread."""

    parameters, novelty, mean = 0, None, None

    def __init__(self, data, units, offsets, spread, lost) -> None:
        self.units, self.offsets, self.spread, self.lost = (
            np.array(x, dtype=float)[:, None] for x in (units, offsets, spread, lost)
        )
        self.spaces = pdno.data.spaces.Spaces.of(data.train)
        self.provenance = {"pairs": len(data.train)}
        self.deterministic = not any(spread)

    def evaluations(self, **sampling: object) -> int:
        return 1

    def given(self, a, scalars=None) -> "Channels":
        self.a = a
        return self

    def stream(self, members, seed=0, *, chunk=None, start=0, **sampling: object) -> Iterator[tuple]:
        for i, field in enumerate(self.a):
            centre = self.offsets + self.units * (1 - self.lost) * field
            rounding = 1 + 1e-16 * np.arange(members)[:, None, None]  # members are equal up to rounding
            eta = np.random.default_rng((seed, start + i)).normal(size=(members, *centre.shape))
            yield np.full(members, i), np.arange(members), centre * rounding + self.units * self.spread * eta


def known(count, seed, units, offsets, noise) -> pdno.Pairs:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(count, 1, POINTS))
    unit, offset, size = (np.array(x, dtype=float)[:, None] for x in (units, offsets, noise))
    u = offset + unit * (a + size * rng.normal(size=(count, len(units), POINTS)))
    return pdno.Pairs.of(a, u, dims=DIMS)


def judged(units, offsets, noise, spread, lost=None, test=40, members=40) -> Evaluation:
    parts = [known(count, seed, units, offsets, noise) for seed, count in enumerate((30, test, 40))]
    data = pdno.Dataset(parts[0], parts[1], {"name": "known"}, None, parts[2])
    model = Channels(data, units, offsets, spread, [0.0] * len(units) if lost is None else lost)
    return evaluate(model, data, members=members, progress=False)


def test_an_unlearned_channel_is_not_hidden_by_a_large_one() -> None:
    """300 K learned exactly beside 10⁻³ that is not learned at all: pooled in raw units the error would be 10⁻⁶."""
    e = judged([5.0, 1e-3], [300.0, 0.0], [0, 0], [0, 0], lost=[0, 1])
    assert e.scores["mrle"].value > 0.5
    assert e.channels["channel 1"].scores["mrle"].value < 1e-15
    assert e.channels["channel 2"].scores["mrle"].value == pytest.approx(1)
    accuracy = verdict(e)[0]
    assert accuracy.grade == "poor"
    assert accuracy.headline.startswith("channel 2: ")
    assert "Other channels: channel 1 good" in accuracy.text


def test_each_channel_has_its_own_calibration() -> None:
    """Members of the second channel are twice too narrow; the first is calibrated."""
    e = judged([1e5, 1e-8], [0, 0], [0.3, 0.3], [0.3, 0.15])
    first, second = (e.channels[f"channel {i}"] for i in (1, 2))
    assert first.scores["coverage_90"].value == pytest.approx(0.9, abs=0.05)
    assert second.scores["coverage_90"].value == pytest.approx(0.59, abs=0.05)
    calibration = verdict(e)[1]
    assert calibration.headline.startswith("channel 2: The intervals are too narrow")
    assert verdict(first)[1].grade == "good"
    assert e.diagnoses["points"].alpha == pytest.approx(ALPHA / 3)  # of three diagnoses
    assert first.diagnoses["roughness"].alpha == pytest.approx(ALPHA / 3 / 2)  # and of two channels


def test_pooled_scores_are_those_in_standard_units() -> None:
    """The same data in other units and with other offsets have the same scores; channels alone have those in their units."""
    plain, scaled = judged([1, 1], [0, 0], [0.3, 0.3], [0.3, 0.4]), judged([1e5, 1e-8], [0, 0], [0.3, 0.3], [0.3, 0.4])
    for name in ("crps", "energy_score", "rmse", "mean_std", "width_90", "nll", "spectral_distance", "width_90_conformal"):
        assert scaled.scores[name].value == pytest.approx(plain.scores[name].value, rel=1e-6), name
    for i, unit in ((1, 1e5), (2, 1e-8)):
        one, other = (e.channels[f"channel {i}"].scores for e in (plain, scaled))
        for name in ("crps", "rmse", "width_90"):
            assert other[name].value == pytest.approx(unit * one[name].value, rel=1e-6)
        assert other["coverage_90"].value == one["coverage_90"].value
    crps = [plain.channels[name].scores["crps"].value for name in ("channel 1", "channel 2")]
    units = channel_units(known(40, 1, [1, 1], [0, 0], [0.3, 0.3]).u, None)
    assert plain.scores["crps"].value == pytest.approx(np.mean(np.array(crps) / units))
    shifted = judged([1, 1], [100, 0], [0.3, 0.3], [0.3, 0.4])
    assert shifted.scores["crps"].value == pytest.approx(plain.scores["crps"].value, rel=1e-6)


def test_a_constant_channel_is_exact_and_not_judged() -> None:
    """Members are off by rounding on one side: no coverage of 0, no bias, no infinite likelihood. The rest is pooled."""
    e = judged([1, 0], [0, 273.15], [0.3, 0], [0.3, 0])
    one = judged([1], [0], [0.3], [0.3])
    constant = e.channels["channel 2"]
    assert "coverage_90" not in constant.scores
    assert "nll" not in constant.scores
    accuracy, calibration, _, limitations = verdict(constant)
    assert (accuracy.grade, calibration.grade, limitations.grade) == ("good", "good", "good")
    assert "equal to the test outputs, up to rounding" in accuracy.headline
    assert "All predictions are exact" in calibration.headline
    for name in ("crps", "rmse", "coverage_90", "nll", "mrle"):  # of the first channel, in units of its std
        unit = channel_units(known(40, 1, [1, 0], [0, 273.15], [0.3, 0]).u, None)[0] if name in ("crps", "rmse") else 1.0
        assert np.isfinite(e.scores[name].value)
        assert e.scores[name].value == pytest.approx(one.scores[name].value / unit, rel=0.2, abs=0.3 * (name == "nll"))
    assert e.scores["coverage_90_conformal"].value == pytest.approx(0.95, abs=0.05)  # constant: 1, the other .9
    assert verdict(e)[1].grade == "good"


def test_constant_nodes_are_not_judged() -> None:
    """A boundary value that members miss by rounding: coverage, ranks and map are those of the other nodes."""
    train, test = pairs(30, 0), pairs(60, 1)
    fixed = [1.0 + 4e-16, 1.0]
    data = pdno.Dataset(train, test, {"name": "known"})
    model = Known(data)
    inner = evaluate(model, data, members=40, calibrate=0, progress=False)

    class Fixed(type(model.given(test.a))):
        def stream(self, *args: object, **settings: object) -> Iterator[tuple]:
            for inputs, members, values in super().stream(*args, **settings):
                values[..., 0] = fixed[0]
                yield inputs, members, values

    u, u_eta = test.u.copy(), test.u_eta.copy()
    u[..., 0] = u_eta[..., 0] = fixed[1]
    model.given = lambda a, scalars=None: Fixed(model, a)
    e = evaluate(model, replace(data, test=pdno.Pairs.of(test.a, u, u_eta=u_eta)), members=40, calibrate=0, progress=False)
    assert e.coverage_map is not None
    assert np.isnan(e.coverage_map[0, 0])
    np.testing.assert_array_equal(e.coverage_map[0, 1:], inner.coverage_map[0, 1:])
    assert np.isfinite(e.scores["nll"].value)
    assert e.diagnoses["points"].passed
    assert verdict(e)[1].grade == "good"


def test_exact_predictions_of_equal_outputs() -> None:
    """All outputs are equal: the mean is exact, and no better mean exists; nothing is 'worse than the unconditional mean'."""
    e = judged([0], [7.3], [0], [0])
    accuracy, calibration, noise, limitations = verdict(e)
    assert accuracy.grade == "good"
    assert "up to rounding" in accuracy.headline
    assert [s.grade for s in (calibration, noise, limitations)] == ["unknown", "unknown", "good"]


def test_wrong_certainty_is_judged() -> None:
    """Members without spread that are off by more than rounding have coverage 0."""
    e = judged([1, 1], [0, 0], [0.3, 0.3], [0.3, 1e-6], members=20)
    assert e.channels["channel 2"].scores["coverage_90"].value < 0.01
    assert verdict(e)[1].grade == "poor"


def test_ties_within_a_tolerance() -> None:
    """Equal values are ties, and all members together are nothing to judge; public ranks have no tolerance."""
    ranks = Ranks([1.0, 1.0, 1.0], tolerance=1e-9)
    ranks.add([[1 + 1e-12, 1 - 1e-12, 1 - 1e-6], [1 - 1e-12, 5, 1 + 1e-6]])
    assert ranks.tied.tolist() == [True, False, False]
    assert ranks.pit[2] * 3 // 1 == 1
    exact = pit(np.array([[[1 + 1e-12]]] * 9), np.array([[1.0]]))
    assert exact[0, 0] < 0.1


def test_units_and_names() -> None:
    values = np.stack([np.full((3, 4), 2.0), np.arange(12.0).reshape(3, 4), np.zeros((3, 4))], axis=1)
    assert channel_units(values, None) == pytest.approx([2.0, np.arange(12.0).std(), 1.0])
    mask = np.broadcast_to(np.array([True, True, False, False]), values.shape)
    assert channel_units(np.where(mask, values, np.nan), mask)[1] == pytest.approx(np.array([0, 1, 4, 5, 8, 9]).std())
    assert channel_units(values[:, :1] * 9, None) == pytest.approx([1.0])
    assert channel_names(known(3, 0, [1, 1], [0, 0], [0, 0])) == ("channel 1", "channel 2")
