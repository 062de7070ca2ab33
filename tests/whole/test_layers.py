"""The house: a layer imports only layers above it and files of its own."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "pdno"

LAYERS = {
    "the ground": {"errors", "draw"},
    "the problem": {"basis", "modes", "grid", "field", "noise", "symmetry", "equation"},
    "the diffusion": {"diffusion", "nn"},
    "the work": {"work"},
    "the data": {"data"},
    "the judgement": {"evaluation"},
    "learning": {"learning"},
    "the model": {"mean", "residual", "model"},
    "the front door": {"plot", "run", "cli", "__main__"},
}
RANK = {module: rank for rank, modules in enumerate(LAYERS.values()) for module in modules}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def module_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_modules(path: Path) -> set[str]:
    """Top-level modules of pdno that the file imports, at the top or inside functions."""
    package = ("pdno", *path.relative_to(PACKAGE).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(package[: len(package) + 1 - node.level])
            names = [f"{base}.{node.module}"] if node.module else [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("pdno.")}
    return found & set(RANK)


def test_every_file_has_a_layer() -> None:
    assert {module_of(path) for path in FILES} == set(RANK)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_imports_point_upwards(path: Path) -> None:
    mine = module_of(path)
    below = {other for other in imported_modules(path) if RANK[other] > RANK[mine]}
    assert not below, f"{mine} imports {below} from a lower layer"


def test_the_check_sees_imports(tmp_path, monkeypatch) -> None:
    assert {"errors", "field", "grid"} <= imported_modules(PACKAGE / "equation" / "darcy.py")
    assert {"data", "work", "equation"} <= imported_modules(PACKAGE / "cli.py")
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    (tmp_path / "x.py").write_text("from pdno import cli\nimport pdno.plot\nfrom pdno.field import Field\nfrom . import data")
    assert imported_modules(tmp_path / "x.py") == {"cli", "plot", "field", "data"}


def test_help_loads_nothing_heavy() -> None:
    heavy = ("numpy", "scipy", "xarray", "zarr", "matplotlib", "torch")
    code = f"import sys, pdno.cli; print([module for module in {heavy} if module in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
