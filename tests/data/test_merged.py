"""Data sets on several grids as one, on the finest of them."""

import numpy as np
import pytest

import pdno
from pdno import Pairs, UserError
from pdno.data.dataset import Dataset
from pdno.data.merged import merged


def waves(points: int, count: int, seed: int = 0) -> np.ndarray:
    """Return functions of three wavelengths on a periodic grid, (count, points)."""
    angle = 2 * np.pi * np.outer([1, 2, 3], np.arange(points) / points)
    return np.random.default_rng(seed).normal(size=(count, 3)) @ np.cos(angle)


def part(points: int, count: int, test: int = 0, **others: object) -> Dataset:
    """Return pairs (a, 2 a) of these functions."""
    a, new = waves(points, count, points)[:, None], waves(points, test, 1)[:, None]
    return Dataset(Pairs.of(a, 2 * a, **others), Pairs.of(new, 2 * new), {"name": f"grid{points}"})


def test_pairs_are_interpolated_to_the_finest_grid() -> None:
    data = merged([part(16, 5, test=2), part(32, 4)], "periodic")
    exact = np.concatenate([waves(32, 5, 16), waves(32, 4, 32)])
    np.testing.assert_allclose(data.train.a[:, 0], exact, atol=1e-12)
    np.testing.assert_allclose(data.train.u[:, 0], 2 * exact, atol=1e-12)
    np.testing.assert_allclose(data.test.u[:, 0], 2 * waves(32, 2, 1), atol=1e-12)  # no test pairs are on the finest grid
    assert data.provenance["name"] == "grid16+grid32"
    assert data.grid.axes[0].kind == "periodic"


def test_parameters_and_groups_are_kept() -> None:
    one, two = (part(n, 4, scalars=np.full((4, 1), n), group=[0, 0, 1, 1]) for n in (16, 32))
    data = merged([one, two], "periodic")
    assert data.train.scalars[:, 0].tolist() == [16] * 4 + [32] * 4
    assert data.train.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def wrong_parts() -> dict[str, tuple[list[Dataset], str]]:
    u = np.where(np.arange(32) == 3, np.nan, waves(32, 4))[:, None]
    nodes = Pairs.of(waves(16, 4)[:, None], waves(16, 4)[:, None], dims=(("sample", "channel", "node"),) * 2)
    return {
        "none": ([], "expected one data set or more"),
        "nodes": ([Dataset(nodes, nodes[:0], {})], "fields on the nodes of a mesh cannot be merged"),
        "missing": ([part(16, 4), Dataset(Pairs.of(u, u, mask="nan"), Pairs.of(u[:0], u[:0]), {})], "missing values"),
        "parameters": ([part(16, 4), part(32, 4, scalars=np.ones((4, 1)))], "different parameters"),
        "axes": ([part(16, 4), Dataset(Pairs.of(*[np.ones((4, 1, 8, 8))] * 2), part(16, 0).test, {})], "number of axes"),
    }


@pytest.mark.parametrize("case", wrong_parts())
def test_what_cannot_be_merged_is_refused(case) -> None:
    parts, message = wrong_parts()[case]
    with pytest.raises(UserError, match=message):
        merged(parts)


def test_files_on_several_grids_become_a_store(say, tmp_path) -> None:
    for points in (16, 32):
        np.savez(tmp_path / f"p{points}.npz", a=waves(points, 20, points), u=2 * waves(points, 20, points))
    names = "--a a --u u --dims sample,x"
    assert "40 train pairs, a (1, 32)" in say(f"convert p16.npz p32.npz {names} --grid periodic --out mixed.zarr")
    say("train mixed.zarr --out run --set model.mean=linear --set model.law=gaussian")
    model = pdno.load(tmp_path / "run")
    assert model.spaces.kind == ("periodic",)
    np.testing.assert_allclose(model.mean(waves(48, 3)[:, None])[:, 0], 2 * waves(48, 3), atol=1e-4)


def test_an_unknown_kind_of_axes_is_refused(refused, tmp_path) -> None:
    assert "--grid perodic" in refused("convert a.npz b.npz --grid perodic --out c.zarr")
