"""The format of a file, determined by its content; a suffix of another format is an error."""

import re
import zipfile
from pathlib import Path

from ...errors import UserError, nearest

__all__ = ["SUFFIXES", "format_of", "suffix_of"]

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
"""The formats that files with each suffix may have."""

DESCRIPTIONS = {
    "npz": "a NumPy archive (.npz)",
    "npy": "a NumPy array (.npy)",
    "mat v5": "a MATLAB file (.mat)",
    "mat v7.3": "a MATLAB v7.3 file (.mat)",
    "hdf5": "an HDF5 file (.h5)",
    "netcdf-3": "a netCDF file (.nc)",
    "torch": "a torch file (.pt)",
    "pickle": "a Python pickle, which could run code and is never opened",
    "text": "text",
    "other": "a file of no supported format",
}

SNIFFED = 4096  # bytes from the beginning of a file that determine its format


def format_of(path: Path) -> str:
    """Return the format of a file, if it is one of those that its suffix stands for.

    Raises:
        UserError: if there is no such file, or it has another format.
    """
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
    file_format = _sniff(path)
    if file_format not in SUFFIXES[suffix]:
        expected = " or ".join(DESCRIPTIONS[each].rsplit(" (", 1)[0] for each in SUFFIXES[suffix])
        raise UserError(
            f"{path} looks like {DESCRIPTIONS[file_format]}; {suffix} stands for {expected}, so rename or convert it"
        )
    return file_format


def suffix_of(path: Path) -> str:
    """Return the suffix of a path, if it is that of a supported format."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        problem = f"has the unknown suffix {suffix!r}" if suffix else "has no suffix"
        raise UserError(f"{path} {problem}; {nearest(suffix, SUFFIXES)}")
    return suffix


def _sniff(path: Path) -> str:
    """Return the format of a file by its first bytes, a key of DESCRIPTIONS."""
    with path.open("rb") as stream:
        head = stream.read(SNIFFED)
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head.startswith(b"PK"):
        with zipfile.ZipFile(path) as archive:
            return "torch" if any(name.split("/")[-1] == "data.pkl" for name in archive.namelist()) else "npz"
    for start in (0, 512, 1024, 2048):  # HDF5 allows a user block before its signature
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
