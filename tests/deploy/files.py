"""The folder ``deploy/`` and its YAML."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
#: Where ``make test-deploy`` unpacks Debian's packages of tools that are not installed.
TOOLS = Path(sys.prefix) / "deploy-tools"


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def document(path: Path) -> Any:
    """Return the one document of a YAML file."""
    (found,) = documents(path)
    return found


def anchors(markdown: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and others make them."""
    headings = re.findall(r"^#+ (.+)$", markdown, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def tool(name: str) -> str:
    """Return the path of a program that is no Python package: installed, or unpacked for these tests.

    Raises:
        FileNotFoundError: It is neither.
    """
    path = ":".join([*(str(TOOLS / "usr" / folder) for folder in ("bin", "sbin")), os.environ["PATH"]])
    found = shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(f"{name} is not here: make test-deploy gets it from Debian's packages")
    return found
