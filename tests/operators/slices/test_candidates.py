from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from operators.lineage.lineage import RowClasses
from operators.segments.layout import side_layout
from operators.segments.segment import Segment
from operators.slices import candidates
from operators.slices.candidates import Candidates, CandidateSide, Probing, Reach, SegmentRun, find_candidates
from tests.builders import a_query
from tests.operators.segment_builders import STREAMS, a_family, a_segment

ALL = RowClasses(None, (1,))
ANY_TIME = Reach(2**62, 2**62)


def probing(
    slice_number: int, rows: Segment, males: Segment, reaching: Sequence[int] | None = None
) -> Probing:
    if reaching is None:
        return Probing(slice_number, rows, ALL, males.key, males.ts, None)
    index = np.array(reaching, dtype=np.int64)
    return Probing(slice_number, rows, ALL, males.key[index], males.ts[index], index)


def gathered(segments: Sequence[Probing], males: Segment, reach: Reach = ANY_TIME) -> Iterator[Candidates]:
    """Gather candidates; the pairs of equal key of each slice are counted right, however many come out."""
    touched = np.zeros(9, dtype=np.int64)
    yield from find_candidates(segments, males, ALL, reach, touched)
    for number in range(9):
        met = sum(int((p.rows.key[:, None] == p.keys[None, :]).sum()) for p in segments if p.slice == number)
        assert touched[number] == met


def copied(found: Candidates) -> list[tuple[int, int, int, int]]:
    """Return (slice, position of the female, its key, male row) of every candidate, out of the buffers."""
    males = [int(row) for run in found.males.runs for row in run.index]
    females = [
        (number, int(run.rows.pos[row]), int(run.rows.key[row]))
        for number, run in zip(found.slices, found.females.runs, strict=True)
        for row in run.index
    ]
    return [(*female, male) for female, male in zip(females, males, strict=True)]


def pairs(segments: Sequence[Probing], males: Segment) -> list[tuple[int, int, int, int]]:
    return [pair for found in gathered(segments, males) for pair in copied(found)]


def test_every_pair_of_equal_key_is_found() -> None:
    female = a_segment([(-5, 0), (1, 0), (1, 1), (2, 0), (7, 0)])
    males = a_segment([(1, 0), (1, 1), (3, 0), (7, 0), (9, 0)])
    assert pairs([probing(0, female, males)], males) == [
        (0, 1, 1, 0),
        (0, 2, 1, 0),
        (0, 1, 1, 1),
        (0, 2, 1, 1),
        (0, 4, 7, 3),
    ]


def test_pairs_beyond_the_windows_are_not_gathered() -> None:
    female, males = a_segment([(1, 0), (1, 9), (1, 10), (1, 14), (1, 15)]), a_segment([(1, 11)])
    found = gathered([probing(0, female, males)], males, Reach(behind_us=2, ahead_us=4))
    assert [pair for piece in found for pair in copied(piece)] == [(0, 2, 1, 0), (0, 3, 1, 0)]


def test_nothing_or_other_keys_give_nothing() -> None:
    some, none = a_segment([(1, 0)]), a_segment([])
    assert pairs([], some) == pairs([probing(0, none, some)], some) == []
    assert pairs([probing(0, some, none)], none) == []
    other = a_segment([(0, 0), (2, 0)])
    assert pairs([probing(0, some, other)], other) == []


def test_only_males_that_reach_a_slice_probe_it_and_keep_their_row() -> None:
    males = a_segment([(1, 0), (2, 0), (2, 1)])
    near = a_segment([(1, 0), (2, 0)])
    far = a_segment([(1, 9), (2, 9)], first_pos=10)
    assert pairs([probing(0, near, males), probing(1, far, males, [0, 2])], males) == [
        (0, 0, 1, 0),
        (0, 1, 2, 1),
        (0, 1, 2, 2),
        (1, 10, 1, 0),
        (1, 11, 2, 2),
    ]


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 100])
def test_the_same_pairs_come_in_pieces_of_any_size(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(at_once)
    males = a_segment(sorted((choose.randrange(5), n) for n in range(9)))
    segments = [
        probing(
            number,
            a_segment(sorted((choose.randrange(4), n) for n in range(choose.randrange(12)))),
            males,
            None if number < 2 else sorted(choose.sample(range(9), 5)),
        )
        for number in range(5)
    ]
    whole = pairs(segments, males)
    monkeypatch.setattr(candidates, "MAX_PAIRS_AT_ONCE", at_once)
    pieces = [len(copied(found)) for found in gathered(segments, males)]
    assert pairs(segments, males) == whole
    assert len(whole) > 20
    assert max(pieces) <= at_once
    assert min(pieces) > 0


def candidate_side() -> CandidateSide:
    """Three rows of one segment, then two of another: classes 1, 3, 1 and 3, 2."""
    one = a_segment([(1, 5), (2, 6), (3, 7)], columns={"v": pa.array([10, 11, 12], pa.int32())})
    other = a_segment([(1, 8), (4, 9)], first_pos=20)
    return CandidateSide(
        (
            SegmentRun(one, RowClasses(np.array([1, 0, 1]), (3, 1)), np.array([0, 1, 2])),
            SegmentRun(other, RowClasses(np.array([0, 1]), (3, 2)), np.array([0, 1])),
        )
    )


def test_rows_of_several_segments_read_as_one_side() -> None:
    side = candidate_side()
    layout = side_layout(a_family(a_query(1, 10, columns_a=("v",))), "a", STREAMS[1])
    assert side.ts().tolist() == [5, 6, 7, 8, 9]
    assert side.pos().tolist() == [0, 1, 2, 20, 21]
    assert side.read(layout, "v").to_pylist() == [10, 11, 12, None, None]
    assert side.read(layout, "k").to_pylist() == [1, 2, 3, 1, 4]


def test_classes_of_several_segments_share_one_numbering() -> None:
    classes = candidate_side().classes()
    assert classes.codes is not None
    assert [classes.masks[int(code)] for code in classes.codes] == [1, 3, 1, 3, 2]
    assert len(set(classes.masks)) == len(classes.masks)


def test_rows_that_are_not_selected_are_gone_and_empty_runs_too() -> None:
    side = candidate_side().select(np.array([False, True, True, False, False]))
    assert side.pos().tolist() == [1, 2]
    assert len(side.runs) == 1


def test_chosen_candidates_are_counted_by_slice() -> None:
    side = candidate_side()
    found = Candidates(side, side, (0, 4))
    assert list(found.per_slice(np.array([1, 2, 3]))) == [(0, 2), (4, 1)]
    assert list(found.per_slice(np.array([], dtype=np.int64))) == [(0, 0), (4, 0)]


@pytest.mark.parametrize("seed", range(20))
def test_many_keys_of_which_few_meet_are_gathered_as_nested_loops_do(seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    keys = rng.choice([30, 400, 5_000])

    def rows(count: int) -> Segment:
        return a_segment(sorted((rng.randrange(keys), rng.randrange(50)) for _ in range(count)))

    males, females = rows(rng.choice([3, 200])), [rows(rng.choice([1, 40, 300])) for _ in range(3)]
    reaching = [None, sorted(rng.sample(range(len(males)), len(males) // 2)), None]
    segments = [probing(n, female, males, reaching[n]) for n, female in enumerate(females)]
    reach = Reach(rng.randint(1, 60), rng.randint(1, 60))
    expected = [
        (n, int(female.pos[i]), int(female.key[i]), j)
        for n, female in enumerate(females)
        for i in range(len(female))
        for j in reaching[n] or range(len(males))
        if female.key[i] == males.key[j] and -reach.ahead_us < males.ts[j] - female.ts[i] < reach.behind_us
    ]
    found = [pair for piece in gathered(segments, males, reach) for pair in copied(piece)]
    assert sorted(found) == sorted(expected)
