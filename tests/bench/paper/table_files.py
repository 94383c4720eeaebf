"""Measurements as CSV files: a column per field, and read back into the same values."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

Row = TypeVar("Row")

#: Digits that are worth printing of a measurement.
_DIGITS = 7


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
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else str(value)


def _value(hint: object, text: str) -> object:
    if hint in (int, str):
        return hint(text)  # type: ignore[operator]  # one of the two types above
    return float(text) if text else None
