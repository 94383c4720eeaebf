"""How large rows are between reading and joining, from what a batch left in its manifest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.values.batch import BatchManifest
from catalog.values.counters.family_counters import KeyCounters, SliceCounters
from service.job.admission.packed_bytes import packed_bytes
from tests.catalog.examples import manifest


def gave(slices: list[tuple[str, int, int]], keys: list[tuple[str, int, int]]) -> BatchManifest:
    """A manifest with (side, rows, bytes) of slices and (side, rows, copies) of what came."""
    return replace(
        manifest(0, 1),
        slices=tuple(
            SliceCounters("f", side, i, rows=rows, own_bytes=size)
            for i, (side, rows, size) in enumerate(slices)
        ),
        keys=tuple(KeyCounters("f", side, rows, 1, 1, 1, copies) for side, rows, copies in keys),
    )


def test_rows_are_as_wide_as_those_held_and_a_little_more() -> None:
    found = gave([("a", 10, 100), ("a", 30, 500), ("b", 5, 500)], [("a", 1000, 1000), ("b", 10, 10)])
    assert packed_bytes(found) == pytest.approx(1000 * (15 + 32) + 10 * (100 + 32))


def test_copies_to_several_buckets_count() -> None:
    assert packed_bytes(gave([("a", 10, 100)], [("a", 1000, 3000)])) == 3000 * (10 + 32)


def test_a_side_of_which_nothing_is_held_is_taken_as_wide_as_the_other() -> None:
    assert packed_bytes(gave([("a", 10, 100), ("b", 0, 0)], [("b", 1000, 0)])) == 1000 * (10 + 32)


def test_rows_that_nobody_wants_are_not_sent() -> None:
    assert packed_bytes(gave([("a", 10, 100)], [("a", 0, 0)])) == 0
    assert packed_bytes(gave([], [("a", 0, 0)])) == 0


def test_without_rows_held_nothing_is_known() -> None:
    assert packed_bytes(gave([], [("a", 1000, 1000)])) is None
    assert packed_bytes(gave([("a", 0, 0)], [("a", 1000, 1000)])) is None
