"""Residual laws from names and from saved states: every law draws bitwise the same after a round trip."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdno import PDNO, Diffusion, Pairs, Schedule, UserError
from pdno.diffusion.reverse import Reverse, ancestral
from pdno.learning.budget import Terms
from pdno.mean.base import Components
from pdno.residual import (
    LAWS,
    Censored,
    Copula,
    Diffused,
    Exact,
    Gaussian,
    Inputs,
    PosteriorLaw,
    Resampled,
    ResidualLaw,
    Residuals,
    Rows,
    Scaled,
    Statistics,
    law_from_state,
)
from pdno.residual.build import check_law_name
from pdno.residual.law import named_state
from pdno.work import checkpoint
from pdno.work.state import State, flatten, unflatten
from tests.helpers import TINY, TWO, ExactDenoiser, normal
from tests.residual.coins import Coins

QUIET = Terms(progress=False)
SHORT = Diffusion(Schedule.cosine(10))


def residuals(count: int, different_sizes: bool = False, seed: int = 0) -> Residuals:
    rng = np.random.default_rng(seed)
    a, values = rng.standard_normal((2, count, 1, 16))
    values = np.exp(rng.standard_normal((count, 1, 1))) * values if different_sizes else values
    return Residuals(Pairs.of(a, a + values), values, components=components(count))


def components(count: int) -> Components:
    ones = np.ones((1, 1, 16))
    return Components(ones, ones / 16, np.full((count, 1), 0.25))


def trained(law: ResidualLaw, different_sizes: bool = False) -> ResidualLaw:
    return law.learn(residuals(60, different_sizes), residuals(40, different_sizes, 1), QUIET)


CASES = {
    "exact": lambda: trained(Exact()),
    "gaussian": lambda: trained(Gaussian("scalar")),
    "gaussian of different sizes": lambda: trained(Gaussian("point"), True),
    "posterior": lambda: trained(PosteriorLaw()),
    "resampled": lambda: trained(Resampled()),
    "resampled of different sizes": lambda: trained(Resampled(), True),
    "copula": lambda: trained(Copula()),
    "censored": lambda: trained(Censored()),
    "scaled": lambda: trained(Scaled(training=TWO)),
    "statistics": lambda: trained(Statistics(2, training=TWO)),
    "statistics by principal components": lambda: trained(Statistics("auto", Gaussian("scalar"), "linear")),
    "statistics and diffusion": lambda: trained(
        Statistics(1, Diffused(TINY, SHORT, training=TWO, search_steps=False), training=TWO)
    ),
    "diffusion": lambda: trained(Diffused(TINY, Diffusion(Schedule.cosine(10), target="v"), training=TWO)),
    "diffusion of different sizes": lambda: trained(Diffused(TINY, SHORT, training=TWO, search_steps=False), True),
    "diffusion without errors": lambda: trained(
        Diffused(TINY, SHORT, Reverse("gaussian", steps=3, sampler="heun"), training=TWO)
    ),
}


@cache
def law_of(case: str) -> ResidualLaw:
    """Return the law of a case, trained once."""
    return CASES[case]()


def drawn(law: ResidualLaw) -> np.ndarray:
    places, members = np.divmod(np.arange(12), 4)
    return law.draw(Inputs(normal(3, 1, 16), normal(3, 1, 16, seed=1), None, components(3)), Rows(5, places, members, places))


@pytest.mark.parametrize("case", CASES)
def test_every_law_is_restored_bitwise(case, tmp_path: Path) -> None:
    """From its state, from its flat form, and from a file."""
    law = law_of(case)
    state = named_state(law)
    assert state.settings["name"] == law.name
    checkpoint.save_state(tmp_path / "law.safetensors", "law", state)
    for saved in (state, unflatten(*flatten(state)), checkpoint.load_state(tmp_path / "law.safetensors", "law")):
        again = law_from_state(saved)
        assert type(again) is type(law)
        np.testing.assert_array_equal(drawn(again), drawn(law))
        assert again.describe() == law.describe()
        assert again.evaluations() == law.evaluations()
        assert (again.deterministic, again.centred) == (law.deterministic, law.centred)
        np.testing.assert_array_equal(again.std, law.std)
        settings, metadata = (flatten(named_state(each))[1] for each in (again, law))
        assert settings == metadata


def test_every_law_has_a_case() -> None:
    assert {case.split()[0] for case in CASES} == set(LAWS)


def test_the_name_is_not_part_of_the_state_of_a_law() -> None:
    assert all("name" not in law_of(case).state().settings for case in ("exact", "gaussian", "diffusion"))


def test_networks_and_samplers_of_the_user_are_passed() -> None:
    law = Diffused(ExactDenoiser(0.0, 1.0), Diffusion(), Reverse(steps=4, sampler=sampler), training=TWO)
    state = named_state(trained(law))
    with pytest.raises(UserError, match=r"the sampler is a function of your own, which is not saved; pass it"):
        law_from_state(state)
    with pytest.raises(UserError, match=r"a network of your own; pass it: pdno\.load"):
        law_from_state(state, sampler=sampler)
    again = law_from_state(state, ExactDenoiser(0.0, 1.0), sampler)
    np.testing.assert_array_equal(drawn(again), drawn(law))


def sampler(denoise: Any, start: Any, a: Any, chain: Any, **settings: Any) -> Any:
    """The ancestral sampler under another name."""
    return ancestral(denoise, start, a, chain, **settings)


def test_a_law_of_the_user_is_not_one_of_ours() -> None:
    with pytest.raises(UserError, match=r"the file has a law 'coins' of your own; pass its class: pdno\.load"):
        law_from_state(named_state(Coins(2.0)))


def test_a_diffusion_without_its_errors_is_refused() -> None:
    state = named_state(law_of("diffusion"))
    with pytest.raises(UserError, match="the denoising error of the diffusion is missing"):
        law_from_state(State(state.settings, {}, state.parts))


def test_unknown_names_are_refused() -> None:
    for name in ("auto", *LAWS):
        check_law_name(name)
    with pytest.raises(UserError, match=r"law 'gausian' is unknown; did you mean 'gaussian'\?"):
        check_law_name("gausian")
    check_law_name("scale")
    assert PDNO(law="scale").settings()["law"] == "scaled"
