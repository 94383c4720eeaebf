"""Runs of the same put together: medians of rates, and of ratios that were each taken within one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from tests.bench.peers.measurement import Measurement, Rates
from tests.bench.peers.peers import PEERS, REFERENCE, Peer


@dataclass(frozen=True, slots=True)
class Row:
    """All runs of one peer over the same part of one workload.

    Attributes:
        runs: Its runs; at least one.
        good: Those with the right results.
        rates: Medians of their rates.
        times: Medians of how many times faster Sluice was in the same run.
    """

    runs: tuple[Measurement, ...]
    good: tuple[Measurement, ...]
    rates: Rates
    times: Rates

    @property
    def first(self) -> Measurement:
        """Any of the runs, for what they have in common."""
        return self.runs[0]

    @property
    def peer(self) -> Peer:
        """The peer."""
        return PEERS[self.first.peer]

    @property
    def errors(self) -> list[str]:
        """What went wrong, each thing once."""
        return list(dict.fromkeys(m.error for m in self.runs if m.error))

    def times_of(self, other: Row, kind: str, own: str = "") -> float | None:
        """Return how many times faster this is than another row, the median over the runs that have both.

        What Sluice did in its run is kept with each measurement, also when Sluice was measured again since.

        Args:
            other: The other row.
            kind: Which of its rates is compared.
            own: With which of this row's; left out, the same one.
        """
        own = own or kind
        same = self.first.share == other.first.share
        if same and self.peer is REFERENCE:
            pairs = [(getattr(m.sluice, own), getattr(m.rates, kind)) for m in other.good]
        elif same and other.peer is REFERENCE:
            pairs = [(getattr(m.rates, own), getattr(m.sluice, kind)) for m in self.good]
        else:
            rates = {(m.bench, m.run): getattr(m.rates, kind) for m in other.good}
            pairs = [(getattr(m.rates, own), rates.get((m.bench, m.run))) for m in self.good]
        return _median(mine / its for mine, its in pairs if mine and its)

    def median(self, value: Callable[[Measurement], float | None]) -> float | None:
        """Return the median of a value over the good runs, or None where a run has none."""
        return _median(value(m) for m in self.good)


@dataclass(frozen=True, slots=True)
class Section:
    """All rows of one workload at one scale.

    Attributes:
        workload: Name.
        scale: Part of its rows.
        quick: Whether it was the small form.
        rows: By peer in the order of the peers, each share for itself, larger ones first.
    """

    workload: str
    scale: float
    quick: bool
    rows: tuple[Row, ...]

    def row(self, peer: str, share: float | None = None) -> Row | None:
        """Return the good row of a peer, of its largest share unless one is named."""
        found = (r for r in self.rows if r.first.peer == peer and r.good)
        return next((r for r in found if share is None or r.first.share == share), None)

    def best(self, peers: Iterable[str]) -> Row | None:
        """Return the good row of the fastest of some peers, each over the largest part that it was given.

        That is not the one that Sluice beats by least: over the few rows that a slow peer is given, Sluice's
        own time is mostly its start.
        """
        rows = [r for name in peers if (r := self.row(name)) is not None and r.times.job is not None]
        return max(rows, key=lambda r: r.rates.job or 0.0, default=None)


def sections(measured: Sequence[Measurement], workloads: Sequence[str]) -> list[Section]:
    """Return measurements by workload in the order of ``workloads``, larger scales first."""
    keys = {(m.workload, m.scale, m.quick) for m in measured if m.workload in workloads and m.peer in PEERS}
    order = sorted(keys, key=lambda k: (workloads.index(k[0]), k[2], -k[1]))
    return [
        Section(*key, _rows([m for m in measured if (m.workload, m.scale, m.quick) == key])) for key in order
    ]


def _rows(measured: Sequence[Measurement]) -> tuple[Row, ...]:
    names = list(PEERS)
    keys = sorted({(names.index(m.peer), -m.share) for m in measured if m.peer in PEERS})
    return tuple(
        _row([m for m in measured if (m.peer, m.share) == (names[number], -share)]) for number, share in keys
    )


def _row(runs: Sequence[Measurement]) -> Row:
    good = tuple(m for m in runs if not m.error)
    return Row(
        runs=tuple(sorted(runs, key=lambda m: m.run)),
        good=good,
        rates=Rates(*(_median(getattr(m.rates, kind) for m in good) for kind in _KINDS)),
        times=Rates(*(_median(_times(m, kind) for m in good) for kind in _KINDS)),
    )


_KINDS = ("process", "job", "steady")


def _times(measured: Measurement, kind: str) -> float | None:
    mine, own = getattr(measured.sluice, kind), getattr(measured.rates, kind)
    return mine / own if mine and own else None


def _median(values: Iterable[float | None]) -> float | None:
    found = list(values)
    known = [v for v in found if v is not None]
    return median(known) if known and len(known) == len(found) else None
