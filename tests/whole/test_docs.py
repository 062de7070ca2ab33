"""The documentation is tested: its Python, commands, names, links, tables, and references to the paper."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pdno.bench
import pdno.data.generate
from benchmarks.tables import PAGES, ROOT, render
from pdno.cli import main
from pdno.data import formats

EVERYTHING = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
CODE = [
    pytest.param(code, id=f"{page.stem}{i}")
    for page in PAGES
    for i, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]
NAMES = sorted(  # in code font or in code blocks
    {
        name
        for page in PAGES
        for code in re.findall(r"```.*?```|`[^`\n]+`|^    .*$", page.read_text(), re.DOTALL | re.MULTILINE)
        for name in re.findall(r"(?<![\w./-])pdno(?:\.[A-Za-z_]\w*)+", code)
    }
)
COMMANDS = sorted({c for page in PAGES for c in re.findall(r"^    pdno (.*?)\s*(?:#.*)?$", page.read_text(), re.MULTILINE)})


def test_there_is_something_to_test() -> None:
    assert len(CODE) >= 10
    assert len(COMMANDS) >= 6
    assert {"pdno.PDNO", "pdno.evaluate", "pdno.learning.budget.Terms"} <= set(NAMES)


@pytest.mark.parametrize("code", CODE)
def test_python_examples_run(code, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    if 'open_zarr("darcy.zarr"' in code:
        pdno.generate(pdno.equation.Darcy(points=8), train=2, out="darcy.zarr")
    exec(compile(code, "example", "exec"), {"__name__": "example"})


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory) -> Path:
    """The folder of a small run."""
    folder = tmp_path_factory.mktemp("docs")
    pdno.generate(pdno.equation.Darcy(points=8), train=20, test=1, out=folder / "darcy.zarr")
    settings = ["--set", "diffusion.n_steps=4", "--set", "training.updates=1"]
    with pytest.raises(SystemExit):
        main(["train", str(folder / "darcy.zarr"), "--out", str(folder / "run"), *settings])
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(command, tmp_path, monkeypatch, no_pictures, trained_run) -> None:
    """Run each command as written, but with fewer pairs and one training step."""
    real = pdno.data.generate.generate

    def few(equation, train, test, noise, seed, out, workers, scheduler, progress) -> pdno.Dataset:
        return real(equation, 1, min(test, 1), noise, seed, out)

    monkeypatch.setattr("pdno.data.generate.generate", few)
    monkeypatch.setattr("pdno.learning.loop.Training.total", lambda *_: 1)
    monkeypatch.chdir(tmp_path)
    for store in re.findall(r"(?:inspect|train) (\w+\.zarr)", command):
        real(pdno.equation.Darcy(points=8), train=20, test=1, out=store)
    if command.startswith(("predict run", "evaluate run", "report run")):
        shutil.copytree(trained_run, tmp_path, dirs_exist_ok=True)
    for file in re.findall(r"predict run (\w+\.npz)", command):
        np.savez(file, a=pdno.equation.Darcy(points=16).sample_input(2))
    for file, points in {"coarse": 8, "fine": 16}.items():
        if f"{file}.npz" in command:
            np.savez(f"{file}.npz", **dict(zip("au", np.random.default_rng(0).random((2, 5, points)), strict=True)))
    if "mydata.mat" in command:
        fields = np.random.default_rng(0).random((2, 30, 16))
        formats.write("mydata.mat", {"force": fields[0], "deflection": fields[1]})
    if "fields.npz" in command or "runs.csv" in command or command.startswith("suggest"):
        np.savez("fields.npz", u=np.random.default_rng(0).random((20, 16)))
        Path("runs.csv").write_text("speed,angle\n" + "".join(f"{i},{i % 7}\n" for i in range(20)))
    if command.startswith("suggest"):
        with pytest.raises(SystemExit):
            main(["train", "fields.npz", "--u", "u", "--parameters", "runs.csv", "--preset", "linear", "--out", "run"])
    with pytest.raises(SystemExit) as stop:
        main(command.split())
    assert stop.value.code == 0


@pytest.mark.slow
def test_names_resolve_right_after_import() -> None:
    """Each name is looked up in a package of which nothing but `pdno` itself is imported."""
    names = [name for name in NAMES if not any(other.startswith(f"{name}.") for other in NAMES)]
    lines = ["import sys, torch", "from functools import reduce", f"for name in {names}:"]
    lines += [
        "    for module in [key for key in sys.modules if key.split('.')[0] == 'pdno']:",
        "        del sys.modules[module]",
    ]
    lines += ["    import pdno", "    try:", "        reduce(getattr, name.split('.')[1:], pdno)"]
    lines += ["    except AttributeError as error:", "        print(name, error, sep=': ')"]
    answer = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert answer.stdout == ""


@pytest.mark.parametrize("page", EVERYTHING, ids=lambda page: page.stem)
def test_links_lead_somewhere(page) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_are_those_of_the_results(page) -> None:
    assert render(page.read_text()) == page.read_text(), "run python -m benchmarks.tables"


def test_every_label_of_the_paper_that_the_code_cites_is_explained() -> None:
    pattern = r"`((?:eqn|thm|prop|fig|tab|app|alg|sec|remark|cor):[\w-]+)`"
    source = "\n".join(path.read_text() for path in (ROOT / "pdno").rglob("*.py"))
    cited = set(re.findall(pattern, source))
    explained = set(re.findall(pattern, (ROOT / "docs" / "notation.md").read_text()))
    assert cited
    assert cited <= explained, cited - explained


def test_the_shown_change_of_a_file_applies() -> None:
    """The diff in docs/design.md has lines of the file as it is."""
    diff = re.findall(r"```diff\n(.*?)```", (ROOT / "docs" / "design.md").read_text(), re.DOTALL)
    old = [line[1:] for block in diff for line in block.splitlines() if line[:1] in (" ", "-")]
    assert old
    assert set(old) <= set((ROOT / "pdno" / "residual" / "build.py").read_text().splitlines())


def test_nothing_but_tests_knows_of_other_folders() -> None:
    for path in [*(ROOT / "pdno").rglob("*.py"), *PAGES]:
        assert "../shared" not in path.read_text(), path


def test_versions_agree() -> None:
    assert f"version: {pdno.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert Path(ROOT / "constraints.txt").read_text().count("torch==2.13.0") == 1
