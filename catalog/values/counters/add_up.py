"""Counters of several buckets added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from operator import add, attrgetter, itemgetter
from typing import Any, TypeVar

from catalog.values.counters.batch_counters import StreamPunctuations
from catalog.values.counters.family_counters import (
    AbsenceCounters,
    FilterCounters,
    GroupCounters,
    KeyCounters,
    MemoryCounters,
    ProbeCounters,
    PunctuationCounters,
    SliceCounters,
    UnmatchedCounters,
)

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
    """Return one counter per key, ascending by key, that adds up the counters of several buckets.

    >>> add_up([FilterCounters("f", "a", 0, 2, 1), FilterCounters("f", "a", 0, 3, 0)], FilterCounters.KEY)
    (FilterCounters(family='f', side='a', bit=0, rows=5, passed=1),)
    >>> add_up([UnmatchedCounters(7, 2), UnmatchedCounters(7, 1)], UnmatchedCounters.KEY)
    (UnmatchedCounters(query_id=7, rows=3),)

    Args:
        counters: Counters, all of the same class.
        key: Names of the fields that identify a counter; they are not summed.
    """
    counted = tuple(counters)
    if not counted:
        return ()
    kind = type(counted[0])
    names = tuple(field.name for field in fields(kind))
    summed: tuple[str, ...] = tuple(name for name in names if name not in key)
    key_of, numbers_of = _values_of(key), _values_of(summed)
    # Sums stay tuples until the end, when counter objects are created with positional arguments, because a
    # batch has thousands of counters. Creating a counter object for each partial sum takes time, and with
    # keyword arguments it takes twice as long.
    order = (*key, *summed)
    as_declared = itemgetter(*(order.index(name) for name in names))
    sums: dict[tuple[Any, ...], tuple[int, ...]] = {}
    for each in counted:
        place, numbers = key_of(each), numbers_of(each)
        before = sums.get(place)
        sums[place] = numbers if before is None else tuple(map(add, before, numbers))
    return tuple(kind(*as_declared(place + sums[place])) for place in sorted(sums))


def _values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads fields as a tuple, even one field, which ``attrgetter`` returns bare."""
    return attrgetter(*names) if len(names) > 1 else lambda each: (getattr(each, names[0]),)
