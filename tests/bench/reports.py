"""Reports of benchmarks: what they ran on, Markdown tables, figures as JSON and CSV."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import psutil

#: Clocks and machines are noisy in the third digit; twice as many keep a figure as it was printed.
_DIGITS = 6
#: Digits of a figure in a CSV file.
_CSV_DIGITS = 7

Row = TypeVar("Row")


def machine() -> str:
    """Return what is measured on."""
    memory_gb = psutil.virtual_memory().total / 2**30
    hardware = f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.machine()}"
    packages = f"PySpark {version('pyspark')}, Arrow {version('pyarrow')}"
    return f"{hardware}, Python {platform.python_version()}, {packages}"


def table(header: Sequence[object], rows: Iterable[Sequence[object]], texts: int = 1) -> str:
    """Return a Markdown table; all columns but the first ``texts`` are aligned to the right."""
    rule = ["---" if column < texts else "---:" for column in range(len(header))]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in (header, rule, *rows))


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


def rounded(value: object) -> object:
    """Round every float of a document to the digits that are written; tuples become lists."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value


def percentile(ordered: Sequence[float], part: float) -> float | None:
    """Return a value that so much of the ascending values do not exceed; None of nothing."""
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else None


def write_rows(path: Path, rows: Sequence[Any]) -> None:
    """Write dataclass values of one type."""
    names = [field.name for field in dataclasses.fields(rows[0])]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_text(getattr(row, name)) for name in names] for row in rows)


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Read what ``write_rows`` wrote; nothing if there is no file."""
    if not path.exists():
        return []
    hints = get_type_hints(kind)
    with path.open(newline="", encoding="utf-8") as file:
        return [
            kind(**{name: _value(hints[name], text) for name, text in row.items()})
            for row in csv.DictReader(file)
        ]


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.{_CSV_DIGITS}g}" if isinstance(value, float) else str(value)


def _value(hint: object, text: str) -> object:
    if hint in (int, str):
        return hint(text)
    return float(text) if text else None
