"""Raw measurements of a benchmark as JSON: compact, since they stand in the repository."""

from __future__ import annotations

import json
from pathlib import Path

#: Clocks and machines are noisy in the third digit; twice as many keep a figure as it was printed.
_DIGITS = 6


def write_figures(path: Path, document: object) -> None:
    """Write a document of plain values, floats with six significant digits, whole or not at all."""
    unfinished = path.with_suffix(path.suffix + ".unfinished")
    unfinished.write_text(json.dumps(rounded(document), separators=(",", ":")) + "\n", encoding="utf-8")
    unfinished.replace(path)


def rounded(value: object) -> object:
    """Round every float of a document to the digits that are written; tuples become lists."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value
