"""Each problem of data is found, with its place; clean data have none."""

import numpy as np

import pdno
from pdno.data.dataset import Dataset
from pdno.data.findings import check, outliers
from pdno.data.pairs import Pairs


def data_of(a: np.ndarray, u: np.ndarray, **more: object) -> Dataset:
    dims = tuple(("sample", *"xy"[: v.ndim - 1]) for v in (a, u))
    pairs = Pairs.of(a, u, dims=dims, **more)
    return Dataset(pairs, pairs[:0], {"schema": 1, "name": "d"})


def findings(data: Dataset) -> str:
    return "\n".join(map(str, check(data)))


def test_clean_data_have_no_findings() -> None:
    rng = np.random.default_rng(6)
    assert not check(data_of(rng.standard_normal((60, 12)), rng.standard_normal((60, 12))))
    for eq in (pdno.equation.Elliptic1D(), pdno.equation.Darcy(points=16), pdno.equation.Burgers(points=64)):
        assert not check(pdno.generate(eq, train=60, test=20)), eq.name
    assert not check(pdno.generate(pdno.equation.Advection(points=64), train=200, noise="gaussian:0.5"))


def test_each_problem_is_found_with_its_place() -> None:
    rng = np.random.default_rng(7)
    a, u = rng.standard_normal((2, 60, 12))
    broken = u.copy()
    broken[7, 3] = np.nan
    broken[9, 1:3] = np.inf
    assert "error: train u: NaN or infinite values in 2 samples (first 7), 3 in total, first at [7, 0, 3]" in findings(
        data_of(a, broken)
    )
    assert "note: train u: NaN or infinite values" in findings(data_of(a, broken, mask="nan"))
    flat = u.copy()
    flat[[4, 5]] = 2.0
    assert "warning: train u: 2 samples (first 4) have the same value everywhere" in findings(data_of(a, flat))
    odd = u.copy()
    odd[11, 2] = 80.0
    assert (
        "values in sample 11 are far outside the range of the others at the same point, 1 in total, first u[11, 0, 2] = 80"
        in findings(data_of(a, odd))
    )
    twice = a.copy()
    twice[10] = twice[3]
    assert "1 pairs repeat the input of another with a different output" in findings(data_of(twice, u))
    copied = u.copy()
    copied[10] = copied[3]
    assert "1 pairs are exact copies" in findings(data_of(twice, copied))
    leak = data_of(a, u)
    assert "3 of 3 inputs are also in train" in findings(Dataset(leak.train, leak.train[:3], leak.provenance))
    down = data_of(a, u, coordinates={"x": np.linspace(1, 0, 12)})
    assert "coordinate x: does not increase" in findings(down)
    swapped = Pairs.of(rng.random((5, 4, 6)), rng.random((5, 6, 4)), dims=(("sample", "x", "y"), ("sample", "p", "q")))
    assert "a on 4 × 6 and u on 6 × 4 points: are the axes" in findings(Dataset(swapped, swapped[:0], {}))
    uneven = data_of(a, u, coordinates={"x": np.linspace(0, 1, 12) ** 2})
    assert "coordinate x: is not uniform" in findings(uneven)


def test_heavy_tails_and_zeros_are_not_outliers() -> None:
    rng = np.random.default_rng(8)
    assert not outliers(np.exp(rng.standard_normal((2000, 20)))).any()
    assert not outliers((rng.random((300, 20)) < 0.3).astype(float)).any()
    boundary = rng.random((300, 20))
    boundary[:, 0] = 0
    assert not outliers(boundary).any()
    boundary[17, 0] = 0.4
    assert np.argwhere(outliers(boundary)).tolist() == [[17, 0]]


def test_samples_in_the_last_axis_are_noticed() -> None:
    """Fields are smooth along their grid, and independent from sample to sample; a series of them is smooth along both."""
    rng, x = np.random.default_rng(8), np.linspace(0, np.pi, 40)
    fields = rng.standard_normal((60, 3)) @ np.sin(np.outer([1, 2, 3], x))
    noisy = fields + 0.3 * rng.standard_normal((60, 40))
    words = "if samples are the last axis, give --dims x,sample"
    assert words in findings(data_of(fields.T, noisy.T))
    assert words not in findings(data_of(fields, noisy))
    smooth = np.sin(np.outer(np.linspace(0, 3, 60), np.ones(40)) + x)
    assert words not in findings(data_of(smooth, smooth.T[::-1].T))
