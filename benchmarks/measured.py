"""A file of results that is completed model by model, so that an interrupted benchmark resumes where it was.

Beside its rows the file has a list "models": for each trained model the fields that identify it, its budget, the residual law
that was selected, and the summary of the fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdno.run import results

__all__ = ["Key", "Measured"]

Key = Mapping[str, Any]  # fields of the rows of one model, such as test, grid and method


@dataclass(frozen=True)
class Measured:
    """A file of results.

    Args:
        path: of the file; it need not exist.
    """

    path: Path

    def contents(self) -> dict[str, Any]:
        """Return the contents of the file."""
        return {"rows": [], "models": [], **(results.read(self.path) if self.path.exists() else {})}

    def has(self, key: Key, budget: float) -> bool:
        """Return whether a model was measured with this budget in seconds."""
        return any(_fits(model, key) and model["budget"] == budget for model in self.contents()["models"])

    def add(self, key: Key, rows: Sequence[Mapping[str, Any]], **details: Any) -> None:
        """Write the rows of a model in place of older ones.

        Args:
            key: fields that identify the model.
            rows: its rows.
            details: further entries of the list of models: budget, law and summary.
        """
        old = self.contents()
        kept = {name: [each for each in old[name] if not _fits(each, key)] for name in ("rows", "models")}
        models = [*kept["models"], {**key, **details}]
        results.write(self.path, [*kept["rows"], *rows], machine=results.machine(), models=models)


def _fits(entry: Mapping[str, Any], key: Key) -> bool:
    """Return whether an entry has all fields of a key."""
    return all(entry.get(name) == value for name, value in key.items())
