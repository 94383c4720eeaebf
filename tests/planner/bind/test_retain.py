"""What a stream retains caps every window of time on it, as if the query had said so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.bind.bind import bind
from planner.bind.rewrite import QueryParts, rewrite
from planner.errors import InvalidWindow
from tests.builders import SECOND_US, a_stream

PLAIN = {name: replace(a_stream(i), name=name) for i, name in ((1, "A"), (2, "B"), (3, "C"))}
RETAINED = PLAIN | {"A": replace(PLAIN["A"], retain_us=30 * SECOND_US)}
OF_TWO = "SELECT a.v FROM A {} a, B {} b WHERE a.k = b.k"


@pytest.mark.parametrize(
    ("written", "other", "meant"),
    [
        ("[RANGE UNBOUNDED]", "[RANGE 1 HOUR]", "[RANGE 30 SECONDS]"),
        ("[RANGE 1 MINUTE]", "[RANGE UNBOUNDED]", "[RANGE 30 SECONDS]"),
        ("[RANGE 10 SECONDS]", "[NOW]", "[RANGE 10 SECONDS]"),
        ("[RANGE 1 MINUTE]", "[ROWS 5]", "[RANGE 30 SECONDS]"),
        ("[ROWS 50000000]", "[RANGE 1 MINUTE]", "[ROWS 50000000]"),
    ],
)
def test_a_longer_window_means_what_is_retained(written: str, other: str, meant: str) -> None:
    query, same = bind(OF_TWO.format(written, other), RETAINED), bind(OF_TWO.format(meant, other), PLAIN)
    assert replace(query, cql="") == replace(same, cql="")


def test_bounds_on_event_times_are_capped_too() -> None:
    bounds = "SELECT a.v FROM A a, B b WHERE a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '5' SECOND "
    query = bind(bounds + "AND a.ts + INTERVAL '5' MINUTE", RETAINED)
    same = bind(bounds + "AND a.ts + INTERVAL '29.999999' SECOND", PLAIN)
    assert replace(query, cql="") == replace(same, cql="")
    later = " AND b.ts >= a.ts + INTERVAL '1' MINUTE"
    with pytest.raises(InvalidWindow, match="no pair of rows"):
        bind(OF_TWO.format("[RANGE 1 HOUR]", "[RANGE 1 HOUR]") + later, RETAINED)


def test_windows_of_three_streams_are_capped() -> None:
    of_three = "SELECT a.v FROM A {0} a, B {1} b, C {1} c WHERE a.k = b.k AND b.k = c.k"
    query = bind(of_three.format("[RANGE UNBOUNDED]", "[RANGE 1 HOUR]"), RETAINED)
    same = bind(of_three.format("[RANGE 30 SECONDS]", "[RANGE 1 HOUR]"), PLAIN)
    assert replace(query, cql="", left=None) == replace(same, cql="", left=None)
    assert query.left is not None
    assert same.left is not None
    assert replace(query.left, cql="") == replace(same.left, cql="")


def test_a_window_replaced_is_capped() -> None:
    text = rewrite(OF_TWO.format("[NOW]", "[NOW]"), RETAINED, QueryParts({"a": "1 HOUR"}, {}, None))
    assert bind(text, RETAINED).a.window_us == 30 * SECOND_US
