"""The data directory: everything that one Sluice service keeps, in one place.

catalog.db      streams, queries, plan versions, control log, manifests (SQLite)
identity.json   which catalog all of this belongs to
events.db       events posted over HTTP, durable before they are acknowledged (SQLite)
checkpoint/     Spark's offset log, commit log and state, and the segments that the state names
results/        joined pairs, Parquet; visible once a manifest in the catalog names them
late/           late rows, Parquet, named by manifests too
dead_letters/   rows of batches that were voided, with the reason
exports/        files that queries are exported to, unless the operator names another directory
spill/          what sorting for exports does not hold in memory; emptied at each start
spark.log       what Spark's JVM and its workers say
engine.lock     held by the one engine that may write here
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from service.errors import DataDirUnusable

#: How a run leaves its results: a directory per query, or each pair once.
ResultsForm = Literal["per-query", "shared"]


@dataclass(frozen=True, slots=True)
class DataDir:
    """Paths inside a data directory.

    Attributes:
        root: The directory itself, absolute.
        results_dir: Directory of result files where it is not the usual one.
    """

    root: Path
    results_dir: Path | None = None

    @property
    def catalog_db(self) -> Path:
        """SQLite file of the catalog."""
        return self.root / "catalog.db"

    @property
    def catalog_url(self) -> str:
        """SQLAlchemy URL of the SQLite catalog."""
        return f"sqlite:///{self.catalog_db}"

    @property
    def events_db(self) -> Path:
        """SQLite file of the HTTP event log."""
        return self.root / "events.db"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint."""
        return self.root / "checkpoint"

    @property
    def identity(self) -> Path:
        """File that names the catalog which the directory belongs to."""
        return self.root / "identity.json"

    @property
    def checkpoint_identity(self) -> Path:
        """File that names the catalog and the checkpoint which the checkpoint's directory is of."""
        return self.checkpoint / "identity.json"

    @property
    def results(self) -> Path:
        """Result files."""
        return self.results_dir if self.results_dir is not None else self.root / "results"

    @property
    def late(self) -> Path:
        """Files of late rows."""
        return self.root / "late"

    @property
    def dead_letters(self) -> Path:
        """Rows that a decision left out of a batch."""
        return self.root / "dead_letters"

    @property
    def exports(self) -> Path:
        """Files of sinks."""
        return self.root / "exports"

    @property
    def spill(self) -> Path:
        """Scratch space of the deliverer."""
        return self.root / "spill"

    @property
    def segments(self) -> Path:
        """Segments of the state, beside Spark's own files: one is worth nothing without the others."""
        return self.checkpoint / "segments"

    @property
    def fence(self) -> Path:
        """File with the epoch of the engine whose workers may write segments."""
        return self.checkpoint / "epoch"

    @property
    def spark_log(self) -> Path:
        """Log of Spark's JVM and workers."""
        return self.root / "spark.log"

    @property
    def engine_lock(self) -> Path:
        """Lock file of the writing engine."""
        return self.root / "engine.lock"

    def create(self) -> DataDir:
        """Make every directory that is missing and return self.

        Raises:
            DataDirUnusable: One of them cannot be made, or written.
        """
        for path in (self.root, self.results, self.late, self.segments):
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DataDirUnusable(
                    f'data directory "{self.root}" cannot be used',
                    detail=f"{error.strerror or error}: {path}.",
                    hint="Name a directory that you may write to with --data-dir.",
                ) from error
        self._check_writable()
        return self

    def _check_writable(self) -> None:
        files = (self.catalog_db, self.events_db, self.engine_lock, self.spark_log)
        for path in (self.root, self.results, self.late, self.checkpoint, self.segments, *files):
            needed = os.W_OK | (os.X_OK if path.is_dir() else 0)
            if path.exists() and not os.access(path, needed):
                raise DataDirUnusable(
                    f'data directory "{self.root}" cannot be written',
                    detail=f"{path} is read-only for this user.",
                    hint="Give the service write access, remount the file system, or name another "
                    "directory with --data-dir.",
                )


def open_data_dir(root: Path, *, results_dir: Path | None = None) -> DataDir:
    """Return the data directory at ``root``, made if it is missing.

    Args:
        root: Directory, absolute or relative to the working directory.
        results_dir: Where result files go instead of ``root/results``.

    Raises:
        DataDirUnusable: It cannot be made or written.
    """
    results = results_dir.absolute() if results_dir is not None else None
    return DataDir(root.absolute(), results).create()


def run_data_dir(out: Path, results: ResultsForm) -> DataDir:
    """Return the data directory of a run whose output goes to ``out``; raises as ``open_data_dir``."""
    return open_data_dir(out / "_sluice", results_dir=out / "results" if results == "shared" else None)
