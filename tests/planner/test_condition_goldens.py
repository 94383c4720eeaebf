"""Conditions as people write them, good and bad, and what becomes of each; `make golden` rewrites these.

A condition is that of a join of streams A and B by k, over ten seconds; how streams are declared is in
``tests.planner.cql_streams``.
"""

from __future__ import annotations

from pathlib import Path

from catalog.errors import InvalidInput
from planner.bind.bind import bind
from tests.planner.cql_streams import STREAMS
from tests.planner.goldens import check_golden

GOLDEN = Path(__file__).parent / "golden" / "conditions" / "conditions.txt"
BEFORE = "SELECT A.k FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE A.k = B.k AND "
WINDOW_US = 10_000_000


def test_conditions_mean_what_the_golden_file_says(rewrite_goldens: bool) -> None:
    check_golden(GOLDEN, answer, rewrite=rewrite_goldens)


def answer(question: list[str]) -> str:
    try:
        query = bind(BEFORE + "\n".join(question), STREAMS)
    except InvalidInput as error:
        hint = f"\n  hint: {error.hint}" if error.hint else ""
        return f"{error.code}: {error.primary}{hint}"
    lines = [
        *(f"{name}: {side.filter}" for name, side in (("A", query.a), ("B", query.b)) if side.filter),
        *([f"pair: {query.residual}"] if query.residual else []),
        *(f"key A.{a} = B.{b}" for a, b in query.key if a != "k"),
    ]
    if (query.a.window_us, query.b.window_us) != (WINDOW_US, WINDOW_US):
        lines.append(f"windows {query.a.window_us} us, {query.b.window_us} us")
    return "\n".join(lines) or "always true"
