"""Buckets that are hashed again between batches: results are those of nested loops."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import InvariantBroken
from operators.bucket.bucket import Bucket, StreamState
from operators.bucket.watermark import Watermark
from operators.rehash.rehash import rehashed, rows_by_slice
from operators.steps.exchange import decode_exchange, encode_exchange, rehashed_exchange
from tests.examples import examples
from tests.operators.backfill_chains import backfill_chains
from tests.operators.cases import SETTINGS, Case, cases, check
from tests.operators.harness import Runner
from tests.operators.oracle import NestedLoops
from tests.operators.test_horizons import cases_with_horizons

#: Numbers of buckets after one batch and the next, 0 for those that there are.
NUMBERS = st.lists(st.sampled_from((0, 1, 2, 3, 8)), min_size=1, max_size=4)


def horizons_of(bucket: Bucket) -> frozenset[tuple[int, int | None]]:
    """Return the horizon of each stream."""
    return frozenset((stream_id, stream.horizon_us) for stream_id, stream in bucket.streams.items())


def moving(numbers: list[int]) -> Callable[[Runner, NestedLoops | None], None]:
    """Return what hashes the buckets of a runner again after each batch, and stores them."""
    following = cycle(numbers)

    def move(runner: Runner, _oracle: NestedLoops | None) -> None:
        buckets = next(following)
        if not buckets:
            return
        before = rows_by_slice(runner.state)
        (horizons,) = {horizons_of(bucket) for bucket in runner.state}
        state = [rehashed(runner.state, number, buckets) for number in range(buckets)]
        assert rows_by_slice(state) == before
        assert {horizons_of(bucket) for bucket in state} == {horizons}
        runner.buckets, runner.segments = buckets, [{} for _ in range(buckets)]
        sent = [decode_exchange(pa.py_buffer(data)) for data in runner.sent]
        runner.sent = [encode_exchange(rehashed_exchange(parts, buckets)) for parts in sent]
        if runner.stored:
            runner.batch -= 1  # the batch that is over names the segments
            state = [runner._reloaded(number, bucket) for number, bucket in enumerate(state)]
            runner.batch += 1
        runner.state = state

    return move


@settings(SETTINGS, max_examples=examples(90, short=11))
@given(cases(activations=True), NUMBERS)
def test_results_are_those_of_nested_loops_in_mid_stream(case: Case, numbers: list[int]) -> None:
    check(case, moving(numbers))


@settings(SETTINGS, max_examples=examples(40, short=5))
@given(cases(activations=True, absence=True), NUMBERS)
def test_rows_that_wait_for_a_partner_are_judged_after_a_move(case: Case, numbers: list[int]) -> None:
    check(case, moving(numbers))


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(backfill_chains(), NUMBERS)
def test_held_rows_are_handed_on_after_a_move(case: Case, numbers: list[int]) -> None:
    check(case, moving(numbers))


@settings(SETTINGS, max_examples=examples(30, short=5))
@given(cases_with_horizons(), NUMBERS)
def test_horizons_stay_after_a_move(case: Case, numbers: list[int]) -> None:
    check(case, moving(numbers))


def test_buckets_with_different_horizons_are_refused() -> None:
    old = [
        Bucket(next_batch=3, streams={1: StreamState(Watermark(0), horizon_us=horizon_us)})
        for horizon_us in (5, None)
    ]
    with pytest.raises(InvariantBroken, match="differ in plan"):
        rehashed(old, 0, 2)


def test_buckets_of_different_batches_are_refused() -> None:
    with pytest.raises(InvariantBroken, match="differ in plan"):
        rehashed([Bucket(next_batch=3), Bucket(next_batch=4)], 0, 2)
    with pytest.raises(InvariantBroken, match="no old bucket"):
        rehashed([], 0, 2)
