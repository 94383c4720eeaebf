"""Streams: unique names, ids never reused, tombstones."""

from __future__ import annotations

import pytest

from catalog.errors import NameTaken, StreamInUse, StreamNotFound
from catalog.store.store import Store
from tests.catalog.examples import add_query, stream


def test_a_stream_gets_an_id_and_is_found_by_name_and_id(store: Store) -> None:
    a, b = store.streams.add(stream("A")), store.streams.add(stream("B"))
    assert (a.id, b.id) == (1, 2)
    assert store.streams.all() == (a, b)
    assert store.streams.get("A") == a
    assert store.streams.by_id(2) == b


def test_names_are_told_apart_without_their_case(store: Store) -> None:
    a = store.streams.add(stream("Flights"))
    assert store.streams.get("FLIGHTS") == a
    with pytest.raises(NameTaken, match='stream "flights" exists already'):
        store.streams.add(stream("flights"))
    assert store.streams.all() == (a,)


def test_an_unknown_name_gets_the_nearest_one_as_a_hint(store: Store) -> None:
    store.streams.add(stream("flights"))
    with pytest.raises(StreamNotFound, match='stream "flihgts" does not exist') as caught:
        store.streams.get("flihgts")
    assert caught.value.hint == 'Did you mean "flights"?'
    with pytest.raises(StreamNotFound) as caught:
        store.streams.get("weather")
    assert caught.value.hint is None


def test_a_removed_stream_leaves_a_tombstone_and_its_name_but_not_its_id(store: Store) -> None:
    old = store.streams.add(stream("A"))
    assert store.streams.remove("A") == old
    assert store.streams.all() == ()
    with pytest.raises(StreamNotFound):
        store.streams.get("A")
    with pytest.raises(StreamNotFound):
        store.streams.remove("A")
    assert store.streams.by_id(old.id) == old

    new = store.streams.add(stream("A"))
    assert new.id == old.id + 1
    assert store.streams.get("A") == new
    assert store.streams.by_id(old.id) == old


def test_a_stream_stays_while_running_queries_use_it(store: Store) -> None:
    a, b = store.streams.add(stream("A")), store.streams.add(stream("B"))
    add_query(store, "q1", a, b)
    add_query(store, "q2", b, b)
    with pytest.raises(StreamInUse, match='stream "B" is in use') as caught:
        store.streams.remove("B")
    assert caught.value.detail == 'Queries that use it: "q1", "q2".'
    store.queries.remove("q1", 2)
    store.streams.remove("A")
    with pytest.raises(StreamInUse):
        store.streams.remove("B")
    assert store.streams.all() == (b,)


def test_an_id_that_never_was_is_not_found(store: Store) -> None:
    with pytest.raises(StreamNotFound, match="stream 7 does not exist"):
        store.streams.by_id(7)
