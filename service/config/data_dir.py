"""The data directory: all files that one Sluice service stores, in one place.

catalog.db      streams, queries, plan versions, control log, manifests (SQLite)
identity.json   id of the catalog that all files here belong to
events.db       events posted over HTTP, durable before they are acknowledged (SQLite), unless the catalog is
                on PostgreSQL
checkpoint/     Spark's offset log, commit log and state, and the segments that the state names
results/        joined pairs, Parquet; visible once a manifest in the catalog names them
late/           late rows, Parquet; visible once a manifest names them, too
dead_letters/   input that was left out, with the reason: rows of voided batches, bad rows of files and bad
                messages
sources/        files that streams may read, unless the operator names other directories
exports/        files that queries are exported to, unless the operator names another directory
spill/          rows that do not fit in memory while exports are sorted; emptied at each start
spark.log       log of Spark's JVM and its workers
engine.lock     locked by the one engine that may write here

With a separate storage (``service.config.storage``) segments, results, late rows and dead letters are stored
there, and the checkpoint may be elsewhere, too. With such a storage, each machine of a cluster can have its
own data directory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from operators.storage.folder import Folder
from service.config.storage import Storage
from service.errors import DataDirUnusable

#: Form in which a run writes its results: a directory per query, or each pair once.
ResultsForm = Literal["per-query", "shared"]


@dataclass(frozen=True, slots=True)
class DataDir:
    """Paths inside a data directory.

    Attributes:
        root: The directory itself, absolute.
        results_dir: Directory of result files. None means ``results`` in the storage, or in ``root`` without
            a storage.
        storage: Storage of segments, results, late rows and dead letters. None means the data directory.
        checkpoint_dir: Directory of Spark's checkpoint, absolute. None means ``root/checkpoint``.
    """

    root: Path
    results_dir: Path | None = None
    storage: Storage | None = None
    checkpoint_dir: Path | None = None

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

    def events_url(self, catalog_url: str | None) -> str:
        """Return the SQLAlchemy URL of the event log.

        With a catalog on PostgreSQL the event log is in the same database, unless the directory has its own
        ``events.db``, as directories of older versions do.

        Args:
            catalog_url: URL of the catalog. None means SQLite in the data directory.
        """
        beside = (
            catalog_url is not None and not catalog_url.startswith("sqlite") and not self.events_db.exists()
        )
        return catalog_url if beside and catalog_url is not None else f"sqlite:///{self.events_db}"

    @property
    def checkpoint(self) -> Path:
        """Directory of Spark's checkpoint."""
        return self.checkpoint_dir or self.root / "checkpoint"

    @property
    def identity(self) -> Path:
        """File that names the catalog to which the directory belongs."""
        return self.root / "identity.json"

    @property
    def move(self) -> Path:
        """File that exists while the directory is the target of an incomplete move."""
        return self.root / "move.json"

    @property
    def checkpoint_identity(self) -> Path:
        """File in the checkpoint's directory that identifies the checkpoint and its catalog."""
        return self.checkpoint / "identity.json"

    @property
    def results(self) -> Folder:
        """Folder of result files."""
        if self.results_dir is not None:
            return self.results_dir
        return self._stored("results", self.root / "results")

    @property
    def late(self) -> Folder:
        """Folder of files of late rows."""
        return self._stored("late", self.root / "late")

    @property
    def dead_letters(self) -> Folder:
        """Folder of input that was left out: rows of voided batches, skipped rows of files, bad messages."""
        return self._stored("dead_letters", self.root / "dead_letters")

    @property
    def sources(self) -> Path:
        """Default directory of the files that streams may read."""
        return self.root / "sources"

    @property
    def exports(self) -> Path:
        """Default directory of the files that sinks write."""
        return self.root / "exports"

    @property
    def spill(self) -> Path:
        """Directory for rows that do not fit in memory while exports of sinks are sorted."""
        return self.root / "spill"

    @property
    def segments(self) -> Folder:
        """Folder of segments, by default beside Spark's state, which is useless without segments."""
        return self._stored("segments", self.checkpoint / "segments")

    @property
    def stored_identity(self) -> Folder | None:
        """Folder of the file that names a separate storage's catalog, or None without a separate storage."""
        return None if self.storage is None else self.storage.folder("identity")

    @property
    def fence(self) -> Path:
        """File with the epoch of the job whose workers may write segments."""
        return self.checkpoint / "epoch"

    @property
    def spark_log(self) -> Path:
        """Log of Spark's JVM and workers."""
        return self.root / "spark.log"

    @property
    def engine_lock(self) -> Path:
        """Lock file of the one engine that may write to the directory."""
        return self.root / "engine.lock"

    def create(self) -> DataDir:
        """Make every directory that is missing and return self.

        Raises:
            DataDirUnusable: A directory cannot be made, or cannot be written.
        """
        for path in (self.root, self.checkpoint, *self._stored_here):
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DataDirUnusable(
                    f'data directory "{self.root}" cannot be used',
                    detail=f"{error.strerror or error}: {path}.",
                    hint="Name a directory that you may write to with --data-dir.",
                ) from error
        self.check_writable()
        return self

    @property
    def _stored_here(self) -> list[Path]:
        """Those folders of results, late rows and segments that are directories of a file system."""
        return [folder for folder in (self.results, self.late, self.segments) if isinstance(folder, Path)]

    def _stored(self, name: str, usual: Path) -> Folder:
        return usual if self.storage is None else self.storage.folder(name)

    def check_writable(self) -> None:
        """Refuse a data directory that contains a file or directory that is not writable.

        Raises:
            DataDirUnusable: A file or directory in it is not writable; the error names the path.
        """
        files = (self.catalog_db, self.events_db, self.engine_lock, self.spark_log)
        for path in (self.root, self.checkpoint, *self._stored_here, *files):
            needed = os.W_OK | (os.X_OK if path.is_dir() else 0)
            if path.exists() and not os.access(path, needed):
                raise DataDirUnusable(
                    f'data directory "{self.root}" cannot be written',
                    detail=f"{path} is on a read-only file system."
                    if os.statvfs(path).f_flag & os.ST_RDONLY
                    else f"{path} is read-only for this user.",
                    hint="Give the service write access, remount the file system, or name another "
                    "directory with --data-dir.",
                )


def open_data_dir(
    root: Path,
    *,
    results_dir: Path | None = None,
    storage: Storage | None = None,
    checkpoint_dir: Path | None = None,
) -> DataDir:
    """Return the data directory at ``root``, made if it is missing.

    Args:
        root: Directory, absolute or relative to the working directory.
        results_dir: Directory of result files instead of ``root/results``.
        storage: Storage of segments, results, late rows and dead letters instead of ``root``.
        checkpoint_dir: Directory of Spark's checkpoint instead of ``root/checkpoint``.

    Raises:
        DataDirUnusable: The data directory cannot be made or written.
    """
    checkpoint = checkpoint_dir.absolute() if checkpoint_dir is not None else None
    results = results_dir.absolute() if results_dir is not None else None
    return DataDir(root.absolute(), results, storage, checkpoint).create()


def run_data_dir(out: Path, results: ResultsForm, storage: Storage | None = None) -> DataDir:
    """Return the data directory of a run whose output goes to ``out``; raises as ``open_data_dir``."""
    results_dir = out.absolute() / "results" if results == "shared" else None
    return open_data_dir(out / "_sluice", results_dir=results_dir, storage=storage)
