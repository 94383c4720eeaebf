"""Queries of a workspace: the status of those that were changed a while ago."""

from __future__ import annotations

from catalog.values.change import AddQuery, RemoveQuery, UpdateQuery
from service.statistics.queries.query_status import QueryStatus
from tests.api.without_engine import CQL, Service
from tests.statements import statements


def added(service: Service, *names: str) -> tuple[QueryStatus, ...]:
    """Add queries in one change."""
    changes = [AddQuery(name, CQL) for name in names]
    with service.workspace.queries.changing(changes) as outcome:
        return outcome.statuses


def test_the_current_status_of_many_queries_takes_as_many_statements_as_that_of_few(service: Service) -> None:
    few, many = added(service, "q1", "q2"), added(service, *(f"q{n}" for n in range(10, 60)))
    taken = []
    for statuses in (few, many):
        with statements() as found:
            assert service.workspace.queries.current(statuses) == statuses
        taken.append(len(found))
    assert taken[0] == taken[1]


def test_only_a_query_that_was_replaced_meanwhile_keeps_its_status(
    service: Service,
) -> None:
    queries = service.workspace.queries
    before = added(service, "same", "updated", "removed")
    with queries.changing(UpdateQuery("updated", CQL.replace("10 SECONDS", "20 SECONDS"))):
        pass
    with queries.changing(RemoveQuery("removed")) as outcome:
        removed = outcome.statuses[0]
    same, updated, gone = queries.current(before)
    assert (same, updated) == before[:2]
    assert gone == removed != before[2]
    assert queries.current(before[::-1]) == (gone, updated, same), "in the order given"
