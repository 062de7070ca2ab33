"""Files of torch, read in a child process by its restricted unpickler: tensors and plain containers, nothing that runs code."""

import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._typing import Array
from ...errors import UserError
from .entry import library

__all__ = ["Torch"]


class Torch:
    """The reader that runs in the child."""

    def __init__(self, path: str, limit: Callable[[], None]) -> None:
        torch = library("torch")
        if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
            raise UserError(f"needs torch 2.6 to be read safely, {torch.__version__} is installed; update it")
        self.torch, self.tensors, self.notes = torch, dict[str, Any](), list[str]()
        torch.set_num_threads(1)
        limit()
        import pickle

        try:  # mapped: only headers are read. Files of torch before 1.6 are not zip archives and cannot be mapped.
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
        except pickle.UnpicklingError:
            raise UserError("holds Python objects besides tensors, which are not loaded; save a dict of tensors") from None
        self._collect("", content, set())

    def _collect(self, name: str, item: Any, seen: set[int]) -> None:
        """Add the tensors in nested containers by their paths."""
        if isinstance(item, self.torch.Tensor):
            self.tensors.setdefault(name, item)
        elif isinstance(item, dict | list | tuple):
            if id(item) in seen:  # a container inside itself, or contained twice: a few bytes could give billions of names
                return
            seen.add(id(item))
            for key, value in item.items() if isinstance(item, dict) else enumerate(item):
                self._collect(f"{name}/{key}" if name else str(key), value, seen)
        else:
            self.notes.append(f"{name!r} is of type {type(item).__name__}")

    def listing(self) -> dict[str, Any]:
        """Return name, shape and dtype of all tensors, and notes on what is skipped."""
        entries, notes = [], self.notes
        for name, tensor in self.tensors.items():
            dtype = str(tensor.dtype).removeprefix("torch.").replace("bfloat16", "float32")
            if tensor.layout != self.torch.strided or dtype not in np.sctypeDict or tensor.is_quantized or tensor.is_meta:
                notes.append(f"{name!r} is a tensor of {tensor.dtype}, {tensor.layout}")
            else:
                entries.append((name, list(tensor.shape), dtype))
        return {"entries": entries, "notes": notes}

    def values(self, name: str, first: int, end: int) -> Array:
        """Return rows of a tensor."""
        tensor = self.tensors[name].detach().resolve_neg()
        tensor = tensor[first:end] if tensor.ndim else tensor
        tensor = tensor.float() if tensor.dtype == self.torch.bfloat16 else tensor
        return np.asarray(tensor.contiguous().numpy())
