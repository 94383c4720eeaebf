"""Bad rows of files, for streams that skip them: found, told with their place, kept as dead letters.

    file ── listing: every row is judged ──> rows, skipped ──> catalog
                └── dead_letters/A-file-<digest>.jsonl       └── reading: the same rows are skipped

Which rows are bad follows from the bytes of the file and its stream alone, so a batch that is repeated skips
the same ones. The dead letters of a file are on disk before the catalog names it; where its listing is
repeated they take their own place.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from operators.storage.folder import Folder, directory_here, publish
from service.inputs.formats.values import UnfitValueError


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is skipped.

    Attributes:
        row: Its number in the file, from 1.
        line: Line in which an editor shows it, None in a format without lines.
        column: The first column at fault, None where the row as a whole is.
        reason: What is wrong.
        text: The row as it stands in the file; as JSON where the format is no text.
    """

    row: int
    line: int | None
    column: str | None
    reason: str
    text: str


def unfit_values(count: int, convert: Callable[[int, int], object]) -> list[tuple[int, object]]:
    """Return index and value of all of a column's values that do not fit, in order.

    Args:
        count: Values of the column.
        convert: Converts those of a range, or raises UnfitValueError, which names the first at fault.
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
    """Write the rows of a file that are skipped, one JSON object a line.

    Args:
        folder: Folder of dead letters, made if it is missing.
        stream: Name of the stream.
        path: The file.
        facts: What the system says of it; other bytes get another file of dead letters.
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
