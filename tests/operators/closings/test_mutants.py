"""Mutants of the rules of closed keys: for each wrong rule, the test of that rule fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest

from operators.bucket import closing, finishing
from operators.bucket.closing import BatchClosings
from operators.closings.closed_keys import ClosedKeys
from operators.closings.closing_rows import matching
from operators.finishing.waiting_keys import WaitingKeys
from operators.kernels.keys import Bools, Int64s
from operators.segments.layout import SideLayout
from operators.segments.segment import Segment
from tests.operators import test_result_punctuations as results
from tests.operators.closings import test_rules as rules

Watermarks = Mapping[str, int | None]
Mutant = Callable[[pytest.MonkeyPatch], None]


def the_last_row_by_arrival(patch: pytest.MonkeyPatch) -> None:
    """T_last is the event time of the row that came last."""

    def take_last(newest: Int64s, places: tuple[Int64s, Int64s], ts: Int64s) -> None:
        newest[places] = ts

    patch.setattr(finishing, "raise_to_newest", take_last)


def finished_by_the_own_watermark(patch: pytest.MonkeyPatch) -> None:
    """A key is finished when the watermark of the stream that closed it has passed T_last by the window."""
    finish = WaitingKeys.finish

    def by_own(waiting: WaitingKeys, watermarks: Watermarks, *, together: bool = False) -> pa.Table | None:
        return finish(waiting, {"a": watermarks["b"], "b": watermarks["a"]}, together=together)

    patch.setattr(WaitingKeys, "finish", by_own)


def forgotten_by_the_other_watermark(patch: pytest.MonkeyPatch) -> None:
    """A closing is forgotten by the watermark of the other stream."""

    def by_other(_: BatchClosings, side: str, watermarks: Watermarks) -> int | None:
        return watermarks["b" if side == "a" else "a"]

    patch.setattr(BatchClosings, "_forgotten_until", by_other)


def forgotten_at_once(patch: pytest.MonkeyPatch) -> None:
    """Closings are forgotten at the end of the batch after their own."""

    def forget(closed: ClosedKeys, watermark_us: int | None) -> None:
        closed.segments = []

    patch.setattr(ClosedKeys, "forget", forget)


def discarded_by_the_batch_itself(patch: pytest.MonkeyPatch) -> None:
    """Rows are not stored if the batch itself closes their key."""
    resting = BatchClosings.resting

    def without_closed(
        closings: BatchClosings, side: str, came: Segment, females: Segment | None
    ) -> Segment | None:
        stored = resting(closings, side, came, females)
        arrived = closings.arrived.get("b" if side == "a" else "a")
        if stored is None or arrived is None:
            return stored
        return stored.filter(~matching(stored, closings.joins.family.layouts[side], arrived))

    patch.setattr(BatchClosings, "resting", without_closed)


def anywhere_in_the_batch(patch: pytest.MonkeyPatch) -> None:
    """A row breaks a promise of its batch wherever it stands."""

    def wherever(rows: Segment, own: SideLayout, closings: pa.RecordBatch, *, behind: bool = False) -> Bools:
        return matching(rows, own, closings)

    patch.setattr(closing, "matching", wherever)


MUTANTS: Mapping[Mutant, Callable[[], None]] = {
    the_last_row_by_arrival: results.test_a_key_is_finished_by_the_newest_event_time_of_its_rows,
    finished_by_the_own_watermark: results.test_a_key_is_finished_by_the_watermark_of_the_other_stream,
    forgotten_by_the_other_watermark: (
        rules.test_a_closing_is_forgotten_by_the_watermark_of_its_own_stream_alone
    ),
    forgotten_at_once: rules.test_a_value_that_returns_once_no_window_reaches_back_is_new,
    discarded_by_the_batch_itself: (
        rules.test_rows_of_the_other_side_meet_all_rows_of_the_batch_that_closes_their_key
    ),
    anywhere_in_the_batch: (
        rules.test_a_row_behind_a_punctuation_of_its_batch_breaks_the_promise_and_one_before_it_does_not
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_test_of_a_rule_fails_for_the_wrong_rule(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant]()
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        MUTANTS[mutant]()
