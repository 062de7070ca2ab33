"""Time and memory of drawing 10⁴ members of one field of 128 × 128 nodes, for each residual law; write results/drawing.json.

Run by ``make bench-drawing``; ONLY names some of the laws. Models are trained for a few steps only, because the time of a
network evaluation does not depend on it. Members are drawn in a stream, so that memory does not depend on their number: the
peak memory of the process is measured for a tenth of the members and for all.
"""

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np

import pdno
from benchmarks.darcy_noise import memory
from benchmarks.measured import Measured
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "drawing.json"
COMMAND = "make bench-drawing"
SIDE = 128
PAIRS = 150
UPDATES = 5
MEMBERS = 10_000
LAWS = {
    "gaussian": MEMBERS,
    "resampled": MEMBERS,
    "copula": MEMBERS,
    "scaled": MEMBERS,
    "statistics": MEMBERS,
    "diffusion": MEMBERS,
}


def pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return smooth inputs, and outputs on one of two branches with white noise: (count, 1, SIDE, SIDE) each."""
    rng = np.random.default_rng(0)
    x = np.pi * (np.arange(SIDE) + 0.5) / SIDE
    waves = np.cos(np.arange(4)[:, None] * x)
    a = np.einsum("nkl,kx,ly->nxy", rng.normal(size=(count, 4, 4)), waves, waves)[:, None]
    branch = np.where(rng.random((count, 1, 1, 1)) < 0.5, 1.0, -1.0)
    return a, branch * (1 + 0.5 * np.tanh(a)) + 0.1 * rng.normal(size=a.shape)


def drawn(model: pdno.PDNO, a: np.ndarray, members: int) -> tuple[float, float]:
    """Draw members of one input; return the seconds, and the peak memory of this process in GB."""
    memory(reset=True)
    begin = perf_counter()
    for _ in model.given(a).stream(members, seed=0):
        pass
    return perf_counter() - begin, memory()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(LAWS), choices=list(LAWS), help="laws")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    options = parser.parse_args()
    a, u = pairs(PAIRS)
    measured = Measured(options.out)
    for law in options.only:
        training = pdno.Training(updates=UPDATES, batch=8)
        model = pdno.PDNO(mean="constant", law=law, training=training, steps=10 if law == "diffusion" else "auto")
        model.fit(a, u, seed=0, progress=False)
        drawn(model, a[:1], 10)  # the first draws include set-up
        count = LAWS[law]
        few, many = (drawn(model, a[:1], number) for number in (count // 10, count))
        key = {"test": law, "grid": f"{SIDE}x{SIDE}", "method": "pdno"}
        fields = {
            **key,
            "train": PAIRS,
            "noise": "gaussian:0.1",
            "members": count,
            "evaluations": model.evaluations(),
            "seed": 0,
        }
        fields |= {"parameters": model.parameters, "evaluations": model.evaluations(), "sample_seconds": many[0]}
        fields["command"] = COMMAND
        values = {"seconds_10000": many[0] * MEMBERS / count, "peak_gigabytes_tenth": few[1], "peak_gigabytes": many[1]}
        measured.add(key, [results.row(name, value, **fields) for name, value in values.items()], budget=None, law=law)
        print(law, values, flush=True)


if __name__ == "__main__":
    main()
