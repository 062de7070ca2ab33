"""Generated pairs, every way of writing them, own equations and noise, and invalid arguments."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

import pdno
from pdno import UserError
from pdno.cli import main
from pdno.data.generate import FIRST
from pdno.equation import Advection, Darcy, Elliptic1D
from pdno.noise import Gaussian, GaussianMixture, Heteroscedastic
from tests.helpers import digest

SMALL = Darcy(points=8)


def test_pairs_are_those_of_equation_and_noise() -> None:
    noise = Gaussian(0.01)
    data = pdno.generate(SMALL, train=6, test=3, noise=noise, seed=5)
    a = SMALL.sample_input(6, seed=5)
    np.testing.assert_array_equal(data.train.a, a)
    u = SMALL.solve(a)
    np.testing.assert_array_equal(data.train.u, u + noise.sample(u, seed=5))
    assert data.train.u_eta is None
    np.testing.assert_array_equal(data.test.u, SMALL.solve(data.test.a))
    assert data.test.u_eta is not None
    assert 0.008 < (data.test.u_eta - data.test.u).std() < 0.012
    shared = set(map(bytes, data.train.a)) & set(map(bytes, data.test.a))
    assert not shared


def test_noise_of_train_and_test_is_independent() -> None:
    data = pdno.generate(Elliptic1D(points=64), train=200, test=200, noise=Gaussian(1.0))
    assert data.test.u_eta is not None
    train = data.train.u - Elliptic1D(points=64).solve(data.train.a)
    test = data.test.u_eta - data.test.u
    assert abs((train * test).mean()) < 5 / np.sqrt(test.size)


def test_test_pairs_do_not_depend_on_training_pairs_and_a_larger_set_begins_with_the_smaller() -> None:
    small, large = (pdno.generate(SMALL, train=n, test=2, noise="mixture:2") for n in (3, 9))
    np.testing.assert_array_equal(small.test.u_eta, large.test.u_eta)
    np.testing.assert_array_equal(small.train.u, large.train.u[:3])


def test_store_round_trip_and_provenance(tmp_path) -> None:
    data = pdno.generate(SMALL, train=6, test=3, noise=GaussianMixture.case(1), seed=2)
    data.save(tmp_path / "darcy.zarr")
    back = pdno.open(tmp_path / "darcy.zarr")
    for split in ("train", "test"):
        for name in ("a", "u", "u_eta"):
            np.testing.assert_array_equal(getattr(getattr(back, split), name), getattr(getattr(data, split), name))
    assert back.grid == SMALL.grid
    assert back.provenance == data.provenance
    assert back.provenance["equation"] == {"name": "darcy", "settings": SMALL.settings()}
    assert (back.provenance["noise"], back.provenance["seed"]) == ("mixture:1", 2)
    assert back.provenance["software"]["numpy"] == np.__version__


def test_xarray_opens_the_store_with_names_and_coordinates(tmp_path) -> None:
    data = pdno.generate(SMALL, train=5, test=2, noise="gaussian:0.1", out=tmp_path / "d.zarr")
    with xr.open_zarr(tmp_path / "d.zarr", group="test", consolidated=False) as test:
        assert test["u_eta"].dims == ("sample", "u_channel", "x", "y")
        assert test["a"].dims == ("sample", "a_channel", "x", "y")
        np.testing.assert_allclose(test["x"], (np.arange(8) + 0.5) / 8)
        np.testing.assert_array_equal(test["u"].values, data.test.u)
    zarr_json = json.loads((tmp_path / "d.zarr" / "train" / "u" / "zarr.json").read_text())
    assert zarr_json["zarr_format"] == 3
    assert zarr_json["fill_value"] == "NaN"
    assert zarr_json["codecs"][-1]["configuration"]["checksum"] is True


def test_the_recorded_command_makes_the_same_store(tmp_path) -> None:
    eq = pdno.equation.Burgers(points=32, viscosity=0.1 / 3, speed=1.0)
    data = pdno.generate(eq, train=3, test=2, noise="field:0.1", seed=7, out=tmp_path / "one.zarr")
    command = data.provenance["command"]
    assert "--set viscosity=0.03333333333333333" in command
    assert "rtol" not in command
    with pytest.raises(SystemExit) as stop:
        main([*command.split()[1:], "--out", str(tmp_path / "two.zarr")])
    assert stop.value.code == 0
    assert digest(tmp_path / "one.zarr") == digest(tmp_path / "two.zarr")


@pytest.mark.usefixtures("small_blocks")
def test_every_way_of_writing_gives_the_same_bytes(tmp_path) -> None:
    make = {"train": 18, "test": 5, "noise": "gaussian:0.1", "seed": 3}
    pdno.generate(SMALL, **make, out=tmp_path / "one.zarr")
    pdno.generate(SMALL, **make).save(tmp_path / "saved.zarr")
    pdno.open(tmp_path / "one.zarr").save(tmp_path / "copied.zarr")
    assert digest(tmp_path / "one.zarr") == digest(tmp_path / "saved.zarr") == digest(tmp_path / "copied.zarr")
    pdno.generate(SMALL, **{**make, "seed": 4}, out=tmp_path / "other.zarr")
    assert digest(tmp_path / "one.zarr") != digest(tmp_path / "other.zarr")


def test_a_part_of_a_data_set_is_saved_as_it_is(tmp_path) -> None:
    data = pdno.generate(SMALL, train=10, test=2)
    dataclasses.replace(data, train=data.train[:6]).save(tmp_path / "part.zarr")
    np.testing.assert_array_equal(pdno.open(tmp_path / "part.zarr").train.u, data.train.u[:6])


def test_numpy_numbers_are_accepted(tmp_path) -> None:
    plain = pdno.generate(Darcy(points=8, a_low=4, a_high=12, tau=3, r=2), train=3, out=tmp_path / "a.zarr")
    pdno.generate(Darcy(points=np.int64(8)), train=np.int64(3), seed=np.int32(0), out=tmp_path / "b.zarr")  # type: ignore[arg-type]
    assert digest(tmp_path / "a.zarr") == digest(tmp_path / "b.zarr")
    assert plain.provenance["command"].startswith("pdno generate darcy --points 8 --train 3")


def test_on_a_dask_cluster(tmp_path, monkeypatch) -> None:
    """A scheduler on this machine gives the same bytes."""
    from distributed import LocalCluster

    monkeypatch.setattr("pdno.data.store.CHUNK_BYTES", 4 * 8 * 32)
    make = {"train": 30, "test": 6, "noise": "gaussian:0.1"}
    pdno.generate(Advection(points=32), **make, out=tmp_path / "here.zarr")
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        pdno.generate(Advection(points=32), **make, out=tmp_path / "there.zarr", scheduler=cluster.scheduler_address)
    assert digest(tmp_path / "here.zarr") == digest(tmp_path / "there.zarr")


def test_own_equation_and_own_noise(tmp_path) -> None:
    """A user's equation with two output channels, and noise that depends on u."""

    class Powers(pdno.equation.Equation):
        name = "powers"
        grid = pdno.Grid.uniform(16)

        def sample_input(self, count: int, seed: int = 0, first: int = 0) -> np.ndarray:
            return pdno.Field(tau=3, r=2).sample(self.grid, count, seed, first)[:, None]

        def solve(self, a: np.ndarray) -> np.ndarray:
            return np.concatenate([a**2, a**3], axis=1)

        def residual(self, u: np.ndarray, a: np.ndarray) -> np.ndarray:
            return u - self.solve(a)

    data = pdno.generate(Powers(), train=4, test=2, noise=Heteroscedastic(lambda u: 0.1 * abs(u)), out=tmp_path / "p.zarr")
    assert data.train.u.shape == (4, 2, 16)
    assert data.provenance["noise"].startswith("heteroscedastic")
    assert data.provenance["command"] == ""
    np.testing.assert_array_equal(data.test.u[:, 0], data.test.a[:, 0] ** 2)


def test_lambdas_cannot_be_sent_to_other_processes(tmp_path) -> None:
    with pytest.raises(UserError, match="use one worker"):
        pdno.generate(SMALL, train=200, test=200, noise=Heteroscedastic(lambda u: 0.1 * u), workers=2)


@pytest.mark.slow
def test_a_script_without_the_usual_guard_gets_an_explanation(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import pdno\npdno.generate(pdno.equation.Advection(points=16), train=200, test=200, workers=2)\n")
    answer = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert answer.returncode != 0
    assert 'if __name__ == "__main__":' in answer.stderr.strip().splitlines()[-1]


def test_settings_of_an_own_dataclass_are_recorded() -> None:
    """Numbers in their declared type, texts as they are, objects without a JSON type by their repr."""

    @dataclasses.dataclass(frozen=True)
    class Mine(Advection):
        rate: float = 2
        scheme: str = "upwind"
        periodic: bool = False
        window: tuple[int, int] = (1, 2)

    settings = pdno.generate(Mine(points=np.int64(16)), train=1).provenance["equation"]["settings"]
    assert repr(settings["points"]) == "16"
    assert repr(settings["rate"]) == "2.0"
    assert (settings["scheme"], settings["periodic"], settings["window"]) == ("upwind", False, "(1, 2)")


def test_an_existing_path_is_refused_before_anything_is_solved(tmp_path) -> None:
    class Costly(Advection):
        def solve(self, a: np.ndarray) -> np.ndarray:
            raise AssertionError("solved although the path exists")

    (tmp_path / "d.zarr").mkdir()
    with pytest.raises(UserError, match="never overwritten"):
        pdno.generate(Costly(points=16), train=1, out=tmp_path / "d.zarr")


def test_inputs_that_do_not_depend_on_first_are_refused() -> None:
    """An equation that ignores `first` would have its training inputs in the test set."""

    class Careless(Advection):
        def sample_input(self, count: int, seed: int = 0, first: int = 0) -> np.ndarray:
            return np.random.default_rng(seed).standard_normal((count, 1, *self.grid.shape))

    with pytest.raises(UserError, match="does not respect `first`"):
        pdno.generate(Careless(points=16), train=4)


@pytest.mark.parametrize("wrong", [lambda a: a[:1], lambda a: a[:, 0], lambda a: a + 0j, lambda a: a[..., :3], lambda a: None])
def test_outputs_of_a_solver_are_checked(wrong) -> None:
    class Wrong(Advection):
        def solve(self, a: np.ndarray) -> np.ndarray:
            return wrong(np.concatenate([a, a]))

    with pytest.raises(UserError, match="solve of advection returned"):
        pdno.generate(Wrong(points=16), train=4)


def test_the_equation_comes_back_from_a_store(tmp_path) -> None:
    eq = pdno.equation.Burgers(points=32, viscosity=0.01)
    data = pdno.generate(eq, train=2, out=tmp_path / "b.zarr")
    assert pdno.open(tmp_path / "b.zarr").equation == data.equation == eq


def test_a_solver_that_fails_is_named() -> None:
    class Broken(Advection):
        def solve(self, a: np.ndarray) -> np.ndarray:
            return np.full(np.shape(a), np.nan)

    with pytest.raises(UserError, match="advection returned NaN"):
        pdno.generate(Broken(points=16), train=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": 0}, "train = 0"),
        ({"test": -1}, "test = -1"),
        ({"workers": 0}, "workers = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"train": 2.5}, "whole number"),
        ({"train": "3"}, "whole number"),
        ({"seed": None}, "whole number"),
        ({"equation": "darcy"}, "is not an equation"),
        ({"equation": Darcy}, "is not an equation"),
        ({"noise": 0.1}, "not a noise distribution"),
        ({"noise": Gaussian}, "not a noise distribution"),
        ({"out": "d.npz"}, "call it d.zarr"),
        ({"noise": "gaussian:-1"}, "not negative"),
        ({"noise": "field:0.1,nan,2"}, "a field needs"),
        ({"out": "no/such/folder/d.zarr"}, "does not exist; create it"),
    ],
)
def test_mistakes_are_explained(change, message) -> None:
    with pytest.raises(UserError, match=message):
        pdno.generate(**{"equation": SMALL, "train": 2, **change})


def test_splits_cannot_overlap() -> None:
    with pytest.raises(UserError, match="whole number from 1 to"):
        pdno.generate(SMALL, train=FIRST["test"] + 1)
