"""Threads on a machine that may be busy."""

import pytest
import torch

from pdno.work.threads import WORTH, fastest, suitable_threads


@pytest.mark.parametrize(("ratio", "number"), [(0.5, 4), (WORTH - 0.01, 4), (WORTH + 0.01, 1), (3.0, 1)])
def test_all_threads_are_used_if_they_are_faster(ratio, number) -> None:
    assert fastest(4, lambda threads: 1.0 if threads == 1 else ratio) == number


def test_one_slow_measurement_does_not_decide() -> None:
    times = iter([1.0, 9.0] + [1.0, 0.5] * 9)
    assert fastest(2, lambda threads: next(times)) == 2


def test_the_number_of_threads_is_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with suitable_threads(lambda threads: float(threads)) as number:
            assert number == torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_default_measurement_restores_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    with suitable_threads() as number:
        assert number in (1, before)
    assert torch.get_num_threads() == before
