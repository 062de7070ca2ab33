"""Speed of a training step of the UNet, into results/network.json.

Run by ``make bench``; a minute on two cores that do nothing else.

A step is a forward and a backward pass. It is compared, in the same process and in turns, with a plain implementation of the
same network and with a matrix product.
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
SIDE = 2048  # of the matrices
CASES = ((Darcy(points=64), 16), (Burgers(points=256), 20))  # and the size of a batch
BASE = 32
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


def step(net: nn.Module, n: Tensor, v: Tensor, a: Tensor) -> None:
    """The cost of ‖net(n, v, a)‖² and of its derivatives."""
    net.zero_grad(set_to_none=True)
    net(n, v, a).square().mean().backward()


def operations(function: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        function()
    return int(counter.get_total_flops())


def measure(eq: Equation, batch: int, rounds: int = 25) -> Iterator[Row]:
    torch.manual_seed(0)
    fast = UNet(eq.grid.dim, BASE)
    plain = load(fast)
    n = torch.randint(1, 101, (batch,))
    v, a = torch.randn(2, batch, 1, *eq.grid.shape)
    torch.testing.assert_close(fast(n, v, a), plain(n, v, a), rtol=1e-4, atol=1e-4)
    left, right = torch.randn(2, SIDE, SIDE)
    ours, theirs = partial(step, fast, n, v, a), partial(step, plain, n, v, a)
    product, mine, plainly = seconds(rounds, lambda: left @ right, ours, theirs).min(axis=0)
    more = {"method": "unet", "parameters": sum(p.numel() for p in fast.parameters()), "train_seconds": mine}
    yield row(eq, "step_over_matmul", (operations(ours) / mine) / (2 * SIDE**3 / product), **more)
    yield row(eq, "plain_over_fast", plainly / mine, **more)


def measured() -> list[Row]:
    return [result for eq, batch in CASES for result in measure(eq, batch)]


def measured_with_avx2() -> list[Row]:
    """The same in a process that takes this machine for one without AVX-512."""
    code = "import json; from benchmarks.network import measured; print(json.dumps(measured()))"
    answer = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **AVX2}, capture_output=True, text=True, check=True
    )
    return [{**row, "metric": f"{row['metric']}_avx2"} for row in json.loads(answer.stdout)]


def main() -> None:
    rows = [*measured(), *measured_with_avx2()]
    for result in rows:
        print(f"{result['test']:>12} {result['grid']:>8} {result['metric']:<24} {result['value']:.3g}")
    results.write(RESULTS, rows, machine=results.machine())


if __name__ == "__main__":
    main()
