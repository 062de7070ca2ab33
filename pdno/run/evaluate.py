"""`pdno evaluate`: evaluate a run on held-out pairs, and write scores, verdict, plot data and conformal calibration."""

import os
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import join
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from .._typing import Array
from ..data import store
from ..data.dataset import Dataset
from ..data.formats import contents
from ..data.open import open_selected
from ..data.pairs import Pairs
from ..data.selection import Selection, without_index
from ..errors import UserError
from ..evaluation.scoring import MIN_MEMBERS, Evaluation, evaluate
from ..evaluation.verdict import verdict
from ..learning.resume import session_seconds
from ..model.members import TOLERANCE, members_needed
from ..model.saving import load
from ..model.surrogate import Surrogate
from ..work.engine import memory_allowed
from ..work.files import locked, replacing
from ..work.folder import RunFolder
from . import results
from .config import Config
from .folder import config_of, data_of, leaderboard_of, model_digest, results_folder, save_conformal
from .inputs import same_dims
from .noise import arrays_of, mixtures_of
from .parameters import Study, study
from .report import show_results

__all__ = ["evaluate_and_show", "evaluate_run"]

NOT_SELECTED = ("test_file", "cache", "mask", "group", "parameters")  # options that do not name arrays of other files


def evaluate_run(
    run: Path,
    file: Path | None = None,
    selection: Selection | None = None,
    *,
    members: int | Literal["auto"] = 100,
    seed: int = 0,
    split: str = "test",
    calibrate: int = 100,
    device: str = "cpu",
    out: Path | None = None,
    tell: Callable[[str], None] = print,
    **sampling: Any,
) -> Evaluation:
    """Evaluate a run and write the results into its folder, or for other data into a subfolder.

    Args:
        run: folder of the run.
        file: data to evaluate on; default: the test pairs of the run.
        selection: arrays of the file; default: as for training.
        members, seed, calibrate, sampling: as in `pdno.evaluate`; members "auto" for as many as mean and std need.
        split: of the run's own data, "test" or "validation".
        device: where to compute.
        out: folder for the results; default: see `pdno.run.folder.results_folder`.
        tell: called with messages for the user.

    Raises:
        UserError: if the run, its data or the file cannot be used, or all inputs of the file are training inputs.
    """
    model = load(run, device=device)
    config = config_of(run)
    own = file is None or file.resolve() == Path(config.data.file).resolve()
    if calibrate < 0:
        raise UserError(f"--calibrate {calibrate}: expected a number of pairs, or 0 for no calibration")
    if not own and split != "test":
        raise UserError(f"--split {split} selects pairs of the run's own data, but {file} was given; omit one of them")
    if own and selection is not None:
        raise UserError(f"{config.data.file} is the training data of {run}, whose arrays are recorded; omit --a and --u")
    folder = results_folder(run, file, split) if out is None else out
    data, omitted = (_own(run, split, model), 0) if file is None or own else _other(run, file, selection, config, model)
    members = _members(model, data.test, seed, **sampling) if members == "auto" else members
    if not model.deterministic:
        tell(f"drawing {members} members for each test input and for up to {calibrate} validation inputs")
    if omitted:
        tell(f"{_counted(omitted)} of {file} that the model was trained on: {len(data.test)} are left for the evaluation")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the model was trained or validated")  # of --split validation; the verdict says it
        e = evaluate(model, data, members=members, seed=seed, calibrate=calibrate if split == "test" else 0, **sampling)
    options = {"members": members, **sampling, "split": split, "calibrate": calibrate, "seed": seed}
    origin = _Origin(run, model, config, data, seed, _command(run, file, selection, options))
    parameters = study(model, data, seed)
    metadata = origin.metadata(e, config.data.file if file is None else str(file), omitted)
    with locked(run):
        if own and split == "test" and os.access(run, os.W_OK):
            save_conformal(run, e.conformal, members, sampling)
        origin.write(folder, e, parameters, metadata)
    return e


def _members(model: Surrogate, test: Pairs, seed: int, **sampling: Any) -> int:
    """Return the number of members that mean and std of the test inputs need, enough for 90 % intervals."""
    return max(MIN_MEMBERS, members_needed(model.given(test.a, test.scalars), TOLERANCE, seed, **sampling))


def _parameters(pairs: Pairs, number: int) -> dict[str, float]:
    """Return the parameters of a pair by name."""
    scalars = [] if pairs.scalars is None else pairs.scalars[number].tolist()
    return dict(zip(pairs.parameters, scalars, strict=True))


def evaluate_and_show(
    run: Path,
    file: Path | None,
    selection: Selection | None,
    *,
    out: Path | None,
    tell: Callable[[str], None],
    members: int | Literal["auto"],
    calibrate: int,
    split: str,
    **options: Any,
) -> None:
    """Evaluate a run and print the results; arguments as in `evaluate_run`. A run that is read-only gets no results."""
    folder = results_folder(run, file, split) if out is None else out
    if out is not None and not out.parent.is_dir():
        raise UserError(f"{folder} cannot be created, because the folder {folder.parent} does not exist; choose another --out")
    writable = os.access(folder if folder.exists() else folder.parent, os.W_OK)
    with TemporaryDirectory() as temporary:
        folder = folder if writable else Path(temporary)
        options |= {"members": members, "calibrate": calibrate, "split": split}
        evaluate_run(run, file, selection, out=folder, tell=tell, **options)
        show_results(folder)
    if not writable:
        where = run if out is None else out.parent
        tell(f"{where} is read-only: the results were not saved; give another folder with --out to save them")
    elif out is None:
        tell(f"Next:  pdno report {join([str(run), *([] if folder == run or file is None else [str(file)])])}")


def _counted(omitted: int) -> str:
    return f"omitted {omitted} {'pair' if omitted == 1 else 'pairs'}"


def _command(run: Path, file: Path | None, selection: Selection | None, options: dict[str, Any]) -> str:
    """Return the command that reproduces these numbers."""
    names = {} if selection is None else {key: value for key, value in asdict(selection).items() if value is not None}
    parts = [part for key, value in {**names, **options}.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    return join(["pdno", "evaluate", str(run), *([] if file is None else [str(file)]), *parts])


def _train_command(run: Path, config: Config, model: Surrogate) -> str:
    """Return the command that trains the same model again.

    It has the number of steps instead of the budget, because steps per second depend on the machine; if several networks were
    tried, it has the budget.
    """
    data = config.data
    names = {"test_file": "test"}
    options = [part for key, value in data.options.items() for part in (f"--{names.get(key, key).replace('_', '-')}", value)]
    options += ["--config", str(RunFolder(run).config)]
    if not model.leaderboard and model.provenance.get("updates"):
        options += ["--set", f"training.updates={model.provenance['updates']}"]
        options += ["--set", "training.epochs=none", "--set", "model.budget=none"]
    options += ["--seed", str(data.seed), "--validation", str(data.validation), "--test-fraction", str(data.test)]
    options += ["--out", f"{run}-again"]
    return join(["pdno", "train", data.file, *options])


def _own(run: Path, split: str, model: Surrogate) -> Dataset:
    """Return the data of the run with this split as test pairs."""
    if split == "validation" and model.provenance.get("cross_validated"):
        raise UserError(f"{run} was selected by cross-validation and trained on its validation pairs; choose --split test")
    if split not in ("test", "validation"):
        raise UserError(f"--split {split}: models are evaluated on held-out pairs; choose test or validation")
    data = data_of(run)
    pairs = data.splits().get(split)
    if not pairs:
        raise UserError(f"the data of {run} have no {split} pairs; pass other data to evaluate on")
    return replace(data, test=pairs)


def _other(run: Path, file: Path, selection: Selection | None, config: Config, model: Surrogate) -> tuple[Dataset, int]:
    """Return the pairs of a file as test pairs, with the run's other splits.

    Returns:
        The data without pairs that the model was trained on, and the number of these.
    """
    if (selection is None or selection.u is None) and not store.is_store(file):
        names = {k: v for k, v in config.data.options.items() if k not in NOT_SELECTED}
        names = {k: v for k, v in names.items() if not k.startswith(("test_", "validation_"))}
        table = None if selection is None else selection.parameters
        if table is None and "parameters" in config.data.options:
            raise UserError(f"{run} was trained on a table of parameters; give that of {file} with --parameters")
        selection = Selection(**names, parameters=table) if names or table else None
        if selection is not None and selection.a is not None and selection.dims is not None:
            entry = contents(file, memory_allowed()).entries.get(without_index(selection.a)[0])
            if entry is not None:
                same_dims(entry.shape, selection.dims_of("a"), model.spaces.a_shape[1:], selection.a)
    elif selection is not None and selection.dims is None:
        selection = replace(selection, dims=config.data.options.get("dims"))
    data = open_selected(file, selection, None, config.data.options.get("mask"), None)
    test = data.test if len(data.test) else data.train
    held_out = np.flatnonzero(~np.isin(test.fingerprints(), model.fingerprints))
    if not len(held_out):
        raise UserError(f"all inputs in {file} are training inputs; pass held-out pairs to evaluate on")
    omitted = len(test) - len(held_out)
    try:
        own = data_of(run)
    except UserError:  # moved or changed since training
        return replace(data, train=data.train[:0], validation=None, test=test[held_out]), omitted
    return replace(data, train=own.train, validation=own.validation, test=test[held_out]), omitted


@dataclass(frozen=True)
class _Origin:
    """Origin of the results of an evaluation.

    Args:
        run: folder of the run.
        model: of the run.
        config: settings of the run.
        data: with the pairs that the model is evaluated on.
        seed: of the members.
        command: that reproduces the results.
    """

    run: Path
    model: Surrogate
    config: Config
    data: Dataset
    seed: int
    command: str

    def metadata(self, e: Evaluation, file: str, omitted: int) -> dict[str, Any]:
        """Return the metadata of results on a file; `omitted` is the number of its pairs that are training pairs."""
        spaces = self.model.spaces
        return {
            **e.metadata,
            "file": file,
            "training_file": Path(self.config.data.file).name,
            "omitted": omitted,
            "fit_summary": self.model.fit_summary,
            "leaderboard": leaderboard_of(self.run),
            "train_command": _train_command(self.run, self.config, self.model),
            "labels": spaces.plot_labels(),
            "ranges": {name: list(pair) for name, pair in zip(spaces.parameters, spaces.ranges, strict=False)},
        }

    def _rows(self, e: Evaluation, channel: str | None = None) -> list[dict[str, Any]]:
        """Return one row of results per score, of a channel or of all together."""
        metadata, noise = e.metadata, e.metadata["noise"]
        common = {
            "test": metadata["data"],
            "method": _method(self.model, self.config, metadata),
            **{name: metadata[name] for name in ("grid", "train", "members", "evaluations", "parameters", "sample_seconds")},
            "noise": noise,
            "train_seconds": _training_seconds(self.run),
            "seed": self.seed,
            "command": self.command,
            "law": self.model.fitted.residual.name,
            "channel": channel,
        }
        return [
            results.row(
                name,
                e.scores[name].value,
                error=e.scores[name].error,
                quantile=results.QUANTILES.get(name),
                paper=results.paper(metadata["data"], metadata["grid"], noise or "", name, self.model.name),
                **common,
            )
            for name in results.DESCRIPTIONS
            if name in e.scores
        ]

    def write(self, folder: Path, e: Evaluation, parameters: Study, metadata: dict[str, Any]) -> None:
        """Write the results, and the arrays that the report plots, into a folder."""
        test = self.data.test
        folder.mkdir(exist_ok=True)
        _save_arrays(RunFolder(folder).evaluation, e, parameters.arrays)
        results.write(
            RunFolder(folder).results,
            self._rows(e),
            machine=results.machine(),
            model=model_digest(self.run),
            metadata=metadata,
            verdict=[asdict(statement) for statement in (*verdict(e), *parameters.statements)],
            mixtures=results.plain(mixtures_of(e)),
            channels={name: self._rows(part, name) for name, part in e.channels.items()},
            diagnoses={name: results.plain(asdict(d)) for name, d in e.diagnoses.items()},
            cases=[{"title": c.title, "number": c.number, "parameters": _parameters(test, c.number)} for c in e.cases],
        )


def _method(model: Surrogate, config: Config, metadata: dict[str, Any]) -> str:
    """Return the name of the method in results; a model with the settings of the paper, all of them, has its own name."""
    if model.name != "pdno":
        return model.method
    if config.is_of_paper(metadata["data"]):
        return "pdno-paper"
    return "pdno-functional" if config.diffusion.base.startswith("field") else model.method


def _training_seconds(run: Path) -> float | None:
    """Return the time of all sessions and of all candidates for the mean model; None if none is recorded."""
    spent = session_seconds(run) + [float(trial["seconds"]) for trial in leaderboard_of(run)]
    return sum(spent) if spent else None


def _save_arrays(path: Path, e: Evaluation, more: dict[str, Array]) -> None:
    """Write the arrays that the report plots, and more of them."""
    arrays: dict[str, Any] = {**arrays_of(e), **more}
    for name in ("coverage", "histogram", "spread_skill"):
        if (part := getattr(e, name)) is not None:
            arrays |= {f"{name}.{key}": value for key, value in asdict(part).items()}
    if e.spectra is not None:
        arrays |= {"spectra.members": e.spectra[0], "spectra.observed": e.spectra[1]}
    plain = {"coverage_map": e.coverage_map, "novelty": e.novelty, "validation_novelty": e.validation_novelty}
    arrays |= {name: values for name, values in plain.items() if values is not None}
    arrays |= {f"axis.{name}": nodes for name, nodes in e.axes.items()}
    arrays |= {} if e.nodes is None else e.nodes.coordinates()
    for case in e.cases:
        fields = {key: value for key, value in vars(case).items() if isinstance(value, np.ndarray)}
        arrays |= {f"case.{case.title}.{key}": np.asarray(value, dtype=np.float32) for key, value in fields.items()}
    with replacing(path) as partial, partial.open("wb") as target:
        np.savez_compressed(target, **arrays)
