"""Base distributions: explicit covariance matrices, keys of their draws, and their JSON and text forms."""

import itertools
import json

import numpy as np
import pytest

from pdno import Field, UserError
from pdno.diffusion.base import Base, FieldBase, LowModes, SumBase, White, as_base, from_json, from_text

LAWS = [
    White(),
    FieldBase(Field(tau=3, r=2)),
    FieldBase(Field(tau=5, r=1, scale=40, condition="periodic")),
    FieldBase(Field(tau=2, r=1, condition="dirichlet")),
    FieldBase(Field(tau=9, r=1, modes=12)),  # more modes than nodes: aliasing
    White() + LowModes(),
    White() + LowModes(2, std=0.5),
    White() + Field(tau=3, r=2, condition="periodic"),
    Field(tau=3, r=1) + LowModes(3) + White(),
]
GRIDS = [(8,), (7,), (4, 6), (3, 2, 4)]
CASES = list(itertools.product(LAWS, GRIDS))
NAMES = [f"{'+'.join(term['law'] for term in law.to_json())}-{law.condition}-{grid}" for law, grid in CASES]
each_case = pytest.mark.parametrize(("law", "points"), CASES, ids=NAMES)


def matrix(law: Base, points: tuple[int, ...]) -> np.ndarray:
    """Return the exact covariance of the values at the nodes, Σ_j λ_j e_j e_jᵀ, with explicit formulas for the e_j."""
    grid, lam = law.grid(points), law.eigenvalues(law.grid(points))
    along = []
    for axis in grid.axes:
        x, root2, modes = axis.nodes, np.sqrt(2), range(axis.points)
        if law.condition == "dirichlet":
            along.append([root2 * np.sin(np.pi * (j + 1) * x) for j in modes])
        elif law.condition == "periodic":
            wave = [(np.cos if j % 2 else np.sin)(2 * np.pi * ((j + 1) // 2) * x) for j in modes]
            along.append([np.ones_like(x), *(root2 * w for w in wave[1:])])
        else:
            along.append([np.ones_like(x), *(root2 * np.cos(np.pi * j * x) for j in modes[1:])])
    covariance = np.zeros((lam.size, lam.size))
    for index in np.ndindex(*lam.shape):
        vector = np.ones(1)
        for j, basis in zip(index, along, strict=True):
            vector = np.multiply.outer(vector, basis[j]).reshape(-1)
        covariance += lam[index] * np.outer(vector, vector)
    return covariance


@each_case
def test_draws_have_the_covariance_of_the_eigenvalues(law, points) -> None:
    """Every entry within 5.2 standard errors; at most 24²/2 entries in 36 cases: false-alarm rate 1/500."""
    count, exact = 4000, matrix(law, points)
    draws = law.draw(law.grid(points), count, seed=1, first=0, purpose="test", step=0).reshape(count, -1)
    error = np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / count)
    assert (np.abs(draws.T @ draws / count - exact) < 5.2 * error).all()
    assert (np.abs(draws.mean(axis=0)) < 5.2 * np.sqrt(np.diag(exact) / count)).all()


@each_case
def test_operators_belong_to_the_covariance_matrix(law, points) -> None:
    exact, d = matrix(law, points), int(np.prod(points))
    unit = np.eye(d).reshape(d, *points)
    root = law.sqrt(unit, len(points)).reshape(d, d)
    np.testing.assert_allclose(root, root.T, atol=1e-13)
    np.testing.assert_allclose(root @ root, exact, atol=1e-12 * np.abs(exact).max())
    whiten = law.inverse_sqrt(unit, len(points)).reshape(d, d)
    np.testing.assert_allclose(whiten @ exact @ whiten.T, np.eye(d), atol=1e-10)
    np.testing.assert_allclose(law.sqrt(law.inverse_sqrt(unit, len(points)), len(points)), unit, atol=1e-10)
    np.testing.assert_allclose(law.log_det((3, *points)), 3 * np.linalg.slogdet(exact)[1], rtol=1e-9, atol=1e-9)


@each_case
def test_the_trace_of_a_field_or_of_white_noise_is_the_number_of_nodes(law, points) -> None:
    """tr 𝒞/d = 1 for one term, traces of a sum add up, and LowModes adds std² for each mode."""
    expected = 0.0
    for term in law.to_json():
        reached = np.prod([min(term.get("modes") or 0, n) for n in points])
        expected += term["std"] ** 2 * reached if term["law"] == "low" else 1
    assert np.trace(matrix(law, points)) / np.prod(points) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_draws_become_white(law) -> None:
    """χ² of 500 × 2 × 60 whitened values (false-alarm rate 1e-4); channels are independent (4.5 standard errors)."""
    white = law.inverse_sqrt(law.sample((2, 10, 6), count=500, seed=2), dim=2)
    assert white.shape == (500, 2, 10, 6)
    assert abs((white**2).mean() - 1) < 3.9 * np.sqrt(2 / white.size)
    assert abs((white[:, 0] * white[:, 1]).mean()) < 4.5 / np.sqrt(white[:, 0].size)


def test_whitening_needs_the_right_distribution() -> None:
    """The test above can fail: whitened draws of another distribution are not white."""
    white = FieldBase(Field(tau=3, r=2)).inverse_sqrt(FieldBase(Field(tau=3, r=1.5)).sample((1, 32), 500, seed=2), dim=1)
    assert abs((white**2).mean() - 1) > 10 * np.sqrt(2 / white.size)


def test_one_low_mode_is_a_shift_shared_by_all_nodes() -> None:
    """The variance of the shift is std² (4.5 standard errors)."""
    shift = LowModes(std=0.3).sample((1, 8, 5), count=2000, seed=3)
    np.testing.assert_allclose(shift, shift[..., :1, :1] * np.ones((8, 5)), atol=1e-14)
    assert abs((shift[:, 0, 0, 0] ** 2).mean() / 0.09 - 1) < 4.5 * np.sqrt(2 / 2000)
    means = (White() + LowModes(std=0.3)).sample((1, 8, 5), count=2000, seed=3).mean(axis=(1, 2, 3))
    assert abs((means**2).mean() / (0.09 + 1 / 40) - 1) < 4.5 * np.sqrt(2 / 2000)


def test_terms_of_a_sum_are_drawn_independently() -> None:
    """The sum of two equal terms has twice the variance of one, not four times (4.5 standard errors)."""
    twice = (LowModes() + LowModes()).sample((1, 4), 2000, seed=4)[:, 0, 0]
    assert abs((twice**2).mean() / 2 - 1) < 4.5 * np.sqrt(2 / 2000)


@pytest.mark.parametrize("law", LAWS)
def test_draws_are_functions_of_seed_purpose_index_and_step(law) -> None:
    many = law.sample((2, 6, 4), count=20, seed=5, purpose="train", step=3)
    np.testing.assert_array_equal(law.sample((2, 6, 4), count=4, seed=5, first=9, purpose="train", step=3), many[9:13])
    np.testing.assert_array_equal(law.sample((1, 6, 4), count=20, seed=5, purpose="train", step=3), many[:, :1])
    assert len(np.unique(many)) == many.size
    for other in ({"seed": 6}, {"purpose": "test"}, {"step": 4}, {"first": 20}):
        settings = {"seed": 5, "purpose": "train", "step": 3} | other
        assert not np.isin(law.sample((2, 6, 4), count=20, **settings), many).any()


@pytest.mark.parametrize("condition", ["neumann", "periodic", "dirichlet"])
def test_fields_are_nested_over_grids(condition) -> None:
    """A finer grid adds modes to the same function, whose scale changes by the ratio of the traces."""
    field = Field(tau=3, r=2, condition=condition)
    law, low = FieldBase(field), []
    for points in ((7, 9), (21, 15)):
        grid = law.grid(points)
        draws = law.sample((1, *points), count=3, seed=6)[:, 0]
        low.append(field.coefficients(draws, grid)[:, :7, :9] / np.sqrt(law.eigenvalues(grid)[:7, :9]))
    np.testing.assert_allclose(low[0], low[1], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("law", LAWS)
def test_json_round_trip_keeps_distribution_and_draws(law) -> None:
    again = from_json(json.loads(json.dumps(law.to_json())))
    assert again == law
    np.testing.assert_array_equal(again.sample((1, 6), 2, seed=7), law.sample((1, 6), 2, seed=7))


def test_sums_are_flat_and_take_fields_from_either_side() -> None:
    field = Field(tau=3, r=2)
    assert White() + LowModes(2) + field == SumBase((White(), LowModes(2), FieldBase(field)))
    assert set((field + White()).terms) == {White(), FieldBase(field)}
    assert as_base(field) == FieldBase(field)
    assert as_base(White()) == White()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: as_base(Field(tau=3, r=2, mean_free=True)), "needs variance in every mode"),
        (lambda: as_base("white"), "is not a base distribution"),
        (lambda: White() + 3, "is not a base distribution"),
        (lambda: as_base(Field(tau=3, r=2)) + Field(tau=3, r=2, condition="periodic"), "one common basis"),
        (lambda: White() + Field(tau=3, r=2, condition="dirichlet"), "one common basis"),
        (lambda: LowModes(0), "modes ≥ 1"),
        (lambda: LowModes(1, std=0), "std > 0"),
        (lambda: LowModes(1, std=float("nan")), "std > 0"),
        (lambda: LowModes(2).inverse_sqrt(np.ones((1, 8)), 1), "has zero variance in some modes"),
        (lambda: LowModes(2).log_det((1, 8)), "has zero variance in some modes"),
        (lambda: as_base(Field(tau=3, r=2, modes=4)).sample((1, 8), 1, seed=0), "modes without variance"),
        (lambda: as_base(Field(tau=1, r=30)).log_det((1, 64)), "modes without variance"),
        (lambda: as_base(Field(tau=1, r=2, scale=0)).sample((1, 8), 1, seed=0), "modes without variance"),
        (lambda: from_json([{"law": "whit"}]), "did you mean 'white'"),
        (lambda: from_json([{"tau": 3}]), "is unknown"),
        (lambda: from_json([{"law": "low", "mode": 3}]), "does not accept these settings"),
        (lambda: from_json([]), "at least one term"),
    ],
)
def test_mistakes_are_explained(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_a_mean_free_dirichlet_field_is_accepted() -> None:
    """It has no constant mode, so every mode has variance."""
    law = as_base(Field(tau=3, r=2, condition="dirichlet", mean_free=True))
    np.testing.assert_allclose(law.sqrt(law.inverse_sqrt(np.eye(6), 1), 1), np.eye(6), atol=1e-10)


# Text form


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("white", White()),
        ("field:3,2", FieldBase(Field(tau=3.0, r=2.0))),
        ("low:3,0.5+white", SumBase((LowModes(3, 0.5), White()))),
        ("white+field:3,1.5+low:1,1", SumBase((White(), FieldBase(Field(tau=3.0, r=1.5)), LowModes(1, 1.0)))),
        ("field:1e+08,2+white", SumBase((FieldBase(Field(tau=1e8, r=2.0)), White()))),
        ("field:3.123456789012345,2", FieldBase(Field(tau=3.123456789012345, r=2.0))),
        ("low:2,1e-07", LowModes(2, 1e-7)),
    ],
)
def test_texts_and_distributions_correspond(text, law) -> None:
    assert from_text(text) == law
    assert law.text == text


def test_spaces_around_terms_are_ignored() -> None:
    assert from_text(" white +  low:1,2 ") == White() + LowModes(1, 2.0)


def test_a_factor_of_the_covariance_does_not_appear_in_the_text() -> None:
    """Base distributions are scaled to unit variance, so the scale of a field has no effect."""
    law = FieldBase(Field(tau=3, r=2, scale=40))
    np.testing.assert_allclose(from_text(law.text).sample((1, 6), 2, seed=7), law.sample((1, 6), 2, seed=7), rtol=1e-12)


@pytest.mark.parametrize("settings", [{"condition": "periodic"}, {"modes": 12}, {"condition": "dirichlet", "mean_free": True}])
def test_a_field_that_has_no_text_form_is_refused(settings) -> None:
    with pytest.raises(UserError, match="has the settings tau and r of a field only; got Field"):
        _ = FieldBase(Field(tau=3, r=2, **settings)).text


def test_a_sum_with_a_field_that_has_no_text_form_is_refused() -> None:
    with pytest.raises(UserError, match="has the settings tau and r of a field only; got Field"):
        _ = (White() + Field(tau=3, r=2, condition="periodic")).text


@pytest.mark.parametrize(
    "text", ["", "wite", "white:1", "field", "field:3", "field:a,b", "low:1", "low:x,1", "low:1.5,1", "low:inf,1", "white+"]
)
def test_texts_of_another_form_are_refused(text) -> None:
    with pytest.raises(UserError, match=r"expected white, field:TAU,R or low:MODES,STD, or a sum of these$"):
        from_text(text)


@pytest.mark.parametrize(("text", "message"), [("low:0,1", "modes ≥ 1"), ("low:1,0", "std > 0"), ("field:-1,2", "tau ≥ 0")])
def test_numbers_of_a_text_are_checked(text, message) -> None:
    with pytest.raises(UserError, match=message):
        from_text(text)
