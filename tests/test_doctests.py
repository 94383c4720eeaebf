"""The examples in docstrings hold."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "api" / "client"
TOPS = ("api", "catalog", "operators", "planner", "service")
FILES = {file: ROOT for top in TOPS for file in (ROOT / top).rglob("*.py")}
#: The client is imported by the name of its own distribution.
FILES |= dict.fromkeys(CLIENT.rglob("*.py"), CLIENT)
MODULES = sorted(
    ".".join(file.relative_to(root).with_suffix("").parts)
    for file, root in FILES.items()
    if ">>> " in file.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    done = doctest.testmod(importlib.import_module(name))

    assert done.attempted
    assert not done.failed
