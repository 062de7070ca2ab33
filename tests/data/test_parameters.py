"""Tables of parameters beside a file of fields: names are kept, and each mistake is refused in a sentence that names it."""

import numpy as np
import pandas as pd
import pytest

import pdno
from pdno.data.findings import check
from pdno.data.parameters import names_of, read_parameters

RNG = np.random.default_rng(0)
P = RNG.random((12, 2))
U = np.sin(P[:, :1] * np.linspace(0, 3, 8)) + P[:, 1:]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with fields and a table of their parameters."""
    monkeypatch.chdir(tmp_path)
    np.savez("fields.npz", u=U)
    pd.DataFrame(P, columns=["speed [m/s]", "angle"]).to_csv("runs.csv", index=False)
    return tmp_path


def test_parameters_of_a_file_keep_names_and_order(folder) -> None:
    data = pdno.open("fields.npz", parameters="runs.csv")
    np.testing.assert_array_equal(data.train.scalars, P)
    assert data.train.parameters == data.train[:3].parameters == ("speed [m/s]", "angle")
    assert data.train.without_field
    chosen = pdno.open("fields.npz", u="u", parameters="runs.csv[angle]").train
    np.testing.assert_array_equal(chosen.scalars, P[:, 1:])
    assert chosen.parameters == ("angle",)


def test_a_table_in_memory_is_the_same_as_a_file(folder) -> None:
    table = pd.read_csv("runs.csv")
    data = pdno.open("fields.npz", parameters=table)
    np.testing.assert_array_equal(data.train.scalars, P)
    assert data.train.parameters == tuple(table.columns)


def test_names_survive_a_store(folder) -> None:
    pdno.open("fields.npz", parameters="runs.csv").save("d.zarr")
    again = pdno.open("d.zarr")
    assert again.train.parameters == ("speed [m/s]", "angle")
    assert "parameters speed [m/s], angle" in repr(again)


def test_fields_and_parameters_together(folder) -> None:
    np.savez("both.npz", a=U + 1, u=U)
    data = pdno.open("both.npz", parameters="runs.csv")
    assert not data.train.without_field
    assert data.train.scalars.shape == (12, 2)


@pytest.mark.parametrize(
    ("text", "names", "values"),
    [
        ("x,y\n1,2\n3,4\n", ("x", "y"), [[1, 2], [3, 4]]),
        ("x;y\n1;2\n3;4\n", ("x", "y"), [[1, 2], [3, 4]]),
        ("x\ty\n1\t2\n", ("x", "y"), [[1, 2]]),
        ("\ufeffx, y\n1, 2\n\n3, 4\n", ("x", "y"), [[1, 2], [3, 4]]),
        ("1,2\n3,4\n", ("p1", "p2"), [[1, 2], [3, 4]]),
        (",x\n0,5\n1,6\n", ("x",), [[5], [6]]),
        ("x\n1\n2\n", ("x",), [[1], [2]]),
    ],
)
def test_tables_are_read(tmp_path, text, names, values) -> None:
    (tmp_path / "t.csv").write_text(text)
    table = read_parameters(tmp_path / "t.csv")
    assert names_of(table) == names
    np.testing.assert_array_equal(table.values, values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n" + "1,2\n" * 11, "has 11 rows, but u has 12 samples; expected a row for each sample"),
        ("x,y\n1,2\n,3\n" + "1,2\n" * 10, "column 'x' of runs.csv: a value in row .* 2 is missing"),
        ("x,material\n" + "1,steel\n" * 12, "column 'material' of runs.csv: 'steel' in row .* 1 is no finite number .*12"),
        ("x,y\n1,inf\n" + "1,2\n" * 11, "column 'y' .*'inf'.* is no finite number"),
        ("x,x\n" + "1,2\n" * 12, None),
        ("", "is not a table"),
        ("x,y\n", "0 rows and 2 parameters"),
        ("x,y\n1,2\n1,2,3\n", "is not a table: .*line 3"),
    ],
)
def test_mistakes_in_a_table_are_named(folder, text, message) -> None:
    (folder / "runs.csv").write_text(text)
    if message is None:  # pandas gives the second column another name
        assert pdno.open("fields.npz", u="u", parameters="runs.csv").train.parameters == ("x", "x.1")
        return
    with pytest.raises(pdno.UserError, match=message) as error:
        pdno.open("fields.npz", u="u", parameters="runs.csv")
    assert "\n" not in str(error.value)


def test_other_mistakes_with_tables(folder) -> None:
    for options, message in (
        ({"parameters": "nothing.csv"}, "nothing.csv does not exist"),
        ({"parameters": "runs.csv[angel]"}, "no column 'angel'; .*angle"),
        ({"parameters": pd.DataFrame({"x": ["a"] * 12})}, "column 'x' of the table of parameters"),
        ({"parameters": pd.DataFrame(np.ones((12, 2)), columns=["x", "x"])}, "two columns of the name 'x'"),
        ({"parameters": pd.DataFrame({"x": np.ones(12) * 1j})}, "complex numbers"),
        ({"parameters": pd.DataFrame({"x": np.arange(5)})}, "has 5 rows, but no array of fields.npz has as many samples"),
        ({"u": "u", "parameters": "runs.csv", "scalars": "u"}, "both given"),
        ({"u": "u", "parameters": "runs.csv", "test": "fields.npz"}, "no table of parameters"),
        ({"u": "u"}, "only one of a and u"),
    ):
        with pytest.raises(pdno.UserError, match=message):
            pdno.open("fields.npz", **options)


def test_constant_parameters_and_repeated_runs_are_found() -> None:
    twice = np.r_[0:12, 0]
    pairs = pdno.Pairs.of(np.zeros((13, 8)), U[twice], scalars=pd.DataFrame({"speed": P[twice, 0], "g": 9.81}))
    found = [str(finding) for finding in check(pdno.Dataset(pairs, pairs[:0], {"name": "runs"}))]
    assert any("parameter 'g': never changes (9.81)" in text for text in found)
    assert any("1 pairs are exact copies of others, the first is sample 12" in text for text in found)
    assert len(found) == 2  # zeros in place of a are no problem


def test_models_take_tables_by_name() -> None:
    table = pd.DataFrame(P, columns=["speed", "angle"])
    model = pdno.baseline.Deterministic("linear").fit(None, U, scalars=table)
    assert model.spaces.parameters == ("speed", "angle")
    np.testing.assert_array_equal(model.spaces.ranges, np.stack([P.min(axis=0), P.max(axis=0)], axis=1))
    expected = model.predict(None, scalars=P).mean
    np.testing.assert_array_equal(model.predict(None, scalars=table[["angle", "speed"]]).mean, expected)
    with pytest.raises(pdno.UserError, match="parameter 'angle' is missing; got speed, this model needs speed, angle"):
        model.predict(None, scalars=table[["speed"]])
    with pytest.raises(pdno.UserError, match=r"needs \(sample, 2\): speed, angle"):
        model.predict(None, scalars=P[:, :1])
    with pytest.raises(pdno.UserError, match=r"column .speed..* is missing"):
        pdno.baseline.Deterministic("linear").fit(None, U, scalars=table.replace(P[3, 0], np.nan))


def test_names_are_saved_with_a_model(tmp_path) -> None:
    model = pdno.baseline.Deterministic("linear").fit(None, U, scalars=pd.DataFrame(P, columns=["speed", "angle"]))
    model.save(tmp_path / "m.safetensors")
    again = pdno.load(tmp_path / "m.safetensors").spaces
    assert again.parameters == ("speed", "angle")
    assert again.ranges == model.spaces.ranges
