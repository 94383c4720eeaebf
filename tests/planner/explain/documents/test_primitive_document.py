"""Primitives in words, and their short form in the history."""

from __future__ import annotations

from catalog.documents.codec import encode
from planner.build.build_plan import build_plan
from planner.build.objective import Objective
from planner.build.transitions.diff import diff
from planner.explain.documents.primitive_document import (
    MOST_NAMES,
    MOST_STEPS,
    primitive_documents,
    short_documents,
)
from service.planning.records.plan_record import record_of
from tests.builders import a_query_s
from tests.planner.values import STREAMS

LOW, HIGH = '"v" < 0.2', '"v" > 0.9'


def test_the_short_form_says_what_came_and_went() -> None:
    old = [a_query_s(n, 10 * n, filter_a=LOW) for n in range(1, 5)]
    first = build_plan(old, STREAMS)
    second = build_plan([*old[1:], a_query_s(9, 40, filter_a=HIGH)], STREAMS, first)
    shown, left_out = short_documents(first, second, diff(first, second))
    assert left_out == 0
    assert [step["text"] for step in shown] == [
        "merge A at 10s",
        "set filter of A [0s, 40s): + A.v > 0.9",
        "merge B at 10s",
        "set routes + q9, - q1",
    ]
    assert shown[1] == {
        "type": "set-filter",
        "family": "A.k = B.k",
        "family_id": first.families[0].id,
        "join": "shared",
        "side": "a",
        "w_start_us": 0,
        "w_end_us": 40_000_000,
        "slices": 3,
        "added": ["A.v > 0.9"],
        "removed": [],
        "text": "set filter of A [0s, 40s): + A.v > 0.9",
    }


def test_a_filter_that_goes_is_named_although_the_new_plan_does_not_know_it() -> None:
    old = [a_query_s(1, 10, filter_a=LOW), a_query_s(2, 10, filter_a=HIGH)]
    first = build_plan(old, STREAMS)
    second = build_plan(old[:1], STREAMS, first)
    shown, _ = short_documents(first, second, diff(first, second))
    assert [s["text"] for s in shown] == ["set filter of A [0s, 10s): - A.v > 0.9", "set routes - q2"]
    full = primitive_documents(first, second, diff(first, second))
    assert [s["text"] for s in full] == ["set filter of A [0s, 10s): A.v < 0.2", "set routes to q1"]


def test_the_history_of_a_version_is_bounded_whatever_it_changes() -> None:
    first = build_plan([a_query_s(n, n, filter_a=f'"v" < {n}') for n in range(1, 400)], STREAMS)
    shown, left_out = short_documents(None, first, diff(None, first))
    assert len(shown) == MOST_STEPS
    assert left_out > 1000
    nothing = build_plan([], STREAMS)
    many = build_plan([a_query_s(n, 1) for n in range(1, 100)], STREAMS, nothing)
    shown, left_out = short_documents(nothing, many, diff(nothing, many))
    (routes,) = [step for step in shown if step["type"] == "set-routes"]
    assert len(routes["added"]) == MOST_NAMES + 1
    assert routes["added"][-1] == f"{99 - MOST_NAMES} more"
    record = record_of(None, first, Objective())
    assert len(encode(record)) < 10_000
