"""Mean and law are selected together: what the summary says in planted cases, where the time goes, and what is resumed."""

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import pytest

from pdno import PDNO
from pdno.data.pairs import Pairs
from pdno.data.spaces import Spaces
from pdno.diffusion.base import White
from pdno.learning.budget import Terms
from pdno.mean import Linear
from pdno.mean.choice import Choice, Trial
from pdno.mean.choose import MeanSelection
from pdno.model.search import LAW_SCREENING, LEAST_NOISE, MEAN_SHARE, SHARED_NOISE, SHARED_SHARE, Search
from pdno.residual import Diffused, Gaussian, Inputs, Residuals, Rows, normals
from pdno.residual.candidates import Candidate, candidates
from pdno.residual.choose import FINAL_TRAINING, LawChoice
from tests.helpers import TWO, linear_pairs
from tests.residual.coins import Coins

LINEAR = Linear(degree=1, sparse=False)
SECONDS = 1000.0  # budget of runs in which nothing takes time


def coin_pairs(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs whose outputs have a shift of ±1, shared by all nodes, and little noise."""
    a, u, _ = linear_pairs(count, sigma=0.05, seed=seed)
    return a, u + np.random.default_rng(seed + 1).choice([-1.0, 1.0], (count, 1, 1))


# What the default says


def test_gaussian_residuals_are_said_to_pass_the_tests() -> None:
    a, u, _ = linear_pairs(300)
    model = PDNO(training=TWO).fit(a, u, progress=False)
    assert model.law.residual.name == "gaussian"
    assert "pass all tests of white, homoscedastic Gaussian noise" in model.fit_summary[-2]
    assert not any("was kept" in line or "not tried" in line for line in model.fit_summary)


def test_a_shared_coin_is_not_said_to_be_gaussian(monkeypatch) -> None:
    """All laws but the diffusion of fields, which is slow, are tried."""
    monkeypatch.setattr("pdno.residual.choose.candidates", lambda diffused, nodes: candidates(diffused, nodes)[:2])
    a, u = coin_pairs(500)
    model = PDNO(mean=LINEAR, training=TWO).fit(a, u, progress=False)
    law = model.law.residual.name
    assert law != "gaussian"
    assert any(f"the law {law!r} was kept" in line for line in model.fit_summary)
    assert not any("pass all tests" in line for line in model.fit_summary)
    shift = (model.sample(a[:20], 20) - model.law.mean(a[:20])).mean(axis=(2, 3))
    assert np.mean(np.abs(np.abs(shift) - 1) < 0.4) > 0.85  # .39 for a Gaussian; the mean's own error has a std of √(17/450)


def test_what_there_was_no_time_for_is_said() -> None:
    a, u = coin_pairs(200)
    model = PDNO(mean=LINEAR, budget=0.5).fit(a, u, progress=False)
    for law in ("linear statistics", "scaled", "statistics", "diffusion"):
        assert any(f"{law!r} was not tried: there was no time" in line for line in model.fit_summary)
    assert not any("pass all tests" in line for line in model.fit_summary)


# Where the time goes

Record = list[tuple[str, float]]  # what was trained, and for how many seconds
NAMES = ("scaled", "statistics", "diffusion")


def hidden_pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs whose outputs have a shift of a(0)² − 1, which linear regression does not see."""
    a, u, _ = linear_pairs(count, sigma=0.05)
    return a, u + a[..., :1] ** 2 - 1


class Stub(Coins):
    """The exact law of these residuals, or one that is far too wide; trainings are recorded."""

    def __init__(self, exact: bool, record: Record) -> None:
        super().__init__()
        self.exact, self.record = exact, record

    def learn(self, residuals: Residuals, held_out: Residuals | None, terms: Terms) -> Self:
        self.record.append((self.name, terms.left()))
        return self

    def draw(self, inputs: Inputs, rows: Rows, **sampling: Any) -> np.ndarray:
        z = normals(White(), inputs.mean.shape[1:], rows)
        return inputs.a[rows.places, :, :1] ** 2 - 1 + 0.05 * z if self.exact else 10 * z


class Means:
    """A selection of means after its screening, with linear regression as the best one."""

    noise = 1.0  # share of noise in its residuals

    def __init__(self, record: Record, pairs: Pairs, held_out: Pairs, terms: Terms, **settings: Any) -> None:
        self.record, self.mean = record, Linear(degree=1, sparse=False).learn(pairs, held_out, terms)
        self.held_out, self.screened = held_out, dict[str, float]()

    def screen(self, held_out: Pairs) -> None:
        return None

    def noise_share(self) -> float:
        return self.noise

    def finish(self, seconds: float) -> str:
        self.record.append(("mean", seconds))
        return "it was trained to the end"

    def selected(self, reason: str, cheap_folds: bool = False) -> Choice:
        return Choice(self.mean, (Trial("linear", 0.1, "linear", selected=True),), reason)


@pytest.fixture
def select(monkeypatch, tmp_path) -> Callable[[str], tuple[Record, Choice, LawChoice]]:
    """Return a function that selects mean and law in one run folder, given the name of the law that is exact."""
    pairs = Pairs.of(*hidden_pairs(360))

    def run(exact: str) -> tuple[Record, Choice, LawChoice]:
        record: Record = []

        def candidate(name: str) -> Candidate:
            law = type(name, (Stub,), {"name": name, "explained": float(name == "statistics")})
            return Candidate(name, lambda gaussian: law(name == exact, record), 1.0)

        monkeypatch.setattr("pdno.model.search.candidates", lambda diffused, nodes: tuple(map(candidate, NAMES)))
        monkeypatch.setattr("pdno.model.search.MeanSelection", partial(Means, record))
        terms = Terms(run=tmp_path, progress=False, deadline=time.monotonic() + SECONDS)
        search = Search(pairs[:240], pairs[240:], Spaces.of(pairs), (), terms, Gaussian("scalar"), Diffused())
        return record, *search.run("auto", "auto", {}, {"plan": 1})

    return run


def test_time_is_that_of_a_law_of_whole_fields_if_it_wins_the_screening(select) -> None:
    """All three are screened within their share, then the winner gets the rest, and the mean nothing."""
    record, choice, selected = select("statistics")
    assert [name for name, _ in record] == [*NAMES, "statistics"]
    assert sum(seconds for _, seconds in record[:3]) == pytest.approx(LAW_SCREENING * SECONDS, rel=0.02)
    assert record[3][1] == pytest.approx(FINAL_TRAINING * SECONDS, rel=0.02)
    assert selected.law.name == "statistics"
    assert any("the law 'statistics' was kept" in line for line in selected.summary)
    assert choice.reason.startswith("more training of the mean would gain less than that of the law")


@pytest.mark.parametrize(("exact", "share"), [("scaled", SHARED_SHARE), ("none", MEAN_SHARE)])
def test_time_is_that_of_the_mean_otherwise(select, exact, share) -> None:
    record, choice, selected = select(exact)
    names = [name for name, _ in record]
    assert names[:4] == [*NAMES, "mean"]
    assert record[3][1] == pytest.approx(share * SECONDS, rel=0.02)
    assert choice.reason == "it was trained to the end"
    if exact == "scaled":  # it is not screened again
        assert names[4:] == ["scaled"]
        assert selected.law.name == "scaled"
    else:
        assert names[4:] == list(NAMES)
        assert selected.law.name not in NAMES


def test_residuals_with_little_noise_are_those_of_a_mean_that_is_trained_first(select, monkeypatch) -> None:
    """A law of its errors so far would be of no use."""
    monkeypatch.setattr(Means, "noise", LEAST_NOISE / 2)
    record, choice, selected = select("statistics")
    assert [name for name, _ in record] == ["mean", *NAMES, "statistics"]
    assert record[0][1] == pytest.approx(MEAN_SHARE * SECONDS, rel=0.02)
    assert choice.reason == "it was trained to the end"
    assert selected.law.name == "statistics"


def test_mean_and_law_share_the_time_if_there_is_some_noise(select, monkeypatch) -> None:
    """A law of whole fields won the screening; its residuals are errors of the mean in part."""
    monkeypatch.setattr(Means, "noise", (LEAST_NOISE + SHARED_NOISE) / 2)
    record, _, selected = select("statistics")
    assert [name for name, _ in record] == [*NAMES, "mean", "statistics"]
    assert record[3][1] == pytest.approx(SHARED_SHARE * SECONDS, rel=0.02)
    assert selected.law.name == "statistics"


def test_a_resumed_run_trains_the_selected_law_alone(select) -> None:
    _, first, _ = select("statistics")
    record, choice, selected = select("statistics")
    assert choice.law == "statistics"
    assert [name for name, _ in record] == ["statistics"]
    assert record[0][1] == pytest.approx(FINAL_TRAINING * SECONDS, rel=0.02)
    assert selected.law.name == "statistics"
    a = hidden_pairs(5)[0]
    np.testing.assert_array_equal(choice.mean(a), first.mean(a))


class Opaque(Linear):
    """A mean whose folds are costly, as those of a network."""

    cheap_folds = False


@pytest.mark.parametrize(("curved", "is_kept", "expected"), [(False, True, "new"), (False, False, "old"), (True, True, "old")])
def test_effects_are_estimated_from_out_of_fold_residuals(curved, is_kept, expected, monkeypatch) -> None:
    """The mean so far is a network: residuals of the best cheap mean take the place of its in-sample residuals."""
    pairs = Pairs.of(*hidden_pairs(120))
    train, held_out, terms = pairs[:80], pairs[80:], Terms(progress=False, deadline=time.monotonic() + SECONDS)
    search = Search(train, held_out, Spaces.of(pairs), (), terms, Gaussian("scalar"), Diffused())
    means = MeanSelection(train, held_out, terms, (), "cell")
    means.train(Linear(degree=1, sparse=False), "linear", terms)
    means.train(Opaque(), "fno-screening", terms)
    old, new = means.choice("fno-screening", "it is a network"), means.choice("fno-screening", "it was trained again")
    new = replace(new, mean=deepcopy(new.mean))
    seen: list[Choice] = []

    def trained(means: Any, start: Choice, residuals: Any, *others: Any) -> tuple[Choice, Any]:
        seen.append(start)
        return (new, residuals) if is_kept else (start, residuals)

    monkeypatch.setattr("pdno.model.search.network_without_effects", trained)
    monkeypatch.setattr("pdno.model.search.refit", lambda start, pairs, held_out, residuals, *others: (start, residuals))
    found, _ = search._without_effects(means, old, search._decomposed(old)[0], held_out, curved)
    assert found.mean is {"old": old, "new": new}[expected].mean
    assert [start.mean.cheap_folds for start in seen] == [True] * (not curved)
