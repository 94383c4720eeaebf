"""Data directories that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.config.data_dir import open_data_dir

#: Opens a data directory as a user who does not own it: root may write whatever the permissions say.
AS_NOBODY = """
import os, sys
from pathlib import Path
from catalog.errors import SluiceError
from service.config.data_dir import open_data_dir
if os.getuid() == 0:
    os.setuid(65534)
try:
    open_data_dir(Path(sys.argv[1]))
except SluiceError as error:
    print(error)
"""


@pytest.mark.parametrize("part", ["", "results", "checkpoint/segments", "catalog.db", "events.db"])
def test_what_cannot_be_written_is_named_with_a_way_out(tmp_path: Path, part: str) -> None:
    for above in (tmp_path, *tmp_path.parents):
        above.chmod(0o755)
        if above.name.startswith("pytest-of-"):  # above it are directories of others
            break
    data_dir = open_data_dir(tmp_path / "data")
    for file in (data_dir.catalog_db, data_dir.events_db):
        file.touch(mode=0o666)
    for path in (data_dir.root, *data_dir.root.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    culprit = data_dir.root / part
    culprit.chmod(0o555 if culprit.is_dir() else 0o444)
    repository = Path(__file__).parents[3]
    said = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(data_dir.root)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(repository), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert said.stdout.splitlines() == [
        f'data directory "{data_dir.root}" cannot be written',
        f"  detail: {culprit} is read-only for this user.",
        "  hint: Give the service write access, remount the file system, or name another directory with "
        "--data-dir.",
    ], said.stderr
