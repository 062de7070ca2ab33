"""The paper's settings, for its models and its FNO baselines, and the FNO on a linear operator."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pdno
from pdno import PDNO, Pairs, Schedule, Training, UserError
from pdno.data.spaces import Spaces
from pdno.learning.budget import Terms
from pdno.learning.network import NetworkOnPairs
from pdno.mean.network import relative_error
from pdno.model.baseline import FNO
from pdno.model.paper import CELLS, FNO_TESTS, PDNO_TESTS, SETTINGS
from tests.helpers import normal

SMALL = {"kind": "fno", "modes": 4, "width": 12}


class Affine(nn.Module):
    """a ↦ factor·a + shift."""

    def __init__(self, factor: float, shift: float) -> None:
        super().__init__()
        self.factor, self.shift = nn.Parameter(torch.tensor(factor)), nn.Parameter(torch.tensor(shift))

    def forward(self, a: Tensor) -> Tensor:
        return self.factor * a + self.shift


def waves(count: int, points: int = 24, seed: int = 0) -> np.ndarray:
    """Return random periodic functions with two frequencies: (count, points)."""
    angles = 2 * np.pi * np.outer(np.arange(1, 3), np.arange(points) / points)
    return np.random.default_rng(seed).standard_normal((count, 4)) @ np.concatenate([np.cos(angles), np.sin(angles)])


def shifted(a: np.ndarray) -> np.ndarray:
    """Return half of a, shifted by a quarter of the period: a linear operator to learn."""
    return 0.5 * np.roll(a, a.shape[-1] // 4, axis=-1)


@pytest.fixture(scope="module")
def learned() -> FNO:
    a = waves(200)
    settings = Training(updates=120, batch=20, rate=1e-2, ema=0.0)
    return FNO(SMALL, training=settings).fit(a, shifted(a), seed=0, progress=False)


def test_a_linear_operator_is_learned(learned) -> None:
    a = waves(40, seed=1)
    u = shifted(a)
    error = np.linalg.norm(learned.predict(a, members=1).mean - u, axis=1) / np.linalg.norm(u, axis=1)
    assert error.mean() < 0.1  # 1 for the zero predictor


def test_all_members_are_equal(learned) -> None:
    a = waves(3, seed=2)
    draws = learned.sample(a, members=5, chunk=15)
    assert draws.shape == (5, 3, 24)
    for member in draws[1:]:
        np.testing.assert_allclose(member, draws[0], rtol=1e-6, atol=1e-7)
    predicted = learned.predict(a, members=5, quantiles=(0.05, 0.95), chunk=1)  # each member is one call
    assert not predicted.std.any()
    np.testing.assert_allclose(predicted.quantile(0.05), predicted.quantile(0.95), rtol=1e-15)
    np.testing.assert_allclose(predicted.mean, draws[0], rtol=1e-5, atol=1e-6)


def test_a_saved_fno_predicts_bitwise_the_same(learned, tmp_path) -> None:
    learned.save(tmp_path / "fno.safetensors")
    again = pdno.load(tmp_path / "fno.safetensors")
    assert isinstance(again, FNO)
    np.testing.assert_array_equal(again.sample(waves(3)), learned.sample(waves(3)))


def loss_of(a: np.ndarray, u: np.ndarray, network: nn.Module, normalise: str, **more: object) -> float:
    """Return the objective of all pairs for an untrained network."""
    pairs = Pairs.of(a, u, **more)
    net = NetworkOnPairs.build(network, pairs, Spaces.of(pairs), Terms(), normalise=(normalise, normalise))
    return float(relative_error(net, pairs, 0)(net.module, np.arange(len(a)), 0, 0).detach())


def test_the_objective_is_the_relative_error_by_hand() -> None:
    a = np.array([[1.0, 2.0], [2.0, 2.0]])
    u = np.array([[3.0, 4.0], [0.0, 5.0]])
    by_hand = (np.sqrt(2**2 + 1**2) / 5 + np.sqrt(3**2 + 2**2) / 5) / 2  # the network predicts [1, 3] and [3, 3]
    assert loss_of(a, u, Affine(2.0, -1.0), "none") == pytest.approx(by_hand, rel=1e-6)
    # normalised: predictions of the network are in units of the standard deviation, the error is not
    predictions = 2 * (a - a.mean()) / a.std() - 1
    errors = predictions * u.std() + u.mean() - u
    by_hand = np.mean(np.linalg.norm(errors, axis=1) / np.linalg.norm(u, axis=1))
    assert loss_of(a, u, Affine(2.0, -1.0), "scalar") == pytest.approx(by_hand, rel=1e-6)


def test_missing_outputs_are_in_neither_norm() -> None:
    a = np.array([[1.0, 2.0], [2.0, 2.0]])
    mask = np.array([[True, True], [True, False]])
    for masked in (7.0, -300.0):
        u = np.array([[3.0, 4.0], [2.0, masked]])
        by_hand = (np.sqrt(4 + 1) / 5 + 1 / 2) / 2
        assert loss_of(a, u, Affine(2.0, -1.0), "none", mask=mask) == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize(
    ("test", "modes", "width", "halve_every", "normalise", "points", "parameters"),
    [
        ("darcy", 12, 32, 100, "pointwise", (32, 32), 2_376_449),
        ("burgers", 16, 64, 50, "none", (64,), 582_849),
        ("advection", 16, 128, 50, "none", (64,), 2_328_961),
    ],
)
def test_fno_baselines_are_those_of_the_paper(test, modes, width, halve_every, normalise, points, parameters) -> None:
    model = FNO.paper(test)
    assert model.network == {"kind": "fno", "modes": modes, "width": width}
    assert model.normalise == (normalise, normalise)
    loop = model.training
    assert (loop.epochs, loop.batch, loop.optimizer, loop.rate) == (500, 20, "adam", 1e-3)
    assert (loop.rate_schedule, loop.halve_every, loop.weight_decay) == ("step", halve_every, 1e-4)
    assert (loop.ema, loop.clip) == (0, 0)
    a, u = np.random.default_rng(3).standard_normal((2, 4, 1, *points))
    model.training = Training(updates=1, batch=2)
    model.fit(a, u, validation=0, progress=False)
    (network,) = model.law.mean.networks
    assert sum(p.numel() for p in network.module.parameters()) == model.parameters == parameters
    assert model.sample(a[:1], chunk=1).shape == (1, 1, 1, *points)


def test_settings_that_an_fno_does_not_have_are_refused(learned) -> None:
    with pytest.raises(UserError, match="the law 'exact' has no sampler and no setting 'steps'"):
        learned.sample(waves(1), steps=3)
    with pytest.raises(UserError, match=r"the paper has no FNO for the test 'darci'; did you mean 'darcy'\?"):
        FNO.paper("darci")
    assert "elliptic1d" not in FNO_TESTS
    a = waves(4, points=6)
    with pytest.raises(UserError, match="a grid of 6 is too small for an FNO of 9 modes"):
        FNO({"kind": "fno", "modes": 9, "width": 4}, training=Training(updates=1)).fit(a, a)


# PDNO


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize(
    ("test", "points", "base", "batch", "schedule", "rate", "falls", "normalised", "parameters"),
    [
        ("elliptic1d", (128,), 32, 50, Schedule.cosine, 1e-4, True, (False, False), 3_980_129),
        ("darcy", (64, 64), 64, 20, Schedule.cosine, 1e-4, True, (True, True), 35_707_841),
        ("burgers", (512,), 32, 32, Schedule.linear, 1e-4, True, (False, False), 3_980_129),
        ("advection", (256,), 32, 20, Schedule.cosine, 8e-5, False, (False, True), 3_980_129),
    ],
)
def test_models_are_those_of_the_paper(test, points, base, batch, schedule, rate, falls, normalised, parameters, noisy) -> None:
    """Tables `tab:params-test1` to `tab:params-test4`, then two steps of training and one of sampling."""
    model = PDNO.paper(test, noisy)
    assert model.network == {"kind": "unet", "base": base}
    np.testing.assert_array_equal(model.diffusion.schedule.gamma, schedule(100).gamma)
    assert (model.diffusion.target, model.reverse.steps, model.reverse.sampler) == ("eps", 100, "ancestral")
    assert model.reverse.variance == ("gaussian" if noisy else "noise-free")
    assert model.normalise == (("scalar", "scalar") if normalised[noisy] else ("none", "none"))
    loop = model.training
    assert (loop.epochs, loop.updates, loop.batch, loop.optimizer, loop.rate) == (1000, None, batch, "adam", rate)
    assert (loop.rate_schedule, loop.halve_every) == ("step" if falls else "constant", 100)
    assert (loop.ema, loop.clip, loop.weight_decay) == (0, 0, 0)
    model.training = replace(loop, batch=2, updates=2)
    a, u = normal(2, 2, 1, *points)
    model.fit(a, u, validation=0, progress=False)
    assert model.mean_model is None
    (network,) = model.law.residual.networks
    assert network.module.settings["multipliers"] == [1, 2, 4, 8]
    assert sum(p.numel() for p in network.module.parameters()) == network.parameters == parameters
    draws = model.sample(a[:1], steps=1, chunk=1)
    assert draws.shape == (1, 1, 1, *points)
    assert np.isfinite(draws).all()


@pytest.mark.parametrize(
    ("test", "label", "train", "test_inputs", "members"),
    [
        ("elliptic1d", "tab:params-test1", (10_000, 10_000), 10_000, (1, 500)),
        ("darcy", "tab:params-test2", (1000, 1000), 100, (1, 500)),
        ("burgers", "tab:params-test3", (1024, 1024), 1024, (1, 1)),
        ("advection", "tab:params-test4", (1500, 10_000), 300, (1, 10_000)),
    ],
)
def test_the_tables_have_the_data_of_the_paper(test, label, train, test_inputs, members) -> None:
    table = PDNO_TESTS[test]
    assert (table.label, table.train, table.test, table.members) == (label, train, test_inputs, members)
    assert (table.multipliers, table.blocks, table.n_steps, table.epochs) == ((1, 2, 4, 8), 2, 100, 1000)


def test_settings_are_all_experiments_of_the_paper() -> None:
    """Test 1 at three noise levels, three grids of Tests 2 to 4, Darcy with two mixtures and advection with much noise."""
    assert len(SETTINGS) == 3 + 9 + 4 + 2
    assert list(CELLS) == [name for name, setting in SETTINGS.items() if not setting.noisy]
    assert {setting.members for setting in SETTINGS.values() if not setting.noisy} == {1}
    darcy = SETTINGS["darcy-128-mixture:2"]
    assert (darcy.train, darcy.members, darcy.grid, darcy.noisy) == (1000, 10_000, "128x128", True)
    advection = SETTINGS["advection-512-gaussian:0.5"]
    assert (advection.train, advection.members, advection.grid) == (10_000, 10_000, "512")
    assert SETTINGS["elliptic1d-128-gaussian:1"].members == 500


def test_unknown_tests_are_refused() -> None:
    assert list(PDNO_TESTS) == ["elliptic1d", "darcy", "burgers", "advection"]
    with pytest.raises(UserError, match=r"the paper has no test 'darci'; did you mean 'darcy'\?"):
        PDNO.paper("darci")
