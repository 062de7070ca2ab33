"""Selection of the mean: which candidates are tried, which one is selected, and why."""

import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pdno import PDNO, Pairs, Training, UserError
from pdno.evaluation.whiteness import depends_on_input, neighbour_correlation
from pdno.learning.budget import Terms
from pdno.mean import Kernel, Linear, Mean
from pdno.mean.choice import Choice, Trial
from pdno.mean.choose import CANDIDATES, KERNEL_FRACTION, SCREENING_FRACTION, MeanSelection, choose_mean

QUICK = Training(updates=3)
QUIET = Terms(progress=False, training=QUICK)


def data(count: int = 120, sigma: float = 0.0, seed: int = 0, curved: float = 1.0) -> Pairs:
    """A smooth operator, the sum of a linear and a curved part, with white noise."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((count, 1, 4)) @ np.cos(np.arange(4)[:, None] * np.linspace(0, np.pi, 24))
    u = np.cumsum(a, axis=2) / 10 + curved * np.tanh(a * a[..., ::-1])
    return Pairs.of(a, u + sigma * rng.standard_normal(u.shape))


def names(choice: Choice) -> list[str]:
    return [trial.name for trial in choice.trials]


def test_exact_predictions_end_the_selection() -> None:
    choice = choose_mean("auto", data(curved=0.0), data(20, seed=1, curved=0.0), QUIET)
    assert names(choice) == ["constant", "linear"]
    assert choice.exact
    assert choice.reason == "Linear regression was selected: its predictions are exact up to rounding"


def test_white_residuals_end_the_selection() -> None:
    held_out = data(60, 0.5, 1, curved=0.0)
    choice = choose_mean("auto", data(600, 0.5, curved=0.0), held_out, QUIET)
    assert names(choice) == ["constant", "linear"]
    assert choice.reason == "Linear regression was selected: its residuals are white noise"
    assert not choice.exact
    np.testing.assert_array_equal(choice.held_out, held_out.u - choice.mean(held_out.a))


def test_residuals_that_depend_on_the_input_are_not_noise() -> None:
    """A curved map of rough inputs has white residuals, too."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((400, 1, 32))
    pairs = Pairs.of(a, np.sin(3 * a))
    choice = choose_mean("auto", pairs[:300], pairs[300:], QUIET)
    assert len(choice.trials) > 1
    noise = rng.standard_normal(a.shape)
    assert not depends_on_input(noise, pairs)
    assert depends_on_input(noise + 0.1 * np.abs(a), pairs)
    assert depends_on_input(noise + 0.1 * np.roll(a, 1, axis=2) ** 2, pairs)


def test_channels_count_alike_whatever_their_units() -> None:
    a = np.random.default_rng(0).standard_normal((200, 1, 16))
    dims = ("sample", "channel", "x")
    pairs = Pairs.of(a, np.concatenate([1e7 * a, np.sin(3 * a)], axis=1), dims=(dims, dims))
    choice = choose_mean("auto", pairs[:160], pairs[160:], QUIET)
    assert not choice.exact
    assert choice.trials[1].error == pytest.approx(0.5, abs=0.1)  # one of two channels


def test_the_best_on_held_out_pairs_is_selected() -> None:
    held_out = data(60, seed=1)
    choice = choose_mean("auto", data(300), held_out, QUIET)
    assert names(choice) == ["constant", "linear", "kernel", "fno", "slim"]
    assert [trial.name for trial in choice.trials if trial.selected] == ["kernel"]
    errors = {trial.name: trial.error for trial in choice.trials}
    left = np.abs(held_out.u - choice.mean(held_out.a)).mean() / np.abs(held_out.u - data(300).u.mean(axis=0)).mean()
    assert choice.mean.name == "kernel"
    assert errors["kernel"] == pytest.approx(left, rel=1e-6)
    assert errors["kernel"] == min(errors.values())
    assert choice.reason == "Kernel regression was selected: it has the smallest error on held-out pairs"


def test_the_same_seed_selects_the_same() -> None:
    one, two = (choose_mean("auto", data(60, 0.1), data(20, 0.1, 1), QUIET) for _ in range(2))
    assert one.trials == two.trials
    assert one.reason == two.reason


def test_an_offset_of_whole_fields_does_not_hide_the_errors_of_means() -> None:
    """Errors .2 and .01 of two means are equal beside an offset of ± 1; without it the smaller one is found."""
    held_out = data(100, seed=1)
    selection, rng = MeanSelection(data(), held_out, QUIET, (), "cell"), np.random.default_rng(0)
    offset = rng.choice([-1.0, 1.0], (100, 1, 1))
    for name, error in (("linear", 0.2), ("kernel", 0.01)):
        selection.residuals[name] = offset + error * rng.standard_normal(held_out.u.shape)
        selection.errors[name] = np.abs(selection.residuals[name]).mean(axis=2)
    assert selection.best() == "kernel"
    for name in ("linear", "kernel"):  # without a dominant component, the cheaper one
        selection.residuals[name] = rng.standard_normal(held_out.u.shape)
        selection.errors[name] = np.abs(offset[..., 0])
    assert selection.best() == "linear"


def test_of_equals_the_cheapest_is_selected() -> None:
    selection = MeanSelection(data(), data(20, seed=1), QUIET, (), "cell")
    noise = np.random.default_rng(0).standard_normal((2, 20, 1))
    selection.residuals = dict.fromkeys(("linear", "kernel"), np.zeros((20, 1, 24)))
    selection.errors = {
        "linear": 1 + 0.1 * noise[0],
        "kernel": 1 + 0.1 * noise[0] + 0.01 * (noise[1] - noise[1].mean()) - 0.001,
    }
    assert selection.best() == "linear"
    selection.errors["kernel"] = selection.errors["linear"] - 0.1
    assert selection.best() == "kernel"


def test_means_that_need_complete_outputs_are_trained_on_completed_ones() -> None:
    """By the function that is given, whose outputs the choice has; without it they are skipped."""
    pairs, held_out = data(40), data(12, seed=1)
    masks = [np.random.default_rng(k).random(p.u.shape) < 0.9 for k, p in enumerate((pairs, held_out))]
    masked = [Pairs.of(p.a, np.where(m, p.u, np.nan), mask="nan") for p, m in zip((pairs, held_out), masks, strict=True)]

    def learn(mean: Mean, some: Pairs, terms: Terms) -> np.ndarray:
        mean.learn(pairs, None, terms)
        return pairs.u

    choice = choose_mean("auto", masked[0], masked[1], QUIET, learn_observed=learn)
    assert {trial.name for trial in choice.trials if trial.error is not None} >= {"constant", "linear", "kernel"}
    assert choice.mean.name in ("linear", "kernel")
    assert choice.completed is pairs.u
    skipped = choose_mean("auto", masked[0], masked[1], QUIET)
    assert {trial.name for trial in skipped.trials if trial.error is None} == {"linear", "kernel"}
    assert "observed at the same nodes" in skipped.trials[1].description


def test_a_kernel_that_does_not_fit_into_memory_is_skipped(monkeypatch) -> None:
    monkeypatch.setattr("pdno.mean.kernel.kernel.memory_allowed", lambda: 1000)
    choice = choose_mean("auto", data(60, 0.0), data(20, seed=1), QUIET)
    skipped = {trial.name: trial.description for trial in choice.trials if trial.error is None}
    assert "memory" in skipped["kernel"]


def test_each_candidate_is_logged() -> None:
    lines: list[str] = []
    choose_mean("auto", data(60), data(20, seed=1), replace(QUIET, log=lines.append))
    assert [line.split(":")[0] for line in lines] == ["constant", "linear", "kernel", "fno", "slim"]
    assert all(": relative error " in line and line.endswith(" s)") for line in lines)


def test_skipped_candidates_are_logged(monkeypatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("pdno.mean.kernel.kernel.memory_allowed", lambda: 1000)
    choose_mean("auto", data(60), data(20, seed=1), replace(QUIET, log=lines.append))
    assert lines[2].startswith("kernel: skipped, regression on ")


def test_auto_needs_held_out_pairs() -> None:
    with pytest.raises(UserError, match=r'mean="auto" is selected on held-out pairs; got none, pass validation=0\.1'):
        choose_mean("auto", data(), None, QUIET)


def test_a_requested_mean_is_trained() -> None:
    choice = choose_mean("kernel", data(60), None, QUIET)
    assert (names(choice), choice.reason) == (["mean"], "As requested")
    assert choice.trials[0].selected
    assert choice.trials[0].error is None
    assert choice.held_out is None
    given = Linear(degree=1)
    assert choose_mean(given, data(60), None, QUIET).mean is not given  # which is not changed
    with pytest.raises(UserError, match="has not been trained"):
        given(data(2).a)


def test_a_requested_kernel_is_limited_by_the_deadline(monkeypatch) -> None:
    """Whether it is given by name or as an object without a budget; an object with a budget keeps it."""
    monkeypatch.setattr("pdno.mean.kernel.search.COARSE", 12)
    for mean in ("kernel", {"name": "kernel"}, Kernel()):
        late = replace(QUIET, deadline=time.monotonic())
        assert "on 12 pairs of 60" in choose_mean(mean, data(60), None, late).mean.describe()
    late = replace(QUIET, deadline=time.monotonic())
    assert "on 60 pairs:" in choose_mean(Kernel(budget=1e9), data(60), None, late).mean.describe()


@pytest.mark.parametrize(("mean", "method"), [("linear", "_select"), ("kernel", "_solve")])
def test_a_model_fits_its_mean_once(mean, method, monkeypatch) -> None:
    """The out-of-fold residuals of the training pairs are those that were computed in training."""
    rows: list[int] = []
    kind = {"linear": Linear, "kernel": Kernel}[mean]
    original = getattr(kind, method)
    monkeypatch.setattr(kind, method, lambda self, a, *rest: rows.append(len(a)) or original(self, a, *rest))
    pairs = data(60, 0.3)
    PDNO("zero", mean=mean).fit(pairs.a, pairs.u, validation=0.1, progress=False)
    assert rows == [54]


@pytest.mark.parametrize("rho", [0.0, 0.5, -0.8])
def test_correlation_of_neighbours(rho) -> None:
    """It is ρ for an autoregressive process along a line, up to the effect of the first node."""
    xi = np.random.default_rng(0).standard_normal((4000, 1, 50))
    r = xi.copy()
    for k in range(1, 50):
        r[..., k] = rho * r[..., k - 1] + np.sqrt(1 - rho**2) * xi[..., k]
    assert neighbour_correlation(r) == pytest.approx(rho, abs=0.01)
    assert abs(neighbour_correlation(xi, xi > -9)) < 0.01


def test_correlation_is_the_largest_over_the_axes() -> None:
    r = np.random.default_rng(0).standard_normal((200, 1, 8, 1)).repeat(8, axis=3)
    assert neighbour_correlation(r) == pytest.approx(1.0, abs=0.02)
    assert neighbour_correlation(0 * r) == 0.0


# Little data


def test_a_network_needs_held_out_pairs_for_its_scale() -> None:
    a = np.random.default_rng(0).standard_normal((20, 1, 16))
    with pytest.raises(UserError, match="a network mean needs validation pairs to estimate the residual scale"):
        PDNO("zero", mean="slim", variance="gaussian", training=QUICK).fit(a, a, validation=0, progress=False)


def test_two_pairs_give_a_prediction_with_a_spread() -> None:
    """One for training, one held out: the mean is the first output, and the spread is as large as its error for the second."""
    a = np.random.default_rng(0).standard_normal((2, 1, 16))
    model = PDNO(training=QUICK).fit(a, a, progress=False)
    p = model.predict(a, members=200, progress=False)
    assert np.abs(p.mean - a).mean() < 3 * np.abs(a).mean()
    assert p.std.mean() > 0.2 * np.abs(a[0] - a[1]).mean()


@pytest.mark.parametrize("value", [0.0, 3.7])
def test_constant_outputs_are_learned_exactly(value) -> None:
    a = np.random.default_rng(0).standard_normal((30, 1, 16))
    model = PDNO(training=QUICK).fit(a, np.full_like(a, value), progress=False)
    np.testing.assert_allclose(model.sample(a[:3], 2), value, atol=1e-9)


def test_all_zero_inputs_leave_the_mean() -> None:
    u = 2 + np.random.default_rng(0).standard_normal((200, 1, 16))
    model = PDNO(training=QUICK).fit(np.zeros_like(u), u, progress=False)
    p = model.predict(np.zeros((1, 1, 16)), members=200, progress=False)
    assert p.mean.mean() == pytest.approx(2, abs=0.2)
    assert p.std.mean() == pytest.approx(1, abs=0.15)


def test_repeated_inputs_with_different_outputs_are_noise() -> None:
    rng = np.random.default_rng(0)
    a = np.repeat(rng.standard_normal((40, 1, 16)), 6, axis=0)
    model = PDNO(training=QUICK).fit(a, a + 0.3 * rng.standard_normal(a.shape), progress=False)
    p = model.predict(a[:3], members=200, progress=False)
    assert p.std.mean() == pytest.approx(0.3, rel=0.15)
    assert p.aleatoric_std.mean() == pytest.approx(0.3, rel=0.1)


def test_scalars_alone_are_enough() -> None:
    s = np.random.default_rng(0).standard_normal((80, 2))
    u = s[:, :1] * np.sin(np.linspace(0, 3, 16)) + s[:, 1:]
    model = PDNO(training=QUICK).fit(None, u, scalars=s, progress=False)
    np.testing.assert_allclose(model.mean(None, scalars=s[:4]), u[:4], atol=1e-6)


def test_the_budget_is_ten_minutes_unless_updates_are_limited() -> None:
    assert PDNO().budget == 600
    assert PDNO(training=QUICK).budget is None
    assert PDNO(mean="linear").budget is None
    assert PDNO(budget=20).budget == 20


class Scripted(MeanSelection):
    """Candidates are not trained, take no time, and have the given errors."""

    def __init__(self, errors: dict[str, float], seconds: float = 1e4, **settings: object) -> None:
        terms = Terms(progress=False, **settings).within(seconds)
        super().__init__(data(20), data(10, seed=1), terms, (), "cell")
        self.script, self.given = {"constant": 1.0, **errors}, dict[str, float | None]()

    def train(self, mean: Mean, name: str, terms: Terms) -> None:
        self.means[name], self.errors[name] = mean, np.full((10, 1), self.script[name])
        self.residuals[name] = np.zeros((10, 1, 24))
        self.trials.append(Trial(name, self.script[name], ""))
        self.given[name] = terms.left()

    def finished(self, held_out: Pairs) -> str | None:
        return None

    def result(self) -> Choice:
        return self.run(data(10, seed=1))


@pytest.fixture
def stopped_clock(monkeypatch) -> None:
    """A clock that stands still, so that shares of time are exact."""
    monkeypatch.setattr("pdno.learning.budget.time", SimpleNamespace(monotonic=lambda: 0.0))


SCREENED = ["constant", "linear", "kernel", "fno-screening", "slim-screening"]


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize(
    ("fno", "slim", "more"),
    [
        (0.4, 0.2, ["slim"]),  # the better one is trained for longer
        (0.3, 0.25, ["fno", "slim"]),  # both, if they are close
        (0.9, 0.2, ["fno-extended", "slim"]),  # one that has hardly started to learn is screened for longer
        (2.9, 0.8, ["slim"]),  # not if neither has started
        (0.4, 0.49, []),  # their extrapolated error is above that of the kernel
    ],
)
def test_with_a_budget_networks_are_screened_first(fno, slim, more) -> None:
    errors = {"linear": 0.5, "kernel": 0.1 if more else 0.01, "fno-screening": fno, "slim-screening": slim}
    selection = Scripted({**errors, "fno-extended": 0.6, "slim": 0.05, "fno": 0.06})
    choice = selection.result()
    assert names(choice) == SCREENED + more
    assert set(names(choice)[3:]) <= set(CANDIDATES)
    if more:
        assert choice.reason == "A slim UNet was selected: it has the smallest error on held-out pairs"
    else:
        assert choice.reason.startswith("Kernel regression was selected: the extrapolated error of networks does not beat it")
    given = selection.given
    assert given["kernel"] == pytest.approx(KERNEL_FRACTION * 1e4, rel=0.01)
    assert given["fno-screening"] == given["slim-screening"] == pytest.approx(SCREENING_FRACTION * 1e4, rel=0.01)
    assert given.get("slim", 1e4) == pytest.approx(1e4 / (2 if "fno" in more else 1), rel=0.01)  # all that is left
    assert given.get("fno-extended", 2 * given["fno-screening"]) == 2 * given["fno-screening"]


def test_longer_screening_may_change_the_selection() -> None:
    errors = dict(zip([*SCREENED, "fno-extended", "fno"], (1.0, 0.5, 0.4, 0.9, 0.3, 0.1, 0.02), strict=True))
    assert "A Fourier neural operator was selected" in Scripted(errors).result().reason


@pytest.mark.usefixtures("stopped_clock")
def test_several_processes_do_not_decide_by_their_clocks() -> None:
    """Each network has a third of the budget, and nothing depends on the time that was taken."""
    errors = dict(zip(SCREENED, (1.0, 0.5, 0.4, 0.9, 0.3), strict=True))
    selection = Scripted(errors, devices=2)
    choice = selection.result()
    assert names(choice) == SCREENED
    assert "A slim UNet was selected: it has the smallest error" in choice.reason
    assert selection.given["fno-screening"] == selection.given["slim-screening"] == pytest.approx(1e4 / 3, rel=1e-12)


def test_without_time_networks_are_skipped() -> None:
    choice = Scripted({"linear": 0.5, "kernel": 0.1}, seconds=5).result()
    assert [trial.description for trial in choice.trials[3:]] == ["no time was left"] * 2


@pytest.mark.parametrize(("sigma", "expected"), [(0.0, 32), (0.01, None)])
def test_networks_for_smooth_fields_work_on_a_coarser_mesh(sigma, expected) -> None:
    """A quarter of 128 points is enough for three waves, at 5 % of an error of 0.01; with white noise all are needed."""
    rng = np.random.default_rng(0)
    x = np.arange(128) / 128
    waves = np.stack([f(2 * np.pi * k * x) for k in (1, 2, 3) for f in (np.sin, np.cos)])
    a = rng.standard_normal((30, 1, 6)) @ waves
    pairs = Pairs.of(a, a**2 / 4 + sigma * rng.standard_normal(a.shape))
    selection = MeanSelection(pairs[:20], pairs[20:], QUIET, (), "periodic")
    assert selection.mesh is None  # no candidate was tried yet: there is no error to compare with
    del selection.mesh
    selection.errors = {"linear": np.full((10, 1), 0.01)}
    assert selection.mesh == expected
    mean = selection.network("fno")
    mean.learn(pairs[:20], pairs[20:], QUIET)
    assert mean(pairs.a[:2]).shape == (2, 1, 128)


def test_networks_that_are_tried_depend_on_the_dimension(stopped_clock) -> None:
    class Plane(Scripted):
        def __init__(self) -> None:
            screened = [f"{name}-screening" for name in ("slim", "local", "fno")]
            super().__init__(dict.fromkeys(("linear", "kernel", *screened, "slim", "local", "fno"), 0.1))
            self.pairs = Pairs.of(np.zeros((20, 1, 8, 8)), np.zeros((20, 1, 8, 8)))

    choice = Plane().result()
    assert names(choice)[3:6] == ["slim-screening", "local-screening", "fno-screening"]
