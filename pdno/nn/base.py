r"""The interface of a network, and the base class of the networks of this package.

    F_θ(n, v, a)    a denoising network: step n, noisy field v = U_n and condition a ↦ the target of `pdno.Diffusion`
    s_θ(a)          a regression network: condition a ↦ an estimate of E[u | a]

Any callable with these arguments is a network. The loss, the denoiser and the samplers of `pdno.diffusion` require no more,
so an exact score can stand in for a network. Training and saving a model require a `torch.nn.Module` with parameters;
`GridNetwork` adds checks of the inputs and the settings from which `pdno.load` builds the network again.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..errors import UserError

__all__ = ["DenoisingNetwork", "GridNetwork", "RegressionNetwork"]


class DenoisingNetwork(Protocol):
    """A function (n, v, a) ↦ F_θ.

    Args:
        n: step 1 … N, an integer tensor (batch,).
        v: noisy field at step n, (batch, channel of u, *grid).
        a: condition, (batch, channel of a, *grid).

    Returns:
        The predicted target, in the shape of v.
    """

    def __call__(self, n: Any, v: Tensor, a: Any, /) -> Tensor: ...


class RegressionNetwork(Protocol):
    """A function a ↦ s_θ(a), from (batch, channel of a, *grid) to (batch, channel of u, *grid)."""

    def __call__(self, a: Tensor, /) -> Tensor: ...


class GridNetwork(nn.Module, ABC):
    """A network on fields with values on a grid: ``forward(n, v, a)``, or ``forward(a)`` with time=False.

    ``type(net)(**net.settings)`` builds the same network with new weights. `is_operator` says whether it maps functions to
    functions: values of the same functions on another grid give the values of the same output there, nearly. `call_values` is
    the number of values of a batch for which it is fastest, as its activations fit a cache.

    Args:
        dim: number of axes of the grid.
        in_channels: channels of a, plus those of v with time=True.
        out_channels: channels of the output.
        time: whether the network depends on the step n.
        choices: settings of a subclass that are True, False or names.
        sizes: settings of a subclass that are positive whole numbers, or lists of them.
    """

    is_operator: bool = False
    call_values: int = 2**13

    def __init__(
        self,
        dim: int,
        in_channels: int,
        out_channels: int,
        time: bool,
        choices: Mapping[str, bool | str] | None = None,
        **sizes: int | list[int],
    ) -> None:
        super().__init__()
        shared: dict[str, int | list[int]] = {"dim": dim, "in_channels": in_channels, "out_channels": out_channels}
        for name, value in (shared | sizes).items():
            numbers = value if isinstance(value, list) else [value]
            if not (numbers and all(isinstance(number, int) and number > 0 for number in numbers)):
                raise UserError(f"{name} = {value!r}: a network needs whole numbers of at least 1")
        self.dim, self.in_channels, self.time = dim, in_channels, time
        self.settings: dict[str, Any] = {**shared, "time": time, **sizes, **(choices or {})}

    def forward(self, *inputs: Any) -> Tensor:
        """Return F_θ(n, v, a), or s_θ(a) with time=False.

        Args:
            inputs: n, v, a as in `DenoisingNetwork`, where n may also be one integer; or a as in `RegressionNetwork`.

        Returns:
            (batch, out_channels, *grid).

        Raises:
            UserError: if inputs have the wrong number, shape or type.
        """
        if len(inputs) != (3 if self.time else 1):
            raise UserError(f"the network got {len(inputs)} inputs; with time={self.time} call it as {self._call}")
        fields = inputs[:0:-1] if self.time else inputs  # a comes first: "(a, u_n)"
        for field in fields:
            self._check(field)
        if len({(len(field), field.shape[2:]) for field in fields}) > 1:
            raise UserError(f"v is {_shape(inputs[1])} and a is {_shape(inputs[2])}; they need the same batch and grid")
        x = torch.cat(fields, 1) if self.time else fields[0]
        if x.shape[1] != self.in_channels:
            raise UserError(
                f"the inputs have {x.shape[1]} channels, but the network was made with in_channels={self.in_channels}"
            )
        return self.evaluate(x, _steps(inputs[0], x) if self.time else None)

    @abstractmethod
    def evaluate(self, x: Tensor, n: Tensor | None) -> Tensor:
        """Return the output for the concatenated fields x, (batch, in_channels, *grid), and the steps n, (batch,)."""

    @property
    def _call(self) -> str:
        return "network(n, v, a)" if self.time else "network(a)"

    def _check(self, field: Any) -> None:
        if not isinstance(field, Tensor):
            raise UserError(f"the network got a {type(field).__name__}; expected tensors, as {self._call}")
        if field.ndim != self.dim + 2:
            raise UserError(
                f"a {self.dim}-D network takes (batch, channel, {', '.join('xyz'[: self.dim])}); got {_shape(field)}"
            )
        expected = next(chain(self.parameters(), self.buffers())).dtype
        if field.dtype != expected and not torch.is_autocast_enabled(field.device.type):
            raise UserError(
                f"the network computes in {expected}, but got {field.dtype}; convert the field with .to({expected})"
            )


def _steps(n: Any, x: Tensor) -> Tensor:
    """Return one step per sample, (batch,)."""
    steps = torch.as_tensor(n, device=x.device)
    if steps.shape not in ((), (len(x),)):
        raise UserError(f"n has shape {_shape(steps)}; expected one step, or one for each of the {len(x)} fields")
    return steps.expand(len(x))


def _shape(x: Tensor) -> str:
    return f"({', '.join(map(str, x.shape))})"
