"""The demo's queries over all flights, weather and aircraft of 2013, through `sluice run`, against DuckDB.

What DuckDB is asked in each case is written by hand from the query's question, not made from its CQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from service.demo.queries import QUERIES
from service.demo.workload import write_workload
from tests.sluice_run import per_query_results, run, table_difference

ALL_ROWS = 336_776 + 26_115 + 215_761


@dataclass(frozen=True, slots=True)
class Case:
    """A query as DuckDB is asked it.

    Attributes:
        select: Columns of flight ``f`` and observation ``w``.
        after_min: How long after the flight an observation may come, minutes.
        before_min: How long before the flight an observation may come, minutes.
        where: What both rows must be like.
    """

    select: str
    after_min: int
    before_min: int
    where: str


CASES = {
    "gusts_on_the_runway": Case(
        "f.ts AS departure, f.carrier, f.flight, f.origin, f.dep_delay, w.wind_gust",
        10,
        10,
        "w.wind_gust > 35",
    ),
    "fog_delays": Case(
        "f.ts AS departure, f.carrier, f.flight, f.origin, f.dest, f.dep_delay, w.visib",
        20,
        20,
        "w.visib < 1 AND f.dep_delay >= 15",
    ),
    "crosswind_at_newark": Case(
        "f.ts AS departure, f.carrier, f.flight, f.dep_delay, w.wind_dir, w.wind_speed",
        30,
        30,
        "f.origin = 'EWR' AND f.dep_delay > 20 AND w.wind_speed > 20 "
        "AND w.wind_dir >= 260 AND w.wind_dir <= 320",
    ),
    "regional_jets_in_wind": Case(
        "f.ts AS departure, f.carrier, f.flight, f.tailnum, f.origin, f.dep_delay, w.wind_speed",
        15,
        60,
        "(f.carrier = 'EV' OR f.carrier = 'MQ' OR f.carrier = '9E') "
        "AND f.dep_delay > 0 AND w.wind_speed > 25",
    ),
    "rain_delays": Case(
        "f.ts AS departure, f.carrier, f.flight, f.origin, f.dep_delay, w.precip",
        30,
        60,
        "w.precip > 0.1 AND f.dep_delay >= 30",
    ),
    "jetblue_low_visibility": Case(
        "f.ts AS departure, f.flight, f.origin, f.dest, f.dep_delay, w.ts AS observed, w.visib",
        10,
        90,
        "f.carrier = 'B6' AND w.visib < 3",
    ),
    "just_escaped": Case(
        "f.ts AS departure, f.carrier, f.flight, f.origin, w.ts AS observed, w.wind_gust",
        120,
        10,
        "w.wind_gust > 45 AND f.dep_delay <= 0",
    ),
    "worse_than_the_fog": Case(
        "f.ts AS departure, f.carrier, f.flight, f.origin, f.dep_delay, w.visib, "
        "f.dep_delay - 10 * (6 - w.visib) AS unexplained",
        20,
        120,
        "w.visib < 6 AND f.dep_delay > 60 AND f.dep_delay > 10 * (6 - w.visib)",
    ),
    "snow_and_ice": Case(
        "f.ts AS departure, f.carrier, f.flight, f.origin, f.dep_delay, w.temp, w.precip",
        30,
        180,
        "w.temp <= 32 AND w.precip > 0 AND f.dep_delay >= 60",
    ),
    "summer_heat": Case(
        "f.ts AS departure, f.carrier, f.flight, f.origin, f.dest, f.arr_delay, w.temp, w.dewp",
        10,
        240,
        "w.temp >= 95 AND f.arr_delay > 45",
    ),
    "cancelled_by_storm": Case(
        "f.ts AS departure, f.carrier, f.flight, f.origin, f.dest, w.ts AS observed, w.wind_gust",
        60,
        360,
        "f.dep_time IS NULL AND w.wind_gust > 30",
    ),
    "long_haul_in_the_cold": Case(
        "f.ts AS departure, f.carrier, f.flight, f.origin, f.dest, f.distance, f.dep_delay, w.temp, w.humid",
        10,
        480,
        "f.distance > 2000 AND f.dep_delay > 30 AND w.temp < 28 AND w.humid > 75",
    ),
    "deep_low": Case(
        "f.ts AS departure, f.carrier, f.flight, f.origin, f.dep_delay, w.ts AS observed, w.pressure",
        60,
        720,
        "w.pressure < 1000 AND f.dep_delay > 180",
    ),
    "made_up_in_the_air": Case(
        "f.ts AS departure, f.carrier, f.flight, f.dest, f.dep_delay, f.arr_delay, w.wind_dir, w.wind_speed",
        720,
        720,
        "f.dep_delay >= 30 AND f.arr_delay <= 0 AND w.wind_speed >= 15",
    ),
}


@dataclass(frozen=True, slots=True)
class AbsentCase:
    """A query for flights without a partner, as DuckDB is asked it.

    Attributes:
        select: Columns of flight ``f``.
        where: What the flight must be like.
        stream: Stream of the partners ``p``.
        partner: What a partner of the flight is.
        wait: How long after the flight a partner may come.
    """

    select: str
    where: str
    stream: str
    partner: str
    wait: str


ABSENT_CASES = {
    "unexplained_by_weather": AbsentCase(
        "f.ts AS departure, f.carrier, f.flight, f.origin, f.dest, f.dep_delay",
        "f.dep_delay >= 120",
        "weather",
        "p.origin = f.origin AND p.ts > f.ts - INTERVAL 3 HOURS AND p.ts < f.ts + INTERVAL 1 HOUR "
        "AND (p.wind_speed >= 15 OR p.wind_gust > 0 OR p.precip > 0 OR p.visib < 10)",
        "1 HOUR",
    ),
    "not_back_within_a_day": AbsentCase(
        "f.ts AS departure, f.tailnum, f.carrier, f.flight, f.origin, f.dest",
        "f.dep_time IS NOT NULL",
        "flights",
        "p.tailnum = f.tailnum AND p.dep_time IS NOT NULL "
        "AND p.ts > f.ts AND p.ts < f.ts + INTERVAL 24 HOURS",
        "24 HOURS",
    ),
}


def expected_absent(directory: Path, case: AbsentCase) -> pa.Table:
    """Return the case's rows, in no order: those for whose partners it is too late when the year ends."""
    partners = f"'{directory}/{case.stream}/*.parquet'"
    with duckdb.connect() as connection:
        return connection.sql(
            f"SELECT {case.select}, f.ts + INTERVAL {case.wait} AS _event_time "
            f"FROM '{directory}/flights/*.parquet' f WHERE {case.where} "
            f"AND NOT EXISTS (SELECT 1 FROM {partners} p WHERE {case.partner}) "
            f"AND f.ts + INTERVAL {case.wait} <= (SELECT max(ts) - INTERVAL 1 MINUTE FROM {partners})"
        ).to_arrow_table()


#: Queries of three streams whole: each pair of rows is in the windows of both.
WHOLE_CASES = {
    "old_aircraft_in_gusts": (
        "SELECT f.ts AS departure, f.carrier, f.flight, f.tailnum, f.origin, f.dep_delay, w.wind_gust, "
        "p.manufacturer, p.model, p.year AS built, f.ts AS _event_time "
        "FROM '{0}/flights/*.parquet' f, '{0}/weather/*.parquet' w, '{0}/planes/*.parquet' p "
        "WHERE f.origin = w.origin AND f.tailnum = p.tailnum "
        "AND w.wind_gust > 30 AND f.dep_delay > 15 AND p.year < 1990 "
        "AND w.ts <= f.ts AND f.ts < w.ts + INTERVAL 1 HOUR "
        "AND p.ts <= f.ts AND f.ts < p.ts + INTERVAL 24 HOURS "
        "AND w.ts < p.ts + INTERVAL 24 HOURS AND p.ts < w.ts + INTERVAL 1 HOUR"
    )
}


def expected(directory: Path, case: Case | AbsentCase | str) -> pa.Table:
    """Return the case's rows, in no order."""
    if isinstance(case, str):
        with duckdb.connect() as connection:
            return connection.sql(case.format(directory)).to_arrow_table()
    if isinstance(case, AbsentCase):
        return expected_absent(directory, case)
    after, before = (f"INTERVAL {minutes} MINUTES" for minutes in (case.after_min, case.before_min))
    with duckdb.connect() as connection:
        return connection.sql(
            f"SELECT {case.select}, greatest(f.ts, w.ts) AS _event_time "
            f"FROM '{directory}/flights/*.parquet' f JOIN '{directory}/weather/*.parquet' w "
            f"ON f.origin = w.origin WHERE {case.where} "
            f"AND (w.ts BETWEEN f.ts AND f.ts + {after} - INTERVAL 1 MICROSECOND "
            f"OR f.ts BETWEEN w.ts AND w.ts + {before} - INTERVAL 1 MICROSECOND)"
        ).to_arrow_table()


def test_every_demo_query_has_its_case() -> None:
    assert {query.name for query in QUERIES} == {*CASES, *ABSENT_CASES, *WHOLE_CASES}
    assert len(CASES) >= 12


@pytest.mark.slow
@pytest.mark.spark
def test_flights_workload_equals_duckdb(tmp_path: Path) -> None:
    workload = write_workload(tmp_path / "demo", max_files_per_batch=6)
    outcome = run(workload, tmp_path / "out")
    assert outcome.returncode == 0, outcome.stderr[-6000:]
    summary = outcome.summary
    assert (summary["input_rows"], summary["late_rows"]) == (ALL_ROWS, 0)
    wanted_rows: dict[str, int] = {}
    for name, case in (CASES | ABSENT_CASES | WHOLE_CASES).items():
        found, wanted = per_query_results(tmp_path / "out", name), expected(tmp_path / "demo", case)
        wanted_rows[name] = wanted.num_rows
        assert wanted.num_rows > 0, name
        assert not (difference := table_difference(found, wanted, ordered=False)), f"{name}: {difference}"
        # All streams are cut at the same event times and come in order, so order holds across batches.
        assert np.all(np.diff(found["_event_time"].cast(pa.int64()).to_numpy()) >= 0), name
    assert summary["results"] == wanted_rows
