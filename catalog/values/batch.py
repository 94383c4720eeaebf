"""Manifest of a committed micro-batch: result files, late rows and counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from operator import add, attrgetter
from typing import Any, ClassVar, NamedTuple, TypeVar

from catalog.values.plan import SHARED_JOIN, MemoryStrategy


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A Parquet file of joined pairs, or of late rows.

    Attributes:
        path: Relative to the results directory.
        family: Family id of joined pairs; stream name of late rows.
        rows: Rows in it.
        bytes: Its length; None of files from before it was kept.
        crc32c: Checksum of its bytes, or None likewise.
    """

    path: str
    family: str
    rows: int
    bytes: int | None = None
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A file with the rows of several batches, in their order, or one that merging left as it was.

    Attributes:
        file: The file.
        late: Whether it has late rows.
        first: First batch that it may have rows of.
        last: Last such batch.
        first_at_us: Wall clock of the first one's commit, µs UTC.
        last_at_us: The same of the last one.
        level: How often its rows were merged, 1 at least where they could be.
    """

    file: ResultFile
    late: bool
    first: int
    last: int
    first_at_us: int
    last_at_us: int
    level: int


@dataclass(frozen=True, slots=True)
class SliceCounters:
    """Counters of one slice of one side in a batch, summed over buckets.

    Attributes:
        family: Family id.
        side: ``a`` or ``b``: whose rows the slice holds.
        slice: 1-based number in the chain.
        rows: Rows held at the end of the batch that are as far behind the opposite watermark as the slice
            says; rows ahead of it count in the first slice, rows beyond the chain's end in the last.
        bytes: Its share of the stored values that its segments are made of at the end of the batch, rows in
            them that nobody needs any more included.
        segments: Number of segments.
        touched: Pairs of equal key of probing males and rows of segments that they may meet.
        males: Opposite rows that probed the slice.
        inserted: Rows that entered the chain here.
        moved_in: Rows that came from the slice before.
        filtered: Rows dropped by the slice's filter on their way in.
        purged: Rows that left for good because the chain ends here.
        results: Pairs that serve at least one query and whose rows are as far apart as the slice says.
        candidates: A product, males times rows lying here when they probed: what nested loops would compare.
            No pair of them is looked at for it.
        join: Join of the family that the slice belongs to.
        own_bytes: What its rows took where they were written, in proportion to the rows: how wide they are. 0
            in batches from before it was counted.
        lying: Rows of its segments at the end of the batch. At a lazy end, and within the slack at any other,
            rows lie in a slice for longer than its interval says. 0 in older manifests.
        made: Pairs that males made with the rows lying here and that serve at least one query. 0 in older
            manifests.
        left: Rows that left although a window still reached them, because no query needed them any more after
            their matches (``operators.leaving``). 0 in older manifests.
        lazy_end: Whether its end is lazy (``catalog.values.plan.FamilyPlan.lazy_ends``).
        discarded: Rows that were not stored here, because the other side had closed their key.
        closed: Rows that were removed because the other side had closed their key.
        dead: Rows with closed keys that the last search under this plan left here.
    """

    #: What tells the counters of one slice from those of another; all others add up over buckets.
    KEY: ClassVar[tuple[str, ...]] = ("family", "join", "side", "slice", "lazy_end")

    family: str
    side: str
    slice: int
    rows: int = 0
    bytes: int = 0
    segments: int = 0
    touched: int = 0
    males: int = 0
    inserted: int = 0
    moved_in: int = 0
    filtered: int = 0
    purged: int = 0
    results: int = 0
    candidates: int = 0
    join: str = SHARED_JOIN
    own_bytes: int = 0
    lying: int = 0
    made: int = 0
    left: int = 0
    lazy_end: bool = False
    discarded: int = 0
    closed: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True)
class FilterCounters:
    """Rows of a batch that passed a distinct filter, counted in PACK over all rows with an event time.

    Attributes:
        family: Family id.
        side: ``a`` or ``b``.
        bit: Lineage bit of the filter.
        rows: Rows judged.
        passed: Rows that passed.
    """

    KEY: ClassVar[tuple[str, ...]] = ("family", "side", "bit")

    family: str
    side: str
    bit: int
    rows: int
    passed: int


@dataclass(frozen=True, slots=True)
class KeyCounters:
    """Keys of a batch's rows on one side of a family, summed over buckets (a key is counted in one).

    Attributes:
        family: Family id.
        side: ``a`` or ``b``.
        rows: Rows that came to the family.
        keys: Distinct keys among them.
        largest: Rows of the most frequent key.
        squares: Sum of the squared rows per key (the batch's self-join size).
        copies: Male copies of the rows, one for each bucket that they came to; 0 in older manifests.
    """

    KEY: ClassVar[tuple[str, ...]] = ("family", "side")

    family: str
    side: str
    rows: int
    keys: int
    largest: int
    squares: int
    copies: int = 0


@dataclass(frozen=True, slots=True)
class AbsenceCounters:
    """Verdicts on the rows of one side of a family in a batch, summed over buckets.

    Attributes:
        family: Family id.
        side: ``a`` or ``b``: whose rows are judged, by one query at least.
        undecided: Rows held at the end of the batch that some window which judges rows of the side reaches.
            Times tell, so a row counts for as long as it is held, though it has found a partner; one that
            rests in several joins counts in each. With windows of rows: rows that wait for their ranks.
        absent: Results that are rows of the side without a partner, all queries together.
        matched: Rows of the side that got their first match, once for each condition group
            (``operators.join.absence_classes``). 0 in older manifests.
        marks: Marks held at the end of the batch: nearest matches of a row for a condition group. One may be
            held several times until marks are merged. 0 in older manifests.
    """

    KEY: ClassVar[tuple[str, ...]] = ("family", "side")

    family: str
    side: str
    undecided: int
    absent: int
    matched: int = 0
    marks: int = 0


@dataclass(frozen=True, slots=True)
class UnmatchedCounters:
    """Results of an outer join in a batch that are rows without a partner.

    Attributes:
        query_id: Query id.
        rows: How many, of both sides.
    """

    KEY: ClassVar[tuple[str, ...]] = ("query_id",)

    query_id: int
    rows: int


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """Counters of the groups of a family in a batch, summed over buckets.

    Attributes:
        family: Family id.
        open: Groups at the end of the batch that may still get pairs; queries with intervals of the same
            length share them.
        closed: Groups that came out, over all queries.
    """

    KEY: ClassVar[tuple[str, ...]] = ("family",)

    family: str
    open: int
    closed: int


@dataclass(frozen=True, slots=True)
class ExchangeCounters:
    """Pairs that one bucket sends to all buckets, which join them in the next batch.

    Attributes:
        family: Id of the family that takes them as rows of side a.
        bucket: Number of the bucket that sends them, in a file.
        rows: Number of pairs.
    """

    family: str
    bucket: int
    rows: int


@dataclass(frozen=True, slots=True)
class ProbeCounters:
    """Counters of the rings of one side of a family in a batch, summed over joins and buckets.

    Attributes:
        family: Family id.
        side: ``a`` or ``b``: whose rows the rings hold.
        probes: Opposite rows that probed.
        inserted: Rows of the side that entered.
        scanned: Rows that probing rows were compared with, key by key.
        looked: Heads of rings that were looked at and stayed, because they had not expired.
        removed: Expired rows that were removed; each was looked at, too.
        live: Rows that have not expired at the end of the batch.
        expired: Rows that have expired but are still held at the end of the batch.
    """

    KEY: ClassVar[tuple[str, ...]] = ("family", "side")

    family: str
    side: str
    probes: int = 0
    inserted: int = 0
    scanned: int = 0
    looked: int = 0
    removed: int = 0
    live: int = 0
    expired: int = 0


@dataclass(frozen=True, slots=True)
class MemoryCounters:
    """Counters of the rows of one side of a family that wait outside its slices, summed over buckets.

    Attributes:
        family: Family id.
        side: ``a`` or ``b``.
        strategy: Where its rows wait (``catalog.values.plan.MemoryStrategy``).
        waiting: Rows in memory that wait at the end of the batch.
        parked: Rows in closed segments, on disk, at the end of the batch.
        parked_segments: Number of these segments.
        closed: Segments that were closed in the batch.
        opened: Segments that were opened in the batch.
        opened_rows: Their rows.
    """

    KEY: ClassVar[tuple[str, ...]] = ("family", "side", "strategy")

    family: str
    side: str
    # Earlier versions had no other one.
    strategy: MemoryStrategy = "dbf"
    waiting: int = 0
    parked: int = 0
    parked_segments: int = 0
    closed: int = 0
    opened: int = 0
    opened_rows: int = 0


@dataclass(frozen=True, slots=True)
class PunctuationCounters:
    """Counters of the punctuations of one side of a family in a batch, summed over buckets.

    Attributes:
        family: Family id.
        side: ``a`` or ``b``, the side whose stream has the contract.
        closed: Keys that the batch closed, by punctuations or by rows of a unique stream.
        remembered: Closings remembered at the end of the batch; a key may count more than once.
        violating: Rows of the side that broke a promise.
        discarded: Rows of the other side that were not stored because their key was closed.
        purged: Rows of the other side that were removed from the state for that reason.
        dead: Rows of the other side with closed keys that the last purge left in the state.
        live: Rows of the other side with open keys at the end of the batch, estimated; joins count their own.
        died: Rows of the other side that lived until this batch closed their keys, or that came with closed
            keys, estimated; joins count their own.
    """

    KEY: ClassVar[tuple[str, ...]] = ("family", "side")

    family: str
    side: str
    closed: int = 0
    remembered: int = 0
    violating: int = 0
    discarded: int = 0
    purged: int = 0
    dead: int = 0
    live: int = 0
    died: int = 0


@dataclass(frozen=True, slots=True)
class HeldTimes:
    """Event times of the rows of a stream that one bucket holds; only of streams with a cap.

    Attributes:
        stream_id: The stream.
        bytes: Bytes that the rows take, in all families together.
        times_us: Event times that cut the rows into parts of equal number, ascending, µs UTC: the oldest one
            first, the newest one last. Taken from a sample of the rows.
    """

    stream_id: int
    bytes: int
    times_us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StreamPunctuations:
    """Punctuations of one stream in a batch.

    Attributes:
        stream_id: The stream.
        received: Number of punctuations.
        ignored: Number of those that no family uses.
    """

    KEY: ClassVar[tuple[str, ...]] = ("stream_id",)

    stream_id: int
    received: int
    ignored: int


@dataclass(frozen=True, slots=True)
class CpuCounters:
    """CPU time that the job's Python took for a batch, all tasks together, µs.

    Attributes:
        pack_us: Reading and packing.
        chain_us: Joining, storing state and writing results.
    """

    pack_us: int = 0
    chain_us: int = 0


@dataclass(frozen=True, slots=True)
class BucketCounters:
    """Distribution of a batch's work over the buckets. On enough cores it takes as long as the hottest one.

    Attributes:
        buckets: Number of buckets; 0 in older manifests.
        work: Rows that came (a male copy each) and pairs made, all buckets together.
        hottest_work: The same of the bucket that had most.
        hottest_us: CPU time of the bucket that took longest, µs.
    """

    buckets: int = 0
    work: int = 0
    hottest_work: int = 0
    hottest_us: int = 0


@dataclass(frozen=True, slots=True)
class StreamCounters:
    """Counters of one stream in a batch.

    Attributes:
        stream_id: The stream.
        rows: Rows read, late and pruned ones included.
        late_rows: Rows below the watermark at the start of the batch.
        rejected_rows: Rows without an event time.
        watermark_us: Watermark at the end of the batch, µs UTC; None before the first row.
        max_event_time_us: Newest event time so far, or None.
        scramble: Scrambling factor of its order, declared or monitored; None for a stream without an order.
        order_passed: Value of its order, negated if it descends, that no later row stands at or before; None
            likewise, and before there is one.
        horizon_us: Event time below which rows have left the state before their windows ended, µs UTC; None
            if none have.
    """

    stream_id: int
    rows: int
    late_rows: int
    rejected_rows: int
    watermark_us: int | None
    max_event_time_us: int | None
    scramble: int | None = None
    order_passed: int | None = None
    horizon_us: int | None = None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Progress of a batch: its plan version and watermarks.

    Attributes:
        batch: Batch number.
        plan_version: Plan in force in it.
        streams: Counters per stream of its plan.
    """

    batch: int
    plan_version: int
    streams: tuple[StreamCounters, ...]


@dataclass(frozen=True, slots=True)
class BatchManifest:
    """Everything that one transaction makes visible of a batch, but its routes (``catalog.values.routes``).

    Attributes:
        batch: Batch number, from 0, without gaps.
        epoch: Fencing epoch of the engine that wrote it.
        plan_version: Version in force while the batch was processed (0: none yet).
        files: Result files; empty once they are merged (``MergedFile``).
        late_files: Files of late rows, likewise.
        streams: Counters per stream.
        slices: Counters per slice; empty in a manifest that was thinned.
        query_rows: Results per query id in this batch; empty where it was read (``catalog.store.counts``).
        started_at_us: Wall clock at the start of the batch, µs UTC.
        committed_at_us: Wall clock at the commit, µs UTC.
        filters: Counters per distinct filter, likewise.
        keys: Counters per family side, likewise.
        absence: Counters per family side whose rows are judged for absence, likewise.
        unmatched: Counters per outer join, likewise.
        punctuations: Counters per family side whose stream has a contract, likewise.
        received: Punctuations per stream, likewise.
        groups: Counters of each family whose results are groups, likewise.
        probes: Counters per family side whose rows lie in rings, likewise.
        memory: Counters per family side whose rows wait outside the slices, likewise.
        cpu: CPU time.
        buckets: How evenly the work lay on them.
        input_end: Spark's offset at the end of the batch, by key; empty in manifests from before it was kept.
        digest: Digest of the input ranges and the row counts, equal whenever the batch is repeated; empty
            likewise.
        exchanged: Pairs on their way to other buckets. The next batch reads the files of these buckets.
        held: Event times of held rows, likewise: per bucket and stream with a cap.
    """

    batch: int
    epoch: int
    plan_version: int
    files: tuple[ResultFile, ...]
    late_files: tuple[ResultFile, ...]
    streams: tuple[StreamCounters, ...]
    slices: tuple[SliceCounters, ...]
    query_rows: tuple[tuple[int, int], ...]
    started_at_us: int
    committed_at_us: int
    filters: tuple[FilterCounters, ...] = ()
    keys: tuple[KeyCounters, ...] = ()
    absence: tuple[AbsenceCounters, ...] = ()
    cpu: CpuCounters = CpuCounters()
    buckets: BucketCounters = BucketCounters()
    input_end: tuple[tuple[str, int], ...] = ()
    digest: str = ""
    punctuations: tuple[PunctuationCounters, ...] = ()
    received: tuple[StreamPunctuations, ...] = ()
    groups: tuple[GroupCounters, ...] = ()
    exchanged: tuple[ExchangeCounters, ...] = ()
    probes: tuple[ProbeCounters, ...] = ()
    held: tuple[HeldTimes, ...] = ()
    memory: tuple[MemoryCounters, ...] = ()
    unmatched: tuple[UnmatchedCounters, ...] = ()

    @property
    def progress(self) -> BatchProgress:
        """Progress of the batch."""
        return BatchProgress(self.batch, self.plan_version, self.streams)

    def thinned(self) -> BatchManifest:
        """Return it without files, and without the counters that are read of the last batches only.

        ``exchanged`` stays, because a batch that is repeated reads what the batch before it has sent.
        """
        return replace(
            self,
            files=(),
            late_files=(),
            slices=(),
            query_rows=(),
            filters=(),
            keys=(),
            absence=(),
            unmatched=(),
            punctuations=(),
            received=(),
            groups=(),
            probes=(),
            held=(),
            memory=(),
        )

    @property
    def state_rows(self) -> int:
        """Rows held in all slices at the end of the batch."""
        return sum(s.rows for s in self.slices)

    @property
    def state_bytes(self) -> int:
        """Encoded bytes held in all slices at the end of the batch."""
        return sum(s.bytes for s in self.slices)


class Totals(NamedTuple):
    """Totals over all committed batches.

    Attributes:
        input_rows: Rows read, late and rejected ones included.
        late_rows: Rows below the watermark of their stream.
        state_rows_peak: Most rows held at the end of a batch.
        state_bytes_peak: Most encoded bytes held at the end of a batch.
        batches: Number of batches.
    """

    input_rows: int
    late_rows: int
    state_rows_peak: int
    state_bytes_peak: int
    batches: int


Counters = TypeVar(
    "Counters",
    SliceCounters,
    FilterCounters,
    KeyCounters,
    AbsenceCounters,
    UnmatchedCounters,
    GroupCounters,
    ProbeCounters,
    MemoryCounters,
    PunctuationCounters,
    StreamPunctuations,
)


def add_up(counters: Iterable[Counters], key: tuple[str, ...]) -> tuple[Counters, ...]:
    """Return counters of several buckets as one per key, ascending, all other fields added up.

    >>> add_up([FilterCounters("f", "a", 0, 2, 1), FilterCounters("f", "a", 0, 3, 0)], FilterCounters.KEY)
    (FilterCounters(family='f', side='a', bit=0, rows=5, passed=1),)
    >>> add_up([UnmatchedCounters(7, 2), UnmatchedCounters(7, 1)], UnmatchedCounters.KEY)
    (UnmatchedCounters(query_id=7, rows=3),)

    Args:
        counters: Values of one class.
        key: Names of the fields that tell them apart.
    """
    counted = tuple(counters)
    if not counted:
        return ()
    kind = type(counted[0])
    summed: tuple[str, ...] = tuple(field.name for field in fields(kind) if field.name not in key)
    key_of, numbers_of = _values_of(key), _values_of(summed)
    sums: dict[tuple[Any, ...], tuple[int, ...]] = {}
    for each in counted:
        # As tuples: a batch has thousands of them, and each value made again takes its time.
        place, numbers = key_of(each), numbers_of(each)
        before = sums.get(place)
        sums[place] = numbers if before is None else tuple(map(add, before, numbers))
    names = (*key, *summed)
    return tuple(kind(**dict(zip(names, place + sums[place], strict=True))) for place in sorted(sums))


def _values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gives the values of some fields; attrgetter returns that of a single one itself."""
    return attrgetter(*names) if len(names) > 1 else lambda each: (getattr(each, names[0]),)
