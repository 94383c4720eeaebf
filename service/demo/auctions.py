"""The demo's auctions: synthetic streams in which punctuations keep the state small.

    auctions   ts, item_id, seller, reserve             every item is offered once (unique)
    bids       ts, item_id, bidder, price, closes       closes is true: the item gets no later bid

An auction may last up to half a day, the window of the queries, but on average it is closed after two hours.
Without the punctuations that close auctions, every auction would stay in the state for half a day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.columns.arrow_types import arrow_schema
from catalog.values.batch import BatchManifest
from catalog.values.stream import Column, Constraints, FilesSource, Punctuations, Stream
from planner.families.families import family_streams
from service.demo.data import LATENESS_US, ReplayedTables, micros
from service.demo.queries import DemoQuery

HOUR_US = 3_600_000_000
WINDOW_US = 12 * HOUR_US
#: Event time that a file covers.
STEP_US = HOUR_US
#: 2026-01-01, UTC.
_START_US = 1_767_225_600_000_000
_MEAN_OPEN_US = 2 * HOUR_US
_SHORTEST_US, _LONGEST_US = 60_000_000, 11 * HOUR_US
_MEAN_BIDS = 8
_PEOPLE = 5_000

AUCTION_COLUMNS = {"ts": "timestamp", "item_id": "bigint", "seller": "int", "reserve": "double"}
BID_COLUMNS = {
    "ts": "timestamp",
    "item_id": "bigint",
    "bidder": "int",
    "price": "double",
    "closes": "boolean",
}

AUCTION_QUERIES = (
    DemoQuery(
        "closed_auctions",
        "Bids on each auction and the highest of them, once the auction is closed",
        """SELECT a.item_id, COUNT(*) AS bids, MAX(b.price) AS highest
FROM auctions [RANGE 12 HOURS] a, bids [RANGE 12 HOURS] b
WHERE a.item_id = b.item_id
GROUP BY a.item_id""",
    ),
    DemoQuery(
        "unsold",
        "Auctions that were closed without a bid of at least the reserve",
        """SELECT a.item_id, a.seller, a.reserve
FROM auctions [RANGE 12 HOURS] a LEFT ANTI JOIN bids [RANGE 12 HOURS] b
  ON a.item_id = b.item_id AND b.price >= a.reserve""",
    ),
)


@dataclass(frozen=True, slots=True)
class AuctionTables:
    """All rows of both streams, in the form of ``ReplayedTables``.

    Attributes:
        named: Rows by event time.
    """

    named: Mapping[str, pa.Table]

    @property
    def rows(self) -> int:
        """Number of rows of both streams."""
        return sum(int(table.num_rows) for table in self.named.values())

    @property
    def first_us(self) -> int:
        """First event time, µs UTC."""
        return min(int(micros(table)[0]) for table in self.named.values())

    @property
    def last_us(self) -> int:
        """Last event time, µs UTC."""
        return max(int(micros(table)[-1]) for table in self.named.values())


@dataclass(frozen=True, slots=True)
class AuctionFigures:
    """Effect of the punctuations on the state, and the delay of the results.

    Attributes:
        held: Mean number of auctions in the state, over batches after the first half day.
        without: Mean number of auctions in the state if every auction stayed for its whole window.
        closings: Number of closed auctions.
        most_batches: Maximum number of batches from the closing of an auction to the result with its count,
            or None if a count is missing.
    """

    held: float
    without: float
    closings: int
    most_batches: int | None

    @property
    def share(self) -> float:
        """Auctions held, divided by the auctions held if every auction stayed for its whole window."""
        return self.held / self.without if self.without else 0.0


def auction_tables(auctions: int = 12_000, per_hour: float = 250, seed: int = 25) -> AuctionTables:
    """Return the rows of both streams; equal arguments give equal rows.

    Args:
        auctions: Number of auctions.
        per_hour: Mean number of auctions that begin per hour.
        seed: Seed of every random choice.
    """
    numbers = np.random.default_rng(seed)
    opened = _START_US + np.cumsum(numbers.exponential(HOUR_US / per_hour, auctions)).astype(np.int64)
    lasts = np.clip(numbers.exponential(_MEAN_OPEN_US, auctions), _SHORTEST_US, _LONGEST_US)
    closed = opened + lasts.astype(np.int64)
    items = np.arange(1, auctions + 1, dtype=np.int64)
    reserve = np.round(numbers.uniform(1, 100, auctions), 2)
    bids = numbers.poisson(_MEAN_BIDS, auctions)
    of = np.repeat(np.arange(auctions), bids)
    within = 1 + numbers.random(len(of)) * (lasts[of] - 2)
    price = np.round(reserve[of] * numbers.uniform(0.5, 1.5, len(of)), 2)
    tables = {
        "auctions": {
            "ts": opened,
            "item_id": items,
            "seller": numbers.integers(1, _PEOPLE, auctions),
            "reserve": reserve,
        },
        "bids": {
            "ts": np.concatenate([opened[of] + within.astype(np.int64), closed]),
            "item_id": np.concatenate([items[of], items]),
            "bidder": np.concatenate([numbers.integers(1, _PEOPLE, len(of)), np.zeros(auctions, np.int64)]),
            "price": np.concatenate([price, np.zeros(auctions)]),
            "closes": np.repeat([False, True], [len(of), auctions]),
        },
    }
    streams = {stream.name: stream for stream in auction_streams(Path())}
    return AuctionTables({name: _table(streams[name], columns) for name, columns in tables.items()})


def auction_streams(inbox: Path, max_files_per_batch: int | None = None) -> tuple[Stream, Stream]:
    """Return the two streams, without ids, read from directories of ``inbox``; see ``demo_streams``."""
    auctions, bids = (
        Stream(
            id=0,
            name=name,
            columns=tuple(Column(column, kind) for column, kind in columns.items()),
            event_time="ts",
            lateness_us=LATENESS_US,
            source=FilesSource("parquet", str(inbox.absolute() / name), max_files_per_batch, settle_us=0),
            punctuations=punctuations,
            constraints=constraints,
        )
        for name, columns, punctuations, constraints in (
            ("auctions", AUCTION_COLUMNS, None, Constraints(unique=("item_id",))),
            ("bids", BID_COLUMNS, Punctuations((("item_id",),), column="closes"), Constraints()),
        )
    )
    return auctions, bids


def auction_figures(
    manifests: Sequence[BatchManifest], family: str, tables: ReplayedTables
) -> AuctionFigures:
    """Compute the effect of the punctuations on the state, and the delay of the results.

    Args:
        manifests: All committed batches, from the first one on.
        family: Id of the family whose results are groups.
        tables: Both streams.
    """
    auctions, bids = family_streams(family)
    opened = micros(tables.named["auctions"])
    held, without = [], []
    closings: list[int] = []
    counts: list[int] = []
    for manifest in manifests:
        closings += [manifest.batch] * sum(r.received for r in manifest.received if r.stream_id == bids)
        counts += [manifest.batch] * sum(g.closed for g in manifest.groups if g.family == family)
        newest = {s.stream_id: s.max_event_time_us for s in manifest.streams}.get(auctions)
        watermark = {s.stream_id: s.watermark_us for s in manifest.streams}.get(bids)
        if newest is None or watermark is None or watermark < opened[0] + WINDOW_US or newest >= opened[-1]:
            continue
        held.append(sum(s.rows for s in manifest.slices if (s.family, s.side) == (family, "a")))
        without.append(int(np.count_nonzero((opened <= newest) & (opened > watermark - WINDOW_US))))
    rows = tables.named["bids"]
    closes = rows["closes"].to_numpy()
    items = rows["item_id"].to_numpy()
    # Batches read the closings in the order of the rows. An auction without a bid gets no result.
    counted = np.isin(items[closes][: len(closings)], items[~closes])
    asked, told = np.array(closings, dtype=np.int64)[counted], np.array(counts, dtype=np.int64)
    most = int((told - asked).max()) if len(told) and len(told) == len(asked) else None
    return AuctionFigures(_mean(held), _mean(without), len(closings), most)


def _table(stream: Stream, columns: Mapping[str, np.ndarray[tuple[int], np.dtype[Any]]]) -> pa.Table:
    """Return a stream's rows in order of event time."""
    schema = arrow_schema(stream)
    order = np.argsort(columns["ts"], kind="stable")
    arrays = [
        pa.array(columns[name][order]).cast(kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.table(arrays, schema=schema)


def _mean(counts: Sequence[int]) -> float:
    return sum(counts) / len(counts) if counts else 0.0
