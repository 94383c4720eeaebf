"""Replaced parts: the rewritten text binds to the query with these parts, and to nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.errors import InvalidInput
from catalog.values.change import BOTH, QueryParts
from catalog.values.query import UNBOUNDED_US, Query
from catalog.values.stream import Column, HttpSource, Stream
from planner.bind.bind import bind
from planner.bind.rewrite import rewrite
from tests.examples import examples
from tests.planner.cql_rewrites import TREE, Tree, rewritten, written

_COLUMNS = tuple(
    Column(name, type_)
    for name, type_ in (
        ("ts", "timestamp"),
        ("k", "bigint"),
        ("i", "int"),
        ("j", "int"),
        ("v", "double"),
        ("w", "double"),
        ("s", "string"),
        ("m", "decimal(10,2)"),
        ("f", "boolean"),
        ("g", "boolean"),
    )
)
STREAMS = {
    name: Stream(i, name, _COLUMNS, "ts", 0, HttpSource()) for i, name in enumerate(("F", "B", "order"), 1)
}

#: One query in every form that windows have: W of F is 5 minutes or near it, W of B one minute.
_SELECT = "SELECT F.k, b.v AS x FROM "
FORMS = {
    "range": _SELECT + "F [RANGE 5 MINUTES], B [RANGE 1 MINUTE] b WHERE F.k = b.k{more}",
    "istream": "ISTREAM(" + _SELECT + "F [RANGE 5 MINUTES], B [RANGE 1 MINUTE] b WHERE F.k = b.k{more})",
    "join": _SELECT + "F [RANGE 5 MINUTES] JOIN B [RANGE 1 MINUTE] AS b ON F.k = b.k WHERE TRUE{more}",
    "using": "SELECT k, b.v AS x FROM F [RANGE 5 MINUTES] JOIN B [RANGE 1 MINUTE] b USING (k) "
    "WHERE TRUE{more}",
    "between": _SELECT + "F JOIN B b ON F.k = b.k AND b.ts BETWEEN F.ts - INTERVAL '1' MINUTE "
    "AND F.ts + INTERVAL '5' MINUTE WHERE TRUE{more}",
    "within": _SELECT + "F JOIN B b WITHIN (1 MINUTE, 5 MINUTES) ON F.k = b.k WHERE TRUE{more}",
    "swapped": _SELECT + "B [RANGE 1 MINUTE] b, F [RANGE 5 MINUTES] WHERE b.k = F.k{more}",
}

#: Conditions of one side, of both, and ones that stand for several at once.
MORE = (
    "",
    " AND F.v < 0.2 AND b.i > 3",
    " AND (F.v < b.v OR b.s LIKE 'a%' ESCAPE '!')",
    " AND NOT (F.v >= 0.2 OR b.i NOT IN (1, -2, 3))",
    " AND ((F.v < 1 AND b.i = 2) OR (F.v < 1 AND b.i = 3))",
    " AND F.ts < b.ts + INTERVAL '30' SECOND AND F.s IS NOT NULL",
    " AND CASE WHEN F.i > 0 THEN F.v ELSE -F.w END < 0.5 AND F.s || 'x' = 'ax'",
    " AND EXTRACT(hour FROM F.ts) = 3 AND POSITION('a' IN F.s) > 1 AND TRIM(BOTH ' ' FROM F.s) <> 'q'",
    " AND CAST(F.s AS DOUBLE) > 1.5 AND F.i // 2 = 3 AND F.j % 2 = 1 AND F.s RLIKE '^a' AND abs(b.v - 1) < 2",
    " AND F.ts > TIMESTAMP '2026-01-01 00:00' AND SUBSTRING(F.s FROM 2 FOR 1) = 'b' AND F.i BETWEEN -1 AND 5",
    " AND F.i IS DISTINCT FROM b.i AND (F.f OR NOT F.g) AND F.v - (F.w - 1) > -(F.v + 2)",
)


def bound(text: str) -> Query:
    return replace(bind(text, STREAMS), cql="")


def expected(text: str, **sides: dict[str, Any]) -> Query:
    query = bound(text)
    return replace(query, a=replace(query.a, **sides.get("a", {})), b=replace(query.b, **sides.get("b", {})))


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("form", FORMS)
def test_windows_are_replaced_and_all_else_stays(form: str, more: str) -> None:
    text = FORMS[form].format(more=more)
    for windows, of_a, of_b in (
        ({"F": "30s"}, 30_000_000, None),
        ({"b": "90 SECONDS"}, None, 90_000_000),
        ({"B": "NOW", "F": "UNBOUNDED"}, UNBOUNDED_US, 1),
        ({BOTH: "RANGE 2 HOURS"}, 7_200_000_000, 7_200_000_000),
    ):
        new = rewrite(text, STREAMS, QueryParts(windows=windows))
        sides = {
            name: {"window_us": length} for name, length in (("a", of_a), ("b", of_b)) if length is not None
        }
        assert bound(new) == expected(text, **sides), new
        assert rewrite(new, STREAMS, QueryParts(windows=windows)) == new, (
            "written again, it is in the one form"
        )


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("form", FORMS)
def test_a_filter_is_replaced_and_all_else_stays(form: str, more: str) -> None:
    text = FORMS[form].format(more=more)
    before = bound(text)
    for name, side in (("F", "a"), ("b", "b")):
        other = before.b if side == "a" else before.a
        for filter_, sql in (("w > 0.75 AND w < 3", '"w" < 3 AND "w" > 0.75'), (None, None)):
            after = bound(new := rewrite(text, STREAMS, QueryParts(filters={name: filter_})))
            changed, kept = (after.a, after.b) if side == "a" else (after.b, after.a)
            assert changed.filter == sql, new
            assert (kept.filter, kept.window_us) == (other.filter, other.window_us), new
            assert (after.key, after.residual, after.outputs) == (before.key, before.residual, before.outputs)


@pytest.mark.parametrize("form", FORMS)
def test_the_select_list_is_replaced(form: str) -> None:
    text = FORMS[form].format(more=" AND F.v < 0.2")
    new = bound(rewrite(text, STREAMS, QueryParts(select=("F.s", "upper(b.s) AS t", "count_if", "b.*")[:2])))
    assert [(o.name, o.sql) for o in new.outputs] == [("s", 'a."s"'), ("t", 'upper(b."s")')]
    assert replace(new, outputs=(), a=bound(text).a, b=bound(text).b) == replace(bound(text), outputs=())
    starred = bound(rewrite(text, STREAMS, QueryParts(select="F.*, b.k AS bk -- all of it")))
    assert len(starred.outputs) == len(_COLUMNS) + 1


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    old=TREE,
    new=TREE,
    kept=TREE,
    form=st.sampled_from(sorted(FORMS)),
    seconds=st.integers(1, 10**6),
    data=st.data(),
)
def test_rewriting_then_binding_is_binding_with_the_new_values(
    old: Tree, new: Tree, kept: Tree, form: str, seconds: int, data: st.DataObject
) -> None:
    random = data.draw(st.randoms(use_true_random=False))
    other = written(kept).replace("F.", "b.")
    text = FORMS[form].format(more=f" AND ({rewritten(old, random)}) AND ({other})")
    parts = QueryParts(windows={"F": f"{seconds}s"}, filters={"F": written(new)})
    wanted = bound(
        FORMS["range"]
        .replace("5 MINUTES", f"{seconds} SECONDS")
        .format(more=f" AND ({written(new)}) AND ({other})")
    )
    again = rewrite(text, STREAMS, parts)
    found = bound(again)
    # An inclusive bound of a minute is W = 1 min + 1 us: the side that was not asked for stays as it is.
    assert replace(found, b=replace(found.b, window_us=60_000_000)) == wanted, again


@pytest.mark.parametrize(
    ("parts", "code", "path"),
    [
        (QueryParts(windows={"F": "5 parsecs"}), "invalid-window", ("window", "F")),
        (QueryParts(windows={BOTH: "0s"}), "invalid-window", ("window",)),
        (QueryParts(windows={"F": "1 month"}), "invalid-window", ("window", "F")),
        (QueryParts(windows={"X": "5s"}), "unknown-stream", ("window", "X")),
        (QueryParts(windows={"b": "5s", "B": "6s"}), "invalid-window", ("window", "B")),
        (QueryParts(filters={"F": "nope > 1"}), "unknown-column", ("filter", "F")),
        (QueryParts(filters={"F": "v >"}), "cql-syntax-error", ("filter", "F")),
        (QueryParts(filters={"F": "b.v > 1"}), "not-rewritable", ("filter", "F")),
        (QueryParts(filters={"F": "1 < 2"}), "not-rewritable", ("filter", "F")),
        (QueryParts(filters={"F": "s"}), "type-mismatch", ("filter", "F")),
        (QueryParts(select="F.k FROM B, B"), "cql-syntax-error", ("select",)),
        (QueryParts(select=()), "cql-syntax-error", ("select",)),
        (QueryParts(select="F.k)"), "cql-syntax-error", ("select",)),
        (QueryParts(select="F.nope"), "unknown-column", ()),
    ],
)
def test_a_part_that_cannot_be_meant_is_told_with_its_place(
    parts: QueryParts, code: str, path: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        rewrite(FORMS["range"].format(more=""), STREAMS, parts)
    assert (caught.value.code, caught.value.path) == (code, path)


@pytest.mark.parametrize(
    ("text", "place"),
    [("F.v > 5 AND F.v + 'x' > 1", "F.v + 'x'"), ("v > 5 AND zz > 1", "zz"), ("v > 5 AND b.w > 1", "b.w")],
)
def test_an_error_in_a_filter_is_located_in_the_filter(text: str, place: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        rewrite(FORMS["range"].format(more=""), STREAMS, QueryParts(filters={"F": text}))
    found = caught.value.location
    assert found is not None
    assert (found.text, found.column, found.length) == (text, text.index(place) + 1, len(place))


def test_a_window_within_other_conditions_is_not_replaced() -> None:
    bounds = "b.ts BETWEEN F.ts + INTERVAL '1' MINUTE AND F.ts + INTERVAL '5' MINUTE"
    text = f"SELECT F.k FROM F, B b WHERE F.k = b.k AND {bounds}"
    new = bound(rewrite(text, STREAMS, QueryParts(windows={"F": "10 MINUTES"})))
    assert (new.a.window_us, new.residual) == (600_000_000, bound(text).residual)
    with pytest.raises(InvalidInput, match='window of "b" cannot be replaced') as caught:
        rewrite(text, STREAMS, QueryParts(windows={BOTH: "10 MINUTES"}))
    assert caught.value.path == ("window",)


def test_names_that_are_keywords_are_quoted() -> None:
    text = 'SELECT o.k FROM "order" [NOW] o, F [NOW] AS "select" WHERE o.k = "select".k'
    new = rewrite(text, STREAMS, QueryParts(windows={"select": "5s"}))
    assert new == 'SELECT o.k FROM order [NOW] AS o, F [RANGE 5 SECONDS] AS "select" WHERE o.k = "select".k'


def test_both_sides_of_a_self_join_go_by_their_aliases() -> None:
    text = "SELECT x.k FROM F [RANGE 5 SECONDS] x, F [RANGE 9 SECONDS] y WHERE x.k = y.k AND y.v < 1"
    new = bound(rewrite(text, STREAMS, QueryParts(windows={"y": "1s"}, filters={"x": "v > 2"})))
    assert (new.a.window_us, new.b.window_us) == (5_000_000, 1_000_000)
    assert (new.a.filter, new.b.filter) == ('"v" > 2', '"v" < 1')
    with pytest.raises(InvalidInput, match='the query has no stream "F"'):
        rewrite(text, STREAMS, QueryParts(windows={"F": "1s"}))


#: Outer, semi and anti joins in every form: the filter F.v < 0.2, and mostly F.j = 1 as part of a match.
_JOINED = "F.k = b.k AND b.i > 3 AND F.j = 1"
_KEEPS_B = "SELECT F.k, b.v FROM "
_HALF = "SELECT F.k FROM F [RANGE 5 MINUTES] {} JOIN B [RANGE 1 MINUTE] b ON " + _JOINED + " WHERE F.v < 0.2"
ABSENCE = {
    "left": _KEEPS_B + f"F [RANGE 5 MINUTES] LEFT JOIN B [RANGE 1 MINUTE] b ON {_JOINED} WHERE F.v < 0.2",
    "using": "SELECT k, b.v FROM F [RANGE 5 MINUTES] LEFT JOIN B [RANGE 1 MINUTE] b USING (k) "
    "WHERE F.v < 0.2",
    "right": _KEEPS_B + f"B [RANGE 1 MINUTE] b RIGHT JOIN F [RANGE 5 MINUTES] ON {_JOINED} WHERE F.v < 0.2",
    "full to one": _KEEPS_B
    + f"B [RANGE 1 MINUTE] b FULL JOIN F [RANGE 5 MINUTES] ON {_JOINED} WHERE F.v < 0.2",
    "anti by NULL": _KEEPS_B
    + f"F [RANGE 5 MINUTES] LEFT JOIN B [RANGE 1 MINUTE] b ON {_JOINED} WHERE F.v < 0.2 AND b.k IS NULL",
    "semi": _HALF.format("SEMI"),
    "anti": _HALF.format("ANTI"),
    "exists": "SELECT k FROM F [RANGE 5 MINUTES] WHERE EXISTS (SELECT 1 FROM B [RANGE 1 MINUTE] b "
    "WHERE F.k = b.k AND i > 3 AND F.j = 1) AND v < 0.2",
    "not exists": "ISTREAM(SELECT k FROM F [RANGE 5 MINUTES] WHERE v < 0.2 AND NOT EXISTS (SELECT 1 "
    "FROM B [RANGE 1 MINUTE] b WHERE F.k = b.k AND i > 3 AND F.j = 1))",
    "in": "SELECT k FROM F [RANGE 5 MINUTES] WHERE k IN (SELECT k FROM B [RANGE 1 MINUTE] b "
    "WHERE i > 3 AND F.j = 1) AND v < 0.2",
    "bounds": "SELECT F.k FROM F WHERE v < 0.2 AND EXISTS (SELECT 1 FROM B b WHERE F.k = b.k "
    "AND b.ts BETWEEN F.ts - INTERVAL '1' MINUTE AND F.ts + INTERVAL '5' MINUTE)",
}


@pytest.mark.parametrize("form", ABSENCE)
def test_windows_of_outer_semi_and_anti_joins_are_replaced(form: str) -> None:
    text = ABSENCE[form]
    new = rewrite(text, STREAMS, QueryParts(windows={"F": "30s"}))
    assert bound(new) == expected(text, a={"window_us": 30_000_000}), new
    assert bound(new).kind != "inner"
    assert rewrite(new, STREAMS, QueryParts(windows={"F": "30s"})) == new


@pytest.mark.parametrize("form", sorted({*ABSENCE} - {"bounds"}))
def test_filters_of_outer_semi_and_anti_joins_are_replaced(form: str) -> None:
    text = ABSENCE[form]
    before = bound(text)
    for filter_, sql in (("w > 0.75", '"w" > 0.75'), (None, None)):
        after = bound(new := rewrite(text, STREAMS, QueryParts(filters={"F": filter_})))
        assert after.a.filter == sql, new
        assert replace(after, a=before.a) == before, new
    if form == "using":
        with pytest.raises(InvalidInput, match="this filter cannot be added to a join with USING"):
            rewrite(text, STREAMS, QueryParts(filters={"b": "w > 0.75"}))
        return
    after = bound(new := rewrite(text, STREAMS, QueryParts(filters={"b": "w > 0.75"})))
    assert after.b.filter == '"w" > 0.75', new
    assert replace(after, b=before.b) == before, new


def test_a_full_join_has_no_filter_to_replace() -> None:
    text = _KEEPS_B + f"F [NOW] FULL JOIN B [NOW] b ON {_JOINED}"
    assert bound(rewrite(text, STREAMS, QueryParts(select="F.s"))).preserved == ("a", "b")
    with pytest.raises(InvalidInput, match="cannot be rewritten part by part"):
        rewrite(text, STREAMS, QueryParts(filters={"F": "w > 0.75"}))


def test_a_left_join_that_is_an_inner_one_is_written_as_one() -> None:
    text = _KEEPS_B + "F [NOW] LEFT JOIN B [NOW] b ON F.k = b.k AND F.v < 0.2 WHERE b.i > 3"
    new = rewrite(text, STREAMS, QueryParts(filters={"b": None}))
    assert new == "SELECT F.k, b.v FROM F [NOW] AS F, B [NOW] AS b WHERE F.k = b.k AND F.v < 0.2"
    nothing = _KEEPS_B + "F [NOW] FULL JOIN B [NOW] b ON F.k = b.k WHERE b.i > 3 AND b.i < 3"
    with pytest.raises(InvalidInput, match="has no results"):
        rewrite(nothing, STREAMS, QueryParts(windows={"F": "5s"}))
