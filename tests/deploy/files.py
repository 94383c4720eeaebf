"""The folder ``deploy/`` and its YAML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


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
