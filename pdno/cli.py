"""The command line. Heavy modules are imported where they are used, so that --help is fast."""

import signal
import sys
import threading
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import __version__
from .errors import UserError
from .run import options as shared
from .run.options import Cache, Data, Device, LogError, Mask, Members, Once, Run, Seed, Steps, Store, selecting
from .run.suggest import SUGGEST_EXAMPLES, suggest

if TYPE_CHECKING:
    from .data.selection import Selection

__all__ = ["app", "main"]

RESUMABLE = ("generate", "convert", "train", "predict", "bench", "demo")  # commands that resume if run again
INTERRUPTED = 130  # exit code of typer after Ctrl-C
UsageError: Any = typer.BadParameter.__base__  # the class of click, which versions of typer import from different places

app = typer.Typer(
    name="pdno",
    help="Learn the conditional distribution of a PDE solution u given its parameters a from pairs (a, u).",
    epilog="Start with: pdno demo",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


command = partial(app.command, cls=Once)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors of the user end in one line on standard error and exit code 2, without a traceback."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # sent by batch systems; handled as Ctrl-C
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character shows a question mark
    try:
        code = app(args=arguments, standalone_mode=False)
    except UserError as error:
        _stop(str(error), 2)
    except UsageError as error:
        command = error.ctx.command_path if error.ctx else "pdno"
        _stop(f"{' '.join(error.format_message().split())} See: {command} --help", 2)
    except MemoryError:
        _stop("not enough memory; use fewer points, pairs or workers", 2)
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        _stop("not enough memory; use a smaller network, batch or chunk", 2)
    except OSError as error:
        _stop(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 2)
    else:
        if code == INTERRUPTED:
            for number in (signal.SIGINT, signal.SIGTERM):  # ignore further ones while exiting
                signal.signal(number, signal.SIG_IGN)
            resumable = (arguments or sys.argv[1:])[:1][0] in RESUMABLE
            hint = "run the same command again" + (" to resume" if resumable else "")
            _stop(f"interrupted; {hint}", INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)


def _stop(message: str, code: int) -> None:
    """Print a message on standard error and exit."""
    typer.echo(f"pdno: {message}", err=True)
    sys.exit(code)


def _show_version(requested: bool) -> None:
    if requested:
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


@command(epilog=shared.GENERATE_EXAMPLES)
def generate(
    equation: Annotated[str, typer.Argument(help="elliptic1d, darcy, burgers or advection.")],
    out: Store,
    points: Annotated[int | None, typer.Option(help="Points along each axis; default: a resolution of the paper.")] = None,
    train: Annotated[int, typer.Option(help="Training pairs, with noisy outputs.")] = 1000,
    test: Annotated[int, typer.Option(help="Test pairs, with clean and with noisy outputs.")] = 100,
    noise: Annotated[
        str, typer.Option(help="none, gaussian:STD, mixture:1, mixture:2 or field:STD[,TAU,R]; STD in units of u.")
    ] = "none",
    seed: Seed = 0,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the equation.")] = None,
    workers: Annotated[int | None, typer.Option(help="Number of processes; default: the number of cores.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="tcp://…", help="Scheduler of a Dask cluster to use instead of processes.")
    ] = None,
) -> None:
    """Generate pairs (a, u) of an equation.

    If interrupted, run the same command again to resume. A resumed store is bitwise identical to an uninterrupted one.
    """
    from .data.generate import generate as make
    from .work.engine import cores
    from .work.progress import progress_bar

    eq = shared.equation_of(equation, points, set_ or [])
    with progress_bar(f"{eq.name} {eq.grid}", "pairs") as progress:
        data = make(eq, train, test, noise, seed, out, cores() if workers is None else workers, scheduler, progress)
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    typer.echo(f"{out}: {data!r}, {size / 1e6:.1f} MB")


@command(epilog=shared.INSPECT_EXAMPLES)
@selecting
def inspect(
    file: Data,
    selection: "Selection | None",
    mask: Mask = None,
    plot: Annotated[Path | None, typer.Option(metavar="PNG", help="Write a plot of the first pairs.")] = None,
) -> None:
    """Show the contents of a file.

    Prints arrays with their shapes and ranges, problems in the data, a preview, and the commands that use the file.
    """
    from .run.inspect import inspect as show

    show(file, selection, plot, mask)


@command(epilog=shared.CONVERT_EXAMPLES)
@selecting
def convert(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="One file, or several on different grids.")],
    selection: "Selection | None",
    out: Store,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Another file, with the test pairs.")] = None,
    mask: Mask = None,
    grid: shared.GridKind = None,
    cache: Cache = None,
) -> None:
    """Convert a file to a Zarr store, or several on different grids of one domain, interpolated to the finest of them.

    `pdno inspect FILE` prints the command with all options that it needs.
    """
    from .data.merged import merged
    from .data.open import open_selected

    kind = shared.kinds_of(grid)
    parts = [open_selected(file, selection, test=test, mask=mask, cache=cache) for file in files]
    data = parts[0] if len(parts) == 1 else merged(parts, kind)
    data.save(out)
    typer.echo(f"{out}: {data!r}")


@command(epilog=shared.TRAIN_EXAMPLES)
@selecting
def train(
    file: Data,
    selection: "Selection | None",
    out: Annotated[Path, typer.Option(metavar="RUN", help="Folder of the run; an unfinished run is resumed.")],
    preset: Annotated[str, typer.Option(help="Preset that other settings override, see below.")] = "auto",
    config: Annotated[Path | None, typer.Option(metavar="TOML", help="File of settings.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A setting, such as training.batch=64.")
    ] = None,
    budget: Annotated[str | None, typer.Option(metavar="TIME", help="Training time limit: 90s, 10m, 1.5h.")] = None,
    symmetries: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Exact symmetries of the operator: square, translation, … or none.")
    ] = None,
    grid: shared.GridKind = None,
    seed: Seed = 0,
    device: Device = "auto",
    devices: Annotated[int, typer.Option(help="Number of processes (or GPUs) on this machine.")] = 1,
    precision: Annotated[str, typer.Option(help="32-true, 64-true or bf16-mixed.")] = "32-true",
    log_error: LogError = 0.0,
    validation: Annotated[
        float | None,
        typer.Option(help="Fraction of validation pairs, if the file has none.", show_default="0.1; 0 with --preset paper:…"),
    ] = None,
    test_fraction: Annotated[
        float, typer.Option("--test-fraction", help="Fraction of test pairs, if the file has none.")
    ] = 0.1,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Another file, with the test pairs.")] = None,
    mask: Mask = None,
    cache: Cache = None,
) -> None:
    """Train a model of p(u | a) on the pairs in FILE.

    The preset auto compares mean models, from linear regression to networks, and laws of their residuals, from a Gaussian to a
    diffusion, on held-out pairs within the budget (default: 10m). Deterministic baselines: --preset linear, kernel, fno or
    unet.

    If interrupted, run the same command again to resume. For a given number of updates (training.updates or training.epochs,
    without a budget), a resumed run is bitwise identical to an uninterrupted one; under a time budget it may differ.
    """
    from dataclasses import asdict
    from shlex import quote

    from .data.formats.meshes import is_mesh
    from .data.open import open_selected
    from .run.train import settings_of
    from .run.train import train as train_run
    from .work.engine import check_engine, is_first

    settings = settings_of(preset, config, set_ or [], budget, symmetries, grid)
    engine: dict[str, Any] = {"device": device, "devices": devices, "precision": precision}
    check_engine(**engine)
    data = open_selected(file, selection, test=test, mask=mask, cache=cache)
    names = {} if selection is None else {name: value for name, value in asdict(selection).items() if value is not None}
    files = {"test_file": test, "cache": cache}
    names |= {name: str(path.resolve()) for name, path in files.items() if path is not None} | ({"mask": mask} if mask else {})
    held_out = (0.0 if preset.startswith("paper:") else 0.1) if validation is None else validation
    source = {"file": str(file.resolve()), "options": names, "validation": held_out, "test": test_fraction}
    train_run(data, source, settings, out, seed=seed, log_error=log_error, tell=typer.echo, **engine)
    if is_first():
        typer.echo(f"Next:  pdno report {quote(str(out))}     # evaluates it first, and writes {quote(f'{out}/report.html')}")
        prediction = f"{out}/prediction{'.vtu' if is_mesh(file) else '.zarr'}"
        typer.echo(f"       pdno predict {quote(str(out))} --members 100 --out {quote(prediction)}")


@command(epilog=shared.PREDICT_EXAMPLES)
def predict(
    run: Run,
    file: Annotated[Path | None, typer.Argument(metavar="DATA", help="File of inputs; default: the data of the run.")] = None,
    out: Store = Path("pred.zarr"),
    members: Members = "100",
    steps: Steps = None,
    quantiles: Annotated[str, typer.Option(help="Levels of the quantiles, separated by commas.")] = "0.05,0.5,0.95",
    split: Annotated[
        str, typer.Option(help="Split of the run's data, or of another store: test, validation or train.")
    ] = "test",
    a: Annotated[str | None, typer.Option(metavar="NAME", help="Array of inputs, if DATA is not a store of pdno.")] = None,
    dims: Annotated[str | None, typer.Option(metavar="DIMS", help="Dimensions of this array, such as sample,x,y.")] = None,
    scalars: shared.Scalars = None,
    points: shared.OutputPoints = None,
    only: shared.Only = None,
    part: shared.Part = "1/1",
    seed: Seed = 0,
    device: Device = "cpu",
) -> None:
    """Predict u for new inputs.

    Writes mean, standard deviation and quantiles of u, out-of-distribution flags and, if the run has been evaluated, conformal
    intervals to a Zarr store, or to a netCDF file (--out pred.nc). If interrupted, run the same command again to resume.
    """
    from .run.meshes import predict_into
    from .run.predict import summary
    from .work.progress import progress_bar

    levels = shared.levels_of(quantiles)
    options: dict[str, Any] = {"split": split, "a": a, "dims": dims, "scalars": ",".join(scalars or ()) or None}
    options |= {"points": shared.points_of(points), "members": shared.members_of(members)}
    options |= {"device": device, "tell": typer.echo, "part": shared.part_of(part)}
    options |= {} if only is None else {"only": shared.outputs_of(only)}
    options |= {} if steps is None else {"steps": steps}
    with progress_bar("predicting", "members") as progress:
        predicted = predict_into(run, file, out, quantiles=levels, seed=seed, progress=progress, **options)
    for line in summary(run, out, predicted):
        typer.echo(line)


@command(epilog=shared.EVALUATE_EXAMPLES)
@selecting
def evaluate(
    run: Run,
    selection: "Selection | None",
    file: Annotated[
        Path | None, typer.Argument(metavar="DATA", help="File of held-out pairs; default: the data of the run.")
    ] = None,
    members: Members = "100",
    steps: Steps = None,
    split: Annotated[str, typer.Option(help="Split of the run's data: test or validation.")] = "test",
    calibrate: Annotated[int, typer.Option(help="Maximum number of validation pairs for conformal calibration.")] = 100,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder for the results; default: see below.")] = None,
    seed: Seed = 0,
    device: Device = "cpu",
) -> None:
    """Evaluate a model on held-out pairs.

    Prints scores, statistics of the noise, and a verdict on accuracy, calibration, noise and limitations. Results on the test
    pairs of the run are written to RUN, those on a file NAME to RUN/evaluation-NAME.
    """
    from .run.evaluate import evaluate_and_show

    options: dict[str, Any] = {} if steps is None else {"steps": steps}
    options |= {"members": shared.members_of(members), "seed": seed, "split": split, "calibrate": calibrate, "device": device}
    evaluate_and_show(run, file, selection, out=out, tell=typer.echo, **options)


@command(epilog=shared.REPORT_EXAMPLES)
def report(
    run: Run,
    file: Annotated[
        Path | None, typer.Argument(metavar="DATA", help="File of held-out pairs; default: the data of the run.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="HTML", help="File to write; default: RUN/report.html.")] = None,
    device: Device = "cpu",
) -> None:
    """Write a self-contained HTML report.

    A run without current results is evaluated first, with 100 members.
    """
    from .run.evaluate import evaluate_run
    from .run.folder import config_of, is_current, results_folder
    from .run.report import check_name, write_report

    if out is not None:
        check_name(out)
    config_of(run)  # refuses a folder without a run
    if not is_current(run, file):
        typer.echo(f"{run} has no current results: it is evaluated first, with 100 members")
        evaluate_run(run, file, device=device)
    typer.echo(write_report(run, out, results_folder(run, file)))


command(epilog=SUGGEST_EXAMPLES)(suggest)


@command(epilog=shared.BENCH_EXAMPLES)
def bench(
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PART]...", help="Parts, experiments, tests, methods or claims; default: all."),
    ] = None,
    scale: Annotated[str, typer.Option(help="smoke: minutes in all; cpu: at most 45 minutes a part; paper: a GPU.")] = "cpu",
    list_: Annotated[bool, typer.Option("--list", help="Show parts and figures, and results of parts that were run.")] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for data, runs and results.")] = Path("bench"),
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw the figures of the paper from parts that were run; run none.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Run parts again that have results.")] = False,
    minutes: Annotated[float | None, typer.Option(help="Shorter training time of each part.")] = None,
    device: Device = "auto",
    devices: Annotated[int, typer.Option(help="Number of processes (or GPUs) on this machine.")] = 1,
) -> None:
    """Run the experiments of the paper.

    A part is a method on an experiment, such as darcy-64/diffusion, or a claim, such as claims/attention. Parts that have
    results are not run again, and an interrupted training resumes.
    """
    from .bench import draw_figures, figure_states, listing, run

    if list_ or figures:
        if parts:
            raise UserError(f"--{'list' if list_ else 'figures'} concerns all parts; omit {' '.join(parts)}")
        for line in (*listing(scale, out), "", *figure_states(scale, out)) if list_ else ():
            typer.echo(line)
        if figures:
            draw_figures(scale, out, tell=typer.echo, device=device)
        return
    run(parts or [], scale, out, again=again, minutes=minutes, tell=typer.echo, device=device, devices=devices)


@command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for data, run and report; finished steps are skipped.")] = Path("demo"),
) -> None:
    """Run the complete workflow on a small problem.

    Generates noisy pairs, trains a model, evaluates it, predicts, and writes a report, in two or three minutes. Every step
    prints the equivalent command.
    """
    from .run.demo import demo as run_demo

    run_demo(out)
