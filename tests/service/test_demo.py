from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from catalog.steps import is_exchanged
from catalog.steps import steps as steps_of
from catalog.values.plan import Plan
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.families.families import family_id
from service.demo.data import DemoTables, demo_streams, load_tables, steps, write_step
from service.demo.queries import QUERIES
from service.demo.replay import WEEK_US, Replay, kept_step_length_us, step_length_us
from service.demo.unshared import Need, UnsharedMeter
from service.demo.workload import write_workload
from service.documents.workload import bind_workload, check_sources, load_workload
from tests.planner.costs.paper import loads_of_family, unshared_cost

HOUR_US = 3_600_000_000
#: Aircraft times the days on which they depart.
PLANES = 215_761
AIRPORT, AIRCRAFT = (("origin", "origin"),), (("tailnum", "tailnum"),)


@pytest.fixture(scope="module")
def tables() -> DemoTables:
    return load_tables()


def plan_of(*texts: str) -> Plan:
    streams = {s.name: s for s in (replace(s, id=i) for i, s in enumerate(demo_streams(Path()), start=1))}
    queries = [bind(text, streams, name=f"q{i}", query_id=i) for i, text in enumerate(texts, start=1)]
    return build_plan(queries, {s.id: s for s in streams.values()})


def test_the_tables_are_whole(tables: DemoTables) -> None:
    assert (tables.flights.num_rows, tables.weather.num_rows) == (336_776, 26_115)
    with duckdb.connect() as connection:
        connection.register("flights", tables.flights)
        connection.register("planes", tables.planes)
        # An aircraft is on duty once on each day on which it departs, and on no other.
        found = connection.execute(
            "SELECT count(*), count(DISTINCT f.tailnum || f.ts::DATE), (SELECT count(*) FROM planes) "
            "FROM flights f JOIN planes p ON f.tailnum = p.tailnum AND f.ts::DATE = p.ts::DATE"
        ).fetchone()
    assert found == (284_170, PLANES, PLANES)


def test_na_is_null(tables: DemoTables) -> None:
    assert tables.flights["dep_time"].null_count == 8_255
    assert tables.flights["tailnum"].null_count == 2_512
    assert tables.weather["wind_gust"].null_count == 20_778
    assert not pc.any(pc.is_nan(tables.weather["wind_speed"])).as_py()


def test_a_flights_event_time_is_its_scheduled_departure_in_new_york(tables: DemoTables) -> None:
    local = tables.flights["ts"].to_pandas().dt.tz_localize("UTC").dt.tz_convert("America/New_York")

    assert (local.dt.hour * 100 + local.dt.minute == tables.flights["sched_dep_time"].to_pandas()).all()


def test_rows_come_in_order_of_event_time(tables: DemoTables) -> None:
    for table in tables.named.values():
        ts = table["ts"].cast(pa.int64()).to_numpy()
        assert (ts[1:] >= ts[:-1]).all()


@pytest.mark.parametrize("step_us", [24 * HOUR_US, WEEK_US])
def test_steps_hold_every_row_once_and_in_their_bounds(tables: DemoTables, step_us: int) -> None:
    rows = 0
    before_us = 0
    for step in steps(tables, step_us):
        rows += step.rows
        for table in step.tables.values():
            ts = table["ts"].cast(pa.int64()).to_numpy()
            assert before_us <= ts[0]
            assert ts[-1] < step.end_us
        before_us = step.end_us
    assert rows == tables.rows


def test_a_step_leaves_one_whole_file_per_stream(tables: DemoTables, tmp_path: Path) -> None:
    step = next(steps(tables, WEEK_US))

    write_step(step, tmp_path)

    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == [
        "flights/000000.parquet",
        "planes/000000.parquet",
        "weather/000000.parquet",
    ]
    assert pq.read_table(tmp_path / "flights").num_rows == step.tables["flights"].num_rows


@pytest.mark.parametrize(
    ("speed", "micros"),
    [(1, 60_000_000), (3_600, HOUR_US), (86_400, 24 * HOUR_US), (1e9, WEEK_US), (None, WEEK_US)],
)
def test_a_file_holds_about_a_second_of_the_replay(speed: float | None, micros: int) -> None:
    assert step_length_us(speed) == micros


def test_a_continued_replay_keeps_its_steps_and_the_files_that_are_there(
    tables: DemoTables, tmp_path: Path
) -> None:
    assert kept_step_length_us(tmp_path, None) == kept_step_length_us(tmp_path, 1.0) == WEEK_US
    first = next(steps(tables, WEEK_US))
    write_step(first, tmp_path)
    written = (tmp_path / "flights" / first.file_name).stat().st_mtime_ns
    replay = Replay(tables, tmp_path, WEEK_US, None)

    with replay.running():
        for path in _expected(tables, tmp_path):
            while not path.exists():
                replay.check()

    assert (tmp_path / "flights" / first.file_name).stat().st_mtime_ns == written


def _expected(tables: DemoTables, inbox: Path) -> Iterator[Path]:
    for step in steps(tables, WEEK_US):
        yield from (inbox / name / step.file_name for name in step.tables)


def test_there_are_enough_queries_with_windows_from_ten_minutes_to_twelve_hours() -> None:
    families = {family.id: family for family in plan_of(*(query.cql for query in QUERIES)).families}
    shared = families.pop(family_id(1, 2, AIRPORT))

    alone = [query for query in shared.queries if not query.hands_on]
    windows = [window for query in alone for window in (query.w_a_us, query.w_b_us)]
    assert len(alone) >= 12
    assert (min(windows), max(windows)) == (HOUR_US // 6, 12 * HOUR_US)
    assert len({query.name for query in QUERIES}) == len(QUERIES)


def test_what_is_not_there_is_asked_in_families_of_their_own() -> None:
    families = {family.id: family for family in plan_of(*(query.cql for query in QUERIES)).families}

    absence = {
        family: [(query.kind, query.preserved) for query in planned.queries]
        for family, planned in families.items()
        if any(query.kind != "inner" for query in planned.queries)
    }
    assert absence == {
        family_id(1, 1, AIRCRAFT, absence=True): [("anti", ("a",))],
        family_id(1, 2, AIRPORT, absence=True): [("anti", ("a",))],
    }


def test_the_join_of_three_streams_comes_one_batch_later_than_joins_of_two() -> None:
    """Its keys are the airport and the aircraft, so pairs change their bucket once, in the next batch."""
    (three,) = (query for query in QUERIES if "planes" in query.cql)
    one, two = steps_of(
        bind(three.cql, {s.name: replace(s, id=i) for i, s in enumerate(demo_streams(Path()), 1)})
    )
    assert {column for column, _ in one.key} | {column for _, column in two.key} == {"origin", "tailnum"}
    changing = [
        side.stream for step in (one, two) for side in (step.a, step.b) if is_exchanged(side.stream_id)
    ]
    assert len(changing) == 1


FILTERED = (
    "SELECT f.flight FROM flights [RANGE 2 HOURS] f, weather [RANGE 3 HOURS] w "
    "WHERE f.origin = w.origin AND f.dep_delay > 60 AND w.visib < 5"
)


def test_unshared_state_is_on_average_what_equation_1_says(tables: DemoTables) -> None:
    plan = plan_of(FILTERED, FILTERED)
    meter = UnsharedMeter(plan, tables)
    seconds = (tables.last_us - tables.first_us) / 1e6
    rates = {
        stream.id: {"flights": 336_776, "weather": 26_115}[stream.name] / seconds for stream in plan.streams
    }
    (family,) = plan.families
    # One bit per side: the fraction that passes, here all of them as Equation 1 filters after the join.
    model = unshared_cost(loads_of_family(family, rates, {0: 1.0}, {0: 1.0}))

    moments = range(tables.first_us + 24 * HOUR_US, tables.last_us, HOUR_US)
    held = [meter.state_rows({1: now, 2: now}, {1: now, 2: now}).filters_last for now in moments]

    assert sum(held) / len(held) == pytest.approx(model.memory_rows, rel=0.01)


def test_unshared_pairs_with_filters_first_are_the_results(tables: DemoTables) -> None:
    meter = UnsharedMeter(plan_of(FILTERED), tables)
    with duckdb.connect() as connection:
        connection.register("flights", tables.flights)
        connection.register("weather", tables.weather)
        expected = connection.execute(
            "SELECT count(*) FROM flights f JOIN weather w ON f.origin = w.origin "
            "AND w.ts > f.ts - INTERVAL 3 HOURS AND f.ts > w.ts - INTERVAL 2 HOURS "
            "WHERE f.dep_delay > 60 AND w.visib < 5"
        ).fetchone()

    assert expected == (meter.pairs(tables.last_us).filters_first,)
    assert meter.pairs(tables.last_us).filters_last > meter.pairs(tables.last_us).filters_first
    assert meter.pairs(tables.first_us - 1) == Need()


#: Aircraft without a number are of no pair; a flight is one with itself.
AGAIN = (
    "SELECT f.flight FROM flights [RANGE 1 DAY] f WHERE f.dep_delay > 60 AND NOT EXISTS "
    "(SELECT 1 FROM flights [RANGE 10 MINUTES] g WHERE g.tailnum = f.tailnum AND g.air_time > 100)"
)


def test_a_join_of_a_stream_with_itself_is_reckoned_too(tables: DemoTables) -> None:
    meter = UnsharedMeter(plan_of(AGAIN), tables)
    near = "FROM flights f JOIN flights g ON f.tailnum = g.tailnum AND (g.ts BETWEEN f.ts AND f.ts + "
    near += "INTERVAL 1 DAY - INTERVAL 1 MICROSECOND OR g.ts <= f.ts AND f.ts < g.ts + INTERVAL 10 MINUTES)"
    with duckdb.connect() as connection:
        connection.register("flights", tables.flights)
        pairs = connection.execute(
            f"SELECT count(*), count(*) FILTER (f.dep_delay > 60 AND g.air_time > 100) {near}"
        ).fetchone()

    whole = meter.pairs(tables.last_us)
    assert pairs == (whole.filters_last, whole.filters_first)


def test_families_add_up_to_the_need_of_all(tables: DemoTables) -> None:
    texts = (FILTERED, AGAIN, FILTERED.replace("f.origin = w.origin", "f.dest = w.origin"))
    together, *alone = (UnsharedMeter(plan_of(*some), tables) for some in (texts, *((t,) for t in texts)))
    now = tables.first_us + 200 * 24 * HOUR_US + HOUR_US // 2
    times = {1: now, 2: now}

    assert together.pairs(now) == sum((meter.pairs(now) for meter in alone), Need())
    assert together.state_rows(times, times) == sum((m.state_rows(times, times) for m in alone), Need())
    assert all(meter.state_rows(times, times) != Need() for meter in alone)


def test_the_demo_can_be_written_as_a_workload(tmp_path: Path) -> None:
    workload = load_workload(write_workload(tmp_path, max_files_per_batch=2))

    check_sources(workload)
    bound = bind_workload(workload)
    assert bound.streams == tuple(replace(s, id=i) for i, s in enumerate(demo_streams(tmp_path, 2), start=1))
    assert [query.name for query in bound.queries.values()] == [query.name for query in QUERIES]
