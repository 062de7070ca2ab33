"""What a file is. The content decides, not the name; a name that says something else is an error."""

import re
import zipfile
from pathlib import Path

from ...errors import UserError, nearest

__all__ = ["SUFFIXES", "kind_of", "suffix_of"]

SUFFIXES = {
    ".npz": ("npz",),
    ".npy": ("npy",),
    ".mat": ("mat v5", "mat v7.3"),
    ".h5": ("hdf5",),
    ".hdf5": ("hdf5",),
    ".nc": ("hdf5", "netcdf-3"),
    ".pt": ("torch",),
    ".pth": ("torch",),
    ".zarr": ("zarr",),
}
"""What a file of each name may hold."""

LOOKS = {
    "npz": "a NumPy archive (.npz)",
    "npy": "a NumPy array (.npy)",
    "mat v5": "a MATLAB file (.mat)",
    "mat v7.3": "a MATLAB v7.3 file (.mat)",
    "hdf5": "an HDF5 file (.h5)",
    "netcdf-3": "a netCDF file (.nc)",
    "torch": "a torch file (.pt)",
    "pickle": "a Python pickle, which could run code and is never opened",
    "text": "text",
    "other": "none of the kinds that are read",
}


def kind_of(path: Path) -> str:
    """What the file is, if that fits its name."""
    suffix = suffix_of(path)
    if not path.exists():
        raise UserError(f"{path} does not exist; check the name and the folder")
    if path.is_dir() != (suffix == ".zarr"):
        got, expected = ("a folder", "a file") if path.is_dir() else ("a file", "a folder")
        raise UserError(f"{path} is {got}, and {suffix} stands for {expected}; give the path of {expected}")
    if suffix == ".zarr":
        if not any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray")):
            raise UserError(
                f"{path} is a folder without Zarr metadata (zarr.json, .zgroup or .zarray); give the folder with it"
            )
        return "zarr"
    if not path.is_file() or path.stat().st_size == 0:
        raise UserError(f"{path} is {'empty' if path.is_file() else 'not a regular file'}; expected a {suffix} file")
    kind = _sniff(path)
    if kind not in SUFFIXES[suffix]:
        expected = " or ".join(LOOKS[kind].rsplit(" (", 1)[0] for kind in SUFFIXES[suffix])
        raise UserError(f"{path} looks like {LOOKS[kind]}; {suffix} stands for {expected}, so rename or convert it")
    return kind


def suffix_of(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{path} has the suffix {suffix or 'of no format'!r}; {nearest(suffix, SUFFIXES)}")
    return suffix


def _sniff(path: Path) -> str:
    """What a file is, by its first bytes."""
    with path.open("rb") as stream:
        head = stream.read(4096)
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head.startswith(b"PK"):
        with zipfile.ZipFile(path) as archive:
            return "torch" if any(name.split("/")[-1] == "data.pkl" for name in archive.namelist()) else "npz"
    for start in (0, 512, 1024, 2048):  # HDF5 allows a block of the user's in front
        if head.startswith(b"\x89HDF\r\n\x1a\n", start):
            return "mat v7.3" if head.startswith(b"MATLAB 7.3") else "hdf5"
    if head.startswith((b"CDF\x01", b"CDF\x02")):
        return "netcdf-3"
    if head[124:128] in (b"\x00\x01IM", b"\x01\x00MI"):
        return "mat v5"
    if head.startswith(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."):  # torch before 1.6
        return "torch"
    if re.match(rb"\x80[\x02-\x05]", head):
        return "pickle"
    return "text" if re.fullmatch(rb"[\t\n\r -~\x80-\xff]*", head) else "other"
