"""Rows as Python values, and as JSON in requests and answers.

In JSON, timestamps are ISO 8601 (UTC) and decimals are strings with all digits. Doubles that JSON cannot
represent are the strings NaN, Infinity and -Infinity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sluice_client.models import Column, ResultPage

Row = Mapping[str, Any]

#: Conversion of JSON values per column type; values of other types are not converted.
_FROM_JSON: Mapping[str, Callable[[Any], Any]] = {
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
    "double": float,
}


def encode_row(row: Row) -> bytes:
    """Return a row as a line of JSON.

    >>> encode_row({"k": 1, "v": float("nan"), "d": Decimal("1.50"), "ts": datetime(2026, 1, 1)})
    b'{"k": 1, "v": "NaN", "d": "1.50", "ts": "2026-01-01T00:00:00"}'

    Args:
        row: Values by column. A datetime without a time zone is UTC.

    Raises:
        TypeError: A value has no JSON form; the message names its column.
    """
    try:
        text = json.dumps(row, allow_nan=False, default=_to_json, ensure_ascii=False)
    except ValueError:  # NaN or an infinity: rare, so only such rows pay for this second pass
        text = json.dumps({name: _finite(value) for name, value in row.items()}, default=_to_json)
    except TypeError as error:
        raise TypeError(f"row {row!r} cannot be sent: {error}") from error
    return text.encode()


def batches(rows: Iterable[Row], most_rows: int, most_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yield the rows as NDJSON bodies, each with its number of rows.

    Args:
        rows: The rows.
        most_rows: Maximum number of rows in a body.
        most_bytes: Maximum size of a body in bytes; only a single larger row may exceed it.
    """
    lines: list[bytes] = []
    size = 0
    for row in rows:
        line = encode_row(row)
        if lines and (len(lines) == most_rows or size + len(line) >= most_bytes):
            yield b"\n".join(lines), len(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield b"\n".join(lines), len(lines)


def decode_rows(page: ResultPage) -> Sequence[dict[str, Any]]:
    """Return the rows of a page, with Python values: datetimes (UTC), dates, decimals."""
    readers = {column.name: reader for column in page.columns if (reader := _reader(column)) is not None}
    for row in page.rows:
        for name, reader in readers.items():
            if (value := row.get(name)) is not None:
                row[name] = reader(value)
    return page.rows


def _reader(column: Column) -> Callable[[Any], Any] | None:
    return Decimal if column.type.startswith("decimal") else _FROM_JSON.get(column.type)


def _to_json(value: object) -> object:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if hasattr(value, "item"):  # a scalar of numpy
        return value.item()
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


def _finite(value: Any) -> Any:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
