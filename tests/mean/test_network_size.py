"""The size of networks that the default selects in two dimensions and more."""

from types import SimpleNamespace

import numpy as np
import pytest

from pdno import Pairs
from pdno.learning.budget import Terms
from pdno.mean.choice import Trial
from pdno.mean.choose import SMALL, MeanSelection


def plane(count: int, seed: int = 0) -> Pairs:
    a = np.random.default_rng(seed).standard_normal((count, 1, 8, 8))
    return Pairs.of(a, np.roll(a, 1, axis=-1))


@pytest.mark.parametrize(("seconds", "kind", "is_small"), [(500.0, "slim", True), (1e6, "slim", False), (500.0, "local", True)])
def test_in_two_dimensions_the_size_of_a_network_fits_the_time(seconds, kind, is_small) -> None:
    """A small network took ten steps per second: there is no time for many steps of a large one in 500 seconds."""
    selection = MeanSelection(plane(20), plane(10, seed=1), Terms(progress=False).within(seconds), (), "cell")
    for name in ("slim", "local"):
        mean = selection.network(name, is_short=True)
        selection.means[f"{name}-screening"] = mean
        mean.networks = (SimpleNamespace(updates=50),)
        selection.trials.append(Trial(f"{name}-screening", 0.5, "", 5.0))
    is_short = selection.is_short(kind, seconds)
    assert is_short == is_small
    assert (selection.network(kind, is_short).network == SMALL[kind]) == is_small


@pytest.mark.parametrize(("dim", "is_small"), [(1, False), (2, True), (3, True)])
def test_the_screening_is_of_a_small_network_in_two_dimensions_and_more(dim, is_small) -> None:
    """A step of the large one in three dimensions, of 57 million parameters, takes a minute."""
    a = np.random.default_rng(0).standard_normal((20, 1, *(8,) * dim))
    pairs = Pairs.of(a, a)
    mean = MeanSelection(pairs, pairs[:5], Terms(progress=False), (), "cell").network("fno", is_short=True)
    assert (mean.network == SMALL["fno"]) == is_small


def test_the_size_of_a_network_does_not_change_if_a_run_is_resumed(tmp_path) -> None:
    """A finished screening is only read again, which takes no time: its pace is that of its first session."""
    (tmp_path / "slim-screening").mkdir()
    (tmp_path / "slim-screening" / "times.jsonl").write_text('{"step": 50, "seconds": 5.0}\n')
    terms = Terms(progress=False, run=tmp_path).within(500.0)
    selection = MeanSelection(plane(20), plane(10, seed=1), terms, (), "cell")
    selection.means["slim-screening"] = mean = selection.network("slim", is_short=True)
    mean.networks = (SimpleNamespace(updates=50),)
    selection.trials.append(Trial("slim-screening", 0.5, "", 0.01))
    assert selection.is_short("slim", 500.0)
