"""Residual laws: the distribution of u − m(a) given a, the second part of u | a = m(a) + residual."""

from .. import lazy_submodules
from .build import LAWS, law_from_state
from .censored import Censored
from .copula import Copula
from .diffused import Diffused
from .exact import Exact
from .gaussian import Gaussian
from .law import Density, Expectation, Inputs, ResidualLaw, Residuals, Rows, normals
from .posterior import PosteriorLaw
from .resampled import Resampled
from .scaled import Scaled
from .statistics import Statistics

__all__ = [
    "LAWS",
    "Censored",
    "Copula",
    "Density",
    "Diffused",
    "Exact",
    "Expectation",
    "Gaussian",
    "Inputs",
    "PosteriorLaw",
    "Resampled",
    "ResidualLaw",
    "Residuals",
    "Rows",
    "Scaled",
    "Statistics",
    "law_from_state",
    "normals",
]

__getattr__ = lazy_submodules(__name__)
