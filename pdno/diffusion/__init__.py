"""The diffusion: schedule, base law, forward chain and targets, reverse chain."""

from .chain import Denoiser, Diffusion, Predictor, Target, Weight

__all__ = ["Denoiser", "Diffusion", "Predictor", "Target", "Weight"]
