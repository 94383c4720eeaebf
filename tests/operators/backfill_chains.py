"""Random cases in which queries hand their rows on: short lives, backfill from the state, chains of holders.

Cases of ``tests.operators.cases`` seldom need a held row of a held row: whoever is entitled to a row usually
stays. Here a query lives for a batch or two, its successor starts from the state, and rows come slowly enough
that the same ones are handed on several times, past filters, windows and columns of all holders.

In half of the cases all queries have the same filters and columns and batches are small: only then does
compaction merge rows of several plan versions into one segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from catalog.values.plan import Strategy
from catalog.values.query import UNBOUNDED_US, Query
from tests.builders import a_query, a_stream
from tests.operators.cases import ALL_STRATEGIES, Case, Step, a_few
from tests.operators.queries import Row

_windows = st.sampled_from((30, 9, 14, 60, UNBOUNDED_US))

#: One integer per row: stream, step of the clock, v, w.
_ROW_CODES = 2 * 4 * 8 * 2


@dataclass(frozen=True)
class Manner:
    """What differs between the two halves."""

    filters: tuple[str | None, ...]
    columns: tuple[tuple[str, ...], ...]
    batches: tuple[int, int]
    rows: tuple[int, int]
    steps_us: tuple[int, ...]


VARIED = Manner(
    filters=(None, None, '"v" < 5', '"v" > 2', '"w" = 1'),
    columns=((), ("v",), ("w",), ("v", "w")),
    batches=(3, 7),
    rows=(2, 9),
    steps_us=(0, 1, 2, 4),
)
UNIFORM = Manner(filters=(None,), columns=((),), batches=(6, 14), rows=(1, 3), steps_us=(0, 1, 1, 2))


@st.composite
def backfill_chains(draw: st.DrawFn, strategies: Sequence[Strategy] = ALL_STRATEGIES) -> Case:
    """Draw a case of one family in which queries and strategy change before almost every batch."""
    manner = draw(st.sampled_from((UNIFORM, VARIED)))
    few = draw(a_few(strategies))
    streams = {i: a_stream(i, draw(st.sampled_from((0, 3)))) for i in (1, 2)}
    steps = []
    clock, number = 0, 0
    positions = {1: 0, 2: 0}
    running: list[Query] = []
    for batch in range(draw(st.integers(*manner.batches))):
        running = [q for q in running if draw(st.integers(0, 2)) < (1 if manner is VARIED else 2)]
        added = draw(st.integers(0 if running else 1, 2))
        for _ in range(added):
            number += 1
            running.append(_query(draw, number, manner, first=batch == 0))
        # In between, who leaves has left and the last one has not come yet.
        between = tuple(running[:-1]) if batch and added and draw(st.integers(0, 3)) == 3 else None
        codes = draw(
            st.lists(st.integers(0, _ROW_CODES - 1), min_size=manner.rows[0], max_size=manner.rows[1])
        )
        rows, clock = _rows(codes, clock, positions, manner.steps_us)
        strategy = draw(st.sampled_from(few))
        steps.append(Step(tuple(running), rows, between=between, strategy=strategy))
    slack_us = draw(st.sampled_from((25, 4, 0, 60)))
    return Case(streams, tuple(steps), draw(st.integers(1, 2)), slack_us, stored=draw(st.booleans()))


def _rows(
    codes: Sequence[int], clock: int, positions: dict[int, int], steps_us: Sequence[int]
) -> tuple[tuple[tuple[int, Row], ...], int]:
    """Return rows in order of time, and the clock after them; ``positions`` count on."""
    rows = []
    for code in codes:
        code, stream = divmod(code, 2)
        code, advance = divmod(code, 4)
        v, w = divmod(code, 2)
        clock += steps_us[advance]
        values = {"k": 1, "m": None, "v": v, "w": w}
        rows.append((1 + stream, Row(positions[1 + stream], clock, values)))
        positions[1 + stream] += 1
    return tuple(rows), clock


def _query(draw: st.DrawFn, number: int, manner: Manner, first: bool) -> Query:
    return a_query(
        number,
        draw(_windows),
        draw(_windows),
        filter_a=draw(st.sampled_from(manner.filters)),
        filter_b=draw(st.sampled_from(manner.filters)),
        columns_a=draw(st.sampled_from(manner.columns)),
        columns_b=draw(st.sampled_from(manner.columns)),
        backfill="none" if first or draw(st.integers(0, 3)) == 3 else "state",
    )
