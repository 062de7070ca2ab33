"""A network as a mean model: training, masks, budgets, residuals, descriptions, and mistakes."""

from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save
from torch import Tensor

import pdno.learning.budget
import pdno.learning.loop
from pdno import Pairs, Training, UserError
from pdno.learning.budget import Terms
from pdno.mean import Network
from pdno.mean.network import recipe
from pdno.work.state import State, flatten
from tests.mean.networks import QUIET, SHORT, SLIM, SPECTRAL, Factor, noise, same_arrays, short, waves
from tests.mean.states import from_file, same_state


def operator(a: np.ndarray) -> np.ndarray:
    """A quarter of the period later, with a bend."""
    late = np.roll(a, a.shape[-1] // 4, axis=-1)
    return 3 + 2 * late + 0.2 * late**2


def other_widths(state: State) -> State:
    """The state of a network with settings of another one."""
    network = state.parts["network"]
    settings = {**network.settings, "network": {**network.settings["network"], "widths": [8, 8]}}
    return State(state.settings, state.arrays, {"network": State(settings, network.arrays, network.parts)})


# Training


def test_an_operator_is_learned() -> None:
    """New inputs have a tenth of the error that the mean of u has."""
    a, new = waves(100), waves(30, seed=1)
    loop = Training(updates=150, batch=20, rate=1e-2, ema=0.9)
    mean = Network(SPECTRAL, kind="periodic", training=loop).fit(a, operator(a))
    error, trivial = (np.linalg.norm(m - operator(new)) for m in (mean(new), operator(a).mean(axis=0)))
    assert error < 0.1 * trivial


def test_predictions_do_not_depend_on_the_number_of_inputs() -> None:
    mean, new = short(), noise(150, seed=1)
    np.testing.assert_allclose(mean(new)[70:73], mean(new[70:73]), rtol=0, atol=1e-5)
    assert mean(new[:0]).shape == (0, 1, 16)


def test_the_same_seed_gives_the_same_bytes() -> None:
    a, u = noise(12), noise(12, seed=1)
    one, two, other = (Network(SLIM, training=SHORT).fit(a, u, seed=seed) for seed in (5, 5, 6))
    assert save(flatten(one.state())[0]) == save(flatten(two.state())[0])
    assert not np.array_equal(one(a), other(a))


def test_every_fit_starts_from_the_beginning() -> None:
    mean = short()
    assert same_arrays(mean.fit(noise(12), np.cumsum(noise(12), axis=-1)), short())


def test_an_own_module_is_copied() -> None:
    module = Factor()
    mean = Network(module, normalise="none", training=Training(updates=200, batch=4, rate=0.05, ema=0.0))
    assert mean.label == "own network"
    mean.fit(noise(12), 3 * noise(12))
    np.testing.assert_allclose(mean(noise(5, seed=1)), 3 * noise(5, seed=1), rtol=1e-3)
    assert float(module.factor.detach()) == 1
    assert mean.label == "own network"
    assert mean.parameters == 1


def test_scalars_count() -> None:
    """u is the scalar, whose values are in the thousands: without normalisation a network could not learn it."""
    a, s = noise(40), 5e3 + 1e3 * noise(40, 1, seed=1)
    loop = Training(updates=120, batch=20, rate=1e-2, ema=0.9)
    mean = Network(SPECTRAL, training=loop).fit(a, np.broadcast_to(s[:, :, None], a.shape), s)
    assert np.abs(mean(a, s)[:, 0] - s).mean() < 0.2 * s.std()
    assert np.abs(mean(a, s[::-1])[:, 0] - s[::-1]).mean() < 0.2 * s.std()


def test_inputs_may_be_on_another_grid() -> None:
    a, u = noise(12, 2, 6, 5), noise(12, 3, 8, 9, seed=1)
    mean = Network(SLIM, training=SHORT).fit(a, u)
    assert mean(a).shape == u.shape
    again = Network.from_state(from_file(mean.state()))
    np.testing.assert_array_equal(again(a), mean(a))


def test_masked_values_do_not_matter() -> None:
    a, u = noise(12), noise(12, seed=1)
    mask = noise(12, seed=2) > 0
    hidden, seen = (np.where(m, 100.0, u) for m in (~mask, mask))
    one, two, other = (Network(SLIM, training=SHORT).learn(Pairs.of(a, x, mask=mask), None, QUIET) for x in (u, hidden, seen))
    assert same_arrays(one, two)
    assert not same_arrays(one, other)


def test_masked_nodes_have_no_weight() -> None:
    """The factor is that of the observed nodes, not one between it and zero."""
    a, mask = noise(12), noise(12, seed=2) > 0
    mean = Network(Factor(), normalise="none", training=Training(updates=200, batch=4, rate=0.05, ema=0.0))
    mean.learn(Pairs.of(a, np.where(mask, 3 * a, np.nan), mask="nan"), None, QUIET)
    np.testing.assert_allclose(mean(a), 3 * a, rtol=1e-3)


def test_a_budget_limits_the_steps(monkeypatch) -> None:
    """By a clock on which an evaluation of the network takes a second, and everything else no time.

    A few steps are used to measure the pace, and the first of them look slower than they are, hence fewer steps than seconds.
    """
    seconds = [0.0]

    class Slow(Factor):
        def forward(self, a: Tensor) -> Tensor:
            seconds[0] += 1
            return super().forward(a)

    for module in (pdno.learning.budget, pdno.learning.loop):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: seconds[0]))

    def steps(**settings: object) -> int:
        mean = Network(Slow(), **settings).fit(noise(20), noise(20, seed=1))
        return mean.trained.updates

    assert 100 <= steps(budget=200) <= 200
    assert 200 < steps(budget=400) <= 400
    assert 100 <= steps(budget=200, training=Training(updates=1000)) <= 200
    assert steps(budget=200, training=Training(updates=7)) == 7
    assert steps(training=Training(updates=300)) == 300


def test_checkpoints_have_a_folder_of_their_own(tmp_path) -> None:
    pairs = Pairs.of(noise(12), noise(12, seed=1))
    terms = Terms(run=tmp_path, progress=False).below("slim")
    first = Network(SLIM, training=SHORT).learn(pairs, None, terms)
    assert (tmp_path / "slim" / "checkpoint.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["slim"]
    assert same_arrays(Network(SLIM, training=SHORT).learn(pairs, None, terms), first)  # which was finished already


def test_residuals_are_those_of_copies_trained_without_the_pair() -> None:
    a, u = noise(8), noise(8, seed=1)
    mean = Network(SLIM, training=SHORT).fit(a, u)
    before = mean.state()
    pairs_of = np.arange(8) // 2
    residuals = mean.residuals(a, u, group=pairs_of, count=4)
    for k in range(4):
        left, kept = pairs_of == k, pairs_of != k
        refit = Network(SLIM, training=SHORT).fit(a[kept], u[kept])
        np.testing.assert_array_equal(residuals[left], u[left] - refit(a[left]))
    assert same_state(before, mean.state())


def test_channels_count_alike_whatever_their_units() -> None:
    """The loss does not change if a channel is measured in other units."""
    rng = np.random.default_rng(0)
    a, u = rng.standard_normal((30, 1, 16)), rng.standard_normal((30, 2, 16)) + 1
    losses = []
    for unit in (1.0, 1e5):
        v = u * np.array([1.0, unit])[:, None]
        dims = ("sample", "channel", "x")
        pairs = Pairs.of(a, v, dims=(dims, dims))
        network = Network(SLIM, training=SHORT).learn(pairs, None, QUIET)
        losses.append([row["loss"] for row in network.trained.history])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


# Descriptions, and mistakes


def test_sentence() -> None:
    assert Network("fno").describe() == "A network of kind 'fno' that has not been trained."
    mean = short(symmetries="reflection")
    parameters = sum(p.numel() for p in mean.trained.module.parameters())
    assert mean.parameters == parameters > 1000
    expected = f"A network of kind 'slim' with {parameters:,} parameters, trained for 4 steps, symmetric under reflection."
    assert mean.describe() == expected
    assert short().describe().endswith("trained for 4 steps.")


def test_labels_are_kinds() -> None:
    assert Network().label == "slim"
    assert Network("fno").label == Network({"kind": "fno"}).label == "fno"
    assert Network({"base": 8}).label == "auto"
    assert short({"base": 8, "multipliers": [1]}).label == "unet"  # which "auto" selected
    assert Network.name == "network"
    assert not Network().cheap_folds


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Network()(noise(2)), r"this network has not been trained; call fit\(a, u\) first"),
        (lambda: Network().state(), "has not been trained"),
        (lambda: Network().parameters, "has not been trained"),
        (
            lambda: short()(noise(2, 1, 18)),
            r"an input has shape \(1, 18\) and 0 scalars, expected \(1, 16\) and 0 as in training",
        ),
        (lambda: short()(noise(2, 2, 16)), r"an input has shape \(2, 16\) and 0 scalars, expected \(1, 16\)"),
        (lambda: short()(noise(2), noise(2, 3)), r"and 3 scalars, expected \(1, 16\) and 0"),
        (lambda: short(points=8)(noise(2, 2, 16)), r"an input has shape \(2, 8\)"),
        (lambda: short(points=8.0), r"points = 8\.0: a grid needs a whole number"),
        (lambda: short({"kind": "slim", "widht": 3}), "the network 'slim' does not take these settings: .*'widht'"),
        (lambda: short("slimm"), r"network 'slimm' is unknown; did you mean 'slim'\?"),
        (
            lambda: Network.from_state(other_widths(short().state())),
            "the weights do not fit the network that the file describes",
        ),
        (lambda: Network.from_state(short().state(), Factor()), "the weights do not fit this network"),
        (lambda: short(a=noise(12) / 0.0), "inputs contain NaN or infinite values"),
        (lambda: short(symmetries="translation"), "symmetry 'translation' needs a periodic axis"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_mistakes_are_explained(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_a_network_whose_training_failed_does_not_predict() -> None:
    mean = short()
    with pytest.raises(UserError, match="too small for this network"):
        mean.fit(noise(12, 1, 1), noise(12, 1, 1))
    with pytest.raises(UserError, match="has not been trained"):
        mean(noise(2))


@pytest.mark.parametrize(
    ("given", "patience"), [(None, 5), (Training(updates=100), 0), (Training(epochs=3), 0), (Training(), 5)]
)
def test_a_given_number_of_steps_is_not_shortened(given, patience) -> None:
    assert recipe(given).patience == patience
