"""Checks of networks and samplers."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..diffusion.chain import Diffusion
from ..diffusion.reverse import Reverse
from ..diffusion.samplers import Sampler
from ..diffusion.schedule import Schedule
from .common import close, require

__all__ = ["check_network", "check_sampler"]


def check_network(
    make: Callable[[], nn.Module], channels: int = 1, out_channels: int = 1, dim: int = 1, time: bool = True
) -> list[str]:
    """Check a network.

    Args:
        make: returns a new module.
        channels: of the condition a.
        out_channels: of u.
        dim: of the grid.
        time: whether the module is (n, v, a) ↦ prediction, for a diffusion, or a ↦ u, for a mean.

    Returns:
        The names of the checks that passed.

    Raises:
        CheckFailed: if a check fails.
    """
    points, passed, generator = 16, [], torch.Generator().manual_seed(0)
    a, v = (torch.randn(6, c, *(points,) * dim, generator=generator) for c in (channels, out_channels))
    n = torch.arange(1, 7)
    module = make().eval()

    def call(module: nn.Module, rows: slice = slice(None), dtype: torch.dtype = torch.float32) -> Tensor:
        inputs = (n[rows], v[rows].to(dtype), a[rows].to(dtype)) if time else (a[rows].to(dtype),)
        out: Tensor = module(*inputs)
        return out

    with torch.no_grad():
        out = call(module)
        require(out.shape == v.shape, f"the output has shape {tuple(out.shape)}; expected {tuple(v.shape)}")
        require(torch.isfinite(out).all(), "the output is not finite")
        passed.append("shapes")
        close(call(module), out, "two calls with the same input differ in evaluation mode", 0.0)
        close(torch.cat([call(module, slice(i, i + 1)) for i in range(6)]), out, "the output depends on the batch")
        passed.append("batch independence")
        twin = make()
        twin.load_state_dict(module.state_dict())
        close(call(twin.eval()), out, "a module with the same weights makes another output", 0.0)
        passed.append("weights")
        double = call(deepcopy(module).double(), dtype=torch.float64)
        require(double.dtype == torch.float64, f"in double precision the output has type {double.dtype}")
        passed.append("double precision")
    parameters = dict(module.named_parameters())
    require(parameters, "the module has no parameters, so that there is nothing to train")
    module.train()
    torch.autograd.backward((call(module) - v).square().mean())
    bad = [name for name, p in parameters.items() if p.grad is not None and not torch.isfinite(p.grad).all()]
    require(not bad, f"the gradients of {', '.join(bad)} are not finite")
    require(any(p.grad is not None and p.grad.abs().sum() > 0 for p in parameters.values()), "all gradients are zero")
    passed.append("gradients")
    return passed


def check_sampler(sampler: Sampler, steps: int = 100) -> list[str]:
    """Check a sampler with the exact denoiser of N(2, ½² I).

    Args:
        sampler: a function with the signature of `pdno.diffusion.SAMPLERS`.
        steps: of the chain.

    Returns:
        The names of the checks that passed.

    Raises:
        CheckFailed: if a check fails; mean and std are recovered within 5 and 15 %.
    """
    diffusion, mean, std = Diffusion(Schedule.cosine(steps)), 2.0, 0.5
    gamma = diffusion.schedule.gamma

    def denoise(n: int, v: Tensor, a: Any) -> Tensor:
        root, weight = float(np.sqrt(gamma[n])), float(gamma[n] * std**2 + 1 - gamma[n])
        exact: Tensor = mean + root * std**2 / weight * (v - root * mean)
        return exact

    reverse, shape = Reverse(sampler=sampler, steps=steps), (400, 1, 16)
    error = np.array([0.0, *(gamma[n] * std**2 / (gamma[n] * std**2 + 1 - gamma[n]) for n in range(1, steps + 1))])
    chain, var = reverse.chain(diffusion.schedule, error)

    def run(seen: list[int]) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        draws = {n: torch.randn(shape, generator=generator) for n in range(steps + 1)}
        return reverse.sample(denoise, draws[0], None, chain, var, lambda n: draws[n], lambda n, v: seen.append(n))

    seen: list[int] = []
    out = run(seen)
    require(out.shape == shape, f"the result has shape {tuple(out.shape)}; expected {shape}")
    close(run([]), out, "two runs with the same noise differ", 0.0)
    require(seen and seen[-1] == 0, "the callback is not called with n = 0 after the last step")
    require(abs(float(out.mean()) - mean) < 0.05 * mean, f"the mean is {float(out.mean()):.3g}; expected {mean}")
    require(abs(float(out.std()) / std - 1) < 0.15, f"the std is {float(out.std()):.3g}; expected {std}")
    require(reverse.evaluations(diffusion.schedule) >= 1, "it states no number of evaluations")
    return ["shapes", "same noise", "callback", "moments", "evaluations"]
