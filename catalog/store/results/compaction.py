"""Compaction in the catalog: merged files replace the files of old batches, in one transaction.

    batch       0 . . . . . . . . . . merged_until . . . . . . . . | . . . . newest
    files       few, with many batches each      in the manifests  | newest batches: unchanged
    counters    none                             per slice         |

``merged_until`` only ever rises. When ``merged_until`` passes a batch, the batch's files, merged or
unchanged, move from its manifest to the table ``merged_files``. The manifest also loses the counters that
only the newest batches need. Later, a larger file replaces several files in this table. This module does
not read or write the files themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, func, select, update

from catalog.documents.codec import decode, encode
from catalog.store.database import tables
from catalog.store.database.repository import Repository
from catalog.store.results.result_files import add_merged, are_merged, drop_merged
from catalog.values.batch import BatchManifest, MergedFile

_b = tables.batches.c
_t = tables.batch_totals.c

_STANDING = select(_t.merged_until, _t.kept_from)
_NEWEST = select(func.max(_b.batch))
_DOCUMENTS = (
    select(_b.batch, _b.document)
    .where(_b.batch >= bindparam("first"), _b.batch < bindparam("end"))
    .order_by(_b.batch)
)
_THIN = update(tables.batches).where(_b.batch == bindparam("of")).values(document=bindparam("thin"))


@dataclass(frozen=True, slots=True)
class OldBatches:
    """Consecutive batches that are old enough to be merged.

    Attributes:
        manifests: Manifests of the batches.
        documents: (batch, manifest as stored JSON) of each batch.
    """

    manifests: tuple[BatchManifest, ...]
    documents: tuple[tuple[int, str], ...]


class Compaction(Repository):
    """Finds batches to merge, and records the merged files."""

    def old_batches(self, *, kept: int, count: int) -> OldBatches | None:
        """Return the oldest batches whose files are still named in their manifests.

        Args:
            kept: Number of newest batches that are not merged.
            count: Number of batches to return.

        Returns:
            The batches, or None if fewer than ``count`` batches are old enough.
        """
        with self._database.read() as connection:
            standing = connection.execute(_STANDING).first()
            if standing is None:
                return None
            first = max(standing)
            if connection.execute(_NEWEST).scalar_one() + 1 - kept - first < count:
                return None
            rows = connection.execute(_DOCUMENTS, {"first": first, "end": first + count}).all()
        documents = tuple((int(row.batch), str(row.document)) for row in rows)
        return OldBatches(tuple(decode(BatchManifest, text) for _, text in documents), documents)

    def name(self, old: OldBatches, files: Sequence[MergedFile]) -> bool:
        """Replace all files that these manifests name by merged files, and remove details from the manifests.

        Args:
            old: Result of ``old_batches``.
            files: Files with all rows of the old files.

        Returns:
            Whether the files were replaced. False if the batches have changed since ``old`` was read.
        """
        thin = [{"of": m.batch, "thin": encode(m.thinned()).decode()} for m in old.manifests]
        first, end = old.documents[0][0], old.documents[-1][0] + 1
        with self._database.write() as connection:
            if max(connection.execute(_STANDING).one()) != first:
                return False  # retention has dropped results of these batches meanwhile
            rows = connection.execute(_DOCUMENTS, {"first": first, "end": end}).all()
            if tuple((row.batch, row.document) for row in rows) != old.documents:
                return False  # a repeated batch has replaced a file meanwhile
            connection.execute(_THIN, thin)
            add_merged(connection, files)
            connection.execute(update(tables.batch_totals).values(merged_until=end))
        return True

    def replace(self, old: Sequence[MergedFile], new: MergedFile) -> bool:
        """Replace merged files by one larger file.

        Returns:
            Whether the files were replaced. False if one of the old files is no longer in the table.
        """
        with self._database.write() as connection:
            if not are_merged(connection, old):
                return False  # retention has dropped results meanwhile
            drop_merged(connection, old)
            add_merged(connection, [new])
        return True
