from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from operators.lineage import lineage
from operators.lineage import lineage as lineage_module
from operators.lineage.entitlement import Term
from operators.lineage.lineage import RowClasses, SideLineage, side_lineage
from operators.segments.segment import Segment
from tests.builders import a_query
from tests.operators.segment_builders import a_family, a_segment

NO_COLUMNS: frozenset[str] = frozenset()


def a_lineage(
    bits: list[int | None],
    *,
    since: list[int] | None = None,
    terms: Mapping[int, tuple[Term, ...]] | None = None,
) -> SideLineage:
    """Lineage of one query per bit; those with terms backfill from the state."""
    family = a_family(*(a_query(n, 10) for n in range(1, len(bits) + 1)))
    queries = tuple(
        replace(q, since_version=version, backfill="state" if terms and q.id in terms else "none")
        for q, version in zip(family.queries, since or [1] * len(bits), strict=True)
    )
    return SideLineage(queries, tuple(bits), terms or {}, (NO_COLUMNS,) * len(bits))


def sets_of(side: SideLineage, segment: Segment, kept: frozenset[str] = NO_COLUMNS) -> list[set[int]]:
    """Return the query ids that each row may serve."""
    classes = side.classify(segment, kept)
    codes = classes.codes.tolist() if classes.codes is not None else [0] * len(segment)
    return [{n + 1 for n in range(len(side.queries)) if classes.masks[c] >> n & 1} for c in codes]


def test_a_row_serves_the_queries_whose_filter_it_passes_and_those_without() -> None:
    segment = a_segment([(1, 0), (1, 0), (1, 0)], bits={0: [True, False, False], 1: [True, True, False]})
    assert sets_of(a_lineage([0, None, 1]), segment) == [{1, 2, 3}, {2, 3}, {2}]


def test_numbers_may_lie_far_apart() -> None:
    segment = a_segment([(1, 0), (1, 0)], bits={0: [True, False], 63: [False, True], 10**12: [True, True]})
    assert len([name for name in segment.rows.schema.names if name.startswith("_l")]) == 1
    assert sets_of(a_lineage([0, 63, 10**12, None]), segment) == [{1, 3, 4}, {2, 3, 4}]


def test_each_segment_has_its_own_places() -> None:
    side = a_lineage([7, 90])
    assert sets_of(side, a_segment([(1, 0)], bits={7: [True], 90: [False]})) == [{1}]
    assert sets_of(side, a_segment([(1, 0)], bits={90: [False], 7: [True]})) == [{1}]
    # A filter that has gone stood where another one stands in younger rows.
    assert sets_of(side, a_segment([(1, 0)], bits={3: [True], 90: [True]})) == [{2}]
    assert side.live == {7, 90}


def test_a_hundred_filters_keep_their_own_answers() -> None:
    answers = np.random.default_rng(1).random((100, 40)) < 0.5
    segment = a_segment([(1, 0)] * 40, bits={bit: answers[bit].tolist() for bit in range(100)})
    expected = [{bit + 1 for bit in range(100) if answers[bit, row]} for row in range(40)]
    assert sets_of(a_lineage(list(range(100))), segment) == expected


def test_very_many_classes_are_renumbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "MAX_CLASSES", 3)
    answers = {bit: [False] * 8 for bit in range(129)}
    answers |= {bit: [bool(row >> n & 1) for row in range(8)] for n, bit in enumerate((0, 64, 128))}
    segment = a_segment([(1, 0)] * 8, bits=answers)
    assert sets_of(a_lineage([0, 64, 128]), segment) == [
        {n + 1 for n in range(3) if r >> n & 1} for r in range(8)
    ]


def test_rows_of_very_many_kinds_are_told_apart() -> None:
    answers = np.random.default_rng(2).random((70, 40)) < 0.5
    segment = a_segment(
        [(1, 0)] * 40,
        bits={bit: answers[bit].tolist() for bit in range(70)},
        epochs=[1 + row % 3 for row in range(40)],
    )
    side = a_lineage([0, 1, 69], since=[1, 2, 3])
    assert sets_of(side, segment) == [
        {n + 1 for n, bit in enumerate((0, 1, 69)) if answers[bit, row] and 1 + row % 3 > n}
        for row in range(40)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_classes_say_of_every_row_what_the_definition_says(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filters, plan versions, held rows and kept columns at random, also asked again under other versions."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    if seed % 3 == 0:
        monkeypatch.setattr(lineage_module, "MAX_KEPT", 2)
    if seed % 4 == 0:
        monkeypatch.setattr(lineage, "MAX_KINDS", 1)
    segments = [_random_segment(rng) for _ in range(6)]
    for _ in range(4):
        side = _random_lineage(rng)
        for segment in rng.choices(segments, k=8):
            kept = frozenset(rng.sample("uv", rng.randint(0, 2)))
            assert sets_of(side, segment, kept) == [
                {q.id for n, q in enumerate(side.queries) if _serves(side, n, segment, row, kept)}
                for row in range(len(segment))
            ]


def _random_segment(rng: random.Random) -> Segment:
    rows = rng.choice((0, 1, 7, 30))
    known = rng.sample(range(6), rng.randint(0, 6))
    if rng.random() < 0.3:
        known += range(100, 170)
    return a_segment(
        [(row, rng.randint(0, 40)) for row in range(rows)],
        bits={bit: [rng.random() < 0.6 for _ in range(rows)] for bit in known},
        epochs=[rng.randint(1, 6) for _ in range(rows)] if rng.random() < 0.5 else (),
        epoch=rng.randint(1, 6),
    )


def _random_lineage(rng: random.Random) -> SideLineage:
    count = rng.randint(1, 8)
    some = [*range(7), 120]
    held = {
        query_id: tuple(
            Term(
                frozenset(rng.sample(some, rng.choice((0, 0, 1, 2)))),
                rng.randint(0, 4),
                rng.choice((-1, 10, 20, 20, 39, 60)),
                frozenset(rng.sample("uv", rng.choice((0, 0, 1)))),
            )
            for _ in range(rng.randint(0, 3))
        )
        for query_id in range(1, count + 1)
        if rng.random() < 0.6
    }
    bits = [rng.choice([None, *some]) for _ in range(count)]
    side = a_lineage(bits, since=[rng.randint(1, 6) for _ in range(count)], terms=held)
    columns = tuple(frozenset(rng.sample("uv", rng.choice((0, 0, 1)))) for _ in range(count))
    return SideLineage(side.queries, side.bits, side.terms, columns)


def _serves(side: SideLineage, number: int, segment: Segment, row: int, kept: frozenset[str]) -> bool:
    """Return whether a row may serve a query, word by word as the design has it (Activation)."""

    def passes(bit: int) -> bool:
        return bool(segment.has_bit(bit)[row])

    query, bit, epoch = side.queries[number], side.bits[number], int(segment.epochs()[row])
    if bit is not None and not passes(bit):
        return False
    if epoch >= query.since_version:
        return True
    if query.backfill != "state" or not side.columns[number] <= kept:
        return False
    return any(
        epoch >= term.epoch_min
        and segment.ts[row] >= term.t_min_us
        and term.columns <= kept
        and all(passes(bit) for bit in term.bits)
        for term in side.terms[query.id]
    )


def test_a_filter_unknown_to_the_rows_is_not_passed() -> None:
    assert sets_of(a_lineage([None, 5]), a_segment([(1, 0)], bits={0: [True]})) == [{1}]
    assert sets_of(a_lineage([None, 5]), a_segment([(1, 0)])) == [{1}]


def test_rows_from_before_an_activation_serve_only_earlier_queries() -> None:
    assert sets_of(a_lineage([None, None], since=[1, 3]), a_segment([(1, 0)], epoch=2)) == [{1}]
    segment = a_segment([(1, 0), (1, 0)], epochs=[2, 3])
    assert sets_of(a_lineage([None, None], since=[1, 3]), segment) == [{1}, {1, 2}]


def test_held_rows_from_before_an_activation_serve_the_query_too() -> None:
    terms = {2: (Term(frozenset(), 1, 50, NO_COLUMNS),)}
    segment = a_segment([(1, 40), (1, 60)], epoch=1)
    assert sets_of(a_lineage([None, None], since=[1, 3], terms=terms), segment) == [{1}, {1, 2}]


def test_held_rows_still_need_the_filter_and_the_columns() -> None:
    terms = {1: (Term(frozenset(), 1, 0, NO_COLUMNS),)}
    segment = a_segment([(1, 0), (1, 0)], epoch=1, bits={4: [True, False]})
    assert sets_of(a_lineage([4], since=[2], terms=terms), segment) == [{1}, set()]
    wider = SideLineage(a_lineage([4], since=[2], terms=terms).queries, (4,), terms, (frozenset({"v"}),))
    assert sets_of(wider, segment) == [set(), set()]
    assert sets_of(wider, segment, frozenset({"v"})) == [{1}, set()]


def test_classes_tell_which_rows_serve_a_set_of_queries() -> None:
    classes = RowClasses(np.array([0, 1, 1]), (0b01, 0b10))
    assert classes.serving(3, 0b11) is None
    one = classes.serving(3, 0b10)
    assert one is not None
    assert one.tolist() == [False, True, True]
    none = RowClasses(None, (0b01,)).serving(3, 0b10)
    assert none is not None
    assert not none.any()


def test_rows_that_serve_a_query_of_the_other_set_are_left_out() -> None:
    classes = RowClasses(np.array([0, 1, 2]), (0b001, 0b011, 0b100))
    keep = classes.serving(3, 0b001, none_of=0b010)
    assert keep is not None
    assert keep.tolist() == [True, False, False]
    assert classes.serving(3, 0b111, none_of=0b1000) is None


def test_each_side_has_its_own_filters() -> None:
    family = a_family(a_query(1, 10, filter_a='"v" < 5'), a_query(2, 10, filter_b='"v" < 5'))
    assert side_lineage(family, "a", {}).bits == (0, None)
    assert side_lineage(family, "b", {}).bits == (None, 0)
