"""Samplers as functions: the number of network evaluations, and samplers of a user.

Their results are compared with closed forms in test_reverse.py.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from pdno.diffusion import Schedule, variance
from pdno.diffusion.samplers import SAMPLERS, ancestral, evaluations, evaluations_of

SCHEDULE = Schedule.cosine(100)
START = torch.linspace(-1, 1, 8, dtype=torch.float64).reshape(2, 1, 4)


def counted_run(name: str, chain: Schedule) -> int:
    """Number of calls of the denoiser in one run of a sampler."""
    steps: list[int] = []

    def denoise(n: int, v: Tensor, a: None) -> Tensor:
        steps.append(n)
        return 0.5 * v

    SAMPLERS[name](denoise, START, None, chain, var=variance("gaussian", chain), noise=lambda n: START)
    return len(steps)


@pytest.mark.parametrize("name", list(SAMPLERS))
@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_the_declared_number_of_evaluations_is_that_of_a_run(name, steps) -> None:
    assert evaluations_of(SAMPLERS[name], steps) == counted_run(name, SCHEDULE.subchain(steps))


def test_evaluations_by_hand() -> None:
    counts = {name: evaluations_of(sampler, 10) for name, sampler in SAMPLERS.items()}
    assert counts == {"ancestral": 10, "ddim": 10, "dpm": 10, "gaussian-exact": 10, "heun": 19}


def test_a_function_without_declaration_counts_one_evaluation_per_step() -> None:
    assert evaluations_of(lambda denoise, v, a, chain, **settings: v, 12) == 12


def test_a_declaration_leaves_the_function_as_it_is() -> None:
    def sampler(denoise, v, a, chain, **settings: object) -> Tensor:
        return 3 * v

    declared = evaluations(lambda steps: steps**2)(sampler)
    assert declared is sampler
    assert evaluations_of(declared, 4) == 16
    assert torch.equal(declared(None, START, None, SCHEDULE), 3 * START)


def test_no_noise_is_drawn_where_the_variance_is_zero() -> None:
    """The noise-free rule has σ_1 = 0, so the step from n = 1 asks for no noise, with or without `last_noise`."""
    drawn: list[int] = []

    def noise(n: int) -> Tensor:
        drawn.append(n)
        return torch.zeros_like(START)

    chain = SCHEDULE.subchain(4)
    ancestral(lambda n, v, a: v, START, None, chain, variance("noise-free", chain), noise)
    assert drawn == [100, 75, 50]
    drawn.clear()
    ancestral(lambda n, v, a: v, START, None, chain, np.ones(5), noise, last_noise=False)
    assert drawn == [100, 75, 50]
    drawn.clear()
    ancestral(lambda n, v, a: v, START, None, chain, np.ones(5), noise)
    assert drawn == [100, 75, 50, 25]
