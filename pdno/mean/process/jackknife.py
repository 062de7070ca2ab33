r"""Where predictions depend on single runs: the spread of copies of a process, each trained without a part of the runs.

    J_k(x)² = (F − 1)/F Σ_f (m_k^f(x) − m̄_k(x))²                                             (jackknife over F folds)

The posterior standard deviation s_k(x) knows the distances to the runs, and takes hyper-parameters, maps of coordinates and
components as given. All of them are estimated again in each copy: J is large next to a kink or a jump, or in a corner of the
box where an effect is faster than elsewhere. Errors have the local size

    t(x) = c (Σ_k w_k J_k(x)²/Σ_k w_k s_k(x)²)^(1/4),        w_k = mean square of φ_k,

relative to the posterior: half of log (J/s) was best in the regression of log errors on it. With the factor c, the geometric
mean of t over new inputs is 1, so that t changes where errors are expected, and hardly how large they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..._typing import Floats
from ...work.state import State
from ..base import powers
from .fitted import Fitted
from .regression import Hyper, Regression
from .warp import Warp

__all__ = ["Copy", "Jackknife"]

POWER = 0.25  # of the ratio of variances
TYPICAL = 0.98  # quantile of s² over new inputs, above which left-out runs have less weight
MOST_RATIO = 100.0  # of J and s
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Copy:
    """Numbers that a copy predicts, along the components of the process itself.

    Args:
        warp: its map of coordinates.
        regression: its processes.
        y: numbers of its runs along its own components, (run, own component).
        matrix: numbers along its own components ↦ numbers along those of the process, (own component, component).
        offset: added to these, (component,).
    """

    warp: Warp
    regression: Regression
    y: Floats
    matrix: Floats
    offset: Floats

    @classmethod
    def of(cls, copy: Fitted, fitted: Fitted) -> Self:
        """Return what is needed of a copy of `fitted`."""
        basis = fitted.basis
        matrix = basis.numbers(copy.basis.fields + basis.centre)
        return cls(copy.warp, copy.regression, copy.y, matrix, basis.numbers(copy.basis.centre[None])[0])

    def __call__(self, x: Floats) -> Floats:
        """Return m_k for coordinates (sample, coordinate): (sample, component)."""
        return np.asarray(self.regression(self.warp(x))[0] @ self.matrix + self.offset)

    def state(self) -> State:
        """Return all arrays, to be saved."""
        hyper = self.regression.hyper
        arrays = {"x": self.regression.x, "y": self.y, "kernel": hyper.kernel, "log": hyper.log}
        return State({}, {**arrays, "matrix": self.matrix, "offset": self.offset}, {"warp": self.warp.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned."""
        arrays = {name: np.array(values) for name, values in state.arrays.items()}
        hyper = Hyper(arrays["kernel"].astype(np.int64), arrays["log"])
        regression, warp = Regression(arrays["x"], arrays["y"], hyper), Warp.from_state(state.parts["warp"])
        return cls(warp, regression, arrays["y"], arrays["matrix"], arrays["offset"])


@dataclass(frozen=True, eq=False)
class Jackknife:
    """Local sizes of errors.

    Args:
        fitted: the process.
        copies: at least two.
        log_centre: −log c.
        variance: of log t over new inputs.
        typical: the square of the TYPICAL quantile of s.
    """

    fitted: Fitted
    copies: tuple[Copy, ...]
    log_centre: float = 0.0
    variance: float = 0.0
    typical: float = np.inf

    @classmethod
    def of(cls, fitted: Fitted, copies: Sequence[Fitted], new: Floats) -> Self:
        """Return the local sizes, whose geometric mean is 1 at new coordinates (sample, coordinate)."""
        parts = tuple(Copy.of(copy, fitted) for copy in copies)
        plain = cls(fitted, parts)
        logs, typical = plain._logs(new), np.quantile(plain._squares(new), TYPICAL)
        return cls(fitted, parts, float(logs.mean()), float(logs.var()), float(typical))

    def __call__(self, x: Floats) -> Floats:
        """Return t for coordinates (sample, coordinate), which are not mapped: (sample,)."""
        return np.asarray(np.exp(self._logs(x) - self.log_centre))

    def weights(self, left_out: Floats) -> Floats:
        """Return the weights of left-out runs with standard deviations s_k (sample, component): (sample,)."""
        return np.asarray(np.minimum(1.0, np.sqrt(self.typical / np.maximum(np.square(left_out) @ self._of_components, TINY))))

    @property
    def _of_components(self) -> Floats:
        """Return w_k, (component,)."""
        return powers(self.fitted.basis.fields)

    def _squares(self, x: Floats) -> Floats:
        """Return s², (sample,)."""
        regression = self.fitted.regression
        v = regression(self.fitted.warp(x))[1] + self.fitted.hyper.nugget
        return np.asarray((v * regression.variance) @ self._of_components)

    def _logs(self, x: Floats) -> Floats:
        """Return ¼ log (J²/s²)."""
        numbers = np.stack([copy(x) for copy in self.copies])
        spread = (len(numbers) - 1) * numbers.var(axis=0) @ self._of_components
        ratio = spread / np.maximum(self._squares(x), TINY)
        return np.asarray(POWER * np.log(np.clip(ratio, MOST_RATIO**-2, MOST_RATIO**2)))

    def state(self) -> State:
        """Return centre and copies, to be saved."""
        settings = {"log_centre": self.log_centre, "variance": self.variance, "typical": self.typical}
        return State(settings, {}, {str(k): copy.state() for k, copy in enumerate(self.copies)})

    @classmethod
    def from_state(cls, state: State, fitted: Fitted) -> Self:
        """Restore what `state` returned, for the same process."""
        copies = tuple(Copy.from_state(state.parts[str(k)]) for k in range(len(state.parts)))
        return cls(fitted, copies, **state.settings)
