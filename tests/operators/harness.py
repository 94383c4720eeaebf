"""Runs the operators without Spark: packs rows, feeds buckets, gathers results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa

from catalog.columns.arrow_types import PUNCTUATION_COLUMN
from catalog.documents.codec import encode
from catalog.steps import copied_side
from catalog.values.control import ControlRecord, Heartbeat, Horizon, Promises, Pull
from catalog.values.counters.family_counters import SliceCounters
from catalog.values.plan import Plan
from catalog.values.stream import Stream
from operators.bucket.batch_output import BatchOutput
from operators.bucket.bucket import Bucket
from operators.bucket.counters import slice_table
from operators.bucket.state.load_bucket import load_bucket
from operators.bucket.state.manifest import decode_plan, encode_manifest, encode_plan, segment_ids
from operators.bucket.state.store_segments import SegmentIds, store_segments
from operators.pack.pack import control_payloads, packer
from operators.pack.pack_plan import pack_plan
from operators.pack.payload import Payload
from operators.segments.encoding.row_codec import encode_rows
from operators.segments.segment import ArrivedFile, Segment, labelled
from operators.steps.exchange import ExchangedRows, decode_exchange, encode_exchange
from tests.operators.reloaded import check_reloaded
from tests.operators.route_totals import route_totals
from tests.operators.segment_builders import read_segment, segment_reader

#: A slice: family id, join id, side, number from 1.
SliceName = tuple[str, str, str, int]


@dataclass
class Runner:
    """A set of buckets that are fed batch by batch, as the Spark job does it.

    Attributes:
        streams: Streams by id.
        buckets: Number of buckets.
        slack_us: Slack of every family; None takes the families' own.
        stored: After every batch, buckets are written out and read back as another process would do it.
        done: What every slice did since the plan in force took effect, over all buckets.
        files: Rows of the batch that came in files, by name.
        violating: Family id, side and position of the rows that broke a promise.
        groups: Groups per query id that came out.
        sent: Pairs that each bucket has sent to the others in the batch before.
        announced: Result punctuations by batch: query id and key, as side a has it.
    """

    streams: Mapping[int, Stream]
    buckets: int = 1
    slack_us: int | None = 0
    stored: bool = False
    batch: int = 0
    plan: Plan | None = None
    seen: dict[int, int] = field(default_factory=dict)
    results: Counter[tuple[int, int | None, int | None]] = field(default_factory=Counter)
    late: dict[int, set[int]] = field(default_factory=dict)
    violating: set[tuple[str, str, int]] = field(default_factory=set)
    groups: dict[int, list[dict[str, object]]] = field(default_factory=dict)
    announced: dict[int, list[tuple[int, tuple[object, ...]]]] = field(default_factory=dict)
    state: list[Bucket] = field(default_factory=list)
    segments: list[dict[str, bytes]] = field(default_factory=list)
    done: dict[SliceName, Counter[str]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = [Bucket(slack_us=self.slack_us) for _ in range(self.buckets)]
        self.segments = [{} for _ in range(self.buckets)]

    def step(
        self,
        rows: Mapping[int, pa.Table],
        plans: Sequence[Plan] = (),
        heartbeats: Sequence[Heartbeat] = (),
        promises: Sequence[Promises] = (),
        pulls: Sequence[Pull] = (),
        horizons: Sequence[Horizon] = (),
    ) -> list[BatchOutput]:
        """Process one batch.

        Args:
            rows: Rows per stream id, with ``_pos``.
            plans: Plan changes, before the rows.
            heartbeats: After the rows.
            promises: Punctuations of control records.
            pulls: Requests for result punctuations.
            horizons: Horizons, before the rows.

        Returns:
            One output per bucket.
        """
        payloads = self._packed(rows, plans, heartbeats, promises, pulls, horizons)
        outputs = self.processed(payloads)
        self.sent = [encode_exchange(output.exchanged) for output in outputs if output.exchanged]
        for output in outputs:
            self._count(output)
        if plans:
            self.done = {}
        for bucket in self.state:
            for counters in slice_table(bucket.families, bucket.clocks).counters():
                name = (counters.family, counters.join, counters.side, counters.slice)
                self.done.setdefault(name, Counter()).update(_deeds(counters))
        if self.stored:
            self.state = [self._reloaded(number, bucket) for number, bucket in enumerate(self.state)]
        self.batch += 1
        return outputs

    def processed(self, payloads: Sequence[list[Payload]]) -> list[BatchOutput]:
        """Run every bucket on its payloads; ``tests.operators.durable`` does it with crashes."""
        return [
            bucket.process(given, self.sent_to(number))
            for number, (bucket, given) in enumerate(zip(self.state, payloads, strict=True))
        ]

    def sent_to(self, bucket: int) -> list[ExchangedRows]:
        """Return the pairs that the buckets have sent to one of them in the batch before, in any order."""
        return [p for data in reversed(self.sent) for p in decode_exchange(pa.py_buffer(data), bucket)]

    def state_rows(self, family_id: str, side: str, join_id: str | None = None) -> list[set[int]]:
        """Return the positions of the rows that each slice of a chain holds, over all buckets.

        Args:
            family_id: The family.
            side: ``a`` or ``b``.
            join_id: The join; may be left out where there is one.

        A row that rests in several buckets is in the slice that the first of them has it in.
        """
        assert self.plan is not None
        copied = next(copied_side(f) for f in self.plan.families if f.id == family_id)
        chains = [
            joins.chains[join_id] if join_id is not None else next(iter(joins.chains.values()))
            for joins in (bucket.families[family_id] for bucket in self.state)
        ]
        assert join_id is not None or all(len(b.families[family_id].chains) == 1 for b in self.state)
        slices: list[set[int]] = [set() for _ in chains[0].slices[side]]
        for chain in chains:
            elsewhere = set().union(*slices) if side == copied else set()
            for index, state in enumerate(chain.slices[side]):
                for segment in state.segments:
                    positions = set(segment.pos.tolist()) - elsewhere
                    assert not set().union(*slices).intersection(positions), "a row is held twice"
                    slices[index].update(positions)
        return slices

    def joins(self, family_id: str) -> tuple[str, ...]:
        """Return the ids of a family's joins."""
        return tuple(self.state[0].families[family_id].chains)

    def _packed(
        self,
        rows: Mapping[int, pa.Table],
        plans: Sequence[Plan],
        heartbeats: Sequence[Heartbeat],
        promises: Sequence[Promises],
        pulls: Sequence[Pull] = (),
        horizons: Sequence[Horizon] = (),
    ) -> list[list[Payload]]:
        records = [ControlRecord(seq=1, plan=plan) for plan in plans]
        records += [ControlRecord(seq=1, heartbeat=beat) for beat in heartbeats]
        if plans:
            self.plan = plans[-1]
        records += [ControlRecord(seq=1, promises=each) for each in promises]
        records += [ControlRecord(seq=1, pull=each) for each in pulls]
        records += [ControlRecord(seq=1, horizon=each) for each in horizons]
        control = [encode(record).decode() for record in records]
        payloads = [[p] for p in control_payloads(control, 0, self.batch, self.buckets)]
        for order, (stream_id, table) in enumerate(rows.items(), 1):
            assert self.plan is not None
            compiled = packer(pack_plan(self.plan, self.streams[stream_id], self.buckets))
            bound = self.seen.get(stream_id)
            if bound is None or not compiled.may_have_late_rows(table, bound):
                marks = [name for name in (PUNCTUATION_COLUMN,) if name in table.column_names]
                table = table.select([*compiled.columns(), "_pos", *marks])
            packed = compiled.pack(table, order, self.batch, bound)
            for number, payload in enumerate(packed):
                payloads[number].append(payload)
            newest = packed[0].streams[0].max_event_time_us
            if newest is not None:
                self.seen[stream_id] = max(newest, self.seen.get(stream_id, newest))
        for beat in heartbeats:
            if beat.watermark_us is None:  # a reset; what was seen stays a bound
                continue
            self.seen[beat.stream_id] = max(
                beat.watermark_us, self.seen.get(beat.stream_id, beat.watermark_us)
            )
        # Any order: Spark does not define the order of values in a group.
        self.files = {}
        return [
            [self._carried(payload, bucket) for payload in reversed(given)]
            for bucket, given in enumerate(payloads)
        ]

    def _carried(self, payload: Payload, bucket: int) -> Payload:
        """Return a payload as it arrives; of every four batches the rows of two come in files."""

        def write(family_id: str, side: str, rows: pa.RecordBatch) -> ArrivedFile | None:
            if self.batch // 2 % 2:
                return None
            assert self.plan is not None
            (family,) = (family for family in self.plan.families if family.id == family_id)
            filters = tuple(f.bit for f in (family.filters_a if side == "a" else family.filters_b))
            name = f"rows.{payload.order}.{bucket}.{family_id}.{side}"
            self.files[name] = encode_rows(labelled(rows, self.plan.version, filters))
            return ArrivedFile(name, len(self.files[name]))

        return Payload.decode(payload.encode(write), lambda name: pa.py_buffer(self.files[name]))

    def _count(self, output: BatchOutput) -> None:
        for family, table in output.results.items():
            members = output.routes[family].table().ids()
            routes = table.column("_route").to_pylist()
            assert self.plan is not None
            keys = {f.id: [f"a_{a}" for a, _ in f.key] for f in self.plan.families}
            for route, row in zip(routes, table.to_pylist(), strict=True):
                for query_id in members[route]:
                    if row["_event_time"] is None:
                        key = tuple(row[name] for name in keys[family])
                        self.announced.setdefault(self.batch, []).append((query_id, key))
                    else:
                        self.results[query_id, row["_pos_a"], row["_pos_b"]] += 1
            assert Counter(routes) == route_totals(output.routes[family])
            if "g_closed_by" in table.schema.names:
                for row in table.to_pylist():
                    (query_id,) = members[row["_route"]]
                    self.groups.setdefault(query_id, []).append(row)
        for stream_id, table in output.late.items():
            positions = table.column("_pos").to_pylist()
            known = self.late.setdefault(stream_id, set())
            assert not known.intersection(positions), "a late row is recorded twice"
            known.update(positions)
        for (_, family, side), table in output.violating.items():
            broken = {(family, side, pos) for pos in table.column("_pos").to_pylist()}
            assert len(broken) == table.num_rows, "a violating row is recorded twice"
            assert not self.violating & broken, "a violating row is recorded twice"
            self.violating |= broken

    def _reloaded(self, number: int, bucket: Bucket) -> Bucket:
        """Return a bucket that knows nothing but what was written; every other batch it meets warm caches."""
        warm = self.batch % 2 == 1
        known = self.segments[number]

        def put(segment_id: str, data: bytes | ArrivedFile, segment: Segment | None) -> None:
            assert segment_id not in known, "a stored segment is rewritten"
            known[segment_id] = self.files[data.name] if isinstance(data, ArrivedFile) else data

        held = store_segments(bucket, SegmentIds("checkpoint", number, self.batch), put)
        manifest = encode_manifest(bucket)
        assert segment_ids(manifest) == held
        for departed in known.keys() - held:
            del known[departed]
        plan = decode_plan(encode_plan(bucket.plan)) if bucket.plan is not None else None
        compiled = {} if plan is None else {f.id: bucket.compile(f, plan) for f in plan.families}
        loaded = load_bucket(
            manifest,
            plan,
            lambda i: read_segment(i, known.__getitem__),
            compiled if self.slack_us is not None else {},
            segment_reader(known.__getitem__),
        )
        loaded.slack_us = self.slack_us
        check_reloaded(bucket, loaded, known)
        if warm:
            for family_id, joins in bucket.families.items():
                originals = {segment.id: segment for segment in joins.stored()}
                for segment in loaded.families[family_id].stored():
                    classes = joins.known_classes(originals[segment.id])
                    if classes is not None:
                        loaded.families[family_id].remember_classes(segment, classes)
        return loaded


def _deeds(counters: SliceCounters) -> dict[str, int]:
    """Return what a slice did, without what it holds."""
    holds = {"family", "join", "side", "slice", "rows", "bytes", "segments", "own_bytes", "lying", "lazy_end"}
    holds |= {"dead", "lazy_segments", "read_segments", "read_rows"}
    return {name: count for name, count in asdict(counters).items() if name not in holds}
