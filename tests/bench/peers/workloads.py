"""The workloads as named values: what the streams carry, what the queries ask, who runs them.

Row i of a stream has event time i / rate, a key and ``v``, uniform in [0, 1). The number of partners of a row
depends on how many rows a window holds and how often they share its key, not on seconds: where keys are few
or skewed, the streams are slow, so that windows hold few rows and the output stays moderate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
START_US = 1_700_000_000 * SECOND_US
STREAMS = ("A", "B", "C")


@dataclass(frozen=True, slots=True)
class Query:
    """Rows of all streams with equal keys, less than a window apart, and ``v`` below a bound if one is given.

    Attributes:
        name: Name.
        window_us: Window of all streams, a whole number of milliseconds.
        a_below: A.v is below this.
        b_below: B.v is below this.
        left: Whether rows of A without a partner are results, too (LEFT JOIN).
    """

    name: str
    window_us: int
    a_below: float | None = None
    b_below: float | None = None
    left: bool = False

    def cql(
        self, selected: str = "A.ts AS ats, B.ts AS bts, A.k AS k", names: tuple[str, ...] = STREAMS[:2]
    ) -> str:
        """Return the query over these streams in Sluice's language."""
        window = f"[RANGE {self.window_us // 1000} MILLISECONDS]"
        if self.left:
            return f"SELECT {selected} FROM A {window} LEFT JOIN B {window} ON A.k = B.k"
        bounds = [f"{s}.v < {b!r}" for s, b in (("A", self.a_below), ("B", self.b_below)) if b is not None]
        where = " AND ".join([*(f"A.k = {other}.k" for other in names[1:]), *bounds])
        return f"SELECT {selected} FROM {', '.join(f'{name} {window}' for name in names)} WHERE {where}"


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams of Parquet files.

    Attributes:
        rows: Rows per stream.
        files: Files per stream; one of each is a batch.
        rate_per_s: Rows per second of event time and stream.
        keys: Distinct keys.
        zipf: Exponent of the keys' frequencies; None is uniform.
        count: Number of streams, 2 or 3.
        ended: Whether the last row of each stream comes a day after the others and has no partner, so that
            it is decided of each other row whether it has one.
    """

    rows: int
    files: int
    rate_per_s: int
    keys: int
    zipf: float | None = None
    count: int = 2
    ended: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the streams."""
        return STREAMS[: self.count]

    @property
    def name(self) -> str:
        """Name of the directory: the same rows have the same name, whatever the workload."""
        skew = "uniform" if self.zipf is None else f"zipf{self.zipf:g}"
        more = (f"-{self.count}" if self.count > 2 else "") + ("-ended" if self.ended else "")
        return f"{self.rows}-in-{self.files}-at-{self.rate_per_s}-{self.keys}-{skew}{more}"

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
        streams: Input.
        queries: Queries.
        peers: Names of the peers that run by default; empty means all but those that must be named.
        enough_s: How long a run should take at most: slower peers are given fewer rows.
        weight: How many times longer a row takes than in many-keys, by which slow peers' parts are chosen.
        files_at_once: Files of each stream that are a batch of Sluice; one is a batch of native Spark.
        rows_per_s: What some peers do of it, roughly, where their rate at many-keys says nothing about that.
    """

    name: str
    streams: Streams
    queries: tuple[Query, ...]
    peers: tuple[str, ...] = ()
    enough_s: float = 40.0
    weight: float = 1.0
    files_at_once: int = 1
    rows_per_s: Mapping[str, float] = field(default_factory=dict)

    def asked(self, most: int | None) -> tuple[Query, ...]:
        """Return so many queries, the smallest and largest windows among them; one has no filter."""
        if most == 1:
            return (Query("largest", max(q.window_us for q in self.queries), left=self.queries[0].left),)
        if most is None or len(self.queries) <= most:
            return self.queries
        ordered = sorted(self.queries, key=lambda q: (q.window_us, q.name))
        return tuple(ordered[round(i * (len(ordered) - 1) / (most - 1))] for i in range(most))


def _windows(longest_s: float, count: int) -> tuple[int, ...]:
    """Return windows in equal steps up to the longest, in microseconds."""
    return tuple(round(longest_s * i / count * 1000) * 1000 for i in range(1, count + 1))


def _twelve(longest_s: float) -> tuple[Query, ...]:
    """Return twelve queries without filters, windows in equal steps."""
    return tuple(Query(f"q{n}", window_us) for n, window_us in enumerate(_windows(longest_s, 12), 1))


#: 40 filters: A.v or B.v below 1, 2, ... 20%.
_FILTERS = tuple((side, 0.01 * percent) for percent in range(1, 21) for side in "ab")


#: 50 windows, and 2,000.
_FEW, _MANY = _windows(30.0, 50), _windows(30.0, 2000)


def _filtered(number: int, filter_number: int, windows: Sequence[int] = _FEW) -> Query:
    """Return a query with one of these windows and one of 40 filters."""
    side, below = _FILTERS[filter_number % len(_FILTERS)]
    bound = round(below, 2)
    bounds = (bound, None) if side == "a" else (None, bound)
    return Query(f"q{number}", windows[number % len(windows)], *bounds)


#: 100 queries: 50 distinct windows, 40 distinct filters, no two alike.
_SELECTIVE = tuple(_filtered(n, 7 * n) for n in range(100))
#: 1,000 queries over the same windows and filters, no two alike.
_FAN_OUT = tuple(_filtered(n, 2 * (n // 50) + n % 2) for n in range(1000))
#: These with a last one without a filter. It sorts last, so it is among any twelve or hundred of them.
_SHARED = (*_FAN_OUT[:-1], Query("whole", _FEW[-1]))

#: 10,000 queries over 2,000 windows, no two alike, the last one without a filter.
_TEN_THOUSAND = (
    *(_filtered(n, 8 * (n // 2000) + n % 8, _MANY) for n in range(9999)),
    Query("whole", _MANY[-1]),
)

_MANY_KEYS = Streams(rows=10_000_000, files=20, rate_per_s=100_000, keys=5_000_000)
#: Where a workload says something about a peer's design, not about its state store.
_MAIN = ("sluice", "spark-hand", "spark-each", "flink-heap", "pathway", "duckdb", "spark-shuffle")
#: Where each row of a batch has the key of many others: native Spark compares all of them and asks for their
#: times afterwards, so that its time for a batch grows with the square of its rows, and small files suit it.
_DENSE = ("sluice", "spark-hand", "spark-hand-rocksdb", "spark-each", "flink-heap", "pathway", "duckdb")
_DENSE_ROWS_PER_S = {"spark-hand": 20_000, "spark-hand-rocksdb": 20_000, "spark-each": 2_000}


def _long_window(times: int, *peers: str) -> Workload:
    """Return twelve queries whose largest window holds ``times`` 50,000 rows of each stream."""
    streams = Streams(rows=10_000_000, files=20, rate_per_s=100_000, keys=83_333 * times)
    peers = ("sluice", *peers, "spark-hand", "duckdb")
    return Workload(f"long-window-{times}", streams, _twelve(0.5 * times), peers)


WORKLOADS = {
    workload.name: workload
    for workload in (
        # 1.2 partners in the largest window. Pathway does more a second, but keeps 6 GB of each million rows.
        Workload("many-keys", _MANY_KEYS, _twelve(30.0), enough_s=160.0, rows_per_s={"pathway": 20_000}),
        # 12 partners.
        Workload(
            name="few-keys",
            streams=Streams(rows=2_000_000, files=200, rate_per_s=20, keys=100),
            queries=_twelve(30.0),
            peers=_DENSE,
            weight=3.0,
            files_at_once=10,
            rows_per_s=_DENSE_ROWS_PER_S,
        ),
        # 26 partners; the first key has 19% of the rows.
        Workload(
            name="skew",
            streams=Streams(rows=2_000_000, files=200, rate_per_s=10, keys=100_000, zipf=1.2),
            queries=_twelve(30.0),
            peers=_DENSE,
            weight=4.0,
            files_at_once=10,
            rows_per_s=_DENSE_ROWS_PER_S,
        ),
        Workload("selective", _MANY_KEYS, _SELECTIVE, _MAIN),
        # A join for each of twelve of these queries would be that of selective again.
        Workload(
            "fan-out", _MANY_KEYS, _FAN_OUT, ("sluice", "spark-hand", "duckdb", "spark-shuffle"), weight=2.0
        ),
        # Costs of more queries: the largest window alone, and with 11, 99 and 999 queries beside it.
        Workload("sharing", _MANY_KEYS, _SHARED, ("sluice", "sluice-100", "sluice-12", "sluice-one")),
        Workload("ten-thousand", _MANY_KEYS, _TEN_THOUSAND, ("sluice", "sluice-one")),
        _long_window(1),
        _long_window(10, "sluice-short"),
        _long_window(100, "sluice-short", "sluice-small-cache", "spark-hand-rocksdb"),
        # 1.2 partners in each other stream, of which 3 in 4 are near enough to each other.
        Workload(
            name="three-streams",
            streams=Streams(rows=5_000_000, files=20, rate_per_s=100_000, keys=5_000_000, count=3),
            queries=_twelve(30.0),
            peers=("sluice", "sluice-one", "spark-one", "spark-hand", "flink-heap", "duckdb"),
            enough_s=160.0,
            weight=2.0,
        ),
        # Many-keys as LEFT JOINs: half of the rows of A have no partner in the largest window.
        Workload(
            name="left",
            streams=replace(_MANY_KEYS, ended=True),
            queries=tuple(replace(query, left=True) for query in _twelve(30.0)),
            peers=("sluice", "sluice-one", "spark-one", "spark-one-rocksdb", "spark-each", "duckdb"),
            enough_s=160.0,
        ),
        # 0.5 s of event time per batch, always a batch behind: what a batch costs at the least.
        Workload(
            name="small-batches",
            streams=Streams(rows=300_000, files=120, rate_per_s=5_000, keys=250_000),
            queries=_SELECTIVE,
            peers=("sluice", "spark-hand", "spark-hand-rocksdb", "spark-shuffle"),
        ),
    )
}
