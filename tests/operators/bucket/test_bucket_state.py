from __future__ import annotations

import json

import pytest

from operators.bucket.bucket import Bucket
from operators.bucket.state.load_bucket import load_bucket
from operators.bucket.state.manifest import (
    decode_plan,
    dropped_ids,
    encode_manifest,
    encode_plan,
    exchange_ids,
    segment_ids,
    stored_plan_version,
)
from operators.bucket.state.store_segments import SegmentIds, store_segments
from operators.errors import UnknownStateFormat
from operators.segments.segment import Segment
from tests.builders import a_query
from tests.operators.harness import Runner
from tests.operators.queries import Row, a_table
from tests.operators.segment_builders import STREAMS, a_plan


def a_bucket() -> Bucket:
    """A bucket with held terms, watermarks and rows of two versions in two slices."""
    first = a_plan(a_query(1, 5, filter_a='"v" < 5', columns_a=("v",)), a_query(2, 30))
    second = a_plan(a_query(2, 30), a_query(3, 9, columns_a=("v",), backfill="state"), previous=first)
    runner = Runner(STREAMS, slack_us=None)
    rows = [Row(n, 10 * n, {"k": n, "m": None, "v": n, "w": None}) for n in range(3)]
    runner.step({1: a_table(STREAMS[1], rows)}, [first])
    runner.step({2: a_table(STREAMS[2], rows)}, [second])
    return runner.state[0]


def test_a_bucket_is_rebuilt_from_what_was_written() -> None:
    bucket = a_bucket()
    written: dict[str, bytes] = {}
    held = store_segments(bucket, SegmentIds("c0ffee", 2, 1), lambda i, data, _: written.update({i: data}))
    assert held == written.keys() == segment_ids(encode_manifest(bucket))
    assert all(i.startswith("c0ffee.2.1.") for i in held)
    assert bucket.plan is not None
    plan = decode_plan(encode_plan(bucket.plan))
    loaded = load_bucket(encode_manifest(bucket), plan, lambda i: Segment.decode(written[i], i), {})
    assert loaded.plan == bucket.plan
    assert (loaded.terms, loaded.next_batch) == (bucket.terms, 2)
    assert {i: s.watermark for i, s in loaded.streams.items()} == {
        i: s.watermark for i, s in bucket.streams.items()
    }
    assert any(terms for sides in loaded.terms.values() for terms in sides["a"].values())
    for family_id, joins in bucket.families.items():
        for one, other in zip(joins.slices(), loaded.families[family_id].slices(), strict=True):
            assert one[:3] == other[:3]
            for written_segment, read in zip(one[3].segments, other[3].segments, strict=True):
                assert written_segment.rows.equals(read.rows)
    assert encode_manifest(loaded) == encode_manifest(bucket)


def test_a_stored_segment_is_not_written_again() -> None:
    bucket = a_bucket()
    first = store_segments(bucket, SegmentIds("c", 0, 1), lambda *_: None)

    def fail(*_: object) -> None:
        raise AssertionError("written again")

    assert store_segments(bucket, SegmentIds("c", 0, 2), fail) == first


def test_a_new_bucket_has_no_plan() -> None:
    def no_segment(segment_id: str) -> Segment:
        raise KeyError(segment_id)

    empty = load_bucket(None, None, no_segment, {})
    assert (empty.plan, empty.families, empty.next_batch) == (None, {}, 0)
    assert load_bucket(encode_manifest(empty), None, no_segment, {}).plan is None


def test_a_manifest_says_what_its_batch_dropped() -> None:
    manifest = encode_manifest(Bucket(), ["c.0.1.0", "c.0.plan.7"])
    assert dropped_ids(manifest) == ("c.0.1.0", "c.0.plan.7")
    assert segment_ids(manifest) == set()
    assert dropped_ids(encode_manifest(Bucket())) == ()


def test_pairs_on_their_way_are_part_of_the_state() -> None:
    bucket = Bucket(arrived={-(1 << 50): (5, None)}, exchange_files=("c.0.7.exchange",))
    manifest = encode_manifest(bucket)
    assert segment_ids(manifest) == {*exchange_ids(manifest)} == {"c.0.7.exchange"}
    loaded = load_bucket(manifest, None, lambda i: Segment.decode(b""), {})
    assert (loaded.arrived, loaded.exchange_files) == (bucket.arrived, bucket.exchange_files)
    # Versions without exchanges would lose these pairs, so they must not read the state.
    assert json.loads(manifest)["format"] > json.loads(encode_manifest(Bucket()))["format"]


@pytest.mark.parametrize("other", [4, 99])
def test_state_of_another_format_is_refused(other: int) -> None:
    manifest = json.dumps(json.loads(encode_manifest(Bucket())) | {"format": other}).encode()
    message = f"has format {other}, this version reads 5 to 10"
    with pytest.raises(UnknownStateFormat, match=message):
        load_bucket(manifest, None, lambda i: Segment.decode(b""), {})
    # The plan that was stored beside it need not be readable: so one asks for its version first.
    with pytest.raises(UnknownStateFormat, match=message):
        stored_plan_version(manifest)
    for ids in (segment_ids, dropped_ids):
        with pytest.raises(UnknownStateFormat, match=message):
            ids(manifest)
