"""The profile of streams that no job has measured yet, sampled from their inputs.

    RowSample ──┬── rate, event time per batch
                ├── filters         evaluated on the rows, as PACK does
                ├── stored columns  encoded as a segment, as the state does
                └── join key ── KeySketch ── join selectivity, keys, skew

Join selectivity is estimated from skimmed sketches of both samples' keys (Ganguly, Garofalakis, Rastogi,
EDBT 2004). It is that of any two rows of the streams: keys that live for a moment only, such as order
numbers, match more often inside a window than this tells. Once the family runs, the job measures that.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np
import pyarrow as pa

from catalog.clock import wall_clock_us
from catalog.values.plan import FamilyPlan
from catalog.values.query import Query, Side
from catalog.values.statistics import (
    FamilyProfile,
    FilterProfile,
    FrequentKey,
    Measure,
    Profile,
    StreamProfile,
)
from catalog.values.stream import FilesSource, Stream
from operators.kernels.keys import join_key, mix
from operators.lineage.expressions import evaluate_filters
from operators.segments.layout import side_layout
from operators.segments.row_codec import KEY, POS, TS
from operators.segments.segment import COLUMN, LINEAGE, Segment
from operators.sketches.join_selectivity import KeySketch
from planner.families.families import SIDES, SideName, families
from service.inputs.sample import RowSample, SampleSource

#: A stream is sampled again once there is so many times as much of it.
GROWTH: Final = 1.25
#: What is kept of all streams; most are a number, a sketch has 0.3 MB.
MAX_KEPT: Final = 256
#: Keys looked at one by one: where more are alike, a hash spreads them well enough.
MAX_FREQUENT: Final = 256
#: Rows of a key in a sample of which its share can be told, to a quarter or so.
LEAST_ROWS: Final = 16
#: Rows encoded to see how many bytes they take: with so many, a segment's fixed part no longer shows.
ENCODED_ROWS: Final = 20_000

_LINEAGE_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class _Rates:
    """Asks for the rates of a stream."""


@dataclass(frozen=True, slots=True)
class _SampledFilter:
    """Asks for the selectivity of a filter."""

    sql: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Key:
    """Asks for the keys of a stream: columns, and their types in the join."""

    columns: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Width:
    """Asks for the bytes per stored row of a family's side."""

    key: _Key
    stored: tuple[str, ...]
    lineage_words: int


_Question = _Rates | _SampledFilter | _Key | _Width


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    """Estimates from a sample.

    Attributes:
        value: Rate, selectivity or width; NaN where the sample does not tell.
        at_us: When it was taken, µs UTC.
        keys: Keys, where they were asked for.
        file_s: Event time per file, seconds, where rates were asked for.
    """

    value: float
    at_us: int
    keys: _Keys | None = None
    file_s: float | None = None

    @property
    def measure(self) -> Measure | None:
        """The value, None where there is none."""
        return None if math.isnan(self.value) else Measure(self.value, "sampled", self.at_us)


@dataclass(frozen=True, slots=True, eq=False)
class _Keys:
    """Keys of a sample.

    Attributes:
        sketch: Their sketch.
        distinct: How many there are.
        skew: Their self-join size over what equal shares would give.
        frequent: Share of the rows by key, of the frequent ones.
    """

    sketch: KeySketch
    distinct: int
    skew: float
    frequent: Mapping[int, float]


@dataclass(slots=True)
class SampleCache:
    """Keeps what samples told until their stream has grown by a quarter; threads may share it."""

    _kept: OrderedDict[tuple[int, int, _Question], _Answer] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, stream_id: int, amount: int, question: _Question) -> _Answer | None:
        """Return the answer to a question about a stream of which there is so much."""
        with self._lock:
            found = self._kept.get((stream_id, _level(amount), question))
            if found is not None:
                self._kept.move_to_end((stream_id, _level(amount), question))
            return found

    def keep(self, stream_id: int, amount: int, question: _Question, answer: _Answer) -> None:
        """Keep an answer, and drop the ones that were not needed for longest."""
        with self._lock:
            self._kept[stream_id, _level(amount), question] = answer
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)


def sample_profile(
    source: SampleSource,
    streams: Iterable[Stream],
    queries: Sequence[Query],
    *,
    cache: SampleCache | None = None,
    clock_us: Callable[[], int] = wall_clock_us,
) -> Profile:
    """Sample what planning these queries needs to know of their streams.

    Args:
        source: Where samples come from: ``CatalogRows`` or ``WorkloadRows``.
        streams: The queries' streams; others are left out.
        queries: Bound queries.
        cache: What earlier calls found.
        clock_us: Wall clock, µs UTC.

    Returns:
        Numbers of origin ``sampled``; what the samples do not tell is missing, as is a stream without rows.
        ``batch_s`` is sampled where a stream says how many files go into a batch; buckets are the default.
    """
    grouped = families(queries)
    used = {side.stream_id for q in queries for side in (q.a, q.b)}
    by_id = {s.id: s for s in streams if s.id in used}
    layouts = {
        (family, side): _width(family, members, side, by_id)
        for family, members in grouped.items()
        for side in SIDES
    }
    filters = {
        (side.stream_id, side.filter): _SampledFilter(side.filter, tuple(sorted(side.filter_columns)))
        for q in queries
        for side in (q.a, q.b)
        if side.filter is not None
    }
    asked: dict[int, dict[_Question, None]] = {stream_id: {_Rates(): None} for stream_id in by_id}
    for (stream_id, _), question in filters.items():
        asked[stream_id][question] = None
    for (family, side), width in layouts.items():
        asked[_side(grouped[family][0], side).stream_id] |= {width.key: None, width: None}
    kept = SampleCache() if cache is None else cache
    answers = {
        stream_id: _answers(source, by_id[stream_id], list(questions), kept, clock_us)
        for stream_id, questions in asked.items()
    }
    widths: dict[int, list[_Width]] = {stream_id: [] for stream_id in by_id}
    for (family, side), width in layouts.items():
        widths[_side(grouped[family][0], side).stream_id].append(width)
    found_streams = (_stream_profile(i, answers[i], widths[i]) for i in sorted(answers))
    found_families = (_family_profile(f, members[0], layouts, answers) for f, members in grouped.items())
    return Profile(
        streams=tuple(s for s in found_streams if s is not None),
        filters=tuple(
            FilterProfile(stream_id, sql, found)
            for stream_id, sql in sorted(filters)
            if (found := _measure(answers[stream_id], filters[stream_id, sql])) is not None
        ),
        families=tuple(f for f in found_families if f is not None),
        batch_s=_batch(by_id, answers),
    )


def _side(query: Query, side: SideName) -> Side:
    return query.a if side == "a" else query.b


def _width(family: str, members: Sequence[Query], side: SideName, streams: Mapping[int, Stream]) -> _Width:
    """Return what the family of these queries stores of a side, before it has a plan."""
    first = members[0]
    shape = FamilyPlan(
        id=family,
        stream_a=first.a.stream_id,
        stream_b=first.b.stream_id,
        key=first.key,
        key_types=first.key_types,
        columns_a=tuple(sorted({c for q in members for c in q.a.columns})),
        columns_b=tuple(sorted({c for q in members for c in q.b.columns})),
        filters_a=(),
        filters_b=(),
        queries=(),
        strategy="mem-opt",
        joins=(),
    )
    layout = side_layout(shape, side, streams[_side(first, side).stream_id])
    distinct = {_side(q, side).filter for q in members} - {None}
    words = -(-len(distinct) // _LINEAGE_BITS)
    return _Width(_Key(layout.key, layout.key_types), layout.stored, words)


def _answers(
    source: SampleSource,
    stream: Stream,
    questions: Sequence[_Question],
    cache: SampleCache,
    clock_us: Callable[[], int],
) -> dict[_Question, _Answer]:
    """Answer questions about a stream, of one sample where some are new."""
    amount = source.amount(stream)
    known = {q: found for q in questions if (found := cache.find(stream.id, amount, q)) is not None}
    new = [q for q in questions if q not in known]
    if not new or not amount:
        return known
    columns = sorted({name for question in new for name in _columns(question)})
    sample = source.sample(stream, columns)
    at_us = clock_us()
    if sample is None or not sample.table.num_rows:
        return known
    asked = [q for q in new if isinstance(q, _SampledFilter)]
    passes = evaluate_filters(sample.table, [q.sql for q in asked])
    known |= {q: _Answer(float(p.mean()), at_us) for q, p in zip(asked, passes, strict=True)}
    for question in new:
        if not isinstance(question, _SampledFilter):
            known[question] = _answer(question, stream, sample, at_us)
    for question in new:
        cache.keep(stream.id, amount, question, known[question])
    return known


def _columns(question: _Question) -> tuple[str, ...]:
    match question:
        case _SampledFilter(columns=columns) | _Key(columns=columns):
            return columns
        case _Width(key=key, stored=stored):
            return (*key.columns, *stored)
        case _:
            return ()


def _answer(question: _Rates | _Key | _Width, stream: Stream, sample: RowSample, at_us: int) -> _Answer:
    match question:
        case _Rates():
            rate = math.nan if sample.rate_per_s is None else sample.rate_per_s
            return _Answer(rate, at_us, file_s=sample.file_s)
        case _Key():
            return _Answer(math.nan, at_us, keys=_keys(sample.table, question))
        case _Width():
            return _Answer(_row_bytes(sample.table, question, stream), at_us)


def _keys(table: pa.Table, question: _Key) -> _Keys | None:
    """Return the keys of the rows that have one, None without any."""
    key, valid = join_key(table, question.columns, question.types)
    key = key[valid]
    if not len(key):
        return None
    sketch = KeySketch()
    sketch.update(key)
    distinct, rows = np.unique(key, return_counts=True)
    counts = rows.astype(np.float64)
    top = np.argsort(-rows, kind="stable")[:MAX_FREQUENT]
    top = top[rows[top] >= LEAST_ROWS]
    return _Keys(
        sketch,
        len(counts),
        float((counts**2).sum() * len(counts) / counts.sum() ** 2),
        dict(zip(distinct[top].tolist(), (counts[top] / counts.sum()).tolist(), strict=True)),
    )


def _row_bytes(table: pa.Table, question: _Width, stream: Stream) -> float:
    """Encode some rows as the state does; NaN if none has a key."""
    head = table.slice(0, ENCODED_ROWS).combine_chunks()
    key, valid = join_key(head, question.key.columns, question.key.types)
    index = np.flatnonzero(valid)
    if not len(index):
        return math.nan
    index = index[np.argsort(key[index], kind="stable")]
    rows = len(index)
    ts = head.column(stream.event_time).cast(pa.int64()).to_numpy()
    arrays = {KEY: pa.array(key[index]), TS: pa.array(ts[index]), POS: pa.array(index)}
    for word in range(question.lineage_words):
        arrays[f"{LINEAGE}{word}"] = pa.array(np.zeros(rows, dtype=np.uint64))
    for name in question.stored:
        arrays[COLUMN + name] = head.column(name).combine_chunks().take(pa.array(index))
    batch = pa.table(arrays).combine_chunks().to_batches()[0]
    return len(Segment(batch, 1, ()).encode()) / rows


def _measure(answers: Mapping[_Question, _Answer], question: _Question) -> Measure | None:
    found = answers.get(question)
    return None if found is None else found.measure


def _stream_profile(
    stream_id: int, answers: Mapping[_Question, _Answer], widths: Sequence[_Width]
) -> StreamProfile | None:
    rate = _measure(answers, _Rates())
    if rate is None:
        return None
    found = [m for width in widths if (m := _measure(answers, width)) is not None]
    if not found:
        return StreamProfile(stream_id, rate)
    # Families that join the stream store it side by side.
    mean = sum(m.value for m in found) / len(found)
    return StreamProfile(stream_id, rate, Measure(mean, "sampled", min(cast("int", m.at_us) for m in found)))


def _family_profile(
    family: str,
    member: Query,
    layouts: Mapping[tuple[str, SideName], _Width],
    answers: Mapping[int, Mapping[_Question, _Answer]],
) -> FamilyProfile | None:
    found = [answers[_side(member, side).stream_id].get(layouts[family, side].key) for side in SIDES]
    a, b = found
    if a is None or b is None or a.keys is None or b.keys is None:
        return None
    return FamilyProfile(
        family=family,
        join_selectivity=Measure(a.keys.sketch.selectivity(b.keys.sketch), "sampled", min(a.at_us, b.at_us)),
        keys_a=Measure(a.keys.distinct, "sampled", a.at_us),
        keys_b=Measure(b.keys.distinct, "sampled", b.at_us),
        skew_a=Measure(a.keys.skew, "sampled", a.at_us),
        skew_b=Measure(b.keys.skew, "sampled", b.at_us),
        frequent=_frequent(a.keys.frequent, b.keys.frequent),
    )


def _frequent(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[FrequentKey, ...]:
    keys = sorted(a.keys() | b.keys())
    hashes = mix(np.array(keys, dtype=np.int64).view(np.uint64)).tolist()
    return tuple(
        FrequentKey(key, hashed, a.get(key, 0.0), b.get(key, 0.0))
        for key, hashed in zip(keys, hashes, strict=True)
    )


def _batch(streams: Mapping[int, Stream], answers: Mapping[int, Mapping[_Question, _Answer]]) -> Measure:
    """Event time of a batch where streams say how many files it takes; the mean of several such streams."""
    found = []
    for stream_id, stream in streams.items():
        rates = answers[stream_id].get(_Rates())
        files = stream.source.max_files_per_batch if isinstance(stream.source, FilesSource) else None
        if files is not None and rates is not None and rates.file_s is not None:
            found.append((files * rates.file_s, rates.at_us))
    if not found:
        return Profile().batch_s
    return Measure(sum(s for s, _ in found) / len(found), "sampled", min(at_us for _, at_us in found))


def _level(amount: int) -> int:
    """Number the powers of ``GROWTH`` that an amount lies between.

    >>> _level(0), _level(1000) == _level(1001), _level(1000) < _level(1300)
    (0, True, True)
    """
    return int(math.log(amount, GROWTH)) + 1 if amount > 0 else 0
