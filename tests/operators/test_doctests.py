"""The examples in docstrings of the operators hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import operators

MODULES = sorted(module.name for module in pkgutil.iter_modules(operators.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"operators.{name}")).failed == 0
