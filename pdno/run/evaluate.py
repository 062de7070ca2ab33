"""What `pdno evaluate` does: a run is judged by pairs that it has not learned from.

RUN/results.json              a row a number, the verdict, and what they rest on
RUN/evaluation.npz            curves, maps and cases that the report draws
RUN/intervals.safetensors     the repair of intervals, which `pdno predict` applies
"""

from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from shlex import join
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data import store
from ..data.open import open_chosen
from ..data.pairs import Dataset
from ..data.selection import Selection
from ..errors import UserError
from ..evaluation.conformal import Conformal
from ..evaluation.scoring import FEWEST, LEVEL, Evaluation, evaluate
from ..evaluation.verdict import verdict
from ..learning.resume import sessions
from ..model.operator import PDNO
from ..model.saving import load
from ..model.surrogate import Surrogate
from ..work import checkpoint
from ..work.lock import alone
from ..work.whole import replacing
from . import results
from .config import Config
from .train import config_of, data_of, trials_of

__all__ = ["assess", "digest", "intervals", "is_current"]

Array = NDArray[Any]
KIND = "intervals"


def assess(
    run: Path,
    file: Path | None = None,
    chosen: Selection | None = None,
    *,
    members: int = 100,
    seed: int = 0,
    split: str = "test",
    calibrate: int = 100,
    device: str = "cpu",
    **how: Any,
) -> Evaluation:
    """Judge a run and write what was found into its folder.

    Args:
        run: folder of the run.
        file: other data to judge by; the run's own test pairs if left out.
        chosen: which array of the file is which, if not as it was for training.
        members, seed, calibrate, how: as in `pdno.evaluate`.
        split: of the run's own data, "test" or "validation".
        device: where to compute.
    """
    model = load(run, device=device)
    config = config_of(run)
    own = file is None or _same(file, config)
    if own and chosen is not None:
        raise UserError(f"{config.data.file} is what {run} was trained on, and its arrays are known; leave --a and --u out")
    data = _own(run, split) if file is None or own else _other(run, file, chosen, config, model)
    e = evaluate(model, data, members=members, seed=seed, calibrate=calibrate if split == "test" else 0, **how)
    asked = {"members": members, **how, "split": split, "calibrate": calibrate, "seed": seed}
    rows = _rows(e, model, config, run, seed, _command(run, file, chosen, asked))
    facts = {**e.facts, "file": config.data.file if file is None else str(file), "learned": Path(config.data.file).name}
    facts |= {"said": model.said if isinstance(model, PDNO) else [], "trials": trials_of(run)}
    with alone(run):
        if own and split == "test":
            _save_intervals(run, e, members, how)
        _save_arrays(run / "evaluation.npz", e)
        results.write(
            run / "results.json",
            rows,
            machine=results.machine(),
            model=digest(run),
            facts={**facts, "train_command": _train_command(run, config, model)},
            verdict=[asdict(statement) for statement in verdict(e)],
            diagnoses={name: results.plain(asdict(d)) for name, d in e.diagnoses.items()},
            cases=[{"title": case.title, "number": case.number} for case in e.cases],
        )
    return e


def _command(run: Path, file: Path | None, chosen: Selection | None, asked: dict[str, Any]) -> str:
    """The command that makes these numbers again."""
    names = {} if chosen is None else {key: value for key, value in asdict(chosen).items() if value is not None}
    options = [part for key, value in {**names, **asked}.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    return join(["pdno", "evaluate", str(run), *([] if file is None else [str(file)]), *options])


def _train_command(run: Path, config: Config, model: Surrogate) -> str:
    """The command that trains the same model again. The steps that a budget allowed are named, as they depend on the machine;
    where several networks were tried, the budget is."""
    data = config.data
    names = {"test_file": "test"}
    options = [part for key, value in data.options.items() for part in (f"--{names.get(key, key).replace('_', '-')}", value)]
    options += ["--config", str(run / "config.toml")]
    if not (isinstance(model, PDNO) and model.parts) and model.provenance.get("updates"):
        options += ["--set", f"training.updates={model.provenance['updates']}"]
        options += ["--set", "training.epochs=none", "--set", "model.budget=none"]
    options += ["--seed", str(data.seed), "--validation", str(data.validation), "--test-fraction", str(data.test)]
    options += ["--out", f"{run}-again"]
    return join(["pdno", "train", data.file, *options])


def digest(run: Path) -> str:
    """Of the model's file: tells whether results belong to it."""
    return blake2b((run / "model.safetensors").read_bytes(), digest_size=8).hexdigest()


def is_current(run: Path) -> bool:
    """Whether the run was evaluated, as it is now."""
    path = run / "results.json"
    return path.exists() and (run / "evaluation.npz").exists() and results.read(path).get("model") == digest(run)


def _same(file: Path, config: Config) -> bool:
    return file.resolve() == Path(config.data.file).resolve()


def _own(run: Path, split: str) -> Dataset:
    if split not in ("test", "validation"):
        raise UserError(f"--split {split}: a model is judged by pairs that it has not learned from; choose test or validation")
    data = data_of(run)
    pairs = data.splits().get(split)
    if not pairs:
        raise UserError(f"the data of {run} have no {split} pairs; name other data to judge by")
    return replace(data, test=pairs)


def _other(run: Path, file: Path, chosen: Selection | None, config: Config, model: Surrogate) -> Dataset:
    """Other data, as test pairs beside the run's own, without any that the model was made from."""
    if chosen is None and not store.is_store(file):
        names = {k: v for k, v in config.data.options.items() if k not in ("test_file", "cache", "mask", "group")}
        chosen = Selection(**{k: v for k, v in names.items() if not k.startswith(("test_", "validation_"))}) if names else None
    elif chosen is not None and chosen.dims is None:
        chosen = replace(chosen, dims=config.data.options.get("dims"))
    data = open_chosen(file, chosen, None, config.data.options.get("mask"), None)
    test = data.test if len(data.test) else data.train
    fresh = np.flatnonzero(~np.isin(test.fingerprints(), model.seen))
    if not len(fresh):
        raise UserError(f"all inputs in {file} were learned from; bring fresh ones to judge by")
    try:
        own = data_of(run)
    except UserError:  # moved or changed since
        return replace(data, train=data.train[:0], validation=None, test=test[fresh])
    return replace(data, train=own.train, validation=own.validation, test=test[fresh])


def _rows(e: Evaluation, model: Surrogate, config: Config, run: Path, seed: int, command: str) -> list[dict[str, Any]]:
    facts = e.facts
    noise = facts["noise"]
    known = {
        "test": facts["data"],
        "method": _method(model, config, facts),
        **{name: facts[name] for name in ("grid", "train", "members", "evaluations", "parameters", "sample_seconds")},
        "noise": noise,
        "train_seconds": _training_seconds(run),
        "seed": seed,
        "command": command,
    }
    names = [name for name in results.MEANING if name in e.scores]
    return [
        results.row(
            name,
            e.scores[name].value,
            error=e.scores[name].error,
            paper=results.paper(facts["data"], facts["grid"], noise or "", name),
            **known,
        )
        for name in names
    ]


def _method(model: Surrogate, config: Config, facts: dict[str, Any]) -> str:
    """The name of the method as in results: the paper's own settings are told from ours."""
    parts = ("network", "diffusion", "reverse")
    for noisy in ("", ":noisy") if model.name == "pdno" else ():
        try:
            paper = Config.preset(f"paper:{facts['data']}{noisy}")
        except UserError:
            break
        if all(getattr(config, part) == getattr(paper, part) for part in parts):
            return "pdno-paper"
    functional = model.name == "pdno" and config.diffusion.base.startswith("field")
    return "pdno-functional" if functional else model.label


def _training_seconds(run: Path) -> float | None:
    """Of all sessions, and of all that was tried for the mean."""
    spent = sessions(run) + [float(trial["seconds"]) for trial in trials_of(run)]
    return sum(spent) if spent else None


def _save_arrays(path: Path, e: Evaluation) -> None:
    arrays: dict[str, Any] = {}
    for name in ("coverage", "histogram", "spread_skill"):
        if (part := getattr(e, name)) is not None:
            arrays |= {f"{name}.{key}": value for key, value in asdict(part).items()}
    if e.spectra is not None:
        arrays |= {"spectra.members": e.spectra[0], "spectra.observed": e.spectra[1]}
    arrays |= {name: getattr(e, name) for name in ("trust", "novelty", "novelty_held") if getattr(e, name) is not None}
    arrays |= {f"axis.{name}": nodes for name, nodes in e.axes.items()}
    for case in e.cases:
        fields = {key: value for key, value in vars(case).items() if isinstance(value, np.ndarray)}
        arrays |= {f"case.{case.title}.{key}": np.asarray(value, dtype=np.float32) for key, value in fields.items()}
    with replacing(path) as partial, partial.open("wb") as target:
        np.savez_compressed(target, **arrays)


def _save_intervals(run: Path, e: Evaluation, members: int, how: dict[str, Any]) -> None:
    path = run / "intervals.safetensors"
    if not e.repair:
        path.unlink(missing_ok=True)
        return
    tensors = {
        f"{name}.{key}": torch.from_numpy(np.array(value)) for name, c in e.repair.items() for key, value in c.arrays().items()
    }
    checkpoint.save(path, KIND, tensors, {"model": digest(run), "level": LEVEL, "members": members, "how": how})


def intervals(run: Path, members: int, how: dict[str, Any]) -> Conformal | None:
    """The repair for points that `pdno evaluate` measured for this model and this way of sampling, None if there is none."""
    path = run / "intervals.safetensors"
    if not path.exists() or members < FEWEST:
        return None
    tensors, metadata = checkpoint.load(path, KIND)
    if metadata.get("how") != how or metadata.get("model") != digest(run):
        return None
    return Conformal.from_arrays({name[7:]: v.numpy() for name, v in tensors.items() if name.startswith("points.")})
