"""The claims that the paper makes in passing, about Test 1: variants, and what must be measured for a claim to hold.

All variants of a claim have the same data, number of updates and training settings.
"""

from dataclasses import replace
from math import inf
from typing import Any

from .claim import Claim, Condition, Network, Statement, Variant

__all__ = ["CLAIMS"]

TOLERANCE = 0.1  # relative change of the MRLE that is inconsequential, or slight
NEAR = (0.95, 1.05)  # std of the members / std of the noise
NOISES = ("0.01", "0.05", "1")
RULES = ("noise-free", "gaussian", "mixed", "analytic")
STEPS = (100, 20, 10, 5)
SAMPLERS = ("ancestral", "ddim", "gaussian-exact")
FEW: dict[str, Any] = {"steps": 20}
THEOREM: dict[str, Any] = {"variance": "gaussian"}  # the paper's rule for noisy data
MANY = 100  # members, where small differences of the error are to be decided

UNET = Network("unet", {"kind": "unet", "attention": "all"})
ONE_BLOCK = Network("unet-middle", {"kind": "unet", "attention": "middle"})
NO_ATTENTION = Network("unet-none", {"kind": "unet", "attention": "none"})
FNO = Network("fno", {"kind": "fno", "modes": 16, "width": 64})
LOCAL = Network("local", {"kind": "local"})
NOISE_FREE = replace(LOCAL, noise="none")
YOUNG = 0.1  # share of the updates of a network that is not well trained


def _attention() -> Claim:
    variants = (
        Variant("all", UNET, None, FEW, MANY),
        Variant("middle", ONE_BLOCK, "all", FEW, MANY),
        Variant("none", NO_ATTENTION, "all", FEW, MANY),
    )
    same = (-TOLERANCE, TOLERANCE)
    statement = Statement(
        "The impact of self-attention on the accuracy is inconsequential.",
        "appendix on benchmarks, item 5",
        "MRLE changes by at most 10 % with one block and without attention",
        (Condition("middle", "mrle_change", *same), Condition("none", "mrle_change", *same)),
    )
    return Claim("attention", variants, (statement,))


def _target() -> Claim:
    variants = (
        Variant("eps", replace(ONE_BLOCK, target="eps"), None, THEOREM),
        Variant("mean", replace(ONE_BLOCK, target="mean"), "eps", THEOREM),
        Variant("mean, weighted", replace(ONE_BLOCK, target="mean", weight="ddsm"), "eps", THEOREM),
        Variant("u0", ONE_BLOCK, "eps", THEOREM),
        Variant("eps, analytic", replace(ONE_BLOCK, target="eps"), "eps"),
        Variant("mean, analytic", replace(ONE_BLOCK, target="mean"), "eps, analytic"),
        Variant("mean, weighted, analytic", replace(ONE_BLOCK, target="mean", weight="ddsm"), "eps, analytic"),
    )
    text = "Predicting ε is more precise than predicting m_θ"
    statements = (
        Statement(
            f"{text}, with the error of m_θ as loss.",
            "section 3.1",
            "MRLE of `mean` above that of `eps`",
            (Condition("mean", "mrle_change", 0.0),),
        ),
        Statement(
            f"{text}, with the loss L_DDSM for both.",
            "section 3.1",
            "MRLE of `mean, weighted` above that of `eps`",
            (Condition("mean, weighted", "mrle_change", 0.0),),
        ),
        Statement(
            f"{text}, with either loss, if σ_n is analytic.",
            "section 3.1, with the rule of pdno",
            "MRLE of `mean, analytic` and `mean, weighted, analytic` above that of `eps, analytic`",
            (Condition("mean, analytic", "mrle_change", 0.0), Condition("mean, weighted, analytic", "mrle_change", 0.0)),
        ),
        Statement(
            "Predicting u₀ is more precise than predicting ε.",
            "pdno",
            "MRLE of `u0` below that of `eps`",
            (Condition("u0", "mrle_change", -inf, 0.0),),
        ),
    )
    return Claim("target", variants, statements)


def _variance() -> Claim:
    networks = {noise: replace(LOCAL, noise=f"gaussian:{noise}") for noise in NOISES}
    networks |= {"0.05, eps": replace(LOCAL, target="eps"), "0.05, fno, eps": replace(FNO, target="eps")}
    variants = tuple(
        Variant(
            f"{label}, {rule}",
            network,
            None if rule == "noise-free" else f"{label}, noise-free",
            {"variance": rule},
        )
        for label, network in networks.items()
        for rule in RULES
    )

    def near(rule: str) -> tuple[Condition, ...]:
        return tuple(Condition(f"{noise}, {rule}", "std_noise_ratio", *NEAR) for noise in NOISES)

    statements = (
        Statement(
            "The choice of σ_n has an important impact: noise of std .01 and .05.",
            "section 3.1, after `thm:optimal-sigma`",
            "std with σ_n = β_n more than 10 % above that of the noise-free rule",
            tuple(Condition(f"{noise}, gaussian", "std_change", TOLERANCE) for noise in NOISES[:2]),
        ),
        Statement(
            "The same for noise of std 1.",
            "section 3.1, after `thm:optimal-sigma`",
            "as before",
            (Condition("1, gaussian", "std_change", TOLERANCE),),
        ),
        Statement(
            "With σ_n = β_n the std of Gaussian noise is learned.",
            "`thm:optimal-sigma`, section 4.1",
            "std / noise from .95 to 1.05 at all noise levels",
            near("gaussian"),
        ),
        Statement(
            "The same with ε as target, as in the paper, and a network that can be trained so; noise of std .05.",
            "`thm:optimal-sigma`, section 4.1",
            "std / noise from .95 to 1.05 with the Fourier neural operator",
            (Condition("0.05, fno, eps, gaussian", "std_noise_ratio", *NEAR),),
        ),
        Statement(
            "With the analytic rule the std of Gaussian noise is learned.",
            "pdno",
            "std / noise from .95 to 1.05 at all noise levels",
            near("analytic"),
        ),
    )
    return Claim("variance", variants, statements)


def _fno() -> Claim:
    variants = (
        Variant("unet, eps", replace(ONE_BLOCK, target="eps"), None, THEOREM),
        Variant("fno, eps", replace(FNO, target="eps"), "unet, eps", THEOREM),
        Variant("fno, v", replace(FNO, target="v"), "unet, eps", THEOREM),
        Variant("fno, u0", FNO, "unet, eps", THEOREM),
        Variant("unet, u0", ONE_BLOCK, "unet, eps", THEOREM),
    )
    statements = (
        Statement(
            "A Fourier neural operator that predicts ε is less accurate than a UNet.",
            "section 3.2, last paragraph",
            "MRLE of `fno, eps` above that of `unet, eps`",
            (Condition("fno, eps", "mrle_change", 0.0),),
        ),
        Statement(
            "The UNet is therefore critical: the FNO is less accurate with any target.",
            "section 3.2, last paragraph",
            "MRLE of `fno, v` and `fno, u0` above that of `unet, eps`",
            (Condition("fno, v", "mrle_change", 0.0), Condition("fno, u0", "mrle_change", 0.0)),
        ),
    )
    return Claim("fno", variants, statements)


def _steps() -> Claim:
    first = "ancestral, 100"
    variants = tuple(
        Variant(name, LOCAL, None if name == first else first, {"steps": steps, "sampler": sampler})
        for sampler in SAMPLERS
        for steps in STEPS
        for name in [f"{sampler}, {steps}"]
    )
    ddim = [f"ddim, {steps}" for steps in STEPS[1:]]
    ours = [f"{sampler}, {steps}" for sampler in ("ancestral", "gaussian-exact") for steps in STEPS[1:]]
    statements = (
        Statement(
            "DDIM with few steps compromises the accuracy of the mean slightly.",
            "conclusion",
            "MRLE of DDIM with 20, 10 and 5 steps at most 10 % above that of `ancestral, 100`",
            tuple(Condition(name, "mrle_change", -inf, TOLERANCE) for name in ddim),
        ),
        Statement(
            "The same for the spread.",
            "conclusion",
            "std / noise of DDIM from .95 to 1.05 with 20, 10 and 5 steps",
            tuple(Condition(name, "std_noise_ratio", *NEAR) for name in ddim),
        ),
        Statement(
            "The other two samplers keep the spread with few steps.",
            "pdno",
            "std / noise from .95 to 1.05 with 20, 10 and 5 steps",
            tuple(Condition(name, "std_noise_ratio", *NEAR) for name in ours),
        ),
    )
    return Claim("steps", variants, statements)


def _diagnostic() -> Claim:
    networks = {
        "u0": NOISE_FREE,
        "u0, young": replace(NOISE_FREE, share=YOUNG),
        "eps": replace(FNO, target="eps", noise="none"),
        "eps, young": replace(FNO, target="eps", noise="none", share=YOUNG),
        "noisy, u0": LOCAL,
        "noisy, eps": replace(FNO, target="eps"),
    }
    variants = tuple(
        Variant(f"{label}, {rule}", network, None, {"variance": rule})
        for label, network in networks.items()
        for rule in ("noise-free", "analytic")
    )

    def at_least_half(rule: str, *labels: str) -> tuple[Condition, ...]:
        return tuple(Condition(f"{label}, {rule}", "std_error_ratio", 0.5) for label in labels)

    statements = (
        Statement(
            "A std of members near zero shows that noise-free data are fitted well; ε, noise-free rule.",
            "section 3.1, last paragraph",
            "std at least half of the RMSE, well trained or not",
            at_least_half("noise-free", "eps", "eps, young"),
        ),
        Statement(
            "The same for networks that predict u₀.",
            "section 3.1, last paragraph",
            "as before",
            at_least_half("noise-free", "u0", "u0, young"),
        ),
        Statement(
            "With the analytic rule, std is at least half of the RMSE, for both targets.",
            "pdno",
            "as before",
            at_least_half("analytic", "eps", "eps, young", "u0", "u0, young"),
        ),
        Statement(
            "The std of the noise-free rule is not near zero if data are noisy; ε and u₀.",
            "section 3.1, last paragraph",
            "std at least half of that of the noise",
            tuple(Condition(f"noisy, {target}, noise-free", "std_noise_ratio", 0.5) for target in ("eps", "u0")),
        ),
    )
    return Claim("diagnostic", variants, statements)


CLAIMS = {claim.name: claim for claim in (_attention(), _target(), _fno(), _steps(), _variance(), _diagnostic())}
