"""Stored values of the buckets as files: segments, patches and plans, written once under their ids.

    checkpoint/segments/<id>              written completely or not at all; never rewritten with other bytes
                       /rows.<batch>...   rows in transit from PACK, in the stored form of a segment

    | value | "SLC1" | CRC-32C of the value | length of the value |      the seal, checked on each read

The manifest in the state store names the values, so a value is valid once a manifest that names it is
committed. A value that a batch no longer needs is kept for two more batches, because a replay of this batch
or of the previous batch starts from an earlier manifest (``service.recovery.checkpoint``). Every process maps
the same file, so a worker can read another worker's values without a copy.

When values were kept in the state store itself, they went through a socket, a pickle and several copies in
the JVM, which took about 8 ms per megabyte (many-keys workload, 2 cores).

Rows are also sent from PACK to CHAIN in files if both run on one machine. Through Spark, they would be copied
about twelve times, by sockets, Arrow, shuffle and sort. Usually the rows of a file are a complete segment.
Then the file gets the segment's id as a second name, and nothing is written. The first name is removed with
the other values that the batch drops. After a crash, files left in transit are removed (``sweep``),
because a replayed batch sends their rows again.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import pyarrow as pa

from catalog.errors import NEWER_JOB
from operators.errors import CorruptSegment, WriterReplaced
from operators.segments.encoding.row_codec import write_rows
from operators.segments.segment import ArrivedFile
from operators.storage.folder import (
    Folder,
    contents,
    directory_here,
    fetch,
    names,
    path_in,
    prepare,
    publish,
    remove,
)
from operators.storage.writeback import begin_writeback

#: Prefix of the names of files with rows in transit; names of stored values begin with the checkpoint's id.
_ARRIVING = "rows."

#: Beginning of the names of stored values: the checkpoint's id and the number of the bucket.
_STORED = re.compile(r"[0-9a-f]{12}\.\d+\.")

_MAGIC = b"SLC1"
_SEAL = struct.Struct("<4sIQ")


@dataclass(frozen=True, slots=True)
class Fence:
    """The epoch of the only job whose workers may write, in a file next to the values.

    Attributes:
        path: File that contains the epoch.
        epoch: Epoch of the job to which these workers belong.
    """

    path: Path
    epoch: int

    def announce(self) -> None:
        """Allow only the workers of this epoch to write."""
        partial = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:8]}")
        partial.write_text(str(self.epoch), encoding="utf-8")
        partial.replace(self.path)

    def check(self) -> None:
        """Refuse to write for an engine that was replaced.

        Raises:
            WriterReplaced: A newer job has started since.
        """
        found = self.path.read_text(encoding="utf-8")
        if found != str(self.epoch):
            raise WriterReplaced(
                f"segments of epoch {self.epoch} cannot be written, the current one is {found}",
                detail=NEWER_JOB,
            )


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """Files of stored values, by id.

    Attributes:
        directory: Folder of the files, one for all workers of the job.
        fence: Checked before a value is written or removed; None if no other process can write.
        sealed: True if every file has a seal; False if some files were written by an older version without
            seals.
    """

    directory: Folder
    fence: Fence | None = None
    sealed: bool = True

    def write(self, stored_id: str, data: bytes) -> None:
        """Write a value; a replayed batch writes the same value again.

        Raises:
            OSError: The value cannot be written; no file of it is left.
        """
        with self._whole(stored_id) as partial, partial.open("wb") as file:
            file.write(data)
            file.write(_SEAL.pack(_MAGIC, google_crc32c.value(data), len(data)))

    def send(self, batch: int, order: int, bucket: int, part: int, rows: pa.RecordBatch) -> ArrivedFile:
        """Write rows for a bucket to a file; a replayed batch sends the same rows.

        Args:
            batch: Number of the batch.
            order: Number of the partition within the batch.
            bucket: Number of the bucket.
            part: Number of the family side within the partition.
            rows: The rows, ``labelled`` as a segment.

        Raises:
            OSError: The rows cannot be written.
        """
        name = f"{_ARRIVING}{batch}.{order}.{bucket}.{part}"
        with self._whole(name) as partial:
            with pa.OSFile(str(partial), "wb") as file:
                write_rows(rows, file)
                size = file.tell()
            with pa.memory_map(str(partial)) as written:
                checksum = google_crc32c.value(written.read_buffer())
            with partial.open("ab") as end:
                end.write(_SEAL.pack(_MAGIC, checksum, size))
        return ArrivedFile(name, size)

    def link(self, arrived: ArrivedFile, stored_id: str) -> None:
        """Store the rows of an arrived file as a value; a replayed batch stores the same value again.

        Raises:
            OSError: There is no such file, or it cannot be linked or copied.
        """
        self._check_fence()
        source, target = path_in(self.directory, arrived.name), path_in(self.directory, stored_id)
        try:
            target.unlink(missing_ok=True)
            target.hardlink_to(source)
        except OSError:
            # Some file systems do not support two names for a file.
            with self._whole(stored_id) as partial:
                shutil.copyfile(source, partial)

    def read(self, stored_id: str) -> pa.Buffer:
        """Return the bytes of a value, memory-mapped.

        Raises:
            CorruptSegment: There is no such file, it cannot be mapped, or its bytes have changed.
        """
        try:
            if not stored_id.startswith(_ARRIVING):
                fetch(self.directory, [stored_id])
            with pa.memory_map(str(path_in(self.directory, stored_id))) as file:
                found = file.read_buffer()
        except (OSError, pa.ArrowInvalid) as error:
            raise _corrupt(stored_id, f"{error}.") from error
        size = found.size - _SEAL.size
        magic, checksum, length = _SEAL.unpack(found[size:]) if size >= 0 else (b"", 0, 0)
        if magic != _MAGIC and not self.sealed and not stored_id.startswith(_ARRIVING):
            return found
        if magic != _MAGIC or length != size:
            raise _corrupt(stored_id, f"{self.directory / stored_id} has {found.size} bytes and no seal.")
        value = found.slice(0, size)
        if google_crc32c.value(value) != checksum:
            raise _corrupt(stored_id, f"{self.directory / stored_id} does not match its checksum.")
        return value

    def publish(self, stored_ids: Collection[str]) -> None:
        """Make values written on this machine available to all workers, before a manifest names them.

        Raises:
            StorageDown: The object store does not accept a value.
        """
        publish(self.directory, stored_ids)

    def remove(self, stored_ids: Iterable[str]) -> None:
        """Remove values that no valid manifest names; a value that does not exist is skipped."""
        self._check_fence()
        stored_ids = list(stored_ids)
        # Rows in transit are always files of this machine, even if the folder is in an object store.
        remove(directory_here(self.directory), (name for name in stored_ids if name.startswith(_ARRIVING)))
        remove(self.directory, (name for name in stored_ids if not name.startswith(_ARRIVING)))

    def sizes(self) -> dict[str, int]:
        """Return the bytes of all values by id, except rows in transit."""
        found = contents(self.directory).items()
        return {name: size - _SEAL.size for name, size in found if not name.startswith(_ARRIVING)}

    def sweep(self, checkpoint_id: str) -> None:
        """Remove incomplete files of crashed writers; call this only while no process writes.

        Rows in transit and the values of abandoned checkpoints (no manifest names them any more) are also
        removed.

        Args:
            checkpoint_id: Id of the checkpoint whose values are kept.
        """
        self._check_fence()
        stored = (name for name in names(self.directory) if _STORED.match(name))
        self.remove(name for name in stored if not name.startswith(f"{checkpoint_id}."))
        prepare(self.directory)
        for pattern in (".*", f"{_ARRIVING}*"):
            for path in directory_here(self.directory).glob(pattern):
                path.unlink(missing_ok=True)

    @contextmanager
    def _whole(self, name: str) -> Iterator[Path]:
        """Yield a path to write to; the file gets its final name once it is complete."""
        self._check_fence()
        target = path_in(self.directory, name)
        prepare(self.directory)
        # Two machines may share the directory, and processes on them may have the same process id.
        partial = self.directory / f".{name}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        try:
            yield partial
            begin_writeback(partial)
            partial.replace(target)
        except OSError:
            # The partial file is useless, and the disk may be full.
            partial.unlink(missing_ok=True)
            raise

    def _check_fence(self) -> None:
        if self.fence is not None:
            self.fence.check()


def _corrupt(stored_id: str, detail: str) -> CorruptSegment:
    return CorruptSegment(
        f'segment "{stored_id}" cannot be read as it was written',
        detail=detail,
        hint="Restore the data directory from a backup, or let sluice repair build the state again.",
    )
