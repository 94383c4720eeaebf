"""Buckets that crash: everything in memory goes, the state store's bytes stay, the batch comes again.

    stored ──> bucket ──process──> output, stored'      an attempt; without a crash stored' is committed
    stored ──> bucket ──process──> output, stored'      the same again, with nothing but the bytes

``job.chain_processor`` does this with Spark's state; here the bytes are kept in dicts. A replay writes
the same ids again, and a worker that lived on has the first attempt's segments in its cache under these ids:
so both attempts must write the same bytes, not merely the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from operators.bucket.batch_output import BatchOutput
from operators.bucket.bucket import Bucket
from operators.bucket.state.load_bucket import load_bucket
from operators.bucket.state.manifest import decode_plan, encode_manifest, encode_plan, segment_ids
from operators.bucket.state.store_segments import SegmentIds, store_segments
from operators.pack.payload import Payload
from operators.segments.segment import ArrivedFile, Segment
from tests.operators.harness import Runner
from tests.operators.reloaded import check_reloaded
from tests.operators.route_totals import route_totals
from tests.operators.segment_builders import read_segment, segment_reader

#: Where the process dies in a batch.
Crash = Literal["never", "before-commit", "after-commit"]


@dataclass(frozen=True)
class Stored:
    """A bucket's state as the store has it after a batch."""

    manifest: bytes | None = None
    plan: bytes | None = None
    segments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass
class DurableRunner(Runner):
    """A runner whose process dies in a batch if ``crash`` says so."""

    crash: Crash = "never"
    committed: list[Stored] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.committed = [Stored() for _ in range(self.buckets)]

    def processed(self, payloads: Sequence[list[Payload]]) -> list[BatchOutput]:
        outputs = []
        for number, given in enumerate(payloads):
            before = self.committed[number]
            output, after = self._attempt(self.state[number], given, number, before)
            if self.crash == "before-commit":
                # Spark does not define the order of values in a group, so it may differ in the replay.
                again, replayed = self._attempt(self._loaded(before), given[::-1], number, before)
                _assert_same_output(output, again)
                assert after == replayed, "the replayed batch stored other bytes"
            if self.crash != "never":
                self.state[number] = self._loaded(after)
            self.committed[number] = after
            check_reloaded(self.state[number], self._loaded(after), after.segments)
            outputs.append(output)
        return outputs

    def _attempt(
        self, bucket: Bucket, payloads: Sequence[Payload], number: int, stored: Stored
    ) -> tuple[BatchOutput, Stored]:
        """Process a batch and write out the bucket, as the processor does."""
        output = bucket.process(payloads, self.sent_to(number))
        segments = dict(stored.segments)

        def put(segment_id: str, data: bytes | ArrivedFile, segment: Segment | None) -> None:
            assert segment_id not in segments, "a stored segment is rewritten"
            segments[segment_id] = self.files[data.name] if isinstance(data, ArrivedFile) else data

        held = store_segments(bucket, SegmentIds("checkpoint", number, self.batch), put)
        manifest = encode_manifest(bucket)
        assert segment_ids(manifest) == held
        plan = stored.plan
        if bucket.plan_changed and bucket.plan is not None:
            plan = encode_plan(bucket.plan)
        return output, Stored(manifest, plan, {i: segments[i] for i in sorted(held)})

    def _loaded(self, stored: Stored) -> Bucket:
        """Return the bucket that another process would make of the stored bytes."""

        def load(segment_id: str) -> Segment:
            return read_segment(segment_id, stored.segments.__getitem__)

        reader = segment_reader(stored.segments.__getitem__)
        plan = None if stored.plan is None else decode_plan(stored.plan)
        bucket = load_bucket(stored.manifest, plan, load, {}, reader)
        bucket.slack_us = self.slack_us
        if self.slack_us is None or plan is None:
            return bucket
        # The slack of tests is not part of the plan: families are compiled again with it.
        compiled = {family.id: bucket.compile(family, plan) for family in plan.families}
        bucket = load_bucket(stored.manifest, plan, load, compiled, reader)
        bucket.slack_us = self.slack_us
        return bucket


def _assert_same_output(one: BatchOutput, other: BatchOutput) -> None:
    for mine, its in ((one.results, other.results), (one.late, other.late)):
        assert mine.keys() == its.keys()
        # As text, since Arrow says that NaN differs from NaN.
        assert all(repr(table.to_pydict()) == repr(its[name].to_pydict()) for name, table in mine.items())
    assert one.routes.keys() == other.routes.keys()
    for family, routes in one.routes.items():
        twin = other.routes[family]
        assert (routes.table().ids(), route_totals(routes)) == (twin.table().ids(), route_totals(twin))
    sent, again = (
        [(p.family, p.members, p.bucket, repr(p.rows.to_pydict())) for p in output.exchanged]
        for output in (one, other)
    )
    assert sent == again
    assert (one.filters, one.keys) == (other.filters, other.keys)
