"""`pdno report`: a self-contained HTML file with the verdict first.

It is made from the files that `pdno train` and `pdno evaluate` have written. It fetches nothing and runs no scripts, and all
strings from data are escaped.
"""

import base64
import io
import re
import shlex
import zipfile
import zlib
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import __version__, plot
from .._typing import Array
from ..data.nodes import Nodes
from ..errors import UserError
from ..evaluation.scoring import LEVEL
from ..evaluation.verdict import rounded
from ..learning.resume import read_rows
from ..plot.style import triangulation
from ..work.files import replacing
from ..work.folder import RunFolder
from . import results
from .channels import channel_of, channel_rows, channel_table, plotted
from .noise import drawings, is_noise, mixtures, noise_rows, noise_table
from .parameters import drawings_of
from .terminal import text_table

__all__ = ["check_name", "render", "show_results", "statements", "table", "write_report"]

WIDE = 7  # inches from which a figure has a row of its own
DPI = 110  # resolution of the figures
PERCENTAGES = ("mrle", "coverage", "band_coverage", "ood_fraction")  # prefixes of the metrics that are shown in percent
CASES = {"best": "Smallest error", "typical": "Median error", "worst": "Largest error"}
OLD_ARRAYS = {"trust": "coverage_map", "novelty_held": "validation_novelty"}  # old name → new name


def check_name(path: Path) -> None:
    """Refuse a path at which a report cannot be written.

    Raises:
        UserError: with the reason.
    """
    if path.is_dir() or not path.parent.is_dir():
        reason = "is a folder" if path.is_dir() else f"cannot be written, because the folder {path.parent} does not exist"
        raise UserError(f"{path} {reason}; name a file with --out")
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"a report is an HTML file, and {path.name} has another suffix; call it {path.stem}.html")


def write_report(run: Path, out: Path | None = None, folder: Path | None = None) -> Path:
    """Write the report of an evaluated run.

    Args:
        run: folder of the run.
        out: file to write; default: report.html in the folder of results.
        folder: of the results; default: the run's own.

    Returns:
        The path of the report.
    """
    path = RunFolder(run if folder is None else folder).report if out is None else out
    check_name(path)
    with replacing(path) as partial:
        partial.write_text(render(run, folder), encoding="utf-8")
    return path


def render(run: Path, folder: Path | None = None) -> str:
    """Return the report as HTML; arguments as in `write_report`."""
    evaluated = RunFolder(run if folder is None else folder)
    contents, arrays = results.read(evaluated.results), _arrays(evaluated.evaluation)
    config = RunFolder(run).config.read_text(encoding="utf-8") if RunFolder(run).config.exists() else ""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["code"] = _code
    template = environment.from_string(files("pdno.run").joinpath("report.html").read_text(encoding="utf-8"))
    metadata, first = contents["metadata"], contents["rows"][0]
    leaderboard = metadata.get("leaderboard", ())
    return template.render(
        title=f"{first['method']} on {metadata['data']}",
        subtitle=f"Evaluation on {metadata['inputs']} held-out inputs of {Path(metadata['file']).name}.",
        verdict=contents["verdict"],
        description=_description(contents),
        leaderboard=[_trial(trial) for trial in leaderboard] if len(leaderboard) > 1 else [],
        rows=[_cells(row) for row in contents["rows"] if not is_noise(row["metric"])],
        channels=channel_rows(contents),
        noise=noise_rows(contents),
        mixtures=mixtures(contents),
        with_paper=_has_paper(contents),
        footnote=_footnote(metadata),
        figures=_figures(run, contents, arrays),
        commands="\n".join([metadata["train_command"], first["command"], _report_command(run, folder, metadata)]),
        provenance=_provenance(contents),
        config=config,
    )


def _has_paper(contents: Mapping[str, Any]) -> bool:
    """Return whether any row has a value of the paper."""
    return any(row["paper"] is not None for row in contents["rows"])


def table(contents: Mapping[str, Any]) -> Table:
    """Return the scores as a table for the terminal."""
    title = Text(f"{contents['rows'][0]['method']} on {contents['metadata']['data']}")
    columns = ["metric", "value", "± error", *(["paper"] if _has_paper(contents) else [])]
    cells = [_cells(row) for row in contents["rows"] if not is_noise(row["metric"])]
    keys = ("description", "value", "error", "paper")[: len(columns)]
    return text_table(columns, ([each[key] for key in keys] for each in cells), title=title)


def statements(contents: Mapping[str, Any]) -> list[str]:
    """Return the verdict as paragraphs for the terminal."""
    return [f"{s['about']}: {s['headline']} {s['text']}".rstrip() + "\n" for s in contents["verdict"]]


def _report_command(run: Path, folder: Path | None, metadata: Mapping[str, Any]) -> str:
    """Return the command that writes this report."""
    return shlex.join(["pdno", "report", str(run), *([] if folder in (None, run) else [str(metadata["file"])])])


def show_results(folder: Path) -> None:
    """Print scores and verdict of an evaluation."""
    contents, console = results.read(RunFolder(folder).results), Console()
    console.print(table(contents))
    for more in (channel_table(contents), noise_table(contents)):
        if more is not None:
            console.print(more)
    for text in statements(contents):
        console.print(text, markup=False, highlight=False)


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return a row of results as text."""
    factor, unit = (100, " %") if row["metric"].startswith(PERCENTAGES) else (1, "")
    value, error = "–", "–"
    if row["value"] is not None:
        value, error = rounded(factor * row["value"], row["error"] and factor * row["error"])
    cells = {"value": value + unit, "error": error + unit * (error != "–")}
    paper = "" if row["paper"] is None else f"{factor * row['paper']:.3g}{unit}"
    description = results.DESCRIPTIONS.get(row["metric"], row["metric"])
    return {"metric": row["metric"], "description": description, **cells, "paper": paper}


def _trial(trial: Mapping[str, Any]) -> dict[str, str]:
    """Return a candidate for the mean model as text."""
    error = "–" if trial["error"] is None else f"{trial['error']:.3g}"
    time = results.duration(trial["seconds"])
    return {"name": trial["name"], "error": error, "time": time, "description": trial["description"]}


def _code(text: str) -> Markup:
    """Escape text, and mark up parts in backticks as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def _arrays(path: Path) -> dict[str, Array]:
    """Return the arrays that `pdno evaluate` has written."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {OLD_ARRAYS.get(name, name): arrays[name] for name in arrays.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); run `pdno evaluate` again") from None


def _description(contents: Mapping[str, Any]) -> list[str]:
    """Return sentences about the model and the data."""
    metadata, row = contents["metadata"], contents["rows"][0]
    pairs = f"{metadata['train']} pairs" if metadata["train"] else "pairs"
    sentences = [f"The model was trained on {pairs} (a, u) of {metadata['training_file']}, with {metadata['grid']} points."]
    if ranges := metadata.get("ranges"):
        listed = ", ".join(f"{name} from {low:.4g} to {high:.4g}" for name, (low, high) in ranges.items())
        sentences.append(f"Training parameters: {listed}.")
    time = "" if row["train_seconds"] is None else f"; training took {results.duration(row['train_seconds'])}"
    sentences.append(f"It has {metadata['parameters']:,} parameters{time}.")
    sentences += [f"{line[:1].upper()}{line[1:]}" for line in metadata.get("fit_summary", ())]
    if metadata["deterministic"]:
        sentences.append("It is deterministic: one prediction for each input.")
    else:
        evaluations = metadata["evaluations"]
        network = f"{evaluations} network evaluations per member" if evaluations else "without network evaluations"
        seconds = metadata["sample_seconds"] / (metadata["inputs"] * metadata["members"])
        sentences.append(
            f"{metadata['members']} members were drawn for each test input, {network}, {results.duration(seconds)} per member."
        )
    noise = {None: "", "none": " The outputs are noise-free."}.get(metadata["noise"], f" The noise is {metadata['noise']}.")
    sentences.append(f"It was evaluated on {metadata['inputs']} inputs of {Path(metadata['file']).name}.{noise}")
    if metadata.get("omitted"):
        pairs = "1 pair was" if metadata["omitted"] == 1 else f"{metadata['omitted']} pairs were"
        sentences.append(f"{pairs} omitted, because the model was trained on them.")
    if metadata["observed"] == "u_eta":
        sentences.append("The mean is compared with clean outputs, and the members with noisy observations.")
    else:
        sentences.append("The data have one output for each input, which is used both as the truth and as the observation.")
    return sentences


def _footnote(metadata: Mapping[str, Any]) -> str:
    """Explain errors and conformal intervals."""
    groups = metadata.get("independent", metadata["inputs"])
    counted = f" in {groups} independent groups" if groups < metadata["inputs"] else ""
    text = f"Errors are standard errors over {metadata['inputs']} test inputs{counted}."
    if not metadata["deterministic"]:
        text += f" Ensembles have {metadata['members']} members."
    if metadata["calibration_pairs"]:
        text += f" Conformal intervals were calibrated on {metadata['calibration_pairs']} validation pairs. If new pairs are "
        text += "exchangeable with these, intervals cover at least 90 % of observations at each point, and simultaneous bands "
        text += "at least 90 % of fields at all points that are observed, on average over inputs and calibration sets."
    return text


def _provenance(contents: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and values that identify the evaluation."""
    row, machine = contents["rows"][0], contents["machine"]
    return [
        ("version (evaluation)", f"pdno {row['version']}"),
        ("version (report)", f"pdno {__version__}"),
        ("machine", f"{machine['processor']}, {machine['cores']} cores"),
        ("seed of the members", str(row["seed"])),
        ("model.safetensors", f"blake2b {contents['model']}"),
    ]


# Figures

Drawings = list[tuple[Callable[[Any], Figure], str]]  # functions of the theme, with captions


def _figures(run: Path, contents: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Return the groups of figures."""
    axes: Any = [values for name, values in arrays.items() if name.startswith("axis.")]
    if (mesh := Nodes.of(arrays)) is not None:
        axes, arrays = triangulation(mesh) or axes, _at_end(arrays, len(mesh.points))
    groups = {
        "Predictions": ("", _cases(contents, arrays, axes)),
        "Calibration": (
            "For a calibrated model, 90 % intervals cover 90 % of observations, and ranks of observations among members are "
            "uniform.",
            _calibration(contents, arrays, axes),
        ),
        "Noise": (
            "Noise is u given a minus its mean. Held-out errors also contain the error of the predicted mean.",
            drawings(arrays, axes, _labels(contents).get("x", "x")),
        ),
        "Parameters": ("", drawings_of(arrays)),
        "Spectra and novelty": ("", _others(arrays)),
        "Training": ("", _training(run, contents["metadata"])),
    }
    return [
        {
            "title": title,
            "text": text,
            "wide": title == "Predictions",
            "figures": [_themed(draw, caption) for draw, caption in drawn],
        }
        for title, (text, drawn) in groups.items()
        if drawn
    ]


def _labels(contents: Mapping[str, Any]) -> Mapping[str, str]:
    """Return names with units of a, u and the axes x, y, z, as the file has them."""
    labels: Mapping[str, str] = contents["metadata"].get("labels", {})
    return labels


def _at_end(arrays: Mapping[str, Array], count: int) -> dict[str, Array]:
    """Return fields on the nodes of a mesh at the last place of other axes, (…, channel, node), such as the last time."""
    other = {name: v.ndim - 2 - name.endswith(".members") for name, v in arrays.items() if v.shape[-1:] == (count,)}
    index: Any = (..., *(-1,) * max(other.values(), default=0), slice(None))
    return {name: v[index] if name in other else v for name, v in arrays.items()}


def _themed(draw: Callable[[Any], Figure], caption: str) -> dict[str, Any]:
    """Return a figure in the light and the dark theme."""
    figures = {theme: draw(theme) for theme in ("light", "dark")}
    wide = figures["light"].get_figwidth() > WIDE
    return {"caption": caption, "wide": wide, **{theme: _png(figure) for theme, figure in figures.items()}}


def _png(figure: Figure) -> str:
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=DPI)
    return f"data:image/png;base64,{base64.b64encode(target.getvalue()).decode()}"


def _cases(contents: Mapping[str, Any], arrays: Mapping[str, Array], axes: Any) -> Drawings:
    drawings: Drawings = []
    metadata = contents["metadata"]
    for case in contents["cases"]:
        part: dict[str, Any] = {
            key.rsplit(".", 1)[1]: value for key, value in arrays.items() if key.startswith(f"case.{case['title']}.")
        }
        if metadata["observed"] == "u":
            # u is the truth if the data are noise-free; otherwise it may be noisy and is shown as an observation.
            part["observed" if metadata["noise"] == "none" else "u"] = None
        parameters = "".join(f", {name} = {value:.4g}" for name, value in case.get("parameters", {}).items())
        for c, channel in enumerate(plotted(contents)):
            one = {name: None if value is None else channel_of(value, c, name) for name, value in part.items()}
            if case.get("parameters") and not part["a"].any():
                one["a"] = None  # outputs depend on parameters alone
            fields: Any = [one.pop(name) for name in ("a", "u", "mean", "std")]

            def draw(theme: Any, fields: Any = fields, part: Any = one) -> Figure:
                return plot.fields(*fields, x=axes or None, labels=_labels(contents), theme=theme, **part)

            drawings.append((draw, f"{CASES[case['title']]}: test input {case['number']}{parameters}{channel}."))
    return drawings


def _calibration(contents: Mapping[str, Any], arrays: Mapping[str, Array], axes: Any) -> Drawings:
    if "coverage.levels" not in arrays:
        return []
    values, members = {row["metric"]: row["value"] for row in contents["rows"]}, contents["metadata"]["members"]
    measured = values.get("coverage_90_conformal")
    conformal = None if measured is None else ([LEVEL], [measured])
    xlabel = _labels(contents).get("x", "x")
    curve = [arrays[f"coverage.{name}"] for name in ("levels", "value", "error")]
    ranks = [arrays[f"histogram.{name}"] for name in ("edges", "density", "error")]
    spread: list[Any] = [arrays["spread_skill.spread"], arrays["spread_skill.skill"], float(arrays["spread_skill.ratio"])]
    relative_error = 50 / np.sqrt(0.5 * (members - 1))  # of a standard deviation of M members, in percent
    return [
        (
            lambda theme: plot.coverage(*curve, conformal=conformal, theme=theme),
            "Coverage against nominal level; calibrated intervals are on the diagonal.",
        ),
        (
            lambda theme: plot.rank_histogram(*ranks, theme=theme),
            "Histogram of the ranks of observations among members (PIT): flat for calibrated members, U-shaped if they are too "
            "narrow, hump-shaped if too wide, sloped if biased.",
        ),
        (
            lambda theme: plot.spread_skill(*spread, theme=theme),
            "Error against spread, which are equal on the diagonal. The spread of "
            f"{members} members has a relative standard error of {relative_error:.0f} %.",
        ),
        *(_coverage_map(arrays["coverage_map"][c : c + 1], axes, name, xlabel) for c, name in enumerate(plotted(contents))),
    ]


def _coverage_map(values: Array, axes: Any, channel: str, xlabel: str) -> tuple[Callable[[Any], Figure], str]:
    """Return the map of the coverage of a channel."""
    caption = f"Coverage of 90 % intervals at each point of the domain{channel}."
    return lambda theme: plot.coverage_map(values, LEVEL, x=axes or None, xlabel=xlabel, theme=theme), caption


def _others(arrays: Mapping[str, Array]) -> Drawings:
    drawings: Drawings = []
    if "spectra.members" in arrays and (arrays["spectra.observed"][1:] > 0).any():  # constant outputs have no spectrum
        spectra = arrays["spectra.members"][1:], arrays["spectra.observed"][1:]  # without the mean of the field
        caption = "Power spectra of members and observations: equal if members have the correct roughness."
        drawings.append((lambda theme: plot.spectra(*spectra, theme=theme), caption))
    if "novelty" in arrays and "validation_novelty" in arrays:
        scores = arrays["validation_novelty"], arrays["novelty"]
        caption = "Novelty scores of inputs; inputs with a score above 1 are flagged as out of distribution."
        drawings.append((lambda theme: plot.novelty(*scores, theme=theme), caption))
    return drawings


def _training(run: Path, metadata: Mapping[str, Any]) -> Drawings:
    """Plot the losses of the networks that the model has: its mean model and its diffusion model."""
    selected = [trial["name"].replace(", ", "-") for trial in metadata.get("leaderboard", ()) if trial.get("selected")]
    networks = {f"Mean model{f' ({name})' if len(selected) > 1 else ''}: ": RunFolder(run).trial(name) for name in selected}
    if metadata["deterministic"] or metadata["evaluations"]:
        networks["Diffusion model: " if selected else ""] = RunFolder(run)
    drawings: Drawings = []
    for name, folder in networks.items():
        rows = read_rows(folder.metrics)

        def draw(theme: Any, rows: Any = rows) -> Figure:
            return plot.history(rows, theme=theme)

        if len(rows) > 1:
            drawings.append((draw, f"{name}{'t' if name else 'T'}raining and validation loss."))
    return drawings
