"""The picture of a plan: slices and windows are to scale, and what is too much for it is counted."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from catalog.values.query import UNBOUNDED_US, Query
from planner.build.build_plan import build_plan
from planner.drawing.svg import render_svg
from tests.builders import a_query, a_query_s
from tests.planner.values import STREAMS

SVG = "{http://www.w3.org/2000/svg}"
MINUTE_US = 60_000_000


def drawn(*queries: Query) -> ElementTree.Element:
    return ElementTree.fromstring(render_svg(build_plan(queries, STREAMS)))


def texts(picture: ElementTree.Element) -> list[str]:
    return [found.text or "" for found in picture.iter(f"{SVG}text")]


def boxes(picture: ElementTree.Element) -> list[tuple[int, int, str]]:
    """Return start, end and tooltip of each slice."""
    found = [e for e in picture.iter(f"{SVG}rect") if "slice" in e.attrib["class"]]
    return [
        (int(e.attrib["x"]), int(e.attrib["x"]) + int(e.attrib["width"]), e.findtext(f"{SVG}title", ""))
        for e in found
    ]


def lines(picture: ElementTree.Element) -> list[tuple[int, int]]:
    return [(int(e.attrib["x1"]), int(e.attrib["x2"])) for e in picture.iter(f"{SVG}line")]


def test_slices_and_windows_are_to_scale() -> None:
    picture = drawn(a_query_s(1, 10), a_query_s(2, 40))
    first, second, *of_b = boxes(picture)
    assert first[1] == second[0]
    assert second[1] - first[0] == pytest.approx(4 * (first[1] - first[0]), abs=2)
    assert (first[2], second[2]) == ("[0s, 10s)", "[10s, 40s)")
    assert of_b == [first, second]
    assert lines(picture) == [(first[0], first[1]), (first[0], second[1])] * 2
    assert texts(picture).count("q1") == 2
    assert {"A.k = B.k", "rows of A", "rows of B", "0", "10s", "40s"} <= set(texts(picture))


def test_a_filter_at_a_slice_is_its_tooltip() -> None:
    picture = drawn(a_query_s(1, 10), a_query_s(2, 40, filter_a='"v" < 0.2'))
    assert [told for _, _, told in boxes(picture)][:2] == ["[0s, 10s)", "[10s, 40s), keeps A.v < 0.2"]


def test_lengths_that_differ_by_far_are_all_seen() -> None:
    ends = (1_000, MINUTE_US, 24 * 60 * MINUTE_US)
    picture = drawn(*(a_query(n, end, end) for n, end in enumerate(ends, start=1)))
    assert all(end - start > 20 for start, end, _ in boxes(picture))
    assert all(after[0] == before[1] for before, after in pairwise(boxes(picture)[:3]))


def test_a_window_without_end_takes_the_rest() -> None:
    picture = drawn(a_query_s(1, 10), a_query(2, UNBOUNDED_US, UNBOUNDED_US))
    assert boxes(picture)[1][1] - boxes(picture)[1][0] == 60
    assert "no end" in texts(picture)


def test_queries_of_a_window_share_a_line_and_many_windows_are_counted() -> None:
    picture = drawn(*(a_query_s(n, 10) for n in range(1, 9)))
    assert "q1, q2, q3 +5" in texts(picture)
    picture = drawn(*(a_query_s(n, n) for n in range(1, 31)))
    assert texts(picture).count("and 10 more windows") == 2
    assert float(picture.attrib["height"]) > max(int(e.attrib["y"]) for e in picture.iter(f"{SVG}text"))


def test_a_plan_without_queries_says_so() -> None:
    assert texts(drawn()) == ["no queries"]
