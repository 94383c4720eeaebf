"""Stored values of the buckets as files: segments, patches and plans, written once under their ids.

    checkpoint/segments/<id>              whole or not at all; never rewritten with other bytes
                       /rows.<batch>...   rows on their way from PACK, as a segment is stored

The manifest in the state store names them, so a value counts once a manifest that names it is committed.
What a batch no longer needs stays until the next batch runs: a replay of the batch starts from the manifest
before. Every process maps the same file, so what one worker wrote another one reads without a copy.

In the state store itself each megabyte went through a socket, a pickle and several copies in the JVM, some
8 ms each (many-keys, 2 cores).

Rows take the same way from PACK to CHAIN where both run on one machine: through Spark they are copied some
twelve times, by sockets, Arrow, shuffle and sort. And mostly rows that came in a file are a segment as they
are: then it gets the segment's id for a second name, and nothing is written. The first name goes with what
else the batch drops; what a crash leaves of these names is swept, for a replayed batch writes them again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from operators.errors import CorruptSegment
from operators.segments.row_codec import write_rows
from operators.segments.segment import ArrivedFile

#: What names of rows on their way begin with; those of stored values begin with the checkpoint's id.
_ARRIVING = "rows."


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Values by id.

    Attributes:
        directory: Where the files are: one that all workers of the job see.
    """

    directory: Path

    def write(self, stored_id: str, data: bytes) -> None:
        """Write a value; again, for a replayed batch, it is the same one.

        Raises:
            OSError: It cannot be written; then there is no such value.
        """
        with self._whole(stored_id) as partial:
            partial.write_bytes(data)

    def send(self, batch: int, order: int, bucket: int, part: int, rows: pa.RecordBatch) -> ArrivedFile:
        """Write rows that go to a bucket; a replayed batch sends the same ones.

        Args:
            batch: Number of the batch.
            order: Number of the partition in the batch.
            bucket: Number of the bucket.
            part: Number of the family side among those of the partition.
            rows: What is written, ``labelled`` as a segment.

        Raises:
            OSError: They cannot be written.
        """
        name = f"{_ARRIVING}{batch}.{order}.{bucket}.{part}"
        with self._whole(name) as partial, pa.OSFile(str(partial), "wb") as file:
            write_rows(rows, file)
            size = file.tell()
        return ArrivedFile(name, size)

    def link(self, arrived: ArrivedFile, stored_id: str) -> None:
        """Make the rows that came in a file a value; again, for a replayed batch, it is the same one.

        Raises:
            OSError: There is no such file, or it cannot be done.
        """
        source, target = self.directory / arrived.name, self.directory / stored_id
        try:
            target.unlink(missing_ok=True)
            target.hardlink_to(source)
        except OSError:
            # Not every file system gives a file two names.
            with self._whole(stored_id) as partial:
                shutil.copyfile(source, partial)

    def read(self, stored_id: str) -> pa.Buffer:
        """Return the bytes of a value, mapped.

        Raises:
            CorruptSegment: There is no such file, or it cannot be mapped.
        """
        try:
            with pa.memory_map(str(self.directory / stored_id)) as file:
                return file.read_buffer()
        except (OSError, pa.ArrowInvalid) as error:
            raise CorruptSegment(
                f'"{stored_id}" was written but cannot be read', detail=f"{error}."
            ) from error

    def remove(self, stored_ids: Iterable[str]) -> None:
        """Remove values that no manifest that counts names; those that have gone already stay so."""
        for stored_id in stored_ids:
            (self.directory / stored_id).unlink(missing_ok=True)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of all values by id, those of rows on their way left out."""
        with os.scandir(self.directory) as found:
            names = [file for file in found if not file.name.startswith((".", _ARRIVING))]
            return {file.name: file.stat().st_size for file in names}

    def sweep(self) -> None:
        """Remove what writers that died left half written or on its way, while nothing writes."""
        for pattern in (".*", f"{_ARRIVING}*"):
            for path in self.directory.glob(pattern):
                path.unlink(missing_ok=True)

    @contextmanager
    def _whole(self, name: str) -> Iterator[Path]:
        """Give a path to write to, which gets its name once it is written."""
        partial = self.directory / f".{name}.{os.getpid()}"
        try:
            yield partial
            partial.replace(self.directory / name)
        except OSError:
            # A disk that is full should not stay so for a file that nobody can use.
            partial.unlink(missing_ok=True)
            raise
