"""`pdno.load`: a model from its file. Nothing in the file is run, and shapes are compared before memory is taken."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data.spaces import Frame
from ..errors import UserError, nearest
from ..evaluation.novelty import Novelty
from ..learning.normalisation import Scaling
from ..work import checkpoint
from .baseline import FNO, Plain, UNet
from .operator import PDNO
from .surrogate import Surrogate

__all__ = ["load"]

MODELS: dict[str, type[Any]] = {model.name: model for model in (PDNO, FNO, UNet, Plain)}


def load(path: str | Path, network: nn.Module | None = None, device: str = "cpu") -> Surrogate:
    """A model that `save` or `pdno train` wrote.

    Args:
        path: the file, or the folder of a run.
        network: the module to put the weights into, for a model with a network of your own.
        device: where it should compute.
    """
    file = Path(path) / "model.safetensors" if Path(path).is_dir() else Path(path)
    if Path(path).is_dir() and not file.exists():
        begun = (Path(path) / "config.toml").exists()
        hint = "is not finished; run the same `pdno train` again" if begun else "is not the folder of a run"
        raise UserError(f"{path} {hint}; there is no {file.name} in it")
    tensors, metadata = checkpoint.load(file, "model")
    kind = metadata.get("model")
    if kind not in MODELS:
        raise UserError(f"{file} holds a model {kind!r} that this version does not know; {nearest(str(kind), MODELS)}")
    try:
        model = _described(MODELS[kind], tensors, metadata)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if isinstance(error, UserError) else repr(error)
        raise UserError(f"{file} does not describe a model ({reason}); save it again with this version") from None
    weights = {name[8:]: v for name, v in tensors.items() if name.startswith("network.")}
    model.network = _filled(model, network, weights, file).eval()
    return model.to(device)


def _described(kind: type[Any], tensors: dict[str, torch.Tensor], metadata: dict[str, Any]) -> Surrogate:
    """The model without its network."""
    model: Surrogate = kind.from_settings(metadata)
    coordinates = {name[11:]: v.numpy() for name, v in tensors.items() if name.startswith("coordinate.")}
    model.frame = Frame.from_json(metadata["frame"], coordinates)
    model.provenance = dict(metadata["provenance"])
    for name in ("a", "u", "scalars") if model.frame.scalars else ("a", "u"):
        model.scalings[name] = Scaling(tensors[f"scaling.{name}.mean"].numpy(), tensors[f"scaling.{name}.std"].numpy())
    novelty = {name[8:]: v.numpy() for name, v in tensors.items() if name.startswith("novelty.")}
    model.novelty = Novelty.from_arrays(novelty) if novelty else None
    model.seen = tensors["seen"].numpy() if "seen" in tensors else model.seen
    model.orient()
    return model.restore({name[6:]: v.numpy() for name, v in tensors.items() if name.startswith("model.")})


def _filled(model: Surrogate, network: nn.Module | None, weights: dict[str, torch.Tensor], file: Path) -> nn.Module:
    """The network with its weights; one that does not fit them is refused before it is built."""
    if network is None:
        if model.network == "own":
            raise UserError(f"{file} has the weights of a network of your own; give it: pdno.load(…, network=YourNetwork())")
        try:
            with torch.device("meta"):
                shapes = {name: v.shape for name, v in model._built(0).state_dict().items()}
        except (ValueError, RuntimeError, TypeError) as error:  # one that cannot be built at all
            raise UserError(f"{file} describes a network that does not exist: {str(error).splitlines()[0]}") from None
        if shapes != {name: v.shape for name, v in weights.items()}:
            raise UserError(f"the weights in {file} do not fit the network that it describes; it cannot be used")
        network = model._built(0)
    network.to(next(iter(weights.values())).dtype)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise UserError(f"the weights in {file} do not fit this network: {str(error).splitlines()[-1].strip()}") from None
    return network
