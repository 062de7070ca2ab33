r"""Settings of a training run: typed, from a preset, a TOML file and the command line, in this order.

    [model]       kind = "pdno", mean = "auto", residual_scale = "auto", symmetries = ["square"], grid = "cell", budget = 600
    [network]     kind = "unet", base = 16
    [diffusion]   schedule = "cosine", n_steps = 100, base = "white", target = "u0", weight = "target"
    [reverse]     variance = "analytic", steps = "auto", sampler = "ancestral"
    [training]    updates = 4000, batch = 32, rate = 1e-3                              (the fields of pdno.Training)

A base distribution is a sum of the terms white, field:TAU,R and low:MODES,STD, for instance "white+low:1,1".
"""

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ..data.dataset import Dataset
from ..data.spaces import axis_kinds
from ..diffusion.base import from_text
from ..diffusion.chain import Diffusion, Target, Weight
from ..diffusion.reverse import Rule
from ..diffusion.schedule import Schedule, Spacing
from ..errors import UserError, nearest
from ..learning.normalisation import Normalise
from ..learning.settings import Training
from ..mean import mean_of
from ..mean.network import recipe
from ..model.baseline import FNO, Deterministic, UNet
from ..model.operator import PDNO
from ..model.paper import PDNO_TESTS
from ..model.surrogate import Surrogate
from ..residual.build import check_law_name

__all__ = ["BASELINES", "Config", "seconds"]

BASELINES = ("linear", "kernel", "fno", "unet")  # names of presets and of model.kind


class Section(BaseModel):
    """A section of the settings; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ModelSection(Section):
    """Model, mean, residual law and budget.

    Args:
        kind: "pdno", or a baseline.
        mean, law, residual_scale, normalise: as in `pdno.PDNO`; the mean "none" gives the paper's model.
        symmetries: "auto" takes those of the equation that the data were generated with.
        grid: kind of the grid's axes, one for all or one for each; "auto" takes that of the data.
        budget: seconds of training; None for the default of the model.
    """

    kind: Literal["pdno", "fno", "unet", "linear", "kernel"] = "pdno"
    mean: str = "auto"
    law: str = "auto"
    residual_scale: Literal["auto", "scalar", "point", "mode", "both"] = "auto"
    symmetries: list[str] | Literal["auto"] = "auto"
    grid: str | list[str] = "auto"
    normalise: Normalise = "scalar"
    budget: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @field_validator("law")
    @classmethod
    def _check_law(cls, name: str) -> str:
        check_law_name(name)
        return name

    @field_validator("grid")
    @classmethod
    def _check_grid(cls, kinds: Any) -> Any:
        if kinds != "auto":
            axis_kinds(kinds, 1 if isinstance(kinds, str) else len(kinds))
        return kinds

    @field_validator("mean", mode="before")
    @classmethod
    def _check_mean(cls, name: Any) -> Any:
        if name is None:  # the value that `--set model.mean=none` gives
            return "none"
        if isinstance(name, str) and name not in ("auto", "none"):
            mean_of(name)
        return name


class NetworkSection(Section):
    """Kind and settings of the network, as in `pdno.nn.build`; None or "default" for the network's own default."""

    kind: Literal["auto", "unet", "fno", "slim", "spectral", "local", "operator", "zero"] = "auto"
    base: int | None = None
    multipliers: list[int] | None = None
    attention: Literal["default", "all", "middle", "none"] = "default"
    modes: int | None = None
    width: int | None = None
    widths: list[int] | None = None
    blocks: int | None = None
    patch: int | None = None
    layers: int | None = None
    coordinates: bool | None = None

    @field_validator("attention", mode="before")
    @classmethod
    def _named_none(cls, name: Any) -> Any:
        return "none" if name is None else name  # the value that `--set network.attention=none` gives


class DiffusionSection(Section):
    """The forward chain, see `pdno.Diffusion`."""

    schedule: Literal["auto", "cosine", "linear", "geometric", "flow"] = "auto"  # "auto": as `pdno.PDNO` without a diffusion
    n_steps: Annotated[int, Field(ge=1)] = 100
    base: str = "white"
    target: Target | Literal["auto"] = "auto"  # "auto": "v" for the residuals of a mean, "u0" without a mean
    weight: Weight = "target"

    @field_validator("base")
    @classmethod
    def _check_base(cls, text: str) -> str:
        from_text(text)
        return text


class ReverseSection(Section):
    """The reverse chain, see `pdno.diffusion.Reverse`."""

    variance: Rule = "analytic"
    mix: Annotated[float, Field(ge=0, le=1)] = 0.5
    steps: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    spacing: Spacing = "even"
    sampler: Literal["ancestral", "ddim", "dpm", "gaussian-exact", "heun"] = "ancestral"
    last_noise: bool = True
    t_start: Annotated[int, Field(ge=0)] = 0


class DataSection(Section):
    """Origin and split of the pairs, recorded by `pdno train`."""

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
        """Return the settings of a preset.

        Args:
            name: "auto"; "field", the diffusion of `pdno.PDNO.field`; a baseline, "linear", "kernel", "fno" or "unet"; or
                "paper:TEST" or "paper:TEST:noisy", where TEST is one of the paper's tests.

        Raises:
            UserError: if there is no such preset.
        """
        kind, _, rest = name.partition(":")
        test, _, noisy = rest.partition(":")
        if name == "auto":
            return cls()
        if name == "field":
            return cls.of(PDNO.field())
        if name in BASELINES:
            return cls(model=ModelSection(kind=name))  # type: ignore[arg-type]
        if kind == "paper" and test in PDNO_TESTS and noisy in ("", "noisy"):
            return cls.of(PDNO.paper(test, bool(noisy))).changed({"model": {"symmetries": []}}, name)
        of_paper = [f"paper:{test}{suffix}" for suffix in ("", ":noisy") for test in PDNO_TESTS]
        raise UserError(f"preset {name!r} is unknown; {nearest(name, ['auto', 'field', *BASELINES, *of_paper])}")

    @classmethod
    def of(cls, model: PDNO) -> "Config":
        """Return the settings of an untrained model."""
        chain = model.diffusion.schedule
        known = {name: getattr(Schedule, name)(chain.n_steps).gamma for name in ("cosine", "linear", "geometric", "flow")}
        names = [name for name, gamma in known.items() if np.allclose(gamma, chain.gamma, rtol=1e-9, atol=0.0)]
        settings = model.settings()
        network = {"kind": settings["network"]} if isinstance(settings["network"], str) else dict(settings["network"])
        diffusion = {"schedule": names[0], "n_steps": chain.n_steps, "base": model.diffusion.law.text}
        return cls.model_validate(
            {
                "model": {
                    "normalise": model.normalise[1],
                    "mean": settings["mean"] or "none",
                    "law": settings["law"],
                    "budget": model.budget,
                },
                "network": network,
                "diffusion": {**diffusion, "target": model.diffusion.target, "weight": model.diffusion.weight},
                "reverse": settings["reverse"],
                "training": settings["training"] or {},
            }
        )

    def is_of_paper(self, test: str) -> bool:
        """Return whether all settings and the number of training pairs are those of the paper's tables for a test."""
        for noisy, name in ((False, f"paper:{test}"), (True, f"paper:{test}:noisy")) if test in PDNO_TESTS else ():
            paper = Config.preset(name)
            own = paper.model_copy(
                update={"data": self.data, "model": paper.model.model_copy(update={"grid": self.model.grid})}
            )
            if self == own and self.data.pairs.get("train") == PDNO_TESTS[test].train[noisy]:
                return True
        return False

    def changed(self, changes: dict[str, Any], source: str) -> "Config":
        """Return the settings with some of them changed.

        Args:
            changes: new values, by section and key.
            source: file or option that they come from, named in error messages.

        Raises:
            UserError: if a section, key or value is wrong.
        """
        whole = self.model_dump()
        for section, values in changes.items():
            if section not in whole or section == "data":
                raise UserError(f"{source}: section {section!r} is unknown; {nearest(section, [*whole][:-1])}")
            if not isinstance(values, dict):
                hint = f"write [{section}] and keys below it, or {section}.key=value"
                raise UserError(f"{source}: {section} is a section, not a value; {hint}")
            whole[section] |= values
        try:
            return Config.model_validate(whole)
        except ValidationError as error:
            raise UserError(f"{source}: {_first_error(error, whole)}") from None

    def with_file(self, path: Path) -> "Config":
        """Return the settings with those of a TOML file; its section [data], if it has one, is ignored.

        Raises:
            UserError: if it is not a TOML file, or a section, key or value is wrong.
        """
        try:
            changes = tomllib.loads(path.read_text(encoding="utf-8"))
            changes.pop("data", None)  # in the config.toml of another run, this is the record of that run's data
            return self.changed(changes, path.name)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{path.name} is not a TOML file: {error}") from None

    def with_set(self, settings: Iterable[str]) -> "Config":
        """Return the settings with those of options `--set section.key=value`.

        Raises:
            UserError: if an option has another form, or a section, key or value is wrong.
        """
        config = self
        for setting in settings:
            match = re.fullmatch(r"(\w+)\.(\w+)=(.*)", setting)
            if match is None:
                raise UserError(f"--set {setting}: expected section.key=value, for instance training.batch=20")
            config = config.changed({match[1]: {match[2]: _value(match[3])}}, f"--set {setting}")
        return config

    def build(self) -> Surrogate:
        """Return an untrained model with these settings."""
        network: Any = {key: value for key, value in self.network.model_dump().items() if value not in (None, "default")}
        m, training = self.model, None if self.training == Training() else self.training
        shared: dict[str, Any] = {
            "symmetries": () if m.symmetries == "auto" else m.symmetries,
            "kind": "cell" if m.grid == "auto" else m.grid,
            "budget": m.budget,
        }
        if m.kind in ("linear", "kernel"):
            return Deterministic(m.kind, **shared)
        if m.kind in ("fno", "unet"):
            baseline, default_kind = {"fno": (FNO, "fno"), "unet": (UNet, "slim")}[m.kind]
            if network["kind"] == "auto":
                network["kind"] = default_kind
            return baseline(network, normalise=m.normalise, training=recipe(self.training), **shared)
        if len(network) == 1 and network["kind"] in ("auto", "zero"):
            network = network["kind"]
        d = self.diffusion
        target: Target = ("u0" if m.mean == "none" else "v") if d.target == "auto" else d.target
        small = network == "auto" and m.mean != "none"
        schedule = ("geometric" if small else "cosine") if d.schedule == "auto" else d.schedule
        diffusion = Diffusion(getattr(Schedule, schedule)(d.n_steps), from_text(d.base), target, d.weight)
        residual: dict[str, Any] = {"mean": m.mean, "law": m.law, "residual_scale": m.residual_scale}
        return PDNO(
            network, diffusion, **residual, normalise=m.normalise, training=training, **shared, **self.reverse.model_dump()
        )

    def of_data(self, data: Dataset) -> "Config":
        """Return the settings with "auto" replaced by the kind of the data's grid and the symmetries of their equation."""
        changes: dict[str, Any] = {}
        if self.model.grid == "auto":
            kinds = sorted({axis.kind for axis in data.grid.axes}) if data.grid else ["cell"]
            changes["grid"] = kinds[0] if len(kinds) == 1 or data.grid is None else [axis.kind for axis in data.grid.axes]
        if self.model.symmetries == "auto":
            masked = data.train.mask is not None
            changes["symmetries"] = [] if data.equation is None or masked else list(data.equation.symmetries)
        return self.model_copy(update={"model": self.model.model_copy(update=changes)})

    def toml(self) -> str:
        """Return the settings as the text of a TOML file, see `read`."""
        lines = []
        for section, values in self.model_dump().items():
            lines.append(f"[{section}]")
            lines += [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]
            lines.append("")
        return "\n".join(lines)

    @classmethod
    def read(cls, path: Path) -> "Config":
        """Return the settings in the config.toml of a run, as written by `toml`.

        Raises:
            UserError: if the file has other contents.
        """
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
            raise UserError(f"{path} is not the configuration of a run: {str(error).splitlines()[0]}") from None


def _first_error(error: ValidationError, whole: dict[str, Any]) -> str:
    """Describe the first of the errors that pydantic found in the settings `whole`."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"][:2]]
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        section = place[0]
        keys = [key for key in whole.get(section, {}) if key != place[-1]]
        return f"{section} has no setting {place[-1]!r}; {nearest(place[-1], keys)}"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "literal_error":
        message = nearest(str(first["input"]), re.findall(r"'([^']*)'", first["ctx"]["expected"]))
    if len(place) < 2:  # the section as a whole
        return message
    return f"{'.'.join(place)} = {first['input']!r} is wrong: {message[0].lower()}{message[1:]}"


def _value(text: str) -> Any:
    """Parse a TOML value; any other text is a string, and "none" is None."""
    if text.lower() == "none":
        return None
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _toml(value: Any) -> str:
    """Return a value in TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, float) and not np.isfinite(value):
        return repr(value)  # inf and nan, which have other names in JSON
    return json.dumps(value, ensure_ascii=False)


def seconds(text: str | None) -> float | None:
    """Return the seconds of a time such as 90, 90s, 10m or 1.5h; None for None.

    Raises:
        UserError: if the text is not a positive time.

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
        raise UserError(f"budget {text!r} is not a time; write for instance 90s, 10m or 1.5h")
    return value
