"""Train the default on fields on the nodes of triangulations, and write its scores to results/triangulations.json.

Run by ``make bench-triangulations``; ONLY names some of the problems, AGAIN=1 measures them again. Two problems on a plate with
a hole, solved by linear finite elements, from .vtu files and a table of parameters:

    heat         −Δu = f, u = 0 on the left side; f a Gaussian with a random place and width
    elasticity   plane stress, clamped on the left side and pulled on the right side; random ν, direction and place of the pull

with white noise of 2 % of the root mean square of u. "pca-gp" is the usual method: principal components of the outputs, and a
Gaussian process with a length for each parameter for each of their coefficients.
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import meshio
import numpy as np
from scipy.optimize import minimize
from scipy.sparse import coo_matrix, csc_matrix
from scipy.sparse.linalg import splu
from scipy.spatial import Delaunay

import pdno
from benchmarks.lawscores import MEMBERS, inside
from benchmarks.measured import Key, Measured
from pdno._typing import Floats, Ints
from pdno.data.pairs import Pairs
from pdno.evaluation.metrics import Score, crps, mrle
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "triangulations.json"
BUDGET = 60.0  # seconds of training
TEST = 20  # pairs
NOISE = 0.02  # standard deviation / root mean square of u
RADIUS = 0.2  # of the hole in the unit square
COMPONENTS = 12  # of pca-gp
CASES: dict[str, tuple[str, float, int]] = {  # problem, spacing of the nodes, training runs
    "heat": ("heat", 0.01, 100),
    "elasticity": ("elasticity", 0.032, 60),
    "heat-large": ("heat", 0.00296, 40),
}


def plate(spacing: float) -> tuple[Floats, Ints]:
    """Return the nodes (node, 2) and the triangles (cell, 3) of the unit square with a hole."""
    x = np.linspace(0, 1, round(1 / spacing) + 1)
    inner = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    angle = np.linspace(0, 2 * np.pi, round(2 * np.pi * RADIUS / spacing), endpoint=False)
    circle = 0.5 + RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points = np.concatenate([inner[np.linalg.norm(inner - 0.5, axis=1) > RADIUS + spacing / 2], circle])
    cells = Delaunay(points).simplices
    return points, cells[np.linalg.norm(points[cells].mean(axis=1) - 0.5, axis=1) > RADIUS]


def gradients(points: Floats, cells: Ints) -> tuple[Floats, Floats]:
    """Return the gradients (cell, corner, 2) of the hat functions, and the areas (cell,)."""
    x = points[cells]
    edges = np.roll(x, -2, axis=1) - np.roll(x, -1, axis=1)  # opposite to each corner
    twice = np.linalg.det(np.stack([x[:, 1] - x[:, 0], x[:, 2] - x[:, 0]], axis=1))
    return np.stack([-edges[..., 1], edges[..., 0]], axis=-1) / twice[:, None, None], np.abs(twice) / 2


def assembled(blocks: Floats, numbers: Ints, size: int) -> csc_matrix:
    """Return the matrix of all cells from their blocks (cell, i, j), with the numbers (cell, i) of the unknowns."""
    i, j = np.broadcast_arrays(numbers[:, :, None], numbers[:, None, :])
    return coo_matrix((blocks.ravel(), (i.ravel(), j.ravel())), (size, size)).tocsc()


def heat(points: Floats, cells: Ints, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return parameters (run, 3) and temperatures (run, 1, node)."""
    grad, area = gradients(points, cells)
    matrix = assembled(np.einsum("cid,cjd,c->cij", grad, grad, area), cells, len(points))
    free = np.flatnonzero(points[:, 0] > 0)
    solver = splu(matrix[free][:, free])
    weights = np.bincount(cells.ravel(), np.repeat(area / 3, 3), len(points))
    parameters = np.column_stack([rng.uniform(0.1, 0.9, (count, 2)), rng.uniform(0.1, 0.2, count)])
    u = np.zeros((count, 1, len(points)))
    for row, (x, y, width) in zip(u, parameters, strict=True):
        source = np.exp(-0.5 * ((points[:, 0] - x) ** 2 + (points[:, 1] - y) ** 2) / width**2)
        row[0, free] = solver.solve((weights * source)[free])
    return parameters, u


def elasticity(points: Floats, cells: Ints, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return parameters (run, 3) and displacements (run, 2, node)."""
    grad, area = gradients(points, cells)
    strain = np.zeros((len(cells), 3, 6))  # ε_xx, ε_yy, 2 ε_xy of the displacements of the corners
    strain[:, 0, 0::2], strain[:, 1, 1::2] = grad[..., 0], grad[..., 1]
    strain[:, 2, 0::2], strain[:, 2, 1::2] = grad[..., 1], grad[..., 0]
    numbers = np.stack([2 * cells, 2 * cells + 1], axis=-1).reshape(len(cells), 6)
    free = np.flatnonzero(np.repeat(points[:, 0] > 0, 2))
    right = np.flatnonzero(points[:, 0] == 1)
    parameters = np.column_stack([rng.uniform(0.1, 0.45, count), rng.uniform(-1, 1, count), rng.uniform(0.2, 0.8, count)])
    u = np.zeros((count, 2 * len(points)))
    for row, (nu, angle, place) in zip(u, parameters, strict=True):
        stiffness = np.array([[1, nu, 0], [nu, 1, 0], [0, 0, (1 - nu) / 2]]) / (1 - nu**2)
        matrix = assembled(np.einsum("cki,kl,clj,c->cij", strain, stiffness, strain, area), numbers, u.shape[1])
        pull = np.exp(-0.5 * ((points[right, 1] - place) / 0.2) ** 2)
        force = np.zeros(u.shape[1])
        force[2 * right], force[2 * right + 1] = np.cos(angle) * pull / pull.sum(), np.sin(angle) * pull / pull.sum()
        row[free] = splu(matrix[free][:, free]).solve(force[free])
    return parameters, u.reshape(count, -1, 2).swapaxes(1, 2)


PROBLEMS: dict[str, Callable[..., tuple[Floats, Floats]]] = {"heat": heat, "elasticity": elasticity}


def write_runs(folder: Path, problem: str, spacing: float, runs: int) -> None:
    """Write one .vtu file for each run, and a table of their parameters."""
    rng, (points, cells) = np.random.default_rng(0), plate(spacing)
    parameters, u = PROBLEMS[problem](points, cells, runs, rng)
    u += NOISE * np.sqrt(np.mean(u**2)) * rng.normal(size=u.shape)
    for i, field in enumerate(u):
        values = field[0] if len(field) == 1 else field.T
        mesh = meshio.Mesh(np.pad(points, ((0, 0), (0, 1))), [("triangle", cells)], {"u": values})
        mesh.write(folder / f"run_{i}.vtu", file_format="vtu")
    with (folder / "parameters.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["p", "q", "r"], *parameters.tolist()])


class ComponentsAndProcesses:
    """Principal components of outputs, and a Gaussian process for each of their coefficients: pca-gp."""

    def __init__(self, x: Floats, u: Floats) -> None:
        self.centre, self.scale = x.mean(axis=0), x.std(axis=0)
        self.x, self.mean = (x - self.centre) / self.scale, u.mean(axis=0)
        flat = (u - self.mean).reshape(len(u), -1)
        left, values, self.modes = np.linalg.svd(flat, full_matrices=False)
        z, self.modes = (left * values)[:, :COMPONENTS], self.modes[:COMPONENTS]
        self.rest = np.sqrt(np.mean((flat - z @ self.modes) ** 2))
        self.unit = z.std(axis=0)
        self.z, self.hyper = z / self.unit, [self._fitted(each) for each in (z / self.unit).T]

    def _kernel(self, h: Floats, x: Floats, y: Floats) -> Floats:
        d = (x[:, None] - y[None]) * np.exp(-h[2:])
        return np.asarray(np.exp(h[0] - 0.5 * np.square(d).sum(axis=2)))

    def _fitted(self, z: Floats) -> Floats:
        """Return log variance, log noise and log lengths of the largest likelihood."""

        def loss(h: Floats) -> float:
            factor = np.linalg.cholesky(self._kernel(h, self.x, self.x) + (np.exp(h[1]) + 1e-8) * np.eye(len(z)))
            return float(0.5 * np.square(np.linalg.solve(factor, z)).sum() + np.log(np.diag(factor)).sum())

        bounds = [(-4, 5), (-14, 1), *[(-3, 4)] * self.x.shape[1]]
        starts = [np.array([0.0, noise, *[length] * self.x.shape[1]]) for noise in (-4, -9) for length in (0, 1)]
        fits = [minimize(loss, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60}) for start in starts]
        return np.asarray(min(fits, key=lambda fit: float(fit.fun)).x)

    def sample(self, x: Floats, members: int, seed: int) -> Floats:
        """Return members of new outputs with their noise: (member, sample, *shape)."""
        rng, x = np.random.default_rng(seed), (x - self.centre) / self.scale
        draws = np.empty((members, len(x), len(self.hyper)))
        for k, h in enumerate(self.hyper):
            inverse = np.linalg.inv(self._kernel(h, self.x, self.x) + (np.exp(h[1]) + 1e-8) * np.eye(len(self.x)))
            cross = self._kernel(h, x, self.x)
            variance = np.maximum(np.exp(h[0]) - ((cross @ inverse) * cross).sum(axis=1), 0) + np.exp(h[1])
            draws[..., k] = cross @ inverse @ self.z[:, k] + np.sqrt(variance) * rng.normal(size=(members, len(x)))
        fields = (draws * self.unit) @ self.modes
        fields += self.rest * rng.normal(size=fields.shape)
        return np.asarray(self.mean + fields.reshape(members, len(x), *self.mean.shape))


def trained(method: str, train: Pairs, budget: float) -> Callable[[Floats], Floats]:
    """Return a function of the parameters that draws members."""
    assert train.scalars is not None
    if method == "pca-gp":
        processes = ComponentsAndProcesses(np.asarray(train.scalars), train.u)
        return lambda x: processes.sample(x, MEMBERS, seed=0)
    data = pdno.Dataset(train, train[:0], {"name": "plate"}).split(0.1, 0.0)
    model = pdno.PDNO(budget=budget).learn(data.train, data.validation, progress=False)
    return lambda x: np.asarray(model.sample(None, MEMBERS, scalars=x))


def measure(key: Key, data: Pairs, runs: int) -> list[dict[str, Any]]:
    """Train a method and measure it on the last runs."""
    train, test = data[:runs], data[runs:]
    begin = perf_counter()
    sample = trained(key["method"], train, BUDGET)
    learned = perf_counter()
    values: dict[str, list[float]] = {"crps": [], "mrle": [], "coverage_90": [], "coverage_90_mean": []}
    drawing = 0.0
    for i in range(len(test)):  # one by one, for the sake of memory
        u, weights = test.u[i : i + 1], test.weights
        start = perf_counter()
        members = sample(np.asarray(test.scalars)[i : i + 1])
        drawing += perf_counter() - start
        values["crps"].append(crps(members, u, weights=weights).value)
        values["mrle"].append(mrle(members.mean(axis=0), u, weights=weights).value)
        values["coverage_90"].append(float(np.average(inside(members, u), axis=-1, weights=weights).mean()))
        values["coverage_90_mean"].append(float(inside(members.mean(axis=-1), u.mean(axis=-1)).mean()))
    fields = {**key, "noise": f"gaussian:{NOISE}", "members": MEMBERS, "command": "make bench-triangulations"}
    fields |= {"train_seconds": learned - begin, "sample_seconds": drawing}
    scores = {metric: Score.mean(each) for metric, each in values.items()}
    return [results.row(metric, score.value, error=score.error, **fields) for metric, score in scores.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES), help="problems")
    parser.add_argument("--again", action="store_true", help="measure also what has been measured")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    options = parser.parse_args()
    measured = Measured(options.out)
    for name in options.only:
        problem, spacing, runs = CASES[name]
        grid = f"{len(plate(spacing)[0])} nodes"
        keys = [{"test": name, "grid": grid, "method": m, "train": runs, "seed": 0} for m in ("pca-gp", "pdno")]
        keys = [key for key in keys if options.again or not measured.has(key, BUDGET)]
        if not keys:
            continue
        with TemporaryDirectory() as folder:
            write_runs(Path(folder), problem, spacing, runs + TEST)
            data = pdno.open(folder, u="u", parameters=Path(folder) / "parameters.csv").train
        for key in keys:
            rows = measure(key, data, runs)
            measured.add(key, rows, budget=BUDGET)
            scores = ", ".join(f"{row['metric']} {row['value']:.3g}" for row in rows)
            print(f"{name}, {key['method']}: {scores}, {rows[0]['train_seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
