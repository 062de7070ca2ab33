"""The tree in docs/design.md has every file of the package, and a file imports only files that stand above it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pdno

PACKAGE = Path(__file__).parents[2] / "pdno"
PAGE = PACKAGE.parent / "docs" / "design.md"
ROOT_FILE = "__init__.py"  # has the public names of all layers
MOST_ENTRIES = 26  # in the folder of the package
MOST_LINES = 400  # of a source file


def tree(text: str) -> list[str]:
    """Return the files in the code block that begins with pdno/, as paths relative to it, in order.

    A package is the path of its `__init__.py`, and stands below the files that it has.
    """
    block = re.search(r"^```\npdno/\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block is not None, "there is no code block that begins with pdno/"
    paths: list[str] = []
    folders: list[str] = []
    for line in block[1].splitlines():
        match = re.fullmatch(r"(  +)([\w.]+)(/?)(  .*)?", line)
        if match is None or not (match[3] or "." in match[2]):  # empty, or the name of a layer
            assert not line or re.fullmatch(r"  [A-Z ]+?(  .*)?", line), f"this line is not understood: {line!r}"
            continue
        depth = len(match[1]) // 2 - 1
        assert depth <= len(folders), f"this line is indented too far: {line!r}"
        paths += _closed(folders, depth)
        if match[3]:
            folders.append(match[2])
        else:
            paths.append("/".join([*folders, match[2]]))
    return [*paths, *_closed(folders, 0)]


def _closed(folders: list[str], depth: int) -> Iterator[str]:
    """Leave folders down to a depth; yield the `__init__.py` of each."""
    while len(folders) > depth:
        yield "/".join([*folders, "__init__.py"])
        folders.pop()


TREE = tree(PAGE.read_text())
RANK = {path: rank for rank, path in enumerate(TREE)}
SOURCES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def imported_files(path: str, package: Path = PACKAGE) -> set[str]:
    """Return the files of the package that a file imports, at the top or inside functions.

    Imports for type checking count between packages, not within one.
    """
    here = ("pdno", *Path(path).parts[:-1])
    source = ast.parse((package / path).read_text())
    guarded = [node for node in ast.walk(source) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    for_types = {id(node) for block in guarded for node in ast.walk(block)}
    files = set()
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) + 1 - node.level]) if node.level else ""
            base = ".".join(part for part in (base, node.module) if part)
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        found = {file for name in names if (file := _file_of(name, package)) is not None}
        files |= {file for file in found if id(node) not in for_types or Path(file).parts[0] != Path(path).parts[0]}
    return files


def _file_of(name: str, package: Path) -> str | None:
    """Return the file that a dotted name is in; None if that is another package, or the public names."""
    parts = name.split(".")
    if parts[0] != "pdno":
        return None
    for length in range(len(parts), 1, -1):
        path = Path(*parts[1:length])
        if (package / path).with_suffix(".py").exists():
            return path.with_suffix(".py").as_posix()
        if (package / path / "__init__.py").exists():
            return (path / "__init__.py").as_posix()
    return None


def test_the_tree_has_every_file_and_no_other() -> None:
    files = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(TREE) == len(set(TREE))
    assert set(TREE) == files


@pytest.mark.parametrize("path", [path for path in SOURCES if path != ROOT_FILE])
def test_a_file_imports_only_files_above_it(path: str) -> None:
    below = {other for other in imported_files(path) if RANK[other] > RANK[path]}
    assert not below, f"{path} imports {below}, which stand below it in docs/design.md"


def test_evaluation_imports_no_model() -> None:
    for path in SOURCES:
        if path.startswith("evaluation/"):
            assert not {Path(other).parts[0] for other in imported_files(path)} & {"mean", "residual", "model"}, path


def test_the_package_can_be_surveyed() -> None:
    assert len([path for path in PACKAGE.iterdir() if path.name != "__pycache__"]) <= MOST_ENTRIES
    long = {path: lines for path in SOURCES if (lines := len((PACKAGE / path).read_text().splitlines())) > MOST_LINES}
    assert not long


def test_the_check_sees_imports(tmp_path: Path) -> None:
    assert {"errors.py", "field.py", "grid.py", "equation/base.py"} <= imported_files("equation/darcy.py")
    assert {"data/generate.py", "work/engine.py", "run/train.py"} <= imported_files("cli.py")
    for path in ("cli.py", "plot/__init__.py", "field.py", "data/__init__.py", "data/open.py", "data/pairs.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    source = "from pdno import cli\nimport pdno.plot\nfrom pdno.field import Field\nfrom . import data\nimport numpy\n"
    (tmp_path / "x.py").write_text(source + "def f():\n    from .data import open\n")
    assert imported_files("x.py", tmp_path) == {"cli.py", "plot/__init__.py", "field.py", "data/__init__.py", "data/open.py"}
    (tmp_path / "data/y.py").write_text("if TYPE_CHECKING:\n    from .pairs import Pairs\n    from ..cli import main\n")
    assert imported_files("data/y.py", tmp_path) == {"cli.py"}


def test_the_check_reads_trees() -> None:
    lines = [
        "pdno/",
        "  a.py    first",
        "",
        "  LAYER ONE    words",
        "  p/",
        "    q/     words",
        "      b.py   .",
        "    c.py  .",
    ]
    text = "\n".join(["```", *lines, "  d.py   .", "```"])
    assert tree(text) == ["a.py", "p/q/b.py", "p/q/__init__.py", "p/c.py", "p/__init__.py", "d.py"]
    with pytest.raises(AssertionError, match="not understood"):
        tree(text.replace("a.py    first", "a file"))


def test_modules_are_loaded_on_first_use(tmp_path: Path, monkeypatch) -> None:
    assert pdno.mean.choose.__name__ == "pdno.mean.choose"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = pdno.mean.nothing
    (tmp_path / "needy").mkdir()
    (tmp_path / "needy" / "__init__.py").write_text("import pdno\n__getattr__ = pdno.lazy_submodules(__name__)\n")
    (tmp_path / "needy" / "part.py").write_text("import missing_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="missing_library"):
        _ = __import__("needy").part


def test_help_loads_nothing_heavy() -> None:
    heavy = ("numpy", "scipy", "xarray", "zarr", "matplotlib", "torch")
    code = f"import sys, pdno.cli; print([module for module in {heavy} if module in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
