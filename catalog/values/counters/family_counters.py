"""Counters of a plan's families in one batch: slices, filters, keys, absence, groups, rings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import AliasChoices, Field

from catalog.values.plan import SHARED_JOIN
from catalog.values.policies.memory import MemoryStrategy


@dataclass(frozen=True, slots=True)
class SliceCounters:
    """Counters of one slice of one side in a batch, summed over buckets.

    Attributes:
        family: Family id.
        side: Side whose rows the slice holds, ``a`` or ``b``.
        slice: 1-based number in the chain.
        rows: Rows held at the end of the batch whose distance behind the opposite watermark is in the slice's
            interval. Rows ahead of the watermark count in the first slice, rows beyond the chain's end in the
            last slice.
        bytes: The slice's share of the bytes in which its segments are stored at the end of the batch,
            including rows that no query needs any more.
        segments: Number of segments.
        touched: Pairs of a probing male and a stored row with the same key, summed over all segments in which
            the male may have matches.
        males: Rows of the opposite side that probed the slice.
        inserted: Rows that entered the chain in this slice.
        moved_in: Rows that came from the previous slice.
        filtered: Rows that the slice's filter dropped on their way in.
        purged: Rows that left the state because the chain ends with this slice.
        results: Pairs that serve at least one query and whose distance in time is in the slice's interval.
        product: Males times the rows in the slice when they probed: the comparisons of nested loops. This
            number is computed without comparing any pair. Older manifests call it ``candidates``.
        join: Id of the family's join to which the slice belongs.
        own_bytes: Bytes that the slice's rows took when they were written, estimated in proportion to the
            number of rows; a measure of row width. 0 in older manifests.
        lying: All rows in the slice's segments at the end of the batch, including rows that are beyond its
            interval: rows may stay there at a lazy end, or within the slack of any other end. 0 in older
            manifests.
        made: Pairs that males made with rows stored in the slice and that serve at least one query. 0 in
            older manifests.
        left: Rows that left the state although a window still reached them, because no query needed them any
            more after their matches (``operators.leaving``). 0 in older manifests.
        lazy_end: Whether the slice's end is lazy (``catalog.values.plan.FamilyPlan.lazy_ends``).
        discarded: Rows that were not stored in this slice, because the other side had closed their key.
        closed: Rows that were removed because the other side had closed their key.
        dead: Rows with closed keys that were still in the slice after the last search for such rows under
            this plan.
        again: Rows of an intermediate that are not stored and were made again for the males. These rows and
            their pairs count in the first slice.
        partials: Pairs of equal key that were examined to make the rows of ``again``.
        lazy_segments: Segments whose rows a batch reads only if males may match them (``operators.lazy``).
        read_segments: Lazy segments of which the batch read rows; the other lazy segments stayed closed.
        read_rows: Rows that the batch read from lazy segments.
    """

    #: Fields that identify the counters of a slice; all other fields add up over buckets.
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
    product: Annotated[int, Field(validation_alias=AliasChoices("product", "candidates"))] = 0
    join: str = SHARED_JOIN
    own_bytes: int = 0
    lying: int = 0
    made: int = 0
    left: int = 0
    lazy_end: bool = False
    discarded: int = 0
    closed: int = 0
    dead: int = 0
    again: int = 0
    partials: int = 0
    lazy_segments: int = 0
    read_segments: int = 0
    read_rows: int = 0


@dataclass(frozen=True, slots=True)
class FilterCounters:
    """Rows of a batch that PACK checked against a distinct filter, and how many of them passed.

    Attributes:
        family: Family id.
        side: ``a`` or ``b``.
        bit: Lineage bit of the filter.
        rows: Rows on which the filter was evaluated: all rows with an event time.
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
    """Keys of a batch's rows on one side of a family, summed over buckets; only one bucket counts a key.

    Attributes:
        family: Family id.
        side: ``a`` or ``b``.
        rows: Rows that the family received.
        keys: Distinct keys of these rows.
        largest: Rows of the most frequent key.
        squares: Sum over all keys of the squared number of rows (the batch's self-join size).
        copies: Male copies of the rows, one for each bucket that received a row; 0 in older manifests.
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
    """Results of checking the rows of one side of a family for matches in a batch, summed over buckets.

    Attributes:
        family: Family id.
        side: Side whose rows at least one query checks for matches, ``a`` or ``b``.
        undecided: Rows held at the end of the batch that may still find a match, because a window of a query
            that checks rows of this side still reaches them. A row counts as long as it is held, even if it
            has found a partner; a row that several joins hold counts once per join. With windows of rows,
            this counts the rows that wait for their ranks.
        absent: Results that are rows of the side without a partner, summed over queries.
        matched: Rows of the side that got their first match, counted once per condition group
            (``operators.join.absence_classes``). 0 in older manifests.
        marks: Marks held at the end of the batch; a mark is the nearest match of a row for a condition group.
            A mark may be held several times until marks are merged. 0 in older manifests.
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
        rows: Number of these rows, of both sides.
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
            length share these groups.
        closed: Groups that became results, summed over queries.
    """

    KEY: ClassVar[tuple[str, ...]] = ("family",)

    family: str
    open: int
    closed: int


@dataclass(frozen=True, slots=True)
class ExchangeCounters:
    """Pairs that one bucket writes to a file for all buckets, which join the pairs in the next batch.

    Attributes:
        family: Id of the family that takes the pairs as rows of side a.
        bucket: Number of the bucket that sends the pairs.
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
        side: Side whose rows the rings hold, ``a`` or ``b``.
        probes: Rows of the other side that probed the rings.
        inserted: Rows of the side that entered the rings.
        scanned: Rows in rings whose keys were compared with the keys of probing rows.
        looked: Rows at the heads of rings that were examined and kept, because they had not expired.
        removed: Expired rows that were examined and removed.
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
        strategy: Strategy by which rows wait (``catalog.values.policies.memory.MemoryStrategy``).
        waiting: Rows that wait in memory at the end of the batch.
        parked: Rows in closed segments, on disk, at the end of the batch.
        parked_segments: Number of closed segments at the end of the batch.
        closed: Segments that were closed in the batch.
        opened: Segments that were opened in the batch.
        opened_rows: Rows of the segments that were opened.
        sorting: Rows among ``waiting`` that wait for earlier rows of the order.
        joined: Rows that were joined in the batch, whether or not they had to wait.
    """

    KEY: ClassVar[tuple[str, ...]] = ("family", "side", "strategy")

    family: str
    side: str
    # Manifests of earlier versions lack this field, because those versions had only this strategy.
    strategy: MemoryStrategy = "dbf"
    waiting: int = 0
    parked: int = 0
    parked_segments: int = 0
    closed: int = 0
    opened: int = 0
    opened_rows: int = 0
    sorting: int = 0
    joined: int = 0


@dataclass(frozen=True, slots=True)
class PunctuationCounters:
    """Counters of the punctuations of one side of a family in a batch, summed over buckets.

    Attributes:
        family: Family id.
        side: ``a`` or ``b``, the side whose stream has the contract.
        closed: Keys that the batch closed, by punctuations or by rows of a unique stream.
        remembered: Closings remembered at the end of the batch; a key may count more than once.
        violating: Rows of the side that broke a promise.
        discarded: Rows of the other side that were not stored, because their key was closed.
        purged: Rows of the other side that were removed from the state because their key was closed.
        dead: Rows of the other side with closed keys that the last purge left in the state.
        live: Estimated number of rows of the other side with open keys at the end of the batch; each join
            counts its own rows.
        died: Estimated number of rows of the other side whose keys this batch closed, or that arrived with
            closed keys; each join counts its own rows.
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
