"""Correction of the absolute paths of state schemas in Spark's metadata, after a checkpoint was moved.

    state/0/_metadata/v2/0    {"stateSchemaFilePaths": ["file:/old/checkpoint/state/0/_stateSchema/..."]}

After a restore, or after the data directory was renamed, Spark would look for the schemas at the old path.
Spark would fail, or read the schemas of the original directory (PySpark 4.3).
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

from service.commit.sync import sync_file

log = logging.getLogger(__name__)

#: Path of a schema in Spark's metadata. The group ``below`` is the part of the path below the checkpoint.
_PATH = re.compile(r'"file:(?P<checkpoint>[^"]*)(?P<below>/state/\d+/_stateSchema/[^"]*)"')


def put_schema_paths_right(checkpoint: Path) -> None:
    """Let Spark's metadata in a checkpoint name the schema files of this checkpoint."""
    here = json.dumps(f"file:{checkpoint}", ensure_ascii=False)[:-1]
    for path in checkpoint.glob("state/*/_metadata/*/*"):
        if not path.name.isdigit():
            continue
        noted = path.read_text(encoding="utf-8")
        right = _PATH.sub(lambda found: f'{here}{found["below"]}"', noted)
        if right == noted:
            continue
        partial = path.with_name(f".{path.name}.moved")
        partial.write_text(right, encoding="utf-8")
        sync_file(partial)
        partial.replace(path)
        log.warning("paths of a moved checkpoint corrected", extra={"path": str(path)})
