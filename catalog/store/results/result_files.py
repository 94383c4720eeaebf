"""Names of the files of results and late rows: manifests name files of new batches, a table all others.

    batch            0 .......... merged_until ............ newest
    files named by   merged_files              manifests

A merged file has rows of many batches (``results.compaction``), so readers select rows by batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, RowMapping, and_, bindparam, delete, func, insert, select

from catalog.documents.codec import decode
from catalog.store.database import tables
from catalog.store.database.repository import Repository
from catalog.values.batch import MergedFile, ResultFile
from catalog.values.routes.query_sets import Int64s

#: Most batches that a merged file spans. This limit bounds the search for the files of a batch, which are
#: found by their first batches.
MOST_BATCHES = 16_384
#: Most batches that one statement names, because databases limit the parameters of a statement.
_BATCHES_AT_A_TIME = 500

_b = tables.batches.c
_m = tables.merged_files.c
_t = tables.batch_totals.c

_STANDING = select(_t.merged_until, _t.kept_from)
_MERGED = select(tables.merged_files).order_by(_m.first, _m.last, _m.path)
_OF_FAMILY = _MERGED.where(
    _m.family == bindparam("family"),
    _m.late.is_(False),
    _m.first > bindparam("before_first"),
    _m.first <= bindparam("to_batch"),
    _m.last >= bindparam("from_batch"),
)
_DOCUMENTS = select(_b.document).where(_b.batch.in_(bindparam("batches", expanding=True))).order_by(_b.batch)
_PAGE = (
    select(_b.batch, _b.document).where(_b.batch >= bindparam("from_batch")).order_by(_b.batch).limit(1_000)
)
_SIZES = select(_m.last, func.coalesce(_m.bytes, 0)).where(_m.last < bindparam("end")).order_by(_m.last)
_YOUNG = (
    select(_b.batch, _b.document)
    .where(_b.batch >= bindparam("first"), _b.batch < bindparam("end"))
    .order_by(_b.batch)
)
_IT = and_(_m.path == bindparam("of"), _m.late == bindparam("of_late"))
_IS_THERE = select(_m.path).where(_IT)
_DROP = delete(tables.merged_files).where(_IT)


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """Files that a manifest or the table ``merged_files`` names.

    Attributes:
        files: Files of results.
        late_files: Files of late rows.
    """

    files: tuple[ResultFile, ...]
    late_files: tuple[ResultFile, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FileSizes:
    """Sizes of files of results and late rows, by last batch, because a file is dropped with its last batch.

    >>> sizes = FileSizes(np.array([3, 5, 9]), np.array([10, 20, 40]))
    >>> sizes.since(4), sizes.first_within(60), sizes.first_within(59), sizes.first_within(5)
    (60, 4, 6, 10)

    Attributes:
        lasts: int64[n], last batch of each file, ascending.
        sizes: int64[n], size of each file in bytes.
    """

    lasts: Int64s
    sizes: Int64s

    def since(self, batch: int) -> int:
        """Return the total size, in bytes, of the files with rows of a batch or of later batches."""
        return int(self.sizes[np.searchsorted(self.lasts, batch) :].sum())

    def first_within(self, limit: int) -> int:
        """Return the first batch from which on all files together have at most ``limit`` bytes."""
        too_many = np.flatnonzero(self.sizes[::-1].cumsum()[::-1] > limit)
        return int(self.lasts[too_many[-1]]) + 1 if too_many.size else 0


class ResultFileRepository(Repository):
    """Files of results and late rows; this class only reads the catalog."""

    def merged_until(self) -> int:
        """Return the first batch whose manifest names its files; a table names all earlier batches' files."""
        with self._database.read() as connection:
            return _standing(connection)[0]

    def merged(self) -> tuple[MergedFile, ...]:
        """Return the files that the table ``merged_files`` names, by batch."""
        with self._database.read() as connection:
            return tuple(_merged_file(row) for row in connection.execute(_MERGED).mappings())

    def of_family(self, family: str, batches: Collection[int]) -> tuple[ResultFile, ...]:
        """Return the files with the results of a family in some batches; they may contain other rows, too.

        Args:
            family: Family id.
            batches: Committed batches that have results of the family.

        Returns:
            The files, or no file if the results of one of these batches are no longer kept.
        """
        if not batches:
            return ()
        with self._database.read() as connection:
            while True:
                until, kept_from = standing = _standing(connection)
                if min(batches) < kept_from:
                    return ()
                young = sorted(batch for batch in batches if batch >= until)
                old = [batch for batch in batches if batch < until]
                found = [*_in_table(connection, family, old), *_in_manifests(connection, family, young)]
                # On PostgreSQL each statement sees what was committed before it, so the bounds may have moved
                # meanwhile.
                if _standing(connection) == standing:
                    return tuple(found)

    def sizes_before(self, end: int) -> FileSizes:
        """Return the sizes of the files whose rows all belong to batches before ``end``."""
        with self._database.read() as connection:
            sizes = [(int(last), int(size)) for last, size in connection.execute(_SIZES, {"end": end})]
            bounds = {"first": max(_standing(connection)), "end": end}
            for batch, document in connection.execute(_YOUNG, bounds):
                named = decode(NamedFiles, document)
                sizes.append((int(batch), sum(f.bytes or 0 for f in (*named.files, *named.late_files))))
        table = np.array(sizes, np.int64).reshape(-1, 2)
        return FileSizes(*np.ascontiguousarray(table[np.argsort(table[:, 0], kind="stable")].T))

    def all(self) -> Iterator[NamedFiles]:
        """Yield all files in groups. The caller must ensure that no files are merged meanwhile."""
        merged = self.merged()
        yield NamedFiles(
            tuple(each.file for each in merged if not each.late),
            tuple(each.file for each in merged if each.late),
        )
        batch = self.merged_until()
        while True:
            with self._database.read() as connection:
                rows = connection.execute(_PAGE, {"from_batch": batch}).all()
            if not rows:
                return
            yield from (decode(NamedFiles, row.document) for row in rows)
            batch = rows[-1].batch + 1


def add_merged(connection: Connection, files: Iterable[MergedFile]) -> None:
    """Add files to the table ``merged_files``, inside a write transaction."""
    rows = [
        {
            "path": each.file.path,
            "late": each.late,
            "family": each.file.family,
            "rows": each.file.rows,
            "bytes": each.file.bytes,
            "crc32c": each.file.crc32c,
            "first": each.first,
            "last": each.last,
            "first_at_us": each.first_at_us,
            "last_at_us": each.last_at_us,
            "level": each.level,
        }
        for each in files
    ]
    if rows:
        connection.execute(insert(tables.merged_files), rows)


def are_merged(connection: Connection, files: Iterable[MergedFile]) -> bool:
    """Return whether all given files are in the table ``merged_files``."""
    return all(connection.execute(_IS_THERE, _key(each)).first() is not None for each in files)


def drop_merged(connection: Connection, files: Iterable[MergedFile]) -> None:
    """Drop files from the table ``merged_files``, inside a write transaction."""
    if keys := [_key(each) for each in files]:
        connection.execute(_DROP, keys)


def merged_before(connection: Connection, batch: int) -> tuple[MergedFile, ...]:
    """Return the files in ``merged_files`` whose rows all belong to batches before ``batch``."""
    rows = connection.execute(_MERGED.where(_m.last < batch)).mappings()
    return tuple(_merged_file(row) for row in rows)


def _key(each: MergedFile) -> dict[str, object]:
    return {"of": each.file.path, "of_late": each.late}


def _standing(connection: Connection) -> tuple[int, int]:
    """Return the first batch whose manifest names its files, and the first batch whose results are kept."""
    row = connection.execute(_STANDING).first()
    return (0, 0) if row is None else (row.merged_until, row.kept_from)


def _in_table(connection: Connection, family: str, batches: Collection[int]) -> Iterator[ResultFile]:
    if not batches:
        return
    first, last = min(batches), max(batches)
    bounds = {"before_first": first - MOST_BATCHES, "from_batch": first, "to_batch": last}
    for row in connection.execute(_OF_FAMILY, bounds | {"family": family}).mappings():
        yield _merged_file(row).file


def _in_manifests(connection: Connection, family: str, batches: list[int]) -> Iterator[ResultFile]:
    for start in range(0, len(batches), _BATCHES_AT_A_TIME):
        some = {"batches": batches[start : start + _BATCHES_AT_A_TIME]}
        for document in connection.scalars(_DOCUMENTS, some):
            yield from (file for file in decode(NamedFiles, document).files if file.family == family)


def _merged_file(row: RowMapping) -> MergedFile:
    file = ResultFile(row["path"], row["family"], row["rows"], row["bytes"], row["crc32c"])
    return MergedFile(
        file, row["late"], row["first"], row["last"], row["first_at_us"], row["last_at_us"], row["level"]
    )
