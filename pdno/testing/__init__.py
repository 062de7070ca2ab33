"""Checks that parts fulfil the protocols of pdno, for parts of your own; all parts of pdno pass them.

    check_mean(MyMean)                       a mean model
    check_law(MyLaw)                         a residual law
    check_network(lambda: MyNetwork(…))      a network
    check_sampler(my_sampler)                a sampler
    check_model(lambda: PDNO(mean=MyMean())) a model: from fit to save and load

Each takes a function that makes a new, untrained part, trains it on small synthetic data, and raises `CheckFailed` with a
sentence that says what was expected and what happened. It returns the names of the checks that passed.

>>> from pdno.mean import Linear
>>> check_mean(Linear)[:3]
['shapes', 'same seed', 'batch independence']
"""

from .common import CheckFailed
from .laws import check_law
from .means import check_mean
from .models import check_model
from .networks import check_network, check_sampler

__all__ = ["CheckFailed", "check_law", "check_mean", "check_model", "check_network", "check_sampler"]
