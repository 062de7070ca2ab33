"""Fields on the nodes of a mesh, from files to predictions: kinds of axes, weights, principal components, and commands."""

import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import pdno
from pdno import PDNO, UserError
from pdno.basis import diagonal, fields, modes, squared_waves, waves_of
from pdno.cli import main
from pdno.data.nodes import Nodes
from pdno.data.pairs import Pairs
from pdno.evaluation.scoring import evaluate
from pdno.learning.budget import Terms
from pdno.mean.choose import choose_mean
from pdno.mean.process import Process
from pdno.residual.law import Residuals
from pdno.residual.spread import Spread
from tests.helpers import normal, square_mesh
from tests.run.helpers import output

POINTS, TRIANGLES = square_mesh(7)
X, Y = POINTS.T
SHARED = np.sin(np.pi * X) * (1 + Y)  # an error that a whole field shares


def plates(count: int = 40, noise: float = 0.05) -> Pairs:
    """Return u = k x + q y + noise·ξ·SHARED on a square that is refined to the left, with scalars k and q."""
    scalars, xi = normal(count, 2), normal(count, 1, seed=1)
    u = scalars[:, :1] * X**2 + scalars[:, 1:] * Y + noise * xi * SHARED
    dims = (("sample", "channel", "node"),) * 2
    nodes = Nodes(np.stack([X**2, Y], axis=1), TRIANGLES)
    return Pairs.of(np.zeros((count, 1, 1)), u[:, None], scalars=scalars, dims=dims, nodes=nodes)


def learned(**settings: object) -> PDNO:
    pairs = plates()
    return PDNO(**{"budget": 5.0, **settings}).learn(pairs[:32], pairs[32:], progress=False)


def test_nodes_have_no_modes() -> None:
    waves, x = waves_of(("node", "cell")), normal(2, 1, 5, 4)
    assert waves == (None, False)
    assert np.allclose(modes(x, waves), modes(x, (False,)))
    assert np.allclose(fields(modes(x, waves), waves), x)
    assert squared_waves((5, 4), waves).tolist() == [0.0, 1.0, 4.0, 9.0] * 5
    assert np.allclose(diagonal(np.abs(x[0]), waves)[0, 3], diagonal(np.abs(x[0, :, 3]), (False,)))


def test_the_mean_of_fields_on_nodes_does_not_depend_on_their_order() -> None:
    pairs, order = plates(noise=0.0), np.random.default_rng(2).permutation(len(POINTS))
    data = pairs.xarray
    mixed = Pairs(data.isel(node=order))
    models = [PDNO(mean="kernel", law="gaussian").learn(p[:32], p[32:], progress=False) for p in (pairs, mixed)]
    means = [model.mean(None, scalars=pairs.scalars) for model in models]
    assert models[0].spaces.kind == ("node",)
    assert np.allclose(means[0][..., order], means[1], atol=1e-8)


def test_the_default_learns_on_nodes_without_networks() -> None:
    model, pairs = learned(), plates()
    choice = choose_mean("auto", pairs[:32], pairs[32:], Terms(0), kind=("node",))
    skipped = {trial.name: trial.description for trial in choice.trials}
    assert skipped["networks"].startswith("networks need a grid, and these fields are on the nodes of a mesh")
    members = model.sample(None, 400, scalars=np.zeros((1, 2)))[:, 0, 0]
    assert np.allclose(members.std(axis=0), 0.05 * SHARED, atol=0.02)
    inner = np.flatnonzero(SHARED > 1)
    assert np.corrcoef(members[:, inner].T).min() > 0.8  # one number for the whole field


@pytest.mark.parametrize(
    "settings", [{"mean": "fno"}, {"mean": "linear", "law": "diffusion"}, {"mean": "linear", "law": "scaled"}]
)
def test_networks_say_that_they_need_a_grid(settings) -> None:
    with pytest.raises(UserError, match="networks need a grid, and these fields are on the nodes of a mesh"):
        learned(**settings)


def test_principal_components_are_those_of_the_weighted_inner_product() -> None:
    """Errors that are white in L², whose variance is 1/w, beside one that whole fields share: its direction is W SHARED."""
    nodes = plates(2).nodes
    roots = nodes.roots
    noise = normal(300, 1) * SHARED + 0.3 * normal(300, len(POINTS), seed=1) / roots
    dims = (("sample", "channel", "node"),) * 2
    pairs = Pairs.of(normal(300, 1, 1), noise[:, None], dims=dims, nodes=nodes)
    spread = Spread.of(Residuals(pairs, pairs.u, (), (None,)))
    direction = spread.covariance.vectors[0, 0]
    weighted = roots * SHARED / np.linalg.norm(roots * SHARED)
    assert abs(direction @ weighted) > 0.995
    assert np.allclose(spread.std[0] ** 2, np.mean(noise**2, axis=0), rtol=0.35)


@pytest.mark.slow
def test_the_components_of_a_process_are_those_of_the_weighted_inner_product() -> None:
    """Outputs q SHARED with errors that are white in L²: the best estimate of q is an integral, ∝ w SHARED."""
    nodes, scalars = plates(2).nodes, normal(200, 1, seed=2)
    u = scalars * SHARED + 0.3 * normal(200, len(POINTS), seed=1) / nodes.roots
    dims = (("sample", "channel", "node"),) * 2
    pairs = Pairs.of(np.zeros((200, 1, 1)), u[:, None], scalars=scalars, dims=dims, nodes=nodes)
    mean = Process().learn(pairs, None, Terms(0))
    direction = mean.components(pairs.a, scalars).directions[0, 0]
    for weights, aligned in ((nodes.roots**2, True), (np.ones(len(POINTS)), False)):
        integral = weights * SHARED
        cosine = abs(direction @ integral) / np.linalg.norm(direction) / np.linalg.norm(integral)
        assert (cosine > 0.99) == aligned
    assert np.allclose(Process.from_state(mean.state())(pairs.a, scalars), mean(pairs.a, scalars))
    left_out = mean.residuals(pairs.a, pairs.u, scalars)
    assert np.sqrt(np.mean(np.square(left_out[:, 0] * nodes.roots))) == pytest.approx(0.3, rel=0.05)


def test_scores_are_weighted_by_areas() -> None:
    model, test = learned(mean="constant", law="gaussian"), plates(60)[40:]
    scores = evaluate(model, test, members=30, progress=False).scores
    error = model.mean(None, scalars=test.scalars)[:, 0] - test.u[:, 0]
    weights = test.nodes.weights / test.nodes.weights.sum()
    assert np.isclose(scores["rmse"].value, np.sqrt(np.mean(np.square(error) @ weights)))
    assert not np.isclose(scores["rmse"].value, np.sqrt(np.mean(np.square(error))), rtol=0.02)
    same = evaluate(model, Pairs(test.xarray.drop_vars(list(test.nodes.coordinates()))), members=30, progress=False).scores
    for name in ("crps", "energy_score", "coverage_90", "mean_std", "mrle"):
        assert scores[name].value != same[name].value


def test_saved_models_keep_the_nodes(tmp_path) -> None:
    model = learned(mean="linear", law="gaussian")
    model.save(tmp_path / "m.safetensors")
    again = pdno.load(tmp_path / "m.safetensors")
    assert again.spaces.kind == ("node",)
    assert np.allclose(again.spaces.nodes.points, model.spaces.nodes.points)
    assert (again.spaces.nodes.cells == TRIANGLES).all()
    scalars = np.ones((2, 2))
    assert np.allclose(again.predict(scalars, 20).std, model.predict(None, 20, scalars=scalars).std)


def test_memory_is_linear_in_the_nodes() -> None:
    count, nodes = 40, 8000
    scalars, x = normal(count, 2), np.linspace(0, 1, nodes)
    u = scalars[:, :1] * np.sin(3 * x) + np.abs(scalars[:, 1:]) * x
    mesh = Nodes(np.stack([x, x], axis=1))
    pairs = Pairs.of(
        np.zeros((count, 1, 1)), u[:, None], scalars=scalars, dims=(("sample", "channel", "node"),) * 2, nodes=mesh
    )
    tracemalloc.start()
    model = PDNO(mean="kernel", law="gaussian").learn(pairs[:34], pairs[34:], progress=False)
    model.predict(None, 10, scalars=scalars[:2], progress=False)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 * nodes**2 / 2  # of a matrix of all pairs of nodes


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A folder with meshes, one for each run, a table of their scalars, and an evaluated run."""
    meshio = pytest.importorskip("meshio")
    folder, pairs = tmp_path_factory.mktemp("nodes"), plates(60)
    (folder / "plate").mkdir()
    for i, u in enumerate(pairs.u[:, 0]):
        points = np.pad(pairs.nodes.points, ((0, 0), (0, 1)))
        meshio.Mesh(points, [("triangle", TRIANGLES)], {"u": u, "v": np.stack([u, 2 * u], 1)}).write(folder / f"plate/r{i}.vtu")
    rows = "\n".join(f"{k},{q}" for k, q in pairs.scalars)
    (folder / "plate/parameters.csv").write_text(f"k,q\n{rows}\n")
    return folder


@pytest.fixture(scope="module")
def evaluated(runs) -> Path:
    """A run that was trained on the folder."""
    out, plate = runs / "plate-run", runs / "plate"
    arguments = f"train {plate} --u u --parameters {plate}/parameters.csv --out {out} --budget 5s --validation 0.2"
    with pytest.raises(SystemExit) as stop:
        main(arguments.split())
    assert stop.value.code == 0
    return out


def commands(printed: str) -> list[str]:
    """Return the commands in a text, without "pdno" and comments."""
    lines = (line.strip().removeprefix("Next:").strip() for line in printed.splitlines())
    return [line.removeprefix("pdno ").split("#")[0].strip() for line in lines if line.startswith("pdno ")]


@pytest.mark.slow
def test_from_meshes_to_a_mesh_by_the_printed_commands(runs, tmp_path, monkeypatch, capsys) -> None:
    import meshio

    shutil.copytree(runs / "plate", tmp_path / "plate")
    monkeypatch.chdir(tmp_path)
    train = commands(output(capsys, "inspect plate"))[0]
    assert train == "train plate --u u --parameters plate/parameters.csv --out plate-run"
    report, predict = commands(output(capsys, f"{train} --budget 5s --validation 0.2"))
    assert report == "report plate-run"
    assert predict == "predict plate-run --members 100 --out plate-run/prediction.vtu"
    output(capsys, report)
    assert "data:image/png" in Path("plate-run/report.html").read_text()
    printed = output(capsys, predict)
    assert "plate-run/prediction_0.vtu to prediction_5.vtu: 6 inputs, 100 members each" in printed
    assert "meshio.read('plate-run/prediction_0.vtu'); ParaView opens the same file" in printed
    predictions = sorted(Path("plate-run").glob("prediction_*.vtu"))
    assert len(predictions) == 6  # the test pairs
    mesh, truth = meshio.read(predictions[0]), pdno.open("plate", u="u", parameters="plate/parameters.csv").split(0.2, 0.1).test
    names = {"mean", "std", "quantile_0.05", "quantile_0.95", "member_0", "member_2"}
    assert names <= set(mesh.point_data)
    assert (mesh.cells[0].data == TRIANGLES).all()
    k, q = truth.scalars[0]
    assert np.abs(mesh.point_data["mean"] - (k * X**2 + q * Y)).max() < 0.1
    assert (mesh.point_data["quantile_0.05"] <= mesh.point_data["quantile_0.95"]).all()


def test_predictions_for_a_table_of_parameters(evaluated, tmp_path, capsys) -> None:
    import meshio

    Path(tmp_path / "new.csv").write_text("k,q\n1,0\n")
    output(capsys, f"predict {evaluated} {tmp_path}/new.csv --members 50 --out {tmp_path}/pred.vtu")
    assert np.abs(meshio.read(tmp_path / "pred.vtu").point_data["mean"] - X**2).max() < 0.1
    Path(tmp_path / "two.csv").write_text("k,q\n1,0\n0,1\n")
    two = f"predict {evaluated} {tmp_path}/two.csv --members 20 --out {tmp_path}/two.vtu"
    output(capsys, two)
    assert sorted(p.name for p in tmp_path.glob("two*.vtu")) == ["two_0.vtu", "two_1.vtu"]
    with pytest.raises(SystemExit):
        main(two.split())
    assert "two_0.vtu exists already" in capsys.readouterr().err


def test_pyvista_opens_predictions(evaluated, tmp_path, capsys) -> None:
    """The library behind ParaView, if it is installed."""
    pyvista = pytest.importorskip("pyvista")
    Path(tmp_path / "new.csv").write_text("k,q\n1,0\n")
    output(capsys, f"predict {evaluated} {tmp_path}/new.csv --members 20 --out {tmp_path}/pred.vtu")
    mesh = pyvista.read(tmp_path / "pred.vtu")
    assert mesh.n_cells == len(TRIANGLES)
    assert {"mean", "std", "quantile_0.05", "quantile_0.95"} <= set(mesh.point_data)


def test_fields_on_nodes_as_inputs(runs, tmp_path) -> None:
    data = pdno.open(runs / "plate", "u", "v")
    assert data.train.a.shape == (60, 1, 49)
    assert data.train.u.shape == (60, 2, 49)
    model = PDNO(mean="linear", law="gaussian").learn(data.train[:50], data.train[50:], progress=False)
    assert np.allclose(model.mean(data.train.a[:2])[:, 1], 2 * data.train.a[:2, 0], atol=1e-6)


def test_predictions_on_another_mesh_are_refused(runs) -> None:
    data = pdno.open(runs / "plate", "u", "v").train
    model = PDNO(mean="linear", law="gaussian").learn(data[:50], data[50:], progress=False)
    with pytest.raises(UserError, match="trained on fields on the nodes of one mesh, 49 of them"):
        model.predict(data.a[..., :30])
    with pytest.raises(UserError, match="trained on fields on the nodes of one mesh, 49 of them"):
        model.predict(data.a, points=30)
