"""The class design of the model: methods are abstract or final, parts are not told apart by their classes."""

import ast
import inspect
import pkgutil
from abc import ABC, abstractmethod
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdno
from pdno.mean import Mean
from pdno.model.baseline import FNO, Deterministic, UNet
from pdno.model.surrogate import Surrogate
from pdno.residual import ResidualLaw
from tests.helpers import TWO, normal, small

PACKAGE = Path(pdno.__file__).parent
PACKAGES = ("mean", "residual", "model", "learning")
FILES = sorted(path for name in PACKAGES[:3] for path in (PACKAGE / name).rglob("*.py"))
METHODS = (property, cached_property, classmethod, staticmethod)
SLIM = {"kind": "slim", "widths": [8, 16], "blocks": 1}


def classes() -> list[type]:
    """Return all classes that are defined in these packages."""
    names = [f"pdno.{name}" for name in PACKAGES]
    names += [found.name for name in names for found in pkgutil.walk_packages(import_module(name).__path__, f"{name}.")]
    members = (member for name in names for _, member in inspect.getmembers(import_module(name), inspect.isclass))
    return sorted({cls for cls in members if cls.__module__ in names}, key=lambda cls: (cls.__module__, cls.__qualname__))


def concrete_methods(cls: type) -> set[str]:
    """Return methods and properties that a class defines itself and that are not abstract; of dunders, __call__ alone."""
    methods = {name for name, member in vars(cls).items() if inspect.isfunction(member) or isinstance(member, METHODS)}
    abstract = {name for name in methods if getattr(vars(cls)[name], "__isabstractmethod__", False)}
    return {name for name in methods - abstract if name == "__call__" or not name.startswith("__")}


def overridden(cls: type, package: str = "pdno.") -> set[str]:
    """Return attributes of a class that replace concrete methods of its base classes in the package."""
    bases = [base for base in cls.__mro__[1:] if base.__module__.startswith(package)]
    return {f"{base.__qualname__}.{name}" for base in bases for name in concrete_methods(base) & set(vars(cls))}


# Abstract or final


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: f"{cls.__module__}.{cls.__qualname__}")
def test_no_concrete_method_is_overridden(cls) -> None:
    assert not overridden(cls)


def test_classes_of_all_packages_are_checked() -> None:
    names = {cls.__qualname__ for cls in classes()}
    assert {"Mean", "Kernel", "ResidualLaw", "Diffused", "Law", "Given", "PDNO", "FNO", "NetworkOnPairs", "Training"} <= names


def test_the_check_detects_overridden_methods() -> None:
    class Base(ABC):
        attribute = 1

        @abstractmethod
        def ask(self) -> int: ...

        def tell(self) -> int:
            return 1

        def __call__(self) -> int:
            return 1

        @property
        def size(self) -> int:
            return 1

    class Good(Base):
        attribute = 2

        def ask(self) -> int:
            return 2

        def __len__(self) -> int:
            return 2

    class Bad(Good):
        size = 3

        def ask(self) -> int:
            return 3

        def tell(self) -> int:
            return 3

        def __call__(self) -> int:
            return 3

    def names(cls: type) -> set[str]:
        return {name.rsplit(".", 2)[-2] + "." + name.rsplit(".", 1)[-1] for name in overridden(cls, __name__)}

    assert names(Good) == set()
    assert names(Bad) == {"Base.size", "Good.ask", "Base.tell", "Base.__call__"}


# Source


def concrete_parts() -> set[str]:
    """Return the names of all classes that are means, residual laws or models, without the protocols themselves."""
    protocols = (Mean, ResidualLaw, Surrogate)
    return {cls.__name__ for cls in classes() if issubclass(cls, protocols) and cls not in protocols}


def distinctions(source: str, parts: set[str]) -> list[str]:
    """Return the uses of `hasattr` and `assert`, and of `isinstance` and `issubclass` with a concrete part."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            found.append(f"line {node.lineno}: assert")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            function, arguments = node.func.id, node.args[1:]
            named = {each.id for argument in arguments for each in ast.walk(argument) if isinstance(each, ast.Name)}
            named |= {each.attr for argument in arguments for each in ast.walk(argument) if isinstance(each, ast.Attribute)}
            if function == "hasattr" or (function in ("isinstance", "issubclass") and named & parts):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_parts_are_not_told_apart_by_their_classes(path) -> None:
    assert not distinctions(path.read_text(), concrete_parts())


def test_the_check_detects_distinctions() -> None:
    parts = concrete_parts()
    assert {"Kernel", "Network", "Gaussian", "Diffused", "Exact", "PDNO"} <= parts
    for bad in (
        "hasattr(mean, 'std')",
        "assert mean",
        "isinstance(mean, Kernel)",
        "isinstance(mean, str | Kernel)",
        "isinstance(law, (Gaussian, Diffused))",
        "issubclass(type(law), residual.Exact)",
    ):
        assert len(distinctions(bad, parts)) == 1, bad
    for good in ("isinstance(mean, Mean | Posterior)", "isinstance(law, ResidualLaw)", "isinstance(law, Density)", "Kernel()"):
        assert not distinctions(good, parts)


# What was learned is one attribute


@pytest.mark.parametrize(
    "model",
    [
        small(),
        small(mean="linear", law="gaussian"),
        Deterministic("linear"),
        FNO({"kind": "fno", "modes": 3, "width": 4}, training=TWO),
        UNet(SLIM, training=TWO),
    ],
    ids=["paper", "pdno", "deterministic", "fno", "unet"],
)
def test_fit_changes_the_law_alone(model) -> None:
    """All other attributes are settings; the law is None before fit."""

    def state() -> dict[str, Any]:
        return dict(vars(model))

    before = state()
    assert model.law is None
    model.fit(normal(24, 16), normal(24, 16, seed=1), progress=False)
    after = state()
    assert model.law is not None
    assert {name for name in after if name not in before or after[name] is not before[name]} == {"law"}
    assert set(before) - set(after) == set()
    settings = model.settings()
    none = {name for name, value in after.items() if value is None}
    assert none <= {"budget", "mean_model", "training"}  # settings that may be None
    assert all(settings[name.removesuffix("_model")] is None for name in none)


def test_a_fit_that_fails_leaves_no_law() -> None:
    model = small().fit(normal(24, 16), normal(24, 16, seed=1), progress=False)
    with pytest.raises(pdno.UserError):
        model.fit(normal(24, 16), np.full((24, 16), np.nan), mask="nan", progress=False)
    assert model.law is None
