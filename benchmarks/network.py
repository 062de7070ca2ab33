"""Measure the speed of a training step of the UNet and write it to results/network.json.

Run by ``make bench``; it takes a minute on two otherwise idle cores.

A step is a forward and a backward pass. It alternates, in the same process, with a step of a plain implementation of the same
network and with a matrix product:

    step_over_matmul   operations per second of a step / operations per second of the matrix product
    plain_over_fast    time of a step of the plain implementation / time of a step of ours
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from pdno.equation import Burgers, Darcy, Equation
from pdno.nn import UNet
from pdno.run import results

from .plain import load
from .problem import Row, row, seconds

RESULTS = Path(__file__).parents[1] / "results" / "network.json"
SIDE = 2048  # of the square matrices
CASES = ((Darcy(points=64), 16), (Burgers(points=256), 20))  # equation and batch size
BASE = 32  # channels of the finest level
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


def step(net: nn.Module, n: Tensor, v: Tensor, a: Tensor) -> None:
    """Compute the mean square of net(n, v, a) and its derivatives."""
    net.zero_grad(set_to_none=True)
    net(n, v, a).square().mean().backward()


def operations(function: Callable[[], object]) -> int:
    """Return the number of floating-point operations of a call."""
    with FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())


def measure(eq: Equation, batch: int, rounds: int = 25) -> Iterator[Row]:
    """Yield the rows of one equation, from the fastest of several rounds."""
    torch.manual_seed(0)
    fast = UNet(eq.grid.dim, BASE)
    plain = load(fast)
    n = torch.randint(1, 101, (batch,))
    v, a = torch.randn(2, batch, 1, *eq.grid.shape)
    torch.testing.assert_close(fast(n, v, a), plain(n, v, a), rtol=1e-4, atol=1e-4)
    left, right = torch.randn(2, SIDE, SIDE)
    fast_step, plain_step = partial(step, fast, n, v, a), partial(step, plain, n, v, a)
    product_seconds, fast_seconds, plain_seconds = seconds(rounds, lambda: left @ right, fast_step, plain_step).min(axis=0)
    more = {"method": "unet", "parameters": sum(p.numel() for p in fast.parameters()), "train_seconds": fast_seconds}
    speed, matmul_speed = operations(fast_step) / fast_seconds, 2 * SIDE**3 / product_seconds
    yield row(eq, "step_over_matmul", speed / matmul_speed, **more)
    yield row(eq, "plain_over_fast", plain_seconds / fast_seconds, **more)


def measured() -> list[Row]:
    """Return the rows of all cases."""
    return [result for eq, batch in CASES for result in measure(eq, batch)]


def measured_with_avx2() -> list[Row]:
    """Return the same rows from a process in which all libraries are limited to AVX2."""
    code = "import json; from benchmarks.network import measured; print(json.dumps(measured()))"
    completed = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **AVX2}, capture_output=True, text=True, check=True
    )
    return [{**row, "metric": f"{row['metric']}_avx2"} for row in json.loads(completed.stdout)]


def main() -> None:
    rows = [*measured(), *measured_with_avx2()]
    for result in rows:
        print(f"{result['test']:>12} {result['grid']:>8} {result['metric']:<24} {result['value']:.3g}")
    results.write(RESULTS, rows, machine=results.machine())


if __name__ == "__main__":
    main()
