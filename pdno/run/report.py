"""The report of a run: one HTML file that opens anywhere, with the verdict first.

It is made from what `pdno evaluate` wrote (results.json, evaluation.npz) and from the run's own files. It loads nothing, runs
nothing, and everything that came from data is escaped.
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
from numpy.typing import NDArray
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from .. import __version__, plot
from ..errors import UserError
from ..evaluation.scoring import LEVEL
from ..evaluation.verdict import rounded
from ..learning.resume import read_rows
from ..work.whole import replacing
from . import results

__all__ = ["render", "statements", "table", "write_report"]

Array = NDArray[Any]
DPI = 110
SHARES = ("mrle", "coverage", "fields", "unfamiliar")  # metrics that are read as percentages
CASES = {"best": "The smallest error", "typical": "A typical error", "worst": "The largest error"}


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write the report of a run that was evaluated, into RUN/report.html if no other place is named."""
    path = run / "report.html" if out is None else out
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"cannot be written, as the folder {path.parent} does not exist"
        raise UserError(f"{path} {what}; name a file with --out")
    with replacing(path) as partial:
        partial.write_text(render(run), encoding="utf-8")
    return path


def render(run: Path) -> str:
    """The report as HTML."""
    found, arrays = results.read(run / "results.json"), _arrays(run / "evaluation.npz")
    config = (run / "config.toml").read_text(encoding="utf-8") if (run / "config.toml").exists() else ""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["code"] = _code
    template = environment.from_string(files("pdno.run").joinpath("report.html").read_text(encoding="utf-8"))
    facts, first = found["facts"], found["rows"][0]
    return template.render(
        title=f"{first['method']} on {facts['data']}",
        subtitle=f"How far this model can be trusted: judged by {facts['inputs']} inputs that it has not learned from, of "
        f"{Path(facts['file']).name}.",
        verdict=found["verdict"],
        story=_story(found),
        trials=[_trial(trial) for trial in facts.get("trials", ())] if len(facts.get("trials", ())) > 1 else [],
        rows=[_cells(row) for row in found["rows"]],
        with_paper=any(row["paper"] is not None for row in found["rows"]),
        footnote=_footnote(facts),
        pictures=_pictures(run, found, arrays),
        commands="\n".join([facts["train_command"], first["command"], shlex.join(["pdno", "report", str(run)])]),
        provenance=_provenance(found),
        config=config,
    )


def table(found: Mapping[str, Any]) -> Table:
    """The scores for a terminal."""
    facts = found["facts"]
    title = Text(f"{found['rows'][0]['method']} on {facts['data']}")
    shown = Table(box=SIMPLE, pad_edge=False, title=title, title_justify="left")
    with_paper = any(row["paper"] is not None for row in found["rows"])
    for name in ("what", "value", "± error", *(["paper"] if with_paper else [])):
        shown.add_column(name, justify="left" if name == "what" else "right", no_wrap=name != "what")
    for row in found["rows"]:
        cells = _cells(row)
        shown.add_row(cells["meaning"], cells["value"], cells["error"], *([cells["paper"]] if with_paper else []))
    return shown


def statements(found: Mapping[str, Any]) -> list[str]:
    """The verdict for a terminal."""
    return [f"{s['about']} {s['headline']} {s['text']}".rstrip() + "\n" for s in found["verdict"]]


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """A row of results as texts."""
    size, unit = (100, " %") if row["metric"].startswith(SHARES) else (1, "")
    value, error = ("–", "–") if row["value"] is None else rounded(size * row["value"], row["error"] and size * row["error"])
    shown = {"value": value + unit, "error": error + unit * (error != "–")}
    paper = "" if row["paper"] is None else f"{size * row['paper']:.3g}{unit}"
    return {"metric": row["metric"], "meaning": results.MEANING.get(row["metric"], row["metric"]), **shown, "paper": paper}


def _trial(trial: Mapping[str, Any]) -> dict[str, str]:
    """A candidate for the mean as texts."""
    error = "–" if trial["error"] is None else f"{trial['error']:.3g}"
    return {"name": trial["name"], "error": error, "time": _time(trial["seconds"]), "note": trial["note"]}


def _code(text: str) -> Markup:
    """Escaped text, with what stands in backticks as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def _arrays(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); run `pdno evaluate` again") from None


def _story(found: Mapping[str, Any]) -> list[str]:
    """What was learned from what, in sentences."""
    facts, row = found["facts"], found["rows"][0]
    pairs = f"{facts['train']} pairs" if facts["train"] else "pairs"
    sentences = [f"The model learned from {pairs} (a, u) of {facts['learned']}, on {facts['grid']} points."]
    spent = "" if row["train_seconds"] is None else f", and learning took {_time(row['train_seconds'])}"
    sentences.append(f"It keeps {facts['parameters']:,} numbers{spent}.")
    sentences += [f"{line[:1].upper()}{line[1:]}" for line in facts.get("said", ())]
    if facts["deterministic"]:
        sentences.append("It gives one answer for each input.")
    else:
        per = facts["sample_seconds"] / (facts["inputs"] * facts["members"])
        sentences.append(
            f"It was asked for {facts['members']} members of each test input, each drawn "
            f"{f'with {n} evaluations of the network' if (n := facts['evaluations']) else 'without a network'}, "
            f"in {_time(per)} a member here, judging included."
        )
    noise = {None: "", "none": " Its outputs carry no noise."}.get(
        facts["noise"], f" Its outputs carry noise {facts['noise']}."
    )
    sentences.append(f"It was judged by {facts['inputs']} inputs of {Path(facts['file']).name}.{noise}")
    if facts["observed"] == "u_eta":
        sentences.append("Errors are against clean outputs; members are compared with noisy observations of them.")
    else:
        sentences.append("The data have one output for each input, which serves both as the truth and as the observation.")
    return sentences


def _time(seconds: float) -> str:
    """A time for readers.

    >>> _time(0.0123), _time(75), _time(5400)
    ('12 ms', '75 s', '90 min')
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.2g} ms"
    return f"{seconds:.0f} s" if seconds < 180 else f"{seconds / 60:.0f} min"


def _footnote(facts: Mapping[str, Any]) -> str:
    text = f"The error is one standard error over {facts['inputs']} test inputs."
    if not facts["deterministic"]:
        text += f" {facts['members']} members."
    if facts["held"]:
        text += f" Intervals were repaired with {facts['held']} validation pairs: they hold 90 % of new observations at each "
        text += "point (or 90 % of whole fields) if new pairs are drawn alike, on average over such sets of pairs."
    return text


def _provenance(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    row, machine = found["rows"][0], found["machine"]
    return [
        ("pdno", row["version"]),
        ("this report by", f"pdno {__version__}"),
        ("machine", f"{machine['processor']}, {machine['cores']} cores"),
        ("seed of the members", str(row["seed"])),
        ("model.safetensors", f"blake2b {found['model']}"),
    ]


# Pictures


def _pictures(run: Path, found: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[dict[str, Any]]:
    axes = [values for name, values in arrays.items() if name.startswith("axis.")]
    parts = {
        "Forecasts": ("", _cases(found, arrays, axes)),
        "Are the error bars honest?": (
            "Of honest 90 % intervals, 90 % hold the observation; and the rank of an observation among the members is any "
            "with equal chance.",
            _honesty(found, arrays, axes),
        ),
        "Scales and inputs": ("", _others(arrays)),
        "Training": ("", _training(run, found["facts"])),
    }
    return [
        {
            "title": title,
            "text": text,
            "wide": title == "Forecasts",
            "pictures": [_themed(draw, caption) for draw, caption in drawn],
        }
        for title, (text, drawn) in parts.items()
        if drawn
    ]


Drawn = list[tuple[Callable[[Any], Figure], str]]


def _themed(draw: Callable[[Any], Figure], caption: str) -> dict[str, str]:
    """A picture for bright and for dark screens."""
    return {"caption": caption, **{theme: _png(draw(theme)) for theme in ("light", "dark")}}


def _png(figure: Figure) -> str:
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=DPI)
    return f"data:image/png;base64,{base64.b64encode(target.getvalue()).decode()}"


def _cases(found: Mapping[str, Any], arrays: Mapping[str, Array], axes: list[Array]) -> Drawn:
    drawn: Drawn = []
    noisy = found["facts"]["observed"] == "u_eta"
    for case in found["cases"]:
        part: dict[str, Any] = {
            key.rsplit(".", 1)[1]: value for key, value in arrays.items() if key.startswith(f"case.{case['title']}.")
        }
        if not noisy and found["facts"]["noise"] != "none":
            part["u"] = None  # what is there may carry noise: it is an observation, not the truth
        elif not noisy:
            part.pop("observed")
        members = [member[:1] for member in part.pop("members")]
        part = {name: None if value is None else value[:1] for name, value in part.items()}  # the first channel
        fields: Any = [part.pop(name) for name in ("a", "u", "mean", "std")]
        part["members"] = members

        def draw(theme: Any, fields: Any = fields, part: Any = part) -> Figure:
            return plot.fields(*fields, x=axes or None, theme=theme, **part)

        drawn.append((draw, f"{CASES[case['title']]}: test input {case['number']}."))
    return drawn


def _honesty(found: Mapping[str, Any], arrays: Mapping[str, Array], axes: list[Array]) -> Drawn:
    if "coverage.levels" not in arrays:
        return []
    values, members = {row["metric"]: row["value"] for row in found["rows"]}, found["facts"]["members"]
    repaired = values.get("coverage_90_repaired")
    point = None if repaired is None else ([LEVEL], [repaired])
    curve = [arrays[f"coverage.{name}"] for name in ("levels", "value", "error")]
    ranks = [arrays[f"histogram.{name}"] for name in ("edges", "density", "error")]
    spread: list[Any] = [arrays["spread_skill.spread"], arrays["spread_skill.skill"], float(arrays["spread_skill.ratio"])]
    return [
        (lambda theme: plot.coverage(*curve, repaired=point, theme=theme), "Coverage: on the diagonal, intervals are honest."),
        (
            lambda theme: plot.rank_histogram(*ranks, theme=theme),
            "Ranks of observations among members (PIT): flat is honest, a valley too narrow, a hill too wide, a slope biased.",
        ),
        (
            lambda theme: plot.spread_skill(*spread, theme=theme),
            "Where members spread more, errors should be larger: on the diagonal they are as large as the spread says. The "
            f"spread of {members} members is itself known to {50 / np.sqrt(0.5 * (members - 1)):.0f} % only.",
        ),
        (
            lambda theme: plot.trust(arrays["trust"][:1], LEVEL, x=axes or None, theme=theme),
            "Where in the domain 90 % intervals hold what they promise.",
        ),
    ]


def _others(arrays: Mapping[str, Array]) -> Drawn:
    drawn: Drawn = []
    if "spectra.members" in arrays:
        both = arrays["spectra.members"][1:], arrays["spectra.observed"][1:]  # without the mean of the field
        caption = "Power at each scale: members should be as rough as observations, neither smoother nor rougher."
        drawn.append((lambda theme: plot.spectra(*both, theme=theme), caption))
    if "novelty" in arrays and "novelty_held" in arrays:
        caption = "How far inputs lie from those learned from; beyond 1 they are flagged as unfamiliar."
        drawn.append((lambda theme: plot.novelty(arrays["novelty_held"], arrays["novelty"], theme=theme), caption))
    return drawn


def _training(run: Path, facts: Mapping[str, Any]) -> Drawn:
    """Losses of the networks: of that for the mean, if it is one, then of the model's own."""
    dropped = not facts["deterministic"] and facts["evaluations"] == 0
    taken = [trial["name"].replace(", ", "-") for trial in facts.get("trials", ()) if trial.get("taken")]
    told = {
        **dict.fromkeys(taken, "Of the mean operator: "),
        "": "Of the diffusion, which was dropped: " if dropped else "Of the diffusion: " if taken else "",
    }
    drawn: Drawn = []
    for name, whose in told.items():
        rows = read_rows(run / name / "metrics.jsonl")

        def draw(theme: Any, rows: Any = rows) -> Figure:
            return plot.history(rows, theme=theme)

        if len(rows) > 1:
            drawn.append((draw, f"{whose}{'l' if whose else 'L'}oss while training, and on pairs that were held out."))
    return drawn
