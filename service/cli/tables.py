"""Answers of a service, formatted for people: as tables, or as records with one field per line.

Programs use ``--json``, which prints a collection as one object per line and everything else as one JSON
document.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

#: Number of characters per line if the output is not a terminal, such as a file.
WIDTH = 100
_GAP = "  "


def terminal_width() -> int:
    """Return the maximum number of characters per line."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH


def table(items: Iterable[Mapping[str, Any]], columns: Mapping[str, str], width: int) -> str:
    r"""Return items as a table, with lines cut to the given width.

    Args:
        items: Objects of a collection.
        columns: Heading of each column by the field that it shows; ``a.b`` is the field b of the field a.
        width: Maximum number of characters per line.

    >>> print(table([{"name": "q1", "sink": None, "cql": "SELECT  a\nFROM b"}],
    ...             {"name": "NAME", "sink.type": "SINK", "cql": "QUERY"}, 24))
    NAME  SINK  QUERY
    q1    -     SELECT a FR…
    """
    rows = [list(columns.values())]
    rows += [[" ".join(_text(_field(item, path)).split()) for path in columns] for item in items]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        line = _GAP.join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()
        lines.append(line if len(line) <= width else f"{line[: width - 1]}…")
    return "\n".join(lines)


def record(document: Mapping[str, Any], width: int) -> str:
    """Return an object as text with one field per line; nested fields have their paths, nulls are left out.

    >>> print(record({"name": "q1", "a": {"window": "10s", "filter": None}, "ids": [1, 2]}, 40))
    name      q1
    a.window  10s
    ids       1, 2
    """
    facts = list(_facts(document, ""))
    label = max((len(path) for path, _ in facts), default=0)
    indent = " " * (label + len(_GAP))
    lines = []
    for path, text in facts:
        first, *more = textwrap.wrap(text, max(width - len(indent), 20), break_long_words=False) or [""]
        lines += [path.ljust(label) + _GAP + first, *(indent + line for line in more)]
    return "\n".join(lines)


def _field(item: Any, path: str) -> Any:
    for name in path.split("."):
        item = item.get(name) if isinstance(item, Mapping) else None
    return item


def _facts(document: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _facts(value, f"{prefix}{name}.")
        elif value is not None and value != []:
            yield prefix + name, _text(value)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_text(part) for part in value)
    return str(value)
