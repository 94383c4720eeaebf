"""The workspace is the one door: API, command line and demo neither open the catalog nor reach behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OUTSIDE = sorted(
    file for folder in ("api", "service/cli", "service/demo") for file in (ROOT / folder).rglob("*.py")
)
#: Modules that hold a catalog or an engine open.
BEHIND = (
    "catalog.store.store",
    "catalog.store.database.database",
    "service.engine.engine",
    "service.planning.versions",
)
#: Values of these that an answer is made of.
VALUES = ("service.engine.engine_control.EngineStatus", "service.planning.versions.PlanRefused")


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reached_behind(tree: ast.AST) -> Iterator[str]:
    """Yield private attributes of a workspace."""
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    for node in attributes:
        if node.attr.startswith("_") and ast.unparse(node.value).endswith("workspace"):
            yield ast.unparse(node)


@pytest.mark.parametrize("file", OUTSIDE, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_outside_goes_round_the_workspace(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    opened = [name for name in imported(tree) if name.startswith(BEHIND) and name not in VALUES]
    assert (opened, list(reached_behind(tree))) == ([], [])


def test_going_round_it_is_found() -> None:
    tree = ast.parse("from catalog.store.store import Store\nlast = workspace._store.batches.last()")
    assert list(imported(tree)) == ["catalog.store.store.Store"]
    assert list(reached_behind(tree)) == ["workspace._store"]
