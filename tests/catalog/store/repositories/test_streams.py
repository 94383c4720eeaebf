"""Streams: unique names, ids never reused, tombstones."""

from __future__ import annotations

import pytest

from catalog.errors import NameTaken, StreamInUse, StreamNotFound
from catalog.store.store import Store
from tests.catalog.examples import add_query, stream


def test_a_stream_gets_an_id_and_is_found_by_name_and_id(store: Store) -> None:
    a, b = store.add_stream(stream("A")), store.add_stream(stream("B"))
    assert (a.id, b.id) == (1, 2)
    assert store.streams() == (a, b)
    assert store.stream("A") == a
    assert store.stream_by_id(2) == b


def test_names_are_told_apart_without_their_case(store: Store) -> None:
    a = store.add_stream(stream("Flights"))
    assert store.stream("FLIGHTS") == a
    with pytest.raises(NameTaken, match='stream "flights" exists already'):
        store.add_stream(stream("flights"))
    assert store.streams() == (a,)


def test_an_unknown_name_gets_the_nearest_one_as_a_hint(store: Store) -> None:
    store.add_stream(stream("flights"))
    with pytest.raises(StreamNotFound, match='stream "flihgts" does not exist') as caught:
        store.stream("flihgts")
    assert caught.value.hint == 'Did you mean "flights"?'
    with pytest.raises(StreamNotFound) as caught:
        store.stream("weather")
    assert caught.value.hint is None


def test_a_removed_stream_leaves_a_tombstone_and_its_name_but_not_its_id(store: Store) -> None:
    old = store.add_stream(stream("A"))
    assert store.remove_stream("A") == old
    assert store.streams() == ()
    with pytest.raises(StreamNotFound):
        store.stream("A")
    with pytest.raises(StreamNotFound):
        store.remove_stream("A")
    assert store.stream_by_id(old.id) == old

    new = store.add_stream(stream("A"))
    assert new.id == old.id + 1
    assert store.stream("A") == new
    assert store.stream_by_id(old.id) == old


def test_a_stream_stays_while_running_queries_use_it(store: Store) -> None:
    a, b = store.add_stream(stream("A")), store.add_stream(stream("B"))
    add_query(store, "q1", a, b)
    add_query(store, "q2", b, b)
    with pytest.raises(StreamInUse, match='stream "B" is in use') as caught:
        store.remove_stream("B")
    assert caught.value.detail == 'Queries that use it: "q1", "q2".'
    store.remove_query("q1", 2)
    store.remove_stream("A")
    with pytest.raises(StreamInUse):
        store.remove_stream("B")
    assert store.streams() == (b,)


def test_an_id_that_never_was_is_not_found(store: Store) -> None:
    with pytest.raises(StreamNotFound, match="stream 7 does not exist"):
        store.stream_by_id(7)
