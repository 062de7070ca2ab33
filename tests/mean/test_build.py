"""Means from names, settings and saved states."""

import json

import numpy as np
import pytest

from pdno import Training, UserError
from pdno.mean import MEANS, Constant, Kernel, Linear, LowFidelity, Mean, Network, Process, Sum, mean_from_state, mean_of
from pdno.mean.base import named_state
from pdno.mean.choice import Choice, Trial
from pdno.work.folder import RunFolder
from tests.mean.states import from_file, same_state

SPECTRAL = {"kind": "spectral", "modes": 4, "width": 12, "layers": 2}
SLIM = {"kind": "slim", "widths": [8, 16], "blocks": 1}
SHORT = Training(updates=4, batch=4, rate=1e-2, ema=0.5)


def noise(samples: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(samples, *(shape or (1, 16))))


# From names


@pytest.mark.parametrize(
    ("name", "kind"), [("constant", Constant), ("linear", Linear), ("kernel", Kernel), ("network", Network)]
)
def test_means_have_names(name, kind) -> None:
    for given in (name, {"name": name}):
        assert type(mean_of(given)) is kind
    assert kind.name == name


@pytest.mark.parametrize("name", ["slim", "spectral", "fno", "unet"])
def test_networks_are_means(name) -> None:
    mean = mean_of(name, symmetries=("reflection",), kind="periodic")
    assert isinstance(mean, Network)
    assert (mean.label, mean.symmetries, mean.kind) == (name, ("reflection",), "periodic")


def test_settings_reach_the_mean() -> None:
    assert mean_of({"name": "linear", "degree": 1}, symmetries=("square",)).degree == 1  # which takes no symmetries
    kernel = mean_of({"name": "kernel", "kernel": "rq", "kind": "vertex"}, symmetries=("square",), kind="cell")
    assert (kernel.kernel, kernel.symmetries, kernel.kind) == ("rq", ("square",), "vertex")
    assert mean_of({"name": "slim", "widths": [8]}).network == {"kind": "slim", "widths": [8]}
    assert mean_of({"name": "constant", "normalise": "scalar"}, kind="vertex").normalise == "scalar"
    whole = mean_of({"name": "network", "network": SPECTRAL, "points": 8}, kind="periodic")
    assert (whole.network, whole.points, whole.kind) == (SPECTRAL, 8, "periodic")
    total = mean_of({"name": "sum", "parts": ["linear", {"name": "kernel", "most": 9}]}, symmetries=("square",))
    assert isinstance(total, Sum)
    assert [type(part) for part in total.parts] == [Linear, Kernel]
    assert (total.parts[1].most, total.parts[1].symmetries) == (9, ("square",))


def test_settings_are_not_changed() -> None:
    given = {"name": "sum", "parts": [{"name": "kernel", "most": 9}, "linear"]}
    before = json.dumps(given)
    mean_of(given)
    assert json.dumps(given) == before


def test_instances_are_copied() -> None:
    given = Network(SLIM, training=SHORT).fit(noise(12), np.cumsum(noise(12), axis=-1))
    before, copy = given.state(), mean_of(given, symmetries=("reflection",))
    assert copy is not given
    assert same_state(copy.state(), given.state())
    assert copy.symmetries == ()  # as it was constructed
    copy.fit(noise(12), -noise(12))
    assert same_state(given.state(), before)
    assert not same_state(copy.state(), given.state())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("kernle", r"mean 'kernle' is unknown; did you mean 'kernel'\? Expected one of auto, none, constant, linear"),
        (
            "auto",
            "mean 'auto' is unknown; expected one of constant, linear, kernel, process, network, sum, unet, fno, slim, "
            "spectral, local, small, small-local, small-fno$",
        ),
        ("zero", "mean 'zero' is unknown; expected one of .*fno$"),
        (3, "mean = 3: expected a name, a mapping of settings, or a pdno.mean.Mean"),
        (None, "mean = None: expected a name"),
        ({"degree": 2}, "mean = {'degree': 2}: expected settings with a name"),
        ({"name": ["linear"]}, "expected settings with a name"),
        ({"name": "kernel", "lenght": 3}, "the mean 'kernel' does not take these settings: .*'lenght'"),
        ({"name": "linear", "degree": 3}, "degree = 3 is unknown"),
        ({"name": "network", "widths": [8]}, "the mean 'network' does not take these settings: .*'widths'"),
        ("sum", "got a sum of nothing, expected two means or more"),
        ({"name": "sum", "parts": ["linear"]}, "got a sum of linear, expected two means or more"),
        ({"name": "sum", "parts": ["linear", "liner"]}, r"mean 'liner' is unknown; did you mean 'linear'\?"),
        ({"name": "sum", "part": []}, "the mean 'sum' does not take the settings part; expected 'parts' only"),
    ],
)
def test_other_values_are_refused(given, message) -> None:
    with pytest.raises(UserError, match=message):
        mean_of(given)


# From states


TRAINED = {
    "constant": lambda: Constant("scalar", kind=["periodic"]),
    "linear": lambda: Linear(degree=1),
    "kernel": lambda: Kernel("rq", symmetries="reflection"),
    "process": lambda: Process(most=15),
    "network": lambda: Network(SLIM, training=SHORT),
    "sum": lambda: Sum(Constant(), Sum(Linear(smooth="cosines"), Kernel("matern52"))),
}


@pytest.mark.parametrize("name", MEANS)
def test_every_mean_is_restored_bitwise(name) -> None:
    """From the state with its name, as it is read from a file: predictions, residuals, description, number of parameters."""
    a, u, s = noise(20), np.tanh(noise(20)) + noise(20, seed=1), noise(20, 2, seed=2)
    mean = TRAINED[name]().fit(a, u, s)
    again = mean_from_state(from_file(named_state(mean)))
    assert type(again) is type(mean)
    np.testing.assert_array_equal(again(a[::-1], s), mean(a[::-1], s))
    np.testing.assert_array_equal(again.residuals(a, u, s), mean.residuals(a, u, s))
    assert same_state(named_state(again), named_state(mean))
    assert (again.describe(), again.parameters, again.cheap_folds) == (mean.describe(), mean.parameters, mean.cheap_folds)
    assert [type(leaf) for leaf in again.leaves()] == [type(leaf) for leaf in mean.leaves()]


def test_parameters_are_the_saved_values() -> None:
    a = noise(20)
    assert Linear(sparse=False).fit(a, a).parameters == sum(
        x.size for x in Linear(sparse=False).fit(a, a).state().arrays.values()
    )
    parts = [Linear(degree=1), Network(SLIM, training=SHORT)]
    mean = Sum(*parts).fit(a, a)
    weights = sum(p.numel() for p in parts[1].trained.module.parameters())
    assert mean.parameters == parts[0].parameters + weights


# In the folder of a run


class Mine(Linear):
    name = "mine"


def test_a_choice_is_loaded_for_the_same_plan(tmp_path) -> None:
    a, u = noise(20), np.cumsum(noise(20), axis=2)
    trials = (Trial("linear", 0.5, "first", 1.5), Trial("mean", 0.25, "second", 2.5, selected=True))
    choice = Choice(Sum(Linear(), Kernel("rq")).fit(a, u), trials, "it is better", True)
    choice.save(tmp_path / "run", {"seed": 1, "points": (3, 4)})
    again = Choice.load(tmp_path / "run", {"seed": 1, "points": (3, 4)})
    assert again is not None
    assert (again.trials, again.reason, again.exact, again.held_out) == (trials, "it is better", True, None)
    assert [trial.seconds for trial in again.trials] == [1.5, 2.5]
    np.testing.assert_array_equal(again.mean(a), choice.mean(a))
    assert Choice.load(tmp_path / "run", {"seed": 2, "points": (3, 4)}) is None
    assert Choice.load(tmp_path, {"seed": 1}) is None
    file = RunFolder(tmp_path / "run").mean
    file.write_bytes(file.read_bytes()[:-1])
    assert Choice.load(tmp_path / "run", {"seed": 1, "points": (3, 4)}) is None


@pytest.mark.parametrize(
    "mean",
    [Mine(), LowFidelity(np.sin), Sum(Linear(), Mine()), Sum(LowFidelity(np.sin), Linear())],
    ids=["class", "solver", "part", "part of a part"],
)
def test_code_of_the_user_is_not_saved(mean: Mean, tmp_path) -> None:
    """Not even where it is a part, or has only parts of pdno itself."""
    choice = Choice(mean.fit(noise(20), np.cumsum(noise(20), axis=2)), (), "as requested")
    choice.save(tmp_path / "run", {})
    assert not (tmp_path / "run").exists()
    assert Choice.load(tmp_path / "run", {}) is None


def test_symmetries_of_the_user_are_not_saved(tmp_path) -> None:
    """They are code: the file has their place, but no mean can be restored from it."""
    a = noise(20)
    kernel = Kernel("rq", symmetries=[(np.negative, np.negative)]).fit(a, np.sin(a))
    Choice(kernel, (), "as requested").save(tmp_path, {})
    assert Choice.load(tmp_path, {}) is None
