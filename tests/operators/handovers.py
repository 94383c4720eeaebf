"""Random cases in which queries hand their rows on: short lives, backfill from the state, chains of holders.

Cases of ``tests.operators.cases`` seldom need a held row of a held row: whoever is entitled to a row usually
stays. Here a query lives for a batch or two, its successor starts from the state, and rows come slowly enough
that the same ones are handed on several times, past filters, windows and columns of all holders.
"""

from __future__ import annotations

from hypothesis import strategies as st

from catalog.values.query import UNBOUNDED_US, Query
from tests.operators.cases import Case, Step
from tests.operators.queries import Row, a_query, a_stream

_windows = st.sampled_from((30, 9, 14, 60, UNBOUNDED_US))
_filters = st.sampled_from((None, None, '"v" < 5', '"v" > 2', '"w" = 1'))
_columns = st.sampled_from(((), ("v",), ("w",), ("v", "w")))

#: One integer per row: stream, step of the clock, v, w.
_ROW_CODES = 2 * 4 * 8 * 2


@st.composite
def handovers(draw: st.DrawFn) -> Case:
    """Draw a case of one family in which the queries change before almost every batch."""
    streams = {i: a_stream(i, draw(st.sampled_from((0, 3)))) for i in (1, 2)}
    clock = 0
    positions = {1: 0, 2: 0}
    number = 0
    running: list[Query] = []
    steps = []
    for batch in range(draw(st.integers(3, 7))):
        running = [q for q in running if draw(st.integers(0, 2)) == 0]
        before = tuple(running)
        for _ in range(draw(st.integers(0 if running else 1, 2))):
            number += 1
            running.append(_query(draw, number, first=batch == 0))
        between = before if batch and draw(st.integers(0, 3)) == 3 else None
        rows = []
        for code in draw(st.lists(st.integers(0, _ROW_CODES - 1), min_size=2, max_size=9)):
            code, stream = divmod(code, 2)
            code, advance = divmod(code, 4)
            v, w = divmod(code, 2)
            clock += (0, 1, 2, 4)[advance]
            values = {"k": 1, "m": None, "v": v, "w": w}
            rows.append((1 + stream, Row(positions[1 + stream], clock, values)))
            positions[1 + stream] += 1
        steps.append(Step(tuple(running), tuple(rows), between=between))
    slack_us = draw(st.sampled_from((25, 4, 0, 60)))
    return Case(streams, tuple(steps), draw(st.integers(1, 2)), slack_us, stored=draw(st.booleans()))


def _query(draw: st.DrawFn, number: int, first: bool) -> Query:
    return a_query(
        number,
        draw(_windows),
        draw(_windows),
        filter_a=draw(_filters),
        filter_b=draw(_filters),
        columns_a=draw(_columns),
        columns_b=draw(_columns),
        backfill="none" if first or draw(st.integers(0, 7)) == 7 else "state",
    )
