"""Archives that tests keep or make."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack_archive(archive: Path, into: Path) -> None:
    """Unpack a tar archive, as data where Python can tell: before 3.11.4 it cannot."""
    with tarfile.open(archive) as file:
        if hasattr(tarfile, "data_filter"):
            file.extractall(into, filter="data")
        else:
            file.extractall(into)
