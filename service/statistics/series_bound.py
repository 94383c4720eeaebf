"""Bound on the series of a metric: a few series are named, all others are summed under ``(other)``.

A thousand queries with a sink each would make ten thousand series, most of them never looked at. Names of
queries begin with a letter, so no query is called ``(other)``.

Sums of counters must not decrease: Prometheus would take a decrease for a restart and add the whole sum
again. So ``(other)`` is not the sum of the currently unnamed counters: at each request, it grows by the
increase of each unnamed counter since the last request. If a query becomes named or is removed, its
earlier increases stay in the sum.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

Labels = tuple[str, ...]

OTHER = "(other)"


def other(labels: Labels, kept: int) -> Labels:
    """Return the labels under which a series is summed: ``(other)``, then its last ``kept`` labels."""
    summed = len(labels) - kept
    return (OTHER,) * summed + labels[summed:]


class SeriesBound:
    """Limit on the named series of a process, with the sums of its unnamed counters.

    Args:
        most: Maximum number of named series of a metric.
    """

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self._lock = threading.Lock()
        #: By metric: value of each series at the last request, and the sums of the unnamed series.
        self._seen: dict[str, Mapping[Labels, float]] = {}
        self._sums: dict[str, dict[Labels, float]] = {}

    def others(
        self, metric: str, values: Mapping[Labels, float], named: Collection[Labels], kept: int
    ) -> dict[Labels, float]:
        """Add the growth of a counter's unnamed series to their sums, and return the sums.

        Args:
            metric: Name of the counter.
            values: Its values by labels.
            named: Labels that have a series of their own.
            kept: Number of last labels that the sums keep.
        """
        with self._lock:
            seen = self._seen.get(metric, {})
            sums = self._sums.setdefault(metric, {})
            for labels, value in values.items():
                if labels not in named:
                    summed = other(labels, kept)
                    sums[summed] = sums.get(summed, 0) + max(value - seen.get(labels, 0), 0)
            self._seen[metric] = dict(values)
            return dict(sums)
