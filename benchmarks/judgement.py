"""What judgement itself is worth, into results/judgement.json. Run by ``make bench-judgement``; some twenty minutes.

Memory for 10⁴ members × 100 inputs × 128²; how often the flag for unfamiliar inputs is raised, for the same law and for
another; how often a perfect forecaster is accused, and a flawed one is not.
"""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import pdno
from benchmarks.problem import Row
from pdno.data.spaces import Frame
from pdno.equation import Advection, Burgers, Darcy, Elliptic1D, Equation
from pdno.evaluation.calibration import diagnose, pit
from pdno.evaluation.novelty import Novelty
from pdno.evaluation.scoring import evaluate
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "judgement.json"
COMMAND = "make bench-judgement"
MEMBERS, INPUTS, POINTS = 10_000, 100, 128


class Known:
    """A forecaster of a known law: u | a ~ N(a, 1) at each point."""

    name, parameters, deterministic, novelty = "known", 0, False, None

    def __init__(self, pairs: pdno.Pairs) -> None:
        self.frame, self.provenance = Frame.of(pairs), {"pairs": 0}

    def fitted(self) -> Frame:
        return self.frame

    def evaluations(self, **how: Any) -> int:
        return 0

    def stream(
        self, a: np.ndarray, scalars: Any = None, members: int = 1, seed: int = 0, chunk: Any = None, start: int = 0
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        rng = np.random.default_rng((seed, start))
        for i, field in enumerate(a):
            for first in range(0, members, 50):
                numbers = np.arange(first, min(first + 50, members))
                eta = rng.standard_normal((len(numbers), *field.shape), dtype=np.float32)
                yield np.full(len(numbers), i), numbers, field + eta.astype(np.float64)


def large() -> Iterator[Row]:
    """Peak memory of the process, and whether what was found is true."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal((INPUTS, 1, POINTS, POINTS))
    pairs = pdno.Pairs.of(a, a, u_eta=a + rng.standard_normal(a.shape))
    before, begin = _peak(), perf_counter()
    e = evaluate(Known(pairs), pairs, members=MEMBERS)  # type: ignore[arg-type]
    known = {
        "test": "known law",
        "method": "judgement",
        "grid": f"{POINTS}x{POINTS}",
        "members": MEMBERS,
        "noise": "gaussian:1",
    }
    known |= {"seed": 0, "command": COMMAND, "sample_seconds": perf_counter() - begin}
    yield results.row("judged_gigabytes", _peak(), **known)
    yield results.row("judged_gigabytes_before", before, **known)
    for metric, truth in (("crps", 1 / np.sqrt(np.pi)), ("coverage_90", 0.9)):
        yield results.row(f"{metric}_over_truth", e.scores[metric].value / truth, **known)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


LAWS: tuple[tuple[Equation, str, Callable[[int, int], np.ndarray]], ...] = (
    (Burgers(points=256), "doubled amplitude", lambda n, s: 2 * Burgers(points=256).sample_input(n, seed=s)),
    (Burgers(points=256), "halved amplitude", lambda n, s: Burgers(points=256).sample_input(n, seed=s) / 2),
    (Darcy(points=64), "tau = 9 for 3", lambda n, s: Darcy(points=64, tau=9).sample_input(n, seed=s)),
    (Darcy(points=64), "tau = 5 for 3", lambda n, s: Darcy(points=64, tau=5).sample_input(n, seed=s)),
    (Elliptic1D(), "log_scale .2 for .1", lambda n, s: Elliptic1D(log_scale=0.2).sample_input(n, seed=s)),
    (Advection(), "tau = 50 for 100", lambda n, s: Advection(tau=50).sample_input(n, seed=s)),
)


def unfamiliar() -> Iterator[Row]:
    """Shares of 1000 fresh inputs that are flagged, of the same and of another law, by what 1000 inputs tell."""
    told: set[str] = set()
    for eq, what, other in LAWS:
        novelty = Novelty.halves(eq.sample_input(1000, seed=0))
        assert novelty is not None
        same = {} if eq.name in told else {"same law": eq.sample_input(1000, seed=2)}
        told.add(eq.name)
        for name, inputs in (same | {what: other(1000, 3)}).items():
            flagged = novelty.flag(inputs)
            error = float(flagged.std() / np.sqrt(len(flagged)))
            known = {"test": f"{eq.name}, {name}", "grid": str(eq.grid), "train": 1000, "error": error, "seed": 0}
            yield results.row("flagged", flagged.mean(), method="novelty", command=COMMAND, **known)


def accused(seeds: int = 1000) -> Iterator[Row]:
    """Shares of 1000 judgements by 50 fields of 32 points that find something, at a stated false-alarm rate of 1 %."""
    flaws: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
        "perfect": lambda rng, shape: rng.normal(size=shape),
        "biased by .25 σ": lambda rng, shape: 0.25 + rng.normal(size=shape),
        "25 % too narrow": lambda rng, shape: 0.75 * rng.normal(size=shape),
        "25 % too wide": lambda rng, shape: 1.25 * rng.normal(size=shape),
        "Laplace for Gauss": lambda rng, shape: rng.laplace(size=shape) / np.sqrt(2),
    }
    for name, draw in flaws.items():
        found = 0
        for seed in range(seeds):
            rng = np.random.default_rng((seed, 7))
            u = rng.normal(size=(50, 1, 32))
            found += not diagnose(pit(draw(rng, (20, *u.shape)), u, seed=seed)).honest
        share = found / seeds
        known = {"test": name, "members": 20, "error": float(np.sqrt(share * (1 - share) / seeds)), "seed": 0}
        yield results.row("accused", share, method="diagnosis", grid="32", command=COMMAND, **known)


def main() -> None:
    rows: list[Row] = []
    for part in (unfamiliar(), accused(), large()):
        for row in part:
            rows.append(row)
            print(f"{row['test']:<28} {row['grid']:>8} {row['metric']:<24} {row['value']:.4g}", flush=True)
    results.write(RESULTS, rows, machine=results.machine())


if __name__ == "__main__":
    main()
