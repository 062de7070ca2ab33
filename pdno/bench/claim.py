r"""A claim of the paper, tested on variants of a model: conditions on measured numbers say whether it holds.

    error      E_i = ‖mean of M members − u‖² − ‖std of members‖²/M        of input i: without the chance of few members
    change     √(Σ_i E_i / Σ_i E′_i) − 1                                   from E′ of a reference, on the same inputs

Members of different variants are drawn with the same random numbers, so that changes have smaller errors than scores. A
condition is an interval. It holds if value ± 2 standard errors is inside, does not hold if that is outside, and is not decided
otherwise. Errors are over test inputs; every network is trained once, so that they do not include the chance of training.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, nan
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal

import numpy as np

from .._typing import Floats
from ..diffusion.chain import Diffusion, Target, Weight
from ..diffusion.schedule import Schedule
from ..evaluation.score import Score
from ..evaluation.scoring import evaluate
from ..learning.settings import Training
from ..model.operator import PDNO
from ..model.paper import PDNO_TESTS, Setting
from ..run import results
from ..work.files import replacing
from .scale import FEWEST_MEMBERS, Scale
from .training import data_of, equation_of, trained

__all__ = ["Claim", "Condition", "Network", "Statement", "Variant", "Verdict", "derived", "root", "together"]

TEST, POINTS = "elliptic1d", 128
ERRORS = 2.0  # standard errors by which a value must be inside or outside an interval
SCORES = ("mrle", "rmse", "mean_std", "std_noise_ratio", "crps")
SAMPLING = {"sampler": "ancestral", "steps": 100, "variance": "analytic"}  # unless a variant has others
TRAINING: dict[str, Any] = {"batch": 32, "rate": 1e-3, "ema": 0.99}  # the same for all networks

Verdict = Literal["holds", "does not hold", "is not decided"]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Network:
    """A diffusion of u on Test 1, without a mean model.

    Args:
        label: of the network.
        settings: as in `pdno.nn.build`; a UNet has the paper's base channels at the scale "paper", and half of them otherwise.
        target, weight: as in `pdno.Diffusion`.
        noise: of the training outputs.
        share: of the updates of other networks.
    """

    label: str
    settings: Mapping[str, Any]
    target: Target = "u0"
    weight: Weight = "target"
    noise: str = "gaussian:0.05"
    share: float = 1.0

    @property
    def setting(self) -> Setting:
        """The experiment."""
        return Setting(TEST, POINTS, self.noise)

    def folder(self, folder: Path) -> Path:
        """Return the folder of the model, which claims share."""
        short = "" if self.share == 1 else f"-{self.share:g}"
        name = f"{self.label}-{self.target}-{self.weight}-{self.noise.replace(':', '-')}{short}"
        return folder / "runs" / "claims" / name

    def make(self, scale: Scale) -> PDNO:
        """Return the untrained model."""
        base = PDNO_TESTS[TEST].base // (1 if scale.name == "paper" else 2)
        network = {"base": base, **self.settings} if self.settings["kind"] == "unet" else dict(self.settings)
        training = Training(updates=max(1, round(self.share * scale.claim_updates)), **TRAINING)
        chain = Diffusion(Schedule.cosine(100), target=self.target, weight=self.weight)
        kind = equation_of(self.setting, scale).grid.axes[0].kind
        return PDNO(network, chain, mean=None, training=training, kind=kind)


@dataclass(frozen=True)
class Variant:
    """A network with settings of its reverse chain.

    Args:
        name: in results.
        network: the network.
        reference: name of the variant that changes refer to.
        sampling: steps, sampler and variance, where they are not those of `SAMPLING`.
        members: for each input.
    """

    name: str
    network: Network
    reference: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    members: int = FEWEST_MEMBERS

    def measure(self, scale: Scale, folder: Path, engine: dict[str, Any]) -> tuple[dict[str, Score], dict[str, Any]]:
        """Return scores and fields of rows: measured before for another claim, or measured now and kept with the model."""
        run, sampling = self.network.folder(folder), {**SAMPLING, **self.sampling}
        path = run / f"{'-'.join(map(str, [*sampling.values(), self.members]))}.json"
        if not path.exists():
            found = self._measure(scale, folder, sampling, engine)
            with replacing(path) as partial:
                partial.write_text(json.dumps(found))
        found = json.loads(path.read_text())
        scores = {name: Score(s["value"], s["error"], np.array(s["each"])) for name, s in found["scores"].items()}
        return scores, found["fields"]

    def _measure(self, scale: Scale, folder: Path, sampling: dict[str, Any], engine: dict[str, Any]) -> dict[str, Any]:
        setting = self.network.setting
        split = data_of(setting, scale, folder).split(0.1, 0.0)
        model, seconds = trained(lambda: self.network.make(scale), split, self.network.folder(folder), engine)
        test = replace(split, test=split.test[: scale.claim_inputs], train=split.train[:0], validation=None)
        e = evaluate(model, test, members=self.members, calibrate=0, **sampling)
        scores = {name: e.scores[name] for name in SCORES if name in e.scores}
        fields = {
            "test": TEST,
            "grid": str(equation_of(setting, scale).grid),
            "train": len(split.train),
            "noise": setting.noise,
            "members": self.members,
            "evaluations": model.evaluations(**sampling),
            "parameters": model.parameters,
            "train_seconds": seconds,
            "sample_seconds": e.metadata["sample_seconds"],
            "seed": 0,
        }
        plain = {name: {"value": s.value, "error": s.error, "each": s.each.tolist()} for name, s in scores.items()}
        return {"scores": plain, "fields": fields}


def derived(scores: Mapping[str, Score], members: int, reference: Mapping[str, Score] | None = None) -> dict[str, Score]:
    """Return the scores that follow from others: error of the mean without the chance of few members, ratios and changes.

    Args:
        scores: of a variant, with values for each input.
        members: number of members for each input.
        reference: scores of another variant on the same inputs.
    """
    squares, spread = _squares(scores, members), scores["mean_std"].each ** 2
    size = (scores["rmse"].each / scores["mrle"].each) ** 2
    found = {"mrle_debiased": root(squares, size), "std_error_ratio": root(spread, squares)}
    if reference is not None:
        for name, score in (
            ("mrle", root(squares, _squares(reference, members))),
            ("std", root(spread, reference["mean_std"].each ** 2)),
        ):
            found[f"{name}_change"] = Score(score.value - 1, score.error, np.empty(0))
    return found


def _squares(scores: Mapping[str, Score], members: int) -> Floats:
    """Return E_i, (sample,), which may be negative by chance."""
    return np.asarray(scores["rmse"].each ** 2 - scores["mean_std"].each ** 2 / members)


def root(numerator: Floats, denominator: Floats) -> Score:
    """Return √(mean numerator / mean denominator), both (sample,), with its error; NaN unless both means are positive.

    >>> float(root(np.array([4.0, 8.0]), np.array([1.0, 2.0])))
    2.0
    """
    if min(numerator.mean(), denominator.mean()) <= 0:
        return Score(nan, nan, np.empty(0))
    return Score.root_of_ratio(numerator, denominator)


@dataclass(frozen=True)
class Condition:
    """An interval for a number of a variant.

    Args:
        variant, metric: of the row.
        low, high: ends of the interval.
    """

    variant: str
    metric: str
    low: float = -inf
    high: float = inf

    def verdict(self, rows: Rows) -> Verdict:
        """Return whether value ± 2 standard errors is inside the interval."""
        (row,) = (row for row in rows if (row["method"], row["metric"]) == (self.variant, self.metric))
        if row["value"] is None or row["error"] is None:
            return "is not decided"
        width = ERRORS * row["error"]
        low, high = row["value"] - width, row["value"] + width
        if self.low <= low and high <= self.high:
            return "holds"
        return "does not hold" if high < self.low or low > self.high else "is not decided"


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Return that all hold, that one does not, or that this is not decided.

    >>> together(["holds", "is not decided"])
    'is not decided'
    """
    found = set(verdicts)
    if "does not hold" in found:
        return "does not hold"
    return "is not decided" if "is not decided" in found else "holds"


@dataclass(frozen=True)
class Statement:
    """A statement and the conditions under which it holds.

    Args:
        text: the statement.
        place: where in the paper, as a label or section; "pdno" if it is ours.
        criterion: the conditions in words.
        conditions: all must hold.
    """

    text: str
    place: str
    criterion: str
    conditions: tuple[Condition, ...]

    def verdict(self, rows: Rows) -> Verdict:
        """Return whether the statement holds in these results."""
        return together(condition.verdict(rows) for condition in self.conditions)


@dataclass(frozen=True)
class Claim:
    """A part of the bench: variants of a model, and statements about them.

    Args:
        title: after "claims/".
        variants: references come before the variants that refer to them.
        statements: of the paper, and ours.
    """

    title: str
    variants: tuple[Variant, ...]
    statements: tuple[Statement, ...]

    @property
    def name(self) -> str:
        """As on the command line: "claims/attention"."""
        return f"claims/{self.title}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names that select it."""
        return self.name, "claims"

    def run(self, scale: Scale, folder: Path, **engine: Any) -> Rows:
        """Train and evaluate all variants that were not measured before; return their rows."""
        measured: dict[str, dict[str, Score]] = {}
        rows: Rows = []
        for variant in self.variants:
            scores, fields = variant.measure(scale, folder, engine)
            measured[variant.name] = scores
            reference = None if variant.reference is None else measured[variant.reference]
            scores = {**scores, **derived(scores, fields["members"], reference)}
            fields |= {"method": variant.name, "command": f"pdno bench {self.name} --scale {scale.name}"}
            rows += [results.row(name, s.value, error=s.error, **fields) for name, s in scores.items()]
        return rows

    def details(self, folder: Path) -> dict[str, Any]:
        """Return nothing: its file of results has rows only."""
        return {}

    def forget(self, folder: Path) -> None:
        """Remove its models and what was measured with them."""
        for variant in self.variants:
            rmtree(variant.network.folder(folder), ignore_errors=True)

    def listed(self, rows: Rows) -> str:
        """Return how many of its statements hold, and how many are not decided."""
        if not rows:
            return f"{'not run':>9}"
        verdicts = [statement.verdict(rows) for statement in self.statements]
        undecided = verdicts.count("is not decided")
        return f"{verdicts.count('holds')} of {len(verdicts)} hold" + (f", {undecided} not decided" if undecided else "")

    def summary(self, rows: Rows) -> str:
        """Return all statements, and whether they hold."""
        return "\n    ".join(f"{each.text} {each.verdict(rows)}" for each in self.statements)
