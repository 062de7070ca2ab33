"""The command line. Heavy modules are imported where they are used: --help stays quick."""

import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import __version__
from .errors import UserError, nearest

if TYPE_CHECKING:
    from .data.selection import Selection
    from .equation import Equation

__all__ = ["app", "main"]

RESUMED = ("generate", "train", "predict", "demo")  # commands that go on where they were
INTERRUPTED = 130  # what typer makes of Ctrl-C
UsageError: Any = typer.BadParameter.__base__  # wherever this version of typer keeps its click

app = typer.Typer(
    name="pdno",
    help="Probabilistic operator learning: the law of a PDE solution u given its parameters a, from pairs (a, u).",
    epilog="Start with: pdno demo",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. A user's mistake ends in one line on standard error and exit code 2, never in a traceback."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # what batch systems send, taken as Ctrl-C
    try:
        code = app(args=arguments, standalone_mode=False)
    except UserError as error:
        _stop(str(error), 2)
    except UsageError as error:
        where = error.ctx.command_path if error.ctx else "pdno"
        _stop(f"{' '.join(error.format_message().split())} See: {where} --help", 2)
    except MemoryError:
        _stop("there is not enough memory for this; ask for fewer points, pairs or workers", 2)
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        _stop("there is not enough memory for this; take a smaller network, batch or chunk", 2)
    except OSError as error:
        _stop(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 2)
    else:
        if code == INTERRUPTED:
            for number in (signal.SIGINT, signal.SIGTERM):  # the impatient press twice
                signal.signal(number, signal.SIG_IGN)
            resumes = (arguments or sys.argv[1:])[:1][0] in RESUMED
            _stop("stopped; run the same command again to go on" if resumes else "stopped; nothing was kept", INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)


def _stop(message: str, code: int) -> None:
    typer.echo(f"pdno: {message}", err=True)
    sys.exit(code)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pdno {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps")]

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


@app.command(epilog=GENERATE_EXAMPLES)
def generate(
    equation: Annotated[str, typer.Argument(help="elliptic1d, darcy, burgers or advection")],
    out: Annotated[Path, typer.Option(help="Store to write (a Zarr folder); an existing one is never overwritten.")],
    points: Annotated[int | None, typer.Option(help="Points along each axis; the paper's number if left out.")] = None,
    train: Annotated[int, typer.Option(help="Training pairs; their outputs carry the noise.")] = 1000,
    test: Annotated[int, typer.Option(help="Test pairs, with clean and with noisy outputs.")] = 100,
    noise: Annotated[
        str, typer.Option(help="none, gaussian:STD, mixture:1, mixture:2 or field:STD[,TAU,R]; STD in units of u.")
    ] = "none",
    seed: Seed = 0,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the equation.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; as many as there are cores if left out.")] = None,
    scheduler: Annotated[str | None, typer.Option(metavar="tcp://…", help="Work on this Dask cluster instead.")] = None,
) -> None:
    """Generate pairs (a, u) of an equation into a store.

    Stopped or killed, the same command goes on where it was; the finished store is the same to the byte.
    """
    from .data.generate import generate as make
    from .work.engine import cores
    from .work.progress import progress_bar

    eq = _equation(equation, points, set_ or [])
    with progress_bar(f"{eq.name} {eq.grid}", "pairs") as progress:
        data = make(eq, train, test, noise, seed, out, cores() if workers is None else workers, scheduler, progress)
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    typer.echo(f"{out}: {data!r}, {size / 1e6:.1f} MB")


Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, from pdno train.")]
Data = Annotated[Path, typer.Argument(metavar="FILE", help=".npz, .npy, .mat, .h5, .nc, .pt or .zarr")]
Mask = Annotated[str | None, typer.Option(metavar="nan", help="Take NaN in the outputs as missing.")]

SELECTION = {  # the fields of pdno.data.selection.Selection, which is not imported here: --help stays quick
    "a": "Array of inputs; NAME[:,0] takes a part of it.",
    "u": "Array of outputs.",
    "dims": "Dimensions, as sample,x,y; of a and of u, as sample,x:sample,channel,x.",
    "u_eta": "Noisy outputs to judge with; u is then clean.",
    "group": "Labels; pairs with the same one never straddle a split.",
    "scalars": "Further parameters of a pair.",
    "test_a": "Inputs that are held out for the test.",
    "test_u": "Outputs that are held out for the test.",
    "validation_a": "Inputs that are held out for validation.",
    "validation_u": "Outputs that are held out for validation.",
}


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a selection; it gets them as `chosen`, None if neither --a nor --u was given."""

    @wraps(command)
    def run(**options: Any) -> None:
        names = {name: options.pop(name) for name in SELECTION}
        if (names["a"] is None) != (names["u"] is None):
            raise UserError("only one of --a and --u was given; give both, or none to see what is suggested")
        chosen = None
        if names["a"] is not None:
            from .data.selection import Selection

            chosen = Selection(**names)
        command(chosen=chosen, **options)

    own = [parameter for name, parameter in signature(command).parameters.items() if name != "chosen"]
    kinds = {name: Annotated[str | None, typer.Option(metavar="NAME", help=text)] for name, text in SELECTION.items()}
    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in kinds.items()]
    run.__signature__ = Signature([p.replace(kind=Parameter.KEYWORD_ONLY) for p in own] + added)  # type: ignore[attr-defined]
    run.__annotations__ = {**{p.name: p.annotation for p in own}, **kinds}
    return run


INSPECT_EXAMPLES = """\b
Examples:
  pdno inspect mydata.mat
  pdno inspect mydata.npz --a force --u deflection --dims sample,x,y --plot preview.png
"""

CONVERT_EXAMPLES = """\b
Examples:
  pdno convert mydata.mat --a force --u deflection --out mydata.zarr
  pdno convert train.h5 --test test.h5 --a "tensor[:,0]" --u "tensor[:,-1]" --dims sample,x --out mydata.zarr
"""


@app.command(epilog=INSPECT_EXAMPLES)
@selecting
def inspect(
    file: Data,
    chosen: "Selection | None",
    mask: Mask = None,
    plot: Annotated[Path | None, typer.Option(metavar="PNG", help="Write a picture of the first pairs.")] = None,
) -> None:
    """Show what is in a file, and what to type next.

    Arrays with their shapes and ranges, findings about the data, a preview, and the commands that use the file.
    """
    from .run.inspect import inspect as show

    show(file, chosen, plot, mask)


@app.command(epilog=CONVERT_EXAMPLES)
@selecting
def convert(
    file: Data,
    chosen: "Selection | None",
    out: Annotated[Path, typer.Option(help="Store to write (a Zarr folder); an existing one is never overwritten.")],
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Another file, with the test pairs.")] = None,
    mask: Mask = None,
    cache: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Cache on disk, for data larger than memory.")] = None,
) -> None:
    """Make a store from a file of another format.

    `pdno inspect FILE` prints the command with its options.
    """
    from .data.open import open_chosen

    data = open_chosen(file, chosen, test=test, mask=mask, cache=cache)
    data.save(out)
    typer.echo(f"{out}: {data!r}")


TRAIN_EXAMPLES = """\b
Examples:
  pdno train darcy.zarr --out run --budget 10m
  pdno train mydata.mat --a force --u deflection --out run
  pdno train mydata.npz --symmetries reflection --grid vertex --out run
  pdno train burgers.zarr --preset paper:burgers --out run --set training.epochs=100
  torchrun --nproc-per-node 2 -m pdno train darcy.zarr --out run

\b
Presets: auto; linear, kernel, fno, unet; paper:TEST and paper:TEST:noisy (elliptic1d, darcy, burgers, advection).
Settings, in a TOML file (--config) or with --set SECTION.KEY=VALUE:
  model      kind mean residual_scale symmetries grid normalise budget
  network    kind base multipliers modes width widths blocks patch layers coordinates
  diffusion  schedule n_steps base target weight
  reverse    variance mix steps spacing sampler last_noise t_start
  training   epochs updates batch optimizer rate rate_schedule halve_every weight_decay ema clip …
RUN/config.toml has all of them.
"""

PREDICT_EXAMPLES = """\b
Examples:
  pdno predict run --members 500 --out pred.zarr                  the test pairs of the run
  pdno predict run new.npz --a force --members 500 --out pred.zarr
  pdno predict run darcy.zarr --split train --steps 50 --out pred.zarr

\b
In Python:  xarray.open_zarr("pred.zarr", consolidated=False)  has mean, std and quantile_0.05, …
"""


@app.command(epilog=TRAIN_EXAMPLES)
@selecting
def train(
    file: Data,
    chosen: "Selection | None",
    out: Annotated[Path, typer.Option(metavar="RUN", help="Folder of the run; the same command again goes on with it.")],
    preset: Annotated[str, typer.Option(help="Settings to start from.")] = "auto",
    config: Annotated[Path | None, typer.Option(metavar="TOML", help="Settings from a file.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="S.KEY=VALUE", help="A setting.")] = None,
    budget: Annotated[str | None, typer.Option(metavar="TIME", help="Time for learning: 90s, 10m, 1.5h.")] = None,
    symmetries: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Exact symmetries of the operator: square, translation, … or none.")
    ] = None,
    grid: Annotated[
        str | None, typer.Option(metavar="KIND", help="Kind of its axes: cell, vertex, periodic or left; x,y: one each.")
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    devices: Annotated[int, typer.Option(help="Processes (or GPUs) on this machine.")] = 1,
    precision: Annotated[str, typer.Option(help="32-true, 64-true or bf16-mixed")] = "32-true",
    validation: Annotated[float, typer.Option(help="Fraction to hold out for validation, unless the data have such.")] = 0.1,
    held: Annotated[float, typer.Option("--test-fraction", help="Fraction to hold out for the test, likewise.")] = 0.1,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Another file, with the test pairs.")] = None,
    mask: Mask = None,
    cache: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Cache on disk, for data larger than memory.")] = None,
) -> None:
    """Learn the law of u given a from pairs.

    With the preset auto, mean operators from linear to networks are tried within the budget (10m if left out), and what the
    best one leaves is learned by diffusion. Rivals, of one answer for each input: --preset linear, kernel, fno or unet.

    Stopped or killed, the same command goes on where it was and ends with the same model to the bit.
    """
    from dataclasses import asdict
    from shlex import quote

    from .data.open import open_chosen
    from .run import train as runs
    from .run.config import Config, seconds
    from .work.engine import is_first

    settings = Config.preset(preset)
    settings = settings if config is None else settings.with_file(config)
    settings = settings.with_set(set_ or [])
    if budget is not None:
        settings = settings.with_set([f"model.budget={seconds(budget)}"])
    for name, given in (("symmetries", symmetries), ("grid", grid)):
        if given is not None:
            several = [part.strip() for part in given.split(",") if part.strip() not in ("", "none")]
            chosen_ones = several[0] if name == "grid" and len(several) == 1 else several
            settings = settings.changed({"model": {name: chosen_ones}}, f"--{name} {given}")
    data = open_chosen(file, chosen, test=test, mask=mask, cache=cache)
    names = {} if chosen is None else {name: value for name, value in asdict(chosen).items() if value is not None}
    files = {"test_file": test, "cache": cache}
    names |= {name: str(path.resolve()) for name, path in files.items() if path is not None} | ({"mask": mask} if mask else {})
    source = {"file": str(file.resolve()), "options": names, "validation": validation, "test": held}
    runs.train(data, source, settings, out, seed=seed, device=device, devices=devices, precision=precision, tell=typer.echo)
    if is_first():
        typer.echo(f"Next:  pdno evaluate {quote(str(out))}")
        typer.echo(f"       pdno predict {quote(str(out))} --members 100 --out {quote(f'{out}/prediction.zarr')}")


@app.command(epilog=PREDICT_EXAMPLES)
def predict(
    run: Run,
    file: Annotated[Path | None, typer.Argument(metavar="[DATA]", help="Inputs; the run's own data if left out.")] = None,
    out: Annotated[Path, typer.Option(help="Zarr store to write; an existing one is never overwritten.")] = Path("pred.zarr"),
    members: Annotated[int, typer.Option(help="Members to draw for each input.")] = 100,
    steps: Annotated[int | None, typer.Option(help="Steps of the reverse chain; the model's own if left out.")] = None,
    quantiles: Annotated[str, typer.Option(help="Levels, with commas.")] = "0.05,0.5,0.95",
    split: Annotated[str, typer.Option(help="test, validation or train, of data that are split.")] = "test",
    a: Annotated[str | None, typer.Option(metavar="NAME", help="Array of inputs, in a file of another format.")] = None,
    dims: Annotated[str | None, typer.Option(metavar="NAME", help="Its dimensions, as sample,x,y.")] = None,
    scalars: Annotated[str | None, typer.Option(metavar="NAME", help="Array of further parameters.")] = None,
    seed: Seed = 0,
    device: Device = "cpu",
) -> None:
    """Predict mean, spread and quantiles of u for new inputs.

    Stopped or killed, the same command goes on where it was.
    """
    from .run.predict import predict as into
    from .work.progress import progress_bar

    try:
        levels = tuple(float(level) for level in quantiles.split(",") if level)
    except ValueError:
        raise UserError(f"--quantiles {quantiles}: expected numbers from 0 to 1 with commas, such as 0.05,0.95") from None
    options: dict[str, Any] = {"split": split, "a": a, "dims": dims, "scalars": scalars, "device": device}
    options |= {} if steps is None else {"steps": steps}
    with progress_bar("predicting", "members") as progress:
        predicted = into(run, file, out, members=members, quantiles=levels, seed=seed, progress=progress, **options)
    spread = float(predicted["std"].mean())
    typer.echo(f"{out}: {predicted.sizes['sample']} inputs, {members} members each; mean std {spread:.4g}")
    if "lower_0.9" not in predicted and (run / "intervals.safetensors").exists():
        typer.echo("no repaired intervals: they were measured for another model or --steps, or --members is below 19")
    odd = int(predicted["unfamiliar"].sum()) if "unfamiliar" in predicted else 0
    if odd:
        inputs = "1 input is" if odd == 1 else f"{odd} inputs are"
        typer.echo(f"{inputs} unlike those learned from: do not trust the error bars there (see `unfamiliar`)")
    typer.echo(f'In Python:  xarray.open_zarr("{out}", consolidated=False)')


EVALUATE_EXAMPLES = """\b
Examples:
  pdno evaluate run                                    the test pairs of the run
  pdno evaluate run --members 500 --steps 50
  pdno evaluate run fresh.npz --a force --u deflection

\b
RUN/results.json has every number, RUN/intervals.safetensors the repair that pdno predict applies.
"""


@app.command(epilog=EVALUATE_EXAMPLES)
@selecting
def evaluate(
    run: Run,
    chosen: "Selection | None",
    file: Annotated[Path | None, typer.Argument(metavar="[DATA]", help="Pairs to judge by; the run's own if left out.")] = None,
    members: Annotated[int, typer.Option(help="Members to draw for each input.")] = 100,
    steps: Annotated[int | None, typer.Option(help="Steps of the reverse chain; the model's own if left out.")] = None,
    split: Annotated[str, typer.Option(help="test or validation, of the run's own data.")] = "test",
    calibrate: Annotated[int, typer.Option(help="Validation pairs to repair intervals with, at most.")] = 100,
    seed: Seed = 0,
    device: Device = "cpu",
) -> None:
    """Judge a model by pairs that it has not learned from.

    Prints scores and a verdict: how accurate is it, are its error bars honest, and where should it not be trusted?
    """
    from shlex import quote

    from .run.evaluate import assess

    options: dict[str, Any] = {} if steps is None else {"steps": steps}
    options |= {"members": members, "seed": seed, "split": split, "calibrate": calibrate, "device": device}
    typer.echo(f"{members} members of each test and of up to {calibrate} validation inputs; fewer are faster")
    assess(run, file, chosen, **options)
    _show(run)
    typer.echo(f"Next:  pdno report {quote(str(run))}")


REPORT_EXAMPLES = """\b
Examples:
  pdno report run
  pdno report run --out for-my-boss.html
"""


@app.command(epilog=REPORT_EXAMPLES)
def report(
    run: Run,
    out: Annotated[Path | None, typer.Option(metavar="HTML", help="File to write; RUN/report.html if left out.")] = None,
    device: Device = "cpu",
) -> None:
    """Write a report that one can show: one HTML file that opens anywhere.

    A run that was not evaluated yet, or has been trained anew since, is evaluated first, with 100 members.
    """
    from .run.evaluate import assess, is_current
    from .run.report import write_report

    if not is_current(run):
        typer.echo(f"{run} is evaluated first, with 100 members")
        assess(run, device=device)
    typer.echo(write_report(run, out))


def _show(run: Path) -> None:
    """Scores and verdict of a run in the terminal."""
    from rich.console import Console

    from .run import results
    from .run.report import statements, table

    found = results.read(run / "results.json")
    console = Console()
    console.print(table(found))
    for text in statements(found):
        console.print(text, markup=False, highlight=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for data, run and report; what is there already is used.")] = Path("demo"),
) -> None:
    """Do the main job on a small noisy problem, in two or three minutes.

    Noisy pairs are generated; a model learns from them, is judged, predicts, and gets a report. Every step shows its command.
    """
    from .run.demo import demo as show

    show(out)


def _equation(name: str, points: int | None, settings: list[str]) -> "Equation":
    """The equation of that name with settings KEY=VALUE."""
    from dataclasses import fields

    from .equation import EQUATIONS

    if name not in EQUATIONS:
        raise UserError(f"equation {name!r} is unknown; {nearest(name, EQUATIONS)}")
    cls: Any = EQUATIONS[name]
    known = [field.name for field in fields(cls) if field.name != "points"]
    chosen: dict[str, Any] = {} if points is None else {"points": points}
    for setting in settings:
        key, _, text = setting.partition("=")
        if key == "points":
            raise UserError("the number of points has its own option; write --points")
        if key not in known:
            raise UserError(f"{name} has no setting {key!r}; {nearest(key, known)}")
        try:
            chosen[key] = float(text)
        except ValueError:
            raise UserError(f"--set {setting}: expected {key}=NUMBER") from None
    eq: Equation = cls(**chosen)
    return eq
