"""Statistics given by a user, for streams by name, and for filters as they are written in a query.

    {"streams": {"A": {"rate": 50}}, "filters": {"A.v < 0.2": 0.2}, "join_selectivity": 0.025}

A filter is bound like a query's condition, so that filters are compared by meaning, not by text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from catalog.errors import InvalidInput
from catalog.steps import stream_sides
from catalog.values.query import Query
from catalog.values.statistics import FamilyProfile, FilterProfile, Measure, Profile, StreamProfile
from catalog.values.stream import Stream
from catalog.wording import nearest_or_known
from planner.bind.canonical import canonical_filter
from planner.costs.rates import ASSUMED_RATE_PER_S
from planner.errors import UnknownStatistic
from planner.families.display import predicate_text
from planner.families.families import families


@dataclass(frozen=True, slots=True)
class StreamNumbers:
    """Given statistics of a stream.

    Attributes:
        rate_per_s: Rows per second of event time, or None.
        row_bytes: Encoded bytes of a stored row, or None.
    """

    rate_per_s: float | None = None
    row_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class GivenStatistics:
    """Given statistics; the rest is measured, sampled or assumed.

    Attributes:
        streams: Statistics by stream name.
        filters: Fraction of rows that pass, by predicate in CQL.
        join_selectivity: Fraction of the pairs of rows that have equal keys, in every family.
        batch_s: Event time that a micro-batch covers, seconds.
    """

    streams: Mapping[str, StreamNumbers] = field(default_factory=dict)
    filters: Mapping[str, float] = field(default_factory=dict)
    join_selectivity: float | None = None
    batch_s: float | None = None


def given_profile(given: GivenStatistics, queries: Iterable[Query], streams: Iterable[Stream]) -> Profile:
    """Return given statistics as a profile.

    Args:
        given: The statistics.
        queries: Queries that are planned; only their filters can be given.
        streams: Registered streams.

    Returns:
        A profile of only these statistics; if a row width is given without a rate, the rate is assumed.

    Raises:
        UnknownStatistic: A stream is not registered, or no query has the filter.
        InvalidInput: A filter is not a condition on one stream (``bind.canonical.canonical_filter``). The
            ``path`` of every error starts at ``given``.
    """
    by_name = {s.name.casefold(): s for s in streams}
    members = tuple(queries)
    return Profile(
        streams=tuple(
            sorted((_stream(n, v, by_name) for n, v in given.streams.items()), key=lambda s: s.stream_id)
        ),
        filters=tuple(
            FilterProfile(*_filter(text, members, by_name), Measure(value))
            for text, value in given.filters.items()
        ),
        families=()
        if given.join_selectivity is None
        else tuple(FamilyProfile(family, Measure(given.join_selectivity)) for family in families(members)),
        batch_s=Profile().batch_s if given.batch_s is None else Measure(given.batch_s),
    )


def _stream(name: str, numbers: StreamNumbers, by_name: Mapping[str, Stream]) -> StreamProfile:
    stream = by_name.get(name.casefold())
    if stream is None:
        raise UnknownStatistic(
            f'stream "{name}" does not exist',
            hint=nearest_or_known(name, [s.name for s in by_name.values()], "stream"),
            path=("streams", name),
        )
    return StreamProfile(
        stream.id,
        ASSUMED_RATE_PER_S if numbers.rate_per_s is None else Measure(numbers.rate_per_s),
        None if numbers.row_bytes is None else Measure(numbers.row_bytes),
    )


def _filter(text: str, queries: tuple[Query, ...], by_name: Mapping[str, Stream]) -> tuple[int, str]:
    """Return the stream and the canonical predicate of a condition."""
    path = ("filters", text)
    known = {
        (s.stream_id, s.filter): s.stream for q in queries for s in stream_sides(q) if s.filter is not None
    }
    try:
        found = canonical_filter(text, {s.name: s for s in by_name.values()})
    except InvalidInput as error:
        error.path = path
        raise
    if found not in known:
        written = [predicate_text(sql or "", stream) for (_, sql), stream in known.items()]
        raise UnknownStatistic(
            f'no query has the filter "{text}"',
            detail="All conditions of a query on one stream together are one filter.",
            hint=nearest_or_known(text, written, "filter"),
            path=path,
        )
    return found
