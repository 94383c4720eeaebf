"""Files of Spark's state that a start reads: where one is missing or cut, its name and the way out.

    checkpoint/metadata                         {"id": ...}
              /state/0/_metadata/v2/0           which schema files there are
              /state/0/_stateSchema/default/... schema of the state
              /state/0/<partition>/7.changelog  what batch 6 changed, or
                                   7.zip        all of the state after it

Version n is the state after Spark's batch n - 1: the newest snapshot up to n, and every change behind it.
Bits that are flipped inside of a file show only where Spark reads it (``service.engine.spark_failure``).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from service.errors import CheckpointDamaged

#: A schema file as Spark notes it, by what is below the checkpoint: that may have been moved.
_SCHEMA = re.compile(r"/state/\d+/_stateSchema/[^\"]+")


def check_state_files(checkpoint: Path, version: int, hint: str) -> None:
    """Check that the state of a version can be read, as far as names and lengths tell.

    Args:
        checkpoint: Spark's checkpoint.
        version: Version from which Spark goes on.
        hint: What to do otherwise.

    Raises:
        CheckpointDamaged: A file is missing or damaged.
    """
    damaged = _damaged(checkpoint, version)
    if damaged is not None:
        path, what = damaged
        raise CheckpointDamaged(
            f'"{path}" is {what}', detail="Spark needs the file to go on from its checkpoint.", hint=hint
        )


def _damaged(checkpoint: Path, version: int) -> tuple[Path, str] | None:
    """Return the first file that is missing or damaged, and which of the two; None if none is."""
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
    """Return the first file that is missing on the way to a version, None if there is none."""
    snapshots = (int(path.stem) for path in partition.glob("*.zip") if path.stem.isdigit() and _whole(path))
    newest = max((number for number in snapshots if number <= version), default=0)
    changes = (partition / f"{number}.changelog" for number in range(newest + 1, version + 1))
    return next((path for path in changes if not _whole(path)), None)


def _whole(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _wrong_json(path: Path) -> str | None:
    """Return what is wrong with a file whose last line is a JSON object, None if nothing is."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return None if lines and isinstance(json.loads(lines[-1]), dict) else "damaged"
    except FileNotFoundError:
        return "missing"
    except ValueError:
        return "damaged"


def _numbered(directory: Path) -> list[Path]:
    """Return the entries of a directory whose names are numbers, in their order."""
    found = [path for path in directory.iterdir() if path.name.isdigit()] if directory.is_dir() else []
    return sorted(found, key=lambda path: int(path.name))
