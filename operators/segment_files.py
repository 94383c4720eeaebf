"""Stored values of the buckets as files: segments, patches and plans, written once under their ids.

    checkpoint/segments/<id>      whole or not at all; never rewritten with other bytes

The manifest in the state store names them, so a value counts once a manifest that names it is committed.
What a batch no longer needs stays until the next batch runs: a replay of the batch starts from the manifest
before. Every process maps the same file, so what one worker wrote another one reads without a copy.

In the state store itself each megabyte went through a socket, a pickle and several copies in the JVM, some
8 ms each (many-keys, 2 cores).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from operators.segment import CorruptSegment


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
        partial = self.directory / f".{stored_id}.{os.getpid()}"
        try:
            partial.write_bytes(data)
            partial.replace(self.directory / stored_id)
        except OSError:
            # A disk that is full should not stay so for a file that nobody can use.
            partial.unlink(missing_ok=True)
            raise

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
                f'"{stored_id}" is in the manifest but cannot be read', detail=f"{error}."
            ) from error

    def remove(self, stored_ids: Iterable[str]) -> None:
        """Remove values that no manifest that counts names; those that have gone already stay so."""
        for stored_id in stored_ids:
            (self.directory / stored_id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what writers that died left half written, while nothing writes."""
        for path in self.directory.glob(".*"):
            path.unlink(missing_ok=True)
