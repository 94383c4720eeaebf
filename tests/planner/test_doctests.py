from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import planner

MODULES = [m.name for m in pkgutil.walk_packages(planner.__path__, "planner.") if not m.ispkg]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
