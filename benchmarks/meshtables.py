"""Tables of models that were trained on one grid and predict on others."""

from typing import Any

__all__ = ["TABLES", "mesh_table", "noise_table"]

Table = tuple[list[list[Any]], str]
NAMES = {"none": "", "gaussian:0.05": ", white noise", "field:0.05,10,2": ", smooth noise"}
SCORES = {"CRPS": "crps", "90 % coverage": "coverage_90", "std of members": "mean_std"}
OF_NOISE = {
    "std": "noise_std",
    "correlation length": "correlation_length",
    "draws of one seed, interpolated": "draw_difference",
    "interpolation error": "interpolation_error",
    "draws of one seed, at the nodes": "node_difference",
}


def mesh_table(contents: dict[str, Any]) -> Table:
    """Return the errors on each grid, beside those on the grid of training."""
    headings = ["problem", "trained on", "predicted on", "MRLE", "relative to the grid of training", "√(e² + i²)", *SCORES]
    lines: list[list[Any]] = [headings]
    for model, grids in _models(contents):
        trained = grids[model["trained_on"]]["mrle"]
        for grid, own in grids.items():
            error = own.get("interpolation_error") if model["test"] == "darcy" else None
            bound = None if error is None else float((trained**2 + error**2) ** 0.5)
            is_exact = trained < 1e-9  # of which a ratio says nothing
            cells = [own["mrle"], None if is_exact else own["mrle_ratio"], bound, *(own.get(name) for name in SCORES.values())]
            lines.append([_name(model), model["trained_on"], grid, *cells])
    return (
        lines,
        "e is the MRLE on the grid of training, i that of the exact solutions on it, interpolated to the other grid.",
    )


def noise_table(contents: dict[str, Any]) -> Table:
    """Return standard deviation and correlation length of members on each grid."""
    lines: list[list[Any]] = [["problem", "trained on", "predicted on", *OF_NOISE]]
    for model, grids in _models(contents):
        if model["noise"].startswith("field"):
            for grid, own in grids.items():
                lines.append([_name(model), model["trained_on"], grid, *(own.get(name) for name in OF_NOISE.values())])
    return lines, ""


def _models(contents: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, dict[str, float]]]]:
    """Return the models, each with its values by grid and metric."""
    out = []
    for model in contents["models"]:
        grids: dict[str, dict[str, float]] = {}
        for row in contents["rows"]:
            if (row["test"], row["noise"]) == (model["test"], model["noise"]):
                grids.setdefault(row["grid"], {})[row["metric"]] = float(row["value"])
        out.append((model, grids))
    return out


def _name(model: dict[str, Any]) -> str:
    return f"{model['test']}{NAMES.get(model['noise'], ', ' + model['noise'])}"


TABLES = {"results/meshes.json": mesh_table, "results/meshes.json noise": noise_table}
