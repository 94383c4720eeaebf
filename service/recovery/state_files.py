"""Check of the files of Spark's state that a start reads; the error names a missing or damaged file.

    checkpoint/metadata                         {"id": ...}
              /state/0/_metadata/v2/0           names of the schema files
              /state/0/_stateSchema/default/... schema of the state
              /state/0/<partition>/7.changelog  changes of batch 6, or
                                   7.zip        all of the state after batch 6

Version n is the state after Spark's batch n - 1. It consists of the newest snapshot up to version n and all
later changelogs up to version n. Wrong bytes inside of a file are found only when Spark reads the file
(``service.engine.spark_failure``).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from service.errors import CheckpointDamaged

#: Part of a schema file's path in Spark's metadata that is below the checkpoint. Only this part is compared,
#: because the checkpoint may have been moved.
_SCHEMA = re.compile(r"/state/\d+/_stateSchema/[^\"]+")


def check_state_files(checkpoint: Path, version: int, hint: str) -> None:
    """Check that the files of a version of the state exist and are not empty or cut off.

    Args:
        checkpoint: Spark's checkpoint.
        version: Version from which Spark continues.
        hint: Hint for the error.

    Raises:
        CheckpointDamaged: A file is missing or damaged.
    """
    damaged = _damaged(checkpoint, version)
    if damaged is not None:
        path, what = damaged
        raise CheckpointDamaged(
            f'"{path}" is {what}', detail="Spark needs the file to continue from its checkpoint.", hint=hint
        )


def _damaged(checkpoint: Path, version: int) -> tuple[Path, str] | None:
    """Return the first missing or damaged file and its fault, or None if there is no fault."""
    if (what := _wrong_json(checkpoint / "metadata")) is not None:
        return checkpoint / "metadata", what
    operators = [path for path in _numbered(checkpoint / "state") if path.is_dir()]
    if not operators:
        return checkpoint / "state", "missing"
    for operator in operators:
        notes = _numbered(operator / "_metadata" / "v2")
        if not notes:
            return operator / "_metadata" / "v2" / "0", "missing"
        for note in notes:
            if (what := _wrong_json(note)) is not None:
                return note, what
            for schema in _SCHEMA.findall(note.read_text(encoding="utf-8")):
                path = checkpoint / schema.lstrip("/")
                if not path.is_file() or not path.stat().st_size:
                    return path, "empty" if path.is_file() else "missing"
        for partition in _numbered(operator):
            if (path := _missing_version(partition, version)) is not None:
                return path, "missing or empty"
    return None


def _missing_version(partition: Path, version: int) -> Path | None:
    """Return the first missing file of a version of the state, or None if all files exist."""
    snapshots = (int(path.stem) for path in partition.glob("*.zip") if path.stem.isdigit() and _whole(path))
    newest = max((number for number in snapshots if number <= version), default=0)
    changes = (partition / f"{number}.changelog" for number in range(newest + 1, version + 1))
    return next((path for path in changes if not _whole(path)), None)


def _whole(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _wrong_json(path: Path) -> str | None:
    """Check that the last line of a file is a JSON object; return the fault, or None if it is."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return None if lines and isinstance(json.loads(lines[-1]), dict) else "damaged"
    except FileNotFoundError:
        return "missing"
    except ValueError:
        return "damaged"


def _numbered(directory: Path) -> list[Path]:
    """Return the entries of a directory whose names are numbers, ascending."""
    found = [path for path in directory.iterdir() if path.name.isdigit()] if directory.is_dir() else []
    return sorted(found, key=lambda path: int(path.name))
