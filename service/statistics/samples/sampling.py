"""The profile of streams that no job has measured yet, sampled from their inputs.

    RowSample ──┬── rate, event time per batch
                ├── filters         evaluated on the rows, as PACK does
                ├── stored columns  encoded as a segment, as the state does
                └── join key ── join selectivity, keys, skew

Join selectivity is counted: the number of pairs with equal keys in both samples, divided by the number of all
pairs. This selectivity applies to any two rows of the streams: short-lived keys, such as order numbers, match
more often inside a window. Once the family runs, the job measures the selectivity inside windows.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np

from catalog.steps import is_intermediate, stream_sides
from catalog.times.clock import wall_clock_us
from catalog.values.plan import Band, FamilyPlan
from catalog.values.query import Query, Side
from catalog.values.statistics import (
    BandProfile,
    FamilyProfile,
    FilterProfile,
    FrequentKey,
    Measure,
    Profile,
    StreamProfile,
)
from catalog.values.stream import FilesSource, Stream
from operators.filters.expressions import evaluate_filters
from operators.kernels.keys import mix
from operators.segments.layout import side_layout
from planner.families.bands import candidate_bands
from planner.families.families import SIDES, SideName, families, is_theta
from service.inputs.reading.sample import SampleSource
from service.statistics.samples.band_shares import band_share
from service.statistics.samples.sample_answers import (
    Answer,
    FilterAsked,
    KeyAsked,
    Question,
    RatesAsked,
    RowsAsked,
    WidthAsked,
    answered,
    columns_asked,
)

#: Factor by which a stream grows before it is sampled again.
GROWTH: Final = 1.25
#: Maximum number of answers kept for all streams (usually one number each), and of keys kept in all answers
#: (16 bytes each).
MAX_KEPT: Final = 256
MAX_KEPT_KEYS: Final = 4_000_000

_LINEAGE_BITS: Final = 64


@dataclass(slots=True)
class SampleCache:
    """Cache of sample answers, each kept until its stream has grown by a quarter; thread-safe."""

    _kept: OrderedDict[tuple[int, int, Question], Answer] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, stream_id: int, amount: int, question: Question) -> Answer | None:
        """Return the cached answer to a question about a stream with the given amount of input."""
        with self._lock:
            found = self._kept.get((stream_id, _level(amount), question))
            if found is not None:
                self._kept.move_to_end((stream_id, _level(amount), question))
            return found

    def keep(self, stream_id: int, amount: int, question: Question, answer: Answer) -> None:
        """Keep an answer, and drop the least recently used answers above the limits."""
        with self._lock:
            self._kept[stream_id, _level(amount), question] = answer
            while len(self._kept) > MAX_KEPT or self._kept_keys() > MAX_KEPT_KEYS:
                self._kept.popitem(last=False)

    def _kept_keys(self) -> int:
        return sum(len(answer.keys.distinct) for answer in self._kept.values() if answer.keys is not None)


def sample_profile(
    source: SampleSource,
    streams: Iterable[Stream],
    queries: Sequence[Query],
    *,
    cache: SampleCache | None = None,
    clock_us: Callable[[], int] = wall_clock_us,
) -> Profile:
    """Sample the stream statistics that are needed to plan the given queries.

    Args:
        source: Where samples come from: ``CatalogRows`` or ``WorkloadRows``.
        streams: At least the queries' streams; all other streams are ignored.
        queries: Bound queries.
        cache: Answers of earlier calls.
        clock_us: Wall clock, µs UTC.

    Returns:
        Numbers of origin ``sampled``; numbers that the samples do not give, and streams without rows, are
        missing. ``batch_s`` is sampled if a stream sets the number of files of a batch; ``buckets`` has its
        default value.
    """
    grouped = families(queries)
    sides = [side for q in queries for side in stream_sides(q)]
    used = {side.stream_id for side in sides}
    by_id = {s.id: s for s in streams if s.id in used}
    layouts = {
        (family, side): _width(family, members, side, by_id)
        for family, members in grouped.items()
        for side in SIDES
        if not is_intermediate(_side(members[0], side).stream_id)
    }
    filters = {
        (side.stream_id, side.filter): FilterAsked(side.filter, tuple(sorted(side.filter_columns)))
        for side in sides
        if side.filter is not None
    }
    asked: dict[int, dict[Question, None]] = {stream_id: {RatesAsked(): None} for stream_id in by_id}
    for (stream_id, _), question in filters.items():
        asked[stream_id][question] = None
    for (family, side), width in layouts.items():
        asked[_side(grouped[family][0], side).stream_id] |= {width.key: None, width: None}
    bands, rows = _bands(grouped, by_id)
    for family in bands:
        for side in SIDES:
            asked[_side(grouped[family][0], side).stream_id][rows[family, side]] = None
    kept = SampleCache() if cache is None else cache
    answers = {
        stream_id: _answers(source, by_id[stream_id], list(questions), kept, clock_us)
        for stream_id, questions in asked.items()
    }
    widths: dict[int, list[WidthAsked]] = {stream_id: [] for stream_id in by_id}
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
        input_s=_input(by_id, answers),
        bands=tuple(
            found
            for family, of_family in bands.items()
            for found in _band_profiles(family, of_family, grouped[family][0], rows, answers)
        ),
    )


def _side(query: Query, side: SideName) -> Side:
    return query.a if side == "a" else query.b


def _width(
    family: str, members: Sequence[Query], side: SideName, streams: Mapping[int, Stream]
) -> WidthAsked:
    """Return the question for the width of the rows that a family stores for a side, without a plan."""
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
    return WidthAsked(KeyAsked(layout.key, layout.key_types), layout.stored, words)


def _answers(
    source: SampleSource,
    stream: Stream,
    questions: Sequence[Question],
    cache: SampleCache,
    clock_us: Callable[[], int],
) -> dict[Question, Answer]:
    """Answer questions about a stream from the cache, and all others from one sample."""
    amount = source.amount(stream)
    known = {q: found for q in questions if (found := cache.find(stream.id, amount, q)) is not None}
    new = [q for q in questions if q not in known]
    if not new or not amount:
        return known
    columns = sorted({name for question in new for name in columns_asked(question)})
    sample = source.sample(stream, columns)
    at_us = clock_us()
    if sample is None or not sample.table.num_rows:
        return known
    asked = [q for q in new if isinstance(q, FilterAsked)]
    passes = evaluate_filters(sample.table, [q.sql for q in asked])
    known |= {q: Answer(float(p.mean()), at_us) for q, p in zip(asked, passes, strict=True)}
    for question in new:
        if not isinstance(question, FilterAsked):
            known[question] = answered(question, stream, sample, at_us)
    for question in new:
        cache.keep(stream.id, amount, question, known[question])
    return known


def _measure(answers: Mapping[Question, Answer], question: Question) -> Measure | None:
    found = answers.get(question)
    return None if found is None else found.measure


def _stream_profile(
    stream_id: int, answers: Mapping[Question, Answer], widths: Sequence[WidthAsked]
) -> StreamProfile | None:
    rate = _measure(answers, RatesAsked())
    if rate is None:
        return None
    found = [m for width in widths if (m := _measure(answers, width)) is not None]
    if not found:
        return StreamProfile(stream_id, rate)
    # Each family that joins the stream stores its rows separately.
    mean = sum(m.value for m in found) / len(found)
    return StreamProfile(stream_id, rate, Measure(mean, "sampled", min(cast("int", m.at_us) for m in found)))


def _family_profile(
    family: str,
    member: Query,
    layouts: Mapping[tuple[str, SideName], WidthAsked],
    answers: Mapping[int, Mapping[Question, Answer]],
) -> FamilyProfile | None:
    if is_intermediate(member.a.stream_id):
        return None
    found = [answers[_side(member, side).stream_id].get(layouts[family, side].key) for side in SIDES]
    a, b = found
    if a is None or b is None or a.keys is None or b.keys is None:
        return None
    return FamilyProfile(
        family=family,
        join_selectivity=Measure(a.keys.selectivity(b.keys), "sampled", min(a.at_us, b.at_us)),
        keys_a=Measure(len(a.keys.distinct), "sampled", a.at_us),
        keys_b=Measure(len(b.keys.distinct), "sampled", b.at_us),
        skew_a=Measure(a.keys.skew, "sampled", a.at_us),
        skew_b=Measure(b.keys.skew, "sampled", b.at_us),
        frequent=_frequent(a.keys.frequent, b.keys.frequent),
    )


def _bands(
    grouped: Mapping[str, Sequence[Query]], streams: Mapping[int, Stream]
) -> tuple[dict[str, list[Band]], dict[tuple[str, SideName], RowsAsked]]:
    """Return the bands of each family with several bands, and the questions for rows to measure them."""
    bands: dict[str, list[Band]] = {}
    rows: dict[tuple[str, SideName], RowsAsked] = {}
    for family, members in grouped.items():
        if not is_theta(family) or is_intermediate(members[0].a.stream_id):
            continue
        types = {
            side: {c.name: c.type for c in streams[_side(members[0], side).stream_id].columns}
            for side in SIDES
        }
        found = candidate_bands((q.residual for q in members), types)
        if len(found) < 2:
            continue
        bands[family] = found
        for side in SIDES:
            columns = {band.column for band in found if band.side == side}
            bounds = (end for band in found if band.side != side for end in (band.low, band.high))
            rows[family, side] = RowsAsked(
                tuple(sorted(columns | {e.column for e in bounds if e is not None}))
            )
    return bands, rows


def _band_profiles(
    family: str,
    bands: Sequence[Band],
    member: Query,
    rows: Mapping[tuple[str, SideName], RowsAsked],
    answers: Mapping[int, Mapping[Question, Answer]],
) -> Iterator[BandProfile]:
    """Yield the share of pairs that fall into each band; yield nothing if a stream has no rows."""
    a, b = (answers[_side(member, side).stream_id].get(rows[family, side]) for side in SIDES)
    if a is None or b is None or a.rows is None or b.rows is None:
        return
    for band in bands:
        share = band_share(band, a.rows, b.rows)
        yield BandProfile(family, band, Measure(share, "sampled", min(a.at_us, b.at_us)))


def _frequent(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[FrequentKey, ...]:
    keys = sorted(a.keys() | b.keys())
    hashes = mix(np.array(keys, dtype=np.int64).view(np.uint64)).tolist()
    return tuple(
        FrequentKey(key, hashed, a.get(key, 0.0), b.get(key, 0.0))
        for key, hashed in zip(keys, hashes, strict=True)
    )


def _batch(streams: Mapping[int, Stream], answers: Mapping[int, Mapping[Question, Answer]]) -> Measure:
    """Return the mean event time of a batch, over streams that set the number of files per batch."""
    found = []
    for stream_id, stream in streams.items():
        rates = answers[stream_id].get(RatesAsked())
        files = stream.source.max_files_per_batch if isinstance(stream.source, FilesSource) else None
        if files is not None and rates is not None and rates.file_s is not None:
            found.append((min(files, rates.files) * rates.file_s, rates.at_us))
    if not found:
        return Profile().batch_s
    return Measure(sum(s for s, _ in found) / len(found), "sampled", min(at_us for _, at_us in found))


def _input(streams: Mapping[int, Stream], answers: Mapping[int, Mapping[Question, Answer]]) -> float | None:
    """Return the event time that the longest stream covers, if all streams read files; otherwise None."""
    spans = []
    for stream_id, stream in streams.items():
        rates = answers[stream_id].get(RatesAsked())
        if not isinstance(stream.source, FilesSource) or rates is None or rates.file_s is None:
            return None
        spans.append(rates.files * rates.file_s)
    return max(spans, default=None)


def _level(amount: int) -> int:
    """Return the number of the interval between powers of ``GROWTH`` that contains an amount.

    >>> _level(0), _level(1000) == _level(1001), _level(1000) < _level(1300)
    (0, True, True)
    """
    return int(math.log(amount, GROWTH)) + 1 if amount > 0 else 0
