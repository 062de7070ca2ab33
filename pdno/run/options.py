"""Options that several commands share, and their examples. Heavy modules are imported where they are used."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer
from typer.core import TyperCommand

from ..errors import UserError, nearest

if TYPE_CHECKING:
    from ..equation import Equation

__all__ = [
    "OUTPUTS",
    "Cache",
    "Data",
    "Device",
    "GridKind",
    "LogError",
    "Mask",
    "Members",
    "Once",
    "Only",
    "OutputPoints",
    "Part",
    "Run",
    "Scalars",
    "Seed",
    "Steps",
    "Store",
    "equation_of",
    "kinds_of",
    "levels_of",
    "members_of",
    "outputs_of",
    "part_of",
    "points_of",
    "selecting",
]

Seed = Annotated[int, typer.Option(help="Seed of all random numbers.")]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or mps.")]
GridKind = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="Kind of the axes: cell, vertex, periodic or left; or one per axis: periodic,cell."),
]
LogError = Annotated[
    float,
    typer.Option("--log-error", metavar="EPOCHS", help="Epochs between two held-out errors in RUN/metrics.jsonl; 0: none."),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, from pdno train.")]
Data = Annotated[Path, typer.Argument(metavar="FILE", help=".npz, .npy, .mat, .h5, .nc, .pt or .zarr")]
Store = Annotated[Path, typer.Option(help="Store to write (.zarr); an existing one is never overwritten.")]
Mask = Annotated[str | None, typer.Option(metavar="nan", help="Treat NaN in the outputs as missing.")]
Cache = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Cache on disk, for data larger than memory.")]
Members = Annotated[str, typer.Option(help="Ensemble members for each input; auto: as many as mean and std need.")]
OutputPoints = Annotated[
    str | None, typer.Option(metavar="N", help="Points of the predictions, as 256 or 64x96; default: those of the inputs.")
]
Only = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Outputs to write: mean, std, quantiles, intervals, novelty; default: all."),
]
Part = Annotated[str, typer.Option(metavar="K/N", help="Predict the K-th of N parts of the inputs, each into its own --out.")]
Steps = Annotated[int | None, typer.Option(help="Sampling steps; default: those of the model.")]

Scalars = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Array of further parameters; several: repeat the option.")
]

SELECTION = {  # the fields of pdno.data.selection.Selection, which is not imported here, so that --help is fast
    "a": "Array of inputs; NAME[:,0] selects a part of it.",
    "u": "Array of outputs.",
    "dims": "Dimensions of a and u, such as sample,x,y; if they differ, those of a, then of u: sample,x:sample,channel,x.",
    "u_eta": "Noisy outputs for evaluation; u must then be clean.",
    "group": "Labels; pairs with the same label stay in one split.",
    "scalars": "Further parameters of each pair; several arrays: repeat the option.",
    "parameters": "Table of parameters, a row for each sample of u; FILE[NAME,NAME] selects columns.",
    "test_a": "Inputs of the test pairs.",
    "test_u": "Outputs of the test pairs.",
    "validation_a": "Inputs of the validation pairs.",
    "validation_u": "Outputs of the validation pairs.",
}
METAVARS = {"dims": "DIMS", "parameters": "CSV"}  # of options whose value is not the name of an array
LISTS = ("scalars",)  # options that may be repeated


OUTPUTS = ("mean", "std", "quantiles", "intervals", "novelty")  # of a prediction


class Once(TyperCommand):
    """A command that refuses an option that is given twice, of which only the last would be used."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the command line."""
        *_, order = self.make_parser(ctx).parse_args(args=list(args))
        for option in order:
            if order.count(option) > 1 and not getattr(option, "multiple", True):
                raise UserError(f"{option.opts[0]} was given {order.count(option)} times; give it once")
        return super().parse_args(ctx, args)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options --a, --u, … added; it receives them as one argument, `selection`, which may be None."""

    @wraps(command)
    def run(**options: Any) -> None:
        names = {name: options.pop(name) for name in SELECTION}
        names |= {name: ",".join(names[name]) if names[name] else None for name in LISTS}
        if (names["a"] is None) != (names["u"] is None) and names["parameters"] is None:
            raise UserError("only one of --a and --u was given; give both, or neither for a suggestion")
        selection = None
        if names["u"] is not None or names["parameters"] is not None:
            from ..data.selection import Selection

            selection = Selection(**names)
        command(selection=selection, **options)

    own = [parameter for name, parameter in signature(command).parameters.items() if name != "selection"]
    types = {
        name: Annotated[
            list[str] | None if name in LISTS else str | None, typer.Option(metavar=METAVARS.get(name, "NAME"), help=text)
        ]
        for name, text in SELECTION.items()
    }
    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=each) for name, each in types.items()]
    run.__signature__ = Signature([p.replace(kind=Parameter.KEYWORD_ONLY) for p in own] + added)  # type: ignore[attr-defined]
    run.__annotations__ = {**{p.name: p.annotation for p in own}, **types}
    return run


def kinds_of(text: str | None) -> Any:
    """Return the kinds of axes that are separated by commas, one for all axes or one each; None if there are none."""
    from ..basis import Kind

    kinds = None if text is None else tuple(part.strip() for part in text.split(","))
    for kind in kinds or ():
        if kind not in get_args(Kind):
            raise UserError(f"--grid {text}: {nearest(kind, get_args(Kind))}")
    return kinds[0] if kinds and len(kinds) == 1 else kinds


def levels_of(text: str) -> tuple[float, ...]:
    """Return levels of quantiles that are separated by commas."""
    try:
        return tuple(float(level) for level in text.split(",") if level)
    except ValueError:
        raise UserError(f"--quantiles {text}: expected numbers from 0 to 1, separated by commas, such as 0.05,0.95") from None


def members_of(text: str) -> int | Literal["auto"]:
    """Return a number of members, or "auto"."""
    if text == "auto":
        return "auto"
    if not text.isdecimal():
        raise UserError(f"--members {text}: expected a whole number, or auto")
    return int(text)


def points_of(text: str | None) -> tuple[int, ...] | int | None:
    """Return the points of a grid, such as 256 or 64x96."""
    if text is None:
        return None
    sides = text.lower().split("x")
    if not all(side.isdecimal() for side in sides):
        raise UserError(f"--points {text}: expected whole numbers, such as 256, or 64x96 for a rectangle")
    return int(text) if len(sides) == 1 else tuple(int(side) for side in sides)


def outputs_of(text: str) -> tuple[str, ...]:
    """Return the outputs of a prediction that are separated by commas."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in OUTPUTS:
            raise UserError(f"--only {text}: {name!r} is unknown; {nearest(name, OUTPUTS)}")
    if not {"mean", "std", "quantiles"} & set(names):
        raise UserError(f"--only {text}: expected at least one of mean, std and quantiles")
    return tuple(name for name in OUTPUTS if name in names)


def part_of(text: str) -> tuple[int, int]:
    """Return a part of several, such as (1, 4) for 1/4."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UserError(f"--part {text}: expected K/N with K from 1 to N, such as 1/4")
    return int(number), int(count)


def equation_of(name: str, points: int | None, settings: list[str]) -> "Equation":
    """Return the equation of this name with settings KEY=VALUE."""
    from dataclasses import fields

    from ..equation import EQUATIONS

    if name not in EQUATIONS:
        raise UserError(f"equation {name!r} is unknown; {nearest(name, EQUATIONS)}")
    cls: Any = EQUATIONS[name]
    keys = [field.name for field in fields(cls) if field.name != "points"]
    arguments: dict[str, Any] = {} if points is None else {"points": points}
    for setting in settings:
        key, _, text = setting.partition("=")
        if key == "points":
            raise UserError("the number of points has its own option; write --points")
        if key not in keys:
            raise UserError(f"{name} has no setting {key!r}; {nearest(key, keys)}")
        try:
            arguments[key] = float(text)
        except ValueError:
            raise UserError(f"--set {setting}: expected {key}=NUMBER") from None
    eq: Equation = cls(**arguments)
    return eq


# Examples below the help of each command

GENERATE_EXAMPLES = """\b
Examples:
  pdno generate darcy --points 64 --train 1000 --test 100 --out darcy.zarr
  pdno generate elliptic1d --train 10000 --noise gaussian:0.05 --out noisy.zarr
  pdno generate burgers --points 2048 --set viscosity=0.01 --set speed=1 --out steep.zarr

\b
Equations and their settings (--set):
  elliptic1d  log_scale=0.1
  darcy       a_low=4 a_high=12 tau=3 r=2
  burgers     viscosity=0.002533 speed=0.1592 t_final=1 rtol=1e-7
  advection   t_final=0.5 tau=100 r=2

\b
In Python:  data = pdno.open("darcy.zarr");  data.train.a, data.train.u
"""

INSPECT_EXAMPLES = """\b
Examples:
  pdno inspect mydata.mat
  pdno inspect mydata.npz --a force --u deflection --dims sample,x,y --plot preview.png
"""

CONVERT_EXAMPLES = """\b
Examples:
  pdno convert mydata.mat --a force --u deflection --out mydata.zarr
  pdno convert train.h5 --test test.h5 --a "tensor[:,0]" --u "tensor[:,-1]" --dims sample,x --out mydata.zarr
  pdno convert coarse.npz fine.npz --grid vertex --out mixed.zarr          pairs on several grids
"""

TRAIN_EXAMPLES = """\b
Examples:
  pdno train darcy.zarr --out run --budget 10m
  pdno train mydata.mat --a force --u deflection --out run
  pdno train mydata.npz --symmetries reflection --grid vertex --out run
  pdno train branches.npz --preset field --budget 10m --out run        several solutions for one input
  pdno train burgers.zarr --preset paper:burgers --out run --set training.epochs=100
  torchrun --nproc-per-node 2 -m pdno train darcy.zarr --out run

\b
Presets: auto; field; linear, kernel, fno, unet; paper:TEST and paper:TEST:noisy (elliptic1d, darcy, burgers, advection).
Settings, in a TOML file (--config) or with --set SECTION.KEY=VALUE:
  model      kind mean law residual_scale symmetries grid normalise budget
  network    kind base multipliers modes width widths blocks patch layers coordinates
  diffusion  schedule n_steps base target weight
  reverse    variance mix steps spacing sampler last_noise t_start
  training   epochs updates batch optimizer rate rate_schedule halve_every weight_decay ema clip …
RUN/config.toml lists all settings of a run.
"""

PREDICT_EXAMPLES = """\b
Examples:
  pdno predict run --members 500 --out pred.zarr                  # the test inputs of the run
  pdno predict run new.npz --a force --members 500 --out pred.zarr
  pdno predict run darcy.zarr --split train --steps 50 --out pred.zarr
  pdno predict run finer.npz --points 256 --out pred.zarr         # any grid of the same domain
  pdno predict run new.npz --only mean,std --out pred.nc
  pdno predict run many.npz --part 1/4 --out part1.zarr           # the first quarter of the inputs

\b
In Python:  xarray.open_zarr("pred.zarr", consolidated=False)  has mean, std, quantile_0.05, …
"""

EVALUATE_EXAMPLES = """\b
Examples:
  pdno evaluate run                                    # the test pairs of the run
  pdno evaluate run --members 500 --steps 50
  pdno evaluate run new.npz --a force --u deflection

\b
RUN/results.json has all scores (RUN/evaluation-new/results.json those on new.npz), RUN/intervals.safetensors the conformal
calibration for pdno predict.
"""

BENCH_EXAMPLES = """\b
Examples:
  pdno bench --list
  pdno bench --scale smoke
  pdno bench advection-256 --scale cpu
  pdno bench darcy-64/diffusion burgers-512/diffusion
  pdno bench --figures --scale cpu
  pdno bench claims/attention --scale cpu
"""
REPORT_EXAMPLES = """\b
Examples:
  pdno report run
  pdno report run --out report.html
  pdno report run new.npz                              # after: pdno evaluate run new.npz
"""
