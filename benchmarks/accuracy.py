"""Measure the accuracy on the paper's problems and write it to results/accuracy.json.

Run by ``make bench-accuracy``; it takes two hours on two cores.

Each case has as many pairs as in the paper; a tenth of them is held out for validation. The MRLE of the mean model is against
the clean outputs of 100 test inputs, all other scores are against observations with independent noise. Models are saved in
``runs/accuracy``; an unfinished one is resumed. ``--only NAME`` runs some cases again and keeps the rows of the others.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import pdno
from benchmarks.problem import Row, row
from pdno.data.dataset import Dataset
from pdno.equation import Advection, Burgers, Darcy, Elliptic1D, Equation
from pdno.evaluation import metrics
from pdno.learning.resume import session_seconds
from pdno.mean import Network
from pdno.mean.network import recipe
from pdno.model.operator import PDNO
from pdno.run import results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "accuracy.json"
TEST_INPUTS = 100
MEMBERS = 100  # for each test input
SCORES = ("mrle", "mean_std", "std_noise_ratio", "crps", "coverage_50", "coverage_90", "coverage_95")


@dataclass(frozen=True)
class Case:
    """A problem, the model for it, and further meshes on which its mean model is evaluated.

    Args:
        name: of the case.
        eq: the equation.
        train: number of pairs, those for validation included.
        noise: as on the command line.
        model: returns a new model.
        meshes: points of the further meshes.
    """

    name: str
    eq: Equation
    train: int
    noise: str
    model: Callable[[], pdno.PDNO]
    meshes: tuple[int, ...] = ()


def auto(eq: Equation) -> pdno.PDNO:
    """Return the default model."""
    return pdno.PDNO(symmetries=eq.symmetries, kind=eq.grid.axes[0].kind)


def network(eq: Equation, settings: dict[str, Any], minutes: float, points: int | None = None, **loop: Any) -> pdno.PDNO:
    """Return a model whose mean is a network, trained for some minutes, with Gaussian residuals: no diffusion."""
    shared: dict[str, Any] = {"symmetries": eq.symmetries, "kind": eq.grid.axes[0].kind}
    training = replace(recipe(), **loop)
    mean = Network(settings, training=training, budget=60 * minutes, points=points, **shared)
    return pdno.PDNO(mean=mean, law="gaussian", **shared)


def cases() -> Iterator[Case]:
    """Yield all cases."""
    for points in (256, 512, 1024):
        advection = Advection(points=points)
        yield Case(f"advection-{points}", advection, 1500, "none", partial(auto, advection))
    yield Case("advection-noisy", advection := Advection(points=256), 10000, "gaussian:0.5", partial(auto, advection))
    for sigma in ("0.01", "0.05", "1"):
        yield Case(f"elliptic1d-{sigma}", Elliptic1D(), 10000, f"gaussian:{sigma}", partial(auto, Elliptic1D()))
    burgers = Burgers(points=512)
    spectral = partial(network, burgers, {"kind": "spectral"}, 20, 128, rate=3e-3, batch=32)
    yield Case("burgers", burgers, 1024, "none", spectral, (1024, 2048))
    for points, minutes in ((64, 30), (128, 20), (256, 20)):
        eq = Darcy(points=points)
        yield Case(f"darcy-{points}", eq, 1000, "none", partial(network, eq, {"kind": "slim", "patch": points // 32}, minutes))


def trained(case: Case, folder: Path) -> tuple[PDNO, Dataset]:
    """Return the model, loaded if it was trained before, and its data."""
    data = pdno.generate(case.eq, case.train, TEST_INPUTS, case.noise).split(0.1, 0.0)
    path = folder / case.name / "model.safetensors"
    if path.exists():
        loaded = pdno.load(path)
        if not isinstance(loaded, PDNO):
            raise TypeError(f"{path} holds a {type(loaded).__name__}, expected a PDNO")
        return loaded, data
    begin, model = perf_counter(), case.model()
    model.log = print
    model.learn(data.train, data.validation, run=folder / case.name)
    model.annotate(seconds=max(perf_counter() - begin, sum(session_seconds(folder / case.name / "mean"))))
    model.save(path)
    return model, data


def evaluated(case: Case, folder: Path) -> Iterator[Row]:
    """Yield the rows of a case."""
    model, data = trained(case, folder)
    print("\n".join(model.fit_summary), flush=True)
    fields: Row = {"method": "pdno", "noise": case.noise, "parameters": model.parameters, "members": MEMBERS}
    fields |= {"train_seconds": model.provenance.get("seconds"), "evaluations": model.evaluations()}
    begin = perf_counter()
    e = pdno.evaluate(model, data, members=MEMBERS, calibrate=0)
    fields |= {"sample_seconds": perf_counter() - begin, "command": "make bench-accuracy"}
    yield mean_row(case.eq, model, data, case, fields)
    for name in SCORES:
        if name in e.scores:
            yield row(case.eq, name, e.scores[name].value, case.train, **fields, error=e.scores[name].error)
    for points in case.meshes:
        finer = type(case.eq)(points=points)  # type: ignore[call-arg]
        yield mean_row(finer, model, pdno.generate(finer, 1, TEST_INPUTS, case.noise), case, fields)


def mean_row(eq: Equation, model: PDNO, data: Dataset, case: Case, fields: Row) -> Row:
    """Return the row with the MRLE of the mean model on the test inputs, on any mesh, beside that of the paper's PDNO."""
    score = metrics.mrle(model.fitted.mean(data.test.a), data.test.u)
    paper = results.paper(eq.name, str(eq.grid), case.noise, "mrle")
    return row(eq, "mrle_mean_model", score.value, case.train, **fields, error=score.error, paper=paper)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "accuracy", help="for models")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="cases: " + ", ".join(c.name for c in cases()))
    options = parser.parse_args()
    for case in cases():
        if options.only and case.name not in options.only:
            continue
        rows = list(evaluated(case, options.folder))
        for new in rows:
            print(f"{case.name:>16} {new['grid']:>8} {new['metric']:<20} {new['value']:.4g}", flush=True)
        keys = {(r["test"], r["grid"], r["noise"]) for r in rows}
        old = results.read(RESULTS)["rows"] if RESULTS.exists() else []
        kept = [r for r in old if (r["test"], r["grid"], r["noise"]) not in keys]
        ordered = sorted(kept + rows, key=lambda r: (r["test"], r["noise"], int(r["grid"].split("x")[0])))
        results.write(RESULTS, ordered, machine=results.machine())


if __name__ == "__main__":
    main()
