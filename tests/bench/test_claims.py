"""Claims of the paper: verdicts by hand, consistency of the claims, and what is run and kept."""

from math import inf
from pathlib import Path

import numpy as np
import pytest

from benchmarks.claimtables import TABLES, claim_table
from pdno.bench.claim import SCORES, Claim, Condition, Network, Statement, Variant, derived, root, together
from pdno.bench.claims import CLAIMS
from pdno.bench.scale import SCALES
from pdno.diffusion.chain import Diffusion
from pdno.evaluation.score import Score
from pdno.run import results

SMOKE = SCALES["smoke"]


def rows(value: float, error: float | None) -> list[dict[str, object]]:
    return [results.row("mrle", value, error=error, method="one"), results.row("crps", 9.0, error=0.1, method="one")]


@pytest.mark.parametrize(
    ("value", "error", "verdict"),
    [
        (0.5, 0.2, "holds"),
        (0.5, 0.3, "is not decided"),
        (1.5, 0.2, "does not hold"),
        (1.5, 0.3, "is not decided"),
        (-1.5, 0.2, "does not hold"),
        (0.5, None, "is not decided"),
        (inf, 0.1, "is not decided"),
    ],
)
def test_a_condition_holds_if_two_standard_errors_are_inside(value, error, verdict) -> None:
    """The interval is [0, 1], with 0.5 ± 0.4, 0.5 ± 0.6, 1.5 ± 0.4 and 1.5 ± 0.6."""
    assert Condition("one", "mrle", 0.0, 1.0).verdict(rows(value, error)) == verdict


def test_a_statement_holds_if_all_conditions_hold() -> None:
    assert together(["holds", "holds"]) == "holds"
    assert together(["holds", "is not decided"]) == "is not decided"
    assert together(["does not hold", "is not decided", "holds"]) == "does not hold"
    statement = Statement("", "", "", (Condition("one", "mrle", 0.0), Condition("one", "crps", -inf, 8.0)))
    assert statement.verdict(rows(1.0, 0.1)) == "does not hold"


def test_statements_are_counted_in_lists() -> None:
    inside, across, outside = (Statement("", "", "", (Condition("one", "mrle", low),)) for low in (0.0, 1.0, 2.0))
    claim = Claim("", (), (inside, across, outside))
    assert claim.listed(rows(1.0, 0.1)) == "1 of 3 hold, 1 not decided"
    assert Claim("", (), (inside, outside)).listed(rows(1.0, 0.1)) == "1 of 2 hold"
    assert claim.listed([]).strip() == "not run"


def scores_of(squares: list[float], stds: list[float], u: float = 2.0) -> dict[str, Score]:
    """Return scores of inputs with these mean square errors and standard deviations of the members, and ‖u‖ the same."""
    errors = np.sqrt(squares)
    each = {"rmse": errors, "mrle": errors / u, "mean_std": np.array(stds)}
    return {name: Score.mean(values) for name, values in each.items()}


def test_errors_are_without_the_chance_of_few_members() -> None:
    """Members with std 3 about a mean that is off by 1: with 4 members, mean square errors are 1 + 9/4."""
    found = derived(scores_of([3.25, 3.25], [3.0, 3.0]), 4)
    assert found["mrle_debiased"].value == pytest.approx(1 / 2)
    assert found["std_error_ratio"].value == pytest.approx(3)
    assert np.isnan(derived(scores_of([2.0, 2.0], [3.0, 3.0]), 4)["mrle_debiased"].value)  # 2 < 9/4: by chance


def test_changes_are_paired() -> None:
    """Errors that are all 1.5 times those of the reference change by 0.5 without error, although the reference varies."""
    reference = scores_of([1.0, 4.0, 36.0], [0.0, 0.0, 0.0])
    scaled = derived(scores_of([2.25, 9.0, 81.0], [0.0, 0.0, 0.0]), 4, reference)["mrle_change"]
    assert (scaled.value, scaled.error) == pytest.approx((0.5, 0.0), abs=1e-15)
    wider = derived(scores_of([2.0, 2.0], [1.0, 2.0]), 4, scores_of([2.0, 2.0], [2.0, 1.0]))["std_change"]
    assert wider.value == pytest.approx(0)
    assert wider.error == pytest.approx(np.std([3.0, -3.0], ddof=1) / np.sqrt(2) / 2.5 / 2)
    assert np.isnan(root(np.array([1.0, -2.0]), np.array([1.0, 1.0])).value)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=lambda claim: claim.title)
def test_claims_are_consistent(claim) -> None:
    """Conditions have rows, references come first, and variants of a statement differ in one respect from a reference."""
    names = [variant.name for variant in claim.variants]
    assert len(set(names)) == len(names)
    for place, variant in enumerate(claim.variants):
        assert variant.reference is None or variant.reference in names[:place]
        Diffusion(target=variant.network.target, weight=variant.network.weight)
    metrics = {*SCORES, "mrle_debiased", "std_error_ratio", "mrle_change", "std_change"}
    for condition in (condition for statement in claim.statements for condition in statement.conditions):
        (variant,) = (each for each in claim.variants if each.name == condition.variant)
        assert condition.metric in metrics
        assert condition.low < condition.high
        assert variant.reference is not None or not condition.metric.endswith("change")
        assert variant.network.noise != "none" or not condition.metric.startswith("std_noise")
    assert f"results/bench/{claim.name.replace('/', '-')}.json" in TABLES


def test_networks_that_share_a_folder_are_the_same() -> None:
    networks = [variant.network for claim in CLAIMS.values() for variant in claim.variants]
    folders: dict[Path, Network] = {}
    for network in networks:
        assert folders.setdefault(network.folder(Path()), network) == network
    assert len(folders) == 17  # 3 + 3 + 3 + 1 + 3 + 4, by claim


def test_networks_differ_as_they_say(tmp_path) -> None:
    (young,) = (v.network for v in CLAIMS["claims/diagnostic"].variants if v.name == "eps, young, analytic")
    model = young.make(SCALES["cpu"])
    assert (model.training.updates, model.diffusion.target, young.setting.name) == (60, "eps", "elliptic1d-128")
    for scale, base in (("cpu", 16), ("paper", 32)):
        unet = CLAIMS["claims/attention"].variants[1].network.make(SCALES[scale])
        assert unet.network == {"kind": "unet", "attention": "middle", "base": base}
    assert unet.training.updates == 200_000  # 1000 epochs of 10,000 pairs in batches of 50, as in Table A1


def test_a_claim_is_run_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    network = Network("tiny", {"kind": "unet", "base": 8, "attention": "none"})
    variants = (Variant("five", network, None, {"steps": 5}), Variant("two", network, "five", {"steps": 2, "sampler": "ddim"}))
    statement = Statement("It is positive.", "pdno", "above 0", (Condition("two", "mrle", 0.0),))
    claim = Claim("attention", variants, (statement,))
    found = claim.run(SMOKE, tmp_path)
    values = {(row["method"], row["metric"]): row for row in found}
    five, two, change = values["five", "mrle_debiased"], values["two", "mrle_debiased"], values["two", "mrle_change"]
    assert change["value"] == pytest.approx(two["value"] / five["value"] - 1)
    assert [row["evaluations"] for row in (five, two)] == [5, 2]
    assert (five["train"], five["members"], five["command"]) == (58, 20, "pdno bench claims/attention --scale smoke")
    model = network.folder(tmp_path) / "model.safetensors"
    before = model.stat().st_mtime_ns
    assert claim.run(SMOKE, tmp_path) == found
    assert model.stat().st_mtime_ns == before
    assert claim.summary(found) == f"It is positive. {statement.verdict(found)}"
    lines, note = claim_table(claim, {"rows": found})
    assert [len(line) for line in lines] == [len(lines[0])] * 3
    assert note.startswith(f"- **{statement.verdict(found)}**: It is positive.")
    claim.forget(tmp_path)
    assert not model.exists()
