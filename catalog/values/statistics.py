"""Statistics of streams and families: the input of the cost models that choose a plan.

Every number has an origin. If several origins provide a number, the first of these origins is preferred:

    given > measured (by the running job, smoothed) > sampled (from the inputs) > assumed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from catalog.values.plan import Band

Origin = Literal["given", "measured", "sampled", "assumed"]


@dataclass(frozen=True, slots=True)
class Measure:
    """A number and its origin.

    Attributes:
        value: The number.
        origin: Where it comes from.
        at_us: Wall clock to which the number refers, µs UTC; None for a given or assumed number.
    """

    value: float
    origin: Origin = "given"
    at_us: int | None = None


@dataclass(frozen=True, slots=True)
class StreamProfile:
    """Statistics of a stream.

    Attributes:
        stream_id: The stream.
        rate_per_s: Rows per second of event time.
        row_bytes: Encoded bytes of a stored row; None if unknown.
        scramble: Scrambling factor of the stream's order; None if unknown or without an order.
    """

    stream_id: int
    rate_per_s: Measure
    row_bytes: Measure | None = None
    scramble: Measure | None = None


@dataclass(frozen=True, slots=True)
class FilterProfile:
    """Statistics of a distinct filter of a stream, in any family.

    Attributes:
        stream_id: The stream.
        sql: Canonical predicate over the stream's columns.
        selectivity: Fraction of rows that pass, 0 to 1.
    """

    stream_id: int
    sql: str
    selectivity: Measure


@dataclass(frozen=True, slots=True)
class FrequentKey:
    """A join key that many rows have.

    Attributes:
        key: The key as int64 (``operators.kernels.keys.join_key``).
        hash: Hash of the key, 0 to 2^64 - 1; this hash modulo the number of buckets is the number of the
            key's home bucket.
        share_a: Fraction of side a's rows that have this key.
        share_b: Fraction of side b's rows that have this key.
    """

    key: int
    hash: int
    share_a: float
    share_b: float


@dataclass(frozen=True, slots=True)
class FamilyProfile:
    """Statistics of a family: a pair of streams joined on a key.

    Attributes:
        family: Family id.
        join_selectivity: Fraction of the pairs of rows that have equal keys (the paper's S_1), 0 to 1.
        keys_a: Distinct keys among recent rows of side a; None if unknown.
        keys_b: Distinct keys among recent rows of side b; None if unknown.
        skew_a: Self-join size of recent rows of side a, divided by the size that it would have with equally
            frequent keys; 1 means no skew.
        skew_b: Skew of recent rows of side b, measured like ``skew_a``.
        frequent: Keys that many rows have, by key; all other keys have few rows.
        lag_a: Number of rows by which side a leads side b in the order of both streams; None if unknown.
        lag_b: Number of rows by which side b leads side a; None if unknown.
        open_a_s: Mean time, in seconds, from a row of side a until side b closes the row's key; None if
            unknown, or if b closes no keys.
        open_b_s: Mean time, in seconds, from a row of side b until side a closes the row's key; None if
            unknown, or if a closes no keys.
    """

    family: str
    join_selectivity: Measure
    keys_a: Measure | None = None
    keys_b: Measure | None = None
    skew_a: Measure | None = None
    skew_b: Measure | None = None
    frequent: tuple[FrequentKey, ...] = ()
    lag_a: Measure | None = None
    lag_b: Measure | None = None
    open_a_s: Measure | None = None
    open_b_s: Measure | None = None


@dataclass(frozen=True, slots=True)
class BandProfile:
    """Statistics of a band by which the pairs of a family without a key can be found.

    Attributes:
        family: Family id.
        band: The band.
        share: Fraction of all pairs of rows that are in the band, 0 to 1.
    """

    family: str
    band: Band
    share: Measure


@dataclass(frozen=True, slots=True)
class Profile:
    """All statistics that the planner uses.

    Attributes:
        streams: Statistics of streams, by stream id.
        filters: Statistics of filters, by stream id and text.
        families: Statistics of families, by family id.
        batch_s: Event time that one micro-batch covers, seconds.
        buckets: Buckets of the job.
        input_s: Event time that all input covers, seconds; None if it is unknown or the input has no end.
        bands: Statistics of bands, for families that have several possible bands.
    """

    streams: tuple[StreamProfile, ...] = ()
    filters: tuple[FilterProfile, ...] = ()
    families: tuple[FamilyProfile, ...] = ()
    batch_s: Measure = Measure(1.0, "assumed")
    buckets: int = 2
    input_s: float | None = None
    bands: tuple[BandProfile, ...] = ()
