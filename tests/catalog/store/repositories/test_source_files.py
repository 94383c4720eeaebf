"""Listed inputs: positions without gaps, each path once, verdicts that can be revised."""

from __future__ import annotations

import dataclasses

import pytest

from catalog.errors import InputNotFound, InvariantBroken
from catalog.store.store import Store
from catalog.values.source_file import LeftOut
from tests.catalog.examples import listed, stream


def test_files_are_numbered_per_stream_in_order(store: Store) -> None:
    a, b = store.streams.add(stream("A")).id, store.streams.add(stream("B")).id
    first = store.source_files.append(a, [listed("/a/1"), listed("/a/2")])
    more = store.source_files.append(a, [listed("/a/3")])
    other = store.source_files.append(b, [listed("/a/1")])
    assert [f.position for f in first + more] == [0, 1, 2]
    assert [f.position for f in other] == [0]
    assert store.source_files.page(a, 0, 10) == first + more
    assert store.source_files.page(a, 1, 1) == (first[1],)
    assert store.source_files.page(a, 3, 10) == ()
    assert (store.source_files.count(a), store.source_files.count(b), store.source_files.count(99)) == (
        3,
        1,
        0,
    )
    assert store.source_files.paths(a) == {"/a/1", "/a/2", "/a/3"}


def test_nothing_found_is_nothing_listed(store: Store) -> None:
    a = store.streams.add(stream("A")).id
    assert store.source_files.append(a, []) == ()
    assert store.source_files.count(a) == 0


def test_a_path_is_listed_once_and_the_whole_call_fails(store: Store) -> None:
    a = store.streams.add(stream("A")).id
    store.source_files.append(a, [listed("/a/1")])
    with pytest.raises(InvariantBroken):
        store.source_files.append(a, [listed("/a/2"), listed("/a/1")])
    with store.transaction():
        with pytest.raises(InvariantBroken):
            store.source_files.append(a, [listed("/a/2"), listed("/a/1")])
        store.source_files.append(a, [listed("/a/3")])
    assert [f.path for f in store.source_files.page(a)] == ["/a/1", "/a/3"]


def test_a_verdict_is_a_recorded_decision(store: Store) -> None:
    a = store.streams.add(stream("A")).id
    (good, bad) = store.source_files.append(
        a,
        [listed("/a/1"), dataclasses.replace(listed("/a/2"), verdict="set-aside", reason="no footer")],
    )
    assert store.source_files.set_aside(a) == (bad,)
    store.source_files.set_verdict(a, good.position, "set-aside", "body is corrupt")
    assert [(f.position, f.reason) for f in store.source_files.set_aside(a)] == [
        (0, "body is corrupt"),
        (1, "no footer"),
    ]
    with pytest.raises(InputNotFound, match="input 7 of stream 1 does not exist"):
        store.source_files.set_verdict(a, 7, "ok", None)


def test_a_stream_must_exist(store: Store) -> None:
    with pytest.raises(InvariantBroken):
        store.source_files.append(5, [listed("/a/1")])


BAD = dataclasses.replace(listed("/a/2"), rows=0, verdict="set-aside", reason="no footer")


def test_a_file_that_was_corrected_gets_a_new_position_and_leaves_the_old_one_set_aside(store: Store) -> None:
    a = store.streams.add(stream("A")).id
    store.source_files.append(a, [listed("/a/1"), BAD, listed("/a/3")])
    assert store.source_files.to_retry(a) == ()
    (asked,) = store.source_files.retry(a)
    assert store.source_files.to_retry(a) == (asked,)
    store.source_files.judged_again(a, asked, dataclasses.replace(listed("/a/2"), position=0, size=9))
    assert store.source_files.to_retry(a) == store.source_files.set_aside(a) == ()
    found = [(f.position, f.path, f.verdict) for f in store.source_files.page(a)]
    assert found == [(0, "/a/1", "ok"), (1, "/a/2", "set-aside"), (2, "/a/3", "ok"), (3, "/a/2", "ok")]
    assert store.source_files.left_out() == ()
    # The file may be bad again, and be corrected again.
    store.source_files.set_verdict(a, 3, "set-aside", "body is corrupt")
    (again,) = store.source_files.retry(a)
    store.source_files.judged_again(a, again, listed("/a/2"))
    assert [f.position for f in store.source_files.page(a) if f.verdict == "ok"] == [0, 2, 4]
    with pytest.raises(InputNotFound):
        store.source_files.judged_again(a, again, listed("/a/2"))


def test_a_file_that_is_still_bad_keeps_its_position_and_has_the_new_reason(store: Store) -> None:
    a = store.streams.add(stream("A")).id
    store.source_files.append(a, [BAD])
    (asked,) = store.source_files.retry(a)
    store.source_files.judged_again(a, asked, dataclasses.replace(BAD, size=7, reason="no row"))
    (found,) = store.source_files.set_aside(a)
    assert (found.position, found.size, found.reason) == (0, 7, "no row")
    assert store.source_files.to_retry(a) == ()


def test_what_is_left_out_is_counted_by_stream(store: Store) -> None:
    a, b = store.streams.add(stream("A")).id, store.streams.add(stream("B")).id
    skipping = dataclasses.replace(listed("/a/1"), skipped=3)
    store.source_files.append(a, [skipping, BAD, dataclasses.replace(BAD, path="/a/4")])
    store.source_files.append(b, [listed("/b/1")])
    assert store.source_files.left_out() == (LeftOut(a, files=2, rows=3),)
    assert [f.path for f in store.source_files.with_skipped_rows(a)] == ["/a/1"]


def test_a_file_that_stopped_the_job_keeps_its_position_once_it_is_corrected(store: Store) -> None:
    a = store.streams.add(stream("A")).id
    store.source_files.append(a, [dataclasses.replace(BAD, verdict="stops"), listed("/a/3")])
    (asked,) = store.source_files.retry(a)
    store.source_files.judged_again(a, asked, dataclasses.replace(listed("/a/2"), size=9))
    found = [(f.position, f.path, f.size, f.verdict, f.reason) for f in store.source_files.page(a)]
    assert found == [(0, "/a/2", 9, "ok", None), (1, "/a/3", 1234, "ok", None)]
