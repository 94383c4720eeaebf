"""Bad rows of files, for streams that skip them: found, located and kept as dead letters.

    file ── listing: every row is checked ─> rows, skipped ──> catalog
                └── dead_letters/A-file-<digest>.jsonl       └── reading: the same rows are skipped

Which rows are bad depends only on the bytes of the file and on its stream, so a repeated batch skips the same
rows. The dead letters of a file are on disk before the catalog names the file; a repeated listing overwrites
them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from operators.storage.folder import Folder, directory_here, publish
from service.inputs.formats.conversion.values import UnfitValueError


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is skipped.

    Attributes:
        row: Number of the row in the file, from 1.
        line: Line number of the row in a text editor, or None in a format without lines.
        column: First column with a fault, or None if the whole row is at fault.
        reason: What is wrong.
        text: The row's text as it is in the file; JSON if the format is not text.
    """

    row: int
    line: int | None
    column: str | None
    reason: str
    text: str


def unfit_values(count: int, convert: Callable[[int, int], object]) -> list[tuple[int, object]]:
    """Return index and value of each column value that cannot be converted, in order.

    Args:
        count: Number of values.
        convert: Converts a range of values, or raises UnfitValueError for the first that does not fit.
    """
    found: list[tuple[int, object]] = []
    ranges = [(0, count)]
    while ranges:
        start, end = ranges.pop()
        if start >= end:
            continue
        try:
            convert(start, end)
        except UnfitValueError as error:
            at = start + error.index
            found.append((at, error.value))
            middle = (at + 1 + end) // 2
            ranges += [(at + 1, middle), (middle, end)]
    return sorted(found, key=lambda unfit: unfit[0])


def write_skipped_rows(
    folder: Folder, stream: str, path: str, facts: os.stat_result, rows: Sequence[BadRow]
) -> Path:
    """Write the skipped rows of a file, one JSON object per line.

    Args:
        folder: Folder of dead letters, created if it is missing.
        stream: Name of the stream.
        path: The file.
        facts: ``stat`` of the file; a changed file gets another file of dead letters.
        rows: The rows.
    """
    directory = directory_here(folder)
    directory.mkdir(parents=True, exist_ok=True)
    named = f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}".encode("utf-8", "surrogateescape")
    letters = directory / f"{stream}-file-{hashlib.sha256(named).hexdigest()[:16]}.jsonl"
    part = letters.with_suffix(f".{os.getpid()}.part")
    with part.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for row in sorted(rows, key=lambda row: row.row):
            file.write(json.dumps({"file": path, **asdict(row)}, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(letters)
    publish(folder, [letters.name])
    return letters
