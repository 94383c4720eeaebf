"""Queries: reserved ids, unique names among those that run, removed ones kept."""

from __future__ import annotations

import pytest

from catalog.errors import InvariantBroken, NameTaken, QueryNotFound
from catalog.store.store import Store
from catalog.values.stream import Stream
from tests.catalog.examples import add_query, query, stream


@pytest.fixture
def sides(store: Store) -> tuple[Stream, Stream]:
    """Two registered streams."""
    return store.add_stream(stream("A")), store.add_stream(stream("B"))


def test_a_query_is_found_by_name_and_id(store: Store, sides: tuple[Stream, Stream]) -> None:
    record = add_query(store, "q1", *sides)
    assert record.query.id == 1
    assert record.running
    assert store.query("Q1") == record
    assert store.query_by_id(1) == record
    assert store.queries() == (record,)


def test_a_name_is_taken_while_the_query_runs(store: Store, sides: tuple[Stream, Stream]) -> None:
    first = add_query(store, "q1", *sides)
    with pytest.raises(NameTaken, match='query "Q1" exists already'):
        add_query(store, "Q1", *sides)
    removed = store.remove_query("q1", 2)
    assert (removed.query, removed.removed_version, removed.running) == (first.query, 2, False)
    assert removed.removed_at_us is not None
    assert removed.removed_at_us > removed.created_at_us
    second = add_query(store, "q1", *sides, version=3)
    assert second.query.id > first.query.id
    assert store.queries() == (second,)
    assert store.all_queries() == (removed, second)
    assert store.newest_query("q1") == second


def test_a_look_at_the_running_queries_decodes_only_those_that_are_new(
    store: Store, sides: tuple[Stream, Stream]
) -> None:
    add_query(store, "q1", *sides)
    (first,) = store.queries()
    add_query(store, "q2", *sides)
    again, _ = store.queries()
    assert again is first
    assert store.query("q1") is first
    store.remove_query("q1", 2)
    assert [record.query.name for record in store.queries()] == ["q2"]
    assert store.query_by_id(first.query.id).removed_version == 2


def test_a_removed_query_is_found_by_id_and_as_the_newest_of_its_name(
    store: Store, sides: tuple[Stream, Stream]
) -> None:
    add_query(store, "q1", *sides)
    removed = store.remove_query("q1", 2)
    assert store.query_by_id(removed.query.id) == removed
    assert store.newest_query("q1") == removed
    for look in (store.query, lambda name: store.remove_query(name, 3)):
        with pytest.raises(QueryNotFound, match='query "q1" does not exist'):
            look("q1")


def test_an_unknown_name_gets_the_nearest_one_as_a_hint(store: Store, sides: tuple[Stream, Stream]) -> None:
    add_query(store, "gusts_10m", *sides)
    with pytest.raises(QueryNotFound) as caught:
        store.query("gust_10m")
    assert caught.value.hint == 'Did you mean "gusts_10m"?'


def test_an_id_is_reserved_before_use_and_used_once(store: Store, sides: tuple[Stream, Stream]) -> None:
    for unreserved in (0, 1):
        with pytest.raises(InvariantBroken, match="was not reserved"):
            store.add_query(query("q1", *sides, query_id=unreserved), 1)
    reserved = store.reserve_query_id()
    store.add_query(query("q1", *sides, query_id=reserved), 1)
    with pytest.raises(InvariantBroken):
        store.add_query(query("q2", *sides, query_id=reserved), 1)
    assert [r.query.name for r in store.queries()] == ["q1"]
