"""Event bodies, good and bad, and the rows or the problem that they become; `make golden` rewrites these.

The stream has a column of every type: ts, b boolean, i int, l bigint, x double, s string, d date,
t timestamp, m decimal(10,2), n decimal(38,38).
"""

from __future__ import annotations

import json
from pathlib import Path

from api.problems import problem
from api.streams.event_body import parse_events
from catalog.errors import InvalidInput
from service.inputs.sources.posted.events import events_to_table
from tests.fuzz.corpus import EVENT_STREAM
from tests.planner.goldens import check_golden

GOLDEN = Path(__file__).parent / "golden" / "events.txt"
IN_WORDS = {"(empty)": "", "(blanks)": "   "}


def test_event_bodies_become_what_the_golden_file_says(rewrite_goldens: bool) -> None:
    check_golden(GOLDEN, answer, rewrite=rewrite_goldens)


def answer(question: list[str]) -> str:
    body = "\n".join(question)
    try:
        table = events_to_table(
            EVENT_STREAM, parse_events(IN_WORDS.get(body, body).encode(), "application/json")
        )
    except InvalidInput as error:
        said = problem(error, "/")
        lines = [f"{said.status} {said.code}: {said.detail}", said.explanation, said.hint]
        return "\n  ".join(line for line in lines if line)
    rows = [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]
    return "\n".join(" ".join(f"{name}={_shown(value)}" for name, value in row.items()) for row in rows)


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
