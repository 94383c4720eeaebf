"""The rooms of the code: a package names its doors in its docstring, and nobody imports past them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOPS = ("api", "catalog", "operators", "planner", "service")
MOST_MODULES = 12
MOST_DOORS = 3
#: A room that says this in its docstring is a vocabulary: nothing in it is hidden.
LIBRARY = "Library: every module is a door."


def test_no_class_name_is_there_twice() -> None:
    names: dict[str, list[str]] = {}
    for package in PACKAGES:
        for file in package.glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    names.setdefault(node.name, []).append(_name(file))
    assert {name: where for name, where in names.items() if len(where) > 1} == {}


def _packages() -> list[Path]:
    """Return the folders of all packages, without migrations, which Alembic names, and the client.

    The client is a distribution of its own, whose classes have the names that its users expect.
    """
    found = (init.parent for top in TOPS for init in (ROOT / top).rglob("__init__.py"))
    others = ("migrations/versions", "api/client")
    return sorted(folder for folder in found if not any(other in folder.as_posix() for other in others))


PACKAGES = _packages()


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def _modules(package: Path) -> set[str]:
    return {file.stem for file in package.glob("*.py")} - {"__init__"}


def _doors(package: Path) -> set[str]:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    _, found, names = docstring.partition("Doors: ")
    return {name.strip() for name in names.replace("\n", " ").rstrip(".").split(",")} if found else set()


def _imports(file: Path) -> Iterator[str]:
    """Yield the full names that a module imports: those of modules, and of what is taken from them."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _uses() -> Iterator[tuple[Path, Path, str]]:
    """Yield (importing file, package of the imported module, module) for imports between modules of ours."""
    known = {
        f"{_name(package)}.{module}": (package, module)
        for package in PACKAGES
        for module in _modules(package)
    }
    for package in PACKAGES:
        for file in package.glob("*.py"):
            for imported in _imports(file):
                target = known.get(imported) or known.get(imported.rpartition(".")[0])
                if target is not None:
                    yield file, *target


USES = tuple(_uses())


@pytest.mark.parametrize("package", PACKAGES, ids=_name)
def test_a_package_has_a_docstring_and_at_most_a_dozen_modules(package: Path) -> None:
    text = (package / "__init__.py").read_text(encoding="utf-8")

    assert ast.get_docstring(ast.parse(text))
    assert len(_modules(package)) <= MOST_MODULES


@pytest.mark.parametrize("package", PACKAGES, ids=_name)
def test_a_room_has_at_most_three_doors_or_is_a_library(package: Path) -> None:
    text = " ".join((package / "__init__.py").read_text(encoding="utf-8").split())

    assert len(_doors(package)) <= MOST_DOORS or (
        LIBRARY in text and _doors(package) == set(_modules(package))
    )


@pytest.mark.parametrize("package", PACKAGES, ids=_name)
def test_nobody_imports_past_a_door(package: Path) -> None:
    from_outside = {
        (module, _name(file))
        for file, target, module in USES
        if target == package and package not in file.parents
    }

    assert {use for use in from_outside if use[0] not in _doors(package)} == set()


@pytest.mark.parametrize("package", PACKAGES, ids=_name)
def test_every_door_is_a_module_that_is_imported_from_outside(package: Path) -> None:
    # The rooms inside a top-level package are outside of its own modules.
    inside = {package} if package.parent == ROOT else {package, *package.rglob("*/")}
    imported = {module for file, target, module in USES if target == package and file.parent not in inside}

    assert _doors(package) <= imported
