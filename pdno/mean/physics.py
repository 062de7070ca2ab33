r"""The physics-informed loss of a network (`physics-informed-loss`): residuals of the equation in place of, or beside, data.

    L(θ) = L_data(θ) + λ M⁻¹ Σ_i ‖𝒢(s_θ(a_i); a_i)‖² / c,        c = M⁻¹ Σ_i ‖𝒢(0; a_i)‖²

The second term takes no outputs, so that it may be evaluated at further inputs a_i. Division by c, the size of sources and
boundary values, makes λ a number without units; c = 1 where that is zero. λ = ∞ stands for the second term alone.

An equation of order p multiplies errors of wavenumber k by k^p, so that short waves dominate the plain norm. With smoothing s,
‖·‖ is the norm of the cosine series with its coefficients divided by (1 + |k|²)^(s/2), k in half waves along each axis: the
minimum is the same, and for s = p all wavelengths have similar weights.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._typing import Array
from ..basis import low_modes
from ..data.pairs import Pairs
from ..draw import generator
from ..equation import Equation
from ..errors import UserError
from ..learning.loop import Objective
from ..learning.network import OWN, NetworkOnPairs
from ..learning.settings import Rows

__all__ = ["Physics"]

SCALE_INPUTS = 64  # inputs from which c is computed
CHECKED = 2  # pairs at which a residual is evaluated before training


@dataclass(frozen=True, eq=False)
class Physics:
    """The residual of an equation as a loss.

    Args:
        equation: an equation of pdno with a residual that can be differentiated (`Elliptic1D`, `Darcy`, `Advection`), or a
            function residual(u, a) of torch tensors (batch, channel, *grid), in the units of the data; with scalars,
            residual(u, a, scalars). It returns a tensor whose first axis is the batch.
        weight: λ; `math.inf` trains on the equation alone: outputs are used for the normalisation only.
        inputs: further inputs, (sample, channel, *grid), at which the residual is evaluated instead of the training inputs.
        scalars: those of `inputs`, (sample, parameter).
        smoothing: s, for residuals (batch, channel, *grid); 0 for the plain norm.

    Raises:
        UserError: if the equation is neither, the weight is not positive, or the smoothing is negative.

    >>> from pdno.equation import Elliptic1D
    >>> Physics(Elliptic1D(points=32), weight=0.1).describe()
    {'equation': 'elliptic1d', 'weight': 0.1, 'inputs': 0, 'smoothing': 0.0}
    """

    equation: Equation | Callable[..., Tensor]
    weight: float = 1.0
    inputs: Array | None = None
    scalars: Array | None = None
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.equation, Equation) and not callable(self.equation):
            raise UserError(f"equation = {self.equation!r}: expected a pdno.equation.Equation or a function residual(u, a)")
        if not self.weight > 0:
            raise UserError(f"weight = {self.weight}: expected a positive number; omit `physics` to train on data alone")
        if not 0 <= self.smoothing < math.inf:
            raise UserError(f"smoothing = {self.smoothing}: expected a number of at least 0, such as the order of the equation")

    @property
    def is_alone(self) -> bool:
        """Whether there is no loss of data."""
        return math.isinf(self.weight)

    def describe(self) -> dict[str, Any]:
        """Return the settings as plain JSON types: name of the equation, weight, number of further inputs."""
        name = self.equation.name if isinstance(self.equation, Equation) else OWN
        inputs = 0 if self.inputs is None else len(self.inputs)
        return {"equation": name, "weight": self.weight, "inputs": inputs, "smoothing": self.smoothing}

    def residual(self, u: Tensor, a: Tensor, scalars: Tensor | None = None) -> Tensor:
        """Return 𝒢(u; a), a tensor whose first axis is the batch."""
        if isinstance(self.equation, Equation):
            return self.equation.discrete_residual(u, a)  # type: ignore[no-any-return]
        return self.equation(u, a) if scalars is None else self.equation(u, a, scalars)

    def squared_norm(self, r: Tensor) -> Tensor:
        """Return ‖r‖² of each residual, (batch,)."""
        if self.smoothing:
            squares = r.new_zeros(())
            for points in r.shape[2:]:  # the first axis of the grid becomes the last one
                r = r.movedim(2, -1) @ r.new_tensor(low_modes(points, points, False).T / math.sqrt(points))
                squares = squares[..., None] + r.new_tensor(np.arange(points) ** 2)
            r = r * (1 + squares) ** (-self.smoothing / 2)
        return r.flatten(1).square().sum(1)

    def check(self, pairs: Pairs) -> None:
        """Evaluate the residual of some pairs.

        Raises:
            UserError: if pairs or further inputs do not fit the equation, or the residual is not a tensor for each pair that
                can be differentiated.
        """
        few = pairs[:CHECKED]
        if self.inputs is not None and (self.inputs.shape[1:] != few.a.shape[1:] or not len(self.inputs)):
            expected = ", ".join(map(str, few.a.shape[1:]))
            raise UserError(f"further inputs have shape {self.inputs.shape}, expected (sample, {expected}) as in training")
        if (self.scalars is None) != (self.inputs is None or few.scalars is None):
            raise UserError("further inputs need scalars if, and only if, the training pairs have them; pass both or none")
        if isinstance(self.equation, Equation):
            self.equation.residual(few.filled, few.a)  # which checks shapes and values
        u = torch.as_tensor(np.asarray(few.filled, dtype=np.float64)).requires_grad_()
        a, s = (None if x is None else torch.as_tensor(np.asarray(x, dtype=np.float64)) for x in (few.a, few.scalars))
        r: Any = self.residual(u, a, s)  # type: ignore[arg-type]
        if not isinstance(r, Tensor) or r.ndim < 1 or len(r) != len(u) or not r.requires_grad:
            got = f"a tensor of shape {tuple(r.shape)}" if isinstance(r, Tensor) else f"a {type(r).__name__}"
            raise UserError(
                f"residual(u, a) returned {got} for {len(u)} pairs; expected a tensor with a row for each, computed from u by "
                "torch functions"
            )

    def objective(self, net: NetworkOnPairs, pairs: Pairs, data: Objective, seed: int, purpose: str) -> Objective:
        """Return L, given the loss of data.

        Args:
            net: network with normalisations.
            pairs: of the loss of data, and inputs of the residual unless further ones are given.
            data: L_data.
            seed: of the choice of further inputs, a function of (seed, step, place in the batch).
            purpose: "train", or "validation", for which no further inputs are used.
        """
        own = self.inputs is None or purpose != "train"
        a, scalars = (pairs.a, pairs.scalars) if self.inputs is None or own else (self.inputs, self.scalars)
        normalisation = net.normalisations["u"]
        mean, std = net.tensor(normalisation.mean), net.tensor(normalisation.std)
        factor = (1.0 if self.is_alone else self.weight) / self._scale(net, a, scalars)

        def loss(network: Any, rows: Rows, first: int, step: int) -> Tensor:
            some = rows if own else generator(seed, "physics", step).integers(len(a), size=first + len(rows))[first:]
            s = None if scalars is None else scalars[some]
            u = network(net.condition(a[some], s)) * std + mean
            r = self.residual(u, net.tensor(a[some]), None if s is None else net.tensor(s))
            value = factor * self.squared_norm(r).mean()
            return value if self.is_alone else value + data(network, rows, first, step)

        return loss

    @torch.no_grad()
    def _scale(self, net: NetworkOnPairs, a: Array, scalars: Array | None) -> float:
        """Return c."""
        x, s = a[:SCALE_INPUTS], None if scalars is None else net.tensor(scalars[:SCALE_INPUTS])
        zero = net.tensor(np.zeros((len(x), *net.spaces.u_shape)))
        size = float(self.squared_norm(self.residual(zero, net.tensor(x), s)).mean())
        return size if size > 0 else 1.0
