from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from catalog.values.query import UNBOUNDED_US, JoinKind, Query
from catalog.values.stream import Punctuations, Stream
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.explain.rendering.render import closing_text, plan_document, render_dot, render_mermaid
from planner.families.families import SideName
from tests.builders import a_query_s
from tests.planner.applied import render_text
from tests.planner.values import STREAMS

LOW = '"v" < 0.2'


def test_names_can_be_given_apart_from_the_plan() -> None:
    plan = build_plan([a_query_s(1), a_query_s(2)], STREAMS)
    assert render_text(plan, {2: "new"}).splitlines() == [
        "family A.k = B.k",
        "  slice 1 [0s, 10s)  queries q1 new",
    ]


def test_a_plan_without_queries_says_so_in_every_form() -> None:
    plan = build_plan([], STREAMS)
    assert render_text(plan) == "no queries"
    assert render_mermaid(plan) == "flowchart LR"
    assert render_dot(plan) == "digraph plan {\n  rankdir=LR;\n}"
    assert plan_document(plan) == {"version": 1, "strategy": "mem-opt", "streams": [], "families": []}


def test_the_document_says_which_slices_of_which_side_feed_a_query() -> None:
    plan = build_plan([a_query_s(1, 10, 30), a_query_s(2, 20, 10, filter_a=LOW)], STREAMS)
    (family,) = plan_document(plan)["families"]
    assert family["unions"] == [
        {"query": "q1", "slices": {"a": [1], "b": [1, 2]}},
        {"query": "q2", "slices": {"a": [1, 2], "b": [1]}},
    ]
    assert [s["keep"] for s in family["chains"]["a"]] == [None, "A.v < 0.2"]
    assert [s["keep_bits"] for s in family["chains"]["a"]] == [None, [0]]


def lazy(*queries: Query) -> dict[str, list[bool]]:
    (family,) = plan_document(build_plan(queries, STREAMS))["families"]
    return {side: [piece["lazy_end"] for piece in chain] for side, chain in family["chains"].items()}


def test_an_end_is_lazy_where_filters_stop_neither_rows_nor_males() -> None:
    assert lazy(a_query_s(1, 10), a_query_s(2, 20)) == {"a": [True, False], "b": [True, False]}
    same = lazy(a_query_s(1, 10, filter_a=LOW), a_query_s(2, 20, filter_a=LOW))
    assert same == {"a": [True, False], "b": [True, False]}, "the same filter"
    one_takes_all = lazy(a_query_s(1, 10, filter_a=LOW), a_query_s(2, 20))
    assert one_takes_all == {"a": [True, False], "b": [True, False]}
    all_and_some = lazy(a_query_s(1, 10), a_query_s(2, 20, filter_a=LOW))
    assert all_and_some == {"a": [False, False], "b": [False, False]}, "rows of a stay behind, and its males"
    apart = lazy(a_query_s(1, 10, filter_a='"v" > 0.5'), a_query_s(2, 20, filter_a=LOW))
    assert apart == {"a": [False, False], "b": [False, False]}


def test_lazy_ends_show_in_text_and_graphs() -> None:
    plan = build_plan([a_query_s(1, 10), a_query_s(2, 20), a_query_s(3, 30, filter_a=LOW)], STREAMS)
    assert [line.endswith("lazy end") for line in render_text(plan).splitlines()[1:]] == [True, False, False]
    for graph in (render_mermaid(plan), render_dot(plan)):
        assert "slice 1 [0s, 10s) lazy end" in graph
        assert graph.count("lazy end") == 1


def test_an_end_that_is_lazy_for_one_side_says_for_which() -> None:
    """Whatever passes the short query's filter passes the long one's; males are compared by filters alone."""
    queries = [a_query_s(1, 10, filter_a='"v" < 0.1'), a_query_s(2, 20, filter_a=LOW)]
    plan = build_plan(queries, STREAMS)
    assert render_text(plan).splitlines()[1].endswith("lazy end of A")
    assert "slice 1 [0s, 10s) lazy end of A" in render_mermaid(plan)


def test_the_document_is_json_with_null_for_unbounded() -> None:
    query = replace(a_query_s(1), a=replace(a_query_s(1).a, window_us=UNBOUNDED_US), residual='a."v" < b."v"')
    document = plan_document(build_plan([query], STREAMS))
    assert json.loads(json.dumps(document)) == document
    (family,) = document["families"]
    assert family["chains"]["a"][0]["w_end_us"] is None
    assert family["chains"]["a"][0]["window"] == "[0s, unbounded)"
    assert family["queries"][0]["window_us"] == {"a": None, "b": 10_000_000}
    assert family["queries"][0]["residual"] == "A.v < B.v"


def test_joins_are_named_where_there_are_several() -> None:
    queries = [a_query_s(1, 10), a_query_s(2, 30, filter_a=LOW)]
    assert render_text(build_plan(queries, STREAMS, objective=Objective("pushdown"))).splitlines() == [
        "family A.k = B.k  pushdown",
        "  join p1  rows of A for q1, not for q2",
        "    slice 1 [0s, 10s)  queries q1",
        "  join p2  rows of A for q2",
        "    slice 1 [0s, 30s)  queries q1 q2  keep A.v < 0.2",
    ]
    assert render_text(
        build_plan([a_query_s(1, 10, 20)], STREAMS, objective=Objective("unshared"))
    ).splitlines() == [
        "family A.k = B.k  unshared",
        "  chain of A",
        "    slice 1 [0s, 10s)  queries q1",
        "  chain of B",
        "    slice 1 [0s, 20s)  queries q1",
    ]


def test_the_document_names_joins_and_has_chains_where_there_is_one() -> None:
    queries = [a_query_s(1, 10), a_query_s(2, 30, filter_a=LOW)]
    (family,) = plan_document(build_plan(queries, STREAMS, objective=Objective("pushdown")))["families"]
    assert "chains" not in family
    assert [(j["id"], j["queries"], j["partition"]) for j in family["joins"]] == [
        ("p1", ["q1"], {"side": "a", "one_of": ["q1"], "none_of": ["q2"]}),
        ("p2", ["q1", "q2"], {"side": "a", "one_of": ["q2"], "none_of": []}),
    ]
    assert family["unions"][0] == {
        "query": "q1",
        "joins": [
            {"join": "p1", "slices": {"a": [1], "b": [1]}},
            {"join": "p2", "slices": {"a": [1], "b": [1]}},
        ],
    }
    (family,) = plan_document(build_plan(queries, STREAMS, objective=Objective("pullup")))["families"]
    assert family["chains"] == family["joins"][0]["chains"]
    assert family["joins"][0]["selections_pulled_up"]


def test_a_drawing_has_a_ladder_per_join() -> None:
    queries = [a_query_s(1, 10), a_query_s(2, 30, filter_a=LOW)]
    lines = render_mermaid(build_plan(queries, STREAMS, objective=Objective("pushdown"))).splitlines()
    assert lines[4:] == [
        '    f1_p1_ab1["p1: slice 1 [0s, 10s)"]',
        '    f1_p2_ab1["p2: slice 1 [0s, 30s)"]',
        '    f1_u1(("union"))',
        '    f1_u2(("union"))',
        '    f1_q1(["q1"])',
        '    f1_q2(["q2"])',
        "  end",
        '  s1 -->|"for q1, not for q2"| f1_p1_ab1',
        "  s2 --> f1_p1_ab1",
        '  s1 -->|"A.v #lt; 0.2, for q2"| f1_p2_ab1',
        "  s2 --> f1_p2_ab1",
        "  f1_p1_ab1 --> f1_u1",
        "  f1_p2_ab1 --> f1_u1",
        "  f1_u1 --> f1_q1",
        "  f1_p2_ab1 --> f1_u2",
        '  f1_u2 -->|"A.v #lt; 0.2"| f1_q2',
    ]


def test_the_document_names_the_streams_that_close_keys() -> None:
    contract = Punctuations((("k",),))
    closing = STREAMS | {2: replace(STREAMS[2], punctuations=contract)}
    other = STREAMS | {2: replace(STREAMS[2], punctuations=Punctuations((("v",),)))}

    def closed_by(streams: Mapping[int, Stream]) -> list[str]:
        (family,) = plan_document(build_plan([a_query_s(1)], streams))["families"]
        return list(family["punctuations"]["closed_by"])

    assert (closed_by(closing), closed_by(other), closed_by(STREAMS)) == (["B"], [], [])


def test_the_document_names_the_streams_whose_rows_are_decided_early() -> None:
    closing = STREAMS | {2: replace(STREAMS[2], punctuations=Punctuations((("k",),)))}

    def decided_early(streams: Mapping[int, Stream], kind: JoinKind, *preserved: SideName) -> list[str]:
        plan = build_plan([a_query_s(1, kind=kind, preserved=preserved)], streams)
        (family,) = plan_document(plan)["families"]
        names = list(family["punctuations"]["decided_early"])
        told = [f"closings decide which rows of {name} have no partner" for name in names]
        assert list(closing_text(plan.families[0], plan)) == ["keys closed by B", *told][streams is STREAMS :]
        return names

    assert decided_early(closing, "outer", "a") == ["A"]
    assert decided_early(closing, "outer", "a", "b") == ["A"]
    assert decided_early(closing, "anti", "b") == []
    assert decided_early(closing, "inner") == []
    assert decided_early(STREAMS, "outer", "a") == []
