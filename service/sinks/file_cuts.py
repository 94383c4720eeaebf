"""Cuts: the assignment of batches to the files of a sink.

    waiting     3 5 6 7 | 9 10          batches with results; the query has a new text from 9 on
    at most 3   [3 5 6] [7] [9 10]      a file has batches of one text, and so one set of columns

With one batch per file the cut is fixed. With more batches per file, the cut depends on which batches wait at
that time. So it is recorded before the file is written: after a crash, the same file is written first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from catalog.values.sink import FilesSink


@dataclass(frozen=True, slots=True)
class FileCut:
    """Batches of a file.

    Attributes:
        query_id: Query of the results.
        batches: (batch, results), ascending.
    """

    query_id: int
    batches: tuple[tuple[int, int], ...]

    @property
    def first(self) -> int:
        """First batch."""
        return self.batches[0][0]

    @property
    def last(self) -> int:
        """Last batch."""
        return self.batches[-1][0]

    @property
    def rows(self) -> int:
        """Number of results of all batches."""
        return sum(rows for _, rows in self.batches)

    def name(self, sink: FilesSink) -> str:
        """Return the name of the file.

        >>> cut = FileCut(17, ((42, 5), (44, 1)))
        >>> cut.name(FilesSink("alerts", "csv", batches_per_file=2))
        'batch-000000042-000000044-q17.csv'
        >>> FileCut(17, ((42, 5),)).name(FilesSink("alerts", "ndjson"))
        'batch-000000042-q17.ndjson'
        """
        last = "" if sink.batches_per_file == 1 else f"-{self.last:09}"
        return f"batch-{self.first:09}{last}-q{self.query_id}.{sink.format}"


def file_cuts(
    waiting: Sequence[tuple[int, int, int]], batches_per_file: int, begun: int | None = None
) -> list[FileCut]:
    """Cut the waiting batches of a sink into files.

    >>> [cut.batches for cut in file_cuts([(3, 1, 9), (5, 1, 9), (6, 2, 9), (7, 2, 9)], 3)]
    [((3, 9), (5, 9)), ((6, 9), (7, 9))]
    >>> [cut.batches for cut in file_cuts([(3, 1, 9), (5, 1, 9), (6, 1, 9), (7, 1, 9)], 3, begun=3)]
    [((3, 9),), ((5, 9), (6, 9), (7, 9))]

    Args:
        waiting: (batch, id of the query, number of results), ascending.
        batches_per_file: Maximum number of batches of a file.
        begun: Last batch of the first file if its cut was recorded before, or None.
    """
    cuts = []
    for (query_id, _), group in groupby(waiting, lambda each: (each[1], begun is None or each[0] > begun)):
        batches = [(batch, rows) for batch, _, rows in group]
        for start in range(0, len(batches), batches_per_file):
            cuts.append(FileCut(query_id, tuple(batches[start : start + batches_per_file])))
    return cuts


def read_together(cuts: Sequence[FileCut], rows: int) -> Iterator[list[FileCut]]:
    """Group files to read together: a group has one query, and up to ``rows`` rows or a single file.

    >>> cuts = file_cuts([(3, 1, 50), (5, 1, 50), (6, 1, 1), (7, 2, 1)], 1)
    >>> [[cut.first for cut in group] for group in read_together(cuts, 100)]
    [[3, 5], [6], [7]]
    """
    group: list[FileCut] = []
    for cut in cuts:
        if group and (cut.query_id != group[0].query_id or sum(c.rows for c in (*group, cut)) > rows):
            yield group
            group = []
        group.append(cut)
    if group:
        yield group
