r"""Selection of the residual law: a Gaussian, or a diffusion where that is better on held-out pairs.

A diffusion is not tried if the mean is exact, if in-sample residuals are not representative of new ones (an overfitted
network), or if normalised residuals pass all tests of white Gaussian noise. Else it is trained, and kept if its denoising loss
on held-out pairs is lower than that of the Gaussian law by more than one standard error.
"""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from ..evaluation.whiteness import looks_gaussian
from ..learning.budget import Terms
from .build import LAWS
from .diffused import Diffused
from .gaussian import Gaussian
from .law import ResidualLaw, Residuals

__all__ = ["LawChoice", "MeanResiduals", "choose_law"]


@dataclass(frozen=True)
class MeanResiduals:
    """Residuals of a mean on training and on held-out pairs.

    Args:
        train: residuals to train on, out of fold where the mean has them.
        held_out: residuals of held-out pairs.
        measured: the one of these two from which the scale is estimated.
        exact: whether predictions of the mean are exact up to rounding.
        representative: whether `train` is representative of new pairs.
    """

    train: Residuals
    held_out: Residuals | None
    measured: Residuals
    exact: bool = False
    representative: bool = True


@dataclass(frozen=True)
class LawChoice:
    """The selected law, and the reasons in sentences."""

    law: ResidualLaw
    summary: list[str]


def choose_law(
    law: str | ResidualLaw, residuals: MeanResiduals, gaussian: Gaussian, diffused: Diffused, terms: Terms
) -> LawChoice:
    """Train the requested law, or select one ("auto").

    Args:
        law: "auto", a name of `pdno.residual.LAWS`, or an untrained law, which is copied.
        residuals: of the mean.
        gaussian: untrained Gaussian law with the settings of the model.
        diffused: untrained diffusion with the settings of the model; it shares S and t with the Gaussian law.
        terms: seed, folder, devices and deadline.

    Returns:
        The trained law, and sentences for the summary of the model.
    """
    if law == "auto":
        return _select(residuals, gaussian, diffused, terms)
    if law == diffused.name:
        gaussian.learn(residuals.measured, residuals.held_out, terms)
        diffused.with_spread(gaussian.spread).learn(residuals.train, residuals.held_out, terms)
        return LawChoice(diffused, [diffused.describe(), *diffused.notes])
    new = gaussian if law == gaussian.name else LAWS[law]() if isinstance(law, str) else deepcopy(law)
    new.learn(residuals.measured, None if residuals.measured is residuals.held_out else residuals.held_out, terms)
    return LawChoice(new, [new.describe()])


def _select(residuals: MeanResiduals, gaussian: Gaussian, diffused: Diffused, terms: Terms) -> LawChoice:
    """Train the Gaussian law, then the diffusion where it may be better; select one."""
    gaussian.learn(residuals.measured, residuals.held_out, terms)
    summary = [f"Residual scale: {gaussian.spread.describe()}."]
    if reason := _nothing_to_learn(residuals, gaussian, terms.seed):
        return LawChoice(gaussian, [*summary, f"Residuals are taken as Gaussian: {reason}."])
    diffused.with_spread(gaussian.spread).train(residuals.train, residuals.held_out, terms)
    if residuals.held_out is None:
        return LawChoice(diffused, summary)
    gain = diffused.gain(gaussian, residuals.held_out, terms)
    stderr = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf
    difference = f"{abs(gain.mean()):.2g} {'lower' if gain.mean() > 0 else 'higher'} than that of a Gaussian, ± {stderr:.2g}"
    measured = f"its denoising loss on held-out pairs is {difference}"
    if not gain.mean() > stderr:
        return LawChoice(gaussian, [*summary, f"The diffusion was dropped, residuals are Gaussian: {measured}."])
    diffused.measure(residuals.held_out, terms)
    return LawChoice(diffused, [*summary, f"The diffusion was kept: {measured}.", *diffused.notes])


def _nothing_to_learn(residuals: MeanResiduals, gaussian: Gaussian, seed: int) -> str:
    """Return why a diffusion is not tried; empty if it is."""
    if residuals.exact:
        return "predictions of the mean are exact up to rounding"
    if not residuals.representative:
        return "those of the training pairs are not representative, as the mean is overfitted"
    r = gaussian.spread.normalised(residuals.train, seed, "train")
    if gaussian.spread.is_homoscedastic and looks_gaussian(r, residuals.train.pairs.mask):
        return "they pass all tests of white, homoscedastic Gaussian noise"
    return ""
