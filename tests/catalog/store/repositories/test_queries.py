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
    return store.streams.add(stream("A")), store.streams.add(stream("B"))


def test_a_query_is_found_by_name_and_id(store: Store, sides: tuple[Stream, Stream]) -> None:
    record = add_query(store, "q1", *sides)
    assert record.query.id == 1
    assert record.running
    assert store.queries.get("Q1") == record
    assert store.queries.by_id(1) == record
    assert store.queries.running() == (record,)


def test_a_name_is_taken_while_the_query_runs(store: Store, sides: tuple[Stream, Stream]) -> None:
    first = add_query(store, "q1", *sides)
    with pytest.raises(NameTaken, match='query "Q1" exists already'):
        add_query(store, "Q1", *sides)
    removed = store.queries.remove("q1", 2)
    assert (removed.query, removed.removed_version, removed.running) == (first.query, 2, False)
    assert removed.removed_at_us is not None
    assert removed.removed_at_us > removed.created_at_us
    second = add_query(store, "q1", *sides, version=3)
    assert second.query.id > first.query.id
    assert store.queries.running() == (second,)
    assert store.queries.all() == (removed, second)
    assert store.queries.newest("q1") == second


def test_a_look_at_the_running_queries_decodes_only_those_that_are_new(
    store: Store, sides: tuple[Stream, Stream]
) -> None:
    add_query(store, "q1", *sides)
    (first,) = store.queries.running()
    add_query(store, "q2", *sides)
    again, _ = store.queries.running()
    assert again is first
    assert store.queries.get("q1") is first
    store.queries.remove("q1", 2)
    assert [record.query.name for record in store.queries.running()] == ["q2"]
    assert store.queries.by_id(first.query.id).removed_version == 2


def test_an_added_query_is_known_without_decoding_it(
    store: Store, sides: tuple[Stream, Stream], url: str
) -> None:
    one = add_query(store, "q1", *sides)
    lacking = query("q2", *sides, store.queries.reserve_ids(1)[0])
    other = store.queries.add(lacking, 1, missing=("v",))
    found = store.queries.running()
    assert found[0] is one
    assert found[1] is other
    with Store.open(url, migrate=False) as reader:
        assert reader.queries.running() == found


def test_a_removed_query_is_found_by_id_and_as_the_newest_of_its_name(
    store: Store, sides: tuple[Stream, Stream]
) -> None:
    add_query(store, "q1", *sides)
    removed = store.queries.remove("q1", 2)
    assert store.queries.by_id(removed.query.id) == removed
    assert store.queries.newest("q1") == removed
    for look in (store.queries.get, lambda name: store.queries.remove(name, 3)):
        with pytest.raises(QueryNotFound, match='query "q1" does not exist'):
            look("q1")


def test_an_unknown_name_gets_the_nearest_one_as_a_hint(store: Store, sides: tuple[Stream, Stream]) -> None:
    add_query(store, "gusts_10m", *sides)
    with pytest.raises(QueryNotFound) as caught:
        store.queries.get("gust_10m")
    assert caught.value.hint == 'Did you mean "gusts_10m"?'


def test_an_id_is_reserved_before_use_and_used_once(store: Store, sides: tuple[Stream, Stream]) -> None:
    for unreserved in (0, 1):
        with pytest.raises(InvariantBroken, match="was not reserved"):
            store.queries.add(query("q1", *sides, query_id=unreserved), 1)
    reserved = store.queries.reserve_ids(1)[0]
    store.queries.add(query("q1", *sides, query_id=reserved), 1)
    with pytest.raises(InvariantBroken):
        store.queries.add(query("q2", *sides, query_id=reserved), 1)
    assert [r.query.name for r in store.queries.running()] == ["q1"]
