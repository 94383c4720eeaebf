"""Corrects the absolute paths of state schemas in Spark's metadata after a checkpoint was moved.

    state/0/_metadata/v2/0    {"stateSchemaFilePaths": ["file:/old/checkpoint/state/0/_stateSchema/..."]}

With a restored backup, or a renamed data directory, Spark would look for the schemas in the old place, and
fail, or find those of the original (PySpark 4.3).
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

from service.commit.sync import sync_file

log = logging.getLogger(__name__)

#: A path in Spark's metadata, with the part below the checkpoint as a group.
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
        log.warning("checkpoint was moved: paths of its state put right", extra={"path": str(path)})
