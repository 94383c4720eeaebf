"""The pages of docs/, and what stands in their fences."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\w+)(?: title=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Return the pages that are files."""
    return sorted(DOCS.rglob("*.md"))


def fenced(page: str, language: str) -> list[str]:
    """Return the fences of a page in a language."""
    return [text for found, _, text in _FENCE.findall(_text(page)) if found == language]


def titled(page: str) -> dict[str, str]:
    """Return the fences of a page that have a title."""
    return {title: text for _, title, text in _FENCE.findall(_text(page)) if title}


def prose(page: Path) -> str:
    """Return a page without what stands in fences and in indented blocks."""
    return re.sub(r"^( {4}|\t).*$", "", _FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE)


def _text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")
