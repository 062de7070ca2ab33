"""Claims of the paper: verdicts by hand, consistency of the claims, and what is run and kept."""

from math import inf
from pathlib import Path

import numpy as np
import pytest

from benchmarks.claimtables import TABLES, claim_table
from pdno.bench.claim import CHANGES, SCORES, Claim, Condition, Network, Statement, Variant, change, together
from pdno.bench.claims import CLAIMS
from pdno.bench.scale import SCALES
from pdno.diffusion.chain import Diffusion
from pdno.evaluation.score import Score
from pdno.run import results

SMOKE = SCALES["smoke"]


def rows(value: float, error: float | None) -> list[dict[str, object]]:
    return [results.row("mrle", value, error=error, method="one"), results.row("crps", 9.0, method="one")]


@pytest.mark.parametrize(
    ("value", "error", "verdict"),
    [
        (0.5, 0.2, "holds"),
        (0.5, 0.3, "is not decided"),
        (1.5, 0.2, "does not hold"),
        (1.5, 0.3, "is not decided"),
        (-1.5, 0.2, "does not hold"),
        (0.5, None, "holds"),
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


def test_changes_are_paired() -> None:
    """Scores that are all 1.5 times the reference change by 0.5 without error, although the reference varies."""
    reference = Score.mean([1.0, 2.0, 6.0])
    scaled = change(Score.mean(1.5 * reference.each), reference)
    assert (scaled.value, scaled.error) == pytest.approx((0.5, 0.0), abs=1e-15)
    shifted = change(Score.mean([2.0, 2.0, 5.0]), reference)
    assert shifted.value == 0
    assert shifted.error == pytest.approx(np.std([1.0, 0.0, -1.0], ddof=1) / np.sqrt(3) / 3)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=lambda claim: claim.title)
def test_claims_are_consistent(claim) -> None:
    """Conditions have rows, references come first, and variants of a statement differ in one respect from a reference."""
    names = [variant.name for variant in claim.variants]
    assert len(set(names)) == len(names)
    for place, variant in enumerate(claim.variants):
        assert variant.reference is None or variant.reference in names[:place]
        Diffusion(target=variant.network.target, weight=variant.network.weight)
    metrics = {*SCORES, "std_error_ratio", *(f"{name}_change" for name in CHANGES)}
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
    assert len(folders) == 17  # of 3 + 3 + 4 + 3 + 0 + 4 that each claim adds


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
    assert claim.listed([]).strip() == "not run"
    found = claim.run(SMOKE, tmp_path)
    values = {(row["method"], row["metric"]): row for row in found}
    five, two, ratio = values["five", "mrle"], values["two", "mrle"], values["two", "mrle_change"]
    assert ratio["value"] == pytest.approx(two["value"] / five["value"] - 1)
    assert [row["evaluations"] for row in (five, two)] == [5, 2]
    assert (five["train"], five["members"], five["command"]) == (58, 20, "pdno bench claims/attention --scale smoke")
    spread = values["two", "std_error_ratio"]["value"]
    assert spread == pytest.approx(values["two", "mean_std"]["value"] / values["two", "rmse"]["value"], rel=0.2)
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
