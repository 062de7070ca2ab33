"""Threads on a machine that may be busy.

Two processes with as many threads as there are cores each do less than half of the work of two processes with one thread each,
because threads wait for each other. Before a long computation, all threads are compared with one.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch
from threadpoolctl import threadpool_limits

__all__ = ["fastest", "suitable_threads"]

ROUNDS = 7  # of measuring with one thread and with all
PRODUCTS = 20  # of matrices, in one measurement
SIDE = 384  # of these matrices
WORTH = 0.85  # time with all threads relative to that with one, above which one is used


@contextmanager
def suitable_threads(measure: "Callable[[int], float] | None" = None) -> Iterator[int]:
    """Use one thread if all of them are hardly faster, and yield their number; afterwards all are used again.

    Args:
        measure: returns the seconds of some work with a number of threads; default: products of matrices.
    """
    before = torch.get_num_threads()
    try:
        number = fastest(before, measure or _seconds)
        with threadpool_limits(number if number != before else None):
            torch.set_num_threads(number)
            yield number
    finally:
        torch.set_num_threads(before)


def fastest(most: int, measure: Callable[[int], float]) -> int:
    """Return the number of threads to use: all of them, or one.

    >>> fastest(2, lambda threads: 1 / threads), fastest(2, lambda threads: 1.0 + threads), fastest(1, lambda threads: 1.0)
    (2, 1, 1)
    """
    if most == 1:
        return 1
    times = [(measure(1), measure(most)) for _ in range(ROUNDS)]
    return most if median(many for _, many in times) < WORTH * median(one for one, _ in times) else 1


def _seconds(threads: int) -> float:
    """Return the time of some products of matrices."""
    torch.set_num_threads(threads)
    x = torch.ones(SIDE, SIDE)
    x @ x  # starts the threads
    begin = time.monotonic()
    for _ in range(PRODUCTS):
        x @ x
    return time.monotonic() - begin
