"""Queries of a workspace: their validation, changes and status.

A change is planned, checked and appended to the control log in one transaction; the job reads the change from
the log at the next batch boundary. A caller that stores further data with a change, such as the answer to a
request, does so inside the ``changing`` block, which is part of the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count

from catalog.errors import QueryNotFound
from catalog.store.store import Store
from catalog.values.change import AddQuery, Change
from catalog.values.control import Pull
from catalog.values.query import Backfill, Query
from service.commit.failpoints import reached
from service.errors import NoResultPunctuations
from service.planning.changes import changing, is_any
from service.planning.versions import Versions
from service.statistics.queries.query_status import Outcome, QueryStatus, query_statuses


class _NotMeant(Exception):
    """Rolls back a change that was made only to validate it."""


class WorkspaceQueries:
    """Queries of one workspace.

    Args:
        store: The catalog.
        versions: Plans new versions and appends them to the control log.
        engine_lock: Path of the engine's lock file, for the failpoint after a change.
    """

    def __init__(self, store: Store, versions: Versions, engine_lock: str) -> None:
        self._store = store
        self._versions = versions
        self._engine_lock = engine_lock

    def running(self) -> tuple[Query, ...]:
        """Return the queries that run, by id."""
        return tuple(record.query for record in self._store.queries.running())

    def status(self, name: str) -> QueryStatus:
        """Return the status of the newest query with a name; the query may have been removed.

        Raises:
            QueryNotFound: No query ever had that name.
        """
        return query_statuses(self._store, (self._store.queries.newest(name),))[0]

    def names(self) -> dict[int, str]:
        """Return the names of the queries that run or are paused, by id."""
        return self._store.queries.wanted_names()

    def statuses(self, ids: Collection[int]) -> tuple[QueryStatus, ...]:
        """Return the status of each given query that still exists, by id.

        Args:
            ids: Ids from ``names``, such as one page of thousands of queries.
        """
        return query_statuses(self._store, self._store.queries.by_ids(ids))

    def current(self, statuses: Sequence[QueryStatus]) -> tuple[QueryStatus, ...]:
        """Return the current status of queries whose earlier status is given.

        Args:
            statuses: Earlier statuses of the queries.

        Returns:
            One status per query, in the same order. A query that was updated or deleted in the meantime
            keeps its earlier status.
        """
        records = self._store.queries.by_ids([status.query.id for status in statuses])
        ids = self._store.queries.ids_of_series(record.series for record in records)
        newest = [record for record in records if record.query.id == ids[record.series][-1]]
        found = {status.query.id: status for status in query_statuses(self._store, newest)}
        return tuple(found.get(status.query.id, status) for status in statuses)

    def series(self, name: str) -> int:
        """Return the id of the series of the newest query with a name; results are stored by series.

        Raises:
            QueryNotFound: No query ever had that name.
        """
        return self._store.queries.newest(name).series

    def removed_with(self, series: int) -> int | None:
        """Return the plan version that removed a series, or None while the series runs or is paused.

        Raises:
            QueryNotFound: The series does not exist, or no longer exists.
        """
        ids = self._store.queries.series_ids(series)
        newest = self._store.queries.by_id(ids[-1] if ids else series)
        return None if newest.wanted else newest.removed_version

    def news(self, series: Collection[int], seen: int | None) -> tuple[int, frozenset[int]]:
        """Return which series readers have to look at.

        Args:
            series: Ids of the series.
            seen: Last batch of which the readers know; None for no batch.

        Returns:
            The last batch, or -1 before the first one, and the series that have results in batches after
            ``seen`` or were removed. If ``seen`` is None, all series.
        """
        last = self._store.batches.last()
        newest = -1 if last is None else last
        if seen is None:
            return newest, frozenset(series)
        ids = self._store.queries.ids_of_series(series)
        wanted = self._store.queries.wanted_names().keys()
        found = {each for each, of in ids.items() if not of or of[-1] not in wanted}
        if newest > seen:
            series_of = {query_id: each for each, of in ids.items() for query_id in of}
            counts = self._store.counts.of_queries(series_of, seen + 1)
            found |= {series_of[query_id] for _, query_id, _ in counts}
        return newest, frozenset(found)

    def propagate(self, name: str) -> QueryStatus:
        """Request a query's pending result punctuations; the next batch emits them.

        Returns:
            Status of the query.

        Raises:
            QueryNotFound: No query that runs or is paused has that name.
            NoResultPunctuations: The query does not run, or does not select punctuations.
        """
        with self._store.transaction():
            record = self._store.queries.newest(name)
            if not record.wanted:
                raise QueryNotFound(f'query "{name}" does not exist')
            if not record.running or not record.query.announces:
                raise NoResultPunctuations(
                    f'query "{name}" gives no result punctuations',
                    detail="The query does not select _punctuation."
                    if record.running
                    else "The query is paused.",
                    hint="Select _punctuation." if record.running else "Resume the query first.",
                )
            self._store.control_log.append(pull=Pull(record.query.id, record.query.a.stream_id))
            return query_statuses(self._store, (record,))[0]

    def validate(
        self, cql: str, *, backfill: Backfill = "none", readable: Callable[[str], bool] = is_any
    ) -> Query:
        """Return a query as it would be added, and add nothing.

        The query is parsed, planned and run on a synthetic row exactly as when it is added, so the errors are
        the same.

        Raises:
            InvalidInput: The query is invalid.
        """
        name = next(n for i in count() if self._store.queries.find(n := f"validated_{i}") is None)
        found: Query | None = None
        added = AddQuery(name, cql, backfill)
        with suppress(_NotMeant), changing(self._versions, added, readable=readable) as changed:
            found = replace(changed.records[0].query, name="")
            raise _NotMeant
        assert found is not None, "the block runs, or an error leaves it"
        return found

    def add(self, name: str, cql: str, *, backfill: Backfill = "none", actor: str = "service") -> QueryStatus:
        """Add a query to the shared plan; raises the errors of ``changing``."""
        with self.changing(AddQuery(name, cql, backfill), actor=actor) as outcome:
            return outcome.statuses[0]

    @contextmanager
    def changing(
        self,
        changes: Change | Sequence[Change],
        *,
        actor: str = "service",
        if_match: int | None = None,
        readable: Callable[[str], bool] = is_any,
    ) -> Iterator[Outcome]:
        """Make all changes in one plan version, or none, in a transaction that includes the block.

        A change that is already in effect succeeds.

        Args:
            changes: One change; or a list with at most one change per query, in any order.
            actor: Author of the changes, for the history.
            if_match: Plan version that must be the newest one; None accepts any.
            readable: Returns whether new texts may use the stream of a name.

        Raises:
            StalePlanVersion: The newest plan is not ``if_match``.
            QueryNotFound: No query that runs or is paused has that name.
            NameTaken: A query to be added has the name of another query.
            InvalidInput: A query text, or another part of a change, is invalid.
            InvalidChanges: Several changes of the list are invalid; if only one is, its own error is raised,
                with its ``path``.
        """
        with changing(self._versions, changes, actor=actor, if_match=if_match, readable=readable) as changed:
            statuses = query_statuses(self._store, changed.records)
            yield Outcome(changed.version, statuses, changed.effective)
        reached("after-change", changed.version, self._engine_lock)
