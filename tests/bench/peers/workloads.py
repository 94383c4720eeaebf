"""The workloads as named values: what the streams carry, what the queries ask, who runs them.

Row i of a stream has event time i / rate, a key and ``v``, uniform in [0, 1). The number of partners of a row
depends on how many rows a window holds and how often they share its key, not on seconds: where keys are few
or skewed, the streams are slow, so that windows hold few rows and the output stays moderate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
STREAMS = ("A", "B")

#: What a peer is given of the queries: one join of the largest window, all of them in one join of that
#: window, a join for each, all of them at once, twelve or a hundred of them at once, or no join at all.
Sharing = Literal["largest", "hand", "each", "all", "twelve", "hundred", "none"]
_SOME: dict[str, int] = {"twelve": 12, "hundred": 100}


@dataclass(frozen=True, slots=True)
class Query:
    """Rows of A and B with equal keys, less than a window apart, and ``v`` below a bound where there is one.

    Attributes:
        name: Name.
        window_us: Window of both streams, a whole number of milliseconds.
        a_below: A.v is below this.
        b_below: B.v is below this.
    """

    name: str
    window_us: int
    a_below: float | None = None
    b_below: float | None = None

    def __post_init__(self) -> None:
        if self.window_us <= 0 or self.window_us % 1000:
            raise ValueError(f"{self.name}: a window is a positive number of milliseconds")

    def cql(self) -> str:
        """Return the query in Sluice's language."""
        window = f"[RANGE {self.window_us // 1000} MILLISECONDS]"
        bounds = [f"{s}.v < {b!r}" for s, b in (("A", self.a_below), ("B", self.b_below)) if b is not None]
        where = " AND ".join(["A.k = B.k", *bounds])
        return f"SELECT A.ts AS ats, B.ts AS bts, A.k AS k FROM A {window}, B {window} WHERE {where}"


@dataclass(frozen=True, slots=True)
class Streams:
    """Two streams of Parquet files.

    Attributes:
        rows: Rows per stream.
        files: Files per stream; one of each is a batch.
        rate_per_s: Rows per second of event time and stream.
        keys: Distinct keys.
        zipf: Exponent of the keys' frequencies; None is uniform.
    """

    rows: int
    files: int
    rate_per_s: int
    keys: int
    zipf: float | None = None

    @property
    def name(self) -> str:
        """Name of the directory: the same rows have the same name, whatever the workload."""
        skew = "uniform" if self.zipf is None else f"zipf{self.zipf:g}"
        return f"{self.rows}-in-{self.files}-at-{self.rate_per_s}-{self.keys}-{skew}"

    def first(self, part: float) -> Streams:
        """Return so much of the beginning: whole files, or smaller ones where too few would be left."""
        files = max(min(self.files, FEWEST_FILES), round(self.files * part))
        return replace(self, rows=max(round(self.rows * part) // files, 1) * files, files=files)


#: Two batches are left out of the steady state, and two are to be in it.
FEWEST_FILES = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """Streams and queries.

    Attributes:
        name: Name on the command line.
        says: What it is, in a sentence of the report.
        streams: Input.
        queries: Queries.
        small: How many times smaller ``--quick`` makes it.
        peers: Names of the peers that run by default; empty means all.
        enough_s: How long a run should take at most: slower peers are given fewer rows.
        weight: How many times longer a row takes than in many-keys, by which slow peers' parts are chosen.
        most_joins: Peers with a join for each query are given so many of the queries at most.
        files_at_once: Files of each stream that are a batch of Sluice; one is a batch of native Spark.
        rows_per_s: What some peers do of it, roughly, where their rate at many-keys says nothing about that.
    """

    name: str
    says: str
    streams: Streams
    queries: tuple[Query, ...]
    small: int
    peers: tuple[str, ...] = ()
    enough_s: float = 40.0
    weight: float = 1.0
    most_joins: int = 12
    files_at_once: int = 1
    rows_per_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def largest(self) -> Query:
        """Return the query of the largest window, as if it had no filter."""
        return Query("largest", max(q.window_us for q in self.queries))

    def asked(self, sharing: Sharing) -> tuple[Query, ...]:
        """Return the queries that a peer is given; those of the smallest and largest windows are in."""
        if sharing == "none":
            return ()
        if sharing == "largest":
            return (self.largest,)
        most = self.most_joins if sharing == "each" else _SOME.get(sharing, len(self.queries))
        if len(self.queries) <= most:
            return self.queries
        ordered = sorted(self.queries, key=lambda q: (q.window_us, q.name))
        return tuple(ordered[round(i * (len(ordered) - 1) / (most - 1))] for i in range(most))

    def quick(self) -> Workload:
        """Return a small form of the same shape: as many partners per row, the same part of a window filled.

        Where keys are many, windows and keys shrink with the rows; where they are few, rows alone do.
        """
        rows = self.streams.rows // self.small
        few = self.streams.keys < 10_000 or self.streams.zipf is not None
        files = min(self.streams.files, 6)
        streams = replace(self.streams, rows=rows // files * files, files=files)
        if few:
            return replace(self, streams=streams, files_at_once=1)
        queries = tuple(
            replace(q, window_us=max(q.window_us // self.small // 1000, 1) * 1000) for q in self.queries
        )
        streams = replace(streams, keys=max(self.streams.keys // self.small, 1))
        return replace(self, streams=streams, queries=queries)


def _windows(longest_s: float, count: int) -> tuple[int, ...]:
    """Return windows in equal steps up to the longest, in microseconds."""
    return tuple(round(longest_s * i / count * 1000) * 1000 for i in range(1, count + 1))


def _queries(longest_s: float) -> tuple[Query, ...]:
    """Return twelve queries without filters, windows in equal steps."""
    return tuple(
        Query(f"q{number}", window_us) for number, window_us in enumerate(_windows(longest_s, 12), 1)
    )


#: 40 filters: A.v or B.v below 1, 2, ... 20%.
_FILTERS = tuple((side, 0.01 * percent) for percent in range(1, 21) for side in "ab")


def _filtered(name: str, window_us: int, filter_number: int) -> Query:
    side, below = _FILTERS[filter_number % len(_FILTERS)]
    bound = round(below, 2)
    return Query(name, window_us, *((bound, None) if side == "a" else (None, bound)))


def _selective() -> tuple[Query, ...]:
    """Return 100 queries: 50 distinct windows, 40 distinct filters, no two alike."""
    windows = _windows(30.0, 50)
    return tuple(_filtered(f"q{n}", windows[n % 50], 7 * n) for n in range(100))


def _fan_out() -> tuple[Query, ...]:
    """Return 1,000 queries over the same windows and filters, no two alike."""
    windows = _windows(30.0, 50)
    return tuple(_filtered(f"q{n}", windows[n % 50], 2 * (n // 50) + n % 2) for n in range(1000))


def _shared() -> tuple[Query, ...]:
    """Return the queries of fan-out, one of which gives way to one without a filter.

    It sorts last, so that it is among any twelve or hundred of them: what one query gives, all of them do.
    """
    return (*_fan_out()[:-1], Query("whole", _windows(30.0, 50)[-1]))


_MANY_KEYS = Streams(rows=10_000_000, files=20, rate_per_s=100_000, keys=5_000_000)
#: Where a workload says something about a peer's design, not about its state store.
_MAIN = ("sluice", "spark-hand", "spark-each", "flink-heap", "pathway", "duckdb", "spark-shuffle")


#: Where each row of a batch has the key of many others: native Spark compares all of them and asks for their
#: times afterwards, so that its time for a batch grows with the square of its rows, and small files suit it.
_DENSE = ("sluice", "spark-hand", "spark-hand-rocksdb", "spark-each", "flink-heap", "pathway", "duckdb")
_DENSE_ROWS_PER_S = {"spark-hand": 20_000, "spark-hand-rocksdb": 20_000, "spark-each": 2_000}


def _long_window(times: int) -> Workload:
    """Return twelve queries whose largest window holds ``times`` 50,000 rows of each stream."""
    short = () if times == 1 else ("sluice-short",)
    large = ("sluice-small-cache", "spark-hand-rocksdb") if times == 100 else ()
    return Workload(
        name=f"long-window-{times}",
        says=(
            f"windows {times} times as long as 0.04 to 0.5 s, and {times} times 83,000 keys, so that a row "
            f"has as many partners; the largest window holds {50_000 * times:,} rows of each stream"
        ),
        streams=Streams(rows=10_000_000, files=20, rate_per_s=100_000, keys=83_333 * times),
        queries=_queries(0.5 * times),
        small=50,
        peers=("sluice", *short, *large, "spark-hand", "duckdb"),
    )


WORKLOADS = {
    w.name: w
    for w in (
        Workload(
            name="many-keys",
            says="12 queries with windows of 2.5, 5, ... 30 s over 5M keys; 1.2 partners in the largest",
            streams=_MANY_KEYS,
            queries=_queries(30.0),
            small=125,
            enough_s=160.0,
            # It does more a second, but keeps 6 GB of each million rows.
            rows_per_s={"pathway": 20_000},
        ),
        Workload(
            name="few-keys",
            says="the same 12 queries over 100 keys, 20 rows/s: 12 partners in the largest window",
            streams=Streams(rows=2_000_000, files=200, rate_per_s=20, keys=100),
            queries=_queries(30.0),
            small=50,
            peers=_DENSE,
            weight=3.0,
            files_at_once=10,
            rows_per_s=_DENSE_ROWS_PER_S,
        ),
        Workload(
            name="skew",
            says=(
                "the same 12 queries over 100,000 keys that follow Zipf 1.2 (the first has 19% of the rows), "
                "10 rows/s: 26 partners in the largest window"
            ),
            streams=Streams(rows=2_000_000, files=200, rate_per_s=10, keys=100_000, zipf=1.2),
            queries=_queries(30.0),
            small=50,
            peers=_DENSE,
            weight=4.0,
            files_at_once=10,
            rows_per_s=_DENSE_ROWS_PER_S,
        ),
        Workload(
            name="selective",
            says="100 queries over the rows of many-keys: 50 windows, 40 filters that pass 1 to 20%",
            streams=_MANY_KEYS,
            queries=_selective(),
            small=125,
            peers=_MAIN,
        ),
        Workload(
            name="fan-out",
            says="1,000 queries over the rows of many-keys: the windows and filters of selective, all mixed",
            streams=_MANY_KEYS,
            queries=_fan_out(),
            small=125,
            # A join for each of twelve of them would be that of selective again.
            peers=("sluice", "spark-hand", "duckdb", "spark-shuffle"),
            weight=2.0,
        ),
        Workload(
            name="sharing",
            says=(
                "what more queries cost: the largest window without a filter over the rows of many-keys, "
                "alone, and with 11, 99 and 999 queries of fan-out beside it"
            ),
            streams=_MANY_KEYS,
            queries=_shared(),
            small=125,
            peers=("sluice", "sluice-100", "sluice-12", "sluice-one"),
        ),
        _long_window(1),
        _long_window(10),
        _long_window(100),
        Workload(
            name="small-batches",
            says=(
                "the 100 queries of selective at 5,000 rows/s and stream, 0.5 s of event time per batch, "
                "always a batch behind: what a batch costs at the least"
            ),
            streams=Streams(rows=300_000, files=120, rate_per_s=5_000, keys=250_000),
            queries=_selective(),
            small=10,
            peers=("sluice", "spark-hand", "spark-hand-rocksdb", "spark-shuffle"),
        ),
    )
}
