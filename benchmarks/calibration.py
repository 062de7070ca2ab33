"""Measure the evaluation itself, into results/calibration.json. Run by ``make bench-calibration``; about twenty minutes.

Memory for 10⁴ members × 100 inputs × 128² points; the fraction of inputs flagged as out of distribution, for the training
distribution and for others; the rejection rate of the calibration test, for calibrated and for miscalibrated predictions.
"""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import numpy as np

import pdno
from benchmarks.known import Known
from benchmarks.problem import Row
from pdno._typing import Array, Floats
from pdno.equation import Advection, Burgers, Darcy, Elliptic1D, Equation
from pdno.evaluation.calibration import diagnose, pit
from pdno.evaluation.novelty import Novelty
from pdno.evaluation.scoring import evaluate
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "calibration.json"
COMMAND = "make bench-calibration"
MEMBERS = 10_000  # of the large ensembles
INPUTS = 100  # likewise
POINTS = 128  # along each axis, likewise


def white(members: int, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Return independent noise of unit variance, (member, *shape)."""
    return rng.standard_normal((members, *shape), dtype=np.float32).astype(np.float64)


def large_ensembles() -> Iterator[Row]:
    """Measure peak memory and accuracy of the evaluation of large ensembles."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal((INPUTS, 1, POINTS, POINTS))
    pairs = pdno.Pairs.of(a, a, u_eta=a + rng.standard_normal(a.shape))
    before, begin = _peak(), perf_counter()
    e = evaluate(Known(pairs, white), pairs, members=MEMBERS)
    common = {
        "test": "known distribution",
        "method": "evaluation",
        "grid": f"{POINTS}x{POINTS}",
        "members": MEMBERS,
        "noise": "gaussian:1",
    }
    common |= {"seed": 0, "command": COMMAND, "sample_seconds": perf_counter() - begin}
    yield results.row("peak_gigabytes", _peak(), **common)
    yield results.row("peak_gigabytes_before", before, **common)
    for metric, truth in (("crps", 1 / np.sqrt(np.pi)), ("coverage_90", 0.9)):
        yield results.row(f"{metric}_ratio", e.scores[metric].value / truth, **common)


def _peak() -> float:
    """Return the peak memory of this process in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


SHIFTS: tuple[tuple[Equation, str, Callable[[int, int], Array]], ...] = (  # training distribution, name and draws of another
    (Burgers(points=256), "doubled amplitude", lambda n, s: 2 * Burgers(points=256).sample_input(n, seed=s)),
    (Burgers(points=256), "halved amplitude", lambda n, s: Burgers(points=256).sample_input(n, seed=s) / 2),
    (Darcy(points=64), "tau = 9 for 3", lambda n, s: Darcy(points=64, tau=9).sample_input(n, seed=s)),
    (Darcy(points=64), "tau = 5 for 3", lambda n, s: Darcy(points=64, tau=5).sample_input(n, seed=s)),
    (Elliptic1D(), "log_scale .2 for .1", lambda n, s: Elliptic1D(log_scale=0.2).sample_input(n, seed=s)),
    (Advection(), "tau = 50 for 100", lambda n, s: Advection(tau=50).sample_input(n, seed=s)),
)


def novelty_scores() -> Iterator[Row]:
    """Measure the fraction of 1000 new inputs that are flagged, from the training and from other distributions."""
    done: set[str] = set()
    for eq, name, other in SHIFTS:
        novelty = Novelty.halves(eq.sample_input(1000, seed=0))
        if novelty is None:
            continue
        inputs = {} if eq.name in done else {"same distribution": eq.sample_input(1000, seed=2)}
        done.add(eq.name)
        for label, a in (inputs | {name: other(1000, 3)}).items():
            flagged = novelty.flag(a)
            error = float(flagged.std() / np.sqrt(len(flagged)))
            common = {"test": f"{eq.name}, {label}", "grid": str(eq.grid), "train": 1000, "error": error, "seed": 0}
            yield results.row("ood_fraction", flagged.mean(), method="novelty", command=COMMAND, **common)


def rejections(seeds: int = 1000) -> Iterator[Row]:
    """Measure the rejection rate of 1000 diagnoses of 50 fields of 32 points, at a nominal false-positive rate of 1 %."""
    predictions: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
        "perfect": lambda rng, shape: rng.normal(size=shape),
        "biased by .25 σ": lambda rng, shape: 0.25 + rng.normal(size=shape),
        "25 % too narrow": lambda rng, shape: 0.75 * rng.normal(size=shape),
        "25 % too wide": lambda rng, shape: 1.25 * rng.normal(size=shape),
        "Laplace for Gauss": lambda rng, shape: rng.laplace(size=shape) / np.sqrt(2),
    }
    for name, draw in predictions.items():
        rejected = 0
        for seed in range(seeds):
            rng = np.random.default_rng((seed, 7))
            u = rng.normal(size=(50, 1, 32))
            rejected += not diagnose(pit(draw(rng, (20, *u.shape)), u, seed=seed)).passed
        rate = rejected / seeds
        common = {"test": name, "members": 20, "error": float(np.sqrt(rate * (1 - rate) / seeds)), "seed": 0}
        yield results.row("rejection_rate", rate, method="diagnosis", grid="32", command=COMMAND, **common)


def main() -> None:
    rows: list[Row] = []
    for part in (novelty_scores(), rejections(), large_ensembles()):
        for row in part:
            rows.append(row)
            print(f"{row['test']:<28} {row['grid']:>8} {row['metric']:<24} {row['value']:.4g}", flush=True)
    results.write(RESULTS, rows, machine=results.machine())


if __name__ == "__main__":
    main()
