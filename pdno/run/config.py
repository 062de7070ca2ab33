r"""Settings of a training run: typed, from a preset, a TOML file and the command line, in this order.

    [model]       kind = "pdno", mean = "auto", residual_scale = "auto", symmetries = ["square"], grid = "cell", budget = 600
    [network]     kind = "unet", base = 16
    [diffusion]   schedule = "cosine", n_steps = 100, base = "white", target = "u0", weight = "target"
    [reverse]     variance = "analytic", steps = "auto", sampler = "ancestral"
    [training]    updates = 4000, batch = 32, rate = 1e-3                              (the fields of pdno.Training)

A base law is written as a sum of white, field:TAU,R and low:MODES,STD, for instance "white+low:1,1".
"""

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from torch import nn

from ..data.pairs import Dataset
from ..diffusion.base import Base, FieldBase, LowModes, Sum, White, as_base
from ..diffusion.chain import Diffusion, Target, Weight
from ..diffusion.reverse import Rule
from ..diffusion.schedule import Schedule, Spacing
from ..errors import UserError, nearest
from ..field import Field
from ..learning.loop import Training
from ..learning.normalisation import Normalise
from ..mean import mean_of
from ..mean.network import recipe
from ..model.baseline import FNO, Plain, UNet
from ..model.operator import PDNO
from ..model.paper import PDNO_TESTS
from ..model.surrogate import Surrogate

__all__ = ["RIVALS", "Config", "seconds"]

RIVALS = ("linear", "kernel", "fno", "unet")


class Section(BaseModel):
    """Settings of one kind; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ModelSection(Section):
    """`symmetries` and `grid` (the kind of its axes, one or one each) are those of the data's equation where it is known."""

    kind: Literal["pdno", "fno", "unet", "linear", "kernel"] = "pdno"
    mean: str = "auto"
    residual_scale: Literal["auto", "scalar", "point", "mode", "both"] = "auto"
    symmetries: list[str] | Literal["auto"] = "auto"
    grid: str | list[str] = "auto"
    normalise: Normalise = "scalar"
    budget: float | None = None

    @field_validator("mean", mode="before")
    @classmethod
    def _known(cls, name: Any) -> Any:
        if name is None:  # what `--set model.mean=none` gives
            return "none"
        if isinstance(name, str) and name not in ("auto", "none"):
            mean_of(name)
        return name


class NetworkSection(Section):
    kind: Literal["auto", "unet", "fno", "slim", "spectral", "zero"] = "auto"
    base: int | None = None
    multipliers: list[int] | None = None
    modes: int | None = None
    width: int | None = None
    widths: list[int] | None = None
    blocks: int | None = None
    patch: int | None = None
    layers: int | None = None
    coordinates: bool | None = None


class DiffusionSection(Section):
    schedule: Literal["cosine", "linear"] = "cosine"
    n_steps: int = 100
    base: str = "white"
    target: Target | Literal["auto"] = "auto"  # "v" for residuals, "u0" without a mean
    weight: Weight = "target"

    @field_validator("base")
    @classmethod
    def _known(cls, text: str) -> str:
        _base(text)
        return text


class ReverseSection(Section):
    variance: Rule = "analytic"
    mix: float = 0.5
    steps: int | Literal["auto"] = "auto"
    spacing: Spacing = "even"
    sampler: Literal["ancestral", "ddim", "dpm", "heun"] = "ancestral"
    last_noise: bool = True
    t_start: int = 0


class DataSection(Section):
    """Where the pairs came from and how they were split: written by `pdno train`."""

    file: str = ""
    options: dict[str, str] = {}
    validation: float = 0.1
    test: float = 0.1
    seed: int = 0
    pairs: dict[str, int] = {}
    digest: str = ""  # of the first and the last pair of each split


class Config(Section):
    """All settings of a run.

    >>> Config.preset("paper:burgers").diffusion.schedule
    'linear'
    """

    model: ModelSection = ModelSection()
    network: NetworkSection = NetworkSection()
    diffusion: DiffusionSection = DiffusionSection()
    reverse: ReverseSection = ReverseSection()
    training: Training = Training()
    data: DataSection = DataSection()

    @classmethod
    def preset(cls, name: str) -> "Config":
        """ "auto"; a rival, "linear", "kernel", "fno" or "unet"; "paper:TEST" or "paper:TEST:noisy", with the paper's TESTs."""
        kind, _, rest = name.partition(":")
        test, _, noisy = rest.partition(":")
        if name == "auto":
            return cls()
        if name in RIVALS:
            return cls(model=ModelSection(kind=name))  # type: ignore[arg-type]
        if kind == "paper" and test in PDNO_TESTS and noisy in ("", "noisy"):
            return cls.of(PDNO.paper(test, bool(noisy)))
        known = ["auto", *RIVALS, *(f"paper:{test}" for test in PDNO_TESTS), *(f"paper:{test}:noisy" for test in PDNO_TESTS)]
        raise UserError(f"preset {name!r} is unknown; {nearest(name, known)}")

    @classmethod
    def of(cls, model: PDNO) -> "Config":
        """The settings of a model that has not been built yet."""
        chain = model.diffusion.schedule
        names = [s for s in ("cosine", "linear") if np.allclose(getattr(Schedule, s)(chain.n_steps).gamma, chain.gamma)]
        assert not isinstance(model.network, nn.Module)
        network = {"kind": model.network} if isinstance(model.network, str) else dict(model.network)
        diffusion = {"schedule": names[0], "n_steps": chain.n_steps, "base": _base_text(model.diffusion.law)}
        reverse = {name: getattr(model, name) for name in ReverseSection.model_fields}
        return cls.model_validate(
            {
                "model": {"normalise": model.normalise, "mean": model.mean_asked or "none"},
                "network": network,
                "diffusion": {**diffusion, "target": model.diffusion.target, "weight": model.diffusion.weight},
                "reverse": reverse,
                "training": asdict(model.training),
            }
        )

    def changed(self, changes: dict[str, Any], source: str) -> "Config":
        """These settings with some changed; `source` is named where they are wrong."""
        whole = self.model_dump()
        for section, values in changes.items():
            if section not in whole or section == "data":
                raise UserError(f"{source}: section {section!r} is unknown; {nearest(section, [*whole][:-1])}")
            if not isinstance(values, dict):
                hint = f"write [{section}] and keys below it, or {section}.key=value"
                raise UserError(f"{source}: {section} is a section; {hint}")
            whole[section] |= values
        try:
            return Config.model_validate(whole)
        except ValidationError as error:
            raise UserError(f"{source}: {_told(error, whole)}") from None

    def with_file(self, path: Path) -> "Config":
        """These settings with those of a TOML file."""
        try:
            found = tomllib.loads(path.read_text())
            found.pop("data", None)  # of a run that settings are taken from: it has its own
            return self.changed(found, path.name)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{path.name} is not a TOML file: {error}") from None

    def with_set(self, settings: Iterable[str]) -> "Config":
        """These settings with those of `--set section.key=value`."""
        config = self
        for setting in settings:
            match = re.fullmatch(r"(\w+)\.(\w+)=(.*)", setting)
            if match is None:
                raise UserError(f"--set {setting}: expected section.key=value, for instance training.batch=20")
            config = config.changed({match[1]: {match[2]: _value(match[3])}}, f"--set {setting}")
        return config

    def build(self) -> Surrogate:
        """The model of these settings."""
        network = {key: value for key, value in self.network.model_dump().items() if value is not None}
        m, given = self.model, None if self.training == Training() else self.training
        how: dict[str, Any] = {
            "symmetries": () if m.symmetries == "auto" else m.symmetries,
            "kind": "cell" if m.grid == "auto" else m.grid,
            "budget": m.budget,
        }
        if m.kind in ("linear", "kernel"):
            return Plain(m.kind, **how)
        if m.kind in ("fno", "unet"):
            rival, own = {"fno": (FNO, "fno"), "unet": (UNet, "slim")}[m.kind]
            asked = network | {"kind": own} if network["kind"] == "auto" else network
            return rival(asked, normalise=m.normalise, training=recipe(m.budget is not None, self.training), **how)
        d = self.diffusion
        target: Target = ("u0" if m.mean == "none" else "v") if d.target == "auto" else d.target
        diffusion = Diffusion(getattr(Schedule, d.schedule)(d.n_steps), _base(d.base), target, d.weight)
        residual: dict[str, Any] = {"mean": m.mean, "residual_scale": m.residual_scale}
        return PDNO(network, diffusion, **residual, normalise=m.normalise, training=given, **how, **self.reverse.model_dump())

    def of_data(self, data: Dataset) -> "Config":
        """These settings with what the data say about themselves: their grid, and the symmetries of their equation."""
        found: dict[str, Any] = {}
        if self.model.grid == "auto":
            kinds = sorted({axis.kind for axis in data.grid.axes}) if data.grid else ["cell"]
            found["grid"] = kinds[0] if len(kinds) == 1 or data.grid is None else [axis.kind for axis in data.grid.axes]
        if self.model.symmetries == "auto":
            masked = data.train.mask is not None
            found["symmetries"] = [] if data.equation is None or masked else list(data.equation.symmetries)
        return self.model_copy(update={"model": self.model.model_copy(update=found)})

    def toml(self) -> str:
        """The settings as TOML, which `read` understands."""
        lines = []
        for section, values in self.model_dump().items():
            lines.append(f"[{section}]")
            lines += [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]
            lines.append("")
        return "\n".join(lines)

    @classmethod
    def read(cls, path: Path) -> "Config":
        """What `toml` wrote."""
        try:
            return cls.model_validate(tomllib.loads(path.read_text()))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
            raise UserError(f"{path} is not the configuration of a run: {str(error).splitlines()[0]}") from None


def _told(error: ValidationError, whole: dict[str, Any]) -> str:
    """The first thing that is wrong, in plain words."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"][:2]]
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        section = place[0]
        known = [key for key in whole.get(section, {}) if key != place[-1]]
        return f"{section} has no setting {place[-1]!r}; {nearest(place[-1], known)}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "literal_error":
        message = nearest(str(first["input"]), re.findall(r"'([^']*)'", first["ctx"]["expected"]))
    if len(place) < 2:  # the section as a whole
        return message
    return f"{'.'.join(place)} = {first['input']!r} is wrong: {message[0].lower()}{message[1:]}"


def _value(text: str) -> Any:
    """A value of TOML; what is none is a text. "none" unsets."""
    if text.lower() == "none":
        return None
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, float) and not np.isfinite(value):
        return repr(value)  # inf and nan, which JSON writes in another way
    return json.dumps(value, ensure_ascii=False)


def _base(text: str) -> Base:
    """A base law from its text, see the module.

    >>> _base("white+low:1,2")
    Sum(terms=(White(), LowModes(modes=1, std=2.0)))
    """
    terms: list[Base] = []
    for term in text.split("+"):
        name, _, rest = term.strip().partition(":")
        try:
            numbers = [float(x) for x in rest.split(",")] if rest else []
            if name == "white" and not numbers:
                terms.append(White())
            elif name == "field" and len(numbers) == 2:
                terms.append(as_base(Field(tau=numbers[0], r=numbers[1])))
            elif name == "low" and len(numbers) == 2:
                terms.append(LowModes(int(numbers[0]), numbers[1]))
            else:
                raise ValueError
        except ValueError as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"base law {term!r}: expected white, field:TAU,R or low:MODES,STD, or a sum of these") from None
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))


def _base_text(law: Base) -> str:
    if isinstance(law, Sum):
        return "+".join(_base_text(term) for term in law.terms)
    if isinstance(law, FieldBase):
        return f"field:{law.field.tau:g},{law.field.r:g}"
    return f"low:{law.modes},{law.std:g}" if isinstance(law, LowModes) else "white"


def seconds(text: str | None) -> float | None:
    """A time such as 90, 90s, 10m or 1.5h.

    >>> seconds("10m")
    600.0
    """
    if text is None:
        return None
    match = re.fullmatch(r"([\d.]+)\s*([smh]?)", text.strip())
    try:
        value = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    except ValueError:
        value = 0.0
    if not value > 0:
        raise UserError(f"budget {text!r} is no time; write for instance 90s, 10m or 1.5h")
    return value
