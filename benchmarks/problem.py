"""Measure accuracy and speed of solvers and data generation and write them to results/problem.json.

Run by ``make bench``; it takes three minutes on two cores.

Times are compared within one run, as ratios; absolute seconds depend on the machine that the file names.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.sparse.linalg import spsolve
from threadpoolctl import threadpool_limits

import pdno
from pdno._typing import Floats
from pdno.equation import Advection, Burgers, Darcy, Elliptic1D, Equation
from pdno.equation.darcy import _factorize
from pdno.plot.forecasts import pairs
from pdno.run import results
from pdno.work.engine import cores

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "problem.json"
PICTURE = ROOT / "docs" / "img" / "equations.png"
Row = dict[str, Any]

EXAMPLES = (  # title, equation and noise of each panel of the figure
    ("1-D elliptic, white noise", Elliptic1D(points=128), "gaussian:0.05"),
    ("Darcy flow, mixture noise", Darcy(points=64), "mixture:1"),
    ("Burgers, field noise", Burgers(points=256), "field:0.1,10,2"),
    ("advection, strong white noise", Advection(points=256), "gaussian:0.5"),
)


def row(eq: Equation, metric: str, value: float | np.floating[Any], train: int | None = None, **fields: Any) -> Row:
    """Return a row of results; `fields` override the defaults."""
    defaults: Row = {"test": eq.name, "method": "solver", "grid": str(eq.grid), "train": train, "noise": "none"}
    return results.row(metric, value, **{**defaults, "seed": 0, "command": "make bench", **fields})


def relative(difference: Floats, u: Floats) -> Floats:
    """Return ‖difference‖ / ‖u‖ over the last axis."""
    return np.asarray(np.linalg.norm(difference, axis=-1) / np.linalg.norm(u, axis=-1))


def seconds(rounds: int, *functions: Callable[[], object]) -> Floats:
    """Return times, (rounds, functions). The functions alternate, so that changes of the machine's speed affect all alike."""
    times = np.empty((rounds, len(functions)))
    for one_round in times:
        for i, function in enumerate(functions):
            start = perf_counter()
            function()
            one_round[i] = perf_counter() - start
    return times


def elliptic() -> Iterator[Row]:
    """Measure the error against solutions for the same inputs on a grid 16 times finer."""
    for points in (32, 64, 128):
        coarse, fine = Elliptic1D(points=points), Elliptic1D(points=(points - 1) * 16 + 1)
        u, exact = coarse.solve(coarse.sample_input(1000)), fine.solve(fine.sample_input(1000))[..., ::16]
        yield row(coarse, "max_error", np.abs(u - exact).max())


def darcy() -> Iterator[Row]:
    """Compare the time of a solve with that of the bare factorisation and of SciPy's spsolve with its defaults."""
    for points in (64, 128, 256):
        eq = Darcy(points=points)
        a, f = eq.sample_input(1), np.ones(points**2)
        matrix = eq._matrix(a[0, 0])
        ways = (partial(eq.solve, a), partial(_bare_solve, matrix, f), partial(spsolve, matrix, f))
        with threadpool_limits(1):
            whole, bare, default = seconds(15, *ways).T
        yield row(eq, "solve_over_bare_solve", np.median(whole / bare), sample_seconds=float(np.median(whole)))
        yield row(eq, "solve_over_spsolve", np.median(whole / default), sample_seconds=float(np.median(whole)))


def _bare_solve(matrix: Any, f: Floats) -> Floats:
    return np.asarray(_factorize(matrix).solve(f))


def burgers(pairs: int) -> Iterator[Row]:
    """Measure time, change under refinement, and distance from the Cole–Hopf solution, for 2048 points."""
    eq = Burgers(points=2048)
    start = perf_counter()
    data = pdno.generate(eq, train=pairs, workers=cores())
    yield row(eq, "generate_seconds", perf_counter() - start, pairs)
    a, u = data.train.a, data.train.u
    finer = eq.solve(a, refine=1)
    yield row(eq, "max_change_refined", relative(u - finer, finer).max(), pairs)
    yield row(eq, "max_cole_hopf_residual", relative(eq.residual(u, a), u).max(), pairs)
    fine = Burgers(points=8192)
    truth = fine.solve(fine.sample_input(64))
    for points in (64, 256, 512, 1024):
        coarse = Burgers(points=points)
        u, exact = coarse.solve(coarse.sample_input(64)), truth[..., :: 8192 // points]
        yield row(coarse, "mean_distance_from_8192", relative(u - exact, exact).mean(), 64)


def workers(pairs: int) -> Iterator[Row]:
    """Measure the speed-up with two workers, in pairs per second from the first block on, without start-up."""
    eq = Darcy(points=64)
    spent = {1: 0.0, 2: 0.0}
    for count in (1, 2, 2, 1):  # a steady change of the machine's speed favours neither
        spent[count] += _seconds_per_pair(eq, pairs, count)
    yield row(eq, "two_workers_over_one", spent[1] / spent[2], pairs, sample_seconds=spent[1] / 2)


def _seconds_per_pair(eq: Equation, pairs: int, count: int) -> float:
    """Return the time per pair with `count` workers, from the first block on."""
    clock: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "data.zarr"
        pdno.generate(
            eq, train=pairs, out=out, workers=count, progress=lambda done, total: clock.append((perf_counter(), done))
        )
    (begin, first), (end, last) = clock[0], clock[-1]
    return (end - begin) / (last - first)


def batches(pairs: int) -> Iterator[Row]:
    """Compare the speed of random batches from the cache of a file of ten times the memory limit with batches from memory."""
    eq = Darcy(points=128)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "data.npz"
        a, u = rng.random((2, pairs, 128, 128), dtype=np.float32)
        np.savez(file, a=a, u=u)
        memory = pdno.open(file, "a", "u", "sample,x,y").train
        tenth = file.stat().st_size // 10
        cached = pdno.open(file, "a", "u", "sample,x,y", budget=tenth, cache=Path(folder) / "cache").train
        in_memory, from_cache = seconds(7, lambda: list(memory.batches(16)), lambda: list(cached.batches(16))).T
    yield row(eq, "cached_batches_over_memory", np.median(in_memory / from_cache), pairs)


def help_seconds() -> Iterator[Row]:
    """Measure the time of `pdno --help`."""
    times = seconds(9, lambda: subprocess.run([sys.executable, "-m", "pdno", "--help"], capture_output=True, check=True))
    yield {**row(Darcy(), "help_seconds", float(np.median(times))), "test": "command line", "grid": ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="fewer pairs: seconds instead of minutes, and no results file")
    small = parser.parse_args().small
    rows: list[Row] = []
    quick = (elliptic(), darcy(), batches(200 if small else 2000), help_seconds())
    for part in (*quick, burgers(32 if small else 2048), workers(256 if small else 4000)):
        for result in part:
            rows.append(result)
            print(f"{result['test']:>12} {result['grid']:>8} {result['metric']:<24} {result['value']:.3g}", flush=True)
    if not small:
        results.write(RESULTS, rows, machine=results.machine())
        pairs([(title, pdno.generate(eq, 1, 1, noise)) for title, eq, noise in EXAMPLES]).savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
