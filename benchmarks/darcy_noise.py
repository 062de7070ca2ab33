"""Learn the paper's noisy Darcy test and write the recovered noise to results/darcy_noise.json, with a figure for each model.

Run by ``make bench-darcy-noise``; BUDGET is the training time of each model in seconds, ONLY names some of the cases, POINTS
lists points per axis. 1000 pairs have the noise η of Case 1 (three components) or Case 2 (four) of the paper, with one
component for each field or for each point. The model is the default with the symmetries of the equation. Measured are the
error of its mean against clean outputs, and, for two test inputs, the distribution of 10⁴ members at the centre: lengths there
are in units of α, the scale of the noise. A model that was measured with the same budget is not measured again, unless AGAIN=1.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.stats import wasserstein_distance

import pdno
from benchmarks.measured import Measured
from pdno._typing import Array, Floats
from pdno.data.dataset import Dataset
from pdno.evaluation import metrics
from pdno.evaluation.density import density
from pdno.noise import GaussianMixture
from pdno.plot.paper import noise_distribution
from pdno.run import results

ROOT = Path(__file__).parents[1] / "results"
COMMAND = "make bench-darcy-noise"
PAIRS = 1000
TEST = 20  # test inputs on which the mean is measured
MEAN_MEMBERS = 500  # for each of them
INPUTS = 2  # test inputs whose noise is measured
MEMBERS = 10_000  # for each of them
DRAWS = 1_000_000  # of the true distribution, with which members are compared
EM_STEPS = 300
LEAST_STD = 0.03  # in units of α, of components before the first step, which may be shifted by the mean's own error
FINE = 4096  # points of the density in the figure
SEED = 0


@dataclass(frozen=True)
class Components:
    """A Gaussian mixture of one variable in units of α, (component,) each."""

    weights: Floats
    means: Floats
    stds: Floats

    @classmethod
    def of(cls, noise: GaussianMixture) -> "Components":
        """Return the components of the noise at a point."""
        return cls(np.array(noise.weights), np.array(noise.means), np.array(noise.stds))

    def pdf(self, x: Floats) -> Floats:
        """Return the density at points x."""
        return np.asarray(np.exp(self._logs(x)).sum(axis=1))

    def draw(self, count: int) -> Floats:
        """Return draws, (count,)."""
        rng = np.random.default_rng(SEED)
        k = rng.choice(len(self.weights), count, p=self.weights)
        return np.asarray(self.means[k] + self.stds[k] * rng.standard_normal(count))

    def fitted(self, x: Floats) -> "Components":
        """Return the components of draws x by expectation–maximisation, which starts from these components."""
        now = replace(self, stds=np.maximum(self.stds, LEAST_STD))
        for _ in range(EM_STEPS):
            logs = now._logs(x)
            share = np.exp(logs - logs.max(axis=1, keepdims=True))
            share /= share.sum(axis=1, keepdims=True)
            total = np.maximum(share.sum(axis=0), 1e-12)
            means = x @ share / total
            stds = np.sqrt((share * (x[:, None] - means) ** 2).sum(axis=0) / total)
            now = Components(total / len(x), means, np.maximum(stds, 1e-6))
        return now

    def _logs(self, x: Floats) -> Floats:
        """Return the log-density of each component, with its weight, (draw, component)."""
        z = (x[:, None] - self.means) / self.stds
        return np.asarray(np.log(self.weights / self.stds) - 0.5 * z**2 - 0.5 * np.log(2 * np.pi))


CASES = {
    f"case-{number}{suffix}": replace(GaussianMixture.case(number), shared=shared)
    for suffix, shared in (("", True), ("-per-point", False))
    for number in (1, 2)
}


def training_components(noise: GaussianMixture, pairs: int, points: int) -> Components:
    """Return the components of the noise with the weights of the training set, which are its own if points differ."""
    true = Components.of(noise)
    if not noise.shared:
        return true
    average = [noise.sample((1, 1, points, points), SEED, i).mean() / noise.scale for i in range(pairs)]
    nearest = np.abs(np.array(average)[:, None] - true.means).argmin(axis=1)
    return replace(true, weights=np.bincount(nearest, minlength=len(true.weights)) / pairs)


def centre(model: pdno.PDNO, a: Array, number: int, members: int) -> tuple[Floats, float, float]:
    """Draw members at the centre of one input, with the memory of one call.

    Args:
        model: trained.
        a: inputs, (sample, 1, points, points).
        number: of the input.
        members: to draw.

    Returns:
        The values (member,), seconds, and peak memory beside that of model and data in GB.
    """
    middle, values = a.shape[-1] // 2, np.empty(members)
    before, begin = memory(reset=True), perf_counter()
    for _, numbers, fields in model.given(a[number : number + 1]).stream(members, seed=SEED, start=number):
        values[numbers] = fields[:, 0, middle, middle]
    return values, perf_counter() - begin, memory() - before


def memory(reset: bool = False) -> float:
    """Return the peak memory of this process in GB since the last reset; NaN if the system does not tell."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return float(next((line.split()[1] for line in lines if line.startswith("VmHWM")), "nan")) / 2**20


def mean_errors(model: pdno.PDNO, data: Dataset) -> dict[str, float]:
    """Return the error of m(a), and that of the mean of the members, corrected for their number."""
    a, u = data.test.a, data.test.u
    prediction = model.predict(a, MEAN_MEMBERS, seed=SEED, quantiles=(), progress=False)
    noise = 0.0 if model.given(a).mean is not None else prediction.std**2 / MEAN_MEMBERS
    square, size = metrics.per_sample((prediction.mean - u) ** 2 - noise), metrics.per_sample(u**2)
    debiased = np.sqrt(np.maximum(square, 0.0) / size).mean()
    return {"mrle_mean_model": metrics.mrle(model.fitted.mean(a), u).value, "mrle_debiased": float(debiased)}


def recovered(values: Floats, training: Components, true: Components) -> dict[str, float]:
    """Return the components of members at the centre, and their distances from the true distribution, in units of α.

    Args:
        values: η/α of the members.
        training: components with the weights of the training set.
        true: components with the weights of the noise.
    """
    fit = training.fitted(values)
    parts = {
        f"{name}_{k + 1}": getattr(fit, f"{name}s")[k] for k in range(len(fit.weights)) for name in ("weight", "mean", "std")
    }
    return {
        **parts,
        "weight_error": np.abs(fit.weights - training.weights).max(),
        "w1": wasserstein_distance(values, true.draw(DRAWS)),
        "w1_training": wasserstein_distance(values, training.draw(DRAWS)),
    }


def measure(name: str, points: int, budget: float, pairs: int, members: int, folder: Path) -> tuple[Any, pdno.PDNO]:
    """Train a model, measure its noise, and plot it; return the rows and the model."""
    noise, equation = CASES[name], pdno.equation.Darcy(points=points)
    data = pdno.generate(equation, train=pairs, test=TEST, noise=noise, seed=SEED)
    begin = perf_counter()
    model = pdno.PDNO(budget=budget, symmetries=equation.symmetries)
    model.fit(data.train.a, data.train.u, seed=SEED, progress=False)
    fields = {"test": name, "method": "pdno", "grid": f"{points}x{points}", "train": pairs, "noise": noise.spec}
    fields |= {"evaluations": model.evaluations(), "parameters": model.parameters, "seed": SEED, "command": COMMAND}
    fields |= {"train_seconds": perf_counter() - begin}
    training, true = training_components(noise, pairs, points), Components.of(noise)
    found = {f"training_weight_{k + 1}": weight for k, weight in enumerate(training.weights)} | mean_errors(model, data)
    rows, panels, middle = [results.row(metric, value, **fields) for metric, value in found.items()], [], points // 2
    for i in range(INPUTS):
        values, seconds, peak = centre(model, data.test.a, i, members)
        clean = data.test.u[i, 0, middle, middle]
        eta = (values - clean) / noise.scale
        numbers = recovered(eta, training, true) | {"peak_gigabytes": peak, "members_error": eta.mean()}
        own = model.fitted.mean(data.test.a[i : i + 1])[0, 0, middle, middle]
        numbers |= {"mean_error": (own - clean) / noise.scale}
        more = {**fields, "members": members, "sample_seconds": seconds}
        rows += [results.row(f"input_{i + 1}_{metric}", value, **more) for metric, value in numbers.items()]
        estimate = density(eta, FINE)
        panels.append((f"{name}, input {i + 1}, in α", estimate.x, true.pdf(estimate.x), estimate.density, eta))
    short = name.replace("case-", "case").replace("-", "_")
    noise_distribution(panels).savefig(folder / f"darcy_noise_{short}_{points}.png", dpi=120)
    return rows, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=1200.0, help="training time of each model in seconds")
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES), help="cases")
    parser.add_argument("--points", nargs="*", type=int, default=[64], help="points per axis")
    parser.add_argument("--again", action="store_true", help="measure also what has been measured with this budget")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="training pairs")
    parser.add_argument("--members", type=int, default=MEMBERS, help="members at the centre")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "darcy_noise.json", help="file of the results; figures are beside it"
    )
    options = parser.parse_args()
    measured = Measured(options.out)
    for points in options.points:
        for name in options.only:
            key = {"test": name, "grid": f"{points}x{points}", "method": "pdno"}
            if measured.has(key, options.budget) and not options.again:
                print(name, points, "was measured", flush=True)
                continue
            rows, model = measure(name, points, options.budget, options.pairs, options.members, options.out.parent)
            law, summary = model.fitted.residual.name, model.fit_summary
            measured.add(key, rows, budget=options.budget, law=law, summary=summary)
            print(name, points, law, *summary, sep="\n    ", flush=True)
            print("   ", {row["metric"]: round(row["value"], 4) for row in rows}, flush=True)


if __name__ == "__main__":
    main()
