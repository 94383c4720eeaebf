"""Every module of the benchmarks can be imported, also those that no test runs."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
MODULES = sorted(
    ".".join(("tests.bench", *path.relative_to(_HERE).with_suffix("").parts))
    for path in _HERE.rglob("*.py")
    if path.name != "__init__.py"
)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_benchmarks_is_imported(name: str) -> None:
    assert importlib.import_module(name).__doc__
