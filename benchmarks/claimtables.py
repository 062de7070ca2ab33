"""Tables of the claims of the paper: a line for each variant, then the statements and whether they hold."""

from functools import partial
from typing import Any

from pdno.bench.claim import Claim
from pdno.bench.claims import CLAIMS

__all__ = ["TABLES", "claim_table"]

MRLE = {"MRLE": "mrle_debiased", "change": "mrle_change"}
STD = {"std / noise": "std_noise_ratio"}
METRICS = {  # title of a claim → heading → metric
    "attention": {**MRLE, **STD, "CRPS": "crps"},
    "target": {**MRLE, **STD},
    "variance": {**STD, "change": "std_change", "MRLE": "mrle_debiased"},
    "fno": {**MRLE, **STD},
    "steps": {**MRLE, **STD},
    "diagnostic": {"MRLE": "mrle_debiased", "mean std": "mean_std", "std / RMSE": "std_error_ratio", **STD},
}
FIELDS = {"noise": "noise", "parameters": "parameters", "evaluations": "evaluations"}


def claim_table(claim: Claim, contents: dict[str, Any]) -> tuple[list[list[str]], str]:
    """Return the lines of a table as lists of cells, the first one with the headings, and the statements as a list.

    Args:
        claim: with variants and statements.
        contents: of its file of results.
    """
    rows, metrics = contents["rows"], METRICS[claim.title]
    found = {(row["method"], row["metric"]): row for row in rows}
    lines = [["variant", *FIELDS, *metrics]]
    for variant in claim.variants:
        first = found[variant.name, "mrle"]
        cells = [first[name] for name in FIELDS.values()]
        texts = [f"{cell:,}" if isinstance(cell, int) else cell for cell in cells]
        lines.append([variant.name, *texts, *(_number(found.get((variant.name, metric))) for metric in metrics.values())])
    verdicts = [
        f"- **{each.verdict(rows)}**: {each.text} ({each.place}; criterion: {each.criterion})" for each in claim.statements
    ]
    return lines, "\n".join(verdicts)


def _number(row: dict[str, Any] | None) -> str:
    """Return value ± standard error; nothing if there is no number."""
    if row is None or row["value"] is None:
        return ""
    error = "" if row["error"] is None else f" ± {row['error']:.1g}"
    return f"{row['value']:.3g}{error}"


TABLES = {f"results/bench/claims-{claim.title}.json": partial(claim_table, claim) for claim in CLAIMS.values()}
