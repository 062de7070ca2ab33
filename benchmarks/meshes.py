"""Train on one grid, predict on others, and write the scores to results/meshes.json.

Run by ``make bench-meshes``; it takes a quarter of an hour. The inputs of a problem are the same functions on every grid; the
truth is the equation, solved on the grid of the prediction. ONLY='NAME …' measures some problems only.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import pdno
from benchmarks.measured import Measured
from pdno._typing import Array, Floats
from pdno.equation import Advection, Burgers, Darcy, Elliptic1D, Equation
from pdno.evaluation import calibration, metrics
from pdno.evaluation.noise import noise_statistics
from pdno.field import Field
from pdno.grid import Grid, interpolate
from pdno.model.surrogate import Surrogate
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "meshes.json"
MEMBERS = 100
NOISE = 0.05  # standard deviation
SMOOTH = Field(tau=10.0, r=2.0, scale=4000.0)  # of the noise that is a function
RESOLVED = Field(tau=5.0, r=2.0, scale=625.0, condition="periodic", modes=41, mean_free=True)  # inputs that 64 points resolve
TRAIN_SEED, TEST_SEED, NOISE_SEED = 0, 1, 2
CELLS = 2  # of the grid of training, within which a jump counts as found


@dataclass(frozen=True)
class Problem:
    """A model that is trained on one grid.

    Args:
        equation: on the grid of training.
        train, test: numbers of pairs.
        grids: points of the predictions.
        model: makes the model.
        noise: "none", "gaussian" (white) or "field" (a function).
        inputs: draws inputs on a grid; default: those of the equation.
    """

    equation: Equation
    train: int
    test: int
    grids: tuple[int | tuple[int, int], ...]
    model: Callable[[], Surrogate]
    noise: str = "none"
    inputs: Callable[[Grid, int, int], Floats] | None = None

    def pairs(self, points: int | tuple[int, int], count: int, seed: int) -> tuple[Floats, Floats]:
        """Return inputs, the same functions on every grid, and solutions."""
        if isinstance(points, tuple):
            return self._rectangle(points, count, seed)
        eq = replace(self.equation, points=points)  # type: ignore[type-var]
        a = eq.sample_input(count, seed) if self.inputs is None else self.inputs(eq.grid, count, seed)
        return a, eq.solve(a)

    def _rectangle(self, points: tuple[int, int], count: int, seed: int) -> tuple[Floats, Floats]:
        """Return Darcy flow on a rectangle of points, from solutions on a grid of which both sides are parts."""
        fine = int(np.lcm(*points))
        grid = Grid.uniform(points, kind="cell")
        field = Field(3.0, 2.0, modes=256, mean_free=True)
        a = np.where(field.sample(grid, count, seed) >= 0, 12.0, 4.0)[:, None]
        return a, interpolate(self.pairs(fine, count, seed)[1], Grid.uniform((fine, fine), kind="cell"), grid, "cubic")

    def noisy(self, u: Floats, points: int, seed: int) -> Floats:
        """Return outputs with noise, one function on every grid if it is a field."""
        if self.noise == "none":
            return u
        if self.noise == "gaussian":
            return np.asarray(u + NOISE * np.random.default_rng((seed, points)).standard_normal(u.shape))
        grid = replace(self.equation, points=points).grid  # type: ignore[type-var]
        return np.asarray(u + NOISE * SMOOTH.sample(grid, len(u), seed)[:, None])


def kernel(**settings: Any) -> Callable[[], Surrogate]:
    return lambda: pdno.PDNO(mean="kernel", law="gaussian", **settings)


def linear(**settings: Any) -> Callable[[], Surrogate]:
    return lambda: pdno.PDNO(mean="linear", law="gaussian", **settings)


def burgers_inputs(grid: Grid, count: int, seed: int) -> Floats:
    return RESOLVED.sample(grid, count, seed)[:, None]


LINE = (64, 97, 128, 256, 512, 2048)
ELLIPTIC, BURGERS = Elliptic1D(points=128, log_scale=0.5), Burgers(points=128)
PERIODIC = {"kind": "periodic", "symmetries": "translation"}
PROBLEMS = {
    "elliptic": Problem(ELLIPTIC, 1000, 100, LINE, kernel(kind="vertex")),
    "elliptic-white": Problem(ELLIPTIC, 1000, 100, LINE, kernel(kind="vertex"), "gaussian"),
    "elliptic-field": Problem(ELLIPTIC, 1000, 100, (64, 128, 256, 512), kernel(kind="vertex"), "field"),
    "burgers": Problem(BURGERS, 1000, 100, LINE, kernel(**PERIODIC), inputs=burgers_inputs),
    "burgers-white": Problem(BURGERS, 1000, 100, LINE, kernel(**PERIODIC), "gaussian", burgers_inputs),
    "darcy": Problem(Darcy(points=64), 500, 32, (50, 64, 97, (64, 96), 128, 256), kernel(kind="cell", symmetries="square")),
    "advection": Problem(Advection(points=256), 1500, 100, (256, 512, 1024), linear(kind="left")),
}


def side(points: int | tuple[int, int]) -> int:
    return points if isinstance(points, int) else max(points)


def scores(problem: Problem, model: Surrogate, points: int | tuple[int, int]) -> dict[str, float]:
    """Return the scores of predictions on one grid."""
    a, u = problem.pairs(points, problem.test, TEST_SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # inputs with jumps are not resolved
        mean = model.mean(a)  # type: ignore[attr-defined]
        members = model.sample(a, MEMBERS, seed=3) if problem.noise != "none" else None
    out = {"mrle": metrics.mrle(mean, u).value}
    if members is not None:
        observed = problem.noisy(u, side(points), NOISE_SEED)
        out["crps"] = metrics.crps(members, observed).value
        out["coverage_90"] = float(calibration.coverage(calibration.pit(members, observed), [0.9]).value[0])
        out["mean_std"] = float(members.std(axis=0, ddof=1).mean())
    if problem.noise == "field" and members is not None:
        out |= of_noise(members - mean, problem, points)
    if isinstance(problem.equation, Advection):
        out["jumps_found"] = jumps_found(np.asarray(mean), u, CELLS * side(points) // problem.equation.points)
    return out


def of_noise(noise: Array, problem: Problem, points: int | tuple[int, int]) -> dict[str, float]:
    """Return std and correlation length of draws, and their distance from those of the same seed on the finest grid."""
    fields = noise.reshape(-1, *noise.shape[2:])
    found = noise_statistics(fields)
    length = np.nan if found is None else found.scores["correlation_length"].value
    return {"noise_std": float(fields.std()), "correlation_length": float(length)}


def differences(problem: Problem, model: Surrogate) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield, for each coarser grid, distances of draws of one seed on it and on the finest grid.

    "draw_difference" is that of fields on the finest grid, to which those on the coarse one are interpolated,
    "interpolation_error" that of the draw on the finest grid itself, from its values at the nodes of the coarse one, and
    "node_difference" that at these nodes.
    """
    fine = side(problem.grids[-1])
    grid = replace(problem.equation, points=fine).grid  # type: ignore[type-var]

    def drawn(points: int) -> Floats:
        return np.asarray(model.sample(problem.pairs(points, 20, TEST_SEED)[0], 1, seed=3)[0])

    draw = drawn(fine)
    for points in (side(each) for each in problem.grids[:-1]):
        coarse = replace(problem.equation, points=points).grid  # type: ignore[type-var]
        own, nodes = drawn(points), interpolate(draw, grid, coarse, "quintic")
        raised = (interpolate(x, coarse, grid, "cubic") for x in (own, nodes))
        errors = [metrics.mrle(x, draw).value for x in raised]
        named = dict(zip(("draw_difference", "interpolation_error"), errors, strict=True))
        yield points, named | {"node_difference": metrics.mrle(own, nodes).value}


def jumps_found(v: Floats, u: Floats, distance: int) -> float:
    """Return the fraction of the jumps of u that v has within some nodes, in the same direction."""
    found = total = 0
    for one, other in zip(np.diff((u[:, 0] > 0.5).astype(int)), np.diff((v[:, 0] > 0.5).astype(int)), strict=True):
        for sign in (-1, 1):
            places, near = np.flatnonzero(one == sign), np.flatnonzero(other == sign)
            total += len(places)
            found += int((np.abs(places[:, None] - near).min(axis=1, initial=len(one)) <= distance).sum())
    return found / total


def interpolated(problem: Problem, points: int | tuple[int, int]) -> float:
    """Return the error of the exact solution on the grid of training, interpolated."""
    coarse = problem.equation.grid
    grid = Grid.uniform(points if isinstance(points, tuple) else (points, points), kind="cell")
    solution = problem.pairs(problem.equation.points, problem.test, TEST_SEED)[1]  # type: ignore[attr-defined]
    return metrics.mrle(interpolate(solution, coarse, grid, "cubic"), problem.pairs(points, problem.test, TEST_SEED)[1]).value


def measure(name: str, measured: Measured) -> None:
    """Train the model of a problem and write its scores on all grids."""
    problem = PROBLEMS[name]
    points = problem.equation.points  # type: ignore[attr-defined]
    a, u = problem.pairs(points, problem.train, TRAIN_SEED)
    begin = perf_counter()
    model = problem.model().fit(a, problem.noisy(u, points, NOISE_SEED + 1), seed=0, progress=False)
    seconds = perf_counter() - begin
    noise = {"none": "none", "gaussian": f"gaussian:{NOISE:g}", "field": f"field:{NOISE:g},{SMOOTH.tau:g},{SMOOTH.r:g}"}
    key = {"test": problem.equation.name, "method": "pdno", "noise": noise[problem.noise]}
    fields = {**key, "train": problem.train, "train_seconds": seconds, "seed": 0, "command": "make bench-meshes"}
    rows, own = [], scores(problem, model, points)
    by_grid: dict[str, dict[str, float]] = {}
    for each in problem.grids:
        values = own if each == points else scores(problem, model, each)
        values["mrle_ratio"] = values["mrle"] / own["mrle"]
        if isinstance(problem.equation, Darcy) and each != points:
            values["interpolation_error"] = interpolated(problem, each)
        by_grid["x".join(map(str, each)) if isinstance(each, tuple) else f"{each}x{each}" if u.ndim > 3 else str(each)] = values
        print(name, each, {metric: float(f"{value:.4g}") for metric, value in values.items()}, flush=True)
    if problem.noise == "field":
        for each, values in differences(problem, model):
            by_grid[str(each)] |= values
            print(name, each, values, flush=True)
    for grid, values in by_grid.items():
        rows += [results.row(metric, value, grid=grid, **fields) for metric, value in values.items()]
    measured.add(key, rows, trained_on=str(problem.equation.grid), summary=model.fit_summary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    for name in parser.parse_args().only:
        measure(name, Measured(RESULTS))


if __name__ == "__main__":
    main()
