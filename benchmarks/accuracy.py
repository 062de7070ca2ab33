"""The model on the paper's problems, into results/accuracy.json. Run by ``make bench-accuracy``; two hours on two cores.

Each case learns from as many pairs as the paper's (a tenth of them held out, never learned from) and is judged by 100 fresh
inputs: MRLE of the mean against clean outputs, the rest against observations of their own noise. Models are kept in
``runs/accuracy`` and gone on with; ``--only NAME`` makes one case again and leaves the others' rows alone.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import pdno
from benchmarks.problem import Row, row
from pdno.equation import Advection, Burgers, Darcy, Elliptic1D, Equation
from pdno.evaluation import metrics
from pdno.learning.resume import sessions
from pdno.mean import Network
from pdno.mean.network import recipe
from pdno.run import results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "accuracy.json"
MEMBERS = 100
SCORES = ("mrle", "mean_std", "std_over_noise", "crps", "coverage_50", "coverage_90", "coverage_95")


@dataclass(frozen=True)
class Case:
    """An equation, its pairs, the model, and other meshes that its mean operator is judged on."""

    name: str
    eq: Equation
    train: int
    noise: str
    model: Callable[[], pdno.PDNO]
    meshes: tuple[int, ...] = ()


def auto(eq: Equation) -> pdno.PDNO:
    return pdno.PDNO(symmetries=eq.symmetries, kind=eq.grid.axes[0].kind)


def network(eq: Equation, settings: dict[str, Any], minutes: float, points: int | None = None, **loop: Any) -> pdno.PDNO:
    """A network for the mean, for some minutes; what remains is taken as Gaussian."""
    known: dict[str, Any] = {"symmetries": eq.symmetries, "kind": eq.grid.axes[0].kind}
    training = replace(recipe(limited=True), **loop)
    mean = Network(settings, training=training, budget=60 * minutes, points=points, **known)
    return pdno.PDNO("zero", mean=mean, **known)


def cases() -> Iterator[Case]:
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


def learned(case: Case, folder: Path) -> tuple[pdno.PDNO, Any, float | None]:
    """The model, its data, and the seconds that learning took, None if it was there already."""
    data = pdno.generate(case.eq, case.train, 100, case.noise).split(0.1, 0.0)
    path = folder / case.name / "model.safetensors"
    if path.exists():
        model = pdno.load(path)
        assert isinstance(model, pdno.PDNO)
        return model, data, None
    begin = perf_counter()
    model = case.model()
    model.tell = print
    model.learn(data.train, data.validation, run=folder / case.name)
    seconds = max(perf_counter() - begin, sum(sessions(folder / case.name / "mean")))
    model.provenance["seconds"] = seconds
    path.parent.mkdir(parents=True, exist_ok=True)
    model.save(path)
    return model, data, seconds


def judged(case: Case, folder: Path) -> Iterator[Row]:
    model, data, _ = learned(case, folder)
    print("\n".join(model.said), flush=True)
    known: Row = {"method": "pdno", "noise": case.noise, "parameters": model.parameters, "members": MEMBERS}
    known |= {
        "train_seconds": model.provenance.get("seconds"),
        "evaluations": model.evaluations(),
        "command": "make bench-accuracy",
    }
    begin = perf_counter()
    e = pdno.evaluate(model, data, members=MEMBERS, calibrate=0)
    known["sample_seconds"] = perf_counter() - begin
    mean = metrics.mrle(np.asarray(model.mean(data.test.a)), data.test.u)
    paper = results.paper(case.eq.name, str(case.eq.grid), case.noise, "mrle")
    yield row(case.eq, "mrle_mean_operator", mean.value, case.train, **known, error=mean.error, paper=paper)
    for name in SCORES:
        if name in e.scores:
            yield row(case.eq, name, e.scores[name].value, case.train, **known, error=e.scores[name].error)
    for points in case.meshes:
        finer = type(case.eq)(points=points)  # type: ignore[call-arg]
        test = pdno.generate(finer, 1, 100, case.noise).test
        assert model.parts is not None
        score = metrics.mrle(model.parts.mean(test.a), test.u)
        paper = results.paper(finer.name, str(finer.grid), case.noise, "mrle")
        yield row(finer, "mrle_mean_operator", score.value, case.train, **known, error=score.error, paper=paper)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "accuracy", help="for models")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="cases, as " + ", ".join(c.name for c in cases()))
    options = parser.parse_args()
    for case in cases():
        if options.only and case.name not in options.only:
            continue
        rows = list(judged(case, options.folder))
        for made in rows:
            print(f"{case.name:>16} {made['grid']:>8} {made['metric']:<20} {made['value']:.4g}", flush=True)
        keys = {(r["test"], r["grid"], r["noise"]) for r in rows}
        old = results.read(RESULTS)["rows"] if RESULTS.exists() else []
        kept = [r for r in old if (r["test"], r["grid"], r["noise"]) not in keys]
        results.write(
            RESULTS,
            sorted(kept + rows, key=lambda r: (r["test"], r["noise"], int(r["grid"].split("x")[0]))),
            machine=results.machine(),
        )


if __name__ == "__main__":
    main()
