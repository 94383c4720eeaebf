"""Views are the segments that they are named after, however they came about and from whatever they are read.

Hypothesis draws histories of two slices: rows are chosen, cut, copied, merged, learn and forget filters, and
now and then everything is stored, mostly by a batch with a migration.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.bucket.bucket import Bucket
from operators.bucket.counters import slice_table
from operators.bucket.state.load_bucket import load_bucket
from operators.bucket.state.manifest import encode_manifest, segment_ids
from operators.bucket.state.store_segments import MOST_STEPS, SegmentIds, store_segments
from operators.cache.segment_cache import SegmentCache
from operators.errors import CorruptSegment
from operators.segments.encoding.view_names import KEPT, steps, stored_id
from operators.segments.merge import concat, mergeable
from operators.segments.segment import ArrivedFile, Segment
from operators.slices.sliced_join import SliceState
from tests.builders import a_query
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.reloaded import check_reloaded
from tests.operators.segment_builders import a_plan, a_segment, read_segment, segment_reader


class Stored:
    """A bucket of one join with two slices, and the values stored of it."""

    def __init__(self) -> None:
        self.bucket = Bucket()
        self.bucket.activate(a_plan(a_query(1, 10), a_query(2, 50)))
        self.values: dict[str, bytes] = {}
        self.batch = 0
        self.cache = SegmentCache(3_000)

    @property
    def slices(self) -> list[SliceState]:
        (joins,) = self.bucket.families.values()
        return [state for _, _, _, state in joins.slices()]

    @property
    def segments(self) -> list[Segment]:
        return [segment for state in self.slices for segment in state.segments]

    def store(self, *, migrates: bool = True) -> set[str]:
        """Store everything and check what was stored; return the ids of what was written."""
        self.bucket.plan_changed = migrates
        written: set[str] = set()

        def put(stored: str, data: bytes | ArrivedFile, segment: Segment | None) -> None:
            assert stored not in self.values
            assert isinstance(data, bytes), "nothing here came in a file"
            assert segment is None or segment.encode() == data
            self.values[stored] = data
            written.add(stored)

        held = store_segments(self.bucket, SegmentIds("c", 0, self.batch), put)
        manifest = encode_manifest(self.bucket)
        assert segment_ids(manifest) == held
        assert written <= held
        self.values = {stored: self.values[stored] for stored in sorted(held)}
        self.batch += 1
        # With nothing at hand, and through a cache that has room for some of it.
        for load in (
            lambda i: read_segment(i, self.values.__getitem__),
            lambda i: self.cache.get(i, self.values.__getitem__).segment,
        ):
            loaded = load_bucket(
                manifest, self.bucket.plan, load, {}, segment_reader(self.values.__getitem__)
            )
            check_reloaded(self.bucket, loaded, self.values)
        self.cache.retain("c.0.", {segment.id for segment in self.segments}, held)
        return written


def rows(first: int, number: int, epochs: Sequence[int] = ()) -> Segment:
    """Return a segment with as many rows, whose event times are their positions."""
    numbers = range(first, first + number)
    return a_segment(
        [(n % 5, n) for n in sorted(numbers, key=lambda n: (n % 5, n))],
        first_pos=first,
        epochs=epochs,
        bits={4: [n % 2 == 0 for n in numbers], 9: [n % 3 == 0 for n in numbers]},
        columns={"v": pa.array([float(n) for n in numbers]), "s": pa.array([None, *["ä"] * (number - 1)])},
    )


def chosen(segment: Segment, seed: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Choose rows: from all of them to few."""
    return np.random.default_rng(seed).random(len(segment)) < (1.0, 0.9, 0.6, 0.1)[seed % 4]


#: The likelier ones come twice.
KINDS = (
    *("fresh", "choose", "copy", "copy", "cut", "bit", "bit"),
    *("slim", "merge", "drop", "store", "store", "write"),
)
_steps = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 99),
        st.integers(0, 99),
    ),
    max_size=25,
)


@settings(SETTINGS, max_examples=examples(300))
@given(_steps)
def test_what_is_read_is_what_is_held(history: list[tuple[str, int, int]]) -> None:
    stored = Stored()
    stored.slices[0].segments += [rows(0, 40), rows(40, 30, [1, 2, 3] * 10)]
    stored.store(migrates=False)
    known = 10
    for kind, which, seed in history:
        state = stored.slices[which % 2]
        segments = state.segments
        if kind in ("store", "write"):
            stored.store(migrates=kind == "store")
            continue
        if kind == "fresh":
            segments.append(rows(1_000 + 50 * known, 1 + seed % 20))
            known += 1
        if not segments:
            continue
        place = which // 2 % len(segments)
        segment = segments[place]
        made = segment
        if kind in ("choose", "copy"):
            made = segment.filter(chosen(segment, seed))
        elif kind == "cut":
            middle = segment.t_min + seed * (segment.t_max - segment.t_min + 1) // 100
            made = segment.cut(segment.t_min, middle) if seed % 2 else segment.cut(middle, segment.t_max + 1)
        elif kind == "bit":
            known += 1
            made = segment.with_bit(known, chosen(segment, seed))
        elif kind == "slim":
            made = segment.knowing(segment.filters[seed % 2 :: 2])
        elif kind == "merge" and len(segments) > 1 and mergeable(segments[0], segments[1], ()):
            segments[:2] = [concat(segments[:2], ())]
            continue
        elif kind == "drop":
            del segments[place]
            continue
        if kind == "copy":
            # To both slices: joins have the segment in common.
            stored.slices[1 - which % 2].segments += [made] if len(made) else []
            segments += [made] if len(made) else []
        else:
            segments[place : place + 1] = [made] if len(made) else []
    stored.store()
    assert all(len(steps(s.id)) <= MOST_STEPS + 2 for s in stored.segments)


def test_a_migration_writes_one_patch_for_all_views() -> None:
    stored = Stored()
    whole = rows(0, 40), rows(40, 40)
    stored.slices[0].segments += whole
    stored.store()
    before = sum(map(len, stored.values.values()))
    views = [s.filter(s.has_bit(4)) for s in stored.slices[0].segments]
    stored.slices[1].segments += [*views, *views]
    stored.slices[0].segments = [s.with_bit(20, s.ts > 7) for s in stored.slices[0].segments]
    (patch,) = stored.store()
    assert [s.id.count(KEPT) for s in stored.slices[1].segments] == [1, 1, 1, 1]
    assert len({s.id for s in stored.slices[1].segments}) == 2
    assert sum(map(len, stored.values.values())) == before + len(stored.values[patch])


def test_stored_bytes_go_with_the_last_view() -> None:
    stored = Stored()
    stored.slices[0].segments.append(rows(0, 40))
    (whole,) = stored.store()
    (segment,) = stored.slices[0].segments
    stored.slices[0].segments = [segment.filter(segment.ts < 30)]
    (patch,) = stored.store()
    assert stored.values.keys() == {whole, patch}
    (view,) = stored.slices[0].segments
    stored.slices[0].segments = [view.cut(0, 20), view.cut(20, 99)]
    assert stored.store(migrates=False) == set()
    del stored.slices[0].segments[0]
    assert stored.store(migrates=False) == set()
    stored.slices[0].segments.append(concat([stored.slices[0].segments.pop(), rows(50, 3)]))
    (merged,) = stored.store()
    assert stored.values.keys() == {merged}


def test_few_rows_of_a_segment_are_written_anew() -> None:
    """Else its bytes would stay for the sake of these."""
    stored = Stored()
    stored.slices[0].segments.append(rows(0, 40))
    stored.store()
    (segment,) = stored.slices[0].segments
    few = segment.filter(segment.ts < 15)
    # However many joins ask for them.
    stored.slices[0].segments = [few]
    stored.slices[1].segments = [few]
    assert {s.id for s in stored.segments} == {""}
    stored.store()
    assert all(s.id == stored_id(s.id) for s in stored.segments)


def test_a_selection_lets_go_of_what_departed_queries_needed() -> None:
    """Under an unbounded window it would hold on to it forever."""
    stored = Stored()
    stored.slices[0].segments.append(rows(0, 40))
    (whole,) = stored.store()
    (segment,) = stored.segments
    stored.slices[1].segments.append(segment.filter(segment.ts < 15))
    (patch,) = stored.store()
    stored.slices[0].segments.clear()
    assert stored.store(migrates=False) == set()
    assert stored.values.keys() == {whole, patch}
    (written,) = stored.store()
    assert stored.values.keys() == {written}


def test_an_ordinary_batch_writes_what_it_makes() -> None:
    stored = Stored()
    stored.slices[0].segments.append(rows(0, 40))
    stored.store(migrates=False)
    (segment,) = stored.slices[0].segments
    stored.slices[0].segments = [segment.filter(segment.ts < 39)]
    (written,) = stored.store(migrates=False)
    assert stored.segments[0].id == written


def test_a_view_of_too_many_steps_is_written_anew() -> None:
    stored = Stored()
    stored.slices[0].segments.append(rows(0, 400))
    stored.store()
    names = []
    for least in range(MOST_STEPS + 2):
        (segment,) = stored.slices[0].segments
        stored.slices[0].segments = [segment.filter(segment.pos >= least)]
        stored.store()
        names.append(stored.slices[0].segments[0].id)
    assert [len(steps(name)) for name in names] == [*range(1, MOST_STEPS + 1), 0, 1]


def test_a_segment_that_forgot_all_filters_is_written_anew() -> None:
    stored = Stored()
    stored.slices[0].segments.append(rows(0, 40))
    stored.store()
    stored.slices[0].segments = [segment.knowing(()) for segment in stored.slices[0].segments]
    stored.store()
    assert [steps(s.id) for s in stored.segments] == [[]]


@pytest.mark.parametrize("broken", ["patch cut off", "no rows", "of other rows"])
def test_a_view_of_what_is_not_there_is_an_error(broken: str) -> None:
    stored = Stored()
    stored.slices[0].segments.append(rows(0, 40))
    stored.store()
    (segment,) = stored.slices[0].segments
    kept = segment.filter(segment.ts < 30)
    stored.slices[0].segments = [kept.with_bit(20, kept.ts > 20)]
    (patch,) = stored.store()
    (view,) = stored.slices[0].segments
    values = {
        "patch cut off": {patch: stored.values[patch][:-9]},
        "no rows": {stored_id(view.id): b""},
        "of other rows": {stored_id(view.id): rows(0, 41).encode()},
    }[broken]
    read = {**stored.values, **values}.__getitem__
    for load in (lambda: read_segment(view.id, read), lambda: SegmentCache(10_000).get(view.id, read)):
        with pytest.raises(CorruptSegment):
            load()


def test_what_joins_have_in_common_is_written_once_also_where_it_is_no_view() -> None:
    stored = Stored()
    stored.slices[0].segments.append(rows(0, 1_000))
    stored.store(migrates=False)
    (whole,) = stored.slices[0].segments
    few = whole.filter(np.arange(1_000) % 10 == 0)
    for state in stored.slices:
        state.segments[:] = [few]
    assert len(stored.store()) == 1
    assert len({id(segment) for segment in stored.segments}) == 1


def test_the_cache_keeps_what_stands_in_slices_and_nothing_below_it() -> None:
    stored = Stored()
    stored.cache = SegmentCache(1 << 30)
    stored.slices[0].segments.append(rows(0, 1_000))
    stored.store()
    for dropped in (3, 5, 8):
        (segment,) = stored.slices[0].segments
        stored.slices[0].segments[:] = [segment.filter(np.arange(len(segment)) != dropped)]
        stored.store()
        (held,) = stored.segments
        assert steps(held.id), "a view"
        assert stored.cache._entries.keys() == {held.id}


def test_how_wide_rows_are_does_not_depend_on_who_has_them_or_what_is_dead() -> None:
    stored = Stored()
    stored.slices[0].segments.append(rows(0, 1_000))
    stored.store()
    (whole,) = stored.segments

    def widths() -> list[float]:
        return [
            c.own_bytes / c.lying
            for c in slice_table(stored.bucket.families, stored.bucket.clocks).counters()
            if c.lying
        ]

    (width,) = widths()
    stored.slices[0].segments[:] = [whole.cut(900, 1_000)]
    assert widths() == pytest.approx([width], rel=0.01)
    for state in stored.slices:
        state.segments[:] = [whole]
    assert widths() == pytest.approx([width] * len(stored.slices), rel=0.01)
