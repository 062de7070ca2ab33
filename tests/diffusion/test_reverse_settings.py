"""The settings of the reverse chain: which steps and variances they select, samplers of a user, saving, and wrong settings."""

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from pdno import UserError
from pdno.diffusion import AUTO_STEPS, SAMPLERS, Reverse, Schedule, ancestral, ddim, evaluations, heun, variance

SCHEDULE = Schedule.cosine(100)
ERROR = np.linspace(0, 1, 101)
RULES = ["noise-free", "gaussian", "mixed", "analytic"]
START = torch.linspace(-1, 1, 8, dtype=torch.float64).reshape(2, 1, 4)


def halve(n: int, v: Tensor, a: None) -> Tensor:
    return 0.5 * v


def constant_noise(n: int) -> Tensor:
    return torch.full_like(START, n / 100)


def follow_denoiser(denoise, v, a, chain, *, var, noise, last_noise, callback) -> Tensor:
    """A sampler as a user may write it: V_{n−1} = û₀."""
    for k in range(chain.n_steps, 0, -1):
        v = denoise(int(chain.n[k]), v, a)
    return v


# Steps and variances


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("steps", [1, 7, 60, None])
@pytest.mark.parametrize(("spacing", "t_start", "mix"), [("even", 0, 0.5), ("quadratic", 30, 0.2)])
def test_the_chain_is_the_subchain_with_the_variance_of_the_rule(rule, steps, spacing, t_start, mix) -> None:
    reverse = Reverse(variance=rule, mix=mix, steps=steps, spacing=spacing, t_start=t_start)
    chain, var = reverse.chain(SCHEDULE, ERROR)
    expected = SCHEDULE.subchain(steps, t_start, spacing)
    np.testing.assert_array_equal(chain.n, expected.n)
    np.testing.assert_array_equal(chain.gamma, expected.gamma)
    np.testing.assert_array_equal(var, variance(rule, expected, ERROR, mix))
    assert reverse.n_steps(SCHEDULE) == chain.n_steps == (steps or 100 - t_start)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("n_steps", "t_start", "auto_steps", "analytic"), [(100, 0, 20, 20), (100, 0, 5, 5), (12, 0, 20, 12), (100, 90, 20, 10)]
)
def test_automatic_steps_are_few_with_the_analytic_variance_only(rule, n_steps, t_start, auto_steps, analytic) -> None:
    """With the other rules, which are exact for small steps only, all steps are taken."""
    reverse, schedule = Reverse(variance=rule, t_start=t_start), Schedule.cosine(n_steps)
    expected = analytic if rule == "analytic" else n_steps - t_start
    assert reverse.n_steps(schedule, auto_steps) == expected
    assert reverse.chain(schedule, np.zeros(n_steps + 1), auto_steps)[0].n_steps == expected
    assert AUTO_STEPS == 20


def test_a_number_of_steps_takes_precedence_over_the_automatic_one() -> None:
    assert Reverse(steps=8).n_steps(SCHEDULE, auto_steps=5) == 8


@pytest.mark.parametrize(("sampler", "count"), [("ancestral", 20), ("ddim", 20), ("dpm", 20), ("heun", 39)])
def test_network_evaluations_of_one_member(sampler, count) -> None:
    assert Reverse(sampler=sampler).evaluations(SCHEDULE) == count
    assert Reverse(sampler=sampler, steps=1).evaluations(SCHEDULE) == 1


def test_the_analytic_variance_needs_the_denoising_error() -> None:
    with pytest.raises(UserError, match='the variance "analytic" needs the denoising error'):
        Reverse().chain(SCHEDULE)
    assert Reverse(variance="gaussian").chain(SCHEDULE)[1].shape == (101,)


# Sampling


@pytest.mark.parametrize("name", list(SAMPLERS))
@pytest.mark.parametrize("last_noise", [True, False])
def test_sample_runs_the_sampler_of_that_name(name, last_noise) -> None:
    reverse = Reverse(sampler=name, steps=6, last_noise=last_noise)
    chain, var = reverse.chain(SCHEDULE, ERROR)
    states: list[int] = []
    end = reverse.sample(halve, START, None, chain, var, constant_noise, lambda n, v: states.append(n))
    settings = {"var": var, "noise": constant_noise, "last_noise": last_noise}
    assert torch.equal(end, SAMPLERS[name](halve, START, None, chain, **settings))
    assert states == chain.n[-2::-1].tolist()


def test_a_sampler_may_be_a_function_of_the_user() -> None:
    reverse = Reverse(sampler=follow_denoiser, steps=3)
    chain, var = reverse.chain(SCHEDULE, ERROR)
    assert torch.equal(reverse.sample(halve, START, None, chain, var, constant_noise), START / 8)
    assert reverse.evaluations(SCHEDULE) == 3
    assert Reverse(sampler="dpm").override(sampler=follow_denoiser).sampler is follow_denoiser


def test_a_sampler_of_the_user_declares_its_evaluations() -> None:
    @evaluations(lambda steps: 3 * steps + 1)
    def costly(denoise, v, a, chain, **settings: object) -> Tensor:
        return v

    assert Reverse(sampler=costly, steps=5).evaluations(SCHEDULE) == 16


def test_our_functions_have_their_names() -> None:
    assert Reverse(sampler=heun) == Reverse(sampler="heun")
    assert Reverse(sampler=heun).evaluations(SCHEDULE) == 39
    assert Reverse(sampler=ancestral) == Reverse()
    assert Reverse().override(sampler=ddim).sampler == "ddim"


# Settings of one call


def test_override_changes_steps_sampler_and_variance_of_a_copy() -> None:
    reverse = Reverse(mix=0.2, spacing="quadratic", last_noise=False, t_start=3)
    changed = reverse.override(steps=4, sampler="dpm", variance="mixed")
    assert changed == Reverse("mixed", 0.2, 4, "quadratic", "dpm", False, 3)
    assert reverse == Reverse(mix=0.2, spacing="quadratic", last_noise=False, t_start=3)
    assert reverse.override() == reverse


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stpes": 3}, r"sampling has no setting 'stpes'; did you mean 'steps'\? Expected one of steps, sampler, variance"),
        ({"mix": 0.3}, "sampling has no setting 'mix'; expected one of steps, sampler, variance"),
        ({"t_start": 3}, "sampling has no setting 't_start'"),
        ({"zeta": 1, "alpha": 2}, "sampling has no setting 'alpha'"),
        ({"sampler": "dmp"}, r"sampler 'dmp' is unknown; did you mean 'dpm'\?"),
        ({"variance": "gausian"}, r"variance 'gausian' is unknown; did you mean 'gaussian'\?"),
        ({"steps": True}, 'steps = True: expected a whole number, or "auto"'),
    ],
)
def test_wrong_settings_of_a_call_are_explained(settings, message) -> None:
    with pytest.raises(UserError, match=message):
        Reverse().override(**settings)


# Saving


@pytest.mark.parametrize(
    "reverse",
    [
        Reverse(),
        Reverse("mixed", 0.25, 7, "quadratic", "heun", False, 3),
        Reverse(steps=None),
        Reverse(steps=np.int64(9), t_start=np.int32(2), mix=np.float32(0.5), last_noise=np.bool_(False)),
        Reverse(sampler=ddim),
    ],
)
def test_json_round_trip(reverse) -> None:
    assert Reverse.from_json(json.loads(json.dumps(reverse.to_json()))) == reverse


def test_json_keys_are_the_seven_settings() -> None:
    expected = {"variance": "analytic", "mix": 0.5, "steps": "auto", "spacing": "even", "sampler": "ancestral"}
    assert Reverse().to_json() == {**expected, "last_noise": True, "t_start": 0}
    assert Reverse.from_json({"steps": 4}) == Reverse(steps=4)


def test_a_function_of_the_user_is_not_saved_and_asked_for() -> None:
    settings = Reverse(sampler=follow_denoiser, steps=3).to_json()
    assert json.loads(json.dumps(settings))["sampler"] == "own"
    assert Reverse.from_json(settings, follow_denoiser) == Reverse(sampler=follow_denoiser, steps=3)
    with pytest.raises(UserError, match=r"pass it: pdno.load\(…, sampler=…\)"):
        Reverse.from_json(settings)


def test_numbers_of_numpy_become_numbers_of_python() -> None:
    reverse = Reverse(steps=np.int64(9), t_start=np.int32(2), mix=np.float64(0.25), last_noise=np.bool_(False))
    types = [type(value) for value in (reverse.steps, reverse.t_start, reverse.mix, reverse.last_noise)]
    assert types == [int, int, float, bool]


# Wrong settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"variance": "analitic"},
            r"variance 'analitic' is unknown; did you mean 'analytic'\? Expected one of noise-free, gaussian",
        ),
        ({"variance": None}, "variance None is unknown; expected one of noise-free"),
        ({"spacing": "quadric"}, r"spacing 'quadric' is unknown; did you mean 'quadratic'\?"),
        ({"sampler": "anestral"}, r"sampler 'anestral' is unknown; did you mean 'ancestral'\?"),
        ({"sampler": 3}, "sampler 3 is unknown; expected one of ancestral, ddim, dpm, gaussian-exact, heun"),
        ({"sampler": ["ddim"]}, r"sampler \['ddim'\] is unknown"),
        ({"mix": 2.0}, r"mix = 2.0: expected a weight from 0 \(noise-free\) to 1 \(gaussian\)"),
        ({"mix": -0.1}, "mix = -0.1: expected a weight"),
        ({"mix": float("nan")}, "mix = nan: expected a weight"),
        ({"mix": "half"}, "mix = 'half': expected a weight"),
        ({"mix": True}, "mix = True: expected a weight"),
        ({"steps": 2.5}, 'steps = 2.5: expected a whole number, or "auto"'),
        ({"steps": "many"}, "steps = 'many': expected a whole number"),
        ({"steps": False}, "steps = False: expected a whole number"),
        ({"t_start": 1.5}, "t_start = 1.5: expected a whole number$"),
        ({"t_start": "auto"}, "t_start = 'auto': expected a whole number$"),
        ({"t_start": None}, "t_start = None: expected a whole number$"),
        ({"last_noise": "no"}, "last_noise = 'no': expected True or False"),
        ({"last_noise": 1}, "last_noise = 1: expected True or False"),
    ],
)
def test_wrong_settings_are_explained(settings, message) -> None:
    with pytest.raises(UserError, match=message):
        Reverse(**settings)
    with pytest.raises(UserError, match=message):
        Reverse.from_json(settings)


def test_an_unknown_setting_of_a_file_is_explained() -> None:
    with pytest.raises(UserError, match=r"the reverse chain has no setting 'samplr'; did you mean 'sampler'\?"):
        Reverse.from_json({"samplr": "dpm"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 11}, "steps = 11: expected a number from 1 to 10"),
        ({"steps": 0}, "steps = 0: expected a number from 1 to 10"),
        ({"steps": -2}, "steps = -2: expected a number from 1 to 10"),
        ({"steps": 8, "t_start": 3}, "steps = 8: expected a number from 1 to 7"),
        ({"t_start": 10}, "t_start = 10: expected a step from 0 to 9"),
        ({"t_start": 30, "variance": "gaussian"}, "t_start = 30: expected a step from 0 to 9"),
        ({"t_start": -1}, "t_start = -1: expected a step from 0 to 9"),
    ],
)
def test_settings_that_do_not_fit_a_schedule_are_explained(settings, message) -> None:
    reverse, schedule = Reverse(**settings), Schedule.cosine(10)
    for call in (reverse.check, reverse.n_steps, reverse.evaluations, lambda s: reverse.chain(s, np.zeros(11))):
        with pytest.raises(UserError, match=message):
            call(schedule)


def test_settings_that_fit_are_accepted() -> None:
    for settings in ({}, {"steps": 10}, {"steps": 7, "t_start": 3}, {"t_start": 9}, {"steps": None, "variance": "mixed"}):
        Reverse(**settings).check(Schedule.cosine(10))
