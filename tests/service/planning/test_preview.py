"""Previews against a catalog, without an engine: what would run, by which statistics, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.errors import InvalidInput, NameTaken, SluiceError
from catalog.store.store import Store
from catalog.values.counters.batch_counters import StreamCounters
from catalog.values.counters.family_counters import SliceCounters
from catalog.values.statistics import Measure, Profile, StreamProfile
from catalog.values.stream import Column, FilesSource, Stream
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.costs.calibration.shipped import SHIPPED
from planner.explain.documents.preview_document import statistics_document
from planner.explain.preview import Preview
from service.config.settings import PlanningSettings
from service.documents.statistics_document import ChainDocument, StatisticsDocument, StreamNumbersDocument
from service.inputs.reading.sample import CatalogRows
from service.inputs.sources.listed.files import list_files
from service.planning.preview import (
    NewQuery,
    PreviewRequest,
    Statistician,
    explain_version,
    preview_change,
    price_version,
)
from service.planning.records.objective import objective_of
from tests.builders import EMPTY_BATCH
from tests.epochs import begin_epoch

Q1 = "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k"
Q2 = "SELECT A.k FROM A [RANGE 30 SECONDS], B [RANGE 30 SECONDS] WHERE A.k = B.k AND A.v < 0.25"
ROWS = 2_000


@pytest.fixture
def store(store: Store, tmp_path: Path) -> Store:
    """Two streams of files, 100 rows a second and 10 keys, and two queries in a plan."""
    by_name: dict[str, Stream] = {}
    for name in ("A", "B"):
        directory = tmp_path / name
        directory.mkdir()
        table = pa.table(
            {
                "ts": pa.array([i * 10_000 for i in range(ROWS)], pa.timestamp("us")),
                "k": pa.array([i % 10 for i in range(ROWS)], pa.int64()),
                "v": pa.array([i % 100 / 100 for i in range(ROWS)], pa.float64()),
            }
        )
        pq.write_table(table, directory / "0.parquet")
        columns = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))
        source = FilesSource("parquet", str(directory), settle_us=0)
        by_name[name] = store.streams.add(Stream(0, name, columns, "ts", 0, source))
        list_files(store, by_name[name])
    with store.transaction():
        queries = []
        for name, cql in (("q1", Q1), ("q2", Q2)):
            query = bind(cql, by_name, name=name, query_id=store.queries.reserve_ids(1)[0])
            store.queries.add(query, 1)
            queries.append(query)
        store.control_log.append(plan=build_plan(queries, {s.id: s for s in by_name.values()}))
    return store


def previewed(store: Store, objective: Objective | None = None, **request: Any) -> Preview:
    return preview_change(
        store,
        Statistician(store, CatalogRows(store), buckets=3),
        objective or Objective(cost_model="paper"),
        SHIPPED,
        PreviewRequest(**request),
    )


def test_a_preview_of_nothing_is_the_running_plan(store: Store) -> None:
    found = previewed(store)
    assert found.primitives == ()
    assert found.plan.families == build_plan_of(store).families
    assert store.control_log.latest_plan() == build_plan_of(store)


def build_plan_of(store: Store) -> Any:
    return store.control_log.plan(1)


def test_statistics_are_sampled_where_nothing_is_measured_and_given_ones_rule(store: Store) -> None:
    found = statistics_document(previewed(store), now_us=0)
    assert found["streams"]["A"]["rate"]["origin"] == "sampled"
    assert found["streams"]["A"]["rate"]["value"] == pytest.approx(100, rel=0.01)
    assert found["filters"]["A.v < 0.25"]["value"] == pytest.approx(0.25)
    assert found["join_selectivity"]["A.k = B.k"]["value"] == pytest.approx(0.1, rel=0.05)
    assert found["buckets"] == 3
    given = StatisticsDocument(
        streams={"A": StreamNumbersDocument(rate=50, row_bytes=48)},
        filters={"0.25 > A.v": 0.5},
        join_selectivity=0.025,
        batch_s=2.0,
    )
    found = statistics_document(previewed(store, statistics=given), now_us=0)
    assert found["streams"]["A"] == {
        "rate": {"value": 50.0, "origin": "given", "age_s": None},
        "row_bytes": {"value": 48.0, "origin": "given", "age_s": None},
    }
    assert found["streams"]["B"]["rate"]["origin"] == "sampled"
    assert found["filters"]["A.v < 0.25"] == {"value": 0.5, "origin": "given", "age_s": None}
    assert found["join_selectivity"]["A.k = B.k"]["value"] == 0.025
    assert found["batch_s"]["value"] == 2.0


def test_a_bounded_run_takes_as_many_rows_to_a_batch_as_it_may(store: Store) -> None:
    queries = [record.query for record in store.queries.running()]
    bounded = Statistician(store, CatalogRows(store), 3, max_rows_per_batch=1_000)
    found = bounded.profile(queries)
    assert found.batch_s.value == pytest.approx(5, rel=0.01)  # 100 rows a second of each stream
    assert found.batch_s.origin == "sampled"
    whole = Statistician(store, CatalogRows(store), 3, max_rows_per_batch=4_000_000).profile(queries)
    assert whole.batch_s.value == whole.input_s
    given = Profile(batch_s=Measure(2.0))
    assert bounded.profile(queries, given).batch_s == Measure(2.0)
    given = Profile(streams=(StreamProfile(1, Measure(7.0)),))
    assert bounded.profile(queries, given).batch_s.origin == "assumed"


def test_queries_go_before_others_come_so_that_a_name_is_free(store: Store) -> None:
    cql = Q1.replace("10 SECONDS", "20 SECONDS")
    found = previewed(store, remove=("q1",), add=(NewQuery("q1", cql), NewQuery("q3", cql)))
    (family,) = found.plan.families
    assert [(q.id, q.name, q.w_a_us) for q in family.queries] == [
        (2, "q2", 30_000_000),
        (3, "q1", 20_000_000),
        (4, "q3", 20_000_000),
    ]
    assert found.plan.version == 2
    assert [q.query.name for q in store.queries.running()] == ["q1", "q2"]


def test_an_objective_of_the_request_rules_over_that_of_the_service(store: Store) -> None:
    service = Objective("unshared", {"A.k = B.k": "pullup", "X.k = Y.k": "pushdown"})
    (family,) = previewed(store, service).plan.families
    assert family.strategy == "pullup"  # a family's own
    (family,) = previewed(store, service, family_strategies={"B.k = A.k": "mem-opt"}).plan.families
    assert family.strategy == "mem-opt"
    (family,) = previewed(store, Objective("unshared"), strategy="pushdown").plan.families
    assert family.strategy == "pushdown"


def test_settings_say_the_objective_of_a_service() -> None:
    planning = PlanningSettings(
        strategy="cpu-opt", family_strategies={"A.k = B.k": "mem-opt"}, cost_model="paper", c_sys=2
    )
    objective = objective_of(planning)
    assert objective.weighs_costs()
    assert objective == Objective("cpu-opt", {"A.k = B.k": "mem-opt"}, "paper", 2.0)
    assert not Objective().weighs_costs()


def test_keys_of_a_new_family_are_looked_at_unless_the_user_says_how_to_spread_them(store: Store) -> None:
    queries = [record.query for record in store.queries.running()]
    plan = store.control_log.latest_plan()
    assert plan is not None
    assert Objective().weighs_keys(None, queries)
    assert not Objective().weighs_keys(plan, queries)
    assert Objective().weighs_keys(plan, queries, [plan.families[0].id])
    assert not Objective(partitioning="hash").weighs_keys(None, queries)
    assert not Objective(partitioning="replicate").weighs_keys(None, queries)


def test_a_plan_is_of_an_objective_if_every_family_has_its_strategy(store: Store) -> None:
    plan = store.control_log.latest_plan()
    queries = [record.query for record in store.queries.running()]
    assert plan is not None
    assert Objective("mem-opt", {"X.k = Y.k": "pushdown"}).is_of(plan, queries)
    assert not Objective("cpu-opt").is_of(plan, queries)
    assert not Objective("mem-opt", {"A.k = B.k": "pullup"}).is_of(plan, queries)
    pulled_up = build_plan(
        queries, {s.id: s for s in store.streams.all()}, plan, objective=Objective("pullup")
    )
    assert not Objective("mem-opt").is_of(pulled_up, queries)
    assert Objective("pullup").is_of(pulled_up, queries)


def test_rows_that_would_move_are_those_of_the_last_batch(store: Store) -> None:
    assert previewed(store, add=(NewQuery("q3", Q1.replace("10", "20")),)).rows_moved is None
    (family,) = build_plan_of(store).families
    slices = tuple(
        SliceCounters(family.id, side, number, rows=100) for side in ("a", "b") for number in (1, 2)
    )
    streams = tuple(StreamCounters(i, 0, 0, 0, None, None) for i in (1, 2))
    epoch = begin_epoch(store)
    store.batches.commit(
        replace(EMPTY_BATCH, batch=0, epoch=epoch, plan_version=1, streams=streams, slices=slices)
    )
    assert previewed(store, add=(NewQuery("q3", Q1.replace("10", "20")),)).rows_moved == 100
    assert previewed(store, strategy="unshared").rows_moved == 400


def test_a_chain_is_costed_beside_the_strategies(store: Store) -> None:
    chain = ChainDocument.model_validate({"A": [10, 20, 30], "b": [30]})
    (report,) = previewed(store, chain=chain).reports
    assert report.given is not None
    (join,) = report.given.joins
    assert [s.w_end_us for s in join.chain_a] == [10_000_000, 20_000_000, 30_000_000]
    assert len(join.chain_b) == 1


def test_a_plan_version_is_explained_by_what_is_known_now(store: Store) -> None:
    statistician = Statistician(store, CatalogRows(store), buckets=3)
    found = explain_version(store, statistician, Objective(), SHIPPED, store.control_log.plan(1))
    (family,) = store.control_log.plan(1).families
    assert found[family.id].family == family
    assert found[family.id].cost.memory_rows > 0


def test_a_plan_version_has_the_prices_of_its_explanation(store: Store) -> None:
    statistician = Statistician(store, CatalogRows(store), buckets=3)
    plan = store.control_log.plan(1)
    (family,) = plan.families
    (report,) = explain_version(store, statistician, Objective(), SHIPPED, plan).values()
    cost = {each.name: each.cost for each in report.alternatives}
    for each in report.alternatives:
        planned = replace(plan, families=(replace(family, strategy=each.name, joins=each.joins),))
        found = price_version(store, statistician, Objective(), SHIPPED, planned)
        assert found == {family.id: (each.cost, cost["unshared"])}
    assert cost["unshared"] != cost["mem-opt"]


@pytest.mark.parametrize(
    ("request_", "kind", "primary", "path"),
    [
        ({"remove": ("q1", "q9")}, InvalidInput, 'query "q9" does not run', ("remove", 1)),
        ({"add": (NewQuery("q1", Q1),)}, NameTaken, 'query "q1" exists', ("add", 0, "name")),
        ({"add": (NewQuery("1q", Q1),)}, InvalidInput, 'query name "1q" is not allowed', ("add", 0, "name")),
        (
            {"add": (NewQuery("q3", Q1), NewQuery("q4", Q1.replace("B.k", "B.kk")))},
            InvalidInput,
            'column "kk" does not exist in stream "B"',
            ("add", 1, "cql"),
        ),
        (
            {"family_strategies": {"A.k = B.v": "pullup"}},
            InvalidInput,
            'family "A.k = B.v" does not exist',
            ("family_strategies", "A.k = B.v"),
        ),
        (
            {"statistics": StatisticsDocument(streams={"C": StreamNumbersDocument(rate=1)})},
            InvalidInput,
            'stream "C" does not exist',
            ("statistics", "streams", "C"),
        ),
        (
            {"statistics": StatisticsDocument(filters={"A.v <": 0.5})},
            InvalidInput,
            "the query ends too early",
            ("statistics", "filters", "A.v <"),
        ),
        (
            {"statistics": StatisticsDocument(filters={"A.v < 0.3": 0.5})},
            InvalidInput,
            'no query has the filter "A.v < 0.3"',
            ("statistics", "filters", "A.v < 0.3"),
        ),
        (
            {"chain": ChainDocument.model_validate({"boundaries_s": [10, 20]})},
            InvalidInput,
            'the chain of "A" ends at 20 s, not at the largest window',
            ("chain",),
        ),
        (
            {"chain": ChainDocument.model_validate({"boundaries_s": [20, 10, 30]})},
            InvalidInput,
            'boundaries of "A" do not ascend from 0',
            ("chain",),
        ),
        (
            {"chain": ChainDocument.model_validate({"A": [30], "C": [30]})},
            InvalidInput,
            '"C" is not a side of the family',
            ("chain",),
        ),
        (
            {"chain": ChainDocument.model_validate({"boundaries_s": [30], "family": "A.k = B.v"})},
            InvalidInput,
            'family "A.k = B.v" does not exist',
            ("chain", "family"),
        ),
        (
            {"chain": ChainDocument.model_validate({"boundaries_s": [30]}), "remove": ("q1", "q2")},
            InvalidInput,
            "no family has a chain to change",
            ("chain", "family"),
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(
    store: Store, request_: dict[str, Any], kind: type[SluiceError], primary: str, path: tuple[str | int, ...]
) -> None:
    with pytest.raises(kind) as caught:
        previewed(store, **request_)
    assert (caught.value.primary, caught.value.path) == (primary, path)


def test_a_chain_says_which_of_several_families_it_is_for(store: Store) -> None:
    other = "SELECT A.k FROM A [RANGE 5 SECONDS], B [RANGE 5 SECONDS] WHERE A.v = B.v"
    with pytest.raises(InvalidInput) as caught:
        previewed(
            store, add=(NewQuery("q3", other),), chain=ChainDocument.model_validate({"boundaries_s": [5]})
        )
    assert caught.value.primary == "the chain does not say which of 2 families it is for"
    assert caught.value.hint == "Add family with one of: A.v = B.v, A.k = B.k."
    named = ChainDocument.model_validate({"boundaries_s": [5], "family": "A.v = B.v"})
    reports = previewed(store, add=(NewQuery("q3", other),), chain=named).reports
    assert [report.given is not None for report in reports] == [True, False]
