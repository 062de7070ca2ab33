"""Checks of residual laws."""

from collections.abc import Callable

import numpy as np

from .._typing import Array
from ..mean.base import Components
from ..residual.law import Inputs, ResidualLaw, Residuals, Rows
from ..work.state import State
from .common import CASES, NOISE, close, refuses, require, saved_state, synthetic_pairs, terms_of

__all__ = ["check_law"]


def _residuals(seed: int = 0, **case: int) -> Residuals:
    """Return white noise as residuals of a mean whose posterior has one component, the average of the field."""
    pairs = synthetic_pairs(**case, seed=seed)
    values = NOISE * np.random.default_rng(seed + 100).standard_normal(pairs.u.shape)
    ones = np.ones((1, *pairs.u.shape[1:]))
    components = Components(ones, ones / ones.size, np.full((len(pairs), 1), NOISE / np.sqrt(ones.size)))
    return Residuals(pairs, values, components=components)


def _rows(inputs: int, members: int, seed: int = 0) -> Rows:
    flat = np.arange(inputs * members)
    return Rows(seed, flat // members, flat % members, flat // members)


def check_law(make: Callable[[], ResidualLaw], restore: Callable[[State], ResidualLaw] | None = None) -> list[str]:
    """Check a residual law.

    Args:
        make: returns a new, untrained law.
        restore: restores a law from its state; default: `from_state` of its class.

    Returns:
        The names of the checks that passed.

    Raises:
        CheckFailed: if a check fails.
    """
    passed, held_out = [], _residuals(1)
    for name, case in CASES.items():
        data = _residuals(**case)
        law = make().learn(data, _residuals(1, **case), terms_of())
        drawn = law.draw(data.inputs, _rows(3, 2))
        shape = (6, *data.values.shape[1:])
        require(np.shape(drawn) == shape, f"{name}: draws have shape {np.shape(drawn)}; expected {shape}")
        require(np.isfinite(drawn).all(), f"{name}: draws are not finite")
    passed.append("shapes")
    data = _residuals()
    law, again = (make().learn(data, held_out, terms_of(3)) for _ in range(2))
    inputs, drawn = held_out.inputs, np.asarray(law.draw(held_out.inputs, _rows(4, 5)))
    close(again.draw(inputs, _rows(4, 5)), drawn, "two laws trained with the same seed draw different members", 0.0)
    passed.append("same seed")
    _check_draws(law, inputs, drawn)
    passed.append("draws are functions of (seed, input, member)")
    _check_moments(law, inputs)
    passed.append("moments")
    require(law.evaluations() >= 0, "evaluations() is negative")
    refuses(lambda: law.draw(inputs, _rows(1, 1), nonsense=1), "an unknown setting of the sampling")
    score = law.score(held_out, members=4)
    require(score.shape == (len(held_out),) and np.isfinite(score).all(), "score() is not one finite number for each pair")
    passed.append("settings and score")
    back = (restore or type(law).from_state)(saved_state(law, "law"))
    close(back.draw(inputs, _rows(4, 5)), drawn, "a restored law draws other members", 0.0)
    require(back.describe() == law.describe(), "a restored law describes itself in other words")
    passed.append("saving")
    return passed


def _check_draws(law: ResidualLaw, inputs: Inputs, drawn: Array) -> None:
    one = [law.draw(inputs, Rows(0, *(np.array([k]) for k in (i, j, i)))) for i in range(4) for j in range(5)]
    close(np.concatenate(one), drawn, "a member depends on the batch in which it is drawn")
    same = np.allclose(drawn[0], drawn[1])
    require(same == law.deterministic, f"deterministic is {law.deterministic}, but members are {'equal' if same else 'not'}")
    if not law.deterministic:
        other = law.draw(inputs, _rows(4, 5, seed=1))
        require(not np.allclose(other, drawn), "members do not depend on the seed")


def _check_moments(law: ResidualLaw, inputs: Inputs, members: int = 400) -> None:
    """Require mean 0 if the law is centred, and its std if it states one: five standard errors."""
    drawn = np.asarray(law.draw(inputs, _rows(1, members)))
    std = drawn.std(axis=0)
    if law.centred and not law.deterministic:
        z = np.abs(drawn.mean(axis=0)) / np.maximum(std / np.sqrt(members), 1e-300)
        require(z.max() < 6, f"the law is called centred, but means of draws are {z.max():.1f} standard errors from 0")
    if law.std is not None:
        tails = np.sqrt((drawn**4).mean(axis=0) / np.maximum(std**4, 1e-300) - 1) / (2 * np.sqrt(members))  # of log std
        ratio = np.abs(std / np.broadcast_to(law.std, std.shape) - 1)
        require((ratio < 6 * tails + 0.05).all(), f"std of draws differs from `std` of the law by up to {ratio.max():.0%}")
