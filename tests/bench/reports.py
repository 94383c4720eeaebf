"""Reports of benchmarks: what they ran on, Markdown tables, figures as JSON and CSV.

The prose of a page stands in the page. A benchmark writes tables, each between two marks:

    <!-- table: rows held -->
    ...
    <!-- end -->
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil

#: Clocks and machines are noisy in the third digit; twice as many keep a figure as it was printed.
_DIGITS = 6


def hardware() -> str:
    """Return the size and kind of this machine."""
    memory_gb = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.machine()}"


def machine() -> str:
    """Return this machine with the versions of what runs on it."""
    packages = f"PySpark {version('pyspark')}, Arrow {version('pyarrow')}"
    return f"{hardware()}, Python {platform.python_version()}, {packages}"


def table(header: Sequence[object], rows: Iterable[Sequence[object]], texts: int = 1) -> str:
    """Return a Markdown table; all columns but the first ``texts`` are aligned to the right.

    >>> print(table(("", "rows", "s"), [("a", 1234567, 0.12345), ("b", 3, None)]))
    |  | rows | s |
    | --- | ---: | ---: |
    | a | 1,234,567 | 0.123 |
    | b | 3 | – |
    """
    rule = ["---" if column < texts else "---:" for column in range(len(header))]
    return "\n".join("| " + " | ".join(map(shown, cells)) + " |" for cells in (header, rule, *rows))


def shown(value: object) -> str:
    """Return a value as tables show it: numbers with three digits, whole ones with all, texts as they are."""
    if value is None or value != value:
        return "–"
    if isinstance(value, float | np.floating):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int | np.integer) else str(value)


def fill_page(path: Path, parts: Mapping[str, str]) -> str:
    """Put each part between its marks in a page, at the end where there are none, and return the page."""
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    for name, text in parts.items():
        block = f"<!-- table: {name} -->\n{text}\n<!-- end -->"
        marked = re.compile(rf"<!-- table: {re.escape(name)} -->.*?<!-- end -->", re.DOTALL)
        if marked.search(page):
            page = marked.sub(lambda _, block=block: block, page)
        else:
            page += f"\n## {name}\n\n{block}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.lstrip("\n"), encoding="utf-8")
    return page


def publish(out: Path, name: str, figures: Mapping[str, Any], tables: Mapping[str, str]) -> str:
    """Write figures as ``<name>.json``, and tables and machine into ``<name>.md``, and return the page.

    Figures of an earlier run keep the machine that they name.
    """
    out.mkdir(parents=True, exist_ok=True)
    figures = {"machine": machine()} | dict(figures)
    write_figures(out / f"{name}.json", figures)
    return fill_page(out / f"{name}.md", {"machine": figures["machine"], **tables})


def write_page(out: Path, name: str, text: str, figures: object) -> str:
    """Write ``<name>.md`` and its figures as ``<name>.json``, and return the text."""
    out.mkdir(parents=True, exist_ok=True)
    write_figures(out / f"{name}.json", figures)
    text = text.rstrip("\n") + "\n"
    (out / f"{name}.md").write_text(text, encoding="utf-8")
    return text


def write_figures(path: Path, document: object) -> None:
    """Write a document of plain values, floats with six significant digits, whole or not at all."""
    unfinished = path.with_suffix(path.suffix + ".unfinished")
    unfinished.write_text(json.dumps(rounded(document), separators=(",", ":")) + "\n", encoding="utf-8")
    unfinished.replace(path)


def read_figures(path: Path) -> dict[str, Any]:
    """Return the figures of an earlier run, none where there is no file."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def write_rows(path: Path, rows: Iterable[Any] | pd.DataFrame) -> None:
    """Write rows, mappings or dataclass values of one type, as a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    found.to_csv(path, index=False, float_format="%.7g", lineterminator="\n")


def rounded(value: object) -> object:
    """Round every float of a document to the digits that are written; tuples become lists."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value
