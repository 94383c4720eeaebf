"""Theta joins found by a band: those of nested loops, whatever the values, and few candidates beside them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.columns.arrow_types import arrow_type
from catalog.values.plan import Band, Bound
from catalog.values.statistics import BandProfile, Measure, Profile
from catalog.values.stream import Stream
from operators.slices.overlaps import overlapping_pairs
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.explain.rendering.render import plan_document
from planner.families.bands import candidate_bands, leading_band
from tests.bound_query import Tables, results_sql
from tests.builders import a_stream
from tests.examples import examples
from tests.operators.cases import SETTINGS
from tests.operators.harness import Runner

WINDOW_US = 10
TYPES = ("int", "bigint", "double", "decimal(9,2)", "decimal(18,4)")
#: Around the places where doubles lose integers, round sums or are not numbers.
VALUES: dict[str, Sequence[object]] = {
    "int": (0, 1, 2, 3, -1, 2**31 - 1, -(2**31)),
    "bigint": (0, 1, 2, -3, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63)),
    "double": (0.0, -0.0, 0.1, 0.3, 1.0, 1.5, 2.0**53, 5e-324, math.nan, math.inf, -math.inf, -0.2),
    "decimal(9,2)": (Decimal("0.00"), Decimal("0.10"), Decimal("1.50"), Decimal("2.00"), Decimal("-0.20")),
    "decimal(18,4)": (
        Decimal("0.0000"),
        Decimal("0.1000"),
        Decimal("99999999999999.9999"),
        Decimal("1.5000"),
    ),
}
CONDITIONS = (
    "a.x BETWEEN b.x AND b.y",
    "a.x < b.x",
    "a.x >= b.y AND a.x <= b.x",
    "abs(a.x - b.x) <= 1",
    "abs(b.y - a.x) < 0.2",
    "abs(a.x) - b.x <= 1",
    "abs(a.x) - abs(b.x) <= 1",
    "a.x - b.x BETWEEN -1 AND 2",
    "a.x > b.x - 1 AND a.x < b.y + 3",
    "a.x = b.x + 1",
    "b.x >= a.x AND b.x <= a.y",
    "a.y <= b.x AND (a.x > 1 OR b.y > 1)",
)


def stream(number: int, x: str, y: str) -> Stream:
    return a_stream(number, 1_000, (("x", x), ("y", y)))


@st.composite
def rows_of(draw: st.DrawFn, this: Stream) -> pa.Table:
    kinds = {column.name: column.type for column in this.columns}
    drawn = draw(
        st.lists(
            st.tuples(st.integers(0, 25), *(st.sampled_from((*VALUES[kinds[n]], None)) for n in "xy")),
            max_size=12,
        )
    )
    columns = [
        pa.array([row[0] for row in drawn], pa.timestamp("us")),
        *(pa.array([row[n] for row in drawn], arrow_type(kinds[name])) for n, name in ((1, "x"), (2, "y"))),
        pa.array(range(len(drawn)), pa.int64()),
    ]
    return pa.table(columns, names=["ts", "x", "y", "_pos"])


@settings(SETTINGS, max_examples=examples(400, short=50))
@given(data=st.data())
def test_pairs_of_a_band_are_those_of_duckdb(data: st.DataObject) -> None:
    kinds = st.sampled_from(TYPES)
    streams = {
        1: stream(1, data.draw(kinds), data.draw(kinds)),
        2: stream(2, data.draw(kinds), data.draw(kinds)),
    }
    tables = {number: data.draw(rows_of(streams[number])) for number in streams}
    conditions = data.draw(st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=2))
    by_name = {s.name: s for s in streams.values()}
    queries = [
        bind(
            f"SELECT a.x AS x FROM A [RANGE {WINDOW_US * n} MICROSECONDS] a, "
            f"B [RANGE {WINDOW_US} MICROSECONDS] b WHERE {condition}",
            by_name,
            name=f"q{n}",
            query_id=n,
        )
        for n, condition in enumerate(conditions, 1)
    ]
    plan = build_plan(queries, streams, objective=Objective("mem-opt"))
    runner = Runner(streams, data.draw(st.integers(1, 3)), slack_us=None)
    cut = data.draw(st.integers(1, 12))
    for begin in range(0, 12, cut):
        batch = {number: table.slice(begin, cut) for number, table in tables.items()}
        runner.step(batch, [plan] if begin == 0 else ())
    with duckdb.connect() as duck:
        for number, name in ((1, "rows_A"), (2, "rows_B")):
            duck.register(name, tables[number].rename_columns(["ts", "x", "y", "r"]))
        for query in queries:
            wanted = duck.sql(results_sql(query, Tables(duck, "rows_A", "rows_B"))).fetchall()
            found = Counter(
                (a, b) for (i, a, b), n in runner.results.items() if i == query.id for _ in range(n)
            )
            assert found == Counter((row[0], row[1]) for row in wanted), query.residual


@pytest.mark.parametrize(
    ("conditions", "band"),
    [
        (["a.x BETWEEN b.x AND b.y"], Band("a", "x", Bound("x"), Bound("y"))),
        (["abs(a.x - b.x) <= 1", "abs(b.x - a.x) < 3"], Band("a", "x", Bound("x", -3.0), Bound("x", 3.0))),
        (["a.x < b.x", "a.x <= b.x - 1 AND a.y <> b.y"], Band("a", "x", None, Bound("x"))),
        (["a.x < b.x", "a.y < b.x"], None),
        (["a.x < b.x OR a.y < b.y"], None),
        (["a.x < b.x", "a.x + b.x > 3"], None),
        (["abs(a.x) - b.x <= 1"], None),
        (["abs(a.x) - abs(b.x) <= 1"], None),
        (["abs(a.x - b.x) - b.y <= 1"], None),
    ],
)
def test_the_band_of_a_family_holds_the_pairs_of_all_its_queries(
    conditions: list[str], band: Band | None
) -> None:
    streams = {1: stream(1, "bigint", "bigint"), 2: stream(2, "bigint", "bigint")}
    by_name = {s.name: s for s in streams.values()}
    queries = [
        bind(f"SELECT a.x AS x FROM A [NOW] a, B [NOW] b WHERE {text}", by_name, name=f"q{n}", query_id=n)
        for n, text in enumerate(conditions, 1)
    ]
    (family,) = build_plan(queries, streams, objective=Objective("mem-opt")).families
    assert family.band == band


WIDE, NARROW = Band("a", "x", Bound("x", -3.0), Bound("x", 3.0)), Band("a", "y", Bound("y"), Bound("y"))


@pytest.mark.parametrize(
    ("shares", "former", "keep", "leads"),
    [
        ({}, None, False, WIDE),
        ({}, NARROW, False, NARROW),
        ({WIDE: 0.5, NARROW: 0.1}, None, False, NARROW),
        ({WIDE: 0.1, NARROW: 0.5}, None, False, WIDE),
        ({WIDE: 0.5, NARROW: 0.1}, WIDE, True, WIDE),
        ({WIDE: 0.5, NARROW: 0.1}, WIDE, False, NARROW),
    ],
)
def test_the_band_with_the_fewest_pairs_leads(
    shares: dict[Band, float], former: Band | None, leads: Band, *, keep: bool
) -> None:
    assert leading_band([WIDE, NARROW], shares, former, choose=not keep) == leads


def test_a_leading_band_changes_no_results_and_saves_comparisons() -> None:
    """``a.y = b.y`` in all but name holds for few pairs, ``abs(a.x - b.x) <= 3`` for most."""
    streams = {n: stream(n, "int", "int") for n in (1, 2)}
    by_name = {s.name: s for s in streams.values()}
    where = "abs(a.x - b.x) <= 3 AND abs(a.y - b.y) <= 0"
    query = bind(f"SELECT a.x AS x FROM A [NOW] a, B [NOW] b WHERE {where}", by_name, name="q", query_id=1)
    rng = np.random.default_rng(1)
    tables = {
        n: pa.table(
            {
                "ts": pa.array(np.zeros(200, dtype=np.int64), pa.timestamp("us")),
                "x": pa.array(rng.integers(0, 5, 200), pa.int32()),
                "y": pa.array(rng.integers(0, 1000, 200), pa.int32()),
                "_pos": np.arange(200),
            }
        )
        for n in streams
    }
    found = []
    for known in ((), (("x", 0.9), ("y", 0.001))):
        (family,) = build_plan([query], streams).families
        types = {"a": {"x": "int", "y": "int"}, "b": {"x": "int", "y": "int"}}
        bands = candidate_bands([query.residual], types)  # type: ignore[arg-type]
        shares = [
            BandProfile(family.id, b, Measure(s)) for b in bands for name, s in known if b.column == name
        ]
        plan = build_plan([query], streams, profile=Profile(bands=tuple(shares)))
        (family,) = plan.families
        runner = Runner(streams, 2)
        runner.step(tables, [plan])
        assert family.band is not None
        share = dict(known).get(family.band.column)
        ends = f"[A.{family.band.column}" if family.band.side == "b" else f"[B.{family.band.column}"
        lead = plan_document(plan)["families"][0]["lead"]
        assert lead["share"] == share
        assert ends in lead["condition"]
        (kept,) = build_plan([query], streams, plan).families
        assert (kept.band, kept.band_share) == (family.band, share)
        found.append((family.band.column, runner.results, sum(c["touched"] for c in runner.done.values())))
    (first, results, compared), (second, same, fewer) = found
    assert (first, second) == ("x", "y")
    assert results == same
    assert results
    assert fewer * 20 < compared


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_pairs_come_whole_however_small_the_buffer(size: int) -> None:
    rng = np.random.default_rng(1)
    females, males = 40, 30
    low, high = np.sort(rng.integers(0, 100, (2, females)).astype(float), axis=0)
    points = np.sort(rng.integers(0, 100, males).astype(float))
    times = [rng.integers(0, 50, n) for n in (females, males)]
    state, found = np.zeros(4, dtype=np.int64), set()
    buffers = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    while state[0] < females:
        count = overlapping_pairs(
            low, high, times[0], points, points, times[1], np.arange(males), 0.0, 10, 20, state, *buffers
        )
        found |= set(zip(buffers[0][:count].tolist(), buffers[1][:count].tolist(), strict=True))
    overlap = (low[:, None] <= points) & (points <= high[:, None])
    apart = times[1][None, :] - times[0][:, None]
    wanted = np.argwhere(overlap & (apart > -20) & (apart < 10))
    assert found == {(int(i), int(j)) for i, j in wanted}
    assert state[3] == overlap.sum()
