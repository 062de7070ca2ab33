"""The default: what is tried, what is taken, and why."""

import time

import numpy as np
import pytest

from pdno import PDNO, Pairs, Training, UserError
from pdno.mean import Linear, Mean, Network
from pdno.mean import choose as auto
from pdno.mean.choose import Contest, correlation, learn_mean
from pdno.model.surrogate import Terms

QUICK = Training(updates=3)
QUIET = Terms(progress=False)


def data(count: int = 120, sigma: float = 0.0, seed: int = 0, curved: float = 1.0) -> Pairs:
    """A smooth operator, linear but for a part, with white noise."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((count, 1, 4)) @ np.cos(np.arange(4)[:, None] * np.linspace(0, np.pi, 24))
    u = np.cumsum(a, axis=2) / 10 + curved * np.tanh(a * a[..., ::-1])
    return Pairs.of(a, u + sigma * rng.standard_normal(u.shape))


def tried(chosen: auto.Chosen) -> list[str]:
    return [trial.name for trial in chosen.trials]


def test_what_is_exact_ends_it() -> None:
    chosen = learn_mean("auto", data(curved=0.0), data(20, seed=1, curved=0.0), QUIET, training=QUICK)
    assert tried(chosen) == ["linear"]
    assert chosen.exact
    assert "exact" in chosen.why


def test_white_noise_ends_it() -> None:
    chosen = learn_mean("auto", data(600, 0.5, curved=0.0), data(60, 0.5, 1, curved=0.0), QUIET, training=QUICK)
    assert tried(chosen) == ["linear"]
    assert "white noise" in chosen.why
    assert not chosen.exact


def test_what_depends_on_the_input_is_no_noise() -> None:
    """A curved map of rough inputs leaves white residuals, too."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((400, 1, 32))
    pairs = Pairs.of(a, np.sin(3 * a))
    chosen = learn_mean("auto", pairs[:300], pairs[300:], QUIET, training=QUICK)
    assert len(chosen.trials) > 1
    noise = rng.standard_normal(a.shape)
    assert not auto.related(noise, pairs)
    assert auto.related(noise + 0.1 * np.abs(a), pairs)
    assert auto.related(noise + 0.1 * np.roll(a, 1, axis=2) ** 2, pairs)


def test_channels_count_alike_whatever_their_units() -> None:
    a = np.random.default_rng(0).standard_normal((200, 1, 16))
    dims = ("sample", "channel", "x")
    pairs = Pairs.of(a, np.concatenate([1e7 * a, np.sin(3 * a)], axis=1), dims=(dims, dims))
    chosen = learn_mean("auto", pairs[:160], pairs[160:], QUIET, training=QUICK)
    assert not chosen.exact
    assert chosen.trials[0].error == pytest.approx(0.5, abs=0.1)  # one of two channels


def test_the_best_on_held_out_pairs_is_taken() -> None:
    validation = data(60, seed=1)
    chosen = learn_mean("auto", data(300), validation, QUIET, training=QUICK)
    assert tried(chosen) == ["linear", "kernel", "fno", "slim"]
    errors = {trial.name: trial.error for trial in chosen.trials}
    left = np.abs(validation.u - chosen.mean(validation.a)).mean() / np.abs(validation.u - data(300).u.mean(axis=0)).mean()
    assert chosen.mean.name == "kernel"
    assert errors["kernel"] == pytest.approx(left, rel=1e-6)
    assert errors["kernel"] == min(errors.values())
    assert "smallest error" in chosen.why


def test_the_same_seed_chooses_the_same() -> None:
    one, two = (learn_mean("auto", data(60, 0.1), data(20, 0.1, 1), QUIET, training=QUICK) for _ in range(2))
    assert one.trials == two.trials
    assert one.why == two.why


def test_of_equals_the_cheaper_is_taken() -> None:
    contest = Contest(data(), data(20, seed=1), QUIET, (), "cell", QUICK, 1.0, print)
    noise = np.random.default_rng(0).standard_normal((2, 20, 1))
    contest.errors = {"linear": 1 + 0.1 * noise[0], "kernel": 1 + 0.1 * noise[0] + 0.01 * (noise[1] - noise[1].mean()) - 0.001}
    assert contest.best() == "linear"
    contest.errors["kernel"] = contest.errors["linear"] - 0.1
    assert contest.best() == "kernel"


def test_holes_that_differ_leave_it_to_networks() -> None:
    pairs, validation = data(40), data(12, seed=1)
    holes = [np.random.default_rng(k).random(p.u.shape) < 0.9 for k, p in enumerate((pairs, validation))]
    masked = [Pairs.of(p.a, np.where(m, p.u, np.nan), mask="nan") for p, m in zip((pairs, validation), holes, strict=True)]
    chosen = learn_mean("auto", masked[0], masked[1], QUIET, training=QUICK)
    assert {trial.name: trial.error is None for trial in chosen.trials} == {
        "linear": True,
        "kernel": True,
        "fno": False,
        "slim": False,
    }
    assert "different places" in chosen.trials[0].note
    assert chosen.mean.name == "network"


def test_a_kernel_that_does_not_fit_into_memory_is_left_out(monkeypatch) -> None:
    import pdno.mean.kernel.kernel as kernel

    monkeypatch.setattr(kernel, "memory_allowed", lambda: 1000)
    chosen = learn_mean("auto", data(60, 0.0), data(20, seed=1), QUIET, training=QUICK)
    left_out = {trial.name: trial.note for trial in chosen.trials if trial.error is None}
    assert "memory" in left_out["kernel"]


def test_it_tells_each_trial() -> None:
    told: list[str] = []
    learn_mean("auto", data(60), data(20, seed=1), QUIET, training=QUICK, tell=told.append)
    assert [line.split(":")[0] for line in told] == ["linear", "kernel", "fno", "slim"]
    assert all("of the variation" in line for line in told)


def test_without_held_out_pairs_it_cannot_choose() -> None:
    with pytest.raises(UserError, match="hold some out"):
        learn_mean("auto", data(), None, QUIET)


def test_what_is_asked_for_is_taken() -> None:
    chosen = learn_mean("kernel", data(60), None, QUIET)
    assert (tried(chosen), chosen.why) == (["mean"], "as asked for")
    given = Linear(degree=1)
    assert learn_mean(given, data(60), None, QUIET).mean is not given  # which stays as it was


@pytest.mark.parametrize("rho", [0.0, 0.5, -0.8])
def test_correlation_of_neighbours(rho) -> None:
    """Of an autoregressive line, ρ; the first point's share apart."""
    xi = np.random.default_rng(0).standard_normal((4000, 1, 50))
    r = xi.copy()
    for k in range(1, 50):
        r[..., k] = rho * r[..., k - 1] + np.sqrt(1 - rho**2) * xi[..., k]
    assert correlation(r) == pytest.approx(rho, abs=0.01)
    assert abs(correlation(xi, xi > -9)) < 0.01


def test_correlation_sees_every_axis() -> None:
    r = np.random.default_rng(0).standard_normal((200, 1, 8, 1)).repeat(8, axis=3)
    assert correlation(r) == pytest.approx(1.0, abs=0.02)
    assert correlation(0 * r) == 0.0


# Data that are hardly any


def test_a_mean_in_closed_form_is_refused_holes_that_differ() -> None:
    a = np.random.default_rng(0).standard_normal((40, 1, 16))
    mask = np.random.default_rng(1).random(a.shape) < 0.5
    with pytest.raises(UserError, match="known at the same places"):
        PDNO("zero", mean="linear").fit(a, a + 1, mask=mask, progress=False)


def test_a_network_needs_pairs_held_out_for_its_scale() -> None:
    a = np.random.default_rng(0).standard_normal((20, 1, 16))
    with pytest.raises(UserError, match="hold some out"):
        PDNO("zero", mean="slim", variance="gaussian", training=QUICK).fit(a, a, validation=0, progress=False)


def test_two_pairs_give_an_answer_with_a_spread() -> None:
    """One to learn from, one held out: the mean is what was learned, and the spread says how wrong it was."""
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
    assert p.noise_std.mean() == pytest.approx(0.3, rel=0.1)


def test_scalars_alone_are_enough() -> None:
    s = np.random.default_rng(0).standard_normal((80, 2))
    u = s[:, :1] * np.sin(np.linspace(0, 3, 16)) + s[:, 1:]
    model = PDNO(training=QUICK).fit(None, u, scalars=s, progress=False)
    np.testing.assert_allclose(model.mean(None, scalars=s[:4]), u[:4], atol=1e-6)


def test_the_budget_is_ten_minutes_unless_steps_are_said() -> None:
    assert PDNO().budget == 600
    assert PDNO(training=QUICK).budget is None
    assert PDNO(mean="linear").budget is None
    assert PDNO(budget=20).budget == 20


class Scripted(Contest):
    """Candidates learn nothing, in no time, and have the errors that are given."""

    def __init__(self, errors: dict[str, float], seconds: float = 1e4) -> None:
        terms = Terms(progress=False, deadline=time.monotonic() + seconds)
        super().__init__(data(20), data(10, seed=1), terms, (), "cell", None, 1.0, lambda text: None)
        self.script, self.given = errors, dict[str, float | None]()

    def learned(self, mean: Mean, name: str) -> None:
        self.means[name], self.errors[name] = mean, np.full((10, 1), self.script[name])
        self.trials.append(auto.Trial(name, self.script[name], ""))
        self.given[name] = mean.model.budget if isinstance(mean, Network) else mean.budget if name == "kernel" else None

    def finished(self) -> str | None:
        return None


LOOKS = ["linear", "kernel", "fno, short", "slim, short"]


@pytest.mark.parametrize(
    ("fno", "slim", "more"),
    [
        (0.4, 0.2, ["slim"]),  # the better one goes on
        (0.3, 0.25, ["fno", "slim"]),  # both, if they are close
        (0.9, 0.2, ["fno, longer", "slim"]),  # one that has hardly begun is looked at again
        (2.9, 0.8, ["slim"]),  # not if neither has
        (0.4, 0.49, []),  # at their pace, they would not get below the kernel
    ],
)
def test_a_budget_gives_networks_a_short_look_first(fno, slim, more) -> None:
    errors = {"linear": 0.5, "kernel": 0.1 if more else 0.01, "fno, short": fno, "slim, short": slim}
    contest = Scripted({**errors, "fno, longer": 0.6, "slim": 0.05, "fno": 0.06})
    chosen = contest.run()
    assert tried(chosen) == LOOKS + more
    assert ("a slim UNet was taken" if more else "kernel regression was taken: networks would not") in chosen.why
    given = contest.given
    assert given["kernel"] == pytest.approx(auto.KERNEL * 1e4, rel=0.01)
    assert given["fno, short"] == given["slim, short"] == pytest.approx(auto.SHORT * 1e4, rel=0.01)
    assert given.get("slim", 1e4) == pytest.approx(1e4 / (2 if "fno" in more else 1), rel=0.01)  # all that is left
    assert given.get("fno, longer", 2 * given["fno, short"]) == 2 * given["fno, short"]


def test_a_longer_look_may_turn_the_choice() -> None:
    errors = dict(zip([*LOOKS, "fno, longer", "fno"], (0.5, 0.4, 0.9, 0.3, 0.1, 0.02), strict=True))
    assert "a Fourier neural operator was taken" in Scripted(errors).run().why


def test_without_time_networks_are_left_out() -> None:
    chosen = Scripted({"linear": 0.5, "kernel": 0.1}, seconds=5).run()
    assert [trial.note for trial in chosen.trials[2:]] == ["no time was left"] * 2


@pytest.mark.parametrize(("sigma", "expected"), [(0.0, 32), (0.01, None)])
def test_smooth_fields_are_learned_on_a_coarser_mesh(sigma, expected) -> None:
    """Of 128 points a quarter is enough for three waves, at 5 % of an error of .01; with white noise none can be spared."""
    rng = np.random.default_rng(0)
    x = np.arange(128) / 128
    waves = np.stack([f(2 * np.pi * k * x) for k in (1, 2, 3) for f in (np.sin, np.cos)])
    a = rng.standard_normal((30, 1, 6)) @ waves
    pairs = Pairs.of(a, a**2 / 4 + sigma * rng.standard_normal(a.shape))
    contest = Contest(pairs[:20], pairs[20:], QUIET, (), "periodic", QUICK, 1.0, print)
    assert contest.mesh is None  # nothing was tried yet: there is no error to compare with
    del contest.mesh
    contest.errors = {"linear": np.full((10, 1), 0.01)}
    assert contest.mesh == expected
    mean = contest.network("fno", None)
    mean.learn(pairs[:20], pairs[20:], QUIET)
    assert mean(pairs.a[:2]).shape == (2, 1, 128)
