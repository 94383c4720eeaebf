"""Spans: the results on a page of a series, found from the catalog alone.

The catalog has the number of results per batch and query, so no file is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from catalog.store.results.retention import DroppedOfSeries
from catalog.store.store import Store
from catalog.values.query import Query
from service.errors import InvalidCursor, ResultsExpired
from service.results.pages.page import Span, parse_cursor
from service.results.pages.result_expiry import has_lost

#: Batches looked up in the catalog at a time.
_BATCHES_PER_LOOKUP = 256


@dataclass(frozen=True, slots=True)
class Spans:
    """Finder of spans of results.

    Attributes:
        store: The catalog.
    """

    store: Store

    def of_page(
        self, series: int, after: str | None, limit: int
    ) -> tuple[tuple[Span, ...], bool, DroppedOfSeries | None]:
        """Return the spans of a page, whether more follow, and the dropped results; read only the catalog."""
        batch, returned = parse_cursor(after) if after is not None else (0, 0)
        found, has_more = self._kept_spans(series, after, batch, returned, limit)
        given = 0 if found or after is None else self.given(series, batch)
        # Looked up last, to notice results dropped since the first lookup.
        dropped = self.store.retention.dropped(series)
        if after is None:
            return found, has_more, dropped
        if dropped is not None and has_lost(dropped, batch, returned):
            raise ResultsExpired(after, dropped.results, self.store.retention.kept_from()[1] or 0)
        if dropped is not None and dropped.batch == batch:
            if returned > dropped.of_batch:
                raise _beyond(after)
        elif not found and returned > given:
            raise _beyond(after)
        return found, has_more, dropped

    def _kept_spans(
        self, series: int, after: str | None, batch: int, returned: int, limit: int
    ) -> tuple[tuple[Span, ...], bool]:
        """Return the spans of a page among the kept results, and whether more follow."""
        spans: list[Span] = []
        missing = limit
        for number, query_id, rows in self.batches_of(self.store.queries.series_ids(series), batch):
            if spans and not missing:
                return tuple(spans), True
            first = returned if number == batch else 0
            if first > rows:
                raise _beyond(after)
            if first == rows:
                continue
            taken = min(rows - first, missing)
            spans.append(Span(number, query_id, first, taken))
            missing -= taken
            if first + taken < rows:
                return tuple(spans), True
        return tuple(spans), False

    def batches_of(self, query_ids: Collection[int], from_batch: int) -> Iterator[tuple[int, int, int]]:
        """Yield (batch, query, number of results) for batches with results, from ``from_batch`` on."""
        more = True
        while more:
            found = self.store.counts.of_queries(query_ids, from_batch, limit=_BATCHES_PER_LOOKUP)
            yield from found
            more = len(found) == _BATCHES_PER_LOOKUP
            from_batch = found[-1][0] + 1 if found else from_batch

    def given(self, series: int, batch: int) -> int:
        """Return the number of a series' kept results in a batch."""
        given = next(iter(self.store.counts.of_series(series, batch, 1)), (batch, 0, 0))
        return given[2] if given[0] == batch else 0


def _beyond(after: str | None) -> InvalidCursor:
    return InvalidCursor(
        f'cursor "{after}" is beyond the results of this query',
        hint='Send "next_cursor" of an earlier page of this query, or nothing to start over.',
    )


def spans_until(spans: Sequence[Span], batch: int, returned: int) -> list[Span]:
    """Return spans up to a cursor."""
    found = [span for span in spans if span.batch <= batch]
    if found and found[-1].batch == batch:
        last = found.pop()
        if (rows := min(last.rows, returned - last.first)) > 0:
            found.append(replace(last, rows=rows))
    return found


def of_equal_columns(spans: Sequence[Span], queries: Mapping[int, Query]) -> Sequence[Span]:
    """Return the leading spans whose queries have the same columns as the first span's query."""

    def columns(span: Span) -> list[tuple[str, str]]:
        return [(output.name, output.type) for output in queries[span.query_id].outputs]

    return list(takewhile(lambda span: columns(span) == columns(spans[0]), spans))
