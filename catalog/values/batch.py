"""Manifest of a committed micro-batch: result files, late rows and counters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from catalog.values.counters.batch_counters import (
    BucketCounters,
    CpuCounters,
    HeldTimes,
    StreamCounters,
    StreamPunctuations,
)
from catalog.values.counters.family_counters import (
    AbsenceCounters,
    ExchangeCounters,
    FilterCounters,
    GroupCounters,
    KeyCounters,
    MemoryCounters,
    ProbeCounters,
    PunctuationCounters,
    SliceCounters,
    UnmatchedCounters,
)
from catalog.wording.outside import check_below


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A Parquet file of joined pairs, or of late rows.

    Attributes:
        path: Path relative to the results directory.
        family: Family id if the rows are joined pairs; stream name if they are late rows.
        rows: Number of rows.
        bytes: Size of the file in bytes; None if an older version, which did not record it, wrote the file.
        crc32c: CRC-32C checksum of the bytes; None if an older version, which had none, wrote the file.
    """

    path: str
    family: str
    rows: int
    bytes: int | None = None
    crc32c: int | None = None

    def __post_init__(self) -> None:
        check_below(self.path)


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A file with the rows of several batches, in batch order, or a file that merging left unchanged.

    Attributes:
        file: The file.
        late: Whether the file contains late rows instead of results.
        first: First batch that may have rows in the file.
        last: Last batch that may have rows in the file.
        first_at_us: Wall clock at the commit of the first batch, µs UTC.
        last_at_us: Wall clock at the commit of the last batch, µs UTC.
        level: Number of times that its rows were merged into a larger file; 1 for a file that was due to be
            merged but stayed unchanged.
    """

    file: ResultFile
    late: bool
    first: int
    last: int
    first_at_us: int
    last_at_us: int
    level: int


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Progress of a batch: its plan version and watermarks.

    Attributes:
        batch: Batch number.
        plan_version: Plan version in force in the batch.
        streams: Counters of each stream in that plan.
    """

    batch: int
    plan_version: int
    streams: tuple[StreamCounters, ...]


@dataclass(frozen=True, slots=True)
class BatchManifest:
    """Everything that the commit of a batch makes visible, except routes (``catalog.values.routes``).

    In manifests of older batches, the files and most counters are empty (``thinned``).

    Attributes:
        batch: Batch number, from 0, without gaps.
        epoch: Fencing epoch of the engine that wrote it.
        plan_version: Plan version in force while the batch was processed (0: none yet).
        files: Result files; empty once they are merged (``MergedFile``).
        late_files: Files of late rows; empty once they are merged.
        streams: Counters per stream.
        slices: Counters per slice.
        query_rows: (query id, number of results) in this batch; empty in a manifest that was read from the
            catalog, which stores these numbers in ``catalog.store.repositories.counts``.
        started_at_us: Wall clock at the start of the batch, µs UTC.
        committed_at_us: Wall clock at the commit, µs UTC.
        filters: Counters per distinct filter.
        keys: Counters of join keys, per family side.
        absence: Counters per family side whose rows are checked for matches.
        unmatched: Counters per outer join.
        punctuations: Counters per family side whose stream has a contract.
        received: Numbers of punctuations per stream.
        groups: Counters of each family whose results are groups.
        probes: Counters per family side whose rows are in rings.
        memory: Counters per family side whose rows wait outside the slices.
        cpu: CPU time.
        buckets: Distribution of the work over the buckets.
        input_end: Spark's offset at the end of the batch, as (key, number); empty in manifests of older
            versions.
        digest: Digest of the input ranges and the row counts. If the batch is repeated, its digest must not
            change. Empty in older manifests.
        exchanged: Counts of the pairs that each bucket sends to other buckets. The next batch reads these
            pairs from files of the sending buckets.
        held: Event times of held rows, per bucket and per stream with a state cap.
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
    cpu: CpuCounters = field(default_factory=CpuCounters)
    buckets: BucketCounters = field(default_factory=BucketCounters)
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
        """Return the manifest without files and without counters that are read only for recent batches.

        ``exchanged`` stays, because a repeated batch reads the pairs that the previous batch has sent.
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
    """Totals over all committed batches; the fields are named like columns of the table ``batch_totals``.

    Attributes:
        input_rows: Rows read, including late and rejected rows.
        late_rows: Rows below the watermark of their stream.
        state_rows_peak: Most rows held at the end of a batch.
        state_bytes_peak: Most encoded bytes held at the end of a batch.
        batches: Number of batches.
    """

    input_rows: int = 0
    late_rows: int = 0
    state_rows_peak: int = 0
    state_bytes_peak: int = 0
    batches: int = 0
