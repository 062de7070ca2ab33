"""Random numbers as functions of (seed, purpose, index, step)."""

import subprocess
import sys

import numpy as np
import pytest

from pdno import UserError
from pdno.draw import generator, normals


def test_draw_is_available_after_import_pdno() -> None:
    code = "import pdno; print(pdno.draw.normals(0, 'x', 0, 2, 3).shape, pdno.field.Field.__name__)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "(2, 3) Field"


def test_normals_depend_on_seed_purpose_index_and_step_only() -> None:
    z = normals(3, "field", 0, 8, 5)
    np.testing.assert_array_equal(normals(3, "field", 2, 4, 5), z[2:6])
    np.testing.assert_array_equal(normals(3, "field", 0, 8, 3), z[:, :3])
    np.testing.assert_array_equal(generator(3, "field", 6).standard_normal(5), z[6])
    for other in (normals(4, "field", 0, 8, 5), normals(3, "noise", 0, 8, 5), normals(3, "field", 0, 8, 5, step=1)):
        assert not np.isin(other, z).any()


def test_negative_numbers_of_samples_are_rejected() -> None:
    with pytest.raises(UserError, match="count = -1, first = 0: both must not be negative"):
        normals(0, "field", 0, -1, 4)
    with pytest.raises(UserError, match="count = 1, first = -2"):
        normals(0, "field", -2, 1, 4)
