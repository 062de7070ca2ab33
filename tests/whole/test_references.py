"""Numbers stay what they were: small fits against predictions, draws and scores that were recorded before a redesign.

On the machine that recorded them they agree bitwise, or to 1e-15 where sums are ordered differently. Other processors round
differently, which the training of a network amplifies: hence the tolerances, relative to the largest value.
"""

from collections.abc import Callable

import numpy as np
import pytest

from tests.whole import references

CASES = [
    *(pytest.param(case, 1e-7, id=case.__name__) for case in references.CLOSED_FORM),
    *(pytest.param(case, 1e-3, id=case.__name__) for case in references.NETWORKS),
    *(pytest.param(case, 1e-3, id=case.__name__, marks=pytest.mark.slow) for case in references.SLOW),
]


@pytest.mark.parametrize(("case", "tolerance"), CASES)
def test_numbers_are_those_recorded(case: Callable[[], references.Arrays], tolerance: float) -> None:
    with np.load(references.FILE) as file:
        recorded = {key.split("/")[1]: file[key] for key in file.files if key.startswith(f"{case.__name__}/")}
    got = {name: np.asarray(value) for name, value in case().items() if value is not None}
    assert set(got) == set(recorded)
    for name, values in recorded.items():
        size = np.abs(values).max()
        np.testing.assert_allclose(got[name], values, rtol=0, atol=tolerance * size, err_msg=name)


def test_every_record_is_compared() -> None:
    with np.load(references.FILE) as file:
        recorded = {key.split("/")[0] for key in file.files}
    assert recorded == {case.__name__ for case in (*references.CLOSED_FORM, *references.NETWORKS, *references.SLOW)}
