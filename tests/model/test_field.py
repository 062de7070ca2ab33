"""The diffusion of u itself: a branch that a mean plus noise cannot describe, and its settings."""

import numpy as np

import pdno


def test_two_branches_are_learned_where_a_gaussian_sees_one() -> None:
    """u is one of ± (1 + tanh(a)/2): members lie near a branch, both branches are drawn, and nodes of a member agree."""
    rng = np.random.default_rng(0)
    a = np.cumsum(rng.standard_normal((300, 16)), axis=1) / 4
    branch = 1 + 0.5 * np.tanh(a)
    u = np.where(rng.random((300, 1)) < 0.5, 1, -1) * branch
    loop = pdno.Training(updates=150, batch=64, rate=4e-3, ema=0.98)
    network = {"kind": "local", "modes": 6, "width": 16, "layers": 2}
    model = pdno.PDNO.field(network=network, training=loop, budget=None).fit(a, u, seed=0, progress=False)
    members = model.sample(a[:20], members=40, seed=1)
    sign = np.sign(members.mean(axis=-1, keepdims=True))
    assert 0.25 < (sign > 0).mean() < 0.75
    assert np.median(np.abs(members - sign * branch[:20])) < 0.2
    assert (np.sign(members) == sign).mean() > 0.95
    gaussian = pdno.PDNO(mean="linear", law="gaussian").fit(a, u, seed=0, progress=False).sample(a[:20], members=40, seed=1)
    assert np.median(np.abs(gaussian - np.sign(gaussian.mean(axis=-1, keepdims=True)) * branch[:20])) > 0.4


def test_its_settings_can_be_replaced() -> None:
    model = pdno.PDNO.field(60, kind="periodic", steps=20)
    assert (model.budget, model.kind, model.reverse.steps, model.reverse.sampler) == (60, "periodic", 20, "gaussian-exact")
    assert model.mean_model is None
