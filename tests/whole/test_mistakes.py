"""Mistakes of users: error messages about data, settings and requests that cannot work."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pdno import PDNO, Pairs, UserError
from tests.helpers import normal, small

A, U = normal(6, 16), normal(6, 16, seed=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"a": A[:5]}, "numbers of samples differ: 5 of a, 6 of u"),
        ({"a": A[:1], "u": U[:1]}, "1 pairs are too few"),
        ({"a": A[:0], "u": U[:0]}, "0 pairs are too few"),
        ({"a": A + 1j}, "a has type complex128; expected real numbers"),
        ({"u": torch.from_numpy(U) + 1j}, "u has type complex128; expected real numbers"),
        ({"u": U.astype(str)}, "u has type <U.*; expected real numbers"),
        ({"a": A.astype(object)}, "a has type object; expected real numbers"),
        ({"a": A[:, :, None, None]}, "is ambiguous"),
        ({"a": A[0]}, "is ambiguous"),
        ({"scalars": A[:, :2], "validation": (A, U)}, r"validation pairs have .* 0 scalars, expected .* 2 scalars"),
        ({"validation": (A[:, :8], U[:, :8])}, r"validation pairs have a \(1, 8\).*expected a \(1, 16\)"),
        ({"scalars": A[:5]}, "numbers of samples differ: 6 of u, 5 of scalars"),
        ({"scalars": np.full(6, np.nan)}, "scalars has NaN or infinite values, first in sample 0"),
        ({"scalars": np.full(6, "x")}, "scalars has type <U1"),
        ({"mask": "zero"}, "mask = 'zero': expected an array, or 'nan'"),
        ({"u": U * np.nan, "mask": "nan"}, "all held-out outputs are missing"),
        ({"validation": 1.0}, "validation = 1.0: expected a fraction"),
        ({"validation": -0.1}, "validation = -0.1: expected a fraction"),
        ({"validation": 0.95}, "validation = 0.95: expected a fraction that leaves some of 6 pairs"),
        ({"dims": "x,y"}, "one of them 'sample'"),
        ({"dims": "sample,x,y"}, "3 dimensions were named"),
        ({"device": "tpu"}, "device 'tpu' is unknown"),
        ({"precision": "32"}, "precision '32' is unknown; expected one of 32-true"),
    ],
)
def test_pairs_that_cannot_be_trained_on(arguments, words) -> None:
    with pytest.raises(UserError, match=words):
        small().fit(**{"a": A, "u": U, **arguments})


@pytest.mark.parametrize("row", range(6))  # training or held-out pairs
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_found_in_every_row(row, value) -> None:
    bad = np.where(np.arange(6)[:, None] == row, value, 1.0)
    with pytest.raises(UserError, match=f"a has NaN or infinite values, first in sample {row}; correct or remove them"):
        small().fit(A * bad, U)
    with pytest.raises(UserError, match=f'u has NaN or infinite values, first in sample {row}; .* mask="nan"'):
        small().fit(A, U * bad)
    with pytest.raises(UserError, match="u has NaN or infinite values"):
        small().fit(A, U, validation=Pairs.of(A, U * bad))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"network": "unett"}, r"network 'unett' is unknown; did you mean 'unet'\? Expected one of auto, unet, fno"),
        ({"network": {"kind": "fnoo"}}, r"network 'fnoo' is unknown; did you mean 'fno'\?"),
        ({"network": {"kind": "unet", "bas": 8}}, "the network 'unet' does not take these settings"),
        ({"network": {"kind": "unet", "base": 12}}, "multiple of 8"),
        ({"network": {"kind": "unet", "base": 8, "multipliers": [1] * 6}}, "a grid of 16 is too small for a UNet of 6 levels"),
        ({"network": {"kind": "fno", "modes": 10, "width": 4}}, "a grid of 16 is too small for an FNO of 10 modes"),
        ({"network": nn.Identity()}, "the network has no parameters"),
        ({"network": 3}, "network = 3: expected a name"),
        ({"variance": "analitic"}, r"variance 'analitic' is unknown; did you mean 'analytic'\?"),
        ({"sampler": "anestral"}, r"sampler 'anestral' is unknown; did you mean 'ancestral'\?"),
        ({"normalise": "scaler"}, r"normalise 'scaler' is unknown; did you mean 'scalar'\?"),
        ({"steps": 11}, "steps = 11: expected a number from 1 to 10"),
        ({"steps": 8, "t_start": 3}, "steps = 8: expected a number from 1 to 7"),
        ({"steps": 2.5}, "steps = 2.5: expected a whole number"),
        ({"steps": "many"}, "steps = 'many': expected a whole number"),
        ({"t_start": 10}, "t_start = 10: expected a step from 0 to 9"),
        ({"t_start": 1.5}, "t_start = 1.5: expected a whole number"),
        ({"variance": "mixed", "mix": 2.0}, "mix = 2.0: expected a weight from 0"),
    ],
)
def test_settings_that_cannot_work(settings, words) -> None:
    with pytest.raises(UserError, match=words):
        small(**settings).fit(A, U)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"members": 0}, "members = 0: expected a whole number of at least 1"),
        ({"members": -1}, "members = -1: expected"),
        ({"members": 1.5}, "members = 1.5: expected"),
        ({"members": True}, "members = True: expected"),
        ({"members": "10"}, "members = '10': expected"),
        ({"chunk": 0}, "chunk = 0: expected a whole number of at least 1"),
        ({"a": normal(2, 2, 16)}, r"a has shape \(2, 2, 16\); this model was trained on inputs of shape \(sample, 1, 16\)"),
        ({"a": normal(2, 3)}, "a: a grid of 3; another grid than that of training needs 4 points per axis"),
        ({"a": normal(2, 16) * np.nan}, "inputs have NaN or infinite values"),
        ({"a": normal(2, 16) * 1j}, "a has type complex128"),
        ({"a": None}, "there are no inputs"),
        ({"scalars": normal(2, 1)}, "this model needs none"),
        ({"steps": 11}, "steps = 11: expected a number from 1 to 10"),
        ({"steps": 0}, "steps = 0: expected a number from 1 to 10"),
        ({"steps": True}, "steps = True: expected a whole number"),
        ({"stpes": 3}, r"sampling has no setting 'stpes'; did you mean 'steps'\?"),
        ({"sampler": "dmp"}, r"sampler 'dmp' is unknown; did you mean 'dpm'\?"),
        ({"variance": "gausian"}, r"variance 'gausian' is unknown; did you mean 'gaussian'\?"),
    ],
)
def test_predictions_that_cannot_be_made(arguments, words, model) -> None:
    for request in (model.predict, model.sample):
        with pytest.raises(UserError, match=words):
            request(**{"a": normal(2, 16), "members": 2, **arguments})


def test_quantiles_that_were_not_requested(model) -> None:
    pred = model.predict(A[:1], members=2, quantiles=(0.25, 0.25, 0.75), chunk=2)
    assert list(pred.quantiles) == [0.25, 0.75]
    with pytest.raises(UserError, match=r"quantile 0\.5 was not computed \(only 0\.25, 0\.75\); request it"):
        pred.quantile(0.5)
    with pytest.raises(UserError, match=r"the quantile of level 1\.5 does not exist"):
        model.predict(A[:1], quantiles=(1.5,))
    for wrong in (0.5, "0.5"):
        with pytest.raises(UserError, match=r"quantiles = .*0\.5.*: expected levels"):
            model.predict(A[:1], quantiles=wrong)


@pytest.mark.parametrize(
    "request_",
    [
        lambda m, path: m.predict(A),
        lambda m, path: m.sample(A),
        lambda m, path: m.nvlb(A, U),
        lambda m, path: m.save(path),
        lambda m, path: m.mean(A),
        lambda m, path: m.given(A),
        lambda m, path: m.evaluations(),
        lambda m, path: m.fit_summary,
        lambda m, path: m.leaderboard,
        lambda m, path: m.to("cpu"),
        lambda m, path: m.annotate(source="mine"),
    ],
)
def test_a_model_must_be_fitted_first(request_: Callable[[PDNO, Path], object], tmp_path) -> None:
    with pytest.raises(UserError, match="has not been fitted; call fit first"):
        request_(PDNO(), tmp_path / "m.safetensors")


def test_outputs_of_other_shapes_have_no_bound(model) -> None:
    with pytest.raises(UserError, match="numbers of samples differ: 6 of a, 5 of u"):
        model.nvlb(A, U[:5])
    with pytest.raises(UserError, match=r"u has shape \(6, 15\); this model was trained on outputs of shape"):
        model.nvlb(A, U[:, :15])
