"""`pdno predict` into other files than a store: `--out pred.nc` into netCDF, `--out pred.vtu` into meshes, for ParaView.

There is one file for each input, NAME.vtu or NAME_0.vtu, NAME_1.vtu, …; its point data are the fields of the store that
`pdno.run.predict` writes, and the first members.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import xarray as xr

from .._typing import Array
from ..data.formats.meshes import WRITTEN, write_mesh
from ..data.nodes import NODE
from ..data.spaces import Spaces
from ..errors import UserError
from ..model.saving import load
from .inputs import inputs_of
from .predict import predict

__all__ = ["predict_into"]

MEMBERS = 3  # that a mesh shows
INPUTS = ("split", "a", "dims", "scalars", "tell")  # options that name the inputs
OTHERS = ("members", "quantiles", "device", "progress", "points", "only", "part")  # options that are no sampling settings


def predict_into(run: Path, file: Path | None, out: Path, seed: int = 0, **options: Any) -> xr.Dataset:
    """Predict into a store, or into netCDF or meshes by the suffix of `out`; arguments as in `pdno.run.predict.predict`.

    Raises:
        UserError: as there, or if the model is not one of fields on nodes, or a file exists already.
    """
    if out.suffix.lower() == ".nc":
        _free(out, 1)
        with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}") as folder:
            predicted = predict(run, file, Path(folder) / "prediction.zarr", seed=seed, **options).load()
        predicted.to_netcdf(out, engine="h5netcdf")
        return predicted
    if out.suffix.lower() not in WRITTEN:
        return predict(run, file, out, seed=seed, **options)
    model = load(run, device=options.get("device", "cpu"))
    spaces = model.spaces
    if spaces.nodes is None:
        where = "nodes without coordinates" if NODE in spaces.axes else "a grid"
        raise UserError(f"this model was trained on fields on {where}, and {out.name} is a mesh; call it {out.stem}.zarr")
    if options.get("part", (1, 1)) != (1, 1):
        raise UserError(f"--part is for stores and netCDF files; call {out.name} {out.stem}.zarr, or omit --part")
    given = {name: options[name] for name in INPUTS if name in options}
    inputs, scalars = spaces.inputs(*inputs_of(run, spaces, file, **given))
    paths = _free(out, len(inputs))
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}") as folder:
        predicted = predict(run, file, Path(folder) / "prediction.zarr", seed=seed, **options).load()
    sampling = {name: value for name, value in options.items() if name not in (*INPUTS, *OTHERS)}
    fields = {str(name): v.values for name, v in predicted.data_vars.items() if NODE in v.dims and v.dims[0] == "sample"}
    for i, path in enumerate(paths):
        s = None if scalars is None else scalars[i : i + 1]
        shown = model.sample(inputs[i : i + 1], MEMBERS, seed, scalars=s, first=i, **sampling)[:, 0]
        own = {name: values[i] for name, values in fields.items()} | {f"member_{m}": v for m, v in enumerate(shown)}
        write_mesh(path, spaces.nodes, {key: v for name, values in own.items() for key, v in _point_data(name, values, spaces)})
    return predicted


def _free(out: Path, count: int) -> list[Path]:
    """Return the name of the mesh of each input, if none of them exists."""
    if not out.parent.is_dir():
        raise UserError(f"{out.parent}, where {out.name} is to be written, does not exist; create it first")
    paths = [out] if count == 1 else [out.with_name(f"{out.stem}_{i}{out.suffix}") for i in range(count)]
    if taken := [path for path in paths if path.exists()]:
        raise UserError(f"{taken[0]} exists already and is never overwritten; choose another name")
    return paths


def _point_data(name: str, values: Array, spaces: Spaces) -> Iterator[tuple[str, Array]]:
    """Yield the point data of a field ([channel,] *axes): (node,), or (node, channel); with other axes, one for each index."""
    values = np.moveaxis(values if spaces.channel else values[None], spaces.axes.index(NODE) + 1, -1)
    for index in np.ndindex(values.shape[1:-1]):
        part = values[(slice(None), *index)]
        yield "_".join([name, *map(str, index)]), part[0] if len(part) == 1 else part.T
