"""State-Slice (VLDB 2006, §4.1), Table 2, "Execution of the Chain: J1, J2", replayed step by step.

One-way chain J1 = A[0, w1) |>< B, J2 = A[w1, w2) |>< B with w1 = 2 s and w2 = 4 s, cartesian (here: one
key), rows a1, a2, a3, b1, b2 in seconds 1 to 5 and a4 in the 8th.

Where the table and we differ:

- The table runs one operator per second, so that J2 purges and probes seconds after J1 and males wait in a
  queue between them. We run a batch through the whole chain at once: after each row the queue is empty, and
  the states and outputs of J1 and J2 are those that the table reaches once J2 has caught up.
- In the table a row at a distance of exactly w still counts as inside (b1 at 4 s joins a2 of 2 s in J1, b2 at
  5 s joins a1 of 1 s in J2), as in the purge of Figure 9 (T_a - T_b > W_end); Definition 1 (w_start <= T_b -
  T_a < w_end), the sentence below the table ("since T_b1 - T_a1 >= 2sec"), the proof of Lemma 1 and the
  design say outside. Windows of w + 1 µs give the table's rows, windows of w those of Definition 1; both are
  replayed.
- In the table a3 has left J1 in the 9th second, though no b has come since b2 at 5 s, at a distance of 2 s;
  we keep it, since by §4.1 and Lemma 1 an arriving b alone purges. (Our copy of the text has Figure 6's purge
  step garbled.)
- a4 meets no later male, so the second in which it comes decides nothing but its own insertion.
"""

from __future__ import annotations

import pytest

from catalog.values.plan import SHARED_JOIN
from planner.build.build_plan import build_plan
from tests.builders import SECOND_US, a_query, a_stream
from tests.operators.harness import Runner
from tests.operators.queries import Row, a_table

A, B = 1, 2
STREAMS = {A: a_stream(A), B: a_stream(B)}
VALUES = {"k": 7, "m": None, "v": None, "w": None}

#: second, stream, name of the row
ARRIVALS = ((1, A, "a1"), (2, A, "a2"), (3, A, "a3"), (4, B, "b1"), (5, B, "b2"), (8, A, "a4"))

#: After each arrival: state of J1, state of J2, output.
PRINTED = (
    ("a1", "", ""),
    ("a1 a2", "", ""),
    ("a1 a2 a3", "", ""),
    ("a2 a3", "a1", "a1b1 a2b1 a3b1"),
    ("a3", "a1 a2", "a1b2 a2b2 a3b2"),
    ("a3 a4", "a1 a2", ""),
)
HALF_OPEN = (
    ("a1", "", ""),
    ("a1 a2", "", ""),
    ("a1 a2 a3", "", ""),
    ("a3", "a1 a2", "a1b1 a2b1 a3b1"),
    ("", "a2 a3", "a2b2 a3b2"),
    ("a4", "a2 a3", ""),
)
#: Outputs of J1 alone: the answer of the query with the window w1.
PRINTED_J1 = {"a2b1", "a3b1", "a3b2"}
HALF_OPEN_J1 = {"a3b1"}


@pytest.mark.parametrize("slack_us", [None, 0], ids=["default slack", "no slack"])
@pytest.mark.parametrize(
    ("closed_us", "expected", "of_j1"),
    [(1, PRINTED, PRINTED_J1), (0, HALF_OPEN, HALF_OPEN_J1)],
    ids=["as printed: distance w is inside", "Definition 1: distance w is outside"],
)
def test_table_2_execution_of_the_chain(
    closed_us: int, expected: tuple[tuple[str, str, str], ...], of_j1: set[str], slack_us: int | None
) -> None:
    windows = [w * SECOND_US + closed_us for w in (2, 4)]
    # The other direction is [NOW]: no two rows of the table share a second, so the chain is one-way.
    plan = build_plan([a_query(q, w, 1) for q, w in enumerate(windows, 1)], STREAMS)
    runner = Runner(STREAMS, slack_us=slack_us)
    runner.step({}, [plan])
    j1: set[str] = set()
    for (second, stream, name), (state_1, state_2, output) in zip(ARRIVALS, expected, strict=True):
        before = dict(runner.results)
        row = Row(int(name[1:]), second * SECOND_US, VALUES)
        runner.step({stream: a_table(STREAMS[stream], [row])})
        made = {(q, f"a{a}b{b}") for q, a, b in runner.results.keys() - before.keys()}
        states = [{f"a{pos}" for pos in held} for held in runner.state_rows(plan.families[0].id, "a")]
        assert states == [set(state_1.split()), set(state_2.split())], f"states after {name}"
        assert {pair for q, pair in made if q == 2} == set(output.split()), f"output after {name}"
        j1 |= {pair for q, pair in made if q == 1}
    assert j1 == of_j1
    results_of_slices = [runner.done[plan.families[0].id, SHARED_JOIN, "a", n]["results"] for n in (1, 2)]
    assert results_of_slices == [len(of_j1), len({p for q, p in _pairs(runner) if q == 2} - of_j1)]


def _pairs(runner: Runner) -> set[tuple[int, str]]:
    return {(q, f"a{a}b{b}") for q, a, b in runner.results}
