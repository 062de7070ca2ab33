"""A network on pairs: what it is fed with, what its weights depend on, and its state."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pdno import Pairs, UserError
from pdno.data.spaces import Spaces
from pdno.learning.budget import Terms
from pdno.learning.loop import Objective
from pdno.learning.network import OWN, NetworkOnPairs, elements_of, normalise_of
from pdno.learning.settings import Training
from pdno.mean.base import pairs_of
from pdno.symmetry import augment
from pdno.work.state import State
from tests.helpers import normal

QUIET = Terms(progress=False)
FNO = {"kind": "fno", "modes": 3, "width": 4}
ROWS = np.array([3, 1, 3])


def fields(count: int = 8, points: int = 16) -> Pairs:
    return Pairs.of(5 + 2 * normal(count, 1, points), 3 * normal(count, 1, points, seed=1) - 7)


def built(pairs: Pairs, network: object = FNO, terms: Terms = QUIET, **settings: object) -> NetworkOnPairs:
    return NetworkOnPairs.build(network, pairs, Spaces.of(pairs), terms, **settings)


def trained(pairs: Pairs, network: object = FNO, terms: Terms = QUIET, **settings: object) -> NetworkOnPairs:
    """Train for two steps on squared errors."""
    net = built(pairs, network, terms)

    def objective(some: Pairs, purpose: str) -> Objective:
        get = net.rows(some)

        def loss(module: nn.Module, rows: np.ndarray, first: int, step: int) -> Tensor:
            a, u, _ = get(rows, first, step)
            return ((module(a) - u) ** 2).mean()

        return loss

    return net.train(objective, pairs, None, Training(updates=2, batch=4), terms, settings)


def same(one: NetworkOnPairs, other: NetworkOnPairs) -> bool:
    a, b = one.module.state_dict(), other.module.state_dict()
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


# What the network is fed with


def test_fields_are_normalised() -> None:
    pairs = fields()
    net = built(pairs)
    condition, outputs, mask = net.rows(pairs)(ROWS)
    a, u = ((x[ROWS] - x.mean()) / x.std() for x in (pairs.a, pairs.u))
    np.testing.assert_allclose(condition.numpy(), a, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs.numpy(), u, rtol=1e-5, atol=1e-6)
    assert mask is None
    assert condition.dtype == torch.float32
    plain = built(pairs, normalise=("none", "none")).rows(pairs)(ROWS)
    np.testing.assert_array_equal(plain[1].numpy(), pairs.u[ROWS].astype("f4"))


def test_scalars_are_constant_channels() -> None:
    s = normal(8, 2, seed=2) * [1.0, 50.0]
    pairs = Pairs.of(normal(8, 1, 16), normal(8, 1, 16, seed=1), scalars=s)
    condition = built(pairs).rows(pairs)(ROWS)[0].numpy()
    assert condition.shape == (3, 3, 16)
    expected = (s - s.mean(axis=0)) / s.std(axis=0)
    np.testing.assert_allclose(condition[:, 1:], np.repeat(expected[ROWS][..., None], 16, axis=2), rtol=1e-5, atol=1e-6)


def test_missing_outputs_are_zero_and_masked() -> None:
    mask = np.random.default_rng(3).random((8, 1, 16)) < 0.6
    u = np.where(mask, normal(8, 1, 16, seed=1), np.nan)
    pairs = Pairs.of(normal(8, 1, 16), u, mask=mask)
    _, outputs, observed = built(pairs).rows(pairs)(ROWS)
    assert observed is not None
    np.testing.assert_array_equal(observed.numpy() > 0, mask[ROWS])
    np.testing.assert_array_equal(outputs.numpy()[~mask[ROWS]], 0)
    np.testing.assert_allclose(
        outputs.numpy()[mask[ROWS]], ((u - u[mask].mean()) / u[mask].std())[ROWS][mask[ROWS]], rtol=1e-5, atol=1e-6
    )


def test_pairs_are_transformed_by_random_elements_in_training_only() -> None:
    """The element is a function of (seed, place in the batch, step)."""
    pairs = fields()
    elements = elements_of(("reflection",), Spaces.of(pairs), pairs)
    net = built(pairs, normalise=("none", "none"), elements=elements)
    x, y = augment(pairs.a[ROWS], pairs.u[ROWS], elements, 5, np.arange(2, 5), 7)
    a, u, _ = net.rows(pairs, seed=5)(ROWS, 2, 7)
    np.testing.assert_array_equal(a.numpy(), x.astype("f4"))
    np.testing.assert_array_equal(u.numpy(), y.astype("f4"))
    assert not np.array_equal(u.numpy(), pairs.u[ROWS].astype("f4"))
    np.testing.assert_array_equal(net.rows(pairs)(ROWS, 2, 7)[1].numpy(), pairs.u[ROWS].astype("f4"))


# Training


def test_weights_are_a_function_of_the_seed() -> None:
    pairs = fields()
    assert same(built(pairs), built(pairs))
    assert not same(built(pairs), built(pairs, terms=Terms(seed=1)))
    assert same(trained(pairs), trained(pairs))
    assert not same(trained(pairs), built(pairs))


def test_the_precision_is_that_of_the_terms() -> None:
    pairs = fields()
    net = built(pairs, terms=Terms(precision="64-true"))
    assert next(net.module.parameters()).dtype == torch.float64
    assert net.rows(pairs)(ROWS)[0].dtype == torch.float64


def test_training_is_counted_and_logged() -> None:
    net = trained(fields())
    assert net.updates == 2
    assert [row["step"] for row in net.history] == [2]
    assert net.parameters == sum(p.numel() for p in net.module.parameters())


def test_only_a_run_with_the_same_plan_is_resumed(tmp_path) -> None:
    """A finished run is returned; other data, settings, seeds and objectives are refused by name."""
    pairs, terms = fields(), Terms(run=tmp_path, progress=False)
    first = trained(pairs, terms=terms, weight="ddsm")
    assert same(trained(pairs, terms=terms, weight="ddsm"), first)
    others = [
        ((fields(7), FNO, terms), {"weight": "ddsm"}, "data"),
        ((pairs, {**FNO, "width": 6}, terms), {"weight": "ddsm"}, r"network\.width"),
        ((pairs, FNO, Terms(seed=1, run=tmp_path, progress=False)), {"weight": "ddsm"}, "seed"),
        ((pairs, FNO, terms), {"weight": "target"}, "weight"),
    ]
    for arguments, settings, name in others:
        with pytest.raises(UserError, match=rf"other settings \(.*{name}"):
            trained(*arguments, **settings)


# Saving


def test_the_state_is_all_of_a_network() -> None:
    pairs = pairs_of(normal(8, 1, 12), normal(8, 2, 16, seed=1), normal(8, 1, seed=2))
    net = trained(pairs)
    again = NetworkOnPairs.from_state(net.state())
    assert same(again, net)
    assert (again.updates, again.settings, again.spaces.state().settings) == (2, net.settings, net.spaces.state().settings)
    for ours, theirs in zip(net.rows(pairs)(ROWS)[:2], again.rows(pairs)(ROWS)[:2], strict=True):
        assert torch.equal(ours, theirs)
    assert not again.module.training


def test_a_module_of_the_user_is_saved_by_its_weights() -> None:
    pairs = fields()
    net = trained(pairs, nn.Conv1d(1, 1, 3, padding=1))
    state = net.state()
    assert state.settings["network"] == net.settings == OWN
    with pytest.raises(UserError, match=r"a network of your own; pass it: pdno\.load"):
        NetworkOnPairs.from_state(state)
    with pytest.raises(UserError, match="the weights do not fit this network"):
        NetworkOnPairs.from_state(state, network=nn.Conv1d(1, 1, 5))
    assert same(NetworkOnPairs.from_state(state, network=nn.Conv1d(1, 1, 3, padding=1)), net)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 5}, "the weights do not fit the network that the file describes"),
        ({"kind": "os.system"}, "describes a network that does not exist"),
        ({"surprise": 1}, "describes a network that does not exist"),
    ],
)
def test_settings_that_do_not_describe_the_network_are_refused(change, message) -> None:
    state = trained(fields()).state()
    forged = State({**state.settings, "network": {**state.settings["network"], **change}}, {}, state.parts)
    with pytest.raises(UserError, match=message):
        NetworkOnPairs.from_state(forged)


def test_a_device_that_does_not_exist_is_refused() -> None:
    net = built(fields())
    net.to("cpu")
    with pytest.raises(UserError, match="this machine cannot compute on 'moon'"):
        net.to("moon")


# Arguments


def test_normalisations_of_a_and_u() -> None:
    assert normalise_of("none") == ("none", "none")
    assert normalise_of(["scalar", "pointwise"]) == ("scalar", "pointwise")
    with pytest.raises(UserError, match="expected one setting, or one for a and one for u"):
        normalise_of(["scalar"])


def test_symmetries_are_checked() -> None:
    pairs = fields()
    spaces = Spaces.of(pairs)
    assert elements_of((), spaces) == ()
    assert len(elements_of(("reflection",), spaces, pairs)) == 2
    masked = Pairs.of(pairs.a, pairs.u, mask=np.ones(pairs.u.shape, dtype=bool))
    with pytest.raises(UserError, match="symmetries cannot be combined with a mask"):
        elements_of(("reflection",), spaces, masked)
