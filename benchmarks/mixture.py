"""Sample mixtures that a whole field shares with the exact score, and write the sampled weights to results/mixture.json.

Run by ``make bench-mixture``, ten minutes. Case 2 of the paper has four components; each field has the shift and the white
noise of one of them. In d nodes the component is decided at a noise level of about √d times the shift, where the paper's cosine
schedule has few steps, and the narrowest component is narrower than its smallest noise level.
"""

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pdno._typing import Floats
from pdno.diffusion import DenoisingError, Diffusion, Reverse, Schedule, noise_range
from pdno.diffusion.error import measure
from pdno.run import results

RESULTS = Path(__file__).parents[1] / "results" / "mixture.json"
SIDE = 128  # nodes per axis
MEMBERS = 5_000  # with few steps
PAPER_MEMBERS = 1_000  # with the paper's 100 steps
BATCH = 50  # members drawn at a time
HELD_OUT = 64  # fields from which the denoising error is measured


@dataclass(frozen=True)
class SharedMixture:
    """A mixture in d nodes, u = shift_k + std_k ξ with one component k for the whole field, scaled to unit variance.

    Args:
        shifts, stds, weights: of the components.
    """

    shifts: tuple[float, ...]
    stds: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def components(self) -> tuple[Floats, Floats, Floats]:
        """Shifts, stds and weights in units of the total standard deviation, with mean zero."""
        m, s, w = (np.array(x) for x in (self.shifts, self.stds, self.weights))
        m = m - w @ m
        total = np.sqrt(w @ (m**2 + s**2))
        return m / total, s / total, w

    def draw(self, count: int, points: int, rng: torch.Generator) -> Tensor:
        """Return fields, (count, 1, points)."""
        m, s, w = (torch.as_tensor(x) for x in self.components)
        k = torch.multinomial(w, count, replacement=True, generator=rng)
        noise = torch.randn(count, 1, points, generator=rng)
        return m[k].float()[:, None, None] + s[k].float()[:, None, None] * noise

    def denoise(self, schedule: Schedule, n: int, v: Tensor) -> Tensor:
        """Return E[U_0 | U_n = v], which depends on sum and square of the field: (batch, 1, points)."""
        m, s, w = (torch.as_tensor(x) for x in self.components)
        x, noise, points = v / float(np.sqrt(schedule.gamma[n])), 1 / schedule.gamma[n] - 1, v[0].numel()
        rest, mean = (moment.double()[:, None] for moment in torch.var_mean(x, (1, 2), correction=0))
        var = s**2 + noise
        weight = torch.softmax(w.log() - points / 2 * (var.log() + (rest + (mean - m) ** 2) / var), dim=1)
        slope, offset = weight @ (s**2 / var), weight @ (noise / var * m)
        denoised: Tensor = slope.to(v)[:, None, None] * x + offset.to(v)[:, None, None]
        return denoised

    def weights_of(self, fields: Tensor) -> tuple[Floats, Floats]:
        """Return the fraction of fields nearest to each shift, and std of the fields of each component / its own std."""
        m, s, _ = self.components
        mean = fields.mean((1, 2)).numpy()
        nearest = np.abs(mean[:, None] - m).argmin(axis=1)
        spread = (fields.numpy() - mean[:, None, None]).std(axis=(1, 2))
        groups = [spread[nearest == k] for k in range(len(m))]
        stds = [float(np.sqrt(np.mean(group**2))) / own if len(group) else np.nan for group, own in zip(groups, s, strict=True)]
        return np.array([len(group) / len(mean) for group in groups]), np.array(stds)


MIXTURES = {
    "case-2": SharedMixture((-1.0, -0.5, 0.5, 1.0), (0.01, 0.1, 0.2, 0.05), (0.25, 0.25, 0.25, 0.25)),
    "two-points": SharedMixture((-1.0, 1.0), (0.05, 0.05), (0.3, 0.7)),
}


def error_of(mixture: SharedMixture, schedule: Schedule, points: int, count: int = HELD_OUT) -> DenoisingError:
    """Return the denoising error of the exact denoiser."""
    rng = torch.Generator().manual_seed(1)
    u0 = mixture.draw(count, points, rng)

    def eps(n: int) -> Tensor:
        return torch.randn(u0.shape, generator=rng)

    return measure(lambda n, v, a: mixture.denoise(schedule, n, v), Diffusion(schedule), u0, None, eps)


def sample(
    mixture: SharedMixture, schedule: Schedule, reverse: Reverse, error: DenoisingError, points: int, members: int, batch: int
) -> tuple[Floats, Floats]:
    """Return weights and relative stds of the components in samples of the reverse chain."""
    rng = torch.Generator().manual_seed(2)
    chain, var = reverse.chain(schedule, error.mean if error.place is None else error.place)
    weights, squares = list[Floats](), list[Floats]()
    for _ in range(0, members, batch):
        start = torch.randn(batch, 1, points, generator=rng)
        out = reverse.sample(
            lambda n, v, a: mixture.denoise(schedule, n, v),
            start,
            None,
            chain,
            var,
            lambda n: torch.randn(batch, 1, points, generator=rng),
            own=error.own,
        )
        share, std = mixture.weights_of(out)
        weights.append(share)
        squares.append(np.nan_to_num(std) ** 2 * share)
    total = np.mean(weights, axis=0)
    return total, np.sqrt(np.mean(squares, axis=0) / np.maximum(total, 1e-12))


def rows_of(name: str, error: DenoisingError, method: str, schedule: Schedule, reverse: Reverse) -> list[dict[str, Any]]:
    """Return the rows of one mixture and one sampler."""
    mixture, points = MIXTURES[name], SIDE**2
    members = MEMBERS if reverse.variance == "analytic" else PAPER_MEMBERS
    begin = perf_counter()
    weights, stds = sample(mixture, schedule, reverse, error, points, members, BATCH)
    seconds = perf_counter() - begin
    print(name, method, reverse.evaluations(schedule), weights.round(3), stds.round(3), f"{seconds:.0f} s", flush=True)
    fields = {
        "test": name,
        "method": method,
        "grid": f"{SIDE}x{SIDE}",
        "noise": "none",
        "members": members,
        "evaluations": reverse.evaluations(schedule),
        "sample_seconds": seconds,
        "seed": 2,
        "command": "make bench-mixture",
    }
    metrics = {
        "weight_error": np.abs(weights - mixture.components[2]).max(),
        "narrowest_std_ratio": stds[np.argmin(mixture.components[1])],
        "widest_std_ratio": stds[np.argmax(mixture.components[1])],
    }
    return [results.row(metric, value, **fields) for metric, value in metrics.items()]


def main() -> None:
    wide, paper = Schedule.geometric(100, *noise_range(SIDE**2)), Schedule.cosine(100)
    methods = [("paper's sampler", paper, Reverse(variance=rule, steps=None)) for rule in ("gaussian", "noise-free")]
    methods = [(f"{name}, {reverse.variance}", schedule, reverse) for name, schedule, reverse in methods]
    methods += [
        (name, wide, Reverse(sampler=name, steps=steps))
        for name in ("ancestral", "dpm", "gaussian-exact")
        for steps in (10, 20)
    ]
    rows = []
    for name, mixture in MIXTURES.items():
        error = error_of(mixture, wide, SIDE**2)
        rows += [row for method in methods for row in rows_of(name, error, *method)]
    results.write(RESULTS, rows, machine=results.machine())


if __name__ == "__main__":
    main()
