"""The diffusion: noise schedule, base distribution, forward chain with targets and loss, reverse chain with samplers.

>>> White() + LowModes(1), Reverse(steps=10).n_steps(Schedule.cosine(100))
(SumBase(terms=(White(), LowModes(modes=1, std=1.0))), 10)
"""

from .base import Base, FieldBase, LowModes, SumBase, White, as_base
from .chain import Denoiser, Diffusion, Predictor, Target, Weight
from .error import DenoisingError, OwnError, denoising_error
from .reverse import AUTO_STEPS, Reverse, Rule, nvlb, variance
from .samplers import SAMPLERS, Sampler, ancestral, ddim, dpm, evaluations, gaussian_exact, heun
from .schedule import Schedule, Spacing, noise_range

__all__ = [
    "AUTO_STEPS",
    "SAMPLERS",
    "Base",
    "Denoiser",
    "DenoisingError",
    "Diffusion",
    "FieldBase",
    "LowModes",
    "OwnError",
    "Predictor",
    "Reverse",
    "Rule",
    "Sampler",
    "Schedule",
    "Spacing",
    "SumBase",
    "Target",
    "Weight",
    "White",
    "ancestral",
    "as_base",
    "ddim",
    "denoising_error",
    "dpm",
    "evaluations",
    "gaussian_exact",
    "heun",
    "noise_range",
    "nvlb",
    "variance",
]
