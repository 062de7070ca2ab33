"""Tables of docs/results.md, from files of results."""

from pathlib import Path

import pytest

from benchmarks import benchtables, tables
from benchmarks.benchtables import TABLES, table
from pdno.bench import PARTS
from pdno.run import results

PART = PARTS["darcy-64/diffusion"]


def cells(name: str, folder: Path) -> dict[tuple[str, str], dict[str, object]]:
    """Return the table as (problem, method) → heading → cell."""
    (headings, *lines), _ = table(name, folder)
    rows = [dict(zip(headings, line, strict=True)) for line in lines]
    return {(str(row["problem"]), str(row["method"])): row for row in rows}


def write(folder: Path) -> None:
    """Write the results of one part."""
    fields = {"test": "darcy", "method": "pdno", "grid": "64x64", "noise": "none", "evaluations": 20, "parameters": 123456}
    fields |= {"train_seconds": 90.0, "command": "pdno bench darcy-64/diffusion --scale cpu"}
    rows = [results.row(name, value, **fields) for name, value in (("mrle", 0.0123), ("mrle_member", 0.02), ("mstd", 1e-4))]
    results.write(folder / PART.file, rows, machine={"processor": "z80", "cores": 7})


def test_every_part_is_in_one_table(tmp_path) -> None:
    """Without results, every score is "not run", and the command is that which runs the part."""
    commands = []
    for name in TABLES:
        (headings, *lines), note = table(name, tmp_path)
        assert note == ""
        assert all(line[headings.index("MRLE")] == "not run" for line in lines)
        commands += [line[-1] for line in lines]
    assert sorted(commands) == sorted(f"`pdno bench {part} --scale cpu`" for part in PARTS)


def test_results_stand_beside_those_of_the_paper(tmp_path) -> None:
    write(tmp_path)
    found = cells("darcy", tmp_path)
    row = found["darcy 64x64", "pdno"]
    assert row["MRLE"] == 0.0123
    assert row["MRLE of one member"] == 0.02
    assert row["std of members"] is None  # not among the results
    assert (row["MRLE, paper"], row["MSTD, paper"]) == (0.0046, 5.08e-7)
    assert (row["evaluations"], row["parameters"], row["training (min)"]) == (20, "123,456", "1.5")
    assert row["command"] == "`pdno bench darcy-64/diffusion --scale cpu`"
    assert (found["darcy 64x64", "fno"]["MRLE"], found["darcy 64x64", "fno"]["MRLE, paper"]) == ("not run", 0.0060)
    assert found["darcy 64x64", "kernel"]["MRLE, paper"] is None
    assert found["darcy 128x128", "pdno-paper-short"]["MRLE, paper"] == 0.0022
    assert table("darcy", tmp_path)[1] == "Measured on 7 cores (z80)."


def test_cells_of_the_paper_have_all_methods(tmp_path) -> None:
    write(tmp_path)
    (headings, first, *others), note = table("cells", tmp_path)
    row = dict(zip(headings, first, strict=True))
    assert (row["problem"], row["PDNO, paper"], row["FNO, paper"]) == ("darcy 64x64", 0.0046, 0.0060)
    assert (row["diffusion (pdno)"], row["kernel regression"]) == (0.0123, None)
    assert (row["one member of the diffusion"], row["training of the diffusion (min)"]) == (0.02, "2")
    assert [line[0] for line in others][-1] == "advection 1024"
    assert len(others) == 8
    assert note == "Measured on 7 cores (z80)."


def test_errors_during_training_are_those_after_shares_of_it(tmp_path) -> None:
    """Of eight logged errors the first, the second, the fourth and the last."""
    write(tmp_path)
    path = tmp_path / PART.file
    errors = {"epoch": [5.0 * k for k in range(1, 9)], "mrle": [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]}
    results.write(path, results.read(path)["rows"], errors=errors)
    headings, row = table("epochs", tmp_path)[0]
    assert headings[2] == "after 12% of them"
    assert row == ["`darcy-64/diffusion`", "40", 8.0, 7.0, 5.0, 1.0, 0.0046, 1000]


def test_figures_that_exist_are_linked(tmp_path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "fig-1d_noisy.png").touch()
    (tmp_path / "figures" / "figures.json").write_text('{"fig:1d_noisy": ["one", "two"], "fig:advection": ["gone"]}')
    lines = {line[0]: line[1:] for line in table("figures", tmp_path)[0]}
    assert lines["`fig:1d_noisy`"] == ["one, two", "[fig-1d_noisy.png](../results/bench/figures/fig-1d_noisy.png)"]
    assert lines["`fig:advection`"] == [None, "not drawn"]
    assert len(lines) == 12


def test_pages_are_updated(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(benchtables.table, "__defaults__", (tmp_path,))
    write(tmp_path)
    page = tables.render("a\n<!-- results/bench darcy -->\nold\n<!-- end -->\nb\n")
    assert "old" not in page
    assert "| darcy 64x64 | pdno | 0.0123 | 0.0046 | 0.02 |" in page
    assert page.endswith("\n\nMeasured on 7 cores (z80).\n<!-- end -->\nb\n")
    with pytest.raises(KeyError):
        tables.render("<!-- results/bench heat -->\n<!-- end -->")
