"""Units and names of arrays in a file reach the model, its predictions and figures."""

from functools import partial

import numpy as np
import pytest
import xarray as xr

import pdno
from pdno.data.formats.entry import LONGEST_LABEL, labels_of
from tests.run.helpers import output

LABELS = {"a": "force [N]", "u": "u [mm]", "x": "position [km]"}


def dataset() -> xr.Dataset:
    rng = np.random.default_rng(0)
    a = xr.DataArray(rng.random((30, 16)), dims=("sample", "position"), attrs={"units": "N", "long_name": "force"})
    u = xr.DataArray(rng.random((30, 16)), dims=("sample", "position"), attrs={"units": "mm"})
    x = xr.DataArray(np.linspace(0, 1, 16), dims="position", attrs={"units": "km"})
    return xr.Dataset({"a": a, "u": u}).assign_coords(position=x)


@pytest.mark.parametrize("name", ["d.nc", "three.nc", "d.h5", "d.zarr"])
def test_labels_are_read_from_files_and_kept_by_stores(name, tmp_path) -> None:
    path, write = tmp_path / name, dataset().to_netcdf
    options = {"three.nc": {"format": "NETCDF3_64BIT", "engine": "scipy"}, "d.zarr": {}}.get(name, {"engine": "h5netcdf"})
    write = partial(dataset().to_zarr, consolidated=False) if name == "d.zarr" else write
    write(path, **options)
    data = pdno.open(path, a="a", u="u", dims="sample,position")
    data.save(tmp_path / "kept.zarr")
    for each in (data, pdno.open(tmp_path / "kept.zarr")):
        spaces = pdno.data.spaces.Spaces.of(each.train)
        assert spaces.plot_labels() == {**LABELS, "x": "position [km]"}


def test_labels_of_arrays_in_python_and_of_a_saved_model(tmp_path) -> None:
    d = dataset()
    model = pdno.PDNO(mean="linear", law="gaussian").fit(d["a"], d["u"], seed=0)
    model.save(tmp_path / "m.safetensors")
    pred = pdno.load(tmp_path / "m.safetensors").predict(d["a"][:2], members=5, progress=False)
    assert pred.to_xarray()["std"].attrs == {"long_name": "standard deviation of the members", "units": "mm"}
    assert pred.mean["position"].attrs["units"] == "km"
    axes = pred.plot().axes
    assert [each.get_title() for each in axes[:2]] == ["input force [N]", "output u [mm]"]
    assert {each.get_xlabel() for each in axes} == {"position [km]"}


def test_labels_in_results_and_predictions_of_a_run(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    dataset().to_netcdf("d.nc", engine="h5netcdf")
    output(capsys, "train d.nc --a a --u u --preset linear --out run")
    output(capsys, "predict run --out p.nc")
    with xr.open_dataset("p.nc") as found:
        assert found["mean"].attrs["units"] == "mm"
        assert found["position"].attrs["units"] == "km"
    drawn = []
    monkeypatch.setattr("pdno.run.report._png", lambda figure: drawn.append(figure) or "")
    output(capsys, "report run")
    assert {axes.get_xlabel() for axes in drawn[0].axes} == {"position [km]"}
    assert drawn[0].axes[0].get_title() == "input force [N]"


def test_labels_are_short_texts() -> None:
    long = {"units": "x" * 500, "long_name": b"caf\xe9\n two", "scale": 2}
    assert labels_of(long) == {"units": "x" * LONGEST_LABEL, "long_name": "caf\ufffd two"}
    assert labels_of({"units": "", "long_name": 3}) == {}
