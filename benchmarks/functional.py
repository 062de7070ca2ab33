r"""Diffusion in function space: train on one grid, draw on finer ones; write results/functional.json.

Run by ``make bench-functional``: a quarter of an hour of one core. Two problems, each on a coarse grid for training and on
grids with two and four times as many points per axis:

    line    u = tanh a + G a + .3 ξ,  periodic, 64 points
    plane   the same with cosines, 16 × 16 cell centres

a has a few modes, G divides the coefficient of each mode by 1 + |ω|, and ξ is a smooth Gaussian field of unit variance. Scores
are those of members relative to draws of the truth on the same grid. A model is trained for a number of updates, not of
seconds, and its times are processor seconds: other jobs on the machine do not matter. "Equal time" stands for as many updates
as take the processor time of those of the operator. A model that was measured is not measured again, unless AGAIN=1;
ONLY='line plane' and METHODS='NAME …' select some.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import pdno
from benchmarks.measured import Measured
from pdno._typing import Array
from pdno.basis import low_modes, wavenumbers
from pdno.diffusion import White
from pdno.evaluation import metrics
from pdno.nn.layers import STEP_WIDTH, sinusoid
from pdno.residual import Inputs
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "functional.json"
PAIRS = 2000
UPDATES = 300
VALUES = 2**13  # of a batch, at most; and at most 64 pairs
TRAINING = pdno.Training(updates=UPDATES, rate=2e-3, weight_decay=1e-3, ema=0.99, validations=0)
STEPS = 10  # of the sampler
NOISE = 0.3  # standard deviation of the noise
COMMAND = "make bench-functional"


@dataclass(frozen=True)
class Problem:
    """A distribution of functions, which can be evaluated on any grid.

    Args:
        points: of the training grid, one for each axis.
        periodic: whether the axes are periodic; otherwise functions are sums of cosines at cell centres.
        low, high: number of modes of a, and of all functions, along each axis.
        length: correlation length of the noise.
        base: trace-class base distribution.
        network: settings of the operator.
        inputs, members: number of test inputs, and of members of each.
    """

    points: tuple[int, ...]
    periodic: bool
    low: int
    high: int
    length: float
    base: pdno.Field
    network: dict[str, Any]
    inputs: int
    members: int

    @property
    def training(self) -> pdno.Training:
        """Settings of the training loop."""
        return replace(TRAINING, batch=min(64, VALUES // int(np.prod(self.points))))

    def waves(self) -> Array:
        """Return |ω| of each mode: (*modes,)."""
        each = np.square(wavenumbers(self.high, "periodic" if self.periodic else "neumann"))
        return np.asarray(np.sqrt(sum(np.ix_(*(each,) * len(self.points)), start=np.zeros((self.high,) * len(self.points)))))

    def draw_inputs(self, count: int, rng: np.random.Generator) -> Array:
        """Return the coefficients of a: (count, *modes)."""
        size = np.zeros(self.waves().shape)
        low = (slice(self.low),) * len(self.points)
        size[low] = 1 / (1 + self.waves()[low])
        size[(0,) * len(self.points)] = 0.0
        size /= np.sqrt(np.square(size).sum())
        return size * rng.standard_normal((count, *size.shape))

    def draw_noise(self, count: int, rng: np.random.Generator) -> Array:
        """Return the coefficients of .3 ξ: (count, *modes)."""
        size = np.exp(-np.square(self.length * self.waves()) / 4)
        return np.asarray(NOISE * size / np.sqrt(np.square(size).sum()) * rng.standard_normal((count, *size.shape)))

    def fields(self, c: Array, points: tuple[int, ...]) -> Array:
        """Return the functions with these coefficients on a grid: (…, *modes) → (…, *grid)."""
        for axis, n in enumerate(points):
            basis = low_modes(n, self.high, self.periodic)
            c = np.moveaxis(np.moveaxis(c, axis - len(points), -1) @ basis, -1, axis - len(points))
        return c

    def modes(self, u: Array) -> Array:
        """Return the coefficients of fields on the training grid: (…, *grid) → (…, *modes)."""
        for axis, n in enumerate(self.points):
            basis = low_modes(n, self.high, self.periodic).T / n
            u = np.moveaxis(np.moveaxis(u, axis - len(self.points), -1) @ basis, -1, axis - len(self.points))
        return u

    def outputs(self, a: Array, noise: Array, points: tuple[int, ...]) -> Array:
        """Return u on a grid, from the coefficients of a and of the noise."""
        return np.tanh(self.fields(a, points)) + self.fields(a / (1 + self.waves()) + noise, points)


PROBLEMS = {
    "line": Problem(
        (64,),
        True,
        11,
        33,
        0.1,
        pdno.Field(tau=5, r=1.5, condition="periodic"),
        {"modes": 33, "width": 32, "layers": 3},
        64,
        24,
    ),
    "plane": Problem((16, 16), False, 4, 12, 0.2, pdno.Field(tau=5, r=2), {"modes": 8, "width": 24, "layers": 3}, 16, 10),
}


class Coefficients(nn.Module):
    """A network of coefficients: (n, v, a) ↦ prediction, all (batch, 1, mode)."""

    def __init__(self, modes: int, width: int = 256, layers: int = 3) -> None:
        super().__init__()
        self.lift = nn.Linear(2 * modes + STEP_WIDTH, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(layers)
        )
        self.out = nn.Linear(width, modes)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, n: Tensor, v: Tensor, a: Tensor) -> Tensor:
        y = self.lift(torch.cat([v[:, 0], a[:, 0], sinusoid(n, STEP_WIDTH, v.dtype)], 1))
        for layer in self.layers:
            y = y + layer(y)
        out: Tensor = self.out(y)
        return out[:, None]


Members = Callable[[Array, tuple[int, ...], int], Array]  # coefficients of a, grid and number ↦ (member, sample, *grid)


def in_function_space(
    problem: Problem, target: Any, base: Any, network: Any = "operator", interpolated: bool = False, **settings: Any
) -> tuple[Any, Any]:
    """Return an untrained diffusion of fields, and the function that trains it.

    Args:
        problem: to be learned.
        target, base: of the diffusion.
        network: kind of the network.
        interpolated: whether members of the training grid are interpolated, for a network that is no operator.
        settings: of `pdno.PDNO`, in place of others.
    """
    diffusion = pdno.Diffusion(pdno.Schedule.geometric(100, 0.01, 40.0), base, target)
    own = {"kind": network, **problem.network} if network == "operator" else network
    kind = "periodic" if problem.periodic else "cell"
    given = {"diffusion": diffusion, "training": problem.training, "sampler": "dpm", "steps": STEPS, "kind": kind, **settings}
    model = pdno.PDNO(own, mean=None, **given)

    def train(a: Array, u: Array) -> Members:
        model.fit(problem.fields(a, problem.points)[:, None], u[:, None], seed=0, progress=False)
        law = model.fitted

        def members(a: Array, points: tuple[int, ...], count: int) -> Array:
            if interpolated:
                return np.asarray(model.sample(problem.fields(a, points)[:, None], count, seed=0))[:, :, 0]
            level = law.mean.normalisation.mean  # type: ignore[attr-defined]
            inputs = Inputs(problem.fields(a, points)[:, None], np.broadcast_to(level, (len(a), 1, *points)))
            return np.asarray((inputs.mean + law.residual.members(inputs, np.arange(len(a)), count, 0, 0))[:, :, 0])

        return members

    return model, train


def in_spectral_space(problem: Problem, updates: int = UPDATES) -> tuple[Any, Any]:
    """Return an untrained diffusion of coefficients, each scaled to unit variance, and the function that trains it."""
    size = problem.high ** len(problem.points)
    diffusion = pdno.Diffusion(pdno.Schedule.geometric(100, 0.01, 40.0), White(), "v")
    training = replace(problem.training, updates=updates)
    model = pdno.PDNO(
        Coefficients(size), diffusion, mean=None, training=training, sampler="dpm", steps=STEPS, normalise="pointwise"
    )

    def train(a: Array, u: Array) -> Members:
        model.fit(a.reshape(len(a), 1, -1), problem.modes(u).reshape(len(u), 1, -1), seed=0, progress=False)

        def members(a: Array, points: tuple[int, ...], count: int) -> Array:
            drawn = model.sample(a.reshape(len(a), 1, -1), count, seed=0)
            return problem.fields(drawn.reshape(count, len(a), *a.shape[1:]), points)

        return members

    return model, train


FNO = "FNO, ε, white"
PAPER: dict[str, Any] = {  # of a network that predicts ε, in the paper's chain
    "diffusion": pdno.Diffusion(pdno.Schedule.cosine(100), White(), "eps"),
    "sampler": "ancestral",
    "variance": "gaussian",
    "steps": 100,
}


def fno(problem: Problem) -> dict[str, Any]:
    """Return the settings of a Fourier neural operator, with 16 modes if the training grid has them."""
    return {"kind": "fno", "modes": min(16, problem.points[0] // 2), "width": 32}


U_SHAPE = {"kind": "unet", "base": 16, "multipliers": (1, 2, 4)}  # that of the paper, smaller


EQUAL_TIME = {  # updates that take at least as long as UPDATES of the operator, or nearly, by network and dimension
    ("spectral", 1): 900,
    ("none", 1): 180,
    ("all", 1): 90,
    ("spectral", 2): 1800,
    ("none", 2): 180,
    ("all", 2): 90,
}


def u_shape(problem: Problem, attention: str) -> tuple[Any, Any]:
    """Return an untrained diffusion with a UNet and the best settings of the operator, and the function that trains it."""
    training = replace(problem.training, updates=EQUAL_TIME[attention, len(problem.points)])
    network = {**U_SHAPE, "attention": attention}
    return in_function_space(problem, "u0", problem.base, network, True, training=training)


METHODS: dict[str, Callable[[Problem], tuple[Any, Any]]] = {
    FNO: lambda problem: in_function_space(problem, "eps", White(), fno(problem), **PAPER),
    "FNO, u₀, field": lambda problem: in_function_space(problem, "u0", problem.base, fno(problem)),
    "ε, white": lambda problem: in_function_space(problem, "eps", White()),
    "ε, field": lambda problem: in_function_space(problem, "eps", problem.base),
    "u₀, white": lambda problem: in_function_space(problem, "u0", White()),
    "u₀, field": lambda problem: in_function_space(problem, "u0", problem.base),
    "v, field": lambda problem: in_function_space(problem, "v", problem.base),
    "spectral space": in_spectral_space,
    "spectral space, equal time": lambda problem: in_spectral_space(problem, EQUAL_TIME["spectral", len(problem.points)]),
    "U-shape, u₀, field": lambda problem: u_shape(problem, "none"),
    "attention U-shape, u₀, field": lambda problem: u_shape(problem, "all"),
}


def scores(members: Array, truth: Array, observed: Array) -> dict[str, float]:
    """Return ratios to the truth: of CRPS, energy score, standard deviation and standard deviation of neighbours' differences.

    Args:
        members, truth: of the model and of the distribution itself, (member, sample, *grid).
        observed: one further draw of the distribution, (sample, *grid).
    """
    y, both = observed[:, None], [x[:, :, None] for x in (members, truth)]
    differences = [np.concatenate([np.diff(x, axis=axis).ravel() for axis in range(2, x.ndim)]) for x in (members, truth)]
    pairs = {
        "crps_ratio": [metrics.crps(x, y).value for x in both],
        "energy_ratio": [metrics.energy_score(x, y).value for x in both],
        "std_ratio": [np.sqrt(x.var(axis=0, ddof=1).mean()) for x in both],
        "increment_ratio": [x.std() for x in differences],
    }
    return {name: float(model / exact) for name, (model, exact) in pairs.items()}


def measure(name: str, method: str) -> list[dict[str, Any]]:
    """Train a model on the coarse grid and score it on three grids; return the rows."""
    problem, rng = PROBLEMS[name], np.random.default_rng(0)
    if method == FNO:
        problem = replace(problem, inputs=problem.inputs // 4, members=problem.members // 2)  # of 100 evaluations each
    a, new = problem.draw_inputs(PAIRS, rng), problem.draw_inputs(problem.inputs, rng)
    u = problem.outputs(a, problem.draw_noise(PAIRS, rng), problem.points)
    observed, truth = (problem.draw_noise(count * len(new), rng) for count in (1, problem.members))
    model, train = METHODS[method](problem)
    begin = process_time()
    draw = train(a, u)
    fields = {"test": name, "method": method, "train": PAIRS, "noise": "none", "seed": 0, "command": COMMAND}
    fields |= {"members": problem.members, "evaluations": model.evaluations(), "parameters": model.parameters}
    fields |= {"train_seconds": process_time() - begin}
    rows = []
    for factor in (1, 2, 4):
        points = tuple(factor * n for n in problem.points)
        begin = process_time()
        members = draw(new, points, problem.members)
        own = {"grid": "x".join(map(str, points)), "sample_seconds": process_time() - begin}
        many = np.stack([problem.outputs(new, xi, points) for xi in truth.reshape(problem.members, *new.shape)])
        values = scores(members, many, problem.outputs(new, observed, points))
        rows += [results.row(metric, value, **fields, **own) for metric, value in values.items()]
        print(name, method, own, {metric: round(value, 3) for metric, value in values.items()}, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS), help="problems")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS), help="methods")
    parser.add_argument("--again", action="store_true", help="measure also what has been measured")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured = Measured(options.out)
    for name in options.only:
        for method in options.methods:
            key = {"test": name, "method": method}
            if options.again or not measured.has(key, UPDATES):
                measured.add(key, measure(name, method), budget=UPDATES)


if __name__ == "__main__":
    main()
